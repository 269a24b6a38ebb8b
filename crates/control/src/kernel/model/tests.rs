//! The model by bytes alone.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily,
    link::{LinkAttribute, LinkFlags, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RoutePreference, RouteProtocol,
        RouteType,
    },
};
use proptest::prelude::*;

use super::*;
use crate::kernel::event::{Event, Target};
use crate::netlink::{
    emit,
    nexthop::{NextHopAttribute, NextHopMessage},
};

const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

fn link(up: bool) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.header.index = 1;
    let running = LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp;
    message.header.flags = if up { running } else { LinkFlags::empty() };
    message.attributes = vec![LinkAttribute::IfName("va".into()), LinkAttribute::Mtu(1500)];
    emit(&message)
}

fn route(third: u8, object: Option<u32>) -> Vec<u8> {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = 24;
    message.header.kind = RouteType::Unicast;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet([10, 0, third, 0].into())),
        object.map_or(RouteAttribute::Oif(1), RouteAttribute::NhId),
    ];
    emit(&message)
}

fn object(id: u32, gateway: u8) -> Vec<u8> {
    let attributes = vec![
        NextHopAttribute::Id(id),
        NextHopAttribute::Oif(1),
        NextHopAttribute::Gateway([10, 0, 0, gateway].into()),
    ];
    emit(&NextHopMessage { family: 2, attributes, ..Default::default() })
}

fn apply(model: &mut Model, kind: u16, payload: &[u8]) -> bool {
    model.apply(&Message { kind, flags: NEW, sequence: 0, payload })
}

fn flush(model: &mut Model) -> Vec<Event> {
    let mut events = Vec::new();
    model.flush(&mut events);
    events
}

fn started() -> Model {
    let mut model = Model::new(254, [1]);
    apply(&mut model, rtm::NEWLINK, &link(true));
    apply(&mut model, rtm::NEWROUTE, &route(1, None));
    apply(&mut model, rtm::NEWROUTE, &route(2, None));
    assert_eq!(flush(&mut model).len(), 3);
    assert!(!model.changed());
    model
}

/// What a dump of a kernel that holds these routes says.
fn dumped(model: &mut Model, thirds: &[u8]) -> Model {
    let mut fresh = model.fresh();
    let take = |fresh: &mut Model, kind, payload: &[u8]| {
        fresh.take_dumped(&Message { kind, flags: 0, sequence: 0, payload });
    };
    take(&mut fresh, rtm::NEWLINK, &link(true));
    thirds.iter().for_each(|third| take(&mut fresh, rtm::NEWROUTE, &route(*third, None)));
    fresh
}

#[test]
fn a_dump_mends_what_was_missed() {
    let mut model = started();
    model.begin_dump();
    let fresh = dumped(&mut model, &[2, 3]); // 1 went and 3 came unheard
    assert_eq!(model.adopt(fresh).entries, 2);
    let events = flush(&mut model);
    let (gone, new) = ("10.0.1.0/24".parse().unwrap(), "10.0.3.0/24".parse::<IpNet>().unwrap());
    assert_eq!(events.len(), 2);
    assert!(events.contains(&Event::RouteRemoved { prefix: gone }));
    let is_new = |e: &Event| matches!(e, Event::RouteReplaced { prefix, .. } if *prefix == new);
    assert!(events.iter().any(is_new));
    model.begin_dump();
    let fresh = dumped(&mut model, &[2, 3]);
    assert_eq!(model.adopt(fresh), Mended::default());
    assert!(!model.changed());
}

#[test]
fn a_dump_is_older_than_what_was_heard_meanwhile() {
    let mut model = started();
    model.begin_dump();
    let fresh = dumped(&mut model, &[1, 2]);
    apply(&mut model, rtm::DELROUTE, &route(1, None));
    apply(&mut model, rtm::NEWROUTE, &route(4, None));
    assert_eq!(model.adopt(fresh).entries, 0);
    assert_eq!(flush(&mut model).len(), 2);
    assert_eq!(model.route_counts(), (2, 2, 0));
}

#[test]
fn a_flap_between_two_flushes_is_not_reported() {
    let mut model = started();
    for _ in 0..3 {
        apply(&mut model, rtm::DELROUTE, &route(1, None));
        apply(&mut model, rtm::NEWROUTE, &route(1, None));
    }
    assert!(model.changed());
    assert_eq!(flush(&mut model), []);
}

#[test]
fn routes_of_a_link_that_goes_down_go_unsaid() {
    let mut model = started();
    assert!(apply(&mut model, rtm::NEWLINK, &link(false)), "look again");
    assert_eq!(flush(&mut model).len(), 3);
    assert_eq!(model.route_counts(), (0, 0, 0));
}

#[test]
fn an_object_comes_before_its_routes_and_goes_after() {
    let mut model = started();
    apply(&mut model, rtm::NEWROUTE, &route(7, Some(5)));
    assert_eq!(flush(&mut model), [], "an unknown object leads nowhere");
    apply(&mut model, rtm::NEWNEXTHOP, &object(5, 9));
    let events = flush(&mut model);
    assert!(matches!(
        events[..],
        [
            Event::NextHopReplaced { id: 5, .. },
            Event::RouteReplaced { route: Route { target: Target::NextHop(5), .. }, .. }
        ]
    ));
    apply(&mut model, rtm::NEWNEXTHOP, &object(5, 10));
    assert!(matches!(flush(&mut model)[..], [Event::NextHopReplaced { id: 5, .. }]));
    apply(&mut model, rtm::DELNEXTHOP, &object(5, 10));
    let events = flush(&mut model);
    assert!(matches!(events[..], [Event::RouteRemoved { .. }, Event::NextHopRemoved { id: 5 }]));
}

/// A default route of IPv6 by a router of the link.
fn by_router(
    last: u16,
    protocol: RouteProtocol,
    metric: u32,
    preference: RoutePreference,
) -> Vec<u8> {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.kind = RouteType::Unicast;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = protocol;
    let router = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    message.attributes = vec![
        RouteAttribute::Gateway(RouteAddress::Inet6(router)),
        RouteAttribute::Oif(1),
        RouteAttribute::Priority(metric),
        RouteAttribute::Preference(preference),
    ];
    emit(&message)
}

/// The router that the default route leads to, as the last group of its address.
fn chosen(events: &[Event]) -> u16 {
    match events {
        [Event::RouteReplaced { route: Route { target: Target::Legs(legs), .. }, .. }] => {
            match legs[0].gateway {
                Some(IpAddr::V6(router)) => router.segments()[7],
                _ => panic!("{events:?}"),
            }
        }
        _ => panic!("{events:?}"),
    }
}

#[test]
fn redirects_and_advertisements_are_no_routes() {
    let mut model = started();
    for protocol in [RouteProtocol::IcmpRedirect, RouteProtocol::Ra] {
        let route = by_router(1, protocol, 1024, RoutePreference::High);
        apply(&mut model, rtm::NEWROUTE, &route);
        model.take_dumped(&Message { kind: rtm::NEWROUTE, flags: 0, sequence: 0, payload: &route });
    }
    assert_eq!(flush(&mut model), []);
    // A redirect is none on a port either that takes advertisements.
    model.advertise(1, true);
    let redirect = by_router(1, RouteProtocol::IcmpRedirect, 1024, RoutePreference::High);
    apply(&mut model, rtm::NEWROUTE, &redirect);
    assert_eq!(flush(&mut model), []);
}

#[test]
fn advertised_routes_follow_all_others_in_the_order_of_their_preference() {
    use RoutePreference::{High, Invalid, Low};
    use RouteProtocol::{Ra, Static};
    let mut model = started();
    model.advertise(1, true);
    // As the kernel reports them: several of one metric, none joined with another.
    let add = |model: &mut Model, route: &[u8]| {
        model.apply(&Message {
            kind: rtm::NEWROUTE,
            flags: NLM_F_CREATE,
            sequence: 0,
            payload: route,
        });
    };
    add(&mut model, &by_router(1, Ra, 1024, Low));
    assert_eq!(chosen(&flush(&mut model)), 1);
    add(&mut model, &by_router(2, Ra, 1024, Invalid)); // counts as medium
    assert_eq!(chosen(&flush(&mut model)), 2);
    add(&mut model, &by_router(3, Ra, 1024, High));
    assert_eq!(chosen(&flush(&mut model)), 3);
    add(&mut model, &by_router(4, Static, 4096, Low));
    let events = flush(&mut model);
    assert_eq!(chosen(&events), 4, "whatever its metric");
    assert!(matches!(&events[..], [Event::RouteReplaced { route, .. }] if !route.is_advertised()));
    apply(&mut model, rtm::DELROUTE, &by_router(4, Static, 4096, Low));
    let events = flush(&mut model);
    assert_eq!(chosen(&events), 3);
    assert!(matches!(&events[..], [Event::RouteReplaced { route, .. }] if route.is_advertised()));
    apply(&mut model, rtm::DELROUTE, &by_router(3, Ra, 1024, High));
    assert_eq!(chosen(&flush(&mut model)), 2);
}

proptest! {
    /// Against two sets: what the kernel has, and what was reported.
    #[test]
    fn no_more_routes_than_wanted_are_reported_and_those_that_are_stay(
        max in 0..6usize,
        steps in proptest::collection::vec(proptest::collection::vec((0..12u8, any::<bool>()), 0..8), 1..12),
    ) {
        let prefix = |third: u8| -> IpNet { format!("10.0.{third}.0/24").parse().unwrap() };
        let mut model = Model::new(254, [1]);
        model.limit_routes(max);
        apply(&mut model, rtm::NEWLINK, &link(true));
        flush(&mut model);
        let (mut kernel, mut reported, mut held_back) = (HashSet::new(), HashSet::new(), 0);
        for step in steps {
            for (third, is_there) in step {
                let kind = if is_there { rtm::NEWROUTE } else { rtm::DELROUTE };
                apply(&mut model, kind, &route(third, None));
                if is_there { kernel.insert(prefix(third)) } else { kernel.remove(&prefix(third)) };
            }
            let before = reported.clone();
            for event in flush(&mut model) {
                match event {
                    Event::RouteReplaced { prefix, .. } => _ = reported.insert(prefix),
                    Event::RouteRemoved { prefix } => prop_assert!(reported.remove(&prefix)),
                    Event::RoutesHeldBack { routes, .. } => {
                        prop_assert_ne!(std::mem::replace(&mut held_back, routes), routes);
                    }
                    other => panic!("{other:?}"),
                }
                prop_assert!(reported.len() <= max);
            }
            prop_assert!(reported.is_subset(&kernel));
            prop_assert!(before.intersection(&kernel).all(|kept| reported.contains(kept)));
            prop_assert_eq!(reported.len(), kernel.len().min(max));
            prop_assert_eq!(held_back, kernel.len() - reported.len());
        }
    }

    #[test]
    fn random_bytes_never_panic(
        messages in proptest::collection::vec(
            (16..110u16, any::<u16>(), proptest::collection::vec(any::<u8>(), 0..90)), 1..20),
    ) {
        let mut model = Model::new(254, [1]);
        for (kind, flags, payload) in &messages {
            let message = Message { kind: *kind, flags: *flags, sequence: 0, payload };
            model.apply(&message);
            model.take_dumped(&message);
        }
        model.flush(&mut Vec::new());
    }

    #[test]
    fn damaged_messages_never_panic(
        which in 0..4usize, at: prop::sample::Index, value: u8, cut: prop::sample::Index,
    ) {
        let (kind, mut bytes) = [
            (rtm::NEWLINK, link(true)),
            (rtm::NEWROUTE, route(1, None)),
            (rtm::NEWROUTE, route(1, Some(5))),
            (rtm::NEWNEXTHOP, object(5, 1)),
        ][which].clone();
        let at = at.index(bytes.len());
        bytes[at] = value;
        let mut model = Model::new(254, [1]);
        apply(&mut model, kind, &bytes);
        apply(&mut model, kind, &bytes[..cut.index(bytes.len())]);
        flush(&mut model);
    }
}
