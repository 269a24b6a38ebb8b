//! Hashes that host and device share: the twins of `hash.h` of the crate `kernels`.
//!
//! | hash | for |
//! | --- | --- |
//! | [`murmur3_words`], [`murmur3_bytes`] | keys of any length, no promise against an adversary |
//! | [`flow`] | spreading flows over workers, members of groups, shards |
//! | [`fmix32`], [`fmix64`] | mixing a number that is a key already |
//! | [`key64`], [`key128`] | 64 good bits of a key of 8 or 16 bytes: exact match |
//! | [`MultiplyShift`] | strongly universal, cheapest on 32-bit devices: two multiplications a word |
//! | [`Polynomial61`] | universal for keys of any length |
//!
//! The bounds of a universal family hold if the seed is unknown to the sender: draw it at random.
//!
//! The tables of `lookup` and the kernels must hash alike, so they are here, below both.
//!
//! Pure functions: any thread.

/// The finaliser of Murmur3 x86_32: a permutation of 32 bits.
pub const fn fmix32(h: u32) -> u32 {
    let h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    let h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

/// The finaliser of Murmur3 x64_128: a permutation of 64 bits.
#[inline(always)]
pub const fn fmix64(h: u64) -> u64 {
    let h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

/// The hash of a key of 8 bytes: for one seed a permutation, so that different keys stay different.
#[inline(always)]
pub const fn key64(key: u64, seed: u64) -> u64 {
    fmix64(key ^ seed)
}

/// The hash of a key of 16 bytes.
#[inline(always)]
pub const fn key128(key: [u64; 2], seed: u64) -> u64 {
    fmix64(fold_product(key[0] ^ seed, 0x9e37_79b9_7f4a_7c15) ^ key[1])
}

const fn murmur3_scramble(word: u32) -> u32 {
    word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

const fn murmur3_add(h: u32, word: u32) -> u32 {
    (h ^ murmur3_scramble(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// A number that nobody outside can know, for hashes of what others choose.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Murmur3 x86_32 (Appleby) of whole words, taken as little-endian bytes.
pub fn murmur3_words(words: &[u32], seed: u32) -> u32 {
    let h = words.iter().fold(seed, |h, word| murmur3_add(h, *word));
    fmix32(h ^ (4 * words.len() as u32))
}

/// Murmur3 x86_32 (Appleby) of bytes.
pub fn murmur3_bytes(bytes: &[u8], seed: u32) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut h = words.iter().fold(seed, |h, word| murmur3_add(h, u32::from_le_bytes(*word)));
    if !tail.is_empty() {
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        h ^= murmur3_scramble(u32::from_le_bytes(last));
    }
    fmix32(h ^ bytes.len() as u32)
}

/// Parameter `index` of the member that `seed` names of a family: splitmix64 (Steele, Lea, Flood 2014).
pub const fn parameter(seed: u64, index: u32) -> u64 {
    let x = seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The symmetric flow hash, as `packet::flow` has it: the same for both directions of a flow.
pub const fn flow(src: [u64; 2], dst: [u64; 2], ports: [u16; 2], protocol: u8) -> u32 {
    let x = flow_end(src, ports[0]).wrapping_add(flow_end(dst, ports[1]));
    fold_product(x.wrapping_add(protocol as u64), 0x94d0_49bb_1331_11eb) as u32
}

const fn flow_end(address: [u64; 2], port: u16) -> u64 {
    let x = address[0].wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ address[1];
    let spread = (port as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
    fold_product(x ^ spread ^ 0x5851_f42d_4c95_7f2d, 0xbf58_476d_1ce4_e5b9)
}

#[inline(always)]
const fn fold_product(x: u64, by: u64) -> u64 {
    let product = x as u128 * by as u128;
    (product >> 64) as u64 ^ product as u64
}

/// From a 32-bit hash to `0..n` without a division.
#[inline(always)]
pub const fn to_range(hash: u32, n: u32) -> u32 {
    ((hash as u64 * n as u64) >> 32) as u32
}

/// Multiply-shift (Dietzfelbinger 1996) for keys of `N` words: the upper half of b + the sum of a_i x_i.
/// Strongly universal: two different keys collide with probability 2^-32, and each hash is uniform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiplyShift<const N: usize> {
    a: [u64; N],
    b: u64,
}

impl<const N: usize> MultiplyShift<N> {
    /// The member that a seed names: its a_i are parameters 0 to N - 1, its b is parameter N.
    pub fn new(seed: u64) -> Self {
        Self { a: std::array::from_fn(|i| parameter(seed, i as u32)), b: parameter(seed, N as u32) }
    }

    /// The hash of a key.
    #[inline(always)]
    pub fn hash(&self, key: &[u32; N]) -> u32 {
        let mut sum = self.b;
        // Not iterators: what is generic is not inlined without optimisation across units of a crate.
        let mut at = 0;
        while at < N {
            sum = sum.wrapping_add(self.a[at].wrapping_mul(u64::from(key[at])));
            at += 1;
        }
        (sum >> 32) as u32
    }
}

/// 2^61 - 1.
pub const PRIME61: u64 = (1 << 61) - 1;

/// `x` modulo 2^61 - 1.
pub const fn mod61(x: u64) -> u64 {
    let x = (x & PRIME61) + (x >> 61);
    if x >= PRIME61 { x - PRIME61 } else { x }
}

/// `a x + b` modulo 2^61 - 1, all three below it.
pub const fn multiply_add61(a: u64, x: u64, b: u64) -> u64 {
    let product = a as u128 * x as u128;
    mod61(mod61((product as u64 & PRIME61) + (product >> 61) as u64) + b)
}

/// A polynomial over the numbers modulo 2^61 - 1 whose coefficients are 1 and the key, at a random point, and
/// a random line over it (Carter and Wegman 1979). Two keys of at most n words collide with probability
/// (n + 1) / 2^61 at most, and the low bits are as good as the high ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polynomial61 {
    point: u64,
    a: u64,
    b: u64,
}

impl Polynomial61 {
    /// The member that a seed names: parameters 0 to 2 are its point, a and b.
    pub fn new(seed: u64) -> Self {
        let [point, a, b] = [0, 1, 2].map(|i| mod61(parameter(seed, i)));
        Self { point, a, b }
    }

    /// The hash of a key, below 2^61 - 1.
    pub fn hash(&self, key: &[u32]) -> u64 {
        let value = key.iter().fold(1, |h, word| multiply_add61(h, self.point, u64::from(*word)));
        multiply_add61(value, self.a, self.b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published vectors of Murmur3_x86_32.
    #[test]
    fn murmur3_vectors() {
        let cases: [(&[u8], u32, u32); 8] = [
            (b"", 0, 0),
            (b"", 1, 0x514e_28b7),
            (b"", 0xffff_ffff, 0x81f1_6f39),
            (&[0, 0, 0, 0], 0, 0x2362_f9de),
            (&[0x21, 0x43, 0x65, 0x87], 0x5082_edee, 0x2362_f9de),
            (b"aaa", 0x9747_b28c, 0x283e_0130),
            (b"Hello, world!", 0x9747_b28c, 0x2488_4cba),
            (b"The quick brown fox jumps over the lazy dog", 0x9747_b28c, 0x2fa8_26cd),
        ];
        for (bytes, seed, hash) in cases {
            assert_eq!(murmur3_bytes(bytes, seed), hash, "{bytes:?}");
        }
        assert_eq!(
            murmur3_words(&[0x0403_0201, 0xfffe_fdfc], 9),
            murmur3_bytes(&[1, 2, 3, 4, 0xfc, 0xfd, 0xfe, 0xff], 9)
        );
    }

    /// Splitmix64's published first outputs for seed 1234567.
    #[test]
    fn splitmix_vectors() {
        let first: Vec<u64> = (0..3).map(|i| parameter(1_234_567, i)).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn arithmetic_modulo_the_prime() {
        let p = u128::from(PRIME61);
        for i in 0..200 {
            let [a, x, b] = [0, 1, 2].map(|j| mod61(parameter(i, j)));
            let plain = (u128::from(a) * u128::from(x) + u128::from(b)) % p;
            assert_eq!(u128::from(multiply_add61(a, x, b)), plain);
        }
        assert_eq!(mod61(PRIME61), 0);
        assert_eq!(mod61(u64::MAX), 7);
        assert_eq!(multiply_add61(PRIME61 - 1, PRIME61 - 1, PRIME61 - 1), 0);
    }

    /// Over many members, two keys that differ in one bit meet in one of 64 places as often as chance has
    /// it: 1/64 of 20,000 is 312, and five standard deviations are 88.
    #[test]
    fn families_are_universal() {
        let (x, y) = ([7u32, 1, 2, 3], [7u32, 1, 2, 2]);
        let (mut shift, mut prime) = (0, 0);
        for seed in 0..20_000u64 {
            let f = MultiplyShift::<4>::new(seed);
            shift += u32::from(to_range(f.hash(&x), 64) == to_range(f.hash(&y), 64));
            let g = Polynomial61::new(seed);
            prime += u32::from(g.hash(&x) % 64 == g.hash(&y) % 64);
        }
        for meetings in [shift, prime] {
            assert!(meetings.abs_diff(312) < 88, "{meetings} of 20000");
        }
    }
}
