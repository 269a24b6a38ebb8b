//! A closed port: the kernel is deaf on it, packet sockets are not.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use control::kernel::close::Closed;

use crate::namespace::{Beside, Namespace, attempt, run, skip};

/// `pa` is the physical port here, `va` its neighbour in a namespace of its own.
fn port_and_neighbour(namespace: &Namespace) -> Option<Beside> {
    if !attempt("ping -V").0 || !attempt("nft --version").0 || !attempt("tcpdump --version").0 {
        skip("ping, nft or tcpdump is not installed");
        return None;
    }
    let other = namespace.beside();
    run(&format!("ip link add name pa type veth peer name va netns {other}"));
    run("ip link set pa up");
    run("ip addr add 10.0.0.1/24 dev pa");
    run(&format!("ip -n {other} link set va up"));
    run(&format!("ip -n {other} addr add 10.0.0.2/24 dev va"));
    Some(other)
}

fn answers(other: &Beside) -> bool {
    attempt(&format!("ip netns exec {other} ping -c 1 -W 1 10.0.0.1")).0
}

/// A link that comes up and ARP take their time on a busy machine.
fn answers_in_time(other: &Beside) -> bool {
    let limit = Instant::now() + Duration::from_secs(20);
    while !answers(other) {
        if Instant::now() > limit {
            return false;
        }
    }
    true
}

#[test]
fn a_closed_port_is_silent_and_still_seen() {
    let Some(namespace) = Namespace::enter() else { return };
    let Some(other) = port_and_neighbour(&namespace) else { return };
    assert!(answers_in_time(&other));
    let closed = Closed::new(&["pa"]).unwrap();
    assert!(run(&format!("nft list table netdev {}", closed.table())).contains("policy drop"));
    let mut dump = Command::new("tcpdump")
        .args(["-n", "-l", "-c", "1", "-i", "pa", "icmp[icmptype] == icmp-echo"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(dump.stderr.as_mut().unwrap()).read_line(&mut ready).unwrap();
    run(&format!("ip -n {other} neigh replace 10.0.0.1 lladdr {} dev va", mac("pa")));
    assert!(!answers(&other));
    let seen = dump.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&seen.stdout).contains("10.0.0.2 > 10.0.0.1: ICMP echo"));
    drop(closed);
    assert!(answers_in_time(&other), "open again");
    assert_eq!(run("nft list tables"), "");
}

#[test]
fn all_ports_or_none() {
    let Some(_namespace) = Namespace::enter() else { return };
    run("ip link add name pa type veth peer name va");
    let error = Closed::new(&["pa", "nothing"]).unwrap_err().to_string();
    assert!(error.contains("`nothing`"), "{error}");
    if attempt("nft --version").0 {
        assert_eq!(run("nft list tables"), "");
    }
    let both = Closed::new(&["pa", "va"]).unwrap();
    assert!(Closed::new(&["pa"]).is_err(), "the table exists");
    let other = Closed::with_table("shadeline-other", &["pa"]).unwrap();
    drop((both, other));
    Closed::new(&["pa"]).unwrap();
}

/// Not a test of its own: the process that the next one kills.
#[test]
fn holder() {
    if std::env::var_os("CONTROL_TEST_HOLD").is_none() {
        return;
    }
    let _closed = Closed::new(&["pa"]).unwrap();
    println!("holding");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_router_leaves_nothing() {
    let Some(namespace) = Namespace::enter() else { return };
    let Some(other) = port_and_neighbour(&namespace) else { return };
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "close::holder", "--nocapture"])
        .env("CONTROL_TEST_HOLD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains("holding")));
    assert!(!answers(&other));
    assert_ne!(run("nft list tables"), "");
    holder.kill().unwrap(); // SIGKILL
    holder.wait().unwrap();
    assert!(answers_in_time(&other), "{}", run("nft list tables"));
    assert_eq!(run("nft list tables"), "");
}

fn mac(name: &str) -> String {
    let shown = run(&format!("ip -br link show dev {name}"));
    shown.split_whitespace().nth(2).unwrap().to_owned()
}
