//! The program under a service manager: what it says on `$NOTIFY_SOCKET`, and its log in the journal.

mod common;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::STARTED;
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

const CONFIG: &str = "mode = \"router\"\n[router]\nkernel = false\n\
                      [port.left]\nbackend = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n";

/// A configuration of two workers with its control socket in the folder.
fn configuration(scratch: &Scratch, more: &str) -> PathBuf {
    let socket = scratch.join("ctl.sock");
    let system = format!("[system]\nworkers = 2\nsocket = \"{}\"\n{more}", socket.display());
    scratch.write("config.toml", &format!("{CONFIG}{system}"))
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM"] {
        command.env_remove(name);
    }
    command
}

/// The service manager's end of the socket.
struct Manager(UnixDatagram);

impl Manager {
    fn new(scratch: &Scratch) -> Self {
        let socket = UnixDatagram::bind(scratch.join("notify")).expect("a socket");
        socket.set_read_timeout(Some(STARTED)).expect("a time limit");
        Self(socket)
    }

    /// The next message that is not the watchdog's, and how many of the watchdog's came before it.
    fn next(&self) -> (String, usize) {
        let mut fed = 0;
        loop {
            let mut bytes = [0; 4096];
            let length = self.0.recv(&mut bytes).expect("a message");
            match str::from_utf8(&bytes[..length]).expect("text") {
                "WATCHDOG=1" => fed += 1,
                text => return (text.to_owned(), fed),
            }
        }
    }

    /// Waits for a message of the watchdog.
    fn is_fed(&self) {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("a message");
        assert_eq!(&bytes[..length], b"WATCHDOG=1");
    }
}

#[test]
fn the_manager_hears_of_start_reload_and_end() {
    let scratch = Scratch::new();
    let config = configuration(&scratch, "");
    let manager = Manager::new(&scratch);
    let mut command = program();
    command.arg("run").arg(&config).env("NOTIFY_SOCKET", scratch.join("notify"));
    command.env("WATCHDOG_USEC", "100000");
    let mut process = Process::spawn(command);
    assert_eq!(manager.next().0, "READY=1\nSTATUS=1 port, 2 workers");
    // By then the control socket serves.
    assert!(scratch.join("ctl.sock").exists());
    manager.is_fed();
    manager.is_fed();

    process.signal(Stop::Hangup);
    let (reloading, fed) = manager.next();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading} after {fed}");
    let since: u64 =
        reloading.lines().nth(1).and_then(|l| l.split('=').nth(1)?.parse().ok()).unwrap();
    assert!(since > 0);
    assert_eq!(manager.next().0, "READY=1\nSTATUS=1 port, 2 workers");

    configuration(&scratch, "[port.right]\nbackend = \"memory\"\n");
    process.signal(Stop::Hangup);
    assert!(manager.next().0.starts_with("RELOADING=1\n"));
    assert_eq!(manager.next().0, "READY=1\nSTATUS=2 ports, 2 workers");

    scratch.write("config.toml", "mode = \"rooter\"\n");
    let mut ctl = program();
    ctl.arg("ctl").arg("--socket").arg(scratch.join("ctl.sock")).arg("reload");
    let refused = ctl.output().expect("the program starts");
    assert!(!refused.status.success());
    assert!(manager.next().0.starts_with("RELOADING=1\n"));
    let failed = "READY=1\nSTATUS=2 ports, 2 workers; the last reload failed: see the log";
    assert_eq!(manager.next().0, failed);
    manager.is_fed();

    let (status, output) = process.stop(Stop::Terminate, STARTED);
    assert!(status.success(), "{output}");
    assert_eq!(manager.next().0, "STOPPING=1\nSTATUS=draining");
}

#[test]
fn a_watchdog_of_another_process_is_not_fed() {
    let scratch = Scratch::new();
    let config = configuration(&scratch, "");
    let manager = Manager::new(&scratch);
    let mut command = program();
    command.arg("run").arg(&config).env("NOTIFY_SOCKET", scratch.join("notify"));
    command.env("WATCHDOG_USEC", "1").env("WATCHDOG_PID", "1");
    let mut process = Process::spawn(command);
    manager.next();
    process.signal(Stop::Hangup);
    let fed: Vec<usize> = (0..2).map(|_| manager.next().1).collect();
    assert_eq!(fed, [0, 0]);
    process.stop(Stop::Terminate, STARTED);
}

#[test]
fn an_odd_manager_is_a_warning() {
    let scratch = Scratch::new();
    let config = configuration(&scratch, "");
    for (name, said) in [("run/notify", "expected an absolute path"), ("/no/such", "No such file")]
    {
        let mut command = program();
        command.arg("run").arg(&config).env("NOTIFY_SOCKET", name);
        let mut process = Process::spawn(command);
        process.wait_for("running: ", STARTED);
        let (status, output) = process.stop(Stop::Terminate, STARTED);
        assert!(status.success() && output.contains(said), "{output}");
    }
}

/// Runs the program with a file as its standard error, which the journal is said to be, until it has written `until`.
/// All that it wrote.
fn in_journal(scratch: &Scratch, config: &PathBuf, until: &str) -> String {
    let path = scratch.join("journal");
    let file = File::create(&path).expect("a file");
    let metadata = file.metadata().expect("its inode");
    let mut command = program();
    command.arg("run").arg(config).stdout(std::process::Stdio::null()).stderr(file);
    command.env("JOURNAL_STREAM", format!("{}:{}", metadata.dev(), metadata.ino()));
    let mut child = command.spawn().expect("the program starts");
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    let found = wait_until(STARTED, || {
        let has_ended = child.try_wait().is_ok_and(|status| status.is_some());
        read().contains(until) || has_ended
    });
    if found && child.try_wait().is_ok_and(|status| status.is_none()) {
        let pid = child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
    } else {
        // It has ended, or the assertion of the caller shows what it wrote.
        let _ = child.kill();
    }
    child.wait().expect("it ends");
    read()
}

#[test]
fn lines_in_the_journal_have_priorities() {
    let scratch = Scratch::new();
    let config = configuration(&scratch, "");
    let text = in_journal(&scratch, &config, "running: ");
    assert!(text.contains("<6>running: 1 port, 2 workers\n"), "{text}");
    assert!(text.lines().all(|line| line.starts_with("<6>")), "{text}");

    let config = configuration(&scratch, "log_format = \"json\"\n");
    let text = in_journal(&scratch, &config, "running: ");
    assert!(!text.is_empty());
    for line in text.lines() {
        let entry = line.strip_prefix("<6>").unwrap_or_else(|| panic!("{line}"));
        let entry: serde_json::Value = serde_json::from_str(entry).expect("JSON");
        assert_eq!(entry["level"], "INFO");
    }

    // An error in the configuration, over several lines.
    let config = scratch.write("config.toml", "mode = \"rooter\"\n");
    let text = in_journal(&scratch, &config, "\n");
    assert!(text.contains("rooter"), "{text}");
    assert!(text.lines().all(|line| line.starts_with("<3>")), "{text}");

    // A failure of the start.
    let none = scratch.join("none.toml");
    let text = in_journal(&scratch, &none, "\n");
    assert!(text.starts_with("<3>error: "), "{text}");
}

/// Warnings about the file, events, and the message of the end.
#[test]
fn a_log_of_json_has_nothing_else() {
    let scratch = Scratch::new();
    let more = "log_format = \"json\"\n[port.odd]\nbackend = \"memory\"\nxdp = \"skb\"\n";
    let config = configuration(&scratch, more);
    // An instance that listens there: the start fails.
    let _other = std::os::unix::net::UnixListener::bind(scratch.join("ctl.sock")).expect("bound");
    let output = program().arg("run").arg(&config).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let entry = |line: &str| -> (String, String) {
        let entry: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        (text(&entry["level"]), text(&entry["fields"]["message"]))
    };
    let entries: Vec<_> = text.lines().map(entry).collect();
    let has = |level: &str, part: &str| {
        entries.iter().any(|(own, message)| own == level && message.contains(part))
    };
    assert!(has("WARN", "`xdp` has no effect") && has("ERROR", "an instance is already"), "{text}");
    let (_, last) = entries.last().expect("an entry");
    assert!(!last.contains("error:"), "{last}");
}

#[test]
fn another_standard_error_is_not_the_journal() {
    let scratch = Scratch::new();
    let none = scratch.join("none.toml");
    for stream in ["1:1", "", "x"] {
        let Output { stderr, .. } = program()
            .arg("run")
            .arg(&none)
            .env("JOURNAL_STREAM", stream)
            .output()
            .expect("it runs");
        assert!(stderr.starts_with(b"error: "), "{}", String::from_utf8_lossy(&stderr));
    }
}
