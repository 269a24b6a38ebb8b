//! A reload that cannot be made changes nothing: a program over memory ports, asked before and after.

mod common;

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{SOON, STARTED};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

/// The program as it runs, with its files.
struct Running {
    scratch: Scratch,
    process: Process,
}

impl Running {
    fn start(files: &[(&str, &str)], config: &str) -> Self {
        Self::start_in(Scratch::new(), files, config, &[])
    }

    /// In a folder, with more in its environment.
    fn start_in(
        scratch: Scratch,
        files: &[(&str, &str)],
        config: &str,
        environment: &[(&str, &Path)],
    ) -> Self {
        for (name, text) in files {
            scratch.write(name, text);
        }
        let socket = scratch.join("ctl.sock");
        let head = "[system]\nworkers = 1\nsocket = ";
        let config = config.replace("[system]", &format!("{head}\"{}\"", socket.display()));
        let config = scratch.write("config.toml", &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.arg("run").arg(config).envs(environment.iter().copied());
        let mut process = Process::spawn(command);
        process.wait_for("running: ", STARTED);
        Self { scratch, process }
    }

    /// `shadeline ctl ARGS`.
    fn ctl_command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.arg("ctl").arg("--socket").arg(self.scratch.join("ctl.sock"));
        command.args(args.split_whitespace());
        command
    }

    /// `shadeline ctl ARGS`: whether it succeeded, and what it said.
    fn ctl(&self, args: &str) -> (bool, String) {
        let output = self.ctl_command(args).output().expect("the program starts");
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

/// What a variable says is in no file that `check` reads.
#[test]
fn a_socket_that_no_path_can_name_is_known_before_ports_open() {
    let scratch = Scratch::new();
    let config =
        scratch.write("config.toml", &ROUTER.replace("[[routes]]\nfile = \"table.txt\"\n", ""));
    let long = format!("/tmp/{}", "a".repeat(120));
    let mut run = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    let output = run.arg("run").arg(config).env("SHADELINE_SOCKET", long).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "error: SHADELINE_SOCKET: the path has 125 bytes, a Unix socket's at most 96\n";
    assert_eq!((output.status.code(), &said[..]), (Some(1), expected));
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
fn a_reload_says_what_files_changed() {
    let running = Running::start(&[("table.txt", &hosts(10, "192.0.2.2"))], ROUTER);
    let reload = |text: &str| {
        running.scratch.write("table.txt", text);
        let (good, said) = running.ctl("reload");
        assert!(good, "{said}");
        said
    };
    assert_eq!(reload(&hosts(10, "192.0.2.2")).trim(), "nothing changed");
    let said = reload(&hosts(13, "192.0.2.2"));
    let tail = "table.txt: 13 routes, 3 added, removed or replaced\nnothing else changed";
    assert!(said.trim().ends_with(tail), "{said}");
    let said = reload(&hosts(9, "192.0.2.3"));
    assert!(said.contains("table.txt: 9 routes, 13 added, removed or replaced\n"), "{said}");
    assert_eq!(running.ctl("reload").1.trim(), "nothing changed");
}

#[test]
fn a_reload_tells_the_warnings_that_are_new() {
    let running = Running::start(&[("table.txt", "")], ROUTER);
    let text = std::fs::read_to_string(running.scratch.join("config.toml")).expect("the file");
    let reload = |more: &str| {
        running.scratch.write("config.toml", &(text.clone() + more));
        let (good, said) = running.ctl("reload");
        assert!(good, "{said}");
        said
    };
    let neighbour = |address: &str| {
        format!(
            "[[neighbour]]\nport = \"left\"\naddress = \"{address}\"\nmac = \"02:00:00:00:00:09\"\n"
        )
    };
    let warning = |address: &str| format!("warning: `{address}` is in no subnet of port `left`");
    let (one, two) = (neighbour("203.0.113.9"), neighbour("203.0.113.10"));
    assert!(reload(&one).starts_with(&warning("203.0.113.9")));
    // In force already: whoever wrote it knows.
    assert!(!reload(&(one.clone() + "\n")).contains("warning"));
    let said = reload(&(one + &two));
    assert!(said.starts_with(&warning("203.0.113.10")) && !said.contains("203.0.113.9`"), "{said}");
}

/// Whoever reads the log sees that it came back.
#[test]
fn a_port_that_is_opened_anew_goes_down_and_up() {
    let tagged = |vlan: u32| {
        format!("[port.tagged]\nparent = \"left\"\nvlan = {vlan}\naddresses = [\"10.7.0.1/24\"]\n")
    };
    let mut running = Running::start(&[("table.txt", "")], &(ROUTER.to_owned() + &tagged(7)));
    let (good, said) = running.reload_with(ROUTER, &tagged(8));
    assert!(good, "{said}");
    running.process.wait_for("port tagged: down", STARTED);
    running.process.wait_for("port tagged: up", STARTED);
    let interfaces = running.show("interfaces");
    let line = interfaces.lines().find(|line| line.contains(" tagged ")).expect("its line");
    assert!(line.contains("vlan 8 on left") && line.contains(" up "), "{interfaces}");
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
    assert!(said.contains("files of [[names]]: 26 routes added, removed or replaced\n"), "{said}");
    assert!(running.show("faces").contains("east"));
}

impl Running {
    /// Reloads the configuration with more of it; whether that was good, and what it said.
    fn reload_with(&self, config: &str, more: &str) -> (bool, String) {
        self.write(config, more);
        self.ctl("reload")
    }

    /// Writes the configuration with more of it.
    fn write(&self, config: &str, more: &str) {
        let head = format!(
            "[system]\nworkers = 1\nsocket = \"{}\"",
            self.scratch.join("ctl.sock").display()
        );
        let text = config.replace("[system]", &head) + more;
        self.scratch.write("config.toml", &text);
    }

    /// What a reload that is refused must leave alone.
    fn all(&self) -> Vec<String> {
        let interfaces = self.show("interfaces");
        // Without the counters.
        let interfaces = interfaces.split("\n\n").next().unwrap_or_default().to_owned();
        let stages = self.show("stages");
        let names = stages.lines().filter_map(|line| line.split_whitespace().next());
        vec![interfaces, names.collect::<Vec<_>>().join(" "), self.show("routes")]
    }
}

const MORE: &str = "[port.third]\nbackend = \"memory\"\naddresses = [\"203.0.113.1/24\"]\npipeline = \"edge\"\n\
                    [port.tagged]\nparent = \"left\"\nvlan = 7\naddresses = [\"10.7.0.1/24\"]\n\
                    [pipeline.edge]\nstages = [\"decode\", \"route\", \"rewrite\"]\n\
                    [[rule]]\nname = \"x\"\nsrc = \"10.1.0.0/16\"\naction = \"drop\"\n";

#[test]
fn ports_pipelines_and_rules_come_and_go() {
    let running = Running::start(&[("table.txt", "")], ROUTER);
    let before = running.all();
    let mut with = Vec::new();
    for round in 0..3 {
        let (good, said) = running.reload_with(ROUTER, MORE);
        assert!(good && said.contains("added port.third"), "{said}");
        let (interfaces, stages) = (running.show("interfaces"), running.show("stages"));
        for part in ["third", "tagged", "vlan 7 on left", "203.0.113.1/24"] {
            assert!(interfaces.contains(part), "{interfaces}");
        }
        assert!(stages.contains("edge.route") && stages.contains("router.firewall"), "{stages}");
        assert!(running.show("rules").contains("src 10.1.0.0/16"));
        assert!(running.show("routes").contains("203.0.113.0/24"));
        with.push(running.all());
        assert_eq!(with[round], with[0], "the same each time");
        let (good, said) = running.reload_with(ROUTER, "");
        assert!(good && said.contains("removed port.third"), "{said}");
        assert_eq!(running.all(), before);
        let (good, said) = running.ctl("show rules");
        assert!(!good && said.contains("no table `rules`"), "{said}");
    }
    // Another application takes over, and gives way again.
    let switch = "mode = \"switch\"\n[system]\n[port.left]\nbackend = \"memory\"\n[port.right]\nbackend = \"memory\"\n";
    let (good, said) = running.reload_with(switch, "");
    assert!(good && said.contains("changed mode: router -> switch"), "{said}");
    assert!(running.show("stages").contains("bridge_out"));
    running.show("macs");
    assert!(running.show("runtime").contains("switch"));
    let (good, said) = running.reload_with(ROUTER, "");
    assert!(good, "{said}");
    assert_eq!(running.all(), before);
}

#[test]
fn a_port_that_cannot_be_opened_changes_nothing() {
    let running = Running::start(&[("table.txt", "")], ROUTER);
    let before = running.all();
    let absent = "[port.fourth]\nbackend = \"tap\"\ninterface = \"lo\"\n";
    let (good, said) = running.reload_with(ROUTER, &format!("{MORE}{absent}"));
    assert!(!good && said.contains("port fourth: "), "{said}");
    assert_eq!(running.all(), before, "{said}");
    // A port that there is, opened anew; with it another pipeline and another route.
    let other = ROUTER
        .replace(
            "[port.right]\nbackend = \"memory\"",
            "[port.right]\nbackend = \"tap\"\ninterface = \"lo\"",
        )
        .replace("10.0.0.0/8", "11.0.0.0/8");
    let (good, said) = running.reload_with(&other, MORE);
    assert!(!good && said.contains("port right: "), "{said}");
    assert_eq!(running.all(), before, "{said}");
    // And nothing of all that is in the way of the next one.
    let (good, said) = running.reload_with(ROUTER, MORE);
    assert!(good, "{said}");
    let (good, said) = running.reload_with(ROUTER, "");
    assert!(good, "{said}");
    assert_eq!(running.all(), before);
}

/// A route that does not fit is refused late, when ports are open and parts have started.
#[test]
fn a_rebuild_that_is_refused_late_changes_nothing() {
    let running = Running::start(&[("table.txt", &hosts(10, "192.0.2.2"))], ROUTER);
    let before = running.all();
    running.scratch.write("table.txt", &hosts(400_000, "198.51.100.2"));
    let (good, said) = running.reload_with(ROUTER, MORE);
    assert!(!good && said.contains("the table is full"), "{said}");
    assert_eq!(running.all(), before, "{said}");
    running.scratch.write("table.txt", &hosts(10, "192.0.2.2"));
    let (good, said) = running.reload_with(ROUTER, MORE);
    assert!(good, "{said}");
}

#[test]
fn the_first_rule_needs_no_firewall() {
    let running = Running::start(&[("table.txt", "")], ROUTER);
    let (good, said) = running.ctl("rule del x");
    assert!(!good && said.contains("this instance has no firewall"), "{said}");
    assert!(running.ctl("rule add x --src 10.1.0.0/16 --action drop").0);
    assert!(running.ctl("rule add y --src 10.2.0.0/16 --action accept").0);
    let rules = running.show("rules");
    assert!(rules.contains("src 10.1.0.0/16") && rules.contains("src 10.2.0.0/16"), "{rules}");
    assert!(running.show("stages").contains("firewall"));
    // The file knows of none: a reload makes the instance what the file says.
    let (good, said) = running.ctl("reload");
    assert!(good && said.contains("pipeline.router.stages"), "{said}");
    assert!(!running.show("stages").contains("firewall"));
    // A pipeline of the file is the user's own.
    let own = ROUTER.replace("mode = \"router\"", "mode = \"own\"");
    let stages = "[pipeline.own]\nstages = [\"decode\", \"route\", \"rewrite\"]\n";
    let (good, said) = running.reload_with(&own, stages);
    assert!(good, "{said}");
    let (good, said) = running.ctl("rule add x --src 10.1.0.0/16 --action drop");
    assert!(!good && said.contains("needs the stage `firewall`"), "{said}");
}

fn first_word(line: &str) -> String {
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

/// A first rule that a reload brings is in force when the reload says so. Where no pipeline has a firewall it is an error,
/// for `check` too, and what ran before goes on.
#[test]
fn a_first_rule_takes_effect_or_the_reload_fails() {
    let rule = "[[rule]]\nname = \"no-ping\"\nproto = \"icmp\"\naction = \"drop\"\n";
    let ports = "[port.left]\nbackend = \"memory\"\n[port.right]\nbackend = \"memory\"\n";
    let switch = format!("mode = \"switch\"\n[system]\n{ports}");
    let own = |stages: &str| format!("[pipeline.own]\nstages = [{stages}]\n");
    let routes = own("\"decode\", \"route\", \"rewrite\"");
    let bridges = own("\"bridge_in\", \"bridge\", \"bridge_out\"");
    let mine = |config: &str, mode: &str| config.replace(&format!("\"{mode}\""), "\"own\"");
    for (config, more) in [
        (ROUTER.to_owned(), String::new()),
        (switch.clone(), String::new()),
        (mine(ROUTER, "router"), routes),
        (mine(&switch, "switch"), bridges),
    ] {
        let is_own = !more.is_empty();
        let running = Running::start(&[("table.txt", "")], &(config.clone() + &more));
        let stages =
            || running.show("stages").lines().map(first_word).collect::<Vec<_>>().join(" ");
        let before = stages();
        let (good, said) = running.reload_with(&config, &(more + rule));
        assert_eq!(good, !is_own, "{said}");
        let enforced = running.show("stages").contains("firewall");
        assert_eq!(enforced, !is_own, "{said}");
        if is_own {
            let why = "`rule` has no effect: the pipeline `own` has no firewall";
            assert!(said.contains(why) && said.contains("`firewall` in its `stages`"), "{said}");
            assert_eq!(stages(), before);
            let mut check = Command::new(env!("CARGO_BIN_EXE_shadeline"));
            let check = check.arg("check").arg(running.scratch.join("config.toml")).output();
            let check = check.expect("the program starts");
            let said = String::from_utf8_lossy(&check.stdout);
            assert!(!check.status.success() && said.contains(why), "{said}");
        } else {
            assert!(running.show("rules").contains("no-ping"), "{said}");
        }
    }
}

/// The client reads the file, with its own rights; the instance opens none that a request names.
#[test]
fn files_of_rules_are_the_clients() {
    use std::io::{BufRead, BufReader, Write};
    let running = Running::start(&[("table.txt", "")], &format!("{ROUTER}[firewall]\n"));
    let secret = running.scratch.write("secret", "root:$6$salt$hash:19000:0:99999:7:::\n");
    let (good, said) = running.ctl(&format!("rule replace --file {}", secret.display()));
    assert!(!good && said.contains("expected ClassBench rules"), "the user may read it: {said}");
    let (good, said) = running.ctl("rule replace --file /dev/zero");
    assert!(!good && said.contains("/dev/zero: more than 32 MiB"), "{said}");

    let ask = |line: &str| {
        let socket = running.scratch.join("ctl.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("a socket");
        writeln!(stream, "{line}").expect("it reads");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("an answer");
        answer
    };
    let before = running.show("rules");
    let request = |fields: &str| format!("{{\"request\":\"rule_replace_all\",{fields}}}");
    for (fields, expected) in [
        (format!("\"file\":\"{}\"", secret.display()), "unknown field `file`"),
        ("\"file\":\"/dev/zero\"".to_owned(), "unknown field `file`"),
        (
            "\"rules\":[{\"file\":\"/etc/shadow\",\"action\":\"drop\"}]".to_owned(),
            "unknown field `file`",
        ),
        ("\"rules\":[{\"name\":\"a b\",\"action\":\"drop\"}]".to_owned(), "is not a valid name"),
        (
            "\"rules\":[{\"name\":\"a\",\"action\":\"send mars\"}]".to_owned(),
            "there is no port `mars`",
        ),
        ("\"rules\":7".to_owned(), "rules: invalid type"),
        ("\"stage\":\"firewall\"".to_owned(), "rules: invalid type: null"),
    ] {
        let answer = ask(&request(&fields));
        assert!(answer.contains(expected) && !answer.contains("$6$"), "{fields}: {answer}");
    }
    assert_eq!(running.show("rules"), before);
    let twice = running
        .scratch
        .write("twice.txt", &"@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xFF\n".repeat(3000));
    let (good, said) =
        running.ctl(&format!("rule replace --file {} --action drop", twice.display()));
    assert!(good, "a request of more than 64 KiB: {said}");
    assert!(running.show("rules").contains("twice:2999"));
}

/// Kernels are made anew for other stages; two workers share the simulated device.
#[test]
fn devices_and_workers_go_on() {
    let config = ROUTER.replace("[system]", "[system]\n[engine]\nbackend = \"sim\"\n");
    let running = Running::start(&[("table.txt", "")], &config);
    for _ in 0..3 {
        for more in [MORE, ""] {
            let (good, said) = running.reload_with(&config, more);
            assert!(good, "{said}");
            let runtime = running.show("runtime");
            assert!(runtime.contains("simulated"), "{runtime}");
        }
    }
}

/// Lets one creation of a thread fail, as a limit on threads does: that of the number in a file, counted since the file
/// is there.
const FEW_THREADS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    static atomic_int made;
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int wanted = 0;
    FILE *file = fopen(getenv("FAILS"), "r");
    if (file == NULL) {
        made = 0;
    } else {
        if (fscanf(file, "%d", &wanted) != 1) wanted = 0;
        fclose(file);
        if (++made == wanted) return EAGAIN;
    }
    create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attributes, run, with);
}
"#;

/// The library of [`FEW_THREADS`]; `None`, and the test is skipped, where nothing compiles it.
fn few_threads(scratch: &Scratch) -> Option<PathBuf> {
    let compiler = testkit::require_tool("cc")?;
    let (source, library) = (scratch.write("few.c", FEW_THREADS), scratch.join("few.so"));
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(command.status().is_ok_and(|status| status.success()), "cc compiles it");
    Some(library)
}

/// Whichever thread a reload cannot have, it is refused, and packets are carried as before.
#[test]
fn a_thread_that_cannot_be_had_changes_nothing() {
    let scratch = Scratch::new();
    let Some(library) = few_threads(&scratch) else { return };
    let fails = scratch.join("fails");
    let environment = [("LD_PRELOAD", &*library), ("FAILS", &*fails)];
    let config = ROUTER.replace("[system]", "[system]\n[engine]\nbackend = \"sim\"\n");
    let files = [("table.txt", "")];
    let mut running = Running::start_in(scratch, &files, &config, &environment);
    let before = running.all();
    let switch = "mode = \"switch\"\n[system]\n[port.left]\nbackend = \"memory\"\n[port.right]\nbackend = \"memory\"\n";
    // The second one has a part that listens to workers, on a thread of its own.
    for (config_after, more, stage, least) in
        [(&*config, MORE, "edge.route", 3), (switch, "", "bridge_out", 4)]
    {
        let (mut refused, mut applied) = (0, 0);
        for number in 1.. {
            running.write(config_after, more);
            let file = running.scratch.write("fails", &number.to_string());
            let (good, said) = running.ctl("reload");
            std::fs::remove_file(file).expect("the file");
            assert!(running.process.is_running(), "thread {number}: {said}");
            if good {
                assert!(running.show("stages").contains(stage), "thread {number}");
                let (good, said) = running.reload_with(&config, "");
                assert!(good, "{said}");
                applied += 1;
                // Those of the device, without which the CPU shades, and then more than there are.
                if applied == 6 {
                    break;
                }
            } else {
                refused += 1;
            }
            assert_eq!(running.all(), before, "thread {number}: {said}");
        }
        assert!(refused >= least, "{stage}: {refused} refused, {applied} applied");
    }
    let (status, output) = running.process.stop(Stop::Terminate, SOON);
    assert!(status.success() && !output.contains("no packets are carried"), "{output}");
}

/// Whatever a reload is at when the program is to stop, it is made, or it is cancelled.
#[test]
fn a_stop_during_a_reload_is_clean() {
    let mut cancelled = 0;
    for round in 0..12u64 {
        let mut running = Running::start(&[("table.txt", "")], &(ROUTER.to_owned() + MORE));
        running.write(ROUTER, "");
        let mut reload = Process::spawn(running.ctl_command("reload"));
        std::thread::sleep(Duration::from_millis(7 * round));
        let signal = [Stop::Terminate, Stop::Interrupt][round as usize % 2];
        let (status, output) = running.process.stop(signal, SOON);
        let (_, said) = reload.wait(SOON);
        assert!(status.success(), "round {round}: {output}");
        for odd in ["ERROR", "panicked", "stage_panic"] {
            assert!(!output.contains(odd), "round {round}: {odd}\n{output}");
        }
        let is_cancelled = output.contains("reload cancelled: the instance is stopping");
        let is_made = output.contains("reloaded: ");
        assert!(!is_made || said.contains("removed port.third"), "round {round}: {said}");
        assert!(!is_cancelled || said.contains("reload cancelled: the instance is stopping"));
        cancelled += u32::from(is_cancelled);
    }
    println!("{cancelled} of 12 reloads were cancelled");
    // One that reads for seconds: whoever asked for it hears of its end.
    let mut running = Running::start(&[("table.txt", "")], ROUTER);
    running.scratch.write("table.txt", &hosts(60_000, "192.0.2.2"));
    let mut reload = Process::spawn(running.ctl_command("reload"));
    std::thread::sleep(Duration::from_millis(300));
    let (status, output) = running.process.stop(Stop::Terminate, SOON);
    let (ended, said) = reload.wait(SOON);
    assert!(status.success(), "{output}");
    let is_cancelled = said.contains("reload cancelled: the instance is stopping");
    assert!(is_cancelled != ended.success() && !said.contains("connection"), "{said}\n{output}");
}

/// The names of the interfaces of a whole pcapng file in its order, and by packet the number of its interface, which must
/// be one that was described before.
fn interfaces_of(path: &Path) -> (Vec<String>, Vec<usize>) {
    let (names, packets, rest) = interfaces_so_far(path);
    assert_eq!(rest, 0, "the last block has its end");
    (names, packets)
}

/// The same of a file that is being written, and how many bytes of the last block there are.
fn interfaces_so_far(path: &Path) -> (Vec<String>, Vec<usize>, usize) {
    let bytes = std::fs::read(path).expect("a capture");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut names, mut packets, mut at) = (Vec::new(), Vec::new(), 0);
    while at + 8 <= bytes.len() && at + word(at + 4) <= bytes.len() {
        match word(at) {
            1 => {
                // The first option is the name.
                let (kind, len) = (word(at + 16) & 0xffff, word(at + 16) >> 16);
                assert_eq!(kind, 2, "if_name");
                names.push(String::from_utf8_lossy(&bytes[at + 20..at + 20 + len]).into_owned());
            }
            6 => {
                assert!(word(at + 8) < names.len(), "interface {} of {names:?}", word(at + 8));
                packets.push(word(at + 8));
            }
            _ => {}
        }
        at += word(at + 4);
    }
    (names, packets, bytes.len() - at)
}

/// Captures and traces that run over a reload name the ports that it adds.
#[test]
fn ports_that_come_later_have_names_in_captures() {
    let input = testkit::repository().join("tests/golden/firewall/lan.pcap");
    let scratch = Scratch::new();
    let dump = scratch.join("odd.pcapng");
    let dumps = "[[rule]]\nname = \"odd\"\nproto = \"udp\"\naction = \"dump\"\n";
    let config = format!("{ROUTER}{dumps}[dump.odd]\nfile = {dump:?}\n");
    let mut running = Running::start_in(scratch, &[("table.txt", "")], &config, &[]);
    let captured = running.scratch.join("captured.pcapng");
    let args = format!("capture dumps -w {}", captured.display());
    let mut capture = Process::spawn(running.ctl_command(&args));
    let mut trace = Process::spawn(running.ctl_command("trace --count 3"));
    // Both have begun once the instance has accepted them: it answers in order of connection.
    std::thread::sleep(Duration::from_millis(500));
    let read = format!("backend = \"pcap\"\nread = {input:?}\naddresses = [\"10.0.1.1/24\"]\n");
    let (good, said) = running.reload_with(&config, &format!("[port.fourth]\n{read}"));
    assert!(good, "{said}");
    let written = || std::fs::metadata(&dump).is_ok_and(|file| file.len() > 1000);
    assert!(wait_until(SOON, written), "{:?}", std::fs::metadata(&dump));
    let (_, said) = trace.wait(SOON);
    assert!(said.contains("fourth, "), "{said}");
    std::thread::sleep(Duration::from_millis(500));
    let (_, said) = capture.stop(Stop::Interrupt, SOON);
    assert!(captured.exists(), "{said}");
    let (status, output) = running.process.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{output}");
    for path in [&dump, &captured] {
        let (names, packets) = interfaces_of(path);
        assert!(packets.len() > 3, "{names:?}");
        assert!(packets.iter().all(|packet| names[*packet] == "fourth"), "{names:?} {packets:?}");
    }
}

/// A capture of dumps comes, changes and goes with a reload; one that is refused leaves no file and touches none.
#[test]
fn dumps_come_change_and_go() {
    let input = testkit::repository().join("tests/golden/firewall/lan.pcap");
    let rule = "[[rule]]\nname = \"odd\"\nproto = \"udp\"\naction = \"dump\"\n";
    let config = format!("{ROUTER}{rule}");
    let mut running = Running::start(&[("table.txt", "")], &config);
    let (odd, other) = (running.scratch.join("odd.pcapng"), running.scratch.join("other.pcapng"));
    let dump = |name: &str, file: &Path, filter: &str| {
        format!("[dump.{name}]\nfile = {file:?}\nfilter = \"{filter}\"\n")
    };
    // The port's frames come once, when it is opened.
    let port = |name: &str| {
        let addresses = "addresses = [\"10.0.1.1/24\"]";
        format!("[port.{name}]\nbackend = \"pcap\"\nread = {input:?}\n{addresses}\n")
    };
    let packets = |path: &Path| interfaces_so_far(path).1.len();

    let first = dump("odd", &odd, "udp");
    let (good, said) = running.reload_with(&config, &format!("{first}{}", port("a")));
    assert!(good && said.contains("dump.odd: - -> "), "{said}");
    assert!(wait_until(SOON, || packets(&odd) > 3), "{}", packets(&odd));
    let all = packets(&odd);

    // It goes on while another one comes, and while a port comes.
    let second = dump("other", &other, "udp");
    let both = format!("{first}{second}");
    let (good, said) = running.reload_with(&config, &format!("{both}{}", port("b")));
    assert!(good && said.contains("dump.other: - -> ") && !said.contains("dump.odd"), "{said}");
    assert!(wait_until(SOON, || (packets(&odd), packets(&other)) == (2 * all, all)));

    // A file that cannot be written is named; the file of another new entry is not there, and nothing else has changed.
    let made = running.scratch.join("made.pcapng");
    let absent = running.scratch.join("absent/x.pcapng");
    let more = format!("{both}{}{}", dump("made", &made, "udp"), dump("x", &absent, "udp"));
    let (good, said) = running.reload_with(&config, &more);
    assert!(!good && said.contains("absent/x.pcapng: "), "{said}");
    assert!(!made.exists() && (packets(&odd), packets(&other)) == (2 * all, all));

    // With another filter it begins anew, the same file under another name, too.
    let more = format!("{}{}", dump("odd", &odd, "tcp"), dump("third", &other, "udp"));
    let (good, said) = running.reload_with(&config, &format!("{more}{}", port("c")));
    assert!(good && said.contains("dump.other: ") && said.contains("(tcp)"), "{said}");
    assert!(wait_until(SOON, || packets(&other) == all), "{}", packets(&other));
    assert_eq!(packets(&odd), 0);

    // What is gone is whole, and gets no more.
    let (good, said) = running.reload_with(&config, "");
    assert!(good && said.contains("dump.third: "), "{said}");
    let (good, said) = running.reload_with(&config, &port("d"));
    assert!(good, "{said}");
    let received = || running.show("interfaces --json").contains("\"rx_packets\": 7");
    assert!(wait_until(SOON, received), "{}", running.show("interfaces --json"));
    let (status, output) = running.process.stop(Stop::Terminate, SOON);
    assert!(status.success() && !output.contains("dump odd: "), "{output}");
    let whole = |path: &Path| interfaces_of(path).1.len();
    assert_eq!((whole(&odd), whole(&other)), (0, all));
}
