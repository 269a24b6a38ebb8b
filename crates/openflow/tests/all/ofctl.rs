//! ovs-ofctl, unchanged, against an agent on a TCP socket of the loopback.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use openflow::agent::Settings;
use openflow::flow::{InReason, PacketIn};
use openflow::serve::{Channels, SocketEvent};
use openflow::{Field, Match, PortNo};

use crate::plain::Plain;

/// A switch on a socket, with a thread of its own.
struct Served {
    address: String,
    switch: Arc<Mutex<Plain>>,
}

fn serve() -> Served {
    serve_with(&[], Plain::new())
}

/// Ends when nobody has the switch any more.
fn serve_with(controllers: &[String], switch: Plain) -> Served {
    let (sender, events) = std::sync::mpsc::sync_channel::<SocketEvent>(16);
    let mut channels =
        Channels::new(Settings::default(), Arc::new(move |event| sender.send(event).is_ok()));
    let address = channels.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    controllers.iter().for_each(|controller| channels.add_controller(controller));
    let switch = Arc::new(Mutex::new(switch));
    let shared = switch.clone();
    std::thread::spawn(move || {
        let start = Instant::now();
        while Arc::strong_count(&shared) > 1 {
            channels.tick(start.elapsed());
            if let Ok(event) = events.recv_timeout(Duration::from_millis(50)) {
                let mut switch = shared.lock().unwrap();
                channels.event(event, &mut *switch, start.elapsed());
            }
            let packets = std::mem::take(&mut shared.lock().unwrap().for_controller);
            for packet in packets {
                channels.agent().packet_in(&packet, None, start.elapsed());
            }
            channels.flush(start.elapsed());
        }
    });
    Served { address: format!("tcp:{address}"), switch }
}

/// There is an ovs-ofctl on this machine.
pub(crate) fn is_there() -> bool {
    let there = Command::new("ovs-ofctl").arg("--version").output().is_ok();
    if !there {
        println!("skipped: no ovs-ofctl");
    }
    there
}

impl Served {
    /// Output of `ovs-ofctl ARGUMENTS`, where `SWITCH` is replaced; standard error first.
    fn ofctl(&self, arguments: &[&str]) -> String {
        let arguments = arguments.iter().map(|a| if *a == "SWITCH" { &self.address } else { *a });
        let run = Command::new("ovs-ofctl").arg("--timeout=20").args(arguments).output().unwrap();
        let text = [run.stderr, run.stdout].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn ok(&self, arguments: &[&str]) {
        assert_eq!(self.ofctl(arguments), "", "{arguments:?}");
    }
}

fn versions() -> [&'static str; 2] {
    ["OpenFlow10", "OpenFlow13"]
}

#[test]
fn shows_the_switch() {
    if !is_there() {
        return;
    }
    let switch = serve();
    for version in versions() {
        let shown = switch.ofctl(&["-O", version, "show", "SWITCH"]);
        for part in [
            "dpid:0000020000000001",
            "n_tables:4",
            "n_buffers:256",
            "1(eth1): addr:02:00:00:00:00:01",
        ] {
            assert!(shown.contains(part), "{version}: {part} in\n{shown}");
        }
        for command in ["dump-desc", "dump-tables", "dump-ports", "dump-ports-desc", "queue-stats"]
        {
            let shown = switch.ofctl(&["-O", version, command, "SWITCH"]);
            assert!(
                shown.contains("OFPST_") && !shown.contains("OFPT_ERROR"),
                "{command}: {shown}"
            );
        }
    }
    let features = switch.ofctl(&["-O", "OpenFlow13", "dump-table-features", "SWITCH"]);
    assert!(features.contains("table 3"), "{features}");
    for command in [
        "dump-groups",
        "dump-group-features",
        "dump-group-stats",
        "dump-meters",
        "meter-features",
        "meter-stats",
    ] {
        let shown = switch.ofctl(&["-O", "OpenFlow13", command, "SWITCH"]);
        assert!(shown.contains("OFPST_") && !shown.contains("OFPT_ERROR"), "{command}: {shown}");
    }
}

#[test]
fn changes_flows() {
    if !is_there() {
        return;
    }
    for version in versions() {
        let switch = serve();
        switch.ok(&[
            "-O",
            version,
            "add-flow",
            "SWITCH",
            "priority=10,tcp,nw_src=10.0.0.0/8,tp_dst=80,actions=mod_nw_dst:1.2.3.4,output:2",
        ]);
        switch.ok(&["-O", version, "add-flow", "SWITCH", "priority=9,in_port=1,actions=output:3"]);
        switch.ok(&["-O", version, "mod-flows", "SWITCH", "in_port=1,actions=NORMAL"]);
        let dump = switch.ofctl(&["-O", version, "--no-stats", "dump-flows", "SWITCH"]);
        assert!(dump.contains("priority=9,in_port=1 actions=NORMAL"), "{dump}");
        assert!(dump.contains("priority=10,tcp,nw_src=10.0.0.0/8,tp_dst=80"), "{dump}");
        let sum = switch.ofctl(&["-O", version, "dump-aggregate", "SWITCH"]);
        assert!(sum.contains("flow_count=2"), "{sum}");
        switch.ok(&["-O", version, "del-flows", "SWITCH", "tcp"]);
        assert_eq!(switch.switch.lock().unwrap().flows.len(), 1);
        switch.ok(&["-O", version, "--strict", "del-flows", "SWITCH", "priority=9,in_port=1"]);
        assert_eq!(switch.switch.lock().unwrap().flows.len(), 0);
    }
}

/// Masks of ports and fields of IPv6 go by both versions: in 1.0 with Nicira's extension, which ovs-ofctl asks for by itself.
#[test]
fn flows_with_masks_and_of_ipv6() {
    if !is_there() {
        return;
    }
    for version in versions() {
        let switch = serve();
        let flows = [
            "priority=9,tcp,tp_dst=0x50/0xfff0",
            "priority=8,ipv6,ipv6_dst=fe80::/16",
            "priority=7,udp,nw_src=10.0.0.1/255.0.255.255,tp_src=0x100/0xff00",
        ];
        for flow in flows {
            switch.ok(&["-O", version, "add-flow", "SWITCH", &format!("{flow},actions=output:2")]);
        }
        let dump = switch.ofctl(&["-O", version, "--no-stats", "dump-flows", "SWITCH"]);
        for flow in flows {
            assert!(
                dump.contains(&format!("{flow} actions=output:2")),
                "{version}: {flow} in {dump}"
            );
        }
        let sum = switch.ofctl(&["-O", version, "dump-aggregate", "SWITCH", "ipv6"]);
        assert!(sum.contains("flow_count=1"), "{sum}");
        switch.ok(&["-O", version, "mod-flows", "SWITCH", "ipv6,ipv6_dst=fe80::/16,actions=drop"]);
        let dump = switch.ofctl(&["-O", version, "--no-stats", "dump-flows", "SWITCH", "ipv6"]);
        assert!(dump.contains("ipv6_dst=fe80::/16 actions=drop"), "{dump}");
        switch.ok(&["-O", version, "del-flows", "SWITCH", "tcp,tp_dst=0x50/0xfff0"]);
        assert_eq!(switch.switch.lock().unwrap().flows.len(), 2);
    }
}

/// `ovs-ofctl monitor SWITCH watch:` prints what becomes of flows.
#[test]
fn watches_flows() {
    if !is_there() {
        return;
    }
    for version in versions() {
        let switch = serve();
        let add = |flow: &str| switch.ok(&["-O", "OpenFlow13", "add-flow", "SWITCH", flow]);
        add(
            "priority=5,cookie=7,idle_timeout=60,tcp,nw_dst=10.0.0.0/8,tp_dst=80,dl_vlan=5,actions=output:1",
        );
        add("priority=6,icmp6,ipv6_src=fe80::/16,icmp_type=135,nd_target=fe80::1,actions=output:2");
        add(
            "priority=7,arp,arp_op=1,arp_spa=10.0.0.1,vlan_tci=0x0000/0x1000,metadata=5/7,tun_id=9,actions=drop",
        );
        let folder = std::env::temp_dir().join(format!("watch-{}-{version}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = std::fs::File::create(folder.join("out.txt")).unwrap();
        let mut monitor = Command::new("ovs-ofctl")
            .args(["-O", version, "monitor", &switch.address, "watch:", "watch:!initial,table=3"])
            .env("OVS_RUNDIR", &folder)
            .stderr(file.try_clone().unwrap())
            .stdout(file)
            .spawn()
            .unwrap();
        let output = || std::fs::read_to_string(folder.join("out.txt")).unwrap_or_default();
        let wait_for = |text: &str| {
            let start = Instant::now();
            while !output().contains(text) {
                let is_soon = start.elapsed() < Duration::from_secs(20);
                assert!(is_soon, "{version}: {text} in\n{}", output());
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        for flow in [
            "event=ADDED table=0 idle_timeout=60 cookie=0x7 tcp,dl_vlan=5,nw_dst=10.0.0.0/8,tp_dst=80 \
             actions=output:1",
            "event=ADDED table=0 cookie=0 icmp6,ipv6_src=fe80::/16,icmp_type=135,nd_target=fe80::1 \
             actions=output:2",
            "event=ADDED table=0 cookie=0 arp,tun_id=0x9,metadata=0x5/0x7,vlan_tci=0x0000/0x1000,\
             arp_spa=10.0.0.1,arp_op=1",
        ] {
            wait_for(flow);
        }
        // It hears of changes once all of its own requests are answered: one that is repeated says when that is.
        let start = Instant::now();
        while !output().contains("event=ADDED table=2") && start.elapsed().as_secs() < 20 {
            add("table=2,sctp,actions=drop");
            std::thread::sleep(Duration::from_millis(50));
        }
        add("table=3,udp,tp_dst=0x50/0xfff0,actions=output:3");
        wait_for("event=ADDED table=3 cookie=0 udp,tp_dst=0x50/0xfff0 actions=output:3");
        switch.ok(&["-O", "OpenFlow13", "mod-flows", "SWITCH", "table=0,tcp,actions=output:2"]);
        wait_for("event=MODIFIED table=0 idle_timeout=60 cookie=0x7 tcp,");
        switch.ok(&["-O", "OpenFlow13", "del-flows", "SWITCH"]);
        wait_for("event=DELETED reason=delete table=3 cookie=0 udp");
        assert!(!output().contains("***"), "{}", output());
        monitor.kill().unwrap();
        monitor.wait().unwrap();
        let _ = std::fs::remove_dir_all(&folder);
    }
}

#[test]
fn files_bundles_groups_and_meters() {
    if !is_there() {
        return;
    }
    let switch = serve();
    let folder = std::env::temp_dir().join(format!("openflow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("flows.txt");
    let name = file.to_str().unwrap();
    let flows: String = (0..2000)
        .map(|n| format!("priority={n},ip,nw_dst=10.0.{}.{},actions=output:1\n", n / 256, n % 256))
        .collect();
    std::fs::write(&file, &flows).unwrap();
    switch.ok(&["-O", "OpenFlow13", "add-flows", "SWITCH", name]);
    assert_eq!(switch.switch.lock().unwrap().flows.len(), 2000);
    // The whole dump is as the file says.
    switch.ok(&["-O", "OpenFlow13", "diff-flows", "SWITCH", name]);
    // A bundle with a wrong flow changes nothing.
    std::fs::write(&file, "table=1,actions=drop\ntable=2,actions=goto_table:1\n").unwrap();
    let failed = switch.ofctl(&["-O", "OpenFlow13", "--bundle", "add-flows", "SWITCH", name]);
    assert!(failed.contains("OFPBIC_BAD_TABLE_ID") || failed.contains("goto_table"), "{failed}");
    assert_eq!(switch.switch.lock().unwrap().flows.len(), 2000);
    std::fs::write(&file, "table=1,actions=drop\npriority=1,ipv6,actions=output:2\n").unwrap();
    switch.ok(&["-O", "OpenFlow13", "--bundle", "replace-flows", "SWITCH", name]);
    assert_eq!(switch.switch.lock().unwrap().flows.len(), 2);
    switch.ok(&["-O", "OpenFlow13", "replace-flows", "SWITCH", "/dev/null"]);
    assert_eq!(switch.switch.lock().unwrap().flows.len(), 0);

    switch.ok(&[
        "-O",
        "OpenFlow13",
        "add-group",
        "SWITCH",
        "group_id=7,type=select,bucket=weight:2,output:1,bucket=weight:1,output:2",
    ]);
    let groups = switch.ofctl(&["-O", "OpenFlow13", "dump-groups", "SWITCH"]);
    assert!(groups.contains("group_id=7,type=select,bucket=weight:2"), "{groups}");
    let twice = switch.ofctl(&[
        "-O",
        "OpenFlow13",
        "add-group",
        "SWITCH",
        "group_id=7,type=all,bucket=output:1",
    ]);
    assert!(twice.contains("OFPGMFC_GROUP_EXISTS"), "{twice}");
    switch.ok(&[
        "-O",
        "OpenFlow13",
        "add-meter",
        "SWITCH",
        "meter=3,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=50",
    ]);
    let meters = switch.ofctl(&["-O", "OpenFlow13", "dump-meters", "SWITCH"]);
    assert!(meters.contains("meter=3 kbps burst stats bands="), "{meters}");
    switch.ok(&["-O", "OpenFlow13", "mod-port", "SWITCH", "eth2", "down"]);
    switch.ok(&[
        "-O",
        "OpenFlow13",
        "packet-out",
        "SWITCH",
        "in_port=1,packet=ffffffffffff0200000000010800,actions=output:2",
    ]);
    assert_eq!(switch.switch.lock().unwrap().sent.len(), 1);
    let probe = switch.ofctl(&["-O", "OpenFlow13", "probe", "SWITCH"]);
    assert_eq!(probe, "");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Gives flows to `ovs-ofctl add-flows`, and returns what the switch got.
pub(crate) fn add_flows(text: &str) -> Vec<openflow::flow::FlowStats> {
    use std::process::Stdio;
    let switch = serve();
    let mut run = Command::new("ovs-ofctl")
        .args(["-O", "OpenFlow13", "add-flows", &switch.address, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    run.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let mut got = switch.switch.lock().unwrap();
    std::mem::take(&mut got.flows)
}

/// ovs-testcontroller, a learning switch in a controller, is reached, goes and comes again.
#[test]
fn a_controller_is_reached() {
    if Command::new("ovs-testcontroller").arg("--version").output().is_err() {
        println!("skipped: no ovs-testcontroller");
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut first = frame([2, 0, 0, 0, 0, 9]);
    first.extend([0; 46]);
    let packet = PacketIn {
        buffer_id: None,
        total_len: first.len() as u16,
        reason: InReason::NoMatch,
        table: 0,
        cookie: u64::MAX,
        matches: Match::new().with(Field::InPort, 1_u32),
        data: first.clone(),
    };
    let served = serve_with(&[free.to_string()], Plain::new());
    for _ in 0..2 {
        let run = Command::new("ovs-testcontroller")
            .args(["--unixctl=none", &format!("ptcp:{}:127.0.0.1", free.port())])
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut controller = run.unwrap();
        // It floods what it does not know: the packet comes back.
        let start = Instant::now();
        let sent = loop {
            served.switch.lock().unwrap().for_controller.push(packet.clone());
            std::thread::sleep(Duration::from_millis(50));
            if let Some(sent) = served.switch.lock().unwrap().sent.pop() {
                break sent;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no PACKET_OUT");
        };
        controller.kill().unwrap();
        controller.wait().unwrap();
        assert_eq!((sent.in_port, &sent.data), (PortNo(1), &first));
        assert_eq!(sent.actions, [openflow::Action::output(PortNo::FLOOD)]);
        std::thread::sleep(Duration::from_millis(200));
        served.switch.lock().unwrap().sent.clear();
    }
}

/// An Ethernet header from a station, to one that nobody knows.
fn frame(from: [u8; 6]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 0xaa][..], &from, &[0x08, 0x00]].concat()
}
