//! The fast path of established flows: their packets are not looked up again as long as no rule changes.
//!
//! ```text
//!  place of the flow, direction, last word ─hash─▶ header · epoch · rule      one line each; the newest takes the place
//! ```
//!
//! What is kept is the answer of the rules to a header: all that they can ask of a packet, word for word, the state in its flow
//! and the application of that among it. So the answer is that of a lookup whatever the place is chosen by, and whichever flow had it before: the end of a
//! flow needs no word here. The [epoch](FirewallTables::epoch) differs between any two contents of the lookup structures: with a
//! reload or a changed rule no answer is valid any more, at once. A chunk that still has the version before finds none, too, and
//! what it keeps is not found by later ones. Actions are not kept; they are those of the version at hand. Hits, marks, contexts
//! and copies follow from the rule as ever.
//!
//! Only packets of established flows are kept, so that a flood of new ones does not take their places. Small sets of rules are
//! looked up faster than a line that no cache has.
//!
//! A device looks all packets up: their headers are there for the routes, and its answer is the same.
//!
//! Threads: each stage has its own.

use super::columns::ShadeView;
use super::tables::FirewallTables;

/// Answers that are kept, as a power of two: 4 MiB.
const PLACES_LOG2: u32 = 16;

/// Set in the column of the rule before the shade: its answer is known. Ids are below it.
pub(super) const KNOWN: u32 = 1 << 31;
const _: () = assert!(super::hits::IDS_MAX < KNOWN as usize);

/// What rules see of a packet, by its columns.
type Key = [u64; 6];

/// The answer to one header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
struct Answer {
    key: Key,
    /// 0: none.
    epoch: u64,
    rule: u32,
    family: u32,
}

const _: () = assert!(size_of::<Answer>() == 64);

/// A row whose answer may be kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    row: u16,
    /// Place of the flow, and direction.
    flow: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FlowCache {
    places_log2: u32,
    /// Memory is taken with the first answer.
    places: Box<[Answer]>,
    asked: Vec<Asked>,
    indices: Vec<u32>,
    /// The columns have the applications of flows.
    has_applications: bool,
}

impl FlowCache {
    pub(super) fn new() -> Self {
        Self::with_places(PLACES_LOG2)
    }

    /// With 2^`places_log2` places, 1 to 2^32.
    fn with_places(places_log2: u32) -> Self {
        let rows = chunk::CHUNK_PACKETS_MAX;
        Self {
            places_log2,
            places: Box::default(),
            asked: Vec::with_capacity(rows),
            indices: Vec::with_capacity(rows),
            has_applications: false,
        }
    }

    /// The columns have the applications of flows, for which rules may ask: they are part of what is known.
    pub(super) fn with_applications(self) -> Self {
        Self { has_applications: true, ..self }
    }

    /// The rows of a chunk that are of established flows, by the columns of the stage `flow`.
    pub(super) fn select(&mut self, states: &[u8], slots: &[u32]) {
        use crate::flow::columns::{NO_SLOT, REPLY, state};
        use stream::tracker::PacketState;
        self.asked.clear();
        for (row, (bits, slot)) in states.iter().zip(slots).enumerate() {
            if state(*bits) == PacketState::Established && *slot != NO_SLOT {
                let flow = u64::from(*slot) << 1 | u64::from(bits & REPLY != 0);
                self.asked.push(Asked { row: row as u16, flow });
            }
        }
    }

    /// Writes the rules that are known into the column, marked.
    pub(super) fn recall(&mut self, view: &mut ShadeView<'_>, tables: &FirewallTables) {
        if self.places.is_empty() {
            return;
        }
        self.indices.clear();
        for asked in &self.asked {
            let index = index(view, asked, self.places_log2);
            if let Some(place) = self.places.get(index as usize) {
                interleave::prefetch(place);
            }
            self.indices.push(index);
        }
        let epoch = tables.epoch();
        for (asked, index) in self.asked.iter().zip(&self.indices) {
            let row = usize::from(asked.row);
            let Some((family, key)) = key(view, row, self.has_applications) else { continue };
            let Some(answer) = self.places.get(*index as usize) else { continue };
            if (answer.epoch, answer.family, answer.key) == (epoch, family, key)
                && chunk::Verdict(view.verdict[row]).is_next()
            {
                view.rule[row] = answer.rule | KNOWN;
            }
        }
    }

    /// Keeps the rules that were found.
    pub(super) fn keep(&mut self, view: &ShadeView<'_>, tables: &FirewallTables) {
        if self.asked.is_empty() {
            return;
        }
        if self.places.is_empty() {
            self.places = vec![Answer::default(); 1 << self.places_log2].into();
        }
        let epoch = tables.epoch();
        for asked in &self.asked {
            let row = usize::from(asked.row);
            let rule = view.rule[row];
            let key = key(view, row, self.has_applications).filter(|_| rule < KNOWN);
            let Some((family, key)) = key else { continue };
            let answer = Answer { key, epoch, rule, family };
            let index = index(view, asked, self.places_log2);
            if let Some(place) = self.places.get_mut(index as usize)
                && *place != answer
            {
                *place = answer;
            }
        }
    }
}

#[inline]
fn key(view: &ShadeView<'_>, row: usize, has_applications: bool) -> Option<(u32, Key)> {
    let [a, b] = view.head0[row];
    let application = if has_applications { view.head2[row][1] } else { 0 };
    match view.family[row] {
        4 => Some((4, [a, b, 0, 0, 0, application])),
        6 => {
            let ([c, d], [e, _]) = (view.head1[row], view.head2[row]);
            Some((6, [a, b, c, d, e, application]))
        }
        _ => None,
    }
}

/// TCP flags are part of what rules see, and change within a flow: each combination has a place of its own.
#[inline]
fn index(view: &ShadeView<'_>, asked: &Asked, places_log2: u32) -> u32 {
    let row = usize::from(asked.row);
    let last = match view.family[row] {
        6 => view.head2[row][0],
        _ => view.head0[row][1],
    };
    let hash = asked.flow.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (last >> 32).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (hash >> 32 >> (32 - places_log2)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use chunk::{Arena, Columns, Layout, Rows, Verdict};
    use classify::filter::{schema_v4, schema_v6};
    use classify::linear::LinearBuilder;
    use classify::{Classifier, RuleSet};
    use lookup::versions::Patchable;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::columns::Instance;
    use super::super::kernels::{FilterColumns, NOT_JUDGED};
    use super::super::tables::{Action, Ending, FirewallOptions, FirewallPatch, Record};
    use super::*;

    const ROWS: usize = 32;

    fn tables() -> FirewallTables {
        let of = |schema| LinearBuilder::build(&RuleSet::new(schema)).unwrap().tables().unwrap();
        let record = Record { name: "rule".into(), action: Action::of(Ending::Accept) };
        let records = vec![Some(record); FLOW_RULES];
        let both = (of(schema_v4()), of(schema_v6()));
        FirewallTables::new(both, records, FirewallOptions::default(), Arc::default())
    }

    /// So many that they are kept.
    const FLOW_RULES: usize = 40;

    /// A packet: family, what differs in its header, the place of its flow, state, and whether it is settled already.
    type Packet = (u8, u8, u32, u8, bool);

    fn packet() -> impl Strategy<Value = Packet> {
        let state = prop::sample::select(vec![0b110, 0b110, 0b1110, 0b100, 0b111, 0b001, 0]);
        let slot = prop_oneof![9 => 0_u32..4, 1 => Just(u32::MAX)];
        let family = prop::sample::select(vec![4, 4, 6, 6, 0, 255]);
        (family, 0_u8..6, slot, state, prop::bool::weighted(0.1))
    }

    /// The plain twin of all lookups: any function of what rules see and of the version.
    fn search(epoch: u64, (family, key): (u32, Key)) -> u32 {
        let mut sum = epoch.wrapping_mul(0x9e37_79b9) ^ u64::from(family);
        key.iter().for_each(|word| sum = (sum.rotate_left(9) ^ word).wrapping_mul(0x0100_0193));
        (sum >> 8) as u32 % FLOW_RULES as u32
    }

    /// Headers that differ in any one of their words.
    fn write(rows: &mut Rows, packets: &[Packet]) {
        rows.set_len(packets.len());
        let view = Instance::ALONE.view(rows);
        for (row, (family, what, _, state, is_settled)) in packets.iter().enumerate() {
            view.verdict[row] = if *is_settled { Verdict::forward(1) } else { Verdict::NEXT }.0;
            view.family[row] = *family;
            let mut words = [7_u64; 6];
            words[usize::from(*what % 5)] ^= u64::from(*what / 5 + 1) << 40;
            let at = if *family == 6 { 4 } else { 1 };
            words[at] ^= u64::from(*state) << 32;
            view.head0[row] = [words[0], words[1]];
            view.head1[row] = [words[2], words[3]];
            view.head2[row] = [words[4], words[5]];
            view.rule[row] = NOT_JUDGED;
        }
    }

    /// What happens before a chunk.
    #[derive(Debug, Clone, Copy)]
    enum Change {
        None,
        /// A rule changes.
        Patch,
        /// Other tables take the place of these.
        Reload,
        /// The chunk still has the version that was there at the start.
        Old,
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// However few the places are, whatever has them, and whatever version a chunk has: an answer that is known is that of
        /// a lookup. The last one of each place is known the next time.
        #[test]
        fn what_is_known_is_what_is_found(
            places_log2 in 0_u32..8,
            has_applications: bool,
            chunks in vec((vec(packet(), 1..ROWS), prop::sample::select(vec![
                Change::None, Change::None, Change::None, Change::Patch, Change::Reload, Change::Old,
            ])), 1..24),
        ) {
            let first = tables();
            let (mut current, mut cache) = (first.clone(), FlowCache::with_places(places_log2));
            cache.has_applications = has_applications;
            let layout = Layout::join(&[FilterColumns::COLUMNS], ROWS).unwrap();
            let mut rows = Arena::new(layout).reserve(ROWS).unwrap();
            let mut epochs = vec![first.epoch()];
            // By place: epoch and header of the newest answer.
            let mut newest = HashMap::new();
            for (packets, change) in &chunks {
                match change {
                    Change::Patch => current.apply(&FirewallPatch::V4(Vec::new())),
                    Change::Reload => current = tables(),
                    Change::None | Change::Old => {}
                }
                let of_chunk = if matches!(change, Change::Old) { &first } else { &current };
                let epoch = of_chunk.epoch();
                if matches!(change, Change::Patch | Change::Reload) {
                    prop_assert!(!epochs.contains(&epoch), "an epoch has one content");
                    epochs.push(epoch);
                }
                write(&mut rows, packets);
                let states: Vec<_> = packets.iter().map(|own| own.3).collect();
                let slots: Vec<_> = packets.iter().map(|own| own.2).collect();
                cache.select(&states, &slots);
                let mut view = Instance::ALONE.view(&mut rows);
                cache.recall(&mut view, of_chunk);
                for (row, (family, _, slot, state, is_settled)) in packets.iter().enumerate() {
                    let is_ip = matches!(family, 4 | 6);
                    let may = is_ip && !is_settled && *slot != u32::MAX && state & 7 == 6;
                    let known = view.rule[row];
                    if let Some(rule) = known.checked_sub(KNOWN).filter(|_| known != NOT_JUDGED) {
                        prop_assert!(may);
                        prop_assert_eq!(rule, search(epoch, key(&view, row, has_applications).unwrap()));
                    } else {
                        prop_assert_eq!(known, NOT_JUDGED);
                    }
                    if may {
                        let flow = u64::from(*slot) << 1 | u64::from(state >> 3 & 1);
                        let place = index(&view, &Asked { row: row as u16, flow }, places_log2);
                        let own = (epoch, key(&view, row, has_applications).unwrap());
                        prop_assert_eq!(newest.get(&place) == Some(&own), known != NOT_JUDGED);
                    }
                }
                // The shade.
                for (row, own) in packets.iter().enumerate() {
                    let is_judged = matches!(own.0, 4 | 6) && !own.4;
                    view.rule[row] = NOT_JUDGED;
                    if is_judged {
                        view.rule[row] = search(epoch, key(&view, row, has_applications).unwrap());
                    }
                }
                cache.keep(&view, of_chunk);
                for asked in &cache.asked {
                    let row = usize::from(asked.row);
                    if let Some(own) = key(&view, row, has_applications).filter(|_| view.rule[row] != NOT_JUDGED) {
                        newest.insert(index(&view, asked, places_log2), (epoch, own));
                    }
                }
            }
        }
    }
}
