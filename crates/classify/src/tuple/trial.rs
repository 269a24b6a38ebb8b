//! Hashes of masked headers beside each other, as GSwitch §4.2 compares them: how quick each is, and how well a
//! class's table takes entries by it.
//!
//! A cuckoo table of three subtables takes 91.8 % of its slots by independent, uniform hashes (the paper says 90 %);
//! a search for moves that ends, as a class's does, and a hash that is worse fail earlier, and more entries have to move. Structured keys, such as addresses one after the
//! other, tell more about a hash than random ones.

use super::class::{Class, LOAD_MAX, Plan};
use super::hashes::{Functions, HashKind, Murmur3, TupleHash, Universal};
use super::layout::{SUBTABLES, header_words};
use crate::image::Image;
use crate::rule::{Match, RuleError};

/// How a class's table took entries.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Filling {
    /// Entries that were tried: one for each slot.
    pub entries: u64,
    /// Pairs of different entries with one hash of 32 bits. A uniform hash makes `n (n - 1) / 2^33`.
    pub equal_hashes: u64,
    /// Of the entries up to the load at which classes grow, those that stood at once, without moving another.
    pub at_once: u64,
    /// Those entries.
    pub before_growth: u64,
    /// Entries that the table held when one found no path of moves.
    pub held: u64,
}

impl Filling {
    /// The part of entries, up to the load at which classes grow, that stood at once.
    pub fn at_once_part(&self) -> f64 {
        self.at_once as f64 / self.before_growth.max(1) as f64
    }

    /// The part of slots in use when the first entry was refused.
    pub fn load(&self) -> f64 {
        self.held as f64 / self.entries.max(1) as f64
    }
}

/// Hashes headers of `W` words as a search does, one after the other: 32 bits of each.
pub fn hash_headers<const W: usize>(
    kind: HashKind,
    seed: u64,
    headers: &[[u32; W]],
    out: &mut [u32],
) {
    let functions = Functions::new(kind, W, seed);
    let parameter = |at: usize| functions.parameters[at];
    match kind {
        HashKind::Universal => {
            let hash = Universal { a: std::array::from_fn(parameter), b: parameter(W) };
            hash_all(hash, headers, out);
        }
        HashKind::Murmur3 => hash_all(Murmur3 { seed: parameter(0) as u32 }, headers, out),
    }
}

fn hash_all<const W: usize>(hash: impl TupleHash<W>, headers: &[[u32; W]], out: &mut [u32]) {
    for (header, out) in headers.iter().zip(out) {
        *out = hash.hash(header);
    }
}

/// Fills a class's table with different values of `W` words, one after the other, until one finds no place. The table
/// has about a slot for each.
///
/// # Errors
/// No memory.
pub fn fill<const W: usize>(
    kind: HashKind,
    seed: u64,
    values: &[[u32; W]],
) -> Result<Filling, RuleError> {
    let plan = Plan { functions: Functions::new(kind, W, seed), filter: None, words: W };
    let mut image = Image::new(header_words(W))?;
    let depth = (values.len() / SUBTABLES).max(1);
    let mut class = Class::to_fill(&mut image, &plan, vec![u32::MAX; W].into(), depth)?;
    let values = &values[..values.len().min(SUBTABLES * depth)];
    let before_growth = values.len() * LOAD_MAX / 100;
    let mut filling = Filling {
        entries: values.len() as u64,
        before_growth: before_growth as u64,
        ..Filling::default()
    };
    let mut hashes = Vec::with_capacity(values.len());
    for value in values {
        hashes.push(plan.functions.hash(*value));
    }
    for (at, (value, hash)) in values.iter().zip(&hashes).enumerate() {
        let is_empty = class.has_empty_slot(&image, &plan, *hash);
        if class.add(&mut image, &plan, value, Match::new(0, at as u32)).is_err() {
            break;
        }
        filling.at_once += u64::from(is_empty && at < before_growth);
        filling.held += 1;
    }
    hashes.sort_unstable();
    let equal = hashes.chunk_by(|a, b| a == b).map(|same| same.len() as u64);
    filling.equal_hashes = equal.map(|count| count * (count - 1) / 2).sum();
    Ok(filling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: impl Fn(u32) -> u32) -> Vec<[u32; 4]> {
        (0..6000).map(|at| [of(at), 7, 0, 6 << 24]).collect()
    }

    #[test]
    fn tables_fill_as_theory_says() {
        for kind in [HashKind::Universal, HashKind::Murmur3] {
            for values in [values(chunk::hash::fmix32), values(|at| 0x0a00_0000 + at)] {
                let filling = fill(kind, 5, &values).unwrap();
                assert_eq!((filling.entries, filling.before_growth), (6000, 5040));
                assert!(filling.equal_hashes < 4, "{kind:?}: {filling:?}");
                // Beyond the load at which classes grow, and not beyond what any hash can.
                assert!((0.845..0.925).contains(&filling.load()), "{kind:?}: {filling:?}");
                assert!((0.7..0.95).contains(&filling.at_once_part()), "{kind:?}: {filling:?}");
            }
        }
    }

    #[test]
    fn equal_values_of_a_hash_are_counted() {
        // Four equal values have three slots; the fourth finds none, for all of them have the same.
        let values = [[3; 4], [3; 4], [3; 4], [3; 4], [9; 4], [8; 4]];
        let filling = fill(HashKind::Murmur3, 1, &values).unwrap();
        assert_eq!((filling.entries, filling.held, filling.equal_hashes), (6, 3, 6));
        assert_eq!(filling.load(), 0.5);
    }

    #[test]
    fn headers_are_hashed_as_tables_do() {
        let headers = values(chunk::hash::fmix32);
        for kind in [HashKind::Universal, HashKind::Murmur3] {
            let mut out = vec![0; headers.len()];
            hash_headers(kind, 11, &headers, &mut out);
            let functions = Functions::new(kind, 4, 11);
            assert!(headers.iter().zip(&out).all(|(h, x)| functions.hash(*h) == *x), "{kind:?}");
        }
    }
}
