//! Free ports of outside addresses.
//!
//! ```text
//!  Pool ─ address ─ TCP │ UDP │ ICMP ─ a bit for each port: 1,024 words of 64
//! ```
//!
//! Ports are divided into *classes*, a power of two of at most 64: the class of a port is its remainder. A worker takes
//! ports of the class of the inside host, so that the port of an answer says which worker the host belongs to
//! ([`crate::rules::Rules::frame_hash`]). In a word all ports of a class have the same bits, so that the search for a free
//! one is a mask and a count of zeros; it looks at 1,024 words at most.

use std::ops::RangeInclusive;

/// Words of a map of ports.
const WORDS: usize = 1024;

/// Protocols with a map of their own.
const MAPS: usize = 3;

/// The most classes.
pub const CLASSES_MAX: u32 = 64;

/// A class of ports: those whose remainder by `classes` is `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Below `classes`.
    pub number: u32,
    /// A power of two, at most [`CLASSES_MAX`].
    pub classes: u32,
}

impl Class {
    /// All ports.
    pub const ALL: Class = Class { number: 0, classes: 1 };

    /// Whether a port is of this class.
    pub const fn has(self, port: u16) -> bool {
        port as u32 & (self.classes - 1) == self.number
    }

    /// Bits of its ports in each word.
    const fn mask(self) -> u64 {
        let mut mask = 1u64 << self.number;
        let mut step = self.classes;
        while step < 64 {
            mask |= mask << step;
            step *= 2;
        }
        mask
    }
}

/// The ports of outside addresses in use.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Outside addresses, host order.
    addresses: Vec<u32>,
    maps: Vec<u64>,
    used: Vec<u32>,
}

/// The map of a protocol.
fn map_of(protocol: u8) -> usize {
    match packet::IpProtocol(protocol) {
        packet::IpProtocol::TCP => 0,
        packet::IpProtocol::UDP => 1,
        _ => 2,
    }
}

impl Pool {
    /// All ports of these addresses are free. Takes 24 KiB for each.
    pub fn new(addresses: Vec<u32>) -> Self {
        let maps = vec![0; addresses.len() * MAPS * WORDS];
        Self { used: vec![0; addresses.len()], addresses, maps }
    }

    /// Bytes of memory of a pool of so many addresses.
    pub const fn memory_bytes(addresses: usize) -> usize {
        addresses * (MAPS * WORDS * 8 + 8)
    }

    /// The addresses.
    pub fn addresses(&self) -> &[u32] {
        &self.addresses
    }

    /// Ports in use of address number `at`, of all protocols.
    pub fn used(&self, at: usize) -> u32 {
        self.used.get(at).copied().unwrap_or(0)
    }

    /// Another address in the place of number `at`: all its ports are free.
    pub fn replace(&mut self, at: usize, address: u32) {
        if let Some(place) = self.addresses.get_mut(at) {
            *place = address;
            self.used[at] = 0;
            self.maps[at * MAPS * WORDS..(at + 1) * MAPS * WORDS].fill(0);
        }
    }

    /// The place of an address.
    pub fn position(&self, address: u32) -> Option<usize> {
        self.addresses.iter().position(|own| *own == address)
    }

    fn map(&mut self, at: usize, protocol: u8) -> &mut [u64] {
        let first = (at * MAPS + map_of(protocol)) * WORDS;
        self.maps.get_mut(first..first + WORDS).unwrap_or_default()
    }

    /// Takes a free port of `class` within `range`: `wanted` if it is one, else the next one from `start` on, around the
    /// range. `is_free` may object, also to `wanted`. `None` if there is none.
    pub fn take(
        &mut self,
        at: usize,
        protocol: u8,
        range: &RangeInclusive<u16>,
        class: Class,
        [wanted, start]: [u16; 2],
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let (first, last) = (*range.start(), *range.end());
        let map = self.map(at, protocol);
        if map.is_empty() || first > last {
            return None;
        }
        let bit = |port: u16| 1u64 << (port & 63);
        let is_unused = |map: &[u64], port: u16| map[usize::from(port >> 6)] & bit(port) == 0;
        let found = if range.contains(&wanted)
            && class.has(wanted)
            && is_unused(map, wanted)
            && is_free(wanted)
        {
            Some(wanted)
        } else {
            let start = start.clamp(first, last);
            let ahead = next_free(map, class, start, last, &mut is_free);
            ahead.or_else(|| next_free(map, class, first, start, &mut is_free))
        };
        let port = found?;
        map[usize::from(port >> 6)] |= bit(port);
        self.used[at] += 1;
        Some(port)
    }

    /// Gives a port back.
    pub fn give(&mut self, address: u32, protocol: u8, port: u16) {
        let Some(at) = self.position(address) else { return };
        let word = &mut self.map(at, protocol)[usize::from(port >> 6)];
        let bit = 1u64 << (port & 63);
        if *word & bit != 0 {
            *word &= !bit;
            self.used[at] -= 1;
        }
    }
}

/// The first free port of a class from `first` to `last` that nobody objects to.
fn next_free(
    map: &[u64],
    class: Class,
    first: u16,
    last: u16,
    is_free: &mut impl FnMut(u16) -> bool,
) -> Option<u16> {
    for word in first >> 6..=last >> 6 {
        let mut free = !map[usize::from(word)] & class.mask();
        if word == first >> 6 {
            free &= u64::MAX << (first & 63);
        }
        if word == last >> 6 {
            free &= u64::MAX >> (63 - (last & 63));
        }
        while free != 0 {
            let port = word << 6 | free.trailing_zeros() as u16;
            if is_free(port) {
                return Some(port);
            }
            free &= free - 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by looking at one port after the other.
    fn plain(
        used: &[bool],
        range: &RangeInclusive<u16>,
        class: Class,
        [wanted, start]: [u16; 2],
    ) -> Option<u16> {
        let is_free = |port: &u16| !used[usize::from(*port)] && class.has(*port);
        if range.contains(&wanted) && is_free(&wanted) {
            return Some(wanted);
        }
        let start = start.clamp(*range.start(), *range.end());
        (start..=*range.end()).chain(*range.start()..=start).find(is_free)
    }

    proptest! {
        #[test]
        fn it_takes_what_a_plain_search_takes(
            first: u16, len in 0u16..400, log in 0u32..7, number: u32,
            steps in prop::collection::vec((any::<u16>(), any::<u16>(), any::<bool>()), 1..300),
        ) {
            let range = first..=first.saturating_add(len);
            let class = Class { classes: 1 << log, number: number & ((1 << log) - 1) };
            let mut pool = Pool::new(vec![1, 2]);
            let mut used = vec![false; 65_536];
            for (a, b, gives) in steps {
                if gives {
                    let port = range.start().saturating_add(a % (len + 1));
                    pool.give(2, 17, port);
                    used[usize::from(port)] = false;
                } else {
                    let ends = [first.saturating_add(a % (len + 3)), b];
                    let port = pool.take(1, 17, &range, class, ends, |_| true);
                    prop_assert_eq!(port, plain(&used, &range, class, ends));
                    if let Some(port) = port {
                        used[usize::from(port)] = true;
                    }
                }
                prop_assert_eq!(pool.used(1) as usize, used.iter().filter(|used| **used).count());
            }
            prop_assert_eq!(pool.used(0), 0);
        }
    }

    #[test]
    fn a_port_that_somebody_objects_to_is_passed_over() {
        let mut pool = Pool::new(vec![9]);
        let taken = pool.take(0, 6, &(80..=82), Class::ALL, [80, 80], |port| port > 80);
        assert_eq!(taken, Some(81));
        assert_eq!(pool.take(0, 6, &(80..=82), Class::ALL, [80, 80], |port| port < 82), Some(80));
        assert_eq!(pool.take(0, 6, &(80..=82), Class::ALL, [80, 80], |port| port < 82), None);
        // Another protocol has ports of its own.
        assert_eq!(pool.take(0, 1, &(80..=80), Class::ALL, [0, 0], |_| true), Some(80));
    }
}
