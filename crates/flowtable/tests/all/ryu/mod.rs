//! The cases of Ryu's switch tester (`../shared/data/openflow/ryu-switch-tests`): flows, groups and meters in, packets in, and
//! what a switch is to do with them. Port 1 of the switch gets the packets; what leaves by ports 2 and 3 is looked at.
//!
//! At least 95 of a hundred cases of each version have to pass, and those that do not are [`KNOWN`] with their reason.

mod packets;
mod requests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flowtable::Settings;
use openflow::{PortNo, Version};
use serde_json::Value;

use crate::random::Random;
use crate::world::World;

pub use requests::{apply, body};

/// Cases that do not pass: file, number of the case in it, and why.
const KNOWN: &[(&str, usize, &str)] = &[];

/// Packets of a case of throughput that are sent at most: the first seconds of its thirty.
const PACKETS_MAX: u64 = 40_000;

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => files(&path, out),
            false if path.extension().is_some_and(|ext| ext == "json") => out.push(path),
            false => {}
        }
    }
}

#[test]
fn cases_of_1_3() {
    run("of13", Version::V13, 738, false);
}

#[test]
fn cases_of_1_0() {
    run("of10", Version::V10, 141, false);
}

/// The same with the ways of packets known beforehand, as by a device.
#[test]
fn cases_of_both_on_known_ways() {
    run("of13", Version::V13, 738, true);
    run("of10", Version::V10, 141, true);
}

/// The cases of a folder: file, number in it, and what it says. `None`, and the test is skipped, where they are missing.
pub fn cases(folder: &str) -> Option<Vec<((String, usize), Value)>> {
    let root = testdata::path("openflow/ryu-switch-tests")?;
    let (mut paths, mut out) = (Vec::new(), Vec::new());
    files(&root.join(folder), &mut paths);
    for path in paths {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let cases = cases.into_iter().filter(Value::is_object).enumerate();
        out.extend(cases.map(|(number, case)| ((name.clone(), number), case)));
    }
    Some(out)
}

/// The switch that they are for.
pub fn settings(version: Version) -> Settings {
    match version {
        Version::V10 => Settings::of_10(128),
        Version::V13 => Settings::of_13(4),
    }
}

/// The bytes of a frame.
pub fn frame(layers: &Value) -> Result<Vec<u8>, String> {
    packets::frame(layers, &mut Random(0))
}

fn run(folder: &str, version: Version, expected: usize, device: bool) {
    let Some(cases) = cases(folder) else { return };
    let (mut passed, mut failed, all) = (0, Vec::new(), cases.len());
    for ((name, number), case) in cases {
        match case_of(&case, version, device) {
            Ok(()) => passed += 1,
            Err(why) => failed.push((name, number, why)),
        }
    }
    assert_eq!(all, expected);
    let unknown: Vec<_> = failed
        .iter()
        .filter(|(file, number, _)| !KNOWN.iter().any(|(f, n, _)| f == file && n == number))
        .collect();
    println!("{folder}: {passed} of {all} cases");
    for (file, number, why) in &failed {
        println!("{file} {number}: {why}");
    }
    assert!(unknown.is_empty(), "{} cases are not in the list", unknown.len());
    assert!(passed * 100 >= all * 95, "{passed} of {all}");
    let mine = KNOWN.iter().filter(|(file, ..)| file.starts_with(folder)).count();
    assert_eq!(failed.len(), mine, "the list has cases that pass");
}

/// One case: `Err` says what is different.
fn case_of(case: &Value, version: Version, device: bool) -> Result<(), String> {
    let mut world = World::new(Settings { device, ..settings(version) }, "auto");
    for request in case["prerequisite"].as_array().unwrap() {
        let body = body(request, version);
        apply(&mut world, &body, version).map_err(|e| format!("{request}: {e}"))?;
    }
    world.publish();
    for test in case["tests"].as_array().unwrap() {
        if test["ingress"].is_object() {
            throughput(&mut world, test)?;
            continue;
        }
        let sent = frame(&test["ingress"])?;
        let before: Vec<_> = (0..4).map(|table| world.lookups(table)).collect();
        let out = world.send(&[sent], 1, 1_000_000_000);
        if let Some(tables) = test.get("table-miss") {
            for table in tables.as_array().unwrap() {
                let table = table.as_u64().unwrap() as u8;
                let (was, is) = (before[usize::from(table)], world.lookups(table));
                if is.looked_up != was.looked_up + 1 || is.matched != was.matched {
                    return Err(format!("table {table} was not missed: {out:?}"));
                }
            }
            continue;
        }
        let (wanted, port) = match test.get("egress") {
            Some(egress) => (egress, PortNo(2)),
            None => (&test["PACKET_IN"], PortNo::CONTROLLER),
        };
        let wanted = self::frame(wanted)?;
        let [(_, frame, to)] = &out.sent[..] else {
            return Err(format!("{} frames sent, {:?}", out.sent.len(), out.dropped));
        };
        if to.port != port {
            return Err(format!("sent to {}", to.port));
        }
        if *frame != wanted {
            return Err(format!("\n  got    {}\n  wanted {}", hex(frame), hex(&wanted)));
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Packets at a rate; what is sent has rates as well, by port and, where the case says so, by DSCP. The tester allows a tenth.
fn throughput(world: &mut World, test: &Value) -> Result<(), String> {
    let ingress = &test["ingress"]["packets"];
    let rate = ingress["pktps"].as_u64().unwrap();
    let count = (rate * ingress["duration_time"].as_u64().unwrap()).min(PACKETS_MAX);
    let mut random = Random(rate);
    let mut sums: BTreeMap<(u32, u8), (u64, u64)> = BTreeMap::new();
    let is_random = ingress["data"].to_string().contains("randint");
    let mut frame = packets::frame(&ingress["data"], &mut random)?;
    for number in 0..count {
        if is_random {
            frame = packets::frame(&ingress["data"], &mut random)?;
        }
        let now_ns = 1_000_000_000_000 + number * 1_000_000_000 / rate;
        for (_, frame, to) in world.send(std::slice::from_ref(&frame), 1, now_ns).sent {
            let sum = sums.entry((to.port.0, packet::dscp(&frame[14..]).unwrap_or(0))).or_default();
            *sum = (sum.0 + 1, sum.1 + frame.len() as u64);
        }
    }
    let seconds = count as f64 / rate as f64;
    for wanted in test["egress"]["throughput"].as_array().unwrap() {
        let fields = requests::oxm_fields(&wanted["OFPMatch"]["oxm_fields"]);
        let of = |field| fields.iter().find(|(f, ..)| *f == field).map(|(_, value, _)| *value);
        let port = of(openflow::Field::InPort).unwrap() as u32;
        let dscp = of(openflow::Field::IpDscp);
        let own = sums.iter().filter(|((to, class), _)| {
            *to == port && dscp.is_none_or(|dscp| dscp == u128::from(*class))
        });
        let (packets, bytes) = own.fold((0, 0), |sum, (_, own)| (sum.0 + own.0, sum.1 + own.1));
        let (got, wanted) = match wanted.get("kbps") {
            Some(kbps) => (bytes as f64 * 8.0 / 1000.0 / seconds, kbps.as_f64().unwrap()),
            None => (packets as f64 / seconds, wanted["pktps"].as_f64().unwrap()),
        };
        if (got - wanted).abs() > wanted * 0.1 {
            return Err(format!("port {port}, DSCP {dscp:?}: rate {got:.0}, wanted {wanted:.0}"));
        }
    }
    Ok(())
}
