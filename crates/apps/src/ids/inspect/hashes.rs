//! Hashes of flows and of hosts.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

/// Hashes numbers of flows, which are hashes themselves, by a few instructions and a seed that nobody knows.
#[derive(Clone, Copy)]
pub(super) struct Mixed(pub(super) u64);

impl BuildHasher for Mixed {
    type Hasher = MixedHasher;

    fn build_hasher(&self) -> MixedHasher {
        MixedHasher(self.0)
    }
}

pub(super) struct MixedHasher(u64);

impl Hasher for MixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = chunk::hash::key64(number, self.0);
    }
}

/// Of two addresses in this order.
pub(super) fn address_hash(a: IpAddr, b: IpAddr) -> u64 {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(own) => u128::from(own.to_bits()),
        IpAddr::V6(own) => own.to_bits(),
    };
    let both = [bits(a), bits(b)];
    both.iter().fold(0, |hash, own| {
        let low = chunk::hash::key64(*own as u64, hash);
        chunk::hash::key64((*own >> 64) as u64, low)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_both_addresses_is_in_their_hash() {
        let addresses = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db9::1"]
            .map(|text| text.parse::<IpAddr>().unwrap());
        let pairs = addresses.iter().flat_map(|a| addresses.iter().map(move |b| (*a, *b)));
        let hashes: std::collections::HashSet<_> = pairs.map(|(a, b)| address_hash(a, b)).collect();
        assert_eq!(hashes.len(), addresses.len() * addresses.len());
    }
}
