//! The lab of docs/lab.md: an ordinary user runs a live router between two hosts in `unshare -Urn`, with exactly the
//! files of the example.

#[path = "common/lab.rs"]
mod lab;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use lab::Lab;
use testkit::process::Process;

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
    lab.assert_gone(&Default::default());
}

/// As beside the installed service: the second one has a socket of its own, and each `ctl` finds its router.
#[test]
fn a_second_lab_runs_beside_the_first() {
    let Some(lab) = Lab::new() else { return };
    let inner = "$SHADELINE ctl route add 10.9.0.0/16 10.0.2.2; $SHADELINE ctl show routes";
    let text = lab.run(&format!(
        "unshare -Urn sh {} sh -ec '{inner}'
         echo first:; $SHADELINE ctl show routes",
        lab.script.display()
    ));
    let (second, first) = text.split_once("first:").expect("both");
    assert!(second.contains("10.9.0.0/16") && second.contains("10.0.1.0/24"), "{text}");
    assert!(!first.contains("10.9.0.0/16") && first.contains("10.0.1.0/24"), "{text}");
    lab.assert_gone(&Default::default());
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
    let toml = fs::read_to_string(lab.scratch.join("lab/router.toml")).expect("the file");
    let toml = toml.replace("interface = \"eth1\"", "interface = \"eth1\"\nbackend = \"af_xdp\"");
    let config = lab.scratch.write("xdp.toml", &toml);
    let line = format!("CONFIG={} unshare -Urn sh {} true", config.display(), lab.script.display());
    let output = lab.user(&line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("CAP_BPF"), "{text}");
}

/// A program in place of `unshare` that fails, and one that makes no namespace.
#[test]
fn a_host_without_a_namespace_ends_the_lab() {
    if !testkit::require_namespaces() {
        return;
    }
    let Some(program) = testkit::shadeline_bin() else { return };
    let script = testkit::repository().join("shadeline/examples/lab/lab.sh");
    for instead in ["exit 1", "exec sleep 60"] {
        let netns = testkit::netns::Netns::new("lab-host");
        let scratch = testkit::Scratch::new();
        let fake = scratch.write("unshare", &format!("#!/bin/sh\n{instead}\n"));
        fs::set_permissions(&fake, Permissions::from_mode(0o755)).expect("a mode");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = netns.command("sh");
        command.arg(&script).arg("true").env("SHADELINE", &program);
        // Another instance of the machine is none of its business.
        command.env("CONFIG", script.with_file_name("router.toml"));
        command.env("PATH", format!("{}:{path}", scratch.path().display()));
        let (status, text) = Process::spawn(command).wait(Duration::from_secs(60));
        assert_eq!(status.code(), Some(1), "{instead}: {text}");
        assert!(text.contains("host left: `unshare --net` made no network namespace"), "{text}");
        assert!(!text.contains("No such file"), "{text}");
    }
}

/// The program and the quickstart say what to do about a device that this user cannot open.
#[test]
fn a_device_that_is_closed_to_the_user_is_named() {
    if !testkit::require_namespaces() || !lab::is_root() {
        return;
    }
    let Some(program) = testkit::shadeline_bin() else { return };
    let scratch = testkit::Scratch::new();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).expect("a mode");
    let own = scratch.join("shadeline");
    fs::copy(program, &own).expect("a copy");
    let examples = testkit::repository().join("shadeline/examples");
    let quickstart = scratch.join("quickstart.sh");
    fs::copy(examples.join("quickstart.sh"), &quickstart).expect("a copy");
    let config = "mode = \"router\"\n[port.a]\ninterface = \"lo0\"\nbackend = \"tap\"\n";
    let config = scratch.write("tap.toml", config);
    let run = |mode: &str, script: &str| {
        // A device in a mount namespace of its own, for a user without rights.
        let script = format!(
            "mount -t tmpfs tmpfs /dev/net; {mode}; \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR={} sh -c '{script}'",
            scratch.path().display()
        );
        let output = Command::new("unshare").args(["--mount", "sh", "-ec", &script]).output();
        let output = output.expect("a shell");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!output.status.success(), "{text}");
        text
    };
    let live = format!("exec {} run {}", own.display(), config.display());
    let check = format!("exec {} check --live {}", own.display(), config.display());
    let first = format!("exec sh {}", quickstart.display());
    let closed = "mknod -m 600 /dev/net/tun c 10 200";
    for (script, mode, expected) in [
        (&live, closed, "opening /dev/net/tun: Permission denied"),
        (&live, closed, "chmod 666 /dev/net/tun"),
        (&live, "true", "modprobe tun"),
        (&live, "mknod -m 666 /dev/net/tun c 10 200", "(needs CAP_NET_ADMIN)"),
        (&check, closed, "chmod 666 /dev/net/tun"),
        (&first, closed, "chmod 666 /dev/net/tun"),
        (&first, "true", "modprobe tun"),
    ] {
        let text = run(mode, script);
        assert!(text.contains(expected), "{script} {mode}: {expected}: {text}");
        assert!(mode != closed || !text.contains("(needs CAP"), "{text}");
    }
}
