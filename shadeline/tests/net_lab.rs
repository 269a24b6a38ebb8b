//! The lab of docs/lab.md: an ordinary user runs a live router between two hosts in `unshare -Urn`, with exactly the
//! files of the example.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::Scratch;

/// A user without any right, where the test itself is root.
const NOBODY: &str = "65534";

/// The files that the user needs, where the user can read them.
struct Lab {
    scratch: Scratch,
    script: PathBuf,
    bin: PathBuf,
}

impl Lab {
    /// `None`, and the test is skipped, where something is missing or the machine forbids user namespaces.
    fn new() -> Option<Lab> {
        for tool in ["ip", "ethtool", "ping", "unshare", "nsenter", "setpriv"] {
            testkit::require_tool(tool)?;
        }
        let program = testkit::shadeline_bin()?;
        let scratch = Scratch::new();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
        };
        mode(scratch.path(), 0o755);
        let copy = |from: &Path, name: &str| {
            let to = scratch.join(name);
            fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
            to
        };
        let examples = testkit::repository().join("shadeline/examples/lab");
        copy(&examples.join("router.toml"), "router.toml");
        let script = copy(&examples.join("lab.sh"), "lab.sh");
        let bin = copy(&program, "shadeline");
        let own = scratch.join("run");
        fs::create_dir(&own).expect("a folder");
        mode(&own, 0o777);
        let lab = Lab { scratch, script, bin };
        let probe = lab.user("unshare -Urn sh -c 'ip tuntap add probe mode tap'");
        if !probe.status.success() {
            let why = String::from_utf8_lossy(&probe.stderr).trim().to_owned();
            testkit::skip(&format!("user namespaces with TAP are not allowed here: {why}"));
            return None;
        }
        Some(lab)
    }

    /// Runs a shell script as an ordinary user.
    fn user(&self, script: &str) -> Output {
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let mut command = if is_root {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        command.args(["-ec", script]).current_dir("/");
        command.env("SHADELINE", &self.bin).env("XDG_RUNTIME_DIR", self.scratch.join("run"));
        command.env("TMPDIR", self.scratch.join("run"));
        command.output().expect("a shell")
    }

    /// Runs the lab with a shell script in place of its shell; what was printed.
    fn run(&self, script: &str) -> String {
        let commands = self.scratch.write("commands.sh", script);
        let line =
            format!("unshare -Urn sh {} sh -e {}", self.script.display(), commands.display());
        let output = self.user(&line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {line}\n{text}", output.status);
        text
    }
}

#[test]
fn an_ordinary_user_runs_the_live_lab() {
    let Some(lab) = Lab::new() else { return };
    let text = lab.run(
        "left ping -n -c 3 -i 0.2 -W 2 10.0.2.2
         left ping -n -c 3 -i 0.2 -W 2 fd00:2::2
         right ping -n -c 1 -W 2 10.0.1.1
         ip address show sl-left
         $SHADELINE ctl route add 10.9.0.0/16 10.0.2.2
         $SHADELINE ctl show routes
         $SHADELINE ctl reload
         $SHADELINE ctl show interfaces",
    );
    assert_eq!(text.matches(" 0% packet loss").count(), 3, "{text}");
    for part in ["10.0.1.1/24", "10.9.0.0/16", "af_packet"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // No warning: everything that the router sets up is allowed in a namespace of one's own.
    assert!(!text.contains(" WARN ") && !text.contains("ERROR"), "{text}");
    let left: Vec<_> = fs::read_dir(lab.scratch.join("run")).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_lab_does_not_start_in_a_network_in_use() {
    let Some(lab) = Lab::new() else { return };
    let output = lab.user(&format!(
        "unshare -Urn sh -ec 'ip link add eth9 type veth peer name eth8; ip link set eth9 up; sh {}'",
        lab.script.display()
    ));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("unshare -Urn"), "{text}");
}

#[test]
fn af_xdp_says_what_it_lacks_in_a_user_namespace() {
    let Some(lab) = Lab::new() else { return };
    let toml = fs::read_to_string(lab.scratch.join("router.toml")).expect("the file");
    let toml = toml.replace("interface = \"eth1\"", "interface = \"eth1\"\nbackend = \"af_xdp\"");
    let config = lab.scratch.write("xdp.toml", &toml);
    let line = format!("CONFIG={} unshare -Urn sh {} true", config.display(), lab.script.display());
    let output = lab.user(&line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("CAP_BPF"), "{text}");
}
