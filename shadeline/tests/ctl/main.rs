//! `shadeline ctl` as people type it: words of `ip`, tables with arguments, scripts, the shell on a terminal, and what is saved.

#[path = "../common/mod.rs"]
mod common;
mod save;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use common::STARTED;
use testkit::Scratch;
use testkit::process::{Process, Stop};

/// The program as it runs, with its files.
struct Running {
    scratch: Scratch,
    process: Process,
}

const EDGE: &str = "mode = \"edge\"\n[pipeline.edge]\nstages = [\"decode\", \"firewall\", \"route\", \"rewrite\"]\n\
                    [router]\nkernel = false\n\
                    [port.left]\nbackend = \"memory\"\naddresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n\
                    [port.right]\nbackend = \"memory\"\naddresses = [\"198.51.100.1/24\"]\n\
                    [[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.9\"\n\
                    [[neighbour]]\naddress = \"192.0.2.9\"\nport = \"left\"\nmac = \"02:00:00:00:00:09\"\n\
                    [[rule]]\nname = \"ssh\"\nproto = \"tcp\"\ndport = 22\naction = \"drop\"\n";

impl Running {
    fn start(config: &str) -> Self {
        Self::with(config, &[])
    }

    /// With files beside the configuration.
    fn with(config: &str, files: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        for (name, text) in files {
            scratch.write(name, text);
        }
        let socket = scratch.join("ctl.sock");
        let text = format!("{config}[system]\nworkers = 1\nsocket = \"{}\"\n", socket.display());
        scratch.write("config.toml", &text);
        let process = run(&scratch);
        Self { scratch, process }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.arg("ctl").arg("--socket").arg(self.scratch.join("ctl.sock"));
        command
    }

    /// `shadeline ctl ARGS`, which must succeed.
    fn ctl(&self, args: &str) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `shadeline ctl ARGS`, which must fail: its status and what it said.
    fn refused(&self, args: &str) -> (i32, String) {
        let output = self.output(args);
        assert!(!output.status.success(), "{args}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), text)
    }

    fn output(&self, args: &str) -> Output {
        self.command().args(args.split_whitespace()).output().expect("the program starts")
    }

    /// A script on standard input.
    fn script(&self, text: &str) -> (i32, String, String) {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A script that fails is not read to its end.
        let _ = stdin.write_all(text.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("the program ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }
}

fn run(scratch: &Scratch) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(scratch.join("config.toml"));
    let mut process = Process::spawn(command);
    process.wait_for("running: ", STARTED);
    process
}

/// A named pipe is opened once, for its reader takes the end of a writer for the end.
#[test]
fn a_capture_goes_into_a_named_pipe() {
    let running = Running::start(EDGE);
    let (pipe, read) = (running.scratch.join("pipe"), running.scratch.join("read.pcapng"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let mut cat = Command::new("sh");
    cat.args(["-c", "cat \"$0\" > \"$1\""]).arg(&pipe).arg(&read);
    let mut cat = Process::spawn(cat);
    let mut capture = running.command();
    capture.args(["capture", "left", "--duration", "300ms", "-w"]).arg(&pipe);
    let (status, said) = Process::spawn(capture).wait(STARTED);
    assert!(status.success() && said.contains("0 packets written"), "{said}");
    assert!(cat.wait(STARTED).0.success());
    let bytes = std::fs::read(&read).expect("a capture");
    assert_eq!(bytes.get(..4), Some(&[0x0a, 0x0d, 0x0d, 0x0a][..]));
    // What is in a file before goes.
    std::fs::write(&read, [1; 5000]).expect("a file");
    running.ctl(&format!("capture left --duration 100ms -w {}", read.display()));
    assert_eq!(std::fs::read(&read).expect("a capture").get(..4), bytes.get(..4));
}

/// The rows of a table, with single spaces.
fn rows(text: &str) -> Vec<String> {
    text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn routes_are_changed_and_shown_in_the_words_of_ip() {
    let running = Running::start(EDGE);
    for command in [
        "route add 203.0.113.0/24 via 198.51.100.2 dev right",
        "route add default nexthop via 192.0.2.7 weight 3 nexthop via 198.51.100.9",
        "-6 route add default dev left",
        "route add blackhole 10.1.0.0/16 metric 5",
        "ro a 10.1.2.0/24 198.51.100.3",
    ] {
        running.ctl(command);
    }
    let shown = |args: &str| rows(&running.ctl(args));
    assert_eq!(
        shown("show routes source api"),
        [
            "* 0.0.0.0/0 192.0.2.7*3,198.51.100.9 left,right api 0",
            "* 10.1.0.0/16 blackhole - api 5",
            "* 10.1.2.0/24 198.51.100.3 right api 0",
            "* 203.0.113.0/24 198.51.100.2%right right api 0",
            "* ::/0 left left api 0",
        ]
    );
    // A prefix, an address, all within a prefix; in both families.
    let own = ["* 10.1.0.0/16 blackhole - api 5"];
    assert_eq!(shown("show routes 10.1.0.0/16"), own);
    assert_eq!(shown("show routes 10.1.7.7"), own);
    let within = shown("sh ro 10.0.0.0/8 longer-prefixes");
    assert_eq!(within.len(), 3, "{within:?}");
    assert!(within[0].starts_with("* 10.0.0.0/8") && within[2].starts_with("* 10.1.2.0/24"));
    assert_eq!(shown("show routes -6 default"), ["* ::/0 left left api 0"]);
    assert_eq!(shown("show routes 2001:db9::1"), ["* ::/0 left left api 0"]);
    assert_eq!(shown("show routes default longer-prefixes source static").len(), 1);
    assert_eq!(shown("show routes 11.0.0.0/8 longer-prefixes"), [""; 0]);
    let (status, said) = running.refused("show routes 11.0.0.0/8");
    assert!(status == 1 && said.contains("no route of 11.0.0.0/8"), "{said}");
    // `del` takes what `add` took, and nothing else.
    let (_, said) = running.refused("route del 10.1.2.0/24 via 198.51.100.4");
    assert!(said.contains("leads to 198.51.100.3, metric 0"), "{said}");
    running.ctl("route del 10.1.2.0/24 via 198.51.100.3");
    running.ctl("route delete -6 default");
    assert_eq!(shown("show routes source api").len(), 3);
    // Rules, in a table of their own.
    let rules = shown("show rules");
    assert!(rules.len() == 2 && rules[0].starts_with("1 ssh proto tcp"), "{rules:?}");
    assert_eq!(shown("show rules ssh"), rules[..1]);
    let (_, said) = running.refused("show rules telnet");
    assert!(said.contains("there is no rule `telnet`"), "{said}");
    let (_, said) = running.refused("show rules stage wall");
    assert!(said.contains("there is no stage `wall`: expected one of firewall"), "{said}");
    for (args, count) in [
        ("show neighbours", 1),
        ("show neigh 192.0.2.9 dev left", 1),
        ("show neighbours 192.0.2.0/24", 1),
        ("show neighbours dev right", 0),
        ("show neighbours 192.0.2.10", 0),
    ] {
        assert_eq!(shown(args).len(), count, "{args}");
    }
    let (_, said) = running.refused("show neighbours dev nowhere");
    assert!(said.contains("there is no port `nowhere`: expected one of left, right"), "{said}");
    let (status, said) = running.refused("show r");
    assert!(status == 2 && said.contains("`r` is ambiguous: runtime, routes, rules"), "{said}");
}

/// What a client that is no `shadeline ctl` may ask.
#[test]
fn arguments_of_tables_are_judged_by_the_program() {
    use std::io::{BufRead, BufReader};
    let running = Running::start(EDGE);
    let ask = |request: &str| {
        let socket = running.scratch.join("ctl.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("the socket");
        writeln!(stream, "{request}").expect("the request");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        line
    };
    for (arguments, what, expected) in [
        ("{\"port\": \"left\"}", "interfaces", "the table `interfaces` has no argument `port`"),
        ("{\"colour\": 1}", "routes", "unknown field `colour`"),
        ("{\"prefix\": 3}", "routes", "invalid type"),
        ("{\"stage\": 3}", "rules", "expected the name of a stage"),
        ("3", "routes", "invalid type"),
        ("{}", "macs", "this instance has no table `macs`"),
    ] {
        let request =
            format!("{{\"request\": \"show\", \"what\": \"{what}\", \"arguments\": {arguments}}}");
        let answer = ask(&request);
        assert!(answer.contains("\"response\":\"error\"") && answer.contains(expected), "{answer}");
    }
}

#[test]
fn a_script_ends_at_the_first_failure() {
    let running = Running::start(EDGE);
    let (status, out, err) = running.script(
        "# The first comment\n\nroute add 203.0.113.0/24 dev right # behind a command\n\
         sh ro source api\nshow drops\n",
    );
    assert_eq!((status, &*err), (0, ""));
    assert!(out.contains("203.0.113.0/24") && out.contains("no drops"), "{out}");
    let (status, out, err) =
        running.script("show routes\n\nroute add 203.0.113.0/24 dev right\nstop\n");
    assert!(status == 1 && out.contains("203.0.113.0/24"), "{out}");
    assert_eq!(err, "error: line 3: 203.0.113.0/24 exists already: use `ctl route replace`\n");
    let (status, _, err) = running.script("weather\nstop\n");
    assert!(status == 2 && err.starts_with("error: line 1: unrecognized subcommand"), "{err}");
    let (status, _, err) = running.script("rule del 'ssh\n");
    assert!(status == 2 && err.contains("line 1: a quotation mark is missing"), "{err}");
    let (status, out, err) = running.script("exit\nstop\n");
    assert_eq!((status, &*out, &*err), (0, "", ""));
    // It still runs.
    assert!(running.ctl("show runtime").contains("version"));
}

/// Types keys into the shell on a terminal of its own; what it shows, and its status.
const TERMINAL: &str = r#"
import json, os, pty, select, sys, time
program, socket, state = sys.argv[1:4]
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(XDG_STATE_HOME=state, TERM="xterm")
    os.execv(program, [program, "ctl", "--socket", socket])
shown, seen = b"", 0
def until(text):
    global shown, seen
    end = time.time() + 60
    while text not in shown[seen:]:
        if time.time() > end or not select.select([terminal], [], [], 60)[0]:
            sys.exit("no %r in %r" % (text, shown[seen:]))
        try:
            more = os.read(terminal, 65536)
        except OSError:
            more = b""
        if not more:
            sys.exit("ended before %r: %r" % (text, shown))
        shown += more
    seen = shown.index(text, seen) + len(text)
# What a line editor says when a line begins, and when it has ended.
begins, ended = b"\x1b[?2004h", b"\x1b[?2004l"
until(begins)
for line in sys.stdin:
    keys, text = json.loads(line)
    os.write(terminal, keys.encode())
    if text:
        is_line = keys[-1] in "\r?\x03"
        if is_line:
            until(ended)
        until(text.encode())
        if is_line:
            until(begins)
end = time.time() + 60
while time.time() < end:
    try:
        more = os.read(terminal, 65536)
    except OSError:
        break
    if not more:
        break
    shown += more
status = os.waitpid(pid, 0)[1]
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

/// Keys, and what must be seen before the next ones.
fn terminal(running: &Running, steps: &[(&str, &str)]) -> String {
    let python = running.scratch.write("terminal.py", TERMINAL);
    let mut command = Command::new("python3");
    command.arg(python).arg(env!("CARGO_BIN_EXE_shadeline"));
    command.arg(running.scratch.join("ctl.sock")).arg(running.scratch.join("state"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("python3 starts");
    let steps: String =
        steps.iter().map(|step| serde_json::json!(step).to_string() + "\n").collect();
    child.stdin.take().expect("a pipe").write_all(steps.as_bytes()).expect("the steps");
    let output = child.wait_with_output().expect("python3 ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_shell_completes_helps_and_goes_on_after_errors() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let mut running = Running::start(EDGE);
    let shown = terminal(
        &running,
        &[
            // `?` needs no Enter, and the line comes back.
            ("show ro?", "Routes of all sources"),
            ("\r", "10.0.0.0/8"),
            ("route add 203.0.113.0/24 dev ri\t", "right "),
            ("\r", "\n"),
            ("sh ro source ap\t\r", "203.0.113.0/24"),
            ("route del 203\t", "203.0.113.0/24 "),
            ("\r", "\n"),
            ("show rules ss\t\r", "proto tcp"),
            ("weather\r", "unrecognized subcommand"),
            // Ctrl-C gives a line up.
            ("show wea\u{03}", "\n"),
            // Arrow up: the line before.
            ("\u{1b}[A\u{1b}[A\r", "proto tcp"),
            ("exit\r", ""),
        ],
    );
    assert!(!shown.contains("panicked"), "{shown}");
    assert_eq!(rows(&running.ctl("show routes source api")), [""; 0]);
    let history = std::fs::read_to_string(running.scratch.join("state/shadeline/history"));
    let history = history.expect("the history");
    for line in ["route add 203.0.113.0/24 dev right", "weather", "show rules ssh"] {
        assert!(history.lines().any(|own| own.trim() == line), "{history}");
    }
    // Ctrl-D ends it, too; without an instance it says so in a line, and goes on.
    let (status, _) = running.process.stop(Stop::Terminate, common::SOON);
    assert!(status.success());
    let shown =
        terminal(&running, &[("show routes\r", "no instance listens there"), ("\u{04}", "")]);
    assert_eq!(shown.matches("no instance listens there").count(), 2, "{shown}");
}

/// The instance goes and comes back while a shell is open.
#[test]
fn a_shell_finds_an_instance_that_is_started_again() {
    let mut running = Running::start(EDGE);
    let mut command = running.command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = command.spawn().expect("the program starts");
    let mut stdin = shell.stdin.take().expect("a pipe");
    let mut out = std::io::BufReader::new(shell.stdout.take().expect("a pipe"));
    let mut answer = |stdin: &mut std::process::ChildStdin| {
        use std::io::BufRead;
        writeln!(stdin, "show rules ssh").expect("the shell runs");
        let mut text = String::new();
        for _ in 0..2 {
            out.read_line(&mut text).expect("an answer");
        }
        text
    };
    assert!(answer(&mut stdin).contains("proto tcp"));
    let (status, _) = running.process.stop(Stop::Terminate, common::SOON);
    assert!(status.success());
    running.process = run(&running.scratch);
    assert!(answer(&mut stdin).contains("proto tcp"));
    drop(stdin);
    assert!(shell.wait().expect("the shell ends").success());
}

/// The instance has ended when `ctl stop` has: another one can start at once.
#[test]
fn stop_waits_for_the_end() {
    let mut running = Running::start(EDGE);
    for _ in 0..5 {
        running.ctl("stop");
        assert!(!running.process.is_running(), "{}", running.process.output());
        running.process = run(&running.scratch);
    }
}

/// An instance that answers and does not end is named.
#[test]
fn stop_says_that_an_instance_does_not_end() {
    use control::api::{Response, Server};
    let scratch = Scratch::new();
    // This very process listens.
    let server = Server::bind(scratch.join("ctl.sock"), |_, responder| {
        let _ = responder.send(Response::Text { text: "stopping".to_owned() });
    });
    let _server = server.expect("a socket");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("ctl").arg("--socket").arg(scratch.join("ctl.sock")).arg("stop");
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = format!("the instance (pid {}) is stopping, but it has not", std::process::id());
    assert!(said.contains(&expected), "{said}");
}
