//! A reload that cannot be made changes nothing: a program over memory ports, asked before and after.

mod common;

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::process::Command;

use common::STARTED;
use testkit::Scratch;
use testkit::process::Process;

/// The program as it runs, with its files.
struct Running {
    scratch: Scratch,
    process: Process,
}

impl Running {
    fn start(files: &[(&str, &str)], config: &str) -> Self {
        let scratch = Scratch::new();
        for (name, text) in files {
            scratch.write(name, text);
        }
        let socket = scratch.join("ctl.sock");
        let head = "[system]\nworkers = 1\nsocket = ";
        let config = config.replace("[system]", &format!("{head}\"{}\"", socket.display()));
        let config = scratch.write("config.toml", &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.arg("run").arg(config);
        let mut process = Process::spawn(command);
        process.wait_for("running: ", STARTED);
        Self { scratch, process }
    }

    /// `shadeline ctl ARGS`: whether it succeeded, and what it said.
    fn ctl(&self, args: &str) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.arg("ctl").arg("--socket").arg(self.scratch.join("ctl.sock"));
        let output = command.args(args.split_whitespace()).output().expect("the program starts");
        let (out, err) = (&output.stdout, &output.stderr);
        (output.status.success(), String::from_utf8_lossy(&[&out[..], err].concat()).into_owned())
    }

    fn show(&self, what: &str) -> String {
        let (good, said) = self.ctl(&format!("show {what}"));
        assert!(good, "{said}");
        said
    }
}

/// Routes to lone hosts, each in a /24 of its own.
fn hosts(count: u32, next_hop: &str) -> String {
    (0..count).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "{}/32 {next_hop}", Ipv4Addr::from_bits((20 << 24) + (i << 8)));
        text
    })
}

const ROUTER: &str = "mode = \"router\"\n[system]\n[router]\nkernel = false\n\
                      [port.left]\nbackend = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n\
                      [port.right]\nbackend = \"memory\"\naddresses = [\"198.51.100.1/24\"]\n\
                      [[routes]]\nfile = \"table.txt\"\n\
                      [[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.9\"\n";

/// Before it opens anything.
#[test]
fn a_second_instance_names_the_first() {
    let running = Running::start(&[("table.txt", "")], ROUTER);
    let mut second = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    let output = second.arg("run").arg(running.scratch.join("config.toml")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("ctl.sock (pid {}): stop it with", running.process.id());
    assert!(!output.status.success() && said.contains(&expected), "{said}");
}

#[test]
fn routes_that_do_not_fit_leave_those_there_are() {
    let running = Running::start(&[("table.txt", &hosts(2000, "192.0.2.2"))], ROUTER);
    let before = running.show("routes");
    assert_eq!(before.matches(" file ").count(), 2000);
    // More than there is room for; a route of the configuration and an address change with it.
    running.scratch.write("table.txt", &hosts(400_000, "198.51.100.2"));
    let config = std::fs::read_to_string(running.scratch.join("config.toml")).expect("the file");
    let other =
        config.replace("10.0.0.0/8", "11.0.0.0/8").replace("198.51.100.1/24", "198.51.100.3/24");
    running.scratch.write("config.toml", &other);
    let (good, said) = running.ctl("reload");
    assert!(!good, "{said}");
    for part in ["table.txt: IPv4, table auto: the table is full", "takes 1 KB"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(running.show("routes"), before);
    // 70,000 fit; the change that was refused is made now, and the start's own count is seen.
    running.scratch.write("table.txt", &hosts(70_000, "198.51.100.2"));
    let (good, said) = running.ctl("reload");
    assert!(good, "{said}");
    let after = running.show("routes");
    assert_eq!(after.matches(" file ").count(), 70_000);
    assert!(after.contains("11.0.0.0/8") && !after.contains("10.0.0.0/8"));
    assert!(after.contains("198.51.100.3/32") && !after.contains("192.0.2.2 "));
    // A file that is gone changes nothing either.
    std::fs::remove_file(running.scratch.join("table.txt")).expect("the file");
    running.scratch.write("config.toml", &config);
    let (good, said) = running.ctl("reload");
    assert!(!good && said.contains("table.txt"), "{said}");
    assert_eq!(running.show("routes"), after);
}

#[test]
fn the_first_version_is_logged() {
    let running = Running::start(&[("table.txt", &hosts(9, "192.0.2.2"))], ROUTER);
    let runtime = running.show("runtime");
    assert!(runtime.contains("16 v4, 0 v6"), "{runtime}"); // with what two ports and one route add
}

const NDN: &str = "mode = \"ndn\"\n[system]\n[ndn]\nnames = 16\n[port.lan]\nbackend = \"memory\"\n\
                   [ndn.face.west]\nport = \"lan\"\n[[names]]\nfile = \"names.txt\"\n";

#[test]
fn names_that_do_not_fit_leave_those_there_are() {
    let names = |count: u32, stem: &str| {
        (0..count).map(|i| format!("/{stem}/{i} west\n")).collect::<String>()
    };
    let running = Running::start(&[("names.txt", &names(10, "old"))], NDN);
    let before = running.show("names");
    assert_eq!(before.matches("/old/").count(), 10, "{before}");
    running.scratch.write("names.txt", &names(30, "new"));
    let config = std::fs::read_to_string(running.scratch.join("config.toml")).expect("the file");
    let other = format!("{config}[ndn.face.east]\nport = \"lan\"\nmac = \"02:00:00:00:00:09\"\n");
    running.scratch.write("config.toml", &other);
    let faces = running.show("faces");
    let (good, said) = running.ctl("reload");
    assert!(!good && said.contains("line 17: no room for this prefix: 30"), "{said}");
    assert_eq!(running.show("names"), before);
    assert_eq!(running.show("faces"), faces);
    let (good, said) = running.ctl("name get /old/3/x");
    assert!(good && said.contains("/old/3"), "{said}");
    running.scratch.write("names.txt", &names(16, "new"));
    let (good, said) = running.ctl("reload");
    assert!(good, "{said}");
    let after = running.show("names");
    assert_eq!((after.matches("/old/").count(), after.matches("/new/").count()), (0, 16));
    assert!(running.show("faces").contains("east"));
}
