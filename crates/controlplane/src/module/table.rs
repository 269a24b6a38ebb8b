//! The hash table of modules (GASPP §3.2): the twin of the one that modules in the kernel dialect have, for Rust modules and tests.
//!
//! ```text
//!  hash(key) & mask ─▶ ┌ key │ value ┐ … at most PROBES entries: the key, or the first empty one
//! ```
//!
//! Keys and values have 32 bits. Key 0 is an empty entry, and no key. Entries stay once they are there.

/// Entries in which a key may be, from its hash on.
pub const PROBES: u32 = 16;

/// A hash table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Key and value.
    entries: Box<[(u32, u32)]>,
}

/// There is no room for a key among the entries where it may be, or it is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Table {
    /// An empty one of so many entries, rounded up to a power of two.
    pub fn new(entries: usize) -> Self {
        Self { entries: vec![(0, 0); entries.max(1).next_power_of_two()].into() }
    }

    /// The entries in their places, key and value.
    pub fn entries(&self) -> &[(u32, u32)] {
        &self.entries
    }

    fn entry(&mut self, key: u32, makes: bool) -> Option<&mut u32> {
        if key == 0 {
            return None;
        }
        let mask = self.entries.len() - 1;
        let first = hash(key);
        let place = |i: u32| first.wrapping_add(i) as usize & mask;
        let is_it = |at: &usize| matches!(self.entries[*at].0, own if own == key || own == 0);
        let at = (0..PROBES).map(place).find(is_it)?;
        let entry = &mut self.entries[at];
        if entry.0 == 0 {
            if !makes {
                return None;
            }
            entry.0 = key;
        }
        Some(&mut entry.1)
    }

    /// The value of a key.
    pub fn find(&mut self, key: u32) -> Option<u32> {
        self.entry(key, false).map(|value| *value)
    }

    /// Adds to the value of a key, which begins with 0; the value before.
    ///
    /// # Errors
    /// There is no room.
    pub fn add(&mut self, key: u32, more: u32) -> Result<u32, Full> {
        let value = self.entry(key, true).ok_or(Full)?;
        let before = *value;
        *value = before.wrapping_add(more);
        Ok(before)
    }

    /// Sets the value of a key to `new` if it is `expected`; a new key has 0. The value before.
    ///
    /// # Errors
    /// There is no room.
    pub fn compare_and_swap(&mut self, key: u32, expected: u32, new: u32) -> Result<u32, Full> {
        let value = self.entry(key, true).ok_or(Full)?;
        let before = *value;
        if before == expected {
            *value = new;
        }
        Ok(before)
    }

    /// Gives a key a value if it has none; whether it did. A value of 0 is none.
    ///
    /// # Errors
    /// There is no room.
    pub fn insert(&mut self, key: u32, value: u32) -> Result<bool, Full> {
        if value == 0 {
            return Ok(false);
        }
        Ok(self.compare_and_swap(key, 0, value)? == 0)
    }
}

/// The hash of a key: multiplications and shifts, the same on devices.
fn hash(key: u32) -> u32 {
    let mut hash = key.wrapping_mul(0x9e37_79b1);
    hash ^= hash >> 15;
    hash = hash.wrapping_mul(0x85eb_ca77);
    hash ^ hash >> 13
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As a map, until there is no room.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u8..4, 0u32..60, 0u32..4, 0u32..4), 0..300)) {
            let (mut table, mut map) = (Table::new(32), BTreeMap::new());
            for (what, key, first, second) in steps {
                let known = map.get(&key).copied();
                let room = match what {
                    0 => {
                        prop_assert_eq!(table.find(key), known);
                        continue;
                    }
                    1 => table.add(key, first),
                    2 => table.compare_and_swap(key, first, second),
                    _ => table.insert(key, first).map(u32::from),
                };
                if what == 3 && first == 0 {
                    prop_assert_eq!(room, Ok(0));
                    continue;
                }
                let Ok(result) = room else {
                    prop_assert!(known.is_none());
                    prop_assert!(key == 0 || map.len() >= PROBES as usize);
                    continue;
                };
                let before = known.unwrap_or(0);
                let (now, expected) = match what {
                    1 => (before + first, before),
                    2 => (if before == first { second } else { before }, before),
                    _ => (if before == 0 { first } else { before }, u32::from(before == 0)),
                };
                prop_assert_eq!(result, expected);
                map.insert(key, now);
            }
            let mut entries: Vec<_> = table.entries().iter().filter(|(key, _)| *key != 0).copied().collect();
            entries.sort_unstable();
            prop_assert_eq!(entries, map.into_iter().collect::<Vec<_>>());
        }
    }
}
