//! Keeping the kernel off a physical port.
//!
//! The router takes a port's packets by AF_PACKET, and the kernel gets them too: it would answer
//! pings, resets and solicitations that the router answers as well. So while the router owns
//! the port, an nftables chain at the port's ingress drops what goes up the stack. AF_PACKET
//! sees packets before that hook, so the router loses nothing, nor does tcpdump.
//!
//! The table carries the *owner* flag (Linux 5.12 and later): the kernel removes it when the
//! socket that made it closes. So it is gone after a crash and after `kill -9` too, nobody else
//! can change it by accident, and nothing is left to clean up at the next start.
//!
//! ```text
//! table netdev shadeline-PID { flags owner;
//!     chain port-0 { type filter hook ingress device "eth1" priority -500; policy drop; }
//!     …
//! }
//! ```
//!
//! What AF_XDP redirects never reaches the hook; closing such a port does no harm.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::links;
use crate::netlink::{Attributes, Client, Error};

const SUBSYSTEM: u16 = 10; // NFNL_SUBSYS_NFTABLES
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEWTABLE: u16 = SUBSYSTEM << 8;
const DELTABLE: u16 = (SUBSYSTEM << 8) | 2;
const NEWCHAIN: u16 = (SUBSYSTEM << 8) | 3;
const FAMILY_NETDEV: u8 = 5;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const TABLE_F_OWNER: u32 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const INGRESS: u32 = 0;
const DROP: u32 = 0;
/// Before any other chain at this hook.
const PRIORITY: i32 = -500;

/// Ports that the kernel's stack receives nothing from while this exists.
#[derive(Debug)]
pub struct Closed {
    client: Client,
    table: String,
}

impl Closed {
    /// Closes the interfaces of these names, all or none.
    ///
    /// # Errors
    ///
    /// Without the capability `CAP_NET_ADMIN`, if an interface does not exist, or if the kernel
    /// lacks nftables' netdev family.
    pub fn new(names: &[&str]) -> Result<Closed, Error> {
        let table = format!("shadeline-{}", std::process::id());
        Self::with_table(&table, names)
    }

    /// As [`Self::new`] with a table of this name: two in one process and namespace need two.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; also if the table exists.
    pub fn with_table(table: &str, names: &[&str]) -> Result<Closed, Error> {
        // Newer kernels (6.16) take a name that no interface has yet; a typing error must not pass.
        let mut route = Client::route()?;
        for name in names {
            links::named(&mut route, name)?;
        }
        let mut client = Client::new(NETLINK_NETFILTER)?;
        let what = format!("closing {} to the kernel", names.join(", "));
        let mut new_table = Attributes::new();
        new_table.text(TABLE_NAME, table).be32(TABLE_FLAGS, TABLE_F_OWNER);
        let mut bodies = vec![(NEWTABLE, with_header(FAMILY_NETDEV, 0, &new_table))];
        for (number, name) in names.iter().enumerate() {
            let mut chain = Attributes::new();
            chain.text(CHAIN_TABLE, table).text(CHAIN_NAME, &format!("port-{number}"));
            chain.nest(CHAIN_HOOK, |hook| {
                hook.be32(HOOK_NUMBER, INGRESS);
                hook.be32(HOOK_PRIORITY, PRIORITY as u32);
                hook.text(HOOK_DEVICE, name);
            });
            chain.be32(CHAIN_POLICY, DROP).text(CHAIN_TYPE, "filter");
            bodies.push((NEWCHAIN, with_header(FAMILY_NETDEV, 0, &chain)));
        }
        send(&mut client, &what, NLM_F_CREATE | NLM_F_EXCL, &bodies)?;
        Ok(Closed { client, table: table.to_owned() })
    }

    /// The name of the nftables table, to be seen with `nft list table netdev NAME`.
    pub fn table(&self) -> &str {
        &self.table
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        // Closing the socket would do; asking makes it done before we return.
        let mut name = Attributes::new();
        name.text(TABLE_NAME, &self.table);
        let bodies = [(DELTABLE, with_header(FAMILY_NETDEV, 0, &name))];
        let _ = send(&mut self.client, "opening ports to the kernel", 0, &bodies);
    }
}

/// `nfgenmsg`: family, version 0, resource in network order.
fn with_header(family: u8, resource: u16, attributes: &Attributes) -> Vec<u8> {
    let [high, low] = resource.to_be_bytes();
    let mut body = vec![family, 0, high, low];
    body.extend_from_slice(attributes.as_bytes());
    body
}

fn send(
    client: &mut Client,
    what: &str,
    flags: u16,
    bodies: &[(u16, Vec<u8>)],
) -> Result<(), Error> {
    let edge = with_header(0, SUBSYSTEM, &Attributes::new());
    let mut parts: Vec<(u16, u16, &[u8])> = vec![(BATCH_BEGIN, 0, &edge)];
    parts.extend(bodies.iter().map(|(kind, body)| (*kind, NLM_F_ACK | flags, body.as_slice())));
    parts.push((BATCH_END, 0, &edge));
    client.transaction(what, &parts)
}
