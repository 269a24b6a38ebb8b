//! All tables of the program, seen as one version, whatever its pipeline reads of them.
//!
//! A pipeline may join stages of several applications, and a packet must see one version of everything they
//! read. So there is one pair of copies, one list of changes and one image on a device; a part that no stage reads
//! is empty and costs nothing.
//!
//! ```text
//!  FibPatch ──┐                        ┌─▶ Reader<Tables> ─▶ stages over AsRef<Fib>, AsRef<SwitchTables>, …
//!  SwitchPatch┼─▶ TablesPatch ─▶ Writer┤
//!  NdnPatch … ┘                        └─▶ Changes ─▶ TablesImages ─▶ a device
//! ```
//!
//! Thread rule: that of [`lookup::versions`].

use std::borrow::Cow;

use device::tables::{Change, TableSource};
use engine::Versions;
use kernels::image::{bridge, firewall, ndn, router};
use lookup::Patch;
use lookup::bridge::{SwitchPatch, SwitchTables};
use lookup::fib::{Fib, FibPatch};
use lookup::versions::{Changes, Patchable, Pin, Reader};

use crate::firewall::tables::{DEVICE_WORDS_MAX, action_word, action_words};
use crate::firewall::{FirewallPatch, FirewallTables};
use crate::ndn::{NdnPatch, NdnTables};

/// One version of all tables. A part by default is one that nobody uses: it takes no memory.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// Of the router.
    pub fib: Fib,
    /// Of the switch.
    pub switch: SwitchTables,
    /// Of the named-data forwarder.
    pub ndn: NdnTables,
    /// Of the firewall.
    pub firewall: FirewallTables,
}

/// One change of [`Tables`].
#[derive(Debug, Clone)]
pub enum TablesPatch {
    /// Of the router's.
    Fib(FibPatch),
    /// Of the switch's.
    Switch(SwitchPatch),
    /// Of the named-data forwarder's.
    Ndn(NdnPatch),
    /// Of the firewall's.
    Firewall(FirewallPatch),
}

impl Tables {
    /// Memory of one version, bytes.
    pub fn len_bytes(&self) -> usize {
        let forwarding = self.fib.len_bytes() + self.switch.blob().len_bytes();
        forwarding + self.ndn.len_bytes() + self.firewall.len_bytes()
    }
}

impl Patchable for Tables {
    type Patch = TablesPatch;

    fn apply(&mut self, patch: &TablesPatch) {
        match patch {
            TablesPatch::Fib(patch) => self.fib.apply(patch),
            TablesPatch::Switch(patch) => self.switch.apply(patch),
            TablesPatch::Ndn(patch) => self.ndn.apply(patch),
            TablesPatch::Firewall(patch) => self.firewall.apply(patch),
        }
    }
}

macro_rules! part {
    ($field:ident: $tables:ty, $variant:ident($patch:ty)) => {
        impl AsRef<$tables> for Tables {
            #[inline(always)]
            fn as_ref(&self) -> &$tables {
                &self.$field
            }
        }

        impl From<$patch> for TablesPatch {
            fn from(patch: $patch) -> Self {
                Self::$variant(patch)
            }
        }
    };
}

part!(fib: Fib, Fib(FibPatch));
part!(switch: SwitchTables, Switch(SwitchPatch));
part!(ndn: NdnTables, Ndn(NdnPatch));
part!(firewall: FirewallTables, Firewall(FirewallPatch));

/// One worker's way to the newest version of tables.
#[derive(Debug)]
pub struct Newest<T>(pub Reader<T>);

impl<T: Send + Sync + 'static> Versions for Newest<T> {
    type Tables = T;
    type Pin = Pin<T>;

    #[inline]
    fn pin(&mut self) -> Pin<T> {
        self.0.pin()
    }

    #[inline]
    fn number(pin: &Pin<T>) -> u64 {
        pin.version()
    }
}

/// All tables as a device copies them and follows their changes: the router's regions, the switch's, that of the
/// named-data forwarder, then those of the firewall.
#[derive(Debug)]
pub struct TablesImages(pub Changes<TablesPatch>);

impl TableSource<Tables> for TablesImages {
    fn regions<'a>(&self, tables: &'a Tables) -> Vec<Cow<'a, [u32]>> {
        let mut regions: Vec<_> = tables.fib.regions().into();
        regions.push(Cow::Borrowed(tables.switch.blob().words()));
        regions.push(Cow::Borrowed(tables.ndn.blob().words()));
        regions.extend(tables.firewall.images().map(Cow::Borrowed));
        regions
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let Some(versions) = self.0.between(from, to) else { return false };
        let mut is_whole = true;
        for patch in versions.iter().flat_map(|patches| patches.iter()) {
            match patch {
                TablesPatch::Fib(patch) => {
                    patch.regions(&mut |region, patch| each_change(&patch, region, change));
                }
                TablesPatch::Switch(SwitchPatch::Macs(patches)) => {
                    patches.iter().for_each(|patch| each_change(patch, bridge::STATIONS, change));
                }
                TablesPatch::Ndn(NdnPatch::Fib(patch)) => each_change(patch, ndn::NAMES, change),
                TablesPatch::Firewall(FirewallPatch::V4(patches)) => {
                    is_whole &= rules(firewall::RULES4, patches, change);
                }
                TablesPatch::Firewall(FirewallPatch::V6(patches)) => {
                    is_whole &= rules(firewall::RULES6, patches, change);
                }
                TablesPatch::Firewall(FirewallPatch::Record(id, record)) => {
                    let words = &[action_word(record.as_ref())];
                    change(firewall::ACTIONS, Change::Write { at: *id as usize, words });
                }
                TablesPatch::Firewall(FirewallPatch::Records(records)) => {
                    change(firewall::ACTIONS, Change::Replace(&action_words(records)));
                }
                // Ports, options, faces and next hops' faces belong to what is done on the CPU.
                TablesPatch::Switch(_) | TablesPatch::Ndn(_) | TablesPatch::Firewall(_) => {}
            }
        }
        is_whole
    }
}

/// The same without a firewall's rules, for a device that does not look at them.
pub struct WithoutRules(pub Box<dyn TableSource<Tables>>);

impl TableSource<Tables> for WithoutRules {
    fn regions<'a>(&self, tables: &'a Tables) -> Vec<Cow<'a, [u32]>> {
        let mut regions = self.0.regions(tables);
        regions.truncate(firewall::RULES4);
        regions
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        self.0.changes(from, to, &mut |region, what| {
            if region < firewall::RULES4 {
                change(region, what);
            }
        })
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

/// The changes that a patch makes to a region, in the words of the device.
pub fn each_change(patch: &Patch, region: usize, change: &mut dyn FnMut(usize, Change<'_>)) {
    match patch {
        Patch::Write { offset_words: at, words } => {
            change(region, Change::Write { at: *at, words })
        }
        Patch::Writes { .. } => {
            patch.writes().for_each(|(at, words)| change(region, Change::Write { at, words }));
        }
        Patch::Fill { offset_words: at, count, value } => {
            change(region, Change::Fill { at: *at, count: *count, value: *value });
        }
        Patch::Grow { len_words } => change(region, Change::Grow(*len_words)),
        Patch::Replace(words) => change(region, Change::Replace(words)),
    }
}

const _: () = assert!(bridge::STATIONS == router::REGIONS && ndn::NAMES == bridge::REGIONS);
const _: () =
    assert!(firewall::RULES4 == ndn::REGIONS && firewall::ACTIONS + 1 == firewall::REGIONS);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chunk::Verdict;
    use classify::filter::{schema_v4, schema_v6};
    use classify::linear::LinearBuilder;
    use classify::tuple::TupleBuilder;
    use classify::{Classifier, Condition, RuleRef, RuleSet, Schema};
    use lookup::names::{NameFibBuilder, NameHasher, NameLimits, NameList};
    use lookup::versions::versions;

    use super::*;
    use crate::firewall::{Action, Ending, Record};

    fn name(index: u32) -> NameList {
        let mut list = NameList::new();
        let component = |value: u32| [&[8, 4][..], &value.to_be_bytes()].concat();
        list.push([component(index % 7), component(index)].iter().map(Vec::as_slice));
        list
    }

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

    /// A copy of the regions that follows the names' changes is, word for word, what the tables say of themselves.
    #[test]
    fn a_copy_follows_the_names() {
        let limits = NameLimits { prefixes: 5000, name_bytes: 1 << 22 };
        let (mut builder, blob) =
            NameFibBuilder::build(NameHasher::new(1), &name(0), &[1], limits).unwrap();
        let tables = Tables { ndn: NdnTables::new(blob), ..Tables::default() };
        let (mut writer, reader) = versions(tables);
        let images = TablesImages(writer.changes());
        let start = reader.pin();
        let mut copy: Vec<_> = images.regions(&start).iter().map(|r| r.to_vec()).collect();
        assert_eq!(copy.len(), firewall::REGIONS);
        let (mut at, mut grown) = (start.version(), false);
        drop(start);
        for round in 0..40 {
            let mut patches = Vec::new();
            for index in round * 50..(round + 1) * 50 {
                builder.insert(name(index).get(0), 1 + index, &mut patches).unwrap();
                if index % 3 == 0 {
                    builder.remove(name(index / 2).get(0), &mut patches);
                }
            }
            let face = NdnPatch::Hop(round, vec![1]);
            let patches = patches.into_iter().map(NdnPatch::Fib).chain([face]);
            writer.publish(patches.map(TablesPatch::from).collect());
            let pin = reader.pin();
            let is_known = images.changes(at, pin.version(), &mut |region, change| {
                assert_eq!(region, ndn::NAMES);
                grown |= matches!(change, Change::Grow(_));
                apply(&mut copy[region], &change);
            });
            assert!(is_known);
            at = pin.version();
            assert!(*images.regions(&pin)[ndn::NAMES] == copy[ndn::NAMES][..], "round {round}");
        }
        assert!(grown, "the names' region grew on the way");
    }

    /// The rules' regions too, where rules come and go and where the whole set becomes another structure; and they are
    /// left out where a device is not to have them.
    #[test]
    fn a_copy_follows_the_rules() {
        let rule = |schema: &Schema, at: u32| {
            let mask =
                |value: u32, mask: u32| Condition::Mask { value: value.into(), mask: mask.into() };
            let port = |port: u32| Condition::Range { low: port.into(), high: (port + 7).into() };
            let any = || Condition::Prefix { value: 0, len: 0 };
            let shape = mask(1, 1);
            let others = [port(at), port(3 * at), mask(at % 3, 3), mask(0, 0), shape, mask(0, 0)];
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
        let (mut writer, reader) = versions(Tables { firewall: rules, ..Tables::default() });
        let images = TablesImages(writer.changes());
        let without = WithoutRules(Box::new(TablesImages(writer.changes())));
        let start = reader.pin();
        let mut copy: Vec<_> = images.regions(&start).iter().map(|r| r.to_vec()).collect();
        assert_eq!(without.regions(&start).len(), firewall::RULES4);
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
                let record = Record { name: "rule".into(), action: Action::of(ending) };
                (id % 3 != 1).then_some(record)
            };
            let mut patches = vec![FirewallPatch::V4(patches), FirewallPatch::V6(others)];
            match round % 10 {
                8 => patches.push(FirewallPatch::Records((0..5 * round).map(action).collect())),
                _ => patches.push(FirewallPatch::Record(7 * round, action(round))),
            }
            writer.publish(patches.into_iter().map(TablesPatch::from).collect());
            let pin = reader.pin();
            let mut apart = |region, _: Change<'_>| panic!("region {region} is not to be there");
            assert!(without.changes(at, pin.version(), &mut apart));
            assert!(images.changes(at, pin.version(), &mut |region, change| {
                apply(&mut copy[region], &change);
            }));
            at = pin.version();
            for id in 0..250 {
                let verdict = pin.firewall.record(id).map_or(Verdict::NEXT, |r| r.action.verdict());
                assert_eq!(pin.firewall.verdict(id), verdict, "round {round}, rule {id}");
            }
            for region in [firewall::RULES4, firewall::RULES6, firewall::ACTIONS] {
                let whole = &images.regions(&pin)[region];
                assert!(**whole == copy[region][..], "round {round}, region {region}");
            }
        }
        let too_long = [Patch::Grow { len_words: DEVICE_WORDS_MAX + 16 }];
        assert!(!super::rules(firewall::RULES4, &too_long, &mut |_, _| {}));
    }
}
