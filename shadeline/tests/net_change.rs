//! Changes while traffic flows: tables that flap, a configuration that is reloaded, a router that is
//! killed, an interface that vanishes.

mod common;

use std::time::{Duration, Instant};

use common::{BACKENDS, Live, SOON, config, ping};
use testkit::process::Stop;
use testkit::wait_until;

/// Sends at half the measured rate while `change` runs again and again; nothing may be lost.
fn loses_nothing(live: &Live, what: &str, mut change: impl FnMut(u32)) {
    live.count_udp();
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let rate = live.measured_rate() / 2.0;
    let count = (rate * 3.0) as u64;
    let before = live.counted_udp();
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
    assert!(changes >= 3, "{what}: only {changes} changes in three seconds");
    assert_eq!(arrived(), count, "{what}, {changes} times at {rate:.0}/s: {:?}", live.drops());
    println!("{what}: {count} packets at {rate:.0} packets/s, {changes} changes, none lost");
}

#[test]
fn a_flapping_table_loses_nothing() {
    let more = "[[route]]\nprefix = \"172.16.0.0/12\"\nvia = \"10.0.2.2\"\n";
    let Some(live) = Live::start("flap", "af_packet", more) else { return };
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
        live.restart();
        let begin = Instant::now();
        let back = wait_until(Duration::from_secs(1), || {
            let output = live.net.left.try_run("ping -n -c 1 -W 1 -i 0.1 10.0.2.2");
            output.status.success()
        });
        assert!(back, "{backend}: not forwarding a second after its restart");
        println!("{backend}: forwarded again {:?} after its restart", begin.elapsed());
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
        let gone = wait_until(Duration::from_secs(5), || {
            live.ctl("show interfaces").lines().any(|l| l.contains("right") && l.contains("down"))
        });
        assert!(gone, "{backend}: {}", live.ctl("show interfaces"));
        assert!(!live.ctl("route get 10.0.2.2").contains("10.0.2.0/24"));
        assert_eq!(ping(&live.net.left, "10.0.1.1", 3), 3, "{backend}: the other port works");
        let output = live.net.left.try_run("ping -n -c 1 -W 1 10.0.2.2");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Unreachable"), "{backend}: {text}");
        assert!(live.router.is_running());
        live.stop();
    }
}
