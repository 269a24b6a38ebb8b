//! Whole files: what is found in them, what they mean, and that nothing makes [`parse`] panic.

mod apps;
mod ipsec;
mod stages;

use std::time::Duration;

use lookup::bridge::{PortMode, StormRate};
use proptest::prelude::*;

use super::*;

mod firewall;

const EXAMPLE: &str = include_str!("../../../../shadeline/examples/router.toml");

fn known() -> KnownStages {
    use super::stages::tests::{FIREWALL, NDN, ROUTER, SWITCH, WIRE, kind};
    let first = |kind| StageKind { is_first: true, ..kind };
    let last = |kind| StageKind { is_last: true, ..kind };
    let kinds = vec![
        first(kind("ip_check", &ROUTER, &[], &[FRAMES, "ip"])),
        kind("ip_lookup", &ROUTER, &["ip"], &["hop"]),
        last(kind("neighbour", &ROUTER, &["hop"], &[])),
        first(kind("learn", &SWITCH, &[], &[FRAMES, "port"])),
        last(kind("send", &SWITCH, &["port"], &[])),
        last(first(kind("ask", &NDN, &[], &[]))),
        kind("firewall", &FIREWALL, &[FRAMES], &[]),
        last(kind("wire", &WIRE, &[RAW], &[])),
    ];
    let mode = |name: &str, stages: &[StageKind]| {
        let applications = vec![stages[stages.len() - 1].application];
        let stages = stages.iter().map(|kind| kind.name.to_owned()).collect();
        let kinds: Vec<String> = stages;
        Pipeline {
            name: name.into(),
            applications,
            stages: kinds.clone(),
            kinds,
            places: Vec::new(),
            max_delay: None,
        }
    };
    let modes =
        vec![mode("router", &kinds[..3]), mode("switch", &kinds[3..5]), mode("ndn", &kinds[5..6])];
    KnownStages { kinds, modes, cores: 2, ..KnownStages::default() }
}

/// Diagnostics as `line:column severity message | expected`.
fn found(text: &str) -> Vec<String> {
    let diagnostics = match parse(text, &known()) {
        Ok((_, warnings)) => warnings,
        Err(diagnostics) => diagnostics,
    };
    let line = |d: &Diagnostic| {
        let severity = if d.severity == Severity::Error { "" } else { "warning: " };
        let expected = d.expected.as_deref().unwrap_or("-");
        format!("{}:{} {severity}{} | {expected}", d.line, d.column, d.message)
    };
    diagnostics.iter().map(line).collect()
}

#[track_caller]
fn good(text: &str) -> Config {
    match parse(text, &known()) {
        Ok((config, warnings)) => {
            assert_eq!(warnings, [], "{}", render(&warnings, "t", text, false));
            config
        }
        Err(errors) => panic!("{}", render(&errors, "t", text, false)),
    }
}

/// A port to go with a text that is about something else.
fn with_port(text: &str) -> String {
    format!("[port.lan]\naddresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n{text}")
}

#[test]
fn the_example_has_no_mistakes_and_its_comments_show_the_defaults() {
    let config = good(EXAMPLE);
    assert_eq!(config.pipeline.name, "router");
    assert_eq!(config.physical_ports().next().unwrap().0.name, "lan");
    assert_eq!(config.port("lan").unwrap().twin.as_deref(), Some("lan"));
    assert_eq!(config.port("wan").unwrap().twin.as_deref(), Some("sl-wan"));
    assert_eq!(config.port("lan.100").unwrap().twin, None);
    let PortKind::Vlan { parent, tag } = &config.port("lan.100.200").unwrap().kind else {
        panic!("a VLAN");
    };
    assert_eq!((parent.as_str(), *tag), ("lan", VlanTag::Double(100, 200)));
    let hops: Vec<String> = config.routes.iter().map(|route| route.next_hop.to_string()).collect();
    assert_eq!(
        hops,
        [
            "198.51.100.1",
            "fe80::1%wan",
            "198.51.100.10,198.51.100.11",
            "198.51.100.10*3,198.51.100.11%wan",
            "lan",
            "blackhole",
            "unreachable",
        ]
    );
    let file = &config.route_files[0].next_hops;
    assert_eq!(file.get("1.2.3.0/24".parse().unwrap()), Some(&config.routes[0].next_hop));

    // With the comments' values written out, all but the optional keys is as before, and sections that are comments.
    const NOTHING: [&str; 13] = [
        "mtu",
        "if_id",
        "mac",
        "spread",
        "stages",
        "offload",
        "promiscuous",
        "pipeline",
        "read",
        "write",
        "devices",
        "metrics_hosts",
        "user",
    ];
    let commented = |line: &str| {
        let line = line.strip_prefix("# ")?;
        let key = line.split_once(" = ")?.0;
        let word = key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        (word && !NOTHING.contains(&key)).then(|| line.to_owned())
    };
    let mut is_section = false;
    let write = |line: &str| {
        is_section = line.starts_with("# [") || is_section && line.starts_with('#');
        let written = if is_section { None } else { commented(line) };
        written.unwrap_or_else(|| line.to_owned())
    };
    let written: Vec<String> = EXAMPLE.lines().map(write).collect();
    let changed = written.iter().zip(EXAMPLE.lines()).filter(|(a, b)| a != b).count();
    assert!(changed >= 25, "only {changed} comments show a default");
    assert_eq!(good(&written.join("\n")), config);
}

/// The keys are those that the reader knows: it lists them when one is unknown.
#[test]
fn the_documentation_names_every_key() {
    let docs = include_str!("../../../../docs/configuration.md");
    let text = "zz = 1\n[system]\nzz = 1\n[router]\nzz = 1\n[engine]\nzz = 1\nsim.zz = 1\n[port.lan]\n\
                zz = 1\nfault.zz = 1\nhost.zz = 1\n[port.v]\nparent = \"lan\"\nzz = 1\n[[route]]\nzz = 1\n\
                [[routes]]\nzz = 1\n[[neighbour]]\nzz = 1\n[switch]\nzz = 1\n\
                [[station]]\nzz = 1\n[port.s]\nzz = 1\nstorm.zz = 1\n[pipeline.x]\nzz = 1\n\
                [ndn]\nzz = 1\n[ndn.face.x]\nzz = 1\n[[name]]\nzz = 1\n[[names]]\nzz = 1\n\
                [firewall]\nzz = 1\n[[rule]]\naction = \"drop\"\nzz = 1\n\
                [[rule]]\naction = \"drop\"\nfile = \"f\"\nzz = 1\n";
    let mut lists = Vec::new();
    for mode in ["router", "switch", "ndn"] {
        let errors = parse(&format!("mode = \"{mode}\"\n{text}"), &known()).unwrap_err();
        let unknown = errors.into_iter().filter(|d| d.message.starts_with("unknown"));
        let of_mode: Vec<String> = unknown.filter_map(|d| d.expected).collect();
        assert_eq!(of_mode.len(), text.matches("zz").count());
        lists.extend(of_mode);
    }
    let keys = lists.iter().flat_map(|list| list.trim_start_matches("one of ").split(", "));
    // Every second piece is in backquotes.
    let code = docs.split('`').skip(1).step_by(2);
    let words: std::collections::HashSet<&str> = code
        .flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .collect();
    let missing: Vec<&str> = keys.filter(|key| !words.contains(key)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn ten_mistakes_are_ten_errors() {
    let text = r#"mode = "ruoter"
[system]
workers = 0
hugepages = "auto"
[port.lan]
interface = "eth1"
mtu = "big"
addresses = ["192.0.2.1/24", "192.0.2.300/24"]
[port.wan]
addresses = ["192.0.2.1/30"]
[port."lan.5"]
parent = "lam"
vlan = 5000
[[route]]
prefix = "10.0.0.1/8"
via = "192.0.2.9"
[[route]]
prefix = "10.1.0.0/16"
port = "nowhere"
"#;
    let expected = [
        "1:8 unknown pipeline `ruoter`, did you mean `router`? | one of router, switch, ndn",
        "3:11 `workers` is 0 | an integer from 1 to 1024",
        "4:1 unknown key `hugepages` in [system], did you mean `huge_pages`? | one of cells, cpus, \
         huge_pages, log, log_format, metrics, metrics_hosts, seccomp, socket, user, \
         workers",
        "7:7 `mtu` is a string | an integer from 68 to 65535",
        "8:30 element 2 of `addresses` is `192.0.2.300/24` | ADDRESS/LENGTH such as \
         \"192.0.2.1/24\" or \"2001:db8::1/64\"",
        "10:14 `192.0.2.1` is an address of port `lan` too | each address once",
        "12:10 unknown port `lam`, did you mean `lan`? | the name of a [port.NAME] with an \
         interface",
        "13:8 `vlan` is 5000 | an integer from 1 to 4094",
        "15:10 `prefix` `10.0.0.1/8` has bits set beyond its length | \"10.0.0.0/8\"",
        "19:8 unknown port `nowhere` | one of lan, wan, lan.5",
    ];
    assert_eq!(found(text), expected);
}

#[test]
fn findings() {
    // A text, and what is found in it: any of the texts that follow, all of them and no more.
    let cases: &[(&str, &[&str])] = &[
        ("", &["1:1 no port | at least one [port.NAME]"]),
        ("[port.lan]\nmtu = 100\naddresses = [\"2001:db8::1/64\"]", &["2:7 an MTU of 100 with"]),
        ("[port.lan]\nmtu = 67", &["2:7 `mtu` is 67 | an integer from 68 to 65535"]),
        ("[port.lan]\nprot = 1", &["2:1 unknown key `prot` in [port.lan] | one of"]),
        (
            "[port.lan]\n[flow]\nudp_new = \"1s\"\ntcp_closed = \"2s\"",
            &[
                "3:1 `udp_new` in [flow] has another name now | udp",
                "4:1 `tcp_closed` in [flow] has another name now | tcp_time_wait and tcp_close",
            ],
        ),
        ("[port.blackhole]", &["1:7 `blackhole` cannot name a port"]),
        ("[port]\nlan = 3", &["2:7 `port` is an integer | a table"]),
        ("port = 3", &["1:8 `port` is an integer | a table"]),
        ("[port.averyverylongname]", &["1:1 the twin's name `sl-averyverylongname` is too long"]),
        ("[port.lan]\ntwin = \"a b\"", &["2:8 `twin` `a b` cannot name an interface"]),
        ("[port.lan]\ntwin = \"lan\"", &["2:8 `lan` is port `lan`'s interface"]),
        ("[port.lan]\nmac = \"01:00:5e:00:00:01\"", &["2:7 `mac` is `01:00:5e:00:00:01`"]),
        ("[port.lan]\nqueues = \"many\"", &["2:10 `queues` is not a valid number of queues"]),
        (
            "[port.lan]\nbackend = \"af_pakcet\"",
            &["2:11 `backend` is `af_pakcet`, did you mean `af_packet`?"],
        ),
        ("[port.lan]\nbackend = \"pcap\"", &["2:11 a pcap port that reads and writes nothing"]),
        (
            "[port.lan]\nbackend = \"af_packet\"\nzero_copy = \"on\"",
            &["3:13 warning: `zero_copy` has no effect"],
        ),
        (
            "[engine]\nbackend = \"cpu\"\nmax_delay = \"1ms\"\noffload = \"auto\"\n[port.lan]",
            &[
                "3:13 warning: `max_delay` has no effect with backend = \"cpu\"",
                "4:11 warning: `offload` has no effect with backend = \"cpu\"",
            ],
        ),
        (
            "[engine]\nbackend = \"sim\"\ndevice_timeout = \"1s\"\nsim.launch = \"1us\"\n[port.lan]",
            &["3:18 warning: `device_timeout` has no effect with backend = \"sim\""],
        ),
        (
            "[engine]\ndevices = [\"opencl:0\", \"cudda:1\"]\n[port.lan]",
            &[
                "2:24 element 2 of `devices` is `cudda:1`, did you mean `cuda`? | sim, opencl, opencl:N",
            ],
        ),
        (
            "[engine]\ndevices = [\"sim\", \"auto\", 3]\n[port.lan]",
            &[
                "2:19 element 2 of `devices` is `auto`, which is not a device | sim, opencl",
                "2:27 element 3 of `devices` is an integer | sim, opencl",
            ],
        ),
        ("[engine]\ndevices = []\n[port.lan]", &["2:11 `devices` is empty | at least one device"]),
        (
            "[engine]\ndevices = \"sim\"\n[port.lan]",
            &["2:11 `devices` is a string | an array of devices"],
        ),
        (
            "[engine]\nbackend = \"sim\"\ndevices = [\"sim\"]\n[port.lan]",
            &["3:11 `devices` together with `backend` | one of the two"],
        ),
        (
            "[engine]\ndevice = [\"sim\"]\n[port.lan]",
            &["2:1 unknown key `device` in [engine], did you mean `devices`?"],
        ),
        (
            "[engine]\ndevices = [\"sim\", \"sim\"]\ndevice_timeout = \"1s\"\n[system]\nworkers = 1\n[port.lan]",
            &[
                "2:11 warning: 2 devices, but only 1 workers: the last devices get no jobs | at most 1",
                "3:18 warning: `device_timeout` has no effect with these `devices` | auto, opencl or cuda",
            ],
        ),
        (
            "[port.lan]\nfault = { loss = 2, los = 0.1 }",
            &[
                "2:18 `loss` is not a probability",
                "2:21 unknown key `los` in [port.lan.fault], did you mean `loss`?",
            ],
        ),
        (
            "[port.a]\ninterface = \"e\"\n[port.b]\ninterface = \"e\"",
            &["4:13 interface `e` is port `a`'s"],
        ),
        (
            "[port.lan]\naddresses = [\"192.0.2.0/24\"]",
            &["2:14 `192.0.2.0` is the network's own address"],
        ),
        (
            "[port.lan]\naddresses = [\"192.0.2.255/24\"]",
            &["2:14 `192.0.2.255` is the network's broadcast"],
        ),
        (
            "[port.lan]\naddresses = [\"192.0.2.1\"]",
            &["2:14 element 1 of `addresses` is `192.0.2.1`"],
        ),
        ("[port.lan]\naddresses = [\"192.0.2.0/31\"]", &[]),
        (
            "[port.a]\naddresses = [\"192.0.2.1/24\"]\n[port.b]\naddresses = [\"192.0.2.129/25\"]",
            &["4:14 warning: subnet 192.0.2.128/25 overlaps 192.0.2.0/24 of port `a`"],
        ),
        ("[port.a]\naddresses = [\"fe80::1/64\"]\n[port.b]\naddresses = [\"fe80::1/64\"]", &[]),
        // Outputs.
        (
            "[port.a]\n[flow]\nevents = \"same\"\nparquet = \"same\"",
            &[
                "2:1 `events` of [flow] and `parquet` of [flow] write the same file | a file for each",
            ],
        ),
        ("[port.a]\n[flow]\nevents = \"one\"\nparquet = \"two\"", &[]),
        // VLANs.
        (
            "[port.lan]\n[port.v]\nvlan = 5",
            &["2:1 missing key `parent` in [port.v] | parent = \"lan\""],
        ),
        (
            "[port.lan]\n[port.v]\nparent = \"lan\"",
            &["2:1 missing key `vlan` in [port.v] | vlan = 100"],
        ),
        (
            "[port.lan]\n[port.v]\nparent = \"lan\"\nvlan = 5\nbackend = \"tap\"",
            &["5:11 `backend` in a VLAN subinterface"],
        ),
        (
            "[port.lan]\n[port.v]\nparent = \"lan\"\nvlan = [5, 6]\n[port.w]\nparent = \"lan\"\nvlan = [5, 6]",
            &["7:8 port `v` has this VLAN too"],
        ),
        (
            "[port.lan]\n[port.v]\nparent = \"lan\"\nvlan = [5, 0]",
            &["4:12 element 2 of `vlan` is 0"],
        ),
        ("[port.lan]\n[port.v]\nparent = \"lan\"\nvlan = []", &["4:8 `vlan` of `v` is not a VLAN"]),
        (
            "[port.lan]\n[port.v]\nparent = \"lan\"\nvlan = 5\n[port.w]\nparent = \"v\"\nvlan = 6",
            &["6:10 port `v` is itself a VLAN"],
        ),
        (
            "[port.lan]\nmtu = 1500\n[port.v]\nparent = \"lan\"\nvlan = 5\nmtu = 9000",
            &["6:7 an MTU above the parent's"],
        ),
        // The system.
        (
            "system = { workers = 3 }\n[port.lan]",
            &["1:22 warning: 3 workers, but the process may use 2 CPUs"],
        ),
        ("system = { cpus = [0] }\n[port.lan]", &["1:19 `cpus` has 1, `workers` is 2"]),
        ("system = { cpus = [1, 1] }\n[port.lan]", &["1:19 CPU 1 is listed twice"]),
        ("system = { cells = 512 }\n[port.lan]", &["1:20 512 cells for chunks of 256"]),
        (
            "system = { metrics = \"9101\" }\n[port.lan]",
            &["1:22 `metrics` is `9101` | ADDRESS:PORT"],
        ),
        ("system = { socket = \"\" }\n[port.lan]", &["1:21 `socket` cannot name a Unix socket"]),
        (
            "system = { log = \"verbose\" }\n[port.lan]",
            &["1:18 `log` is `verbose` | one of off, error"],
        ),
        (
            "engine = { max_delay = \"5\" }\n[port.lan]",
            &["1:24 `max_delay` is `5` | a duration from \"0ns\" to \"1s\""],
        ),
        ("router = { icmp_rate = \"1Mbps\" }\n[port.lan]", &["1:24 `icmp_rate` is `1Mbps`"]),
        (
            "router = { arp_queue_packets = 99, arp_queue_total_packets = 9 }\n[port.lan]",
            &["1:32 the queue of one neighbour"],
        ),
        (
            "mode = \"x\"\n[pipeline.x]\nstages = [\"ip_lokup\"]\n[port.lan]",
            &["3:11 unknown stage `ip_lokup`, did you mean `ip_lookup`?"],
        ),
        ("[pipeline.x]\nstages = []\n[port.lan]", &["2:10 `stages` is empty"]),
        (
            "[pipline.x]\nstages = []\n[port.lan]",
            &["1:2 unknown section or key `pipline`, did you mean `pipeline`?"],
        ),
    ];
    check_cases(cases.iter().map(|(text, expected)| ((*text).to_owned(), *expected)));
}

#[test]
fn findings_about_routes() {
    // Below the two lines of `with_port`.
    let cases: &[(&str, &[&str])] = &[
        ("[[route]]\nprefix = \"10.0.0.0/8\"", &["3:1 a route without a next hop"]),
        ("[[route]]\nvia = \"192.0.2.2\"", &["3:1 missing key `prefix` in [[route]]"]),
        ("[route]\nprefix = \"10.0.0.0/8\"", &["3:1 `route` is one value | [[route]], as often"]),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.2\"\nblackhole = true",
            &["6:13 `blackhole` beside `via`"],
        ),
        ("[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.2\"\nblackhole = false", &[]),
        ("[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"1,2\"", &["5:7 `via` is `1,2`"]),
        ("[[route]]\nprefix = \"10.0.0.0/8\"\nvia = []", &["5:7 a group without members"]),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = [\"192.0.2.2\", \"blackhole\"]",
            &["5:21 a member of a group that drops"],
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = [{ weight = 2 }]",
            &["5:8 a member without `via` and `port`"],
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"2001:db8::2\"",
            &["5:7 `2001:db8::2` for the prefix 10.0.0.0/8"],
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.1\"",
            &["5:7 `192.0.2.1` is the router's own address"],
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.255\"",
            &["5:7 `192.0.2.255` is the network's broadcast address"],
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"1.1.1.1\"",
            &["5:7 warning: `1.1.1.1` is in no subnet"],
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"1.1.1.1\"\n[router]\nkernel = false",
            &["5:7 `1.1.1.1` is in no subnet"],
        ),
        ("[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"1.1.1.1\"\nport = \"lan\"", &[]),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.2%lna\"",
            &["5:7 unknown port `lna`, did you mean `lan`?"],
        ),
        (
            "[[route]]\nprefix = \"::/0\"\nvia = \"fe80::1\"",
            &["5:7 `fe80::1` is link-local, its port is unknown"],
        ),
        ("[[route]]\nprefix = \"::/0\"\nport = \"lan\"\nmetric = -1", &["6:10 `metric` is -1"]),
        (
            "[[route]]\nprefix = \"::/0\"\nport = \"lan\"\n[[route]]\nprefix = \"::/0\"\nport = \"lan\"",
            &["7:10 the route to ::/0 is on line 4 too"],
        ),
        (
            "[[route]]\nprefix = \"::/0\"\nport = \"lan\"\n[[route]]\nprefix = \"::/0\"\nport = \"lan\"\nmetric = 1",
            &[],
        ),
        ("[[routes]]\nfile = \"x\"\nspread = 3", &["5:10 `spread` without `next_hops`"]),
        ("[[routes]]\nfile = \"x\"\nnext_hops = [\"192.0.2.2\"]\nspread = 253", &[]),
        (
            "[[routes]]\nfile = \"x\"\nnext_hops = [\"192.0.2.2\"]\nspread = 255",
            &["6:10 `192.0.2.255` is the network's broadcast"],
        ),
        (
            "[[routes]]\nfile = \"x\"\nnext_hops = [\"192.0.2.2\", \"lan\"]\nspread = 4",
            &["6:10 `spread` is 4, but `next_hops` has 2"],
        ),
        (
            "[[routes]]\nfile = \"x\"\nnext_hops = [\"192.0.2.2\", \"lan\"]\nspread = 1",
            &["6:10 `spread` is 1, but `next_hops` has 2"],
        ),
        (
            "[[routes]]\nnext_hops = 3",
            &["3:1 missing key `file` in [[routes]]", "4:13 `next_hops` is an integer"],
        ),
        (
            "[[neighbour]]\nport = \"lan\"\naddress = \"192.0.2.1\"\nmac = \"02:00:00:00:00:01\"",
            &["5:11 `192.0.2.1` is the router's own address"],
        ),
        (
            "[[neighbour]]\nport = \"lan\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:00:01\"",
            &["5:11 warning: `10.0.0.1` is in no subnet of port `lan`"],
        ),
        (
            "[[neighbour]]\nport = \"wan\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:00\"",
            &["4:8 unknown port `wan`, did you mean `lan`?", "6:7 `mac` is `02:00:00:00:00`"],
        ),
    ];
    check_cases(cases.iter().map(|(text, expected)| (with_port(text), *expected)));
}

#[track_caller]
fn check_cases<'a>(cases: impl Iterator<Item = (String, &'a [&'a str])>) {
    let mut wrong = String::new();
    for (text, expected) in cases {
        let found = found(&text);
        let as_expected = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected));
        if !as_expected {
            wrong += &format!("{text}\n  expected {expected:#?}\n  found {found:#?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn syntax_errors_are_found_with_the_others() {
    let text = "[system]\nworkers = \nlogg = 1\n[port.lan\nmtu = 1500\n[port.wan]\nmtu = \"a\"\n";
    let found = found(text);
    assert!(found.iter().any(|f| f.starts_with("2:11 ")), "{found:#?}");
    assert!(found.iter().any(|f| f.starts_with("3:1 unknown key `logg`")), "{found:#?}");
    assert!(found.iter().any(|f| f.starts_with("4:10 unclosed table")), "{found:#?}");
    // What the parser puts in the place of a value that it could not read is not judged.
    for text in ["[system]\nworkers = = 3\n", "[port.lan]\nmtu =\n", "#\nmode = = \"router\"\n"] {
        let found = self::found(text);
        let elsewhere: Vec<_> = found.iter().filter(|f| !f.starts_with("2:")).collect();
        assert!(!found.is_empty() && elsewhere.is_empty(), "{text:?}: {found:#?}");
    }
    // A value given twice does not hide what else is wrong.
    let found = self::found(
        "[port.lan]\nmtu = 1500\nmtu = 1501\n[[route]]\nprefix = \"::/0\"\nport = \"x\"",
    );
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("3:1 duplicate key `mtu`"));
    assert!(found[1].starts_with("6:8 unknown port `x`"));
}

#[test]
fn shown_like_a_compiler() {
    let text = "[port.lan]\n\tmtu = 1_0 # größer\n";
    let errors = parse(text, &known()).unwrap_err();
    let shown = "\
error: `mtu` is 10
 --> router.toml:2:8
  |
2 |  mtu = 1_0 # größer
  |        ^^^ expected an integer from 68 to 65535

router.toml: 1 error
";
    assert_eq!(render(&errors, "router.toml", text, false), shown);
    let painted = render(&errors, "router.toml", text, true);
    assert!(painted.contains("\x1b[1;31merror\x1b[0m"));
    let mut plain = painted;
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[1;34m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, shown);
}

#[test]
fn values_are_read() {
    let config = good(&with_port(
        "rpf = \"strict\"\nqueues = 0x4\n[engine]\nbackend = \"sim\"\nmax_delay = \"1.5ms\"\n\
         sim.packet = \"7ns\"\n[router]\nicmp_rate = \"1kpps\"\nkernel = false\n\
         [[routes]]\nfile = \"t\"\nnext_hops = [\"192.0.2.8\", \"2001:db8::8\"]\nspread = 5",
    ));
    let (port, physical) = config.physical_ports().next().unwrap();
    assert_eq!((port.rpf, physical.queues), (Rpf::Strict, Some(4)));
    assert_eq!(config.engine.max_delay, Duration::from_micros(1500));
    for (text, backend) in [
        ("auto", EngineBackend::Auto),
        ("opencl", EngineBackend::OpenCl(0)),
        ("opencl:3", EngineBackend::OpenCl(3)),
        ("cuda:1", EngineBackend::Cuda(1)),
    ] {
        let lines = format!("[engine]\nbackend = \"{text}\"\noffload = \"always\"");
        let engine = good(&with_port(&lines)).engine;
        assert_eq!((engine.backend, engine.offload), (backend, Some(Offload::Always)));
    }
    let text = "[engine]\ndevices = [\"opencl:1\", \"opencl:1\"]\noffload = \"always\"\ndevice_timeout = \"1s\"";
    let engine = good(&with_port(text)).engine;
    assert_eq!(engine.devices, [EngineBackend::OpenCl(1); 2]);
    assert_eq!(config.engine.sim.packet, Duration::from_nanos(7));
    assert_eq!((config.router.icmp_rate, config.router.kernel), (1000, false));
    let FileNextHops::Spread { v4, v6 } = &config.route_files[0].next_hops else { panic!() };
    let text = |hops: &[NextHop]| hops.iter().map(NextHop::to_string).collect::<Vec<_>>();
    assert_eq!(text(v4), ["192.0.2.8", "192.0.2.9", "192.0.2.10"]);
    assert_eq!(text(v6), ["2001:db8::8", "2001:db8::9"]);
}

#[test]
fn each_stage_has_the_line_that_puts_it_there() {
    let lines = |text: &str| good(text).stage_lines[0].clone();
    let port = "[port.lan]\n";
    assert_eq!(lines(port), [None; 3]);
    assert_eq!(lines(&format!("\nmode = \"router\"\n{port}")), [Some(2); 3]);
    let own = "mode = \"own\"\n[pipeline.own]\nstages = [\n  \"ip_check\", \"ip_lookup\",\n  \"neighbour\",\n]\n";
    assert_eq!(lines(&format!("{own}{port}")), [Some(4), Some(4), Some(5)]);
}

#[test]
fn files_are_looked_for_beside_the_configuration() {
    let folder = std::env::temp_dir().join(format!("shadeline-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("router.toml");
    let text = with_port("[[routes]]\nfile = \"table.txt\"\n");
    std::fs::write(&path, &text).unwrap();
    let Err(LoadError::Invalid(report)) = load(&path, &known()) else { panic!("no such table") };
    assert_eq!((report.diagnostics.len(), report.diagnostics[0].line), (1, 4));
    // For a log.
    let line = report.errors_in_line();
    assert!(line.contains("router.toml:4:8: ") && !line.contains('\n'), "{line}");
    std::fs::write(folder.join("table.txt"), "10.0.0.0/8 192.0.2.2\n").unwrap();
    let (config, _) = load(&path, &known()).unwrap();
    assert_eq!(config.route_files[0].file, folder.join("table.txt"));
    std::fs::write(&path, b"[port.lan]\n# \xff\n").unwrap();
    assert!(matches!(load(&path, &known()), Err(LoadError::Utf8 { line: 2, .. })));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(matches!(load(&path, &known()), Err(LoadError::Read { .. })));
}

#[test]
fn a_reload_knows_what_it_may_change() {
    let old = good(EXAMPLE);
    assert!(Config::diff(&old, &old).is_empty());
    let edit = |pairs: &[(&str, &str)]| {
        let mut text = EXAMPLE.to_owned();
        for (from, to) in pairs {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        Config::diff(&old, &good(&text))
    };
    let keys = |changes: &[Change]| changes.iter().map(|c| c.key.clone()).collect::<Vec<_>>();

    let diff = edit(&[
        ("via = \"198.51.100.1\"", "via = \"198.51.100.10\""),
        ("# icmp_rate = 100", "icmp_rate = 200"),
        ("mtu = 1400", "mtu = 1300"),
        ("# log = \"info\"", "log = \"debug\""),
        ("00:07\"", "00:08\""),
        ("[port.\"lan.100\"]", "[port.\"lan.101\"]"),
    ]);
    assert_eq!(diff.restart, []);
    assert_eq!(keys(&diff.live), ["system.log", "router.icmp_rate", "port.lan.100.200.mtu"]);
    assert_eq!(keys(&diff.rebuild), ["port.lan.100", "port.lan.101"]);
    assert!(diff.ports_reopened.is_empty());
    assert_eq!((diff.routes_removed.len(), diff.routes_added.len()), (1, 1));
    assert_eq!((diff.neighbours_removed.len(), diff.neighbours_added.len()), (1, 1));
    assert_eq!(
        (diff.ports_removed, diff.ports_added),
        (vec!["lan.100".into()], vec!["lan.101".into()])
    );
    assert_eq!(diff.ports_changed, ["lan.100.200"]);
    assert!(diff.router_changed && diff.log_changed && !diff.route_files_changed);

    let diff = edit(&[
        ("workers = 2", "workers = 1"),
        ("# chunk = 256", "chunk = 64"),
        ("interface = \"eth2\"", "interface = \"eth3\""),
        ("twin = \"lan\"", "twin = false"),
        ("# kernel = true", "kernel = false"),
        ("loss = 0.01", "loss = 0.02"),
        ("via = \"fe80::1%wan\"", "via = \"fe80::1%lab\""),
    ]);
    assert_eq!(keys(&diff.restart), ["system.workers", "engine.chunk", "router.kernel"]);
    assert_eq!(keys(&diff.rebuild), ["port.lan.twin", "port.wan.interface", "port.lab.fault"]);
    assert_eq!(diff.ports_reopened, ["lan", "wan", "lab"]);
    let message = diff.to_string();
    assert!(
        message.contains("needs a restart, not applied: system.workers: 2 -> 1\n"),
        "{message}"
    );
    assert!(message.contains("+ route ::/0 via fe80::1%lab metric 0\n"), "{message}");
}

/// The example with lines and bytes lost, doubled and changed.
fn mutated() -> impl Strategy<Value = String> {
    let lines: Vec<String> = EXAMPLE.lines().map(str::to_owned).collect();
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0u8..6, any::<char>()), 0..12);
    edits.prop_map(move |edits| {
        let mut lines = lines.clone();
        for (index, kind, c) in edits {
            if lines.is_empty() {
                break;
            }
            let at = index.index(lines.len());
            match kind {
                0 => _ = lines.remove(at),
                1 => lines.insert(at, lines[at].clone()),
                2 => lines.swap(at, 0),
                _ => {
                    let mut chars: Vec<char> = lines[at].trim_start_matches("# ").chars().collect();
                    let i = index.index(chars.len() + 1);
                    match kind {
                        3 if i < chars.len() => _ = chars.remove(i),
                        4 if i < chars.len() => {
                            chars[i] = ['"', '[', '=', '0', ']', '{'][c as usize % 6]
                        }
                        _ => chars.insert(i, c),
                    }
                    lines[at] = chars.into_iter().collect();
                }
            }
        }
        lines.join("\n")
    })
}

fn is_sound(text: &str) -> Result<(), TestCaseError> {
    let diagnostics = match parse(text, &known()) {
        Ok((config, warnings)) => {
            prop_assert!(Config::diff(&config, &config).is_empty());
            prop_assert!(warnings.iter().all(|d| d.severity == Severity::Warning));
            warnings
        }
        Err(errors) => {
            prop_assert!(errors.iter().any(|d| d.severity == Severity::Error));
            errors
        }
    };
    for d in &diagnostics {
        let line = text.split('\n').nth(d.line - 1);
        prop_assert!(
            line.is_some_and(|line| d.column + d.len <= line.chars().count() + 2),
            "{d:?}"
        );
    }
    prop_assert!(diagnostics.is_sorted_by_key(|d| (d.line, d.column)));
    render(&diagnostics, "t", text, true);
    Ok(())
}

proptest! {
    #[test]
    fn a_mutated_example_never_panics(text in mutated()) {
        is_sound(&text)?;
    }

    #[test]
    fn any_text_never_panics(text in "(?s).{0,200}") {
        is_sound(&text)?;
    }
}

#[test]
fn interfaces_that_the_machine_lacks_are_named() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut many: Vec<&str> = vec!["lo", "wlan0"];
    many.extend(["eth0", "ens1", "ens2", "ens3", "ens4", "ens5", "ens6", "ens7", "ens8"]);
    let of = |text: &str, interfaces: &[&str], is_needed| {
        let machine = Some(Machine { interfaces: names(interfaces), is_needed });
        parse(text, &KnownStages { machine, ..known() })
    };
    let text = "[port.lan]\ninterface = \"eht0\"\n[port.ens1]\n[port.t]\nbackend = \"tap\"\n\
                [port.m]\nbackend = \"memory\"\n[port.p]\nbackend = \"pcap\"\nread = \"f\"\n\
                [port.v]\nparent = \"lan\"\nvlan = 7\n[port.uplink]\nbackend = \"af_xdp\"\n";
    let (_, said) = of(text, &many, false).unwrap();
    let [lan, uplink] = &said[..] else { panic!("{said:?}") };
    assert_eq!(lan.message, "this machine has no interface `eht0`, did you mean `eth0`?");
    let expected = "one of eth0, ens1, ens2, ens3, ens4, ens5, ens6, ens7 and 2 more";
    assert_eq!((lan.expected.as_deref(), lan.line), (Some(expected), 2));
    assert_eq!(
        (uplink.message.as_str(), uplink.line),
        ("this machine has no interface `uplink`", 14)
    );
    assert!(uplink.help.as_ref().unwrap().contains("`interface` of port `uplink`"));
    let errors = of(text, &many, true).unwrap_err();
    assert!(errors.len() == 2 && errors.iter().all(|e| e.severity == Severity::Error));
    let (_, said) = of("[port.a]\n", &["lo"], false).unwrap();
    let expected = "an interface: this machine has none except `lo`";
    assert_eq!(said[0].expected.as_deref(), Some(expected));
    assert!(of("[port.lo]\n", &["lo"], true).is_ok());
    // Nothing is said of a machine that is not known.
    assert!(parse(text, &known()).unwrap().1.is_empty());
}
