//! The peer: Open vSwitch's userspace datapath with DPDK, on the same flows and the same packets.
//!
//! ```text
//!  frames ─▶ capture ─▶ net_pcap, infinite_rx ─▶ ┌───────────────────────────────┐ ─▶ net_null × 3
//!  flows by OpenFlow 1.0 ──▶ br.mgmt ──────────▶ │ ovs-vswitchd-dpdk, one PMD    │
//!                                                └───────────────────────────────┘
//! ```
//!
//! Both ends are memory: `net_pcap` reads its capture once into buffers, then copies each frame into a fresh buffer when it is
//! received, round and round; `net_null` frees what is sent. The processes are ordinary ones with a folder of their own, and need
//! no rights. Between rounds they are stopped by a signal, so that the PMD, which polls for ever, takes nothing from the other side.
//!
//! Before rounds, packets pass until each of them has a flow of the datapath; idle flows stay for ever, and their number is not
//! limited. So the peer is measured at its best: no packet of a round goes to the tables of OpenFlow.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use openflow::message::{Body, Hello, MultipartReply, MultipartRequest};
use openflow::{FlowMod, Message, PortNo, Version, wire};

use crate::tables::PORTS;

/// Debian's build with DPDK; the other one of the same name has no ports from memory.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

const TIMEOUT: Duration = Duration::from_secs(60);
/// Until each packet has its flow in the datapath: a million flows of OpenFlow take a while to be searched.
const WARM_UP: Duration = Duration::from_secs(120);

/// Huge pages of 2 MB that its buffers take.
const HUGE_PAGES: u64 = 520;

/// A switch; its processes end with it.
#[derive(Debug)]
pub(super) struct Ovs {
    processes: Started,
    /// The switch.
    process: u32,
    connection: UnixStream,
    control: UnixStream,
    answers: BufReader<UnixStream>,
    xid: u32,
    pmd: PathBuf,
    is_huge: bool,
}

/// What a round says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// Millions of packets a second of its thread's own time.
    pub(super) rate: f64,
    /// Cycles a packet, as it counts them itself.
    pub(super) cycles: f64,
}

fn failed(what: &str, why: impl std::fmt::Display) -> String {
    format!("{what}: {why}")
}

/// Whether a huge page is there for each of its buffers.
fn has_huge_pages() -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|line| line.trim().parse::<u64>().ok()).is_some_and(|free| free >= HUGE_PAGES)
}

impl Ovs {
    /// A switch with the flows, which gets the frames for ever by port 1.
    ///
    /// # Errors
    /// It is not installed, or why it does not start.
    pub(super) fn start(
        flows: impl Iterator<Item = FlowMod>,
        frames: &[Vec<u8>],
    ) -> Result<Self, String> {
        if !Path::new(SWITCH).exists() {
            return Err("Debian's package openvswitch-switch-dpdk is not installed".into());
        }
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("shadeline-ovs-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).map_err(|e| failed("the peer's folder", e))?;
        let is_huge = has_huge_pages();
        let memory = match is_huge {
            true => "--no-pci".to_owned(),
            // Its own default without huge pages, --in-memory, is one that DPDK refuses.
            false => format!("--no-pci --no-huge --legacy-mem --file-prefix={name} -m 1500"),
        };
        run(&folder, "ovsdb-tool", &["create", "db", SCHEMA])?;
        let server = spawn(
            &folder,
            Path::new("ovsdb-server"),
            &["db", "--remote=punix:db.sock", "--unixctl=db.ctl"],
        )?;
        let mut own = Started { folder, children: vec![server] };
        wait_for(&own.folder.join("db.sock"))?;
        let settings = [
            "dpdk-init=true".to_owned(),
            format!("dpdk-extra=\"{memory}\""),
            "pmd-cpu-mask=0x1".to_owned(),
            "max-idle=1000000000".to_owned(),
            "flow-limit=4000000".to_owned(),
            "max-revalidator=1000".to_owned(),
        ];
        let settings = settings.map(|setting| format!("other_config:{setting}"));
        own.configure(&["--no-wait", "init"])?;
        let words = ["--no-wait", "set", "Open_vSwitch", "."].map(str::to_owned);
        let words: Vec<String> = words.into_iter().chain(settings).collect();
        own.configure(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        let switch = ["unix:db.sock", "--no-chdir", "--unixctl=vs.ctl"];
        // As root it would leave the interfaces of its bridge behind, so it gets a network namespace of its own.
        let switch = match rustix::process::geteuid().is_root() {
            true => spawn(
                &own.folder,
                Path::new("unshare"),
                &[&["-n", "--", SWITCH], &switch[..]].concat(),
            )?,
            false => spawn(&own.folder, Path::new(SWITCH), &switch)?,
        };
        let process = switch.id();
        own.children.push(switch);
        own.configure(&[
            "add-br",
            "br",
            "--",
            "set",
            "bridge",
            "br",
            "datapath-type=netdev",
            "fail-mode=secure",
            "protocols=OpenFlow10",
        ])?;
        wait_for(&own.folder.join("br.mgmt"))?;
        let connect = |name: &str| {
            let stream = UnixStream::connect(own.folder.join(name));
            let stream = stream.map_err(|e| failed(name, e))?;
            stream.set_read_timeout(Some(TIMEOUT)).map_err(|e| failed(name, e))?;
            Ok::<_, String>(stream)
        };
        let (connection, control) = (connect("br.mgmt")?, connect("vs.ctl")?);
        let answers = BufReader::new(control.try_clone().map_err(|e| failed("vs.ctl", e))?);
        let pmd = PathBuf::new();
        let processes = own;
        let mut own =
            Self { processes, process, connection, control, answers, xid: 0, pmd, is_huge };
        own.install(flows)?;
        own.open_ports(frames)?;
        own.warm_up(frames.len())?;
        own.stop()?;
        Ok(own)
    }

    /// What its figures depend on.
    pub(super) fn note(&self) -> String {
        let version = Command::new(SWITCH).arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let version = version.unwrap_or_default();
        let version = version.lines().map(|line| line.replace("ovs-vswitchd-dpdk ", ""));
        let pages = if self.is_huge { "huge pages" } else { "pages of 4 KB" };
        format!(
            "{}; from memory: net_pcap with infinite_rx to net_null; buffers on {pages}",
            version.collect::<Vec<_>>().join(", ")
        )
    }

    fn send(&mut self, body: Body, out: &mut Vec<u8>) -> Result<(), String> {
        self.xid += 1;
        let bytes = wire::encode(&Message::new(Version::V10, self.xid, body));
        out.extend(bytes.map_err(|e| failed("a message", e))?);
        Ok(())
    }

    /// Sends what is in `out`, and reads messages up to the answer of the last one.
    fn exchange(&mut self, out: &mut Vec<u8>) -> Result<Body, String> {
        loop {
            self.connection.write_all(out).map_err(|e| failed("br.mgmt", e))?;
            out.clear();
            let mut bytes = vec![0; wire::HEADER_LEN];
            self.connection.read_exact(&mut bytes).map_err(|e| failed("br.mgmt", e))?;
            let len = wire::Header::read(&bytes).map_or(0, |header| usize::from(header.len));
            bytes.resize(len.max(wire::HEADER_LEN), 0);
            let rest = &mut bytes[wire::HEADER_LEN..];
            self.connection.read_exact(rest).map_err(|e| failed("br.mgmt", e))?;
            let message = wire::decode(&bytes).map_err(|e| failed("br.mgmt", e))?;
            match message.body {
                Body::Error(error) => return Err(failed("br.mgmt", format!("{error:?}"))),
                Body::EchoRequest(data) => {
                    let (last, reply) = (self.xid, Body::EchoReply(data));
                    self.send(reply, out)?;
                    self.xid = last;
                }
                body if message.xid == self.xid => return Ok(body),
                _ => {}
            }
        }
    }

    fn install(&mut self, flows: impl Iterator<Item = FlowMod>) -> Result<(), String> {
        let mut out = Vec::new();
        self.send(Body::Hello(Hello::default()), &mut out)?;
        self.send(Body::BarrierRequest, &mut out)?;
        self.exchange(&mut out)?;
        for (number, flow) in flows.enumerate() {
            self.send(Body::FlowMod(flow), &mut out)?;
            if number % 1024 == 1023 {
                self.send(Body::BarrierRequest, &mut out)?;
                self.exchange(&mut out)?;
            }
        }
        self.send(Body::BarrierRequest, &mut out)?;
        self.exchange(&mut out).map(drop)
    }

    fn open_ports(&mut self, frames: &[Vec<u8>]) -> Result<(), String> {
        let path = self.processes.folder.join("in.pcap");
        let mut capture = Vec::new();
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
            capture.extend(word.to_ne_bytes());
        }
        for frame in frames {
            let len = frame.len() as u32;
            [0, 0, len, len].iter().for_each(|word| capture.extend(word.to_ne_bytes()));
            capture.extend(frame);
        }
        std::fs::write(&path, capture).map_err(|e| failed("the peer's capture", e))?;
        // The input last: packets come from then on.
        for number in (2..=PORTS).chain([1]) {
            let arguments = match number {
                1 => format!("net_pcap1,rx_pcap={},infinite_rx=1", path.display()),
                _ => format!("net_null{number},no-rx=1"),
            };
            let port = format!("p{number}");
            let words = [
                "add-port".to_owned(),
                "br".to_owned(),
                port.clone(),
                "--".to_owned(),
                "set".to_owned(),
                "Interface".to_owned(),
                port.clone(),
                "type=dpdk".to_owned(),
                format!("options:dpdk-devargs=\"{arguments}\""),
                format!("ofport_request={number}"),
            ];
            configure(
                &self.processes.folder,
                &words.iter().map(String::as_str).collect::<Vec<_>>(),
            )?;
        }
        let tasks = PathBuf::from(format!("/proc/{}/task", self.process));
        let entries = std::fs::read_dir(&tasks).map_err(|e| failed("the peer's threads", e))?;
        let is_pmd = |path: &PathBuf| {
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            name.starts_with("pmd-c")
        };
        let pmd = entries.flatten().map(|entry| entry.path()).find(is_pmd);
        self.pmd = pmd.ok_or("the peer has no thread that polls")?;
        Ok(())
    }

    /// Lets packets pass until none misses the datapath any more.
    fn warm_up(&mut self, packets: usize) -> Result<(), String> {
        // Those who look after flows of the datapath take stopped time for their own slowness, and throw flows away.
        self.call("revalidator/pause", &[])?;
        self.call("upcall/set-flow-limit", &["4000000"])?;
        let begin = Instant::now();
        loop {
            self.call("dpif-netdev/pmd-stats-clear", &[])?;
            std::thread::sleep(Duration::from_millis(200));
            let mut now = self.statistics()?;
            while now.received < 2 * packets as u64 && begin.elapsed() < WARM_UP {
                std::thread::sleep(Duration::from_millis(100));
                now = self.statistics()?;
            }
            if now.received > 0 && now.missed == 0 {
                return Ok(());
            }
            if begin.elapsed() >= WARM_UP {
                return Err(format!("{} of {} packets still miss", now.missed, now.received));
            }
        }
    }

    /// Uses the signature match cache as well, or not.
    pub(super) fn use_smc(&mut self, is_used: bool) -> Result<(), String> {
        self.signal(rustix::process::Signal::CONT)?;
        let setting = format!("other_config:smc-enable={is_used}");
        configure(&self.processes.folder, &["set", "Open_vSwitch", ".", &setting])?;
        self.stop()
    }

    /// Lets it run so long, and stops it again.
    pub(super) fn round(&mut self, time: Duration) -> Result<Round, String> {
        self.signal(rustix::process::Signal::CONT)?;
        std::thread::sleep(time / 4);
        let (before, begin) = (self.statistics()?, self.pmd_seconds()?);
        std::thread::sleep(time);
        let (after, end) = (self.statistics()?, self.pmd_seconds()?);
        self.stop()?;
        let packets = after.received.saturating_sub(before.received) as f64;
        let missed = after.missed.saturating_sub(before.missed);
        if packets == 0.0 || missed as f64 > packets / 1000.0 {
            return Err(format!("{missed} of {packets} packets missed its datapath"));
        }
        let cycles = (after.cycles - before.cycles) / packets;
        Ok(Round { rate: packets / (end - begin) / 1e6, cycles })
    }

    /// Packets received by port 1, and sent by each of the others: since the ports are there.
    pub(super) fn counts(&mut self) -> Result<Vec<u64>, String> {
        self.signal(rustix::process::Signal::CONT)?;
        let mut out = Vec::new();
        let request = MultipartRequest::PortStats(PortNo::ANY);
        self.send(Body::MultipartRequest { more: false, request }, &mut out)?;
        let body = self.exchange(&mut out)?;
        self.stop()?;
        let Body::MultipartReply { reply: MultipartReply::PortStats(all), .. } = body else {
            return Err("the peer answers without the counters of ports".into());
        };
        let count = |number: u16| {
            let own = all.iter().find(|own| own.port == PortNo(number.into()));
            own.map_or(0, |own| match number {
                1 => own.counters.rx_packets,
                _ => own.counters.tx_packets,
            })
        };
        Ok((1..=PORTS).map(count).collect())
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<(), String> {
        let pid = i32::try_from(self.process).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or("the peer has no number")?;
        rustix::process::kill_process(pid, signal).map_err(|e| failed("the peer", e))
    }

    fn stop(&self) -> Result<(), String> {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Seconds that the polling thread has run.
    fn pmd_seconds(&self) -> Result<f64, String> {
        super::thread_seconds(&self.pmd).ok_or_else(|| "the peer's thread is gone".into())
    }

    fn statistics(&mut self) -> Result<Statistics, String> {
        let text = self.call("dpif-netdev/pmd-stats-show", &["-pmd", "0"])?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
            line.split(' ').next().and_then(|word| word.parse::<f64>().ok())
        };
        let count = |name: &str| number(name).unwrap_or(0.0) as u64;
        Ok(Statistics {
            received: count("packets received: "),
            missed: count("miss with success upcall: ") + count("miss with failed upcall: "),
            cycles: number("processing cycles: ").unwrap_or(0.0),
        })
    }

    /// A call of its control socket: JSON-RPC.
    fn call(&mut self, method: &str, words: &[&str]) -> Result<String, String> {
        let request = serde_json::json!({ "id": 0, "method": method, "params": words });
        self.control.write_all(request.to_string().as_bytes()).map_err(|e| failed(method, e))?;
        let mut all = serde_json::Deserializer::from_reader(&mut self.answers).into_iter();
        let answer: Option<Result<serde_json::Value, _>> = all.next();
        let answer = answer.ok_or("the peer ended")?.map_err(|e| failed(method, e))?;
        match answer["error"].as_str() {
            Some(error) => Err(failed(method, error)),
            None => Ok(answer["result"].as_str().unwrap_or_default().to_owned()),
        }
    }
}

/// What the polling thread has counted.
#[derive(Debug)]
struct Statistics {
    received: u64,
    /// Packets that had no flow of the datapath.
    missed: u64,
    /// Spent on packets.
    cycles: f64,
}

/// A folder and its processes: the data base's server, then the switch. All is gone with this value.
#[derive(Debug)]
struct Started {
    folder: PathBuf,
    children: Vec<Child>,
}

impl Drop for Started {
    fn drop(&mut self) {
        // What has ended already cannot be ended; a stopped process ends by SIGKILL as well.
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Started {
    fn configure(&self, words: &[&str]) -> Result<(), String> {
        configure(&self.folder, words)
    }
}

fn configure(folder: &Path, words: &[&str]) -> Result<(), String> {
    let words: Vec<&str> =
        ["--db=unix:db.sock", "--timeout=120"].iter().chain(words).copied().collect();
    run(folder, "ovs-vsctl", &words)
}

fn command(folder: &Path, program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).stdin(Stdio::null());
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
        command.env(variable, folder);
    }
    command
}

fn spawn(folder: &Path, program: &Path, words: &[&str]) -> Result<Child, String> {
    let mut command = command(folder, program, words);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.map_err(|e| failed(&program.display().to_string(), e))
}

fn run(folder: &Path, program: &str, words: &[&str]) -> Result<(), String> {
    let output = command(folder, Path::new(program), words).output();
    let output = output.map_err(|e| failed(program, e))?;
    let why = String::from_utf8_lossy(&output.stderr);
    // ovs-vsctl says what the switch refused, and ends well.
    match output.status.success() && !why.contains("rror") {
        true => Ok(()),
        false => Err(failed(program, why.lines().next().unwrap_or("failed"))),
    }
}

fn wait_for(path: &Path) -> Result<(), String> {
    let begin = Instant::now();
    while !path.exists() {
        if begin.elapsed() > TIMEOUT {
            return Err(format!("{} does not come", path.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
