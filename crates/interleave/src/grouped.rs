//! Walks of one depth, level by level: group prefetching.
//!
//! All walks of a group take their first step, then all take their second, and so on; while one reads, the
//! lines of the others are on their way. Nothing is refilled and no state machine is needed, so a level is a
//! short loop without surprises; it is the fastest form where walks are about equally long
//! (CuckooSwitch, CoNEXT 2013, and the G-Opt slides' "Strawman: Group Prefetching").

/// A lookup that takes levels.
pub trait Walk {
    /// What is looked up.
    type Key;
    /// What is found.
    type Value;
    /// What a walk keeps between two levels.
    type State: Copy;

    /// Begins a walk, and prefetches what its first level reads.
    fn begin(&self, key: &Self::Key) -> Self::State;

    /// Reads what was prefetched; true when it goes on, and then what the next level reads is prefetched.
    fn level(&self, key: &Self::Key, state: &mut Self::State) -> bool;

    /// What was found.
    fn end(&self, key: &Self::Key, state: &Self::State) -> Self::Value;
}

/// Runs a walk for all keys, `G` at a time level by level, and writes each result to its key's place of `out`.
///
/// Walks that have ended are put aside without a branch, so that a level costs what its walks cost.
///
/// A table of two levels, whose first may say that there is no second:
///
/// ```
/// use interleave::{Walk, prefetch, run_grouped};
///
/// struct Levels { first: Vec<Option<u32>>, second: Vec<[u16; 4]> }
///
/// impl Walk for Levels {
///     type Key = u32;
///     type Value = u16;
///     type State = Option<u32>; // the row of the second level
///
///     fn begin(&self, key: &u32) -> Option<u32> {
///         prefetch(&self.first[(key >> 2) as usize]);
///         None
///     }
///
///     fn level(&self, key: &u32, row: &mut Option<u32>) -> bool {
///         *row = self.first[(key >> 2) as usize];
///         if let Some(row) = row {
///             prefetch(&self.second[*row as usize]);
///         }
///         false // no level but this one is left to fetch for
///     }
///
///     fn end(&self, key: &u32, row: &Option<u32>) -> u16 {
///         row.map_or(0, |row| self.second[row as usize][(key & 3) as usize])
///     }
/// }
///
/// let levels = Levels { first: vec![Some(0), None], second: vec![[7, 8, 9, 10]] };
/// let mut out = [0; 3];
/// run_grouped::<64, _>(&levels, &[1, 3, 5], &mut out); // 64 lookups level by level
/// assert_eq!(out, [8, 10, 0]);
/// ```
///
/// # Panics
/// When the slices differ in length.
#[inline]
pub fn run_grouped<const G: usize, W: Walk>(walk: &W, keys: &[W::Key], out: &mut [W::Value]) {
    const { assert!(G > 0 && G <= u16::MAX as usize, "a group of 1 to 65,535") };
    assert_eq!(keys.len(), out.len(), "one result for each key");
    let Some(first) = keys.first() else { return };
    let mut states = [walk.begin(first); G];
    let mut going: [u16; G] = core::array::from_fn(|at| at as u16);
    for (keys, out) in keys.chunks(G).zip(out.chunks_mut(G)) {
        for (state, key) in states.iter_mut().zip(keys) {
            *state = walk.begin(key);
        }
        for (at, number) in going.iter_mut().enumerate() {
            *number = at as u16;
        }
        let mut live = keys.len();
        while live > 0 {
            let mut kept = 0;
            for turn in 0..live {
                let at = going[turn];
                let goes_on = walk.level(&keys[at as usize], &mut states[at as usize]);
                going[kept] = at;
                kept += usize::from(goes_on);
            }
            live = kept;
        }
        for ((state, key), result) in states.iter().zip(keys).zip(out) {
            *result = walk.end(key, state);
        }
    }
}
