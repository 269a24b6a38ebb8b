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
/// Walks that have ended stand aside without a branch, so that a level costs what its walks cost.
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
