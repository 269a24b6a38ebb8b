//! The addresses of all interfaces, to recognise packets that claim to come from the router itself.
//!
//! Nearly no packet does, so a set of bits by hash comes first: at least sixteen for each address, of which each address
//! sets one. A packet whose bit is not set, fifteen of sixteen at most, needs no search.
//!
//! Link-local addresses are not among them: they belong to one link, and another link may have the same.

use super::records::Interface;
use crate::Key6;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnAddresses {
    /// Sorted.
    v4: Vec<u32>,
    v6: Vec<Key6>,
    /// A power of two of words; none where there are no addresses.
    marks: Vec<u64>,
}

/// Bits of the set for each address.
const BITS: usize = 16;

impl OwnAddresses {
    /// Those of these interfaces.
    pub fn of(interfaces: &[Option<Interface>]) -> Self {
        let all = || interfaces.iter().flatten();
        let v4 = all().flat_map(|own| own.addresses4.iter().map(|own| own.0));
        let mut v4: Vec<u32> = v4.filter(|address| address >> 16 != 0xa9fe).collect();
        let v6 = all().flat_map(|own| own.addresses6.iter().map(|own| own.0));
        let mut v6: Vec<Key6> = v6.filter(|address| address[0] >> 54 != 0xfe80 >> 6).collect();
        v4.sort_unstable();
        v4.dedup();
        v6.sort_unstable();
        v6.dedup();
        let words = match v4.len() + v6.len() {
            0 => 0,
            n => (n * BITS).div_ceil(64).next_power_of_two(),
        };
        let mut own = Self { v4, v6, marks: vec![0; words] };
        let hashes = own.v4.iter().map(|address| hash4(*address));
        let hashes: Vec<u64> = hashes.chain(own.v6.iter().map(|address| hash6(*address))).collect();
        for hash in hashes {
            let at = own.place(hash);
            own.marks[at] |= 1 << (hash & 63);
        }
        own
    }

    /// Whether an IPv4 address, in host order, is one of them.
    #[inline]
    pub fn has4(&self, address: u32) -> bool {
        self.is_marked(hash4(address)) && self.v4.binary_search(&address).is_ok()
    }

    /// Whether an IPv6 address is one of them.
    #[inline]
    pub fn has6(&self, address: Key6) -> bool {
        self.is_marked(hash6(address)) && self.v6.binary_search(&address).is_ok()
    }

    #[inline]
    fn is_marked(&self, hash: u64) -> bool {
        self.marks.get(self.place(hash)).is_some_and(|word| word >> (hash & 63) & 1 != 0)
    }

    /// The word of a hash; beyond the end where there is none.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> 6) as usize & self.marks.len().wrapping_sub(1)
    }
}

/// Fibonacci hashing (Knuth 6.4): the upper half of a product.
#[inline]
const fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[inline]
const fn hash4(address: u32) -> u64 {
    hash(address as u64)
}

#[inline]
const fn hash6(address: Key6) -> u64 {
    hash(address[0].rotate_left(29) ^ address[1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interface(v4: Vec<u32>, v6: Vec<Key6>) -> Interface {
        Interface {
            addresses4: v4.into_iter().map(|address| (address, 24)).collect(),
            addresses6: v6.into_iter().map(|address| (address, 64)).collect(),
            ..Interface::default()
        }
    }

    proptest! {
        /// Against a list.
        #[test]
        fn an_address_is_own_where_a_list_has_it(
            v4 in prop::collection::vec(prop::collection::vec(prop_oneof![0..64u32, any::<u32>()], 0..40), 0..4),
            v6 in prop::collection::vec(prop_oneof![(0..4u64, 0..16u64), any::<(u64, u64)>()], 0..40),
            others in prop::collection::vec(any::<(u64, u64)>(), 0..20),
        ) {
            let v6: Vec<Key6> = v6.into_iter().map(|(high, low)| [high, low]).collect();
            let mut records: Vec<_> =
                v4.iter().map(|own| Some(interface(own.clone(), Vec::new()))).collect();
            records.push(None);
            records.push(Some(interface(Vec::new(), v6.clone())));
            let own = OwnAddresses::of(&records);
            let v4: Vec<u32> = v4.concat();
            for address in v4.iter().copied().chain(0..80).chain(others.iter().map(|o| o.0 as u32)) {
                prop_assert_eq!(own.has4(address), v4.contains(&address) && address >> 16 != 0xa9fe);
            }
            let small = (0..5).flat_map(|high| (0..20).map(move |low| [high, low]));
            let others = others.into_iter().map(|(high, low)| [high, low]);
            for address in v6.iter().copied().chain(small).chain(others) {
                let expected = v6.contains(&address) && address[0] >> 54 != 0xfe80 >> 6;
                prop_assert_eq!(own.has6(address), expected);
            }
        }
    }

    #[test]
    fn link_local_addresses_are_nobodys_alone() {
        let own = OwnAddresses::of(&[Some(interface(
            vec![0xa9fe_0101, 0x0a00_0001],
            vec![[0xfe80 << 48, 1], [0x2001_0db8 << 32, 1]],
        ))]);
        assert!(own.has4(0x0a00_0001) && own.has6([0x2001_0db8 << 32, 1]));
        assert!(!own.has4(0xa9fe_0101) && !own.has6([0xfe80 << 48, 1]));
        assert!(!OwnAddresses::default().has4(0) && !OwnAddresses::of(&[None]).has6([0; 2]));
    }
}
