//! Flows without wildcards: one hash table over the whole key (PacketShader §6.2.3).
//!
//! A flow is *exact* if it gives a value for all twelve fields of OpenFlow 1.0 that a packet of its kind has: port of entry,
//! MACs, EtherType, tag; for IPv4 addresses, protocol and DSCP; for ARP addresses and operation; for TCP, UDP, SCTP and ICMP
//! both halves of what stands first there. Which bits those are follows from the EtherType alone ([`shape`]), so a packet is
//! hashed once, and over nine words ([`ExactKey`]). The table probes linearly; a slot is the hash and the number of the flow, so
//! that another flow's record is read once in four billion.

use chunk::hash::MultiplyShift;
use interleave::prefetch;

use crate::key::{Key, WORDS, Words, place};

/// The bits of one word from `from` on, `bits` of them.
const fn bits(from: u32, bits: u32) -> u32 {
    ((1u64 << bits) - 1) as u32 * (1 << (32 - from - bits))
}

const LINK: Key = {
    let mut key = Key([0; WORDS]);
    (key.0[4], key.0[5], key.0[6], key.0[7], key.0[8]) = (!0, !0, !0, !0, !0);
    key
};
const ARP: Key = {
    let mut key = LINK;
    (key.0[9], key.0[14], key.0[18]) = (bits(16, 16), !0, !0);
    key
};
const IPV4: Key = {
    let mut key = LINK;
    (key.0[9], key.0[10], key.0[14], key.0[18]) = (bits(0, 14), !0, !0, !0);
    key
};
const IPV6: Key = {
    let mut key = LINK;
    (key.0[9], key.0[10]) = (bits(0, 14), !0);
    key
};

/// The bits of a key that an exact flow gives: by the EtherType. All are in the words of an [`ExactKey`].
pub fn shape(key: &Key) -> &'static Key {
    match key.get(place::ETH_TYPE) {
        0x0800 => &IPV4,
        0x86dd => &IPV6,
        0x0806 => &ARP,
        _ => &LINK,
    }
}

/// Whether a match is exact. Bits that no packet of its kind has may be left out: they are zero in the key of such a packet.
pub fn is_exact(words: &Words) -> bool {
    let shape = shape(&words.value);
    let mut mask = words.mask;
    if matches!(words.value.get(place::IP_PROTO), 1 | 58) && mask.0[10] == 0x00ff_00ff {
        mask.0[10] = shape.0[10];
    }
    let ports = matches!(words.value.get(place::IP_PROTO), 1 | 6 | 17 | 58 | 132);
    if !ports && words.value.0[10] == 0 {
        mask.0[10] = shape.0[10];
    }
    if words.mask.get(place::VLAN_VID) == place::VLAN_VID.max()
        && words.value.get(place::VLAN_VID) == 0
    {
        mask.set(place::VLAN_PCP, place::VLAN_PCP.max());
    }
    mask == *shape
}

const FREE: u64 = u64::MAX;
const GONE: u64 = u64::MAX - 1;

/// The words of a [`Key`] that exact flows give.
const PLACES: [usize; 9] = [4, 5, 6, 7, 8, 9, 10, 14, 18];

/// A key under its shape: the words that an exact flow may give ([`shape`]); all others are zero.
pub type ExactKey = [u32; PLACES.len()];

#[inline]
const fn compact(key: &Key) -> ExactKey {
    let mut words = [0; PLACES.len()];
    let mut at = 0;
    while at < PLACES.len() {
        words[at] = key.0[PLACES[at]];
        at += 1;
    }
    words
}

/// The key of a packet, or of an exact flow's values, as exact flows have it.
#[inline]
pub fn exact_key(key: &Key) -> ExactKey {
    const SHAPES: [ExactKey; 4] = [compact(&IPV4), compact(&IPV6), compact(&ARP), compact(&LINK)];
    let shape = match key.0[8] >> 16 {
        0x0800 => &SHAPES[0],
        0x86dd => &SHAPES[1],
        0x0806 => &SHAPES[2],
        _ => &SHAPES[3],
    };
    // Each word once: words that are written one by one and read as a vector would be waited for.
    std::array::from_fn(|at| key.0[PLACES[at]] & shape[at])
}

/// From keys to numbers of flows.
#[derive(Clone, Debug)]
pub struct ExactTable {
    hash: MultiplyShift<{ PLACES.len() }>,
    /// A power of two, at least twice the flows and removed ones.
    slots: Vec<u64>,
    len: usize,
    /// Slots that are not free.
    used: usize,
}

impl ExactTable {
    /// An empty table. `seed`: unknown to senders.
    pub fn new(seed: u64) -> Self {
        Self { hash: MultiplyShift::new(seed), slots: Vec::new(), len: 0, used: 0 }
    }

    /// Flows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory, bytes.
    pub fn len_bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>()
    }

    /// The hash of a key, for [`ExactTable::candidate`] and [`ExactTable::get`]; the place where the search begins is on its way
    /// to the cache then.
    #[inline]
    pub fn hash(&self, key: &ExactKey) -> u32 {
        let hash = self.hash.hash(key);
        if let Some(slot) = self.slots.get(hash as usize & self.slots.len().wrapping_sub(1)) {
            prefetch(slot);
        }
        hash
    }

    /// The number of the first flow with this hash: whose record is worth loading.
    #[inline]
    pub fn candidate(&self, hash: u32) -> Option<u32> {
        self.get(hash, |_| true)
    }

    /// The flow of a key with this hash; `same` says whether the key of a number is this one.
    #[inline]
    pub fn get(&self, hash: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == FREE {
                return None;
            }
            if slot != GONE && (slot >> 32) as u32 == hash && same(slot as u32) {
                return Some(slot as u32);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds the flow of a key that is not there; `key_of` gives the keys of the others, should the table grow.
    pub fn insert(&mut self, key: &ExactKey, id: u32, key_of: impl Fn(u32) -> ExactKey) {
        if 2 * (self.used + 1) > self.slots.len() {
            let kept: Vec<u32> =
                self.slots.iter().filter(|slot| **slot < GONE).map(|slot| *slot as u32).collect();
            self.slots = vec![FREE; (4 * (kept.len() + 1)).next_power_of_two().max(16)];
            (self.len, self.used) = (0, 0);
            kept.into_iter().for_each(|id| self.put(&key_of(id), id));
        }
        self.put(key, id);
    }

    fn put(&mut self, key: &ExactKey, id: u32) {
        let hash = self.hash.hash(key);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] < GONE {
            at = (at + 1) & mask;
        }
        self.used += usize::from(self.slots[at] == FREE);
        // A hash of all ones and the highest number would look like a free slot; numbers are far below.
        self.slots[at] = u64::from(hash) << 32 | u64::from(id);
        self.len += 1;
    }

    /// Takes the flow of a key away.
    pub fn remove(&mut self, key: &ExactKey, id: u32) {
        if self.slots.is_empty() {
            return;
        }
        let hash = self.hash.hash(key);
        let mask = self.slots.len() - 1;
        let (mut at, wanted) = (hash as usize & mask, u64::from(hash) << 32 | u64::from(id));
        while self.slots[at] != FREE {
            if self.slots[at] == wanted {
                self.slots[at] = GONE;
                self.len -= 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_exact_key_are_those_of_its_shape() {
        for ethertype in [0x0800, 0x86dd, 0x0806, 0x8847, 0] {
            let mut key = Key([u32::MAX; WORDS]);
            key.set(place::ETH_TYPE, ethertype);
            let masked = key.and(shape(&key));
            assert_eq!(exact_key(&key), compact(&masked), "{ethertype:04x}");
            let mut rest = masked;
            PLACES.iter().for_each(|word| rest.0[*word] = 0);
            assert_eq!(rest, Key::default(), "{ethertype:04x}: all words are kept");
        }
    }
}
