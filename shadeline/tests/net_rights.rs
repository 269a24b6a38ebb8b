//! The rights of a live run: what is left of them after the start, and that everything works with the rest.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use common::{Live, SOON, config, ping};
use testkit::netns::{Netns, Offloads};
use testkit::{Scratch, wait_until};

/// `CAP_NET_ADMIN` (12), `CAP_NET_RAW` (13), `CAP_IPC_LOCK` (14), `CAP_BPF` (39).
const KEPT: &str = "0000008000007000";
const NONE: &str = "0000000000000000";

const NOBODY: u32 = 65_534;

/// The configuration with these lines in `[system]`.
fn with(scratch: &Scratch, backend: &str, system: &str, more: &str) -> String {
    config(scratch, backend, more).replacen("[system]\n", &format!("[system]\n{system}"), 1)
}

/// A router whose files belong to this user.
fn live(backend: &str, system: &str, more: &str, owner: Option<u32>) -> Option<Live> {
    let text = |scratch: &Scratch| {
        if owner.is_some() {
            chown(scratch.path(), owner, owner).expect("root may");
        }
        with(scratch, backend, system, more)
    };
    Live::of("rights", text, (1500, 1500), Offloads::Off)
}

/// What every thread of the program says of its rights.
fn check_rights(live: &Live, user: u32, seccomp: u32) {
    let tasks = fs::read_dir(format!("/proc/{}/task", live.router.id())).expect("it runs");
    let tasks: Vec<_> = tasks.map(|task| task.unwrap().path()).collect();
    assert!(tasks.len() > 4, "{tasks:?}");
    for task in tasks {
        let status = fs::read_to_string(task.join("status")).expect("a thread");
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a key");
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let ids = [user; 4].map(|user| user.to_string()).join(" ");
        assert_eq!((value("Uid:"), value("Gid:")), (ids.clone(), ids), "{status}");
        for (key, expected) in [
            ("CapPrm:", KEPT),
            ("CapEff:", KEPT),
            ("CapBnd:", KEPT),
            ("CapInh:", NONE),
            ("CapAmb:", NONE),
        ] {
            assert_eq!(value(key), expected, "{key} {status}");
        }
        assert_eq!((value("NoNewPrivs:"), value("Seccomp:")), ("1".into(), seccomp.to_string()));
    }
}

fn passes(live: &Live) {
    for to in ["10.0.2.2", "fd00:2::2"] {
        let reached = || ping(&live.net.left, to, 1) == 1;
        assert!(wait_until(Duration::from_secs(60), reached), "{to}: {}", live.router.output());
        assert_eq!(ping(&live.net.left, to, 10), 10, "{to}");
    }
}

/// Everything that opens something: a reload with ports of each kind, a capture, a trace, the end.
#[test]
fn a_run_that_root_starts_goes_on_as_another_user() {
    for backend in common::BACKENDS {
        let dump = "[dump.all]\nfile = \"DUMP\"\n";
        let Some(mut live) = live(backend, "user = \"nobody\"\n", "", Some(NOBODY)) else { return };
        let before = live.net.router.run("sysctl -n net.ipv6.conf.left.disable_ipv6");
        check_rights(&live, NOBODY, 2);
        passes(&live);
        live.net.router.run("ip link add extra type veth peer name extra1");
        live.net.router.run("ip link set extra up");
        let file = live.scratch.join("router.toml");
        let text = fs::read_to_string(&file).expect("the configuration");
        let dump = dump.replace("DUMP", &live.scratch.join("all.pcap").display().to_string());
        let ports = format!(
            "[port.extra]\nbackend = \"{backend}\"\naddresses = [\"10.0.3.1/24\"]\n\
             [port.tap]\nbackend = \"tap\"\ninterface = \"rightstap\"\naddresses = [\"10.0.4.1/24\"]\n"
        );
        fs::write(&file, format!("{text}{ports}{dump}")).expect("the configuration");
        live.ctl("reload");
        for port in ["extra", "tap"] {
            assert!(live.ctl("show interfaces").contains(port), "{backend}");
        }
        check_rights(&live, NOBODY, 2);
        passes(&live);
        live.ctl("route add 10.9.0.0/16 10.0.2.2");
        let capture = live.scratch.join("capture.pcap");
        let mut pings = live.net.left.spawn("ping -n -i 0.1 10.0.2.2");
        live.ctl(&format!("capture left --count 3 -w {}", capture.display()));
        pings.stop(testkit::process::Stop::Terminate, SOON);
        assert!(fs::metadata(capture).expect("a capture").len() > 300);
        live.stop();
        let dump = fs::metadata(live.scratch.join("all.pcap")).expect("a capture");
        assert!(dump.len() > 40 && dump.uid() == NOBODY, "{dump:?}");
        let after = live.net.router.run("sysctl -n net.ipv6.conf.left.disable_ipv6");
        assert_eq!((before.trim(), after.trim()), ("1", "0"), "{backend}");
        assert!(!live.scratch.join("ctl.sock").exists());
    }
}

#[test]
fn without_another_user_root_keeps_four_capabilities() {
    let Some(mut live) = live("af_packet", "user = \"root\"\n", "", None) else { return };
    check_rights(&live, 0, 2);
    passes(&live);
    let said = live.stop();
    assert!(said.contains("rights: user root, CAP_"), "{said}");
}

/// Whoever owns the configuration decides about everything anyway.
#[test]
fn the_owner_of_the_configuration_is_the_user() {
    let system = "user = \"nobody\"\nseccomp = \"log\"\n";
    let Some(mut live) = live("af_packet", system, "", Some(NOBODY)) else { return };
    live.stop();
    let file = live.scratch.join("router.toml");
    chown(&file, Some(NOBODY), Some(NOBODY)).expect("root may");
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, text.replace("user = \"nobody\"\n", "")).expect("the configuration");
    live.restart();
    check_rights(&live, NOBODY, 2);
    passes(&live);
    // What is logged is not refused. Without a filter nothing is.
    live.stop();
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, text.replace("\"log\"", "\"off\"")).expect("the configuration");
    live.restart();
    check_rights(&live, NOBODY, 0);
    live.stop();
}

/// The driver compiles kernels and starts a linker, in folders of the new user.
#[test]
fn a_device_works_with_the_rights_that_are_left() {
    if !testkit::require_opencl() {
        return;
    }
    let engine = "[engine]\nbackend = \"opencl\"\noffload = \"always\"\nmax_delay = \"300us\"\n";
    let system = "user = \"nobody\"\n";
    let Some(mut live) = live("af_packet", system, engine, Some(NOBODY)) else { return };
    check_rights(&live, NOBODY, 2);
    passes(&live);
    let end = live.stop();
    assert!(end.contains(", 0 jobs repeated on the CPU"), "{end}");

    // A cache of kernels that only root can write.
    let closed = live.scratch.join("closed");
    fs::create_dir(&closed).expect("own folder");
    let (bin, config) = (live.bin.display(), live.scratch.join("router.toml"));
    let line = format!("env POCL_CACHE_DIR={} {bin} run {}", closed.display(), config.display());
    let mut router = live.net.router.spawn(&line);
    router.wait_for("running: ", common::STARTED);
    let (status, said) = router.stop(testkit::process::Stop::Terminate, SOON);
    let warning = format!("POCL_CACHE_DIR is {}, where user nobody cannot write", closed.display());
    assert!(status.success() && said.contains(&warning), "{said}");
    assert_eq!(fs::read_dir(closed).expect("own folder").count(), 0);
}

#[test]
fn a_user_that_cannot_be_is_an_error() {
    let Some(program) = testkit::shadeline_bin() else { return };
    if !testkit::require_namespaces() {
        return;
    }
    let netns = Netns::new("rights-user");
    let scratch = Scratch::new();
    let run = |file: &Path, before: &str| {
        let line = format!("{before} {} run {} --duration 1s", program.display(), file.display());
        let output = netns.command("sh").args(["-c", &line]).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let file = |user: &str| {
        let socket = scratch.join("run/ctl.sock");
        scratch.write(
            "router.toml",
            &format!(
                "mode = \"router\"\n[system]\nuser = \"{user}\"\nsocket = \"{}\"\n[port.a]\nbackend = \"memory\"\n",
                socket.display()
            ),
        )
    };
    let own = "only root can start the program as another user";
    for (user, before, expected) in [
        ("no-such-user", "", "`user` is `no-such-user`: this machine has no such user"),
        ("nobody", "unshare -r", "`user` is `nobody`: this user namespace has no such user"),
        ("nobody", "setpriv --reuid 1 --regid 1 --clear-groups", own),
    ] {
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).expect("own folder");
        let (code, said) = run(&file(user), before);
        assert!(code == Some(1) && said.contains(expected), "{user} {before}: {said}");
    }
    // The configuration, and a file that it names, which only root can read.
    let nobody = file("nobody");
    fs::set_permissions(&nobody, Permissions::from_mode(0o600)).expect("own file");
    let (code, said) = run(&nobody, "");
    assert_eq!(code, Some(1), "{said}");
    for part in
        ["router.toml: Permission denied", "let `nobody` read it", "`user` under `[system]`"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let nobody = file("nobody");
    fs::set_permissions(&nobody, Permissions::from_mode(0o644)).expect("own file");
    let (code, said) = run(&nobody, "");
    assert_eq!(code, Some(0), "{said}");
    let folder = fs::metadata(scratch.join("run")).expect("made for the socket");
    assert_eq!(folder.uid(), NOBODY);
    let text = fs::read_to_string(&nobody).expect("it is there");
    fs::write(&nobody, text + "[[rule]]\nfile = \"acl\"\naction = \"drop\"\n").expect("own file");
    let rules = scratch
        .write("acl", "@0.0.0.0/0\t10.0.0.0/8\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0000\n");
    fs::set_permissions(&rules, Permissions::from_mode(0o600)).expect("own file");
    let (code, said) = run(&nobody, "");
    assert_eq!(code, Some(1), "{said}");
    for part in ["acl", "Permission denied", "a file that it names cannot be read"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Without `user`, one that this user namespace lacks is not taken.
    let none = scratch.write(
        "router.toml",
        &fs::read_to_string(file("x")).unwrap().replace("user = \"x\"\n", ""),
    );
    chown(&none, Some(NOBODY), Some(NOBODY)).expect("root may");
    let text = fs::read_to_string(&none).expect("it is there");
    fs::write(&none, text.replace("run/ctl.sock", "own.sock")).expect("own file");
    let (code, said) = run(&none, "unshare -r");
    assert!(code == Some(0) && said.contains("rights: user root"), "{said}");
}
