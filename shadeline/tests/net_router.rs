//! The router among real programs: ping, traceroute, iperf3 and path MTU discovery in both families,
//! through both back ends.

mod common;

use std::time::Duration;

use common::{BACKENDS, Live, ping};
use testkit::wait_until;

#[test]
fn hosts_reach_each_other_and_the_router() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("ping", backend, "") else { return };
        let left = &live.net.left;
        for to in ["10.0.1.1", "10.0.2.1", "10.0.2.2", "fd00:1::1", "fd00:2::1", "fd00:2::2"] {
            // The first answer may wait for a neighbour.
            assert!(
                wait_until(Duration::from_secs(5), || ping(left, to, 1) == 1),
                "{backend}: {to}"
            );
            assert_eq!(ping(left, to, 10), 10, "{backend}: {to}");
        }
        // No double answers: one echo reply for each request.
        let output = left.try_run("ping -n -c 5 -i 0.05 10.0.1.1");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("DUP!"), "{backend}: {text}");
        live.stop();
    }
}

#[test]
fn traceroute_sees_the_router() {
    if testkit::require_tool("traceroute").is_none() {
        return;
    }
    for backend in BACKENDS {
        let Some(live) = Live::start("trace", backend, "") else { return };
        for (to, hop) in [("10.0.2.2", "10.0.1.1"), ("fd00:2::2", "fd00:1::1")] {
            assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, to, 1) == 1));
            let text = live.net.left.run(&format!("traceroute -n -q 1 -w 2 {to}"));
            let hops: Vec<_> =
                text.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)).collect();
            assert_eq!(hops, [hop, to], "{backend}: {text}");
        }
    }
}

#[test]
fn tcp_streams_pass() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    for backend in BACKENDS {
        let Some(live) = Live::start("tcp", backend, "") else { return };
        for to in ["10.0.2.2", "fd00:2::2"] {
            assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, to, 1) == 1));
            let mut server = live.net.right.spawn("iperf3 -s -1 --forceflush");
            server.wait_for("listening", Duration::from_secs(10));
            let text = live.net.left.run(&format!("iperf3 -c {to} -n 20M -J"));
            let bytes =
                text.split("\"sum_received\"").nth(1).and_then(|t| t.split("\"bytes\":").nth(1));
            let bytes = bytes.and_then(|t| t.split([',', '}']).next()?.trim().parse::<u64>().ok());
            // The server stops counting when the client says that all is sent.
            assert!(bytes.is_some_and(|b| b >= 10 << 20), "{backend}: {text}");
        }
    }
}

#[test]
fn path_mtu_discovery_works() {
    for backend in BACKENDS {
        let Some(live) = Live::with_mtu("pmtu", backend, "", 1500, 1400) else { return };
        let left = &live.net.left;
        for (to, cache) in [("10.0.2.2", "-4"), ("fd00:2::2", "-6")] {
            assert!(wait_until(Duration::from_secs(5), || ping(left, to, 1) == 1));
            // Too large and not to be fragmented: told, then smaller.
            let _ = left.try_run(&format!("ping -n -M do -c 2 -i 0.2 -W 1 -s 1440 {to}"));
            let route = left.ip(&format!("{cache} route get {to}"));
            assert!(route.contains("mtu 1400"), "{backend}: {route}");
        }
        // IPv4 packets that may be fragmented are.
        let output = left.try_run("ping -n -M dont -c 3 -i 0.1 -W 2 -s 3000 10.0.2.2");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(" 3 received"), "{backend}: {text}");
    }
}

#[test]
fn the_control_socket_answers() {
    let Some(live) = Live::start("ctl", "af_packet", "") else { return };
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    for table in ["interfaces", "queues", "routes", "neighbours", "stages", "drops", "runtime"] {
        let text = live.ctl(&format!("show {table}"));
        assert!(text.lines().count() >= 1, "{table}: {text}");
        let json = live.ctl(&format!("show {table} --json"));
        assert!(json.starts_with(['[', '{']), "{table}: {json}");
    }
    assert!(live.ctl("show neighbours").contains("10.0.2.2"));
    live.ctl("route add 192.168.0.0/16 10.0.2.2");
    assert!(live.ctl("route get 192.168.7.7").contains("10.0.2.2"));
    let (again, said) = live.try_ctl("route add 192.168.0.0/16 10.0.2.2");
    assert!(!again && said.contains("replace"), "{said}");
    live.ctl("route replace 192.168.0.0/16 blackhole");
    live.ctl("route del 192.168.0.0/16");
    assert!(!live.try_ctl("route del 192.168.0.0/16").0);
    let (_, said) = live.try_ctl("route add 192.168.0.0/16 nowhere");
    assert!(said.contains("nowhere"), "{said}");
    live.ctl("clear counters");

    // A trace and two captures, while a ping runs.
    let pings = live.net.left.spawn("ping -n -i 0.05 10.0.2.2");
    let trace = live.ctl("trace -c 2 icmp");
    for word in ["packet 2", "decode", "route", "rewrite", "forward(right)"] {
        assert!(trace.contains(word), "no {word}: {trace}");
    }
    let file = live.scratch.join("left.pcapng");
    live.ctl(&format!("capture left -w {} -c 6 icmp", file.display()));
    assert!(file.metadata().is_ok_and(|m| m.len() > 6 * 98));
    let (ok, said) = live.try_ctl(&format!("capture nowhere -w {}", file.display()));
    assert!(!ok && said.contains("drops"), "{said}");
    drop(pings);
    live.ctl("stop");
}

#[test]
fn a_vlan_subinterface_forwards() {
    let more = "[port.\"right.7\"]\nparent = \"right\"\nvlan = 7\naddresses = [\"10.0.7.1/24\"]\n\
                twin = false\n[[neighbour]]\nport = \"right.7\"\naddress = \"10.0.7.2\"\n\
                mac = \"02:00:00:00:02:02\"\n";
    let Some(live) = Live::start("vlan", "af_packet", more) else { return };
    if testkit::require_tool("tcpdump").is_none() {
        return;
    }
    let mut dump = live.net.right.spawn("tcpdump -i eth0 -n -e -l -c 2 vlan 7 and icmp");
    dump.wait_for("listening", Duration::from_secs(10));
    let _pings = live.net.left.spawn("ping -n -i 0.1 10.0.7.2");
    dump.wait_for("vlan 7", Duration::from_secs(10));
    assert!(dump.output().contains("10.0.1.2 > 10.0.7.2"), "{}", dump.output());
}
