//! Every change that iproute2 makes is reported.

use std::time::{Duration, Instant};

use control::kernel::twin::Advertisements;
use control::kernel::{NextHop, Options, Target};

use crate::{
    namespace::{Namespace, attempt, ip_batch, run},
    world::{End, Watching, ifindex},
};

/// Two veth pairs with addresses; `va` and `vb` play the twins.
fn two_ports() {
    for (name, peer, net) in [("va", "pa", 1), ("vb", "pb", 2)] {
        run(&format!("ip link add name {name} type veth peer name {peer}"));
        // No link-local addresses: when they pass duplicate address detection, nobody can say.
        run(&format!("ip link set {name} addrgenmode none"));
        run(&format!("ip link set {peer} addrgenmode none"));
        run(&format!("ip link set {peer} up"));
        run(&format!("ip link set {name} up"));
        run(&format!("ip addr add 10.0.{net}.1/24 dev {name}"));
        run(&format!("ip -6 addr add fd00:{net}::1/64 dev {name} nodad"));
    }
}

/// The `n`th of many prefixes.
fn prefix(n: u32) -> String {
    format!("{}.{}.{}.0/24", 20 + n / 65_536, n / 256 % 256, n % 256)
}

fn watching() -> Watching {
    Watching::start(&["va", "vb", "pa", "pb"], Options::default())
}

#[test]
fn each_action_of_iproute2_is_reflected() {
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    run("ip route add 192.0.2.0/24 via 10.0.1.2"); // before the mirror starts
    run("ip -6 route add 2001:db8:9::/48 via fd00:1::2");
    let mut w = watching();
    w.settle("the first picture");
    for line in [
        "ip route add 198.51.100.0/24 via 10.0.1.2",
        "ip route add 198.51.100.0/24 via 10.0.2.2 metric 50",
        "ip route replace 198.51.100.0/24 via 10.0.1.3",
        "ip route append 198.51.100.0/24 via 10.0.1.4",
        "ip route prepend 198.51.100.0/24 via 10.0.1.5",
        "ip route del 198.51.100.0/24 via 10.0.1.5",
        "ip route del 198.51.100.0/24 via 10.0.1.3",
        "ip route del 198.51.100.0/24 metric 0",
        "ip route change 198.51.100.0/24 via 10.0.2.9 metric 50",
        "ip route add 203.0.113.0/25 nexthop via 10.0.1.2 weight 3 nexthop via 10.0.2.2 weight 1",
        "ip route replace 203.0.113.0/25 nexthop via 10.0.1.7 nexthop via 10.0.2.7",
        "ip route add 203.0.113.128/25 via inet6 fe80::77 dev va",
        "ip route add 10.9.0.0/16 dev vb",
        "ip route add blackhole 10.10.0.0/16",
        "ip route add unreachable 10.11.0.0/16",
        "ip route add prohibit 10.12.0.0/16",
        "ip route replace 10.12.0.0/16 via 10.0.1.2",
        "ip route add default via 10.0.1.2 proto bird",
        "ip route add 10.77.0.0/16 via 10.0.1.2 table 100",
        "ip -6 route add 2001:db8:1::/48 via fd00:1::2",
        "ip -6 route append 2001:db8:1::/48 via fd00:2::2",
        "ip -6 route append 2001:db8:1::/48 via fd00:2::3",
        "ip -6 route del 2001:db8:1::/48 via fd00:1::2",
        "ip -6 route replace 2001:db8:1::/48 via fd00:1::9",
        "ip -6 route add 2001:db8:2::/48 nexthop via fd00:1::2 weight 5 nexthop via fd00:2::2",
        "ip -6 route replace 2001:db8:2::/48 nexthop via fd00:1::4 nexthop via fd00:2::4 nexthop via fd00:2::5",
        "ip -6 route del 2001:db8:2::/48",
        "ip -6 route add blackhole 2001:db8:3::/48",
        "ip -6 route add unreachable 2001:db8:4::/48 metric 7",
        "ip -6 route add prohibit 2001:db8:5::/48",
        "ip -6 route add default via fe80::1 dev va metric 20",
        "ip -6 route add default via fe80::1 dev vb metric 10",
        "ip -6 route del default via fe80::1 dev vb",
        "ip nexthop add id 1 via 10.0.1.2 dev va",
        "ip nexthop add id 2 via 10.0.2.2 dev vb",
        "ip nexthop add id 3 group 1/2,5",
        "ip nexthop add id 4 blackhole",
        "ip nexthop add id 5 via fd00:1::2 dev va",
        "ip nexthop replace id 3 group 1/2,7",
        "ip nexthop replace id 3 group 1/2,2",
        "ip route add 172.16.0.0/16 nhid 1",
        "ip route add 172.17.0.0/16 nhid 3",
        "ip route add 172.18.0.0/16 nhid 4",
        "ip -6 route add 2001:db8:20::/48 nhid 5",
        "ip nexthop replace id 1 via 10.0.1.99 dev va",
        "ip nexthop replace id 3 group 2",
        "ip nexthop replace id 3 group 1/2",
        "ip nexthop del id 2",
        "ip nexthop del id 1", // its routes go with it, without a word
        "ip nexthop del id 5",
        "ip nexthop del id 4",
        "ip route flush proto bird",
        "ip link set va mtu 1400",
        "ip link set va address 02:00:00:00:00:11",
        "ip addr add 10.0.3.1/24 dev va",
        "ip route add 10.30.0.0/16 via 10.0.3.2",
        "ip route add 10.31.0.0/16 via 10.0.1.2 src 10.0.3.1",
        "ip addr del 10.0.3.1/24 dev va",
        "ip link set vb down",
        "ip link set vb up",
        "ip route add 10.40.0.0/16 nexthop via 10.0.1.2 nexthop via 10.0.2.2",
        "ip link set va down",
        "ip link set va up",
        "ip link set pa down", // carrier only
        "ip link set pa up",
        "ip addr flush dev va",
        "ip -6 addr add fd00:1::1/64 dev va nodad",
        "ip link del vb",
        "ip link add name vb type veth peer name pb",
    ] {
        let (ok, _, error) = attempt(line);
        assert!(ok, "`{line}`: {error}");
        w.settle(line);
    }
    w.take(Duration::from_millis(300)); // the look after a silent change
    w.settle("the end");
    w.audit_is_clean("the end");
    assert_eq!(w.mirror.stats().undecoded, 0);
}

#[test]
fn links_addresses_and_neighbours_are_reported() {
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    let mut w = Watching::start(&["va"], Options::default());
    let va = w.world.ifindex("va");
    assert!(w.world.addresses.contains(&(va, "10.0.1.1/24".parse().unwrap())));
    assert!(w.world.addresses.iter().all(|(ifindex, _)| *ifindex == va), "only the watched");
    run("ip addr add 10.5.5.5/32 dev va");
    w.until("an address", |s| s.addresses.contains(&(va, "10.5.5.5/32".parse().unwrap())));
    run("ip addr del 10.5.5.5/32 dev va");
    w.until("no address", |s| !s.addresses.contains(&(va, "10.5.5.5/32".parse().unwrap())));
    run("ip link set va mtu 1280");
    w.until("the MTU", |s| s.links[&va].mtu_bytes == 1280);
    run("ip link set va address 02:00:00:00:00:11");
    w.until("the MAC", |s| s.links[&va].mac == [2, 0, 0, 0, 0, 0x11]);
    run("ip link set va name renamed");
    w.until("the name", |s| s.links[&va].name == "renamed");
    run("ip neigh add 10.0.1.7 lladdr 02:00:00:00:00:77 dev renamed");
    let key = (va, "10.0.1.7".parse().unwrap());
    w.until("a neighbour", |s| s.neighbours.get(&key) == Some(&[2, 0, 0, 0, 0, 0x77]));
    run("ip neigh replace 10.0.1.7 lladdr 02:00:00:00:00:78 dev renamed nud stale");
    w.until("another", |s| s.neighbours.get(&key) == Some(&[2, 0, 0, 0, 0, 0x78]));
    run("ip neigh del 10.0.1.7 dev renamed");
    w.until("no neighbour", |s| !s.neighbours.contains_key(&key));
    run("ip -6 neigh add fd00:1::7 lladdr 02:00:00:00:00:79 dev renamed");
    let key = (va, "fd00:1::7".parse().unwrap());
    w.until("a neighbour", |s| s.neighbours.get(&key) == Some(&[2, 0, 0, 0, 0, 0x79]));
    run("ip neigh add 10.0.2.7 lladdr 02:00:00:00:00:77 dev vb");
    run("ip link set renamed down");
    w.until("down", |s| !s.links[&va].up && !s.neighbours.contains_key(&key));
    run("ip link del renamed");
    w.until("gone", |s| !s.links.contains_key(&va));
    assert!(w.world.neighbours.is_empty() && w.world.addresses.is_empty());
    w.audit_is_clean("the end");
}

#[test]
fn only_watched_interfaces_carry_routes() {
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    run("ip route add 192.0.2.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2");
    run("ip route add 198.51.100.0/24 via 10.0.2.2"); // the best one is foreign …
    run("ip route add 198.51.100.0/24 via 10.0.1.2 metric 9"); // … so this one counts
    run("ip route add 203.0.113.0/24 via 10.0.2.2");
    run("ip nexthop add id 1 via 10.0.1.2 dev va");
    run("ip nexthop add id 2 via 10.0.2.2 dev vb");
    run("ip nexthop add id 3 group 1/2");
    run("ip route add 172.16.0.0/16 nhid 2");
    run("ip route add 172.17.0.0/16 nhid 3");
    let mut w = Watching::start(&["va"], Options::default());
    let (va, vb) = (ifindex("va"), ifindex("vb"));
    let legs = |w: &Watching, prefix: &str| match w.world.ends().get(&prefix.parse().unwrap()) {
        Some((End::Legs(legs), _)) => legs.iter().map(|leg| leg.ifindex).collect(),
        _ => Vec::new(),
    };
    let expect = |w: &Watching, both: bool| {
        let all = if both { vec![va, vb] } else { vec![va] };
        let foreign = if both { vec![vb] } else { vec![] };
        assert_eq!(legs(w, "192.0.2.0/24"), all);
        assert_eq!(legs(w, "198.51.100.0/24"), [if both { vb } else { va }]);
        assert_eq!(legs(w, "203.0.113.0/24"), foreign);
        assert_eq!(legs(w, "172.16.0.0/16"), foreign);
        assert_eq!(legs(w, "172.17.0.0/16"), all);
    };
    expect(&w, false);
    assert!(w.mirror.stats().foreign_legs > 0);
    w.mirror.watch(vb, Advertisements::Ignored);
    w.take(Duration::from_millis(200));
    expect(&w, true);
    w.mirror.unwatch(vb);
    w.take(Duration::from_millis(200));
    expect(&w, false);
    assert!(w.world.addresses.iter().all(|(ifindex, _)| *ifindex == va));
    w.audit_is_clean("the end");
}

#[test]
fn a_changed_object_moves_its_routes_in_one_event() {
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    run("ip nexthop add id 1 via 10.0.1.2 dev va");
    run("ip nexthop add id 9 group 1");
    let mut w = watching();
    let routes: String = (0..5_000).map(|n| format!("route add {} nhid 9\n", prefix(n))).collect();
    ip_batch(&routes, false);
    w.settle("5,000 routes");
    let events_before = w.world.route_events;
    run("ip nexthop add id 2 via 10.0.2.2 dev vb");
    run("ip nexthop replace id 9 group 1/2");
    w.until("the group", |s| matches!(&s.objects[&9], NextHop::Legs(legs) if legs.len() == 2));
    w.settle("two legs");
    assert_eq!(w.world.route_events, events_before, "no route was reported again");
    // The last leg goes: now the routes go as well, and come back with it.
    run("ip link set va down");
    run("ip link set vb down");
    w.settle("no legs");
    assert!(!w.world.routes.values().any(|route| route.target == Target::NextHop(9)));
    w.audit_is_clean("the end");
}

#[test]
fn an_overrun_ends_in_the_kernels_state() {
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    // The consumer's channel takes 16,384 events; then the mirror blocks and the buffer fills.
    let options =
        Options { receive_buffer_bytes: 4096, batch_events_max: 16, ..Options::default() };
    let mut w = Watching::start(&["va", "vb", "pa", "pb"], options);
    let mut lines = String::new();
    for n in 0..50_000 {
        lines += &format!("route add {} via 10.0.{}.2\n", prefix(n), 1 + n % 2);
    }
    for n in (0..50_000).step_by(3) {
        lines += &format!("route del {}\n", prefix(n));
    }
    ip_batch(&lines, false);
    w.settle("after the flood");
    assert!(w.mirror.stats().overruns > 0, "{:?}", w.mirror.stats());
    assert!(w.world.routes.len() > 33_000);
    w.audit_is_clean("after the flood");
}

#[test]
fn a_slow_consumer_loses_nothing_but_history() {
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    let options =
        Options { receive_buffer_bytes: 1 << 20, batch_events_max: 64, ..Options::default() };
    let mut w = Watching::start(&["va", "vb", "pa", "pb"], options);
    let lines: String = (0..20_000)
        .map(|n| format!("route replace {} via 10.0.1.{}\n", prefix(n % 2_048), 2 + n % 200))
        .collect();
    ip_batch(&lines, false); // nobody reads meanwhile
    w.settle("after the wait");
    w.audit_is_clean("after the wait");
}

/// Times are printed, not judged; `ROUTES=900000` for a full table.
#[test]
fn time_for_many_routes() {
    let routes = std::env::var("ROUTES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    let mut w = watching();
    let lines: String =
        (0..routes).map(|n| format!("route add {} via 10.0.1.2\n", prefix(n))).collect();
    let (began, batches) = (Instant::now(), w.world.batches);
    ip_batch(&lines, false);
    let fed = began.elapsed();
    w.until("all routes", |s| s.routes.len() >= routes as usize);
    println!(
        "ip -batch took {fed:?}; mirrored after {:?} in {} batches; {:?}",
        began.elapsed(),
        w.world.batches - batches,
        w.mirror.stats()
    );
    let began = Instant::now();
    w.audit_is_clean("all routes");
    println!("an audit took {:?}", began.elapsed());
    drop(w);
    let began = Instant::now();
    let w = watching();
    println!("the first picture of {} routes took {:?}", w.world.routes.len(), began.elapsed());
}

/// A random line of iproute2 over few prefixes, gateways and objects, so that they meet often.
/// Without `silent` none that makes the kernel change more than it says.
fn random_line(random: &mut impl FnMut(u32) -> u32, silent: bool) -> String {
    let v6 = random(3) == 0;
    let prefix = match (v6, random(3)) {
        (false, n) => format!("20.0.{n}.0/24"),
        (true, n) => format!("2001:db8:{n}::/48"),
    };
    let via = |random: &mut dyn FnMut(u32) -> u32| {
        let (port, host) = (1 + random(2), 2 + random(2));
        let dev = ["va", "vb"][port as usize - 1];
        let gateway =
            if v6 { format!("fd00:{port}::{host}") } else { format!("10.0.{port}.{host}") };
        format!("via {gateway} dev {dev}")
    };
    let metric = ["", " metric 5", " metric 70"][random(3) as usize];
    match random(if silent { 16 } else { 14 }) {
        0 | 1 => format!("route add {prefix} {}{metric}", via(random)),
        2 => format!("route append {prefix} {}{metric}", via(random)),
        3 => format!("route prepend {prefix} {}{metric}", via(random)),
        4 => format!("route replace {prefix} {}{metric}", via(random)),
        5 => format!(
            "route replace {prefix}{metric} nexthop {} weight {} nexthop {}",
            via(random),
            1 + random(9),
            via(random)
        ),
        6 => format!("route del {prefix}{metric}"),
        7 => format!("route del {prefix} {}", via(random)),
        8 => {
            let kind = ["blackhole", "unreachable", "prohibit"][random(3) as usize];
            // The kernel's IPv6 dump skips such a route between two legs of a multipath route.
            let verb = ["replace", "append"][if v6 { 0 } else { random(2) as usize }];
            match random(4) {
                0 => format!(
                    "route {verb} {prefix} dev {}{metric}",
                    ["va", "vb"][random(2) as usize]
                ),
                _ => format!("route {verb} {kind} {prefix}{metric}"),
            }
        }
        9 | 10 => format!("route replace {prefix}{metric} nhid {}", 1 + random(6)),
        11 => format!("nexthop replace id {} {}", 1 + random(4), via(random)),
        12 => format!(
            "nexthop replace id {} group {}/{}",
            5 + random(2),
            1 + random(2),
            3 + random(2)
        ),
        13 => format!("nexthop del id {}", 1 + random(6)),
        14 => {
            let name = ["va", "vb"][random(2) as usize];
            format!("link set {name} {}", ["up", "up", "down"][random(3) as usize])
        }
        _ => {
            let port = 1 + random(2);
            let verb = ["replace", "replace", "del"][random(3) as usize];
            format!("addr {verb} 10.0.{port}.1/24 dev {}", ["va", "vb"][port as usize - 1])
        }
    }
}

#[test]
fn random_batches_end_equal() {
    let Some(_namespace) = Namespace::enter() else { return };
    two_ports();
    let mut w = watching();
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    println!("SEED={seed}");
    let mut state = seed;
    let mut random = move |below: u32| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    };
    for round in 0..40 {
        let (count, silent) = (1 + random(60), round % 2 == 0);
        if !silent {
            ip_batch("link set va up\nlink set vb up\n", false);
            ip_batch("addr replace 10.0.1.1/24 dev va\naddr replace 10.0.2.1/24 dev vb\n", false);
            // The look after them, which may find nothing to tell.
            w.settle("the ports are up");
            let mut looked = None;
            while looked.replace(w.mirror.stats().dumps) != Some(w.mirror.stats().dumps) {
                w.take(Duration::from_millis(200));
            }
        }
        let dumps = w.mirror.stats().dumps;
        let lines: String = (0..count).map(|_| random_line(&mut random, silent) + "\n").collect();
        ip_batch(&lines, true); // many lines are refused: that is part of it
        let what = format!("round {round}:\n{lines}");
        w.settle(&what);
        if !silent {
            assert_eq!(w.mirror.stats().dumps, dumps, "followed without looking again; {what}");
            w.audit_is_clean(&what);
        }
    }
    w.take(Duration::from_millis(300));
    w.settle("the end");
    w.audit_is_clean("the end");
}
