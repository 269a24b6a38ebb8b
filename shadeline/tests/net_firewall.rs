//! The firewall among real hosts: who is refused sees it, rules come and go while packets flow.

mod common;

use std::time::Duration;

use common::{BACKENDS, Live, SOON, config, ping};
use testkit::netns::{Netns, veth};
use testkit::process::Stop;
use testkit::{Scratch, wait_until};

const A_WHILE: Duration = Duration::from_secs(5);

const RULES: &str = r#"
[firewall]

[[rule]]
name = "no-ping"
proto = "icmp"
icmp_type = 8
dst = "10.0.2.2"
action = "drop"

[[rule]]
name = "no-ping-six"
proto = "icmpv6"
icmp_type = 128
dst = "fd00:2::2"
action = "reject"

[[rule]]
name = "refused"
dport = 7777
action = "reject"
"#;

/// Tries to reach a port, and prints how that ended: `TCP` the error of a connection, `UDP` the one that a
/// datagram brings back.
const CLIENT: &str = r#"
import errno, socket, sys, time
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.settimeout(3)
try:
    s.connect((address, port))
    if kind == "udp":
        for _ in range(20):
            s.send(b"hello")
            time.sleep(0.05)
    print("open")
except TimeoutError:
    print("silence")
except OSError as error:
    print(errno.errorcode[error.errno])
"#;

fn reach(from: &Netns, scratch: &Scratch, kind: &str, to: &str, port: u16) -> String {
    let script = scratch.write("client.py", CLIENT);
    from.run(&format!("python3 {} {kind} {to} {port}", script.display())).trim().to_owned()
}

/// Hits of a rule, as `ctl rule show` prints them.
fn hits(live: &Live, name: &str) -> u64 {
    let json = live.ctl(&format!("rule show {name} --json"));
    let line = json.lines().map(str::trim).find_map(|line| line.strip_prefix("\"packets\": "));
    line.and_then(|number| number.trim_end_matches(',').parse().ok()).expect("a number")
}

#[test]
fn who_is_refused_sees_it_and_rules_come_and_go() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("filter", backend, RULES) else { return };
        let left = &live.net.left;
        // Both ways are known before anything is said of silence.
        for to in ["10.0.2.1", "fd00:2::1"] {
            assert!(wait_until(A_WHILE, || ping(left, to, 1) == 1), "{backend}: {to}");
        }
        assert_eq!(ping(left, "10.0.2.2", 3), 0, "{backend}");
        assert_eq!(hits(&live, "no-ping"), 3, "{backend}: {}", live.ctl("rule show"));
        let output = left.try_run("ping -n -c 1 -W 2 fd00:2::2");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Administratively prohibited"), "{backend}: {text}");
        for to in ["10.0.2.2", "fd00:2::2", "10.0.1.1"] {
            assert_eq!(
                reach(left, &live.scratch, "tcp", to, 7777),
                "ECONNREFUSED",
                "{backend}: {to}"
            );
        }
        // ICMP code 13 and ICMPv6 code 1, in the words of Linux.
        let refused = reach(left, &live.scratch, "udp", "10.0.2.2", 7777);
        assert_eq!(refused, "EHOSTUNREACH", "{backend}");
        assert_eq!(reach(left, &live.scratch, "udp", "fd00:2::2", 7777), "EACCES", "{backend}");

        live.ctl("rule del no-ping");
        assert!(wait_until(A_WHILE, || ping(left, "10.0.2.2", 1) == 1), "{backend}");
        assert_eq!(ping(left, "10.0.2.2", 5), 5, "{backend}");
        live.ctl("rule add left-only --in right --proto icmp --icmp-type 0 --action drop --first");
        assert_eq!(ping(left, "10.0.2.2", 3), 0, "{backend}: answers come in by the other side");
        assert_eq!(hits(&live, "left-only"), 3, "{backend}");
        live.ctl("rule replace left-only --in left --proto icmp --icmp-type 0 --action drop");
        assert_eq!(ping(left, "10.0.2.2", 3), 3, "{backend}");
        assert_eq!(
            hits(&live, "left-only"),
            3,
            "{backend}: a rule that keeps its name keeps its hits"
        );
        live.ctl("clear counters");
        assert_eq!(hits(&live, "left-only"), 0, "{backend}");
        let socket = live.scratch.join("ctl.sock");
        let mut trace = left.spawn(&format!(
            "{} ctl --socket {} trace -c 1 tcp and port 7777",
            live.bin.display(),
            socket.display()
        ));
        while trace.is_running() {
            reach(left, &live.scratch, "tcp", "10.0.2.2", 7777);
        }
        let traced = trace.output();
        assert!(traced.contains("rule refused: reject"), "{backend}: {traced}");
        assert!(traced.contains("firewall_reject"), "{backend}: {traced}");
        let said = live.stop();
        assert!(said.contains("firewall"), "{said}");
    }
}

#[test]
fn a_set_is_replaced_as_a_whole_while_packets_flow() {
    replace_sets("replace", "[firewall]\n");
}

/// Rules are found on a device, whose copy of them follows: sets of `auto`, which goes over to another structure with
/// its first change, and single rules.
#[test]
fn a_device_follows_sets_that_are_replaced() {
    if !testkit::require_opencl() {
        return;
    }
    let engine = "[engine]\nbackend = \"opencl\"\noffload = \"always\"\nmax_delay = \"300us\"\n";
    let text = format!("{engine}device_timeout = \"60s\"\n[firewall]\nalgorithm = \"auto\"\n");
    let Some(said) = replace_sets("filterdev", &text) else { return };
    let totals = said.lines().find(|line| line.starts_with("device ")).unwrap_or_default();
    assert!(totals.contains(", 0 jobs repeated on the CPU"), "{said}");
    assert!(!totals.contains(": 0 jobs, "), "{said}");
}

/// Replaces whole sets while packets flow; what the program said in the end, where it could run.
fn replace_sets(name: &str, text: &str) -> Option<String> {
    let mut live = Live::start(name, "af_packet", text)?;
    let left = &live.net.left;
    assert!(wait_until(A_WHILE, || ping(left, "10.0.2.2", 1) == 1));
    live.ctl("rule add no-ping --proto icmp --icmp-type 8 --action drop");
    assert_eq!(ping(left, "10.0.2.2", 3), 0);
    assert_eq!(hits(&live, "no-ping"), 3);
    live.ctl("rule del no-ping");
    assert_eq!(ping(left, "10.0.2.2", 3), 3);
    live.ctl("clear counters");
    live.count_udp();
    // In both sets the flood passes; with a rule of one and not the other, it would not.
    let set = |pass: &str, name: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nproto = \"udp\"\ndport = \"{pass}\"\naction = \"accept\"\n\
             [[rule]]\nname = \"rest-{name}\"\nproto = \"udp\"\ndport = 9999\naction = \"drop\"\n"
        )
    };
    let one = live.scratch.write("one.toml", &set("9999", "one"));
    let other = live.scratch.write("other.toml", &set("9000-9999", "other"));
    live.ctl(&format!("rule replace --file {}", one.display()));
    let mut flood = live.flood("20kpps", 60_000);
    let mut replaced = 0;
    while flood.is_running() {
        let set = [&other, &one][replaced % 2];
        live.ctl(&format!("rule replace --file {}", set.display()));
        replaced += 1;
    }
    let (status, said) = flood.wait(SOON);
    assert!(status.success(), "{said}");
    assert!(replaced > 10, "{replaced} times");
    let drops = live.drops();
    assert!(!drops.iter().any(|(reason, _)| reason.starts_with("firewall")), "{drops:?}");
    assert!(live.counted_udp() > 0);
    println!("{replaced} sets, {} packets passed", live.counted_udp());
    let shown = live.ctl("rule show");
    assert_eq!(shown.lines().count(), 4, "two rules and the default: {shown}");
    Some(live.stop())
}

#[test]
fn odd_and_wrong_rules_are_reported_and_a_reload_restores_the_file() {
    let Some(mut live) = Live::start("odd", "af_packet", RULES) else { return };
    let bad = |args: &str, expected: &str| {
        let (ok, said) = live.try_ctl(args);
        assert!(!ok && said.contains(expected), "{args}: {said}");
    };
    bad("rule del nobody", "there is no rule `nobody`");
    bad("rule show nobody", "there is no rule `nobody`");
    bad("rule add no-ping --action drop", "use `ctl rule replace`");
    bad("rule add x --action send", "`send` is not an action");
    bad("rule add x --action drop --in mars", "there is no port `mars`");
    bad("rule add x --action drop --before nobody", "there is no rule `nobody`");
    bad("rule add x --action drop --proto esp --dport 1", "the protocol has no ports");
    bad("rule add default --action drop", "not a valid name of a rule");
    bad("rule add x --proto tcp", "a rule needs --action");
    let file = live.scratch.write("bad.toml", "[[rule]]\naction = \"drop\"\nsource = 1\n");
    bad(&format!("rule replace --file {}", file.display()), "unknown key `source`");
    let twice = "[[rule]]\nname = \"a\"\naction = \"drop\"\n".repeat(2);
    let file = live.scratch.write("twice.toml", &twice);
    bad(&format!("rule replace --file {}", file.display()), "rule `a` is listed twice");
    let file =
        live.scratch.write("cb.txt", "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xFF\n\n@x\n");
    let command = format!("rule replace --file {} --action drop", file.display());
    bad(&command, "cb.txt, line 3: expected an IPv4 prefix");
    assert_eq!(live.ctl("rule show").lines().count(), 5, "nothing has changed");

    let said = live.ctl("rule add again --dport 7777 --proto tcp --action accept");
    assert!(
        said.contains("warning: rule `again` never matches: the earlier rule `refused` covers it"),
        "{said}"
    );
    let said = live.ctl("rule add all --before no-ping-six --action drop");
    assert!(
        said.contains("rule `no-ping-six` never matches: the earlier rule `all` covers it"),
        "{said}"
    );
    live.ctl("rule del all");
    live.ctl("rule add second --after no-ping --dst 10.9.0.0/16 --action reject");
    let shown = live.ctl("rule show");
    let names: Vec<_> = shown.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names[1..5], ["no-ping", "second", "no-ping-six", "refused"], "{shown}");
    let file = live.scratch.write("cb.txt", "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xFF\n");
    live.ctl(&format!("rule replace --file {} --action reject", file.display()));
    let shown = live.ctl("rule show");
    assert!(
        shown.contains("cb:0") && shown.contains("proto tcp src 10.0.0.0/8 dport 22"),
        "{shown}"
    );
    let runtime = live.ctl("show runtime");
    assert!(runtime.contains("1 by "), "{runtime}");

    let said = live.ctl("reload");
    let gone = "`firewall`: removed 1 rule of `ctl rule`, restored 3 rules of the configuration";
    assert!(said.contains(gone), "{said}");
    let again = live.ctl("reload");
    assert!(!again.contains("removed"), "{again}");
    assert_eq!(live.ctl("rule show").lines().count(), 5);
    // Rules of the file that were there all the time are not restored.
    live.ctl("rule del no-ping");
    let said = live.ctl("reload");
    assert!(said.contains("`firewall`: restored 1 rule of the configuration"), "{said}");
    live.ctl("rule add more --proto udp --dport 1 --action drop");
    let said = live.ctl("reload");
    assert!(said.contains("`firewall`: removed 1 rule of `ctl rule`\n"), "{said}");
    let more = RULES.replace("action = \"drop\"", "action = \"accept\"");
    live.scratch.write("router.toml", &config(&live.scratch, "af_packet", &more));
    let said = live.ctl("reload");
    assert!(
        said.contains("- rule no-ping: proto icmp dst 10.0.2.2/32 icmp_type 8: drop"),
        "{said}"
    );
    assert!(
        said.contains("+ rule no-ping: proto icmp dst 10.0.2.2/32 icmp_type 8: accept"),
        "{said}"
    );
    assert!(wait_until(A_WHILE, || ping(&live.net.left, "10.0.2.2", 1) == 1));
    live.stop();
}

#[test]
fn the_first_rule_needs_no_firewall_in_the_file() {
    let Some(live) = Live::start("none", "af_packet", "") else { return };
    let (ok, said) = live.try_ctl("rule show");
    assert!(!ok && said.contains("this instance has no firewall"), "{said}");
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    live.ctl("rule add x --proto icmp --src 10.0.1.2 --action drop");
    assert_eq!(ping(&live.net.left, "10.0.2.2", 3), 0);
    assert_eq!(ping(&live.net.right, "10.0.1.1", 3), 3, "others are accepted");
    live.ctl("rule del x");
    assert_eq!(ping(&live.net.left, "10.0.2.2", 3), 3);
}

#[test]
fn a_switch_refuses_in_the_name_of_the_host_that_was_meant() {
    unseen("switch");
}

#[test]
fn a_wire_does_so_too() {
    unseen("wire");
}

/// A firewall between two hosts in one network.
fn unseen(mode: &str) {
    if !testkit::require_namespaces() {
        return;
    }
    let Some(bin) = testkit::shadeline_bin() else { return };
    let switch = Netns::new("wall");
    let names = ["p1", "p2"];
    let hosts = [0, 1].map(|i| {
        let host = Netns::new("wall");
        let (own, other) = (format!("02:00:00:00:0a:0{i}"), format!("02:00:00:00:0b:0{i}"));
        veth((&host, "eth0", &own), (&switch, names[i], &other), 1500);
        host.address("eth0", &format!("10.0.0.{}/24", i + 1));
        host.address("eth0", &format!("fd00::{}/64", i + 1));
        host
    });
    let scratch = Scratch::new();
    let mut text =
        format!("mode = \"{mode}\"\n[system]\nsocket = {:?}\n", scratch.join("ctl.sock"));
    for name in names {
        text += &format!("[port.{name}]\nbackend = \"af_packet\"\n");
    }
    text += "[[rule]]\nname = \"refused\"\nin = \"p1\"\ndport = 7777\naction = \"reject\"\n\
             [[rule]]\nname = \"silent\"\ndport = 7778\naction = \"drop\"\n";
    let path = scratch.write("switch.toml", &text);
    let mut program = switch.spawn(&format!("{} run {}", bin.display(), path.display()));
    program.wait_for("running: ", SOON);
    for to in ["10.0.0.2", "fd00::2"] {
        assert!(wait_until(A_WHILE, || ping(&hosts[0], to, 1) == 1), "{to}");
        assert_eq!(reach(&hosts[0], &scratch, "tcp", to, 7777), "ECONNREFUSED", "{to}");
        assert_eq!(reach(&hosts[0], &scratch, "tcp", to, 7778), "silence", "{to}");
    }
    assert_eq!(reach(&hosts[0], &scratch, "udp", "10.0.0.2", 7777), "EHOSTUNREACH");
    assert_eq!(reach(&hosts[0], &scratch, "udp", "fd00::2", 7777), "EACCES");
    // The other way nobody listens, and that host itself says so.
    let (_, shown) = common::ctl(&bin, &scratch, "rule show");
    assert_eq!(reach(&hosts[1], &scratch, "tcp", "10.0.0.1", 7777), "ECONNREFUSED");
    let (_, again) = common::ctl(&bin, &scratch, "rule show refused");
    let packets = |text: &str| {
        let line = text.lines().find(|line| line.contains("refused"));
        line.map(|line| {
            line.split("reject")
                .nth(1)
                .unwrap_or_default()
                .split_whitespace()
                .next()
                .map(str::to_owned)
        })
    };
    assert_eq!(packets(&shown), packets(&again), "{shown}{again}");
    let (status, output) = program.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{output}");
}
