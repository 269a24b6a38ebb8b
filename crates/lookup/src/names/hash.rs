//! The hash of every prefix of a name, in one pass over its bytes.
//!
//! A name's components are cut into words of 7 bytes; the last word of each component also says how many of
//! its bytes count, so that no two lists of components give the same words. The words are the coefficients
//! of a polynomial over the numbers modulo 2^61 - 1, at a point drawn at random (Carter and Wegman 1979); its
//! value after each component, on a random line, is that prefix's hash. Two prefixes of at most n words
//! collide with probability (n + 1) / 2^61 at most, if the seed is unknown. One multiplication
//! takes 7 bytes.

/// The most components a prefix of the table may have: a set of depths is a word of 32 bits, and 0 is the
/// empty name.
pub const DEPTH_MAX: usize = 31;

const PRIME: u64 = (1 << 61) - 1;
const WORD: usize = 7;
const WORD_MASK: u64 = (1 << (8 * WORD)) - 1;

/// A name: its components' encodings one behind the other, and where each ends. An encoding must tell
/// its own length, as an NDN component's type and length do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Name<'a> {
    bytes: &'a [u8],
    ends: &'a [u32],
}

impl<'a> Name<'a> {
    /// `ends` are the components' ends in `bytes`, in order; components beyond the bytes do not count.
    pub fn new(bytes: &'a [u8], ends: &'a [u32]) -> Self {
        let sound = ends.iter().scan(0, |before, end| {
            let fits = *before <= *end && *end as usize <= bytes.len();
            *before = *end;
            fits.then_some(())
        });
        let ends = &ends[..sound.count()];
        let end = ends.last().map_or(0, |end| *end as usize);
        Self { bytes: &bytes[..end], ends }
    }

    /// All components' encodings.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of components.
    pub fn depth(&self) -> usize {
        self.ends.len()
    }

    /// The components' encodings, in order.
    pub fn components(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.ends.iter().scan(0, move |start, end| {
            let component = &bytes[*start..*end as usize];
            *start = *end as usize;
            Some(component)
        })
    }
}

/// A prefix of a name as the table asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct PrefixKey {
    /// Its hash, below 2^61 - 1.
    pub hash: u64,
    /// Its bytes.
    pub end: u32,
}

/// A name as the table asks for it: the bytes, and the hash of each prefix from one component on, of at most
/// [`DEPTH_MAX`].
#[derive(Debug, Clone, Copy, Default)]
pub struct NameKey<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) prefixes: &'a [PrefixKey],
}

impl<'a> NameKey<'a> {
    /// A name and its prefixes as a [`NameHasher`] has given them; those above [`DEPTH_MAX`] do not count.
    pub fn new(bytes: &'a [u8], prefixes: &'a [PrefixKey]) -> Self {
        Self { bytes, prefixes: &prefixes[..prefixes.len().min(DEPTH_MAX)] }
    }

    /// Components that can be asked for.
    pub fn depth(&self) -> usize {
        self.prefixes.len()
    }
}

/// The hash of a name under way, component after component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHash(u64);

impl NameHash {
    /// That of no components yet.
    pub const fn new() -> Self {
        NameHash(1)
    }
}

impl Default for NameHash {
    fn default() -> Self {
        Self::new()
    }
}

/// A member of the family of hashes; all that look into one table use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHasher {
    seed: u64,
    point: u64,
    a: u64,
    b: u64,
}

impl NameHasher {
    /// The member that a seed names. Draw it at random where names come from strangers.
    pub const fn new(seed: u64) -> Self {
        let [point, a, b] =
            [mod61(parameter(seed, 0)), mod61(parameter(seed, 1)), mod61(parameter(seed, 2))];
        Self { seed, point, a, b }
    }

    /// A member drawn at random.
    pub fn random() -> Self {
        use std::hash::BuildHasher;
        Self::new(std::hash::RandomState::new().hash_one(0_u8))
    }

    /// The seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Appends the prefixes of a name to `out`: those of 1 to `depth` components, as many as there are.
    #[inline]
    pub fn prefixes<'a>(
        &self,
        components: impl IntoIterator<Item = &'a [u8]>,
        depth: usize,
        out: &mut Vec<PrefixKey>,
    ) {
        let (mut hash, mut end) = (NameHash::new(), 0);
        for component in components.into_iter().take(depth.min(DEPTH_MAX)) {
            hash = self.absorb(hash, component);
            end += component.len() as u32;
            out.push(PrefixKey { hash: self.finish(hash), end });
        }
    }

    /// The hash of a prefix, below 2^61 - 1.
    #[inline]
    pub const fn finish(&self, hash: NameHash) -> u64 {
        multiply_add(hash.0, self.a, self.b)
    }

    /// Takes a further component in.
    #[inline]
    pub fn absorb(&self, hash: NameHash, component: &[u8]) -> NameHash {
        let (NameHash(mut value), mut rest) = (hash, component);
        while rest.len() >= WORD {
            // Eight bytes are quicker to fetch than seven, where they are there.
            let word = match rest.first_chunk::<8>() {
                Some(eight) => u64::from_le_bytes(*eight) & WORD_MASK,
                None => small(&rest[..WORD]),
            };
            value = multiply_add(value, self.point, word);
            rest = &rest[WORD..];
        }
        let last = small(rest) | (rest.len() as u64 + 1) << (8 * WORD);
        NameHash(multiply_add(value, self.point, last))
    }
}

/// At most 7 bytes as a number.
#[inline]
fn small(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Splitmix64 (Steele, Lea, Flood 2014).
const fn parameter(seed: u64, index: u64) -> u64 {
    let x = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

const fn mod61(x: u64) -> u64 {
    let x = (x & PRIME) + (x >> 61);
    if x >= PRIME { x - PRIME } else { x }
}

/// `x y + z` modulo 2^61 - 1, all three below it.
#[inline(always)]
const fn multiply_add(x: u64, y: u64, z: u64) -> u64 {
    let product = x as u128 * y as u128;
    mod61((product as u64 & PRIME) + (product >> 61) as u64 + z)
}

/// Names by themselves, in little memory.
#[derive(Debug, Clone, Default)]
pub struct NameList {
    bytes: Vec<u8>,
    ends: Vec<u32>,              // of components, from the name's start
    starts: Vec<(usize, usize)>, // in `bytes`, in `ends`
}

impl NameList {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a name.
    pub fn push<'a>(&mut self, components: impl IntoIterator<Item = &'a [u8]>) {
        let start = self.bytes.len();
        self.starts.push((start, self.ends.len()));
        for component in components {
            self.bytes.extend_from_slice(component);
            self.ends.push((self.bytes.len() - start) as u32);
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The name of a number below [`NameList::len`].
    pub fn get(&self, index: usize) -> Name<'_> {
        let (bytes, ends) = self.starts[index];
        let next = self.starts.get(index + 1).copied();
        let (to, last) = next.unwrap_or((self.bytes.len(), self.ends.len()));
        Name { bytes: &self.bytes[bytes..to], ends: &self.ends[ends..last] }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Name<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.starts.clear();
    }
}

/// The hashed prefixes of many names: what a batch of lookups reads. Filled anew without allocating.
#[derive(Debug, Clone, Default)]
pub struct NamePrefixes {
    prefixes: Vec<PrefixKey>,
    ends: Vec<usize>,
}

impl NamePrefixes {
    /// Those of no name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.prefixes.clear();
        self.ends.clear();
    }

    /// Adds the prefixes of a name, of at most `depth` components.
    pub fn push(&mut self, hasher: &NameHasher, name: Name<'_>, depth: usize) {
        self.push_components(hasher, name.components(), depth);
    }

    /// The same of a name's components.
    pub fn push_components<'a>(
        &mut self,
        hasher: &NameHasher,
        components: impl IntoIterator<Item = &'a [u8]>,
        depth: usize,
    ) {
        hasher.prefixes(components, depth, &mut self.prefixes);
        self.ends.push(self.prefixes.len());
    }

    /// The key of name `index`, whose bytes are `name`'s.
    pub fn key<'a>(&'a self, index: usize, name: Name<'a>) -> NameKey<'a> {
        self.key_of_bytes(index, name.bytes)
    }

    /// The same of a name by its components' encodings.
    pub fn key_of_bytes<'a>(&'a self, index: usize, bytes: &'a [u8]) -> NameKey<'a> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        NameKey { bytes, prefixes: &self.prefixes[start..self.ends[index]] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(hasher: &NameHasher, components: &[&[u8]]) -> Vec<u64> {
        let mut out = Vec::new();
        hasher.prefixes(components.iter().copied(), DEPTH_MAX, &mut out);
        out.iter().map(|prefix| prefix.hash).collect()
    }

    #[test]
    fn a_prefix_hashes_as_it_does_alone() {
        let hasher = NameHasher::new(7);
        let name: [&[u8]; 4] = [b"com", b"a component of many bytes", b"", b"seven b"];
        let all = hashes(&hasher, &name);
        for depth in 1..=4 {
            assert_eq!(hashes(&hasher, &name[..depth]), all[..depth]);
        }
        assert!(all.iter().all(|hash| *hash < PRIME));
    }

    #[test]
    fn cuts_between_components_count() {
        let hasher = NameHasher::new(8);
        let zeros = [0; 40];
        let mut seen = std::collections::HashSet::new();
        for first in 0..20 {
            for second in 0..20 {
                let name = [&zeros[..first], &zeros[..second]];
                assert!(seen.insert(hashes(&hasher, &name)[1]), "{first} {second}");
            }
        }
    }

    /// The polynomial written out with division.
    #[test]
    fn the_hash_is_the_polynomial() {
        let hasher = NameHasher::new(9);
        let words = [
            u64::from_le_bytes(*b"exampleX") & WORD_MASK,
            u64::from_le_bytes([b's', b'!', 0, 0, 0, 0, 0, 3]),
        ];
        let p = u128::from(PRIME);
        let step = |v: u128, w: &u64| (v * u128::from(hasher.point) + u128::from(*w)) % p;
        let value = words.iter().fold(1, step);
        let hash = (value * u128::from(hasher.a) + u128::from(hasher.b)) % p;
        assert_eq!(hashes(&hasher, &[b"examples!"]), [hash as u64]);
    }

    #[test]
    fn a_long_name_is_cut_where_tables_end() {
        let many = vec![b"x".as_slice(); 10_000];
        assert_eq!(hashes(&NameHasher::new(1), &many).len(), DEPTH_MAX);
    }
}
