//! `[[sa]]` and `[[policy]]`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;

use super::nat::PortRange;
use crate::config::kinds::{
    Kind, address, boolean, file, integer, number_or_parsed, prefix, words,
};

/// Where no address is given: it is reported.
const NOWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// Bytes, packets or seconds of a lifetime.
const COUNT: std::ops::RangeInclusive<i128> = 1..=i64::MAX as i128;

crate::section! {
    /// A security association of IPsec: ESP in one direction ([ipsec.md](ipsec.md)).
    #[derive(Eq, Hash)]
    pub struct SaEntry("[[sa]]") {
        /// Direction of its packets.
        live direction: SaDirection = SaDirection::Out, words().needed("\"out\"");
        /// Security parameters index, by which the receiver knows the association.
        live spi: u32 = 0, integer(256..=4_294_967_295).hexadecimal().needed("0x1001");
        /// Address of the sender of ESP packets.
        live source: IpAddr = NOWHERE, address().needed("\"192.0.2.1\"");
        /// Address of the receiver.
        live destination: IpAddr = NOWHERE, address().needed("\"198.51.100.1\"");
        /// Number by which policies refer to the association. Several associations may have the same; the newest one sends.
        live reqid: u32 = 0, integer(1..=4_294_967_295).needed("1");
        /// Number of the tunnel interface whose packets it carries (a port with `backend = "ipsec"`); without it, packets that
        /// policies protect.
        live if_id: Option<u32> = None, integer(1..=4_294_967_295).optional();
        /// `tunnel`: whole packets, after a new outer IP header. `transport`: the payload of packets between both addresses,
        /// after their IP header.
        live mode: SaMode = SaMode::Tunnel, words();
        /// Cipher. GCM and ChaCha20-Poly1305 authenticate, too; so does GMAC, which does not encrypt. All others, and
        /// `null`, need `authentication`.
        live encryption: SaEncryption = SaEncryption::Gcm128, words();
        /// Authentication beside a cipher that does not authenticate.
        live authentication: SaAuthentication = SaAuthentication::None, words();
        /// Path of the file with the keys: a line of hexadecimal digits for the cipher, with the salt at its end if the cipher
        /// has one, and a line for `authentication`. Only its owner may have access to it (mode 0600 or
        /// 0400); the owner must be root or the user who runs the program. A reload reads the file again.
        live key_file: PathBuf = PathBuf::new(), file("the file with the keys").needed("\"branch.key\"");
        /// Sequence numbers of 64 bits (ESN). Both ends must have the same.
        live esn: bool = false, boolean();
        /// Replay window of `in`, in packets; 0: replayed packets are accepted.
        live window: u32 = 64, integer(0..=4096);
        /// First sequence number of `out`. After a restart with the same key: one that was not sent before.
        live first_number: u64 = 1, integer(1..=i64::MAX as i128);
        /// ESP in UDP, for paths with address translation (RFC 3948).
        live udp: bool = false, boolean();
        /// Port of the receiver with `udp`.
        live udp_port: u16 = 4500, integer(1..=65_535);
        /// Tunnel mode: shorter inner packets are padded to this length in bytes, but no further than the link takes, so that
        /// their length shows less.
        live pad_to: u16 = 0, integer(0..=65_000);
        /// Tunnel mode: DF of outer IPv4 headers.
        live df: SaDf = SaDf::Copy, words();
        /// Tunnel mode: differentiated services code point of outer headers; without it, that of the inner header.
        live dscp: Option<u8> = None, integer(0..=63).optional();
        /// Tunnel mode: congestion marks go between outer and inner header (RFC 6040).
        live ecn: bool = true, boolean();
        /// Bytes of payload at which a log line says that a new association is due.
        live soft_bytes: Option<u64> = None, integer(COUNT).optional();
        /// Bytes of payload after which the association ends.
        live hard_bytes: Option<u64> = None, integer(COUNT).optional();
        /// The same in packets.
        live soft_packets: Option<u64> = None, integer(COUNT).optional();
        /// The same in packets.
        live hard_packets: Option<u64> = None, integer(COUNT).optional();
        /// The same in seconds since it was added; over captures since its first packet.
        live soft_seconds: Option<u64> = None, integer(COUNT).optional();
        /// The same in seconds.
        live hard_seconds: Option<u64> = None, integer(COUNT).optional();
    }
}

crate::section! {
    /// IPsec, beside `[[sa]]` and `[[policy]]` ([ipsec.md](ipsec.md)).
    #[derive(Eq)]
    pub struct Ipsec("ipsec") {
        /// Take the associations and policies of Linux, too: a key-exchange daemon such as strongSwan's then steers the gateway.
        /// Live runs only. Counts, expired lifetimes, and packets without an association are reported back to Linux.
        restart linux: bool = false, boolean();
        /// Encrypt and authenticate on the device, which then has the keys of associations. It needs a `backend` with a device;
        /// otherwise workers do it in the same step, slower than without the key. Packets are the same.
        restart device: bool = false, boolean();
        /// Workers that open or seal the packets of an association, where several receive them. `any`: whichever receives a
        /// packet. `one`: the first one that does; the others hand packets over. `auto`: one, if the packets of an association
        /// change worker often, and one has time for them. Live runs only; with `device` it is `any`.
        restart workers: SaWorkers = SaWorkers::Any, words();
        /// `[[sa]]` with `udp`: a keep-alive (RFC 3948 §4) is sent to a peer after this many seconds without a packet to it, so
        /// that an address translator on the path keeps its binding; 0: never. A daemon sends its own.
        live keep_alive: u32 = 20, integer(0..=3_600).unit("seconds");
    }
}

crate::section! {
    /// A security policy of IPsec. The first one that matches a packet decides.
    #[derive(Eq, Hash)]
    pub struct PolicyEntry("[[policy]]") {
        /// `protect`: packets leave by an association with `reqid`, and packets of the opposite direction must have come by
        /// one. `bypass`: they pass as they are. `discard`: they are dropped.
        live action: PolicyAction = PolicyAction::Protect, words().needed("\"protect\"");
        /// Number of the associations of `protect`.
        live reqid: Option<u32> = None, integer(1..=4_294_967_295).optional();
        /// Number of a tunnel interface: the policy is for packets that leave or come by it, and only those.
        live if_id: Option<u32> = None, integer(1..=4_294_967_295).optional();
        /// `out`: packets that are sent. `in`: packets that were received. `both`: packets that are sent, and those of the
        /// opposite direction, with source and destination exchanged.
        live direction: PolicyDirection = PolicyDirection::Both, words();
        /// Source addresses; without it, all.
        live source: Option<IpNet> = None, prefix().optional();
        /// Destination addresses; without it, all.
        live destination: Option<IpNet> = None, prefix().optional();
        /// Protocol as a name or number; without it, all.
        live protocol: Option<PolicyProtocol> = None,
            number_or_parsed("a protocol such as \"tcp\" or a number")
                .named("protocol", "`tcp`, `udp`, `icmp`, `icmpv6`, `gre`, `sctp`, or 0 to 255").optional();
        /// Source port, or a range of ports.
        live source_port: Option<PortRange> = None,
            number_or_parsed("a port or a range of ports such as \"8000-8010\"")
                .named("port or range", "1 to 65,535, or a range").optional();
        /// Destination port, or a range of ports.
        live destination_port: Option<PortRange> = None,
            number_or_parsed("a port or a range of ports such as \"8000-8010\"")
                .named("port or range", "1 to 65,535, or a range").optional();
    }
}

crate::words! {
    /// `sa.direction`.
    pub enum SaDirection {
        /// It receives.
        In = "in",
        /// It sends.
        Out = "out",
    }
}

crate::words! {
    /// `sa.mode`.
    pub enum SaMode {
        /// Whole packets.
        Tunnel = "tunnel",
        /// What is behind headers.
        Transport = "transport",
    }
}

crate::words! {
    /// `ipsec.workers`.
    pub enum SaWorkers {
        /// All that receive them.
        Any = "any",
        /// The first one that receives one.
        One = "one",
        /// By measured load.
        Auto = "auto",
    }
}

crate::words! {
    /// `sa.encryption`.
    pub enum SaEncryption {
        /// AES-128-GCM, 16 bytes of check value.
        Gcm128 = "aes-128-gcm",
        /// AES-192-GCM.
        Gcm192 = "aes-192-gcm",
        /// AES-256-GCM.
        Gcm256 = "aes-256-gcm",
        /// AES-128-GCM, 12 bytes of check value.
        Gcm128Icv12 = "aes-128-gcm-12",
        /// AES-192-GCM.
        Gcm192Icv12 = "aes-192-gcm-12",
        /// AES-256-GCM.
        Gcm256Icv12 = "aes-256-gcm-12",
        /// AES-128-GCM, 8 bytes of check value.
        Gcm128Icv8 = "aes-128-gcm-8",
        /// AES-192-GCM.
        Gcm192Icv8 = "aes-192-gcm-8",
        /// AES-256-GCM.
        Gcm256Icv8 = "aes-256-gcm-8",
        /// ChaCha20-Poly1305.
        ChaCha20Poly1305 = "chacha20-poly1305",
        /// AES-128-CBC.
        Cbc128 = "aes-128-cbc",
        /// AES-192-CBC.
        Cbc192 = "aes-192-cbc",
        /// AES-256-CBC.
        Cbc256 = "aes-256-cbc",
        /// AES-128-CTR.
        Ctr128 = "aes-128-ctr",
        /// AES-192-CTR.
        Ctr192 = "aes-192-ctr",
        /// AES-256-CTR.
        Ctr256 = "aes-256-ctr",
        /// AES-128-GMAC, which authenticates only.
        Gmac128 = "aes-128-gmac",
        /// AES-192-GMAC.
        Gmac192 = "aes-192-gmac",
        /// AES-256-GMAC.
        Gmac256 = "aes-256-gmac",
        /// None.
        Null = "null",
    }
}

crate::words! {
    /// `sa.authentication`.
    pub enum SaAuthentication {
        /// By the cipher.
        None = "none",
        /// HMAC-SHA1-96.
        Sha1 = "hmac-sha1-96",
        /// HMAC-SHA-256-128.
        Sha256 = "hmac-sha256-128",
        /// HMAC-SHA-384-192.
        Sha384 = "hmac-sha384-192",
        /// HMAC-SHA-512-256.
        Sha512 = "hmac-sha512-256",
    }
}

crate::words! {
    /// `sa.df`.
    pub enum SaDf {
        /// That of the inner packet.
        Copy = "copy",
        /// Set.
        Set = "set",
        /// Not set.
        Clear = "clear",
    }
}

crate::words! {
    /// `policy.action`.
    pub enum PolicyAction {
        /// ESP.
        Protect = "protect",
        /// As it is.
        Bypass = "bypass",
        /// Dropped.
        Discard = "discard",
    }
}

crate::words! {
    /// `policy.direction`.
    pub enum PolicyDirection {
        /// Both.
        Both = "both",
        /// Received.
        In = "in",
        /// Sent.
        Out = "out",
    }
}

/// A protocol by name or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyProtocol(pub u8);

/// Protocols with names.
const PROTOCOLS: [(&str, u8); 6] =
    [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58), ("gre", 47), ("sctp", 132)];

impl FromStr for PolicyProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = PROTOCOLS.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
        let number = named.or_else(|| text.parse().ok());
        number.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is not a protocol: expected tcp, udp, icmp, icmpv6, gre, sctp or 0 to 255"
            )
        })
    }
}

impl fmt::Display for PolicyProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOLS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// The settings that differ from the defaults, key by key.
fn shown<S: crate::config::section::SectionValue>(
    own: &S,
    plain: &S,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let all = |own: &S| {
        let mut settings = Vec::new();
        own.settings("", &mut settings);
        settings
    };
    let mut gap = "";
    for (setting, default) in all(own).iter().zip(&all(plain)) {
        if setting.text != default.text {
            write!(f, "{gap}{} {}", setting.key.trim_start_matches('.'), setting.text)?;
            gap = " ";
        }
    }
    Ok(())
}

impl fmt::Display for SaEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self, &Self::default(), f)
    }
}

impl fmt::Display for PolicyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self, &Self::default(), f)
    }
}
