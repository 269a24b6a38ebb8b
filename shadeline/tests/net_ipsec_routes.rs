//! Route-based tunnels between two gateways, live: routes choose the tunnel.
//!
//! ```text
//!  10.0.1.2 ── inside ▷ one ▷ outside ── 192.0.2.0/24 ── outside ▷ two ▷ inside ── 10.0.2.2
//!                      first, second: tunnel interfaces with twins sl-first, sl-second
//! ```

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::{SOON, STARTED, ctl, ping};
use testkit::netns::{Netns, mac, veth};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

struct Site {
    scratch: Scratch,
    net: Netns,
    program: Process,
    bin: PathBuf,
    host: Netns,
}

/// The SPI of what gateway `from` sends by tunnel `tunnel`.
fn spi(from: u8, tunnel: u8) -> u32 {
    u32::from(from) * 0x1000 + u32::from(tunnel)
}

fn config(scratch: &Scratch, own: u8) -> String {
    let other = 3 - own;
    let mut all = format!(
        "mode = \"router\"\n[system]\nsocket = \"{}\"\n\
         [port.inside]\nbackend = \"af_packet\"\naddresses = [\"10.0.{own}.1/24\"]\n\
         [port.outside]\nbackend = \"af_packet\"\naddresses = [\"192.0.2.{own}/24\"]\n\
         [[route]]\nprefix = \"10.0.{other}.0/24\"\nvia = \"10.9.1.{other}\"\n",
        scratch.join("ctl.sock").display(),
    );
    for (tunnel, name) in [(1u8, "first"), (2, "second")] {
        all += &format!(
            "[port.{name}]\nbackend = \"ipsec\"\nif_id = {tunnel}\naddresses = [\"10.9.{tunnel}.{own}/24\"]\n\
             rpf = \"strict\"\n"
        );
        for (direction, from) in [("out", own), ("in", other)] {
            let key = scratch
                .write(&format!("{from}-{tunnel}.key"), &format!("{from}{tunnel}").repeat(20));
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("a file");
            let (to, spi, key) = (3 - from, spi(from, tunnel), key.display());
            all += &format!(
                "[[sa]]\ndirection = \"{direction}\"\nspi = {spi}\nsource = \"192.0.2.{from}\"\n\
                 destination = \"192.0.2.{to}\"\nreqid = 1\nif_id = {tunnel}\nkey_file = \"{key}\"\n"
            );
        }
    }
    all
}

impl Site {
    fn start(own: u8, net: Netns, host: Netns) -> Option<Self> {
        let bin = testkit::shadeline_bin()?;
        let scratch = Scratch::new();
        let path = scratch.write("gateway.toml", &config(&scratch, own));
        let mut program = net.spawn(&format!("{} run {}", bin.display(), path.display()));
        program.wait_for("running: ", STARTED);
        Some(Self { scratch, net, program, bin, host })
    }

    fn ctl(&self, args: &str) -> String {
        let (ok, text) = ctl(&self.bin, &self.scratch, args);
        assert!(ok, "ctl {args}: {text}");
        text
    }

    /// Packets of the association with this SPI.
    fn packets(&self, spi: u32) -> u64 {
        let all: serde_json::Value =
            serde_json::from_str(&self.ctl("show sa --json")).expect("JSON");
        let rows =
            all.as_array().or_else(|| all.as_object()?.values().find_map(|own| own.as_array()));
        let rows = rows.unwrap_or_else(|| panic!("{all}"));
        let own = rows.iter().find(|row| row["spi"] == spi).expect("the association");
        own["packets"].as_u64().expect("a number")
    }

    fn story(&self) -> String {
        format!("{}\n{}\n{}", self.ctl("show sa"), self.ctl("show drops"), self.program.output())
    }
}

#[test]
fn routes_choose_the_tunnel() {
    if !testkit::require_namespaces() {
        return;
    }
    let nets = [(); 4].map(|()| Netns::new("routes"));
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
    assert!(wait_until(SOON, || ping(&one.host, "10.0.2.2", 1) == 1), "{}", one.story());
    let before = [1, 2].map(|tunnel| one.packets(spi(1, tunnel)));
    assert_eq!(ping(&one.host, "10.0.2.2", 10), 10, "{}", one.story());
    let by = [1, 2].map(|tunnel| one.packets(spi(1, tunnel)));
    // Linux sends packets of its own by both twins.
    assert!(by[0] - before[0] >= 10 && by[1] - before[1] < 10, "{}", one.story());

    // What does not fit is told to the host.
    let said = one.host.try_run("ping -c 1 -W 2 -M do -s 1400 10.0.2.2");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("mtu = 1400") || said.contains("mtu=1400"), "{said}");

    // Linux itself, by the twins: both ends of a tunnel, with TTL 1.
    assert!(wait_until(SOON, || ping(&one.net, "10.9.2.2", 1) == 1), "{}", one.story());
    let said = one.net.try_run("ping -c 3 -i 0.1 -t 1 10.9.1.2");
    assert!(said.status.success(), "{}\n{}", one.story(), two.story());
    // A host behind the other end answers it, too.
    one.net.ip("route add 10.0.2.0/24 via 10.9.1.2 dev sl-first");
    assert_eq!(ping(&one.net, "10.0.2.2", 3), 3, "{}\n{}", one.story(), two.story());

    // A routing daemon's change moves the traffic. Strict checks need the way back to move, too.
    two.net.ip("route add 10.0.1.2/32 via 10.9.2.1 dev sl-second");
    one.net.ip("route add 10.0.2.2/32 via 10.9.2.2 dev sl-second");
    let moved = || {
        let before = [1, 2].map(|tunnel| one.packets(spi(1, tunnel)));
        let answered = ping(&one.host, "10.0.2.2", 5);
        let by = [1, 2].map(|tunnel| one.packets(spi(1, tunnel)));
        answered == 5 && by[0] - before[0] < 5 && by[1] - before[1] >= 5
    };
    assert!(wait_until(SOON, moved), "{}\n{}", one.story(), two.story());
    // What comes by the wrong tunnel is refused.
    two.net.ip("route del 10.0.1.2/32 via 10.9.2.1 dev sl-second");
    let refused =
        || ping(&one.host, "10.0.2.2", 1) == 0 && two.ctl("show drops").contains("reverse_path");
    assert!(wait_until(SOON, refused), "{}\n{}", one.story(), two.story());
    let interfaces = one.ctl("show interfaces");
    assert!(interfaces.contains("first"), "{interfaces}");

    // Without an association nothing leaves.
    one.net.ip("route del 10.0.2.2/32 via 10.9.2.2 dev sl-second");
    assert!(wait_until(SOON, || ping(&one.host, "10.0.2.2", 1) == 1), "{}", one.story());
    one.ctl(&format!("sa del spi {} destination 192.0.2.2", spi(1, 1)));
    assert_eq!(ping(&one.host, "10.0.2.2", 1), 0);
    assert!(one.ctl("show drops").contains("sa_missing"), "{}", one.story());
    for site in [&mut one, &mut two] {
        let (status, output) = site.program.stop(Stop::Terminate, SOON);
        assert!(status.success(), "{status}\n{output}");
    }
}
