//! An OpenFlow switch between real hosts, driven by ovs-ofctl and ovs-testcontroller.

mod common;
#[path = "common/openflow.rs"]
mod openflow;

use std::process::Command;
use std::time::Duration;

use common::{SOON, ping};
use openflow::{Live, OFCTL, SWITCH};
use testkit::netns::{Netns, veth};
use testkit::process::Stop;
use testkit::{Scratch, wait_until};

#[test]
fn ovs_ofctl_changes_a_running_switch() {
    let Some(live) = Live::start("of", "ovs-ofctl", "") else { return };
    let shown = live.switch.run(&format!("{OFCTL} show {SWITCH}"));
    // As a program reads it.
    let traced: serde_json::Value =
        serde_json::from_str(&live.ctl("--json flow trace in_port=1")).expect("JSON");
    assert!(traced.to_string().contains("sent to: nowhere"), "{traced}");
    for part in ["n_tables:8", "1(p1): addr:02:00:00:00:0b:00", "2(p2): addr:02:00:00:00:0b:01"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert!(!live.pings(Duration::from_millis(500)), "no flow, no packet");
    live.switch.run(&format!("{OFCTL} add-flow {SWITCH} in_port=1,actions=goto_table:1"));
    live.switch.run(&format!("{OFCTL} add-flow {SWITCH} table=1,in_port=1,actions=output:2"));
    live.switch.run(&format!("{OFCTL} add-flow {SWITCH} in_port=2,actions=output:1"));
    assert!(live.pings(SOON));
    let flows = live.switch.run(&format!("{OFCTL} dump-flows {SWITCH} table=1"));
    assert!(flows.contains("table=1") && !flows.contains("n_packets=0,"), "{flows}");
    // A packet of the tool's own.
    let frame = "0200000000aa0200000000bb88b5".to_owned() + &"00".repeat(46);
    let before = live.hosts[1].received("eth0").0;
    live.switch
        .run(&format!("{OFCTL} packet-out {SWITCH} in_port=1,packet={frame},actions=output:2"));
    assert!(wait_until(SOON, || live.hosts[1].received("eth0").0 > before));
    // And one that goes through the tables.
    let before = live.hosts[1].received("eth0").0;
    live.switch.run(&format!("{OFCTL} packet-out {SWITCH} in_port=1,packet={frame},actions=TABLE"));
    assert!(wait_until(SOON, || live.hosts[1].received("eth0").0 > before));
    // To a group as well; one that leads to NORMAL, which this switch has only for packets of ports, is refused.
    live.ofctl("add-group", "group_id=1,type=all,bucket=output:2");
    live.ofctl("add-group", "group_id=2,type=indirect,bucket=output:NORMAL");
    live.ofctl("add-group", "group_id=3,type=all,bucket=group:2,bucket=output:2");
    let before = live.hosts[1].received("eth0").0;
    live.ofctl("packet-out", &format!("in_port=controller,packet={frame},actions=group:1"));
    assert!(wait_until(SOON, || live.hosts[1].received("eth0").0 > before));
    let command =
        format!("{OFCTL} packet-out {SWITCH} in_port=controller,packet={frame},actions=group:3");
    let refused = String::from_utf8_lossy(&live.switch.try_run(&command).stderr).into_owned();
    assert!(refused.contains("OFPBAC_BAD_OUT_PORT"), "{refused}");
    live.switch.run(&format!("{OFCTL} del-flows {SWITCH}"));
    assert!(!live.pings(Duration::from_millis(500)), "no flow, no packet");
    live.stop();
}

/// In 1.0 requests name tables and cookies under a mask by Nicira's extension, which the tool asks for where it needs it.
#[test]
fn ovs_ofctl_names_tables_and_cookies_in_10() {
    let Some(live) = Live::start("on", "ovs-ofctl", "") else { return };
    let ten = OFCTL.replace("OpenFlow13", "OpenFlow10");
    let ofctl = |command: &str, args: &str| {
        live.switch.run(&format!("{ten} {command} {SWITCH} {args}"));
    };
    let dump = |args: &str| -> Vec<String> {
        let shown = live.switch.run(&format!("{ten} dump-flows {SWITCH} {args}"));
        let words = |line: &str| {
            let word = |name: &str| {
                let (_, value) = line.split_once(name)?;
                Some(value.split([',', ' ']).next().unwrap_or_default().to_owned())
            };
            Some(format!("{} {} {}", word("cookie=")?, word("table=")?, word("actions=")?))
        };
        let mut all: Vec<String> = shown.lines().filter_map(words).collect();
        all.sort();
        all
    };
    ofctl("add-flow", "cookie=1,udp,actions=output:1");
    ofctl("add-flow", "table=1,cookie=0x15,tcp,actions=output:1");
    ofctl("add-flow", "table=2,cookie=0x25,arp,actions=output:1");
    assert_eq!(dump(""), ["0x1 0 output:1", "0x15 1 output:1", "0x25 2 output:1"]);
    assert_eq!(dump("table=1"), ["0x15 1 output:1"]);
    assert_eq!(dump("cookie=0x5/0xf"), ["0x15 1 output:1", "0x25 2 output:1"]);
    assert_eq!(dump("cookie=0x25/-1"), ["0x25 2 output:1"]);
    ofctl("mod-flows", "cookie=0x15/-1,cookie=0x9,actions=output:2");
    assert_eq!(dump(""), ["0x1 0 output:1", "0x25 2 output:1", "0x9 1 output:2"]);
    ofctl("mod-flows", "cookie=0x7/-1,actions=output:2");
    ofctl("mod-flows", "table=2,cookie=0x5/0x5,actions=output:2");
    assert_eq!(dump(""), ["0x1 0 output:1", "0x25 2 output:2", "0x9 1 output:2"]);
    ofctl("del-flows", "table=0,cookie=0x1/0x1");
    assert_eq!(dump(""), ["0x25 2 output:2", "0x9 1 output:2"]);
    ofctl("del-flows", "cookie=0x9/-1");
    assert_eq!(dump(""), ["0x25 2 output:2"]);
    ofctl("del-flows", "");
    assert_eq!(dump(""), [""; 0]);
    live.stop();
}

/// Sets of flows take the place of others, by ovs-ofctl and by `ctl`: those that are the same keep their counters.
#[test]
fn sets_of_flows_are_replaced() {
    let Some(live) = Live::start("or", "ovs-ofctl", "") else { return };
    let first = "priority=5,in_port=1,actions=output:2\npriority=5,in_port=2,actions=output:1\n";
    let flows = live.scratch.write("flows.txt", first);
    let ofctl =
        |command: &str| live.switch.run(&format!("{OFCTL} {command} {SWITCH} {}", flows.display()));
    ofctl("--bundle replace-flows");
    assert_eq!(ofctl("diff-flows"), "");
    assert!(live.pings(SOON));
    let packets = |match_: &str| {
        let shown = live.ctl(&format!("flow dump {match_}"));
        let (_, count) = shown.split_once("n_packets=").expect("a flow");
        count.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let counted = packets("in_port=1");
    assert!(counted > 0);
    // One stays, one is added.
    let second = format!("{first}priority=1,arp,actions=flood\n");
    live.scratch.write("flows.txt", &second);
    let file = flows.display().to_string();
    let diff = || -> Vec<String> {
        let shown = live.ctl(&format!("flow diff {file}"));
        shown.lines().filter(|line| line.starts_with(['+', '-'])).map(str::to_owned).collect()
    };
    assert_eq!(diff(), ["+priority=1,arp actions=FLOOD"]);
    let done = live.ctl(&format!("flow replace {file}"));
    assert_eq!(done.trim(), "1 added, 0 changed, 0 removed, 2 kept");
    assert!(packets("in_port=1") >= counted, "the counters go on");
    assert_eq!(ofctl("diff-flows"), "");
    // What is printed is a file of flows.
    for dump in ["flow dump", "flow dump --no-stats"] {
        live.scratch.write("flows.txt", &live.ctl(dump));
        let done = live.ctl(&format!("flow replace {file}"));
        assert_eq!(done.trim(), "0 added, 0 changed, 0 removed, 3 kept", "{dump}");
    }
    // What is refused changes nothing, and says where it is.
    live.scratch.write("flows.txt", "tcp,actions=output:1,group:7\n");
    let socket = live.scratch.join("ctl.sock");
    let command =
        format!("{} ctl --socket {} flow replace {file}", live.bin.display(), socket.display());
    let run = live.switch.try_run(&command);
    let output = String::from_utf8_lossy(&run.stderr);
    let text = format!("{file}:1: column 22: there is no such group (OFPBAC_BAD_OUT_GROUP)");
    assert!(!run.status.success() && output.contains(&text), "{output}");
    assert!(live.pings(SOON));
    // The set of ovs-ofctl is the smaller one again.
    live.scratch.write("flows.txt", first);
    ofctl("replace-flows");
    assert_eq!(diff(), [""; 0]);
    assert!(packets("in_port=1") >= counted, "the counters go on");
    live.stop();
}

#[test]
fn a_controller_makes_hosts_meet() {
    let more = "controllers = [\"tcp:127.0.0.1:6654\"]\n";
    let Some(live) = Live::start("oc", "ovs-testcontroller", more) else { return };
    assert!(!live.pings(Duration::from_millis(500)), "no controller, no packet");
    let mut controller = live.switch.spawn("ovs-testcontroller --unixctl=none ptcp:6654:127.0.0.1");
    assert!(live.pings(SOON));
    let flows = live.switch.run(&format!("{OFCTL} dump-flows {SWITCH}"));
    assert!(flows.contains("actions=CONTROLLER:128") && flows.contains("icmp"), "{flows}");
    // Its death costs no packet of the flows that it installed.
    let mut pinging = live.hosts[0].spawn("ping -n -i 0.02 -c 100 -W 2 10.0.0.2");
    pinging.wait_for("icmp_seq=20 ", SOON);
    controller.stop(Stop::Kill, SOON);
    let (_, output) = pinging.wait(SOON);
    assert!(output.contains("100 received, 0% packet loss"), "{output}");
    live.stop();
}

/// What a controller and the switch say to each other is seen by who snoops; `ctl` lists tools, too.
#[test]
fn ovs_ofctl_snoops() {
    let more = "controllers = [\"tcp:127.0.0.1:6654\"]\nsnoop = [\"tcp:127.0.0.1:6655\"]\n";
    let Some(live) = Live::start("on", "ovs-testcontroller", more) else { return };
    let (folder, ofctl) = (Scratch::new(), OFCTL.replace("--timeout=10 ", ""));
    let run =
        format!("env OVS_RUNDIR={} {ofctl} snoop tcp:127.0.0.1:6655", folder.path().display());
    let mut snoop = live.switch.spawn(&run);
    let is_there = || live.ctl("show openflow-controllers").contains(" snoop");
    assert!(wait_until(SOON, is_there), "{}", live.ctl("show openflow-controllers"));
    let mut controller = live.switch.spawn("ovs-testcontroller --unixctl=none ptcp:6654:127.0.0.1");
    assert!(live.pings(SOON));
    for message in ["OFPT_HELLO", "OFPT_FEATURES_REPLY", "OFPT_PACKET_IN", "OFPT_FLOW_MOD", "icmp"]
    {
        snoop.wait_for(message, SOON);
    }
    let shown = live.ctl("show openflow-controllers");
    let kinds = |kind: &str| shown.lines().filter(|line| line.contains(kind)).count();
    assert_eq!((kinds(" controller "), kinds(" snoop ")), (1, 1), "{shown}");
    // Tools are none of its business.
    live.ofctl("add-flow", "priority=7,tcp,tp_dst=7777,actions=drop");
    assert!(!snoop.output().contains("7777"), "{}", snoop.output());
    snoop.stop(Stop::Terminate, SOON);
    controller.stop(Stop::Terminate, SOON);
    live.stop();
}

/// Who snoops answers nothing; where its host is gone, TCP finds that out, and the connection ends.
#[test]
fn a_snoop_whose_host_is_gone_ends() {
    let more = "snoop = [\"tcp:0.0.0.0:6655\"]\ninactivity_probe = \"1s\"\n";
    let Some(live) = Live::start("og", "ovs-ofctl", more) else { return };
    let far = Netns::new("og");
    let macs = ["02:00:00:00:0c:00", "02:00:00:00:0c:01"];
    veth((&far, "m1", macs[0]), (&live.switch, "m0", macs[1]), 1500);
    far.address("m1", "10.9.0.2/24");
    live.switch.address("m0", "10.9.0.1/24");
    let (folder, ofctl) = (Scratch::new(), OFCTL.replace("--timeout=10 ", ""));
    let run = format!("env OVS_RUNDIR={} {ofctl} snoop tcp:10.9.0.1:6655", folder.path().display());
    let mut snoop = far.spawn(&run);
    let shown = || live.ctl("show openflow-controllers");
    assert!(wait_until(SOON, || shown().contains("tcp:10.9.0.2:")), "{}", shown());
    // Alive and silent for longer than any probe: it stays.
    assert!(
        !wait_until(Duration::from_secs(6), || !shown().contains("tcp:10.9.0.2:")),
        "{}",
        shown()
    );
    far.ip("link set m1 down");
    assert!(wait_until(SOON, || !shown().contains("tcp:10.9.0.2:")), "{}", shown());
    snoop.stop(Stop::Kill, SOON);
    live.stop();
}

/// ovs-ofctl hears of what others do to flows: by OpenFlow, by `ctl`, by time.
#[test]
fn ovs_ofctl_watches_flows() {
    let Some(live) = Live::start("ow", "ovs-ofctl", "") else { return };
    for version in ["OpenFlow10", "OpenFlow13"] {
        let folder = Scratch::new();
        live.ofctl("add-flow", "priority=7,cookie=0x5,in_port=1,actions=output:2");
        let run = format!(
            "env OVS_RUNDIR={} ovs-ofctl -O {version} monitor {SWITCH} watch: \
             watch:!initial,!add,!modify,ip",
            folder.path().display()
        );
        let mut monitor = live.switch.spawn(&run);
        monitor.wait_for("event=ADDED table=0 cookie=0x5 in_port=1 actions=output:2", SOON);
        // It hears of changes once all of its own requests are answered: one that is repeated says when that is.
        let hears = wait_until(SOON, || {
            live.ofctl("add-flow", "table=2,sctp,actions=drop");
            monitor.output().contains("event=ADDED table=2")
        });
        assert!(hears, "{}", monitor.output());
        live.ofctl("add-flow", "table=0,tcp,tp_dst=0x50/0xfff0,actions=output:1");
        monitor
            .wait_for("event=ADDED table=0 cookie=0 tcp,tp_dst=0x50/0xfff0 actions=output:1", SOON);
        live.ofctl("mod-flows", "tcp,actions=output:2");
        let modified = "event=MODIFIED table=0 cookie=0 tcp,tp_dst=0x50/0xfff0 actions=output:2";
        monitor.wait_for(modified, SOON);
        live.ctl("flow add table=0,arp,actions=flood");
        monitor.wait_for("event=ADDED table=0 cookie=0 arp actions=FLOOD", SOON);
        live.ofctl("add-flow", "hard_timeout=1,udp,actions=drop");
        monitor.wait_for("event=DELETED reason=hard table=0 hard_timeout=1 cookie=0 udp", SOON);
        live.ofctl("del-flows", "");
        monitor.wait_for("event=DELETED reason=delete table=0 cookie=0 arp actions=FLOOD", SOON);
        // Many flows, in several messages.
        let flow = |n: u32| format!("ip,nw_dst=10.1.{}.{},actions=output:1\n", n / 256, n % 256);
        let file = live.scratch.write("many.txt", &(0..3000).map(flow).collect::<String>());
        live.switch.run(&format!("{OFCTL} add-flows {SWITCH} {}", file.display()));
        let count = |text: &str| monitor.output().matches(text).count();
        let before = count("event=DELETED");
        live.ofctl("del-flows", "");
        assert!(wait_until(SOON, || count("event=DELETED") == before + 3000), "{version}");
        assert_eq!(count("nw_dst=10.1."), 6000, "{version}");
        monitor.stop(Stop::Terminate, SOON);
    }
    live.stop();
}

/// The same over TLS, with certificates that openssl makes here.
#[test]
fn a_controller_with_tls_makes_hosts_meet() {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: no openssl");
        return;
    }
    let keys = Scratch::new();
    let openssl = |line: &str| {
        let run = Command::new("openssl").args(line.split(' ')).current_dir(keys.path()).output();
        assert!(run.as_ref().is_ok_and(|run| run.status.success()), "openssl {line}: {run:?}");
    };
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {new} -keyout ca.key -out ca.pem -days 30 -subj /CN=ca"));
    for name in ["switch", "controller"] {
        openssl(&format!(
            "req {new} -keyout {name}.key -out {name}.csr -subj /CN={name} -addext subjectAltName=IP:127.0.0.1"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -days 30 -copy_extensions copy -out {name}.pem"
        ));
    }
    let file = |name: &str| keys.join(name).display().to_string();
    let more = format!(
        "controllers = [\"tls:127.0.0.1:6654\"]\nprivate_key = {:?}\ncertificate = {:?}\n\
         ca_certificate = {:?}\n",
        file("switch.key"),
        file("switch.pem"),
        file("ca.pem")
    );
    let Some(mut live) = Live::start("ot", "ovs-testcontroller", &more) else { return };
    live.program.wait_for("controller 127.0.0.1:6654: ", SOON); // nobody is there yet
    let controller = format!(
        "ovs-testcontroller --unixctl=none -p {} -c {} -C {} pssl:6654:127.0.0.1",
        file("controller.key"),
        file("controller.pem"),
        file("ca.pem")
    );
    let _controller = live.switch.spawn(&controller);
    assert!(live.pings(SOON));
    live.stop();
}

#[test]
fn queues_are_in_front_of_ports() {
    let more = "queues = [\"port=p2,rate=100M\", \"port=p2,queue=1,min_rate=1M,max_rate=10M\"]\n";
    let Some(live) = Live::start("oq", "ovs-ofctl", more) else { return };
    live.switch.run(&format!("{OFCTL} add-flow {SWITCH} in_port=1,actions=set_queue:1,output:2"));
    live.switch.run(&format!("{OFCTL} add-flow {SWITCH} in_port=2,actions=output:1"));
    assert!(live.pings(SOON));
    let stats = live.switch.run(&format!("{OFCTL} queue-stats {SWITCH}"));
    assert!(stats.contains("queue 1:") && !stats.contains("pkts=0"), "{stats}");
    let config = live.switch.run(&format!("{OFCTL} queue-get-config {SWITCH} 2"));
    assert!(config.contains("min_rate:1.0%") && config.contains("max_rate:10.0%"), "{config}");
    let shown = live.ctl("show openflow-queues");
    assert!(shown.contains("p2") && shown.contains("10M"), "{shown}");
    // A controller's packet waits in its queue, too, and leaves.
    let sent = || {
        let shown = live.ctl("show openflow-queues --json");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&shown).expect("JSON");
        rows.iter().find(|row| row["queue"] == 1).expect("queue 1")["packets"].as_u64().unwrap()
    };
    live.ofctl("del-flows", "");
    let frame = "0200000000aa0200000000bb88b5".to_owned() + &"00".repeat(46);
    for (actions, more) in [("set_queue:1,output:2", 1), ("output:2", 0)] {
        let (before, packets) = (live.hosts[1].received("eth0").0, sent());
        live.ofctl("packet-out", &format!("in_port=1,packet={frame},actions={actions}"));
        assert!(wait_until(SOON, || live.hosts[1].received("eth0").0 > before), "{actions}");
        assert_eq!(sent(), packets + more, "{actions}");
    }
    live.ofctl("add-flow", "in_port=2,actions=output:1");
    let ten = OFCTL.replace("OpenFlow13", "OpenFlow10");
    live.switch.run(&format!("{ten} add-flow {SWITCH} in_port=1,actions=enqueue:2:1"));
    assert!(live.pings(SOON));
    for (tool, actions) in [(OFCTL, "set_queue:9,output:2"), (ten.as_str(), "enqueue:1:1")] {
        let run =
            live.switch.try_run(&format!("{tool} add-flow {SWITCH} in_port=1,actions={actions}"));
        let output = String::from_utf8_lossy(&run.stderr);
        assert!(output.contains("OFPBAC_BAD_QUEUE"), "{output}");
    }
    live.stop();
}

#[test]
fn ports_that_come_and_leave_are_told() {
    let Some(live) = Live::start("or", "ovs-ofctl", "") else { return };
    let folder = live.scratch.join("");
    let ofctl = OFCTL.replace("--timeout=10", "--timeout=60");
    let mut monitor = live
        .switch
        .spawn(&format!("env OVS_RUNDIR={} {ofctl} monitor {SWITCH} 65534", folder.display()));
    // It hears of nothing before its SET_CONFIG has come: a change that is repeated says when that was.
    let hears = wait_until(SOON, || {
        live.ofctl("mod-port", "1 no-forward");
        live.ofctl("mod-port", "1 forward");
        monitor.output().contains("MOD: 1(p1)")
    });
    assert!(hears, "{}", monitor.output());
    let id = |shown: &str| {
        shown.split_whitespace().find(|word| word.starts_with("dpid:")).map(String::from)
    };
    let before = live.ofctl("show", "");
    live.switch.ip("link add p0 address 02:00:00:00:00:01 type veth peer name q0");
    live.switch.ip("link set p0 up");
    let path = live.scratch.join("switch.toml");
    let config = std::fs::read_to_string(&path).expect("the configuration");
    std::fs::write(&path, format!("{config}[port.p0]\nbackend = \"af_packet\"\n")).expect("it");
    live.ctl("reload");
    let with_it = live.ofctl("show", "");
    assert!(with_it.contains("3(p0)"), "{with_it}");
    monitor.wait_for("ADD: 3(p0)", SOON);
    std::fs::write(&path, config).expect("it");
    live.ctl("reload");
    let without = live.ofctl("show", "");
    assert!(!without.contains("3("), "{without}");
    monitor.wait_for("DEL: 3(p0)", SOON);
    assert_eq!([id(&with_it), id(&without)], [id(&before), id(&before)]);
    monitor.stop(Stop::Terminate, SOON);
    live.stop();
}

#[test]
fn normal_learns_and_local_is_an_interface_of_linux() {
    let more = "local = \"twin\"\n[port.p3]\nbackend = \"tap\"\ninterface = \"of-p3\"\n\
                [port.twin]\nbackend = \"tap\"\ninterface = \"of-local\"\n";
    let Some(live) = Live::start("on", "ovs-ofctl", more) else { return };
    let shown = live.ofctl("show", "");
    assert!(shown.contains("LOCAL(twin)"), "{shown}");
    live.ofctl("add-flow", "priority=1,actions=NORMAL");
    assert!(live.pings(SOON));
    assert!(live.ctl("show macs").contains("02:00:00:00:0a:00"), "{}", live.ctl("show macs"));
    // A packet of the tool's own is received by port 1, and flooded.
    let frame = "0200000000aa0200000000bb88b5".to_owned() + &"00".repeat(46);
    for actions in ["NORMAL", "TABLE"] {
        let before = live.hosts[1].received("eth0").0;
        live.ofctl("packet-out", &format!("in_port=1,packet={frame},actions={actions}"));
        assert!(wait_until(SOON, || live.hosts[1].received("eth0").0 > before), "{actions}");
    }
    // The switch's own address, by NORMAL and by flows.
    live.switch.ip("address add 10.0.0.9/24 dev of-local");
    let reaches = || wait_until(SOON, || ping(&live.hosts[0], "10.0.0.9", 1) == 1);
    assert!(reaches());
    live.ofctl("del-flows", "");
    live.ofctl("add-flow", "in_port=1,actions=LOCAL");
    live.ofctl("add-flow", "in_port=LOCAL,actions=output:1");
    assert!(reaches());
    let ports = live.ofctl("dump-ports", "LOCAL");
    assert!(ports.contains("LOCAL") && !ports.contains("rx pkts=0,"), "{ports}");
    assert!(!ports.contains("tx pkts=0,") && ports.contains("drop=0"), "{ports}");
    let flows = live.ofctl("dump-flows", "");
    let second = flows.split("duration=").nth(1).and_then(|text| text.split('s').next());
    let digits = second.and_then(|text| text.split_once('.')).map_or(3, |(_, digits)| digits.len());
    assert!(digits <= 3, "milliseconds: {flows}");
    // Where Linux sets its interface down a port is not live: a group goes on with its next bucket.
    live.ofctl("del-flows", "");
    let buckets = "bucket=watch_port:3,output:3,bucket=watch_port:2,output:2";
    live.ofctl("add-group", &format!("group_id=1,type=ff,{buckets}"));
    live.ofctl("add-flow", "in_port=1,actions=group:1");
    live.ofctl("add-flow", "in_port=2,actions=output:1");
    let is = |word: &str| {
        let shown = live.ofctl("show", "");
        let own = shown.split(" 3(p3)").nth(1).expect("the port");
        own.split("state:").nth(1).is_some_and(|rest| rest.trim_start().starts_with(word))
    };
    assert!(is("LIVE"), "{}", live.ofctl("show", ""));
    assert!(!live.pings(Duration::from_millis(500)), "all goes to the third port");
    live.switch.ip("link set of-p3 down");
    assert!(wait_until(SOON, || is("LINK_DOWN")), "{}", live.ofctl("show", ""));
    assert!(live.pings(SOON), "the second bucket");
    live.switch.ip("link set of-p3 up");
    assert!(wait_until(SOON, || is("LIVE")), "{}", live.ofctl("show", ""));
    live.stop();
}

/// A program may have several switches: `--stage` says which one, and each has its datapath identifier.
#[test]
fn a_program_has_several_switches() {
    if !testkit::require_namespaces() {
        return;
    }
    let Some(bin) = testkit::shadeline_bin() else { return };
    let at = Netns::new("o2");
    at.ip("link set lo up");
    let scratch = Scratch::new();
    let socket = scratch.join("ctl.sock");
    let stage = |name: &str, number: u16| {
        format!(
            "[pipeline.of_{name}]\nstages = [\"{name}\"]\n[stage.{name}]\nkind = \"openflow\"\n\
             datapath_id = \"0x{number}\"\nlisten = [\"tcp:127.0.0.1:{}\"]\n",
            6652 + number
        )
    };
    let port =
        |n: u16, name: &str| format!("[port.p{n}]\nbackend = \"tap\"\npipeline = \"of_{name}\"\n");
    let config = format!(
        "mode = \"of_first\"\n[system]\nsocket = {socket:?}\n{}{}{}{}{}{}",
        stage("first", 1),
        stage("second", 2),
        port(1, "first"),
        port(2, "first"),
        port(3, "second"),
        port(4, "second"),
    );
    let path = scratch.write("switches.toml", &config);
    let mut program = at.spawn(&format!("{} run {}", bin.display(), path.display()));
    program.wait_for("running: ", SOON);
    let ctl = |words: &str| {
        let output =
            at.try_run(&format!("{} ctl --socket {} {words}", bin.display(), socket.display()));
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    for (stage, flow) in
        [("first", "in_port=1,actions=output:2"), ("second", "in_port=3,actions=output:4")]
    {
        let (is_done, said) = ctl(&format!("flow add --stage {stage} {flow}"));
        assert!(is_done, "{said}");
    }
    for command in ["flow dump", "show openflow-flows"] {
        let (_, of_first) = ctl(&format!("{command} --stage first"));
        assert!(of_first.contains("output:2") && !of_first.contains("output:4"), "{of_first}");
        let (_, of_second) = ctl(&format!("{command} --stage second"));
        assert!(of_second.contains("output:4") && !of_second.contains("output:2"), "{of_second}");
        let (is_done, said) = ctl(command);
        assert!(!is_done && said.contains("`--stage first` or `--stage second`"), "{said}");
        let (is_done, said) = ctl(&format!("{command} --stage third"));
        assert!(!is_done && said.contains("there is no stage `third`"), "{said}");
    }
    if testkit::require_tool("ovs-ofctl").is_some() {
        for number in [1, 2] {
            let shown = at.run(&format!("{OFCTL} show tcp:127.0.0.1:{}", 6652 + number));
            assert!(shown.contains(&format!("dpid:{number:016x}")), "{shown}");
        }
        // The links of TAPs are watched where no port has another interface, too.
        let state = || at.run(&format!("{OFCTL} show tcp:127.0.0.1:6653"));
        let down = || state().contains("LINK_DOWN");
        assert!(!down(), "{}", state());
        at.ip("link set p1 down");
        assert!(wait_until(SOON, down), "{}", state());
        at.ip("link set p1 up");
        assert!(wait_until(SOON, || !down()), "{}", state());
        // One that goes to another namespace is up, whatever its state is there.
        let other = Netns::new("o3");
        at.ip("link set p2 down");
        assert!(wait_until(SOON, down), "{}", state());
        at.ip(&format!("link set p2 netns {}", other.name()));
        assert!(wait_until(SOON, || !down()), "{}", state());
    }
    let (status, output) = program.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{output}");
}

/// Several workers keep the packets of a flow in their order, through tables and a group.
#[test]
fn flows_keep_their_order() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    let Some(live) = Live::start("oo", "ovs-ofctl", "") else { return };
    live.ofctl("add-group", "group_id=1,type=select,bucket=output:2,bucket=output:2");
    live.ofctl("add-flow", "in_port=1,actions=goto_table:1");
    live.ofctl("add-flow", "table=1,udp,actions=mod_nw_tos:8,group:1");
    live.ofctl("add-flow", "table=1,priority=1,actions=output:2");
    live.ofctl("add-flow", "in_port=2,actions=output:1");
    assert!(live.pings(SOON));
    let mut server = live.hosts[1].spawn("iperf3 -s -1 --forceflush");
    server.wait_for("listening", SOON);
    let said = live.hosts[0].run("iperf3 -c 10.0.0.2 -t 2 --json -u -l 64 -b 1M -P 8");
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let streams = said["end"]["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 8);
    for stream in streams {
        let udp = &stream["udp"];
        assert!(udp["packets"].as_u64() > Some(1000), "{udp}");
        assert_eq!(udp["out_of_order"].as_u64(), Some(0), "{udp}");
    }
    live.stop();
}

#[test]
fn without_a_controller_the_switch_learns() {
    let more = "controllers = [\"tcp:127.0.0.1:6654\"]\nfail_mode = \"standalone\"\n\
                inactivity_probe = \"500ms\"\n";
    let Some(live) = Live::start("os", "ovs-testcontroller", more) else { return };
    assert!(live.pings(SOON), "nobody is there: NORMAL");
    let controllers = live.ctl("show openflow-controllers");
    assert!(controllers.contains("disconnected"), "{controllers}");
    assert!(controllers.contains("refused"), "{controllers}");
    live.ofctl("add-flow", "priority=60000,icmp,actions=drop");
    assert!(live.pings(SOON), "flows wait for a controller");
    let traced = live.ctl("flow trace in_port=1,icmp");
    assert!(traced.ends_with("all packets go to NORMAL\nsent to: NORMAL\n"), "{traced}");
    let run = "ovs-testcontroller --unixctl=none ptcp:6654:127.0.0.1";
    let mut controller = live.switch.spawn(run);
    let is_connected = || {
        let shown = live.ctl("show openflow-controllers");
        shown.contains(" connected") && shown.contains("equal") && shown.contains("1.3")
    };
    assert!(wait_until(SOON, is_connected), "{}", live.ctl("show openflow-controllers"));
    assert!(!live.pings(Duration::from_millis(500)), "a flow drops it");
    live.ofctl("--strict del-flows", "priority=60000,icmp");
    assert!(live.pings(SOON), "the controller forwards it");
    controller.stop(Stop::Terminate, SOON);
    live.ofctl("del-flows", "");
    assert!(live.pings(SOON), "NORMAL again");
    let log = live.program.output();
    for line in ["cannot be reached", ": connected, OpenFlow 1.3", "disconnected", "go to NORMAL"] {
        assert!(log.contains(line), "{line} in\n{log}");
    }
    live.stop();
}
