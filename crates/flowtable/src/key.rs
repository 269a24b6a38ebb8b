//! The flow key: every field that a flow can match, as 32 words.
//!
//! ```text
//! word  0–1   metadata                      11–14  source address: IPv6, IPv4 or ARP's in word 14
//!       2–3   tunnel identifier             15–18  destination address, likewise
//!       4     port of entry                 19–22  target of neighbour discovery
//!       5–6½  MAC destination               23–25  MACs of ARP (sender, target) or of neighbour discovery
//!       6½–8  MAC source, EtherType, tag    26     IPv6 extension headers, flow label
//!       9     protocol, DSCP, ECN, ARP op   27     MPLS label, class, bottom
//!       10    ports, or ICMP type and code  28     service of PBB        29  physical port
//! ```
//!
//! Fields that no packet has together share a place: the prerequisites of a match (EtherType, protocol) say whose it is, and
//! they are part of the key. A field that a packet lacks is zero. So a match is a value and a mask over the words, and a key
//! matches if `key & mask == value`.
//!
//! The same words are the header of the classifiers: of those that the flows of a table look at (`table`).

use openflow::Field;

/// Words of a key.
pub const WORDS: usize = 32;

/// One packet's fields, in host order, the first field in the highest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub [u32; WORDS]);

impl Default for Key {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

/// Where a field is: `bits` bits from bit `bit` of the key, the highest bit of word 0 being bit 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    bit: u16,
    bits: u16,
}

impl Place {
    const fn new(word: u16, offset: u16, bits: u16) -> Self {
        Self { bit: word * 32 + offset, bits }
    }

    /// Bits of the field.
    pub const fn bits(self) -> u16 {
        self.bits
    }

    /// The largest value.
    pub const fn max(self) -> u128 {
        if self.bits >= 128 { u128::MAX } else { (1 << self.bits) - 1 }
    }
}

/// The places of fields, as the picture above has them.
pub(crate) mod place {
    use super::Place;

    pub(crate) const METADATA: Place = Place::new(0, 0, 64);
    pub(crate) const TUNNEL_ID: Place = Place::new(2, 0, 64);
    pub(crate) const IN_PORT: Place = Place::new(4, 0, 32);
    pub(crate) const ETH_DST: Place = Place::new(5, 0, 48);
    pub(crate) const ETH_SRC: Place = Place::new(6, 16, 48);
    pub(crate) const ETH_TYPE: Place = Place::new(8, 0, 16);
    pub(crate) const VLAN_VID: Place = Place::new(8, 16, 13);
    pub(crate) const VLAN_PCP: Place = Place::new(8, 29, 3);
    pub(crate) const IP_PROTO: Place = Place::new(9, 0, 8);
    pub(crate) const IP_DSCP: Place = Place::new(9, 8, 6);
    pub(crate) const IP_ECN: Place = Place::new(9, 14, 2);
    pub(crate) const ARP_OP: Place = Place::new(9, 16, 16);
    pub(crate) const L4_FIRST: Place = Place::new(10, 0, 16);
    pub(crate) const L4_SECOND: Place = Place::new(10, 16, 16);
    pub(crate) const SRC: Place = Place::new(11, 0, 128);
    pub(crate) const DST: Place = Place::new(15, 0, 128);
    pub(crate) const SRC_V4: Place = Place::new(14, 0, 32);
    pub(crate) const DST_V4: Place = Place::new(18, 0, 32);
    pub(crate) const ND_TARGET: Place = Place::new(19, 0, 128);
    pub(crate) const SENDER_MAC: Place = Place::new(23, 0, 48);
    pub(crate) const TARGET_MAC: Place = Place::new(24, 16, 48);
    pub(crate) const IPV6_EXTHDR: Place = Place::new(26, 0, 9);
    pub(crate) const IPV6_FLABEL: Place = Place::new(26, 12, 20);
    pub(crate) const MPLS_LABEL: Place = Place::new(27, 0, 20);
    pub(crate) const MPLS_TC: Place = Place::new(27, 20, 3);
    pub(crate) const MPLS_BOS: Place = Place::new(27, 23, 1);
    pub(crate) const PBB_ISID: Place = Place::new(28, 0, 24);
    pub(crate) const IN_PHY_PORT: Place = Place::new(29, 0, 32);
}

impl Key {
    /// The value at a place.
    pub fn get(&self, place: Place) -> u128 {
        let (first, end) = (usize::from(place.bit) / 32, usize::from(place.bit + place.bits));
        let words = &self.0[first..end.div_ceil(32)];
        // No field spans five words: those of 128 bits begin with a word.
        let value = words.iter().fold(0, |value, word| value << 32 | u128::from(*word));
        (value >> (end.next_multiple_of(32) - end)) & place.max()
    }

    /// Sets the value at a place; bits above its length are left out.
    pub fn set(&mut self, place: Place, value: u128) {
        let (begin, mut end) = (usize::from(place.bit), usize::from(place.bit + place.bits));
        let mut rest = value & place.max();
        while end > begin {
            let word = (end - 1) / 32;
            let start = begin.max(word * 32);
            let (bits, shift) = (end - start, (word + 1) * 32 - end);
            let mask = (u64::MAX >> (64 - bits)) as u32;
            self.0[word] = self.0[word] & !(mask << shift) | (rest as u32 & mask) << shift;
            rest >>= bits;
            end = start;
        }
    }

    /// The bits of both.
    pub fn and(&self, mask: &Key) -> Key {
        let mut out = *self;
        out.0.iter_mut().zip(&mask.0).for_each(|(word, mask)| *word &= mask);
        out
    }

    /// Whether the bits under `mask` are those of `value`, which has no others.
    pub fn matches(&self, value: &Key, mask: &Key) -> bool {
        let words = self.0.iter().zip(&value.0).zip(&mask.0);
        words.fold(0, |other, ((own, value), mask)| other | (own & mask) ^ value) == 0
    }
}

/// Where a field is in a key.
pub const fn place_of(field: Field) -> Place {
    match field {
        Field::InPort => place::IN_PORT,
        Field::InPhyPort => place::IN_PHY_PORT,
        Field::Metadata => place::METADATA,
        Field::TunnelId => place::TUNNEL_ID,
        Field::EthDst => place::ETH_DST,
        Field::EthSrc => place::ETH_SRC,
        Field::EthType => place::ETH_TYPE,
        Field::VlanVid => place::VLAN_VID,
        Field::VlanPcp => place::VLAN_PCP,
        Field::IpDscp => place::IP_DSCP,
        Field::IpEcn => place::IP_ECN,
        Field::IpProto => place::IP_PROTO,
        Field::Ipv4Src | Field::ArpSpa => place::SRC_V4,
        Field::Ipv4Dst | Field::ArpTpa => place::DST_V4,
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => place::L4_FIRST,
        Field::TcpDst | Field::UdpDst | Field::SctpDst => place::L4_SECOND,
        Field::Icmpv4Type | Field::Icmpv6Type => place::L4_FIRST,
        Field::Icmpv4Code | Field::Icmpv6Code => place::L4_SECOND,
        Field::ArpOp => place::ARP_OP,
        Field::ArpSha | Field::Ipv6NdSll => place::SENDER_MAC,
        Field::ArpTha | Field::Ipv6NdTll => place::TARGET_MAC,
        Field::Ipv6Src => place::SRC,
        Field::Ipv6Dst => place::DST,
        Field::Ipv6Flabel => place::IPV6_FLABEL,
        Field::Ipv6NdTarget => place::ND_TARGET,
        Field::MplsLabel => place::MPLS_LABEL,
        Field::MplsTc => place::MPLS_TC,
        Field::MplsBos => place::MPLS_BOS,
        Field::PbbIsid => place::PBB_ISID,
        Field::Ipv6Exthdr => place::IPV6_EXTHDR,
    }
}

/// A match as words: the bits that count and their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Words {
    /// Values; zero outside the mask.
    pub value: Key,
    /// The bits that count.
    pub mask: Key,
}

impl Words {
    /// The words of a match. Its prerequisites have been checked ([`openflow::Match::check`]), so no two of its fields share a
    /// place.
    pub fn of(matches: &openflow::Match) -> Self {
        let mut words = Self::default();
        for field in matches.fields() {
            let place = place_of(field.field);
            words.value.set(place, field.value & field.mask);
            words.mask.set(place, field.mask);
        }
        words
    }

    /// Whether a key matches.
    pub fn takes(&self, key: &Key) -> bool {
        key.matches(&self.value, &self.mask)
    }

    /// Every key that this takes is also taken by `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        let words = self.mask.0.iter().zip(&other.mask.0);
        let more = words.fold(0, |more, (own, other)| more | (other & !own));
        more == 0 && self.value.matches(&other.value, &other.mask)
    }

    /// Some key is taken by both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let both = self.mask.and(&other.mask);
        self.value.and(&both) == other.value.and(&both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_set_and_places_are_apart() {
        for field in Field::ALL {
            let place = place_of(field);
            // ICMP's type and code are where ports of twice their length are.
            assert!(u32::from(place.bits()) >= field.bits(), "{field}");
            for value in [field.full(), 1, 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe] {
                let mut key = Key::default();
                key.set(place, value & field.full());
                assert_eq!(key.get(place), value & field.full(), "{field}");
                let mut full = Key([u32::MAX; WORDS]);
                full.set(place, 0);
                let zeros: u32 = full.0.iter().map(|word| word.count_zeros()).sum();
                assert_eq!((full.get(place), zeros), (0, place.bits().into()), "{field}");
            }
        }
    }
}
