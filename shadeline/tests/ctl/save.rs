//! `ctl diff` and `ctl save`: the file has what `ctl` changed, a reload then changes nothing, and a restart gives the same
//! tables.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use testkit::process::Stop;

use crate::{EDGE, Running, common, rows, run};

const COMMENTED: &str = "# The edge of the lab.\n\nmode = \"edge\" # not a router alone\n[pipeline.edge]\n\
     stages = [\"decode\", \"firewall\", \"route\", \"rewrite\"]\n[router]\nkernel = false\n\n\
     # To the hosts\n[port.left]\nbackend = \"memory\"\naddresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n\
     [port.right]\nbackend = \"memory\"\naddresses = [\"198.51.100.1/24\"]\n\n\
     [[route]] # the old building\nprefix = \"10.0.0.0/8\"\nvia   = \"192.0.2.9\" # moves next year\n\n\
     # Nobody logs in from outside.\n[[rule]]\nname = \"ssh\"\nproto = \"tcp\"\ndport = 22\naction = \"drop\"\n\
     [[rule]]\nproto = \"udp\"\ndport = \"1000-2000\"\naction = \"drop\" # games\n\
     [[rule]]\nname = \"telnet\"\nproto = \"tcp\"\ndport = 23\naction = \"drop\"\n";

impl Running {
    fn file(&self) -> String {
        fs::read_to_string(self.scratch.join("config.toml")).expect("the file")
    }

    fn restart(&mut self) {
        let (status, _) = self.process.stop(Stop::Terminate, common::SOON);
        assert!(status.success());
        self.process = run(&self.scratch);
    }

    /// Routes in use without their sources, and rules.
    fn tables(&self) -> Vec<String> {
        let routes = rows(&self.ctl("show routes"));
        let routes = routes
            .iter()
            .filter(|row| row.starts_with('*'))
            .map(|row| row.replace(" api ", " static "));
        routes.chain(rows(&self.ctl("show rules"))).collect()
    }
}

#[test]
fn what_is_saved_is_there_after_a_reload_and_a_restart() {
    let mut running = Running::start(COMMENTED);
    let path = running.scratch.join("config.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("permissions");
    let before = running.file();
    assert_eq!(running.ctl("diff"), "nothing to save\n");
    assert!(running.ctl("save").starts_with("nothing to save: "));
    // Of a prefix in the file there is a route already.
    let (status, _, err) = running.script("route add 10.0.0.0/8 via 198.51.100.3\n");
    assert!(status == 1 && err.contains("10.0.0.0/8 exists already in the configuration"), "{err}");
    for command in [
        "route add 203.0.113.0/24 via 198.51.100.2 dev right metric 5",
        "route add default nexthop via 192.0.2.7 weight 3 nexthop via 198.51.100.9",
        "-6 route add default dev left",
        "route replace 10.0.0.0/8 via 198.51.100.3",
        "route add 198.18.0.0/15 blackhole",
        "rule add dns --action accept --proto udp --dport 53 --first",
        "rule replace ssh --action accept --proto tcp --dport 22 --src 192.0.2.0/24",
        "rule del telnet",
        "rule add web --action drop --proto tcp --dport 80-443 --in left",
    ] {
        running.ctl(command);
    }
    let tables = running.tables();
    let diff = running.ctl("diff");
    for line in [
        "--- ",
        "+via   = \"198.51.100.3\" # moves next year",
        "+via = \"192.0.2.7*3,198.51.100.9\"",
        "+prefix = \"::/0\"",
        "+port = \"left\"",
        "+metric = 5",
        "+blackhole = true",
        "-name = \"telnet\"",
        "+action = \"accept\"",
        "+src = \"192.0.2.0/24\"",
        "+dport = \"80-443\"",
        "+in = \"left\"",
        // What was the second rule without a name is the third one.
        "+name = \"#2\"",
    ] {
        assert!(diff.lines().any(|own| own.starts_with(line)), "{line} is not in\n{diff}");
    }
    assert_eq!(running.file(), before);
    // The text for programs is that of `save -`; nothing is written yet.
    let text = running.ctl("save -");
    let json: serde_json::Value = serde_json::from_str(&running.ctl("diff --json")).expect("JSON");
    assert_eq!((&json["text"], &json["diff"]), (&text.as_str().into(), &diff.as_str().into()));
    let other = running.scratch.join("other.toml");
    running.ctl(&format!("save {}", other.display()));
    assert_eq!(fs::read_to_string(&other).expect("the other file"), text);
    assert_eq!(running.file(), before);

    let said = running.ctl("save");
    assert!(said.starts_with("saved to ") && said.contains("+ route ::/0 via left"), "{said}");
    assert!(!said.contains("removed") && !said.contains("restart"), "{said}");
    let (status, _, err) = running.script("route del 203.0.113.0/24\n");
    assert!(
        status == 1 && err.contains("is in the configuration: remove it there, then `ctl reload`"),
        "{err}"
    );
    let after = running.file();
    assert_eq!(after, text);
    for comment in [
        "# The edge of the lab.\n\nmode",
        "# not a router alone",
        "# To the hosts",
        "# the old building",
        "# games",
    ] {
        assert!(after.contains(comment), "{comment} is not in\n{after}");
    }
    let mode = fs::metadata(&path).expect("the file").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o640);
    let names = fs::read_dir(running.scratch.path()).expect("the folder");
    assert_eq!(
        names
            .filter(|name| name
                .as_ref()
                .is_ok_and(|n| n.file_name().to_string_lossy().contains(".new")))
            .count(),
        0
    );

    // It is all the configuration's now.
    assert_eq!(running.tables(), tables);
    assert_eq!(running.ctl("diff"), "nothing to save\n");
    assert_eq!(running.ctl("reload").trim(), "nothing changed");
    assert_eq!(rows(&running.ctl("show routes source api")), [""; 0]);
    running.restart();
    assert_eq!(running.tables(), tables);
    assert_eq!(running.ctl("diff"), "nothing to save\n");
    assert_eq!(running.file(), after);
    // The last rule goes, and the firewall stays.
    for rule in ["dns", "ssh", "#2", "web"] {
        running.ctl(&format!("rule del {rule}"));
    }
    running.ctl("save");
    assert_eq!(running.ctl("reload").trim(), "nothing changed");
    running.restart();
    assert_eq!(rows(&running.ctl("show rules")).len(), 1);
}

#[test]
fn a_file_that_changed_is_not_overwritten_unseen() {
    let running = Running::start(EDGE);
    running.ctl("route add 203.0.113.0/24 dev right");
    let other = running.file().replace("10.0.0.0/8", "11.0.0.0/8") + "# by hand\n";
    running.scratch.write("config.toml", &other);
    assert!(
        running.ctl("diff").starts_with("# ")
            && running.ctl("diff").contains("has changed since it was read")
    );
    let (status, said) = running.refused("save");
    assert!(status == 1 && said.contains("the file has changed since it was read"), "{said}");
    assert_eq!(running.file(), other);
    let said = running.ctl("save --force");
    assert!(
        said.contains("+ route 11.0.0.0/8") && said.contains("+ route 203.0.113.0/24"),
        "{said}"
    );
    let file = running.file();
    let kept = other.lines().all(|line| file.lines().any(|own| own == line));
    assert!(kept, "{file}");
    assert!(file.contains("# by hand") && file.contains("203.0.113.0/24"), "{file}");
    assert_eq!(running.ctl("reload").trim(), "nothing changed");
    // A file with errors is left as it is.
    running.ctl("route add 203.0.114.0/24 dev right");
    running.scratch.write("config.toml", "mode = \"nothing\"\n");
    for command in ["diff", "save", "save --force", "save -"] {
        let (_, said) = running.refused(command);
        assert!(said.contains("the file has changed and has errors"), "{said}");
    }
    assert_eq!(running.file(), "mode = \"nothing\"\n");
    fs::remove_file(running.scratch.join("config.toml")).expect("the file");
    let (_, said) = running.refused("save --force");
    assert!(said.contains("config.toml"), "{said}");
    // What a reload brings is no change by `ctl`.
    running.scratch.write("config.toml", &file);
    running.ctl("route del 203.0.114.0/24");
    assert_eq!(running.ctl("diff"), "nothing to save\n");
}

#[test]
fn a_reload_leaves_a_route_to_the_file_that_has_it() {
    let running = Running::start(EDGE);
    running.ctl("route add 203.0.113.0/24 via 198.51.100.2");
    running.ctl("route add 203.0.114.0/24 via 198.51.100.2");
    let text = running.file()
        + "[[route]]\nprefix = \"203.0.113.0/24\"\nvia = \"198.51.100.2\"\n\
           [[route]]\nprefix = \"203.0.114.0/24\"\nvia = \"198.51.100.7\"\n";
    running.scratch.write("config.toml", &text);
    running.ctl("reload");
    assert_eq!(
        rows(&running.ctl("show routes 203.0.0.0/8 longer-prefixes source api,static")).len(),
        3
    );
    let own = rows(&running.ctl("show routes source api"));
    assert!(own.len() == 1 && own[0].contains("203.0.114.0/24"), "{own:?}");
}

#[test]
fn routes_for_names_are_saved() {
    let ndn = "mode = \"ndn\"\n[port.lan]\nbackend = \"memory\"\n[ndn.face.west]\nport = \"lan\"\n\
               # home\n[[name]]\nprefix = \"/home\"\nfaces = [\"west\"]\n";
    let mut running = Running::start(ndn);
    running.ctl("name add /org/a%20b west");
    assert!(running.ctl("diff").contains("+prefix = \"/org/a%20b\""));
    running.ctl("save");
    assert_eq!(running.ctl("reload").trim(), "nothing changed");
    let names = running.ctl("show names");
    assert!(names.contains("/org/a%20b") && !names.contains(" api"), "{names}");
    running.restart();
    assert_eq!(running.ctl("show names"), names);
    assert!(running.file().contains("# home\n[[name]]"));
}

/// Rules of two firewalls, each in its own section; those of a file of rules are written down when one of them goes.
#[test]
fn rules_are_saved_where_their_firewall_has_them() {
    let two = "mode = \"guard\"\n[pipeline.guard]\nstages = [\"outer\", \"inner\", \"wire\"]\n\
               [stage.outer]\nkind = \"firewall\"\n[[stage.outer.rule]] # all of them\nfile = \"acl\"\naction = \"drop\"\n\
               [stage.inner]\nkind = \"firewall\"\n\
               [port.left]\nbackend = \"memory\"\n[port.right]\nbackend = \"memory\"\n";
    let acl: String = (0..3)
        .map(|n| {
            format!("@10.{n}.0.0/16\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0200\n")
        })
        .collect();
    let mut running = Running::with(two, &[("acl", &acl)]);
    let shown = |running: &Running| {
        ["outer", "inner"].map(|stage| rows(&running.ctl(&format!("show rules stage {stage}"))))
    };
    running.ctl("rule add ssh --action drop --proto tcp --dport 22 --stage inner");
    running.ctl("rule add last --action accept --stage outer");
    running.ctl("save");
    let file = running.file();
    assert!(file.contains("# all of them\nfile = \"acl\""), "{file}");
    assert!(file.contains("[[stage.inner.rule]]\nname = \"ssh\""), "{file}");
    running.ctl("rule del acl:1 --stage outer");
    let before = shown(&running);
    running.ctl("save");
    assert_eq!(running.ctl("reload").trim(), "nothing changed");
    assert!(!running.file().contains("file = \"acl\""), "{}", running.file());
    running.restart();
    assert_eq!(shown(&running), before);
    let (_, said) = running.refused("show rules");
    assert!(
        said.contains("several stages: choose one with `--stage outer` or `--stage inner`"),
        "{said}"
    );
}

#[test]
fn a_configuration_of_standard_input_has_no_file() {
    let running = Running::start(EDGE);
    let other = testkit::Scratch::new();
    let socket = other.join("ctl.sock");
    let text = running.file().replace(
        &running.scratch.join("ctl.sock").display().to_string(),
        &socket.display().to_string(),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    let mut child = command
        .args(["run", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), text.as_bytes())
        .expect("the text");
    let end = std::time::Instant::now() + common::STARTED;
    while !socket.exists() && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for args in ["save", "diff", "save -"] {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        let output = ctl
            .arg("ctl")
            .arg("--socket")
            .arg(&socket)
            .args(args.split(' '))
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the configuration came from standard input"), "{said}");
    }
    let mut ctl = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    assert!(
        ctl.arg("ctl")
            .arg("--socket")
            .arg(&socket)
            .arg("stop")
            .status()
            .expect("it starts")
            .success()
    );
    assert!(child.wait().expect("it ends").success());
}
