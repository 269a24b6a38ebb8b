//! Network interfaces as Linux has them: segments that AF_XDP cannot carry, interfaces that are deleted and made again,
//! frames with two tags, numbers of queues.

mod common;

use std::time::{Duration, Instant};

use common::{BACKENDS, Live, SOON, STARTED, config, ping};
use testkit::netns::{Offloads, Topology, mac, veth};
use testkit::{Scratch, wait_until};

/// Both ports as the usual configuration has them, `right` by AF_XDP in this mode.
fn with_xdp(scratch: &Scratch, left: &str, mode: &str, more: &str) -> String {
    let text = config(scratch, left, more);
    let own = format!("backend = \"af_xdp\"\nxdp = \"{mode}\"");
    let (first, right) = text.split_once("[port.right]\n").expect("a port");
    let right = right.split_once('\n').expect("a back end").1;
    format!("{first}[port.right]\n{own}\n{right}")
}

/// Two instances that receive the same packets would forward each of them twice. Another network namespace has other
/// interfaces, whatever their names and numbers.
#[test]
fn an_interface_has_one_instance() {
    use testkit::process::Stop;
    let text = |scratch: &Scratch| config(scratch, "af_packet", "");
    let Some(mut live) = live("twice", Offloads::Off, |_| {}, text) else { return };
    let Some(other) = Live::start("twice", "af_packet", "") else { return };
    drop(other);
    let scratch = Scratch::new();
    let second = "mode = \"wire\"\n[system]\nworkers = 1\nsocket = \"SOCKET\"\n\
                  [port.a]\ninterface = \"right\"\nbackend = \"BACKEND\"\n\
                  [port.b]\nbackend = \"memory\"\n";
    let second = second.replace("SOCKET", &scratch.join("ctl.sock").display().to_string());
    let run = |backend: &str| {
        let file = scratch.write("second.toml", &second.replace("BACKEND", backend));
        live.net.router.spawn(&format!("{} run {}", live.bin.display(), file.display()))
    };
    let expected = format!("right: another instance (pid {}) uses the interface", live.router.id());
    for backend in BACKENDS {
        let (status, said) = run(backend).wait(SOON);
        assert!(!status.success() && said.contains(&expected), "{backend}: {said}");
    }
    assert!(wait_until(SOON, || ping(&live.net.left, "10.0.2.2", 1) == 1));
    // Nor by a reload.
    let free = second.replace("right", "lo").replace("BACKEND", "memory");
    let file = scratch.write("second.toml", &free.replace("interface = \"lo\"\n", ""));
    let command = format!("{} run {}", live.bin.display(), file.display());
    let mut reloaded = live.net.router.spawn(&command);
    reloaded.wait_for("running: ", STARTED);
    scratch.write("second.toml", &second.replace("BACKEND", "af_packet"));
    let (good, said) = common::ctl(&live.bin, &scratch, "reload");
    assert!(!good && said.contains(&expected), "{said}");
    // It is free as soon as the first one has ended, however that was.
    live.router.signal(Stop::Kill);
    live.router.wait(SOON);
    let (good, said) = common::ctl(&live.bin, &scratch, "reload");
    assert!(good, "{said}");
    let (status, said) = reloaded.stop(Stop::Terminate, SOON);
    assert!(status.success(), "{said}");
}

/// A router with this configuration; `None`, and the test is skipped, where namespaces or the program are missing.
fn live(
    purpose: &str,
    offloads: Offloads,
    prepare: impl FnOnce(&Topology),
    text: impl FnOnce(&Scratch) -> String,
) -> Option<Live> {
    if !testkit::require_namespaces() {
        return None;
    }
    let bin = testkit::shadeline_bin()?;
    let net = Topology::with(purpose, 1500, 1500, offloads);
    prepare(&net);
    let scratch = Scratch::new();
    scratch.write("router.toml", &text(&scratch));
    let file = scratch.join("router.toml");
    let mut router = net.router.spawn(&format!("{} run {}", bin.display(), file.display()));
    router.wait_for("running: ", STARTED);
    Some(Live { net, router, scratch, bin })
}

/// Packets dropped under a reason so far.
fn dropped(live: &Live, reason: &str) -> u64 {
    live.drops().iter().find(|(name, _)| name == reason).map_or(0, |(_, packets)| *packets)
}

/// The cells of an interface's row.
fn row(live: &Live, name: &str) -> Vec<String> {
    let table = live.ctl("show interfaces");
    let is_own = |line: &&str| line.split_whitespace().any(|cell| cell == name);
    let row = table.lines().find(is_own).unwrap_or_default();
    row.split_whitespace().map(str::to_owned).collect()
}

/// Received bytes of an iperf3 run from the right host to the left one; 0 if it failed.
fn stream_bytes(live: &Live, to: &str, more: &str) -> u64 {
    let mut server = live.net.right.spawn("iperf3 -s -1 --forceflush");
    server.wait_for("listening", Duration::from_secs(10));
    let output = live.net.left.try_run(&format!("timeout 20 iperf3 -c {to} -R -J {more}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let bytes = text.split("\"sum_received\"").nth(1).and_then(|t| t.split("\"bytes\":").nth(1));
    let bytes = bytes.and_then(|t| t.split([',', '}']).next()?.trim().parse().ok());
    bytes.unwrap_or(0)
}

#[test]
fn segments_that_af_xdp_cannot_carry_are_named_and_counted() {
    if testkit::require_tool("iperf3").is_none() {
        return;
    }
    // With more transmit queues at the other end than there are receive queues, the driver takes no program.
    for (mode, queues, kind) in
        [("skb", 1, "skb"), ("auto", 2, "skb"), ("auto", 1, "native"), ("native", 1, "native")]
    {
        let prepare = |net: &Topology| {
            if queues > 1 {
                net.right.run(&format!("ethtool -L eth0 tx {queues}"));
            }
        };
        let text = |scratch: &Scratch| with_xdp(scratch, "af_packet", mode, "");
        let Some(mut live) = live("xdpgso", Offloads::Default, prepare, text) else { return };
        let what = format!("{mode}, {queues} queues");
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        let started = live.router.output();
        assert!(started.contains(&format!("port right: af_xdp {kind} ")), "{what}: {started}");
        for to in ["10.0.2.2", "fd00:2::2"] {
            stream_bytes(&live, to, "-t 2");
        }
        let (drops, said) = (live.drops(), live.router.output());
        let lost = dropped(&live, "rx_offload");
        let others = drops.iter().any(|(name, packets)| name != "rx_offload" && *packets > 0);
        assert!(!others, "{what}: {drops:?}");
        let line = "`ethtool -K INTERFACE tso off gso off tx-udp-segmentation off`";
        let told: Vec<_> =
            said.lines().filter(|l| l.contains("right: AF_XDP cannot carry")).collect();
        if kind == "skb" {
            assert!(lost > 0, "{what}: {drops:?}");
            assert!(told.len() == 1 && told[0].contains(line), "{what}: {said}");
            // As the log says.
            live.net.right.run(&line.trim_matches('`').replace("INTERFACE", "eth0"));
        } else {
            assert!(lost == 0 && told.is_empty(), "{what}: {drops:?} {said}");
        }
        for to in ["10.0.2.2", "fd00:2::2"] {
            let bytes = stream_bytes(&live, to, "-n 40M");
            assert!(bytes >= 30 << 20, "{what} {to}: {bytes} bytes, {:?}", live.drops());
        }
        assert_eq!(dropped(&live, "rx_offload"), lost, "{what}");
        live.stop();
    }
}

/// A host leaves the checksums of short packets open, too: they are right by whatever way these leave.
#[test]
fn open_checksums_are_right_wherever_packets_leave() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let exchange = |family: &str, kind: &str, to: &str, role: &str| {
        format!(
            "import socket\n\
             s = socket.socket(socket.AF_{family}, socket.SOCK_{kind}); s.settimeout(10)\n{}",
            match (role, kind) {
                ("server", "DGRAM") => format!(
                    "s.bind(('{to}', 9000)); print('ready', flush=True)\n\
                     d, a = s.recvfrom(999); s.sendto(d[::-1], a); print('done', d)\n"
                ),
                ("server", _) => format!(
                    "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
                     s.bind(('{to}', 9000)); s.listen(1); print('ready', flush=True)\n\
                     c, a = s.accept(); d = c.recv(999); c.sendall(d[::-1]); print('done', d)\n"
                ),
                _ => format!(
                    "s.connect(('{to}', 9000)); s.send(b'ask'); d = s.recv(999)\n\
                     assert d == b'ksa', d\n"
                ),
            }
        )
    };
    for (left, mode) in [("af_packet", "skb"), ("af_packet", "native"), ("af_xdp", "skb")] {
        let text = |scratch: &Scratch| {
            with_xdp(scratch, left, mode, "").replacen(
                "backend = \"af_xdp\"\naddr",
                "backend = \"af_xdp\"\nxdp = \"skb\"\naddr",
                1,
            )
        };
        let Some(mut live) = live("xdpsum", Offloads::Default, |_| {}, text) else { return };
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "fd00:2::2", 1) == 1));
        let (server, client) = (live.scratch.join("server.py"), live.scratch.join("client.py"));
        for (family, there, here) in
            [("INET", "10.0.2.2", "10.0.1.1"), ("INET6", "fd00:2::2", "fd00:1::1")]
        {
            for kind in ["DGRAM", "STREAM"] {
                // To the other host, and to the kernel behind the twin.
                for (to, host) in [(there, &live.net.right), (here, &live.net.router)] {
                    std::fs::write(&server, exchange(family, kind, to, "server")).expect("a file");
                    std::fs::write(&client, exchange(family, kind, to, "client")).expect("a file");
                    let mut serving = host.spawn(&format!("python3 {}", server.display()));
                    serving.wait_for("ready", Duration::from_secs(10));
                    live.net.left.run(&format!("python3 {}", client.display()));
                    let (status, said) = serving.wait(SOON);
                    assert!(status.success(), "{left} {mode} {to} {kind}: {said}");
                }
            }
        }
        live.stop();
    }
}

#[test]
fn an_interface_that_comes_back_is_opened_anew() {
    let more = "[port.\"right.7\"]\nparent = \"right\"\nvlan = 7\naddresses = [\"10.0.7.1/24\"]\n\
                twin = true\n";
    for backend in BACKENDS {
        let Some(mut live) = Live::start("again", backend, more) else { return };
        assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
        // Of this port nothing is lost all the time.
        let mut pings = live.net.left.spawn("ping -n -i 0.02 10.0.1.1");
        for round in 0..2 {
            let what = format!("{backend}, round {round}");
            live.net.right.ip("link del eth0");
            let gone = || row(&live, "right").iter().any(|cell| cell == "gone");
            assert!(wait_until(SOON, gone), "{what}: {}", live.ctl("show interfaces"));
            let before: u64 = live.drops().iter().map(|(_, packets)| packets).sum();
            let _ = live.net.left.try_run("ping -n -c 3 -i 0.05 -W 1 10.0.2.2");
            let after: u64 = live.drops().iter().map(|(_, packets)| packets).sum();
            assert!(after >= before + 3, "{what}: {:?}", live.drops());

            let (own, mtu) = (format!("02:00:00:00:02:1{round}"), 1400 + round * 50);
            let (inside, outside) = (&live.net.router, &live.net.right);
            veth((outside, "eth0", mac::RIGHT), (inside, "right", &own), mtu);
            outside.address("eth0", "10.0.2.2/24");
            outside.ip("route add default via 10.0.2.1");
            let answers = || ping(&live.net.left, "10.0.2.2", 1) == 1;
            let said = || format!("{}{}", live.ctl("show interfaces"), live.router.output());
            assert!(wait_until(Duration::from_secs(5), answers), "{what}: {}", said());
            for name in ["right", "right.7"] {
                let row = row(&live, name);
                for cell in [own.as_str(), &mtu.to_string(), "up"] {
                    assert!(row.iter().any(|own| own == cell), "{what}: {cell}: {}", said());
                }
                let twin = inside.ip(&format!("link show sl-{name}"));
                assert!(twin.contains(&own) && twin.contains(&format!("mtu {mtu} ")), "{twin}");
            }
            let line = format!("port right: opened on the new right, MAC {own}, MTU {mtu}");
            let log = live.router.output();
            assert_eq!(log.matches(&line).count(), 1, "{what}: {log}");
            assert_eq!(log.matches("port right: right is gone").count(), round as usize + 1);
            let steady = || ping(&live.net.left, "10.0.2.2", 20) == 20;
            assert!(wait_until(SOON, steady), "{what}: {:?}", live.drops());
        }
        // However it comes back: under another name first, moved away and back, or several times at once.
        let (inside, outside) = (&live.net.router, &live.net.right);
        let again = |name: &str| {
            inside.ip("link del right");
            veth((outside, "eth0", mac::RIGHT), (inside, name, mac::ROUTER_RIGHT), 1500);
            outside.address("eth0", "10.0.2.2/24");
            outside.ip("route add default via 10.0.2.1");
        };
        let answers = |way: &str| {
            let answers = || ping(&live.net.left, "10.0.2.2", 1) == 1;
            let said = || format!("{}{}", live.ctl("show interfaces"), live.router.output());
            assert!(wait_until(Duration::from_secs(5), answers), "{backend}, {way}: {}", said());
        };
        again("new");
        inside.ip("link set new down");
        inside.ip("link set new name right");
        answers("renamed");
        inside.ip(&format!("link set right netns {}", outside.name()));
        outside.ip(&format!("link set right netns {}", inside.name()));
        answers("moved");
        for pause in [0, 5, 50, 90, 110, 130, 200] {
            again("right");
            std::thread::sleep(Duration::from_millis(pause));
        }
        answers("again and again");
        assert!(live.ctl("reload").contains("nothing changed"));
        let (_, said) = pings.stop(testkit::process::Stop::Interrupt, SOON);
        let counts = said.lines().find(|line| line.contains("packets transmitted"));
        let mut counts = counts.unwrap_or_default().split(',');
        let mut count = || counts.next()?.split_whitespace().next()?.parse::<u32>().ok();
        let (sent, received) = (count().unwrap_or(0), count().unwrap_or(0));
        // The last one may be on its way.
        assert!(sent > 100 && received + 1 >= sent, "{backend}: {said}");
        live.stop();
        let links = live.net.router.ip("-o link");
        assert!(!links.contains(": sl-") && !links.contains("xdp"), "{backend}: {links}");
    }
}

/// The kernel grants a frame that it sends the bytes of one 802.1Q tag.
#[test]
fn the_mtu_with_two_tags_is_what_fits() {
    let more = "[port.qinq]\nparent = \"right\"\nvlan = [100, 9]\naddresses = [\"10.0.9.1/24\"]\n\
                twin = false\n[[neighbour]]\nport = \"qinq\"\naddress = \"10.0.9.2\"\n\
                mac = \"02:00:00:00:02:02\"\n";
    for (backend, fits) in BACKENDS.into_iter().zip([1492, 1496]) {
        let Some(mut live) = Live::start("qinq", backend, more) else { return };
        let left = &live.net.left;
        assert!(wait_until(Duration::from_secs(5), || ping(left, "10.0.2.2", 1) == 1));
        assert!(row(&live, "qinq").contains(&fits.to_string()), "{}", live.ctl("show interfaces"));
        let send = |packet: u32| {
            let size = packet - 28;
            let output =
                left.try_run(&format!("ping -n -M do -c 3 -i 0.05 -W 1 -s {size} 10.0.9.2"));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // The longest leaves and arrives.
        let (packets, bytes) = live.net.right.received("eth0");
        send(fits);
        let arrived = || {
            let now = live.net.right.received("eth0");
            now.0 >= packets + 3 && now.1 >= bytes + 3 * u64::from(fits)
        };
        assert!(wait_until(Duration::from_secs(3), arrived), "{backend}: {:?}", live.drops());
        // One byte more does not, and its sender hears of it.
        let said = send(fits + 1);
        assert!(said.contains(&format!("mtu = {fits}")), "{backend}: {said}");
        assert!(left.ip("route get 10.0.9.2").contains(&format!("mtu {fits}")), "{backend}");
        assert_eq!(dropped(&live, "tx_oversize"), 0, "{backend}: {:?}", live.drops());

        // One that is configured counts, and is spoken of.
        let forced = more.replace("twin = false\n[", "twin = false\nmtu = 1500\n[");
        live.scratch.write("router.toml", &config(&live.scratch, backend, &forced));
        live.ctl("reload");
        assert!(row(&live, "qinq").contains(&"1500".to_owned()));
        let warning = format!("port qinq: the interface sends packets of at most {fits} bytes");
        // What is in the log is read a little later.
        let is_said = |live: &Live| live.router.output().matches(&warning).count() == 1;
        assert!(wait_until(SOON, || is_said(&live)), "{backend}: {}", live.router.output());
        live.stop();
        live.restart();
        assert!(wait_until(SOON, || is_said(&live)), "{backend}: {}", live.router.output());
        live.stop();
    }
}

#[test]
fn the_number_of_queues_is_put_back() {
    let prepare = |net: &Topology| {
        net.router.run("ethtool -L right rx 2 tx 2");
        net.router.run("ethtool -L left rx 2 tx 2");
    };
    let text = |scratch: &Scratch, queues: u32| {
        let backend = format!("backend = \"af_xdp\"\nqueues = {queues}");
        config(scratch, "af_xdp", "").replace("backend = \"af_xdp\"", &backend)
    };
    let Some(mut live) = live("queues", Offloads::Off, prepare, |s| text(s, 1)) else { return };
    let queues = || {
        let said = live.net.router.run("ethtool -l right");
        let current = said.split("Current").nth(1).unwrap_or_default();
        let numbers = current.split_whitespace().filter_map(|word| word.parse().ok());
        numbers.collect::<Vec<u32>>()
    };
    assert_eq!(queues(), [1, 1]);
    assert!(wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1));
    // Sockets that are closed keep their queues for a moment.
    for round in 0..40 {
        let n = if round % 2 == 0 { 2 } else { 1 };
        live.scratch.write("router.toml", &text(&live.scratch, n));
        live.ctl("reload");
        assert_eq!(queues(), [n, n]);
    }
    live.net.router.ip("link set right up");
    let (status, said) = live.router.stop(testkit::process::Stop::Terminate, SOON);
    assert!(status.success(), "{said}");
    assert_eq!(queues(), [2, 2], "{said}");
}

/// Makes the interface `right` of the router and its other end anew. `prepare` sees it before it has its name.
fn replace_right(live: &Live, prepare: impl FnOnce()) {
    let (inside, outside) = (&live.net.router, &live.net.right);
    inside.ip("link del right");
    veth((outside, "eth0", mac::RIGHT), (inside, "new", mac::ROUTER_RIGHT), 1500);
    outside.address("eth0", "10.0.2.2/24");
    outside.ip("route add default via 10.0.2.1");
    prepare();
    rename(live, "new", "right");
}

fn rename(live: &Live, from: &str, to: &str) {
    let inside = &live.net.router;
    inside.ip(&format!("link set {from} down"));
    inside.ip(&format!("link set {from} name {to}"));
    inside.ip(&format!("link set {to} up"));
}

/// Until the log has this line so often.
fn wait_for_log(live: &Live, line: &str, times: usize) {
    let has = || live.router.output().matches(line).count() >= times;
    assert!(wait_until(SOON, has), "{line}: {}", live.router.output());
}

fn state(live: &Live, name: &str) -> String {
    let row = row(live, name);
    let is_state = |cell: &&String| ["up", "down", "gone"].contains(&cell.as_str());
    row.iter().find(is_state).cloned().unwrap_or_default()
}

fn answers(live: &Live) -> bool {
    wait_until(Duration::from_secs(5), || ping(&live.net.left, "10.0.2.2", 1) == 1)
}

#[test]
fn a_port_closed_by_a_refused_reload_is_down_until_it_opens() {
    for backend in BACKENDS {
        let Some(mut live) = Live::start("closed", backend, "") else { return };
        assert!(answers(&live));
        rename(&live, "right", "other");
        let text = config(&live.scratch, backend, "");
        // Of an interface that is there, what it cannot do is known once the port is closed.
        let wrong = text.replace("[port.right]\n", "[port.right]\ninterface = \"lo\"\n");
        live.scratch.write("router.toml", &wrong);
        let (ok, said) = live.try_ctl("reload");
        assert!(!ok && said.contains("right"), "{backend}: {said}");
        // What the interface does under its other name opens no queue.
        for state in ["down", "up"] {
            live.net.router.ip(&format!("link set other {state}"));
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_ne!(state(&live, "right"), "up", "{backend}: {}", live.router.output());
        rename(&live, "other", "right");
        assert!(answers(&live), "{backend}: {}", live.router.output());
        live.scratch.write("router.toml", &text);
        assert!(live.ctl("reload").contains("nothing changed"));
        let queues = live.ctl("show queues");
        assert!(queues.contains("right"), "{backend}: {queues}");
        live.stop();
    }
}

#[test]
fn a_port_that_could_not_be_opened_anew_is_opened_once() {
    let text = |scratch: &Scratch| with_xdp(scratch, "af_packet", "native", "");
    let Some(mut live) = live("once", Offloads::Off, |_| {}, text) else { return };
    assert!(answers(&live));
    let queues = |live: &Live| live.ctl("show queues").matches(" right ").count();
    let before = queues(&live);
    // With more transmit queues at the other end than there are receive queues, the driver takes no program.
    let odd = |queues: u32| live.net.right.run(&format!("ethtool -L eth0 tx {queues}"));
    let failed = "ERROR port right: ";
    replace_right(&live, || _ = odd(2));
    wait_for_log(&live, failed, 1);
    // It is tried again after 1 s and after 3 s.
    std::thread::sleep(Duration::from_millis(3800));
    let log = live.router.output();
    assert_eq!(log.matches(failed).count(), 1, "{log}");
    assert!(log.contains("; it is tried again") && !log.contains("stays closed"), "{log}");
    // A reload opens it, though nothing has changed in the file; until then a reload says why not.
    let said = live.ctl("reload");
    assert!(said.contains("warning: port right: ") && said.contains("nothing else"), "{said}");
    odd(1);
    let said = live.ctl("reload");
    assert!(said.contains("opened port right") && said.contains("nothing else"), "{said}");
    assert!(answers(&live), "{}", live.router.output());
    assert_eq!(queues(&live), before);

    // Another back end opens it: what was to be tried again is over.
    replace_right(&live, || _ = odd(2));
    wait_for_log(&live, failed, 2);
    live.scratch.write("router.toml", &config(&live.scratch, "af_packet", ""));
    live.ctl("reload");
    std::thread::sleep(Duration::from_millis(2000));
    let log = live.router.output();
    assert_eq!(log.matches("port right: af_packet").count(), 1, "{log}");
    assert!(!log.contains("opened on the new right"), "{log}");
    assert_eq!(queues(&live), before, "{}", live.ctl("show queues"));
    assert!(answers(&live));
    live.stop();
}

#[test]
fn an_interface_that_another_program_uses_blocks_no_request() {
    let text = |scratch: &Scratch| with_xdp(scratch, "af_packet", "skb", "");
    let Some(mut live) = live("taken", Offloads::Off, |_| {}, text) else { return };
    assert!(answers(&live));
    let (bin, scratch) = (live.bin.display().to_string(), Scratch::new());
    let other = format!(
        "mode = \"router\"\n[system]\nworkers = 1\nsocket = \"{}\"\n[port.new]\nbackend = \"af_xdp\"\n\
         xdp = \"skb\"\ntwin = false\n",
        scratch.join("ctl.sock").display()
    );
    scratch.write("other.toml", &other);
    let mut taker = None;
    replace_right(&live, || {
        let file = scratch.join("other.toml");
        let mut program = live.net.router.spawn(&format!("{bin} run {}", file.display()));
        program.wait_for("running: ", STARTED);
        taker = Some(program);
    });
    wait_for_log(&live, "ERROR port right: ", 1);
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    while begin.elapsed() < Duration::from_secs(4) {
        let asked = Instant::now();
        live.ctl("show interfaces");
        longest = longest.max(asked.elapsed());
    }
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let log = live.router.output();
    assert_eq!(log.matches("ERROR port right: ").count(), 1, "{log}");
    let mut taker = taker.expect("a program");
    taker.stop(testkit::process::Stop::Terminate, SOON);
    wait_for_log(&live, "opened on the new right", 1);
    assert!(answers(&live), "{}", live.router.output());
    live.stop();
}

#[test]
fn packets_for_a_closed_port_are_counted_as_such() {
    let text = |scratch: &Scratch| {
        format!(
            "mode = \"wire\"\n[system]\nworkers = 1\nsocket = \"{}\"\n[port.left]\nbackend = \"af_packet\"\n\
             [port.right]\nbackend = \"af_xdp\"\nxdp = \"native\"\n",
            scratch.join("ctl.sock").display()
        )
    };
    let Some(mut live) = live("wire", Offloads::Off, |_| {}, text) else { return };
    replace_right(&live, || _ = live.net.right.run("ethtool -L eth0 tx 2"));
    wait_for_log(&live, "ERROR port right: ", 1);
    let _ = ping(&live.net.left, "10.0.1.1", 1);
    let counted = || dropped(&live, "tx_port_down") > 0;
    assert!(wait_until(SOON, counted), "{:?}", live.drops());
    assert_eq!(dropped(&live, "tx_no_port"), 0);
    live.stop();
}

/// IPv6, offloads and queues of the interface.
fn settings(net: &Topology) -> String {
    let run = |line: &str| net.router.run(line);
    run("sysctl net.ipv6.conf.right.disable_ipv6")
        + &run("ethtool -k right")
        + &run("ethtool -l right")
}

#[test]
fn settings_of_a_killed_program_are_put_back_by_the_next() {
    use testkit::process::Stop;
    for backend in BACKENDS {
        let mut before = String::new();
        let prepare = |net: &Topology| {
            net.router.run("ethtool -L right rx 2 tx 2");
            before = settings(net);
        };
        let queues = if backend == "af_xdp" { "queues = 1\n" } else { "" };
        let text = |scratch: &Scratch| {
            let own = format!("[port.right]\n{queues}");
            config(scratch, backend, "").replace("[port.right]\n", &own)
        };
        let Some(mut live) = live("killed", Offloads::Default, prepare, text) else { return };
        let during = settings(&live.net);
        assert!(before.contains("disable_ipv6 = 0") && during.contains("disable_ipv6 = 1"));
        for _ in 0..2 {
            live.router.signal(Stop::Kill);
            live.router.wait(SOON);
            assert_eq!(settings(&live.net), during, "{backend}");
            live.restart();
        }
        live.stop();
        assert_eq!(settings(&live.net), before, "{backend}");
        // The command does so at once, but not to an interface that is in use.
        live.restart();
        let restore = format!("{} restore", live.bin.display());
        assert_eq!(live.net.router.run(&restore), "", "{backend}");
        assert_eq!(settings(&live.net), during, "{backend}");
        live.router.signal(Stop::Kill);
        live.router.wait(SOON);
        let said = live.net.router.run(&restore);
        assert!(said.contains("right: restored IPv6"), "{backend}: {said}");
        assert_eq!(settings(&live.net), before, "{backend}: {said}");
        assert_eq!(live.net.router.run(&restore), "", "{backend}");
        // Nothing is remembered.
        live.net.router.run("sysctl -w net.ipv6.conf.right.disable_ipv6=1");
        live.restart();
        live.stop();
        assert!(settings(&live.net).contains("disable_ipv6 = 1"), "{backend}");
    }
}
