//! The protocols, their names and their registered ports.

/// What carries the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A stream of bytes (TCP).
    Stream,
    /// Datagrams (UDP).
    Datagram,
}

macro_rules! protocols {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// An application protocol. New ones may come.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Protocol {
            $($(#[$doc])* $variant,)*
        }

        impl Protocol {
            /// Each of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in lower case, as Suricata's `app_proto` writes those that it knows.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

protocols! {
    /// HTTP/1.0 and 1.1 (RFC 9112), with WebSocket and all else that upgrades from it.
    Http1 "http";
    /// HTTP/2 in the clear (RFC 9113 §3.4).
    Http2 "http2";
    /// SSL 2 to TLS 1.3.
    Tls "tls";
    /// DTLS (RFC 9147).
    Dtls "dtls";
    /// QUIC (RFC 9000, RFC 9369).
    Quic "quic";
    /// Secure Shell (RFC 4253).
    Ssh "ssh";
    /// SMTP (RFC 5321).
    Smtp "smtp";
    /// The control connection of FTP (RFC 959).
    Ftp "ftp";
    /// DNS (RFC 1035).
    Dns "dns";
    /// Multicast DNS (RFC 6762).
    Mdns "mdns";
    /// IMAP (RFC 9051).
    Imap "imap";
    /// POP3 (RFC 1939).
    Pop3 "pop3";
    /// IRC (RFC 2812).
    Irc "irc";
    /// XMPP (RFC 6120).
    Xmpp "xmpp";
    /// SIP (RFC 3261).
    Sip "sip";
    /// RTSP (RFC 2326, RFC 7826).
    Rtsp "rtsp";
    /// Remote Desktop ([MS-RDPBCGR]).
    Rdp "rdp";
    /// Remote Desktop over UDP ([MS-RDPEUDP]).
    RdpUdp "rdpudp";
    /// SMB 1 to 3 over NetBIOS sessions or TCP ([MS-CIFS], [MS-SMB2]).
    Smb "smb";
    /// BitTorrent between peers (BEP 3).
    BitTorrent "bittorrent";
    /// The distributed table of BitTorrent (BEP 5).
    BitTorrentDht "bittorrent-dht";
    /// BitTorrent's transport over UDP (BEP 29).
    Utp "utp";
    /// NTP (RFC 5905).
    Ntp "ntp";
    /// BOOTP and DHCP (RFC 951, RFC 2131).
    Dhcp "dhcp";
    /// SNMP (RFC 1157, RFC 3416, RFC 3412).
    Snmp "snmp";
    /// MQTT (OASIS, 3.1 to 5).
    Mqtt "mqtt";
    /// Redis (RESP).
    Redis "redis";
    /// PostgreSQL, protocol 3.
    PostgreSql "pgsql";
    /// MySQL and MariaDB, handshake 10.
    MySql "mysql";
    /// WireGuard.
    WireGuard "wireguard";
    /// OpenVPN.
    OpenVpn "openvpn";
    /// STUN and TURN (RFC 8489).
    Stun "stun";
    /// Modbus over TCP.
    Modbus "modbus";
    /// LDAP (RFC 4511).
    Ldap "ldap";
    /// Remote framebuffer, VNC (RFC 6143).
    Rfb "rfb";
    /// Telnet with options (RFC 854).
    Telnet "telnet";
    /// SSDP of UPnP.
    Ssdp "ssdp";
    /// RADIUS (RFC 2865).
    Radius "radius";
    /// TFTP (RFC 1350).
    Tftp "tftp";
}

/// Registered ports: what a flow is if its bytes do not say.
const PORTS: &[(Transport, u16, Protocol)] = {
    use Protocol as P;
    use Transport::{Datagram, Stream};
    &[
        (Stream, 21, P::Ftp),
        (Stream, 22, P::Ssh),
        (Stream, 23, P::Telnet),
        (Stream, 25, P::Smtp),
        (Stream, 53, P::Dns),
        (Stream, 80, P::Http1),
        (Stream, 110, P::Pop3),
        (Stream, 139, P::Smb),
        (Stream, 143, P::Imap),
        (Stream, 389, P::Ldap),
        (Stream, 443, P::Tls),
        (Stream, 445, P::Smb),
        (Stream, 465, P::Tls),
        (Stream, 502, P::Modbus),
        (Stream, 554, P::Rtsp),
        (Stream, 587, P::Smtp),
        (Stream, 636, P::Tls),
        (Stream, 853, P::Tls),
        (Stream, 993, P::Tls),
        (Stream, 995, P::Tls),
        (Stream, 1194, P::OpenVpn),
        (Stream, 1883, P::Mqtt),
        (Stream, 3268, P::Ldap),
        (Stream, 3306, P::MySql),
        (Stream, 3389, P::Rdp),
        (Stream, 5060, P::Sip),
        (Stream, 5061, P::Tls),
        (Stream, 5222, P::Xmpp),
        (Stream, 5269, P::Xmpp),
        (Stream, 5432, P::PostgreSql),
        (Stream, 5900, P::Rfb),
        (Stream, 6379, P::Redis),
        (Stream, 6667, P::Irc),
        (Stream, 8080, P::Http1),
        (Stream, 8443, P::Tls),
        (Stream, 8883, P::Tls),
        (Datagram, 53, P::Dns),
        (Datagram, 67, P::Dhcp),
        (Datagram, 68, P::Dhcp),
        (Datagram, 69, P::Tftp),
        (Datagram, 123, P::Ntp),
        (Datagram, 161, P::Snmp),
        (Datagram, 162, P::Snmp),
        (Datagram, 443, P::Quic),
        (Datagram, 1194, P::OpenVpn),
        (Datagram, 1812, P::Radius),
        (Datagram, 1813, P::Radius),
        (Datagram, 1900, P::Ssdp),
        (Datagram, 3389, P::RdpUdp),
        (Datagram, 3478, P::Stun),
        (Datagram, 5060, P::Sip),
        (Datagram, 5353, P::Mdns),
        (Datagram, 51820, P::WireGuard),
    ]
};

impl Protocol {
    /// The protocol registered for a port.
    pub fn of_port(transport: Transport, port: u16) -> Option<Self> {
        let found = PORTS.iter().find(|(t, p, _)| *t == transport && *p == port);
        found.map(|(_, _, protocol)| *protocol)
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
