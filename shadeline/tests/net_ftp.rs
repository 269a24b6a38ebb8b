//! FTP through a firewall that lets the inside open control connections, and what is related to them.

mod common;

use std::time::Duration;

use common::{Live, SOON, config, ping};
use serde_json::Value;
use testkit::Scratch;
use testkit::netns::Offloads;
use testkit::wait_until;

/// A server of FTP at port 21: one client at a time, both modes, both families.
const SERVER: &str = r#"
import socket, threading
BYTES = bytes(range(256)) * 400
def serve(control):
    lines = control.makefile('rb')
    def say(text): control.sendall((text + '\r\n').encode())
    def halves(number): return '%d,%d' % divmod(number, 256)
    data = lambda: None
    say('220 ready')
    for line in lines:
        word, _, rest = line.decode().strip().partition(' ')
        word, own = word.upper(), control.getsockname()[0]
        if word in ('PASV', 'EPSV'):
            listener = socket.create_server((own, 0), family=control.family)
            port = listener.getsockname()[1]
            data = lambda listener=listener: listener.accept()[0]
            if word == 'PASV':
                say('227 Entering Passive Mode (%s,%s)' % (own.replace('.', ','), halves(port)))
            else:
                say('229 Entering Extended Passive Mode (|||%d|)' % port)
        elif word in ('PORT', 'EPRT'):
            if word == 'PORT':
                parts = rest.split(',')
                place = ('.'.join(parts[:4]), int(parts[4]) * 256 + int(parts[5]))
            else:
                _, _, address, port, _ = rest.split(rest[0])
                place = (address, int(port))
            data = lambda place=place: socket.create_connection(place, 5)
            say('200 ok')
        elif word == 'RETR':
            say('150 here it comes')
            try:
                with data() as out: out.sendall(BYTES)
                say('226 done')
            except OSError as error:
                say('425 ' + str(error))
        elif word == 'STOR':
            say('150 send it')
            count = 0
            with data() as source:
                while piece := source.recv(65536): count += len(piece)
            say('226 %d bytes' % count)
        elif word == 'QUIT':
            say('221 bye')
            return
        else:
            say({'USER': '331 password', 'PASS': '230 in'}.get(word, '200 ok'))
def listen(place, family):
    listener = socket.create_server(place, family=family)
    print('ready', flush=True)
    while True:
        control, peer = listener.accept()
        with control: serve(control)
threading.Thread(target=listen, args=(('0.0.0.0', 21), socket.AF_INET)).start()
listen(('::', 21), socket.AF_INET6)
"#;

const CLIENT: &str = r#"
import ftplib, io, sys
host, mode, timeout = sys.argv[1], sys.argv[2], float(sys.argv[3])
ftp = ftplib.FTP(timeout=timeout)
ftp.connect(host, 21)
ftp.login('user', 'word')
ftp.set_pasv(mode == 'passive')
received = []
ftp.retrbinary('RETR file', received.append)
assert b''.join(received) == bytes(range(256)) * 400
print(ftp.storbinary('STOR file', io.BytesIO(b'x' * 70000)))
ftp.quit()
print('ok')
"#;

const RULES: &str = "[firewall]\ndefault = \"drop\"\n\
     [[rule]]\nname = \"known\"\nstate = \"established,related\"\naction = \"accept\"\n\
     [[rule]]\nname = \"control\"\nin = \"left\"\nstate = \"new\"\nproto = \"tcp\"\ndport = 21\naction = \"accept\"\n\
     [[rule]]\nname = \"udp\"\nin = \"left\"\nstate = \"new\"\nproto = \"udp\"\naction = \"accept\"\n\
     [[rule]]\nname = \"ping\"\nin = \"left\"\nstate = \"new\"\nproto = \"icmp\"\naction = \"accept\"\n\
     [[rule]]\nname = \"ping6\"\nin = \"left\"\nstate = \"new\"\nproto = \"icmpv6\"\naction = \"accept\"\n";

fn live(purpose: &str, flow: &str) -> Option<Live> {
    testkit::require_tool("python3")?;
    let text = |scratch: &Scratch| config(scratch, "af_packet", &format!("[flow]\n{flow}{RULES}"));
    let live = Live::of(purpose, text, (1500, 1500), Offloads::Off)?;
    let (left, right) = (&live.net.left, &live.net.right);
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    assert!(wait_until(SOON, || ping(left, "fd00:2::2", 1) == 1));
    assert_eq!(ping(right, "10.0.1.2", 1), 0, "the outside opens nothing");
    Some(live)
}

fn connections(live: &Live, args: &str) -> Vec<Value> {
    serde_json::from_str(&live.ctl(&format!("show connections --json {args}"))).expect("JSON")
}

#[test]
fn data_connections_are_related_to_their_control_connection() {
    let Some(live) = live("ftp", "ftp_ports = [21]\n") else { return };
    let server = live.scratch.write("server.py", SERVER);
    let client = live.scratch.write("client.py", CLIENT);
    let mut server = live.net.right.spawn(&format!("python3 {}", server.display()));
    std::thread::sleep(Duration::from_millis(700));
    for host in ["10.0.2.2", "fd00:2::2"] {
        for mode in ["passive", "active"] {
            let said = live.net.left.run(&format!("python3 {} {host} {mode} 10", client.display()));
            assert!(
                said.contains("226 70000 bytes") && said.ends_with("ok\n"),
                "{host} {mode}: {said}"
            );
        }
    }
    let all = connections(&live, "--proto tcp");
    let controls: Vec<_> = all
        .iter()
        .filter(|row| row["dst"].as_str().is_some_and(|dst| dst.ends_with(":21")))
        .collect();
    assert_eq!(controls.len(), 4, "{all:#?}");
    for control in &controls {
        assert_eq!(control["related_to"], Value::Null, "{control}");
        let own: Vec<_> =
            all.iter().filter(|row| row["related_to"]["id"] == control["id"]).collect();
        assert_eq!(own.len(), 2, "one for each transfer of {control}: {all:#?}");
        for data in own {
            assert_eq!(data["related_to"]["ends"][0], control["src"], "{data}");
            assert_eq!(data["related_to"]["ends"][1], control["dst"], "{data}");
        }
    }
    let text = live.ctl("show connections --proto tcp");
    assert!(text.contains("related to") && text.contains("> 10.0.2.2:21"), "{text}");
    let runtime: Value = serde_json::from_str(&live.ctl("show runtime --json")).expect("JSON");
    let helpers = &runtime["flow"]["helpers"];
    assert_eq!(
        [&helpers["announced"], &helpers["related"], &helpers["refused"]],
        [8, 8, 0],
        "{helpers}"
    );
    assert!(live.ctl("show runtime").contains("8 announced, 8 related, 0 expected"));

    // An ICMP error belongs to the connection that it is about.
    let datagram = "import socket, time\n\
                    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                    s.connect(('10.0.2.2', 4321)); s.send(b'x'); time.sleep(0.5)\n";
    let datagram = live.scratch.write("datagram.py", datagram);
    live.net.left.run(&format!("python3 {}", datagram.display()));
    let row = &connections(&live, "--port 4321")[0];
    assert_eq!((&row["icmp_errors"], &row["state"]), (&1.into(), &"UNREPLIED".into()), "{row}");
    let _ = server.stop(testkit::process::Stop::Terminate, SOON);
}

/// Without a helper, a data connection is one like others.
#[test]
fn no_helper_is_no_data_connection() {
    let Some(live) = live("ftp-off", "") else { return };
    let server = live.scratch.write("server.py", SERVER);
    let client = live.scratch.write("client.py", CLIENT);
    let mut server = live.net.right.spawn(&format!("python3 {}", server.display()));
    std::thread::sleep(Duration::from_millis(700));
    let mut command = live.net.left.command("python3");
    let output = command.arg(client).args(["10.0.2.2", "passive", "2"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("timed out"), "{said}");
    let _ = server.stop(testkit::process::Stop::Terminate, SOON);
}
