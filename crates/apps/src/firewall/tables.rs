//! One version of a firewall: rules of both families, and what they do.
//!
//! ```text
//!  header ─▶ classify::Tables (IPv4 or IPv6) ─▶ id ─▶ records[id]: name, action
//!                                            none ─▶ records[0]: the default
//! ```
//!
//! Beside the records are their verdicts, a word each, in the form that a device reads
//! ([`kernels::ACTIONS`](super::kernels::ACTIONS)): both sides settle packets by the same words.
//!
//! Thread rule: that of [`lookup::versions`].

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chunk::Verdict;
use classify::cuts::Cuts;
use classify::filter::{WORDS_V4, WORDS_V6};
use classify::linear::Linear;
use classify::tuple::TupleSpace;
use classify::{Classify, Tables};
use controlplane::tables::{TablePart, each_change};
use device::tables::Change;
use lookup::Patch;
use lookup::versions::Patchable;

use super::hits::Hits;
use super::kernels::ACTION;
use super::reasons;

/// Words of the rules of a family that a device is sent: 1 GiB. Packets of a larger set are left to the CPU.
pub const DEVICE_WORDS_MAX: usize = 1 << 28;

/// What becomes of a packet in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It goes on to the next stage.
    Accept,
    /// It ends here.
    Drop,
    /// It ends here, and its sender gets an answer.
    Reject,
    /// It leaves by this port as it is.
    Send(u16),
    /// It goes to captures of dumped packets, and nowhere else.
    Dump,
}

/// What a rule does with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    /// What becomes of it.
    pub ending: Ending,
    /// The port that gets a copy of it, as it came.
    pub mirror: Option<u16>,
    /// Its new differentiated services code point, 6 bits.
    pub dscp: Option<u8>,
    /// Contexts that it gets, a bit each.
    pub contexts: u32,
}

impl Action {
    /// Nothing but an ending.
    pub const fn of(ending: Ending) -> Self {
        Self { ending, mirror: None, dscp: None, contexts: 0 }
    }

    /// Whether anything is to be done to a packet beside its verdict.
    #[inline]
    pub fn is_more_than_a_verdict(self) -> bool {
        self.mirror.is_some()
            || self.dscp.is_some()
            || self.contexts != 0
            || self.ending == Ending::Reject
    }

    /// What the shade makes of a packet. A router's `rewrite` goes on with what is rejected.
    pub const fn verdict(self) -> Verdict {
        match self.ending {
            Ending::Accept => Verdict::NEXT,
            Ending::Drop => Verdict::drop(reasons::FIREWALL_DROP),
            Ending::Reject => Verdict::drop(reasons::FIREWALL_REJECT),
            Ending::Send(port) => Verdict::forward(port),
            Ending::Dump => Verdict::DUMP,
        }
    }
}

/// A rule as the data path knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its name, for traces.
    pub name: Arc<str>,
    /// What it does.
    pub action: Action,
}

/// The word of a rule's action on a device; 0 for one without a record.
pub fn action_word(record: Option<&Record>) -> u32 {
    record.map_or(0, |record| ACTION | record.action.verdict().0)
}

/// What a record says, in a byte: so most packets touch no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// There is no record: that of id 0 counts.
    None,
    /// The packet goes on as it is.
    Pass,
    /// It is settled by its verdict.
    Settle,
    /// There is more to do than the verdict says.
    More,
}

impl Effect {
    fn of(record: Option<&Record>) -> Self {
        match record.map(|record| record.action) {
            None => Effect::None,
            Some(action) if action.is_more_than_a_verdict() => Effect::More,
            Some(action) if action.verdict().is_next() => Effect::Pass,
            Some(_) => Effect::Settle,
        }
    }

    fn of_all(records: &[Option<Record>]) -> Vec<Self> {
        records.iter().map(|record| Self::of(record.as_ref())).collect()
    }
}

/// With up to so many rules every packet is looked up.
const FLOW_CACHE_RULES: usize = 16;

/// What is not of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirewallOptions {
    /// ICMP errors that a switch sends in a second.
    pub icmp_rate: u32,
    /// How many of them may leave at once.
    pub icmp_burst: u32,
}

/// One version of a firewall. That by default has nothing, and judges nothing.
#[derive(Debug, Clone, Default)]
pub struct FirewallTables {
    rules: Option<(Tables, Tables)>,
    /// By id; 0 is the default's.
    records: Vec<Option<Record>>,
    /// By id as well: [`action_word`]. Empty where there is no firewall, and nowhere else.
    actions: Vec<u32>,
    /// By id as well.
    effects: Vec<Effect>,
    /// No kernel knows the rules, or they are too many for a device.
    is_beyond_device: bool,
    options: FirewallOptions,
    hits: Arc<Hits>,
    /// See [`FirewallTables::epoch`].
    epoch: u64,
}

/// How many tables were built; each counts its own changes below.
static BUILT: AtomicU64 = AtomicU64::new(1);

/// One change of [`FirewallTables`].
#[derive(Debug, Clone)]
pub enum FirewallPatch {
    /// Of the rules of IPv4.
    V4(Vec<Patch>),
    /// Of the rules of IPv6.
    V6(Vec<Patch>),
    /// Of one record; 0 is the default's.
    Record(u32, Option<Record>),
    /// Of all records.
    Records(Vec<Option<Record>>),
    /// Of the rest.
    Options(FirewallOptions),
}

impl FirewallTables {
    /// Rules of IPv4 and IPv6 over the headers of [`classify::filter`], and the records of their ids.
    pub fn new(
        (v4, v6): (Tables, Tables),
        records: Vec<Option<Record>>,
        options: FirewallOptions,
        hits: Arc<Hits>,
    ) -> Self {
        let rules = Some((v4, v6));
        let actions = action_words(&records);
        let effects = Effect::of_all(&records);
        let mut tables = Self {
            rules,
            records,
            actions,
            effects,
            is_beyond_device: false,
            options,
            hits,
            epoch: BUILT.fetch_add(1, Ordering::Relaxed) << 32,
        };
        tables.look_at_rules();
        tables
    }

    /// Rules of IPv4 and of IPv6; `None` where there is no firewall.
    #[inline]
    pub fn rules(&self) -> Option<(&Tables, &Tables)> {
        self.rules.as_ref().map(|(v4, v6)| (v4, v6))
    }

    /// The record of a rule; that of id 0, the default, also for an id that has none.
    #[inline]
    pub fn record(&self, id: u32) -> Option<&Record> {
        let of = |id: u32| self.records.get(id as usize).and_then(Option::as_ref);
        of(id).or_else(|| of(0))
    }

    /// What the [record](FirewallTables::record) of a rule says.
    #[inline]
    pub fn effect(&self, id: u32) -> Effect {
        let of = |id: u32| self.effects.get(id as usize).copied().unwrap_or(Effect::None);
        match of(id) {
            Effect::None => of(0),
            own => own,
        }
    }

    /// What the shade makes of a packet for which a rule was found.
    #[inline]
    pub fn verdict(&self, id: u32) -> Verdict {
        let of = |id: u32| self.actions.get(id as usize).copied().unwrap_or(0);
        let word = match of(id) {
            0 => of(0),
            own => own,
        };
        Verdict(word & !ACTION)
    }

    /// What is not of a rule.
    pub fn options(&self) -> &FirewallOptions {
        &self.options
    }

    /// Changes with the lookup structures: as long as it is the same, headers have the same answers. Tables that are built anew
    /// have another one, too. It is never 0 where there are rules.
    ///
    /// A copy has the same, and both count patches alike. Those of [`lookup::versions`] take the same ones, so that what is
    /// published for another application does not change it. Copies that took different patches must not be used by turns.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether there are so many rules that an answer that was kept costs less than a lookup.
    #[inline]
    pub fn wants_flow_cache(&self) -> bool {
        self.rules.is_some() && self.records.len() > FLOW_CACHE_RULES
    }

    /// The counters, which all versions share.
    pub fn hits(&self) -> &Arc<Hits> {
        &self.hits
    }

    /// Whether the kernels know the structures in which the rules are, and all that the rules ask.
    pub fn has_kernels(&self) -> bool {
        let Some((v4, v6)) = self.rules() else { return true };
        let both = |rules: &Tables| {
            Linear::new(rules.blob()).is_some() || TupleSpace::new(rules.blob()).is_some()
        };
        // They have no application.
        let is_narrow = v4.words() == WORDS_V4 && v6.words() == WORDS_V6;
        is_narrow && (both(v4) || Cuts::new(v4.blob()).is_some()) && both(v6)
    }

    /// Whether a device can judge by this version: its kernels know the structures, and the rules are few enough for it
    /// ([`DEVICE_WORDS_MAX`]).
    #[inline]
    pub fn fits_device(&self) -> bool {
        !self.is_beyond_device
    }

    /// Whether the rules are few enough for a device: [`DEVICE_WORDS_MAX`].
    pub fn is_for_device(&self) -> bool {
        let words = |rules: &Tables| rules.blob().len_words();
        self.rules().is_none_or(|(v4, v6)| words(v4).max(words(v6)) <= DEVICE_WORDS_MAX)
    }

    fn look_at_rules(&mut self) {
        self.is_beyond_device = !(self.is_for_device() && self.has_kernels());
    }

    /// The images of the rules of IPv4, of those of IPv6, and of the actions, for a device; nothing where there is no
    /// firewall. The rules are left out where they are too many.
    pub fn images(&self) -> [&[u32]; 3] {
        match self.rules() {
            Some((v4, v6)) if self.is_for_device() => {
                [v4.blob().words(), v6.blob().words(), &self.actions]
            }
            _ => [&[], &[], &self.actions],
        }
    }

    /// Memory of the rules, bytes.
    pub fn rules_bytes(&self) -> usize {
        self.rules().map_or(0, |(v4, v6)| v4.blob().len_bytes() + v6.blob().len_bytes())
    }

    /// Memory, bytes.
    pub fn len_bytes(&self) -> usize {
        let actions = size_of_val(&*self.actions);
        self.rules_bytes() + self.records.len() * size_of::<Option<Record>>() + actions
    }
}

impl Patchable for FirewallTables {
    type Patch = FirewallPatch;

    fn apply(&mut self, patch: &FirewallPatch) {
        // Without rules there is no firewall, and nothing to be changed but the options.
        let Some((v4, v6)) = self.rules.as_mut() else {
            if let FirewallPatch::Options(options) = patch {
                self.options = *options;
            }
            return;
        };
        match patch {
            FirewallPatch::V4(patches) => {
                self.epoch += 1;
                patches.iter().for_each(|patch| v4.apply(patch));
                self.look_at_rules();
            }
            FirewallPatch::V6(patches) => {
                self.epoch += 1;
                patches.iter().for_each(|patch| v6.apply(patch));
                self.look_at_rules();
            }
            FirewallPatch::Record(id, record) => {
                let at = *id as usize;
                if self.records.len() <= at {
                    self.records.resize(at + 1, None);
                    self.actions.resize(at + 1, 0);
                    self.effects.resize(at + 1, Effect::None);
                }
                self.effects[at] = Effect::of(record.as_ref());
                self.records[at].clone_from(record);
                self.actions[at] = action_word(record.as_ref());
            }
            FirewallPatch::Records(records) => {
                self.records.clone_from(records);
                self.actions = action_words(records);
                self.effects = Effect::of_all(records);
            }
            FirewallPatch::Options(options) => self.options = *options,
        }
    }
}

/// The word of each record; one at least, for the default.
pub fn action_words(records: &[Option<Record>]) -> Vec<u32> {
    let mut words: Vec<_> = records.iter().map(|record| action_word(record.as_ref())).collect();
    if words.is_empty() {
        words.push(0);
    }
    words
}

impl AsRef<FirewallTables> for FirewallTables {
    fn as_ref(&self) -> &FirewallTables {
        self
    }
}

/// The firewall's part: [`FirewallTables`], with the rules of IPv4, those of IPv6 and the rules'
/// verdicts as its regions.
#[derive(Debug)]
pub struct FirewallPart;

impl TablePart for FirewallPart {
    type Tables = FirewallTables;

    const REGIONS: usize = 3;

    fn len_bytes(tables: &FirewallTables) -> usize {
        tables.len_bytes()
    }

    fn regions(tables: &FirewallTables) -> Vec<Cow<'_, [u32]>> {
        tables.images().map(Cow::Borrowed).into()
    }

    fn changes(patch: &FirewallPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        match patch {
            FirewallPatch::V4(patches) => rules(0, patches, change),
            FirewallPatch::V6(patches) => rules(1, patches, change),
            FirewallPatch::Record(id, record) => {
                let words = &[action_word(record.as_ref())];
                change(2, Change::Write { at: *id as usize, words });
                true
            }
            FirewallPatch::Records(records) => {
                change(2, Change::Replace(&action_words(records)));
                true
            }
            // What is not of a rule belongs to what is done on the CPU.
            FirewallPatch::Options(_) => true,
        }
    }
}

/// Hands out what changed among the rules of a family; `false` where they have become more than a device is sent.
fn rules(region: usize, patches: &[Patch], change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
    let end = |patch: &Patch| match patch {
        Patch::Write { offset_words, words } => offset_words + words.len(),
        Patch::Writes { .. } => {
            patch.writes().map(|(at, words)| at + words.len()).max().unwrap_or_default()
        }
        Patch::Fill { offset_words, count, .. } => offset_words + count,
        Patch::Grow { len_words } => *len_words,
        Patch::Replace(words) => words.len(),
    };
    patches.iter().for_each(|patch| each_change(patch, region, change));
    patches.iter().all(|patch| end(patch) <= DEVICE_WORDS_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use classify::filter::{schema_v4, schema_v6};
    use classify::linear::LinearBuilder;
    use classify::tuple::TupleBuilder;
    use classify::{Classifier, Condition, RuleRef, RuleSet, Schema};
    use controlplane::PartImages;
    use device::tables::TableSource;
    use lookup::versions::versions;

    use super::*;

    /// Applies a change the way a device does.
    fn apply(region: &mut Vec<u32>, change: &Change<'_>) {
        match change {
            Change::Write { at, words } => {
                region.resize(region.len().max(at + words.len()), 0);
                region[*at..][..words.len()].copy_from_slice(words);
            }
            Change::Fill { at, count, value } => region[*at..][..*count].fill(*value),
            Change::Grow(len) => region.resize((*len).next_multiple_of(16).max(region.len()), 0),
            Change::Replace(words) => *region = words.to_vec(),
        }
    }

    /// The rules' regions too, where rules come and go and where the whole set becomes another structure.
    #[test]
    fn a_copy_follows_the_rules() {
        let rule = |schema: &Schema, at: u32| {
            let mask =
                |value: u32, mask: u32| Condition::Mask { value: value.into(), mask: mask.into() };
            let port = |port: u32| Condition::Range { low: port.into(), high: (port + 7).into() };
            let any = || Condition::Prefix { value: 0, len: 0 };
            let shape = mask(1, 1);
            let any_bits = mask(0, 0);
            let others =
                [port(at), port(3 * at), mask(at % 3, 3), any_bits, shape, any_bits, any_bits];
            schema.conditions(&[&[any(), any()][..], &others].concat()).unwrap()
        };
        let of = |schema: Arc<Schema>, count: u32| {
            let mut set = RuleSet::new(schema.clone());
            for at in 0..count {
                let words = rule(&schema, at);
                set.push(RuleRef { words: &words, priority: at, id: at + 1 }).unwrap();
            }
            set
        };
        let (v4, v6) = (schema_v4(), schema_v6());
        let mut first = TupleBuilder::build(&of(v4.clone(), 0)).unwrap();
        let second = LinearBuilder::build(&of(v6.clone(), 3)).unwrap();
        let both = (first.tables().unwrap(), second.tables().unwrap());
        let rules = FirewallTables::new(both, Vec::new(), Default::default(), Default::default());
        let (mut writer, reader) = versions(rules);
        let images = PartImages::<FirewallPart>::new(writer.changes(), 0);
        let start = reader.pin();
        let mut copy: Vec<_> = images.regions(&start).iter().map(|r| r.to_vec()).collect();
        let mut at = start.version();
        drop(start);
        for round in 0..30 {
            let (mut patches, mut others) = (Vec::new(), Vec::new());
            for id in 20 * round..20 * round + 20 {
                let words = rule(&v4, id);
                first
                    .insert(RuleRef { words: &words, priority: id, id: id + 1 }, &mut patches)
                    .unwrap();
                if id % 3 == 0 {
                    first.remove(id / 2, &mut patches);
                }
            }
            if round % 10 == 9 {
                let other = TupleBuilder::build(&of(v6.clone(), 9 * round)).unwrap();
                others.push(Patch::Replace(other.blob().words().to_vec()));
            }
            let action = |id: u32| {
                let ending =
                    if id.is_multiple_of(2) { Ending::Drop } else { Ending::Send(id as u16) };
                let dscp = id.is_multiple_of(5).then_some(10);
                let action = Action { dscp, ..Action::of(ending) };
                let record = Record { name: "rule".into(), action };
                (id % 3 != 1).then_some(record)
            };
            let mut patches = vec![FirewallPatch::V4(patches), FirewallPatch::V6(others)];
            match round % 10 {
                8 => patches.push(FirewallPatch::Records((0..5 * round).map(action).collect())),
                _ => patches.push(FirewallPatch::Record(7 * round, action(round))),
            }
            writer.publish(patches);
            let pin = reader.pin();
            assert!(images.changes(at, pin.version(), &mut |region, change| {
                apply(&mut copy[region], &change);
            }));
            at = pin.version();
            for id in 0..250 {
                let verdict = pin.record(id).map_or(Verdict::NEXT, |r| r.action.verdict());
                assert_eq!(pin.verdict(id), verdict, "round {round}, rule {id}");
                let effect = match pin.record(id).map(|record| record.action) {
                    None => Effect::None,
                    Some(Action { dscp: Some(_), .. }) => Effect::More,
                    Some(_) => Effect::Settle,
                };
                assert_eq!(pin.effect(id), effect, "round {round}, rule {id}");
            }
            for region in [0, 1, 2] {
                let whole = &images.regions(&pin)[region];
                assert!(**whole == copy[region][..], "round {round}, region {region}");
            }
        }
        let too_long = [Patch::Grow { len_words: DEVICE_WORDS_MAX + 16 }];
        assert!(!super::rules(0, &too_long, &mut |_, _| {}));
    }
}
