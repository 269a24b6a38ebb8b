//! The forwarder's stages over frames: Interests out, Data back, and each way to be dropped.

use std::net::IpAddr;
use std::sync::Arc;

use apps::ndn::pit::PitLimits;
use apps::ndn::{Face, NdnColumns, NdnOptions, NdnPatch, NdnTables, UdpEnds, pipeline};
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

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn mac(face: u16) -> [u8; 6] {
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
fn face(index: u16) -> Face {
    Face {
        name: format!("f{index}"),
        up: true,
        port: index,
        mtu: 1500,
        mac: OURS,
        neighbour_mac: Some(if index == 4 { ndn::MULTICAST_MAC.0 } else { mac(index) }),
        udp: ends(index),
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

fn interest(text: &str, nonce: u32) -> Vec<u8> {
    let fields = InterestFields { nonce: Some(nonce), hop_limit: Some(9), ..Default::default() };
    interest_with(text, fields)
}

pub(crate) fn interest_with(text: &str, fields: InterestFields) -> Vec<u8> {
    let mut out = Vec::new();
    ndn::emit_interest(uri(text).name().value(), &fields, None, &mut out).unwrap();
    out
}

pub(crate) fn data(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    ndn::emit_data(uri(text).name().value(), 0, b"content", &mut out).unwrap();
    out
}

pub(crate) fn with_token(token: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let link = LinkHeader { pit_token: token, ..LinkHeader::default() };
    ndn::emit_link(&link, packet, &mut out);
    out
}

pub(crate) struct Bench {
    pool: Pool,
    tables: NdnTables,
    stages: Vec<Box<dyn Stage<NdnTables>>>,
    rows: Option<Rows>,
    pub(crate) now_ns: u64,
}

/// What became of a packet: its own fate, and where copies went.
#[derive(Debug, PartialEq)]
pub(crate) struct Fate {
    pub(crate) own: Result<(u16, Vec<u8>), DropReason>,
    pub(crate) copies: Vec<(u16, Vec<u8>)>,
}

impl Bench {
    pub(crate) fn new(limits: PitLimits, nack: bool) -> Self {
        let arena = Arena::new(Layout::new(NdnColumns::COLUMNS, chunk::CHUNK_PACKETS_MAX));
        Self {
            pool: Pool::new(DEPOT.with(Arc::clone), 64),
            tables: tables(),
            stages: pipeline(&NdnOptions { hasher: NameHasher::new(4), pit: limits, nack }),
            rows: arena.reserve(chunk::CHUNK_PACKETS_MAX),
            now_ns: 1_700_000_000_000_000_000,
        }
    }

    /// Carries a chunk of frames, each with its port, through all stages.
    pub(crate) fn run(&mut self, inputs: &[(u16, Vec<u8>)]) -> Vec<Fate> {
        let mut chunk = Chunk::new(self.rows.take().unwrap(), 0);
        for (port, frame) in inputs {
            let mut packet = Packet::copy_from(&mut self.pool, frame).unwrap();
            packet.port = *port;
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
            stage.post_shade(&mut chunk, &mut cx);
        }
        let mut fates = Vec::new();
        for (row, packet) in chunk.packets.drain(..).enumerate() {
            let verdict = Verdict(chunk.rows.verdicts()[row]);
            let own = match verdict.kind() {
                VerdictKind::Forward => Ok((verdict.port(), packet.data().to_vec())),
                VerdictKind::Drop => Err(verdict.reason()),
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

    fn one(&mut self, from: u16, ndn: &[u8]) -> Fate {
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
        assert_eq!(bench.dropped(way, &data(name)), DropReason::NdnUnsolicited);
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
        (0, frame(0, &interest("/a/x", 4))),
    ]);
    assert_eq!(fates[0].own.as_ref().unwrap().0, 1);
    assert_eq!(fates[1].own, Err(DropReason::NdnAggregated));
    assert_eq!(fates[2].own, Err(DropReason::NdnLoop), "the nonce of face 0");
    assert_eq!(fates[3].own, Err(DropReason::NdnAggregated));
    assert_eq!(fates[4].own.as_ref().unwrap().0, 1, "asked again");
    let fate = bench.one(1, &data("/a/x"));
    let mut all = fate.copies;
    all.push(fate.own.unwrap());
    all.sort();
    let ports: Vec<u16> = all.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [0, 2, 3]);
    assert_eq!(sent(0, &all[0].1), data("/a/x"));
    assert_eq!(sent(2, &all[1].1), with_token(b"t", &data("/a/x")));
    assert_eq!(sent(3, &all[2].1), data("/a/x"));
    assert_eq!(bench.dropped(0, &interest("/a/x", 1)), DropReason::NdnLoop, "it is remembered");
}

#[test]
fn each_way_to_be_dropped() {
    let mut bench = Bench::new(PitLimits { entries: 1, ..PitLimits::of(1) }, false);
    let fields = |nonce, hop_limit| InterestFields { nonce, hop_limit, ..Default::default() };
    for hops in [0, 1] {
        let packet = interest_with("/a", fields(Some(1), Some(hops)));
        assert_eq!(bench.dropped(0, &packet), DropReason::NdnHopLimit);
    }
    assert_eq!(bench.dropped(0, &interest_with("/a", fields(None, None))), DropReason::NdnNoNonce);
    assert_eq!(bench.dropped(0, &interest("/nowhere", 1)), DropReason::NoRoute);
    assert_eq!(bench.dropped(3, &interest("/a/b/c", 1)), DropReason::NoRoute, "only back");
    assert_eq!(bench.dropped(0, &data("/a")), DropReason::NdnUnsolicited);
    let packet = interest("/a", 1);
    assert_eq!(bench.dropped(0, &packet[..packet.len() - 1]), DropReason::NdnMalformed);
    assert_eq!(bench.dropped(0, &[]), DropReason::NdnMalformed);
    let mut nack = Vec::new();
    let link = LinkHeader { nack: Some(Nack::NoRoute), ..LinkHeader::default() };
    ndn::emit_link(&link, &packet, &mut nack);
    assert_eq!(bench.dropped(1, &nack), DropReason::NdnNack);
    assert_eq!(bench.dropped(0, &[100, 0]), DropReason::NdnIdle);
    let fragment = [&[100, packet.len() as u8 + 5, 83, 1, 2, 80, packet.len() as u8], &packet[..]];
    assert_eq!(bench.dropped(0, &fragment.concat()), DropReason::NdnFragment);
    // A face that is none, a frame for somebody else's group, one that is cut off.
    let stranger = [&OURS[..], &mac(9), &[0x86, 0x24], &packet].concat();
    let group = [&[1, 0, 0x5e, 0, 0, 1][..], &mac(0), &[0x86, 0x24], &packet].concat();
    let fates = bench.run(&[(0, stranger), (0, group), (0, OURS.to_vec()), (7, frame(2, &packet))]);
    let reasons: Vec<_> = fates.into_iter().map(|fate| fate.own.unwrap_err()).collect();
    assert_eq!(
        reasons,
        [DropReason::NdnNoFace, DropReason::NotForUs, DropReason::Truncated, DropReason::NdnNoFace]
    );
    // Full, until the lifetime of what is pending ends.
    assert!(bench.one(0, &interest("/a/1", 1)).own.is_ok());
    assert_eq!(bench.dropped(0, &interest("/a/2", 2)), DropReason::NdnPitFull);
    bench.now_ns += 5_000_000_000;
    assert!(bench.one(0, &interest("/a/3", 3)).own.is_ok());
    // Data that is too long for the face that waits.
    bench.tables.apply(&NdnPatch::Face(0, Some(Face { mtu: 50, ..face(0) })));
    assert_eq!(bench.dropped(1, &data("/a/3")), DropReason::TooBig);
}

#[test]
fn without_a_route_a_nack_goes_back_where_it_is_wanted() {
    let mut bench = Bench::new(PitLimits::of(16), true);
    let fate = bench.one(2, &with_token(&[5; 4], &interest("/nowhere", 1)));
    assert_eq!(fate.own, Err(DropReason::NoRoute));
    let [(port, back)] = &fate.copies[..] else { panic!("{fate:?}") };
    assert_eq!(*port, 2);
    let read = ndn::Packet::new_checked(sent(2, back)).unwrap();
    assert_eq!(read.link.nack, Some(Nack::NoRoute));
    assert_eq!(read.link.pit_token, [5; 4]);
    assert_eq!(asked(sent(2, back)), ("/nowhere".to_string(), Some(9)));
}
