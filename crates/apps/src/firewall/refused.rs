//! Packets that rules dropped, for events of them.
//!
//! ```text
//!  firewall, in its post_shade ─▶ Mailbox ─▶ flow, with its next chunk, sweep or end ─▶ followers ─▶ lines of `drop`
//! ```
//!
//! The stage `flow` is in front of the firewall and has the followers, whose lines are put into order over captures. There is a mailbox
//! only where the configuration asks for such events: elsewhere they cost nothing. A firewall in a pipeline without `flow` says nothing.
//!
//! Threads: the stages of one worker; the lock is never contended.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use chunk::Packet;
use flowlog::eve::{self, Eve, Origin};
use packet::Decoded;

/// So many bytes of a packet are kept: its headers.
const HEAD: usize = 128;

/// A packet that a rule dropped or rejected.
#[derive(Clone, Debug)]
pub struct Refused {
    /// When it came, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The port that it came in by.
    pub port: u16,
    /// Its headers.
    pub decoded: Decoded,
    /// The bytes that they are in, from the start of the frame.
    pub head: Vec<u8>,
    /// The number of its flow, 0 for one that never was, and whether the end that answers sent it.
    pub flow: Option<(u64, bool)>,
    /// The name of the rule; none for what no rule matched.
    pub rule: Option<Arc<str>>,
}

impl Refused {
    /// Of a packet.
    pub fn new(packet: &Packet, time_ns: u64) -> Self {
        let frame = packet.data();
        Self {
            time_ns,
            port: packet.port,
            decoded: crate::received::decode(packet),
            head: frame[..frame.len().min(HEAD)].to_vec(),
            flow: None,
            rule: None,
        }
    }
}

impl Refused {
    /// Appends its line; both ends, where there is one. `ports`: names of ports by number. `flow`: the number of its flow, if it has one.
    pub(crate) fn write(
        &self,
        eve: &Eve,
        ports: &[String],
        flow: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Option<(IpAddr, IpAddr)> {
        let d = &self.decoded;
        let (src, dst) = (d.src_ip()?, d.dst_ip()?);
        let (src_port, dst_port) = d.ports().unwrap_or_default();
        let vlan = |n: usize| if usize::from(d.vlan_count) > n { d.vlan_tci[n] & 0xfff } else { 0 };
        let origin = Origin {
            flow_id: flow,
            src: (src, src_port),
            dst: (dst, dst_port),
            protocol: d.protocol.0,
            icmp: d.icmp_type_code(),
            vlans: [vlan(0), vlan(1)],
            in_iface: ports.get(usize::from(self.port)).map_or("", String::as_str),
            at_ns: self.time_ns,
        };
        let own = eve::Refused {
            decoded: d,
            head: &self.head,
            to_server: self.flow.map(|(_, is_reply)| !is_reply),
            rule: self.rule.as_deref(),
        };
        eve.refused(&origin, &own, out);
        Some((src, dst))
    }
}

/// What a firewall leaves for the stage `flow` of its worker and pipeline.
#[derive(Debug, Default)]
pub struct Mailbox {
    packets: Mutex<Vec<Refused>>,
}

impl Mailbox {
    /// One more. They are of the chunks in flight, for `flow` takes them when it gets the next one.
    pub fn put(&self, own: Refused) {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).push(own);
    }

    /// Those that wait.
    pub fn take(&self) -> Vec<Refused> {
        std::mem::take(&mut *self.packets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
