//! 802.1Q and 802.1ad tags: 4 bytes behind the source address, the second half of which is the
//! EtherType of what follows.

use crate::EtherType;
use crate::bytes::be16;

/// Bytes of a tag, counted without the tag protocol identifier before it.
pub const TAG_LEN: usize = 4;

/// What follows a tag protocol identifier.
#[derive(Clone, Copy, Debug)]
pub struct VlanView<'a> {
    tag: &'a [u8; TAG_LEN],
    payload: &'a [u8],
}

impl<'a> VlanView<'a> {
    /// `bytes` start behind the tag protocol identifier; `None` below 4 bytes.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (tag, payload) = bytes.split_first_chunk()?;
        Some(VlanView { tag, payload })
    }

    /// Tag control information: priority 3 bits, DEI 1, identifier 12.
    pub fn tci(&self) -> u16 {
        be16(self.tag, 0)
    }

    /// VLAN identifier, 12 bits.
    pub fn id(&self) -> u16 {
        self.tci() & 0xfff
    }

    /// Priority code point, 3 bits.
    pub fn priority(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// Drop eligible.
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// EtherType of the payload.
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.tag, 2))
    }

    /// Everything behind the tag.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Tag control information of priority (0 to 7), drop eligibility and identifier (0 to 4095).
pub const fn tci(priority: u8, dei: bool, id: u16) -> u16 {
    ((priority as u16 & 7) << 13) | ((dei as u16) << 12) | (id & 0xfff)
}
