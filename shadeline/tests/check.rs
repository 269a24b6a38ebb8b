//! `shadeline check` over the files of routes that a configuration names.

use std::process::Command;

use testkit::Scratch;
use testkit::netns::Netns;

/// Whether it was good, and what it said, the scratch folder left out.
fn check(folder: &Scratch, config: &str, json: bool) -> (bool, String) {
    check_with(folder, config, if json { &["--json"] } else { &[] })
}

fn check_with(folder: &Scratch, config: &str, options: &[&str]) -> (bool, String) {
    let config = folder.write("config.toml", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("check").arg(config).args(options);
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let folder = folder.join("").display().to_string();
    (output.status.success(), said.replace(&folder, ""))
}

const NDN: &str = "mode = \"ndn\"\n[ndn]\nnames = 16\n[port.lan]\nbackend = \"memory\"\n[ndn.face.west]\nport = \"lan\"\n\
                   [[name]]\nprefix = \"/own\"\nfaces = [\"west\"]\n\
                   [[name]]\nprefix = \"/\"\nfaces = [\"west\"]\n[[names]]\nfile = \"names.txt\"\n";

#[test]
fn files_of_names_are_read() {
    let folder = Scratch::new();
    folder.write("names.txt", "/a west\n# none\n/a west\n/own west\n");
    let (good, said) = check(&folder, NDN, false);
    assert!(
        good && said.ends_with(
            "warning: names.txt: 1 line repeats an earlier one\nconfig.toml: 1 warning\n"
        ),
        "{said}"
    );
    folder.write("names.txt", "/a west\nb west\n/c wst\n\n/d west x\n/e\n/a west,west\n");
    let (good, said) = check(&folder, NDN, false);
    assert!(good, "{said}");
    for expected in [
        "warning: names.txt:2: expected NAME NEXTHOP, found `b`",
        "warning: names.txt:3: there is no face `wst`",
        "warning: names.txt:5: expected only NAME NEXTHOP, found `x`",
        "warning: names.txt:6: expected NAME NEXTHOP, found no next hop after `/e`",
        "warning: names.txt:7: /a has other faces on line 1; this line is used",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// The same error, with its place, where the forwarder would start.
#[test]
fn more_names_than_room_are_an_error_with_its_place() {
    let folder = Scratch::new();
    // One is the configuration's own; repeated lines and `/` take no room.
    let lines: Vec<String> = (0..15).map(|i| format!("/n{i} west\n/n{i} west\n")).collect();
    folder.write("names.txt", &(lines.concat() + "/ west\n"));
    let (good, said) = check(&folder, NDN, false);
    assert!(good && said.contains("15 lines repeat earlier ones"), "{said}");
    folder.write("names.txt", &(lines.concat() + "\n/more west\n/other west\n"));
    let (good, said) = check(&folder, NDN, false);
    let expected = "error: names.txt:32: no room for this prefix: 18 prefixes in all, `names` of [ndn] is 16\n\
                    config.toml: 1 error, 1 warning\n";
    assert!(!good && said.ends_with(expected), "{said}");
    let mut run = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    std::fs::create_dir(folder.join("in")).expect("a folder");
    let capture = testkit::repository().join("tests/golden/ndn_malformed/p1.pcap");
    let read = format!("lan={}", capture.display());
    run.arg("run").arg(folder.join("config.toml")).arg("-r").arg(read);
    let output = run.arg("-w").arg(folder.join("out")).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("names.txt, line 32: no room"), "{said}");
}

#[test]
fn files_of_routes_are_read() {
    let folder = Scratch::new();
    let config = |next_hops: &str| {
        format!(
            "[port.lan]\nbackend = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n[[routes]]\nfile = \"table.txt\"\n{next_hops}"
        )
    };
    let lines = "10.0.0.0/8 192.0.2.7\n10.0.0.0/33 lan\n; none\n10.1.0.1/16 nowhere\n2001:db8::/32 192.0.2.7\n\
                 10.2.0.0/16\n10.3.0.0/16 a,,b\n10.4.0.0/16 lan x\n";
    folder.write("table.txt", lines);
    let (good, said) = check(&folder, &config(""), false);
    assert!(good, "{said}");
    for expected in [
        "warning: table.txt:2: expected a prefix length of 0 to 32, found `33`\n",
        "warning: table.txt:4: host bits are set in `10.1.0.1/16`, used as 10.1.0.0/16\n",
        "warning: table.txt:4: there is no port `nowhere`\n",
        "warning: table.txt:5: `192.0.2.7` for the prefix 2001:db8::/32\n",
        "warning: table.txt:6: expected PREFIX NEXTHOP, found no next hop after `10.2.0.0/16`\n",
        "warning: table.txt:7: `a,,b` is not a next hop",
        "warning: table.txt:8: expected only PREFIX NEXTHOP, found `x`\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(said.lines().count(), 8, "{said}");
    assert!(said.ends_with("config.toml: 7 warnings\n"), "{said}");
    let spread = config("next_hops = [\"192.0.2.7\"]\n");
    let (good, said) = check(&folder, &spread, false);
    assert!(good && said.contains("table.txt: 1 prefixes left out: no IPv6 next hop"), "{said}");
    let (_, json) = check(&folder, &config(""), true);
    let rows: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let row = &rows[0];
    assert_eq!((&row["severity"], &row["line"]), (&"warning".into(), &2.into()), "{json}");
    assert_eq!(row["file"], "table.txt");
    // A file that begins as gzip and is none.
    std::fs::write(folder.join("table.txt"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 9])
        .expect("a file");
    let (good, said) = check(&folder, &config(""), false);
    assert!(!good && said.starts_with("error: table.txt"), "{said}");
}

/// The same error, with its file, where the router would start; as many as a large access network has fit.
#[test]
fn more_routes_than_room_are_an_error_with_its_file() {
    let folder = Scratch::new();
    let config = |table: &str| {
        format!(
            "[router]\n{table}[port.lan]\nbackend = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[routes]]\nfile = \"few.txt\"\n[[routes]]\nfile = \"many.txt\"\n"
        )
    };
    let hosts = |from: u32, count: u32| {
        let host = |i: u32| std::net::Ipv4Addr::from_bits((20 << 24) + (i << 8) + 1);
        (from..from + count).map(|i| format!("{}/32 192.0.2.7\n", host(i))).collect::<String>()
    };
    folder.write("few.txt", &hosts(0, 60_000));
    folder.write("many.txt", &hosts(60_000, 150_000));
    for table in ["", "table_v4 = \"poptrie\"\n", "table_v4 = \"dir24-8\"\n"] {
        let (good, said) = check(&folder, &config(table), false);
        assert!(good && said.contains("no errors"), "{table}: {said}");
    }
    folder.write("many.txt", &hosts(60_000, 300_000));
    for (table, expected) in [
        ("", "auto: the table is full: 360000 of 262144 extension groups"),
        ("table_v4 = \"poptrie\"\n", "poptrie: the table is full: 327680 of 327680 pages of 1 KB"),
        ("table_v4 = \"dir24-8\"\n", "dir24-8: the table is full: 360000 of 262144 extension"),
    ] {
        let (good, said) = check(&folder, &config(table), false);
        let expected = format!("many.txt: IPv4, table {expected}");
        assert!(!good && said.contains(&expected) && said.contains("takes 1 KB"), "{said}");
        let mut run = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        let capture = testkit::repository().join("tests/golden/ndn_malformed/p1.pcap");
        run.arg("run").arg(folder.join("config.toml")).arg("-r").arg(capture);
        let output = run.arg("-w").arg(folder.join("out")).output().expect("the program starts");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.contains(&expected), "{printed}");
    }
}

/// A namespace with interfaces of these names, and `shadeline check` of a configuration in it.
fn check_in(netns: &Netns, folder: &Scratch, config: &str, options: &str) -> (bool, String) {
    let config = folder.write("config.toml", config);
    let program = env!("CARGO_BIN_EXE_shadeline");
    let output = netns.try_run(&format!("{program} check {} {options}", config.display()));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let folder = folder.join("").display().to_string();
    (output.status.success(), said.replace(&folder, ""))
}

#[test]
fn interfaces_are_those_of_the_machine() {
    if !testkit::require_namespaces() {
        return;
    }
    let (netns, folder) = (Netns::new("check"), Scratch::new());
    netns.run("ip link add eth0 type veth peer name eth1");
    let socket = folder.join("sock").display().to_string();
    let config = |ports: &str| format!("[system]\nsocket = \"{socket}\"\n{ports}");
    let wrong = config("[port.eht0]\n[port.eth1]\n");
    let (good, said) = check_in(&netns, &folder, &wrong, "");
    assert!(good, "{said}");
    for expected in [
        "warning: this machine has no interface `eht0`, did you mean `eth0`?",
        "--> config.toml:3:",
        "expected one of eth0, eth1\n",
        "config.toml: 1 warning\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let (good, said) = check_in(&netns, &folder, &wrong, "--live");
    assert!(!good && said.contains("error: this machine has no interface `eht0`"), "{said}");
    // What is there is good for a start, with the capabilities of root.
    let right = config("[port.eth0]\n[port.eth1]\n");
    netns.run("ip link set eth0 up");
    netns.run("ip link set eth1 up");
    let (good, said) = check_in(&netns, &folder, &right, "--live");
    assert!(good && said.ends_with("config.toml: no errors\n"), "{said}");
    let (_, before) = check_in(&netns, &folder, &right, "--live --json");
    assert_eq!(before, "[]\n");
    // An interface that carries no Ethernet, one without carrier, and an address that is not here.
    netns.run("ip link set eth1 down");
    let odd = config("metrics = \"192.0.2.77:1\"\n[port.eth0]\n[port.lo]\n");
    let (good, said) = check_in(&netns, &folder, &odd, "--live");
    assert!(!good, "{said}");
    for expected in [
        "error: port lo: interface `lo` is not an Ethernet interface\n",
        "warning: port eth0: interface `eth0` has no carrier: the port is down until it has one\n",
        "error: metrics on 192.0.2.77:1: ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // Names that are taken, and files that cannot be written.
    netns.run("ip link add sl-eth0 type veth peer name eth5");
    let taken = config(
        "[port.eth0]\n[port.t]\ninterface = \"eth1\"\nbackend = \"tap\"\n[dump.a]\nfile = \"none/a.pcapng\"\n\
         [dump.b]\nfile = \"/dev\"\n[flow]\nevents = \"none/eve.json\"\nparquet = \"off\"\n",
    );
    let (good, said) = check_in(&netns, &folder, &taken, "--live");
    assert!(!good, "{said}");
    for expected in [
        "error: port eth0: `sl-eth0`: an interface of this name exists",
        "error: port t: `eth1`: an interface of this name exists",
        "error: dump.a.file: none/a.pcapng: there is no folder none\n",
        "error: dump.b.file: /dev: it is a folder\n",
        "error: flow.events: none/eve.json: there is no folder none\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    netns.run("ip link del sl-eth0");
    // That another instance runs says nothing about the file.
    let running = std::os::unix::net::UnixListener::bind(folder.join("sock")).expect("a socket");
    let (_, said) = check_in(&netns, &folder, &odd, "--live");
    assert!(said.contains("warning: an instance is running at sock: stop it"), "{said}");
    assert!(!said.contains("error: metrics"), "{said}");
    drop(running);
    // Without privileges a live start fails, and a run over captures does not.
    let program = env!("CARGO_BIN_EXE_shadeline");
    // What is missing is named beside an interface that is not here.
    let path = folder.write("config.toml", &(right + "[port.eth9]\n"));
    let unable = format!(
        "setpriv --bounding-set=-all --inh-caps=-all {program} check --live {}",
        path.display()
    );
    let output = netns.try_run(&unable);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("this machine has no interface `eth9`"), "{said}");
    for name in ["CAP_NET_RAW", "CAP_NET_ADMIN"] {
        assert!(said.contains(&format!("error: {name} is missing: run it as root")), "{said}");
    }
}

#[test]
fn many_warnings_of_a_kind_are_one_line() {
    let folder = Scratch::new();
    let lines: String = (0..50).map(|i| format!("10.{i}.0.1/16 192.0.2.7\n")).collect();
    folder.write("table.txt", &(lines + "10.0.0.0/33 lan\n"));
    // Keys without effect of several ports.
    let ports: String =
        (0..5).map(|i| format!("[port.p{i}]\nbackend = \"memory\"\nxdp = \"skb\"\n")).collect();
    let config = format!(
        "[port.lan]\nbackend = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n{ports}\
         [[routes]]\nfile = \"table.txt\"\n"
    );
    let (good, said) = check_with(&folder, &config, &[]);
    assert!(good, "{said}");
    let more = |n| format!(" (and {n} more of this kind; `shadeline check -v` lists them)\n");
    let expected = format!(
        "warning: config.toml:6:7: `xdp` has no effect with backend = \"memory\"{}",
        more(4)
    );
    assert!(said.starts_with(&expected), "{said}");
    assert!(said.contains(&more(49)) && said.contains("table.txt:51: expected a prefix"), "{said}");
    assert!(said.ends_with("config.toml: 56 warnings\n"), "{said}");
    assert_eq!(said.lines().count(), 4, "{said}");
    let (_, all) = check_with(&folder, &config, &["-v"]);
    assert_eq!((all.matches("has no effect").count(), all.matches("host bits").count()), (5, 50));
    let (_, json) = check_with(&folder, &config, &["--json"]);
    let rows: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(rows.as_array().map(Vec::len), Some(5 + 51), "{json}");
}

#[test]
fn colours_are_wanted_or_not() {
    let folder = Scratch::new();
    let config = folder.write("config.toml", "[port.lan]\nbackend = \"odd\"\n");
    let colours = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.args(options).arg("check").arg(&config).env_remove("NO_COLOR");
        command.env_remove("CLICOLOR_FORCE").envs(variables.iter().copied());
        let output = command.output().expect("the program starts");
        assert!(!output.status.success());
        (output.stdout.contains(&0x1b), output.stderr.contains(&0x1b))
    };
    assert_eq!(colours(&[], &[]), (false, false));
    assert_eq!(colours(&["--color", "always"], &[("NO_COLOR", "1")]), (true, false));
    assert_eq!(colours(&[], &[("CLICOLOR_FORCE", "1")]), (true, false));
    assert_eq!(colours(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), (false, false));
    assert_eq!(colours(&["--color=never"], &[("CLICOLOR_FORCE", "1")]), (false, false));
    // The command line's own messages, and failures of one line.
    assert_eq!(colours(&["--color=always", "--odd"], &[]), (false, true));
    assert_eq!(colours(&["--color=never", "--odd"], &[("CLICOLOR_FORCE", "1")]), (false, false));
    let help = |choice: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.args(["run", "--help", "--color", choice]);
        command.output().expect("the program starts").stdout.contains(&0x1b)
    };
    assert_eq!(["always", "never"].map(help), [true, false]);
}

/// In a gateway of IPsec, a firewall sees answers through NAT64 as packets of another family than those that they answer.
#[test]
fn states_do_not_know_answers_through_nat64() {
    let folder = Scratch::new();
    let guarded = |more: &str| {
        let config = format!(
            "[port.lan]\nbackend = \"memory\"\n[flow]\n[[rule]]\nstate = \"established\"\naction = \"accept\"\n{more}\
             [[nat]]\nkind = \"nat64\"\nto = \"192.0.2.1\"\n"
        );
        check(&folder, &config, false)
    };
    let (good, said) = guarded("");
    assert!(good && !said.contains("nat64"), "{said}");
    let gateway = "[ipsec]\n";
    let (good, said) = guarded(gateway);
    let warning = "a firewall sees the answers to hosts of a `nat64` rule as `new` connections";
    assert!(good && said.contains(warning) && said.contains("src = \"64:ff9b::/96\""), "{said}");
    let (good, said) =
        guarded(&format!("[[rule]]\nsrc = \"64:ff9b::/96\"\naction = \"accept\"\n{gateway}"));
    assert!(good && !said.contains("nat64"), "{said}");
}

/// Policies that no stage asks would let packets leave as they are.
#[test]
fn pipelines_that_ask_no_policies_are_named() {
    let folder = Scratch::new();
    let of = |lan: &str, wan: &str, more: &str| {
        let stages = |name: &str| match name {
            "sealed" => "\"decode\", \"esp_in\", \"route\", \"esp_out\", \"rewrite\"",
            _ => "\"decode\", \"route\", \"rewrite\"",
        };
        let text = format!(
            "mode = \"{lan}\"\n[port.lan]\nbackend = \"memory\"\npipeline = \"{lan}\"\n[port.wan]\nbackend = \"memory\"\n\
             pipeline = \"{wan}\"\n[pipeline.sealed]\nstages = [{}]\n[pipeline.plain]\nstages = [{}]\n{more}",
            stages("sealed"),
            stages("plain")
        );
        check(&folder, &text, false)
    };
    let policy = "[[policy]]\naction = \"discard\"\n";
    let linux = "[ipsec]\nlinux = true\n";
    for (section, more) in [("policy", policy), ("ipsec", linux)] {
        let (good, said) = of("plain", "plain", more);
        let wanted = format!(
            "error: `{section}` has no effect: the pipeline `plain` has no `esp_out`: packets would leave unprotected"
        );
        assert!(!good && said.contains(&wanted), "{said}");
        for (lan, wan) in [("sealed", "plain"), ("plain", "sealed")] {
            let (good, said) = of(lan, wan, more);
            let wanted = format!("warning: `{section}` has no effect at ports of `plain`");
            assert!(good && said.contains(&wanted), "{said}");
        }
        let (good, said) = of("sealed", "sealed", more);
        assert!(good && !said.contains("no effect at"), "{said}");
    }
    let (good, said) = of("plain", "plain", "");
    assert!(good && !said.contains("unprotected"), "{said}");
}
