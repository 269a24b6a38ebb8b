//! Packets of a batch of which somebody says that they are of one flow: the first one is looked up, and the others have its answer.
//!
//! ```text
//!  group   7   9   7   –   9   7        said by the caller; a device has found it out, say
//!  search  *   *   =   *   =   =        * looked up, = has the answer of the first one, if its key is the same
//! ```
//!
//! What is said is believed of no packet whose key is another, so it changes nothing but the work.

use super::Tracker;
use super::module::Module;
use super::numbers::Numbers;

/// The group of a packet of which nothing is said.
pub const NO_GROUP: u32 = u32::MAX;

/// Groups that are known at once: those of few connections are often among the last ones.
const PLACES: usize = 64;

/// What is said of the next batch.
#[derive(Debug)]
pub(super) struct Sharing {
    /// By row.
    groups: Vec<u32>,
    /// The latest groups, and the first row of each.
    recent: [(u32, u32); PLACES],
    /// Rows that have the answers of others.
    same: Vec<(u32, u32)>,
    /// How many there were.
    count: u64,
    /// Numbers of connections.
    pub(super) numbers: Numbers,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            recent: [(NO_GROUP, 0); PLACES],
            same: Vec::new(),
            count: 0,
            numbers: Numbers::default(),
        }
    }
}

impl<M: Module> Tracker<M> {
    /// Says which packets of the next batch are of one flow: those with one number. Packets of one flow may have several numbers;
    /// one with [`NO_GROUP`], or behind the last number, is looked up alone.
    pub fn shares(&mut self, groups: impl IntoIterator<Item = u32>) {
        self.sharing.groups.clear();
        self.sharing.groups.extend(groups);
    }

    /// Packets that were not looked up, because others of their flow were.
    pub fn shared(&self) -> u64 {
        self.sharing.count
    }

    /// The batch is over.
    pub(super) fn end_sharing(&mut self) {
        self.sharing.groups.clear();
        self.sharing.numbers.clear();
    }

    /// Finds the flows of the rows that were gathered, the first one of which has this number in the batch.
    #[inline(always)]
    pub(super) fn search(&mut self, first: usize) {
        self.sharing.numbers.guess(first, self.keys.len());
        if self.sharing.groups.len() > first {
            self.search_shared(first);
        } else {
            self.sharing.numbers.search(&self.table, &self.keys, &mut self.found);
        }
    }

    fn search_shared(&mut self, first: usize) {
        let Self { sharing, keys, found, table, .. } = self;
        let Sharing { groups, recent, same, count, numbers } = sharing;
        recent.fill((NO_GROUP, 0));
        same.clear();
        for (at, (key, group)) in keys.iter().zip(&groups[first..]).enumerate() {
            if *group == NO_GROUP || key.family == 0 {
                continue;
            }
            let latest = &mut recent[*group as usize % PLACES];
            match keys.get(latest.1 as usize) {
                Some(known) if latest.0 == *group && known == key => {
                    same.push((at as u32, latest.1));
                }
                _ => *latest = (*group, at as u32),
            }
        }
        *count += same.len() as u64;
        // A key without a family is passed over.
        for (at, _) in same.iter() {
            keys[*at as usize].family = 0;
        }
        numbers.search(table, keys, found);
        for (at, of) in same.iter() {
            let (at, of) = (*at as usize, *of as usize);
            keys[at].family = keys[of].family;
            found[at] = found[of];
        }
    }
}
