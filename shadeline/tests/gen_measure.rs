//! `shadeline measure` through devices whose losses are known.
//!
//! ```text
//!   tester  out ─────── left  device  right ─────── in  tester
//! ```

use std::net::Ipv4Addr;
use std::process::Command;

use serde_json::Value;
use testkit::Scratch;
use testkit::netns::{Netns, veth};
use testkit::pcap;

const DEVICE_MAC: &str = "02:00:00:00:01:01";

/// A host with two interfaces and the device between them.
struct Bench {
    tester: Netns,
    device: Netns,
}

impl Bench {
    fn new() -> Option<Bench> {
        if !testkit::require_namespaces() {
            return None;
        }
        let bench = Bench { tester: Netns::new("gen"), device: Netns::new("gen") };
        let (tester, device) = (&bench.tester, &bench.device);
        veth((tester, "out", "02:00:00:00:01:02"), (device, "left", DEVICE_MAC), 1500);
        veth((tester, "in", "02:00:00:00:02:02"), (device, "right", "02:00:00:00:02:01"), 1500);
        // The tester's own kernel must not forward what comes in.
        for (netns, forwards) in [(tester, "0"), (device, "1")] {
            netns.sysctl("net.ipv4.ip_forward", forwards);
            netns.sysctl("net.ipv6.conf.all.forwarding", forwards);
        }
        device.address("left", "10.0.1.1/24");
        device.address("left", "fd00:1::1/64");
        device.address("right", "10.0.2.1/24");
        device.address("right", "fd00:2::1/64");
        for line in [
            "neigh add 10.0.2.2 lladdr 02:00:00:00:02:02 dev right",
            "neigh add fd00:2::2 lladdr 02:00:00:00:02:02 dev right",
            "route add 198.18.0.0/16 dev left",
            "route add 198.19.0.0/16 via 10.0.2.2",
            "route add 2001:2:0:1::/64 dev left",
            "route add 2001:2:0:2::/64 via fd00:2::2",
        ] {
            device.ip(line);
        }
        Some(bench)
    }

    fn command(&self, options: &str) -> Command {
        let mut command = self.tester.command(env!("CARGO_BIN_EXE_shadeline"));
        command.args(["measure", "--tx", "out", "--rx", "in", "--wait", "500ms", "--json"]);
        command.args(["--dst-mac", DEVICE_MAC]).args(options.split_whitespace());
        command
    }

    fn measure(&self, options: &str) -> Value {
        let output = self.command(options).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options}: {errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"))
}

#[test]
fn a_device_that_loses_nothing() {
    let Some(bench) = Bench::new() else { return };
    for options in [
        "--count 2000 --rate 4kpps",
        "--count 1000 --rate 4kpps --ipv6 --size 200",
        "--count 1000 --rate 4kpps --protocol tcp --size imix",
    ] {
        let found = bench.measure(options);
        let sent = if options.contains("2000") { 2000 } else { 1000 };
        assert_eq!(number(&found, "sent_packets"), sent, "{options}");
        assert_eq!(number(&found, "received_packets"), sent, "{options}: {found}");
        for none in ["lost_packets", "duplicated_packets", "reordered_packets", "overrun_packets"] {
            assert_eq!(number(&found, none), 0, "{options}: {none}");
        }
        assert_eq!(found["rate_pps"], 4000.0);
        assert!(found["offered_pps"].as_f64().unwrap() < 4200.0, "{found}");
        let latency = &found["latency_us"];
        let of = |name: &str| latency[name].as_f64().unwrap();
        let rising = ["min", "p50", "p90", "p99", "p99.9", "max"].map(of);
        assert!(rising.is_sorted() && rising[0] > 0.0, "{latency}");
        assert!(of("mean") >= of("min") && of("mean") <= of("max"), "{latency}");
        // Clocks that do not belong together would be years apart.
        assert!(of("max") < 5e6, "{latency}");
        let gap = found["longest_gap_ms"].as_f64().unwrap();
        assert!(gap > 0.2 && gap < 5e3, "{gap}");
    }
}

#[test]
fn what_a_blackhole_takes_is_lost() {
    let Some(bench) = Bench::new() else { return };
    bench.device.ip("route add blackhole 198.19.192.0/18");
    // The same packets in a file say which.
    let scratch = Scratch::new();
    let path = scratch.join("out.pcapng");
    let output = Command::new(env!("CARGO_BIN_EXE_shadeline"))
        .args(["gen", "packets", "--count", "2000", "--seed", "9", "-w"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success());
    let destination = |frame: &[u8]| Ipv4Addr::from(*frame[30..].first_chunk::<4>().unwrap());
    let records = pcap::read(&path);
    let lost = records.iter().filter(|r| destination(&r.data).octets()[2] >= 192).count() as u64;
    assert!(lost > 300 && lost < 700, "{lost}");
    let found = bench.measure("--count 2000 --seed 9 --rate 4kpps");
    assert_eq!(number(&found, "lost_packets"), lost);
    assert_eq!(number(&found, "received_packets"), 2000 - lost);
    assert!((found["loss_percent"].as_f64().unwrap() - lost as f64 / 20.0).abs() < 1e-9);
    // With nothing received, the gap is all of the time.
    let found = bench.measure("--count 400 --rate 1kpps --dst 198.19.192.0/18");
    assert_eq!(number(&found, "received_packets"), 0);
    assert!(found["longest_gap_ms"].as_f64().unwrap() > 390.0, "{found}");
}

#[test]
fn copies_are_duplicates() {
    let Some(bench) = Bench::new() else { return };
    if testkit::require_tool("nft").is_none() {
        return;
    }
    // What has an even source port leaves a second time.
    bench.device.shell(
        "nft 'add table netdev t; \
         add chain netdev t c { type filter hook ingress device left priority 0; }; \
         add rule netdev t c udp sport & 1 == 0 dup to right'",
    );
    let scratch = Scratch::new();
    let path = scratch.join("out.pcapng");
    let output = Command::new(env!("CARGO_BIN_EXE_shadeline"))
        .args(["gen", "packets", "--count", "1000", "-w"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success());
    let even = |record: &&pcap::Record| record.data[35] & 1 == 0;
    let copies = pcap::read(&path).iter().filter(even).count() as u64;
    let found = bench.measure("--count 1000 --rate 4kpps");
    assert_eq!(number(&found, "received_packets"), 1000, "{found}");
    assert_eq!(number(&found, "lost_packets"), 0);
    assert_eq!(number(&found, "duplicated_packets"), copies);
}

#[test]
fn the_search_finds_a_limit() {
    let Some(bench) = Bench::new() else { return };
    if testkit::require_tool("nft").is_none() {
        return;
    }
    // 3,000 packets a second, and 300 at once: over 500 ms the most without loss is 3,600.
    bench.device.shell(
        "nft 'add table ip t; add chain ip t c { type filter hook forward priority 0; }; \
         add rule ip t c limit rate over 3000/second burst 300 packets drop'",
    );
    let found = bench.measure("--rate 12kpps --max-loss 1% --duration 500ms --resolution 5");
    let trials = found["trials"].as_array().unwrap();
    assert!(trials.len() >= 4 && trials.len() <= 8, "{}", trials.len());
    assert!(trials[0]["loss_percent"].as_f64().unwrap() > 20.0, "{}", trials[0]);
    let best = &found["best"];
    assert!(best["loss_percent"].as_f64().unwrap() <= 1.0, "{best}");
    let pps = best["offered_pps"].as_f64().unwrap();
    assert!(pps > 1_500.0 && pps < 4_500.0, "{pps}");

    // Nothing comes back at all.
    bench.device.ip("link set right down");
    let options = "--rate 2kpps --max-loss 1 --duration 50ms --resolution 50";
    let output = bench.command(options).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["best"], Value::Null);
}

#[test]
fn a_table_for_people_and_errors_that_name_the_option() {
    let run = |options: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        let output = command.arg("measure").args(options.split_whitespace()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (options, code, expected) in [
        ("--tx sl-no-such --rx sl-no-such", 1, "sl-no-such"),
        ("--tx lo --rx lo --max-loss 101", 2, "expected a percentage from 0 to 100"),
        ("--tx lo", 2, "--rx <IF>"),
        (
            "--tx lo --rx lo --ipv6 --size 64",
            2,
            "the headers take at least 84 bytes, the stamp of a measurement among them",
        ),
    ] {
        let (found, errors) = run(options);
        assert!(found == Some(code) && errors.contains(expected), "{options}: {found:?} {errors}");
    }
    let Some(bench) = Bench::new() else { return };
    let bin = env!("CARGO_BIN_EXE_shadeline");
    let line = format!("{bin} measure --tx out --rx in --dst-mac {DEVICE_MAC}");
    let text = bench.tester.run(&format!("{line} --count 100 --rate 2kpps --wait 200ms"));
    for expected in [
        "sent                    100 packets",
        "lost                      0 packets  0.0000 %",
        "99.9 %",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}
