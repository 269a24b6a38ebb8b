//! Flows that count once their first packet got through: packet by packet, in batches, and by a plain twin.

use std::collections::HashMap;

use packet::Decoded;
use packet::tcp::{TcpView, flags};
use proptest::prelude::*;

use super::steps::{Step, steps};
use super::twin::timeout_of;
use super::*;
use crate::tcp::{Connection, Segment, Sink};
use crate::tracker::input::{cause_of, key_of};

/// What the tracker says of a packet.
type Said = (PacketState, bool);

/// What becomes of the frames, in batches of so many: a batch is decided when all of it is through, and goes on with what the
/// tracker has not taken, which packets between other hosts overtake or not. By frame what was said of it.
fn run_confirming(
    frames: &[scene::Frame],
    timeouts: IdleTimeouts,
    (batch, overtaking): (usize, Overtaking),
    sweeps: Sweeps,
    drops: impl Fn(usize, Said) -> bool,
) -> (Vec<Said>, Vec<Ended>) {
    let options = Options { confirms: true, ..options(timeouts) };
    let mut tracker = Tracker::new(options, Ears::default()).unwrap();
    let mut swept = (0, 0);
    tracker.let_overtake(overtaking);
    let mut said: Vec<Said> = vec![(PacketState::Untracked, false); frames.len()];
    let decode = |frame: &scene::Frame| packet::decode(&frame.bytes, frame.bytes.len());
    let decoded: Vec<_> = frames.iter().map(decode).collect();
    let (mut latest_ns, mut flows) = (0, 0);
    let mut latest = HashMap::new();
    for first in (0..frames.len()).step_by(batch) {
        let mut left: Vec<usize> = (first..frames.len().min(first + batch)).collect();
        latest_ns = frames[left[left.len() - 1]].time_ns;
        while !left.is_empty() {
            let mut opened = Vec::new();
            let input = |at: usize| Input {
                decoded: &decoded[left[at]],
                frame: &frames[left[at]].bytes,
                frame_len: frames[left[at]].bytes.len() as u32,
                time_ns: frames[left[at]].time_ns,
                port: 3,
                checksums: true,
                tunnels: None,
                segment: None,
            };
            let taken = tracker.packets(left.len(), input, |at, tracked| {
                if let Some(group) = group_of(&decoded[left[at]], overtaking) {
                    let before = latest.insert(group, left[at]);
                    assert!(before < Some(left[at]), "packets that must meet stay in order");
                }
                said[left[at]] = (tracked.state, tracked.is_reply);
                opened.extend(tracked.opens.map(|flow| (left[at], flow)));
            });
            flows += opened.len();
            for (at, flow) in opened {
                tracker.decide(flow, !drops(at, said[at]));
            }
            let waiting = tracker.waiting().iter().map(|at| left[*at as usize]);
            let rest: Vec<_> = waiting.chain(left[taken..].iter().copied()).collect();
            assert!(rest.len() < left.len(), "what waited has been decided");
            assert!(overtaking != Overtaking::None || rest == left[taken..]);
            left = rest;
        }
        if let Some(records) = sweeps {
            let is_round = tracker.sweep(records, latest_ns);
            let ended = &tracker.module().ended;
            let (before, swept_ns) = swept;
            // A sweep finds what is over, whatever came that does not count. The table has the times of batches, in milliseconds.
            let is_late = |own: &&Ended| own.time_ns + SPAN_NS + 2_000_000 < swept_ns;
            let late = ended[before..].iter().find(is_late);
            assert!(late.is_none(), "swept at {swept_ns}: {late:?}");
            if is_round && records >= 1 << 20 {
                swept = (ended.len(), latest_ns);
            }
        }
    }
    tracker.finish(latest_ns);
    assert_eq!((tracker.len(), tracker.buffered_bytes()), (0, 0));
    let Ears { mut ended, never, .. } = std::mem::take(tracker.module());
    assert_eq!(ended.len() + never.len(), flows, "the module learns what became of each");
    ended.sort_by_key(|ended| (ended.record.start_ns, ended.record.id));
    (said, ended)
}

/// What must meet, by addresses, protocol and ports as far as they count; `None` of an ICMP error, which meets what it quotes.
fn group_of(d: &Decoded, overtaking: Overtaking) -> Option<([[u64; 2]; 2], u8, [u16; 2])> {
    let (hosts, protocol) = ([d.src.min(d.dst), d.src.max(d.dst)], d.protocol.0);
    if !d.is_ip() || packet::quoted::is_error_packet(d) {
        return None;
    }
    match (overtaking, d.ports()) {
        (Overtaking::OtherFlows, Some((src, dst))) => {
            Some((hosts, protocol, [src.min(dst), src.max(dst)]))
        }
        (Overtaking::OtherFlows, None) => Some((hosts, protocol, [0; 2])),
        _ => Some((hosts, 0, [0; 2])),
    }
}

/// Drops packets as a firewall may: by their number, or those that open flows from one side.
fn dropped(salt: u64) -> impl Fn(usize, Said) -> bool {
    move |at, _| chunk::hash::key64(at as u64, salt).is_multiple_of(3)
}

/// A flow of the twin.
struct Plain {
    first: Side,
    end_ns: u64,
    packets: [u64; 2],
    connection: Connection,
}

/// Nobody listens.
struct Deaf;

impl Sink for Deaf {
    fn data(&mut self, _: Side, _: u64, _: &[u8]) -> Want {
        Want::More
    }
    fn gap(&mut self, _: Side, _: u64, _: u64) {}
    fn end(&mut self, _: Side, _: u64, _: End) {}
}

#[derive(Default)]
struct Twin {
    flows: HashMap<FlowKey, Plain>,
}

impl Twin {
    fn timeout_ns(timeouts: &IdleTimeouts, key: &FlowKey, flow: &Plain) -> u64 {
        let answered = flow.packets.iter().all(|packets| *packets > 0);
        timeout_of(timeouts, key.protocol, &flow.connection, answered)
    }

    /// One packet, which is dropped or not if it opens a flow.
    fn packet(
        &mut self,
        frame: &scene::Frame,
        timeouts: &IdleTimeouts,
        reassembler: &mut Reassembler,
        drops: impl Fn(Said) -> bool,
    ) -> Said {
        let decoded = packet::decode(&frame.bytes, frame.bytes.len());
        let input = Input {
            decoded: &decoded,
            frame: &frame.bytes,
            frame_len: frame.bytes.len() as u32,
            time_ns: frame.time_ns,
            port: 3,
            checksums: true,
            tunnels: None,
            segment: None,
        };
        let options = Options { confirms: true, ..Options::default() };
        let mut key = FlowKey::default();
        let side = match key_of(&input, &options, false, &mut key) {
            Ok(side) => side,
            Err(Reject::NotIp | Reject::Untracked) => return (PacketState::Untracked, false),
            Err(_) => return (PacketState::Invalid, false),
        };
        if packet::quoted::is_error_packet(&decoded) {
            return self.error(&input, timeouts, &options);
        }
        let bytes = &frame.bytes[usize::from(decoded.l4_offset)..];
        let view = (key.protocol == 6).then(|| TcpView::new_checked(bytes).unwrap());
        let segment = view.as_ref().map(Segment::from);
        let over = self.flows.get(&key).is_some_and(|flow| {
            frame.time_ns.saturating_sub(flow.end_ns) > Self::timeout_ns(timeouts, &key, flow)
        });
        if over {
            self.forget(&key, reassembler);
        }
        let mut flow = self.flows.remove(&key);
        let mut is_valid = true;
        let mut again = None;
        if segment.as_ref().is_some_and(|segment| !is_usual(segment.flags)) {
            is_valid = false;
        } else if let (Some(known), Some(segment)) = (&mut flow, &segment) {
            let outcome =
                reassembler.segment(&mut known.connection, side, segment, frame.time_ns, &mut Deaf);
            is_valid = outcome != tcp::Outcome::Ignored;
            if outcome == tcp::Outcome::Restart {
                again = Some(known.connection.again(segment));
                reassembler.close(&mut known.connection, &mut Deaf);
                flow = None;
            }
        }
        let is_known = flow.is_some();
        if !is_known && again.is_none() && !may_open(&decoded, segment.as_ref()) {
            return (PacketState::Invalid, false);
        }
        let mut flow = flow.unwrap_or_else(|| Plain {
            first: again.as_ref().and_then(tcp::Again::client).unwrap_or(side),
            end_ns: frame.time_ns,
            packets: [0; 2],
            connection: Connection::for_key(&key, side),
        });
        if let Some(again) = &again {
            flow.connection.begin_again(again);
        }
        if let (false, Some(segment)) = (is_known, &segment) {
            let outcome =
                reassembler.segment(&mut flow.connection, side, segment, frame.time_ns, &mut Deaf);
            if outcome == tcp::Outcome::Ignored {
                return (PacketState::Invalid, false);
            }
        }
        let is_reply = side != flow.first;
        if is_valid {
            flow.end_ns = flow.end_ns.max(frame.time_ns);
            flow.packets[side.index()] += 1;
        }
        let state = match (is_valid, flow.packets[flow.first.other().index()] > 0) {
            (false, _) => PacketState::Invalid,
            (true, true) => PacketState::Established,
            (true, false) => PacketState::New,
        };
        self.flows.insert(key, flow);
        if !is_known && drops((state, is_reply)) {
            self.forget(&key, reassembler);
        }
        (state, is_reply)
    }

    /// An ICMP error, which belongs to the flow that it quotes.
    fn error(&self, input: &Input<'_>, timeouts: &IdleTimeouts, options: &Options) -> Said {
        let about = cause_of(input, options).and_then(|((key, side), sequence)| {
            let flow = self.flows.get(&key)?;
            let idle_ns = input.time_ns.saturating_sub(flow.end_ns);
            let is_over = idle_ns > Self::timeout_ns(timeouts, &key, flow);
            let has_sent = sequence.is_none_or(|own| flow.connection.may_have_sent(side, own));
            (has_sent && !is_over).then_some(side == flow.first)
        });
        about.map_or((PacketState::Invalid, false), |is_reply| (PacketState::Related, is_reply))
    }

    fn forget(&mut self, key: &FlowKey, reassembler: &mut Reassembler) {
        if let Some(mut flow) = self.flows.remove(key) {
            reassembler.close(&mut flow.connection, &mut Deaf);
        }
    }
}

/// Flags that hosts send.
fn is_usual(bits: u16) -> bool {
    const ALL: [u16; 9] = [0x02, 0x22, 0x12, 0x04, 0x14, 0x11, 0x31, 0x10, 0x30];
    ALL.contains(&(bits & 0x37))
}

/// What a flow may begin with.
fn may_open(d: &Decoded, segment: Option<&Segment<'_>>) -> bool {
    let of_tcp = |bits: u16| matches!(bits, flags::SYN | flags::ACK);
    match (d.protocol.0, segment, d.icmp_type_code()) {
        (6, Some(segment), _) => {
            of_tcp(segment.flags & (flags::SYN | flags::ACK | flags::FIN | flags::RST))
        }
        (1, _, Some((kind, _))) => [8, 13, 15, 17].contains(&kind),
        (58, _, Some((kind, _))) => kind == 128,
        (6 | 1 | 58, ..) => false,
        _ => true,
    }
}

fn check(steps: &[Step], timeouts: IdleTimeouts, salt: u64) {
    let mut scene = Scene::new(steps);
    let expected =
        run_confirming(&scene.frames, timeouts, (1, Overtaking::None), None, dropped(salt));
    let overtaking = [Overtaking::None, Overtaking::OtherHosts, Overtaking::OtherFlows];
    let batches = [2, 7, 256].into_iter().flat_map(|size| overtaking.map(|own| (size, own)));
    for batch in batches {
        for sweeps in [None, Some(3), Some(1 << 20)] {
            let found = run_confirming(&scene.frames, timeouts, batch, sweeps, dropped(salt));
            assert_eq!(found, expected, "batches of {batch:?}, sweeps of {sweeps:?}");
        }
    }
    // The twin puts no fragments together.
    let is_whole = |frame: &scene::Frame| {
        !packet::decode(&frame.bytes, frame.bytes.len()).has(Decoded::FRAGMENT)
    };
    scene.frames.retain(is_whole);
    let (said, _) =
        run_confirming(&scene.frames, timeouts, (7, Overtaking::None), None, dropped(salt));
    let (mut twin, drops) = (Twin::default(), dropped(salt));
    let own = tcp::Options { resynchronise: false, ..options(timeouts).tcp };
    let mut reassembler = Reassembler::new(own);
    for (at, (frame, said)) in scene.frames.iter().zip(said).enumerate() {
        let own = twin.packet(frame, &timeouts, &mut reassembler, |said| drops(at, said));
        let is_invalid = said.0 == PacketState::Invalid && own.0 == PacketState::Invalid;
        assert!(is_invalid || said == own, "frame {at}: {said:?}, the twin {own:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn batches_agree_with_single_packets_and_the_twin(steps in steps(30), salt in any::<u64>()) {
        check(&steps, IdleTimeouts::default(), salt);
    }
}

/// A segment with a wrong checksum belongs to no flow, but waits for its hosts. The flow of its ports must not overtake it. Nor does
/// a message of ICMP overtake another one of its hosts.
#[test]
fn packets_that_are_spread_by_one_hash_stay_in_order() {
    use super::steps::Fate::{Checksum, Good};
    let step = |conversation, what, fate| Step {
        pause_ns: 0,
        conversation,
        by_server: false,
        what,
        len: 0,
        fate,
    };
    check(&[step(1, 0, Good), step(0, 3, Checksum), step(0, 0, Good)], IdleTimeouts::default(), 0);
    let messages = [(0, 2), (28, 4), (28, 4), (28, 3)].map(|(own, what)| step(own, what, Good));
    check(&messages, IdleTimeouts::default(), 0);
}

/// In one batch a row is undone whose flow is over when it comes again, one begins nothing in its place, and the next one begins a flow
/// there: that flow was seen now, not when the one before it was.
#[test]
fn a_flow_that_begins_in_the_place_of_one_undone_is_seen() {
    let step = |pause_ns, conversation, what| Step {
        pause_ns,
        conversation,
        by_server: false,
        what,
        len: 0,
        fate: super::steps::Fate::Good,
    };
    let mut steps = vec![step(0, 0, 2); 5];
    steps.extend([step(0, 2, 0), step(0, 0, 2), step(0, 0, 2), step(0, 5, 0), step(0, 6, 12)]);
    steps.extend([step(600_000_000_000, 8, 1), step(1_000, 6, 12), step(1_000_000, 0, 0)]);
    check(&steps, IdleTimeouts::default(), 5_302_548_847_557_721_695);
}

/// An outsider's packet that is dropped opens nothing that an insider's packet would be an answer to, and the other way round.
#[test]
fn what_is_dropped_opens_no_flow() {
    let step = |by_server, what| Step {
        pause_ns: 1_000,
        conversation: 2,
        by_server,
        what,
        len: 8,
        fate: super::steps::Fate::Good,
    };
    let scene = Scene::new(&[step(false, 0), step(true, 0), step(false, 0)]);
    use Overtaking::{None as Nobody, OtherFlows, OtherHosts};
    for batch in [(1, Nobody), (3, Nobody), (3, OtherFlows), (3, OtherHosts)] {
        let drops_first = |at: usize, _: Said| at == 0;
        let run = |drops: &dyn Fn(usize, Said) -> bool| {
            run_confirming(&scene.frames, IdleTimeouts::default(), batch, None, drops).0
        };
        use PacketState::{Established, New};
        assert_eq!(run(&|_, _| false), [(New, false), (Established, true), (Established, false)]);
        assert_eq!(run(&drops_first), [(New, false), (New, false), (Established, true)]);
        assert_eq!(run(&|_, _| true), [(New, false); 3]);
    }
}

/// Flows without an answer, let through or not, cost no flow with one its place; nor do segments of connections that nobody
/// opened.
#[test]
fn half_open_flows_evict_no_established_one() {
    let step = |conversation, by_server, what| Step {
        pause_ns: 1_000,
        conversation,
        by_server,
        what,
        len: 8,
        fate: super::steps::Fate::Good,
    };
    let mut steps = vec![step(2, false, 0), step(2, true, 0)];
    let others = (0..=255).filter(|conversation| *conversation != 2);
    steps.extend(
        others.flat_map(|conversation| (2..6).map(move |what| step(conversation, false, what))),
    );
    steps.push(step(2, false, 0));
    let scene = Scene::new(&steps);
    for drops in [false, true] {
        let options =
            Options { confirms: true, flows: 16, half_open: 8, ..options(IdleTimeouts::default()) };
        let mut tracker = Tracker::new(options, Ears::default()).unwrap();
        let mut last = Tracked::default();
        for frame in &scene.frames {
            let decoded = packet::decode(&frame.bytes, frame.bytes.len());
            let input = |_| Input {
                decoded: &decoded,
                frame: &frame.bytes,
                frame_len: frame.bytes.len() as u32,
                time_ns: frame.time_ns,
                port: 3,
                checksums: true,
                tunnels: None,
                segment: None,
            };
            assert_eq!(tracker.packets(1, input, |_, tracked| last = tracked), 1);
            let is_first = frame.time_ns == scene.frames[0].time_ns;
            last.opens.into_iter().for_each(|flow| tracker.decide(flow, is_first || !drops));
        }
        assert_eq!(last.state, PacketState::Established);
        assert!(drops || tracker.statistics().evicted > 50);
    }
}

/// What comes behind a packet that waits comes again, and is rejected once.
#[test]
fn what_comes_again_is_rejected_once() {
    let step = |conversation| Step {
        pause_ns: 1_000,
        conversation,
        by_server: false,
        what: 0,
        len: 8,
        fate: super::steps::Fate::Good,
    };
    let of = |steps: &[Step]| -> Vec<_> {
        Scene::new(steps).frames.into_iter().map(|frame| (frame.bytes, frame.time_ns)).collect()
    };
    let mut frames = of(&[step(2), step(2)]); // datagrams of one flow
    let time_ns = frames[1].1;
    let mut malformed = frames[0].0.clone();
    let ip = usize::from(packet::decode(&malformed, malformed.len()).l3_offset);
    malformed[ip] = 0x55; // version 5
    let mut damaged = of(&[step(0)])[0].0.clone();
    let segment = usize::from(packet::decode(&damaged, damaged.len()).l4_offset);
    damaged[segment + 5] ^= 1;
    frames.extend([(malformed, time_ns), (damaged, time_ns), (vec![0; 60], time_ns)]);
    let decoded: Vec<_> = frames.iter().map(|(f, _)| packet::decode(f, f.len())).collect();
    let options = Options { confirms: true, ..options(IdleTimeouts::default()) };
    let mut tracker = Tracker::new(options, Ears::default()).unwrap();
    let (mut first, mut said) = (0, 0);
    while first < frames.len() {
        let input = |at: usize| Input {
            decoded: &decoded[first + at],
            frame: &frames[first + at].0,
            frame_len: frames[first + at].0.len() as u32,
            time_ns: frames[first + at].1,
            port: 3,
            checksums: true,
            tunnels: None,
            segment: None,
        };
        let mut opened = None;
        let taken = tracker.packets(frames.len() - first, input, |_, tracked| {
            said += 1;
            opened = opened.or(tracked.opens);
        });
        assert_eq!(taken, if first == 0 { 1 } else { frames.len() - 1 });
        opened.into_iter().for_each(|flow| tracker.decide(flow, true));
        first += taken;
    }
    let Counts { packets, malformed, checksum, not_ip, .. } = tracker.counts();
    assert_eq!((said, packets, malformed, checksum, not_ip), (5, 2, 1, 1, 1));
}
