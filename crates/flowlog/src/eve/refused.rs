//! Packets that rules of a firewall dropped.

use packet::tcp::{TcpView, flags};
use packet::{Decoded, IpProtocol, Kind};

use super::{Eve, Origin};
use crate::json::Object;

/// A packet that a rule of a firewall dropped.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// Its headers,
    pub decoded: &'a Decoded,
    /// and the bytes in which they are, from the start of the frame.
    pub head: &'a [u8],
    /// The client sent it; `None` of a packet of no flow.
    pub to_server: Option<bool>,
    /// The rule by its name; `None` if none matched, and packets are dropped by default.
    pub rule: Option<&'a str>,
}

impl Eve {
    /// Appends a line of event type `drop`, with the fields of Suricata's for headers. Of `alert` it has what a rule with nothing but a name
    /// has.
    pub fn refused(&self, origin: &Origin<'_>, own: &Refused<'_>, out: &mut Vec<u8>) {
        let mut line = self.begin("drop", origin, out);
        super::alert::direction(&mut line, own.to_server);
        let mut object = line.object("drop");
        own.headers(&mut object);
        object.string("reason", own.rule.map_or("default packet policy", |_| "rules"));
        object.end();
        if let Some(name) = own.rule {
            let mut object = line.object("alert");
            object.string("action", super::Decision::Blocked.name());
            object.string("signature", name);
            object.end();
        }
        line.end();
        out.push(b'\n');
    }
}

impl Refused<'_> {
    fn headers(&self, to: &mut Object<'_>) {
        let d = self.decoded;
        let be16 = |at: usize| match self.head.get(at..at + 2) {
            Some(bytes) => u16::from_be_bytes([bytes[0], bytes[1]]),
            None => 0,
        };
        let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        to.number("len", d.ip_total_len);
        match d.kind {
            Kind::Ipv4 => {
                to.number("tos", d.traffic_class);
                to.number("ttl", d.ttl);
                to.number("ipid", be16(l3 + 4));
            }
            _ => {
                to.number("tc", d.traffic_class);
                to.number("hoplimit", d.ttl);
                to.number("flowlbl", u32::from(be16(l3) & 0xf) << 16 | u32::from(be16(l3 + 2)));
            }
        }
        if d.fragment_offset != 0 {
            return;
        }
        match d.protocol {
            IpProtocol::TCP => self.tcp(l4, to),
            IpProtocol::UDP if d.ports().is_some() => to.number("udplen", be16(l4 + 4)),
            IpProtocol::ICMP if matches!(d.icmp_type_code(), Some((0 | 8 | 13..=18, _))) => {
                to.number("icmp_id", be16(l4 + 4));
                to.number("icmp_seq", be16(l4 + 6));
            }
            _ => {}
        }
    }

    fn tcp(&self, at: usize, to: &mut Object<'_>) {
        let bytes = self.head.get(at..).unwrap_or_default();
        let Some(tcp) = TcpView::new_checked(bytes) else { return };
        to.number("tcpseq", tcp.sequence());
        to.number("tcpack", tcp.acknowledgment());
        to.number("tcpwin", tcp.window());
        for (name, bit) in [
            ("syn", flags::SYN),
            ("ack", flags::ACK),
            ("psh", flags::PSH),
            ("rst", flags::RST),
            ("urg", flags::URG),
            ("fin", flags::FIN),
        ] {
            to.boolean(name, tcp.flags() & bit != 0);
        }
        to.number("tcpres", bytes.get(12).map_or(0, |byte| byte >> 1 & 7));
        to.number("tcpurgp", tcp.urgent_pointer());
    }
}
