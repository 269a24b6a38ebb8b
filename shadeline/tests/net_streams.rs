//! `shadeline streams -i`: the TCP connections of an interface between two namespaces, until Ctrl-C.

use std::time::Duration;

use serde_json::Value;
use testkit::netns::{Netns, veth};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

const SOON: Duration = Duration::from_secs(60);

const SERVER: &str = "import socket\n\
    s = socket.create_server(('10.9.0.2', 7008)); print('ready', flush=True)\n\
    for _ in range(2):\n    \
        c, _ = s.accept()\n    \
        while c.recv(65536): pass\n    \
        c.sendall(b'done'); c.close()\n";

/// Prints the SHA-1 of what it has sent.
const CLIENT: &str = "import hashlib, socket\n\
    data = bytes(i * i % 251 for i in range(200000))\n\
    s = socket.create_connection(('10.9.0.2', 7008), 20); s.sendall(data); s.shutdown(socket.SHUT_WR)\n\
    assert s.recv(9) == b'done'; s.close(); print(hashlib.sha1(data).hexdigest())\n";

/// Starts it, and waits until it listens.
fn listen(net: &Netns, interface: &str, arguments: &str) -> Process {
    let process = net
        .spawn(&format!("{} streams -i {interface} {arguments}", env!("CARGO_BIN_EXE_shadeline")));
    let sockets = || net.shell("cat /proc/net/packet").lines().count() > 1;
    assert!(wait_until(SOON, sockets), "{}", process.output());
    process
}

#[test]
fn an_interface_shows_its_connections_until_ctrl_c() {
    if !testkit::require_namespaces() || testkit::require_tool("python3").is_none() {
        return;
    }
    let (one, two) = (Netns::new("streams"), Netns::new("streams"));
    veth((&one, "eth0", "02:00:00:00:09:01"), (&two, "eth0", "02:00:00:00:09:02"), 1500);
    one.address("eth0", "10.9.0.1/24");
    two.address("eth0", "10.9.0.2/24");
    let scratch = Scratch::new();
    let [server, client] = [("server.py", SERVER), ("client.py", CLIENT)]
        .map(|(name, text)| format!("python3 {}", scratch.write(name, text).display()));
    let mut server = two.spawn(&server);
    server.wait_for("ready", SOON);

    let mut streams = listen(&one, "eth0", "--json");
    let sha1 = one.run(&client).trim().to_owned();
    // The last packets may still be on their way to the program.
    std::thread::sleep(Duration::from_millis(500));
    let (status, text) = streams.stop(Stop::Interrupt, SOON);
    assert!(status.success(), "{status}: {text}");
    let rows: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [row] = &rows[..] else { panic!("{text}") };
    assert_eq!((&row["server_ip"], &row["server_port"]), (&"10.9.0.2".into(), &7008.into()));
    assert_eq!((&row["client"]["bytes"], &row["server"]["bytes"]), (&200_000.into(), &4.into()));
    assert_eq!(
        (&row["client"]["gaps"], &row["client"]["sha1"]),
        (&0.into(), &sha1.into()),
        "{row}"
    );

    // As a table, with totals.
    let mut streams = listen(&one, "eth0", "");
    one.run(&client);
    std::thread::sleep(Duration::from_millis(500));
    let (status, text) = streams.stop(Stop::Interrupt, SOON);
    assert!(status.success(), "{status}: {text}");
    let totals = text.lines().find(|line| line.starts_with("1 connection in ")).unwrap_or_default();
    let packets = totals.split(' ').nth(3).and_then(|count| count.replace(',', "").parse().ok());
    assert!(packets.is_some_and(|packets: u64| packets > 100), "{text}");
    assert!(text.contains("10.9.0.2:7008") && text.contains("200,000"), "{text}");
    server.wait(SOON);

    // Without traffic, for a time.
    let mut streams = listen(&one, "eth0", "--duration 300ms");
    let (status, text) = streams.wait(SOON);
    assert!(status.success() && text.contains("no TCP connections"), "{status}: {text}");
}

/// Over loopback, frames have up to 65,535 bytes behind the link header, and segments up to 65,483.
#[test]
fn loopback_shows_every_byte() {
    if !testkit::require_namespaces() || testkit::require_tool("python3").is_none() {
        return;
    }
    let net = Netns::new("streams");
    net.run("ip link set lo up");
    let scratch = Scratch::new();
    let program = "import hashlib, socket, threading\n\
        s = socket.create_server(('127.0.0.1', 7008))\n\
        def serve():\n    \
            c, _ = s.accept()\n    \
            while c.recv(65536): pass\n    \
            c.close()\n\
        t = threading.Thread(target=serve); t.start()\n\
        data = bytes(i * i % 251 for i in range(1000)) * 3000\n\
        k = socket.create_connection(('127.0.0.1', 7008)); k.sendall(data); k.close(); t.join()\n\
        print(hashlib.sha1(data).hexdigest())\n";
    let program = format!("python3 {}", scratch.write("both.py", program).display());
    for _ in 0..3 {
        let mut streams = listen(&net, "lo", "--json -k none");
        let sha1 = net.run(&program).trim().to_owned();
        std::thread::sleep(Duration::from_millis(500));
        let (status, text) = streams.stop(Stop::Interrupt, SOON);
        assert!(status.success(), "{status}: {text}");
        let rows: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let [row] = &rows[..] else { panic!("{text}") };
        let sent = &row["client"];
        assert_eq!((&sent["bytes"], &sent["sha1"]), (&3_000_000.into(), &sha1.into()), "{text}");
    }
}
