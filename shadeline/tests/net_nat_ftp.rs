//! FTP through address translation, with servers and clients of others, and Linux's own translation of the same connections.

mod common;

use common::{Live, SOON, ping};
use serde_json::Value;
use testkit::netns::{Netns, Topology};
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

/// Hosts on the left share the address on the right; one of them has a server, another one an address of its own.
const RULES: &str = "[translation]\nftp_ports = [21]\n\
    [[nat]]\nkind = \"destination\"\noutside = [\"right\"]\nprotocol = \"tcp\"\nport = 21\nto = \"10.0.1.2:21\"\n\
    [[nat]]\nkind = \"static\"\noutside = [\"right\"]\nsource = [\"10.0.1.5/32\"]\nto = \"10.0.2.205/32\"\n\
    [[nat]]\nkind = \"masquerade\"\noutside = [\"right\"]\n";

fn live(purpose: &str) -> Option<Live> {
    let live = Live::start(purpose, "af_packet", RULES)?;
    live.net.right.ip("route del default");
    assert!(wait_until(SOON, || ping(&live.net.left, "10.0.2.2", 1) == 1));
    Some(live)
}

/// What helpers did: announced, came, refused, left as they are.
fn counts(live: &Live) -> [u64; 4] {
    let runtime: Value = serde_json::from_str(&live.ctl("show runtime --json")).expect("JSON");
    ["announced", "related", "refused", "left"]
        .map(|name| runtime["nat"][format!("ftp_{name}")].as_u64().expect("a number"))
}

/// pyftpdlib with its own checks: the address of `PORT` must be that of the client.
const SERVER: &str = "import sys\n\
    from pyftpdlib.authorizers import DummyAuthorizer\n\
    from pyftpdlib.handlers import FTPHandler\n\
    from pyftpdlib.servers import FTPServer\n\
    own = DummyAuthorizer(); own.add_user('user', 'word', sys.argv[2], perm='elradfmw')\n\
    FTPHandler.authorizer = own; FTPHandler.use_sendfile = False\n\
    server = FTPServer((sys.argv[1], 21), FTPHandler); print('ready', flush=True)\n\
    server.serve_forever()\n";

/// Ways in which curl may ask for a data connection.
const MODES: [(&str, &str); 4] = [
    ("EPSV", ""),
    ("PASV", "--disable-epsv --no-ftp-skip-pasv-ip"),
    ("EPRT", "--ftp-port -"),
    ("PORT", "--ftp-port - --disable-eprt"),
];

/// A server of pyftpdlib in a namespace, with 200,000 bytes to read.
fn serve(scratch: &Scratch, at: &Netns, address: &str) -> Option<Process> {
    let python = testkit::require_python("pyftpdlib")?;
    testkit::require_tool("curl")?;
    let root = scratch.join("ftp");
    std::fs::create_dir_all(&root).expect("a folder");
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(root.join("file"), bytes).expect("a file");
    let script = scratch.write("server.py", SERVER);
    let line = format!("{} {} {address} {}", python.display(), script.display(), root.display());
    let mut server = at.spawn(&line);
    server.wait_for("ready", SOON);
    Some(server)
}

/// One transfer there and back in each mode. `from`: an address of the client.
fn transfers(scratch: &Scratch, client: &Netns, from: &str, server: &str) {
    let root = scratch.join("ftp");
    for (mode, options) in MODES {
        let url = format!("ftp://user:word@{server}");
        let got = scratch.join("got");
        client.run(&format!(
            "curl -sS -m 20 --interface {from} {options} -o {} {url}/file",
            got.display()
        ));
        let same = std::fs::read(&got).ok() == std::fs::read(root.join("file")).ok();
        assert!(same, "{mode}: the file differs");
        client.run(&format!(
            "curl -sS -m 20 --interface {from} {options} -T {} {url}/{mode}",
            got.display()
        ));
        let there = std::fs::read(root.join(mode)).expect("the file that was sent");
        assert!(there.len() == 200_000, "{mode}: {} bytes", there.len());
        std::fs::remove_file(got).expect("a file");
    }
}

#[test]
fn clients_behind_a_masquerade_reach_a_server() {
    let Some(live) = live("natftpout") else { return };
    let Some(mut server) = serve(&live.scratch, &live.net.right, "10.0.2.2") else { return };
    let left = &live.net.left;
    transfers(&live.scratch, left, "10.0.1.2", "10.0.2.2");
    // Active mode alone announces ends of the inside.
    assert_eq!(counts(&live), [4, 4, 0, 0]);
    // Lines that become shorter, and longer: to that address all ports lead.
    left.address("eth0", "10.0.1.123/24");
    transfers(&live.scratch, left, "10.0.1.123", "10.0.2.2");
    assert_eq!(counts(&live), [8, 8, 0, 0]);
    left.address("eth0", "10.0.1.5/24");
    transfers(&live.scratch, left, "10.0.1.5", "10.0.2.2");
    assert_eq!(counts(&live), [12, 8, 0, 0]);
    server.stop(Stop::Kill, SOON);
}

#[test]
fn a_server_behind_a_port_forward_is_reached() {
    let Some(live) = live("natftpin") else { return };
    let Some(mut server) = serve(&live.scratch, &live.net.left, "10.0.1.2") else { return };
    transfers(&live.scratch, &live.net.right, "10.0.2.2", "10.0.2.1");
    // The server's replies of passive mode.
    assert_eq!(counts(&live), [4, 4, 0, 0]);
    let text = live.ctl("show runtime");
    assert!(text.contains("4 announced, 4 came, 0 refused, 0 not translated"), "{text}");
    server.stop(Stop::Kill, SOON);
}

/// The worker of a host translates its control connections, and those that they announce come to it.
#[test]
fn four_workers_translate_as_one() {
    let Some(live) = Live::with_workers("natftpmany", 4, "af_packet", RULES) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    right.ip("route del default");
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    let Some(mut server) = serve(&live.scratch, right, "10.0.2.2") else { return };
    for host in 120..124 {
        let from = format!("10.0.1.{host}");
        left.address("eth0", &format!("{from}/24"));
        transfers(&live.scratch, left, &from, "10.0.2.2");
    }
    server.stop(Stop::Kill, SOON);
    let Some(mut server) = serve(&live.scratch, left, "10.0.1.2") else { return };
    transfers(&live.scratch, right, "10.0.2.2", "10.0.2.1");
    server.stop(Stop::Kill, SOON);
    assert_eq!(counts(&live), [20, 20, 0, 0]);
}

/// A server that prints what it reads, opens what `PORT` and `EPRT` announce, and says who it is.
const PLAIN_SERVER: &str = r#"
import socket, sys
listener = socket.create_server((sys.argv[1], 21))
print('ready', flush=True)
while True:
    control, peer = listener.accept()
    place = None
    for line in control.makefile('rb'):
        line = line.decode().rstrip('\r\n')
        print('got ' + line, flush=True)
        word, _, rest = line.partition(' ')
        if word == 'PORT':
            parts = rest.split(',')
            place = ('.'.join(parts[:4]), int(parts[4]) * 256 + int(parts[5]))
        elif word == 'EPRT':
            _, _, address, port, _ = rest.split(rest[0])
            place = (address, int(port))
        elif word == 'PASV':
            own = socket.create_server((sys.argv[1], 40999))
            control.sendall(('227 Entering Passive Mode (%s,160,39)\r\n' % sys.argv[1].replace('.', ',')).encode())
            data, peer = own.accept(); data.sendall(b'passive'); data.close(); own.close()
            continue
        elif word == 'EPSV':
            own = socket.create_server((sys.argv[1], 40998))
            control.sendall(b'229 Entering Extended Passive Mode (|||40998|)\r\n')
            data, peer = own.accept(); data.sendall(b'extended'); data.close(); own.close()
            continue
        elif word == 'RETR':
            with socket.create_connection(place, 5) as data: data.sendall(b'x' * 3000)
        control.sendall(b'200 ok ' + word.encode() + b'\r\n')
    control.close()
"#;

/// Data connections of all forms: the arguments are lines of the control connection.
const PLAIN_CLIENT: &str = r#"
import socket, sys
host, own, lines = sys.argv[1], sys.argv[2], sys.argv[3:]
control = socket.create_connection((host, 21), 5, (own, 0))
listener = socket.create_server((own, 40123))
listener.settimeout(5)
replies = control.makefile('rb')
for line in lines:
    control.sendall((line + '\r\n').encode())
    if line == 'RETR':
        data, peer = listener.accept()
        count = 0
        while piece := data.recv(9999): count += len(piece)
        print('data', count, peer[0])
    reply = replies.readline().decode().strip()
    print(reply)
    if reply[:3] in ('227', '229'):
        numbers = reply.split('(')[1].strip('.)')
        place = (host, int(numbers.strip('|'))) if reply[:3] == '229' else None
        if not place:
            parts = numbers.split(',')
            place = ('.'.join(parts[:4]), int(parts[4]) * 256 + int(parts[5]))
        print(*place, socket.create_connection(place, 5).makefile().read())
print('end')
"#;

/// What both sides of the same connections said, inside clients and an outside one.
fn conversation(scratch: &Scratch, left: &Netns, right: &Netns) -> Vec<String> {
    let server = scratch.write("plain.py", PLAIN_SERVER).display().to_string();
    let client = scratch.write("client.py", PLAIN_CLIENT).display().to_string();
    let mut all = Vec::new();
    let mut serving = right.spawn(&format!("python3 {server} 10.0.2.2"));
    serving.wait_for("ready", SOON);
    // Several on one connection, then one of another host.
    let lines = "'NOOP' 'PORT 10,0,1,123,156,187' 'RETR' 'EPRT |1|10.0.1.123|40123|' 'RETR' 'NOOP' \
                 'PORT 10,0,1,123,156,187' 'RETR' 'PORT 10,0,1,99,156,187' 'NOOP'";
    left.address("eth0", "10.0.1.123/24");
    all.push(left.shell(&format!("python3 {client} 10.0.2.2 10.0.1.123 {lines}")));
    all.push(serving.output());
    serving.stop(Stop::Kill, SOON);
    let mut serving = left.spawn(&format!("python3 {server} 10.0.1.2"));
    serving.wait_for("ready", SOON);
    let lines = "'NOOP' 'PASV' 'EPSV' 'NOOP' 'PASV'";
    all.push(right.shell(&format!("python3 {client} 10.0.2.1 10.0.2.2 {lines}")));
    all.push(serving.output());
    serving.stop(Stop::Kill, SOON);
    all
}

#[test]
fn linux_translates_the_same_lines_in_the_same_way() {
    if testkit::require_tool("python3").is_none() || testkit::require_tool("nft").is_none() {
        return;
    }
    let Some(live) = live("natftp") else { return };
    let own = conversation(&live.scratch, &live.net.left, &live.net.right);
    let [announced, related, refused, left] = counts(&live);
    assert_eq!([announced, related, refused, left], [6, 6, 1, 0], "{own:#?}");
    assert!(own[1].contains("got PORT 10,0,2,1,156,187\n"), "{own:#?}");
    assert!(own[1].contains("got EPRT |1|10.0.2.1|40123|\n"), "{own:#?}");
    assert!(own[1].contains("got PORT 10,0,1,99,156,187\n"), "another host's: {own:#?}");
    assert_eq!(own[0].matches("data 3000 10.0.2.2").count(), 3, "{own:#?}");
    assert!(own[2].contains("10.0.2.1 40999 passive") && own[2].ends_with("end\n"), "{own:#?}");

    let net = Topology::new("natftplinux");
    net.kernel_routes();
    net.right.ip("route del default");
    let mut nft = net.router.command("nft");
    nft.arg(
        "table ip nat { ct helper ftp { type \"ftp\" protocol tcp; }; \
         chain helpers { type filter hook prerouting priority -150; tcp dport 21 ct helper set \"ftp\"; }; \
         chain pre { type nat hook prerouting priority -100; iifname right tcp dport 21 dnat to 10.0.1.2:21; }; \
         chain post { type nat hook postrouting priority 100; oifname right masquerade; }; }",
    );
    if !nft.status().is_ok_and(|status| status.success()) {
        testkit::skip("the kernel has no FTP helper (nf_nat_ftp)");
        return;
    }
    assert!(wait_until(SOON, || ping(&net.left, "10.0.2.2", 1) == 1));
    let linux = conversation(&live.scratch, &net.left, &net.right);
    assert_eq!(own, linux);
}

/// A firewall sees the inside's ends and numbers in both directions: data connections are related for it.
#[test]
fn a_firewall_finds_translated_data_connections_related() {
    let rules = format!(
        "{RULES}[flow]\nftp_ports = [21]\n[firewall]\ndefault = \"drop\"\n\
         [[rule]]\nname = \"known\"\nstate = \"established,related\"\naction = \"accept\"\n\
         [[rule]]\nname = \"control\"\nstate = \"new\"\nproto = \"tcp\"\ndport = 21\naction = \"accept\"\n\
         [[rule]]\nname = \"ping\"\nin = \"left\"\nstate = \"new\"\nproto = \"icmp\"\naction = \"accept\"\n"
    );
    let Some(live) = Live::start("natftpfw", "af_packet", &rules) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    right.ip("route del default");
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    let Some(mut server) = serve(&live.scratch, right, "10.0.2.2") else { return };
    transfers(&live.scratch, left, "10.0.1.2", "10.0.2.2");
    server.stop(Stop::Kill, SOON);
    let Some(mut server) = serve(&live.scratch, left, "10.0.1.2") else { return };
    transfers(&live.scratch, right, "10.0.2.2", "10.0.2.1");
    server.stop(Stop::Kill, SOON);
    assert_eq!(counts(&live), [8, 8, 0, 0]);
    let runtime: Value = serde_json::from_str(&live.ctl("show runtime --json")).expect("JSON");
    let helpers = &runtime["flow"]["helpers"];
    let numbers = ["announced", "related", "refused"].map(|name| &helpers[name]);
    assert_eq!(numbers, [16, 16, 0], "{helpers}");
}
