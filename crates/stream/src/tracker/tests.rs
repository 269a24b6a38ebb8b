//! Scenes of packets through a tracker, and all that its module hears.

mod cases;
mod confirm;
mod helpers;
mod passing;
mod pieces;
mod random;
mod scene;
mod steps;
mod twin;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::*;
use crate::record::FlowRecord;
use crate::tcp::{End, Event, Want};
use scene::Scene;

/// Something that a module was given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Data(Side, u64, Vec<u8>),
    Gap(Side, u64, u64, u64),
    End(Side, u64, End),
    Event(Side, Event, u64),
    /// A datagram whose fragments were passed on by themselves.
    Whole(Side, Vec<u8>),
}

/// A flow that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    record: FlowRecord,
    client: Side,
    time_ns: u64,
    heard: Vec<Heard>,
    /// Reports of it while it went on.
    reports: Vec<Report>,
}

/// A report of a flow that went on: its time, the last packet's, packets and bytes of IP of both sides.
type Report = (u64, u64, [(u64, u64); 2]);

impl Ended {
    fn key(&self) -> FlowKey {
        let record = &self.record;
        let words = |address| match address {
            IpAddr::V4(address) => [0, u64::from(address.to_bits())],
            IpAddr::V6(address) => [(address.to_bits() >> 64) as u64, address.to_bits() as u64],
        };
        let client = (words(record.client), record.client_port);
        let server = (words(record.server), record.server_port);
        let family = if record.client.is_ipv4() { 4 } else { 6 };
        FlowKey::new(client, server, record.protocol, family, 0).0
    }
}

/// Keeps all that it hears.
#[derive(Default)]
struct Ears {
    ended: Vec<Ended>,
    /// Of flows that have not ended, by number.
    reports: HashMap<u64, Vec<Report>>,
    /// Flows that never were, by number.
    never: Vec<u64>,
}

impl Module for Ears {
    type State = (u64, Vec<Heard>);

    fn datagram(&mut self, _: &Identity, state: &mut Self::State, whole: &OfFlow<'_>) {
        assert!(!whole.is_piece());
        state.1.push(Heard::Whole(whole.side, whole.input.frame.to_vec()));
    }

    fn data(
        &mut self,
        flow: &Identity,
        (id, heard): &mut Self::State,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want {
        assert!(*id == 0 || *id == flow.id, "the state of another flow");
        *id = flow.id;
        heard.push(Heard::Data(side, offset, bytes.to_vec()));
        Want::More
    }

    fn gap(
        &mut self,
        _flow: &Identity,
        state: &mut Self::State,
        side: Side,
        offset: u64,
        bytes: u64,
        time_ns: u64,
    ) {
        state.1.push(Heard::Gap(side, offset, bytes, time_ns));
    }

    fn end_of_side(
        &mut self,
        _flow: &Identity,
        state: &mut Self::State,
        side: Side,
        offset: u64,
        end: End,
    ) {
        state.1.push(Heard::End(side, offset, end));
    }

    fn event(
        &mut self,
        _flow: &Identity,
        state: &mut Self::State,
        side: Side,
        event: Event,
        time_ns: u64,
    ) {
        state.1.push(Heard::Event(side, event, time_ns));
    }

    fn never_was(&mut self, flow: u64) {
        self.never.push(flow);
    }

    fn ended(&mut self, record: &FlowRecord, client: Side, state: &mut Self::State, time_ns: u64) {
        let (id, heard) = std::mem::take(state);
        assert!(id == 0 || id == record.id);
        let reports = self.reports.remove(&record.id).unwrap_or_default();
        self.ended.push(Ended { record: record.clone(), client, time_ns, heard, reports });
    }

    fn goes_on(&mut self, record: &FlowRecord, client: Side, _: &mut Self::State, time_ns: u64) {
        assert_eq!(record.reason, Reason::Active);
        let mut sides = record.sides.map(|side| (side.packets, side.ip_bytes));
        if client == Side::B {
            sides.swap(0, 1);
        }
        let reports = self.reports.entry(record.id).or_default();
        reports.push((time_ns, record.end_ns, sides));
    }
}

/// When idle flows are swept: never, or after each batch in pieces of so many records.
type Sweeps = Option<usize>;

fn options(timeouts: IdleTimeouts) -> Options {
    let tcp = tcp::Options { buffer_bytes: 4 << 20, ..tcp::Options::default() };
    let defrag = defrag::Config { datagrams: 256, fragments: 1024, ..defrag::Config::default() };
    Options { flows: 512, half_open: 512, timeouts, tcp, defrag, ..Options::default() }
}

/// The flows of those frames of a scene that `takes`, in the order of start and number, and what was counted.
fn run(
    scene: &Scene,
    options: Options,
    batch: usize,
    sweeps: Sweeps,
    takes: impl Fn(&scene::Frame) -> bool,
) -> (Vec<Ended>, Counts) {
    run_late(scene, options, batch, (sweeps, 0), takes)
}

/// The same; a frame is at most `late_ns` earlier than one before it.
fn run_late(
    scene: &Scene,
    options: Options,
    batch: usize,
    (sweeps, late_ns): (Sweeps, u64),
    takes: impl Fn(&scene::Frame) -> bool,
) -> (Vec<Ended>, Counts) {
    let mut latest_ns = 0;
    let frames: Vec<_> = scene.frames.iter().filter(|frame| takes(frame)).collect();
    let mut tracker = Tracker::new(options, Ears::default()).unwrap();
    tracker.number_up_to(32);
    for frames in frames.chunks(batch) {
        let decode = |frame: &&scene::Frame| packet::decode(&frame.bytes, frame.bytes.len());
        let decoded: Vec<_> = frames.iter().map(decode).collect();
        // What is said of packets changes nothing, be it right or wrong.
        let groups = frames.iter().zip(&decoded).map(|(frame, d)| match frame.time_ns / 7 % 4 {
            0 => NO_GROUP,
            1 => (frame.time_ns % 3) as u32,
            _ => (d.src[1] as u32 ^ (d.dst[1] as u32).rotate_left(7)).wrapping_add(d.l4_word) | 1,
        });
        let said = groups.take((frames[0].time_ns % 3) as usize * frames.len() / 2);
        tracker.shares(said.collect::<Vec<u32>>());
        let numbers = frames.iter().zip(&decoded).map(|(frame, d)| match frame.time_ns / 5 % 3 {
            0 => NO_NUMBER,
            1 => (frame.time_ns % 40) as u32,
            _ => (d.src[1] ^ d.dst[1]) as u32 % 32,
        });
        let said = numbers.take((frames[0].time_ns % 5) as usize * frames.len() / 4);
        tracker.numbers(said.collect::<Vec<u32>>());
        tracker.packets(
            frames.len(),
            |at| Input {
                decoded: &decoded[at],
                frame: &frames[at].bytes,
                frame_len: frames[at].bytes.len() as u32,
                time_ns: frames[at].time_ns,
                port: 3,
                checksums: true,
                tunnels: None,
                segment: None,
            },
            |_, _| {},
        );
        if let Some(records) = sweeps {
            latest_ns = frames.iter().fold(latest_ns, |latest: u64, own| latest.max(own.time_ns));
            tracker.sweep(records, latest_ns.saturating_sub(late_ns));
        }
        assert!(tracker.len() <= options.flows);
    }
    tracker.finish(scene.latest_ns());
    assert_eq!((tracker.len(), tracker.buffered_bytes()), (0, 0));
    assert_eq!(tracker.visit(0, 1, &mut |_| panic!("none is left")), None);
    assert!(tracker.module().reports.is_empty(), "reports of no flow");
    let mut ended = std::mem::take(&mut tracker.module().ended);
    ended.sort_by_key(|ended| (ended.record.start_ns, ended.record.id));
    (ended, tracker.counts())
}

fn check_counts(scene: &Scene, ended: &[Ended], counts: Counts) {
    let of_flows = |ended: &Ended| ended.record.sides.iter().map(|side| side.packets).sum::<u64>();
    assert_eq!(ended.iter().map(of_flows).sum::<u64>() + counts.errors, counts.packets);
    let Counts { packets, not_ip, malformed, checksum, no_room, fragments_lost, .. } = counts;
    let all = packets + not_ip + malformed + checksum + no_room + fragments_lost;
    assert_eq!(all, scene.frames.len() as u64, "{counts:?}");
    let ids: HashSet<u64> = ended.iter().map(|ended| ended.record.id).collect();
    assert_eq!(ids.len(), ended.len(), "each flow has a number of its own");
}
