//! A search for literals in packets before the tracker, for a follower that searches their bytes: what it is spared.
//!
//! ```text
//!  flow:  decode · verify · search ─ flow_clean ─▶ flow.2:  tracker ─▶ follower: clean? only borders of segments are searched
//!                           └ one automaton, a part of the tables: all literals, of whichever end and protocol
//! ```
//!
//! Which literals count for a packet depends on its flow, and what of a stream a packet brings on packets before it. Neither is known
//! here. But bytes in which none of all literals is as a whole are *clean* whatever the flow is: a follower then has to look only at
//! literals that began in bytes before, or end in bytes behind. So this is a function of the packet and of the tables of its chunk,
//! which any job gives, and what it says can only spare work.
//!
//! A clean row has the number of the literals ([`Literals::generation`]), so a follower whose rules are others already, or not yet,
//! sees that it says nothing about them.
//!
//! | | |
//! | --- | --- |
//! | reads | frames, and what [`decode`](super::decode) found of them, of rows that no stage before has settled |
//! | writes | `flow_clean` |
//! | next | all packets |
//!
//! Threads: one instance per worker, without state.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use automata::{Automaton, Found, Scratch, Segment};
use chunk::{Chunk, ColumnSet, Columns, Declaration, Packet, Rows, Verdict};
use controlplane::{PartId, TablePart, Tables};
use device::accelerator::Step;
use device::tables::Change;
use engine::{Context, KernelForm, Phases, Shade, Stage};
use lookup::versions::Patchable;
use packet::IpProtocol;
use packet::decode::Kind;

use super::decode::{FlowDecode, is_known, segment};
use super::kernels::{FLOW, FLOW_SEARCH, REASSEMBLY};

chunk::columns! {
    /// What a search before the tracker reads and finds. The first five are those of [`HeadColumns`](super::decode::HeadColumns).
    pub struct SearchColumns / SearchView {
        /// Where the frame starts in the payload of a job, bytes.
        pub flow_at: u32,
        /// Bytes of it.
        pub flow_len: u32,
        /// The first two of [`Decoded::words`](packet::Decoded::words).
        pub flow_header0: [u64; 2],
        /// The others.
        pub flow_header1: [u64; 2],
        /// What is known of the TCP segment: see [`segment`].
        pub flow_segment: [u64; 2],
        /// The number of the literals of which none is in the payload; 0: one is, or that is not known.
        pub flow_clean: u32,
    }
}

/// Words of the region before those of the automaton: the generation, and what keeps quads aligned.
pub const HEAD_WORDS: usize = 4;

/// What is searched for.
#[derive(Debug)]
pub struct Literals {
    automaton: Automaton,
    /// The region of a device.
    words: Vec<u32>,
}

impl Literals {
    /// These, under a number that no others have; 0 is none.
    pub fn new(generation: u64, automaton: Automaton) -> Self {
        let mut words = vec![0; HEAD_WORDS];
        words[0] = generation as u32;
        words.extend_from_slice(automaton.words());
        Self { automaton, words }
    }

    /// Their number, as it is in `flow_clean`.
    pub fn generation(&self) -> u32 {
        self.words[0]
    }

    /// The region of a device: the number, three zeros, the automaton.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Whether one of them is in these bytes: the plain twin of the search.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let mut is_in = false;
        self.automaton.scan(self.automaton.anywhere(), bytes, 0, |_| is_in = true);
        is_in
    }
}

/// The tables of the part: without literals nothing is searched, and no row is clean.
#[derive(Clone, Debug, Default)]
pub struct LiteralTables(pub Option<Arc<Literals>>);

impl LiteralTables {
    fn words(&self) -> &[u32] {
        self.0.as_ref().map_or(&[], |own| own.words())
    }
}

impl Patchable for LiteralTables {
    type Patch = Self;

    fn apply(&mut self, other: &Self) {
        self.0.clone_from(&other.0);
    }
}

/// The part of the tables, with one region.
#[derive(Debug)]
pub struct LiteralPart;

impl TablePart for LiteralPart {
    type Tables = LiteralTables;

    const REGIONS: usize = 1;

    /// The automaton has its words itself, too.
    fn len_bytes(tables: &LiteralTables) -> usize {
        2 * size_of_val(tables.words())
    }

    fn regions(tables: &LiteralTables) -> Vec<Cow<'_, [u32]>> {
        vec![Cow::Borrowed(tables.words())]
    }

    fn changes(tables: &LiteralTables, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        change(0, Change::Replace(tables.words()));
        true
    }
}

/// Where in a frame bytes begin that a follower may be given: behind the headers, as far as these are known. `header1` and
/// `segment` are the columns.
pub fn searched_from([lengths, kinds]: [u64; 2], segment: [u64; 2]) -> usize {
    let (kind, protocol) = (kinds as u8, IpProtocol((kinds >> 8) as u8));
    if kind != Kind::Ipv4 as u8 && kind != Kind::Ipv6 as u8 {
        return 0;
    }
    let l4 = (lengths >> 16) as usize & 0xffff;
    l4 + match (segment[1] >> 56) as u8 {
        segment::RIGHT => (segment[1] >> 48) as usize & 0xff,
        _ if matches!(protocol, IpProtocol::UDP | IpProtocol::ICMP | IpProtocol::ICMPV6) => 8,
        _ => 0,
    }
}

/// Frames of one cell that are searched together.
const GROUP: usize = 32;

/// What a search on the CPU needs.
#[derive(Default)]
struct Room {
    /// A frame of more than one cell, in one piece.
    linear: Vec<u8>,
    found: Vec<Found>,
    scratch: Scratch,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// The stage of one worker: [`FlowDecode`], and the search.
#[derive(Debug)]
pub struct FlowSearch {
    decode: FlowDecode,
    part: PartId<LiteralPart>,
}

impl FlowSearch {
    /// With the literals of a part of the tables, and what finds out all else.
    pub fn new(part: PartId<LiteralPart>, decode: FlowDecode) -> Self {
        Self { decode, part }
    }
}

/// What it does, without state: any thread may.
struct Search {
    heads: Arc<dyn Shade<Tables>>,
    part: PartId<LiteralPart>,
}

/// What the stage does as the one without a search.
fn plain(stage: &FlowDecode) -> &dyn Stage<Tables> {
    stage
}

impl Stage<Tables> for FlowSearch {
    fn name(&self) -> &'static str {
        plain(&self.decode).name()
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.decode.numbers() {
            false => &[
                super::decode::HeadColumns::COLUMNS,
                super::reassembly::ReassemblyColumns::COLUMNS,
                SearchColumns::COLUMNS,
            ],
            true => &[
                super::decode::HeadColumns::COLUMNS,
                super::reassembly::ReassemblyColumns::COLUMNS,
                super::connections::ConnectionColumns::COLUMNS,
                SearchColumns::COLUMNS,
            ],
        }
    }

    /// Nothing is known of a row that it has not seen.
    fn zeroed(&self) -> ColumnSet {
        plain(&self.decode).zeroed().union(&ColumnSet::of(&[SearchColumns::FLOW_CLEAN]))
    }

    fn reads(&self) -> ColumnSet {
        plain(&self.decode).reads()
    }

    fn writes(&self) -> ColumnSet {
        plain(&self.decode).writes().union(&ColumnSet::of(&[SearchColumns::FLOW_CLEAN]))
    }

    fn phases(&self) -> Phases {
        plain(&self.decode).phases()
    }

    fn reads_packets(&self) -> bool {
        true
    }

    fn ends_segment(&self) -> bool {
        plain(&self.decode).ends_segment()
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        self.decode.pre_shade(chunk, cx);
    }

    fn shader(&self) -> Option<Arc<dyn Shade<Tables>>> {
        let heads = plain(&self.decode).shader()?;
        Some(Arc::new(Search { heads, part: self.part }))
    }

    fn next_sweep_ns(&self) -> Option<u64> {
        plain(&self.decode).next_sweep_ns()
    }

    fn sweep(&mut self, rows: &mut Rows, cx: &mut Context<'_, Tables>) -> usize {
        self.decode.sweep(rows, cx)
    }
}

/// Searches the frames of a group, of which those in `rows` are in one cell each.
fn search_group(
    literals: &Literals,
    rows: &[(usize, usize)],
    packets: &[Packet],
    clean: &mut [u32],
    room: &mut Room,
) {
    let state = literals.automaton.anywhere();
    let mut segments = [Segment { state, offset: 0, bytes: &[] }; GROUP];
    for ((row, from), segment) in rows.iter().zip(&mut segments) {
        segment.bytes = packets[*row].data().get(*from..).unwrap_or_default();
        clean[*row] = literals.generation();
    }
    room.found.clear();
    let segments = &mut segments[..rows.len()];
    literals.automaton.scan_many(segments, &mut room.found, &mut room.scratch);
    room.found.iter().for_each(|found| clean[rows[found.segment as usize].0] = 0);
}

impl Shade<Tables> for Search {
    /// What is searched is in the packets alone.
    fn shade(&self, _: &mut Rows, _: &Tables) {}

    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &Tables) {
        self.heads.shade_packets(rows, packets, tables);
        let view = SearchColumns::view(rows);
        view.flow_clean[..packets.len()].fill(0);
        let Some(literals) = &tables.part(self.part).0 else { return };
        ROOM.with_borrow_mut(|room| {
            let (mut group, mut used) = ([(0, 0); GROUP], 0);
            for (row, packet) in packets.iter().enumerate() {
                let found = view.flow_segment[row];
                if !Verdict(view.verdict[row]).is_next() || !is_known(found) {
                    continue;
                }
                let from = searched_from(view.flow_header1[row], found);
                if packet.cells() > 1 {
                    let mut linear = std::mem::take(&mut room.linear);
                    let frame = packet.linear(0..packet.frame_len(), &mut linear);
                    let is_clean = frame.is_some_and(|frame| {
                        !literals.is_in(frame.get(from..).unwrap_or_default())
                    });
                    view.flow_clean[row] = if is_clean { literals.generation() } else { 0 };
                    room.linear = linear;
                    continue;
                }
                group[used] = (row, from);
                used += 1;
                if used == GROUP {
                    search_group(literals, &group, packets, view.flow_clean, room);
                    used = 0;
                }
            }
            search_group(literals, &group[..used], packets, view.flow_clean, room);
        });
    }

    fn kernels(&self) -> Option<KernelForm> {
        let mut form = self.heads.kernels()?;
        form.files = match form.state {
            None => &[&FLOW, &FLOW_SEARCH, &REASSEMBLY],
            Some(_) => super::kernels::FILES,
        };
        let region = self.part.regions().start as u32;
        form.steps.push(Step::rows("flow_search", 128).with_job(region).into());
        Some(form)
    }

    fn state_slots(&self) -> usize {
        self.heads.state_slots()
    }

    fn twin(&self) -> Option<Arc<dyn Shade<Tables>>> {
        self.heads.twin().map(|heads| Arc::new(Search { heads, part: self.part }) as _)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, RwLock};

    use detect::{HostTables, Options, Ruleset};
    use signatures::{Loader, Variables};
    use stream::Tracker;
    use stream::tracker::Input;

    use super::*;
    use crate::flow::Listener;
    use crate::flow::follow::Followers;
    use crate::ids::counters::{Counters, get};
    use crate::ids::inspect::{Parts, Places};
    use crate::ids::outputs::Outputs;

    fn rules(text: &str) -> Arc<Ruleset> {
        let variables = Variables::with_defaults([], []).expect("defaults");
        let mut loader = Loader::new(variables.clone());
        loader.read("rules", text.as_bytes()).expect("memory");
        let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
        assert!(refused.is_empty(), "{refused:?}");
        Arc::new(rules)
    }

    /// A datagram with this payload.
    fn datagram(payload: &[u8]) -> Vec<u8> {
        let len = |header: usize| ((header + payload.len()) as u16).to_be_bytes();
        let mut ip = [&[0x45, 0][..], &len(28), &[0, 1, 0, 0, 64, 17, 0, 0]].concat();
        ip.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        let sum = packet::checksum::internet_checksum(&ip).to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        [&[2; 12][..], &[8, 0], &ip, &[9, 9, 9, 8], &len(8), &[0, 0], payload].concat()
    }

    /// Alerts of rules about a datagram in a row that has this in `flow_clean`, and how many were spared.
    fn alerts(current: &Arc<Ruleset>, clean: u32) -> (u64, u64) {
        let counters = Arc::new(Counters::default());
        let outputs = Outputs::open(&control::config::Ids::default(), 0, Arc::default(), false);
        let places = Places::new(Parts {
            current: Arc::new(RwLock::new(current.clone())),
            outputs: Arc::new(outputs.expect("no files")),
            counters: counters.clone(),
            hosts: HostTables::default(),
            tags: Arc::default(),
            is_inline: Arc::new(AtomicBool::new(false)),
            session_memory: Arc::new(std::sync::atomic::AtomicUsize::new(usize::MAX)),
            stream_memory: Arc::new(std::sync::atomic::AtomicUsize::new(usize::MAX)),
            on_limit: control::config::IdsOnLimit::Inspect,
            drops_invalid: Arc::default(),
            literals: None,
        });
        let followers = Followers::new(vec![places.follower_in("", 0, (0, 1))]);
        let options = stream::tracker::Options { flows: 64, half_open: 64, ..<_>::default() };
        let mut tracker = Tracker::new(options, followers).expect("memory");
        let frame = datagram(b"a needle");
        let decoded = packet::decode(&frame, frame.len());
        let addresses = frame.as_ptr_range();
        let followers = tracker.module();
        followers.rows.push(0);
        followers.frames.push(addresses.start.addr()..addresses.end.addr());
        followers.clean.push(clean);
        let input = Input {
            decoded: &decoded,
            frame: &frame,
            frame_len: frame.len() as u32,
            time_ns: 1,
            port: 0,
            checksums: true,
            tunnels: None,
            segment: None,
        };
        tracker.packets(1, |_| input, |_, _| ());
        tracker.finish(2);
        tracker.module().all.iter_mut().for_each(|follower| follower.finished());
        (get(&counters.alerts), get(&counters.clean))
    }

    /// While rules are replaced, a worker may have others than the tables of its chunk: what was searched for those says nothing.
    #[test]
    fn what_was_searched_for_other_rules_is_searched_again() {
        let own = rules("alert udp any any -> any any (content:\"needle\"; sid:1;)");
        let others = rules("alert udp any any -> any any (content:\"thread\"; sid:2;)");
        let number = |rules: &Ruleset| {
            let literals = rules.literals().expect("small tables").expect("shared");
            Literals::new(rules.generation(), literals)
        };
        let (literals, other_literals) = (number(&own), number(&others));
        assert!(literals.is_in(b"a needle") && !other_literals.is_in(b"a needle"));
        assert_eq!(alerts(&own, other_literals.generation()), (1, 0), "clean of others");
        assert_eq!(alerts(&own, 0), (1, 0), "not known");
        // No search says this; the follower believes it.
        assert_eq!(alerts(&own, literals.generation()), (0, 1), "clean of these");
    }
}
