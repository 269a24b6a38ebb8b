//! Open vSwitch's userspace datapath as a library of this test: flows by OpenFlow, packets by its dummy ports.
//!
//! ```text
//!  OpenFlow 1.0 or 1.3 ─▶ br0.mgmt ─▶ ┌──────────────┐ ─▶ p1.pcap … p4.pcap
//!  netdev-dummy/receive ─▶ vs.ctl ──▶ │ ovs-vswitchd │
//!                                     └──────────────┘
//! ```
//!
//! `ovsdb-server` and `ovs-vswitchd` are ordinary processes with a folder of their own; they need no rights and no kernel module.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use openflow::message::{Body, Hello};
use openflow::{ErrorCode, Message, Version, wire};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::{Scratch, require_tool, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The frame behind all others: when it has left by every port, so have they.
const LAST: [u8; 2] = [0xbe, 0xef];

/// What left by each of four ports, in order.
pub type Frames = [Vec<Vec<u8>>; 4];

/// Why Open vSwitch did not do something.
#[derive(Debug)]
pub enum Failure {
    /// It says no.
    Refused(ErrorCode),
    /// Its process is gone. Version 3.1 crashes now and then under load; nothing is known about the frame or the flows then.
    Ended,
}

/// A socket failed: the process has ended, or the test has.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let kind = error.kind();
        let is_timeout = matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!is_timeout, "Open vSwitch does not answer");
        Self::Ended
    }
}

/// A switch; its processes end with it.
pub struct Ovs {
    _scratch: Scratch,
    programs: Vec<Process>,
    control: Control,
    connection: UnixStream,
    version: Version,
    xid: u32,
    /// Since frames last passed.
    is_changed: bool,
    /// By port: its capture, and what of it is not a whole record yet.
    captures: Vec<(File, Vec<u8>)>,
}

impl Ovs {
    /// A switch that speaks one version. `None`, and the test is skipped, where the programs are missing.
    pub fn start(version: Version) -> Option<Self> {
        for program in ["ovsdb-server", "ovs-vswitchd", "ovsdb-tool", "ovs-vsctl"] {
            require_tool(program)?;
        }
        let schema = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
        let scratch = Scratch::new();
        let command = |program: &str, words: &[&str]| {
            let mut command = Command::new(require_tool(program).unwrap());
            command.args(words).current_dir(scratch.path());
            for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
                command.env(variable, scratch.path());
            }
            command
        };
        let run = |program: &str, words: &[&str]| {
            let output = command(program, words).output().unwrap();
            assert!(output.status.success(), "{program} {words:?}: {output:?}");
        };
        run("ovsdb-tool", &["create", "db", schema.to_str().unwrap()]);
        let server = ["db", "--remote=punix:db.sock", "--unixctl=db.ctl"];
        let mut programs = vec![Process::spawn(command("ovsdb-server", &server))];
        // The socket is there a moment before anybody listens.
        let database = scratch.join("db.sock");
        assert!(wait_until(TIMEOUT, || UnixStream::connect(&database).is_ok()));
        run("ovs-vsctl", &["--no-wait", "--db=unix:db.sock", "init"]);
        let dummy = ["--enable-dummy=override", "--disable-system"];
        let switch = ["unix:db.sock", dummy[0], dummy[1], "--no-chdir", "--unixctl=vs.ctl"];
        programs.push(Process::spawn(command("ovs-vswitchd", &switch)));
        let spoken = match version {
            Version::V10 => "OpenFlow10",
            Version::V13 => "OpenFlow13",
        };
        let bridge = format!(
            "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure protocols={spoken}"
        );
        let mut words = format!("--db=unix:db.sock --timeout=60 {bridge}");
        for port in 1..=4 {
            let options = format!("ofport_request={port} options:tx_pcap=p{port}.pcap");
            let port = format!("p{port} -- set Interface p{port} type=dummy {options}");
            words = format!("{words} -- add-port br0 {port}");
        }
        run("ovs-vsctl", &words.split(' ').collect::<Vec<_>>());
        let control = Control::connect(&scratch.join("vs.ctl"));
        let connection = UnixStream::connect(scratch.join("br0.mgmt")).unwrap();
        connection.set_read_timeout(Some(TIMEOUT)).unwrap();
        let capture = |port: usize| {
            let mut file = File::open(scratch.join(&format!("p{port}.pcap"))).unwrap();
            let mut header = [0; 24];
            assert!(wait_until(TIMEOUT, || file.read_exact(&mut header).is_ok()));
            (file, Vec::new())
        };
        let captures = (1..=4).map(capture).collect();
        let mut own = Self {
            _scratch: scratch,
            programs,
            control,
            connection,
            version,
            xid: 0,
            is_changed: false,
            captures,
        };
        own.send(Body::Hello(Hello::default())).unwrap();
        own.barrier().unwrap();
        Some(own)
    }

    /// How its process ended, once it has.
    pub fn end(&mut self) -> String {
        let (status, output) = self.programs[1].wait(TIMEOUT);
        format!("{status}\n{output}")
    }

    fn send(&mut self, body: Body) -> Result<(), Failure> {
        self.xid += 1;
        let message = Message::new(self.version, self.xid, body);
        let bytes = wire::encode(&message).unwrap_or_else(|why| panic!("{why}: {message:?}"));
        Ok(self.connection.write_all(&bytes)?)
    }

    fn receive(&mut self) -> Result<Message, Failure> {
        let mut bytes = vec![0; wire::HEADER_LEN];
        self.connection.read_exact(&mut bytes)?;
        bytes.resize(wire::Header::read(&bytes).unwrap().len.into(), 0);
        self.connection.read_exact(&mut bytes[wire::HEADER_LEN..])?;
        Ok(wire::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}")))
    }

    /// Waits until everything that was sent is done; the first error among it.
    fn barrier(&mut self) -> Result<(), Failure> {
        self.send(Body::BarrierRequest)?;
        let (last, mut error) = (self.xid, None);
        loop {
            let message = self.receive()?;
            match message.body {
                Body::BarrierReply if message.xid == last => break,
                Body::Error(own) => error = error.or(Some(own.code)),
                Body::EchoRequest(data) => self.send(Body::EchoReply(data))?,
                _ => {}
            }
        }
        error.map_or(Ok(()), |code| Err(Failure::Refused(code)))
    }

    /// Carries out one request. One that the version cannot express is refused.
    pub fn request(&mut self, body: Body) -> Result<(), Failure> {
        let message = Message::new(self.version, self.xid, body);
        wire::encode(&message).map_err(|_| Failure::Refused(ErrorCode::BadRequestType))?;
        self.is_changed = true;
        self.send(message.body)?;
        self.barrier()
    }

    /// Carries out many requests, then looks for errors once; the first one.
    pub fn requests(&mut self, bodies: impl IntoIterator<Item = Body>) -> Result<(), Failure> {
        self.is_changed = true;
        for body in bodies {
            self.send(body)?;
        }
        self.barrier()
    }

    /// What it says of a frame.
    pub fn trace(&mut self, frame: &[u8]) -> Result<String, Failure> {
        self.control.call("ofproto/trace", &["br0".into(), "in_port=1".into(), hex(frame)])
    }

    /// Sends frames by port 1, one after the other and each by the flows themselves: the cache is empty. A flow sends the frame
    /// behind each everywhere: [`marker`].
    pub fn pass(&mut self, frames: &[Vec<u8>]) -> Result<Frames, Failure> {
        let mut out = Frames::default();
        // A thread of its own brings the cache up to date; it may be about to put back what is purged.
        if std::mem::take(&mut self.is_changed) {
            self.control.call("revalidator/wait", &[])?;
        }
        for frame in frames {
            self.control.call("revalidator/purge", &[])?;
            self.pass_one(frame, &mut out)?;
        }
        Ok(out)
    }

    fn pass_one(&mut self, frame: &[u8], out: &mut Frames) -> Result<(), Failure> {
        let mut last = vec![2; 60];
        last[12..14].copy_from_slice(&LAST);
        let words = ["p1".to_owned(), hex(frame), hex(&last)];
        self.control.call("netdev-dummy/receive", &words)?;
        let mut ended = [false; 4];
        let end = std::time::Instant::now() + TIMEOUT;
        while ended.contains(&false) {
            assert!(std::time::Instant::now() < end, "Open vSwitch sends no frames: {ended:?}");
            if !self.programs[1].is_running() {
                return Err(Failure::Ended);
            }
            std::thread::sleep(Duration::from_micros(300));
            for (port, (file, rest)) in self.captures.iter_mut().enumerate() {
                file.read_to_end(rest).unwrap();
                while let Some(header) = rest.get(..16) {
                    let len = u32::from_ne_bytes(header[8..12].try_into().unwrap()) as usize;
                    let Some(frame) = rest.get(16..16 + len) else { break };
                    match frame == last {
                        true => ended[port] = true,
                        false => out[port].push(frame.to_vec()),
                    }
                    rest.drain(..16 + len);
                }
            }
        }
        Ok(())
    }
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The flow that [`Ovs::pass`] needs: the last frame goes out by all ports.
pub fn marker() -> Body {
    use openflow::{Action, Field, FlowCommand, FlowMod, Instruction, PortNo};
    let mut flow = FlowMod::new(FlowCommand::Add);
    flow.priority = u16::MAX;
    flow.matches.set(Field::EthType, u16::from_be_bytes(LAST).into(), 0xffff);
    let actions = vec![Action::output(PortNo::IN_PORT), Action::output(PortNo::ALL)];
    flow.instructions = vec![Instruction::ApplyActions(actions)];
    Body::FlowMod(flow)
}

/// Its control socket: JSON-RPC.
struct Control {
    commands: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Control {
    fn connect(path: &Path) -> Self {
        let commands = UnixStream::connect(path).unwrap();
        commands.set_read_timeout(Some(TIMEOUT)).unwrap();
        let answers = BufReader::new(commands.try_clone().unwrap());
        Self { commands, answers }
    }

    fn call(&mut self, method: &str, words: &[String]) -> Result<String, Failure> {
        let request = json!({ "id": 0, "method": method, "params": words });
        self.commands.write_all(request.to_string().as_bytes())?;
        let mut answers = serde_json::Deserializer::from_reader(&mut self.answers).into_iter();
        let answer: Value = answers.next().ok_or(Failure::Ended)?.map_err(std::io::Error::from)?;
        assert!(answer["error"].is_null(), "{method} {words:?}: {answer}");
        Ok(answer["result"].as_str().unwrap_or_default().to_owned())
    }
}
