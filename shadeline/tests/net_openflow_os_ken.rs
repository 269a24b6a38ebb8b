//! OpenFlow switches between real hosts, driven by applications on os-ken (`tests/controllers`).

mod common;
#[path = "common/openflow.rs"]
mod openflow;

use std::path::PathBuf;
use std::time::Duration;

use common::{SOON, ping};
use openflow::{Live, SWITCH};
use serde_json::{Value, json};
use testkit::netns::{Netns, veth};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

const CONTROLLER: &str = "controllers = [\"tcp:127.0.0.1:6654\"]\n";

/// Python with os-ken; `None`, and the test is skipped, where it is missing.
fn python() -> Option<PathBuf> {
    testkit::require_python("os_ken")
}

/// An application of `tests/controllers`, in a namespace.
fn application(python: &std::path::Path, at: &Netns, name: &str) -> Process {
    let start = testkit::repository().join("tests/controllers/start.py");
    let line = format!("{} {} {name} 6654", python.display(), start.display());
    let mut process = at.spawn(&line);
    process.wait_for("ready", SOON);
    process
}

/// What iperf3 says after a second from the first host to the second: bits a second. 1 where it is missing.
fn iperf3(hosts: &[Netns; 2], args: &str) -> f64 {
    if testkit::require_tool("iperf3").is_none() {
        return 1.0;
    }
    let mut server = hosts[1].spawn("iperf3 -s -1 --forceflush");
    server.wait_for("listening", SOON);
    let said = hosts[0].run(&format!("iperf3 -c 10.0.0.2 -t 1 --json {args}"));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let sum = if args.contains("-u") { "sum" } else { "sum_received" };
    said["end"][sum]["bits_per_second"].as_f64().expect("a rate")
}

/// Flows of the switch whose line contains a text.
fn installed(live: &Live, part: &str) -> Vec<String> {
    let flows = live.ctl("flow dump");
    flows.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

#[test]
fn a_learning_switch_of_os_ken_makes_hosts_meet() {
    let Some(python) = python() else { return };
    for version in ["1.3", "1.0"] {
        let more = format!("{CONTROLLER}version = \"{version}\"\n");
        let Some(live) = Live::start("kl", "ovs-ofctl", &more) else { return };
        assert!(!live.pings(Duration::from_millis(500)), "no controller, no packet");
        let mut controller = application(&python, &live.switch, "learning");
        assert!(live.pings(SOON), "{version}: {}", controller.output());
        // By flows now, in both directions.
        let flows = || installed(&live, "priority=1,");
        assert!(
            wait_until(SOON, || live.pings(SOON) && flows().len() >= 2),
            "{}",
            live.ctl("flow dump")
        );
        let before = live.hosts[1].received("eth0").0;
        let rate = iperf3(&live.hosts, "");
        assert!(rate > 0.0);
        assert!(live.hosts[1].received("eth0").0 > before);
        let errors = controller.output();
        assert!(!errors.contains("error:"), "{errors}");
        // Its end costs no packet of the flows that it installed.
        let _ = controller.stop(Stop::Kill, SOON);
        assert_eq!(ping(&live.hosts[0], "10.0.0.2", 5), 5, "{}", live.ctl("flow dump"));
        assert!(iperf3(&live.hosts, "-u -b 5M") > 0.0);
        live.stop();
    }
}

#[test]
fn a_rest_application_of_os_ken_adds_and_removes_flows() {
    let Some(python) = python() else { return };
    if testkit::require_tool("curl").is_none() {
        return;
    }
    let Some(live) = Live::start("kr", "ovs-ofctl", CONTROLLER) else { return };
    let mut controller = application(&python, &live.switch, "rest");
    controller.wait_for("switch ", SOON);
    let http = |method: &str, path: &str, body: &Value| -> (u16, Value) {
        let mut command = live.switch.command("curl");
        command.args(["-s", "-X", method, "-w", "\n%{http_code}"]);
        command.args(["-d", &body.to_string(), &format!("http://127.0.0.1:8080/{path}")]);
        let output = command.output().expect("curl");
        let text = String::from_utf8(output.stdout).expect("text");
        let (body, status) = text.rsplit_once('\n').expect("a status");
        let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"));
        (status.parse().expect("a number"), body)
    };
    let (status, switches) = http("GET", "switches", &json!({}));
    assert_eq!((status, switches.as_array().map(Vec::len)), (200, Some(1)), "{switches}");
    let path = format!("flows/{}", switches[0]);
    assert!(!live.pings(Duration::from_millis(500)), "no flow, no packet");
    for (from, to) in [(1, 2), (2, 1)] {
        let flow =
            json!({ "priority": 5, "match": { "in_port": from }, "actions": [{ "output": to }] });
        assert_eq!(http("POST", &path, &flow), (200, json!({})));
    }
    assert!(live.pings(SOON));
    assert!(iperf3(&live.hosts, "") > 0.0);
    let (_, flows) = http("GET", &path, &json!({}));
    assert_eq!(flows.as_array().map(Vec::len), Some(2), "{flows}");
    for flow in flows.as_array().unwrap() {
        assert!(flow["priority"] == 5 && flow["packets"].as_u64() > Some(0), "{flow}");
    }
    // A change of a header, by the same way.
    let flow = json!({
        "priority": 9, "match": { "in_port": 1, "eth_type": 2048, "ip_proto": 1 },
        "actions": [{ "set_field": { "ipv4_dst": "10.0.0.2" } }, { "output": 2 }],
    });
    assert_eq!(http("POST", &path, &flow), (200, json!({})));
    live.hosts[0].ip("neighbour replace 10.0.0.77 lladdr 02:00:00:00:0a:01 dev eth0");
    let before = live.hosts[1].received("eth0").0;
    ping(&live.hosts[0], "10.0.0.77", 1);
    assert!(live.hosts[1].received("eth0").0 > before);
    assert!(
        installed(&live, "priority=9,")[0].contains("n_packets=1,"),
        "{}",
        live.ctl("flow dump")
    );
    // BAD_ACTION, BAD_OUT_GROUP; BAD_MATCH, BAD_PREREQ.
    let no_group = json!({ "match": {}, "actions": [{ "group": 7 }] });
    assert_eq!(http("POST", &path, &no_group), (400, json!({ "type": 2, "code": 9 })));
    let no_type = json!({ "match": { "ipv4_dst": "10.0.0.2" }, "actions": [] });
    assert_eq!(http("POST", &path, &no_type), (400, json!({ "type": 4, "code": 9 })));
    assert_eq!(http("DELETE", &path, &json!({ "match": { "in_port": 1 } })), (200, json!({})));
    let (_, flows) = http("GET", &path, &json!({}));
    assert_eq!(flows.as_array().map(Vec::len), Some(1), "{flows}");
    assert!(!live.pings(Duration::from_millis(500)), "no flow, no packet");
    live.stop();
}

/// Two controllers with roles (1.3, section 6.3.6): a new master makes the old one a slave, which reads, hears of ports and changes
/// nothing; an election of old is refused, and the end of the master costs no packet.
#[test]
fn of_two_controllers_one_is_the_master() {
    let Some(python) = python() else { return };
    let addresses = "controllers = [\"tcp:127.0.0.1:6654\", \"tcp:127.0.0.1:6655\"]\n";
    let Some(live) = Live::start("k2", "ovs-ofctl", addresses) else { return };
    let start = |port: u16, role: &str, generation: u64, priority: u16| {
        let script = testkit::repository().join("tests/controllers/start.py");
        let line = format!(
            "env ROLE={role} GENERATION={generation} PRIORITY={priority} {} {} roles {port}",
            python.display(),
            script.display()
        );
        live.switch.spawn(&line)
    };
    let has_flows = |priority: u16| installed(&live, &format!("priority={priority},")).len() == 2;
    let role_of = |port: u16| {
        let shown = live.ctl("show openflow-controllers");
        let line = shown.lines().find(|line| line.contains(&format!(":{port}")));
        let roles = ["master", "slave", "equal"];
        roles.into_iter().find(|role| line.is_some_and(|line| line.contains(role)))
    };
    let mut first = start(6654, "master", 10, 11);
    first.wait_for("role: master, generation 10", SOON);
    assert!(wait_until(SOON, || has_flows(11)), "{}", first.output());
    assert!(live.pings(SOON));
    let mut second = start(6655, "master", 11, 12);
    second.wait_for("role: master, generation 11", SOON);
    assert!(wait_until(SOON, || has_flows(12)), "{}", second.output());
    assert_eq!([role_of(6654), role_of(6655)], [Some("slave"), Some("master")]);
    // IS_SLAVE, and nothing is changed.
    first.wait_for("error: type 1 code 10", SOON);
    live.ofctl("del-flows", "");
    assert!(wait_until(SOON, || has_flows(12)));
    assert!(installed(&live, "priority=11,").is_empty(), "{}", live.ctl("flow dump"));
    // Both hear of ports, the master alone of packets.
    live.ofctl("add-flow", "priority=50,arp,actions=controller");
    live.ofctl("add-flow", "priority=50,icmp,actions=controller");
    live.pings(Duration::from_millis(500));
    second.wait_for("packet", SOON);
    live.ofctl("del-flows", "arp");
    live.ofctl("del-flows", "icmp");
    live.ofctl("mod-port", "1 no-forward");
    live.ofctl("mod-port", "1 forward");
    for controller in [&mut first, &mut second] {
        controller.wait_for("port: 1", SOON);
    }
    assert!(!first.output().contains("packet"), "{}", first.output());
    // Its end costs no packet; who comes with an old generation is none.
    let _ = second.stop(Stop::Kill, SOON);
    assert_eq!(ping(&live.hosts[0], "10.0.0.2", 5), 5, "{}", live.ctl("flow dump"));
    let mut stale = start(6655, "master", 10, 13);
    stale.wait_for("error: type 11 code 0", SOON);
    assert_eq!(role_of(6654), Some("slave"));
    // An equal may do all the same.
    assert!(wait_until(SOON, || has_flows(13)), "{}", stale.output());
    live.stop();
}

/// ```text
///  host 0 ── p1 ┌─────┐ p3 ══ p4 ┌─────┐ p2 ── host 1
///               │  a  │ p5 ══ p6 │  b  │
///               └─────┘          └─────┘
/// ```
#[test]
fn an_application_of_os_ken_finds_links_and_ways() {
    if !testkit::require_namespaces() {
        return;
    }
    let Some(python) = python() else { return };
    let Some(bin) = testkit::shadeline_bin() else { return };
    let net = Netns::new("kt");
    net.ip("link set lo up");
    let hosts = [0, 1].map(|i| {
        let host = Netns::new("kt");
        let (own, mac) = (format!("02:00:00:00:0b:{i:02x}"), format!("02:00:00:00:0a:{i:02x}"));
        veth((&host, "eth0", &mac), (&net, ["p1", "p2"][i], &own), 1500);
        host.address("eth0", &format!("10.0.0.{}/24", i + 1));
        host
    });
    veth((&net, "p3", "02:00:00:00:0c:03"), (&net, "p4", "02:00:00:00:0c:04"), 1500);
    veth((&net, "p5", "02:00:00:00:0c:05"), (&net, "p6", "02:00:00:00:0c:06"), 1500);
    let mut controller = application(&python, &net, "topology");
    let scratch = Scratch::new();
    let mut switches = ["p1 p3 p5", "p2 p4 p6"].map(|ports| {
        let name = &ports[..2];
        let socket = scratch.join(&format!("{name}.sock"));
        let ports = ports.split(' ').map(|port| format!("[port.{port}]\nbackend = \"af_packet\"\n"));
        let listen = if name == "p1" { format!("listen = [\"{SWITCH}\"]\n") } else { String::new() };
        let config = format!(
            "mode = \"openflow\"\n[system]\nsocket = {socket:?}\n{}[stage.openflow]\n{CONTROLLER}{listen}",
            ports.collect::<String>()
        );
        let path = scratch.write(&format!("{name}.toml"), &config);
        let mut program = net.spawn(&format!("{} run {}", bin.display(), path.display()));
        program.wait_for("running: ", SOON);
        program
    });
    // The lowest address of each switch is its number.
    let [a, b] = [0x0200_0000_0b00_u64, 0x0200_0000_0b01];
    for number in [a, b] {
        controller.wait_for(&format!("switch {number} ports [1, 2, 3]"), SOON);
    }
    for port in [2, 3] {
        controller.wait_for(&format!("link {a}:{port} {b}:{port}"), SOON);
        controller.wait_for(&format!("link {b}:{port} {a}:{port}"), SOON);
    }
    let pings = || wait_until(SOON, || ping(&hosts[0], "10.0.0.2", 1) == 1);
    assert!(pings(), "{}", controller.output());
    assert_eq!(ping(&hosts[0], "10.0.0.2", 5), 5);
    assert!(iperf3(&hosts, "") > 0.0);
    let dump = |name: &str| {
        let socket = scratch.join(&format!("{name}.sock"));
        let line = format!("{} ctl --socket {} flow dump", bin.display(), socket.display());
        net.run(&line)
    };
    for name in ["p1", "p2"] {
        let flows = dump(name);
        let ways = flows.lines().filter(|line| line.contains("priority=10,")).count();
        assert!(ways >= 2, "{flows}");
    }
    // A link that goes down is gone for the application, by PORT_STATUS.
    net.ip("link set p3 down");
    controller.wait_for(&format!("gone {a}:2 {b}:2"), SOON);
    controller.wait_for(&format!("gone {b}:2 {a}:2"), SOON);
    let output = controller.output();
    assert!(!output.contains("error:") && !output.contains("Traceback"), "{output}");
    for switch in &mut switches {
        let (status, output) = switch.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{output}");
    }
}
