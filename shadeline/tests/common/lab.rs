//! The shipped example of a live router between two hosts, run with exactly its files by an ordinary user.

#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::Scratch;

/// A user without any right, where the test itself is root.
const NOBODY: &str = "65534";

/// The files that the user needs, where the user can read them.
pub(crate) struct Lab {
    pub(crate) scratch: Scratch,
    /// `lab.sh`.
    pub(crate) script: PathBuf,
    /// `quickstart.sh`.
    pub(crate) quickstart: PathBuf,
    pub(crate) bin: PathBuf,
}

impl Lab {
    /// `None`, and the test is skipped, where something is missing or the machine forbids user namespaces.
    pub(crate) fn new() -> Option<Lab> {
        for tool in ["ip", "ping", "unshare", "nsenter", "setpriv"] {
            testkit::require_tool(tool)?;
        }
        let program = testkit::shadeline_bin()?;
        let scratch = Scratch::new();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
        };
        let folder = |name: &str, bits| {
            fs::create_dir(scratch.join(name)).expect("a folder");
            mode(&scratch.join(name), bits);
        };
        mode(scratch.path(), 0o755);
        folder("lab", 0o755);
        folder("run", 0o777);
        let copy = |from: &Path, name: &str| {
            let to = scratch.join(name);
            fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
            to
        };
        let examples = testkit::repository().join("shadeline/examples");
        copy(&examples.join("lab/router.toml"), "lab/router.toml");
        let script = copy(&examples.join("lab/lab.sh"), "lab/lab.sh");
        let quickstart = copy(&examples.join("quickstart.sh"), "quickstart.sh");
        let bin = copy(&program, "shadeline");
        let lab = Lab { scratch, script, quickstart, bin };
        let probe = lab.user("unshare -Urn sh -c 'ip tuntap add probe mode tap'");
        if !probe.status.success() {
            let why = String::from_utf8_lossy(&probe.stderr).trim().to_owned();
            testkit::skip(&format!("user namespaces with TAP are not allowed here: {why}"));
            return None;
        }
        Some(lab)
    }

    /// A shell script as an ordinary user.
    pub(crate) fn command(&self, script: &str) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        command.args(["-ec", script]);
        self.environment(command)
    }

    /// The same as root, with a `/run` of its own, so that no other instance is in the way.
    pub(crate) fn command_of_root(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs tmpfs /run; {script}");
        command.args(["--mount", "sh", "-ec", &script]);
        self.environment(command)
    }

    fn environment(&self, mut command: Command) -> Command {
        command.current_dir("/").env("SHADELINE", &self.bin);
        command.env("XDG_RUNTIME_DIR", self.own()).env("TMPDIR", self.own());
        command
    }

    /// Runs a shell script as an ordinary user to its end.
    pub(crate) fn user(&self, script: &str) -> Output {
        self.command(script).output().expect("a shell")
    }

    /// Runs the lab with a shell script in place of its shell; what was printed.
    pub(crate) fn run(&self, script: &str) -> String {
        let commands = self.scratch.write("commands.sh", script);
        let line =
            format!("unshare -Urn sh {} sh -e {}", self.script.display(), commands.display());
        let output = self.user(&line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {line}\n{text}", output.status);
        text
    }

    /// The folder of temporary files, and of the control socket of an ordinary user.
    fn own(&self) -> PathBuf {
        self.scratch.join("run")
    }

    /// The network namespaces of the processes that the lab started; that of the machine is not among them.
    pub(crate) fn namespaces(&self) -> BTreeSet<PathBuf> {
        let mark = format!("TMPDIR={}", self.own().display());
        let is_ours = |process: &Path| {
            fs::read(process.join("environ")).is_ok_and(|text| {
                text.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            })
        };
        let of_machine = namespace(Path::new("/proc/self"));
        let namespaces = processes().filter(|process| is_ours(process));
        namespaces
            .filter_map(|process| namespace(&process))
            .filter(|n| Some(n) != of_machine.as_ref())
            .collect()
    }

    /// Nothing is left: no file, no process, and none of these namespaces, which live as long as their processes.
    pub(crate) fn assert_gone(&self, namespaces: &BTreeSet<PathBuf>) {
        let files: Vec<_> = fs::read_dir(self.own()).expect("the folder").collect();
        assert!(files.is_empty(), "files are left: {files:?}");
        let ours = self.namespaces();
        assert!(ours.is_empty(), "processes are left in {ours:?}");
        let left: Vec<_> = processes()
            .filter(|process| namespace(process).is_some_and(|own| namespaces.contains(&own)))
            .map(|process| fs::read_to_string(process.join("comm")))
            .collect();
        assert!(left.is_empty(), "processes are left in namespaces of the lab: {left:?}");
    }
}

/// Whether the test runs as root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    entries.filter(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    })
}

fn namespace(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/net")).ok()
}
