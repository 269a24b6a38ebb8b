//! Who has not read what the kernel announced, and announcing it again.

use std::time::Duration;

use control::{
    kernel::{links, listeners::Unread},
    netlink::{Client, Listener, Received},
};

use crate::namespace::{Namespace, run};

/// rtnetlink groups: links, addresses of both families.
const LINK: u32 = 1;
const IPV4_IFADDR: u32 = 5;
const IPV6_IFADDR: u32 = 9;

/// Reads all that waits; how many messages that were.
fn drain(listener: &mut Listener) -> usize {
    let mut messages = 0;
    loop {
        match listener.take().unwrap() {
            Received::Messages(datagram) => messages += datagram.count(),
            Received::Overrun => panic!("too small a buffer"),
            Received::Nothing => return messages,
        }
    }
}

#[test]
fn a_listener_to_links_is_waited_for_until_it_has_read() {
    let Some(_namespace) = Namespace::enter() else { return };
    let mut slow = Listener::route(&[LINK], 1 << 20).unwrap();
    let mut quick = Listener::route(&[LINK], 1 << 20).unwrap();
    // This one listens to something else and never reads.
    let _other = Listener::route(&[IPV4_IFADDR], 1 << 20).unwrap();
    assert!(Unread::now().unwrap().is_read().unwrap());
    run("ip link add name va type veth peer name pa");
    run("ip address add 10.0.0.1/24 dev va");
    let mut unread = Unread::now().unwrap();
    assert_eq!(unread.names().len(), 2);
    assert!(drain(&mut quick) > 0);
    assert!(!unread.wait(Duration::from_millis(20)).unwrap());
    assert_eq!(unread.names().len(), 1);
    assert!(drain(&mut slow) > 0);
    assert!(unread.is_read().unwrap());
    // What comes later does not matter to who has read once.
    run("ip link set va up");
    assert!(unread.wait(Duration::from_secs(10)).unwrap());
    let joined = Unread::join([unread, Unread::now().unwrap()]).unwrap();
    assert_eq!(joined.names().len(), 2);
    assert_eq!(Unread::join([]), None);
}

#[test]
fn an_address_is_announced_again_and_an_absent_one_is_not_added() {
    let Some(_namespace) = Namespace::enter() else { return };
    run("ip link add name va type veth peer name pa");
    run("ip link set pa up");
    run("ip link set va up");
    // As the kernel would assign it, but at once.
    run("ip address add fe80::1/64 dev va nodad");
    let mut client = Client::route().unwrap();
    let ifindex = links::named(&mut client, "va").unwrap().ifindex;
    let mut listener = Listener::route(&[IPV6_IFADDR], 1 << 20).unwrap();
    let local = "fe80::1/64".parse().unwrap();
    assert!(links::announce_address(&mut client, ifindex, local).unwrap());
    assert!(drain(&mut listener) > 0);
    for (text, group) in [("10.0.0.1/24", IPV4_IFADDR), ("fd00::1/64", IPV6_IFADDR)] {
        let address = text.parse().unwrap();
        let before = links::addresses_of(&mut client, ifindex).unwrap();
        assert!(!links::announce_address(&mut client, ifindex, address).unwrap(), "{text}");
        assert!(
            !links::addresses_of(&mut client, ifindex).unwrap().contains(&address),
            "{before:?}"
        );
        links::add_address(&mut client, ifindex, address, false).unwrap();
        let shown = run("ip address show dev va");
        let mut listener = Listener::route(&[group], 1 << 20).unwrap();
        assert!(links::announce_address(&mut client, ifindex, address).unwrap(), "{text}");
        assert!(drain(&mut listener) > 0, "{text}");
        // Lifetimes and flags are as they were.
        let family = |text: &str| -> Vec<String> {
            text.lines().filter(|l| !l.contains("fe80")).map(str::to_owned).collect()
        };
        assert_eq!(family(&run("ip address show dev va")), family(&shown));
    }
}
