//! From prefixes to a table, and from a change to patches.
//!
//! Invariants:
//! - every prefix but the empty one has an entry, and there is no other; the empty one is the default;
//! - a depth is *always* asked when a prefix of it is shorter than the hint depth, or has no hint because
//!   there was no room for one;
//! - a hint exists for a hash exactly when a prefix of the hint depth or deeper begins with components of that
//!   hash and was given it; its depths are those of all such prefixes.
//!
//! `shared` counts, for each hint and depth, the prefixes beyond the first, so that a depth goes with the
//! last of them; most have one, and take no memory.

use std::collections::HashMap;

use super::hash::{DEPTH_MAX, Name, NameHasher, NameList, PrefixKey};
use super::table::{Sizes, Table};
use crate::{Blob, NO_ROUTE, NextHopId, Patch, TableError, check_next_hop};

/// The longest prefix, in bytes of its components' encodings: the size of the largest NDN packet in use.
pub const PREFIX_BYTES_MAX: usize = 8_800;

/// How large a table may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameLimits {
    /// Prefixes. The buckets are made for this many at once: 27 bytes each.
    pub prefixes: usize,
    /// Bytes of prefixes' names, each rounded up to 16; memory is used as they come.
    pub name_bytes: usize,
}

impl Default for NameLimits {
    /// A million prefixes of 64 bytes on average.
    fn default() -> Self {
        Self::of(1 << 20)
    }
}

impl NameLimits {
    /// This many prefixes of 64 bytes on average, and room for a few long ones.
    pub fn of(prefixes: usize) -> Self {
        Self { prefixes, name_bytes: prefixes * 64 + (1 << 20) }
    }
}

/// Why a prefix was refused. The table is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameRouteError {
    /// More components than [`DEPTH_MAX`].
    #[error("a prefix of {0} components, more than {DEPTH_MAX}")]
    TooDeep(usize),
    /// More bytes than [`PREFIX_BYTES_MAX`].
    #[error("a prefix of {0} bytes, more than {PREFIX_BYTES_MAX}")]
    TooLong(usize),
    /// The next hop is none, or there is no room.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The prefixes, as a working copy of the table.
#[derive(Debug)]
pub struct NameFibBuilder {
    hasher: NameHasher,
    table: Table,
    limits: NameLimits,
    hint_depth: usize,
    count: usize,
    unhinted: [u32; DEPTH_MAX + 1], // prefixes without a hint, by depth
    shared: HashMap<(u64, u8), Shared>,
    prefixes: Vec<PrefixKey>, // of the name at hand
}

/// Prefixes of one hint and depth, beyond the first; and those that were given no hint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shared {
    more: u32,
    unhinted: u32,
}

impl NameFibBuilder {
    /// The table of `names[i]` by `next_hops[i]`; of equal names the last one applies.
    ///
    /// # Panics
    /// When there is not one next hop for each name.
    pub fn build(
        hasher: NameHasher,
        names: &NameList,
        next_hops: &[NextHopId],
        limits: NameLimits,
    ) -> Result<(Self, Blob), NameRouteError> {
        Self::build_telling(hasher, names, next_hops, limits, |_, _| {})
    }

    /// As [`NameFibBuilder::build`]; `replaced` gets the number of each name that stands for an earlier one,
    /// and the earlier one's next hop.
    ///
    /// # Panics
    /// When there is not one next hop for each name.
    pub fn build_telling(
        hasher: NameHasher,
        names: &NameList,
        next_hops: &[NextHopId],
        limits: NameLimits,
        replaced: impl FnMut(usize, NextHopId),
    ) -> Result<(Self, Blob), NameRouteError> {
        let hint_depth = choose_hint_depth(names);
        Self::build_with(hasher, names, next_hops, limits, hint_depth, replaced)
    }

    /// As [`NameFibBuilder::build`], with hints at a given depth, 1 to [`DEPTH_MAX`]; for measuring.
    ///
    /// # Panics
    /// When there is not one next hop for each name.
    pub fn build_with_hints(
        hasher: NameHasher,
        names: &NameList,
        next_hops: &[NextHopId],
        limits: NameLimits,
        hint_depth: usize,
    ) -> Result<(Self, Blob), NameRouteError> {
        Self::build_with(hasher, names, next_hops, limits, hint_depth, |_, _| {})
    }

    fn build_with(
        hasher: NameHasher,
        names: &NameList,
        next_hops: &[NextHopId],
        limits: NameLimits,
        hint_depth: usize,
        mut replaced: impl FnMut(usize, NextHopId),
    ) -> Result<(Self, Blob), NameRouteError> {
        assert_eq!(names.len(), next_hops.len(), "one next hop for each name");
        let hint_depth = hint_depth.clamp(1, DEPTH_MAX);
        let name_bytes: usize =
            names.iter().map(|name| name.bytes().len().next_multiple_of(16)).sum();
        let sizes = Sizes {
            // Room for a quarter more than there are, and for a fresh table to fill.
            hints: (count_hints(&hasher, names, hint_depth) * 5 / 4).max(limits.prefixes / 16),
            prefixes: limits.prefixes,
            name_bytes: name_bytes.min(limits.name_bytes),
            name_bytes_max: limits.name_bytes,
        };
        let mut builder = Self {
            hasher,
            table: Table::new(sizes, hasher.seed(), hint_depth)?,
            limits,
            hint_depth,
            count: 0,
            unhinted: [0; DEPTH_MAX + 1],
            shared: HashMap::new(),
            prefixes: Vec::new(),
        };
        for (index, (name, next_hop)) in names.iter().zip(next_hops).enumerate() {
            if let Some(before) = builder.put(name, *next_hop)? {
                replaced(index, before);
            }
        }
        builder.table.settle();
        let blob = builder.table.blob().try_clone().map_err(|e| TableError::Memory {
            bytes: builder.table.blob().len_bytes(),
            reason: e.to_string(),
        })?;
        Ok((builder, blob))
    }

    /// Adds or replaces a prefix, appending the patches to `patches`; the next hop that stood there.
    /// On an error nothing has changed.
    pub fn insert(
        &mut self,
        name: Name<'_>,
        next_hop: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, NameRouteError> {
        let before = self.put(name, next_hop)?;
        self.table.flush(patches);
        Ok(before)
    }

    /// Removes a prefix, appending the patches to `patches`; its next hop, `None` when it was not there.
    pub fn remove(&mut self, name: Name<'_>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        let depth = name.depth();
        if depth == 0 {
            let before = Some(self.table.default_hop()).filter(|hop| *hop != NO_ROUTE)?;
            self.table.set_default_hop(NO_ROUTE);
            self.count -= 1;
            self.table.flush(patches);
            return Some(before);
        }
        let prefix = self.hash(name).ok()?;
        let slot = self.table.find(prefix, depth, name.bytes())?;
        let before = self.table.next_hop(slot);
        self.table.remove(prefix, slot);
        self.forget_depth(depth);
        self.count -= 1;
        self.table.flush(patches);
        Some(before)
    }

    /// The next hop of exactly this prefix.
    pub fn get(&mut self, name: Name<'_>) -> Option<NextHopId> {
        if name.depth() == 0 {
            return Some(self.table.default_hop()).filter(|hop| *hop != NO_ROUTE);
        }
        let prefix = self.hash(name).ok()?;
        let slot = self.table.find(prefix, name.depth(), name.bytes())?;
        Some(self.table.next_hop(slot))
    }

    /// Prefixes in the table.
    pub fn len(&self) -> usize {
        self.count
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Components that a hint is about.
    pub fn hint_depth(&self) -> usize {
        self.hint_depth
    }

    fn put(
        &mut self,
        name: Name<'_>,
        next_hop: NextHopId,
    ) -> Result<Option<NextHopId>, NameRouteError> {
        check_next_hop(next_hop)?;
        let depth = name.depth();
        let slot = match depth {
            0 => None,
            _ => {
                let prefix = self.hash(name)?;
                self.table.find(prefix, depth, name.bytes())
            }
        };
        if let Some(slot) = slot {
            let before = self.table.next_hop(slot);
            self.table.set_next_hop(slot, next_hop);
            return Ok(Some(before));
        }
        let default = Some(self.table.default_hop()).filter(|hop| *hop != NO_ROUTE && depth == 0);
        if default.is_none() && self.count >= self.limits.prefixes {
            let number = |count: usize| count.try_into().unwrap_or(u32::MAX);
            let (used, limit) = (number(self.count), number(self.limits.prefixes));
            return Err(TableError::Full { what: "name prefixes", used, limit }.into());
        }
        if depth == 0 {
            self.table.set_default_hop(next_hop);
        } else {
            let prefix = self.prefixes[depth - 1];
            self.table.add(prefix, depth, name.bytes(), next_hop)?;
            self.learn_depth(depth);
        }
        self.count += usize::from(default.is_none());
        Ok(default)
    }

    /// Hashes a name of at least one component; the key of all of it.
    fn hash(&mut self, name: Name<'_>) -> Result<PrefixKey, NameRouteError> {
        if name.depth() > DEPTH_MAX {
            return Err(NameRouteError::TooDeep(name.depth()));
        }
        if name.bytes().len() > PREFIX_BYTES_MAX {
            return Err(NameRouteError::TooLong(name.bytes().len()));
        }
        self.prefixes.clear();
        self.hasher.prefixes(name.components(), DEPTH_MAX, &mut self.prefixes);
        Ok(self.prefixes.last().copied().unwrap_or_default())
    }

    /// Has lookups ask for the depth of the name that was hashed last.
    fn learn_depth(&mut self, depth: usize) {
        if depth < self.hint_depth {
            return self.count_unhinted(depth, 1);
        }
        let hash = self.prefixes[self.hint_depth - 1].hash;
        let bit = 1 << depth;
        if let Some(slot) = self.table.find_hint(hash) {
            let depths = self.table.depths(slot);
            if depths & bit != 0 {
                self.shared.entry((hash, depth as u8)).or_default().more += 1;
            } else {
                self.table.set_depths(hash, slot, depths | bit);
            }
        } else if !self.table.add_hint(hash, bit) {
            self.shared.entry((hash, depth as u8)).or_default().unhinted += 1;
            self.count_unhinted(depth, 1);
        }
    }

    /// The opposite, for one that was there.
    fn forget_depth(&mut self, depth: usize) {
        if depth < self.hint_depth {
            return self.count_unhinted(depth, -1);
        }
        let hash = self.prefixes[self.hint_depth - 1].hash;
        let key = (hash, depth as u8);
        if let Some(shared) = self.shared.get_mut(&key) {
            let without_hint = shared.unhinted > 0;
            if without_hint {
                shared.unhinted -= 1;
            } else {
                shared.more -= 1;
            }
            if *shared == Shared::default() {
                self.shared.remove(&key);
            }
            if without_hint {
                self.count_unhinted(depth, -1);
            }
            return;
        }
        if let Some(slot) = self.table.find_hint(hash) {
            let depths = self.table.depths(slot) & !(1 << depth);
            self.table.set_depths(hash, slot, depths);
        }
    }

    fn count_unhinted(&mut self, depth: usize, by: i32) {
        self.unhinted[depth] = self.unhinted[depth].wrapping_add_signed(by);
        let always = |(depth, count): (usize, &u32)| u32::from(*count > 0) << depth;
        self.table.set_always(self.unhinted.iter().enumerate().map(always).sum());
    }
}

/// A hint of few components covers many depths; one of many is itself as rare as a prefix. In the middle,
/// most prefixes are one component deeper than the hint, or just as deep.
fn choose_hint_depth(names: &NameList) -> usize {
    let mut depths = [0_usize; DEPTH_MAX + 1];
    for name in names.iter() {
        depths[name.depth().min(DEPTH_MAX)] += 1;
    }
    let mut shallow = 0;
    let deeper_than = |depth: &usize| {
        shallow += depths[*depth];
        shallow * 8 > names.len() // at least an eighth is this deep or less
    };
    (0..=DEPTH_MAX).find(deeper_than).unwrap_or(0).clamp(2, DEPTH_MAX)
}

/// Different prefixes of the hint depth, at most this and one too many for each 2^32 or so.
fn count_hints(hasher: &NameHasher, names: &NameList, hint_depth: usize) -> usize {
    let (mut seen, mut prefixes) = (Vec::new(), Vec::new());
    for name in names.iter().filter(|name| name.depth() >= hint_depth) {
        prefixes.clear();
        hasher.prefixes(name.components(), hint_depth, &mut prefixes);
        seen.extend(prefixes.last().map(|prefix| prefix.hash));
    }
    seen.sort_unstable();
    seen.dedup();
    seen.len()
}
