//! Two gateways back to back between two hosts, live.

mod common;

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::{SOON, STARTED, answered, ctl, ping};
use testkit::netns::{Netns, mac, veth};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

/// Host – gateway – gateway – host.
struct Site {
    scratch: Scratch,
    gateway: Netns,
    program: Process,
    bin: PathBuf,
    host: Netns,
}

/// An association of gateway `own` (1 or 2): what 1 sends, 2 receives.
fn association(own: u8, from: u8, spi: u32, key: &str) -> String {
    let direction = if own == from { "out" } else { "in" };
    let to = 3 - from;
    format!(
        "[[sa]]\ndirection = \"{direction}\"\nspi = {spi}\nsource = \"192.0.2.{from}\"\ndestination = \"192.0.2.{to}\"\n\
         reqid = 1\nkey_file = \"{key}\"\nudp = true\n"
    )
}

/// Bytes.
const NARROW: u16 = 1300;

fn config(scratch: &Scratch, own: u8, key: &str) -> String {
    let other = 3 - own;
    // The link behind the second gateway takes less than the tunnel.
    let mtu = if own == 2 { format!("mtu = {NARROW}\n") } else { String::new() };
    let all: String =
        [(1, 4097), (2, 8193)].map(|(from, spi)| association(own, from, spi, key)).concat();
    format!(
        "mode = \"router\"\n[system]\nsocket = \"{}\"\n\
         [port.inside]\nbackend = \"af_packet\"\naddresses = [\"10.0.{own}.1/24\"]\n{mtu}\
         [port.outside]\nbackend = \"af_packet\"\naddresses = [\"192.0.2.{own}/24\"]\n\
         [[route]]\nprefix = \"10.0.{other}.0/24\"\nvia = \"192.0.2.{other}\"\n{all}\
         [[policy]]\naction = \"protect\"\nreqid = 1\nsource = \"10.0.{own}.0/24\"\ndestination = \"10.0.{other}.0/24\"\n\
         [flow]\nevents = \"{}\"\nevent_types = [\"ipsec\"]\n",
        scratch.join("ctl.sock").display(),
        scratch.join("eve.json").display()
    )
}

impl Site {
    fn start(own: u8, gateway: Netns, host: Netns) -> Option<Self> {
        let bin = testkit::shadeline_bin()?;
        let scratch = Scratch::new();
        let key = private(&scratch, "first.key", &"5a".repeat(20));
        let path = scratch.write("gateway.toml", &config(&scratch, own, &key));
        let mut program = gateway.spawn(&format!("{} run {}", bin.display(), path.display()));
        program.wait_for("running: ", STARTED);
        Some(Self { scratch, gateway, program, bin, host })
    }

    fn ctl(&self, args: &str) -> String {
        let (ok, text) = ctl(&self.bin, &self.scratch, args);
        assert!(ok, "ctl {args}: {text}");
        text
    }
}

fn private(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.write(name, text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a file");
    path.display().to_string()
}

#[test]
fn hosts_talk_through_a_tunnel_and_keys_change_without_loss() {
    if !testkit::require_namespaces() {
        return;
    }
    let nets = [(); 4].map(|()| Netns::new("ipsec"));
    let [left, one, two, right] = nets;
    veth((&left, "eth0", mac::LEFT), (&one, "inside", mac::ROUTER_LEFT), 1500);
    veth((&one, "outside", "02:00:00:00:03:01"), (&two, "outside", "02:00:00:00:03:02"), 1500);
    veth((&right, "eth0", mac::RIGHT), (&two, "inside", mac::ROUTER_RIGHT), 1500);
    for (host, number) in [(&left, 1), (&right, 2)] {
        host.address("eth0", &format!("10.0.{number}.2/24"));
        host.ip(&format!("route add default via 10.0.{number}.1"));
    }
    let (Some(mut one), Some(mut two)) = (Site::start(1, one, left), Site::start(2, two, right))
    else {
        return;
    };
    assert!(wait_until(SOON, || ping(&one.host, "10.0.2.2", 1) == 1));
    assert_eq!(answered(&one.host, "10.0.2.2", 20), 20);
    assert_eq!(answered(&two.host, "10.0.1.2", 20), 20);
    let shown = one.ctl("show sa");
    assert!(shown.contains("0x00001001") && shown.contains("tunnel udp"), "{shown}");
    assert!(!shown.contains("5a5a"), "no keys: {shown}");

    // The longest packet that fits the tunnel is told to the host, and TCP finds it.
    let said = one.host.try_run("ping -c 1 -W 2 -M do -s 1472 10.0.2.2");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("mtu"), "{said}");

    // The second gateway tells it, too, what it has to say about packets that came by the tunnel.
    for (args, said_is) in
        [("-t 2 10.0.2.2", "Time to live exceeded"), ("-M do -s 1350 10.0.2.2", "mtu = 1300")]
    {
        let said = one.host.try_run(&format!("ping -c 1 -W 2 {args}"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("192.0.2.2") && said.contains(said_is), "{said}");
    }

    // New keys while packets flow: both ends know them before anybody sends by them.
    let mut pings = one.host.spawn("ping -i 0.01 -c 300 -W 2 -q 10.0.2.2");
    let add = |site: &Site, own: u8, from: u8, spi: u32| {
        let digits = if from == 1 { "c3" } else { "c4" };
        let key = private(&site.scratch, &format!("{spi}.key"), &digits.repeat(20));
        let (direction, to) = (if own == from { "out" } else { "in" }, 3 - from);
        site.ctl(&format!(
            "sa add direction {direction} spi {spi} source 192.0.2.{from} destination 192.0.2.{to} reqid 1 \
             --key-file {key} --udp"
        ));
    };
    add(&two, 2, 1, 4098);
    add(&one, 1, 2, 8194);
    // A key that another one has is refused.
    let words =
        "sa add direction out spi 5000 source 192.0.2.1 destination 192.0.2.2 reqid 1 --key-file";
    let key = one.scratch.join("8194.key");
    let (ok, text) = ctl(&one.bin, &one.scratch, &format!("{words} {}", key.display()));
    assert!(!ok && text.contains("0x2002 has this key"), "{text}");
    add(&one, 1, 1, 4098);
    add(&two, 2, 2, 8194);
    let (_, text) = pings.wait(SOON);
    assert!(text.contains(" 0% packet loss"), "{text}");
    for site in [&one, &two] {
        for (spi, to) in [(4097, 2), (8193, 1)] {
            site.ctl(&format!("sa del spi {spi} destination 192.0.2.{to}"));
        }
        let shown = site.ctl("show sa --json");
        assert!(shown.contains("4098") && !shown.contains("4097"), "{shown}");
    }
    assert_eq!(answered(&one.host, "10.0.2.2", 5), 5);
    // A packet that should have come by the tunnel.
    let policies = two.ctl("show policies");
    assert!(policies.contains("10.0.1.0/24 > 10.0.2.0/24"), "{policies}");

    // Policies by `ctl`, in their order.
    one.ctl("policy add action discard destination 10.0.2.2/32 protocol icmp at 1");
    assert_eq!(ping(&one.host, "10.0.2.2", 2), 0);
    assert!(one.ctl("policy show").contains("10.0.2.2/32 icmp"), "{}", one.ctl("policy show"));
    one.ctl("policy del 1");
    assert_eq!(answered(&one.host, "10.0.2.2", 5), 5);
    let (ok, text) = ctl(&one.bin, &one.scratch, "policy del 2");
    assert!(!ok && text.contains("no policy 2"), "{text}");

    // What became of the associations.
    one.ctl("sa del spi 4098 destination 192.0.2.2");
    assert_eq!(ping(&one.host, "10.0.2.2", 1), 0);
    let events = || std::fs::read_to_string(one.scratch.join("eve.json")).unwrap_or_default();
    assert!(wait_until(SOON, || events().contains("\"event\":\"missing\"")), "{}", events());
    let count = |name: &str| events().matches(&format!("\"event\":\"{name}\"")).count();
    assert_eq!((count("up"), count("deleted")), (4, 3), "{}", events());
    for site in [&mut one, &mut two] {
        let (status, output) = site.program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{status}\n{output}");
        assert!(output.contains("IPsec: "), "{output}");
    }
    drop(one.gateway);
}

/// A gateway between a host and a network outside, which has an address that policies protect.
fn between() -> [Netns; 3] {
    let nets = [(); 3].map(|()| Netns::new("ipsec"));
    let [host, gateway, outside] = &nets;
    veth((host, "eth0", mac::LEFT), (gateway, "inside", mac::ROUTER_LEFT), 1500);
    veth((outside, "eth0", mac::RIGHT), (gateway, "outside", mac::ROUTER_RIGHT), 1500);
    host.address("eth0", "10.0.1.2/24");
    host.ip("route add default via 10.0.1.1");
    outside.address("eth0", "192.0.2.2/24");
    outside.address("lo", "10.0.2.2/32");
    outside.ip("route add 10.0.1.0/24 via 192.0.2.1");
    nets
}

fn ports(scratch: &Scratch, rest: &str) -> PathBuf {
    scratch.write(
        "gateway.toml",
        &format!(
            "mode = \"router\"\n[system]\nsocket = \"{}\"\n\
             [port.inside]\nbackend = \"af_packet\"\naddresses = [\"10.0.1.1/24\"]\n\
             [port.outside]\nbackend = \"af_packet\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[route]]\nprefix = \"10.0.2.0/24\"\nvia = \"192.0.2.2\"\n{rest}",
            scratch.join("ctl.sock").display()
        ),
    )
}

/// Whether a request for an echo has arrived here.
fn was_asked(net: &Netns) -> bool {
    String::from_utf8_lossy(&net.try_run("cat /proc/net/snmp").stdout).contains("InType8")
}

#[test]
fn nothing_passes_before_policies_of_linux_are_known() {
    let (true, Some(bin)) = (testkit::require_namespaces(), testkit::shadeline_bin()) else {
        return;
    };
    let [host, gateway, outside] = between();
    let xfrm = "xfrm policy add src 10.0.1.0/24 dst 10.0.2.0/24 dir out \
                tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 1 mode tunnel";
    gateway.ip(xfrm);
    let scratch = Scratch::new();
    let path = ports(&scratch, "[ipsec]\nlinux = true\n");
    let mut pings = host.spawn("ping -i 0.002 -c 100000 -q 10.0.2.2");
    let mut program = gateway.spawn(&format!("{} run {}", bin.display(), path.display()));
    program.wait_for("running: ", STARTED);
    let drops = || ctl(&bin, &scratch, "show drops").1;
    assert!(wait_until(SOON, || drops().contains("sa_missing")), "{}", drops());
    pings.stop(Stop::Terminate, SOON);
    assert!(!was_asked(&outside), "a packet has left in the clear");
    gateway.ip("xfrm policy flush");
    assert!(wait_until(SOON, || ping(&host, "10.0.2.2", 1) == 1));
    assert!(was_asked(&outside));
    program.stop(Stop::Terminate, SOON);
}

#[test]
fn translated_packets_must_have_come_as_the_policies_say() {
    let (true, Some(bin)) = (testkit::require_namespaces(), testkit::shadeline_bin()) else {
        return;
    };
    let [host, gateway, outside] = between();
    let scratch = Scratch::new();
    let path = ports(
        &scratch,
        "[[nat]]\nkind = \"destination\"\noutside = [\"outside\"]\nto = \"10.0.1.2\"\n\
         [[policy]]\naction = \"protect\"\nreqid = 1\nsource = \"10.0.1.0/24\"\ndestination = \"10.0.2.0/24\"\n",
    );
    let mut program = gateway.spawn(&format!("{} run {}", bin.display(), path.display()));
    program.wait_for("running: ", STARTED);
    outside.try_run("ping -c 5 -i 0.2 -W 1 -I 10.0.2.2 192.0.2.1");
    assert!(!was_asked(&host), "a packet that should have come by the tunnel");
    let drops = ctl(&bin, &scratch, "show drops").1;
    assert!(drops.contains("policy_unprotected"), "{drops}");
    assert!(wait_until(SOON, || ping(&outside, "192.0.2.1", 1) == 1));
    assert!(was_asked(&host));
    program.stop(Stop::Terminate, SOON);
}

/// Also with a peer behind address translation, whose port is none of IKE's.
#[test]
fn key_agreement_passes_whatever_the_policies_are() {
    let (true, Some(bin)) = (testkit::require_namespaces(), testkit::shadeline_bin()) else {
        return;
    };
    let [_host, gateway, outside] = between();
    let scratch = Scratch::new();
    let path = ports(&scratch, "[[policy]]\naction = \"discard\"\n");
    let mut program = gateway.spawn(&format!("{} run {}", bin.display(), path.display()));
    program.wait_for("running: ", STARTED);
    let mut room = [0; 16];
    for (own, port, passes) in
        [(500, 500, true), (4500, 4500, true), (4500, 61_234, true), (4501, 61_235, false)]
    {
        let (own, peer) = (format!("192.0.2.1:{own}"), format!("192.0.2.2:{port}"));
        let (here, there) = (gateway.udp(&own), outside.udp(&peer));
        let mut passed = |from: &UdpSocket, address: &str, to: &UdpSocket| {
            let tries = if passes { 50 } else { 3 };
            (0..tries).any(|_| {
                from.send_to(&[0, 0, 0, 0, 7], address).expect("a datagram is sent");
                to.recv(&mut room).is_ok()
            })
        };
        assert_eq!(passed(&there, &own, &here), passes, "{peer} to {own}");
        assert_eq!(passed(&here, &peer, &there), passes, "{own} to {peer}");
    }
    program.stop(Stop::Terminate, SOON);
}

/// One end of a tunnel in UDP: `own` to `peer`, `inside` to `other`.
fn end(scratch: &Scratch, own: &str, peer: &str, (inside, other): (u8, u8), via: &str) -> PathBuf {
    let spi = |from: u8| 0x1000 * u32::from(from) + 1;
    let association = |direction: &str, number: u8, source: &str, destination: &str| {
        let key = private(scratch, &format!("{number}.key"), &format!("{number}a").repeat(20));
        format!(
            "[[sa]]\ndirection = \"{direction}\"\nspi = {}\nsource = \"{source}\"\ndestination = \"{destination}\"\n\
             reqid = 1\nkey_file = \"{key}\"\nudp = true\n",
            spi(number)
        )
    };
    let both = association("out", inside, own, peer) + &association("in", other, peer, own);
    scratch.write(
        "gateway.toml",
        &format!(
            "mode = \"router\"\n[system]\nsocket = \"{}\"\n\
             [port.inside]\nbackend = \"af_packet\"\naddresses = [\"10.0.{inside}.1/24\"]\n\
             [port.outside]\nbackend = \"af_packet\"\naddresses = [\"{own}/24\"]\n\
             [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"{via}\"\n{both}\
             [[policy]]\naction = \"protect\"\nreqid = 1\nsource = \"10.0.{inside}.0/24\"\n\
             destination = \"10.0.{other}.0/24\"\n",
            scratch.join("ctl.sock").display()
        ),
    )
}

/// A peer behind Linux's address translation, which changes its address.
#[test]
fn a_peer_behind_translation_is_followed() {
    let (true, Some(bin), Some(_)) =
        (testkit::require_namespaces(), testkit::shadeline_bin(), testkit::require_tool("nft"))
    else {
        return;
    };
    let nets = [(); 5].map(|()| Netns::new("ipsec"));
    let [left, one, translator, two, right] = &nets;
    veth((left, "eth0", mac::LEFT), (one, "inside", mac::ROUTER_LEFT), 1500);
    veth((one, "outside", "02:00:00:00:03:01"), (translator, "out", "02:00:00:00:03:02"), 1500);
    veth((two, "outside", "02:00:00:00:04:01"), (translator, "in", "02:00:00:00:04:02"), 1500);
    veth((right, "eth0", mac::RIGHT), (two, "inside", mac::ROUTER_RIGHT), 1500);
    for (host, number) in [(left, 1), (right, 2)] {
        host.address("eth0", &format!("10.0.{number}.2/24"));
        host.ip(&format!("route add default via 10.0.{number}.1"));
    }
    translator.address("out", "192.0.2.3/24");
    translator.address("in", "172.16.0.1/24");
    translator.sysctl("net.ipv4.ip_forward", "1");
    let rules = translator.try_run(
        "nft add table ip n; add chain ip n post { type nat hook postrouting priority 100; }; \
         add rule ip n post oifname out masquerade",
    );
    if !rules.status.success() {
        testkit::skip("this kernel translates no addresses");
        return;
    }
    let scratches = [Scratch::new(), Scratch::new()];
    let (first, second) = ("192.0.2.1", "172.16.0.2");
    // That which is not translated knows an address where nobody is.
    let configs = [
        end(&scratches[0], first, "192.0.2.99", (1, 2), "192.0.2.3"),
        end(&scratches[1], second, first, (2, 1), "172.16.0.1"),
    ];
    let mut programs = [(one, &configs[0]), (two, &configs[1])].map(|(net, config)| {
        let mut program = net.spawn(&format!("{} run {}", bin.display(), config.display()));
        program.wait_for("running: ", STARTED);
        program
    });
    assert!(wait_until(SOON, || ping(right, "10.0.1.2", 1) == 1), "{}", programs[0].output());
    // The other way, too: it is known by now.
    assert_eq!(answered(left, "10.0.2.2", 5), 5);
    assert!(programs[0].output().contains("has moved to 192.0.2.3"), "{}", programs[0].output());

    translator.ip("address del 192.0.2.3/24 dev out");
    translator.address("out", "192.0.2.4/24");
    assert!(wait_until(SOON, || ping(right, "10.0.1.2", 1) == 1), "{}", programs[0].output());
    assert_eq!(answered(left, "10.0.2.2", 5), 5);
    assert!(programs[0].output().contains("has moved to 192.0.2.4"), "{}", programs[0].output());
    for program in &mut programs {
        let (status, output) = program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{status}\n{output}");
    }
}

/// A router of Linux between two gateways, whose next link is narrower: its error is about ESP in UDP, and is for the gateway.
#[test]
fn a_narrow_link_on_the_way_is_learned() {
    let (true, Some(bin)) = (testkit::require_namespaces(), testkit::shadeline_bin()) else {
        return;
    };
    let nets = [(); 5].map(|()| Netns::new("ipsec"));
    let [left, one, middle, two, right] = &nets;
    veth((left, "eth0", mac::LEFT), (one, "inside", mac::ROUTER_LEFT), 1500);
    veth((one, "outside", "02:00:00:00:03:01"), (middle, "wide", "02:00:00:00:03:02"), 1500);
    veth((two, "outside", "02:00:00:00:04:01"), (middle, "narrow", "02:00:00:00:04:02"), 1300);
    veth((right, "eth0", mac::RIGHT), (two, "inside", mac::ROUTER_RIGHT), 1500);
    for (host, number) in [(left, 1), (right, 2)] {
        host.address("eth0", &format!("10.0.{number}.2/24"));
        host.ip(&format!("route add default via 10.0.{number}.1"));
    }
    middle.address("wide", "192.0.2.3/24");
    middle.address("narrow", "172.16.0.1/24");
    middle.sysctl("net.ipv4.ip_forward", "1");
    let scratches = [Scratch::new(), Scratch::new()];
    let (first, second) = ("192.0.2.1", "172.16.0.2");
    let configs = [
        end(&scratches[0], first, second, (1, 2), "192.0.2.3"),
        end(&scratches[1], second, first, (2, 1), "172.16.0.1"),
    ];
    let mut programs = [(one, &configs[0]), (two, &configs[1])].map(|(net, config)| {
        let mut program = net.spawn(&format!("{} run {}", bin.display(), config.display()));
        program.wait_for("running: ", STARTED);
        program
    });
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1), "{}", programs[0].output());
    let sent = |size: u16| {
        let said = left.try_run(&format!("ping -c 1 -W 1 -M do -s {size} 10.0.2.2"));
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    // The first one is lost; what comes then is answered with the longest that fits 1,300 bytes with UDP and AES-GCM.
    assert!(wait_until(SOON, || sent(1300).contains("mtu")), "{}", programs[0].output());
    assert!(programs[0].output().contains("path MTU of association 0x1001"));
    let shown = ctl(&bin, &scratches[0], "show sa --json").1;
    assert!(shown.contains("\"path_mtu\": 1300") || shown.contains("\"path_mtu\":1300"), "{shown}");
    // The host knows it by now, and packets of this length pass.
    assert_eq!(left.try_run("ping -c 3 -W 2 -M dont -s 1400 10.0.2.2").status.code(), Some(0));
    let known = left.run("ip route get 10.0.2.2");
    assert!(known.contains("mtu 1238"), "{known}");
    assert!(sent(1238 - 28).contains("1 received"), "{}", programs[0].output());
    for program in &mut programs {
        let (status, output) = program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{status}\n{output}");
    }
}

/// A gateway with two workers and two ports inside: what one of them receives the other one seals, and no number is sent twice.
#[test]
fn one_worker_seals_what_others_receive() {
    let (true, Some(bin)) = (testkit::require_namespaces(), testkit::shadeline_bin()) else {
        return;
    };
    let nets = [(); 5].map(|()| Netns::new("ipsec"));
    let [west, east, one, two, right] = &nets;
    veth((west, "eth0", mac::LEFT), (one, "west", mac::ROUTER_LEFT), 1500);
    veth((east, "eth0", "02:00:00:00:05:01"), (one, "east", "02:00:00:00:05:02"), 1500);
    veth((one, "outside", "02:00:00:00:03:01"), (two, "outside", "02:00:00:00:03:02"), 1500);
    veth((right, "eth0", mac::RIGHT), (two, "inside", mac::ROUTER_RIGHT), 1500);
    for (host, number) in [(west, 1), (right, 2), (east, 3)] {
        host.address("eth0", &format!("10.0.{number}.2/24"));
        host.ip(&format!("route add default via 10.0.{number}.1"));
    }
    let scratches = [Scratch::new(), Scratch::new()];
    let file = |own: u8,
                scratch: &Scratch,
                workers: u8,
                ports: &str,
                inside: [u8; 2],
                to: [u8; 2]| {
        let key = private(scratch, "all.key", &"5a".repeat(20));
        let all = [(1, 4097), (2, 8193)].map(|(from, spi)| association(own, from, spi, &key));
        let mut text = format!(
            "mode = \"router\"\n[system]\nworkers = {workers}\nsocket = \"{}\"\n[ipsec]\nworkers = \"one\"\n{ports}\
             [port.outside]\nbackend = \"af_packet\"\naddresses = [\"192.0.2.{own}/24\"]\n{}",
            scratch.join("ctl.sock").display(),
            all.concat()
        );
        for (inside, to) in inside.into_iter().zip(to) {
            text += &format!(
                "[[policy]]\naction = \"protect\"\nreqid = 1\nsource = \"10.0.{inside}.0/24\"\ndestination = \"10.0.{to}.0/24\"\n"
            );
            if own == 1 && inside == 3 {
                continue;
            }
            text +=
                &format!("[[route]]\nprefix = \"10.0.{to}.0/24\"\nvia = \"192.0.2.{}\"\n", 3 - own);
        }
        scratch.write("gateway.toml", &text)
    };
    let port = |name: &str, number: u8| {
        format!("[port.{name}]\nbackend = \"af_packet\"\naddresses = [\"10.0.{number}.1/24\"]\n")
    };
    let inside = port("west", 1) + &port("east", 3);
    let configs = [
        file(1, &scratches[0], 2, &inside, [1, 3], [2, 2]),
        file(2, &scratches[1], 1, &port("inside", 2), [2, 2], [1, 3]),
    ];
    let mut programs = [(one, &configs[0]), (two, &configs[1])].map(|(net, config)| {
        let mut program = net.spawn(&format!("{} run {}", bin.display(), config.display()));
        program.wait_for("running: ", STARTED);
        program
    });
    for host in [west, east] {
        assert!(wait_until(SOON, || ping(host, "10.0.2.2", 1) == 1), "{}", programs[0].output());
    }
    // Several flows: workers are chosen by their hashes.
    let others = 3..=9;
    others.clone().for_each(|own| right.address("eth0", &format!("10.0.2.{own}/24")));
    let pings = others.flat_map(|own| [west, east].map(|host| (host, own)));
    let pings: Vec<_> = pings
        .map(|(host, own)| host.spawn(&format!("ping -i 0.02 -c 50 -W 2 -q 10.0.2.{own}")))
        .collect();
    for mut own in pings {
        let (_, text) = own.wait(SOON);
        assert!(text.contains(" 0% packet loss"), "{text}");
    }
    let sa = |at: usize, spi: u64| {
        let text = ctl(&bin, &scratches[at], "show sa --json").1;
        let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let rows = all.as_array().or_else(|| all["sa"].as_array()).expect("rows");
        rows.iter().find(|own| own["spi"] == spi).expect("an association").clone()
    };
    let (sent, heard) = (sa(0, 4097), sa(1, 4097));
    assert!(sent["packets"].as_u64() >= Some(702) && sent["worker"].is_u64(), "{sent}");
    // Numbers begin with 1: as many as packets, and the other end has accepted each.
    assert_eq!(sent["number"].as_u64(), sent["packets"].as_u64().map(|own| own + 1));
    assert_eq!((&heard["packets"], &heard["replayed"]), (&sent["packets"], &serde_json::json!(0)));
    let runtime = ctl(&bin, &scratches[0], "show runtime --json").1;
    let handed = runtime.split("\"packets_handed_over\":").skip(1).any(|own| {
        let digits: String = own.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().is_ok_and(|own| own >= 50)
    });
    assert!(handed, "{runtime}");
    for program in &mut programs {
        let (status, output) = program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{status}\n{output}");
    }
}

/// Keeps an ESP packet that comes to a gateway.
const KEEP: &str = "import socket, sys\n\
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind(('outside', 0)); s.settimeout(9)\n\
    print('listens', flush=True)\n\
    while True:\n\
    \x20 frame = s.recv(2000)\n\
    \x20 if frame[23] == 17 and frame[42:46] == bytes([0, 0, 32, 1]): break\n\
    open(sys.argv[1], 'wb').write(frame)\n";

/// Sends it again: as it is, with a number that was not sent, with an index that nobody has.
const AGAIN: &str = "import socket, sys\n\
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('outside', 0)); frame = open(sys.argv[1], 'rb').read()\n\
    number = int.from_bytes(frame[46:50], 'big') + 40\n\
    s.send(frame)\n\
    s.send(frame[:46] + number.to_bytes(4, 'big') + frame[50:])\n\
    s.send(frame[:42] + bytes([0, 0, 77, 77]) + frame[46:])\n";

/// Packets that are refused, and limits that are reached, are events; counts of each association are metrics.
#[test]
fn what_becomes_of_packets_and_associations_is_written() {
    let (true, Some(bin)) = (testkit::require_namespaces(), testkit::shadeline_bin()) else {
        return;
    };
    let nets = [(); 4].map(|()| Netns::new("ipsec"));
    let [left, one, two, right] = &nets;
    veth((left, "eth0", mac::LEFT), (one, "inside", mac::ROUTER_LEFT), 1500);
    veth((one, "outside", "02:00:00:00:03:01"), (two, "outside", "02:00:00:00:03:02"), 1500);
    veth((right, "eth0", mac::RIGHT), (two, "inside", mac::ROUTER_RIGHT), 1500);
    for (host, number) in [(left, 1), (right, 2)] {
        host.address("eth0", &format!("10.0.{number}.2/24"));
        host.ip(&format!("route add default via 10.0.{number}.1"));
    }
    let scratches = [Scratch::new(), Scratch::new()];
    let mut programs = [(1, one), (2, two)].map(|(own, net)| {
        let scratch = &scratches[usize::from(own) - 1];
        let key = private(scratch, "first.key", &"5a".repeat(20));
        // What the first gateway sends has limits.
        let text = config(scratch, own, &key)
            .replacen("[system]\n", "[system]\nmetrics = \"127.0.0.1:9333\"\n", 1)
            .replacen(
                "[[sa]]\n",
                "[[sa]]\nsoft_packets = 30\nhard_packets = 60\n",
                usize::from(own == 1),
            );
        let path = scratch.write("gateway.toml", &text);
        let mut program = net.spawn(&format!("{} run {}", bin.display(), path.display()));
        program.wait_for("running: ", STARTED);
        program
    });
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1), "{}", programs[0].output());
    let [keep, again] = [("keep.py", KEEP), ("again.py", AGAIN)].map(|(name, text)| {
        let script = scratches[1].write(name, text);
        format!("python3 {} {}", script.display(), scratches[1].join("frame").display())
    });
    let mut keep = one.spawn(&keep);
    keep.wait_for("listens", SOON);
    assert_eq!(ping(left, "10.0.2.2", 1), 1);
    let (status, said) = keep.wait(SOON);
    assert!(status.success(), "{said}");
    two.run(&again);
    let events = || std::fs::read_to_string(scratches[0].join("eve.json")).unwrap_or_default();
    let of = |name: &str| -> Vec<serde_json::Value> {
        let events = events();
        let all = events.lines().filter_map(|line| serde_json::from_str(line).ok());
        all.filter(|own: &serde_json::Value| own["ipsec"]["event"] == name).collect()
    };
    for (name, spi) in [("replayed", 0x2001), ("forged", 0x2001), ("unknown_spi", 77 * 257)] {
        assert!(wait_until(SOON, || of(name).len() == 1), "{name}: {}", events());
        assert_eq!(of(name)[0]["ipsec"]["spi"], spi, "{name}: {}", events());
    }
    let fetch = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:9333/metrics').read().decode())\"";
    let metrics = one.shell(fetch);
    let value = |name: &str| {
        let labels =
            "{spi=\"0x2001\",destination=\"192.0.2.1\",direction=\"in\",reqid=\"1\",if_id=\"0\"}";
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(&format!("shadeline_{name}{labels} ")));
        line.and_then(|own| own.parse::<u64>().ok())
    };
    assert_eq!(value("ipsec_sa_replayed_total"), Some(1), "{metrics}");
    assert_eq!(value("ipsec_sa_forged_total"), Some(1), "{metrics}");
    assert!(value("ipsec_sa_packets_total") >= Some(2), "{metrics}");
    // A limit is said once; the hard one ends the association.
    for _ in 0..70 {
        ping(left, "10.0.2.2", 1);
        if !of("hard").is_empty() {
            break;
        }
    }
    assert!(wait_until(SOON, || of("hard").len() == 1), "{}", events());
    assert_eq!((of("soft").len(), of("hard").len()), (1, 1), "{}", events());
    assert!(of("hard").iter().chain(&of("soft")).all(|own| own["ipsec"]["spi"] == 0x1001));
    for program in &mut programs {
        let (status, output) = program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{status}\n{output}");
    }
}

/// Datagrams that iperf3 sent, and how many of them the other side did not get.
fn datagrams(text: &str) -> (u64, u64) {
    let start = text.find('{').unwrap_or(0);
    let all: serde_json::Value = serde_json::from_str(&text[start..]).expect(text);
    let sum = &all["end"]["sum"];
    (sum["packets"].as_u64().expect(text), sum["lost_packets"].as_u64().expect(text))
}

/// Keys change three times while iperf3 sends both ways: what one gateway seals the other one opens, and nothing is lost.
#[test]
fn keys_change_under_load_without_loss() {
    if !testkit::require_namespaces() || testkit::require_tool("iperf3").is_none() {
        return;
    }
    let nets = [(); 4].map(|()| Netns::new("ipsec"));
    let [left, one, two, right] = nets;
    veth((&left, "eth0", mac::LEFT), (&one, "inside", mac::ROUTER_LEFT), 1500);
    veth((&one, "outside", "02:00:00:00:03:01"), (&two, "outside", "02:00:00:00:03:02"), 1500);
    veth((&right, "eth0", mac::RIGHT), (&two, "inside", mac::ROUTER_RIGHT), 1500);
    for (host, number) in [(&left, 1), (&right, 2)] {
        host.address("eth0", &format!("10.0.{number}.2/24"));
        host.ip(&format!("route add default via 10.0.{number}.1"));
    }
    let (Some(mut one), Some(mut two)) = (Site::start(1, one, left), Site::start(2, two, right))
    else {
        return;
    };
    assert!(wait_until(SOON, || ping(&one.host, "10.0.2.2", 1) == 1));
    let mut servers = [5201, 5202].map(|port| {
        let mut server = two.host.spawn(&format!("iperf3 -s -1 -p {port} --forceflush"));
        server.wait_for("Server listening", SOON);
        server
    });
    let mut clients = [(5201, ""), (5202, "-R")].map(|(port, way)| {
        let line = format!("iperf3 -c 10.0.2.2 -p {port} -u -b 20M -l 1200 -t 6 --json {way}");
        one.host.spawn(&line)
    });
    let add = |site: &Site, own: u8, from: u8, spi: u32| {
        let key = private(&site.scratch, &format!("{spi}.key"), &format!("{spi:08x}").repeat(5));
        let (direction, to) = (if own == from { "out" } else { "in" }, 3 - from);
        site.ctl(&format!(
            "sa add direction {direction} spi {spi} source 192.0.2.{from} destination 192.0.2.{to} reqid 1 \
             --key-file {key} --udp"
        ));
    };
    let pause = || std::thread::sleep(std::time::Duration::from_millis(500));
    for round in 0..3 {
        pause();
        let (there, back) = (4098 + round, 8194 + round);
        // Both ends know the keys before anybody sends by them.
        add(&two, 2, 1, there);
        add(&one, 1, 2, back);
        add(&one, 1, 1, there);
        add(&two, 2, 2, back);
        pause();
        for site in [&one, &two] {
            site.ctl(&format!("sa del spi {} destination 192.0.2.2", there - 1));
            site.ctl(&format!("sa del spi {} destination 192.0.2.1", back - 1));
        }
    }
    let mut lost_all = 0;
    for client in &mut clients {
        let (status, text) = client.wait(SOON);
        assert!(status.success(), "{text}");
        let (sent, lost) = datagrams(&text);
        assert!(sent > 10_000, "{text}");
        lost_all += lost;
    }
    servers.iter_mut().for_each(|server| drop(server.wait(SOON)));
    // Linux of the hosts loses datagrams if iperf3 does not get its CPU in time, and counts them.
    let full = [&one.host, &two.host].map(|host| {
        let snmp = host.run("cat /proc/net/snmp");
        let udp = snmp.lines().rfind(|own| own.starts_with("Udp:")).expect(&snmp);
        udp.split(' ').nth(5).and_then(|own| own.parse::<u64>().ok()).expect(&snmp)
    });
    assert!(lost_all <= full.iter().sum(), "{lost_all} were lost, {full:?} at full sockets");
    let counts = [&mut one, &mut two].map(|site| {
        let (status, output) = site.program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{status}\n{output}");
        // Names of stages are there, too.
        let is_ours = |own: &&str| {
            let name = own.split(' ').next().unwrap_or_default();
            let is_stage = ["esp_in", "esp_out"].contains(&name);
            !is_stage && ["esp_", "sa_", "policy_"].iter().any(|begin| name.starts_with(begin))
        };
        assert_eq!(output.lines().find(is_ours), None, "{output}");
        let line = output.lines().find(|line| line.contains(" packets opened (")).expect(&output);
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
        let counts = line.split("IPsec: ").nth(1).expect(line).split(" packets opened (");
        let sealed = line.split("), ").nth(1).expect(line).split(" sealed (").next();
        [counts.clone().next(), sealed].map(|own| digits(own.expect(line)))
    });
    let [[opened_one, sealed_one], [opened_two, sealed_two]] = counts;
    assert_eq!((opened_one, opened_two), (sealed_two, sealed_one));
}
