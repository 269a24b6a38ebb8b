//! Tunnel interfaces: ports with `backend = "ipsec"`, for route-based IPsec.
//!
//! ```text
//!  route ─▶ esp_out: the way leads to a tunnel interface ─▶ association with its `if_id` ─▶ sealed, route of the outer packet
//!  esp_in: opened by an association with an `if_id` ─▶ received on that interface ─▶ firewall, reverse-path check, route, twin
//!  twin ─▶ decode ─▶ esp_out: a frame of Linux for a tunnel interface ─▶ the same, TTL untouched
//! ```
//!
//! The port has a number, addresses, an MTU and a twin as others have, and a queue to which nothing is sent: what leads there is
//! sealed, or dropped. What was opened gets a link header to the address of the interface, and `decode` looks at it as at
//! any frame. The twin does no ARP (`IFF_NOARP`): Linux sends without asking who is there.
//!
//! Threads: each stage has a list of its own, made anew when the tables change.

use chunk::Packet;
use lookup::fib::Fib;

use crate::router::frames;

/// No version of the tables.
const NEVER: u64 = u64::MAX;
/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;

/// The tunnel interfaces of a version of the tables.
#[derive(Debug)]
pub struct Tunnels {
    version: u64,
    /// `if_id`, number and MAC address of the interfaces that are up.
    all: Vec<(u32, u16, [u8; 6])>,
    is_any: bool,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self { version: NEVER, all: Vec::new(), is_any: false }
    }
}

impl Tunnels {
    /// Looks at another version of the tables.
    pub fn look(&mut self, version: u64, fib: &Fib) {
        if self.version != version {
            self.version = version;
            let own = fib.interfaces().filter(|(_, own)| own.if_id != 0);
            self.all.clear();
            self.is_any = false;
            for (index, own) in own {
                self.is_any = true;
                if own.up {
                    self.all.push((own.if_id, index, own.mac));
                }
            }
        }
    }

    /// Whether there is one, be it down.
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// The interface with this `if_id`, if it is up: its number and MAC address.
    pub fn find(&self, if_id: u32) -> Option<(u16, [u8; 6])> {
        self.all.iter().find(|own| own.0 == if_id).map(|own| (own.1, own.2))
    }
}

/// Makes an opened packet, whose IP header begins with byte `l3`, one that was received on a tunnel interface. `false`: it is too
/// short for a link header.
pub fn receive(packet: &mut Packet, l3: usize, (index, mac): (u16, [u8; 6])) -> bool {
    frames::strip_tags(packet, l3);
    let Some(header) = packet.data_mut().first_chunk_mut::<ETHERNET_LEN>() else { return false };
    header[..6].copy_from_slice(&mac);
    header[6..12].copy_from_slice(&mac);
    packet.port = index;
    true
}
