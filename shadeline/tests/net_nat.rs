//! A router that translates addresses, live, and Linux's own translation of the same packets.

mod common;

use common::{Live, SOON, config, ping};
use testkit::netns::{Netns, Offloads, Topology};
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

#[test]
fn an_ipv6_host_reaches_ipv4_hosts() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let rules = "[[nat]]\nkind = \"nat64\"\nto = \"192.0.2.0/30\"\n";
    let Some(live) = Live::with_mtu("natsix", "af_packet", rules, 1500, 1400) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    // The client has IPv6 alone, the server IPv4.
    left.ip("-4 address flush dev eth0");
    right.ip("-6 address flush dev eth0");
    right.sysctl("net.ipv4.icmp_ratelimit", "0");
    const SERVER64: &str = "64:ff9b::a00:202";
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
