//! Associations and policies in plain types, as the mirror reports them.

use std::net::IpAddr;
use std::sync::Arc;

use crate::algorithm::{Keys, Unusable};
use crate::attribute::Attribute;
use crate::structs::value::*;
use crate::structs::{
    self, LifetimeCurrent, LifetimeLimits, Mark, PolicyInfo, ReplayEsn, ReplayState, SaId, SaInfo,
};
use crate::wire::{Address, Spi, family};

/// What names an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssociationId {
    /// Address of the end that receives.
    pub destination: IpAddr,
    /// Security parameters index.
    pub spi: u32,
    /// IP protocol: 50 for ESP.
    pub protocol: u8,
    /// Value and mask of the marks of its packets; 0 and 0 for all packets.
    pub mark: (u32, u32),
}

/// What ESP is around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// What is behind the headers of a packet.
    Transport,
    /// A whole packet.
    Tunnel,
    /// Another mode of the kernel; such an association is not usable.
    Other(u8),
}

impl From<u8> for Mode {
    fn from(mode: u8) -> Self {
        match mode {
            XFRM_MODE_TRANSPORT => Self::Transport,
            XFRM_MODE_TUNNEL => Self::Tunnel,
            other => Self::Other(other),
        }
    }
}

/// Direction of an association, where whoever added it said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// It receives.
    In,
    /// It sends.
    Out,
}

/// UDP around ESP (RFC 3948).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Udp {
    /// Port of the end that sends.
    pub source_port: u16,
    /// Port of the end that receives.
    pub destination_port: u16,
    /// Address of the other end before translation, for checksums in transport mode.
    pub original: Option<IpAddr>,
}

/// Which packets, by a prefix; none of a field means all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Selector {
    /// Source address and bits of it that count.
    pub source: Option<(IpAddr, u8)>,
    /// Destination address and bits of it that count.
    pub destination: Option<(IpAddr, u8)>,
    /// Both families if none; prefixes of length 0 are `None` in source and destination.
    pub is_ipv6: Option<bool>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Value and mask of the source port; type of ICMP.
    pub source_port: (u16, u16),
    /// Value and mask of the destination port; code of ICMP.
    pub destination_port: (u16, u16),
    /// Index of the interface.
    pub ifindex: Option<u32>,
}

impl From<&structs::Selector> for Selector {
    fn from(own: &structs::Selector) -> Self {
        let prefix = |address: Address, len: u8| {
            let ip = address.ip(own.family)?;
            (len > 0).then_some((ip, len.min(if ip.is_ipv4() { 32 } else { 128 })))
        };
        let any = Address::default().ip(own.family);
        Self {
            source: prefix(own.saddr, own.prefixlen_s),
            destination: prefix(own.daddr, own.prefixlen_d),
            is_ipv6: any.map(|any| any.is_ipv6()),
            protocol: (own.proto != 0).then_some(own.proto),
            source_port: (own.sport.0, own.sport_mask.0),
            destination_port: (own.dport.0, own.dport_mask.0),
            ifindex: u32::try_from(own.ifindex).ok().filter(|index| *index > 0),
        }
    }
}

/// Where an association begins: sequence numbers, window and counts of the kernel. They are not compared when the mirror
/// looks for changes, because they come back from whoever counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// Last sequence number sent.
    pub sent: u64,
    /// Highest sequence number received.
    pub received: u64,
    /// Which of the numbers up to `received` were received, as words of a window of 32 (from the lowest bit, `received`
    /// first) or, if numbers are extended or the window is larger, as the ring of [`ReplayEsn`].
    pub bitmap: Vec<u32>,
    /// What was used.
    pub used: LifetimeCurrent,
}

/// An association.
#[derive(Debug, Clone)]
pub struct Association {
    /// What names it.
    pub id: AssociationId,
    /// Address of the end that sends.
    pub source: IpAddr,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Links it to the templates of policies; 0 for none.
    pub reqid: u32,
    /// Number of an interface for route-based tunnels; 0 for none.
    pub if_id: u32,
    /// Direction, where it is known.
    pub direction: Option<Direction>,
    /// Suite and keys, or why it cannot be used.
    pub keys: Result<Arc<Keys>, Unusable>,
    /// What it may carry.
    pub selector: Selector,
    /// UDP around ESP.
    pub udp: Option<Udp>,
    /// Sequence numbers have 64 bits.
    pub is_extended: bool,
    /// Packets of the replay window; 0 for none.
    pub window: u32,
    /// Whether the kernel has window and numbers as [`ReplayEsn`], with this many words; otherwise as [`ReplayState`].
    pub bitmap_words: Option<u32>,
    /// Limits.
    pub limits: LifetimeLimits,
    /// `XFRM_STATE_…`.
    pub flags: u8,
    /// `XFRM_SA_XFLAG_…`.
    pub extra_flags: u32,
    /// Value and mask of the mark that packets get.
    pub output_mark: (u32, u32),
    /// Packets are padded to this length, bytes; 0 for no padding.
    pub pad_to: u32,
    /// Where it begins.
    pub start: Start,
}

impl Association {
    /// Reads an association of a message; none if it has an index only (no algorithm yet), or an address of no family.
    pub fn read(info: &SaInfo, attributes: &[Attribute]) -> Option<Self> {
        let mark = mark(attributes);
        let id = AssociationId {
            destination: info.id.daddr.ip(info.family)?,
            spi: info.id.spi.0,
            protocol: info.id.proto,
            mark,
        };
        let is_algorithm = |attribute: &Attribute| {
            use Attribute::*;
            matches!(
                attribute,
                AuthKey(_) | CipherKey(_) | Compression(_) | AeadKey(_) | TruncatedAuthKey(_)
            )
        };
        if !attributes.iter().any(is_algorithm) {
            return None;
        }
        let mut own = Self {
            id,
            source: info.saddr.ip(info.family)?,
            mode: info.mode.into(),
            reqid: info.reqid,
            if_id: 0,
            direction: None,
            keys: Keys::from_attributes(attributes)
                .unwrap_or(Err(Unusable::Protocol(id.protocol)))
                .map(Arc::new),
            selector: (&info.sel).into(),
            udp: None,
            is_extended: info.flags & XFRM_STATE_ESN != 0,
            window: info.replay_window.into(),
            bitmap_words: None,
            limits: info.lft,
            flags: info.flags,
            extra_flags: 0,
            output_mark: (0, 0),
            pad_to: 0,
            start: Start { used: info.curlft, ..Start::default() },
        };
        own.take(attributes, info.family);
        if let Mode::Other(mode) = own.mode {
            own.keys = Err(Unusable::Mode(mode));
        }
        if id.protocol != IPPROTO_ESP {
            own.keys = Err(Unusable::Protocol(id.protocol));
        }
        Some(own)
    }

    fn take(&mut self, attributes: &[Attribute], family: u16) {
        for attribute in attributes {
            match attribute {
                Attribute::InterfaceId(id) => self.if_id = *id,
                Attribute::Direction(XFRM_SA_DIR_IN) => self.direction = Some(Direction::In),
                Attribute::Direction(XFRM_SA_DIR_OUT) => self.direction = Some(Direction::Out),
                Attribute::Encapsulation(udp) if udp.encap_type == UDP_ENCAP_ESPINUDP => {
                    let original = udp.encap_oa.ip(family);
                    self.udp = Some(Udp {
                        source_port: udp.encap_sport.0,
                        destination_port: udp.encap_dport.0,
                        original: original.filter(|ip| !ip.is_unspecified()),
                    });
                }
                Attribute::Encapsulation(other) => {
                    self.keys = Err(Unusable::Encapsulation(other.encap_type));
                }
                Attribute::Offload(_) => self.keys = Err(Unusable::Offload),
                Attribute::Replay(ReplayState { oseq, seq, bitmap })
                    if self.bitmap_words.is_none() =>
                {
                    self.start.sent = u64::from(*oseq);
                    self.start.received = u64::from(*seq);
                    self.start.bitmap = vec![*bitmap];
                }
                Attribute::ReplayEsn(replay) => {
                    let number = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
                    self.window = replay.replay_window;
                    self.bitmap_words = Some(replay.words);
                    self.start.sent = number(replay.oseq_hi, replay.oseq);
                    self.start.received = number(replay.seq_hi, replay.seq);
                    self.start.bitmap = replay.bitmap.clone();
                }
                Attribute::Lifetime(used) => self.start.used = *used,
                Attribute::ExtraFlags(flags) => self.extra_flags = *flags,
                Attribute::OutputMark(mark) => {
                    let mask = attributes.iter().find_map(|attribute| match attribute {
                        Attribute::OutputMarkMask(mask) => Some(*mask),
                        _ => None,
                    });
                    self.output_mark = (*mark, mask.unwrap_or(u32::MAX));
                }
                Attribute::TfcPadding(bytes) => self.pad_to = *bytes,
                _ => {}
            }
        }
    }

    /// What the kernel does with an association that it has when it gets a change (`XFRM_MSG_UPDSA`): keys, addresses and
    /// numbers stay (`xfrm_state_update`).
    pub(crate) fn updated(&self, change: &Self) -> Self {
        let mut own = self.clone();
        if let (Some(_), Some(udp)) = (self.udp, change.udp) {
            own.udp = Some(udp);
        }
        own.limits = change.limits;
        if change.output_mark != (0, 0) || change.if_id != 0 {
            own.output_mark = change.output_mark;
            if change.if_id != 0 {
                own.if_id = change.if_id;
            }
        }
        own
    }

    /// Whether it is the same, but for where it begins.
    pub fn is_same(&self, other: &Self) -> bool {
        let keys = match (&self.keys, &other.keys) {
            (Ok(a), Ok(b)) => Arc::ptr_eq(a, b) || a == b,
            (Err(a), Err(b)) => a == b,
            _ => false,
        };
        let plain = |own: &Self| {
            (
                (own.id, own.source, own.mode, own.reqid, own.if_id, own.direction),
                (own.selector, own.udp, own.is_extended, own.window, own.bitmap_words),
                (own.limits, own.flags, own.extra_flags, own.output_mark, own.pad_to),
            )
        };
        keys && plain(self) == plain(other)
    }
}

/// The mark that an association or a policy is looked up with.
pub(crate) fn mark(attributes: &[Attribute]) -> (u32, u32) {
    let mark = attributes.iter().find_map(|attribute| match attribute {
        Attribute::Mark(Mark { v, m }) => Some((*v, *m)),
        _ => None,
    });
    mark.unwrap_or_default()
}

impl AssociationId {
    /// That of a deletion.
    pub(crate) fn read(id: &SaId, attributes: &[Attribute]) -> Option<Self> {
        let destination = id.daddr.ip(id.family)?;
        let mark = mark(attributes);
        Some(Self { destination, spi: id.spi.0, protocol: id.proto, mark })
    }

    /// As messages have it.
    pub fn to_wire(&self) -> SaId {
        SaId {
            daddr: self.destination.into(),
            spi: Spi(self.spi),
            family: family(self.destination),
            proto: self.protocol,
        }
    }
}

/// Which packets a policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyDirection {
    /// Packets for this host.
    In,
    /// Packets that leave.
    Out,
    /// Packets that are forwarded.
    Forward,
}

impl PolicyDirection {
    fn read(dir: u8) -> Option<Self> {
        match dir {
            XFRM_POLICY_IN => Some(Self::In),
            XFRM_POLICY_OUT => Some(Self::Out),
            XFRM_POLICY_FWD => Some(Self::Forward),
            _ => None,
        }
    }
}

/// What names a policy: the kernel's number of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    /// Its direction.
    pub direction: PolicyDirection,
    /// Its number.
    pub index: u32,
}

impl PolicyId {
    pub(crate) fn read(info: &PolicyInfo) -> Option<Self> {
        let direction = PolicyDirection::read(info.dir)?;
        Some(Self { direction, index: info.index })
    }
}

/// An association that a policy requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Template {
    /// Ends of the tunnel: source and destination; none for those of the packet.
    pub tunnel: Option<(IpAddr, IpAddr)>,
    /// IP protocol: 50 for ESP.
    pub protocol: u8,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Associations with this number; 0 for any.
    pub reqid: u32,
    /// The association with this index; 0 for any.
    pub spi: u32,
    /// Packets may pass without.
    pub is_optional: bool,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What names it.
    pub id: PolicyId,
    /// Which packets.
    pub selector: Selector,
    /// Lower ones are looked at first.
    pub priority: u32,
    /// Packets are dropped; otherwise they need the templates, or pass if there are none.
    pub is_block: bool,
    /// Associations that are required, from the inside to the outside.
    pub templates: Vec<Template>,
    /// Value and mask of the marks of its packets.
    pub mark: (u32, u32),
    /// Number of an interface for route-based tunnels; 0 for none.
    pub if_id: u32,
    /// A sub-policy, which is looked at before the main ones.
    pub is_sub: bool,
    /// Errors about its packets (ICMP) are its packets too.
    pub is_icmp: bool,
    /// The policy as the kernel has it: acquisitions quote it.
    pub info: PolicyInfo,
    /// Its templates as the kernel has them.
    pub wire_templates: Vec<structs::Template>,
}

impl Policy {
    /// Reads a policy of a message; none if it has a direction that the kernel does not have.
    pub fn read(info: &PolicyInfo, attributes: &[Attribute]) -> Option<Self> {
        let mut own = Self {
            id: PolicyId::read(info)?,
            selector: (&info.sel).into(),
            priority: info.priority,
            is_block: info.action == XFRM_POLICY_BLOCK,
            templates: Vec::new(),
            mark: mark(attributes),
            if_id: 0,
            is_sub: false,
            is_icmp: info.flags & XFRM_POLICY_ICMP != 0,
            // Counts are not compared.
            info: PolicyInfo { curlft: LifetimeCurrent::default(), ..*info },
            wire_templates: Vec::new(),
        };
        for attribute in attributes {
            match attribute {
                Attribute::Templates(templates) => {
                    own.templates.extend(templates.iter().map(Template::from));
                    own.wire_templates.extend(templates);
                }
                Attribute::InterfaceId(id) => own.if_id = *id,
                Attribute::PolicyType(kind) => own.is_sub = kind.value == XFRM_POLICY_TYPE_SUB,
                _ => {}
            }
        }
        Some(own)
    }
}

impl From<&structs::Template> for Template {
    fn from(own: &structs::Template) -> Self {
        let ends = own.saddr.ip(own.family).zip(own.id.daddr.ip(own.family));
        Self {
            tunnel: ends.filter(|(_, to)| own.mode != XFRM_MODE_TRANSPORT && !to.is_unspecified()),
            protocol: own.id.proto,
            mode: own.mode.into(),
            reqid: own.reqid,
            spi: own.id.spi.0,
            is_optional: own.optional != 0,
        }
    }
}

/// Sequence numbers, window and counts of an association, to be written back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Last sequence number sent.
    pub sent: u64,
    /// Highest sequence number received.
    pub received: u64,
    /// Which of the numbers before were received: the first bit of the first word is `received`, the next one is
    /// `received - 1`, and so on.
    pub window: Vec<u64>,
    /// Bytes and packets, and the times of creation and first use in seconds since 1970.
    pub used: LifetimeCurrent,
}

impl Counters {
    fn has_received(&self, back: u64) -> bool {
        let word = self.window.get((back / 64) as usize);
        back < self.received && word.is_some_and(|word| word >> (back % 64) & 1 != 0)
    }

    /// The attribute that the kernel wants for an association.
    pub(crate) fn replay(&self, association: &Association) -> Attribute {
        let Some(words) = association.bitmap_words else {
            let bits = (0..32).filter(|back| self.has_received(*back));
            return Attribute::Replay(ReplayState {
                oseq: self.sent as u32,
                seq: self.received as u32,
                bitmap: bits.fold(0, |bitmap, back| bitmap | 1 << back),
            });
        };
        let ring = u64::from(words) * 32;
        let mut bitmap = vec![0u32; words as usize];
        for back in (0..ring.min(association.window.into())).filter(|back| self.has_received(*back))
        {
            let place = (self.received - back - 1) % ring;
            bitmap[(place / 32) as usize] |= 1 << (place % 32);
        }
        Attribute::ReplayEsn(ReplayEsn {
            oseq: self.sent as u32,
            seq: self.received as u32,
            oseq_hi: (self.sent >> 32) as u32,
            seq_hi: (self.received >> 32) as u32,
            replay_window: association.window,
            words,
            bitmap,
        })
    }
}
