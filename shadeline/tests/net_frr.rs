//! FRR steers the router: two BGP speakers, 100,000 routes announced into the router's namespace while
//! traffic flows.

mod common;

use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Live, ping};
use testkit::process::{Process, Stop};
use testkit::wait_until;

/// Routes that the neighbour announces.
const ROUTES: u32 = 100_000;

/// One of FRR's daemons, in a namespace. They give up root for a user of their own, so the folder with
/// their files is everybody's.
fn daemon(live: &Live, right: bool, program: &Path, config: &str, more: &str) -> Process {
    let host = if right { &live.net.right } else { &live.net.router };
    let name = program.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let folder = live.scratch.join(if right { "frr-right" } else { "frr-router" });
    std::fs::create_dir_all(&folder).expect("a folder");
    for (path, mode) in [(live.scratch.path(), 0o755), (folder.as_path(), 0o777)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
    }
    let folder = folder.display();
    std::fs::write(format!("{folder}/{name}.conf"), config).expect("a file");
    host.spawn(&format!(
        "{} -P 0 -f {folder}/{name}.conf -i {folder}/{name}.pid -z {folder}/zserv.api \
         --vty_socket {folder} {more}",
        program.display(),
    ))
}

#[test]
fn a_hundred_thousand_bgp_routes_arrive_while_traffic_flows() {
    let tools = ["/usr/lib/frr/zebra", "/usr/lib/frr/bgpd"].map(Path::new);
    if !tools.iter().all(|t| t.exists()) {
        testkit::skip("FRR (zebra, bgpd) is not installed");
        return;
    }
    let Some(live) = Live::start("frr", "af_packet", "") else { return };
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    let mut announced = String::from(
        "router bgp 65002\n bgp router-id 10.0.2.2\n no bgp ebgp-requires-policy\n \
         no bgp network import-check\n neighbor 10.0.2.1 remote-as 65001\n \
         neighbor 10.0.2.1 timers connect 1\n address-family ipv4 unicast\n",
    );
    for i in 0..ROUTES {
        // 100,000 /24s from 20.0.0.0 on.
        let [_, a, b, c] = (i << 8).to_be_bytes();
        let _ = writeln!(announced, "  network {}.{a}.{b}.{c}/24", 20 + (i >> 16));
    }
    let bgp_right = daemon(&live, true, tools[1], &announced, "-n -Z");
    let zebra = daemon(&live, false, tools[0], "hostname router\n", "");
    std::thread::sleep(Duration::from_secs(1));
    let text = "router bgp 65001\n bgp router-id 10.0.2.1\n no bgp ebgp-requires-policy\n \
                neighbor 10.0.2.2 remote-as 65002\n neighbor 10.0.2.2 timers connect 1\n";
    let bgp = daemon(&live, false, tools[1], text, "");

    // Traffic all the while.
    let mut pings = live.net.left.spawn("ping -n -q -i 0.01 -w 600 10.0.2.2");
    let begin = Instant::now();
    let routes = || -> u64 {
        let text = live.ctl("show runtime --json");
        let rest = text.split("\"routes_v4\": ").nth(1).unwrap_or("0");
        rest.split(',').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    let all = wait_until(Duration::from_secs(90), || {
        std::thread::sleep(Duration::from_millis(200));
        routes() >= u64::from(ROUTES)
    });
    let said = [&bgp_right, &zebra, &bgp].map(Process::output).join("\n");
    assert!(all, "only {} routes after {:?}\n{said}", routes(), begin.elapsed());
    println!("{ROUTES} routes in {:?}", begin.elapsed());
    for address in ["20.0.0.1", "20.128.7.9", "21.134.159.1"] {
        let text = live.ctl(&format!("route get {address}"));
        assert!(text.contains("10.0.2.2") && text.contains("kernel"), "{address}: {text}");
    }
    pings.signal(Stop::Interrupt);
    let (_, text) = pings.wait(Duration::from_secs(10));
    // The interrupt may find the last one on its way.
    let number = |word: &str| -> Option<u32> {
        text.split(word).next()?.rsplit([' ', '\n']).next()?.parse().ok()
    };
    let (sent, received) = (number(" packets transmitted"), number(" received"));
    assert!(sent.is_some_and(|n| n > 100), "{text}");
    assert!(sent.zip(received).is_some_and(|(sent, got)| sent - got <= 1), "{text}");

    // The speaker goes: its routes go too.
    drop(bgp_right);
    assert!(
        wait_until(Duration::from_secs(60), || {
            std::thread::sleep(Duration::from_millis(500));
            routes() < 100
        }),
        "{} routes stay",
        routes()
    );
}
