//! Changes while traffic flows: tables that flap, a configuration that is reloaded, a router that is
//! killed, an interface that vanishes. And failures inside: control that panics, no memory, a log that nobody reads.

mod common;

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{BACKENDS, Live, SOON, STARTED, config, config_of, is_change, ping};
use control::api::{Client, ClientError, ErrorKind, Request};
use testkit::netns::Topology;
use testkit::process::Stop;
use testkit::{Scratch, wait_until};

/// Sends at half the measured rate while `change` runs again and again; nothing may be lost. What the kernel's receive
/// queue lost, for want of a processor, is counted as such and says nothing about changes: then once more, more slowly.
fn loses_nothing(live: &Live, what: &str, mut change: impl FnMut(u32)) {
    live.count_udp();
    let mut rate = live.measured_rate() / 2.0;
    for _ in 0..4 {
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        let count = (rate * 3.0) as u64;
        let before = live.counted_udp();
        // What was lost at full speed says nothing here.
        live.ctl("clear counters");
        let mut sender = live.flood(&format!("{:.0}pps", rate.max(1.0)), count);
        let mut changes = 0;
        while sender.is_running() {
            change(changes);
            changes += 1;
        }
        let (status, said) = sender.wait(SOON);
        assert!(status.success(), "{said}");
        let arrived = || live.counted_udp() - before;
        wait_until(Duration::from_secs(3), || arrived() >= count);
        let (arrived, drops) = (arrived(), live.drops());
        let missed: u64 = drops.iter().filter(|drop| drop.0 == "rx_full").map(|drop| drop.1).sum();
        assert!(changes >= 3, "{what}: only {changes} changes in three seconds");
        assert_eq!(arrived + missed, count, "{what}, {changes} times at {rate:.0}/s: {drops:?}");
        println!(
            "{what}: {count} packets at {rate:.0} packets/s, {changes} changes, {missed} missed"
        );
        if missed == 0 {
            return;
        }
        rate /= 2.0;
    }
    panic!("{what}: the kernel's queue was full at any rate");
}

#[test]
fn a_flapping_table_loses_nothing() {
    // A table of some thousand prefixes of many lengths, the one in use among them, there and away.
    let more = "[[routes]]\nfile = \"table.txt\"\n";
    let scratch = testkit::Scratch::new();
    let table = scratch.join("table.txt");
    let more = more.replace("table.txt", &table.display().to_string());
    let mut whole = String::from("10.0.2.2/32 10.0.2.2\n0.0.0.0/0 10.0.2.2\n");
    for i in 0..8192u32 {
        let len = 16 + i % 17;
        let address = (20 << 24 | i << 11) & (u32::MAX << (32 - len));
        whole += &format!("{}/{len} 10.0.2.2\n", std::net::Ipv4Addr::from_bits(address));
    }
    std::fs::write(&table, &whole).expect("a table");
    let Some(live) = Live::start("flap", "af_packet", &more) else { return };
    if testkit::require_tool("nft").is_none() {
        return;
    }
    let routes = || live.ctl("show routes").lines().count();
    let (full, mut least) = (routes(), usize::MAX);
    assert!(full > 5000, "{full} routes");
    loses_nothing(&live, "a table flapped", |i| {
        std::fs::write(&table, if i % 2 == 0 { "# empty\n" } else { &whole }).expect("a table");
        live.ctl("reload");
        if i == 0 {
            least = routes();
        }
    });
    assert!(least < 100, "{least} routes while the table was away");
}

#[test]
fn flapping_routes_lose_nothing() {
    let Some(live) = Live::start("flap1", "af_packet", "") else { return };
    if testkit::require_tool("nft").is_none() {
        return;
    }
    loses_nothing(&live, "routes flapped", |i| {
        // A more specific route for the very addresses that are in use, there and away again.
        let args =
            if i % 2 == 0 { "route replace 10.0.2.2/32 10.0.2.2" } else { "route del 10.0.2.2/32" };
        live.ctl(args);
        live.ctl("route replace 0.0.0.0/0 10.0.2.2");
    });
}

/// How many packets of a stream of 10,000 a second are lost while `change` runs once.
fn lost_of_a_stream(live: &Live, what: &str, change: impl FnOnce()) -> u64 {
    const COUNT: u64 = 20_000;
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let before = live.counted_udp();
    let mut sender = live.flood("10kpps", COUNT);
    let flows = || live.counted_udp() > before + 1000;
    assert!(wait_until(SOON, flows), "{what}: {}", sender.output());
    change();
    let (status, said) = sender.wait(SOON);
    assert!(status.success(), "{said}");
    let mut last = u64::MAX;
    wait_until(Duration::from_secs(3), || {
        let now = live.counted_udp();
        now == before + COUNT || std::mem::replace(&mut last, now) == now
    });
    let lost = before + COUNT - live.counted_udp();
    println!("{what}: {lost} of {COUNT} packets lost at 10,000 packets/s");
    lost
}

/// Neighbours that are forgotten again right after they were found are asked for again, and their same answer counts:
/// otherwise packets wait until the resolver asks by itself, or until they have waited for too long.
#[test]
fn two_changes_of_a_neighbour_cost_no_more_than_two_times_one() {
    // Answers that a kernel loses while a link comes up are nobody's defect here: those are waited for 100 ms, not 1 s.
    let more = "[router]\nneighbour_retry = \"100ms\"\nneighbour_attempts = 30\n";
    let Some(live) = Live::start("twice", "af_packet", more) else { return };
    if testkit::require_tool("nft").is_none() {
        return;
    }
    live.count_udp();
    let batch = |lines: &str| {
        live.net.router.shell(&format!("ip -batch - <<'END'\n{lines}END"));
    };
    let flap = || batch("link set right down\nlink set right up\n");
    let one = lost_of_a_stream(&live, "one flap", flap);
    // Packets of a neighbour that nobody asks for wait three seconds.
    let bound = one * 2 + 4000;
    for pause in [0, 10, 30, 60] {
        let what = format!("two flaps, {pause} ms between them");
        let lost = lost_of_a_stream(&live, &what, || {
            flap();
            std::thread::sleep(Duration::from_millis(pause));
            flap();
        });
        assert!(lost <= bound, "{what}: {lost} lost, {one} by a single flap: {:?}", live.drops());
    }
    let neighbour = "neigh replace 10.0.2.2 lladdr 02:00:00:00:02:02 dev sl-right nud permanent\n\
                     neigh del 10.0.2.2 dev sl-right\n";
    for pause in [0, 20, 60] {
        let what = format!("a neighbour set and deleted twice, {pause} ms between them");
        let lost = lost_of_a_stream(&live, &what, || {
            batch(neighbour);
            std::thread::sleep(Duration::from_millis(pause));
            batch(neighbour);
        });
        assert!(lost <= bound, "{what}: {lost} lost: {:?}", live.drops());
    }
}

#[test]
fn a_reload_loses_nothing() {
    let Some(live) = Live::start("reload", "af_packet", "") else { return };
    if testkit::require_tool("nft").is_none() {
        return;
    }
    loses_nothing(&live, "configuration reloaded", |i| {
        let more = format!("[[route]]\nprefix = \"172.16.{}.0/24\"\nvia = \"10.0.2.2\"\n", i % 200);
        live.scratch.write("router.toml", &config(&live.scratch, "af_packet", &more));
        let said = live.ctl("reload");
        assert!(said.contains("172.16."), "{said}");
        std::thread::sleep(Duration::from_millis(100));
    });
    // A file with a mistake changes nothing and says why.
    live.scratch.write("router.toml", "mode = \"roter\"\n");
    let (ok, said) = live.try_ctl("reload");
    assert!(!ok && said.contains("router"), "{said}");
    assert_eq!(ping(&live.net.left, "10.0.2.2", 3), 3);
}

#[test]
fn a_killed_router_leaves_nothing_and_comes_back() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("kill", backend, "") else { return };
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        let load = live.net.left.spawn("ping -n -q -i 0.002 10.0.2.2");
        std::thread::sleep(Duration::from_millis(300));
        live.router.signal(Stop::Kill);
        live.router.wait(SOON);
        // Twins, XDP programs and the closing table went with the process.
        nothing_stays(&live, backend);
        if testkit::require_tool("nft").is_some() {
            let rules = live.net.router.run("nft list ruleset");
            assert!(rules.trim().is_empty(), "{backend}: {rules}");
        }
        // How long it takes depends on the machine, and is printed.
        let begin = Instant::now();
        live.restart();
        let back = wait_until(SOON, || {
            let output = live.net.left.try_run("ping -n -c 1 -W 1 10.0.2.2");
            output.status.success()
        });
        let took = begin.elapsed();
        assert!(
            back,
            "{backend}: not forwarding {took:?} after its start\n{}",
            live.router.output()
        );
        println!("{backend}: forwarded again {took:?} after its start");
        drop(load);
        live.stop();
        nothing_stays(&live, backend);
    }
}

/// Neither a twin nor an XDP program is on the router.
fn nothing_stays(live: &Live, backend: &str) {
    let links = live.net.router.ip("-o link");
    assert!(!links.contains(": sl-") && !links.contains("xdp"), "{backend}: {links}");
}

#[test]
fn an_interface_that_vanishes_takes_only_its_routes() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("vanish", backend, "") else { return };
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        // Deleting one end of a veth pair deletes the other.
        live.net.right.ip("link del eth0");
        let gone = wait_until(SOON, || {
            live.ctl("show interfaces").lines().any(|l| l.contains("right") && l.contains("gone"))
        });
        assert!(gone, "{backend}: {}", live.ctl("show interfaces"));
        assert!(live.try_ctl("route get 10.0.2.2").1.contains("no route to 10.0.2.2"));
        assert_eq!(ping(&live.net.left, "10.0.1.1", 3), 3, "{backend}: the other port works");
        let output = live.net.left.try_run("ping -n -c 1 -W 1 10.0.2.2");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Unreachable"), "{backend}: {text}");
        assert!(live.router.is_running());
        let said = live.stop();
        assert_eq!(said.matches("port right: down").count(), 1, "{backend}: {said}");
    }
}

/// A port that would not open again is not closed: what others have in Linux by its twin stays.
#[test]
fn a_refused_change_of_a_port_leaves_its_twin() {
    let Some(mut live) = Live::start("refused", "af_packet", "") else { return };
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    live.net.router.ip("route add 10.77.0.0/16 dev sl-left");
    live.net.router.ip("address add 10.78.0.1/24 dev sl-left");
    let in_linux =
        || ["-o link show sl-left", "route", "-o address"].map(|what| live.net.router.ip(what));
    let before = in_linux();
    let file = config(&live.scratch, "af_packet", "");
    for (more, reason) in [
        ("interface = \"eth9\"", "port left: this machine has no interface `eth9`"),
        ("twin = \"lo\"", "port left: `lo`: an interface of this name exists"),
    ] {
        let other = file.replace("[port.left]\n", &format!("[port.left]\n{more}\n"));
        live.scratch.write("router.toml", &other);
        let (good, said) = live.try_ctl("reload");
        assert!(!good && said.contains(reason), "{said}");
        assert_eq!(in_linux(), before, "{more}");
    }
    // Of twins that change their names, one has the name that the other had.
    let other = file
        .replace("[port.left]\n", "[port.left]\ntwin = \"sl-right\"\n")
        .replace("[port.right]\n", "[port.right]\ntwin = \"sl-left\"\n");
    live.scratch.write("router.toml", &other);
    let (good, said) = live.try_ctl("reload");
    assert!(good, "{said}");
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    // Who has an interface is known to others, wherever its socket is.
    let socket = live.scratch.join("other.sock");
    let second = format!(
        "[system]\nsocket = \"{}\"\n[port.x]\ninterface = \"left\"\ntwin = false\n",
        socket.display()
    );
    let path = live.scratch.write("second.toml", &second);
    let output =
        live.net.router.try_run(&format!("{} check --live {}", live.bin.display(), path.display()));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("port x: `left`: another instance (pid "), "{said}");
    live.stop();
}

#[test]
fn an_mtu_changed_live_is_followed() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("mtu", backend, "") else { return };
        let left = &live.net.left;
        assert!(wait_until(Duration::from_secs(5), || ping(left, "10.0.2.2", 1) == 1));
        let has = |mtu: u32| {
            let twin = live.net.router.ip("link show sl-right");
            let rows = live.ctl("show interfaces");
            let row = rows.lines().find(|l| l.contains(" right ")).unwrap_or_default();
            twin.contains(&format!("mtu {mtu}")) && row.contains(&format!(" {mtu} "))
        };
        // Of the interface, which the configuration leaves open.
        live.net.right.ip("link set eth0 mtu 1400");
        live.net.router.ip("link set right mtu 1400");
        let followed = wait_until(Duration::from_secs(5), || has(1400));
        assert!(followed, "{backend}: {}", live.ctl("show interfaces"));
        let _ = left.try_run("ping -n -M do -c 2 -i 0.2 -W 1 -s 1440 10.0.2.2");
        let route = left.ip("-4 route get 10.0.2.2");
        assert!(route.contains("mtu 1400"), "{backend}: {route}");
        // Of the configuration.
        live.scratch.write("router.toml", &config(&live.scratch, backend, "mtu = 1300\n"));
        live.ctl("reload");
        assert!(has(1300), "{backend}: {}", live.ctl("show interfaces"));
        live.stop();
    }
}

#[test]
fn a_reload_speaks_of_what_runs() {
    let Some(mut live) = Live::start("speak", "af_packet", "") else { return };
    let text = config(&live.scratch, "af_packet", "");
    let reload = |from: &str, to: &str| {
        live.scratch.write("router.toml", &text.replace(from, to));
        live.ctl("reload")
    };
    // Reported at each reload until the file is restored.
    let pending = "needs a restart, not applied: system.cells: 16384 -> 8192";
    for _ in 0..2 {
        let said = reload("workers = 1\n", "workers = 1\ncells = 8192\n");
        assert_eq!(said.matches("system.cells").count(), 1, "{said}");
        assert!(said.contains(pending), "{said}");
    }
    assert!(reload("", "").contains("nothing changed"));
    let said = reload("workers = 1\n", "workers = 1\nlog = \"warn\"\n");
    assert!(said.contains("system.log: info -> warn"), "{said}");
    let more = "[port.more]\nbackend = \"tap\"\ninterface = \"lo\"\n";
    live.scratch.write("router.toml", &(text.clone() + more));
    let (ok, said) = live.try_ctl("reload");
    assert!(!ok && said.contains("port more: "), "{said}");
    let log = live.router.output();
    assert!(!log.contains("info -> warn"), "logged at the new level: {log}");
    let lines: Vec<_> = log.lines().filter(|line| line.contains("reloaded: ")).collect();
    assert_eq!(lines.len(), 4, "one line each: {log}");
    assert!(lines[0].contains(pending), "{log}");

    // A second one on the same configuration.
    live.scratch.write("router.toml", &text);
    let path = live.scratch.join("router.toml");
    let command = format!("{} run {} --duration 1s", live.bin.display(), path.display());
    let second = live.net.router.try_run(&command);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("an instance is already running"), "{said}");
    let stop = format!("`shadeline ctl --socket {} stop`", live.scratch.join("ctl.sock").display());
    assert!(said.contains(&stop), "{said}");
    live.stop();
}

/// What fails when the ports are open already: they get back what they had.
#[test]
fn a_start_that_fails_late_leaves_ports_as_they_were() {
    for backend in ["af_packet", "af_xdp"] {
        let Some(mut live) = Live::start("late", backend, "") else { return };
        live.stop();
        let features = || {
            let ipv6 = live.net.router.run("sysctl -n net.ipv6.conf.left.disable_ipv6");
            (ipv6, live.net.router.run("ethtool -k left"))
        };
        let before = features();
        let text = config(&live.scratch, backend, "");
        // An address that nobody here has.
        let text = text.replace("[system]\n", "[system]\nmetrics = \"192.0.2.77:9333\"\n");
        let path = live.scratch.write("late.toml", &text);
        let command = format!("{} run {}", live.bin.display(), path.display());
        let output = live.net.router.try_run(&command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("metrics on 192.0.2.77:9333"), "{said}");
        assert_eq!(features(), before, "{backend}: {said}");
    }
}

/// What is behind the two ports of the topology in turn, each time something else: another port, a subinterface, the
/// first rule, stages, a second pipeline, a port that opens anew.
fn variants() -> Vec<String> {
    let tap = |more: &str| {
        format!(
            "[port.third]\nbackend = \"tap\"\ninterface = \"third0\"\n\
             addresses = [\"10.0.3.1/24\"]\n{more}"
        )
    };
    let rule = "[[rule]]\nname = \"first\"\nsrc = \"192.0.2.0/24\"\naction = \"drop\"\n";
    let vlan = "[port.tagged]\nparent = \"left\"\nvlan = 7\naddresses = [\"10.0.4.1/24\"]\n";
    let edge = "[pipeline.edge]\nstages = [\"decode\", \"fw\", \"route\", \"rewrite\"]\n\
                [stage.fw]\nkind = \"firewall\"\n\
                [[stage.fw.rule]]\nname = \"own\"\nsrc = \"192.0.2.0/25\"\naction = \"drop\"\n";
    vec![
        String::new(),
        tap(""),
        tap("mac = \"02:00:00:00:03:01\"\n"),
        rule.to_owned(),
        format!("{}{rule}", tap("")),
        vlan.to_owned(),
        format!("{vlan}{}", tap("pipeline = \"edge\"\n") + edge),
        format!("{}{edge}", tap("pipeline = \"edge\"\ntwin = \"off\"\n")),
        format!("{}{vlan}{rule}", tap("checksums = \"ignore\"\n")),
        "[port.memory]\nbackend = \"memory\"\n[[rule]]\nname = \"second\"\nproto = \"icmp\"\n\
         src = \"192.0.2.0/24\"\naction = \"reject\"\n"
            .to_owned(),
    ]
}

/// Ports, queues, pipelines, stages, subinterfaces and the first rule come and go a thousand times while packets pass
/// two other ports.
#[test]
fn a_thousand_reloads_lose_nothing_of_other_ports() {
    let Some(mut live) = Live::start("rebuild", "af_packet", "") else { return };
    live.count_udp();
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let variants = variants();
    let (mut changes, mut sent) = (0, 0);
    let begin = Instant::now();
    while changes < CHANGES {
        assert!(begin.elapsed() < Duration::from_secs(600), "{changes} changes in ten minutes");
        // So slow that the kernel's queue has room for 400 ms: a machine that stands still for a moment is no loss of ours.
        let count = 15_000;
        let mut sender = live.flood("5000pps", count);
        while sender.is_running() {
            changes += 1;
            let more = &variants[changes % variants.len()];
            live.scratch.write("router.toml", &config(&live.scratch, "af_packet", more));
            let said = live.ctl("reload");
            assert!(is_change(&said), "{changes}: {said}");
        }
        let (status, said) = sender.wait(SOON);
        assert!(status.success(), "{said}");
        sent += count;
        wait_until(Duration::from_secs(3), || live.counted_udp() >= sent);
        let counted = live.counted_udp();
        assert_eq!(counted, sent, "after {changes} changes: {:?}", live.drops());
    }
    println!("{changes} changes while {sent} packets passed: none was lost");
    assert!(ping(&live.net.left, "10.0.2.2", 1) == 1);
    let said = live.stop();
    assert!(said.contains(", 0 out, ") || !said.contains("panics of stages"), "{said}");
}

/// Reloads of [`a_thousand_reloads_lose_nothing_of_other_ports`].
const CHANGES: usize = 1000;

/// Ports, pipelines and rules come and go while packets pass two other ports: with several workers, by another back end,
/// and where kernels are built anew for a device, for which packets wait longer.
fn rebuilds_lose_nothing(workers: usize, backend: &str, engine: &str, rate: u64, least: usize) {
    let what = format!("{workers} workers, {backend}, {engine:?}");
    let Some(mut live) = Live::with_workers("others", workers, backend, engine) else { return };
    live.count_udp();
    assert!(wait_until(Duration::from_secs(60), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let variants = variants();
    let (mut changes, count) = (0, 2 * rate);
    let mut sender = live.flood(&format!("{rate}pps"), count);
    while sender.is_running() {
        changes += 1;
        let more = format!("{engine}{}", variants[changes % variants.len()]);
        live.scratch.write("router.toml", &config_of(&live.scratch, workers, backend, &more));
        let said = live.ctl("reload");
        assert!(is_change(&said), "{what}: {changes}: {said}");
    }
    let (status, said) = sender.wait(SOON);
    assert!(status.success(), "{what}: {said}");
    wait_until(Duration::from_secs(5), || live.counted_udp() >= count);
    assert_eq!(live.counted_udp(), count, "{what}, {changes} changes: {:?}", live.drops());
    assert!(changes >= least, "{what}: {changes} changes");
    println!("{what}: {changes} changes while {count} packets passed");
    let said = live.stop();
    assert!(!said.contains("ERROR") && !said.contains("panicked"), "{what}: {said}");
}

#[test]
fn rebuilds_with_two_workers_lose_nothing() {
    rebuilds_lose_nothing(2, "af_packet", "", 5000, 5);
}

#[test]
fn rebuilds_over_af_xdp_lose_nothing() {
    rebuilds_lose_nothing(2, "af_xdp", "", 2000, 5);
}

#[test]
fn rebuilds_with_a_simulated_device_lose_nothing() {
    let engine = "[engine]\nbackend = \"sim\"\noffload = \"always\"\n";
    rebuilds_lose_nothing(2, "af_packet", engine, 2000, 5);
}

#[test]
fn rebuilds_with_a_device_lose_nothing() {
    if testkit::require_opencl() {
        let engine = "[engine]\nbackend = \"opencl\"\noffload = \"always\"\n";
        rebuilds_lose_nothing(1, "af_packet", engine, 200, 1);
    }
}

/// A panic of the control loop ends the program in order, with an error.
#[test]
fn a_panic_of_control_ends_the_program() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("panic", backend, "") else { return };
        // A release has no faults to inject.
        live.stop();
        live.bin = env!("CARGO_BIN_EXE_shadeline").into();
        live.restart();
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        let mut client = Client::connect(live.scratch.join("ctl.sock")).expect("a connection");
        client.set_timeout(Some(SOON)).expect("a timeout");
        let request = Request::Call { name: "panic_control".into(), fields: Default::default() };
        // Its end comes before its answer, or with it.
        match client.call(&request.asked(true)) {
            Err(ClientError::Refused { kind: ErrorKind::BadRequest, message }) => {
                panic!("{message}")
            }
            answer => assert!(answer.is_err(), "{answer:?}"),
        }
        let (status, output) = live.router.wait(SOON);
        assert_eq!(status.code(), Some(1), "{output}");
        for text in ["draining", "error: the control loop panicked: as requested"] {
            assert!(output.contains(text), "{text}: {output}");
        }
        // What it changed is as before, and nothing answers.
        let links = live.net.router.ip("-o link");
        assert!(!links.contains(": sl-") && !links.contains("xdp"), "{links}");
        let ipv6 = live.net.router.shell("cat /proc/sys/net/ipv6/conf/right/disable_ipv6");
        assert_eq!(ipv6.trim(), "0");
        let (ok, said) = live.try_ctl("reload");
        assert!(!ok && said.contains("no instance listens there"), "{said}");
        live.restart();
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        live.stop();
    }
}

/// A reload for which there is no memory is refused, and all goes on as before.
#[test]
fn a_reload_without_memory_is_refused() {
    let Some(mut live) = Live::start("memory", "af_packet", "") else { return };
    if testkit::require_tool("prlimit").is_none() {
        return;
    }
    let pid = live.router.id();
    let limit = |to: &str| live.net.router.run(&format!("prlimit --pid {pid} --as={to}:unlimited"));
    let route = |i: u32| format!("20.{}.{}.0/24 10.0.2.2\n", i >> 8, i & 255);
    let table = live.scratch.write("table.txt", &(0..50_000).map(route).collect::<String>());
    let more = format!("[[routes]]\nfile = \"{}\"\n", table.display());
    let pings = || ping(&live.net.left, "10.0.2.2", 3) == 3;
    assert!(wait_until(Duration::from_secs(5), pings));
    // It has all that it needs by now.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its size");
    let size: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    let one = "[[route]]\nprefix = \"30.0.0.0/8\"\nvia = \"10.0.2.2\"\n";
    for (more, first) in [(one, "30.0.0.0/8"), (&more, "20.0.1.0/24")] {
        live.scratch.write("router.toml", &config(&live.scratch, "af_packet", more));
        limit(&((size + (200 << 10)) << 10).to_string());
        let (ok, said) = live.try_ctl("reload");
        assert!(!ok && said.contains("not enough memory for"), "{said}");
        assert!(said.contains("ulimit -v"), "{said}");
        assert!(pings());
        let routes = || live.ctl("show routes");
        assert!(!routes().contains(first));
        limit("unlimited");
        live.ctl("reload");
        assert!(routes().contains(first));
    }
    let routes = live.ctl("show routes").lines().count();
    assert!(routes > 50_000 && pings(), "{routes}");
    live.stop();
}

/// Standard error is a pipe that is full and that nobody reads: packets, neighbours, requests and the end do not wait for
/// the log.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    /// Killed where the test ends early.
    struct Running(std::process::Child);
    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    if !testkit::require_namespaces() {
        return;
    }
    let Some(bin) = testkit::shadeline_bin() else { return };
    let net = Topology::new("blocked");
    let scratch = Scratch::new();
    let more = "[system]\nlog = \"debug\"\n";
    let text = config(&scratch, "af_packet", "").replacen("[system]\n", more, 1);
    let file = scratch.write("router.toml", &text);
    let (reads, mut writes) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writes, true).expect("a pipe that is full is an error");
    while writes.write(&[b'\n'; 4096]).is_ok() {}
    while writes.write(b"\n").is_ok() {}
    rustix::io::ioctl_fionbio(&writes, false).expect("a pipe that is full is waited for");
    let mut command = net.router.command(&bin.display().to_string());
    command.arg("run").arg(&file).stdout(Stdio::null()).stderr(writes);
    let mut router = Running(command.spawn().expect("the program"));
    let answers = || common::ctl(&bin, &scratch, "show runtime").0;
    assert!(wait_until(STARTED, answers), "nobody answers");
    // More of the log than the pipe or a queue holds.
    for _ in 0..20 {
        net.router.ip("link set right down");
        net.router.ip("link set right up");
    }
    for (from, to) in [(&net.left, "10.0.2.2"), (&net.right, "fd00:1::2")] {
        assert!(wait_until(Duration::from_secs(10), || ping(from, to, 1) == 1), "{to}");
    }
    // Neighbours that were not there before.
    net.right.ip("addr add 10.0.2.77/24 dev eth0");
    assert!(wait_until(Duration::from_secs(5), || ping(&net.left, "10.0.2.77", 1) == 1));
    let (ok, said) = common::ctl(&bin, &scratch, "reload");
    assert!(ok && said.contains("nothing changed"), "{said}");
    net.router.run(&format!("kill -TERM {}", router.0.id()));
    let mut status = None;
    wait_until(Duration::from_secs(10), || {
        status = router.0.try_wait().ok().flatten();
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    drop(reads);
}
