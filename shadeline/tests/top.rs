//! The dashboards: `ctl top` on a terminal and as text, and the page beside the metrics in a browser.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::api::{DropRow, HotRow, HotTable, InterfaceRow, Runtime, StageRow};
use control::metrics::{Serving, Snapshot, Sources, serve};
use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::Record;
use testkit::process::{Process, Stop};

const PACKETS: u64 = 20;

/// A router that reads a capture: packets to a web server, of which one has no route.
fn started(scratch: &Scratch, more: &str) -> Process {
    let packet = |i: u64| {
        let to = if i == 0 { "10.9.8.7" } else { "198.51.100.9" };
        let frame = Frame::new().ipv4("192.0.2.9", to).udp(1000 + i as u16, 80, &[7; 100]);
        Record::new(1_700_000_000_000_000_000 + i * 1000, frame.bytes())
    };
    let packets: Vec<Record> = (0..PACKETS).map(packet).collect();
    testkit::pcap::write_pcap(&scratch.join("in.pcap"), &packets);
    let text = format!(
        "mode = \"router\"\n[system]\nworkers = 1\nsocket = \"{}\"\n{more}[router]\nkernel = false\n\
         [port.lan]\nbackend = \"pcap\"\nread = \"{}\"\naddresses = [\"192.0.2.1/24\"]\n\
         [port.wan]\nbackend = \"memory\"\naddresses = [\"198.51.100.1/24\"]\n\
         [[rule]]\nname = \"web\"\nproto = \"udp\"\ndport = 80\naction = \"accept\"\n\
         [[rule]]\nname = \"idle\"\nproto = \"tcp\"\naction = \"drop\"\n",
        scratch.join("sock").display(),
        scratch.join("in.pcap").display(),
    );
    let config = scratch.write("router.toml", &text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(config).env_remove("NOTIFY_SOCKET");
    let mut process = Process::spawn(command);
    process.wait_for("running: ", Duration::from_secs(60));
    // A packet is counted by its queue before the stages have seen it.
    let is_done = |process: &mut Process| {
        assert!(process.is_running(), "{}", process.output());
        let answer = ctl(scratch, "show snapshot --json");
        let now: Snapshot = serde_json::from_slice(&answer.stdout).expect("a snapshot");
        let is_dropped = now.drops.iter().any(|row| row.reason == "no_route");
        let rules = now.hottest.iter().flat_map(|table| &table.rows);
        is_dropped && rules.map(|row| row.packets).sum::<u64>() == PACKETS
    };
    assert!(testkit::wait_until(Duration::from_secs(20), || is_done(&mut process)));
    process
}

fn ctl(scratch: &Scratch, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.args(["ctl", "--socket"]).arg(scratch.join("sock")).args(words.split_whitespace());
    command.output().expect("the program starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The line of a text that begins so.
fn line<'t>(text: &'t str, start: &str) -> &'t str {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"))
}

#[test]
fn without_a_terminal_the_tables_are_printed_once() {
    let scratch = Scratch::new();
    let mut process = started(&scratch, "");
    let printed = ctl(&scratch, "top --interval 0.1");
    let text = out(&printed);
    assert!(printed.status.success(), "{printed:?}");
    assert!(text.starts_with("Shadeline ") && text.contains(", router, up "), "{text}");
    for (start, expected) in [
        ("lan ", "pcap"),
        ("no_route ", "1  Add a route"),
        ("web ", "20  proto udp dport 80: accept"),
        ("Hottest rules", "(3 in all)"),
        ("firewall ", "20"),
        ("     0 ", "cpu"),
        ("no device", "the CPU processes all packets"),
    ] {
        assert!(line(&text, start).contains(expected), "{start} {expected}: {text}");
    }
    assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
    // The same for programs, and all of it as `show`.
    let json = ctl(&scratch, "top --json");
    let snapshot: Snapshot = serde_json::from_slice(&json.stdout).expect("a snapshot");
    assert_eq!(snapshot.interfaces[0].rx_packets, PACKETS);
    assert_eq!((&*snapshot.hottest[0].title, snapshot.hottest[0].rows.len()), ("rules", 1));
    let shown = out(&ctl(&scratch, "show snapshot"));
    for title in ["rx packets", "ns/packet", "what to do", "hottest rules", "table version"] {
        assert!(shown.contains(title), "{title}: {shown}");
    }
    process.stop(Stop::Terminate, Duration::from_secs(20));
    let gone = ctl(&scratch, "top --once");
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert_eq!((gone.status.code(), said.lines().count()), (Some(1), 1), "{said}");
}

/// `ctl top` on a terminal of its own, with these keys; its exit status, and what it printed.
fn on_terminal(scratch: &Scratch, keys: &str, meanwhile: impl FnOnce()) -> Option<(i32, String)> {
    let script = testkit::require_tool("script")?;
    let program = env!("CARGO_BIN_EXE_shadeline");
    let socket = scratch.join("sock");
    let command = format!(
        "stty cols 110 rows 32; exec {program} ctl --socket {} top --interval 0.1",
        socket.display()
    );
    let log = scratch.join("typescript");
    let _ = std::fs::remove_file(&log);
    let mut command_line = Command::new(script);
    command_line.args(["-qefc", &command]).arg(&log).env("TERM", "xterm-256color");
    command_line.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command_line.spawn().expect("script starts");
    let drawn = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("q quit"));
    assert!(testkit::wait_until(Duration::from_secs(20), drawn), "{:?}", std::fs::read(&log));
    meanwhile();
    let mut input = child.stdin.take().expect("its input");
    std::io::Write::write_all(&mut input, keys.as_bytes()).expect("keys");
    // Its end would be that of the terminal.
    let mut status = None;
    let ended = testkit::wait_until(Duration::from_secs(20), || {
        status = child.try_wait().expect("its state");
        status.is_some()
    });
    drop(input);
    let _ = child.kill();
    assert!(ended, "{:?}", std::fs::read_to_string(&log));
    let text = std::fs::read(&log).expect("what it printed");
    Some((status?.code()?, String::from_utf8_lossy(&text).into_owned()))
}

/// What is printed behind the dashboard, on the terminal as it was before.
fn afterwards(text: &str) -> Vec<String> {
    assert!(text.contains("\x1b[?1049h"), "no screen of its own: {text:?}");
    let (_, rest) = text.rsplit_once("\x1b[?1049l").expect("the terminal is as it was");
    // What `script` adds, and escapes such as that which shows the cursor.
    let rest = rest.split("\nScript done").next().unwrap_or_default();
    let plain = rest.split('\x1b').map(|part| part.split_once(['h', 'l']).map_or(part, |p| p.1));
    plain.collect::<String>().lines().map(str::to_owned).filter(|line| !line.is_empty()).collect()
}

/// The process that shows the dashboard of this socket.
fn dashboard(scratch: &Scratch) -> Option<u32> {
    let socket = scratch.join("sock").display().to_string();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        let is_ours = words.contains(&socket.as_bytes()) && words.contains(&&b"top"[..]);
        is_ours && words[0].ends_with(b"shadeline")
    })
}

#[test]
fn signals_restore_the_terminal() {
    let scratch = Scratch::new();
    let _process = started(&scratch, "");
    for (signal, expected) in [("HUP", 129), ("TERM", 143), ("INT", 130)] {
        let send = || {
            let pid = dashboard(&scratch).expect("the dashboard").to_string();
            let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
            assert!(sent.is_ok_and(|status| status.success()));
        };
        let Some((status, text)) = on_terminal(&scratch, "", send) else { return };
        assert_eq!((status, afterwards(&text)), (expected, Vec::<String>::new()), "{text:?}");
    }
}

/// Clients of the metrics that use up all descriptors do not end the server.
#[test]
fn a_lack_of_descriptors_is_over_when_clients_go() {
    let Some(prlimit) = testkit::require_tool("prlimit") else { return };
    let (scratch, address) = (Scratch::new(), free_address());
    let mut process = started(&scratch, &format!("metrics = \"{address}\"\n"));
    let pid = process.id();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").count();
    let mut command = Command::new(prlimit);
    command.arg(format!("--pid={pid}")).arg(format!("--nofile={}", open + 20));
    assert!(command.status().is_ok_and(|status| status.success()));
    let clients: Vec<_> = (0..40).map(|_| std::net::TcpStream::connect(address)).collect();
    std::thread::sleep(Duration::from_millis(500));
    drop(clients);
    let text = || {
        let mut stream = std::net::TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, request).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).ok().map(|_| text)
    };
    let answered = || text().is_some_and(|text| text.contains("shadeline_uptime_seconds"));
    assert!(testkit::wait_until(Duration::from_secs(20), answered), "{}", process.output());
    assert!(!process.output().contains("panicked"), "{}", process.output());
    process.stop(Stop::Terminate, Duration::from_secs(20));
}

/// A thousand clients that stay connected, idle or in the middle of a request, keep no other one out, with few
/// descriptors; they are disconnected in time.
#[test]
fn a_crowd_of_clients_keeps_nobody_out() {
    let Some(prlimit) = testkit::require_tool("prlimit") else { return };
    let (scratch, address) = (Scratch::new(), free_address());
    let mut process = started(&scratch, &format!("metrics = \"{address}\"\n"));
    let pid = process.id();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").count();
    let limit = |pid: u32, files: usize| {
        let mut command = Command::new(&prlimit);
        command.arg(format!("--pid={pid}")).arg(format!("--nofile={files}"));
        assert!(command.status().is_ok_and(|status| status.success()));
    };
    limit(pid, open + 40);
    limit(std::process::id(), 4096);
    let short = Duration::from_millis(200);
    let clients: Vec<_> = (0..1000)
        .filter_map(|number| {
            let mut stream = std::net::TcpStream::connect_timeout(&address, short).ok()?;
            let part = if number % 2 == 0 { &b"GET /metrics HTTP/1.1\r\nHost: "[..] } else { b"" };
            std::io::Write::write_all(&mut stream, part).ok().map(|()| stream)
        })
        .collect();
    assert!(clients.len() > 30, "{} clients", clients.len());
    let text = || {
        let mut stream = std::net::TcpStream::connect_timeout(&address, short).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, request).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).ok().map(|_| text)
    };
    // Long before the first of the crowd would time out.
    let begin = std::time::Instant::now();
    let answered = || text().is_some_and(|text| text.contains("shadeline_uptime_seconds"));
    assert!(testkit::wait_until(Duration::from_secs(4), answered), "{}", process.output());
    // The crowd goes: those that the server holds are at an end by themselves.
    let is_alone = || text().is_some_and(|text| text.contains("shadeline_metrics_connections 1\n"));
    assert!(testkit::wait_until(Duration::from_secs(20), is_alone), "{:?}", text());
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    drop(clients);
    assert!(!process.output().contains("panicked"), "{}", process.output());
    process.stop(Stop::Terminate, Duration::from_secs(20));
}

#[test]
fn keys_and_a_lost_socket_end_the_dashboard_in_order() {
    let scratch = Scratch::new();
    let mut process = started(&scratch, "");
    // `q`, behind others that change what is shown; and Ctrl-C, which is a key there.
    for keys in ["\t\x1b[C?pq", "\x03"] {
        let Some((status, text)) = on_terminal(&scratch, keys, || {}) else { return };
        assert_eq!((status, afterwards(&text)), (0, Vec::<String>::new()), "{text:?}");
        for expected in ["Ports", "Hottest rules", "web", "no_route"] {
            assert!(text.contains(expected), "{expected}: {text:?}");
        }
    }
    let end = || drop(process.stop(Stop::Kill, Duration::from_secs(20)));
    let Some((status, text)) = on_terminal(&scratch, "", end) else { return };
    let said = afterwards(&text);
    assert_eq!((status, said.len()), (1, 1), "{said:?}");
    assert!(said[0].contains("closed the connection"), "{said:?}");
}

/// What a browser makes of the page; `None`, and the test is skipped, without one.
fn browsed(serving: std::net::SocketAddr, budget_ms: u32) -> Option<String> {
    let chromium = testkit::require_tool("chromium")?;
    let scratch = Scratch::new();
    let mut command = Command::new(chromium);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--virtual-time-budget={budget_ms}"))
        .arg(format!("--user-data-dir={}", scratch.join("profile").display()))
        .arg(format!("http://{serving}/"))
        .env("HOME", scratch.path());
    let output = command.output().expect("the browser starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(out(&output))
}

/// The texts of the cells of the row that begins so.
fn cells(page: &str, first: &str) -> Vec<String> {
    let rows = page.split("<tr>").filter(|row| row.contains("<td"));
    let rows = rows.map(|row| {
        let cells = row.split("<td").skip(1).map(|cell| {
            let text = cell.split("</td>").next().and_then(|cell| cell.split_once('>'));
            let text = text.map_or("", |(_, text)| text);
            let mut plain = String::new();
            let mut is_tag = false;
            for c in text.chars() {
                match c {
                    '<' => is_tag = true,
                    '>' => is_tag = false,
                    c if !is_tag => plain.push(c),
                    _ => {}
                }
            }
            plain
        });
        cells.collect::<Vec<_>>()
    });
    rows.into_iter().find(|row| row[0] == first).unwrap_or_else(|| panic!("{first}: {page}"))
}

/// An instance that counts a second with each snapshot; from the `answers`th on it does not answer.
fn counting(answers: u64) -> Serving {
    let asked = AtomicU64::new(0);
    let snapshot = move || {
        let n = asked.fetch_add(1, Ordering::Relaxed) + 1;
        let port = |name: &str, rx_packets, rx_drops| InterfaceRow {
            name: name.to_owned(),
            state: "up".to_owned(),
            rx_packets,
            rx_bytes: rx_packets * 125,
            rx_drops,
            ..InterfaceRow::default()
        };
        let rule = |name: &str, packets| HotRow {
            name: name.to_owned(),
            text: "any: accept".to_owned(),
            packets,
            ..HotRow::default()
        };
        let snapshot = Snapshot {
            interfaces: vec![port("lan", 2500 * n, 4 * (n - 1)), port("<b>odd</b>", 1, 0)],
            stages: vec![StageRow {
                name: "decode".to_owned(),
                packets: 3000 * n,
                ns_per_packet: 25.0,
                ..StageRow::default()
            }],
            drops: vec![DropRow {
                reason: "no_route".to_owned(),
                remedy: "Add a route (`ctl show routes`).".to_owned(),
                packets: 7 * n,
                ..DropRow::default()
            }],
            hottest: vec![HotTable {
                title: "rules".to_owned(),
                rows: vec![rule("ssh", 10 * n), rule("web", 1200 * n)],
                total: 9,
            }],
            runtime: Runtime {
                version: "1.2.3".to_owned(),
                mode: "router".to_owned(),
                uptime_s: 3600.0 + n as f64,
                ..Runtime::default()
            },
            ..Snapshot::default()
        };
        (n <= answers).then(|| serde_json::to_string(&snapshot).expect("JSON"))
    };
    let sources = Sources {
        metrics: Arc::new(String::new),
        snapshot: Arc::new(snapshot),
        failed: Arc::new(|why| panic!("{why}")),
    };
    serve("127.0.0.1:0".parse().expect("an address"), &[], sources).expect("a free port")
}

#[test]
fn the_page_shows_rates() {
    let serving = counting(u64::MAX);
    let Some(page) = browsed(serving.address(), 5500) else { return };
    let lan = cells(&page, "lan");
    assert_eq!(lan[1..4], ["up", "2.5 k/s", "2.5 Mbit/s"], "{lan:?}");
    assert_eq!(lan[8], "4 /s", "{lan:?}");
    assert_eq!(cells(&page, "decode")[1..3], ["3.0 k/s", "25.0"]);
    let drops = cells(&page, "no_route");
    assert_eq!((&*drops[1], &*drops[3]), ("7 /s", "Add a route (ctl show routes)."));
    assert_eq!(cells(&page, "web")[1], "1.2 k/s");
    let places = ["web", "ssh"].map(|name| page.find(&format!(">{name}<")).expect(name));
    assert!(places[0] < places[1], "the hottest first");
    for expected in ["<polyline", "1 h 0 min", ">1.2.3<", ">live<", "2 of 9", "all packets"] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    // A name is text, whatever it looks like.
    assert!(page.contains("&lt;b&gt;odd&lt;/b&gt;"), "{page}");
}

/// Of two firewalls, a reload removes the first.
#[test]
fn the_page_shows_the_tables_that_there_are() {
    let asked = AtomicU64::new(0);
    let snapshot = move || {
        let n = asked.fetch_add(1, Ordering::Relaxed);
        let table = |stage: &str| HotTable {
            title: format!("rules of {stage}"),
            rows: vec![HotRow { name: format!("of {stage}"), packets: n, ..HotRow::default() }],
            total: 1,
        };
        let stages: &[&str] = if n < 2 { &["inner", "outer"] } else { &["outer"] };
        let hottest = stages.iter().map(|stage| table(stage)).collect();
        Some(serde_json::to_string(&Snapshot { hottest, ..Snapshot::default() }).expect("JSON"))
    };
    let sources = Sources {
        metrics: Arc::new(String::new),
        snapshot: Arc::new(snapshot),
        failed: Arc::new(|why| panic!("{why}")),
    };
    let serving = serve("127.0.0.1:0".parse().expect("an address"), &[], sources);
    let serving = serving.expect("a free port");
    let Some(page) = browsed(serving.address(), 500) else { return };
    assert!(page.contains("Hottest rules of inner") && page.contains("of inner</td>"), "{page}");
    let Some(page) = browsed(serving.address(), 4500) else { return };
    assert!(!page.contains("inner"), "{page}");
    assert!(page.contains("Hottest rules of outer") && page.contains("of outer</td>"), "{page}");
}

#[test]
fn the_page_says_that_there_is_no_answer() {
    let serving = counting(2);
    let Some(page) = browsed(serving.address(), 6500) else { return };
    assert!(page.contains("The instance does not answer for "), "{page}");
    assert!(page.contains(">no answer<") && !page.contains(">live<"), "{page}");
    assert_eq!(cells(&page, "lan")[2], "2.5 k/s", "the last figures stay");
    let serving = counting(0);
    let Some(page) = browsed(serving.address(), 2500) else { return };
    assert!(page.contains("The instance does not answer."), "{page}");
}

#[test]
fn the_page_shows_a_running_instance() {
    let scratch = Scratch::new();
    let address = free_address();
    let mut process = started(&scratch, &format!("metrics = \"{address}\"\n"));
    let Some(page) = browsed(address, 3500) else { return };
    for (name, at, expected) in [
        ("lan", 11, "20"),
        ("wan", 11, "0"),
        ("firewall", 4, "20"),
        ("no_route", 2, "1"),
        ("web", 2, "20"),
    ] {
        assert_eq!(cells(&page, name)[at], expected, "{name}: {page}");
    }
    assert!(page.contains(">live<") && page.contains("1 of 3"), "{page}");
    process.stop(Stop::Terminate, Duration::from_secs(20));
}

/// A port that nobody listens at now.
fn free_address() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address")
}

/// The golden frame of the terminal is the picture of docs/top.md.
#[test]
fn the_documentation_shows_the_frame() {
    let root = testkit::repository();
    let read = |path: &str| std::fs::read_to_string(root.join(Path::new(path))).expect(path);
    let frame = read("shadeline/src/top/frame.txt");
    assert!(read("docs/top.md").contains(frame.trim_end()), "docs/top.md has another frame");
}

/// Another version at the socket, one that refuses, and one that hangs up: a line each.
#[test]
fn answers_that_are_no_snapshot_are_one_line() {
    use control::api::{ErrorKind, Response, Server};
    let scratch = Scratch::new();
    type Answer = fn() -> Option<Response>;
    let answers: [(Answer, &str); 4] = [
        (
            || Some(Response::Text { text: "?".to_owned() }),
            "does the instance have another version",
        ),
        (
            || {
                let fields = [("interfaces".to_owned(), serde_json::json!("odd"))];
                let fields = fields.into_iter().collect();
                Some(Response::Object { table: "snapshot".to_owned(), fields })
            },
            "does the instance have another version",
        ),
        (
            || Some(Response::error(ErrorKind::NotFound, "unknown table `snapshot`")),
            "unknown table",
        ),
        (|| None, "gave no answer"),
    ];
    for (answer, expected) in answers {
        let server = Server::bind(scratch.join("sock"), move |_, responder| {
            let _ = answer().map(|response| responder.send(response));
        });
        let _server = server.expect("a socket");
        for words in ["top", "top --once"] {
            let output = ctl(&scratch, words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}
