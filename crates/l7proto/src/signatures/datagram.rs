//! Signatures of datagrams: what each side's look like, whole datagrams.

use super::SIGNATURES_MAX;
use super::stream::SIP_METHODS;
use crate::bytes::Cursor;
use crate::dns;
use crate::identifier::{FoundBy, Ports};
use crate::protocol::Protocol::{self, *};

/// What a test says of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It is another protocol's.
    No,
    /// It may be this protocol's; so may others'.
    Weak,
    /// Nothing else looks like this.
    Strong,
}

/// A protocol's datagrams, of either side.
pub(crate) struct Signature {
    pub(crate) protocol: Protocol,
    pub(crate) found_by: FoundBy,
    pub(crate) test: fn(&[u8], Ports) -> Fit,
}

const fn parser(protocol: Protocol, test: fn(&[u8], Ports) -> Fit) -> Signature {
    Signature { protocol, found_by: FoundBy::Parser, test }
}

const fn pattern(protocol: Protocol, test: fn(&[u8], Ports) -> Fit) -> Signature {
    Signature { protocol, found_by: FoundBy::Pattern, test }
}

/// The table, in the order in which its rows are believed.
pub(crate) const TABLE: &[Signature] = &[
    parser(Quic, quic),
    parser(Dtls, dtls),
    parser(Stun, stun),
    parser(Dhcp, dhcp),
    parser(Mdns, mdns),
    parser(Dns, dns_message),
    parser(Snmp, snmp),
    pattern(Sip, sip),
    pattern(Ssdp, ssdp),
    pattern(BitTorrentDht, dht),
    pattern(BitTorrent, peer_discovery),
    parser(WireGuard, wireguard),
    parser(RdpUdp, rdp_udp),
    parser(Ntp, ntp),
    parser(Radius, radius),
    parser(Tftp, tftp),
    parser(OpenVpn, openvpn),
    parser(Utp, utp),
];

const _: () = assert!(TABLE.len() <= SIGNATURES_MAX);

fn strong(is: bool) -> Fit {
    if is { Fit::Strong } else { Fit::No }
}

fn weak(is: bool) -> Fit {
    if is { Fit::Weak } else { Fit::No }
}

/// A long header of version 1 or 2 or one of the drafts, or version negotiation (RFC 9000 §17.2).
fn quic(bytes: &[u8], _: Ports) -> Fit {
    let &[first, v1, v2, v3, v4, id_len, ..] = bytes else { return Fit::No };
    let version = u32::from_be_bytes([v1, v2, v3, v4]);
    let known = matches!(version, 1 | 0x6b33_43cf | 0xff00_001b..=0xff00_0022);
    let mut cursor = Cursor::new(&bytes[6..]);
    let ids = cursor.take(usize::from(id_len)).and_then(|_| {
        let source = cursor.u8()?;
        cursor.take(usize::from(source)).map(|_| source)
    });
    let Some(source_len) = ids else { return Fit::No };
    if first & 0x80 == 0 || id_len > 20 || source_len > 20 {
        return Fit::No;
    }
    match version {
        // A list of versions, and nothing behind it.
        0 => weak(!cursor.rest().is_empty() && cursor.rest().len().is_multiple_of(4)),
        _ if !known || first & 0x40 == 0 => Fit::No,
        _ => strong(cursor.rest().len() >= 16),
    }
}

/// A record with its length (RFC 6347 §4.1). The short headers of DTLS 1.3 come later in a flow and are like anything.
fn dtls(bytes: &[u8], _: Ports) -> Fit {
    let mut cursor = Cursor::new(bytes);
    let (Some(kind), Some(version)) = (cursor.u8(), cursor.u16()) else { return Fit::No };
    let is_version = matches!(version, 0xfeff | 0xfefd | 0x0100);
    if !(20..=26).contains(&kind) || !is_version || cursor.take(8).is_none() {
        return Fit::No;
    }
    let Some(len) = cursor.u16() else { return Fit::No };
    let Some(body) = cursor.take(usize::from(len)) else { return Fit::No };
    match (kind, body) {
        (22, [1..=3 | 11..=16 | 20, ..]) if version != 0x0100 => Fit::Strong,
        _ => Fit::Weak,
    }
}

/// The header with the magic cookie, and attributes in multiples of four (RFC 8489 §5).
fn stun(bytes: &[u8], _: Ports) -> Fit {
    let [kind, _, len_high, len_low, cookie @ ..] = bytes else { return Fit::No };
    let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
    let fits = kind & 0xc0 == 0 && cookie.starts_with(&[0x21, 0x12, 0xa4, 0x42]);
    strong(fits && len.is_multiple_of(4) && bytes.len() == 20 + len)
}

/// BOOTP's fixed part, and DHCP's magic cookie (RFC 2131 §2). Without the cookie it is BOOTP, which needs its ports.
fn dhcp(bytes: &[u8], _: Ports) -> Fit {
    let [1 | 2, _, address_len, hops, ..] = bytes else { return Fit::No };
    if *address_len > 16 || *hops > 32 {
        return Fit::No;
    }
    match bytes.get(236..240) {
        Some([0x63, 0x82, 0x53, 0x63]) => Fit::Strong,
        Some(_) => Fit::Weak,
        None => Fit::No,
    }
}

fn has_port(ports: Ports, port: u16) -> bool {
    ports.opener == port || ports.responder == port
}

fn mdns(bytes: &[u8], ports: Ports) -> Fit {
    if has_port(ports, 5353) { dns_fit(bytes, true) } else { Fit::No }
}

/// The name service of NetBIOS has the header of DNS, and names and records of its own (RFC 1002 §4.2).
fn dns_message(bytes: &[u8], ports: Ports) -> Fit {
    match has_port(ports, 5353) || has_port(ports, 137) {
        true => Fit::No,
        false => dns_fit(bytes, has_port(ports, 53)),
    }
}

/// A message whose counts, names and lengths tile the datagram is DNS. On its port, so may be one whose header is sane, or
/// whose first question is whole: servers answer queries with the reserved bit, an operation or counts that are wrong.
fn dns_fit(bytes: &[u8], is_port: bool) -> Fit {
    let Some(message) = dns::Message::parse(bytes) else { return Fit::No };
    let has_entries = message.counts() != [0; 4];
    if !message.is_sane() || !has_entries {
        return weak(is_port && message.has_question());
    }
    match message.end() {
        Some(end) if end == bytes.len() => Fit::Strong,
        _ => weak(is_port),
    }
}

/// A sequence with version, then community and PDU, or with the header of version 3 (RFC 3416, RFC 3412).
fn snmp(bytes: &[u8], _: Ports) -> Fit {
    let mut cursor = Cursor::new(bytes);
    let Some((0x30, len)) = cursor.ber() else { return Fit::No };
    let is_whole = len == cursor.rest().len();
    let Some((2, 1)) = cursor.ber() else { return Fit::No };
    let pdu = match cursor.u8() {
        Some(0 | 1) => {
            let Some((4, community)) = cursor.ber() else { return Fit::No };
            cursor.take(community).and_then(|_| cursor.u8())
        }
        Some(3) => return if cursor.u8() == Some(0x30) { Fit::Strong } else { Fit::No },
        _ => return Fit::No,
    };
    match pdu {
        Some(0xa0..=0xa8) if is_whole => Fit::Strong,
        Some(0xa0..=0xa8) => Fit::Weak,
        _ => Fit::No,
    }
}

fn sip(bytes: &[u8], _: Ports) -> Fit {
    let is_request = SIP_METHODS.iter().any(|method| {
        let target = bytes.strip_prefix(*method);
        target.is_some_and(|t| {
            t.starts_with(b"sip:") || t.starts_with(b"sips:") || t.starts_with(b"tel:")
        })
    });
    // Two empty lines keep a binding alive (RFC 5626 §4.4.1).
    match bytes {
        b"\r\n\r\n" | b"\r\n" => Fit::Weak,
        _ => strong(is_request || bytes.starts_with(b"SIP/2.0 ")),
    }
}

fn ssdp(bytes: &[u8], _: Ports) -> Fit {
    if bytes.starts_with(b"M-SEARCH * HTTP/1.1\r\n") || bytes.starts_with(b"NOTIFY * HTTP/1.1\r\n")
    {
        return Fit::Strong;
    }
    weak(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"))
}

/// The first keys of a query, an answer or an error in bencoding (BEP 5).
fn dht(bytes: &[u8], _: Ports) -> Fit {
    let beginnings: [&[u8]; 4] = [b"d1:ad2:id20:", b"d1:rd2:id20:", b"d2:ip6:", b"d1:eli"];
    strong(beginnings.iter().any(|beginning| bytes.starts_with(beginning)))
}

/// The four messages with their lengths.
fn wireguard(bytes: &[u8], _: Ports) -> Fit {
    match (bytes, bytes.len()) {
        ([1, 0, 0, 0, ..], 148) | ([2, 0, 0, 0, ..], 92) => Fit::Strong,
        ([3, 0, 0, 0, ..], 64) => Fit::Weak,
        ([4, 0, 0, 0, ..], len) => weak(len >= 32 && len.is_multiple_of(16)),
        _ => Fit::No,
    }
}

/// SYN and SYN with ACK of [MS-RDPEUDP] §2.2.2, padded with zeros to their size; on its port, later packets may be
/// anything.
fn rdp_udp(bytes: &[u8], ports: Ports) -> Fit {
    let Some(flags) = bytes.get(6..8) else { return Fit::No };
    let flags = u16::from_be_bytes([flags[0], flags[1]]);
    let is_padded = (1132..=1232).contains(&bytes.len())
        && bytes[bytes.len() - 512..].iter().all(|byte| *byte == 0);
    let is_syn = flags & 1 != 0 && flags & 0xe000 == 0 && is_padded;
    let is_first = flags & 4 == 0 && bytes.starts_with(&[0xff; 4]);
    match is_syn {
        true if is_first => Fit::Strong,
        true if flags & 4 != 0 => Fit::Weak,
        _ => weak(has_port(ports, 3389)),
    }
}

/// A mode of time with 48 bytes and more, or a control message (RFC 5905 §7.3, RFC 9327).
fn ntp(bytes: &[u8], ports: Ports) -> Fit {
    let &[first, stratum, poll, precision, ..] = bytes else { return Fit::No };
    let (version, mode) = (first >> 3 & 7, first & 7);
    // Both are powers of two in seconds; a client may hide its own behind 32.
    let is_clock = matches!(poll as i8, -6..=17) && matches!(precision as i8, -32..=0 | 32);
    let is_port = has_port(ports, 123);
    if !(1..=4).contains(&version) {
        return Fit::No;
    }
    match mode {
        6 => weak(is_port && bytes.len() >= 12),
        7 => weak(is_port && bytes.len() >= 8),
        0 if version > 1 => Fit::No,
        _ if bytes.len() < 48 || stratum > 16 => Fit::No,
        // Before extension fields, which come in words, and a digest.
        _ if is_port && is_clock && bytes.len().is_multiple_of(4) => Fit::Strong,
        _ => weak(is_port || matches!(bytes.len(), 48 | 68 | 72)),
    }
}

/// The code, the length, the authenticator; attributes that tile the rest (RFC 2865 §3, §5).
fn radius(bytes: &[u8], _: Ports) -> Fit {
    let [1..=5 | 11 | 40..=45, _, len_high, len_low, ..] = bytes else { return Fit::No };
    let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
    if len != bytes.len() || !(20..=4096).contains(&len) {
        return Fit::No;
    }
    let mut rest = &bytes[20..];
    while let [_, len, ..] = rest {
        match rest.get(usize::from(*len)..) {
            Some(behind) if *len >= 2 => rest = behind,
            _ => return Fit::No,
        }
    }
    weak(rest.is_empty())
}

/// A request for a file in one of the modes. Blocks, acknowledgements and options go between other ports (RFC 1350 §4).
fn tftp(bytes: &[u8], _: Ports) -> Fit {
    let rest = match bytes {
        [0, 1 | 2, rest @ ..] => rest,
        [0, 3, _, _, data @ ..] => return weak(data.len() <= 1468),
        [0, 4, _, _] => return Fit::Weak,
        [0, 6, options @ ..] => return weak(options.ends_with(&[0]) && options.is_ascii()),
        _ => return Fit::No,
    };
    let mut parts = rest.split(|byte| *byte == 0);
    let (name, mode) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_mode =
        ["octet", "netascii", "mail"].iter().any(|m| m.as_bytes().eq_ignore_ascii_case(mode));
    strong(!name.is_empty() && name.is_ascii() && is_mode && parts.next().is_some())
}

/// A multicast announcement of a peer (BEP 14).
fn peer_discovery(bytes: &[u8], _: Ports) -> Fit {
    strong(bytes.starts_with(b"BT-SEARCH * HTTP/1.1\r\n"))
}

fn openvpn(bytes: &[u8], _: Ports) -> Fit {
    let [first, ..] = bytes else { return Fit::No };
    weak(is_openvpn_reset(*first, bytes.len()))
}

/// The resets that open a session, with key 0. A client's has a session (8 bytes), no acknowledgement (1) and a number (4);
/// a server's acknowledges one packet of a session (12 more). Both may have a digest, a number and a time: none, or 24, 28,
/// 40 or 72 bytes for MD5, SHA-1, SHA-256 and SHA-512; version 3 of the client's has a wrapped key.
pub(super) fn is_openvpn_reset(first: u8, len: usize) -> bool {
    match first {
        0x38 => matches!(len, 14 | 38 | 42 | 54 | 86),
        0x40 => matches!(len, 26 | 50 | 54 | 66 | 98),
        0x50 => (300..=1200).contains(&len),
        _ => false,
    }
}

/// A header of version 1 with extensions 0 to 2 and no extension in a SYN (BEP 29).
fn utp(bytes: &[u8], _: Ports) -> Fit {
    let [first, extension, ..] = bytes else { return Fit::No };
    weak(bytes.len() >= 20 && first & 15 == 1 && first >> 4 <= 4 && *extension <= 2)
}
