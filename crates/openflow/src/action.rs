//! Actions and instructions of both versions in one set.

use crate::error::ErrorCode;
use crate::field::Field;
use crate::port::PortNo;

/// OUTPUT to the controller with this length: the whole packet, not buffered (`OFPCML_NO_BUFFER`).
pub const NO_BUFFER: u16 = 0xffff;

/// An action. Those of OpenFlow 1.0 that are special cases of 1.3's are mapped onto them: STRIP_VLAN is [`Action::PopVlan`],
/// SET_DL_SRC, SET_NW_SRC and so on are [`Action::SetField`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// To a port, ordinary or reserved.
    Output {
        /// The port.
        port: PortNo,
        /// To the controller: bytes of the packet in PACKET_IN; [`NO_BUFFER`]: all of it.
        max_len: u16,
    },
    /// Sets a field. The value is in the low bits; of VLAN_VID it has `VLAN_PRESENT`.
    SetField(Field, u128),
    /// Adds a VLAN tag of this Ethernet type (0x8100, 0x88a8) in front of all others.
    PushVlan(u16),
    /// Removes the first VLAN tag; an untagged packet stays as it is.
    PopVlan,
    /// Adds an MPLS entry; the Ethernet type becomes 0x8847 or 0x8848.
    PushMpls(u16),
    /// Removes the first MPLS entry; the Ethernet type becomes this one.
    PopMpls(u16),
    /// Adds a PBB service tag of this Ethernet type (0x88e7).
    PushPbb(u16),
    /// Removes the PBB service tag.
    PopPbb,
    /// Copies the TTL from the second to the first header with one.
    CopyTtlOut,
    /// Copies the TTL from the first to the second header with one.
    CopyTtlIn,
    /// Sets the TTL of the first MPLS entry.
    SetMplsTtl(u8),
    /// Decrements the TTL of the first MPLS entry; a packet whose TTL ends goes to the controller (INVALID_TTL).
    DecMplsTtl,
    /// Sets the IPv4 TTL or the IPv6 hop limit.
    SetNwTtl(u8),
    /// Decrements the IPv4 TTL or the IPv6 hop limit; a packet whose TTL ends goes to the controller (INVALID_TTL).
    DecNwTtl,
    /// Through a group.
    Group(u32),
    /// The queue of the port that a later OUTPUT sends to.
    SetQueue(u32),
    /// 1.0: to a queue of a port; SET_QUEUE and OUTPUT in one.
    Enqueue {
        /// The port: ordinary or IN_PORT.
        port: PortNo,
        /// The queue of that port.
        queue: u32,
    },
    /// 1.0: sets the VLAN identifier (12 bits); adds a tag where there is none.
    SetVlanVid(u16),
    /// 1.0: sets the VLAN priority (3 bits); adds a tag with identifier 0 where there is none.
    SetVlanPcp(u8),
    /// 1.0: sets the source port of TCP, UDP or SCTP, whichever the packet is.
    SetTpSrc(u16),
    /// 1.0: sets the destination port of TCP, UDP or SCTP, whichever the packet is.
    SetTpDst(u16),
    /// Of an experimenter (1.0: vendor); no switch of this crate carries one out.
    Experimenter {
        /// Who: an OUI or a number from the ONF.
        id: u32,
        /// What follows, whole.
        data: Vec<u8>,
    },
}

impl Action {
    /// OUTPUT to a port.
    pub const fn output(port: PortNo) -> Self {
        Self::Output { port, max_len: 0 }
    }

    /// OUTPUT to the controller with `max_len` bytes of the packet.
    pub const fn controller(max_len: u16) -> Self {
        Self::Output { port: PortNo::CONTROLLER, max_len }
    }

    /// What it is refused with where it is not known: the code for its type where messages of its experimenter are known.
    pub const fn refusal(&self) -> ErrorCode {
        match self {
            Self::Experimenter { id: crate::wire::NICIRA | crate::wire::ONF, .. } => {
                ErrorCode::BadActionExperimenterType
            }
            _ => ErrorCode::BadActionExperimenter,
        }
    }
}

/// What a flow does with a packet, in order of the wire. A flow of 1.0 is one [`Instruction::ApplyActions`], or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Goes on in a later table.
    GotoTable(u8),
    /// Sets bits of the metadata.
    WriteMetadata {
        /// New bits.
        value: u64,
        /// The bits that change.
        mask: u64,
    },
    /// Adds actions to the action set; of each kind the latest stays.
    WriteActions(Vec<Action>),
    /// Carries actions out at once, in order.
    ApplyActions(Vec<Action>),
    /// Empties the action set.
    ClearActions,
    /// Through a meter, before anything else.
    Meter(u32),
    /// Of an experimenter.
    Experimenter {
        /// Who.
        id: u32,
        /// What follows, whole.
        data: Vec<u8>,
    },
}

/// OpenFlow 1.3's number of an action: the bit in masks of 1.3, the type in ids of TABLE_FEATURES.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionKind(pub u16);

impl ActionKind {
    /// Every action of 1.3 but EXPERIMENTER, with the name that ovs-ofctl prints.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self(0), "output"),
        (Self(11), "copy_ttl_out"),
        (Self(12), "copy_ttl_in"),
        (Self(15), "set_mpls_ttl"),
        (Self(16), "dec_mpls_ttl"),
        (Self(17), "push_vlan"),
        (Self(18), "strip_vlan"),
        (Self(19), "push_mpls"),
        (Self(20), "pop_mpls"),
        (Self(21), "set_queue"),
        (Self(22), "group"),
        (Self(23), "set_nw_ttl"),
        (Self(24), "dec_ttl"),
        (Self(25), "set_field"),
        (Self(26), "push_pbb"),
        (Self(27), "pop_pbb"),
    ];
}
