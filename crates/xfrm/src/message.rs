//! Messages of NETLINK_XFRM: a fixed structure, and attributes behind it.
//!
//! ```text
//!  nlmsghdr 16 │ structure of the type, padded to 4 │ attribute │ attribute …
//! ```

use std::fmt;

use crypto::Secret;

use crate::attribute::{Attribute, BadLength, Space};
use crate::structs::{
    Acquire, EventId, Expire, Flush, Mapping, PolicyDefault, PolicyExpire, PolicyId, PolicyInfo,
    Report, SaId, SaInfo, SpiInfo,
};
use crate::wire::{Reader, Wire};

/// `NETLINK_XFRM`.
pub const NETLINK_XFRM: isize = 6;

/// Multicast groups (`enum xfrm_nlgroups`).
pub mod group {
    #![allow(missing_docs, reason = "the kernel's own names")]
    pub const ACQUIRE: u32 = 1;
    pub const EXPIRE: u32 = 2;
    pub const SA: u32 = 3;
    pub const POLICY: u32 = 4;
    pub const AEVENTS: u32 = 5;
    pub const REPORT: u32 = 6;
    pub const MIGRATE: u32 = 7;
    pub const MAPPING: u32 = 8;
}

/// `NLM_F_DUMP`.
pub(crate) const DUMP: u16 = 0x300;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $space:ident, $body:ident;)*) => {
        /// Type of a message (`XFRM_MSG_…`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The number in the header.
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// The type with this number.
            pub fn from_number(number: u16) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.number() == number)
            }

            fn space(self) -> Space {
                match self {
                    $(Self::$name => Space::$space,)*
                }
            }

            fn body_len(self) -> usize {
                match self {
                    $(Self::$name => kinds!(@len $body),)*
                }
            }

            fn read_body(self, from: &mut Reader<'_>) -> Body {
                match self {
                    $(Self::$name => kinds!(@read $body, from),)*
                }
            }
        }
    };
    (@len None) => { 0 };
    (@len Flags) => { u32::LEN };
    (@len $body:ident) => { $body::LEN };
    (@read None, $from:ident) => { Body::None };
    (@read Flags, $from:ident) => { Body::Flags(u32::read($from)) };
    (@read $body:ident, $from:ident) => { Body::$body($body::read($from)) };
}

kinds! {
    /// Adds an association; it was added.
    NewSa = 0x10, Xfrm, SaInfo;
    /// Removes an association; it was removed.
    DelSa = 0x11, Xfrm, SaId;
    /// Asks for an association, or for all.
    GetSa = 0x12, Xfrm, SaId;
    /// Adds a policy; it was added.
    NewPolicy = 0x13, Xfrm, PolicyInfo;
    /// Removes a policy; it was removed.
    DelPolicy = 0x14, Xfrm, PolicyId;
    /// Asks for a policy, or for all.
    GetPolicy = 0x15, Xfrm, PolicyId;
    /// Asks for a free index.
    AllocSpi = 0x16, Xfrm, SpiInfo;
    /// A packet needs an association.
    Acquire = 0x17, Xfrm, Acquire;
    /// An association has reached a limit.
    Expire = 0x18, Xfrm, Expire;
    /// Adds or replaces a policy; it was replaced.
    UpdPolicy = 0x19, Xfrm, PolicyInfo;
    /// Changes an association; it was changed.
    UpdSa = 0x1a, Xfrm, SaInfo;
    /// A policy has reached a limit.
    PolExpire = 0x1b, Xfrm, PolicyExpire;
    /// Removes all associations; they were removed.
    FlushSa = 0x1c, Xfrm, Flush;
    /// Removes all policies; they were removed.
    FlushPolicy = 0x1d, Xfrm, None;
    /// Sets counters and sequence numbers of an association; they have changed.
    NewAe = 0x1e, Xfrm, EventId;
    /// Asks for them.
    GetAe = 0x1f, Xfrm, EventId;
    /// A packet was refused (Mobile IPv6).
    Report = 0x20, Xfrm, Report;
    /// Gives associations and a policy new addresses; they have them.
    Migrate = 0x21, Xfrm, PolicyId;
    /// Answer about the database of associations.
    NewSadInfo = 0x22, Sad, Flags;
    /// Asks about the database of associations.
    GetSadInfo = 0x23, Sad, Flags;
    /// Answer about the database of policies.
    NewSpdInfo = 0x24, Spd, Flags;
    /// Asks about the database of policies.
    GetSpdInfo = 0x25, Spd, Flags;
    /// A sender of UDP-encapsulated packets has another address or port.
    Mapping = 0x26, Xfrm, Mapping;
    /// Sets what happens to packets without a policy; it was set.
    SetDefault = 0x27, Xfrm, PolicyDefault;
    /// Asks for it.
    GetDefault = 0x28, Xfrm, PolicyDefault;
}

impl Kind {
    /// The multicast group in which the kernel sends it; none for answers and requests.
    pub fn group(self) -> Option<u32> {
        Some(match self {
            Self::NewSa | Self::DelSa | Self::UpdSa | Self::FlushSa => group::SA,
            Self::NewPolicy
            | Self::DelPolicy
            | Self::UpdPolicy
            | Self::FlushPolicy
            | Self::SetDefault => group::POLICY,
            Self::Acquire => group::ACQUIRE,
            Self::Expire | Self::PolExpire => group::EXPIRE,
            Self::NewAe => group::AEVENTS,
            Self::Report => group::REPORT,
            Self::Migrate => group::MIGRATE,
            Self::Mapping => group::MAPPING,
            _ => return None,
        })
    }
}

/// The fixed structure of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // messages are few
pub enum Body {
    /// There is none: a request for all, or a flush of policies.
    None,
    /// An association.
    SaInfo(SaInfo),
    /// Which association.
    SaId(SaId),
    /// A range of indexes.
    SpiInfo(SpiInfo),
    /// A policy.
    PolicyInfo(PolicyInfo),
    /// Which policy.
    PolicyId(PolicyId),
    /// A packet and its policy.
    Acquire(Acquire),
    /// An association and which limit.
    Expire(Expire),
    /// A policy and which limit.
    PolicyExpire(PolicyExpire),
    /// Which protocol.
    Flush(Flush),
    /// Which association's counters.
    EventId(EventId),
    /// A packet.
    Report(Report),
    /// Addresses and ports.
    Mapping(Mapping),
    /// Defaults.
    PolicyDefault(PolicyDefault),
    /// Flags; not used.
    Flags(u32),
    /// A request for all with something else than attributes, as it came.
    Raw(Vec<u8>),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::SaInfo(_) => SaInfo::LEN,
            Self::SaId(_) => SaId::LEN,
            Self::SpiInfo(_) => SpiInfo::LEN,
            Self::PolicyInfo(_) => PolicyInfo::LEN,
            Self::PolicyId(_) => PolicyId::LEN,
            Self::Acquire(_) => Acquire::LEN,
            Self::Expire(_) => Expire::LEN,
            Self::PolicyExpire(_) => PolicyExpire::LEN,
            Self::Flush(_) => Flush::LEN,
            Self::EventId(_) => EventId::LEN,
            Self::Report(_) => Report::LEN,
            Self::Mapping(_) => Mapping::LEN,
            Self::PolicyDefault(_) => PolicyDefault::LEN,
            Self::Flags(_) => u32::LEN,
            Self::Raw(bytes) => bytes.len(),
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::SaInfo(body) => body.write(to),
            Self::SaId(body) => body.write(to),
            Self::SpiInfo(body) => body.write(to),
            Self::PolicyInfo(body) => body.write(to),
            Self::PolicyId(body) => body.write(to),
            Self::Acquire(body) => body.write(to),
            Self::Expire(body) => body.write(to),
            Self::PolicyExpire(body) => body.write(to),
            Self::Flush(body) => body.write(to),
            Self::EventId(body) => body.write(to),
            Self::Report(body) => body.write(to),
            Self::Mapping(body) => body.write(to),
            Self::PolicyDefault(body) => body.write(to),
            Self::Flags(body) => body.write(to),
            Self::Raw(bytes) => to.extend_from_slice(bytes),
        }
    }
}

/// A message without its header. `Debug` shows no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its type.
    pub kind: Kind,
    /// The structure that the type has.
    pub body: Body,
    /// What follows, in order.
    pub attributes: Vec<Attribute>,
}

/// Why a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// A type that is not one of XFRM.
    Kind(u16),
    /// The structure is cut.
    Short {
        /// The type.
        kind: Kind,
        /// Bytes that are there.
        found: usize,
        /// Bytes that the structure has.
        expected: usize,
    },
    /// An attribute is cut, or its type has other lengths.
    Attribute {
        /// The type of the message.
        kind: Kind,
        /// The type of the attribute; 0 if the list of attributes is cut.
        attribute: u16,
        /// Its length in bytes, without its header; that of the list if the list is cut.
        len: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(number) => write!(f, "message type {number} is not one of XFRM"),
            Self::Short { kind, found, expected } => {
                write!(f, "message {kind:?} has {found} bytes, its structure {expected}")
            }
            Self::Attribute { kind, attribute: 0, len } => {
                write!(f, "message {kind:?}: the attributes ({len} bytes) end in the middle of one")
            }
            Self::Attribute { kind, attribute, len } => {
                write!(f, "message {kind:?}: attribute {attribute} cannot have {len} bytes")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

impl Message {
    /// A message of a type with its structure.
    pub fn new(kind: Kind, body: Body) -> Self {
        Self { kind, body, attributes: Vec::new() }
    }

    /// Appends an attribute.
    pub fn with(mut self, attribute: Attribute) -> Self {
        self.attributes.push(attribute);
        self
    }

    /// Reads what follows the header. Type and flags are those of the header: a request for all associations or policies
    /// has no structure.
    ///
    /// # Errors
    ///
    /// The type is not known, or something is cut or has a wrong length. Attributes of unknown types are kept.
    pub fn decode(kind: u16, flags: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        let kind = Kind::from_number(kind).ok_or(DecodeError::Kind(kind))?;
        if matches!(kind, Kind::GetSa | Kind::GetPolicy) && flags & DUMP != 0 {
            return Ok(match Attribute::read_all(Space::Xfrm, payload) {
                Ok(attributes) => Self { kind, body: Body::None, attributes },
                Err(_) => Self::new(kind, Body::Raw(payload.to_vec())),
            });
        }
        let expected = kind.body_len();
        let Some((head, rest)) = payload.split_at_checked(expected) else {
            return Err(DecodeError::Short { kind, found: payload.len(), expected });
        };
        let body = kind.read_body(&mut Reader(head));
        let rest = rest.get(expected.next_multiple_of(4) - expected..).unwrap_or_default();
        let attributes = Attribute::read_all(kind.space(), rest).map_err(|bad| {
            let BadLength { attribute, len } = bad;
            DecodeError::Attribute { kind, attribute, len }
        })?;
        Ok(Self { kind, body, attributes })
    }

    /// What follows the header, in the kernel's form: padding is zero, and structure and last attribute are padded too.
    pub fn encode(&self) -> Secret {
        let mut bytes = Vec::with_capacity(self.len());
        self.write(&mut bytes);
        Secret::new(bytes)
    }

    /// The message with a header.
    pub fn to_datagram(&self, flags: u16, sequence: u32, port: u32) -> Secret {
        let mut bytes = Vec::with_capacity(16 + self.len());
        (16 + self.len() as u32).write(&mut bytes);
        self.kind.number().write(&mut bytes);
        flags.write(&mut bytes);
        sequence.write(&mut bytes);
        port.write(&mut bytes);
        self.write(&mut bytes);
        Secret::new(bytes)
    }

    fn len(&self) -> usize {
        let body = match &self.body {
            Body::Raw(bytes) => bytes.len(),
            body => body.len().next_multiple_of(4),
        };
        body + self.attributes.iter().map(Attribute::len).sum::<usize>()
    }

    fn write(&self, to: &mut Vec<u8>) {
        self.body.write(to);
        if !matches!(self.body, Body::Raw(_)) {
            to.resize(to.len().next_multiple_of(4), 0);
        }
        self.attributes.iter().for_each(|attribute| attribute.write(to));
    }
}
