//! Attributes of messages: length, type, value, padding to four bytes.

use std::sync::Arc;

use crypto::Secret;
use netlink_packet_core::{NLA_F_NESTED, NLA_F_NET_BYTEORDER, NLA_HEADER_SIZE, NlasIterator};

use crate::algorithm::Algorithm;
use crate::structs::{
    AddressFilter, Encapsulation, KeyManagement, LifetimeCurrent, Mark, Migration, Offload,
    PolicyInfo, PolicyType, ReplayEsn, ReplayState, SaInfo, SadHash, SpdCounts, SpdHash,
    SpdThreshold, Template,
};
use crate::wire::{Address, Reader, Wire};

/// What an attribute's number means depends on the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// `XFRMA_…`.
    Xfrm,
    /// `XFRMA_SAD_…`.
    Sad,
    /// `XFRMA_SPD_…`.
    Spd,
}

/// An attribute's length is not one that its type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadLength {
    pub(crate) attribute: u16,
    pub(crate) len: usize,
}

macro_rules! attributes {
    (
        fixed { $($(#[$fixed_doc:meta])* $fixed:ident($fixed_space:ident, $fixed_number:literal, $fixed_type:ty),)* }
        lists { $($(#[$list_doc:meta])* $list:ident($list_number:literal, $list_type:ty),)* }
        keys { $($(#[$key_doc:meta])* $key:ident($key_number:literal, $key_check:literal),)* }
    ) => {
        /// An attribute. Keys are shared, not copied, and `Debug` does not show them.
        #[derive(Debug, Clone)]
        pub enum Attribute {
            $($(#[$fixed_doc])* $fixed($fixed_type),)*
            $($(#[$list_doc])* $list(Vec<$list_type>),)*
            $($(#[$key_doc])* $key(Algorithm),)*
            /// `XFRMA_REPLAY_ESN_VAL`: sequence numbers and window of an association.
            ReplayEsn(ReplayEsn),
            /// `XFRMA_SEC_CTX`: context of a Linux security module, as it came.
            SecurityContext(Vec<u8>),
            /// `XFRMA_PAD`: nothing.
            Pad,
            /// Another type, flag bits included, as it came. It may hold anything, so it is wiped.
            Other(u16, Arc<Secret>),
        }

        impl Attribute {
            /// Its type.
            pub fn number(&self) -> u16 {
                match self {
                    $(Self::$fixed(_) => $fixed_number,)*
                    $(Self::$list(_) => $list_number,)*
                    $(Self::$key(_) => $key_number,)*
                    Self::ReplayEsn(_) => 23,
                    Self::SecurityContext(_) => 8,
                    Self::Pad => 27,
                    Self::Other(number, _) => *number,
                }
            }

            fn value_len(&self) -> usize {
                match self {
                    $(Self::$fixed(_) => <$fixed_type as Wire>::LEN,)*
                    $(Self::$list(list) => list.len() * <$list_type as Wire>::LEN,)*
                    $(Self::$key(key) => key.len(),)*
                    Self::ReplayEsn(replay) => ReplayEsn::HEAD + replay.bitmap.len() * 4,
                    Self::SecurityContext(value) => value.len(),
                    Self::Pad => 0,
                    Self::Other(_, value) => value.len(),
                }
            }

            fn write_value(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$fixed(value) => value.write(to),)*
                    $(Self::$list(list) => list.iter().for_each(|value| value.write(to)),)*
                    $(Self::$key(key) => key.write(to),)*
                    Self::ReplayEsn(replay) => replay.write(to),
                    Self::SecurityContext(value) => to.extend_from_slice(value),
                    Self::Pad => {}
                    Self::Other(_, value) => to.extend_from_slice(value.expose()),
                }
            }

            fn read(space: Space, number: u16, value: &[u8]) -> Option<Self> {
                let attribute = match (space, number) {
                    $((Space::$fixed_space, $fixed_number) => Self::$fixed(one(value)?),)*
                    $((Space::Xfrm, $list_number) => Self::$list(all(value)?),)*
                    $((Space::Xfrm, $key_number) => Self::$key(Algorithm::read(value, $key_check)?),)*
                    (Space::Xfrm, 23) => Self::ReplayEsn(ReplayEsn::read(value)?),
                    (Space::Xfrm, 8) => Self::SecurityContext(value.to_vec()),
                    (Space::Xfrm, 27) if value.is_empty() => Self::Pad,
                    _ => Self::Other(number, Arc::new(Secret::new(value.to_vec()))),
                };
                Some(attribute)
            }
        }

        impl PartialEq for Attribute {
            fn eq(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$fixed(a), Self::$fixed(b)) => a == b,)*
                    $((Self::$list(a), Self::$list(b)) => a == b,)*
                    $((Self::$key(a), Self::$key(b)) => a == b,)*
                    (Self::ReplayEsn(a), Self::ReplayEsn(b)) => a == b,
                    (Self::SecurityContext(a), Self::SecurityContext(b)) => a == b,
                    (Self::Pad, Self::Pad) => true,
                    (Self::Other(m, a), Self::Other(n, b)) => m == n && a.expose() == b.expose(),
                    _ => false,
                }
            }
        }

        impl Eq for Attribute {}
    };
}

attributes! {
    fixed {
        /// `XFRMA_ENCAP`: UDP around ESP.
        Encapsulation(Xfrm, 4, Encapsulation),
        /// `XFRMA_SA`: the association that a message is about.
        Sa(Xfrm, 6, SaInfo),
        /// `XFRMA_POLICY`: the policy that a message is about.
        Policy(Xfrm, 7, PolicyInfo),
        /// `XFRMA_LTIME_VAL`: what was used.
        Lifetime(Xfrm, 9, LifetimeCurrent),
        /// `XFRMA_REPLAY_VAL`: sequence numbers and window of an association.
        Replay(Xfrm, 10, ReplayState),
        /// `XFRMA_REPLAY_THRESH`: packets between two events.
        ReplayThreshold(Xfrm, 11, u32),
        /// `XFRMA_ETIMER_THRESH`: time between two events, in 100 ms.
        EventTimer(Xfrm, 12, u32),
        /// `XFRMA_SRCADDR`: address of the end that sends.
        Source(Xfrm, 13, Address),
        /// `XFRMA_COADDR`: care-of address.
        CareOf(Xfrm, 14, Address),
        /// `XFRMA_LASTUSED`: seconds since 1970.
        LastUsed(Xfrm, 15, u64),
        /// `XFRMA_POLICY_TYPE`: main or sub.
        PolicyType(Xfrm, 16, PolicyType),
        /// `XFRMA_KMADDRESS`: where the key management is.
        KeyManagement(Xfrm, 19, KeyManagement),
        /// `XFRMA_MARK`: which packets, by their mark.
        Mark(Xfrm, 21, Mark),
        /// `XFRMA_TFCPAD`: packets are padded to this length, bytes.
        TfcPadding(Xfrm, 22, u32),
        /// `XFRMA_SA_EXTRA_FLAGS`: `XFRM_SA_XFLAG_…`.
        ExtraFlags(Xfrm, 24, u32),
        /// `XFRMA_PROTO`: a protocol.
        Protocol(Xfrm, 25, u8),
        /// `XFRMA_ADDRESS_FILTER`: which associations a dump shows.
        AddressFilter(Xfrm, 26, AddressFilter),
        /// `XFRMA_OFFLOAD_DEV`: the network card encrypts.
        Offload(Xfrm, 28, Offload),
        /// `XFRMA_SET_MARK`, `XFRMA_OUTPUT_MARK`: mark of packets after their change.
        OutputMark(Xfrm, 29, u32),
        /// `XFRMA_SET_MARK_MASK`: its mask.
        OutputMarkMask(Xfrm, 30, u32),
        /// `XFRMA_IF_ID`: number of an interface for route-based tunnels.
        InterfaceId(Xfrm, 31, u32),
        /// `XFRMA_MTIMER_THRESH`: seconds between two messages of changed ports.
        MappingTimer(Xfrm, 32, u32),
        /// `XFRMA_SA_DIR`: `XFRM_SA_DIR_…`.
        Direction(Xfrm, 33, u8),
        /// `XFRMA_NAT_KEEPALIVE_INTERVAL`: seconds.
        KeepAliveInterval(Xfrm, 34, u32),
        /// `XFRMA_SA_PCPU`: the processor that an association is for.
        Processor(Xfrm, 35, u32),
        /// `XFRMA_SAD_CNT`: number of associations.
        SadCount(Sad, 1, u32),
        /// `XFRMA_SAD_HINFO`: size of their hash table.
        SadHash(Sad, 2, SadHash),
        /// `XFRMA_SPD_INFO`: number of policies.
        SpdCounts(Spd, 1, SpdCounts),
        /// `XFRMA_SPD_HINFO`: size of their hash table.
        SpdHash(Spd, 2, SpdHash),
        /// `XFRMA_SPD_IPV4_HTHRESH`: which IPv4 policies are found by hash.
        SpdThresholdV4(Spd, 3, SpdThreshold),
        /// `XFRMA_SPD_IPV6_HTHRESH`: which IPv6 policies are found by hash.
        SpdThresholdV6(Spd, 4, SpdThreshold),
    }
    lists {
        /// `XFRMA_TMPL`: the associations that a policy requires, from the inside to the outside.
        Templates(5, Template),
        /// `XFRMA_MIGRATE`: new addresses.
        Migrate(17, Migration),
    }
    keys {
        /// `XFRMA_ALG_AUTH`: authentication with the kernel's check value.
        AuthKey(1, false),
        /// `XFRMA_ALG_CRYPT`: encryption.
        CipherKey(2, false),
        /// `XFRMA_ALG_COMP`: compression.
        Compression(3, false),
        /// `XFRMA_ALG_AEAD`: both.
        AeadKey(18, true),
        /// `XFRMA_ALG_AUTH_TRUNC`: authentication.
        TruncatedAuthKey(20, true),
    }
}

fn one<T: Wire>(value: &[u8]) -> Option<T> {
    (value.len() == T::LEN).then(|| T::read(&mut Reader(value)))
}

fn all<T: Wire>(value: &[u8]) -> Option<Vec<T>> {
    let chunks = value.chunks_exact(T::LEN);
    chunks.remainder().is_empty().then(|| chunks.map(|chunk| T::read(&mut Reader(chunk))).collect())
}

impl Attribute {
    /// Length with header and padding, bytes.
    pub(crate) fn len(&self) -> usize {
        (NLA_HEADER_SIZE + self.value_len()).next_multiple_of(4)
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        // What was read was shorter than 64 KiB, and lists have a few entries.
        let len = u16::try_from(NLA_HEADER_SIZE + self.value_len()).unwrap_or(u16::MAX);
        len.write(to);
        self.number().write(to);
        self.write_value(to);
        to.resize(to.len().next_multiple_of(4), 0);
    }

    /// Reads all attributes of a message.
    pub(crate) fn read_all(space: Space, bytes: &[u8]) -> Result<Vec<Self>, BadLength> {
        let mut attributes = Vec::new();
        for found in NlasIterator::new(bytes) {
            let cut = BadLength { attribute: 0, len: bytes.len() };
            let buffer = found.map_err(|_| cut)?;
            let (nested, ordered) = (buffer.nested_flag(), buffer.network_byte_order_flag());
            let flags = if nested { NLA_F_NESTED } else { 0 }
                | if ordered { NLA_F_NET_BYTEORDER } else { 0 };
            let (number, value) = (buffer.kind() | flags, buffer.value());
            let bad = BadLength { attribute: number, len: value.len() };
            attributes.push(Self::read(space, number, value).ok_or(bad)?);
        }
        Ok(attributes)
    }
}
