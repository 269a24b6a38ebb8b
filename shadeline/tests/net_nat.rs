//! A router that translates addresses, live, and Linux's own translation of the same packets.

mod common;

use common::{Live, SOON, config, ping};
use testkit::netns::{Netns, Offloads, Topology};
use testkit::process::Stop;
use testkit::{Scratch, wait_until};

/// The home router of these tests: hosts on the left share the address on the right, and one has a server.
const RULES: &str = "[[nat]]\nkind = \"destination\"\noutside = [\"right\"]\nprotocol = \"tcp\"\nport = 8080\n\
                     to = \"10.0.1.2:80\"\n[[nat]]\nkind = \"masquerade\"\noutside = [\"right\"]\n";

/// Says who asks: a line with address and port, over TCP or UDP, to the client and on standard output.
const SERVER: &str = "import socket, sys\n\
    kind, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == 'tcp' else socket.SOCK_DGRAM)\n\
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('0.0.0.0', port))\n\
    if kind == 'tcp': s.listen()\n\
    print('ready', flush=True)\n\
    for _ in range(count):\n\
    \x20 if kind == 'tcp':\n\
    \x20   c, peer = s.accept(); data = c.recv(9); c.sendall(('%s %d' % peer).encode()); c.close()\n\
    \x20 else:\n\
    \x20   data, peer = s.recvfrom(65536); s.sendto(('%s %d %d' % (*peer, len(data))).encode(), peer)\n\
    \x20 print(kind, *peer, flush=True)\n";

/// Asks a server; prints its answer.
const CLIENT: &str = "import socket, sys\n\
    kind, host, port, own, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])\n\
    family = socket.AF_INET6 if ':' in host else socket.AF_INET\n\
    s = socket.socket(family, socket.SOCK_STREAM if kind == 'tcp' else socket.SOCK_DGRAM)\n\
    s.settimeout(5)\n\
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
    if own: s.bind(('', own))\n\
    s.connect((host, port)); s.send(b'x' * size); print(s.recv(99).decode())\n";

/// The same for both routers: what servers saw of clients behind the translator.
fn conversation(scratch: &Scratch, left: &Netns, right: &Netns) -> Vec<String> {
    let server = scratch.write("server.py", SERVER).display().to_string();
    let client = scratch.write("client.py", CLIENT).display().to_string();
    let mut all = Vec::new();
    let mut ask =
        |at: &Netns, by: &Netns, kind: &str, port: u16, to: &str, own: u16, size: usize| {
            let local = to.rsplit(':').next().expect("a port");
            let mut serving = at.spawn(&format!("python3 {server} {kind} {port} 1"));
            serving.wait_for("ready", SOON);
            let host = to.split(':').next().expect("an address");
            let said = by.run(&format!("python3 {client} {kind} {host} {local} {own} {size}"));
            serving.wait(SOON);
            all.push(format!("{kind} {to} from {own}: {}", said.trim()));
        };
    ask(right, left, "tcp", 7001, "10.0.2.2:7001", 40_001, 5);
    ask(right, left, "udp", 7002, "10.0.2.2:7002", 40_002, 5);
    ask(right, left, "udp", 7002, "10.0.2.2:7002", 40_003, 0);
    // In fragments, there and back.
    ask(right, left, "udp", 7003, "10.0.2.2:7003", 40_004, 4000);
    // The port forward, whose server sees the client's own address.
    ask(left, right, "tcp", 80, "10.0.2.1:8080", 40_005, 5);
    all
}

/// A trace says what becomes of a packet, with a firewall between both stages and without one.
#[test]
fn packets_are_traced_through_both_stages() {
    for (purpose, firewall) in
        [("nattrace", ""), ("nattracefw", "[firewall]\ndefault = \"accept\"\n")]
    {
        let rules = format!("{RULES}{firewall}");
        let Some(mut live) = Live::start(purpose, "af_packet", &rules) else { return };
        hide(&live.net);
        assert!(wait_until(SOON, || ping(&live.net.left, "10.0.2.2", 1) == 1));
        let (bin, scratch) = (&live.bin, &live.scratch);
        let (ok, said) = std::thread::scope(|scope| {
            let traced = scope.spawn(|| common::ctl(bin, scratch, "trace -c 4 icmp"));
            assert!(wait_until(SOON, || {
                ping(&live.net.left, "10.0.2.2", 1);
                traced.is_finished()
            }));
            traced.join().expect("a trace")
        });
        assert!(ok && said.contains("to 10.0.2.2"), "{said}");
        assert!(said.contains("to 10.0.1.2") && said.contains("from 10.0.2.1"), "{said}");
        let (_, log) = live.router.stop(Stop::Terminate, SOON);
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// The right host knows no way to the left one.
fn hide(net: &Topology) {
    net.right.ip("route del default");
}

#[test]
fn linux_translates_the_same_packets_in_the_same_way() {
    if testkit::require_tool("python3").is_none() || testkit::require_tool("nft").is_none() {
        return;
    }
    let Some(live) = Live::start("nat", "af_packet", RULES) else { return };
    hide(&live.net);
    assert!(wait_until(SOON, || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let own = conversation(&live.scratch, &live.net.left, &live.net.right);

    let net = Topology::new("natlinux");
    net.kernel_routes();
    hide(&net);
    net.router.shell(
        "nft -f - <<'END'\ntable ip nat {\n chain pre { type nat hook prerouting priority -100; \
         iifname right tcp dport 8080 dnat to 10.0.1.2:80; }\n chain post { type nat hook postrouting \
         priority 100; oifname right masquerade; }\n}\nEND",
    );
    assert!(wait_until(SOON, || ping(&net.left, "10.0.2.2", 1) == 1));
    let linux = conversation(&live.scratch, &net.left, &net.right);
    assert_eq!(own, linux);
    assert!(own[0].ends_with("10.0.2.1 40001"), "{own:?}");
    assert!(own[4].ends_with("10.0.2.2 40005"), "{own:?}");
}

#[test]
fn hosts_behind_a_masquerade_use_the_internet() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let Some(live) = Live::with_mtu("natuse", "af_packet", RULES, 1500, 1400) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    hide(&live.net);
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    let shown = live.ctl("show nat --address 10.0.1.2");
    assert!(shown.contains("icmp") && shown.contains("10.0.2.1"), "{shown}");

    // Path MTU discovery: the router's own error, about the packet as it was sent.
    left.ip("route flush cache");
    let said = left.try_run("ping -c 1 -W 2 -M do -s 1450 10.0.2.2");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("mtu = 1400") || said.contains("mtu=1400"), "{said}");
    if testkit::require_tool("traceroute").is_some() {
        for how in ["", "-I"] {
            let said = left.run(&format!("traceroute -n -q 1 -w 2 {how} 10.0.2.2"));
            assert!(said.contains("10.0.1.1") && said.contains(" 2  10.0.2.2"), "{said}");
        }
    }
    // An error from outside about a translated packet: nobody listens there.
    right.sysctl("net.ipv4.icmp_ratelimit", "0");
    let udp = live.scratch.write("refused.py", CLIENT).display().to_string();
    let refused = left.try_run(&format!("python3 {udp} udp 10.0.2.2 9 40100 5"));
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("ConnectionRefusedError"), "{refused}");
    if testkit::require_tool("iperf3").is_some() {
        let mut server = right.spawn("iperf3 -s -1 --forceflush");
        server.wait_for("listening", SOON);
        let said = left.run("iperf3 -c 10.0.2.2 -t 2");
        assert!(said.contains("receiver"), "{said}");
        server.wait(SOON);
    }
    // Hairpin: the host reaches its own server by the outside address.
    let server = live.scratch.write("server.py", SERVER).display().to_string();
    let mut serving = left.spawn(&format!("python3 {server} tcp 80 1"));
    serving.wait_for("ready", SOON);
    let said = left.run(&format!("python3 {udp} tcp 10.0.2.1 8080 40200 5"));
    serving.wait(SOON);
    assert!(said.contains("10.0.2.1 "), "{said}");
}

#[test]
fn sessions_survive_a_reload_that_adds_a_rule() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let text = |scratch: &Scratch| config(scratch, "af_packet", RULES);
    let Some(live) = Live::of("natreload", text, (1500, 1500), Offloads::Off) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    hide(&live.net);
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    let server = live.scratch.write(
        "twice.py",
        "import socket\n\
         s = socket.create_server(('10.0.2.2', 7007)); print('ready', flush=True); c, _ = s.accept()\n\
         for _ in range(2): c.sendall(c.recv(9))\n",
    );
    let client = live.scratch.write(
        "slowly.py",
        "import socket, time\n\
         s = socket.create_connection(('10.0.2.2', 7007), 5); s.settimeout(5)\n\
         s.sendall(b'a'); print(s.recv(9), flush=True); time.sleep(4); s.sendall(b'b'); print(s.recv(9), flush=True)\n",
    );
    let mut server = right.spawn(&format!("python3 {}", server.display()));
    server.wait_for("ready", SOON);
    let mut client = left.spawn(&format!("python3 {}", client.display()));
    client.wait_for("b'a'", SOON);
    let more = format!(
        "[[nat]]\nkind = \"destination\"\noutside = [\"right\"]\nprotocol = \"udp\"\nport = 53\nto = \"10.0.1.2\"\n{RULES}"
    );
    live.scratch.write("router.toml", &config(&live.scratch, "af_packet", &more));
    let said = live.ctl("reload");
    assert!(said.contains("nat:"), "{said}");
    client.wait_for("b'b'", SOON);
    assert!(live.ctl("show nat --port 7007").contains("10.0.2.1"));
    assert!(client.wait(SOON).0.success());
    server.wait(SOON);

    // Without the rule, its sessions end.
    let more = RULES.split("[[nat]]\nkind = \"masquerade\"").next().expect("the first rule");
    live.scratch.write("router.toml", &config(&live.scratch, "af_packet", more));
    let said = live.ctl("reload");
    assert!(said.contains("sessions of address translation ended"), "{said}");
    assert_eq!(ping(left, "10.0.2.2", 1), 0);
}

#[test]
fn four_workers_lose_and_mix_nothing() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let Some(live) = Live::with_workers("natmany", 4, "af_packet", RULES) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    hide(&live.net);
    // Hosts of all workers.
    for host in 10..26 {
        left.address("eth0", &format!("10.0.1.{host}/24"));
    }
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    let server = live.scratch.write(
        "echo.py",
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.0.2.2', 7100)); print('ready', flush=True)\n\
         while True: data, peer = s.recvfrom(2000); s.sendto(data, peer)\n",
    );
    let mut server = right.spawn(&format!("python3 {}", server.display()));
    server.wait_for("ready", SOON);
    let client = live.scratch.write(
        "many.py",
        "import socket, sys\n\
         socks = []\n\
         for host in range(10, 26):\n\
         \x20 for port in range(20):\n\
         \x20   s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n\
         \x20   s.bind(('10.0.1.%d' % host, 41000 + port)); s.connect(('10.0.2.2', 7100)); socks.append(s)\n\
         wrong = 0\n\
         for turn in range(10):\n\
         \x20 for number, s in enumerate(socks):\n\
         \x20   text = b'%d %d' % (number, turn); s.send(text)\n\
         \x20   wrong += s.recv(99) != text\n\
         print('wrong', wrong, 'of', turn * len(socks) + len(socks))\n",
    );
    let said = left.run(&format!("python3 {}", client.display()));
    assert!(said.contains("wrong 0 of 3200"), "{said}");
    let shown = live.ctl("show nat --port 7100");
    assert!(shown.lines().count() > 320, "{shown}");
    server.stop(testkit::process::Stop::Kill, SOON);
}

const NAT64: &str =
    "[[nat]]\nkind = \"nat64\"\nprefix = \"2001:db8:64::/96\"\nto = \"192.0.2.0/30\"\n";

#[test]
fn an_ipv6_host_reaches_ipv4_hosts() {
    reaches_ipv4_hosts("natsix", NAT64);
}

/// Only the inside opens connections; answers and errors are let through because they belong to one.
#[test]
fn an_ipv6_host_reaches_ipv4_hosts_through_a_firewall_on_states() {
    let firewall = "[flow]\n[firewall]\ndefault = \"drop\"\n\
         [[rule]]\nstate = \"established,related\"\naction = \"accept\"\n\
         [[rule]]\nin = \"left\"\nstate = \"new\"\naction = \"accept\"\n";
    reaches_ipv4_hosts("natguard", &format!("{firewall}{NAT64}"));
}

fn reaches_ipv4_hosts(name: &str, rules: &str) {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let Some(live) = Live::with_mtu(name, "af_packet", rules, 1500, 1400) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    // The client has IPv6 alone, the server IPv4.
    left.ip("-4 address flush dev eth0");
    right.ip("-6 address flush dev eth0");
    right.sysctl("net.ipv4.icmp_ratelimit", "0");
    const SERVER64: &str = "2001:db8:64::a00:202";
    assert!(wait_until(SOON, || ping(left, SERVER64, 1) == 1));
    let shown = live.ctl("show nat --address 10.0.2.2");
    assert!(shown.contains("icmpv6") && shown.contains(SERVER64), "{shown}");

    let server = live.scratch.write("server.py", SERVER).display().to_string();
    let client = live.scratch.write("client.py", CLIENT).display().to_string();
    // UDP in fragments both ways, too.
    for (kind, size) in [("tcp", 5), ("udp", 5), ("udp", 3000)] {
        let mut serving = right.spawn(&format!("python3 {server} {kind} 7200 1"));
        serving.wait_for("ready", SOON);
        let said = left.run(&format!("python3 {client} {kind} {SERVER64} 7200 0 {size}"));
        serving.wait(SOON);
        assert!(said.starts_with("192.0.2."), "{kind} {size}: {said}");
        assert!(kind == "tcp" || said.trim().ends_with(&format!(" {size}")), "{said}");
    }
    // An error from the IPv4 side, and the router's own, in the length of the other family.
    let refused = left.try_run(&format!("python3 {client} udp {SERVER64} 9 0 5"));
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("ConnectionRefusedError"), "{refused}");
    let said = left.try_run(&format!("ping -n -c 1 -W 2 -M do -s 1420 {SERVER64}"));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("mtu=1420") || said.contains("mtu = 1420"), "{said}");
    if testkit::require_tool("traceroute").is_some() {
        let said = left.run(&format!("traceroute -6 -n -q 1 -w 2 {SERVER64}"));
        assert!(said.contains("fd00:1::1") && said.contains(&format!(" 2  {SERVER64}")), "{said}");
    }
    if testkit::require_tool("iperf3").is_some() {
        let mut server = right.spawn("iperf3 -s -1 --forceflush");
        server.wait_for("listening", SOON);
        let said = left.run(&format!("iperf3 -6 -c {SERVER64} -t 2"));
        assert!(said.contains("receiver"), "{said}");
        server.wait(SOON);
    }
}

/// A host with IPv6 learns its outside end from a server, and another one reaches it there, by datagrams and by TCP: who asked, as
/// it saw that one, and the answer.
const HAIRPIN: &str = "import socket, sys\n\
    own, other, server, prefix = sys.argv[1:5]\n\
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):\n\
    \x20 def end(address, port):\n\
    \x20   s = socket.socket(socket.AF_INET6, kind); s.settimeout(5)\n\
    \x20   s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind((address, port)); return s\n\
    \x20 at, client = end(other, 7300), end(own, 7301)\n\
    \x20 is_tcp = kind == socket.SOCK_STREAM\n\
    \x20 if is_tcp:\n\
    \x20   at.listen(); asking = end(other, 7300); asking.connect((server, 7200)); asking.send(b'x'); said = asking.recv(99)\n\
    \x20 else: at.sendto(b'x', (server, 7200)); said = at.recv(99)\n\
    \x20 host, port = said.decode().split()[:2]\n\
    \x20 client.connect((prefix + host, int(port))); client.send(b'hi')\n\
    \x20 if is_tcp: taken, peer = at.accept(); taken.send(taken.recv(9).upper())\n\
    \x20 else: data, peer = at.recvfrom(9); at.sendto(data.upper(), peer)\n\
    \x20 print('tcp' if is_tcp else 'udp', host, port, peer[0], peer[1], client.recv(9).decode())\n";

#[test]
fn ipv6_hosts_reach_each_other_by_their_outside_ends() {
    hairpins("nathair", NAT64);
}

/// The firewall sees both hosts, and flows of the inside.
#[test]
fn ipv6_hosts_reach_each_other_through_a_firewall_on_states() {
    let firewall = "[flow]\n[firewall]\ndefault = \"drop\"\n\
         [[rule]]\nstate = \"established,related\"\naction = \"accept\"\n\
         [[rule]]\nin = \"left\"\nstate = \"new\"\naction = \"accept\"\n";
    hairpins("natbend", &format!("{firewall}{NAT64}"));
}

fn hairpins(name: &str, rules: &str) {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let Some(live) = Live::start(name, "af_packet", rules) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    left.ip("-4 address flush dev eth0");
    right.ip("-6 address flush dev eth0");
    left.ip("-6 address add fd00:1::3/64 dev eth0 nodad");
    assert!(wait_until(SOON, || ping(left, "2001:db8:64::a00:202", 1) == 1));
    let server = live.scratch.write("server.py", SERVER).display().to_string();
    let hairpin = live.scratch.write("hairpin.py", HAIRPIN).display().to_string();
    let mut serving = ["udp", "tcp"].map(|kind| {
        let mut serving = right.spawn(&format!("python3 {server} {kind} 7200 1"));
        serving.wait_for("ready", SOON);
        serving
    });
    let said = left
        .run(&format!("python3 {hairpin} fd00:1::2 fd00:1::3 2001:db8:64::a00:202 2001:db8:64::"));
    for own in &mut serving {
        own.wait(SOON);
    }
    // Each host has one of the outside addresses; the client's is seen in the prefix, with its own port.
    let lines: Vec<Vec<&str>> = said.lines().map(|own| own.split(' ').collect()).collect();
    let kinds: Vec<&str> = lines.iter().map(|own| own[0]).collect();
    assert_eq!(kinds, ["udp", "tcp"], "{said}");
    for own in &lines {
        assert!(own[1].starts_with("192.0.2.") && own[2] == "7300", "{said}");
        assert!(own[3].starts_with("2001:db8:64::c000:20"), "{said}");
        assert_eq!(&own[4..], ["7301", "HI"], "{said}");
    }
    // Nothing of it went to the other side.
    let shown = live.ctl("show nat --address fd00:1::3");
    assert!(shown.contains("7301") && shown.contains("2001:db8:64::c000:20"), "{shown}");
}

/// Whether a host has the MAC address of the router for an address, without asking for it.
fn knows(host: &Netns, address: &str, mac: &str) -> bool {
    host.ip("neigh show dev eth0").lines().any(|line| {
        line.split_whitespace().next() == Some(address) && line.to_lowercase().contains(mac)
    })
}

#[test]
fn neighbours_find_outside_addresses_on_their_link() {
    let rules = "[[nat]]\nkind = \"source\"\noutside = [\"right\"]\nto = \"10.0.2.64/30\"\n\
                 [[nat]]\nkind = \"nat64\"\nprefix = \"fd00:1:0:0:64::/96\"\nto = \"10.0.2.72\"\n";
    let Some(live) = Live::start("natarp", "af_packet", rules) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    hide(&live.net);
    let mac = testkit::netns::mac::ROUTER_RIGHT;
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    let found = (64..68).filter(|host| knows(right, &format!("10.0.2.{host}"), mac)).count();
    assert_eq!(found, 1, "{}", right.ip("neigh"));
    // IPv6: the prefix is part of that of the link.
    left.ip("-6 route del default");
    assert!(wait_until(SOON, || ping(left, "fd00:1::64:0:a00:202", 1) == 1));
    let left_mac = testkit::netns::mac::ROUTER_LEFT;
    assert!(knows(left, "fd00:1::64:0:a00:202", left_mac), "{}", left.ip("-6 neigh"));

    // New addresses are announced: nobody has asked for this one.
    right.sysctl("net.ipv4.conf.eth0.arp_accept", "1");
    assert!(!knows(right, "10.0.2.77", mac));
    let more = format!(
        "[[nat]]\nkind = \"static\"\noutside = [\"right\"]\nsource = [\"10.0.1.2/32\"]\nto = \"10.0.2.77/32\"\n{rules}"
    );
    live.scratch.write("router.toml", &config(&live.scratch, "af_packet", &more));
    live.ctl("reload");
    assert!(wait_until(SOON, || knows(right, "10.0.2.77", mac)), "{}", right.ip("neigh"));
    assert_eq!(ping(right, "10.0.2.77", 1), 1);
    // What no rule has is nobody's.
    assert_eq!(ping(right, "10.0.2.78", 1), 0);
}

#[test]
fn without_proxy_arp_outside_addresses_need_a_route() {
    let rules = "[translation]\nproxy_arp = false\n[[nat]]\nkind = \"static\"\noutside = [\"right\"]\n\
                 source = [\"10.0.1.2/32\"]\nto = \"10.0.2.77/32\"\n";
    let Some(live) = Live::start("natnoarp", "af_packet", rules) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    assert!(wait_until(SOON, || ping(left, "10.0.2.1", 1) == 1));
    assert_eq!(ping(right, "10.0.2.77", 1), 0);
    right.ip("route add 10.0.2.77/32 via 10.0.2.1");
    assert!(wait_until(SOON, || ping(right, "10.0.2.77", 1) == 1));
}

/// Sends a datagram from each of so many ports of the left host; prints how many came back.
const MANY_PORTS: &str = "import socket, sys\n\
    back = 0\n\
    for port in range(int(sys.argv[1])):\n\
    \x20 s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3)\n\
    \x20 s.bind(('10.0.1.2', 41000 + port)); s.sendto(b'x', ('10.0.2.2', 7300))\n\
    \x20 try: back += s.recv(9) == b'x'\n\
    \x20 except TimeoutError: pass\n\
    print('back', back)\n";

const ECHO: &str = "import socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.0.2.2', 7300)); print('ready', flush=True)\n\
    while True: data, peer = s.recvfrom(2000); s.sendto(data, peer)\n";

#[test]
fn ports_run_out_and_that_is_counted_and_said_once() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let rules = "[[nat]]\nkind = \"masquerade\"\noutside = [\"right\"]\nports = \"5000-5007\"\n";
    let Some(mut live) = Live::start("natfull", "af_packet", rules) else { return };
    hide(&live.net);
    assert!(wait_until(SOON, || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let echo = live.scratch.write("echo.py", ECHO).display().to_string();
    let many = live.scratch.write("many.py", MANY_PORTS).display().to_string();
    let mut serving = live.net.right.spawn(&format!("python3 {echo}"));
    serving.wait_for("ready", SOON);
    let said = live.net.left.run(&format!("python3 {many} 14"));
    assert!(said.contains("back 8"), "{said}");
    let drops = live.drops();
    let dropped = drops.iter().find(|own| own.0 == "nat_ports_exhausted").map(|own| own.1);
    assert_eq!(dropped, Some(6), "{drops:?}");
    let shown = live.ctl("show nat --port 7300");
    let ports = (5000..5008).filter(|port| shown.contains(&format!("10.0.2.1:{port}"))).count();
    assert_eq!(ports, 8, "{shown}");
    serving.stop(testkit::process::Stop::Kill, SOON);
    let output = live.stop();
    let lines = output.lines().filter(|line| line.contains("no free port")).count();
    assert_eq!(lines, 1, "{output}");
}

#[test]
fn who_had_a_port_is_computed() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let rules = "[[nat]]\nkind = \"deterministic\"\noutside = [\"right\"]\nsource = [\"10.0.1.0/24\"]\n\
                 to = \"10.0.2.64/30\"\n";
    let Some(live) = Live::start("natdet", "af_packet", rules) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    hide(&live.net);
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    left.address("eth0", "10.0.1.67/24");
    let server = live.scratch.write("server.py", SERVER).display().to_string();
    let client = "import socket, sys\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.bind((sys.argv[1], 0))\n\
        s.sendto(b'x', ('10.0.2.2', 7400)); print(s.recv(99).decode())\n";
    let client = live.scratch.write("client.py", client).display().to_string();
    // Of 256 subscribers, 64 share an address: 1,008 ports each.
    for (host, address, ports) in
        [("10.0.1.2", "10.0.2.66", 1024..2032), ("10.0.1.67", "10.0.2.67", 17_152..18_160)]
    {
        let mut serving = right.spawn(&format!("python3 {server} udp 7400 1"));
        serving.wait_for("ready", SOON);
        let said = left.run(&format!("python3 {client} {host}"));
        serving.wait(SOON);
        let mut words = said.split_whitespace();
        assert_eq!(words.next(), Some(address), "{said}");
        let port: u16 = words.next().and_then(|port| port.parse().ok()).expect("a port");
        assert!(ports.contains(&port), "{said}");
        let who = live.ctl(&format!("show nat-subscribers {address} --port {port}"));
        let range = format!("{}-{}", ports.start, ports.end - 1);
        assert!(who.contains(&format!("{host} ")) && who.contains(&range), "{who}");
        assert_eq!(who.lines().filter(|line| line.contains("10.0.1.")).count(), 1, "{who}");
        let block = live.ctl(&format!("show nat-subscribers {host}"));
        assert!(block.contains(address) && block.contains(&range), "{block}");
    }
    let all = live.ctl("show nat-subscribers 10.0.2.66");
    assert_eq!(all.lines().filter(|line| line.contains("10.0.1.")).count(), 64, "{all}");
    assert!(live.ctl("show nat-subscribers 10.9.9.9").contains("no subscriber"));
}

/// Sends one datagram from port 40,500 to two servers, then says from where others come.
const OPEN: &str = "import socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.0.1.2', 40500))\n\
    for port in (7500, 7501): s.sendto(b'x', ('10.0.2.2', port))\n\
    print('open', flush=True); s.settimeout(3)\n\
    try: print('from', *s.recvfrom(99)[1], flush=True)\n\
    except TimeoutError: print('nothing', flush=True)\n";

/// Waits for datagrams at two ports, prints their senders, and answers from a third one.
const STRANGER: &str = "import socket\n\
    socks = []\n\
    for port in (7500, 7501, 7502):\n\
    \x20 s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.0.2.2', port)); socks.append(s)\n\
    print('ready', flush=True)\n\
    peers = [s.recvfrom(99)[1] for s in socks[:2]]\n\
    print('same' if peers[0] == peers[1] else 'other', *peers[0], flush=True)\n\
    socks[2].sendto(b'hello', peers[0])\n";

#[test]
fn strangers_reach_a_host_only_where_everybody_may() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    for (filter, expected) in [("remote", "nothing"), ("anybody", "from 10.0.2.2 7502")] {
        let rules = format!("[translation]\nfilter = \"{filter}\"\n{RULES}");
        let Some(live) = Live::start("natopen", "af_packet", &rules) else { return };
        let (left, right) = (&live.net.left, &live.net.right);
        hide(&live.net);
        assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
        let stranger = live.scratch.write("stranger.py", STRANGER).display().to_string();
        let open = live.scratch.write("open.py", OPEN).display().to_string();
        let mut serving = right.spawn(&format!("python3 {stranger}"));
        serving.wait_for("ready", SOON);
        let mut host = left.spawn(&format!("python3 {open}"));
        host.wait_for("open", SOON);
        // One outside port for both remote ends.
        serving.wait_for("same 10.0.2.1 40500", SOON);
        host.wait_for(expected, SOON);
        assert!(host.wait(SOON).0.success());
        serving.wait(SOON);
    }
}

/// Datagrams to whoever asks: one without DF, and one with it, which does not fit the other side.
const LONG: &str = "import socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.0.2.2', 7600)); print('ready', flush=True)\n\
    data, peer = s.recvfrom(99); s.connect(peer)\n\
    s.setsockopt(socket.IPPROTO_IP, 10, 0); s.send(b'a' * 1300); s.send(b'b' * 4000)\n\
    s.recv(99)\n\
    s.setsockopt(socket.IPPROTO_IP, 10, 2); s.send(b'c' * 1400)\n\
    import time\n\
    for _ in range(50):\n\
    \x20 mtu = s.getsockopt(socket.IPPROTO_IP, 14)\n\
    \x20 if mtu < 1500: break\n\
    \x20 time.sleep(0.1)\n\
    print('mtu', mtu, flush=True)\n\
    for _ in range(2):\n\
    \x20 try: s.send(b'd' * (mtu - 28)); break\n\
    \x20 except OSError: pass # what became of the one before\n";

#[test]
fn long_packets_reach_ipv6_hosts_in_fragments_or_their_senders_hear_of_it() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let rules = "[[nat]]\nkind = \"nat64\"\nprefix = \"2001:db8:64::/96\"\nto = \"10.0.2.72\"\n";
    let Some(live) = Live::with_mtu("natlong", "af_packet", rules, 1400, 1500) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    left.ip("-4 address flush dev eth0");
    const SERVER64: &str = "2001:db8:64::a00:202";
    assert!(wait_until(SOON, || ping(left, SERVER64, 1) == 1));
    let long = live.scratch.write("long.py", LONG).display().to_string();
    let client = "import socket\n\
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.settimeout(8)\n\
        s.connect(('2001:db8:64::a00:202', 7600)); s.send(b'x')\n\
        for _ in range(2): data = s.recv(9000); print(data[:1], len(data), flush=True)\n\
        s.send(b'y'); data = s.recv(9000); print(data[:1], len(data), flush=True)\n";
    let client = live.scratch.write("client.py", client).display().to_string();
    let reassembled = || {
        let text = left.run("cat /proc/net/snmp6");
        let line = text.lines().find(|line| line.starts_with("Ip6ReasmOKs")).expect("the counter");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number")
    };
    let before = reassembled();
    let mut serving = right.spawn(&format!("python3 {long}"));
    serving.wait_for("ready", SOON);
    let said = left.run(&format!("python3 {client}"));
    // The MTU of the left link, less the 20 bytes that IPv6 needs more.
    serving.wait_for("mtu 1380", SOON);
    serving.wait(SOON);
    assert_eq!(said.lines().collect::<Vec<_>>(), ["b'a' 1300", "b'b' 4000", "b'd' 1352"], "{said}");
    assert_eq!(reassembled() - before, 2, "those that may be fragmented");
}

#[test]
fn rules_of_ctl_translate_and_are_saved() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let rules = "# All hosts\n[[nat]]\nkind = \"masquerade\"\noutside = [\"right\"]\n";
    let Some(live) = Live::start("natctl", "af_packet", rules) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    hide(&live.net);
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    live.ctl("nat add kind destination outside right protocol udp port 5353 to 10.0.1.2:53");
    let server = live.scratch.write("server.py", SERVER).display().to_string();
    let client = live.scratch.write("client.py", CLIENT).display().to_string();
    let ask = || {
        let mut serving = left.spawn(&format!("python3 {server} udp 53 1"));
        serving.wait_for("ready", SOON);
        let said = right.run(&format!("python3 {client} udp 10.0.2.1 5353 40700 5"));
        serving.wait(SOON);
        assert!(said.starts_with("10.0.2.2 40700 5"), "{said}");
    };
    ask();
    let shown = live.ctl("nat show");
    assert!(
        shown.contains("destination outside right protocol udp port 5353 to 10.0.1.2:53"),
        "{shown}"
    );
    // Mistakes are those of the file.
    for (words, expected) in [
        (
            "add kind destination outside right protocol udp port 5353 to 10.0.1.9",
            "an earlier rule forwards",
        ),
        ("add kind masquerade outside nowhere", "nowhere"),
        ("add kind static to 192.0.2.1", "source"),
        ("del 3", "there is no rule 3"),
    ] {
        let (is_done, said) = live.try_ctl(&format!("nat {words}"));
        assert!(!is_done && said.contains(expected), "{words}: {said}");
    }
    let said = live.ctl("diff");
    assert!(said.contains("+kind = \"destination\"") && said.contains("+port = 5353"), "{said}");
    live.ctl("save");
    let file = std::fs::read_to_string(live.scratch.join("router.toml")).expect("the file");
    assert!(file.contains("# All hosts") && file.contains("10.0.1.2:53"), "{file}");
    assert!(!live.ctl("diff").contains('+'), "{}", live.ctl("diff"));
    // The session has stayed.
    assert!(live.ctl("show nat --port 5353").contains("40700"));
    let said = live.ctl("nat del 2");
    assert!(said.contains("1 session of address translation ended"), "{said}");
    assert_eq!(live.ctl("nat show").matches("outside right").count(), 1);
    // A rule in front, and the file's own again.
    live.ctl("nat add kind source outside right source 10.0.1.0/24 to 10.0.2.90 before 1");
    assert!(wait_until(SOON, || {
        ping(left, "10.0.2.2", 1) == 1 && live.ctl("show nat").contains("10.0.2.90")
    }));
    let said = live.ctl("reload");
    assert!(said.contains("removed 1 rule of `ctl nat`"), "{said}");
    ask();
}
