//! The router among real programs: ping, traceroute, iperf3 and path MTU discovery in both families,
//! through both back ends.

mod common;

use std::time::{Duration, Instant};

use common::{BACKENDS, Live, ping};
use testkit::netns::{Netns, Offloads};
use testkit::wait_until;

/// What the server of an iperf3 whose report this is has received.
fn received_bytes(report: &str) -> Option<u64> {
    let sum = report.split("\"sum_received\"").nth(1)?;
    let bytes = sum.split("\"bytes\":").nth(1)?;
    bytes.split([',', '}']).next()?.trim().parse().ok()
}

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
            let bytes = received_bytes(&text);
            // The server stops counting when the client says that all is sent.
            assert!(bytes.is_some_and(|b| b >= 10 << 20), "{backend}: {text}");
        }
    }
}

/// As people have it: nobody has switched anything off on the links.
#[test]
fn tcp_streams_pass_with_offloads_on() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    // Segments of the left side fit the right one, or are cut.
    for right_mtu in [1500, 1400] {
        let offloads = Offloads::Default;
        let mtu = (1500, right_mtu);
        let Some(live) = Live::with("gso", "af_packet", "", mtu, offloads) else { return };
        for to in ["10.0.2.2", "fd00:2::2"] {
            assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, to, 1) == 1));
            for reverse in ["", "-R"] {
                let mut server = live.net.right.spawn("iperf3 -s -1 --forceflush");
                server.wait_for("listening", Duration::from_secs(10));
                let text = live.net.left.run(&format!("iperf3 -c {to} {reverse} -n 200M -J"));
                let bytes = received_bytes(&text);
                assert!(
                    bytes.is_some_and(|b| b >= 150 << 20),
                    "{right_mtu} {to} {reverse}: {text}"
                );
            }
        }
        // Frames of many segments passed as one packet each.
        let queues = live.ctl("show queues --json");
        let number = |name: &str| -> Vec<u64> {
            let key = format!("\"{name}\": ");
            let after = queues.split(&key).skip(1);
            after.filter_map(|t| t.split([',', '\n']).next()?.trim().parse().ok()).collect()
        };
        let (packets, bytes) = (number("rx_packets"), number("rx_bytes"));
        let (packets, bytes): (u64, u64) = (packets.iter().sum(), bytes.iter().sum());
        assert!(bytes > 4 * packets * 1514 / 2, "{right_mtu}: {queues}");
        // Too long for the right side at first: the sender is told, and adapts.
        let drops = live.drops();
        let others = drops.iter().filter(|(reason, packets)| {
            *packets > 0 && !["fragmentation_needed", "too_big"].contains(&reason.as_str())
        });
        assert_eq!(others.count(), 0, "{right_mtu}: {drops:?}");
    }
}

/// A tunnel between hosts: inner checksums are open, and a frame of many segments has one outer header.
#[test]
fn tcp_inside_vxlan_passes_with_offloads_on() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    // Frames fit the right side whole, or leave it as fragments of each segment.
    for (right_mtu, options) in [
        (1500, ""),                       // outer checksums of UDP
        (1500, "noudpcsum"),              // none
        (1400, ""),                       // IPv4 fragments of segments
        (1500, "udp6zerocsumrx inner 6"), // over IPv6
    ] {
        let offloads = Offloads::Default;
        let mtu = (1500, right_mtu);
        let Some(live) = Live::with("vxlan", "af_packet", "", mtu, offloads) else { return };
        let (options, is_v6) = match options.split_once(" inner 6") {
            Some((options, _)) => (options, true),
            None => (options, false),
        };
        let (left, right) =
            if is_v6 { ("fd00:1::2", "fd00:2::2") } else { ("10.0.1.2", "10.0.2.2") };
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, right, 1) == 1));
        for (netns, own, other, n) in
            [(&live.net.left, left, right, 1), (&live.net.right, right, left, 2)]
        {
            let key = "id 7 dstport 4789";
            netns.ip(&format!("link add vx type vxlan {key} local {own} remote {other} {options}"));
            netns.ip(&format!("address add 172.16.0.{n}/24 dev vx"));
            netns.ip(&format!("address add fd16::{n}/64 dev vx nodad"));
            netns.ip("link set vx mtu 1430 up");
        }
        for to in ["172.16.0.2", "fd16::2"] {
            assert!(
                wait_until(Duration::from_secs(5), || ping(&live.net.left, to, 1) == 1),
                "{to}"
            );
            for reverse in ["", "-R"] {
                let mut server = live.net.right.spawn("iperf3 -s -1 --forceflush");
                server.wait_for("listening", Duration::from_secs(10));
                let text = live.net.left.run(&format!("iperf3 -c {to} {reverse} -n 50M -J"));
                let bytes = received_bytes(&text);
                assert!(
                    bytes.is_some_and(|b| b >= 30 << 20),
                    "{right_mtu} {options} {to} {reverse}: {text}"
                );
            }
        }
        let drops = live.drops();
        assert!(drops.iter().all(|(_, packets)| *packets == 0), "{right_mtu} {options}: {drops:?}");
    }
}

/// A Linux sender hands many datagrams over as one frame (UDP_SEGMENT).
#[test]
fn segmented_datagrams_pass() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let offloads = Offloads::Default;
    let Some(live) = Live::with("uso", "af_packet", "", (1500, 1500), offloads) else { return };
    for (to, family) in [("10.0.2.2", "AF_INET"), ("fd00:2::2", "AF_INET6")] {
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, to, 1) == 1));
        let receive = format!(
            "import socket\n\
             s = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n\
             s.bind(('{to}', 9000)); s.settimeout(20); print('ready', flush=True)\n\
             got = [s.recv(4000) for _ in range(21)]\n\
             assert [len(d) for d in got] == [1000] * 20 + [7], [len(d) for d in got]\n\
             assert all(d[:1] == bytes([i]) for i, d in enumerate(got)); print('all')\n"
        );
        let send = format!(
            "import socket\n\
             s = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n\
             s.setsockopt(17, 103, 1000)\n\
             s.sendto(b''.join(bytes([i]) * (1000 if i < 20 else 7) for i in range(21)), ('{to}', 9000))\n"
        );
        let (receiver, sender) = (live.scratch.join("receive.py"), live.scratch.join("send.py"));
        std::fs::write(&receiver, receive).expect("a file");
        std::fs::write(&sender, send).expect("a file");
        let mut server = live.net.right.spawn(&format!("python3 {}", receiver.display()));
        server.wait_for("ready", Duration::from_secs(10));
        live.net.left.run(&format!("python3 {}", sender.display()));
        let (status, said) = server.wait(Duration::from_secs(30));
        assert!(status.success() && said.contains("all"), "{to}: {said}");
    }
}

/// The kernel behind a twin sends and receives unfinished frames too.
#[test]
fn tcp_to_the_router_itself_passes_with_offloads_on() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    let offloads = Offloads::Default;
    // A stream to the router has more packets than its budget: how they look is asked here, not how many may come.
    let host = "[port.left.host]\nother = \"off\"\n";
    let Some(live) = Live::with("gsohost", "af_packet", host, (1500, 1500), offloads) else {
        return;
    };
    for to in ["10.0.1.1", "fd00:1::1"] {
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, to, 1) == 1));
        for reverse in ["", "-R"] {
            let mut server = live.net.router.spawn("iperf3 -s -1 --forceflush");
            server.wait_for("listening", Duration::from_secs(10));
            let text = live.net.left.run(&format!("iperf3 -c {to} {reverse} -n 50M -J"));
            assert!(text.contains("sum_received"), "{to} {reverse}: {text}");
        }
    }
    assert!(live.drops().iter().all(|(_, packets)| *packets == 0), "{:?}", live.drops());
}

/// A frame of many segments lies in many cells, and its length is that of all of them.
#[test]
fn filters_see_the_length_of_a_long_frame() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    let offloads = Offloads::Default;
    let Some(live) = Live::with("gsolen", "af_packet", "", (1500, 1500), offloads) else { return };
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let ctl = format!(
        "{} ctl --socket {} trace -c 1 tcp dst port 5201 and greater 10000 and len > 10000 and not less 9999",
        live.bin.display(),
        live.scratch.join("ctl.sock").display(),
    );
    let mut trace = live.net.router.spawn(&ctl);
    std::thread::sleep(Duration::from_millis(500));
    let mut server = live.net.right.spawn("iperf3 -s -1 --forceflush");
    server.wait_for("listening", Duration::from_secs(10));
    live.net.left.run("iperf3 -c 10.0.2.2 -n 100M");
    let (status, said) = trace.wait(Duration::from_secs(10));
    assert!(status.success() && said.contains("in segments of"), "{said}");
}

#[test]
fn captures_show_what_is_on_a_wire() {
    let (Some(_), Some(_)) = (testkit::require_tool("iperf3"), testkit::require_tool("tshark"))
    else {
        return;
    };
    let offloads = Offloads::Default;
    let Some(live) = Live::with("gsocap", "af_packet", "", (1500, 1500), offloads) else { return };
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let file = live.scratch.join("right.pcapng");
    let ctl = format!(
        "{} ctl --socket {} capture right -w {} --count 2000 tcp",
        live.bin.display(),
        live.scratch.join("ctl.sock").display(),
        file.display()
    );
    let mut capture = live.net.router.spawn(&ctl);
    std::thread::sleep(Duration::from_millis(500));
    let mut server = live.net.right.spawn("iperf3 -s -1 --forceflush");
    server.wait_for("listening", Duration::from_secs(10));
    live.net.left.run("iperf3 -c 10.0.2.2 -n 20M");
    let (status, said) = capture.wait(Duration::from_secs(30));
    assert!(status.success(), "{said}");
    // Every frame fits the MTU, and every checksum is right.
    let read = |filter: &str| {
        let output = std::process::Command::new("tshark")
            .args(["-r", &file.display().to_string(), "-o", "tcp.check_checksum:TRUE"])
            .args(["-o", "ip.check_checksum:TRUE", "-Y", filter, "-T", "fields", "-e", "frame.len"])
            .output()
            .expect("tshark starts");
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|l| l.parse::<u32>().ok())
            .collect::<Vec<_>>()
    };
    let lens = read("tcp");
    assert_eq!(lens.len(), 2000);
    assert!(lens.iter().filter(|len| **len == 1514).count() > 500, "{lens:?}");
    assert!(lens.iter().all(|len| *len <= 1514), "{lens:?}");
    assert_eq!(read("tcp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\""), []);
}

#[test]
fn path_mtu_discovery_works() {
    for backend in BACKENDS {
        let Some(live) = Live::with_mtu("pmtu", backend, "", 1500, 1400) else { return };
        let left = &live.net.left;
        for (to, cache) in [("10.0.2.2", "-4"), ("fd00:2::2", "-6")] {
            assert!(wait_until(Duration::from_secs(5), || ping(left, to, 1) == 1));
            // Too large and not to be fragmented: an ICMP error, then smaller packets.
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
    for (bad, expected) in [
        ("route add 38.0.0.1/8 10.0.2.2", "expected 38.0.0.0/8"),
        ("route add 39.0.0.0/33 10.0.2.2", "prefix length of 0 to 32"),
        ("route add 2001:db8::/32 fe80::1", "expected fe80::1%PORT"),
        ("route get 9.9.9.9", "no route to 9.9.9.9"),
    ] {
        let (ok, said) = live.try_ctl(bad);
        assert!(!ok && said.contains(expected), "{bad}: {said}");
    }
    assert!(live.ctl("route add --help").contains("ADDRESS%PORT"));
    live.ctl("clear counters");
    assert!(!live.ctl("show stages").contains("phase"));
    assert!(live.ctl("show runtime --json").contains("\"cpu\": 0"), "pinned");

    // A trace and two captures, while a ping runs.
    let pings = live.net.left.spawn("ping -n -i 0.05 10.0.2.2");
    let trace = live.ctl("trace -c 2 icmp");
    for word in ["packet 2", "decode", "route", "rewrite", "forward(right)"] {
        assert!(trace.contains(word), "no {word}: {trace}");
    }
    let file = live.scratch.join("left.pcapng");
    live.ctl(&format!("capture left -w {} -c 6 icmp", file.display()));
    let bytes = std::fs::read(&file).expect("a capture");
    assert!(bytes.len() > 6 * 98 && bytes.windows(4).any(|window| window == b"left"));
    // As it passes, to another program.
    if testkit::require_tool("tcpdump").is_some() {
        let output = std::process::Command::new("sh")
            .args([
                "-c",
                "\"$0\" ctl --socket \"$1\" capture left -w - -c 4 icmp | tcpdump -n -r -",
            ])
            .args([live.bin.as_os_str(), live.scratch.join("ctl.sock").as_os_str()])
            .output()
            .expect("sh");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(shown.lines().filter(|line| line.contains("ICMP echo")).count(), 4, "{shown}");
    }
    let (ok, said) = live.try_ctl(&format!("capture nowhere -w {}", file.display()));
    assert!(!ok && said.contains("drops"), "{said}");
    drop(pings);
    live.ctl("stop");
}

#[test]
fn a_vlan_subinterface_forwards_and_counts() {
    let more = "[port.\"right.7\"]\nparent = \"right\"\nvlan = 7\naddresses = [\"10.0.7.1/24\"]\n\
                twin = false\n[[neighbour]]\nport = \"right.7\"\naddress = \"10.0.7.2\"\n\
                mac = \"02:00:00:00:02:02\"\n";
    for backend in BACKENDS {
        let Some(mut live) = Live::start("vlan", backend, more) else { return };
        // The right host's kernel may know no VLANs: what comes back is made.
        let back = |count: u32| {
            let (bin, mac) = (live.bin.display(), testkit::netns::mac::ROUTER_RIGHT);
            let sent = live.net.right.try_run(&format!(
                "{bin} gen packets --interface eth0 --count {count} --rate 200pps --vlan 7 \
                 --src 10.0.7.2 --dst 10.0.1.2 --dst-mac {mac}"
            ));
            assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        };
        let row = || {
            let table = live.ctl("show interfaces");
            let row = table.lines().rfind(|line| line.starts_with("right.7 "));
            row.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let there = |count| ping(&live.net.left, "10.0.7.2", count);

        // Tagged packets of both directions, and none of the port's others.
        let pings = live.net.left.spawn("ping -n -i 0.02 10.0.7.2");
        let others = live.net.left.spawn("ping -n -i 0.02 10.0.2.2");
        let file = live.scratch.join("right.7.pcapng");
        let capture = std::thread::scope(|scope| {
            let capture = scope.spawn(|| {
                live.ctl(&format!("capture right.7 -w {} --duration 1s", file.display()))
            });
            back(100);
            capture.join().expect("the capture")
        });
        drop((pings, others));
        assert!(!capture.starts_with("0 "), "{backend}: {capture}");
        if testkit::require_tool("tcpdump").is_some() {
            let all = live.net.right.run(&format!("tcpdump -n -e -r {}", file.display()));
            let packets = all.lines().filter(|l| l.contains(" > "));
            assert!(packets.clone().all(|l| l.contains("vlan 7")), "{backend}: {all}");
            for way in ["10.0.1.2 > 10.0.7.2", "> 10.0.1.2."] {
                assert!(all.contains(way), "{backend}: no {way}: {all}");
            }
        }

        live.ctl("clear counters");
        // name, then packets and bytes of either direction: a ping has 98 bytes and a tag.
        there(20);
        let sent = wait_until(Duration::from_secs(3), || row().iter().any(|cell| cell == "2,040"));
        assert!(sent, "{backend}: {:?}", row());
        back(30);
        assert!(wait_until(Duration::from_secs(3), || row()[1] == "30"), "{backend}: {:?}", row());
        assert!(live.stop().contains("right.7"), "{backend}");
    }
}

#[test]
fn totals_at_the_end_are_since_the_start() {
    let Some(mut live) = Live::start("totals", "af_packet", "") else { return };
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    assert_eq!(ping(&live.net.left, "10.0.2.2", 20), 20);
    let _ = live.net.left.try_run("ping -n -c 3 -i 0.05 -W 1 9.9.9.9");
    live.ctl("clear counters");
    assert!(live.drops().is_empty() && live.ctl("show drops").contains("no drops"));
    let said = live.stop();
    let number = |start: &str, at: usize| {
        let line = said.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        let cell = line.split_whitespace().nth(at).unwrap_or_default();
        cell.replace(',', "").parse::<u64>().unwrap_or(0)
    };
    assert!(number("no_route ", 1) >= 3, "{said}");
    assert!(number("decode ", 2) >= 40, "{said}");
}

#[test]
fn what_queues_lose_has_a_reason() {
    for backend in BACKENDS {
        // The port believes in 1500 bytes, its link takes 1400; a fifth of what it receives is lost.
        let more = "mtu = 1500\nfault = { loss = 0.2, seed = 1 }\n";
        let Some(mut live) = Live::with_mtu("losses", backend, more, 1500, 1400) else { return };
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        let answers = ping(&live.net.left, "10.0.2.2", 40);
        let of = |reason: &str| {
            live.drops().iter().find(|(name, _)| name == reason).map_or(0, |&(_, n)| n)
        };
        let lost = of("fault_injected");
        assert!(answers < 40 && lost >= 40 - u64::from(answers), "{backend}: {:?}", live.drops());
        if backend == "af_packet" {
            let _ = live.net.left.try_run("ping -n -M do -c 4 -i 0.05 -W 1 -s 1450 10.0.2.2");
            assert!(of("tx_oversize") >= 4, "{backend}: {:?}", live.drops());
        }
        live.ctl("clear counters");
        assert!(of("fault_injected") < lost, "{backend}: {:?}", live.drops());
        let said = live.stop();
        assert!(said.contains("fault_injected"), "{backend}: {said}");
    }
}

/// Sends Router Advertisements (RFC 4861 §4.2), which name themselves the router of all prefixes.
///
/// `options`: those of a message, in Python, from its number `n` on and with `pio(prefix, len, flags)` (RFC 4861 §4.6.2)
/// and `rio(prefix, len, preference)` (RFC 4191 §2.3). `preference`: of the default route, 1 high, 0 medium, 3 low.
fn advertise(
    live: &Live,
    from: &Netns,
    source: &str,
    preference: u8,
    (count, pause_ms): (u32, u32),
    options: &str,
) {
    let script = format!(
        "import socket, struct, time\n\
         p6 = lambda a: socket.inet_pton(socket.AF_INET6, a)\n\
         def pio(prefix, len, flags):\n \
             return struct.pack('!BBBBIII', 3, 4, len, flags, 0xffffffff, 0xffffffff, 0) + p6(prefix)\n\
         def rio(prefix, len, preference):\n \
             return struct.pack('!BBBBI', 24, 3, len, preference << 3, 1800) + p6(prefix)\n\
         mac = bytes.fromhex('020000bad001')\n\
         src, dst = p6('{source}'), p6('ff02::1')\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind(('eth0', 0))\n\
         for n in range({count}):\n \
             m = struct.pack('!BBHBBHII', 134, 0, 0, 64, {preference} << 3, 1800, 0, 0)\n \
             m += b'\\1\\1' + mac + b''.join({options})\n \
             pseudo = src + dst + struct.pack('!II', len(m), 58) + m\n \
             c = sum(struct.unpack(f'!{{len(pseudo) // 2}}H', pseudo))\n \
             c = (c & 0xffff) + (c >> 16)\n \
             c = ~((c & 0xffff) + (c >> 16)) & 0xffff\n \
             m = m[:2] + struct.pack('!H', c) + m[4:]\n \
             ip = struct.pack('!IHBB', 6 << 28, len(m), 58, 255) + src + dst\n \
             s.send(bytes.fromhex('333300000001') + mac + b'\\x86\\xdd' + ip + m)\n \
             time.sleep({pause_ms} / 1000)\n"
    );
    let file = live.scratch.write("advertise.py", &script);
    from.run(&format!("python3 {}", file.display()));
}

/// Router Advertisements that the kernel behind a twin has got.
fn advertised(live: &Live, twin: &str) -> u64 {
    let text = live.net.router.run(&format!("cat /proc/net/dev_snmp6/{twin}"));
    let line = text.lines().find(|line| line.starts_with("Icmp6InType134"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Waits until the router knows all routes that the kernel has: it has one that comes after them, and then no more.
fn wait_for_routes(live: &Live) {
    let has = |live: &Live| live.ctl("show routes").contains("2001:db8:7777::/48");
    let router = &live.net.router;
    router.ip("-6 route add 2001:db8:7777::/48 via fd00:2::2 dev sl-right");
    assert!(wait_until(Duration::from_secs(10), || has(live)), "{}", live.ctl("show routes"));
    router.ip("-6 route del 2001:db8:7777::/48");
    assert!(wait_until(Duration::from_secs(10), || !has(live)), "{}", live.ctl("show routes"));
}

/// Whoever is on a link can send these. A router takes its routes and addresses from nobody.
#[test]
fn router_advertisements_change_nothing() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    // Every one of them gets to the kernel.
    let more = "[port.left.host]\nnd = \"off\"\n\
                [[route]]\nprefix = \"2001:db8::/48\"\nvia = \"fd00:2::2\"\n";
    let Some(live) = Live::start("ra", "af_packet", more) else { return };
    let net = &live.net;
    net.right.address("lo", "2001:db8::1/128");
    net.right.address("lo", "2001:db9::1/128");
    net.router.ip("-6 route add default via fd00:2::2 dev sl-right");
    for to in ["fd00:2::2", "2001:db8::1", "2001:db9::1"] {
        assert!(wait_until(Duration::from_secs(5), || ping(&net.left, to, 1) == 1), "{to}");
    }
    wait_for_routes(&live);
    let state = || {
        let addresses = net.router.ip("-6 -o address show dev sl-left scope global");
        let kernel = net.router.ip("-6 route show");
        (live.ctl("show routes"), kernel, addresses)
    };
    let before = state();

    // A default route, more specific routes for a static one, and another port's subnet.
    let greedy = "[pio('2001:db8::', 56, 0xc0), pio('2001:db8::', 64, 0x80), pio('fd00:2::', 64, 0xc0), \
                  rio('2001:db8::', 56, 1), rio('::', 0, 1)]";
    let many = "[pio(f'2001:db8:{n + 1:x}:{i:x}::', 64, 0xc0) for i in range(40)]";
    for (preference, times, options) in [(1, (20, 1), greedy), (0, (2500, 2), many)] {
        let got = advertised(&live, "sl-left");
        advertise(&live, &net.left, "fe80::bad", preference, times, options);
        let all = || advertised(&live, "sl-left") >= got + u64::from(times.0);
        assert!(wait_until(Duration::from_secs(10), all), "{:?}", live.drops());
        wait_for_routes(&live);
        assert_eq!(state(), before);
    }
    for to in ["fd00:2::2", "2001:db8::1", "2001:db9::1"] {
        let all_pass = || ping(&net.left, to, 10) == 10;
        assert!(wait_until(Duration::from_secs(10), all_pass), "{to}: {:?}", live.drops());
    }
}

/// A port that takes them: their default routes come after all others, in the order of preference, and so do RFC 4191's if
/// the port takes these, too.
#[test]
fn an_upstream_may_announce_itself_by_router_advertisements() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    // The first line belongs to the port `right`.
    let more = "accept_ra = true\naccept_ra_routes = true\n[[route]]\nprefix = \"2001:db8:5::/48\"\nvia = \"fd00:2::2\"\n";
    let Some(live) = Live::start("raup", "af_packet", more) else { return };
    let net = &live.net;
    net.right.address("lo", "2001:db9::1/128");
    let way = |to: &str| live.try_ctl(&format!("route get {to}")).1;
    let leads = |to: &str, next: &str| {
        let is_there = || way(to).contains(next);
        assert!(wait_until(Duration::from_secs(10), is_there), "{to} {next}: {}", way(to));
    };
    let options =
        "[pio('2001:db8:6::', 64, 0xc0), rio('2001:db8:5::', 48, 1), rio('2001:db8:7::', 48, 0)]";
    advertise(&live, &net.right, "fe80::a", 3, (3, 1), options);
    leads("2001:db9::1", "fe80::a%right");
    leads("2001:db8:7::1", "fe80::a%right");
    let table = live.ctl("show routes source ra");
    let default = table.lines().find(|line| line.contains(" ::/0 ")).unwrap_or_default();
    assert!(default.starts_with('*') && default.contains(" ra "), "{table}");
    // No address, no subnet; and a static route stays what it is.
    assert!(!net.router.ip("-6 -o address show dev sl-right").contains("2001:"));
    assert!(way("2001:db8:6::1").contains(" ::/0 "), "{}", way("2001:db8:6::1"));
    leads("2001:db8:5::1", "fd00:2::2");

    // Of two routers the one with the higher preference; of two sources the other one.
    advertise(&live, &net.right, "fe80::b", 1, (3, 1), "[]");
    leads("2001:db9::1", "fe80::b%right");
    net.router.ip("-6 route add default via fd00:2::2 dev sl-right metric 4096");
    leads("2001:db9::1", "fd00:2::2");
    assert!(wait_until(Duration::from_secs(5), || ping(&net.left, "2001:db9::1", 1) == 1));
    net.router.ip("-6 route del default via fd00:2::2 dev sl-right metric 4096");
    leads("2001:db9::1", "fe80::b%right");
    live.ctl("route add ::/0 fd00:2::2");
    leads("2001:db9::1", "fd00:2::2");
    live.ctl("route del ::/0");
    leads("2001:db9::1", "fe80::b%right");

    // The other port takes none.
    let got = advertised(&live, "sl-left");
    advertise(&live, &net.left, "fe80::bad", 1, (3, 1), "[rio('2001:db8:8::', 48, 1)]");
    assert!(wait_until(Duration::from_secs(10), || advertised(&live, "sl-left") >= got + 3));
    wait_for_routes(&live);
    leads("2001:db8:8::1", "fe80::b%right");
    assert!(!live.ctl("show routes").contains("fe80::bad"));
}

/// The kernel behind a twin is a router, whatever the defaults of the machine are.
#[test]
fn the_kernel_is_a_router_on_twins() {
    let Some(live) = Live::start("twinset", "af_packet", "accept_ra = true\n") else { return };
    let router = &live.net.router;
    let is = |family: &str, twin: &str, setting: &str, expected: &str| {
        let path = format!("/proc/sys/net/{family}/conf/{twin}/{setting}");
        assert_eq!(router.run(&format!("cat {path}")).trim(), expected, "{path}");
    };
    for (twin, accept_ra) in [("sl-left", "0"), ("sl-right", "2")] {
        is("ipv6", twin, "accept_ra", accept_ra);
        let off = ["accept_ra_pinfo", "accept_ra_mtu", "autoconf", "accept_redirects"];
        is("ipv6", twin, "accept_ra_rt_info_max_plen", "0");
        off.iter().for_each(|setting| is("ipv6", twin, setting, "0"));
        is("ipv6", twin, "forwarding", "1");
        is("ipv4", twin, "forwarding", "1");
        is("ipv4", twin, "accept_redirects", "0");
        is("ipv4", twin, "rp_filter", "0");
        is("ipv4", twin, "arp_ignore", "1");
        is("ipv4", twin, "arp_announce", "2");
    }
    // The kernel forgets what concerns IPv6 where the MTU is too small for it, and makes it anew with its defaults.
    let file = live.scratch.join("router.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    for (mtu, v6) in [("1000", ""), ("1400", ", \"fd00:1::1/64\"")] {
        let addresses = format!("addresses = [\"10.0.1.1/24\"{v6}]\nmtu = {mtu}");
        let text = text.replace("addresses = [\"10.0.1.1/24\", \"fd00:1::1/64\"]", &addresses);
        std::fs::write(&file, text).expect("the configuration");
        live.ctl("reload");
    }
    is("ipv6", "sl-left", "accept_ra", "0");
    is("ipv6", "sl-left", "forwarding", "1");
}

/// A bound on what the kernel hands over: those that are there stay, and the others are counted.
#[test]
fn routes_of_the_kernel_have_a_bound() {
    // Connected ones are among them: two subnets of either family, two link-local ones in one prefix.
    let more = "[router]\nkernel_routes_max = 50\n";
    let Some(live) = Live::start("bound", "af_packet", more) else { return };
    let router = &live.net.router;
    let of_kernel = || live.ctl("show routes source kernel").lines().skip(1).count();
    let held_back = || {
        let text = live.ctl("show runtime --json");
        let rest = text.split("\"kernel_routes_held_back\": ").nth(1).unwrap_or_default();
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse::<u64>().ok())
    };
    router.ip("route add 192.0.2.0/24 via 10.0.2.2");
    assert!(wait_until(Duration::from_secs(10), || live.ctl("show routes").contains("192.0.2.0")));
    let before = of_kernel();
    let script: String =
        (0..100).map(|n| format!("ip route add 198.18.{n}.0/24 via 10.0.2.2\n")).collect();
    router.shell(&script);
    let expected = Some((before + 100 - 50) as u64);
    assert!(wait_until(Duration::from_secs(10), || held_back() == expected), "{:?}", held_back());
    assert_eq!(of_kernel(), 50);
    assert!(live.ctl("show routes").contains("192.0.2.0/24"));
    let said = live.router.output();
    assert_eq!(said.matches("kernel_routes_max").count(), 1, "{said}");
    // When there is room again, the others follow.
    router.shell(&script.replace(" add ", " del ").lines().take(80).collect::<Vec<_>>().join("\n"));
    assert!(wait_until(Duration::from_secs(10), || held_back() == Some(0)), "{:?}", held_back());
    assert_eq!(of_kernel(), before + 20);
}

/// A flood of packets for the machine reaches Linux up to the rates of the port, one for each class.
#[test]
fn packets_for_the_machine_have_budgets() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let Some(live) = Live::start("budget", "af_packet", "") else { return };
    let (left, router) = (&live.net.left, &live.net.router);
    assert!(wait_until(Duration::from_secs(5), || ping(left, "10.0.2.2", 1) == 1));
    let arp = live.scratch.write(
        "arp.py",
        "import socket, struct, time\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))\n\
         mac, ip = bytes.fromhex('020000000102'), socket.inet_aton\n\
         f = b'\\xff' * 6 + mac + bytes.fromhex('08060001080006040001') + mac + ip('10.0.1.2')\n\
         f += bytes(6) + ip('10.0.1.1')\n\
         for i in range(100):\n \
             [s.send(f.ljust(60, b'\\0')) for _ in range(100)]\n \
             time.sleep(0.01)\n",
    );
    let flood = |what: &str| {
        match what {
        "host_arp_rate" => left.spawn(&format!("python3 {}", arp.display())),
        _ => left.spawn(&format!(
            "{} gen packets --interface eth0 --rate 40kpps --count 40000 --size 64 --src 10.0.1.2 --dst 10.0.1.1 \
             --dport 9 --dst-mac {}",
            live.bin.display(),
            testkit::netns::mac::ROUTER_LEFT
        )),
    }
    };
    let dropped =
        |reason: &str| live.drops().iter().find(|(name, _)| name == reason).map_or(0, |&(_, n)| n);
    let budget = |reason: &str, rate: u64, sent: u64| {
        // What was lost in the rings of a busy machine has a reason, too.
        let all = || router.received("sl-left").0 + live.drops().iter().map(|d| d.1).sum::<u64>();
        let (begin, passed, before) =
            (Instant::now(), router.received("sl-left").0, dropped(reason));
        let sent_all = all() + sent;
        let mut sender = flood(reason);
        // Other classes have their own: this is one of `other`, or a neighbour that is known.
        let answered = wait_until(Duration::from_secs(20), || ping(left, "fd00:1::1", 1) == 1);
        assert!(answered || reason == "host_other_rate", "{reason}: {:?}", live.drops());
        sender.wait(Duration::from_secs(60));
        assert!(wait_until(Duration::from_secs(20), || all() >= sent_all), "{:?}", live.drops());
        let most = rate / 10 + rate * (begin.elapsed().as_millis() as u64 + 50) / 1000 + 100;
        let (passed, dropped) = (router.received("sl-left").0 - passed, dropped(reason) - before);
        assert!(passed <= most, "{reason}: {passed} of {sent} passed, at most {most}");
        assert!(dropped > 0 || rate == 0, "{reason}: {:?}", live.drops());
        passed
    };
    budget("host_arp_rate", 1_000, 10_000);
    budget("host_other_rate", 10_000, 40_000);

    // A reload applies other rates, while packets flow.
    let file = live.scratch.join("router.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, text + "[port.left.host]\narp = 10\nother = \"off\"\n")
        .expect("the configuration");
    let said = live.ctl("reload");
    assert!(said.contains("host.arp"), "{said}");
    assert!(budget("host_arp_rate", 10, 10_000) < 500);
    let before = dropped("host_other_rate");
    flood("host_other_rate").wait(Duration::from_secs(60));
    let answers = || ping(left, "fd00:1::1", 1) == 1;
    assert!(wait_until(Duration::from_secs(20), answers), "{:?}", live.drops());
    assert_eq!(dropped("host_other_rate"), before);
}
