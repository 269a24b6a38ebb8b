//! Outside addresses that no interface has: the router answers for them on the links whose prefixes they are in, and says so
//! when they come (gratuitous ARP), so that no neighbour needs a route to them.

use std::net::Ipv4Addr;
use std::sync::PoisonError;

use control::neighbour::announcement;
use lookup::fib::Interface;
use nat::Rules;

use super::Current;
use crate::router::Proxy;

/// Addresses that are announced on a link at most; questions for further ones are answered all the same.
const ANNOUNCED_MAX: usize = 256;

/// By the rules in use.
pub(super) struct Outside(pub(super) Current);

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outside")
    }
}

impl Proxy for Outside {
    fn has4(&self, interface: u16, address: u32) -> bool {
        let rules = self.0.read().unwrap_or_else(PoisonError::into_inner);
        rules.is_outside(interface, address)
    }

    /// A prefix in which IPv4 addresses are reached may be part of the prefix of a link.
    fn has6(&self, _interface: u16, address: [u64; 2]) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_nat64(address)
    }
}

/// The frames that announce outside addresses on the link of an interface that is up.
pub(super) fn announcements(rules: &Rules, number: u16, interface: &Interface) -> Vec<Vec<u8>> {
    let is_near = |address: u32| {
        interface.addresses4.iter().any(|&(own, len)| {
            let host = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            let differs = (own ^ address) & !host != 0;
            len < 32 && !differs && (len == 31 || (address & host != 0 && address & host != host))
        })
    };
    if !interface.up || interface.addresses4.is_empty() {
        return Vec::new();
    }
    let all = rules.outside(number).filter(|address| is_near(*address)).take(ANNOUNCED_MAX);
    all.filter_map(|address| announcement(interface, Ipv4Addr::from_bits(address))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nat::rules::{Action, Own, Prefix, Rule};
    use packet::arp::ArpView;
    use std::sync::{Arc, RwLock};

    fn rules() -> Rules {
        let rule = |outside, action| Rule {
            number: 0,
            outside,
            sources: Vec::new(),
            protocol: None,
            ports: 1..=2,
            action,
        };
        let (inside, outside) = (Prefix::v4(0x0a00_0100, 30), Prefix::v4(0x0a00_0204, 30));
        let own = Own::new(4);
        own.set(1, Some(0x0a00_0201));
        let all = vec![
            rule(vec![], Action::Source(vec![0x0a00_0201, 0x0a00_0209, 0x0a00_0309])),
            rule(vec![1], Action::Static { inside, outside }),
            rule(
                vec![2],
                Action::Destination { at: vec![0x0a00_0277], to: 0x0a00_0105, to_port: None },
            ),
        ];
        Rules::new(all, 1, Arc::new(own))
    }

    #[test]
    fn addresses_of_links_are_answered_for_and_announced() {
        let rules = rules();
        let interface = Interface {
            up: true,
            mac: [2, 0, 0, 0, 0, 7],
            addresses4: vec![(0x0a00_0201, 24)],
            ..Interface::default()
        };
        let said = |number, interface: &Interface| -> Vec<u32> {
            let frames = announcements(&rules, number, interface);
            let own = |frame: &Vec<u8>| {
                let arp = ArpView::new_checked(&frame[14..]).unwrap();
                assert_eq!(frame[..6], [0xff; 6]);
                assert_eq!((arp.sender_ip(), arp.sender_mac().0), (arp.target_ip(), interface.mac));
                arp.target_ip().to_bits()
            };
            frames.iter().map(own).collect()
        };
        // Not the router's own, not another link's, not those of rules for other ports.
        let own = [0x0a00_0209, 0x0a00_0204, 0x0a00_0205, 0x0a00_0206, 0x0a00_0207];
        assert_eq!(said(1, &interface), own);
        assert_eq!(said(2, &interface), [0x0a00_0209, 0x0a00_0277]);
        assert!(said(1, &Interface { up: false, ..interface.clone() }).is_empty());
        // Not the addresses of a subnet that no host has.
        let small = Interface { addresses4: vec![(0x0a00_0205, 30)], ..interface };
        assert_eq!(said(1, &small), [0x0a00_0205, 0x0a00_0206]);

        let proxy = Outside(Arc::new(RwLock::new(Arc::new(rules))));
        assert!(own.iter().all(|address| proxy.has4(1, *address)));
        assert!(!proxy.has4(1, 0x0a00_0201) && !proxy.has4(2, 0x0a00_0204));
        assert!(proxy.has4(2, 0x0a00_0277) && !proxy.has4(1, 0x0a00_0277));
    }
}
