use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use chunk::{HugePages, Packet, Pool, Region, reasons};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, Endianness, TsResolution};
use proptest::prelude::*;

use super::*;
use crate::{RxQueue, TxQueue};

fn pool(cells: u32) -> Pool {
    Pool::new(Region::new(cells, HugePages::Off).unwrap().1, 16)
}

/// Receives everything; the packets as times and bytes, and the errors.
fn receive_all(rx: &mut CaptureRx, pool: &mut Pool) -> (Vec<(u64, Vec<u8>)>, Vec<String>) {
    let (mut frames, mut errors, mut out) = (Vec::new(), Vec::new(), Vec::new());
    while !rx.is_finished() {
        rx.recv(pool, &mut out, 32);
        for packet in out.drain(..) {
            frames.push((packet.time_ns, packet.segments().collect::<Vec<_>>().concat()));
            packet.free(pool);
        }
        errors.extend(std::iter::from_fn(|| rx.take_error()));
    }
    (frames, errors)
}

/// A capture of `frames` by the writer under test.
fn written(frames: &[(u64, Vec<u8>)], format: Format) -> Vec<u8> {
    let mut writer = CaptureWriter::new(Vec::new(), format).unwrap();
    for (time_ns, frame) in frames {
        writer.write_bytes(frame, *time_ns, None).unwrap();
    }
    writer.into_inner()
}

/// Builds pcapng blocks in either byte order, for what no writer at hand can write.
struct Ng {
    bytes: Vec<u8>,
    big: bool,
}

impl Ng {
    fn new(big: bool) -> Self {
        let mut ng = Self { bytes: Vec::new(), big };
        ng.section();
        ng
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u16(&self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn block(&mut self, kind: u32, body: &[&[u8]]) {
        let body = body.concat();
        let padded = body.len().next_multiple_of(4);
        let len = self.u32(padded as u32 + 12);
        let kind = self.u32(kind);
        self.bytes.extend([kind, len].concat());
        self.bytes.extend_from_slice(&body);
        self.bytes.resize(self.bytes.len() + padded - body.len(), 0);
        self.bytes.extend(len);
    }

    fn section(&mut self) {
        let (mark, version) = (self.u32(0x1a2b_3c4d), [self.u16(1), self.u16(0)].concat());
        self.block(0x0a0d_0d0a, &[&mark, &version, &[0xff; 8]]);
    }

    fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.u16(code), self.u16(value.len() as u16)].concat();
        option.extend_from_slice(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn interface(&mut self, link_type: u16, snap_len: u32, options: &[u8]) {
        let (link, snap) = (self.u16(link_type), self.u32(snap_len));
        self.block(1, &[&link, &[0; 2], &snap, options]);
    }

    fn packet(&mut self, interface: u32, ticks: u64, data: &[u8], options: &[u8]) {
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        let words = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, 9999];
        let words = words.map(|w| self.u32(w)).concat();
        self.block(6, &[&words, &padded, options]);
    }
}

#[test]
fn times_follow_the_interfaces_resolution_and_offset() {
    // if_tsresol, if_tsoffset, ticks, nanoseconds
    let cases: &[(Option<u8>, i64, u64, u64)] = &[
        (None, 0, 1_600_000_000_123_456, 1_600_000_000_123_456_000),
        (Some(6), 0, 7, 7_000),
        (Some(9), 0, 1_600_000_000_123_456_789, 1_600_000_000_123_456_789),
        (Some(3), 0, 1500, 1_500_000_000),
        (Some(0), 0, 12, 12_000_000_000),
        (Some(12), 0, 5_999, 5),
        (Some(127), 0, u64::MAX, 0),
        (Some(0x80 | 10), 0, 1024 + 512, 1_500_000_000),
        (Some(0x80 | 32), 0, (3 << 32) | (1 << 31), 3_500_000_000),
        (Some(0x80), 0, 4, 4_000_000_000),
        (Some(0xff), 0, u64::MAX, 0),
        (Some(9), 1_600_000_000, 42, 1_600_000_000_000_000_042),
        (Some(6), -2, 3_000_000, 1_000_000_000),
        (Some(6), -9, 3_000_000, 0),
        (Some(0), 0, u64::MAX, u64::MAX),
    ];
    for big in [false, true] {
        for &(resolution, offset, ticks, expected) in cases {
            let mut ng = Ng::new(big);
            let mut options = ng.option(2, b"eth0");
            if let Some(resolution) = resolution {
                options.extend(ng.option(9, &[resolution]));
            }
            let offset_bytes = if big { offset.to_be_bytes() } else { offset.to_le_bytes() };
            options.extend(ng.option(14, &offset_bytes));
            ng.interface(1, 0, &options);
            ng.packet(0, ticks, &[1, 2, 3], &[]);
            let (records, error) = read_all(&ng.bytes);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(records[0].time_ns, expected, "{resolution:?} {offset} {ticks} {big}");
        }
    }
}

#[test]
fn all_blocks_of_several_sections_in_both_orders() {
    let mut both = Vec::new();
    for big in [false, true] {
        let mut ng = Ng::new(big);
        ng.interface(1, 4, &[]);
        ng.interface(105, 0, &[]);
        ng.block(4, &[&[0; 8]]); // name resolution
        let comment = [ng.option(2, &[0; 4]), ng.option(1, b"no route"), ng.option(0, &[])];
        ng.packet(0, 1, &[1; 5], &comment.concat());
        ng.block(0x0000_0bad, &[&[7; 20]]); // custom
        ng.packet(1, 2, &[2; 8], &[]);
        let words = [ng.u32(0), ng.u32(3), ng.u32(6), ng.u32(6)].concat();
        ng.block(2, &[&ng.u16(0), &ng.u16(77), &words, &[3; 6]]); // obsolete packet block
        ng.block(3, &[&ng.u32(9), &[4; 4]]); // simple packet block, cut to the snap length
        ng.block(3, &[&ng.u32(2), &[5; 2]]);
        both.extend(ng.bytes);
    }
    let (records, error) = read_all(&both);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(records.len(), 10);
    for records in records.chunks(5) {
        let data: Vec<_> = records.iter().map(|r| r.data.as_slice()).collect();
        assert_eq!(data, [&[1u8; 5][..], &[2; 8], &[3; 6], &[4; 4], &[5; 2]]);
        assert_eq!(records[0].comment.as_deref(), Some("no route"));
        assert_eq!(records[1].link_type, LinkType(105));
        let meta: Vec<_> = records.iter().map(|r| (r.time_ns, r.wire_len, r.interface)).collect();
        assert_eq!(meta, [(1000, 9999, 0), (2000, 9999, 1), (3000, 6, 0), (0, 9, 0), (0, 2, 0)]);
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let good = written(&[(5, vec![7; 60]), (6, vec![8; 60])], Format::Pcap);
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let ng = |build: fn(&mut Ng)| {
        let mut ng = Ng::new(true);
        build(&mut ng);
        ng.bytes
    };
    let cases: &[(Vec<u8>, usize, &str)] = &[
        (vec![], 0, "at byte 0: not a capture: 0 bytes, expected a pcap or pcapng header"),
        (
            b"GIF89a, and so on and on".to_vec(),
            0,
            "at byte 0: not a capture: begins with 0x38464947, expected a pcap or pcapng magic number",
        ),
        (
            good[..9].to_vec(),
            0,
            "at byte 0: ends within the pcap header: 9 bytes left, expected 24",
        ),
        (changed(4, &[7]), 0, "at byte 0: version 7.4, expected 2.4"),
        (
            good[..good.len() - 1].to_vec(),
            1,
            "at byte 100: ends within a record: 59 bytes left, expected 60",
        ),
        (
            good[..103].to_vec(),
            1,
            "at byte 100: ends within a record header: 3 bytes left, expected 16",
        ),
        (
            changed(108, &[0xff; 4]),
            1,
            "at byte 100: a record of 4294967295 bytes, expected at most 64 MiB",
        ),
        (
            ng(|ng| ng.bytes[8] = 0),
            0,
            "at byte 0: byte-order magic 0x4d3c2b00, expected 0x1a2b3c4d in either order",
        ),
        (
            ng(|ng| ng.packet(0, 0, &[], &[])),
            0,
            "at byte 28: packet of interface 0, but only 0 are described",
        ),
        (
            ng(|ng| {
                ng.interface(1, 0, &[]);
                ng.packet(0, 0, &[1; 40], &[]);
                ng.packet(0, 0, &[1; 40], &[]);
                let last = ng.bytes.len() - 1;
                ng.bytes[last] += 4;
            }),
            1,
            "at byte 120: leading 72 and trailing 76 block lengths differ",
        ),
        (
            ng(|ng| ng.bytes.extend([0, 0, 0, 6, 0, 0, 0, 14, 0, 0, 0, 0])),
            0,
            "at byte 28: a block of 14 bytes, expected a multiple of 4 from 12",
        ),
        (
            ng(|ng| {
                ng.interface(1, 0, &[]);
                let words = [0, 0, 0, 44, 44].map(u32::to_be_bytes).concat();
                ng.block(6, &[&words, &[0; 40]]);
            }),
            0,
            "at byte 48: ends within a packet: 40 bytes left, expected 44",
        ),
    ];
    for (bytes, records, message) in cases {
        let (read, error) = read_all(bytes);
        assert_eq!(error.expect(message).to_string(), *message);
        assert_eq!(read.len(), *records, "{message}");
    }
}

#[test]
fn a_capture_cut_anywhere_gives_what_is_whole() {
    let frames: Vec<_> = (0..4u64).map(|i| (i, vec![i as u8; 3 + i as usize])).collect();
    for format in [Format::Pcap, Format::PcapNg] {
        let whole = written(&frames, format);
        let ends: Vec<_> = (0..=4).map(|n| written(&frames[..n], format).len()).collect();
        for cut in 0..whole.len() {
            let (records, error) = read_all(&whole[..cut]);
            let expected = ends.iter().filter(|&&end| end <= cut).count().saturating_sub(1);
            assert_eq!(records.len(), expected, "{format:?} cut at {cut}");
            // The section header alone is a capture without interfaces.
            let at_an_end = ends.contains(&cut) || (format == Format::PcapNg && cut == 28);
            assert_eq!(error.is_none(), at_an_end, "{format:?} cut at {cut}");
        }
    }
}

#[test]
fn a_folder_is_read_in_order_of_time_and_past_corrupt_files() {
    let folder = tempfile::tempdir().unwrap();
    let frame = |n: u8| (1_000 + u64::from(n), vec![n; 64]);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(&written(&[frame(3)], Format::PcapNg)).unwrap();
    let corrupt = written(&[frame(1), frame(2), frame(9)], Format::Pcap);
    let files: &[(&str, Vec<u8>)] = &[
        ("b.pcap", corrupt[..corrupt.len() - 5].to_vec()),
        ("c.pcapng.gz", gz.finish().unwrap()),
        ("z.cap", written(&[frame(0)], Format::Pcap)),
        ("readme.txt", b"not a capture".to_vec()),
        ("d.pcap", written(&[], Format::PcapNg)),
        ("deep/er/e.pcap", written(&[frame(4)], Format::Pcap)),
    ];
    std::fs::create_dir_all(folder.path().join("deep/er")).unwrap();
    std::fs::create_dir_all(folder.path().join("empty/folder")).unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let mut pool = pool(64);
    let mut rx = CaptureRx::open([folder.path()]).unwrap();
    assert_eq!(rx.peek_time_ns(), Some(1_000));
    let (frames, errors) = receive_all(&mut rx, &mut pool);
    assert_eq!(frames, [0, 1, 2, 3, 4].map(frame));
    let expected = format!(
        "{}: at byte 184: ends within a record: 59 bytes left, expected 64",
        folder.path().join("b.pcap").display()
    );
    assert_eq!(errors, [expected]);
    assert_eq!(rx.peek_time_ns(), None);
    let (done, total) = rx.progress().unwrap();
    assert_eq!(done, total);
    assert_eq!((rx.stats().packets, rx.stats().bytes, rx.stats().errors), (5, 320, 1));

    let error = CaptureRx::open([folder.path().join("readme.txt")]).unwrap_err().to_string();
    assert!(error.contains("readme.txt: at byte 0: not a capture: begins with"), "{error}");
    let error = CaptureRx::open([folder.path().join("absent.pcap")]).unwrap_err().to_string();
    assert!(error.contains("absent.pcap: No such file"), "{error}");
    let error = CaptureRx::open([folder.path().join("empty")]).unwrap_err().to_string();
    assert!(error.contains("empty: no capture in this folder"), "{error}");
}

#[test]
fn other_link_layers_become_ethernet_or_are_refused_by_name() {
    let ip4 = [0x45, 0, 0, 20, 1, 2, 3];
    let ip6 = [0x60, 0, 0, 0, 1];
    let with = |front: &[u8], rest: &[u8]| [front, rest].concat();
    let sll = [0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 0x08, 0x00];
    let sll2 = [0x86, 0xdd, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
    // Link type, packet, EtherType and what follows it.
    let cases: &[(u16, Vec<u8>, u16, &[u8])] = &[
        (101, ip4.to_vec(), 0x0800, &ip4),
        (101, ip6.to_vec(), 0x86dd, &ip6),
        (12, ip4.to_vec(), 0x0800, &ip4),
        (228, ip4.to_vec(), 0x0800, &ip4),
        (229, ip6.to_vec(), 0x86dd, &ip6),
        (0, with(&[2, 0, 0, 0], &ip4), 0x0800, &ip4),
        (0, with(&[0, 0, 0, 30], &ip6), 0x86dd, &ip6),
        (108, with(&[0, 0, 0, 24], &ip6), 0x86dd, &ip6),
        (113, with(&sll, &ip4), 0x0800, &ip4),
        (276, with(&sll2, &ip6), 0x86dd, &ip6),
        (104, with(&[0x0f, 0, 8, 0], &ip4), 0x0800, &ip4),
        (104, with(&[0x8f, 0, 0x86, 0xdd], &ip6), 0x86dd, &ip6),
        (104, vec![0x0f, 0, 8], 0xffff, &[0x0f, 0, 8]),
        (104, vec![0x0f, 0, 0, 42, 1], 0xffff, &[0x0f, 0, 0, 42, 1]),
        (101, vec![], 0xffff, &[]),
        (113, sll[..15].to_vec(), 0xffff, &sll[..15]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.pcapng");
    let mut ng = Ng::new(false);
    ng.interface(105, 0, &[]);
    for (link_type, ..) in cases {
        ng.interface(*link_type, 0, &[]);
    }
    for (i, (_, packet, ..)) in cases.iter().enumerate() {
        ng.packet(i as u32 + 1, 0, packet, &[]);
        ng.packet(0, 0, packet, &[]); // 802.11
    }
    std::fs::write(&path, &ng.bytes).unwrap();
    let mut rx = CaptureRx::open([&path]).unwrap();
    rx.set_macs([1; 6], [2; 6]);
    let (frames, errors) = receive_all(&mut rx, &mut pool(64));
    assert_eq!(errors.len(), 1, "complained once: {errors:?}");
    let end = "link type 105 (IEEE 802.11) is not Ethernet and cannot be converted to it";
    assert!(errors[0].ends_with(end), "{errors:?}");
    assert_eq!(rx.stats().dropped, cases.len() as u64);
    let unreadable = crate::lost(&rx.losses(), reasons::RX_UNREADABLE);
    assert_eq!(unreadable, cases.len() as u64);
    assert_eq!(frames.len(), cases.len());
    for ((_, frame), (link_type, _, ethertype, rest)) in frames.iter().zip(cases) {
        let macs = [[1; 6], [2; 6]].concat();
        let expected = [&macs[..], &ethertype.to_be_bytes(), rest].concat();
        assert_eq!(*frame, expected, "link type {link_type}");
    }

    let path = folder.path().join("wlan.pcap");
    let mut wlan = written(&[], Format::Pcap);
    wlan[20] = 105;
    std::fs::write(&path, wlan).unwrap();
    assert!(CaptureRx::open([&path]).unwrap_err().to_string().ends_with(end));
}

#[test]
fn packets_say_what_their_capture_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    let record = |len: u32, data: usize| testkit::pcap::Record {
        original_len: len,
        ..testkit::pcap::Record::new(1, vec![3; data])
    };
    testkit::pcap::write_pcap(&path, &[record(60, 60), record(1514, 96)]);
    let (mut pool, mut packets) = (pool(64), Vec::new());
    let mut rx = CaptureRx::open([&path]).unwrap();
    rx.recv(&mut pool, &mut packets, 8);
    let found: Vec<_> =
        packets.iter().map(|own| (own.frame_len(), own.cut_bytes(), own.wire_len())).collect();
    assert_eq!(found, [(60, 0, 60), (96, 1418, 1514)]);
    packets.into_iter().for_each(|own| own.free(&mut pool));
}

#[test]
fn a_frame_longer_than_all_cells_does_not_stop_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jumbo.pcapng");
    let frames = [(1, vec![1; 60]), (2, vec![2; 40 * 2048]), (3, vec![3; 16_450])];
    std::fs::write(&path, written(&frames, Format::PcapNg)).unwrap();
    let mut rx = CaptureRx::open([&path]).unwrap();
    let (received, _) = receive_all(&mut rx, &mut pool(20));
    assert_eq!(received, [frames[0].clone(), frames[2].clone()]);
    assert_eq!(rx.stats().dropped, 1);
    let mut rx = CaptureRx::open([&path]).unwrap();
    assert_eq!(receive_all(&mut rx, &mut pool(100)).0, frames);
}

#[test]
fn a_transmit_queue_writes_what_it_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = pool(1000);
    let frames: Vec<_> = (0..5u64).map(|i| (i, vec![i as u8; 1 << (4 * i)])).collect();
    for format in [Format::Pcap, Format::PcapNg] {
        let path = folder.path().join("out");
        let mut tx = CaptureTx::create(&path, format).unwrap();
        let mut packets = Vec::new();
        for (time_ns, bytes) in &frames {
            let mut packet = Packet::copy_from(&mut pool, bytes).unwrap();
            packet.time_ns = *time_ns;
            packets.push(packet);
        }
        tx.send(&mut pool, &mut packets);
        assert!(packets.is_empty());
        tx.flush(&mut pool);
        assert!(!tx.is_drained());
        tx.flush(&mut pool);
        assert!(tx.is_drained());
        assert_eq!(std::fs::read(&path).unwrap(), written(&frames, format));
        assert_eq!(tx.finish().unwrap().packets, 5);
    }
    assert!(CaptureTx::create(folder.path().join("no/such"), Format::Pcap).is_err());
    if Path::new("/dev/full").exists() {
        let mut tx = CaptureTx::create("/dev/full", Format::PcapNg).unwrap();
        let mut packets = vec![Packet::copy_from(&mut pool, &[1; 60]).unwrap()];
        tx.send(&mut pool, &mut packets);
        tx.flush(&mut pool);
        tx.flush(&mut pool);
        let error = tx.take_error().expect("the device is full");
        assert!(error.starts_with("/dev/full: ") && tx.take_error().is_none(), "{error}");
        assert!(tx.is_drained());
    }
}

prop_compose! {
    fn some_frames()(frames in proptest::collection::vec(
        (0u64..u64::from(u32::MAX) * 1_000_000_000, proptest::collection::vec(any::<u8>(), 0..3000)), 0..12),
    ) -> Vec<(u64, Vec<u8>)> {
        frames
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_here_and_by_pcap_file(frames in some_frames()) {
        for format in [Format::Pcap, Format::PcapNg] {
            let bytes = written(&frames, format);
            let (records, error) = read_all(&bytes);
            prop_assert!(error.is_none(), "{:?}", error);
            let read: Vec<_> = records.into_iter().map(|r| (r.time_ns, r.data)).collect();
            prop_assert_eq!(&read, &frames);
            let theirs = oracle(&bytes).unwrap();
            prop_assert_eq!(theirs.len(), frames.len());
            for (their, (time_ns, data)) in theirs.iter().zip(&frames) {
                prop_assert_eq!((&their.data, their.wire_len), (data, data.len() as u32));
                prop_assert!(format == Format::PcapNg || their.time_ns == *time_ns);
            }
        }
    }

    #[test]
    fn what_pcap_file_writes_is_read(
        frames in some_frames(),
        big in any::<bool>(),
        nano in any::<bool>(),
    ) {
        let header = PcapHeader {
            endianness: if big { Endianness::Big } else { Endianness::Little },
            ts_resolution: if nano { TsResolution::NanoSecond } else { TsResolution::MicroSecond },
            datalink: DataLink::ETHERNET,
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for (time_ns, data) in &frames {
            let time = std::time::Duration::from_nanos(*time_ns);
            let wire_len = data.len() as u32 + 4;
            writer.write_packet(&PcapPacket::new(time, wire_len, data)).unwrap();
        }
        let (records, error) = read_all(&writer.into_writer());
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(records.len(), frames.len());
        for (record, (time_ns, data)) in records.iter().zip(&frames) {
            let time_ns = if nano { *time_ns } else { time_ns / 1000 * 1000 };
            prop_assert_eq!((record.time_ns, &record.data), (time_ns, data));
            prop_assert_eq!(record.wire_len, data.len() as u32 + 4);
        }
    }

    #[test]
    fn comments_of_any_length_come_back(comment in ".{0,300}", len in 0usize..9) {
        let mut writer = CaptureWriter::new(Vec::new(), Format::PcapNg).unwrap();
        writer.write_bytes(&vec![1; len], 1, Some(&comment)).unwrap();
        writer.write_bytes(&[2; 60], 2, None).unwrap();
        let (records, error) = read_all(&writer.into_inner());
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(records[0].comment.as_deref(), Some(comment.as_str()));
        prop_assert_eq!((records.len(), records[1].comment.as_deref()), (2, None));
    }

    #[test]
    fn no_bytes_make_it_panic(
        frames in some_frames(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        ng in any::<bool>(),
    ) {
        let mut bytes = written(&frames, if ng { Format::PcapNg } else { Format::Pcap });
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = read_all(&bytes);
    }
}

/// The records as pcap-file reads them (times of pcapng are not to be trusted).
fn oracle(bytes: &[u8]) -> Option<Vec<OwnedRecord>> {
    let record = |time: std::time::Duration, data: &[u8], wire_len| OwnedRecord {
        time_ns: time.as_nanos() as u64,
        data: data.to_vec(),
        wire_len,
        link_type: LinkType::ETHERNET,
        interface: 0,
        comment: None,
    };
    let mut records = Vec::new();
    if bytes.starts_with(&[0x0a, 0x0d]) {
        let mut reader = PcapNgReader::new(bytes).ok()?;
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.ok()? {
                records.push(record(packet.timestamp, &packet.data, packet.original_len));
            }
        }
    } else {
        let mut reader = PcapReader::new(bytes).ok()?;
        while let Some(packet) = reader.next_packet() {
            let packet = packet.ok()?;
            records.push(record(packet.timestamp, &packet.data, packet.orig_len));
        }
    }
    Some(records)
}

/// Every capture of the project, and under `../shared/data` where that is.
fn real_captures() -> Vec<PathBuf> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                walk(&path, files);
            } else if [".pcap", ".pcapng", ".pcap.gz"].iter().any(|end| name.ends_with(end)) {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&testkit::data::repository().join("tests/data"), &mut files);
    for folder in ["pcap-mixed", "pcap-tcp", "pcap-l7"] {
        walk(&testkit::data::repository().join("../shared/data").join(folder), &mut files);
    }
    assert!(files.len() >= 20, "{} captures", files.len());
    files.sort();
    files
}

fn contents(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&bytes[..]), &mut plain)
        .unwrap();
    plain
}

#[test]
fn real_captures_are_read_as_pcap_file_reads_them() {
    let mut compared = 0;
    for path in real_captures() {
        let bytes = contents(&path);
        let (records, error) = read_all(&bytes);
        assert!(error.is_none(), "{}: {error:?}", path.display());
        let Some(theirs) = oracle(&bytes) else {
            println!("pcap-file cannot read {}", path.display());
            continue;
        };
        assert_eq!(records.len(), theirs.len(), "{}", path.display());
        for (n, (record, their)) in records.iter().zip(&theirs).enumerate() {
            assert!(record.data == their.data, "{}: packet {n}", path.display());
            assert_eq!(record.wire_len, their.wire_len, "{}: packet {n}", path.display());
            if !bytes.starts_with(&[0x0a, 0x0d]) {
                assert_eq!(record.time_ns, their.time_ns, "{}: packet {n}", path.display());
            }
        }
        compared += 1;
    }
    println!("{compared} captures compared");
}

/// tshark knows the resolution of pcapng's times; pcap-file does not.
#[test]
fn real_captures_are_read_as_tshark_reads_them() {
    let Some(program) = testkit::require_tool("tshark") else { return };
    for path in real_captures() {
        let bytes = contents(&path);
        if !bytes.starts_with(&[0x0a, 0x0d]) && !path.to_string_lossy().contains("pcap-mixed") {
            continue; // a second per file; pcap-file has seen them
        }
        let fields = ["frame.time_epoch", "frame.cap_len", "frame.len"];
        let mut tshark = Command::new(&program);
        tshark.args(["-n", "-T", "fields", "-r"]).arg(&path);
        tshark.args(fields.iter().flat_map(|field| ["-e", field]));
        let output = tshark.output().unwrap();
        let (records, _) = read_all(&bytes);
        let ours: String = records
            .iter()
            .map(|r| {
                let (s, ns) = (r.time_ns / 1_000_000_000, r.time_ns % 1_000_000_000);
                format!("{s}.{ns:09}\t{}\t{}\n", r.data.len(), r.wire_len)
            })
            .collect();
        assert!(ours == String::from_utf8_lossy(&output.stdout), "{}", path.display());
    }
}

#[test]
fn interfaces_and_directions_are_written() {
    let mut writer = CaptureWriter::with_interfaces(Vec::new()).unwrap();
    assert_eq!(writer.interface("lan").unwrap(), 0);
    let seen = |interface, outgoing| Seen { interface, outgoing };
    // What no reader could make sense of is not written.
    assert!(writer.write_from(seen(1, true), &[7; 61], 5, Some("why")).is_err());
    assert_eq!(writer.interface("wan.100").unwrap(), 1);
    writer.write_from(seen(1, true), &[7; 61], 5, Some("why")).unwrap();
    assert_eq!(writer.interface("lan").unwrap(), 0);
    writer.write_from(seen(0, false), &[8; 60], 6, None).unwrap();
    // One that comes in the middle.
    assert_eq!(writer.interface("late").unwrap(), 2);
    writer.write_from(seen(2, false), &[9; 60], 7, None).unwrap();
    let bytes = writer.into_inner();
    let (records, error) = read_all(&bytes);
    assert!(error.is_none(), "{error:?}");
    let found: Vec<_> = records
        .iter()
        .map(|r| (r.interface, r.time_ns, r.data.len(), r.comment.as_deref()))
        .collect();
    assert_eq!(found, [(1, 5, 61, Some("why")), (0, 6, 60, None), (2, 7, 60, None)]);
    let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    // if_name, and epb_flags of a frame that leaves and of one that comes in.
    assert!(has(b"\x02\0\x07\0wan.100\0") && has(&[2, 0, 4, 0, 2]) && has(&[2, 0, 4, 0, 1]));
    assert_eq!(Format::of("a/b.PCAP".as_ref()), Format::Pcap);
    assert_eq!(Format::of("a.pcap/b".as_ref()), Format::PcapNg);
}

#[test]
fn a_pipe_is_opened_once_and_ends_when_it_is_to() {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    let frames: Vec<_> = (1..=3u64).map(|i| (i, vec![i as u8; 60])).collect();
    let whole = written(&frames, Format::Pcap);
    let mut pool = pool(64);
    for stops in [false, true] {
        let (reads, mut writes) = std::io::pipe().unwrap();
        // The last record is not whole yet.
        writes.write_all(&whole[..whole.len() - 20]).unwrap();
        let path = format!("/dev/fd/{}", reads.as_raw_fd());
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let mut rx = CaptureRx::open_until([path], stop.clone()).unwrap();
        let mut out = Vec::new();
        rx.recv(&mut pool, &mut out, 2);
        assert_eq!(out.drain(..).map(|packet| packet.free(&mut pool)).count(), 2);
        if stops {
            stop.store(true, Ordering::Relaxed);
        } else {
            writes.write_all(&whole[whole.len() - 20..]).unwrap();
            drop(writes);
        }
        let (rest, errors) = receive_all(&mut rx, &mut pool);
        let expected = if stops { &[][..] } else { &frames[2..] };
        assert_eq!((&rest[..], errors), (expected, Vec::new()));
        assert!(rx.progress().unwrap().0 > 0);
    }
}

#[test]
fn the_first_error_of_an_output_is_reported_at_once_or_when_it_is_closed() {
    for (packets, at_once) in [(10_000, true), (1, false)] {
        let mut tx = CaptureTx::create("/dev/full", Format::PcapNg).unwrap();
        let (sender, errors) = std::sync::mpsc::channel();
        tx.on_failure(move |error| sender.send(error).unwrap());
        let mut pool = pool(8);
        let packet = Packet::copy_from(&mut pool, &[7; 60]).unwrap();
        (0..packets).for_each(|_| tx.write_with_comment(&packet, 1, None));
        packet.free(&mut pool);
        assert_eq!(errors.try_recv().is_ok(), at_once);
        assert_eq!(tx.take_error(), None);
        drop(tx);
        assert_eq!(errors.recv().is_ok(), !at_once);
    }
}
