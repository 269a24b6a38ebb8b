//! A live router between two hosts, for the tests among real programs.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::Scratch;
use testkit::netns::{Offloads, Topology};
use testkit::process::{Process, Stop};

/// Both back ends of real interfaces.
pub(crate) const BACKENDS: [&str; 2] = ["af_packet", "af_xdp"];

/// A program that must start up or end.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// As long as a start may take: the self-test of a device compiles every kernel, where no cache has them.
pub(crate) const STARTED: Duration = Duration::from_secs(180);

/// Host – router – host with the program running on the router.
pub(crate) struct Live {
    pub(crate) net: Topology,
    pub(crate) router: Process,
    pub(crate) scratch: Scratch,
    pub(crate) bin: PathBuf,
}

/// The usual configuration of the topology, with more of it appended.
pub(crate) fn config(scratch: &Scratch, backend: &str, more: &str) -> String {
    config_of(scratch, 1, backend, more)
}

/// The same with so many workers.
pub(crate) fn config_of(scratch: &Scratch, workers: usize, backend: &str, more: &str) -> String {
    format!(
        "mode = \"router\"\n\
         [system]\nworkers = {workers}\nsocket = \"{}\"\n\
         [port.left]\nbackend = \"{backend}\"\naddresses = [\"10.0.1.1/24\", \"fd00:1::1/64\"]\n\
         [port.right]\nbackend = \"{backend}\"\naddresses = [\"10.0.2.1/24\", \"fd00:2::1/64\"]\n\
         {more}",
        scratch.join("ctl.sock").display()
    )
}

impl Live {
    /// `None`, and the test is skipped, where namespaces or the program are missing.
    pub(crate) fn start(purpose: &str, backend: &str, more: &str) -> Option<Live> {
        Live::with_mtu(purpose, backend, more, 1500, 1500)
    }

    /// The same with so many workers.
    pub(crate) fn with_workers(
        purpose: &str,
        workers: usize,
        backend: &str,
        more: &str,
    ) -> Option<Live> {
        let config = |scratch: &Scratch| config_of(scratch, workers, backend, more);
        Live::of(purpose, config, (1500, 1500), Offloads::Off)
    }

    /// The same with the MTU of each side.
    pub(crate) fn with_mtu(
        purpose: &str,
        backend: &str,
        more: &str,
        left: u32,
        right: u32,
    ) -> Option<Live> {
        Live::with(purpose, backend, more, (left, right), Offloads::Off)
    }

    /// The same with or without offloads on the links.
    pub(crate) fn with(
        purpose: &str,
        backend: &str,
        more: &str,
        mtu: (u32, u32),
        offloads: Offloads,
    ) -> Option<Live> {
        Live::of(purpose, |scratch| config(scratch, backend, more), mtu, offloads)
    }

    /// The same with this configuration.
    pub(crate) fn of(
        purpose: &str,
        config: impl Fn(&Scratch) -> String,
        mtu: (u32, u32),
        offloads: Offloads,
    ) -> Option<Live> {
        if !testkit::require_namespaces() {
            return None;
        }
        let bin = testkit::shadeline_bin()?;
        let net = Topology::with(purpose, mtu.0, mtu.1, offloads);
        let scratch = Scratch::new();
        scratch.write("router.toml", &config(&scratch));
        let router = start(&net, &bin, &scratch);
        Some(Live { net, router, scratch, bin })
    }

    /// Starts the program again, after it was ended.
    pub(crate) fn restart(&mut self) {
        self.router = start(&self.net, &self.bin, &self.scratch);
    }

    /// `shadeline ctl ARGS`, which must succeed.
    pub(crate) fn ctl(&self, args: &str) -> String {
        let (ok, text) = self.try_ctl(args);
        assert!(ok, "ctl {args}: {text}");
        text
    }

    /// `shadeline ctl ARGS`: whether it succeeded, and what it said.
    pub(crate) fn try_ctl(&self, args: &str) -> (bool, String) {
        ctl(&self.bin, &self.scratch, args)
    }

    /// Packets that the router dropped so far, by reason.
    pub(crate) fn drops(&self) -> Vec<(String, u64)> {
        let text = self.ctl("show drops --json");
        // The keys of a row come in any order.
        let mut drops: Vec<(String, u64)> = Vec::new();
        let mut row = (String::new(), 0);
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("\"reason\": \"") {
                row.0 = rest.trim_end_matches(['"', ',']).to_owned();
            } else if let Some(rest) = line.strip_prefix("\"packets\": ") {
                row.1 = rest.trim_end_matches(',').parse().unwrap_or(0);
            } else if line.starts_with('}') {
                drops.push(std::mem::take(&mut row));
            }
        }
        drops
    }

    /// Ends the router in order; what it printed.
    pub(crate) fn stop(&mut self) -> String {
        let (status, output) = self.router.stop(Stop::Terminate, SOON);
        assert!(status.success(), "the router ended with {status}\n{output}");
        output
    }

    /// Counts UDP packets to port 9999 at the right host, which answers none of them.
    pub(crate) fn count_udp(&self) {
        self.net.right.shell(
            "nft -f - <<'END'\ntable inet count { chain in { type filter hook input priority 0; \
             udp dport 9999 counter drop; }; }\nEND",
        );
    }

    /// What was counted.
    pub(crate) fn counted_udp(&self) -> u64 {
        let text = self.net.right.run("nft list table inet count");
        let rest = text.split("counter packets ").nth(1).expect("the counter");
        rest.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
    }

    /// Sends `count` UDP packets at `rate` (a number and its unit, or `max`) from the left host to
    /// the right one.
    pub(crate) fn flood(&self, rate: &str, count: u64) -> Process {
        self.net.left.spawn(&format!(
            "{} gen packets --interface eth0 --rate {rate} --count {count} --size 64 \
             --src 10.0.1.2 --dst 10.0.2.2 --dport 9999 --dst-mac {} --seed 7",
            self.bin.display(),
            testkit::netns::mac::ROUTER_LEFT
        ))
    }

    /// The rate, in packets per second, that passes when all is sent as fast as it goes.
    pub(crate) fn measured_rate(&self) -> f64 {
        let before = self.counted_udp();
        let begin = Instant::now();
        let mut sender = self.flood("max", 300_000);
        sender.wait(Duration::from_secs(60));
        let elapsed = begin.elapsed().as_secs_f64();
        // What is still on its way must not count for what is sent later.
        let mut last = self.counted_udp();
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let now = self.counted_udp();
            if std::mem::replace(&mut last, now) == now {
                return (now - before) as f64 / elapsed;
            }
        }
    }
}

fn start(net: &Topology, bin: &std::path::Path, scratch: &Scratch) -> Process {
    let config = scratch.join("router.toml");
    let mut router = net.router.spawn(&format!("{} run {}", bin.display(), config.display()));
    router.wait_for("running: ", STARTED);
    router
}

/// `shadeline ctl ARGS` over the socket in `scratch`: whether it succeeded, and what it said.
pub(crate) fn ctl(bin: &std::path::Path, scratch: &Scratch, args: &str) -> (bool, String) {
    let output = Command::new(bin)
        .args(["ctl", "--socket"])
        .arg(scratch.join("ctl.sock"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// Whether a reload says that it changed something.
pub(crate) fn is_change(said: &str) -> bool {
    ["changed", "added", "removed", "rule"].iter().any(|word| said.contains(word))
}

/// Pings so many times, quickly; how many answers came.
pub(crate) fn ping(from: &testkit::netns::Netns, to: &str, count: u32) -> u32 {
    let output = from.try_run(&format!("ping -n -c {count} -i 0.05 -W 2 {to}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let received = text.split(" received").next().and_then(|t| t.rsplit(' ').next());
    received.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The same where each loss counts: how many of the first so many pings were answered within seconds.
///
/// With a count alone ping waits for the last answers two round trips only, once one has come: on a busy machine they are
/// late. With a deadline it waits for all of them, and sends more meanwhile.
pub(crate) fn answered(from: &testkit::netns::Netns, to: &str, count: u32) -> u32 {
    let deadline = 2 + count / 20;
    let output = from.try_run(&format!("ping -n -c {count} -i 0.05 -w {deadline} {to}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = text.lines().filter_map(|line| {
        let number = line.split_once("icmp_seq=")?.1.split_once(' ')?.0.parse().ok()?;
        (line.contains(" time=") && (1..=count).contains(&number)).then_some(number)
    });
    answers.collect::<std::collections::BTreeSet<u32>>().len() as u32
}
