//! One version of a firewall: rules of both families, and what they do.
//!
//! ```text
//!  header ─▶ classify::Tables (IPv4 or IPv6) ─▶ id ─▶ records[id]: name, action
//!                                            none ─▶ records[0]: the default
//! ```
//!
//! Thread rule: that of [`lookup::versions`].

use std::sync::Arc;

use classify::Tables;
use classify::cuts::Cuts;
use classify::linear::Linear;
use classify::tuple::TupleSpace;
use lookup::Patch;
use lookup::versions::Patchable;

use super::hits::Hits;

/// Words of the rules of a family that a device is sent: 1 GiB. Packets of a larger set are left to the CPU.
pub const DEVICE_WORDS_MAX: usize = 1 << 28;

/// What becomes of a packet in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It goes on to the next stage.
    Accept,
    /// It ends here.
    Drop,
    /// It ends here, and its sender is told.
    Reject,
    /// It leaves by this port as it is.
    Send(u16),
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
}

impl Action {
    /// Nothing but an ending.
    pub const fn of(ending: Ending) -> Self {
        Self { ending, mirror: None, dscp: None }
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
    options: FirewallOptions,
    hits: Arc<Hits>,
}

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
        Self { rules: Some((v4, v6)), records, options, hits }
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

    /// What is not of a rule.
    pub fn options(&self) -> &FirewallOptions {
        &self.options
    }

    /// The counters, which all versions share.
    pub fn hits(&self) -> &Arc<Hits> {
        &self.hits
    }

    /// Whether the kernels know the structures in which the rules stand.
    pub fn has_kernels(&self) -> bool {
        let Some((v4, v6)) = self.rules() else { return true };
        let both = |rules: &Tables| {
            Linear::new(rules.blob()).is_some() || TupleSpace::new(rules.blob()).is_some()
        };
        (both(v4) || Cuts::new(v4.blob()).is_some()) && both(v6)
    }

    /// Whether the rules are few enough for a device: [`DEVICE_WORDS_MAX`].
    pub fn is_for_device(&self) -> bool {
        let words = |rules: &Tables| rules.blob().len_words();
        self.rules().is_none_or(|(v4, v6)| words(v4).max(words(v6)) <= DEVICE_WORDS_MAX)
    }

    /// The images of the rules of IPv4 and of IPv6, for a device; nothing where there is no firewall, or one that is
    /// too large.
    pub fn images(&self) -> [&[u32]; 2] {
        match self.rules() {
            Some((v4, v6)) if self.is_for_device() => [v4.blob().words(), v6.blob().words()],
            _ => [&[], &[]],
        }
    }

    /// Memory of the rules, bytes.
    pub fn rules_bytes(&self) -> usize {
        self.rules().map_or(0, |(v4, v6)| v4.blob().len_bytes() + v6.blob().len_bytes())
    }

    /// Memory, bytes.
    pub fn len_bytes(&self) -> usize {
        self.rules_bytes() + self.records.len() * size_of::<Option<Record>>()
    }
}

impl Patchable for FirewallTables {
    type Patch = FirewallPatch;

    fn apply(&mut self, patch: &FirewallPatch) {
        let rules = self.rules.as_mut();
        match patch {
            FirewallPatch::V4(patches) => {
                if let Some((v4, _)) = rules {
                    patches.iter().for_each(|patch| v4.apply(patch));
                }
            }
            FirewallPatch::V6(patches) => {
                if let Some((_, v6)) = rules {
                    patches.iter().for_each(|patch| v6.apply(patch));
                }
            }
            FirewallPatch::Record(id, record) => {
                let at = *id as usize;
                if self.records.len() <= at {
                    self.records.resize(at + 1, None);
                }
                self.records[at].clone_from(record);
            }
            FirewallPatch::Records(records) => self.records.clone_from(records),
            FirewallPatch::Options(options) => self.options = *options,
        }
    }
}
