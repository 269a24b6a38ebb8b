//! What tunnels carry.
//!
//! ```text
//!  frame │ Ethernet, tags │ IP │ carrier │ Ethernet, tags, or nothing │ IP │ …      at most DEPTH_MAX times
//!                                                                      ▲ decoded again, by the same pass
//! ```
//!
//! | kind | carrier | identifier |
//! | --- | --- | --- |
//! | [`Kind::IpInIp`] | protocol 4 or 41 of IPv4 or IPv6 (RFC 2003, RFC 4213, RFC 2473) | none |
//! | [`Kind::Gre`] | GRE, version 0, with IP or Ethernet inside (RFC 2784, RFC 2890) | key |
//! | [`Kind::Erspan`] | GRE with ERSPAN of type I, II or III (draft-foschiano-erspan-03) | session |
//! | [`Kind::Vxlan`] | UDP, port 4789 (RFC 7348) | VNI |
//! | [`Kind::Geneve`] | UDP, port 6081 (RFC 8926) | VNI |
//! | [`Kind::Gtp`] | UDP, port 2152, GTP-U version 1, G-PDU (3GPP TS 29.281) | TEID, other in each direction |
//! | [`Kind::Teredo`] | UDP, port 3544 (RFC 4380) | none |
//!
//! A packet is looked into if its header is right, it is no fragment, and what is inside is an IP packet whose lengths fit
//! into it. Whatever else looks like a tunnel is a packet like others: one that carries ARP, control packets, ciphers.
//!
//! Pure functions: any thread.

use std::fmt;
use std::str::FromStr;

use crate::bytes::{be16, be32};
use crate::checksum::Checksums;
use crate::decode::{Anomaly, Decoded, decode, decode_ip, ignore_checksum};
use crate::flow::{tracked_hash_of_frame, tracked_hash_of_packet};
use crate::{EtherType, IpProtocol};

/// Tunnels in tunnels that are looked into: the innermost packet is behind so many at most.
pub const DEPTH_MAX: usize = 3;

/// GTP-U extension headers of one packet that are walked over; 3GPP TS 29.281 §5.2 knows a use for six.
const GTP_EXTENSIONS_MAX: usize = 8;

/// EtherType of an Ethernet frame inside GRE and GENEVE.
const ETHERNET_INSIDE: u16 = 0x6558;
const ERSPAN_II: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;

/// What carries a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// IP in IP: IPIP, SIT (6in4), 4in6, 6in6.
    IpInIp = 1,
    /// GRE.
    Gre = 2,
    /// ERSPAN, which is in GRE.
    Erspan = 3,
    /// VXLAN.
    Vxlan = 4,
    /// GENEVE.
    Geneve = 5,
    /// The user plane of GTP.
    Gtp = 6,
    /// Teredo.
    Teredo = 7,
}

impl Kind {
    /// All, in the order of their numbers.
    pub const ALL: [Kind; 7] =
        [Kind::IpInIp, Kind::Gre, Kind::Erspan, Kind::Vxlan, Kind::Geneve, Kind::Gtp, Kind::Teredo];

    /// Its name in configurations and events.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::IpInIp => "ipip",
            Kind::Gre => "gre",
            Kind::Erspan => "erspan",
            Kind::Vxlan => "vxlan",
            Kind::Geneve => "geneve",
            Kind::Gtp => "gtp-u",
            Kind::Teredo => "teredo",
        }
    }

    /// Its UDP port by IANA; 0 for those without.
    const fn port(self) -> u16 {
        match self {
            Kind::Vxlan => 4789,
            Kind::Geneve => 6081,
            Kind::Gtp => 2152,
            Kind::Teredo => 3544,
            Kind::IpInIp | Kind::Gre | Kind::Erspan => 0,
        }
    }

    /// Whether both directions have one identifier, so that it tells flows apart.
    const fn has_common_id(self) -> bool {
        !matches!(self, Kind::Gtp)
    }
}

/// The kinds of tunnels that are looked into, with their ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds {
    /// By [`Kind`]: whether it is looked into, and its port, if it has one.
    asked: [bool; 8],
    ports: [u16; 8],
}

impl Kinds {
    /// None.
    pub const NONE: Kinds = Kinds { asked: [false; 8], ports: [0; 8] };

    /// All, on the usual ports.
    pub fn all() -> Kinds {
        Kind::ALL.into_iter().fold(Kinds::NONE, |all, kind| all.with(kind, None))
    }

    /// These and one more; `port`: another one than usual.
    #[must_use]
    pub fn with(mut self, kind: Kind, port: Option<u16>) -> Kinds {
        self.asked[kind as usize] = true;
        self.ports[kind as usize] = port.unwrap_or(kind.port());
        self
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        *self == Kinds::NONE
    }

    #[inline]
    fn has(&self, kind: Kind) -> bool {
        self.asked[kind as usize]
    }

    /// Whether a kind is asked for, and this is its port.
    #[inline]
    fn is_at(&self, kind: Kind, port: u16) -> bool {
        self.has(kind) && self.ports[kind as usize] == port
    }

    /// One element of a list: `gre`, `vxlan:8472`, or `all`.
    ///
    /// # Errors
    /// It is none of these, in words.
    pub fn with_element(self, element: &str) -> Result<Kinds, String> {
        if element == "all" {
            let missing = Kind::ALL.into_iter().filter(|kind| !self.has(*kind));
            return Ok(missing.fold(self, |all, kind| all.with(kind, None)));
        }
        let (name, port) = match element.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (element, None),
        };
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| format!("`{name}` is not a kind of tunnel"))?;
        let Some(port) = port else { return Ok(self.with(kind, None)) };
        if kind.port() == 0 {
            return Err(format!("`{name}` has no port"));
        }
        match port.parse() {
            Ok(port) if port != 0 => Ok(self.with(kind, Some(port))),
            _ => Err(format!("`{port}` is not a port")),
        }
    }

    /// Its elements, as [`Kinds::with_element`] takes them.
    pub fn elements(&self) -> impl Iterator<Item = String> + '_ {
        Kind::ALL.into_iter().filter(|kind| self.has(*kind)).map(|kind| {
            let port = self.ports[kind as usize];
            match port == kind.port() {
                true => kind.name().to_owned(),
                false => format!("{}:{port}", kind.name()),
            }
        })
    }
}

/// Elements with commas between them.
impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Kinds, String> {
        let all = text.split(',').try_fold(Kinds::NONE, |all, own| all.with_element(own.trim()));
        all.map_err(|error| {
            let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
            format!("{error}: expected {} or all; with a port vxlan:8472", names.join(", "))
        })
    }
}

/// A tunnel that a packet was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tunnel {
    /// What carried it.
    pub kind: Kind,
    /// Its identifier, 0 without one: a VNI (24 bits), a GRE key, a TEID (32), an ERSPAN session (10).
    pub id: u32,
}

/// The tunnels that a packet was in, the outermost first. 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path {
    ids: [u32; DEPTH_MAX],
    /// Numbers of [`Kind`]; 0 behind the innermost.
    kinds: [u8; DEPTH_MAX],
    /// The innermost packet is a tunnel's again.
    is_too_deep: bool,
}

const _: () = assert!(size_of::<Path>() == 16);

impl Path {
    /// Of a packet in no tunnel.
    pub const NONE: Path = Path { ids: [0; DEPTH_MAX], kinds: [0; DEPTH_MAX], is_too_deep: false };

    /// The path through one more tunnel; `None` at [`DEPTH_MAX`].
    pub fn through(mut self, tunnel: Tunnel) -> Option<Path> {
        let depth = self.iter().count();
        *self.kinds.get_mut(depth)? = tunnel.kind as u8;
        self.ids[depth] = tunnel.id;
        Some(self)
    }

    /// Whether the packet was in no tunnel.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.kinds[0] == 0
    }

    /// Whether there is a tunnel in the innermost packet that was not looked into.
    pub const fn is_too_deep(&self) -> bool {
        self.is_too_deep
    }

    /// The tunnels.
    pub fn iter(&self) -> impl Iterator<Item = Tunnel> + '_ {
        let known = |number: &u8| Kind::ALL.get(usize::from(*number).wrapping_sub(1)).copied();
        self.kinds.iter().map_while(known).zip(self.ids).map(|(kind, id)| Tunnel { kind, id })
    }

    /// What tells flows in tunnels apart, the same in both directions: the kinds, four bits each, the outermost lowest, and
    /// the identifier. Identifiers of several tunnels are mixed into 32 bits. That of GTP-U is left out: each direction has
    /// its own, and nothing in the packets says which two belong together.
    pub fn key(&self) -> (u16, u32) {
        let kinds = self.kinds.iter().rev().fold(0, |all, kind| all << 4 | u16::from(*kind));
        let ids = self.iter().filter(|own| own.kind.has_common_id()).map(|own| own.id);
        let id = ids.fold(0, |all, id| match (all, id) {
            (all, 0) => all,
            (0, id) => id,
            (all, id) => chunk::hash::key64(u64::from(all) << 32 | u64::from(id), 0) as u32,
        });
        (kinds, id)
    }
}

/// `vxlan:100/gre`, the outermost first; identifiers that are 0 are left out.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Tunnel { kind, id }) in self.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "/" })?;
            f.write_str(kind.name())?;
            if id != 0 {
                write!(f, ":{id}")?;
            }
        }
        Ok(())
    }
}

/// The innermost packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// It, decoded. Offsets count from byte `at` of the frame. Without an Ethernet header of its own it has the VLAN tags of
    /// what carries it.
    pub decoded: Decoded,
    /// Where its Ethernet header is in the frame, or its IP header, if it has none; bytes.
    pub at: usize,
    /// The tunnels that it was in: one at least.
    pub path: Path,
}

/// Where the packet is that another one carries, in bytes from the start of that.
struct Carried {
    tunnel: Tunnel,
    at: usize,
    /// Where the carrier ends: what is inside must fit.
    end: usize,
    inside: Inside,
}

/// What follows the header of a tunnel.
enum Inside {
    Ethernet,
    Ipv4,
    Ipv6,
    /// The first four bits say which.
    Ip,
}

impl Inside {
    /// By EtherType.
    fn of(number: u16) -> Option<Inside> {
        match EtherType(number) {
            EtherType::IPV4 => Some(Inside::Ipv4),
            EtherType::IPV6 => Some(Inside::Ipv6),
            EtherType(ETHERNET_INSIDE) => Some(Inside::Ethernet),
            _ => None,
        }
    }

    fn fits(&self, version: u8) -> bool {
        match self {
            Inside::Ethernet => true,
            Inside::Ipv4 => version == 4,
            Inside::Ipv6 => version == 6,
            Inside::Ip => matches!(version, 4 | 6),
        }
    }
}

/// The innermost packet of a frame whose record is `outer`, through tunnels of the kinds that are asked for. `frame` may be
/// only the first cell. `None` if it is in no tunnel. With [`Checksums::Ignore`] a header of wrong checksum is as good as any.
pub fn inside(frame: &[u8], outer: &Decoded, asked: &Kinds, checksums: Checksums) -> Option<Inner> {
    let mut found: Option<Inner> = None;
    let (mut decoded, mut at, mut path) = (*outer, 0, Path::NONE);
    while let Some(carried) = carried(frame.get(at..)?, &decoded, asked) {
        let Some(next) = step(frame, (&decoded, at), &carried, checksums) else { break };
        let Some(longer) = path.through(carried.tunnel) else {
            if let Some(found) = &mut found {
                found.path.is_too_deep = true;
            }
            break;
        };
        (decoded, at, path) = (next, at + carried.at, longer);
        found = Some(Inner { decoded, at, path });
    }
    found
}

/// Decodes what is carried; `None` if it is no IP packet with lengths that fit.
fn step(
    frame: &[u8],
    (outer, outer_at): (&Decoded, usize),
    carried: &Carried,
    checksums: Checksums,
) -> Option<Decoded> {
    let at = outer_at + carried.at;
    let len = carried.end.checked_sub(carried.at)?;
    let rest = frame.get(at..)?;
    let bytes = &rest[..rest.len().min(len)];
    if !carried.inside.fits(bytes.first()? >> 4) {
        return None;
    }
    let mut decoded = match carried.inside {
        Inside::Ethernet => decode(bytes, len),
        _ => {
            let own = decode_ip(bytes, len);
            Decoded { vlan_tci: outer.vlan_tci, vlan_count: outer.vlan_count, ..own }
        }
    };
    // Whatever becomes of the checksum: all packets of a flow go the same way.
    let fits = decoded.anomaly.leaves_lengths_right()
        || matches!(decoded.anomaly, Anomaly::ZeroLengthFragment | Anomaly::OverlongFragment);
    if !decoded.is_ip() || !fits {
        return None;
    }
    if checksums == Checksums::Ignore {
        ignore_checksum(&mut decoded);
    }
    Some(decoded)
}

/// Whether a packet, from its Ethernet or IP header on, is one of a tunnel.
fn carried(packet: &[u8], d: &Decoded, asked: &Kinds) -> Option<Carried> {
    let is_right =
        matches!(d.anomaly, Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination);
    if !d.is_ip() || !is_right || d.has(Decoded::FRAGMENT) {
        return None;
    }
    const IPV4_INSIDE: IpProtocol = IpProtocol(4);
    const IPV6_INSIDE: IpProtocol = IpProtocol(41);
    let (at, end) = (usize::from(d.l4_offset), d.l3_end());
    let bytes = packet.get(at..packet.len().min(end))?;
    let ip_in_ip = |inside| {
        let tunnel = Tunnel { kind: Kind::IpInIp, id: 0 };
        asked.has(Kind::IpInIp).then_some(Carried { tunnel, at, end, inside })
    };
    match d.protocol {
        IPV4_INSIDE => ip_in_ip(Inside::Ipv4),
        IPV6_INSIDE => ip_in_ip(Inside::Ipv6),
        IpProtocol::GRE => gre(bytes, at, end, asked),
        IpProtocol::UDP => udp(bytes, at, end, d, asked),
        _ => None,
    }
}

/// The bytes from a GRE header on.
fn gre(bytes: &[u8], at: usize, end: usize, asked: &Kinds) -> Option<Carried> {
    const CHECKSUM: u8 = 0x80;
    const KEY: u8 = 0x20;
    const SEQUENCE: u8 = 0x10;
    let header = bytes.first_chunk::<4>()?;
    let [flags, version, ..] = *header;
    if flags & !(CHECKSUM | KEY | SEQUENCE) != 0 || version != 0 {
        return None; // source routes, PPTP
    }
    let word = |n: usize| Some(be32(bytes.get(n..)?.first_chunk::<4>()?, 0));
    let key_at = if flags & CHECKSUM == 0 { 4 } else { 8 };
    let key = if flags & KEY == 0 { 0 } else { word(key_at)? };
    let len = 4 + 4 * (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize;
    let kind = be16(header, 2);
    let (kind, id, len, inside) = match kind {
        ERSPAN_II if flags & SEQUENCE == 0 => (Kind::Erspan, 0, len, Inside::Ethernet), // type I
        ERSPAN_II => match word(len)? {
            first if first >> 28 == 1 => (Kind::Erspan, first & 0x3ff, len + 8, Inside::Ethernet),
            _ => return None,
        },
        ERSPAN_III => {
            let (first, last) = (word(len)?, word(len + 8)?);
            // Protocol data unit: an Ethernet frame.
            if first >> 28 != 2 || last >> 10 & 0x1f != 0 {
                return None;
            }
            let more = 12 + 8 * (last as usize & 1);
            (Kind::Erspan, first & 0x3ff, len + more, Inside::Ethernet)
        }
        other => (Kind::Gre, key, len, Inside::of(other)?),
    };
    let tunnel = Tunnel { kind, id };
    asked.has(kind).then_some(Carried { tunnel, at: at + len, end, inside })
}

/// The bytes from a UDP header on.
fn udp(bytes: &[u8], at: usize, end: usize, d: &Decoded, asked: &Kinds) -> Option<Carried> {
    let (src, dst) = d.ports()?;
    let len = usize::from(be16(bytes.first_chunk::<8>()?, 4));
    if len < 8 || at + len > end {
        return None;
    }
    let (end, payload) = (at + len, bytes.get(8..bytes.len().min(len))?);
    let at = at + 8;
    let of = |kind, id, len: usize, inside| {
        Some(Carried { tunnel: Tunnel { kind, id }, at: at + len, end, inside })
    };
    // The source port of VXLAN and GENEVE is a hash of the inner packet.
    if asked.is_at(Kind::Vxlan, dst) {
        // All other bits are ignored (RFC 7348 §5), but for one that says what follows (draft-ietf-nvo3-vxlan-gpe §3.1).
        const IDENTIFIER: u8 = 0x08;
        const NEXT: u8 = 0x04;
        let header = payload.first_chunk::<8>()?;
        if header[0] & IDENTIFIER == 0 {
            return None;
        }
        let inside = match (header[0] & NEXT, header[3]) {
            (0, _) | (_, 0 | 3) => Inside::Ethernet,
            (_, 1) => Inside::Ipv4,
            (_, 2) => Inside::Ipv6,
            _ => return None,
        };
        return of(Kind::Vxlan, be32(header, 4) >> 8, 8, inside);
    }
    if asked.is_at(Kind::Geneve, dst) {
        const CONTROL: u8 = 0x80;
        let header = payload.first_chunk::<8>()?;
        if header[0] >> 6 != 0 || header[1] & CONTROL != 0 {
            return None;
        }
        let len = 8 + 4 * usize::from(header[0] & 0x3f);
        return of(Kind::Geneve, be32(header, 4) >> 8, len, Inside::of(be16(header, 2))?);
    }
    if asked.is_at(Kind::Gtp, dst) || asked.is_at(Kind::Gtp, src) {
        let (id, from, to) = gtp(payload)?;
        let inside = Inside::Ip;
        let tunnel = Tunnel { kind: Kind::Gtp, id };
        let fits = at + to <= end;
        return fits.then_some(Carried { tunnel, at: at + from, end: at + to, inside });
    }
    if asked.is_at(Kind::Teredo, dst) || asked.is_at(Kind::Teredo, src) {
        return of(Kind::Teredo, 0, teredo(payload)?, Inside::Ipv6);
    }
    None
}

/// The TEID of a G-PDU, and where its packet begins and ends.
fn gtp(payload: &[u8]) -> Option<(u32, usize, usize)> {
    const G_PDU: u8 = 255;
    const EXTENSION: u8 = 0x04;
    const OPTIONAL: u8 = 0x07;
    let header = payload.first_chunk::<8>()?;
    // Version 1, GTP and not GTP'.
    if header[0] >> 4 != 0b0011 || header[1] != G_PDU {
        return None;
    }
    let to = 8 + usize::from(be16(header, 2));
    let mut from = 8;
    if header[0] & OPTIONAL != 0 {
        from = 12;
        let mut next = *payload.get(11)?;
        let mut left = GTP_EXTENSIONS_MAX;
        while header[0] & EXTENSION != 0 && next != 0 {
            left = left.checked_sub(1)?;
            let len = 4 * usize::from(*payload.get(from)?);
            if len == 0 {
                return None;
            }
            from += len;
            next = *payload.get(from - 1)?;
        }
    }
    (from <= to).then_some((be32(header, 4), from, to))
}

/// Where the IPv6 packet begins behind authentication and origin indication (RFC 4380 §5.1.1).
fn teredo(payload: &[u8]) -> Option<usize> {
    let mut at = 0;
    if let [0, 1, id_len, value_len, ..] = *payload {
        at = 13 + usize::from(id_len) + usize::from(value_len);
    }
    if let [0, 0, ..] = *payload.get(at..)? {
        at += 8;
    }
    Some(at)
}

/// [`tracked_hash_of_frame`], of the innermost packet if the frame is in tunnels of the kinds that are asked for: both
/// directions of a flow meet, whichever way their tunnels take. `frame` may be only the first cell.
pub fn hash_of_frame(frame: &[u8], asked: &Kinds) -> u32 {
    let mut outer = decode(frame, usize::MAX);
    ignore_checksum(&mut outer);
    let inner = inside(frame, &outer, asked, Checksums::Ignore);
    let of_inner = |inner: Inner| {
        let at = inner.at + usize::from(inner.decoded.l3_offset);
        tracked_hash_of_packet(inner.decoded.kind, frame.get(at..)?)
    };
    inner.and_then(of_inner).unwrap_or_else(|| tracked_hash_of_frame(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<Kinds>();
        assert_eq!(read("all"), Ok(Kinds::all()));
        let some = read("gre, vxlan:8472,gtp-u").unwrap();
        assert_eq!(some.elements().collect::<Vec<_>>().join(","), "gre,vxlan:8472,gtp-u");
        assert!(some.is_at(Kind::Vxlan, 8472) && !some.is_at(Kind::Vxlan, 4789));
        assert!(read("vxlan:8472,all").unwrap().is_at(Kind::Vxlan, 8472), "a port stays");
        for wrong in ["", "l2tp", "gre:1", "vxlan:0", "vxlan:x", "vxlan:70000", "all:1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_has_a_key_for_both_directions() {
        let of = |all: &[(Kind, u32)]| {
            let step = |path: Path, (kind, id): &(Kind, u32)| {
                path.through(Tunnel { kind: *kind, id: *id }).unwrap()
            };
            all.iter().fold(Path::NONE, step)
        };
        assert_eq!(Path::NONE.key(), (0, 0));
        assert_eq!(of(&[(Kind::Vxlan, 100)]).key(), (4, 100));
        assert_eq!(of(&[(Kind::Gtp, 7)]).key(), of(&[(Kind::Gtp, 8)]).key());
        assert_eq!(of(&[(Kind::Gtp, 7), (Kind::Gre, 9)]).key(), (0x26, 9));
        assert_ne!(
            of(&[(Kind::Gre, 1), (Kind::Gre, 2)]).key(),
            of(&[(Kind::Gre, 2), (Kind::Gre, 1)]).key()
        );
        let deep = of(&[(Kind::Vxlan, 100), (Kind::Gre, 0), (Kind::Erspan, 3)]);
        assert_eq!(deep.to_string(), "vxlan:100/gre/erspan:3");
        assert_eq!(deep.through(Tunnel { kind: Kind::Gre, id: 0 }), None);
    }
}
