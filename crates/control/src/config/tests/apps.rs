//! What switches and named-data forwarders have, and what each application does not.

use super::*;

const SWITCH: &str = r#"
mode = "switch"
[switch]
stations = 4096
ageing = "1min"
[port.a]
access = 10
[port.a.storm]
broadcast = "1kpps"
unknown = 50
burst = 7
[port.b]
trunk = [10, "20-29", 4094]
native = 1
learning = false
[port.c]
trunk = "all"
stations = 20
extra_stations = "drop"
[port.d]
[[station]]
port = "a"
mac = "02:00:5e:10:00:07"
[[station]]
port = "b"
vlan = 22
mac = "02:00:5e:10:00:08"
"#;

#[test]
fn a_switch_has_vlans_storm_limits_and_static_stations() {
    let (config, warnings) = parse(SWITCH, &known()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.pipeline.main().name, "switch");
    assert_eq!(config.switch, Switch { stations: 4096, ageing: Duration::from_secs(60) });
    assert!(config.ports.iter().all(|port| port.twin.is_none()), "Linux sees no frames");
    let modes = config.ports.iter().map(|port| match &port.bridging.mode {
        PortMode::Access(vlan) => format!("access {vlan}"),
        PortMode::Trunk { native, allowed } => format!("{native:?} {allowed}"),
    });
    let expected = ["access 10", "Some(1) 10,20-29,4094", "None 1-4094", "access 1"];
    assert!(modes.eq(expected));
    let storm = config.ports[0].bridging.storm;
    let rate = |packets_per_s, burst| Some(StormRate { packets_per_s, burst });
    let limits = [storm.broadcast, storm.multicast, storm.unknown];
    assert_eq!(limits, [rate(1000, 7), None, rate(50, 7)]);
    assert_eq!(config.ports.iter().filter(|port| !port.bridging.learning).count(), 1);
    let limited = &config.ports[2].bridging;
    assert_eq!((limited.stations, limited.extra_stations), (Some(20), ExtraStations::Drop));
    let vlans: Vec<_> = config.stations.iter().map(|station| station.vlan).collect();
    assert_eq!(vlans, [None, Some(22)]);

    let changed = SWITCH.replace("access = 10", "access = 11").replace("1min", "off");
    let changed = changed.replace("stations = 20\nextra_stations = \"drop\"", "stations = 0");
    let changed = changed.replace("port = \"b\"\nvlan = 22", "port = \"c\"\nvlan = 22");
    let (new, _) = parse(&changed, &known()).unwrap();
    let diff = Config::diff(&config, &new).to_string();
    for line in [
        "changed switch.ageing: 1min -> off",
        "changed port.a.vlans: access 10 -> access 11",
        "changed port.c.stations: 20 -> 0",
        "changed port.c.extra_stations: drop -> ignore",
        "- station 02:00:5e:10:00:08 on b in VLAN 22",
        "+ station 02:00:5e:10:00:08 on c in VLAN 22",
    ] {
        assert!(diff.contains(line), "{diff}");
    }
}

#[test]
fn the_example_of_a_switch_is_good() {
    let (config, warnings) =
        parse(include_str!("../../../../../shadeline/examples/switch.toml"), &known()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.pipeline.main().name, "switch");
}

#[test]
fn what_a_switch_cannot_have_is_reported() {
    let with = |from: &str, to: &str| found(&SWITCH.replacen(from, to, 1));
    let port = |keys: &str| with("[port.d]", &format!("[port.d]\n{keys}"));
    let cases = [
        (with("access = 10", "access = 4095"), "`access` is 4095 | an integer from 1 to 4094"),
        (with("\"20-29\"", "\"29-20\""), "element 2 of `trunk` is `29-20` | a range of VLANs"),
        (with("access = 10", "access = 10\ntrunk = [11]"), "a port has either `access` or `trunk`"),
        (port("native = 3"), "`native` without `trunk`"),
        (port("extra_stations = \"drop\""), "`extra_stations` without `stations` | the limit of"),
        (port("stations = -1"), "`stations` is -1 | an integer from 0 to"),
        (
            port("addresses = [\"192.0.2.1/24\"]"),
            "warning: `addresses` has no effect at a port of a",
        ),
        (port("parent = \"a\"\nvlan = 5"), "a switch has no subinterfaces"),
        (with("vlan = 22", "vlan = 30"), "port `b` does not carry VLAN 30"),
        (with("port = \"a\"", "port = \"c\""), "`c` has no VLAN for untagged frames"),
        (with("port = \"a\"", "port = \"e\""), "unknown port `e`"),
        (with("mode = \"switch\"", ""), "warning: `switch` has no effect in a router"),
        (with("ageing = \"1min\"", "ageing = 5"), "`ageing` is an integer | a duration"),
        (
            with("[switch]", "[router]\nttl = 3\n[switch]"),
            "warning: `router` has no effect in a sw",
        ),
    ];
    for (diagnostics, expected) in cases {
        assert!(diagnostics.iter().any(|d| d.contains(expected)), "{expected}: {diagnostics:?}");
    }
    // A section without effect is reported once, whatever else is wrong with it.
    let idle = port("addresses = [\"1.2.3.4/24\", \"1.2.3.4/24\"]")
        .into_iter()
        .chain(found(&format!("{SWITCH}[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"1.2.3.4\"\n")));
    let idle: Vec<_> = idle.collect();
    assert_eq!(idle.len(), 2, "{idle:?}");
    assert!(idle.iter().all(|d| d.contains("has no effect")), "{idle:?}");
    let twice = format!("{SWITCH}[[station]]\nport = \"a\"\nmac = \"02:00:5e:10:00:07\"\n");
    assert!(found(&twice)[0].contains("station 02:00:5e:10:00:07 of VLAN 10 is listed twice"));
    let mixed = "[port.a]\n[pipeline.x]\nstages = [\"learn\", \"ip_check\"]\n";
    assert!(
        found(mixed)[0].starts_with("3:10 `ip_check` must be the first stage"),
        "{:?}",
        found(mixed)
    );
}

const NDN: &str = r#"
mode = "ndn"
[ndn]
names = 1024
pit_entries = 4096
lifetime_max = "5s"
nack = false
[port.a]
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
[port.b]
[ndn.face.group]
port = "b"
[ndn.face.west]
port = "b"
mac = "02:00:5e:10:00:07"
[ndn.face.v4]
port = "a"
local = "192.0.2.1"
remote = "192.0.2.2:7000"
[ndn.face.v6]
port = "a"
local = "[2001:db8::1]:6363"
remote = "2001:db8:1::2"
gateway = "2001:db8::9"
[[name]]
prefix = "/org/example"
faces = ["v4", "v6"]
[[name]]
prefix = "/"
faces = ["group"]
[[names]]
file = "names.txt"
"#;

#[test]
fn the_example_of_a_forwarder_has_no_mistakes_and_shows_the_defaults() {
    let example = include_str!("../../../../../shadeline/examples/ndn.toml");
    let config = good(example);
    assert_eq!((config.faces.len(), config.names.len()), (4, 3));
    let ndn = |text: &str| {
        text.lines().filter(|line| line.starts_with("# ") && line.contains(" = ")).count()
    };
    assert_eq!(ndn(example), 11, "ten defaults and a file");
    let written = example.replace("# names =", "names =").replace("# pit_entries", "pit_entries");
    let written = written.replace("# lifetime_max", "lifetime_max").replace("# nack", "nack");
    let written = written.replace("# content_store", "content_store");
    let written = written.replace("# on_demand", "on_demand").replace("# idle_", "idle_");
    let written = written.replace("# faces =", "faces =").replace("# register", "register");
    assert_eq!(good(&written), config);
    assert!(written.matches("\nnames = ").count() + written.matches("\nnack = ").count() == 2);
}

#[test]
fn a_forwarder_has_faces_and_routes_for_names() {
    let (config, warnings) = parse(NDN, &known()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.pipeline.main().name, "ndn");
    let lifetime_max = Duration::from_secs(5);
    assert_eq!(
        config.ndn,
        Ndn { names: 1024, pit_entries: 4096, lifetime_max, nack: false, ..Ndn::default() }
    );
    assert!(config.ports.iter().all(|port| port.twin.is_some()), "Linux stays on the box");
    let faces: Vec<_> =
        config.faces.iter().map(|f| format!("{} {} {}", f.name, f.port, f.link)).collect();
    assert_eq!(
        faces,
        [
            "group b 01:00:5e:00:17:aa",
            "west b 02:00:5e:10:00:07",
            "v4 a 192.0.2.1:6363 - 192.0.2.2:7000",
            "v6 a [2001:db8::1]:6363 - [2001:db8:1::2]:6363 by 2001:db8::9",
        ]
    );
    let names: Vec<_> =
        config.names.iter().map(|n| format!("{} {}", n.prefix, n.faces.join(","))).collect();
    assert_eq!(names, ["/org/example v4,v6", "/ group"]);
    assert_eq!(config.name_files, [std::path::PathBuf::from("names.txt")]);

    let changed = NDN.replace("names = 1024", "names = 2048").replace("names.txt", "other.txt");
    let changed = changed.replace("[\"v4\", \"v6\"]", "[\"v6\"]").replace("00:07", "00:08");
    let (new, _) = parse(&changed, &known()).unwrap();
    let diff = Config::diff(&config, &new).to_string();
    for line in [
        "- face west on b: 02:00:5e:10:00:07",
        "+ face west on b: 02:00:5e:10:00:08",
        "- name /org/example to v4,v6",
        "+ name /org/example to v6",
        "changed names: names.txt -> other.txt",
        "needs a restart, not applied: ndn.names: 1024 -> 2048",
    ] {
        assert!(diff.contains(line), "{diff}");
    }
}

#[test]
fn what_a_forwarder_cannot_have_is_reported() {
    let with = |from: &str, to: &str| found(&NDN.replacen(from, to, 1));
    let deep = format!("\"{}\"", "/a".repeat(10_000));
    let long = format!("\"/{}\"", "a".repeat(9_000));
    let cases = [
        (with("port = \"b\"", "port = \"c\""), "unknown port `c`"),
        (with("[\"v4\", \"v6\"]", "[\"v44\"]"), "unknown face `v44`, did you mean `v4`? | one of"),
        (with("\"v4\", \"v6\"", "\"v4\", \"v4\""), "face `v4` is listed twice | each face of"),
        (with("[\"v4\", \"v6\"]", "[]"), "`faces` is empty | at least one face"),
        (with("\"/org/example\"", "\"\""), "`prefix` is not a name: a name begins with `/`"),
        (with("\"/org/example\"", "\"org\""), "`prefix` is not a name: a name begins with `/`"),
        (with("\"/org/example\"", "\"/a//b\""), "`prefix` is not a name: a component is empty"),
        (with("\"/org/example\"", &deep), "`prefix` is not a name: a prefix of 10000 components"),
        (
            with("\"/org/example\"", &long),
            "`prefix` is not a name: a prefix of 9004 bytes, more than",
        ),
        (with("\"/org/example\"", "\"/\""), "the route for / is on line 26 too"),
        (with("[ndn.face.west]", "[ndn.face.all]"), "`all` cannot name a face"),
        (
            with("\"192.0.2.2:7000\"", "\"2001:db8::2\""),
            "`remote` and `local` are of different fam",
        ),
        (with("\"192.0.2.2:7000\"", "\"192.0.2.1\""), "`192.0.2.1` is our own address"),
        (with("\"192.0.2.2:7000\"", "\"192.0.2.255\""), "`192.0.2.255` is the network's broadcast"),
        (with("\"192.0.2.2:7000\"", "\"192.0.2.2:0\""), "`remote` is `192.0.2.2:0` | ADDRESS or"),
        (
            with("\"192.0.2.2:7000\"", "\"192.0.3.2\""),
            "warning: `192.0.3.2` is in no subnet of port",
        ),
        (
            with("local = \"192.0.2.1\"", "local = \"192.0.2.9\""),
            "`192.0.2.9` is not an address of port `a` | one of its `addresses`: 192.0.2.1",
        ),
        (with("local = \"192.0.2.1\"", ""), "missing key `local` in [ndn.face.v4]"),
        (with("mac = \"02:00:5e:10:00:07\"", ""), "face `group` has this neighbour too"),
        (with("mac = ", "gateway = \"192.0.2.9\"\nmac = "), "`gateway` at a face over Ethernet"),
        (
            with("[port.b]", "[port.b]\nrpf = \"loose\""),
            "warning: `rpf` has no effect at a port of a",
        ),
        (with("[port.b]", "[port.c]\nparent = \"b\"\nvlan = 5\n[port.b]"), "has no subinterfaces"),
        (with("mode = \"ndn\"", ""), "warning: `name` has no effect in a router | a named-data"),
        (
            with("[port.a]\n", "[port.a]\ntwin = false\n"),
            "warning: port `a` has no twin, so the MAC address",
        ),
        (with("names = 1024", "names = 3"), "`names` is 3 | an integer from 16"),
        (with("[ndn]", "[router]\nttl = 3\n[ndn]"), "warning: `router` has no effect in a named"),
    ];
    for (diagnostics, expected) in cases {
        assert!(diagnostics.iter().any(|d| d.contains(expected)), "{expected}: {diagnostics:?}");
    }
    let neighbour =
        "[[neighbour]]\nport = \"a\"\naddress = \"192.0.2.2\"\nmac = \"02:00:5e:10:00:07\"\n";
    let text = NDN.replace("[port.a]\n", "[port.a]\ntwin = false\n") + neighbour;
    let said = found(&text);
    assert!(said.len() == 1 && said[0].contains("the MAC address of 2001:db8::9"), "{said:?}");
}

/// Keys of a mode that nobody named are not mistakes of their own.
#[test]
fn a_mistyped_mode_is_one_error() {
    for text in [SWITCH, NDN] {
        let text = text.replace("mode = \"switch\"", "mode = \"swich\"");
        let said = found(&text.replace("mode = \"ndn\"", "mode = \"nnd\""));
        assert!(said.len() == 1 && said[0].contains("unknown pipeline"), "{said:?}");
    }
    let wrong = "mode = \"x\"\n[pipeline.x]\nstages = [\"learn\", \"ip_check\"]\n\
                 [port.a]\ntrunk = [1]\n[switch]\n";
    assert_eq!(found(wrong).len(), 1, "{:?}", found(wrong));
}

/// Each rule of address translation with a mistake: it is reported, with what would be right.
#[test]
fn rules_of_address_translation_are_checked() {
    let said = |rules: &str| {
        let text = format!("[port.lan]\n[port.wan]\n{rules}");
        found(&text).join("; ")
    };
    let rule = |keys: &str| said(&format!("[[nat]]\n{keys}\n"));
    let cases = [
        (rule("kind = \"masquerade\""), "a `masquerade` rule without `outside`"),
        (rule("kind = \"masquerade\"\noutside = [\"wam\"]"), "unknown port `wam`"),
        (
            rule("kind = \"masquerade\"\noutside = [\"wan\"]\nto = \"192.0.2.1\""),
            "`to` has no effect",
        ),
        (rule("kind = \"masquerade\"\noutside = []"), "`outside` is empty"),
        (rule("kind = \"masquerade\"\noutside = [\"wan\", \"wan\"]"), "`wan` is listed twice"),
        (
            rule("kind = \"destination\"\ndestination = [\"224.0.0.1\"]\nto = \"10.0.0.1\""),
            "224.0.0.1 is not an address of a host",
        ),
        (
            rule("kind = \"destination\"\noutside = [\"wan\"]\nto = \"127.0.0.1\""),
            "127.0.0.1 is not an address of a host",
        ),
        (
            rule("kind = \"static\"\nsource = [\"0.0.0.0/0\"]\nto = \"0.0.0.0/0\""),
            "0.0.0.0 is not an address of a host",
        ),
        (rule("kind = \"source\"\nto = \"192.0.0.0/16\""), "has 65536 addresses"),
        (rule("kind = \"source\"\nto = \"192.0.2.1/24\""), "has host bits"),
        (rule("kind = \"source\"\nto = \"2001:db8::1\""), "`to` is an IPv6 address"),
        (rule("kind = \"source\"\nto = \"192.0.2.1\"\nports = \"9-1\""), "is not a range of ports"),
        (
            rule("kind = \"destination\"\noutside = [\"wan\"]\nport = 80\nto = \"10.0.0.1\""),
            "`port` without a protocol",
        ),
        (rule("kind = \"destination\"\nto = \"10.0.0.1\""), "without outside addresses"),
        (
            rule("kind = \"destination\"\noutside = [\"wan\"]\nto = \"10.0.0.1:80\""),
            "`to` has a port, and the rule no",
        ),
        (
            rule(
                "kind = \"destination\"\noutside = [\"wan\"]\nprotocol = \"tcp\"\n\
                 port = \"8000-8010\"\nto = \"10.0.0.1:65530\"",
            ),
            "11 ports from 65530 on end at 65540",
        ),
        (
            rule("kind = \"static\"\nsource = [\"10.0.0.0/24\"]\nto = \"192.0.2.0/25\""),
            "different lengths",
        ),
        (
            rule("kind = \"deterministic\"\nsource = [\"10.0.0.0/8\"]\nto = \"192.0.2.0/31\""),
            "8388608 subscribers share an address",
        ),
        (
            rule("kind = \"nat64\"\nto = \"192.0.2.1\"\nprefix = \"64:ff9b::/95\""),
            "cannot hold IPv4 addresses",
        ),
        (
            rule("kind = \"nat64\"\nto = \"192.0.2.1\"\nsource = [\"10.0.0.0/8\"]"),
            "has IPv6 sources",
        ),
    ];
    for (said, expected) in cases {
        assert!(said.contains(expected), "{said}: {expected}");
    }
    // Rules that never match.
    let wan = "kind = \"masquerade\"\noutside = [\"wan\"]";
    let source = "kind = \"source\"\nto = \"192.0.2.1\"";
    let nat64 = "kind = \"nat64\"\nto = \"192.0.2.9\"";
    let fixed = "kind = \"static\"\nsource = [\"10.0.0.9/32\"]\nto = \"198.51.100.9/32\"";
    let forward =
        |at: &str| format!("kind = \"destination\"\ndestination = [\"{at}\"]\nto = \"10.0.0.1\"");
    let some = "source = [\"10.1.0.0/16\"]";
    let part = "source = [\"10.1.2.0/24\"]";
    for (first, second, is_covered) in [
        (wan.to_owned(), wan.to_owned(), true),
        (wan.to_owned(), format!("{wan}\n{some}"), true),
        (format!("{wan}\n{some}"), format!("{wan}\n{part}"), true),
        (format!("{wan}\n{part}"), format!("{wan}\n{some}"), false),
        (format!("{wan}\nprotocol = \"tcp\""), wan.to_owned(), false),
        (format!("{wan}\nprotocol = \"tcp\""), format!("{wan}\nprotocol = \"tcp\""), true),
        (wan.to_owned(), source.to_owned(), false),
        (source.to_owned(), wan.to_owned(), true),
        (format!("{wan}\nsource = [\"0.0.0.0/0\"]"), wan.to_owned(), true),
        (format!("{wan}\nsource = [\"0.0.0.0/1\"]"), wan.to_owned(), false),
        (fixed.to_owned(), forward("198.51.100.9"), true),
        (fixed.to_owned(), forward("198.51.100.10"), false),
        (forward("198.51.100.9"), fixed.to_owned(), false),
        (nat64.to_owned(), nat64.to_owned(), true),
        (nat64.to_owned(), format!("{nat64}\nprefix = \"2001:db8:64::/96\""), false),
        (nat64.to_owned(), wan.to_owned(), false),
    ] {
        let said = said(&format!("[[nat]]\n{first}\n[[nat]]\n{second}\n"));
        assert_eq!(
            said.contains("rule 1 takes all packets of this one"),
            is_covered,
            "{first}, {second}: {said}"
        );
    }
    let short = said(&format!("[[nat]]\n{wan}\nproto = \"tcp\"\n"));
    assert!(short.contains("did you mean `protocol`?"), "{short}");
    let fits = "kind = \"destination\"\noutside = [\"wan\"]\nprotocol = \"tcp\"\n\
                port = \"8000-8005\"\nto = \"10.0.0.1:65530\"";
    assert_eq!(rule(fits), "");
    let forward = |port: &str| {
        format!(
            "[[nat]]\nkind = \"destination\"\noutside = [\"wan\"]\nprotocol = \"tcp\"\nport = {port}\nto = \"10.0.0.1\"\n"
        )
    };
    let twice = said(&(forward("\"80-90\"") + &forward("85")));
    assert!(twice.contains("an earlier rule forwards these packets already"), "{twice}");
    assert_eq!(said(&(forward("\"80-90\"") + &forward("91"))), "");
}

/// Each association and policy of IPsec with a mistake: it is reported, with what would be right.
#[test]
fn associations_and_policies_are_checked() {
    let said = |text: &str| found(&format!("[port.lan]\n{text}")).join("; ");
    let sa = |keys: &str| {
        let usual = "direction = \"out\"\nspi = 4096\nsource = \"192.0.2.1\"\nreqid = 1\nkey_file = \"/dev/null\"\n";
        format!("[[sa]]\n{usual}{keys}\n")
    };
    let to = "destination = \"192.0.2.2\"\n";
    let cases = [
        (sa("destination = \"::1\""), "two address families"),
        (sa("destination = \"0.0.0.0\""), "0.0.0.0 is not the address of a host"),
        (sa(&format!("{to}encryption = \"aes-128-cbc\"")), "encryption without authentication"),
        (sa(&format!("{to}authentication = \"hmac-sha1-96\"")), "the cipher authenticates"),
        (sa(&format!("{to}udp_port = 4501")), "`udp_port` without `udp`"),
        (sa(&format!("{to}mode = \"transport\"\npad_to = 100")), "`pad_to` has no effect"),
        (sa(&format!("{to}mode = \"transport\"\nif_id = 7")), "are in tunnel mode"),
        (sa(to) + &sa(to), "an earlier association has SPI 0x1000"),
        ("[[policy]]\naction = \"protect\"\n".to_owned(), "a `protect` policy without `reqid`"),
        ("[[policy]]\naction = \"protect\"\nreqid = 7\n".to_owned(), "no [[sa]] has reqid 7"),
        ("[[policy]]\naction = \"bypass\"\nreqid = 7\n".to_owned(), "`reqid` has no effect"),
        (
            "[[policy]]\naction = \"bypass\"\ndestination_port = 80\n".to_owned(),
            "`destination_port` without a protocol",
        ),
        (
            "[[policy]]\naction = \"discard\"\nsource = \"10.0.0.0/8\"\ndestination = \"::/0\"\n"
                .to_owned(),
            "two address families",
        ),
        (
            "[[policy]]\naction = \"bypass\"\nprotocol = \"tpc\"\n".to_owned(),
            "`tpc` is not a protocol",
        ),
    ];
    for (text, expected) in cases {
        let said = said(&text);
        assert!(said.contains(expected), "{said}: {expected}");
    }
    let good = sa(to)
        + "[[policy]]\naction = \"protect\"\nreqid = 1\nprotocol = \"tcp\"\ndestination_port = \"80-90\"\n";
    assert_eq!(said(&good), "");
}

/// What is not a key is compared with the keys that have an effect.
#[test]
fn known_keys_are_those_of_the_mode() {
    let of = |mode: &str| {
        let text = format!("mode = \"{mode}\"\nzz = 1\n[port.a]\nzz = 1\n");
        let said = found(&text);
        assert_eq!(said.len(), 2, "{said:?}");
        let list = |said: &str| said.split_once("one of ").unwrap().1.to_owned();
        (list(&said[0]), list(&said[1]))
    };
    let common = "backend, checksums, fault, if_id, interface";
    let (file, port) = of("router");
    assert_eq!(
        file,
        "dump, engine, firewall, flow, ids, ipsec, l7, mode, module, nat, neighbour, pipeline, policy, port, route, router, routes, rule, sa, stage, system, translation"
    );
    let with_twin = common.replace("fault", "fault, host");
    let expected =
        format!("accept_ra, accept_ra_routes, addresses, {with_twin}, mac, mtu, parent, ");
    assert!(port.starts_with(&expected), "{port}");
    let (file, port) = of("switch");
    assert_eq!(
        file,
        "dump, engine, firewall, flow, ids, ipsec, l7, mode, module, nat, pipeline, policy, port, rule, sa, stage, station, switch, system, translation"
    );
    let common_of_switch = common.replace("fault", "extra_stations, fault");
    let expected = format!("access, {common_of_switch}, learning, mac, mtu, native, ");
    assert!(port.starts_with(&expected), "{port}");
    assert!(!port.contains("vlan") && !port.contains("rpf"), "{port}");
    let (file, port) = of("ndn");
    assert_eq!(
        file,
        "dump, engine, flow, ids, ipsec, l7, mode, module, name, names, nat, ndn, neighbour, pipeline, policy, port, sa, stage, system, translation"
    );
    let common = with_twin.replace("fault", "faces, fault");
    assert!(port.starts_with(&format!("addresses, {common}, mac, mtu, ")), "{port}");
    let near = found("mode = \"switch\"\n[port.a]\nparemt = 1\n");
    assert!(near[0].starts_with("3:1 unknown key `paremt` in [port.a] |"), "{near:?}");
}

/// Each section with several mistakes: each of them is reported.
#[test]
fn a_bad_key_hides_no_other_mistake() {
    let all = |text: &str, expected: &[&str]| {
        let said = found(text);
        let is_reported = |part: &&str| said.iter().any(|line| line.contains(*part));
        assert!(expected.iter().all(is_reported), "{said:#?}");
        assert_eq!(said.len(), expected.len(), "{said:#?}");
    };
    let station = |keys: &str| format!("{SWITCH}[[station]]\n{keys}");
    all(
        &station("port = \"e\"\nmac = \"x\"\nvlan = 5000\n"),
        &["unknown port `e`", "`mac` is `x`", "`vlan` is 5000"],
    );
    all(
        &station("port = \"b\"\nvlan = 30\nmac = 3\n"),
        &["does not carry VLAN 30", "`mac` is an integer"],
    );
    all(&station("vlan = 30\n"), &["missing key `port`", "missing key `mac`"]);
    let name = |keys: &str| format!("{NDN}[[name]]\n{keys}");
    all(
        &name("prefix = \"a\"\nfaces = [\"v4\", 5, \"x\", \"v4\"]\n"),
        &[
            "`prefix` is not a name",
            "element 2 of `faces`",
            "unknown face `x`",
            "`v4` is listed twice",
        ],
    );
    all(&name("faces = [\"x\"]\n"), &["missing key `prefix`", "unknown face `x`"]);
    // A prefix that is missing is not `/`, which is there.
    all(&name("prefix = \"/\"\n"), &["missing key `faces`", "the route for / is on line"]);
    let face = |keys: &str| {
        // The face is there, so that a route that names it is not a mistake.
        format!("{NDN}[ndn.face.new]\n{keys}[[name]]\nprefix = \"/new\"\nfaces = [\"new\"]\n")
    };
    all(&face("port = \"c\"\nmac = 7\n"), &["unknown port `c`", "`mac` is an integer"]);
    all(
        &face("port = \"c\"\nlocal = \"x\"\nremote = \"224.0.0.1\"\n"),
        &["unknown port `c`", "`local` is `x`", "`224.0.0.1` is"],
    );
    all(
        &face("port = \"a\"\nlocal = \"192.0.2.9\"\n"),
        &["missing key `remote`", "`192.0.2.9` is not an address of port `a`"],
    );
    all(
        &face("port = \"a\"\nremote = \"192.0.2.1\"\ngateway = \"192.0.2.255\"\n"),
        &["missing key `local`", "`192.0.2.1` is our own", "`192.0.2.255` is the network's"],
    );
    all(
        &face("local = \"192.0.2.1\"\nmac = 5\n"),
        &["missing key `port`", "missing key `remote`", "`mac` is an integer"],
    );
    all(
        &with_port("[[neighbour]]\nport = \"lan\"\naddress = \"192.0.2.1\"\nmac = 5\n"),
        &["is the router's own address", "`mac` is an integer"],
    );
    all(
        &with_port("[[neighbour]]\nport = \"lna\"\naddress = 5\nmac = 5\n"),
        &["unknown port `lna`", "`address` is an integer", "`mac` is an integer"],
    );
}
