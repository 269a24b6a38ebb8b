//! Event type `ipsec`: security associations.

use std::net::IpAddr;

use super::{Eve, Origin};
use crate::json::Object;
use crate::protocol;

/// What happened to an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssociationEvent {
    /// `up`, `soft`, `hard`, `deleted`, `moved`, `missing`, `unknown_spi`, `replayed`, or `forged`.
    pub event: &'static str,
    /// It sends.
    pub is_out: bool,
    /// Security parameters index; `None` of one that is not there.
    pub spi: Option<u32>,
    /// The number by which policies name it; `None` of an index that no association has.
    pub reqid: Option<u32>,
    /// Sequence number of a packet that was refused: its lower 32 bits.
    pub number: Option<u32>,
    /// Sender: of ESP packets, or of the packet that has no association.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// Packets and bytes of payload so far.
    pub counts: Option<(u64, u64)>,
    /// Address and port where the peer is now.
    pub moved: Option<(IpAddr, u16)>,
    /// When (`timestamp`), in nanoseconds since 1970.
    pub at_ns: u64,
}

impl Eve {
    /// Appends the line of event type `ipsec`.
    pub fn association(&self, own: &AssociationEvent, out: &mut Vec<u8>) {
        let origin = Origin {
            flow_id: None,
            src: (own.source, 0),
            dst: (own.destination, 0),
            protocol: protocol::ESP,
            icmp: None,
            vlans: [0; 2],
            in_iface: "",
            at_ns: own.at_ns,
        };
        let mut line: Object<'_> = self.begin("ipsec", &origin, out);
        let mut ipsec = line.object("ipsec");
        ipsec.string("event", own.event);
        ipsec.string("direction", if own.is_out { "out" } else { "in" });
        if let Some(spi) = own.spi {
            ipsec.number("spi", spi);
        }
        if let Some(reqid) = own.reqid {
            ipsec.number("reqid", reqid);
        }
        if let Some(number) = own.number {
            ipsec.number("seq", number);
        }
        if let Some((packets, bytes)) = own.counts {
            ipsec.number("pkts", packets);
            ipsec.number("bytes", bytes);
        }
        if let Some((address, port)) = own.moved {
            ipsec.plain("peer_ip", address);
            ipsec.number("peer_port", port);
        }
        ipsec.end();
        line.end();
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_event() {
        let mut out = Vec::new();
        let own = AssociationEvent {
            event: "moved",
            is_out: false,
            spi: Some(0x1001),
            reqid: Some(7),
            number: None,
            source: [192, 0, 2, 1].into(),
            destination: [198, 51, 100, 1].into(),
            counts: Some((3, 252)),
            moved: Some(([203, 0, 113, 9].into(), 30_000)),
            at_ns: 1_700_000_000_000_000_000,
        };
        Eve::default().association(&own, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("}\n"));
        let head = "\"event_type\":\"ipsec\",\"src_ip\":\"192.0.2.1\",\"dest_ip\":\"198.51.100.1\",\"ip_v\":4,\"proto\":\"ESP\"";
        let tail = ",\"ipsec\":{\"event\":\"moved\",\"direction\":\"in\",\"spi\":4097,\"reqid\":7,\"pkts\":3,\"bytes\":252,\
                    \"peer_ip\":\"203.0.113.9\",\"peer_port\":30000}}";
        assert!(text.contains(&format!("{head}{tail}")), "{text}");
    }
}
