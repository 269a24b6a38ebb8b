//! The bystander's two ends, the attacker and the program between them, each in a namespace; one attack; what it did.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Uid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_res_uid};
use serde_json::{Value, json};
use testkit::netns::{Netns, veth};
use testkit::pcap::{self, Record};
use testkit::process::Process;
use testkit::{Scratch, wait_until};

use crate::attacks::{Attack, Kind, Target};

/// MACs: of the bystander's ends `src0` and `dst0`, of the attacker, and of the program's ports.
pub(crate) const HOSTS: [&str; 3] = ["02:00:00:00:01:02", "02:00:00:00:02:02", "02:00:00:00:03:02"];
const PORTS: [&str; 3] = ["02:00:00:00:01:01", "02:00:00:00:02:01", "02:00:00:00:03:01"];
const NAMES: [&str; 3] = ["src0", "dst0", "evil"];

/// Where the metrics are served, in the program's own namespace.
pub(crate) const METRICS: &str = "127.0.0.1:9464";

const SOON: Duration = Duration::from_secs(20);

/// A router says this much later than a switch that it runs: its twins come up.
const STARTED: Duration = Duration::from_secs(60);

/// The bystander's stream, where it has a port of its own: small against any machine, so that a loss is the attack's.
const STREAM_PPS: u64 = 5_000;

/// Loss of the bystander behind another port that no busy machine explains, in percent.
const LOSS_MAX_PERCENT: f64 = 2.0;

/// Silence that none explains either. Two processors that are shared with others stall for some tenths of a second.
const GAP_MAX_MS: f64 = 1_500.0;

/// How long the stream runs before an attack and after it.
const MARGIN: Duration = Duration::from_millis(700);

pub(crate) struct Lab {
    stream: Netns,
    evil: Netns,
    pub(crate) router: Netns,
    process: Process,
    pub(crate) scratch: Scratch,
    pub(crate) program: PathBuf,
    mode: &'static str,
    keys: &'static str,
    /// Whether an attack found something wrong.
    is_hurt: bool,
}

/// What one attack did.
#[derive(Debug, Default)]
pub(crate) struct Row {
    attack: String,
    /// What was sent, in the attack's own unit a second.
    rate: f64,
    unit: &'static str,
    stream_pps: f64,
    loss_percent: f64,
    lost: u64,
    gap_ms: f64,
    before_mb: f64,
    after_mb: f64,
    same_port: bool,
    /// What must not be, in words.
    wrong: Vec<String>,
}

impl Row {
    pub(crate) const TITLES: &str = "attack                      rate/s  stream pps      lost   loss %    outage ms  \
                                     memory MB before  after";

    pub(crate) fn line(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "{:<22} {:>11.0} {:>11.0} {:>9} {:>8.3} {:>12.1} {:>17.1} {:>6.1}",
            self.name(),
            self.rate,
            self.stream_pps,
            self.lost,
            self.loss_percent,
            self.gap_ms,
            self.before_mb,
            self.after_mb
        );
        for wrong in &self.wrong {
            let _ = write!(out, "\n  {wrong}");
        }
        out
    }

    fn name(&self) -> String {
        format!("{}{}", self.attack, if self.same_port { " (same port)" } else { "" })
    }

    /// What makes the run fail.
    pub(crate) fn problems(&self, growth_max_mb: f64) -> Vec<String> {
        let mut problems = self.wrong.clone();
        if self.loss_percent > LOSS_MAX_PERCENT && !self.same_port {
            problems.push(format!("the bystander lost {:.3} %", self.loss_percent));
        }
        if self.gap_ms > GAP_MAX_MS && !self.same_port {
            problems.push(format!("the bystander received nothing for {:.0} ms", self.gap_ms));
        }
        if self.after_mb > self.before_mb + growth_max_mb {
            let (before, after) = (self.before_mb, self.after_mb);
            problems.push(format!("memory grew from {before:.1} MB to {after:.1} MB"));
        }
        problems.into_iter().map(|problem| format!("{}: {problem}", self.name())).collect()
    }
}

/// The rows as JSON.
pub(crate) fn json(rows: &[Row]) -> String {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "attack": row.attack, "same_port": row.same_port, "rate": row.rate, "unit": row.unit,
                "stream_pps": row.stream_pps, "lost_packets": row.lost, "loss_percent": row.loss_percent,
                "longest_gap_ms": row.gap_ms, "memory_before_mb": row.before_mb, "memory_after_mb": row.after_mb,
                "problems": row.wrong,
            })
        })
        .collect();
    format!("{:#}\n", json!(rows))
}

impl Lab {
    /// Starts the program in this mode with these keys beside the usual ones.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn start(program: &Path, mode: &'static str, keys: &'static str) -> Lab {
        let (stream, evil, router) =
            (Netns::new("bystander"), Netns::new("evil"), Netns::new("abused"));
        let ends = [(&stream, "src0"), (&stream, "dst0"), (&evil, "eth0")];
        for (number, (netns, interface)) in ends.into_iter().enumerate() {
            let far = (&router, NAMES[number], PORTS[number]);
            veth((netns, interface, HOSTS[number]), far, 1500);
            if mode == "switch" {
                netns.ip(&format!("link set {interface} up"));
                netns.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "1");
                continue;
            }
            netns.address(interface, &format!("10.0.{}.2/24", number + 1));
            netns.address(interface, &format!("fd00:{}::2/64", number + 1));
        }
        let scratch = Scratch::new();
        let mut text = format!(
            "mode = \"{mode}\"\n[system]\nworkers = 2\nsocket = \"{}\"\nmetrics = \"{METRICS}\"\n",
            scratch.join("ctl.sock").display()
        );
        for (number, name) in (1..).zip(NAMES) {
            text += &format!("[port.{name}]\n");
            if mode != "switch" {
                text += &format!("addresses = [\"10.0.{number}.1/24\", \"fd00:{number}::1/64\"]\n");
            }
        }
        if mode == "router" {
            text += "[[route]]\nprefix = \"198.19.0.0/16\"\nvia = \"10.0.2.2\"\n\
                     [[route]]\nprefix = \"2001:2:0:2::/64\"\nvia = \"fd00:2::2\"\n\
                     [[route]]\nprefix = \"2001:db8:1::/48\"\nvia = \"fd00:2::2\"\n";
        }
        if mode == "ndn" {
            text += "[ndn.face.producer]\nport = \"dst0\"\nlocal = \"10.0.2.1\"\nremote = \"10.0.2.2\"\n\
                     [[name]]\nprefix = \"/by\"\nfaces = [\"producer\"]\n\
                     [[name]]\nprefix = \"/flood\"\nfaces = [\"producer\"]\n";
        }
        text += keys;
        let file = scratch.write("abused.toml", &text);
        let mut process = router.spawn(&format!("{} run {}", program.display(), file.display()));
        process.wait_for("running: ", STARTED);
        let lab = Lab {
            stream,
            evil,
            router,
            process,
            scratch,
            program: program.to_owned(),
            mode,
            keys,
            is_hurt: false,
        };
        lab.settle();
        lab
    }

    /// Whether it was started as this attack wants it.
    pub(crate) fn is_of(&self, attack: &Attack) -> bool {
        self.mode == attack.mode && self.keys == attack.keys
    }

    /// Whether nothing went wrong so far.
    pub(crate) fn is_well(&self) -> bool {
        !self.is_hurt
    }

    /// Lets the program learn who is there: neighbours or stations.
    fn settle(&self) {
        if self.mode == "switch" {
            // Each end speaks once.
            for (netns, interface, host) in [(&self.stream, "dst0", 1), (&self.evil, "eth0", 2)] {
                let hello =
                    [[0xff; 6].as_slice(), &mac(HOSTS[host]), &[0x88, 0xb5], &[0; 46]].concat();
                self.send(netns, interface, "hello", &[hello], 100, MARGIN).wait(SOON);
            }
            let learned = || {
                self.ctl("show macs")
                    .is_ok_and(|text| text.contains(HOSTS[1]) && text.contains(HOSTS[2]))
            };
            assert!(wait_until(SOON, learned), "{:?}", self.ctl("show macs"));
            return;
        }
        for (number, netns) in (1..).zip([&self.stream, &self.stream, &self.evil]) {
            let ping = format!("ping -n -c 1 -W 1 10.0.{number}.1");
            assert!(wait_until(SOON, || netns.try_run(&ping).status.success()), "{ping}");
        }
    }

    /// `shadeline ctl WORDS`; its output, or what went wrong.
    pub(crate) fn ctl(&self, words: &str) -> Result<String, String> {
        let socket = self.scratch.join("ctl.sock");
        let mut command = Command::new("timeout");
        command.arg("10").arg(&self.program).args(["ctl", "--socket"]).arg(socket);
        let output = command.args(words.split_whitespace()).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => {
                Err(format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
            }
        }
    }

    /// Runs an attack of this rate and time beside the bystander's stream.
    pub(crate) fn run(
        &mut self,
        attack: &Attack,
        rate: u64,
        time: Duration,
        same_port: bool,
    ) -> Row {
        let stream_pps = if same_port { self.capacity() / 2 } else { self.quiet_pps() };
        let before = (self.routes(), self.memory_mb(), self.leaked());
        let mut stream = self.stream(stream_pps, time + 2 * MARGIN);
        std::thread::sleep(MARGIN);
        let (sent, unit, wrong) = self.attack(attack, rate, time, same_port);
        let mut row = Row { attack: attack.name.to_owned(), unit, same_port, ..Row::default() };
        row.wrong.extend(wrong);
        row.rate = sent / time.as_secs_f64();
        self.judge(&mut row, &mut stream, before);
        row
    }

    /// Runs attacks in turn, each for so long, until the time is over.
    pub(crate) fn mixed(
        &mut self,
        attacks: &[&Attack],
        rate: u64,
        each: Duration,
        time: Duration,
    ) -> Row {
        let before = (self.routes(), self.memory_mb(), self.leaked());
        let begin = Instant::now();
        let mut stream = self.stream(self.quiet_pps(), time + 2 * MARGIN);
        let mut row = Row { attack: "all, mixed".to_owned(), unit: "packets", ..Row::default() };
        let mut sent = 0.0;
        for attack in attacks.iter().cycle() {
            if begin.elapsed() + each > time || attacks.is_empty() {
                break;
            }
            let (more, _, wrong) = self.attack(attack, rate, each, false);
            row.wrong.extend(wrong.map(|wrong| format!("{}: {wrong}", attack.name)));
            sent += more;
        }
        row.rate = sent / begin.elapsed().as_secs_f64();
        self.judge(&mut row, &mut stream, before);
        row
    }

    /// How many the attack sent, of what; and what went wrong while it ran.
    fn attack(
        &self,
        attack: &Attack,
        rate: u64,
        time: Duration,
        same_port: bool,
    ) -> (f64, &'static str, Option<String>) {
        let port = if same_port { 0 } else { 2 };
        let (netns, interface) =
            if same_port { (&self.stream, "src0") } else { (&self.evil, "eth0") };
        match attack.kind {
            Kind::Frames { pps, frames } => {
                let target =
                    Target { router: mac(PORTS[port]), own: mac(HOSTS[port]), net: port as u8 + 1 };
                let rate = pps.unwrap_or(rate);
                let mut sender =
                    self.send(netns, interface, attack.name, &frames(&target), rate, time);
                let (status, text) = sender.wait(time + SOON);
                let sent = number(&text, "packets");
                let wrong =
                    (!status.success() || sent == 0.0).then(|| format!("it was not sent: {text}"));
                (sent, "packets", wrong)
            }
            Kind::Flaps => {
                let (begin, mut flaps) = (Instant::now(), 0.0);
                while begin.elapsed() < time {
                    netns.ip(&format!("link set {interface} down"));
                    std::thread::sleep(Duration::from_millis(20));
                    netns.ip(&format!("link set {interface} up"));
                    std::thread::sleep(Duration::from_millis(20));
                    flaps += 1.0;
                }
                (flaps, "flaps", None)
            }
            Kind::Local { act } => {
                // The members of the socket's group, for once everybody.
                for (path, mode) in [
                    (self.scratch.path().to_owned(), 0o755),
                    (self.scratch.join("ctl.sock"), 0o666),
                ] {
                    std::fs::set_permissions(&path, Permissions::from_mode(mode))
                        .expect("permissions");
                }
                let ended = AtomicBool::new(false);
                let done = std::thread::scope(|scope| {
                    let acting = scope.spawn(|| {
                        enter(&self.router);
                        become_nobody();
                        act(self, &ended)
                    });
                    std::thread::sleep(time);
                    // The attack is still there: it must not keep the operator out.
                    let wrong = self.ctl("show interfaces").err();
                    ended.store(true, Ordering::Relaxed);
                    (acting.join().unwrap_or(0), wrong)
                });
                (
                    done.0 as f64,
                    "connections",
                    done.1.map(|error| format!("ctl beside it: {error}")),
                )
            }
        }
    }

    /// Sends frames in turn from a namespace.
    fn send(
        &self,
        netns: &Netns,
        interface: &str,
        name: &str,
        frames: &[Vec<u8>],
        pps: u64,
        time: Duration,
    ) -> Process {
        let path = self.scratch.join(&format!("{name}.pcap"));
        let records: Vec<Record> =
            frames.iter().map(|frame| Record::new(0, frame.clone())).collect();
        pcap::write_pcap(&path, &records);
        netns.spawn(&format!(
            "{} gen packets --interface {interface} --frames {} --rate {pps}pps --duration {}ms --json",
            self.program.display(),
            path.display(),
            time.as_millis()
        ))
    }

    /// The bystander's stream from `src0` to `dst0`.
    fn stream(&self, pps: u64, time: Duration) -> Process {
        if self.mode == "ndn" {
            let own = std::env::current_exe().expect("the path of this program");
            return self.stream.spawn(&format!(
                "{} --names {pps} {}",
                own.display(),
                time.as_millis()
            ));
        }
        let to = if self.mode == "switch" { HOSTS[1] } else { PORTS[0] };
        self.stream.spawn(&format!(
            "{} measure --tx src0 --rx dst0 --rate {pps}pps --duration {}ms --wait 500ms --size 128 --src 10.0.1.2 \
             --dst 198.19.0.0/16 --dst-mac {to} --json",
            self.program.display(),
            time.as_millis()
        ))
    }

    /// The bystander's packets a second, where it has a port of its own.
    fn quiet_pps(&self) -> u64 {
        if self.mode == "ndn" { STREAM_PPS / 10 } else { STREAM_PPS }
    }

    /// Packets a second that pass from `src0` to `dst0` with next to no loss, by bisection.
    fn capacity(&self) -> u64 {
        if self.mode == "ndn" {
            return 2 * self.quiet_pps();
        }
        let mut search = self.stream.spawn(&format!(
            "{} measure --tx src0 --rx dst0 --max-loss 0.1 --resolution 5 --duration 1s --wait 300ms --size 128 \
             --src 10.0.1.2 --dst 198.19.0.0/16 --dst-mac {} --json",
            self.program.display(),
            if self.mode == "switch" { HOSTS[1] } else { PORTS[0] },
        ));
        let (_, text) = search.wait(Duration::from_secs(120));
        let best = number(&text, "offered_pps");
        (best as u64).max(2 * STREAM_PPS)
    }

    /// Completes a row: the stream's loss, what changed, whether the program still answers.
    fn judge(&mut self, row: &mut Row, stream: &mut Process, before: (String, f64, u64)) {
        let (status, text) = stream.wait(Duration::from_secs(60) + SOON * 60);
        if !status.success() {
            row.wrong.push(format!("the stream ended with {status}: {text}"));
        }
        row.stream_pps = number(&text, "offered_pps");
        // What the receiver's own queue lost is no fault of the program.
        let overruns = number(&text, "overrun_packets");
        let (lost, sent) =
            (number(&text, "lost_packets") - overruns, number(&text, "sent_packets"));
        row.lost = lost.max(0.0) as u64;
        row.loss_percent = if sent > 0.0 { 100.0 * lost.max(0.0) / sent } else { 100.0 };
        row.gap_ms = number(&text, "longest_gap_ms");
        (row.before_mb, row.after_mb) = (before.1, self.memory_mb());
        if !self.process.is_running() {
            row.wrong.push(format!("the program ended: {}", self.process.output()));
            return;
        }
        if let Err(error) = self.ctl("show interfaces") {
            row.wrong.push(format!("ctl: {error}"));
        }
        if !wait_until(SOON, || self.metrics_answer()) {
            row.wrong.push("the metrics no longer answer".to_owned());
        }
        let mut routes = self.routes();
        // Those of the attacker's own link may be away for a moment.
        wait_until(SOON, || {
            routes = self.routes();
            routes == before.0
        });
        if routes != before.0 {
            row.wrong.push(changes(&before.0, &routes));
        }
        let leaked = self.leaked() - before.2;
        if leaked > 0 {
            row.wrong.push(format!("{leaked} frames of the bystander reached the attacker"));
        }
        let text = self.process.output();
        if let Some(line) = text.lines().find(|line| line.contains("panic")) {
            row.wrong.push(format!("the program said: {line}"));
        }
        self.is_hurt = !row.wrong.is_empty();
    }

    /// The routes as `ctl` shows them, sorted, without the link-local ones: those that have the same prefix on each port
    /// are in the order in which the ports came up. Empty for a switch.
    fn routes(&self) -> String {
        if self.mode != "router" {
            return String::new();
        }
        let text = self.ctl("show routes").unwrap_or_else(|error| error);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut lines: Vec<String> =
            text.lines().map(words).filter(|line| !line.contains(" fe80::")).collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// Frames to the bystander that arrived at the attacker, by the kernel's counter.
    fn leaked(&self) -> u64 {
        if self.mode != "switch" {
            return 0;
        }
        let rules = self.evil.try_run("nft list table netdev leaked");
        if !rules.status.success() {
            self.evil.shell(&format!(
                "nft 'add table netdev leaked; add chain netdev leaked c {{ type filter hook ingress device eth0 \
                 priority 0; }}; add rule netdev leaked c ether daddr {} counter'",
                HOSTS[1]
            ));
            return 0;
        }
        let text = String::from_utf8_lossy(&rules.stdout).into_owned();
        let rest = text.split("counter packets ").nth(1).unwrap_or_default();
        rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default()
    }

    /// Whether the metrics are served.
    fn metrics_answer(&self) -> bool {
        let fetch = || {
            enter(&self.router);
            let mut stream = TcpStream::connect_timeout(&METRICS.parse().ok()?, SOON).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            text.starts_with("HTTP/1.0 200").then_some(())
        };
        // A thread of its own: it stays in the namespace.
        std::thread::scope(|scope| scope.spawn(fetch).join().ok().flatten().is_some())
    }

    /// Resident memory of the program.
    fn memory_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib: f64 =
            line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default();
        kib / 1024.0
    }
}

/// The lines that came and went, the first few of each.
fn changes(before: &str, after: &str) -> String {
    let missing = |from: &str, of: &str| -> Vec<String> {
        let of: Vec<&str> = of.lines().collect();
        from.lines().filter(|line| !of.contains(line)).map(str::to_owned).collect()
    };
    let (gone, new) = (missing(before, after), missing(after, before));
    let first = |lines: &[String]| {
        lines.iter().take(3).map(|line| format!("\n    {line}")).collect::<String>()
    };
    format!("routes changed: {} gone{}, {} new{}", gone.len(), first(&gone), new.len(), first(&new))
}

/// Moves this thread into a namespace: what it opens from now on belongs there.
fn enter(netns: &Netns) {
    let path = format!("/run/netns/{}", netns.name());
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let moved = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
    moved.unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Takes root's rights from this thread: places that are kept for root are none of its.
fn become_nobody() {
    let nobody = Uid::from_raw(65_534);
    set_thread_res_uid(nobody, nobody, nobody).expect("another user");
}

/// A MAC address's bytes.
fn mac(text: &str) -> [u8; 6] {
    let mut bytes = [0; 6];
    for (byte, part) in bytes.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(part, 16).unwrap_or_default();
    }
    bytes
}

/// A number of the JSON that a program printed, wherever it stands; 0 without it. With several, the first that is
/// `best`'s.
fn number(text: &str, name: &str) -> f64 {
    let begin = text.find('{').unwrap_or(text.len());
    let json: Value = serde_json::from_str(&text[begin..]).unwrap_or_default();
    let of = |json: &Value| json[name].as_f64();
    of(&json).or_else(|| of(&json["best"])).unwrap_or_default()
}
