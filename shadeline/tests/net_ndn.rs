//! A named-data forwarder among hosts that speak NDN over Ethernet and UDP, with Linux beside it.
//!
//! ```text
//!   one ──Ethernet── p1 ┐
//!   two ──UDP/IPv4── p2 ├ forwarder, two workers ┬ p3 ──UDP/IPv6── far, the producer
//! ```

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testkit::netns::{Netns, veth};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

const SOON: Duration = Duration::from_secs(20);

/// As long as a start may take: the self-test of a device compiles every kernel, where no cache has them.
const STARTED: Duration = Duration::from_secs(180);

/// NDN by hand: `hand.py answer` sends Data for each Interest but those for `void`, `hand.py ask NAME…` asks and prints
/// what came, `hand.py flood COUNT` asks for as many names that have no Data and never stops, over UDP (`ADDRESS
/// OWN-ADDRESS`) or Ethernet (`eth0 MAC`).
const NDN: &str = r#"
import os, socket, sys, time
def tlv(kind, *parts):
    value = b"".join(parts)
    return bytes([kind, len(value)]) + value
def name(uri):
    return tlv(7, *(tlv(8, part.encode()) for part in uri.split("/")[1:]))
class Udp:
    def __init__(self, to, own):
        self.s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
        self.s.bind((own, int(os.environ.get("FROM", "6363"))))
        self.to = (to, 6363)
    def send(self, packet):
        self.s.sendto(packet, self.to)
    def receive(self):
        return self.s.recvfrom(9000)[0]
class Ether:
    def __init__(self, interface, mac):
        self.s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8624))
        self.s.bind((interface, 0x8624))
        self.own = self.s.getsockname()[4]
        self.head = bytes.fromhex(mac.replace(":", "")) + self.own + b"\x86\x24"
    def send(self, packet):
        self.s.send(self.head + packet)
    def receive(self):
        while True:
            frame, address = self.s.recvfrom(9000)
            if address[2] != socket.PACKET_OUTGOING:
                return frame[14:]
to, own, what, names = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
face = Ether(to, own) if to == "eth0" else Udp(to, own)
if what == "answer":
    print("answering", flush=True)
    while True:
        packet = face.receive()
        if packet[0] == 5 and b"void" not in packet:
            face.send(tlv(6, packet[2:4 + packet[3]], tlv(20), tlv(21, b"content"), tlv(22, tlv(27, b"\0")), tlv(23)))
            print("asked", packet[4:4 + packet[3]], flush=True)
if what == "flood":
    for n in range(1 << 30):
        lifetime = tlv(12, (60_000).to_bytes(2))
        face.send(tlv(5, name(f"/org/void/{n % int(names[0])}"), tlv(10, os.urandom(4)), lifetime))
        if n == int(names[0]):
            print("flooded", flush=True)
        if n % 20 == 0:
            time.sleep(0.01)  # 2,000 a second: the table is to fill, not the worker
face.s.settimeout(float(os.environ.get("WAIT", "2")))
for uri in names:
    face.send(tlv(5, name(uri), tlv(10, os.urandom(4)), tlv(34, b"\x20")))
got = set()
try:
    while len(got) < len(names):
        packet = face.receive()
        kind = {6: "data", 100: "link"}.get(packet[0], "other")
        for uri in names:
            if name(uri) in packet:
                got.add((kind, uri))
except TimeoutError:
    pass
print(*sorted(f"{kind}:{uri}" for kind, uri in got))
"#;

struct Net {
    one: Netns,
    two: Netns,
    far: Netns,
    middle: Netns,
    program: Process,
    scratch: Scratch,
    bin: PathBuf,
}

fn config(scratch: &Scratch, backend: &str, more: &str) -> String {
    format!(
        "mode = \"ndn\"\n[system]\nworkers = 2\nsocket = \"{}\"\n\
         [port.p1]\nbackend = \"{backend}\"\n\
         [port.p2]\nbackend = \"{backend}\"\naddresses = [\"10.0.2.1/24\"]\n\
         [port.p3]\nbackend = \"{backend}\"\naddresses = [\"fd00:3::1/64\"]\n\
         [ndn.face.one]\nport = \"p1\"\nmac = \"02:00:00:00:01:02\"\n\
         [ndn.face.two]\nport = \"p2\"\nlocal = \"10.0.2.1\"\nremote = \"10.0.2.2\"\n\
         [ndn.face.far]\nport = \"p3\"\nlocal = \"fd00:3::1\"\nremote = \"fd00:3::2\"\n\
         [[name]]\nprefix = \"/org\"\nfaces = [\"far\"]\n{more}",
        scratch.join("ctl.sock").display()
    )
}

impl Net {
    fn start(backend: &str) -> Option<Net> {
        Self::start_with(backend, "")
    }

    /// With more in its configuration.
    fn start_with(backend: &str, more: &str) -> Option<Net> {
        if !testkit::require_namespaces() || testkit::require_tool("python3").is_none() {
            return None;
        }
        let bin = testkit::shadeline_bin()?;
        let [one, two, far, middle] = [(); 4].map(|()| Netns::new("ndn"));
        for (number, host) in [(1, &one), (2, &two), (3, &far)] {
            let (own, its) =
                (format!("02:00:00:00:0{number}:01"), format!("02:00:00:00:0{number}:02"));
            veth((host, "eth0", &its), (&middle, &format!("p{number}"), &own), 1500);
        }
        two.address("eth0", "10.0.2.2/24");
        far.address("eth0", "fd00:3::2/64");
        let scratch = Scratch::new();
        scratch.write("hand.py", NDN);
        let file = scratch.write("ndn.toml", &config(&scratch, backend, more));
        let mut program = middle.spawn(&format!("{} run {}", bin.display(), file.display()));
        program.wait_for("running: ", STARTED);
        Some(Net { one, two, far, middle, program, scratch, bin })
    }

    fn ctl(&self, args: &str) -> (bool, String) {
        let mut command = Command::new(&self.bin);
        command.args(["ctl", "--socket"]).arg(self.scratch.join("ctl.sock"));
        let output = command.args(args.split_whitespace()).output().expect("the program starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    fn good(&self, args: &str) -> String {
        let (ok, text) = self.ctl(args);
        assert!(ok, "ctl {args}: {text}");
        text
    }

    fn script(&self, args: &str) -> String {
        format!("python3 {} {args}", self.scratch.join("hand.py").display())
    }

    /// Names asked for by host one over Ethernet, by host two over UDP; what came.
    fn ask_one(&self, names: &str) -> String {
        self.one.run(&self.script(&format!("eth0 02:00:00:00:01:01 ask {names}"))).trim().to_owned()
    }

    fn ask_two(&self, names: &str) -> String {
        self.two.run(&self.script(&format!("10.0.2.1 10.0.2.2 ask {names}"))).trim().to_owned()
    }

    fn face_is(&self, face: &str, state: &str) -> bool {
        let rows = self.good("show faces");
        rows.lines().any(|line| line.starts_with(face) && line.contains(state))
    }
}

#[test]
fn interests_find_data_by_ethernet_and_udp() {
    for backend in ["af_packet", "af_xdp"] {
        let Some(mut net) = Net::start(backend) else { return };
        // Linux finds the neighbours, though nobody has sent anything.
        let known = wait_until(SOON, || net.face_is("two", "up") && net.face_is("far", "up"));
        assert!(known, "{backend}: {}{}", net.good("show faces"), net.good("show neighbours"));
        assert!(net.good("show neighbours").contains("02:00:00:00:03:02"));
        let mut producer = net.far.spawn(&net.script("fd00:3::1 fd00:3::2 answer"));
        producer.wait_for("answering", SOON);

        // Many first components, so that both workers have some, on every port.
        let names: Vec<String> = (0..16).map(|i| format!("/org/{i}")).collect();
        assert_eq!(net.ask_one(&names.join(" ")).matches("data:").count(), 16, "{backend}");
        net.good("name add / far");
        let names: Vec<String> = (0..32).map(|i| format!("/n{i}/x")).collect();
        assert_eq!(net.ask_two(&names.join(" ")).matches("data:").count(), 32, "{backend}");
        assert_eq!(net.ask_one(&names.join(" ")).matches("data:").count(), 32, "{backend}");

        // Linux answers on the box.
        net.two.run("ping -n -c 1 -W 2 10.0.2.1");
        net.far.run("ping -n -c 1 -W 2 fd00:3::1");

        // Routes come and go; without one there is a Nack.
        assert_eq!(net.good("name get /com/x").lines().count(), 2);
        net.good("name del /");
        assert_eq!(net.ask_two("/com/x"), "link:/com/x", "{backend}: a Nack");
        for (args, expected) in [
            ("name add /com fra", "there is no face `fra`: expected one of one, two, far"),
            ("name add com far", "a name begins with `/`"),
            ("name add /com far,far", "face `far` is listed twice"),
            ("name del /com", "no such route was added"),
            ("name get /com", "no route for /com"),
            ("name get /", "at least one component"),
            ("show macs", "this instance has no table `macs`"),
        ] {
            let (ok, said) = net.ctl(args);
            assert!(!ok && said.contains(expected), "{args}: {said}");
        }
        let (ok, said) = net.ctl(&format!("name add {} far", "/a".repeat(10_000)));
        assert!(!ok && said.contains("a prefix of 10000 components, more than 31"), "{said}");
        net.good("name add /com far,two");
        let (ok, said) = net.ctl("name add /com far");
        assert!(!ok && said.contains("exists already"), "{said}");
        assert_eq!(net.ask_one("/com/y"), "data:/com/y");

        // A reload has another face and another route; what was added stays.
        let more =
            "[[name]]\nprefix = \"/net\"\nfaces = [\"far\"]\n[ndn.face.more]\nport = \"p1\"\n";
        net.scratch.write("ndn.toml", &config(&net.scratch, backend, more));
        let said = net.good("reload");
        assert!(
            said.contains("+ face more on p1") && said.contains("+ name /net to far"),
            "{said}"
        );
        assert_eq!(net.ask_two("/net/z"), "data:/net/z");
        let names = net.good("show names");
        for row in ["/com    far,two  api", "/net    far      static", "/org    far      static"] {
            assert!(names.contains(row), "{row}: {names}");
        }

        // The port to the producer goes down, and with it the face; and comes back.
        net.middle.ip("link set p3 down");
        assert!(wait_until(SOON, || net.face_is("far", "down")), "{backend}");
        assert_eq!(net.ask_one("/org/down"), "link:/org/down", "{backend}: no way, a Nack");
        net.middle.ip("link set p3 up");
        let back = wait_until(SOON, || {
            net.face_is("far", "up") && net.ask_one("/org/again") == "data:/org/again"
        });
        assert!(back, "{backend}: {}", net.good("show faces"));

        let runtime = net.good("show runtime");
        assert!(runtime.contains("pending") && runtime.contains("interests"), "{runtime}");
        let (status, said) = net.program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{backend}: {said}");
    }
}

/// Names are looked up on a device, whose copy of the table follows what `ctl` adds and removes.
#[test]
fn a_device_follows_the_routes() {
    if !testkit::require_opencl() {
        return;
    }
    let engine = "[engine]\nbackend = \"opencl\"\noffload = \"always\"\n";
    let Some(mut net) = Net::start_with("af_packet", engine) else { return };
    let known = wait_until(SOON, || net.face_is("two", "up") && net.face_is("far", "up"));
    assert!(known, "{}", net.good("show faces"));
    let mut producer = net.far.spawn(&net.script("fd00:3::1 fd00:3::2 answer"));
    producer.wait_for("answering", SOON);
    for round in 0..3 {
        assert_eq!(net.ask_one(&format!("/com/{round}")), format!("link:/com/{round}"), "a Nack");
        net.good("name add /com far");
        assert_eq!(net.ask_one(&format!("/com/x{round}")), format!("data:/com/x{round}"));
        net.good("name add /com/deeper two");
        assert_eq!(
            net.ask_two(&format!("/com/deeper/{round}")),
            format!("link:/com/deeper/{round}")
        );
        assert_eq!(net.ask_two(&format!("/org/{round}")), format!("data:/org/{round}"));
        net.good("name del /com/deeper");
        net.good("name del /com");
    }
    let (status, said) = net.program.stop(Stop::Terminate, SOON);
    assert!(status.success() && said.contains(", 0 jobs repeated on the CPU"), "{said}");
    assert!(!said.contains(": 0 jobs, "), "{said}");
}

/// A program with python-ndn, as its users write one: `serve HOST PREFIX` registers a prefix and answers, `ask HOST
/// NAME…` asks and prints what came. Version 1 and 2 of its interface.
const APP: &str = r#"
import asyncio, logging, sys
from ndn.encoding import Name
from ndn.transport.udp_face import UdpFace
logging.basicConfig(level=logging.ERROR)
what, host, names = sys.argv[1], sys.argv[2], sys.argv[3:]
if what == "serve1":
    from ndn.app import NDNApp
    from ndn.security import KeychainDigest
    app = NDNApp(face=UdpFace(host), keychain=KeychainDigest())
    @app.route(names[0])
    def answer(name, param, app_param):
        print("asked", Name.to_str(name), flush=True)
        app.put_data(name, content=b"one " + Name.to_bytes(name)[-1:], freshness_period=10000)
    async def started():
        print("served", flush=True)
    app.run_forever(after_start=started())
else:
    from ndn.appv2 import NDNApp, pass_all
    from ndn.security import DigestSha256Signer
    app = NDNApp(face=UdpFace(host))
if what == "serve2":
    def answer(name, app_param, reply, context):
        print("asked", Name.to_str(name), flush=True)
        reply(app.make_data(name, b"two", signer=DigestSha256Signer(), freshness_period=10000))
    async def started():
        app.attach_handler(names[0], answer)
        print("registered", await app.register(names[0]), flush=True)
        if len(names) > 1:
            await asyncio.sleep(float(names[1]))
            await app.unregister(names[0])
            print("unregistered", flush=True)
    app.run_forever(after_start=started())
if what == "ask":
    async def ask():
        for name in names:
            try:
                _, content, _ = await app.express(name, pass_all, lifetime=2000, must_be_fresh=True)
                print(name, bytes(content).decode(), flush=True)
            except Exception as error:
                print(name, type(error).__name__, flush=True)
        app.shutdown()
    app.run_forever(after_start=ask())
"#;

impl Net {
    /// A line for the shell that runs the program with python-ndn; `None` where it is missing.
    fn app(&self, args: &str) -> Option<String> {
        let python = testkit::require_python("ndn")?;
        let script = self.scratch.write("app.py", APP);
        // Its configuration and keys would be below HOME.
        let home = self.scratch.join("home");
        std::fs::create_dir_all(&home).expect("a folder");
        let line = format!("{} {} {args}", python.display(), script.display());
        Some(format!("env HOME={} PYTHONDONTWRITEBYTECODE=1 {line}", home.display()))
    }
}

/// Whoever sends from a port of its own gets its answers there; faces are limited, and end when they are idle.
#[test]
fn whoever_sends_first_has_a_face() {
    let more = "[ndn]\non_demand_faces = 3\nidle_timeout = \"8s\"\n";
    let Some(mut net) = Net::start_with("af_packet", more) else { return };
    assert!(wait_until(SOON, || net.face_is("far", "up")), "{}", net.good("show faces"));
    let mut producer = net.far.spawn(&net.script("fd00:3::1 fd00:3::2 answer"));
    producer.wait_for("answering", SOON);
    let from = |port: u16, name: &str| {
        net.two.run(&format!(
            "env FROM={port} {}",
            net.script(&format!("10.0.2.1 10.0.2.2 ask {name}"))
        ))
    };
    assert_eq!(from(40_000, "/org/a /org/b /org/c").matches("data:").count(), 3);
    assert_eq!(from(40_001, "/org/a").trim(), "data:/org/a");
    let faces = net.good("show faces");
    for ends in ["10.0.2.1:6363 - 10.0.2.2:40000", "10.0.2.1:6363 - 10.0.2.2:40001"] {
        assert!(faces.lines().any(|l| l.contains("on-demand") && l.contains(ends)), "{faces}");
    }
    // A third finds no room on this port, which leaves the last one to others, until its own have been idle; and a route cannot lead there.
    assert_eq!(from(40_002, "/org/d").trim(), "");
    assert!(net.good("show drops").contains("ndn_faces_full"), "{}", net.good("show drops"));
    let (ok, said) = net.ctl("name add /x @1");
    assert!(!ok && said.contains("there is no face `@1`: expected one of one, two, far"), "{said}");
    assert!(wait_until(SOON, || !net.good("show faces").contains("on-demand")));
    assert_eq!(from(40_002, "/org/d").trim(), "data:/org/d");
    // The port is closed to strangers by a reload, and their faces go.
    let file = config(&net.scratch, "af_packet", more);
    let closed = file.replace("[port.p2]\n", "[port.p2]\nfaces = \"configured\"\n");
    net.scratch.write("ndn.toml", &closed);
    let said = net.good("reload");
    assert!(said.contains("port.p2.faces: on-demand -> configured"), "{said}");
    assert!(!net.good("show faces").contains("on-demand"));
    assert_eq!(from(40_003, "/org/e").trim(), "");
    let (status, said) = net.program.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{said}");
}

/// An application of python-ndn registers its prefix over UDP and serves a consumer, unchanged.
#[test]
fn python_ndn_registers_and_serves() {
    let Some(mut net) = Net::start("af_packet") else { return };
    let Some(ask) = net.app("ask fd00:3::1") else { return };
    // Not before it is permitted.
    let mut refused = net.two.spawn(&net.app("serve2 10.0.2.1 /app").unwrap());
    refused.wait_for("registered False", SOON);
    refused.stop(Stop::Terminate, SOON);
    let file = config(&net.scratch, "af_packet", "");
    net.scratch.write("ndn.toml", &file.replace("[port.p2]\n", "[port.p2]\nregister = \"any\"\n"));
    assert!(net.good("reload").contains("port.p2.register: none -> any"));
    for version in ["serve1 10.0.2.1 /app1", "serve2 10.0.2.1 /app2"] {
        let prefix = version.rsplit(' ').next().unwrap();
        let mut app = net.two.spawn(&net.app(version).unwrap());
        let there = wait_until(SOON, || net.good("show names").contains("registered"));
        assert!(there, "{version}: {}{}", net.good("show names"), net.good("show faces"));
        let got = net.far.run(&format!("{ask} {prefix}/1 {prefix}/2 {prefix}/1"));
        let content =
            if version.starts_with("serve1") { ["one 1", "one 2"] } else { ["two", "two"] };
        let [one, two] = content;
        let expected = format!("{prefix}/1 {one}\n{prefix}/2 {two}\n{prefix}/1 {one}\n");
        assert_eq!(got, expected, "{version}");
        let names = net.good("show names");
        assert!(
            names.lines().any(|l| l.starts_with("*  /app") && l.contains("registered")),
            "{names}"
        );
        app.stop(Stop::Interrupt, SOON);
        // Its face is idle now; a reload that forbids strangers ends it, and the route goes with it.
        net.scratch
            .write("ndn.toml", &file.replace("[port.p2]\n", "[port.p2]\nfaces = \"configured\"\n"));
        net.good("reload");
        assert!(!net.good("show names").contains("registered"), "{}", net.good("show names"));
        net.scratch
            .write("ndn.toml", &file.replace("[port.p2]\n", "[port.p2]\nregister = \"any\"\n"));
        net.good("reload");
    }
    let mut app = net.two.spawn(&net.app("serve2 10.0.2.1 /short 1").unwrap());
    app.wait_for("registered True", SOON);
    app.wait_for("unregistered", SOON);
    assert!(!net.good("show names").contains("/short"), "{}", net.good("show names"));
    let runtime = net.good("show runtime");
    assert!(runtime.contains("content store") && runtime.contains("on demand"), "{runtime}");
    let (status, said) = net.program.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{said}");
}

/// A neighbour that asks without end for what nobody has takes half of the table; others get all their Data.
#[test]
fn a_flood_of_interests_leaves_room() {
    let Some(mut net) = Net::start_with("af_packet", "[ndn]\npit_entries = 2048\n") else { return };
    let known = wait_until(SOON, || net.face_is("two", "up") && net.face_is("far", "up"));
    assert!(known, "{}", net.good("show faces"));
    let mut producer = net.far.spawn(&net.script("fd00:3::1 fd00:3::2 answer"));
    producer.wait_for("answering", SOON);
    let mut flood = net.one.spawn(&net.script("eth0 02:00:00:00:01:01 flood 4000"));
    flood.wait_for("flooded", SOON);
    for round in 0..10 {
        let names: Vec<String> = (0..24).map(|i| format!("/org/{round}/{i}")).collect();
        // On a busy machine the forwarder may not run for seconds: a consumer asks again.
        let have_come = || net.ask_two(&names.join(" ")).matches("data:").count() == 24;
        assert!(wait_until(SOON, have_come), "{}", net.good("show drops"));
    }
    flood.stop(Stop::Kill, SOON);
    let drops = net.good("show drops");
    assert!(drops.contains("ndn_pit_share") && !drops.contains("ndn_pit_full"), "{drops}");
    let (status, said) = net.program.stop(Stop::Terminate, SOON);
    assert!(status.success() && !said.contains("ERROR") && !said.contains("panicked"), "{said}");
}

/// Ports and the first rule come and go while Interests and Data pass: what is pending stays pending.
#[test]
fn rebuilds_lose_no_interest() {
    let Some(mut net) = Net::start("af_packet") else { return };
    let known = wait_until(SOON, || net.face_is("two", "up") && net.face_is("far", "up"));
    assert!(known, "{}", net.good("show faces"));
    let mut producer = net.far.spawn(&net.script("fd00:3::1 fd00:3::2 answer"));
    producer.wait_for("answering", SOON);
    assert_eq!(net.ask_one("/org/first"), "data:/org/first");
    let more = [
        "",
        "[port.p4]\nbackend = \"memory\"\n",
        "[port.p4]\nbackend = \"tap\"\ninterface = \"p4\"\n",
    ];
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let changes = std::thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            let mut changes = 0;
            while !is_done.load(relaxed) {
                changes += 1;
                let text = config(&net.scratch, "af_packet", more[changes % more.len()]);
                net.scratch.write("ndn.toml", &text);
                net.good("reload");
            }
            changes
        });
        for round in 0..12 {
            let names: Vec<String> = (0..24).map(|i| format!("/org/{round}/{i}")).collect();
            let came = match round % 2 {
                0 => net.ask_one(&names.join(" ")),
                _ => net.ask_two(&names.join(" ")),
            };
            if came.matches("data:").count() != 24 {
                is_done.store(true, relaxed);
                panic!("round {round}: {came}\n{}", net.good("show drops"));
            }
        }
        is_done.store(true, relaxed);
        reloads.join().expect("reloads")
    });
    assert!(changes >= 5, "{changes} changes");
    let (status, said) = net.program.stop(Stop::Terminate, SOON);
    assert!(status.success() && !said.contains("ERROR") && !said.contains("panicked"), "{said}");
}
