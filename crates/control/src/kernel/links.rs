//! Reading and setting interfaces.
//!
//! Everything here takes a rtnetlink [`Client`] and so acts in the network namespace in which
//! the client was opened. The two functions that write under `/proc/sys` act in the calling
//! thread's; both are the same in practice.

use std::{fs, io, net::IpAddr, path::PathBuf};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
};

use super::{decode, event::Link};
use crate::netlink::{Client, Error, emit, rtm};

const ENODEV: i32 = 19;
const EADDRNOTAVAIL: i32 = 99;
const EEXIST: i32 = 17;

/// All interfaces of the namespace.
pub fn all(client: &mut Client) -> Result<Vec<Link>, Error> {
    let mut links = Vec::new();
    client.dump("reading links", rtm::GETLINK, &emit(&LinkMessage::default()), |message| {
        links.extend(decode::link(message.payload));
    })?;
    Ok(links)
}

/// The numbers of the interfaces that an XDP program is attached to.
pub fn with_xdp(client: &mut Client) -> Result<Vec<u32>, Error> {
    let mut numbers = Vec::new();
    client.dump("reading links", rtm::GETLINK, &emit(&LinkMessage::default()), |message| {
        numbers.extend(decode::link_with_xdp(message.payload));
    })?;
    Ok(numbers)
}

/// The interface of this name, if there is one.
pub fn by_name(client: &mut Client, name: &str) -> Result<Option<Link>, Error> {
    // The kernel takes names of at most 15 bytes and refuses others in words of its own.
    if name.is_empty() || name.len() > 15 {
        return Ok(None);
    }
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    get(client, &format!("looking for interface `{name}`"), message)
}

/// The interface of this name; its absence is an error that names it.
pub fn named(client: &mut Client, name: &str) -> Result<Link, Error> {
    by_name(client, name)?.ok_or_else(|| Error::NoSuchLink { name: name.to_owned() })
}

/// The interface of this number, if there is one.
pub fn by_index(client: &mut Client, ifindex: u32) -> Result<Option<Link>, Error> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    get(client, &format!("looking for interface {ifindex}"), message)
}

fn get(client: &mut Client, what: &str, message: LinkMessage) -> Result<Option<Link>, Error> {
    let mut link = None;
    let answer = client.get(what, rtm::GETLINK, &emit(&message), |message| {
        link = decode::link(message.payload).ok();
    });
    match answer {
        Ok(()) => link.map(Some).ok_or_else(|| Error::malformed(what, "no readable link in it")),
        Err(error) if error.errno() == Some(ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Switches an interface on or off.
pub fn set_up(client: &mut Client, ifindex: u32, up: bool) -> Result<(), Error> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    let verb = if up { "on" } else { "off" };
    change(client, &format!("switching interface {ifindex} {verb}"), message)
}

/// Sets an interface's Ethernet address. Some drivers refuse while it is on.
pub fn set_mac(client: &mut Client, ifindex: u32, mac: [u8; 6]) -> Result<(), Error> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes.push(LinkAttribute::Address(mac.to_vec()));
    change(client, &format!("setting the MAC address of interface {ifindex}"), message)
}

/// Sets an interface's largest packet, bytes above Ethernet.
pub fn set_mtu(client: &mut Client, ifindex: u32, mtu_bytes: u32) -> Result<(), Error> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes.push(LinkAttribute::Mtu(mtu_bytes));
    change(client, &format!("setting the MTU of interface {ifindex} to {mtu_bytes}"), message)
}

fn change(client: &mut Client, what: &str, message: LinkMessage) -> Result<(), Error> {
    client.change(what, rtm::SETLINK, 0, &emit(&message))
}

/// The addresses of an interface, host bits kept.
///
/// A physical port should have none: they belong on its twin. Link-local IPv6 addresses are the
/// kernel's own doing; [`Ipv6Off`] takes them away.
pub fn addresses_of(client: &mut Client, ifindex: u32) -> Result<Vec<IpNet>, Error> {
    let mut addresses = Vec::new();
    let body = emit(&AddressMessage::default());
    client.dump("reading addresses", rtm::GETADDR, &body, |message| {
        if let Ok((on, address)) = decode::address(message.payload)
            && on == ifindex
        {
            addresses.push(address);
        }
    })?;
    Ok(addresses)
}

/// Gives an interface an address; `false` if it had it. IPv6 addresses come without duplicate
/// address detection when `dad` is off: the twin of a port that already had the address needs
/// none.
pub fn add_address(
    client: &mut Client,
    ifindex: u32,
    address: IpNet,
    dad: bool,
) -> Result<bool, Error> {
    let what = format!("adding address {address} to interface {ifindex}");
    let body = emit(&new_address(ifindex, address, dad));
    match client.change(&what, rtm::NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body) {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == Some(EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has the kernel announce an address of an interface again, for who missed it. An address that the interface does not
/// have stays away; `false` then.
pub fn announce_address(client: &mut Client, ifindex: u32, address: IpNet) -> Result<bool, Error> {
    // The kernel would add what it cannot replace.
    if !addresses_of(client, ifindex)?.contains(&address) {
        return Ok(false);
    }
    let what = format!("announcing address {address} of interface {ifindex}");
    // The flags are replaced too: ours came without duplicate address detection, the kernel's own with it.
    let body = emit(&new_address(ifindex, address, is_automatic(&address)));
    client.change(&what, rtm::NEWADDR, NLM_F_REPLACE, &body).map(|()| true)
}

/// Takes an address away; `false` if the interface did not have it.
pub fn remove_address(client: &mut Client, ifindex: u32, address: IpNet) -> Result<bool, Error> {
    let what = format!("removing address {address} from interface {ifindex}");
    let body = emit(&address_message(ifindex, address));
    match client.change(&what, rtm::DELADDR, 0, &body) {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == Some(EADDRNOTAVAIL) => Ok(false),
        Err(error) => Err(error),
    }
}

fn new_address(ifindex: u32, address: IpNet, dad: bool) -> AddressMessage {
    let mut message = address_message(ifindex, address);
    if !dad && address.addr().is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

fn address_message(ifindex: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = ifindex;
    message.header.prefix_len = address.prefix_len();
    message.header.family = match address {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    message.attributes.push(AddressAttribute::Local(address.addr()));
    message.attributes.push(AddressAttribute::Address(address.addr()));
    if let IpNet::V4(v4) = address
        && v4.prefix_len() < 31
    {
        message.attributes.push(AddressAttribute::Broadcast(v4.broadcast()));
    }
    message
}

/// Whether the address is one that the kernel made by itself (IPv6 link-local).
pub fn is_automatic(address: &IpNet) -> bool {
    matches!(address.addr(), IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// IPv6 switched off on an interface while this exists: a physical port must have no
/// link-local address, send no router solicitation and answer no neighbour solicitation.
/// Dropping it restores what was, on that interface only: by then another one may have its name, and it another name.
#[derive(Debug)]
pub struct Ipv6Off {
    index: u32,
    /// What to write back; `None` if it was off already.
    before: Option<String>,
}

fn ipv6_setting(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net/ipv6/conf").join(name).join("disable_ipv6")
}

impl Ipv6Off {
    /// Switches IPv6 off on the interface of this name (`disable_ipv6`), which also removes its
    /// IPv6 addresses. A kernel without IPv6 needs nothing done.
    ///
    /// # Errors
    ///
    /// If the setting exists but cannot be changed.
    pub fn on(name: &str) -> Result<Ipv6Off, Error> {
        Self::on_after(name, None)
    }

    /// The same after a program that was ended before it could write `earlier` back.
    ///
    /// # Errors
    ///
    /// As [`Ipv6Off::on`].
    pub fn on_after(name: &str, earlier: Option<&str>) -> Result<Ipv6Off, Error> {
        let path = ipv6_setting(name);
        let failed =
            |error: io::Error| Error::socket(format!("switching IPv6 off on {name}"), error);
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(Error::NoSuchLink { name: name.to_owned() });
        }
        let index = named(&mut Client::route()?, name)?.ifindex;
        let before = match fs::read_to_string(&path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Ipv6Off { index, before: None });
            }
            Err(error) => return Err(failed(error)),
        };
        if before == "1" {
            return Ok(Ipv6Off { index, before: earlier.map(str::to_owned) });
        }
        fs::write(&path, "1").map_err(failed)?;
        Ok(Ipv6Off { index, before: Some(before) })
    }

    /// What will be written back.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// Whether anything was changed.
    pub fn changed(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Ipv6Off {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        let link = Client::route().and_then(|mut client| by_index(&mut client, self.index));
        if let Ok(Some(link)) = link {
            let _ = fs::write(ipv6_setting(&link.name), before); // the interface may be gone
        }
    }
}
