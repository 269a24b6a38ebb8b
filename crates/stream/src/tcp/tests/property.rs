//! Random streams, cut, repeated, reordered, altered and lost, against the twin; and hostile input against the bounds.

use packet::tcp::flags::{ACK, FIN, SYN, URG};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::buffer::{BLOCK, UNIT};
use super::super::{Connection, End, Event, Full, Options, Policy, Reassembler, Segment, Urgent};
use super::model::Twin;
use super::{Bench, Recorder};
use crate::key::Side::{self, A, B};
use crate::record::{SideRecord, TcpState};

const LEN: usize = 400;

#[derive(Clone, Debug)]
struct Cut {
    start: usize,
    len: usize,
    /// Added to each byte: another value makes a conflict.
    change: u8,
    urgent: Option<u16>,
    /// Where it comes among the others.
    order: usize,
    /// The other side acknowledges everything before it, and that many bytes of it.
    acknowledged: Option<usize>,
}

impl Cut {
    fn scaled(self, scale: usize) -> Cut {
        Cut {
            start: self.start * scale,
            len: self.len * scale,
            urgent: self.urgent.map(|at| at * scale as u16),
            acknowledged: self.acknowledged.map(|bytes| bytes * scale),
            ..self
        }
    }
}

fn stream(place: usize) -> u8 {
    (place * 7 + place / 256) as u8
}

fn policies() -> impl Strategy<Value = Policy> {
    select(Policy::NAMES.map(|(_, policy)| policy).to_vec())
}

fn initials() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (0u32..500).prop_map(|before| 0u32.wrapping_sub(before))]
}

/// Segments that cover most of a stream, and others across them, each displaced by some places.
fn cuts() -> impl Strategy<Value = Vec<Cut>> {
    let piece = (1usize..60, 0usize..400, any::<bool>(), prop::option::weighted(0.1, 0usize..70));
    let other = (0..LEN, 1usize..120, 0u8..3, prop::option::weighted(0.2, 0u16..100), 0usize..2000);
    let (pieces, others) =
        (prop::collection::vec(piece, 1..25), prop::collection::vec(other, 0..25));
    (pieces, others, 0usize..300).prop_map(|(pieces, others, spread)| {
        let mut cuts = Vec::new();
        let mut start = 0;
        for (len, order, is_lost, acknowledged) in pieces {
            let order = start * 4 + order * spread / 100;
            if !(is_lost && order % 3 == 0) {
                cuts.push(Cut { start, len, change: 0, urgent: None, order, acknowledged });
            }
            start += len;
        }
        for (start, len, change, urgent, order) in others {
            cuts.push(Cut { start, len, change, urgent, order, acknowledged: None });
        }
        cuts.sort_by_key(|cut| cut.order);
        cuts
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn streams_are_those_of_the_twin(
        policy in policies(),
        urgent in select(vec![Urgent::Inline, Urgent::Drop]),
        depth in prop_oneof![3 => Just(u64::MAX), 1 => 0u64..500],
        initial in [initials(), initials()],
        cuts in cuts(),
        fin in prop::option::of((0usize..LEN * 2, any::<Index>())),
        is_lost_at_once in any::<bool>(),
        // Segments of one block, or of several.
        scale in prop_oneof![7 => Just(1usize), 1 => Just(40)],
    ) {
        let cuts: Vec<Cut> = cuts.into_iter().map(|cut| cut.scaled(scale)).collect();
        let fin = fin.map(|(place, index)| (place * scale, index));
        let depth = depth.saturating_mul(scale as u64);
        let options =
            Options { policy, urgent, depth, acknowledged_is_lost: is_lost_at_once, ..Options::default() };
        let mut bench = Bench::open_at(options, initial);
        let mut twin = Twin::new(policy, urgent, depth, scale << 12);
        let first = initial[0].wrapping_add(1);
        let fin_index = fin.map(|(_, index)| index.index(cuts.len().max(1)));
        let mut sent = 0;
        for (index, cut) in cuts.iter().enumerate() {
            let bytes: Vec<u8> =
                (cut.start..cut.start + cut.len).map(|at| stream(at).wrapping_add(cut.change)).collect();
            let urgent_pointer = cut.urgent.map_or(0, |at| at + 1);
            let flags = ACK | if cut.urgent.is_some() { URG } else { 0 };
            let segment = Segment {
                sequence: first.wrapping_add(cut.start as u32),
                acknowledgment: initial[1].wrapping_add(1),
                flags,
                window: 1000,
                urgent_pointer,
                options: &[],
                payload: &bytes,
                missing: 0,
            };
            let keep_alives = bench.connection.keep_alives(A);
            let _ = bench.send(A, segment);
            if bench.connection.keep_alives(A) == keep_alives {
                twin.segment(cut.start, &bytes, cut.urgent.map(usize::from));
            }
            sent = sent.max(cut.start + cut.len);
            if let Some(acknowledged) = cut.acknowledged {
                let place = (cut.start + acknowledged).min(sent);
                let _ = bench.data(B, 0, place as u32, b"");
                if is_lost_at_once {
                    twin.acknowledge(place);
                }
            }
            if fin_index == Some(index) && let Some((place, _)) = fin {
                let _ = bench.flagged(A, place as u32, 0, FIN | ACK, b"");
                twin.finish(place);
            }
        }
        bench.close();
        twin.close();
        prop_assert_eq!(&bench.sink.items[0], &twin.items);
        if depth == u64::MAX {
            let mut record = SideRecord::default();
            bench.connection.report(A, &mut record);
            let SideRecord { retransmissions, overlaps, out_of_order, conflicts, .. } = record;
            prop_assert_eq!([retransmissions, overlaps, out_of_order, conflicts], twin.counts);
            prop_assert_eq!(record.gap_bytes, twin.gap_bytes);
            prop_assert_eq!(bench.sink.count(Event::Conflict), conflicts as usize);
        }
    }

    /// Both directions at once, in any order and under any bound, with equal bytes: what is delivered is right, and with
    /// room and without loss it is all.
    #[test]
    fn two_directions_under_bounds(
        initial in [initials(), initials()],
        cuts in [cuts(), cuts()],
        turns in prop::collection::vec(any::<bool>(), 100),
        blocks in prop_oneof![Just(1usize), 1usize..6, Just(400)],
        blocks_per_flow in 1usize..400,
    ) {
        let options = Options {
            buffer_bytes_per_flow: blocks_per_flow * BLOCK,
            acknowledged_is_lost: false,
            ..Options::default()
        };
        let mut bench = Bench::open_at(options, initial);
        bench.reassembler =
            Reassembler::new(Options { buffer_bytes: blocks * BLOCK, ..*bench.reassembler.options() });
        let mut cuts = cuts.map(Vec::into_iter);
        let mut sent = [vec![false; 4096], vec![false; 4096]];
        for side in turns.into_iter().map(|is_b| if is_b { B } else { A }).chain([A; 50]).chain([B; 50]) {
            let Some(cut) = cuts[side.index()].next() else { continue };
            let bytes: Vec<u8> = (cut.start..cut.start + cut.len).map(stream).collect();
            sent[side.index()][cut.start..cut.start + cut.len].fill(true);
            let _ = bench.data(side, cut.start as u32, 0, &bytes);
            let used = bench.reassembler.buffer_bytes_used();
            prop_assert!(used <= blocks * BLOCK && used <= blocks_per_flow.max(2) * BLOCK);
            let own = bench.reassembler.buffer.units_of(bench.connection.waiting);
            prop_assert_eq!(used, own as usize * UNIT);
            // No hole is given up for room.
            for items in &bench.sink.items {
                prop_assert!(items.iter().all(|item| matches!(item, super::Item::Data(_))));
            }
        }
        bench.close();
        for side in Side::BOTH {
            let (bytes, sent) = (bench.sink.bytes(side), &sent[side.index()]);
            let reached = sent.iter().rposition(|&is_sent| is_sent).map_or(0, |last| last + 1);
            prop_assert_eq!(bytes.len(), reached);
            let has_room = blocks.min(blocks_per_flow) == 400 || bench.sink.count(Event::GivenUp) == 0;
            let mut offset = 0;
            for item in &bench.sink.items[side.index()] {
                match item {
                    super::Item::Data(bytes) => {
                        for byte in bytes {
                            prop_assert_eq!(*byte, stream(offset));
                            prop_assert!(sent[offset]);
                            offset += 1;
                        }
                    }
                    super::Item::Gap(bytes) => {
                        let gap = offset..offset + *bytes as usize;
                        prop_assert!(!has_room || sent[gap].iter().all(|&is_sent| !is_sent));
                        offset += *bytes as usize;
                    }
                }
            }
        }
    }

    /// Anything at all, on several connections that share few blocks: no panic, no memory beyond the bounds, none left.
    #[test]
    fn hostile_segments(
        options in (policies(), any::<[bool; 5]>(), prop_oneof![Just(u64::MAX), 0u64..3000]),
        blocks in 1usize..12,
        blocks_per_flow in 1usize..12,
        segments in prop::collection::vec(
            (
                (0usize..3, any::<bool>(), select(vec![0u16, 0x10, 0x10, 0x10, 0x10, 0x10, 0x02, 0x12, 0x11, 0x14, 0x04, 0x30, 0x31, 0x1ff])),
                prop_oneof![5 => 0u32..4000, 1 => any::<u32>()],
                prop_oneof![5 => 0u32..4000, 1 => any::<u32>()],
                (any::<u16>(), any::<u16>(), any::<u8>()),
                prop_oneof![3 => 0usize..40, 1 => 0usize..5000],
                prop::collection::vec(any::<u8>(), 0..12),
            ),
            0..120,
        ),
        origin in initials(),
    ) {
        let (policy, [midstream, acknowledged_is_lost, reset_in_window, is_urgent, refuses], depth) = options;
        let options = Options {
            policy,
            buffer_bytes: blocks * BLOCK,
            buffer_bytes_per_flow: blocks_per_flow * BLOCK,
            full: if refuses { Full::RefuseNew } else { Full::KeepNearest },
            depth,
            midstream,
            acknowledged_is_lost,
            resynchronise: true,
            reset_in_window,
            syn_data: super::super::SynData::Accept,
            urgent: if is_urgent { Urgent::Drop } else { Urgent::Inline },
        };
        let mut reassembler = Reassembler::new(options);
        let mut connections = [A, B, A].map(Connection::new);
        let mut sinks = [(); 3].map(|()| Recorder::default());
        let payload: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
        for ((flow, is_b, flags), sequence, acknowledgment, (window, urgent_pointer, skew), len, options) in &segments {
            let segment = Segment {
                sequence: origin.wrapping_add(*sequence),
                acknowledgment: origin.wrapping_add(*acknowledgment),
                flags: *flags,
                window: *window,
                urgent_pointer: *urgent_pointer % 64,
                missing: if skew % 5 == 0 { window % 3000 } else { 0 },
                options,
                payload: &payload[usize::from(*skew) % 3..][..(*len).min(4990)],
            };
            let side = if *is_b { B } else { A };
            let (connection, sink) = (&mut connections[*flow], &mut sinks[*flow]);
            let outcome = reassembler.segment(connection, side, &segment, 1, sink);
            if outcome == super::Outcome::Restart {
                let known = connection.again(&segment);
                reassembler.close(connection, sink);
                prop_assert!(connection.waiting.is_none());
                (*connection, *sink) = (Connection::new(side), Recorder::default());
                connection.begin_again(&known);
                let again = reassembler.segment(connection, side, &segment, 1, sink);
                prop_assert_eq!(again, super::Outcome::Accepted);
            }
            super::check(&reassembler, connection);
            let own = connections.each_ref().map(|one| reassembler.buffer.units_of(one.waiting) as usize * UNIT);
            prop_assert_eq!(own.iter().sum::<usize>(), reassembler.buffer_bytes_used());
            prop_assert!(own.iter().sum::<usize>() <= blocks * BLOCK);
            prop_assert!(own.iter().all(|own| *own <= blocks_per_flow.max(2) * BLOCK));
        }
        for (connection, sink) in connections.iter_mut().zip(&mut sinks) {
            reassembler.close(connection, sink);
            prop_assert!(sink.end.iter().all(Option::is_some));
            reassembler.close(connection, sink);
        }
        prop_assert_eq!(reassembler.buffer_bytes_used(), 0);
    }

    /// Segments of any size ahead of one hole, under any share, against a sorted list: the same ones are kept.
    #[test]
    fn the_nearest_segments_are_kept(
        lens in prop::collection::vec((prop_oneof![1usize..70, 1usize..1505, 1usize..4000], any::<u16>(), 0usize..40), 1..60),
        kib in 3usize..40,
        refuses: bool,
    ) {
        let full = if refuses { Full::RefuseNew } else { Full::KeepNearest };
        let mut bench = Bench::open(Options { buffer_bytes_per_flow: kib << 10, full, ..Options::default() });
        let (mut all, mut place) = (Vec::new(), 1);
        for (len, order, hole) in lens {
            all.push((place, len, order));
            place += len + hole;
        }
        all.sort_by_key(|own| own.2);
        // The twin: pieces of segments as place, bytes and units, sorted.
        let mut kept: Vec<(usize, usize, usize)> = Vec::new();
        let mut given_up = 0;
        for (start, len, _) in all {
            let whole: Vec<u8> = (start..start + len).map(stream).collect();
            let _ = bench.data(A, start as u32, 0, &whole);
            let pieces = (0..len).step_by(1536).map(|at| {
                let own = (len - at).min(1536);
                let units = own.div_ceil(32);
                (start + at, own, 1 + if units < 44 { units } else { 48 })
            });
            let pieces: Vec<_> = pieces.collect();
            let cost: usize = pieces.iter().map(|own| own.2).sum();
            let is_kept = loop {
                if 2 + kept.iter().map(|own| own.2).sum::<usize>() + cost <= kib * 32 {
                    break true;
                }
                given_up += 1;
                if refuses || kept.last().is_none_or(|own| own.0 < start) {
                    break false;
                }
                kept.pop();
            };
            if is_kept {
                kept.extend(pieces);
                kept.sort_unstable();
            }
        }
        prop_assert_eq!(bench.reassembler.counters().given_up_flow, given_up);
        let units: usize = kept.iter().map(|own| own.2).sum();
        let used = if kept.is_empty() { 0 } else { (2 + units) * UNIT };
        prop_assert_eq!(bench.reassembler.buffer_bytes_used(), used);
        let _ = bench.data(A, 0, 0, &[stream(0)]);
        bench.close();
        let mut expected = vec![b'-'; place];
        expected[0] = stream(0);
        for (start, len, _) in kept {
            (start..start + len).for_each(|at| expected[at] = stream(at));
        }
        let found = bench.sink.items[0].iter().flat_map(|item| match item {
            super::Item::Data(bytes) => bytes.clone(),
            super::Item::Gap(bytes) => vec![b'-'; *bytes as usize],
        });
        let found: Vec<u8> = found.collect();
        expected.truncate(found.len());
        prop_assert_eq!(found, expected);
    }

    /// Connections that share all memory: who loses bytes for another one holds most, to within a quarter, and more than two
    /// segments; and no hole is given up.
    #[test]
    fn who_holds_most_gives(
        blocks in 2usize..40,
        segments in prop::collection::vec(
            (0usize..6, any::<bool>(), 1u32..30_000, prop_oneof![1usize..80, 1300usize..1461, 1usize..4000]),
            1..300,
        ),
    ) {
        let options = Options { buffer_bytes: blocks * BLOCK, acknowledged_is_lost: false, ..Options::default() };
        let mut reassembler = Reassembler::new(options);
        let mut benches = [(); 6].map(|()| Bench::open(options));
        let bytes: Vec<u8> = (0..34_000).map(stream).collect();
        for (at, is_b, place, len) in segments {
            let before = benches.each_ref().map(|own| reassembler.buffer.units_of(own.connection.waiting));
            std::mem::swap(&mut benches[at].reassembler, &mut reassembler);
            let side = if is_b { B } else { A };
            let _ = benches[at].data(side, place, 0, &bytes[place as usize..place as usize + len]);
            std::mem::swap(&mut benches[at].reassembler, &mut reassembler);
            let after = benches.each_ref().map(|own| reassembler.buffer.units_of(own.connection.waiting));
            // The connection itself may have given some first.
            let others = (0..6).filter(|other| *other != at).map(|other| before[other]);
            let most = others.max().unwrap_or_default();
            for other in (0..6).filter(|other| *other != at) {
                prop_assert!(after[other] <= before[other]);
                prop_assert!(after[other] == before[other] || before[other] > 98);
            }
            // The first one that gave way was among the greatest.
            let gave = (0..6).filter(|other| *other != at && after[*other] < before[*other]);
            let greatest = gave.map(|other| before[other]).max();
            prop_assert!(greatest.is_none_or(|own| own * 5 >= most * 4 - 5), "{before:?} {after:?}");
            prop_assert_eq!(after.iter().sum::<u32>() as usize * UNIT, reassembler.buffer_bytes_used());
            for bench in &benches {
                reassembler.buffer.check(bench.connection.waiting);
                prop_assert!(bench.sink.items.iter().all(Vec::is_empty));
            }
        }
        for bench in &mut benches {
            reassembler.close(&mut bench.connection, &mut bench.sink);
            for side in Side::BOTH {
                for (at, byte) in bench.sink.bytes(side).into_iter().enumerate() {
                    prop_assert!(byte == b'-' || byte == stream(at));
                }
            }
        }
        prop_assert_eq!(reassembler.buffer_bytes_used(), 0);
    }

    /// Segments that a capture cut, in any order: what was captured is delivered, and the rest are gaps of the same lengths. In
    /// order, nothing of them waits for another one.
    #[test]
    fn what_was_not_captured_is_a_gap(
        segments in prop::collection::vec((1u16..900, 0u16..900, any::<u8>()), 1..40),
        is_reordered in any::<bool>(),
        initial in [initials(), initials()],
    ) {
        let mut bench = Bench::open_at(Options::default(), initial);
        let (mut all, mut whole, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for (len, captured, order) in segments {
            let (start, captured) = (whole.len(), captured.min(len));
            whole.extend((start..start + usize::from(len)).map(stream));
            expected.extend_from_slice(&whole[start..start + usize::from(captured)]);
            expected.resize(whole.len(), b'-');
            all.push((start, captured, len - captured, order));
        }
        if is_reordered {
            all.sort_by_key(|(.., order)| *order);
        }
        let last = whole.len();
        let missing: u64 = all.iter().map(|own| u64::from(own.2)).sum();
        for (start, captured, missing, _) in all {
            let is_last = start + usize::from(captured) + usize::from(missing) == last;
            let segment = Segment {
                sequence: initial[0].wrapping_add(1 + start as u32),
                acknowledgment: initial[1].wrapping_add(1),
                flags: if is_last { FIN | ACK } else { ACK },
                window: 1000,
                payload: &whole[start..start + usize::from(captured)],
                missing,
                ..Segment::default()
            };
            prop_assert_eq!(bench.send(A, segment), super::Outcome::Accepted);
            if !is_reordered {
                prop_assert_eq!(bench.reassembler.buffer_bytes_used(), 0);
                prop_assert_eq!(bench.sink.end[0], is_last.then_some(End::Fin));
            }
        }
        bench.close();
        prop_assert_eq!(bench.sink.bytes(A), expected);
        prop_assert_eq!(bench.sink.end[0], Some(End::Fin));
        let mut record = SideRecord::default();
        bench.connection.report(A, &mut record);
        prop_assert_eq!(record.gap_bytes, missing);
        let SideRecord { retransmissions, overlaps, conflicts, .. } = record;
        prop_assert_eq!([retransmissions, overlaps, conflicts], [0; 3]);
        prop_assert!(is_reordered || record.out_of_order == 0);
    }

    /// A whole connection, cut in two ways: the same bytes and the same end.
    #[test]
    fn cuts_do_not_matter(
        lens in prop::collection::vec(1usize..900, 1..40),
        initial in [initials(), initials()],
    ) {
        let total: usize = lens.iter().sum();
        let bytes: Vec<u8> = (0..total).map(stream).collect();
        let mut found = Vec::new();
        for lens in [lens, vec![total]] {
            let mut bench = Bench::open_at(Options::default(), initial);
            let mut offset = 0;
            for len in lens {
                prop_assert_eq!(bench.data(B, offset as u32, 0, &bytes[offset..offset + len]), super::Outcome::Accepted);
                offset += len;
                let _ = bench.data(A, 0, offset as u32, b"");
            }
            let _ = bench.flagged(B, offset as u32, 0, FIN | ACK, b"");
            let _ = bench.flagged(A, 0, offset as u32 + 1, FIN | ACK, b"");
            let _ = bench.flagged(B, offset as u32 + 1, 1, ACK, b"");
            prop_assert_eq!(bench.connection.state(), TcpState::TimeWait);
            prop_assert_eq!(bench.sink.end, [Some(End::Fin); 2]);
            bench.close();
            found.push(bench.sink.bytes(B));
        }
        prop_assert_eq!(&found[0], &bytes);
        prop_assert_eq!(&found[1], &bytes);
    }
    /// A connection is left open and its ports are used again, with any numbers: each connection has its own bytes, whether or not
    /// the other end challenged the SYN before.
    #[test]
    fn ports_are_used_again(
        numbers in [[initials(), initials()], [initials(), initials()]],
        lens in [0usize..3000, 0usize..3000, 0usize..3000, 0usize..3000],
        resynchronise: bool,
        is_challenged: bool,
        scales in [prop::option::of(0u8..15), prop::option::of(0u8..15)],
    ) {
        prop_assume!(numbers[0][0] != numbers[1][0] && numbers[0][1] != numbers[1][1]);
        let options = Options { resynchronise, ..Options::default() };
        let mut bench = Bench::open_at(options, numbers[0]);
        let bytes = |at: usize| (0..lens[at]).map(|place| stream(place + at)).collect::<Vec<u8>>();
        let _ = bench.data(A, 0, 0, &bytes(0));
        let _ = bench.data(B, 0, lens[0] as u32, &bytes(1));
        let last = bench.data(A, lens[0] as u32, lens[1] as u32, b"");
        prop_assert_eq!(last, super::Outcome::Accepted);
        let option = |scale: Option<u8>| scale.map_or(Vec::new(), |scale| vec![3, 3, scale]);
        let [first, second] = [option(scales[0]), option(scales[1])];
        let syn = Segment { sequence: numbers[1][0], flags: SYN, window: 9, options: &first, ..Segment::default() };
        prop_assert_eq!(bench.send(A, syn), super::Outcome::Accepted);
        if is_challenged {
            // It is lost on its way back.
            let outcome = bench.data(B, lens[1] as u32, lens[0] as u32, b"");
            prop_assert_eq!(outcome, super::Outcome::Accepted);
            prop_assert_eq!(bench.send(A, syn), super::Outcome::Accepted);
        }
        let answer = Segment {
            sequence: numbers[1][1],
            acknowledgment: numbers[1][0].wrapping_add(1),
            flags: SYN | ACK,
            window: 9,
            options: &second,
            ..Segment::default()
        };
        prop_assert_eq!(bench.send(B, answer), super::Outcome::Restart);
        let known = bench.connection.again(&answer);
        bench.close();
        prop_assert_eq!([bench.sink.bytes(A), bench.sink.bytes(B)], [bytes(0), bytes(1)]);
        (bench.connection, bench.sink, bench.initial) = (Connection::new(B), Recorder::default(), numbers[1]);
        bench.connection.begin_again(&known);
        prop_assert_eq!(bench.send(B, answer), super::Outcome::Accepted);
        prop_assert_eq!(bench.data(A, 0, 0, &bytes(2)), super::Outcome::Accepted);
        prop_assert_eq!(bench.data(B, 0, lens[2] as u32, &bytes(3)), super::Outcome::Accepted);
        prop_assert_eq!(bench.connection.client(), A);
        bench.close();
        prop_assert_eq!([bench.sink.bytes(A), bench.sink.bytes(B)], [bytes(2), bytes(3)]);
    }

    /// What one end of an open connection sends that the other end does not take leaves its stream as it is, where every packet
    /// passes and in captures: a reset that is not exact, SYN and what goes on behind it, acknowledgments that are too old or of what
    /// was never sent. The other end challenges it.
    #[test]
    fn what_is_not_taken_changes_no_stream(
        initial in [initials(), initials()],
        lens in prop::collection::vec(1usize..400, 1..12),
        strays in prop::collection::vec((any::<Index>(), 0usize..5, any::<u32>(), 1u32..60_000, any::<bool>()), 1..12),
        resynchronise: bool,
    ) {
        let mut bench = Bench::open_at(Options { resynchronise, ..Options::default() }, initial);
        let all: Vec<u8> = (0..lens.iter().sum::<usize>()).map(stream).collect();
        let _ = bench.data(B, 0, 0, b"banner");
        let mut acknowledged = 0;
        prop_assert_eq!(bench.data(A, 0, 6, b""), super::Outcome::Accepted);
        let mut offset = 0;
        for (index, len) in lens.iter().enumerate() {
            for (at, kind, number, near, is_data) in &strays {
                if at.index(lens.len()) != index {
                    continue;
                }
                let next = initial[0].wrapping_add(1 + offset as u32);
                let known = initial[1].wrapping_add(1 + 6);
                // Far from what is expected, on either side of it.
                let far = next.wrapping_add((1 << 29) + number % (1 << 30));
                let payload: &[u8] = if *is_data { b"stray" } else { b"" };
                let segment = |sequence, acknowledgment, flags, payload| Segment {
                    sequence, acknowledgment, flags, window: 1000, payload, ..Segment::default()
                };
                let challenge = |bench: &mut Bench| bench.data(B, 6, offset as u32, b"");
                match kind {
                    // Below what came last, which may be within the window, or above it.
                    0 => {
                        let below = next.wrapping_sub(1 + near % 500);
                        let own = if *is_data { below } else { next.wrapping_add(*near) };
                        let _ = bench.send(A, segment(own, 0, 0x04, b""));
                    }
                    1 => {
                        let outcome = bench.send(A, segment(far, 0, SYN, payload));
                        let expected = if *is_data { super::Outcome::Unread } else { super::Outcome::Accepted };
                        prop_assert!(outcome == expected || far == initial[0]);
                        prop_assert_eq!(challenge(&mut bench), super::Outcome::Accepted);
                        let outcome = bench.send(A, segment(far.wrapping_add(1), known, ACK, b"stray"));
                        prop_assert_eq!(outcome, super::Outcome::Ignored);
                        prop_assert_eq!(challenge(&mut bench), super::Outcome::Accepted);
                    }
                    2 => {
                        let old = known.wrapping_sub(70_000 + near);
                        let outcome = bench.send(A, segment(next, old, ACK, b"stray"));
                        prop_assert_eq!(outcome, super::Outcome::Unread);
                    }
                    3 if !resynchronise => {
                        let outcome = bench.send(A, segment(next, known.wrapping_add(*near), ACK, b"stray"));
                        prop_assert_eq!(outcome, super::Outcome::Ignored);
                    }
                    // A capture may have lost what is acknowledged, so data with it is taken.
                    3 => {
                        let outcome = bench.send(A, segment(next, known.wrapping_add(*near), ACK, b""));
                        prop_assert_eq!(outcome, super::Outcome::Accepted);
                        prop_assert!(bench.sink.events.contains(&(A, Event::AckUnseen)));
                        if *is_data {
                            prop_assert_eq!(challenge(&mut bench), super::Outcome::Accepted);
                        }
                    }
                    _ => {
                        let outcome = bench.send(A, segment(far, known, ACK, b"stray"));
                        prop_assert_eq!(outcome, super::Outcome::Ignored);
                    }
                }
            }
            // What was sent before and not acknowledged may be reset at its place.
            let outcome = bench.data(A, offset as u32, 6, &all[offset..offset + len]);
            prop_assert_eq!(outcome, super::Outcome::Accepted);
            offset += len;
            if index % 2 == 0 {
                acknowledged = offset;
                prop_assert_eq!(bench.data(B, 6, acknowledged as u32, b""), super::Outcome::Accepted);
            }
        }
        prop_assert_eq!(bench.connection.state(), TcpState::Established);
        bench.close();
        prop_assert!(acknowledged <= offset);
        prop_assert_eq!(bench.sink.bytes(A), all);
        prop_assert_eq!(bench.sink.bytes(B), b"banner");
    }
}
