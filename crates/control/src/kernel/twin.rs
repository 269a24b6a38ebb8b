//! How the kernel behaves on a twin: as a router, which takes its routes and addresses from its administrator alone.
//!
//! The defaults of Linux are those of a host. One Router Advertisement gives a host a default route, subnets and
//! addresses, and the mirror would hand them to the data path. So every twin has, before it is up:
//!
//! | `net.ipv6.conf.TWIN.` | | why |
//! | --- | --- | --- |
//! | `forwarding` | 1 | neighbour advertisements have the router flag (RFC 4861 §4.4), no router is solicited; the kernel forwards nothing for that alone |
//! | `accept_ra` | 0; 2 where wanted | no default route, and no more specific one, from the link |
//! | `accept_ra_pinfo` | 0 | no subnet from the link either |
//! | `accept_ra_mtu` | 0 | the MTU is the port's |
//! | `accept_ra_rt_info_max_plen` | 0; 128 where wanted | RFC 4191's routes |
//! | `autoconf` | 0 | addresses are the configuration's |
//! | `accept_redirects` | 0 | RFC 4861 §8.1 is for hosts |
//! | `accept_source_route` | 0 | no routing header is followed (RFC 5095) |
//!
//! | `net.ipv4.conf.TWIN.` | | why |
//! | --- | --- | --- |
//! | `forwarding` | 1 | otherwise `conf.all.accept_redirects` decides about redirects |
//! | `accept_redirects` | 0 | RFC 1812 §5.2.7.2: a router that runs a routing protocol ignores them |
//! | `accept_source_route` | 0 | RFC 7126 §4.3 |
//! | `rp_filter` | 0 | routes of the configuration are not the kernel's; the check is `rpf` of the port |
//! | `arp_ignore` | 1 | ARP is answered for the addresses of its own link alone, as without a twin |
//! | `arp_announce` | 2 | requests come from an address of the neighbour's subnet |
//!
//! Where the data path applies the kernel's IPsec policies, `disable_xfrm` and `disable_policy` are 1 ([`leave_ipsec`]).
//!
//! `rp_filter`, `arp_ignore` and `arp_announce` of `conf.all` count, too: the larger number applies.

use std::{fs, io, path::PathBuf};

use crate::netlink::Error;

/// Whose Router Advertisements (RFC 4861 §6.3.4) give the kernel routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Advertisements {
    /// Nobody's.
    #[default]
    Ignored,
    /// Those of the link: default routes, no addresses and no subnets.
    Defaults,
    /// RFC 4191's routes, too.
    Routes,
}

/// Makes the kernel a router on the interface of this name, in the calling thread's network namespace. Settings that the
/// kernel does not have are left out, and nothing is written where a value is right already.
///
/// # Errors
///
/// A setting is wrong and cannot be changed; the error names it and the value that it must have.
pub fn behave_as_router(name: &str, advertisements: Advertisements) -> Result<(), Error> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Error::NoSuchLink { name: name.to_owned() });
    }
    let (accept_ra, route_len) = match advertisements {
        Advertisements::Ignored => ("0", "0"),
        Advertisements::Defaults => ("2", "0"),
        Advertisements::Routes => ("2", "128"),
    };
    let settings = [
        ("ipv6", "accept_ra", accept_ra),
        ("ipv6", "accept_ra_pinfo", "0"),
        ("ipv6", "accept_ra_mtu", "0"),
        ("ipv6", "accept_ra_rt_info_max_plen", route_len),
        ("ipv6", "autoconf", "0"),
        ("ipv6", "accept_redirects", "0"),
        ("ipv6", "accept_source_route", "0"),
        ("ipv6", "forwarding", "1"),
        ("ipv4", "accept_redirects", "0"),
        ("ipv4", "accept_source_route", "0"),
        ("ipv4", "rp_filter", "0"),
        ("ipv4", "arp_ignore", "1"),
        ("ipv4", "arp_announce", "2"),
        ("ipv4", "forwarding", "1"),
    ];
    for (family, setting, value) in settings {
        set(name, family, setting, value).map_err(|error| {
            Error::socket(format!("setting net.{family}.conf.{name}.{setting} to {value}"), error)
        })?;
    }
    Ok(())
}

/// Has the kernel send and take packets of this interface as they are, whatever its IPsec policies say: the data path applies
/// them, and numbers of an association that both used would come twice. IPv6 has no such setting for what is sent.
///
/// # Errors
///
/// As [`behave_as_router`].
pub fn leave_ipsec(name: &str) -> Result<(), Error> {
    let settings =
        [("ipv4", "disable_xfrm"), ("ipv4", "disable_policy"), ("ipv6", "disable_policy")];
    for (family, setting) in settings {
        set(name, family, setting, "1").map_err(|error| {
            Error::socket(format!("setting net.{family}.conf.{name}.{setting} to 1"), error)
        })?;
    }
    Ok(())
}

fn set(name: &str, family: &str, setting: &str, value: &str) -> io::Result<()> {
    let path = PathBuf::from("/proc/sys/net").join(family).join("conf").join(name).join(setting);
    match fs::read_to_string(&path) {
        Ok(now) if now.trim() == value => Ok(()),
        Ok(_) => fs::write(&path, value),
        // A kernel without IPv6, or an MTU that IPv6 does not take.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
