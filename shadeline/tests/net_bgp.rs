//! The worked examples of docs/routing-daemons.md, with exactly their files: a router with FRR or BIRD beside it has its
//! routes from a provider by BGP, and has them again after each restart, orderly or not.
//!
//! ```text
//!   client ─────────────── router ─────────────── provider
//!   eth0              eth1 ┆      ┆ eth2          eth0
//!   192.0.2.2     192.0.2.1   198.51.100.1        198.51.100.2, 203.0.113.1
//! ```
//!
//! `SHADELINE_RESTARTS` sets how often the router is restarted.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{SOON, STARTED, ping};
use testkit::netns::{Netns, veth};
use testkit::process::{Process, Stop};
use testkit::wait_until;

/// Until the session is there again; the longest hold time of the files is 9 s.
const CONVERGED: Duration = Duration::from_secs(40);

/// How often the router is restarted unless the environment says so.
const RESTARTS: u32 = 4;

/// From left to right.
const MACS: [&str; 4] =
    ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03", "02:00:00:00:00:04"];

/// A machine: a network namespace and, beside it, folders of its own for what daemons and the router keep under `/run`
/// and `/etc`.
struct Machine {
    netns: Netns,
    keeper: Process,
}

impl Machine {
    fn new() -> Machine {
        let netns = Netns::new("bgp");
        let mut command = netns.command("unshare");
        let script = "mount -t tmpfs tmpfs /run; for d in /etc/frr /etc/bird; do \
                      test ! -d $d || mount -t tmpfs tmpfs $d; done; echo made; exec sleep 3600";
        command.args(["--mount", "sh", "-ec", script]);
        let mut keeper = Process::spawn(command);
        keeper.wait_for("made", SOON);
        Machine { netns, keeper }
    }

    /// A program in it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--target", &self.keeper.id().to_string(), program]);
        command
    }

    /// Runs a shell script; whether it succeeded, and what it printed.
    fn shell(&self, script: &str) -> (bool, String) {
        let output = self.command("sh").args(["-ec", script]).output().expect("sh");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    /// Runs a shell script that must succeed.
    fn must(&self, script: &str) -> String {
        let (ok, text) = self.shell(script);
        assert!(ok, "{}: {script}\n{text}", self.netns);
        text
    }
}

/// A routing daemon: how its files are installed, how it is started, what it says of itself.
struct Daemon {
    name: &'static str,
    /// Shell; `FILES` is the folder of the example, `ROLE` is `router` or `provider`.
    start: &'static str,
    describe: &'static str,
    /// File with the process that listens to links, if that may be stopped for a while.
    listener: Option<&'static str>,
}

const FRR: Daemon = Daemon {
    name: "frr",
    start: "install -d -o frr -g frr /run/frr; \
            install -o frr -g frr -m 640 FILES/frr/daemons /etc/frr/daemons; \
            install -o frr -g frr -m 640 FILES/frr/ROLE.conf /etc/frr/frr.conf; \
            touch /etc/frr/vtysh.conf; chown frr:frr /etc/frr; \
            /usr/lib/frr/frrinit.sh start > /run/frr/start.log 2>&1 < /dev/null",
    describe: "vtysh -c 'show interface brief' -c 'show bgp summary' -c 'show ip route'",
    listener: Some("/run/frr/zebra.pid"),
};

const BIRD: Daemon = Daemon {
    name: "bird",
    start: "install -d /run/bird; install -m 644 FILES/bird/ROLE.conf /etc/bird/bird.conf; bird",
    describe: "birdc show protocols; birdc show route",
    listener: None,
};

struct Example {
    client: Netns,
    router: Machine,
    provider: Machine,
    files: PathBuf,
    bin: PathBuf,
    running: Process,
}

impl Example {
    fn start(daemon: &Daemon, bin: PathBuf) -> Example {
        let client = Netns::new("bgp");
        let (router, provider) = (Machine::new(), Machine::new());
        let (middle, outside) = (&router.netns, &provider.netns);
        veth((&client, "eth0", MACS[0]), (middle, "eth1", MACS[1]), 1500);
        veth((middle, "eth2", MACS[2]), (outside, "eth0", MACS[3]), 1500);
        for (host, addresses) in [
            (&client, ["192.0.2.2/24", "2001:db8:1::2/64"]),
            (&provider.netns, ["198.51.100.2/24", "2001:db8:2::2/64"]),
        ] {
            addresses.iter().for_each(|address| host.address("eth0", address));
        }
        client.ip("route add default via 192.0.2.1");
        client.ip("-6 route add default via 2001:db8:1::1");
        // FRR assigns these itself, by its file.
        for address in
            ["203.0.113.1/32", "2001:db8:3::1/128"].iter().filter(|_| daemon.name == "bird")
        {
            provider.netns.address("lo", address);
        }
        let files = testkit::repository().join("shadeline/examples/bgp");
        let running = run(&router, &bin, &files);
        let example = Example { client, router, provider, files, bin, running };
        for (machine, role) in [(&example.provider, "provider"), (&example.router, "router")] {
            let files = example.files.display().to_string();
            machine.must(&daemon.start.replace("FILES", &files).replace("ROLE", role));
        }
        example
    }

    fn restart(&mut self, stop: Stop) {
        let (status, output) = self.running.stop(stop, SOON);
        assert!(status.success() || stop == Stop::Kill, "the router ended with {status}\n{output}");
        self.running = run(&self.router, &self.bin, &self.files);
    }

    /// Restarts the router while a daemon is stopped: it reads about the twins, and of their addresses, all at once later.
    fn restart_unread(&mut self, pid_file: &str) {
        let signal = |name| self.router.must(&format!("kill -{name} $(cat {pid_file})"));
        signal("STOP");
        self.running.stop(Stop::Terminate, SOON);
        self.running = run(&self.router, &self.bin, &self.files);
        let log = self.running.output();
        signal("CONT");
        assert!(log.contains("have not read about the twins"), "{log}");
        assert!(
            wait_until(SOON, || self.running.output().contains("announced the addresses")),
            "{log}"
        );
    }

    /// Waits until the networks of the provider are reachable by way of BGP; how long that took.
    fn converge(&self, daemon: &Daemon, when: &str) -> Duration {
        let begin = Instant::now();
        let routes = |family: &str, to: &str| {
            let (ok, text) = self.router.shell(&format!("ip {family} route show {to}"));
            ok && text.contains("sl-wan")
        };
        let there = wait_until(CONVERGED, || {
            std::thread::sleep(Duration::from_millis(100));
            routes("-4", "203.0.113.0/24") && routes("-6", "2001:db8:3::/64")
        });
        if !there {
            let said = [&self.router, &self.provider].map(|m| m.shell(daemon.describe).1);
            let addresses = self.router.shell("ip addr; ip route").1;
            let log = self.running.output();
            panic!("{when}: no routes\n{}\n{addresses}\n{log}", said.join("\n"));
        }
        for address in ["203.0.113.1", "2001:db8:3::1"] {
            let answers = wait_until(SOON, || ping(&self.client, address, 1) == 1);
            assert!(answers, "{when}: no answer from {address}\n{}", self.running.output());
        }
        begin.elapsed()
    }
}

fn run(machine: &Machine, bin: &Path, files: &Path) -> Process {
    let mut command = machine.command(&bin.display().to_string());
    command.arg("run").arg(files.join("router.toml"));
    let mut running = Process::spawn(command);
    running.wait_for("running: ", STARTED);
    running
}

fn keeps_its_neighbours(daemon: &Daemon, programs: &[&str]) {
    if !testkit::require_namespaces() {
        return;
    }
    if let Some(missing) = programs.iter().find(|program| !Path::new(program).exists()) {
        testkit::skip(&format!("{missing} is not installed"));
        return;
    }
    let Some(bin) = testkit::shadeline_bin() else { return };
    let mut example = Example::start(daemon, bin);
    println!("{}: routes after {:?}", daemon.name, example.converge(daemon, "at the start"));
    let restarts = std::env::var("SHADELINE_RESTARTS").ok().and_then(|n| n.parse().ok());
    for n in 1..=restarts.unwrap_or(RESTARTS) {
        let stop = if n % 2 == 0 { Stop::Kill } else { Stop::Terminate };
        example.restart(stop);
        let time = example.converge(daemon, &format!("after restart {n} ({stop:?})"));
        println!("{}: restart {n} ({stop:?}): routes after {time:?}", daemon.name);
    }
    if let Some(pid_file) = daemon.listener {
        example.restart_unread(pid_file);
        example.converge(daemon, "after a restart while the daemon was stopped");
    }
}

#[test]
fn frr_keeps_its_neighbours_over_restarts() {
    keeps_its_neighbours(&FRR, &["/usr/lib/frr/bgpd", "/usr/lib/frr/frrinit.sh", "/usr/bin/vtysh"]);
}

#[test]
fn bird_keeps_its_neighbours_over_restarts() {
    keeps_its_neighbours(&BIRD, &["/usr/sbin/bird"]);
}
