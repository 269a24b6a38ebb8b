//! `bench tcp`: TCP between two hosts over veth pairs that nobody has tuned, through this program and through Linux.
//!
//! Sender, router and receiver share the processors, so copies count: the sender's, the receiver's, and those of a router
//! in user space. Linux copies nothing on its way through.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::namespace::{Background, Host, Hosts};
use crate::{Args, Report, Row};

/// As long as a router may take to answer.
const STARTED: Duration = Duration::from_secs(120);

const FAMILIES: [(&str, &str); 2] = [("IPv4", "10.0.2.2"), ("IPv6", "fd00:2::2")];

pub(crate) fn run(args: &Args, seconds: f64) -> Result<Report, String> {
    let hosts = Hosts::with_offloads()?;
    for (host, number) in [(Host::Sender, 1), (Host::Receiver, 2)] {
        hosts.shell(
            host,
            &format!(
                "ip addr add 10.0.{number}.2/24 dev eth; ip addr add fd00:{number}::2/64 dev eth nodad; \
                 ip route add default via 10.0.{number}.1; ip -6 route add default via fd00:{number}::1"
            ),
        )?;
    }
    let folder = Folder::new()?;
    let config = folder.write(&format!(
        "mode = \"router\"\n[system]\nworkers = 1\nsocket = \"{}/tcp.sock\"\n\
         [port.in]\nbackend = \"af_packet\"\naddresses = [\"10.0.1.1/24\", \"fd00:1::1/64\"]\n\
         [port.out]\nbackend = \"af_packet\"\naddresses = [\"10.0.2.1/24\", \"fd00:2::1/64\"]\n",
        folder.0.display()
    ))?;
    let mut report =
        Report::new("tcp", "iperf3, one TCP stream over veth pairs with their default offloads");
    let mut rates = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..args.rounds.max(1) {
        let linux = Linux::new(&hosts)?;
        for (family, rates) in FAMILIES.iter().zip(&mut rates) {
            rates[0].push(stream(&hosts, family.1, seconds)?);
        }
        drop(linux);
        let command = hosts.own(Host::Router, &["run".into(), config.display().to_string()])?;
        let router = Background::start(command)?;
        for (family, rates) in FAMILIES.iter().zip(&mut rates) {
            rates[1].push(stream(&hosts, family.1, seconds)?);
        }
        drop(router);
    }
    for ((name, _), [linux, own]) in FAMILIES.iter().zip(rates) {
        let ratios = own.iter().zip(&linux).map(|(own, linux)| own / linux).collect();
        report.rows.push(Row::new(format!("{name}: Linux"), "Gbit/s", linux));
        report.rows.push(Row::new(format!("{name}: router"), "Gbit/s", own).at_least(1.0));
        report.rows.push(Row::new(format!("{name}: router/Linux"), "ratio", ratios).at_least(0.7));
    }
    Ok(report)
}

/// The kernel of the middle namespace as a router, until this is dropped.
struct Linux<'a>(&'a Hosts);

impl<'a> Linux<'a> {
    fn new(hosts: &'a Hosts) -> Result<Self, String> {
        let linux = Self(hosts);
        hosts.shell(
            Host::Router,
            // A router that was killed leaves IPv6 off.
            "for i in 1 2; do [ $i = 1 ] && d=in || d=out; \
             echo 0 > /proc/sys/net/ipv6/conf/$d/disable_ipv6; ip addr add 10.0.$i.1/24 dev $d; \
             ip addr add fd00:$i::1/64 dev $d nodad; done; \
             echo 1 > /proc/sys/net/ipv4/ip_forward; \
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        )?;
        Ok(linux)
    }
}

impl Drop for Linux<'_> {
    fn drop(&mut self) {
        let script = "echo 0 > /proc/sys/net/ipv4/ip_forward; \
             echo 0 > /proc/sys/net/ipv6/conf/all/forwarding; \
             ip addr flush dev in; ip addr flush dev out";
        let _ = self.0.shell(Host::Router, script);
    }
}

/// Gbit/s that arrive of one stream.
fn stream(hosts: &Hosts, to: &str, seconds: f64) -> Result<f64, String> {
    let end = Instant::now() + STARTED;
    while hosts.shell(Host::Sender, &format!("ping -n -c 1 -W 1 {to}")).is_err() {
        if Instant::now() > end {
            return Err(format!("no answer from {to}: the router does not run here"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut command = hosts.command(Host::Receiver, "iperf3");
    command.args(["-s", "-1"]);
    let server = Background::start(command)?;
    while hosts.shell(Host::Receiver, "ss -Hltn 'sport = 5201' | grep -q .").is_err() {
        if Instant::now() > end {
            return Err("iperf3 does not listen".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut command = hosts.command(Host::Sender, "iperf3");
    command.args(["-c", to, "-t", &format!("{seconds:.0}"), "-J"]);
    let output = command.output().map_err(|e| format!("iperf3: {e}"))?;
    drop(server);
    let text = String::from_utf8_lossy(&output.stdout);
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|_| format!("iperf3: {text}"))?;
    let rate = value["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.map(|rate| rate / 1e9).ok_or_else(|| format!("iperf3: {text}"))
}

/// A folder for the configuration, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("sl-bench-tcp-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self(folder))
    }

    fn write(&self, text: &str) -> Result<PathBuf, String> {
        let path = Path::join(&self.0, "tcp.toml");
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
