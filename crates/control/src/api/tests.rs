//! A server and its clients over a real socket.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::server::Limits;
use super::*;
use crate::config::NextHop;

/// A path of its own for a socket; the folder goes with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sl-control-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Place(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn frame(n: u64) -> Response {
    let frame = Frame {
        time_ns: n,
        port: "lan".into(),
        sent: false,
        original_len: 64,
        bytes: vec![0, 255, n as u8],
        comment: Some("ttl_exceeded".into()),
    };
    Response::Frame(frame)
}

/// Answers a few requests; a capture streams until the client is gone.
fn answer(request: Request, out: &mut dyn Responder) {
    match request {
        Request::Show { what: Show::Drops } => {
            for i in 0..3 {
                let row = DropRow { reason: format!("r{i}"), packets: i, ..DropRow::default() };
                let _ = out.send(Response::Drops { rows: vec![row] });
            }
        }
        Request::RouteDel { prefix } => {
            let message = format!("no route of source api to {prefix}");
            let _ = out.send(Response::error(ErrorKind::NotFound, message));
            let _ = out.send(Response::Done { message: "not sent".into() });
        }
        Request::Capture { .. } => {
            let mut n = 0;
            while !out.is_closed() && out.send(frame(n)).is_ok() {
                n += 1;
            }
        }
        Request::Reload => panic!("a defect"),
        request => {
            let _ = out.send(Response::Done { message: format!("{request:?}") });
        }
    }
}

fn server(path: &Path) -> Server {
    Server::bind(path, answer).unwrap()
}

#[test]
fn requests_are_answered_in_turn() {
    let place = Place::new();
    let _server = server(&place.socket());
    assert_eq!(std::fs::metadata(place.socket()).unwrap().permissions().mode() & 0o777, 0o660);
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 1, "nothing but the socket");
    let mut client = Client::connect(place.socket()).unwrap();
    let drops = client.call(&Request::Show { what: Show::Drops }).unwrap();
    assert_eq!(drops.len(), 3);
    let del = Request::RouteDel { prefix: "10.0.0.0/8".parse().unwrap() };
    let Err(ClientError::Refused { kind: ErrorKind::NotFound, message }) = client.call(&del) else {
        panic!("expected an error");
    };
    assert_eq!(message, "no route of source api to 10.0.0.0/8");
    // A handler that panics ends its request, not the server.
    let Err(ClientError::Refused { kind, .. }) = client.call(&Request::Reload) else { panic!() };
    assert_eq!(kind, ErrorKind::Internal);
    let done = client.call(&Request::ClearCounters).unwrap();
    assert_eq!(done, [Response::Done { message: "ClearCounters".into() }]);
}

#[test]
fn every_request_is_read_as_written() {
    let prefix = "2001:db8::/32".parse().unwrap();
    let next_hop: NextHop = "192.0.2.1*3,192.0.2.2%lan".parse().unwrap();
    let requests = [
        Request::Show { what: Show::Interfaces },
        Request::RouteAdd { prefix, next_hop: next_hop.clone() },
        Request::RouteReplace { prefix, next_hop },
        Request::RouteDel { prefix },
        Request::RouteGet { address: "192.0.2.1".parse().unwrap() },
        Request::ClearCounters,
        Request::Reload,
        Request::Trace { count: 3, filter: "udp".into(), duration_s: None },
        Request::Capture {
            at: CaptureAt::Port("lan".into()),
            filter: String::new(),
            count: Some(4),
            duration_s: Some(Duration::from_millis(1500)),
        },
        Request::Capture {
            at: CaptureAt::Drops,
            filter: String::new(),
            count: None,
            duration_s: None,
        },
        Request::Stop,
    ];
    let place = Place::new();
    let (sender, receiver) = mpsc::channel();
    let _server = Server::bind(place.socket(), move |request, _| sender.send(request).unwrap());
    let mut client = Client::connect(place.socket()).unwrap();
    for request in requests {
        client.call(&request).unwrap();
        assert_eq!(receiver.recv().unwrap(), request);
    }
    // The wire form, for programs in other languages.
    let text = r#"{"request":"capture","at":{"stage":"ip_lookup"},"duration_s":2}"#;
    let capture: Request = serde_json::from_str(text).unwrap();
    let Request::Capture { at, duration_s, .. } = capture else { panic!() };
    assert_eq!(at, CaptureAt::Stage("ip_lookup".into()));
    assert_eq!(duration_s, Some(Duration::from_secs(2)));
    let text = serde_json::to_string(&frame(7)).unwrap();
    assert!(text.contains(r#""bytes":"00ff07""#), "{text}");
    assert_eq!(serde_json::from_str::<Response>(&text).unwrap(), frame(7));
    assert!(serde_json::from_str::<Response>(&text.replace("00ff07", "00f")).is_err());
    assert!(serde_json::from_str::<Response>(&text.replace("00ff07", "00+f")).is_err());
}

#[test]
fn bad_lines_are_answered() {
    let place = Place::new();
    let limits = Limits { request_bytes: 256, ..Limits::default() };
    let _server = Server::bind_with(place.socket(), limits, answer).unwrap();
    let long = format!("{{\"request\":\"{}\"}}", "x".repeat(1000));
    let cases = [
        "nonsense",
        "{\"request\":\"show\",\"what\":\"weather\"}",
        "{\"request\":\"route_del\",\"prefix\":\"10.0.0.0/33\"}",
        "{\"request\":\"route_get\",\"address\":\"192.0.2.1\",\"extra\":1}",
        "[]",
        "\u{0}\u{1}",
        &long,
    ];
    for line in cases {
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The server may hang up before it has read all of a line that is too long.
        let _ = stream.write_all(format!("{line}\n").as_bytes());
        let mut answer = vec![0; 4096];
        let n = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..n]);
        assert!(answer.contains("\"kind\":\"bad_request\""), "{line}: {answer}");
    }
}

#[test]
fn a_capture_ends_when_the_client_hangs_up() {
    let place = Place::new();
    let ended = std::sync::Arc::new(AtomicU64::new(0));
    let counter = ended.clone();
    let _server = Server::bind(place.socket(), move |request, out: &mut dyn Responder| {
        answer(request, out);
        counter.fetch_add(1, Ordering::Release);
    });
    let capture = Request::Capture {
        at: CaptureAt::Drops,
        filter: String::new(),
        count: None,
        duration_s: None,
    };
    let mut frames = 0;
    let client = Client::connect(place.socket()).unwrap();
    let streamed = client.stream(&capture, |response| {
        assert_eq!(response, frame(frames));
        frames += 1;
        if frames == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    streamed.unwrap();
    wait(|| ended.load(Ordering::Acquire) == 1);
}

#[test]
fn connections_are_bounded_and_stop_with_the_server() {
    let place = Place::new();
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Server::bind_with(place.socket(), limits, answer).unwrap();
    let mut clients = [(); 2].map(|()| Client::connect(place.socket()).unwrap());
    for client in &mut clients {
        client.call(&Request::ClearCounters).unwrap();
    }
    let mut third = Client::connect(place.socket()).unwrap();
    let Err(ClientError::Refused { kind: ErrorKind::Busy, .. }) = third.call(&Request::Stop) else {
        panic!("expected busy");
    };
    let [first, mut second] = clients;
    drop(first);
    wait(|| {
        Client::connect(place.socket()).is_ok_and(|mut c| c.call(&Request::ClearCounters).is_ok())
    });
    drop(server);
    assert!(!place.socket().exists());
    assert!(second.call(&Request::ClearCounters).is_err());
    let Err(ClientError::NotRunning(_)) = Client::connect(place.socket()) else { panic!() };
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let place = Place::new();
    drop(UnixListener::bind(place.socket()).unwrap()); // Leaves its file, as a killed process does.
    let Err(ClientError::NotRunning(_)) = Client::connect(place.socket()) else { panic!() };
    let first = server(&place.socket());
    let Err(BindError::InUse(_)) = Server::bind(place.socket(), answer) else {
        panic!("expected InUse");
    };
    Client::connect(place.socket()).unwrap().call(&Request::ClearCounters).unwrap();
    drop(first);
    std::fs::write(place.socket(), "precious").unwrap();
    let Err(BindError::NotASocket(_)) = Server::bind(place.socket(), answer) else {
        panic!("expected NotASocket");
    };
    assert_eq!(std::fs::read(place.socket()).unwrap(), b"precious");
    let far = place.0.join("no/such/folder");
    assert!(matches!(Server::bind(far, answer), Err(BindError::Io { .. })));
}

#[test]
fn tables_are_aligned() {
    let rows = [
        DropRow {
            reason: "ttl_exceeded".into(),
            code: 0x300,
            text: "TTL was 1".into(),
            remedy: "Look for a loop.".into(),
            packets: 1_234_567,
        },
        DropRow { reason: "no_route".into(), packets: 7, ..DropRow::default() },
    ];
    let expected = "\
reason          packets  meaning
ttl_exceeded  1,234,567  TTL was 1
no_route              7  -
";
    assert_eq!(table::table(&rows), expected);
    let below = "
reason        what to do
ttl_exceeded  Look for a loop.
no_route      -
";
    let response = Response::Drops { rows: rows.into() };
    assert_eq!(table::response(&response).unwrap(), format!("{expected}{below}"));
    let row = RouteRow {
        prefix: "10.0.0.0/8".parse().unwrap(),
        next_hop: "192.0.2.1,192.0.2.2".parse().unwrap(),
        ports: vec!["lan".into(), "lan".into()],
        source: RouteSource::Static,
        metric: 0,
        active: true,
    };
    let expected = "   prefix      next hop             port     source  metric
*  10.0.0.0/8  192.0.2.1,192.0.2.2  lan,lan  static       0
";
    let response = Response::Routes { rows: vec![row] };
    assert_eq!(table::response(&response).unwrap(), expected);
    let runtime = Runtime {
        version: "0.1.0".into(),
        uptime_s: 3723.0,
        table_bytes: 70 << 20,
        workers: vec![WorkerRow { busy_percent: 12.34, ..WorkerRow::default() }],
        ..Runtime::default()
    };
    let text = table::runtime(&runtime);
    assert!(text.contains("uptime         1 h 2 min\n"), "{text}");
    assert!(text.contains("tables         70.0 MiB\n"), "{text}");
    assert!(text.contains("12.3"), "{text}");
    // What most workers have nothing of is shown of those that have something.
    assert!(!text.contains("handed over"), "{text}");
    let rare = WorkerRow { id: 1, packets_late: 1200, gave_up: true, ..WorkerRow::default() };
    let text = table::runtime(&Runtime { workers: vec![WorkerRow::default(), rare], ..runtime });
    let (_, rare) = text.split_once("handed over").unwrap();
    let words: Vec<Vec<&str>> =
        rare.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["dumped", "late", "panics", "stages"]);
    assert_eq!(words[1], ["1", "0", "0", "0", "1,200", "0", "given", "up"]);
    assert_eq!(words.len(), 2);
    assert_eq!(
        ["0", "999", "1,000", "18,446,744,073,709,551,615"].map(String::from),
        [0, 999, 1000, u64::MAX].map(table::thousands)
    );
}

/// A name of kilobytes makes its own line long and no other.
#[test]
fn a_long_cell_widens_no_column() {
    let row = |prefix: String| NameRow {
        prefix,
        faces: vec!["west".to_owned()],
        source: RouteSource::File,
        active: true,
    };
    let long = format!("/{}", "x".repeat(8000));
    let text =
        table::table(&[row("/a".to_owned()), row(long.clone()), row("/abcdefgh".to_owned())]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[2].contains(&long) && lines[2].contains("west"));
    let columns: Vec<_> = [1, 3].map(|line| lines[line].find("west")).into_iter().collect();
    assert!(columns[0] == columns[1] && lines[1].len() < 60, "{:?}", [lines[1], lines[3]]);
}

#[test]
fn every_row_has_a_cell_for_each_title() {
    fn check<R: table::Row>(row: &R) {
        assert_eq!(row.cells().len(), R::COLUMNS.len());
    }
    check(&InterfaceRow::default());
    check(&QueueRow::default());
    check(&StageRow::default());
    check(&DropRow::default());
    check(&WorkerRow::default());
    check(&MasterRow::default());
    check(&NeighbourRow {
        address: "192.0.2.1".parse().unwrap(),
        port: "lan".into(),
        mac: None,
        state: "incomplete".into(),
        age_s: None,
    });
}

#[track_caller]
fn wait(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "no answer in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}
