//! Names that stand for numbers: offsets and values of fields, services, protocols.

/// Which transport protocols a service's name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
    Both,
}

/// Offsets into ICMP, ICMPv6 and TCP headers and values of their fields, as pcap-filter(7) has them.
const CONSTANTS: &[(&str, u32)] = &[
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-multicastlistenerreportv2", 143),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
];

/// Services that people name, with IANA's ports. Any other is written as a number: a filter means the same on every machine,
/// whatever its /etc/services holds.
const SERVICES: &[(&str, u16, Transport)] = &[
    ("ftp-data", 20, Transport::Tcp),
    ("ftp", 21, Transport::Tcp),
    ("ssh", 22, Transport::Tcp),
    ("telnet", 23, Transport::Tcp),
    ("smtp", 25, Transport::Tcp),
    ("domain", 53, Transport::Both),
    ("bootps", 67, Transport::Udp),
    ("bootpc", 68, Transport::Udp),
    ("tftp", 69, Transport::Udp),
    ("http", 80, Transport::Tcp),
    ("kerberos", 88, Transport::Both),
    ("pop3", 110, Transport::Tcp),
    ("sunrpc", 111, Transport::Both),
    ("nntp", 119, Transport::Tcp),
    ("ntp", 123, Transport::Udp),
    ("netbios-ns", 137, Transport::Udp),
    ("netbios-dgm", 138, Transport::Udp),
    ("netbios-ssn", 139, Transport::Tcp),
    ("imap2", 143, Transport::Tcp),
    ("snmp", 161, Transport::Both),
    ("snmp-trap", 162, Transport::Both),
    ("bgp", 179, Transport::Tcp),
    ("ldap", 389, Transport::Both),
    ("https", 443, Transport::Both),
    ("microsoft-ds", 445, Transport::Tcp),
    ("isakmp", 500, Transport::Udp),
    ("syslog", 514, Transport::Udp),
    ("rtsp", 554, Transport::Both),
    ("submission", 587, Transport::Tcp),
    ("ldaps", 636, Transport::Both),
    ("domain-s", 853, Transport::Both),
    ("rsync", 873, Transport::Tcp),
    ("imaps", 993, Transport::Tcp),
    ("pop3s", 995, Transport::Tcp),
    ("openvpn", 1194, Transport::Both),
    ("l2f", 1701, Transport::Udp),
    ("radius", 1812, Transport::Both),
    ("radius-acct", 1813, Transport::Both),
    ("nfs", 2049, Transport::Both),
    ("iscsi-target", 3260, Transport::Tcp),
    ("mysql", 3306, Transport::Tcp),
    ("ms-wbt-server", 3389, Transport::Tcp),
    ("sip", 5060, Transport::Both),
    ("sip-tls", 5061, Transport::Both),
    ("mdns", 5353, Transport::Udp),
    ("postgresql", 5432, Transport::Tcp),
    ("redis", 6379, Transport::Tcp),
    ("http-alt", 8080, Transport::Tcp),
];

/// IP protocols after `proto`.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// EtherTypes after `ether proto`.
const ETHERTYPES: &[(&str, u16)] =
    &[("ip", 0x0800), ("arp", 0x0806), ("rarp", 0x8035), ("ip6", 0x86dd), ("loopback", 0x9000)];

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
}

pub(super) fn constant(name: &str) -> Option<u32> {
    find(CONSTANTS, name)
}

pub(super) fn service(name: &str) -> Option<(u16, Transport)> {
    SERVICES.iter().find(|(own, ..)| *own == name).map(|(_, port, transport)| (*port, *transport))
}

/// tcpdump requires a backslash before names that are keywords; here it may be there.
pub(super) fn protocol(name: &str) -> Option<u8> {
    find(PROTOCOLS, name.strip_prefix('\\').unwrap_or(name))
}

pub(super) fn ethertype(name: &str) -> Option<u16> {
    find(ETHERTYPES, name.strip_prefix('\\').unwrap_or(name))
}
