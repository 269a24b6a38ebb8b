//! The hash of a key: the index and its tags are taken from it.
//!
//! NH, the universal family of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway: "UMAC: Fast and Secure Message
//! Authentication", CRYPTO 1999), over words of 64 bits: for two different keys, the sums of 128 bits are equal with
//! probability 2^-64 at most, over the choice of the seed. [`chunk::hash::key128`] mixes the sum, because the low bits of
//! a sum of products are no good as a tag.
//!
//! ```text
//! w = first address (2 words) │ second address (2 words) │ ports, scope │ protocol, family, tunnels
//! sum = (w0 + k0)(w1 + k1) + (w2 + k2)(w3 + k3) + (w4 + k4)(w5 + k5)      terms modulo 2^64, sum modulo 2^128
//! ```
//!
//! Five multiplications and no branch: keys of both families cost the same.

use chunk::hash;

use crate::FlowKey;

/// A member of the family.
#[derive(Clone, Debug)]
pub(super) struct KeyHash {
    k: [u64; 6],
    seed: u64,
}

impl KeyHash {
    /// The member that a seed names.
    pub(super) fn new(seed: u64) -> Self {
        let k = std::array::from_fn(|i| hash::parameter(seed, i as u32));
        Self { k, seed: hash::parameter(seed, 6) }
    }

    /// 64 good bits of a key.
    #[inline(always)]
    pub(super) fn of(&self, key: &FlowKey) -> u64 {
        let [a, b] = key.addresses;
        let [p, q] = key.ports;
        let ends = u64::from(p) | u64::from(q) << 16 | u64::from(key.scope) << 32;
        let tunnels = u64::from(key.tunnels) << 16 | u64::from(key.tunnel_id) << 32;
        let kind = u64::from(key.protocol) | u64::from(key.family) << 8 | tunnels;
        let product = |x: u64, y: u64, at: usize| {
            let (x, y) = (x.wrapping_add(self.k[at]), y.wrapping_add(self.k[at + 1]));
            u128::from(x) * u128::from(y)
        };
        let sum = product(a[0], a[1], 0)
            .wrapping_add(product(b[0], b[1], 2))
            .wrapping_add(product(ends, kind, 4));
        hash::key128([sum as u64, (sum >> 64) as u64], self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that differ in one bit, for each meaningful bit: their buckets of 64 and their tags of 6 bits meet as often
    /// as chance has it. 1/64 of 4,000 is 62; five standard deviations are 39.
    #[test]
    fn each_bit_counts() {
        let key = FlowKey::new(([0, 0x0a00_0001], 40_000), ([0, 0x0a00_0002], 80), 6, 4, 0).0;
        let flipped = |bit: usize| {
            let mut other = key;
            match bit {
                0..256 => other.addresses[bit / 128][bit / 64 % 2] ^= 1 << (bit % 64),
                256..288 => other.ports[(bit - 256) / 16] ^= 1 << (bit % 16),
                288..320 => other.scope ^= 1 << (bit - 288),
                320..328 => other.protocol ^= 1 << (bit - 320),
                328..336 => other.family ^= 1 << (bit - 328),
                336..352 => other.tunnels ^= 1 << (bit - 336),
                _ => other.tunnel_id ^= 1 << (bit - 352),
            }
            other
        };
        for other in (0..384).map(flipped) {
            let (mut high, mut low) = (0u32, 0u32);
            for seed in 0..4_000 {
                let member = KeyHash::new(seed);
                let (x, y) = (member.of(&key), member.of(&other));
                high += u32::from(x >> 58 == y >> 58);
                low += u32::from(x & 63 == y & 63);
            }
            for meetings in [high, low] {
                assert!(meetings.abs_diff(62) < 39, "{meetings} of 4000: {other:?}");
            }
        }
    }

    /// Neighbouring addresses and ports, as networks have them, spread over buckets as random keys do.
    #[test]
    fn neighbours_spread() {
        let member = KeyHash::new(7);
        let mut buckets = [0u32; 1024];
        for host in 0..64 {
            for port in 0..160 {
                let ends = (([0, 0x0a00_0000 + host], 1024 + port), ([0, 0xc0a8_0001], 443));
                let key = FlowKey::new(ends.0, ends.1, 6, 4, 0).0;
                buckets[(member.of(&key) >> 54) as usize] += 1;
            }
        }
        // Poisson with mean 10: more than 30 in any of 1,024 is a matter of 10^-4.
        assert!(buckets.iter().all(|n| *n <= 30), "{:?}", buckets.iter().max());
    }
}
