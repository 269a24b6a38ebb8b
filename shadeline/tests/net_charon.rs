//! strongSwan's charon, as it is, steers a live gateway; the other end carries its packets itself.
//!
//! ```text
//!   host           left                                               right
//!   10.1.0.2 ──▶ inside ▷ gateway ▷ outside ──── 192.0.2.0/24 ──── eth0 ▷ charon, kernel-libipsec ▷ 10.2.0.1
//!                            │  ▲                  ESP in UDP 4500
//!                   IKE, twin│  │associations
//!                            ▼  │
//!                   charon, kernel-netlink ──▶ recorder, in the place of the kernel's XFRM
//! ```
//!
//! The kernel of a test machine may have no ESP: charon's NETLINK_XFRM sockets and those of the gateway lead to the recorder
//! (`testkit/shim/netlink_xfrm.c`), which answers and announces as the kernel does.

mod common;
#[allow(dead_code, reason = "the tests of `xfrm` use the rest")]
#[path = "../../crates/xfrm/tests/all/recorder.rs"]
mod recorder;

use std::time::Duration;

use common::{SOON, STARTED, answered, ctl, ping};
use recorder::Recorder;
use testkit::netns::{Netns, mac, veth};
use testkit::process::{Process, Stop};
use testkit::strongswan::{Charon, DataPath, Ends, Proof, Tunnel, require_strongswan, shim};
use testkit::translator::Translator;
use testkit::{Scratch, wait_until};
use xfrm::{Body, Message, group};

struct Bed {
    scratch: Scratch,
    bin: std::path::PathBuf,
    host: Netns,
    left: Charon,
    right: Charon,
    gateway: Process,
    ends: Ends,
    recorder: Recorder,
    /// Between both ends, with its namespace.
    translator: Option<(Translator, Netns)>,
}

impl Bed {
    fn start(tunnel: &Tunnel) -> Option<Bed> {
        Bed::with(tunnel, "192.0.2.2", "")
    }

    /// With `via` of the route to the inside of the other end, and more of a configuration.
    fn with(tunnel: &Tunnel, via: &str, more: &str) -> Option<Bed> {
        Bed::between(tunnel, via, more, false)
    }

    /// With an address translator before the right end, which has 198.51.100.2 behind it.
    fn behind_translator() -> Option<Bed> {
        let own = |own: &str, other: &str| [own.to_owned(), other.to_owned()];
        let addresses = [own("192.0.2.1", "%any"), own("198.51.100.2", "198.51.100.1")];
        Bed::between(&Tunnel { addresses, ..Tunnel::default() }, "192.0.2.2", "", true)
    }

    fn between(tunnel: &Tunnel, via: &str, more: &str, is_translated: bool) -> Option<Bed> {
        if !require_strongswan() {
            return None;
        }
        let bin = testkit::shadeline_bin()?;
        let scratch = Scratch::new();
        let shim = shim(scratch.path())?;
        let recorder = Recorder::start(scratch.path());
        let (host, left, right) = (Netns::new("swan"), Netns::new("swan"), Netns::new("swan"));
        veth((&host, "eth0", mac::LEFT), (&left, "inside", mac::ROUTER_LEFT), 1500);
        let outside = (&left, "outside", mac::ROUTER_RIGHT);
        let translator = is_translated.then(|| {
            let between = Netns::new("nat");
            veth((&between, "eth0", mac::RIGHT), outside, 1500);
            veth((&right, "eth0", mac::LEFT), (&between, "eth1", mac::ROUTER_LEFT), 1500);
            between.address("eth0", "192.0.2.2/24");
            between.address("eth1", "198.51.100.1/24");
            right.address("eth0", "198.51.100.2/24");
            let (inside, to) = ([198, 51, 100, 1].into(), [192, 0, 2, 1].into());
            (Translator::start(&between, inside, to), between)
        });
        if !is_translated {
            veth((&right, "eth0", mac::RIGHT), outside, 1500);
            right.address("eth0", "192.0.2.2/24");
        }
        host.address("eth0", "10.1.0.2/24");
        host.ip("route add default via 10.1.0.1");
        right.address("lo", "10.2.0.1/24");
        let config = format!(
            "mode = \"router\"\n[system]\nsocket = \"{}\"\n[ipsec]\nlinux = true\n\
             [port.inside]\nbackend = \"af_packet\"\naddresses = [\"10.1.0.1/24\"]\n\
             [port.outside]\nbackend = \"af_packet\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[route]]\nprefix = \"10.2.0.0/24\"\nvia = \"{via}\"\n{more}",
            scratch.join("ctl.sock").display()
        );
        let config = scratch.write("gateway.toml", &config);
        let socket = recorder.path.clone();
        let mut gateway = left.spawn(&format!(
            "env LD_PRELOAD={} NETLINK_XFRM_SOCKET={} {} run {}",
            shim.display(),
            socket.display(),
            bin.display(),
            config.display()
        ));
        gateway.wait_for("running: ", STARTED);
        let ends = Ends { left, right };
        let paths = [DataPath::Xfrm { shim, socket }, DataPath::Libipsec];
        let [left, right] = Charon::pair(&ends, paths, tunnel);
        Some(Bed { scratch, bin, host, left, right, gateway, ends, recorder, translator })
    }

    fn ctl(&self, args: &str) -> String {
        let (ok, text) = ctl(&self.bin, &self.scratch, args);
        assert!(ok, "ctl {args}: {text}");
        text
    }

    /// What went on, without keys.
    fn story(&self) -> String {
        let log = self.left.log();
        let lines = log.lines().filter(|line| !line.contains("[CHD]   "));
        let lines: Vec<_> = lines.collect();
        let last = lines.len().saturating_sub(60);
        let (sa, drops) = (self.ctl("show sa"), self.ctl("show drops"));
        format!("{}\n{sa}\n{drops}\n{}", lines[last..].join("\n"), self.gateway.output())
    }
}

/// The number in front of a word.
fn number(text: &str, word: &str) -> u32 {
    let front = text.split(word).next().unwrap_or_default().trim_end();
    let digits = front.rsplit(' ').next().unwrap_or_default().replace(',', "");
    digits.parse().unwrap_or_else(|_| panic!("{word}: {text}"))
}

#[test]
fn keys_change_without_loss() {
    let Some(mut bed) = Bed::start(&Tunnel::default()) else { return };
    bed.left.initiate();
    // New keys, asked for by either end, while packets flow.
    let mut pings = bed.host.spawn("ping -i 0.01 -c 400 -W 2 -q 10.2.0.1");
    for end in [&bed.left, &bed.right, &bed.left] {
        let before = bed.right.keys().len();
        end.swanctl(&["--rekey", "--child", "net"]);
        assert!(wait_until(SOON, || bed.right.keys().len() > before), "{}", bed.story());
    }
    let (_, text) = pings.wait(SOON);
    let received = number(&text, " received");
    // Only the last ones stay.
    let two = || bed.ctl("show sa --json").matches("\"spi\"").count() == 2;
    assert!(wait_until(SOON, two), "{}", bed.story());
    let story = bed.story();
    let (status, report) = bed.gateway.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{status}\n{report}");
    // The gateway has lost nothing. kernel-libipsec loses a packet now and then when its associations change.
    assert_eq!(number(&report, " sealed ("), 400, "{text}\n{story}\n{report}");
    assert_eq!(number(&report, " packets opened ("), received, "{text}\n{story}\n{report}");
    assert!(report.contains("no drops") && received >= 397, "{text}\n{story}\n{report}");
}

/// Both ends have certificates of one authority, and the gateway a cipher with HMAC.
#[test]
fn daemons_with_certificates_steer_the_gateway() {
    let esp = "aes256-sha256".to_owned();
    let tunnel = Tunnel { proof: Proof::Certificates, esp, ..Tunnel::default() };
    let Some(mut bed) = Bed::start(&tunnel) else { return };
    bed.left.initiate();
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    assert_eq!(answered(&bed.host, "10.2.0.1", 20), 20, "{}", bed.story());
    let shown = bed.ctl("show sa");
    assert!(shown.contains("AES-256-CBC") && shown.contains("SHA-256"), "{shown}");
    // They prove who they are once more.
    bed.left.swanctl(&["--rekey", "--ike", "net", "--reauth"]);
    let again = || bed.left.log().matches("authentication of '192.0.2.2' with").count() >= 2;
    assert!(wait_until(SOON, again), "{}", bed.story());
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    assert_eq!(answered(&bed.host, "10.2.0.1", 20), 20, "{}", bed.story());
    let (status, report) = bed.gateway.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{status}\n{report}");
}

/// Keys change three times while iperf3 sends datagrams. What the gateway got from the host it has sealed, and nothing was dropped;
/// what the other end misses, kernel-libipsec lost when its associations changed.
#[test]
fn keys_change_under_load() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    let Some(mut bed) = Bed::start(&Tunnel::default()) else { return };
    bed.left.initiate();
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    let mut server = bed.ends.right.spawn("iperf3 -s -1 -B 10.2.0.1 --forceflush");
    server.wait_for("Server listening", SOON);
    let mut client = bed.host.spawn("iperf3 -c 10.2.0.1 -u -b 8M -l 1200 -t 6 --json");
    for end in [&bed.left, &bed.right, &bed.left] {
        std::thread::sleep(Duration::from_secs(1));
        let before = bed.right.keys().len();
        end.swanctl(&["--rekey", "--child", "net"]);
        assert!(wait_until(SOON, || bed.right.keys().len() > before), "{}", bed.story());
    }
    let (status, text) = client.wait(SOON);
    assert!(status.success(), "{text}");
    server.wait(SOON);
    let from = text.find('{').unwrap_or(0);
    let all: serde_json::Value = serde_json::from_str(&text[from..]).expect(&text);
    let sum = &all["end"]["sum"];
    let (sent, lost) = (sum["packets"].as_u64().unwrap(), sum["lost_packets"].as_u64().unwrap());
    eprintln!("three changes of keys: kernel-libipsec lost {lost} of {sent} datagrams");
    let story = bed.story();
    let (status, report) = bed.gateway.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{status}\n{report}");
    assert!(report.contains("no drops"), "{story}\n{report}");
    assert!(u64::from(number(&report, " sealed (")) > sent, "{sent}\n{story}\n{report}");
    assert!(sent > 4500 && lost <= sent / 50, "{lost} of {sent}\n{story}\n{report}");
}

#[test]
fn charon_steers_the_gateway() {
    let Some(mut bed) = Bed::start(&Tunnel::default()) else { return };
    bed.left.initiate();
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    assert_eq!(ping(&bed.host, "10.2.0.1", 20), 20, "{}", bed.story());
    let shown = bed.ctl("show sa");
    assert!(shown.contains("tunnel udp") && shown.contains("AES-128-GCM-16"), "{shown}");
    let policies = bed.ctl("show policies");
    assert!(policies.contains("10.1.0.0/24 > 10.2.0.0/24"), "{policies}");

    // A bulk transfer.
    if testkit::require_tool("iperf3").is_some() {
        let mut server = bed.ends.right.spawn("iperf3 -s -1 -B 10.2.0.1 --forceflush");
        server.wait_for("Server listening", SOON);
        let text = bed.host.run("iperf3 -c 10.2.0.1 -n 8M");
        assert!(text.contains("receiver"), "{text}");
        server.wait(SOON);
    }

    // charon shows what the gateway has counted.
    let has_counts = || {
        let listed = bed.left.swanctl(&["--list-sas"]);
        listed.lines().any(|line| line.trim().starts_with("out ") && !line.contains(" 0 packets"))
    };
    assert!(wait_until(SOON, has_counts), "{}", bed.left.swanctl(&["--list-sas"]));

    // charon takes everything away when it ends.
    bed.left.stop();
    let none = || bed.ctl("show sa").contains("no associations");
    assert!(wait_until(SOON, none), "{}", bed.story());
    let (status, output) = bed.gateway.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{status}\n{output}");
}

/// charon gives associations and policies an interface number: they are those of the tunnel interface that routes lead to.
#[test]
fn an_interface_number_is_that_of_a_tunnel_interface() {
    let child = "if_id_in = 7\n      if_id_out = 7\n      start_action = trap".to_owned();
    let more = "[port.vpn]\nbackend = \"ipsec\"\nif_id = 7\nrpf = \"strict\"\ntwin = false\n";
    let tunnel = Tunnel { child, ..Tunnel::default() };
    let Some(bed) = Bed::with(&tunnel, "vpn", more) else { return };
    let policies = || bed.ctl("show policies");
    let is_there = || policies().contains("10.1.0.0/24 > 10.2.0.0/24");
    assert!(wait_until(SOON, is_there), "{}", policies());
    // The first packet makes charon begin.
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    assert_eq!(ping(&bed.host, "10.2.0.1", 20), 20, "{}", bed.story());
    let shown = bed.ctl("show sa --json");
    assert_eq!(
        shown.matches("\"if_id\": 7").count() + shown.matches("\"if_id\":7").count(),
        2,
        "{shown}"
    );
}

#[test]
fn a_packet_without_an_association_makes_charon_begin() {
    let child = "start_action = trap".to_owned();
    let Some(bed) = Bed::start(&Tunnel { child, ..Tunnel::default() }) else { return };
    let policies = || bed.ctl("show policies");
    assert!(
        wait_until(SOON, || policies().contains("10.1.0.0/24 > 10.2.0.0/24")),
        "{}",
        policies()
    );
    assert!(bed.ctl("show sa").contains("no associations"));
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    let drops = bed.ctl("show drops");
    assert!(drops.contains("sa_missing"), "{drops}");
}

/// The other end gets another address and says so by IKE (MOBIKE, RFC 4555), while packets flow. What is sent to the old address
/// until both daemons have agreed is lost; then nothing is.
#[test]
fn a_peer_with_another_address_takes_its_tunnel_along() {
    let mut tunnel = Tunnel { mobike: true, ..Tunnel::default() };
    tunnel.addresses[1][0] = "%any".to_owned();
    let Some(mut bed) = Bed::start(&tunnel) else { return };
    bed.left.initiate();
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    let right = &bed.ends.right;
    right.sysctl("net.ipv4.conf.eth0.promote_secondaries", "1");
    right.address("eth0", "192.0.2.3/24");
    let mut pings = bed.host.spawn("ping -i 0.01 -c 600 -W 2 -q 10.2.0.1");
    std::thread::sleep(Duration::from_secs(1));
    right.ip("addr del 192.0.2.2/24 dev eth0");
    let is_there = || {
        let all = bed.ctl("show sa");
        let (old, new) = (all.contains("192.0.2.2 "), all.matches("192.0.2.3 ").count());
        !old && new == 2
    };
    assert!(wait_until(SOON, is_there), "{}", bed.story());
    let (_, text) = pings.wait(SOON);
    let received = number(&text, " received");
    eprintln!("moved by MOBIKE: {received} of 600 pings, 100 a second, were answered");
    // An outage of two seconds at most.
    assert!(received >= 400, "{text}\n{}", bed.story());
    assert_eq!(ping(&bed.host, "10.2.0.1", 50), 50, "{}", bed.story());
    let (status, report) = bed.gateway.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{status}\n{report}");
}

/// An address translator gives the other end another port. The gateway sends to it from the first packet on that comes from there,
/// and announces that as the kernel does; charon believes it, since it cannot see who announces it, and moves its associations.
#[test]
fn a_peer_with_another_port_is_followed_and_announced() {
    let Some(mut bed) = Bed::behind_translator() else { return };
    bed.right.initiate();
    assert!(wait_until(SOON, || ping(&bed.host, "10.2.0.1", 1) == 1), "{}", bed.story());
    let (translator, _) = bed.translator.as_ref().unwrap();
    let before = translator.ports()[1];
    // From both sides: what the gateway sends is lost until something comes from the new port.
    let mut there = bed.host.spawn("ping -i 0.01 -c 400 -W 2 -q 10.2.0.1");
    let mut back = bed.ends.right.spawn("ping -i 0.01 -c 400 -W 2 -q -I 10.2.0.1 10.1.0.2");
    std::thread::sleep(Duration::from_secs(1));
    translator.rebind();
    let after = translator.ports()[1];
    let received = [&mut there, &mut back].map(|own| number(&own.wait(SOON).1, " received"));
    eprintln!(
        "moved from port {before} to {after}: {received:?} of 400 pings, 100 a second, were answered"
    );
    assert!(received.iter().all(|own| *own >= 390), "{received:?}\n{}", bed.story());
    // The kernel's form, in its group.
    let is_new = |(groups, message): &(u32, Message)| match &message.body {
        Body::Mapping(own) => {
            *groups == 1 << (group::MAPPING - 1)
                && own.old_sport.0 == before
                && own.new_sport.0 == after
        }
        _ => false,
    };
    let announced = bed.recorder.announced();
    assert!(announced.iter().any(is_new), "{announced:?}");
    let has_heard = || bed.left.log().contains("received a XFRM_MSG_MAPPING");
    assert!(wait_until(SOON, has_heard), "{}", bed.story());
    let is_there = || bed.left.swanctl(&["--list-sas"]).contains(&format!("192.0.2.2[{after}]"));
    assert!(wait_until(SOON, is_there), "{}\n{}", bed.left.swanctl(&["--list-sas"]), bed.story());
    assert_eq!(ping(&bed.host, "10.2.0.1", 50), 50, "{}", bed.story());
    let (status, report) = bed.gateway.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{status}\n{report}");
}
