//! The forwarder's stages over frames: Interests out, Data back, and each way to be dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use apps::ndn::pit::PitLimits;
use apps::ndn::reasons;
use apps::ndn::store::StoreLimits;
use apps::ndn::{
    Face, NdnColumns, NdnCounters, NdnOptions, NdnPatch, NdnPort, NdnTables, Question, UdpEnds,
    pipeline, spread_hash,
};
use chunk::{
    Arena, Chunk, Columns, Depot, DropReason, HugePages, Layout, Packet, Pool, Region, Rows,
    Verdict, VerdictKind,
};
use engine::{Context, Stage};
use lookup::names::{NameFibBuilder, NameHasher, NameLimits, NameList};
use lookup::versions::Patchable;
use packet::ndn::{self, Body, InterestFields, LinkHeader, Nack, NameBuf};

thread_local! {
    static DEPOT: Arc<Depot> = Region::new(4096, HugePages::Off).expect("memory").1;
}

pub(crate) const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

pub(crate) fn mac(face: u16) -> [u8; 6] {
    [2, 0, 0, 0, 1, face as u8]
}

pub(crate) fn uri(text: &str) -> NameBuf {
    NameBuf::from_uri(text.as_bytes()).unwrap()
}

fn ends(face: u16) -> Option<UdpEnds> {
    let addresses: [IpAddr; 2] = match face {
        2 => ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
        3 => ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()],
        _ => return None,
    };
    Some(UdpEnds { addresses, ports: [6363, 6363] })
}

/// Face 0 and 1 on Ethernet, 2 on UDP over IPv4, 3 over IPv6, 4 the group on port 4.
pub(crate) fn face(index: u16) -> Face {
    Face {
        name: format!("f{index}"),
        up: true,
        port: index,
        mtu: 1500,
        mac: OURS,
        neighbour_mac: Some(if index == 4 { ndn::MULTICAST_MAC.0 } else { mac(index) }),
        udp: ends(index),
        on_demand: false,
    }
}

/// `/a` by face 1, else 2; `/a/b` by face 3; `/m` by the group.
fn tables() -> NdnTables {
    let mut names = NameList::new();
    for text in ["/a", "/a/b", "/m"] {
        names.push(uri(text).name().encodings());
    }
    let hasher = NameHasher::new(3);
    let blob = NameFibBuilder::build(hasher, &names, &[1, 2, 3], NameLimits::of(16)).unwrap().1;
    let mut tables = NdnTables::new(blob);
    for index in 0..5 {
        tables.apply(&NdnPatch::Face(index, Some(face(index))));
    }
    for (hop, faces) in [(1, vec![1, 2]), (2, vec![3]), (3, vec![4])] {
        tables.apply(&NdnPatch::Hop(hop, faces));
    }
    tables
}

/// A frame as a neighbour sends it.
pub(crate) fn frame(from: u16, ndn: &[u8]) -> Vec<u8> {
    match from {
        2 => {
            let frame = testkit::frames::Frame::new().macs(mac(2), OURS);
            frame.ipv4("10.0.0.2", "10.0.0.1").udp(6363, 6363, ndn).bytes()
        }
        3 => {
            let frame = testkit::frames::Frame::new().macs(mac(3), OURS);
            frame.ipv6("fd00::2", "fd00::1").udp(6363, 6363, ndn).bytes()
        }
        _ => {
            let to = if from == 4 { ndn::MULTICAST_MAC.0 } else { OURS };
            [&to[..], &mac(from), &[0x86, 0x24], ndn].concat()
        }
    }
}

pub(crate) fn interest(text: &str, nonce: u32) -> Vec<u8> {
    let fields = InterestFields { nonce: Some(nonce), hop_limit: Some(9), ..Default::default() };
    interest_with(text, fields)
}

pub(crate) fn interest_with(text: &str, fields: InterestFields) -> Vec<u8> {
    let mut out = Vec::new();
    ndn::emit_interest(uri(text).name().value(), &fields, None, &mut out).unwrap();
    out
}

pub(crate) fn data(text: &str) -> Vec<u8> {
    data_fresh(text, 0)
}

pub(crate) fn data_fresh(text: &str, fresh_ms: u64) -> Vec<u8> {
    let mut out = Vec::new();
    ndn::emit_data(uri(text).name().value(), fresh_ms, b"content", &mut out).unwrap();
    out
}

pub(crate) fn with_token(token: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let link = LinkHeader { pit_token: token, ..LinkHeader::default() };
    ndn::emit_link(&link, packet, &mut out);
    out
}

pub(crate) struct Bench {
    pub(crate) counters: Arc<NdnCounters>,
    pool: Pool,
    pub(crate) tables: NdnTables,
    stages: Vec<Box<dyn Stage<NdnTables>>>,
    rows: Option<Rows>,
    options: NdnOptions,
    pub(crate) now_ns: u64,
}

/// Beside a port's number: its twin.
const HOST: u16 = 1 << 15;

/// In place of a port's number: the stage holds the packet.
pub(crate) const TAKEN: u16 = u16::MAX;

/// What became of a packet: its own fate, and where copies went.
#[derive(Debug, PartialEq)]
pub(crate) struct Fate {
    pub(crate) own: Result<(u16, Vec<u8>), DropReason>,
    pub(crate) copies: Vec<(u16, Vec<u8>)>,
}

impl Bench {
    pub(crate) fn new(limits: PitLimits, nack: bool) -> Self {
        Self::with_store(limits, nack, StoreLimits::default())
    }

    /// One that asks control.
    pub(crate) fn asking() -> (Self, Receiver<Question>) {
        let (asked, questions) = sync_channel(4);
        let mut bench = Self::new(PitLimits::of(16), true);
        bench.stages = pipeline(&NdnOptions { control: Some(asked), ..bench.options.clone() });
        (bench, questions)
    }

    pub(crate) fn with_store(limits: PitLimits, nack: bool, store: StoreLimits) -> Self {
        let arena = Arena::new(Layout::new(NdnColumns::COLUMNS, chunk::CHUNK_PACKETS_MAX));
        let counters = Arc::new(NdnCounters::new());
        let options = NdnOptions {
            hasher: NameHasher::new(4),
            pit: limits,
            nack,
            packet_time: false,
            store,
            first_region: 0,
            control: None,
            counters: counters.clone(),
        };
        Self {
            pool: Pool::new(DEPOT.with(Arc::clone), 64),
            tables: tables(),
            stages: pipeline(&options),
            options,
            counters,
            rows: arena.reserve(chunk::CHUNK_PACKETS_MAX),
            now_ns: 1_700_000_000_000_000_000,
        }
    }

    /// Carries a chunk of frames, each with its port, through all stages.
    pub(crate) fn run(&mut self, inputs: &[(u16, Vec<u8>)]) -> Vec<Fate> {
        self.run_marked(inputs, 0)
    }

    fn run_marked(&mut self, inputs: &[(u16, Vec<u8>)], mark: u32) -> Vec<Fate> {
        let mut chunk = Chunk::new(self.rows.take().unwrap(), 0);
        for (port, frame) in inputs {
            let mut packet = Packet::copy_from(&mut self.pool, frame).unwrap();
            (packet.port, packet.mark) = (*port, mark);
            chunk.packets.push(packet);
        }
        chunk.rows.set_len(inputs.len());
        let mut noise = 1_u64;
        NdnColumns::randomise(&mut chunk.rows, &mut || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise
        });
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        for stage in &mut self.stages {
            let mut cx = Context::detached(
                &mut self.pool,
                &self.tables,
                self.now_ns,
                &mut dropped,
                &mut released,
            );
            stage.pre_shade(&mut chunk, &mut cx);
            if let Some(shader) = stage.shader() {
                shader.shade_packets(&mut chunk.rows, &mut chunk.packets, cx.tables);
            }
            stage.post_shade(&mut chunk, &mut cx);
        }
        let mut fates = Vec::new();
        for (row, packet) in chunk.packets.drain(..).enumerate() {
            let verdict = Verdict(chunk.rows.verdicts()[row]);
            let own = match verdict.kind() {
                VerdictKind::Forward => Ok((verdict.port(), packet.data().to_vec())),
                VerdictKind::Drop => Err(verdict.reason()),
                VerdictKind::Taken => Ok((TAKEN, Vec::new())),
                VerdictKind::Host => Ok((HOST | verdict.port(), packet.data().to_vec())),
                other => panic!("{other:?}"),
            };
            fates.push(Fate { own, copies: Vec::new() });
            packet.free(&mut self.pool);
        }
        for emitted in chunk.emitted.drain(..) {
            let copy = (emitted.verdict.port(), emitted.packet.data().to_vec());
            fates[usize::from(emitted.cause)].copies.push(copy);
            emitted.packet.free(&mut self.pool);
        }
        assert!(released.is_empty());
        for (packet, _) in dropped {
            packet.free(&mut self.pool);
        }
        chunk.rows.set_len(chunk::CHUNK_PACKETS_MAX);
        self.rows = Some(chunk.rows);
        fates
    }

    /// Lets the last stage look at what it holds; what it dropped and what it sent.
    pub(crate) fn tick(&mut self) -> (Vec<DropReason>, Vec<(u16, Vec<u8>)>) {
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        for stage in &mut self.stages {
            stage.tick(&mut Context::detached(
                &mut self.pool,
                &self.tables,
                self.now_ns,
                &mut dropped,
                &mut released,
            ));
        }
        let part_with = |packet: Packet, pool: &mut Pool| {
            let bytes = packet.data().to_vec();
            packet.free(pool);
            bytes
        };
        let reasons = dropped.into_iter().map(|(packet, reason)| {
            part_with(packet, &mut self.pool);
            reason
        });
        let reasons: Vec<_> = reasons.collect();
        let sent = released.into_iter();
        let sent = sent.map(|(packet, to)| (to.port(), part_with(packet, &mut self.pool)));
        (reasons, sent.collect())
    }

    /// Packets that stages hold.
    pub(crate) fn held(&self) -> usize {
        self.stages.iter().map(|stage| stage.held()).sum()
    }

    pub(crate) fn one(&mut self, from: u16, ndn: &[u8]) -> Fate {
        self.run(&[(from, frame(from, ndn))]).remove(0)
    }

    fn dropped(&mut self, from: u16, ndn: &[u8]) -> DropReason {
        let fate = self.one(from, ndn);
        assert!(fate.copies.is_empty());
        fate.own.expect_err("dropped")
    }
}

/// The NDN packet of a frame that a face was sent; the frame's headers are looked at.
pub(crate) fn sent(to: u16, frame: &[u8]) -> &[u8] {
    let group = ndn::MULTICAST_MAC.0;
    assert_eq!(frame[..6], if to == 4 { group } else { mac(to) });
    assert_eq!(frame[6..12], OURS);
    if ends(to).is_none() {
        assert_eq!(frame[12..14], [0x86, 0x24]);
        return &frame[14..];
    }
    let d = packet::decode(frame, frame.len());
    assert_eq!(d.anomaly, packet::Anomaly::None);
    let ends = ends(to).unwrap();
    assert_eq!([d.src_ip().unwrap(), d.dst_ip().unwrap()], ends.addresses);
    assert_eq!(d.ports(), Some((6363, 6363)));
    let udp = packet::udp::UdpView::new_checked(&frame[usize::from(d.l4_offset)..]).unwrap();
    assert_ne!(udp.checksum(), 0);
    let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::TransportSlice::Udp(slice)) = sliced.transport else { panic!("UDP") };
    let header = slice.to_header();
    let expected = match ends.addresses {
        [IpAddr::V4(src), IpAddr::V4(dst)] => {
            header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), udp.payload()).unwrap()
        }
        [IpAddr::V6(src), IpAddr::V6(dst)] => {
            header.calc_checksum_ipv6_raw(src.octets(), dst.octets(), udp.payload()).unwrap()
        }
        _ => panic!("one family"),
    };
    assert_eq!(udp.checksum(), expected);
    udp.payload()
}

/// Name and hop limit of an Interest.
fn asked(bytes: &[u8]) -> (String, Option<u8>) {
    match ndn::Packet::new_checked(bytes).unwrap().body {
        Body::Interest(i) => (i.name().to_string(), i.fields().hop_limit),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_interest_goes_out_and_data_comes_back_by_every_kind_of_face() {
    let mut bench = Bench::new(PitLimits::of(16), false);
    for (from, name, way) in [
        (0, "/a/x", 1),
        (1, "/a/y", 2),
        (0, "/a/b/z", 3),
        (3, "/m/1", 4),
        (2, "/a", 1),
        (4, "/a/q", 1),
    ] {
        let fate = bench.one(from, &with_token(&[7; 9], &interest(name, 1)));
        let (port, out) = fate.own.unwrap();
        assert_eq!(port, way);
        assert_eq!(asked(sent(way, &out)), (name.to_string(), Some(8)), "one hop less");
        assert!(fate.copies.is_empty());
        let fate = bench.one(way, &data(name));
        let (port, back) = fate.own.unwrap();
        assert_eq!(port, from);
        assert_eq!(sent(from, &back), with_token(&[7; 9], &data(name)), "the token comes back");
        assert_eq!(bench.dropped(way, &data(name)), reasons::NDN_UNSOLICITED);
    }
}

#[test]
fn those_who_ask_for_one_name_wait_together() {
    let mut bench = Bench::new(PitLimits::of(16), false);
    let fates = bench.run(&[
        (0, frame(0, &interest("/a/x", 1))),
        (2, frame(2, &with_token(b"t", &interest("/a/x", 2)))),
        (3, frame(3, &interest("/a/x", 1))),
        (3, frame(3, &interest("/a/x", 3))),
    ]);
    assert_eq!(fates[0].own.as_ref().unwrap().0, 1);
    assert_eq!(fates[1].own, Err(reasons::NDN_AGGREGATED));
    assert_eq!(fates[2].own, Err(reasons::NDN_LOOP), "the nonce of face 0");
    assert_eq!(fates[3].own, Err(reasons::NDN_AGGREGATED));
    assert_eq!(bench.dropped(0, &interest("/a/x", 4)), reasons::NDN_SUPPRESSED, "asked again");
    bench.now_ns += 10_000_000;
    assert_eq!(bench.one(0, &interest("/a/x", 5)).own.unwrap().0, 1, "and a little later");
    let fate = bench.one(1, &data("/a/x"));
    let mut all = fate.copies;
    all.push(fate.own.unwrap());
    all.sort();
    let ports: Vec<u16> = all.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [0, 2, 3]);
    assert_eq!(sent(0, &all[0].1), data("/a/x"));
    assert_eq!(sent(2, &all[1].1), with_token(b"t", &data("/a/x")));
    assert_eq!(sent(3, &all[2].1), data("/a/x"));
    assert_eq!(bench.dropped(0, &interest("/a/x", 1)), reasons::NDN_LOOP, "it is remembered");
}

#[test]
fn each_way_to_be_dropped() {
    let mut bench = Bench::new(PitLimits { entries: 1, ..PitLimits::of(1) }, false);
    let fields = |nonce, hop_limit| InterestFields { nonce, hop_limit, ..Default::default() };
    for hops in [0, 1] {
        let packet = interest_with("/a", fields(Some(1), Some(hops)));
        assert_eq!(bench.dropped(0, &packet), reasons::NDN_HOP_LIMIT);
    }
    assert_eq!(bench.dropped(0, &interest_with("/a", fields(None, None))), reasons::NDN_NO_NONCE);
    assert_eq!(bench.dropped(0, &interest("/nowhere", 1)), kernels::reasons::NO_ROUTE);
    assert_eq!(bench.dropped(3, &interest("/a/b/c", 1)), kernels::reasons::NO_ROUTE, "only back");
    assert_eq!(bench.dropped(0, &data("/a")), reasons::NDN_UNSOLICITED);
    let packet = interest("/a", 1);
    assert_eq!(bench.dropped(0, &packet[..packet.len() - 1]), reasons::NDN_MALFORMED);
    assert_eq!(bench.dropped(0, &[]), reasons::NDN_MALFORMED);
    let mut nack = Vec::new();
    let link = LinkHeader { nack: Some(Nack::NoRoute), ..LinkHeader::default() };
    ndn::emit_link(&link, &packet, &mut nack);
    assert_eq!(bench.dropped(1, &nack), reasons::NDN_NACK);
    assert_eq!(bench.dropped(0, &[100, 0]), reasons::NDN_IDLE);
    let fragment = [&[100, packet.len() as u8 + 5, 83, 1, 2, 80, packet.len() as u8], &packet[..]];
    assert_eq!(bench.dropped(0, &fragment.concat()), reasons::NDN_FRAGMENT);
    // A face that is none, a frame for somebody else's group, one that is cut off.
    let stranger = [&OURS[..], &mac(9), &[0x86, 0x24], &packet].concat();
    let group = [&[1, 0, 0x5e, 0, 0, 1][..], &mac(0), &[0x86, 0x24], &packet].concat();
    let fates = bench.run(&[(0, stranger), (0, group), (0, OURS.to_vec()), (7, frame(2, &packet))]);
    let reasons: Vec<_> = fates.into_iter().map(|fate| fate.own.unwrap_err()).collect();
    assert_eq!(
        reasons,
        [
            reasons::NDN_NO_FACE,
            packet::reasons::NOT_FOR_US,
            packet::reasons::TRUNCATED,
            reasons::NDN_NO_FACE
        ]
    );
    // Full, until the lifetime of what is pending ends.
    assert!(bench.one(0, &interest("/a/1", 1)).own.is_ok());
    assert_eq!(bench.dropped(0, &interest("/a/2", 2)), reasons::NDN_PIT_FULL);
    bench.now_ns += 5_000_000_000;
    assert!(bench.one(0, &interest("/a/3", 3)).own.is_ok());
    // Data that is too long for the face that waits.
    bench.tables.apply(&NdnPatch::Face(0, Some(Face { mtu: 50, ..face(0) })));
    assert_eq!(bench.dropped(1, &data("/a/3")), packet::reasons::TOO_BIG);
}

/// A neighbour that asks for everything holds a third of the table and hears of congestion; another one gets its Data.
#[test]
fn a_neighbour_that_floods_leaves_room() {
    let mut bench = Bench::new(PitLimits::of(64), true);
    let flood = |bench: &mut Bench, from: usize| {
        let mut refused = Vec::new();
        for number in from..from + 200 {
            let fate =
                bench.one(0, &with_token(&[7], &interest(&format!("/a/{number}"), number as u32)));
            if fate.own.is_err() {
                assert_eq!(fate.own, Err(reasons::NDN_PIT_SHARE));
                refused.extend(fate.copies);
            }
        }
        refused
    };
    let refused = flood(&mut bench, 0);
    assert_eq!(refused.len(), 178);
    let read = ndn::Packet::new_checked(sent(0, &refused[0].1)).unwrap();
    assert_eq!(read.link.nack, Some(Nack::Congestion));
    assert_eq!(read.link.pit_token, [7]);
    assert_eq!(asked(sent(0, &refused[0].1)), ("/a/22".to_string(), Some(9)));
    for number in 0..100 {
        let name = format!("/a/of-two/{number}");
        assert!(bench.one(2, &interest(&name, 10_000 + number)).own.is_ok(), "{number}");
        flood(&mut bench, 1000 + 200 * number as usize);
        assert_eq!(bench.one(1, &data(&name)).own.map(|(port, _)| port), Ok(2));
    }
    assert_eq!(bench.counters.nacks.get(), 178 + 100 * 200);
    // Asking again too soon is not forwarded.
    assert!(bench.one(2, &interest("/a/again", 20_000)).own.is_ok());
    assert_eq!(bench.dropped(2, &interest("/a/again", 20_001)), reasons::NDN_SUPPRESSED);
}

#[test]
fn without_a_route_a_nack_goes_back_where_it_is_wanted() {
    let mut bench = Bench::new(PitLimits::of(16), true);
    let fate = bench.one(2, &with_token(&[5; 4], &interest("/nowhere", 1)));
    assert_eq!(fate.own, Err(kernels::reasons::NO_ROUTE));
    let [(port, back)] = &fate.copies[..] else { panic!("{fate:?}") };
    assert_eq!(*port, 2);
    let read = ndn::Packet::new_checked(sent(2, back)).unwrap();
    assert_eq!(read.link.nack, Some(Nack::NoRoute));
    assert_eq!(read.link.pit_token, [5; 4]);
    assert_eq!(asked(sent(2, back)), ("/nowhere".to_string(), Some(9)));
}

/// A datagram of face 2's neighbour, or to somebody else.
fn udp(to: &str, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let frame = testkit::frames::Frame::new().macs(mac(2), OURS);
    frame.ipv4("10.0.0.2", to).udp(ports[0], ports[1], payload).bytes()
}

/// A frame that is neither IP nor ARP.
fn lldp() -> Vec<u8> {
    [&[1, 0x80, 0xc2, 0, 0, 14], &mac(2)[..], &[0x88, 0xcc], &[0; 46]].concat()
}

#[test]
fn linux_has_what_is_no_ndn_packet() {
    let mut bench = Bench::new(PitLimits::of(16), false);
    let port = NdnPort {
        up: true,
        mac: OURS,
        any_mac: false,
        twin: true,
        addresses: vec!["10.0.0.1".parse().unwrap()],
        on_demand: false,
    };
    bench.tables.apply(&NdnPatch::Port(2, Some(port.clone())));
    let packet = interest("/m/x", 1);
    let host = |frame: &[u8]| Ok((HOST | 2, frame.to_vec()));
    let arp = [&[0xff; 6][..], &mac(2), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[1; 20]].concat();
    let lldp = lldp();
    let other = [&mac(9)[..], &mac(2), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[1; 20]].concat();
    let tagged = [&OURS[..], &mac(2), &[0x81, 0, 0, 5, 0x86, 0x24], &packet].concat();
    let mut wrong = udp("10.0.0.1", [6363, 6363], &packet);
    *wrong.last_mut().unwrap() ^= 1;
    let fragment = {
        let mut frame = udp("10.0.0.1", [6363, 6363], &packet);
        frame[20] |= 0x20; // more fragments
        frame[24..26].copy_from_slice(&[0, 0]);
        let sum = packet::checksum::internet_checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let frames = [
        arp.clone(),
        lldp.clone(),
        udp("10.0.0.1", [5000, 53], b"?"),
        udp("10.0.0.1", [6363, 40_000], &packet),
        udp("10.0.0.9", [6363, 6363], &packet),
        udp("10.0.0.1", [4000, 6363], &packet),
        other,
        tagged,
        wrong,
        fragment,
        udp("10.0.0.1", [6363, 6363], &packet),
    ];
    let inputs: Vec<_> = frames.iter().map(|frame| (2, frame.clone())).collect();
    let fates: Vec<_> = bench.run(&inputs).into_iter().map(|fate| fate.own).collect();
    for at in 0..5 {
        assert_eq!(fates[at], host(&frames[at]), "{at}");
    }
    let reasons = [
        reasons::NDN_NO_FACE,
        packet::reasons::NOT_FOR_US,
        packet::reasons::VLAN_UNKNOWN,
        reasons::NDN_MALFORMED,
        reasons::NDN_FRAGMENT,
    ];
    for (fate, reason) in fates[5..10].iter().zip(reasons) {
        assert_eq!(*fate, Err(reason));
    }
    assert_eq!(fates[10].as_ref().unwrap().0, 4, "an Interest of the face");

    // What the twin sends goes out, whatever it is.
    let from_host =
        [(2, lldp.clone()), (2, frame(2, &packet)), (2, OURS.to_vec()), (3, arp.clone())];
    let fates = bench.run_marked(&from_host, engine::MARK_FROM_HOST);
    assert_eq!(fates[0].own, Ok((2, from_host[0].1.clone())));
    assert_eq!(fates[1].own, Ok((2, from_host[1].1.clone())));
    assert_eq!(fates[2].own, Err(packet::reasons::TRUNCATED));
    assert_eq!(fates[3].own, Err(chunk::reasons::TX_NO_PORT), "it has no description");

    bench.tables.apply(&NdnPatch::Port(2, Some(NdnPort { up: false, ..port.clone() })));
    let down = |bench: &mut Bench, mark| bench.run_marked(&[(2, arp.clone())], mark).remove(0).own;
    assert_eq!(down(&mut bench, engine::MARK_FROM_HOST), Err(chunk::reasons::TX_PORT_DOWN));
    assert_eq!(down(&mut bench, 0), Err(packet::reasons::INTERFACE_DOWN));
    bench.tables.apply(&NdnPatch::Port(2, Some(NdnPort { twin: false, ..port })));
    assert_eq!(bench.run(&[(2, lldp)])[0].own, Err(packet::reasons::ETHERTYPE_UNKNOWN));
}

#[test]
fn wrong_checksums_are_ignored_where_the_port_says_so() {
    let mut bench = Bench::new(PitLimits::of(16), false);
    let good = udp("10.0.0.1", [6363, 6363], &interest("/m/x", 1));
    let of = |at: usize, bytes: [u8; 2]| {
        let mut frame = good.clone();
        frame[at..at + 2].copy_from_slice(&bytes);
        (2, frame)
    };
    let inputs = [of(24, [0xde, 0xad]), of(40, [0xde, 0xad]), of(24, [0, 0])];
    let bad = packet::reasons::IP_BAD_CHECKSUM;
    let fates: Vec<_> = bench.run(&inputs).into_iter().map(|fate| fate.own).collect();
    assert_eq!(fates, [Err(bad), Err(reasons::NDN_MALFORMED), Err(bad)]);
    for input in inputs {
        let fates = bench.run_marked(&[input], engine::MARK_CHECKSUMS_IGNORED);
        let is_drop = matches!(fates[0].own, Err(reason) if reason == bad || reason == reasons::NDN_MALFORMED);
        assert!(!is_drop, "{:?}", fates[0].own);
    }
}

#[test]
fn what_cannot_be_sent_keeps_no_face_waiting() {
    let mut bench = Bench::new(PitLimits::of(16), false);
    let patch = |index, change: fn(&mut Face)| {
        let mut face = face(index);
        change(&mut face);
        NdnPatch::Face(index, Some(face))
    };
    // The best face's neighbour is not known: the second has the Interest.
    bench.tables.apply(&patch(1, |face| face.neighbour_mac = None));
    assert_eq!(bench.one(0, &interest("/a/x", 1)).own.unwrap().0, 2);
    bench.tables.apply(&patch(2, |face| face.up = false));
    assert_eq!(bench.dropped(0, &interest("/a/y", 2)), packet::reasons::NEIGHBOUR_FAILED);
    bench.tables.apply(&patch(2, |face| face.mtu = 40));
    assert_eq!(bench.dropped(0, &interest("/a/y", 2)), packet::reasons::TOO_BIG);
    // Nobody waits for /a/y: another face's Interest is not a loop and waits with nobody.
    bench.tables.apply(&patch(2, |_| {}));
    assert_eq!(bench.one(3, &interest("/a/y", 2)).own.unwrap().0, 2);
    assert_eq!(bench.counters.pending.get(), 2);
    bench.now_ns += 5_000_000_000;
    bench.one(0, &interest("/m", 3)).own.unwrap();
    assert_eq!([bench.counters.pending.get(), bench.counters.expired.get()], [1, 2]);
}

#[test]
fn counters_tell_what_passed_a_face() {
    let mut bench = Bench::new(PitLimits::of(16), true);
    bench.run(&[
        (0, frame(0, &interest("/a/x", 1))),
        (3, frame(3, &interest("/a/x", 2))),
        (0, frame(0, &interest("/nowhere", 3))),
    ]);
    bench.one(1, &data("/a/x"));
    let face = |index| {
        let c = bench.counters.face(index).unwrap();
        [&c.in_interests, &c.in_data, &c.out_interests, &c.out_data].map(|c| c.get())
    };
    assert_eq!(face(0), [2, 0, 0, 1]);
    assert_eq!(face(1), [0, 1, 1, 0]);
    assert_eq!(face(3), [1, 0, 0, 1]);
    assert_eq!(bench.counters.nacks.get(), 1);
}

#[test]
fn packets_that_belong_together_meet_in_one_worker() {
    let mut different = std::collections::HashSet::new();
    for first in ["a", "b", "c%20d", "54=%01", "e"] {
        let interest = interest(&format!("/{first}"), 1);
        let data = data(&format!("/{first}/x/y"));
        let mut nack = Vec::new();
        let link = LinkHeader { nack: Some(Nack::NoRoute), ..LinkHeader::default() };
        ndn::emit_link(&link, &interest, &mut nack);
        let hash = spread_hash(&frame(0, &interest));
        for from in [0, 2, 3, 4] {
            for packet in [&interest, &data, &with_token(b"t", &interest), &nack] {
                assert_eq!(spread_hash(&frame(from, packet)), hash);
            }
        }
        different.insert(hash);
    }
    assert_eq!(different.len(), 5);
    let plain = udp("10.0.0.1", [4000, 53], b"not a packet of names");
    assert_eq!(spread_hash(&plain), packet::flow::flow_hash_of_frame(&plain));
    for len in 0..plain.len() {
        spread_hash(&plain[..len]);
    }
}
