//! Interfaces read and set.

use control::{
    kernel::{
        links::{self, Ipv6Off},
        offloads::{Carried, set_offloads_off},
    },
    netlink::{Client, Error},
};

use crate::namespace::{Namespace, attempt, run, skip};

#[test]
fn a_link_is_read_and_set() {
    let Some(_namespace) = Namespace::enter() else { return };
    run("ip link add name va type veth peer name pa");
    let mut client = Client::route().unwrap();
    let link = links::named(&mut client, "va").unwrap();
    assert!(!link.up && !link.carrier);
    assert_eq!(link.mtu_bytes, 1500);
    let ifindex = link.ifindex;
    links::set_mac(&mut client, ifindex, [2, 0, 0, 0, 0, 9]).unwrap();
    links::set_mtu(&mut client, ifindex, 1400).unwrap();
    links::set_up(&mut client, ifindex, true).unwrap();
    run("ip link set pa up");
    let link = links::by_index(&mut client, ifindex).unwrap().unwrap();
    assert_eq!((link.mac, link.mtu_bytes, link.up), ([2, 0, 0, 0, 0, 9], 1400, true));
    assert!(link.carrier);
    let shown = run("ip link show dev va");
    assert!(shown.contains("02:00:00:00:00:09") && shown.contains("mtu 1400"), "{shown}");
    links::set_up(&mut client, ifindex, false).unwrap();
    assert!(!links::named(&mut client, "va").unwrap().up);
    assert_eq!(links::all(&mut client).unwrap().len(), 3);

    assert_eq!(links::by_name(&mut client, "nothing").unwrap(), None);
    assert_eq!(links::by_index(&mut client, 4_000_000).unwrap(), None);
    assert_eq!(links::by_name(&mut client, "a-name-longer-than-names-are").unwrap(), None);
    let error = links::named(&mut client, "nothing").unwrap_err();
    assert!(matches!(&error, Error::NoSuchLink { .. }) && error.to_string().contains("`nothing`"));
}

#[test]
fn addresses_come_and_go() {
    let Some(_namespace) = Namespace::enter() else { return };
    run("ip link add name va type veth peer name pa");
    run("ip link set va up");
    run("ip link set pa up");
    let mut client = Client::route().unwrap();
    let ifindex = links::named(&mut client, "va").unwrap().ifindex;
    let mut addresses = Vec::new();
    for text in ["10.0.0.1/24", "10.1.0.1/32", "10.2.0.0/31", "fd00::1/64"] {
        let address = text.parse().unwrap();
        assert!(links::add_address(&mut client, ifindex, address, false).unwrap(), "{text}");
        assert!(!links::add_address(&mut client, ifindex, address, false).unwrap(), "{text}");
        addresses.push(address);
    }
    let shown = run("ip addr show dev va");
    assert!(shown.contains("10.0.0.1/24 brd 10.0.0.255"), "{shown}");
    assert!(!shown.contains("fd00::1/64 scope global tentative"), "{shown}");
    let mut held = links::addresses_of(&mut client, ifindex).unwrap();
    held.retain(|address| !links::is_automatic(address));
    held.sort();
    addresses.sort();
    assert_eq!(held, addresses);
    for address in addresses {
        assert!(links::remove_address(&mut client, ifindex, address).unwrap());
        assert!(!links::remove_address(&mut client, ifindex, address).unwrap());
    }
    assert!(links::addresses_of(&mut client, ifindex).unwrap().iter().all(links::is_automatic));
    // A refusal speaks in the kernel's words.
    let error = links::set_mtu(&mut client, ifindex, 7).unwrap_err().to_string();
    assert!(error.contains("setting the MTU") && error.contains("mtu less than"), "{error}");
}

#[test]
fn ipv6_goes_off_and_comes_back() {
    let Some(_namespace) = Namespace::enter() else { return };
    run("ip link add name va type veth peer name pa");
    run("ip link set va up");
    run("ip link set pa up");
    let mut client = Client::route().unwrap();
    let ifindex = links::named(&mut client, "va").unwrap().ifindex;
    assert_eq!(links::addresses_of(&mut client, ifindex).unwrap().len(), 1, "link-local");
    let off = Ipv6Off::on("va").unwrap();
    assert!(off.changed());
    assert!(!Ipv6Off::on("va").unwrap().changed(), "it was off");
    assert!(links::addresses_of(&mut client, ifindex).unwrap().is_empty());
    drop(off);
    assert_eq!(links::addresses_of(&mut client, ifindex).unwrap().len(), 1, "link-local");
    assert!(Ipv6Off::on("../all").is_err());
}

/// What was changed on an interface is put back on it, whatever its name is, and on no other.
#[test]
fn settings_belong_to_an_interface_and_not_to_its_name() {
    let Some(_namespace) = Namespace::enter() else { return };
    if !attempt("ethtool --version").0 {
        return skip("ethtool is not installed");
    }
    run("ip link add name va type veth peer name pa");
    let before = run("ethtool -k va");
    let ipv6 = |name: &str| {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    let changed = (Ipv6Off::on("va").unwrap(), set_offloads_off("va", Carried::Finished).unwrap());
    run("ip link set va name old");
    run("ip link add name va type veth peer name pb");
    run("ethtool -K va tx off sg off tso off gso off gro off");
    let new = run("ethtool -k va");
    std::fs::write("/proc/sys/net/ipv6/conf/va/disable_ipv6", "1").unwrap();
    drop(changed);
    assert_eq!((ipv6("va").as_str(), run("ethtool -k va")), ("1", new));
    assert_eq!(
        (ipv6("old").as_str(), run("ethtool -k old").replace("for old:", "for va:")),
        ("0", before)
    );
}

#[test]
fn offloads_go_off_and_come_back() {
    let Some(_namespace) = Namespace::enter() else { return };
    if !attempt("ethtool --version").0 {
        return skip("ethtool is not installed");
    }
    run("ip link add name va type veth peer name pa");
    let before = run("ethtool -k va");
    let off = set_offloads_off("va", Carried::Finished).unwrap();
    assert!(off.changed().iter().any(|feature| feature == "tx-tcp-segmentation"), "{off:?}");
    let during = run("ethtool -k va");
    for feature in [
        "tx-checksumming: off",
        "scatter-gather: off",
        "tcp-segmentation-offload: off",
        "generic-segmentation-offload: off",
        "generic-receive-offload: off",
        "rx-vlan-offload: on",
    ] {
        assert!(during.contains(feature), "{feature}: {during}");
    }
    assert!(set_offloads_off("va", Carried::Finished).unwrap().changed().is_empty());
    off.restore().unwrap();
    assert_eq!(run("ethtool -k va"), before);
    drop(set_offloads_off("va", Carried::Finished).unwrap());
    assert_eq!(run("ethtool -k va"), before);
    set_offloads_off("va", Carried::Finished).unwrap().keep();
    assert_eq!(run("ethtool -k va"), during);
    assert!(set_offloads_off("nothing", Carried::Finished).is_err());
}
