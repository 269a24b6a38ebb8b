//! The kernel itself, with policies; a kernel without ESP refuses associations.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crypto::Secret;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use testkit::netns::Netns;
use testkit::{require_namespaces, wait_until};
use xfrm::structs::value::*;
use xfrm::structs::{Encapsulation, Id, SaInfo};
use xfrm::{
    AF_INET, Algorithm, Association, Attribute, Change, Follower, Options, Policy, PolicyDirection,
    PolicyId, Port, Spi,
};

const LIMIT: Duration = Duration::from_secs(10);

/// On a thread of its own, in a namespace.
fn inside(netns: &Netns, test: impl FnOnce() + Send) {
    let place = File::open(format!("/run/netns/{}", netns.name())).expect("a namespace");
    std::thread::scope(|scope| {
        let inner = scope.spawn(|| {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(place.as_fd(), network).expect("enter a namespace");
            test();
        });
        inner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// An association in UDP, from 198.51.100.2.
fn encapsulated() -> Association {
    let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap().into();
    let info = SaInfo {
        id: Id { daddr: ip("192.0.2.1"), spi: Spi(0x101), proto: IPPROTO_ESP },
        saddr: ip("198.51.100.2"),
        reqid: 7,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        ..SaInfo::default()
    };
    let (encap_type, port) = (UDP_ENCAP_ESPINUDP, Port(4500));
    let udp = Encapsulation {
        encap_type,
        encap_sport: port,
        encap_dport: port,
        ..Encapsulation::default()
    };
    let key = Algorithm::new("rfc4106(gcm(aes))", Secret::new(vec![9; 20]), Some(128));
    let attributes = [Attribute::AeadKey(key), Attribute::Encapsulation(udp)];
    Association::read(&info, &attributes).unwrap()
}

#[test]
fn policies_are_mirrored_and_requests_are_announced() {
    if !require_namespaces() {
        return;
    }
    let netns = Netns::new("xfrm");
    let selector = "src 10.1.0.0/16 dst 10.2.0.0/16";
    let template = "tmpl src 192.0.2.1 dst 198.51.100.2 proto esp reqid 7 mode tunnel";
    netns.ip(&format!("xfrm policy add {selector} dir out priority 3 {template}"));
    inside(&netns, || {
        let all: Arc<Mutex<BTreeMap<PolicyId, Arc<Policy>>>> = Arc::default();
        let own = all.clone();
        let sink = move |changes: Vec<Change>| {
            let mut own = own.lock().unwrap();
            for change in changes {
                match change {
                    Change::PolicyAdded(policy) | Change::PolicyReplaced(policy) => {
                        own.insert(policy.id, policy);
                    }
                    Change::PolicyRemoved(id) => assert!(own.remove(&id).is_some()),
                    other => panic!("{other:?}"),
                }
            }
            true
        };
        let follower = Follower::start(Options::default(), sink).expect("XFRM");
        let count = |n: usize| {
            let is_there = wait_until(LIMIT, || all.lock().unwrap().len() == n);
            assert!(is_there, "not {n}: {:?} {:?}", all.lock().unwrap(), follower.stats());
        };
        // What was there before.
        count(1);
        assert!(wait_until(LIMIT, || follower.stats().is_in_step), "{:?}", follower.stats());
        netns.ip(&format!("xfrm policy add {selector} dir in priority 4 {template}"));
        netns.ip(&format!("xfrm policy add {selector} dir fwd ptype sub action block if_id 9"));
        count(3);
        netns.ip(&format!("xfrm policy update {selector} dir out priority 5 {template}"));
        let first = |priority: u32| {
            let all = all.lock().unwrap();
            let mut found = all.values().filter(|own| own.id.direction == PolicyDirection::Out);
            found.next().filter(|own| own.priority == priority).cloned()
        };
        assert!(wait_until(LIMIT, || first(5).is_some()), "{:?}", follower.stats());
        netns.ip("xfrm policy flush ptype sub");
        count(2);

        // A packet without an association, and a limit that is reached.
        let watching = netns.spawn("ip xfrm monitor acquire expire");
        let ends = ("10.1.0.9".parse().unwrap(), "10.2.0.9".parse().unwrap());
        // Again and again: `ip` does not say when it has joined.
        let is_announced = wait_until(LIMIT, || {
            follower.send(xfrm::acquire(&first(5).unwrap(), ends, 17, (7, 53)).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            watching.output().contains("dst 10.2.0.9/32 proto udp sport 7 dport 53")
        });
        assert!(is_announced, "{} {:?}", watching.output(), follower.stats());
        follower.send(xfrm::expire_policy(&first(5).unwrap(), true));
        count(1);

        // Where a peer has moved to: what is in the group's name reaches whoever has joined it, and the kernel refuses nothing.
        let moved = xfrm::mapping(&encapsulated(), "203.0.113.9".parse().unwrap(), 1044).unwrap();
        let watching = netns.spawn("ip xfrm monitor all");
        let is_announced = wait_until(LIMIT, || {
            follower.announce(moved.clone());
            std::thread::sleep(Duration::from_millis(20));
            let text = watching.output();
            ["198.51.100.2", "4500", "203.0.113.9", "1044"].iter().all(|word| text.contains(word))
        });
        assert!(is_announced, "{} {:?}", watching.output(), follower.stats());
        let stats = follower.stats();
        assert_eq!((stats.refused, stats.unread, stats.errors), (0, 0, 0), "{stats:?}");
        assert!(stats.written >= 2, "{stats:?}");
        netns.ip("xfrm policy flush");
        count(0);
        // There is none such any more.
        assert!(!netns.ip("xfrm policy list").contains("10.1"));
    });
}
