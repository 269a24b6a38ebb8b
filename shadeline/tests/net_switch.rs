//! The switch among real hosts: who is learned, what VLANs keep apart, what comes and goes.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{BACKENDS, SOON, is_change, ping};
use testkit::netns::{Netns, veth};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

/// Hosts a, b and c in one subnet, each with one link to the switch, and the program on the switch.
struct Live {
    hosts: [Netns; 3],
    switch: Netns,
    program: Process,
    scratch: Scratch,
    bin: PathBuf,
}

const NAMES: [&str; 3] = ["p1", "p2", "p3"];

fn mac(host: usize) -> String {
    format!("02:00:00:00:0a:{host:02x}")
}

fn config(scratch: &Scratch, backend: &str, ports: [&str; 3], more: &str) -> String {
    let socket = scratch.join("ctl.sock");
    let mut text = format!("mode = \"switch\"\n[system]\nworkers = 2\nsocket = {socket:?}\n");
    for (name, keys) in NAMES.iter().zip(ports) {
        text += &format!("[port.{name}]\nbackend = \"{backend}\"\n{keys}\n");
    }
    text + more
}

impl Live {
    /// `None`, and the test is skipped, where namespaces or the program are missing.
    fn start(purpose: &str, backend: &str, ports: [&str; 3], more: &str) -> Option<Live> {
        if !testkit::require_namespaces() {
            return None;
        }
        let bin = testkit::shadeline_bin()?;
        let switch = Netns::new(purpose);
        let hosts = [0, 1, 2].map(|i| {
            let host = Netns::new(purpose);
            let own = format!("02:00:00:00:0b:{i:02x}");
            veth((&host, "eth0", &mac(i)), (&switch, NAMES[i], &own), 1500);
            host.address("eth0", &format!("10.0.0.{}/24", i + 1));
            host
        });
        let scratch = Scratch::new();
        let path = scratch.write("switch.toml", &config(&scratch, backend, ports, more));
        let mut program = switch.spawn(&format!("{} run {}", bin.display(), path.display()));
        program.wait_for("running: ", SOON);
        Some(Live { hosts, switch, program, scratch, bin })
    }

    fn ctl(&self, args: &str) -> String {
        let (ok, text) = common::ctl(&self.bin, &self.scratch, args);
        assert!(ok, "ctl {args}: {text}");
        text
    }

    fn reload(&self, ports: [&str; 3], more: &str) -> String {
        self.scratch.write("switch.toml", &config(&self.scratch, "af_packet", ports, more));
        self.ctl("reload")
    }

    fn pings(&self, from: usize, to: usize) -> bool {
        let address = format!("10.0.0.{}", to + 1);
        wait_until(Duration::from_secs(5), || ping(&self.hosts[from], &address, 1) == 1)
    }

    /// The port of a host's station, as `ctl show macs` prints it.
    fn port_of(&self, host: usize) -> Option<String> {
        let text = self.ctl("show macs");
        let line = text.lines().find(|line| line.contains(&mac(host)))?;
        line.split_whitespace().nth(2).map(str::to_owned)
    }

    /// Waits until a host's station stands at the port: frames pass before control has learned.
    fn learns(&self, host: usize, port: &str) -> bool {
        wait_until(SOON, || self.port_of(host).as_deref() == Some(port))
    }

    fn stop(&mut self) -> String {
        let (status, output) = self.program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "the switch ended with {status}\n{output}");
        output
    }
}

#[test]
fn hosts_are_learned_and_frames_for_them_go_nowhere_else() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("learn", backend, [""; 3], "") else { return };
        assert!(live.pings(0, 1), "{backend}");
        for (host, port) in [(0, "p1"), (1, "p2")] {
            assert!(live.learns(host, port), "{backend}");
        }
        // What a and b say to each other is not c's.
        let (before, _) = live.hosts[2].received("eth0");
        assert_eq!(ping(&live.hosts[0], "10.0.0.2", 20), 20, "{backend}");
        let (after, _) = live.hosts[2].received("eth0");
        assert!(after - before < 10, "{backend}: c received {} frames", after - before);
        let json = live.ctl("show macs --json");
        assert!(json.contains("\"static\": false") && json.contains("\"vlan\": 1"), "{json}");
        let runtime = live.ctl("show runtime");
        assert!(runtime.contains("mode") && runtime.contains("stations"), "{runtime}");
        let (ok, said) = common::ctl(&live.bin, &live.scratch, "show neighbours");
        assert!(!ok && said.contains("no table `neighbours`") && said.contains(", macs"), "{said}");
        let (ok, said) = common::ctl(&live.bin, &live.scratch, "clear macs --port p4");
        assert!(!ok && said.contains("no port `p4`: expected one of p1, p2, p3"), "{said}");
        assert!(live.ctl("clear macs --port p1").contains("1 station removed"));
        // A host whose link is new speaks by itself now and then, and is learned again.
        let is_gone = || {
            live.ctl("clear macs --port p1");
            live.port_of(0).is_none()
        };
        assert!(wait_until(SOON, is_gone), "{backend}");
        assert_eq!(live.port_of(1).as_deref(), Some("p2"), "{backend}");
        assert!(live.pings(0, 1), "{backend}");
        let said = live.stop();
        assert!(said.contains("bridge_out"), "{said}");
    }
}

#[test]
fn vlans_keep_hosts_apart_until_the_file_says_otherwise() {
    let ports = ["access = 10", "access = 20", "trunk = [10, 20]"];
    let Some(live) = Live::start("vlans", "af_packet", ports, "") else { return };
    // The third host is in both VLANs, with tags, and asks who has an address.
    let script = live.scratch.write("ask.py", ASK);
    let ask = |vlan: u16, host: usize| {
        let line = format!("python3 {} {vlan} 10.0.0.{}", script.display(), host + 1);
        live.hosts[2].run(&line).trim().to_owned()
    };
    assert_eq!(ask(10, 0), format!("vlan {vlan} {}", mac(0), vlan = 10));
    assert_eq!(ask(20, 1), format!("vlan {vlan} {}", mac(1), vlan = 20));
    assert_eq!(ask(20, 0), "nobody", "the first host is not in VLAN 20");
    assert_eq!(ask(30, 0), "nobody", "nobody carries VLAN 30");
    assert_eq!(ping(&live.hosts[0], "10.0.0.2", 3), 0, "VLANs 10 and 20 are apart");
    let said = live.reload(["access = 10", "access = 10", "trunk = [10, 20]"], "");
    assert!(said.contains("port.p2.vlans: access 20 -> access 10"), "{said}");
    assert!(live.pings(0, 1));
    for (args, wanted) in [
        ("show routes", "this instance has no table `routes`"),
        ("route add 10.0.0.0/8 p1", "its pipeline has no router stages"),
        ("show faces", "this instance has no table `faces`"),
    ] {
        let (ok, said) = common::ctl(&live.bin, &live.scratch, args);
        assert!(!ok && said.contains(wanted), "{args}: {said}");
    }
}

#[test]
fn stations_move_go_with_their_link_and_age() {
    let Some(live) = Live::start("move", "af_packet", [""; 3], "") else { return };
    assert!(live.pings(0, 1));
    assert!(live.learns(1, "p2"), "{}", live.ctl("show macs"));
    // Host b's address appears behind port c.
    live.hosts[1].ip("link set eth0 down");
    assert!(wait_until(SOON, || live.port_of(1).is_none()), "{}", live.ctl("show macs"));
    live.hosts[2].ip("link set eth0 down");
    live.hosts[2].ip(&format!("link set eth0 address {}", mac(1)));
    live.hosts[2].ip("link set eth0 up");
    live.hosts[2].address("eth0", "10.0.0.2/24");
    assert!(live.pings(0, 1));
    assert!(live.learns(1, "p3"), "{}", live.ctl("show macs"));
    // The link is lost, and with it who was behind it, long before they age.
    live.hosts[2].ip("link set eth0 down");
    assert!(wait_until(SOON, || live.port_of(1).is_none()));
    assert!(live.learns(0, "p1"), "{}", live.ctl("show macs"));
    assert!(live.reload([""; 3], "[switch]\nageing = \"3s\"\n").contains("5min -> 3s"));
    for host in &live.hosts {
        host.sysctl("net.ipv6.conf.all.disable_ipv6", "1");
    }
    assert!(wait_until(SOON, || live.port_of(0).is_none()), "{}", live.ctl("show macs"));
    let runtime = live.ctl("show runtime --json");
    assert!(runtime.contains("\"aged\": "), "{runtime}");
    let _ = &live.switch;
}

#[test]
fn a_flood_of_addresses_fills_the_table_and_harms_no_traffic() {
    let more =
        "[switch]\nstations = 4096\n[[station]]\nport = \"p2\"\nmac = \"02:00:00:00:0a:01\"\n";
    let Some(live) = Live::start("flood", "af_packet", [""; 3], more) else { return };
    assert!(live.pings(0, 1));
    let script = live.scratch.write("flood.py", FLOOD);
    let mut flood = live.hosts[2].spawn(&format!("python3 {} 200000", script.display()));
    let (status, said) = flood.wait(Duration::from_secs(60));
    assert!(status.success(), "{said}");
    assert!(wait_until(SOON, || live.ctl("show macs").lines().count() == 4097));
    let runtime = live.ctl("show runtime");
    assert!(runtime.contains("4,096 of 4,096"), "{runtime}");
    // Hosts that were known go on; the static one is where it stood.
    assert_eq!(ping(&live.hosts[0], "10.0.0.2", 5), 5);
    assert_eq!(live.port_of(1).as_deref(), Some("p2"));
    // A station that nobody knew takes the place of one of the flood's, and what is sent to it goes nowhere else.
    let newcomer = "02:00:00:00:0c:01";
    live.hosts[0].ip(&format!("link set eth0 address {newcomer}"));
    let is_learned = || {
        ping(&live.hosts[0], "10.0.0.2", 1);
        live.ctl("show macs").lines().any(|line| line.contains(newcomer) && line.contains("p1"))
    };
    assert!(wait_until(SOON, is_learned), "{}", live.ctl("show runtime"));
    let (before, _) = live.hosts[2].received("eth0");
    assert_eq!(ping(&live.hosts[1], "10.0.0.1", 50), 50);
    let (after, _) = live.hosts[2].received("eth0");
    assert!(after - before < 25, "c received {} frames", after - before);
    let runtime = live.ctl("show runtime");
    assert!(runtime.contains("4,096 of 4,096"), "{runtime}");
    assert!(live.ctl("clear macs --port p3").contains("stations removed"));
    assert!(wait_until(SOON, || live.ctl("show macs").lines().count() < 100));
}

/// Asks in a VLAN, by ARP, who has an address; prints VLAN and MAC of the answer.
const ASK: &str = r#"
import socket, struct, sys
vlan, wanted = int(sys.argv[1]), socket.inet_aton(sys.argv[2])
own, us = bytes.fromhex("020000000a02"), socket.inet_aton("10.0.0.13")
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 3))
s.setsockopt(263, 8, 1)  # the kernel removes the tag and passes it beside the frame
s.settimeout(0.5)
ask = b"\xff" * 6 + own + struct.pack("!HHHHHBBH", 0x8100, vlan, 0x0806, 1, 0x0800, 6, 4, 1)
for _ in range(6):
    s.send((ask + own + us + bytes(6) + wanted).ljust(64, b"\0"))
    try:
        while True:
            frame, beside, _, _ = s.recvmsg(2048, 256)
            tags = [struct.unpack("=IIIHHHH", data[:20])[5] & 0xFFF for _, _, data in beside]
            if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2" and frame[28:32] == wanted:
                print("vlan", *tags, frame[22:28].hex(":"))
                sys.exit()
    except TimeoutError:
        pass
print("nobody")
"#;

/// Sends so many frames, each from another address.
const FLOOD: &str = r#"
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
for n in range(int(sys.argv[1])):
    s.send(b"\xff" * 6 + b"\x02\x77" + n.to_bytes(4) + b"\x88\xb5" + bytes(46))
"#;

/// Ports, VLANs and the first rule come and go while frames pass two other ports.
#[test]
fn rebuilds_lose_no_frame_of_other_ports() {
    let Some(mut live) = Live::start("rebuild", "af_packet", [""; 3], "") else { return };
    if testkit::require_tool("nft").is_none() {
        return;
    }
    let host = &live.hosts[1];
    host.shell(
        "nft -f - <<'END'\ntable inet count { chain in { type filter hook input priority 0; \
         udp dport 9999 counter drop; }; }\nEND",
    );
    let counted = || {
        let text = host.run("nft list table inet count");
        let rest = text.split("counter packets ").nth(1).unwrap_or_default();
        rest.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or_default()
    };
    assert!(live.pings(0, 1));
    let tap = "[port.p4]\nbackend = \"tap\"\ninterface = \"p4\"\n";
    let rule = "[[rule]]\nname = \"first\"\nsrc = \"192.0.2.0/24\"\naction = \"drop\"\n";
    let variants =
        [String::new(), tap.to_owned(), rule.to_owned(), format!("{tap}access = 7\n{rule}")];
    const COUNT: u64 = 10_000;
    let mut sender = live.hosts[0].spawn(&format!(
        "{} gen packets --interface eth0 --rate 4000pps --count {COUNT} --size 64 --src 10.0.0.1 \
         --dst 10.0.0.2 --dport 9999 --dst-mac {} --seed 7",
        live.bin.display(),
        mac(1)
    ));
    let mut changes = 0;
    while sender.is_running() {
        changes += 1;
        let said = live.reload([""; 3], &variants[changes % variants.len()]);
        assert!(is_change(&said), "{changes}: {said}");
    }
    let (status, said) = sender.wait(SOON);
    assert!(status.success(), "{said}");
    wait_until(Duration::from_secs(5), || counted() >= COUNT);
    assert_eq!(counted(), COUNT, "{changes} changes: {}", live.ctl("show drops"));
    assert!(changes >= 5, "{changes} changes");
    let said = live.stop();
    assert!(!said.contains("ERROR") && !said.contains("panicked"), "{said}");
}
