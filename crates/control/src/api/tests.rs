//! A server and its clients over a real socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::server::Limits;
use super::*;
use crate::neighbour::NeighbourRow;

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
fn answer(asked: Asked, out: &mut dyn Responder) {
    match asked.request {
        Request::Show { what, .. } if what == "drops" => {
            for i in 0..3 {
                let row = DropRow { reason: format!("r{i}"), packets: i, ..DropRow::default() };
                let _ = out.send(Response::piece("drops", &[row], asked.text));
            }
        }
        Request::Call { name, mut fields } if name == "route_del" => {
            let prefix = fields.remove("prefix").unwrap_or_default();
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

/// A request of an application.
fn call(name: &str, fields: Value) -> Request {
    Request::Call { name: name.to_owned(), fields: fields_of(&fields).unwrap() }
}

/// For programs.
fn rows(request: Request) -> Asked {
    request.asked(false)
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
    let show = Request::show("drops");
    let drops = client.call(&rows(show.clone())).unwrap();
    assert_eq!(drops.len(), 3);
    let drops = answer::json(drops).unwrap();
    assert_eq!(
        drops[2],
        json!({"reason": "r2", "code": 0, "text": "", "remedy": "", "packets": 2})
    );
    let drops = answer::text(client.call(&show.asked(true)).unwrap());
    assert_eq!(
        drops,
        "reason  packets  meaning\nr0            0  -\nr1            1  -\nr2            2  -\n"
    );
    let del = rows(call("route_del", json!({"prefix": "10.0.0.0/8"})));
    let Err(ClientError::Refused { kind: ErrorKind::NotFound, message }) = client.call(&del) else {
        panic!("expected an error");
    };
    assert_eq!(message, "no route of source api to \"10.0.0.0/8\"");
    // A handler that panics ends its request, not the server.
    let reload = rows(Request::Reload);
    let Err(ClientError::Refused { kind, .. }) = client.call(&reload) else { panic!() };
    assert_eq!(kind, ErrorKind::Internal);
    let done = client.call(&rows(Request::ClearCounters)).unwrap();
    assert_eq!(done, [Response::Done { message: "ClearCounters".into() }]);
}

/// An answer that is not there, or not whole, is an error: not the answer that nothing is to be said.
#[test]
fn no_answer_is_an_error() {
    let ask = |said: &'static [u8]| {
        let place = Place::new();
        let listener = UnixListener::bind(place.socket()).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(said).unwrap();
        });
        let mut client = Client::connect(place.socket()).unwrap();
        let answer = client.call(&Request::Reload.asked(true));
        server.join().unwrap();
        answer
    };
    for said in [&b""[..], b"{\"response\":\"do", b"{\"response\":\"done\",\"message\":\"x\"}\n"] {
        let answer = ask(said);
        assert!(matches!(answer, Err(ClientError::HungUp(_))), "{said:?}: {answer:?}");
    }
    // It says that this is all, and has said nothing.
    let end = serde_json::to_string(&Response::End).unwrap() + "\n";
    let answer = ask(end.leak().as_bytes());
    assert!(matches!(answer, Err(ClientError::NoAnswer(_))), "{answer:?}");
}

#[test]
fn every_request_is_read_as_written() {
    let requests = [
        Request::show("interfaces"),
        call(
            "route_add",
            json!({"prefix": "2001:db8::/32", "next_hop": "192.0.2.1*3,192.0.2.2%lan"}),
        ),
        call("clear_macs", json!({})),
        Request::ClearCounters,
        Request::Reload,
        Request::Trace { count: 3, filter: "udp".into(), duration_s: None },
        Request::Capture {
            at: CaptureAt::Named("lan".into()),
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
    let _server = Server::bind(place.socket(), move |asked, out| {
        sender.send(asked).unwrap();
        let _ = out.send(Response::Done { message: "read".into() });
    });
    let mut client = Client::connect(place.socket()).unwrap();
    for (i, request) in requests.into_iter().enumerate() {
        let asked = request.asked(i % 2 == 0);
        client.call(&asked).unwrap();
        assert_eq!(receiver.recv().unwrap(), asked);
    }
}

/// Found by the fuzz target: a reader that rounds took another number than the one written.
#[test]
fn numbers_are_read_as_written() {
    let line = r#"{"request":"x","field":0.000400000000000013247444445625808697}"#;
    let request: Request = serde_json::from_str(line).unwrap();
    let written = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<Request>(&written).unwrap(), request);
}

/// Found by the fuzz target: the form of an answer belongs to what is asked, not to the request.
#[test]
fn text_is_no_field_of_a_request() {
    let line = r#"{"request":"x","text":true}"#;
    let error = serde_json::from_str::<Request>(line).unwrap_err();
    assert!(error.to_string().contains("`text` is not a field of a request"), "{error}");
    assert!(serde_json::from_str::<Asked>(line).unwrap().text);
}

/// What programs in other languages write.
#[test]
fn requests_on_the_wire() {
    let read = |text: &str| serde_json::from_str::<Asked>(text);
    let ask = |text: &str| read(text).unwrap().request;
    let at = |text: &str| {
        let text = format!(r#"{{"request":"capture","at":{text},"duration_s":2}}"#);
        let Request::Capture { at, duration_s, .. } = ask(&text) else { panic!("{text}") };
        assert_eq!(duration_s, Some(Duration::from_secs(2)));
        at
    };
    assert_eq!(at(r#"{"stage":"ip_lookup"}"#), CaptureAt::Stage("ip_lookup".into()));
    assert_eq!(at(r#"{"port":"lan"}"#), CaptureAt::Port("lan".into()));
    assert_eq!(at(r#"{"named":"lan"}"#), CaptureAt::Named("lan".into()));
    assert_eq!(at(r#""drops""#), CaptureAt::Drops);
    assert_eq!(at(r#""dumps""#), CaptureAt::Dumps);

    let add = r#"{"request":"route_add","next_hop":"lan","prefix":"10.0.0.0/8"}"#;
    let fields = json!({"prefix": "10.0.0.0/8", "next_hop": "lan"});
    assert_eq!(read(add).unwrap(), rows(call("route_add", fields)));
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(serde_json::to_value(read(add).unwrap()).unwrap(), value(add));
    let show = Request::show("routes");
    assert_eq!(
        serde_json::to_string(&rows(show.clone())).unwrap(),
        r#"{"request":"show","what":"routes"}"#
    );
    let text = r#"{"request":"show","text":true,"what":"routes"}"#;
    assert_eq!(serde_json::to_value(show.clone().asked(true)).unwrap(), value(text));
    assert_eq!(read(text).unwrap(), show.asked(true));
    assert_eq!(ask(r#"{"request":"stop"}"#), Request::Stop);

    for (bad, expected) in [
        ("[]", "expected an object"),
        ("{}", "missing field `request`"),
        (r#"{"request":7}"#, "`request`: expected a text"),
        (r#"{"request":"show"}"#, "missing field `what`"),
        (r#"{"request":"show","what":3}"#, "expected a string"),
        (r#"{"request":"show","what":"routes","more":1}"#, "unknown field `more`"),
        (r#"{"request":"show","what":"a","what":"b"}"#, "duplicate field `what`"),
        (r#"{"request":"stop","now":true}"#, "unknown field `now`"),
        (r#"{"request":"clear_counters","port":"lan"}"#, "unknown field `port`"),
        (r#"{"request":"show","what":"routes","text":1}"#, "`text`: expected true or false"),
        (r#"{"request":"trace","count":-1}"#, "expected u32"),
        (r#"{"request":"trace","count":1,"duration_s":-1}"#, "negative"),
        (r#"{"request":"capture","at":{"place":"lan"}}"#, "unknown variant `place`"),
    ] {
        let error = read(bad).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad}: {error}");
    }
    // Each name of the core is read as a variant, whatever it says of its fields.
    for name in CORE_REQUESTS {
        let read = read(&format!(r#"{{"request":"{name}"}}"#));
        assert!(!matches!(read, Ok(Asked { request: Request::Call { .. }, .. })), "{name}");
    }
    // What could not be read back is not written.
    for request in [call("stop", json!({})), call("rule_add", json!({"text": 1}))] {
        assert!(serde_json::to_string(&rows(request)).is_err());
    }
}

#[test]
fn responses_on_the_wire() {
    let text = serde_json::to_string(&frame(7)).unwrap();
    assert!(text.contains(r#""bytes":"00ff07""#), "{text}");
    assert_eq!(serde_json::from_str::<Response>(&text).unwrap(), frame(7));
    assert!(serde_json::from_str::<Response>(&text.replace("00ff07", "00f")).is_err());
    assert!(serde_json::from_str::<Response>(&text.replace("00ff07", "00+f")).is_err());
    let step = TraceStep { stage: "rx".into(), verdict: "next".into(), detail: "".into() };
    let row = DropRow { reason: "no_route".into(), packets: 7, ..DropRow::default() };
    let responses = [
        Response::Rows { table: "routes".into(), rows: vec![json!({"prefix": "10.0.0.0/8"})] },
        Response::Rows { table: "macs".into(), rows: vec![] },
        Response::object("runtime", &Runtime::default()),
        Response::Object { table: "nothing".into(), fields: serde_json::Map::new() },
        Response::piece("drops", &[row], true),
        Response::Table { columns: vec![], rows: vec![], empty: String::new() },
        Response::Text { text: "two\nlines\n".into() },
        Response::Trace { steps: vec![step] },
        Response::Done { message: String::new() },
        Response::error(ErrorKind::Full, "no room"),
        Response::End,
    ];
    for response in &responses {
        let text = serde_json::to_string(response).unwrap();
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(&serde_json::from_str::<Response>(&text).unwrap(), response, "{text}");
    }
    assert_eq!(
        serde_json::to_string(&responses[0]).unwrap(),
        r#"{"response":"routes","rows":[{"prefix":"10.0.0.0/8"}]}"#
    );
    assert_eq!(serde_json::to_string(&Response::End).unwrap(), r#"{"response":"end"}"#);
    for name in CORE_RESPONSES {
        let rows = Response::Rows { table: name.into(), rows: vec![] };
        assert!(serde_json::to_string(&rows).is_err(), "{name}");
        let read = serde_json::from_str(&format!(r#"{{"response":"{name}"}}"#));
        assert!(!matches!(read, Ok(Response::Object { .. })), "{name}");
    }
    let fields = fields_of(&json!({"rows": 1})).unwrap();
    let object = Response::Object { table: "runtime".into(), fields };
    assert!(serde_json::to_string(&object).is_err());
    for bad in [r#"{"response":"routes","rows":7}"#, r#"{"response":"a","rows":[],"b":1}"#, "{}"] {
        assert!(serde_json::from_str::<Response>(bad).is_err(), "{bad}");
    }
}

proptest! {
    /// Any request of an application, and any table, comes out as it went in.
    #[test]
    fn what_applications_say_passes_unchanged(
        name in "[a-z_]{1,12}",
        keys in proptest::collection::vec("\\PC{0,8}", 0..6),
        numbers in proptest::collection::vec(any::<u64>(), 6),
        text in any::<bool>(),
    ) {
        prop_assume!(!CORE_REQUESTS.contains(&name.as_str()));
        prop_assume!(!CORE_RESPONSES.contains(&name.as_str()));
        let reserved = ["request", "response", "text", "rows"];
        let keys = keys.into_iter().filter(|key| !reserved.contains(&key.as_str()));
        let fields: serde_json::Map<_, _> = keys
            .zip(&numbers)
            .map(|(key, n)| (key.clone(), json!([n, key, null, {"rows": n % 2 == 0}])))
            .collect();
        let asked = Request::Call { name: name.clone(), fields: fields.clone() }.asked(text);
        let line = serde_json::to_vec(&asked).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Asked>(&line).unwrap(), asked);
        let rows = vec![Value::Object(fields.clone()), Value::Null];
        for response in [
            Response::Rows { table: name.clone(), rows },
            Response::Object { table: name.clone(), fields },
        ] {
            let line = serde_json::to_vec(&response).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Response>(&line).unwrap(), response);
        }
    }
}

/// The pieces of a long table are one table to a client.
#[test]
fn answers_are_whole() {
    let row = |i: u64| DropRow { reason: format!("r{i}"), packets: i, ..DropRow::default() };
    let all: Vec<_> = (0..2500).map(row).collect();
    let pieces: Vec<_> = Response::pieces("drops", &all, true).collect();
    assert_eq!(pieces.len(), 3);
    assert_eq!(answer::text(pieces), table::table(&all));
    let pieces: Vec<_> = Response::pieces("drops", &all, false).collect();
    assert_eq!(pieces.len(), 3);
    assert_eq!(answer::json(pieces).unwrap(), serde_json::to_value(&all).unwrap());
    // No rows are an answer, too.
    let none = |text| Response::pieces::<DropRow>("drops", &[], text).collect::<Vec<_>>();
    assert_eq!(answer::text(none(true)), "no drops\n");
    assert_eq!(answer::json(none(false)).unwrap(), json!([]));
    let none = Response::pieces::<QueueRow>("queues", &[], true).collect();
    assert!(answer::text(none).starts_with("port  queue"));
    // Tables with other columns are tables of their own.
    let two = [
        Response::pieces("drops", &all[..1], true).collect::<Vec<_>>(),
        vec![Response::piece("queues", &[QueueRow::default()], true)],
    ];
    let text = answer::text(two.concat());
    assert_eq!(text.matches("\n\n").count(), 1, "{text}");
    let done = || vec![Response::Done { message: "2 differences".into() }];
    assert_eq!(answer::text(done()), "2 differences");
    assert_eq!(answer::json(done()).unwrap(), json!({"message": "2 differences"}));
    assert_eq!((answer::text(vec![]), answer::json(vec![])), (String::new(), None));
    let runtime = Response::object("runtime", &Runtime::default());
    assert_eq!(answer::json(vec![runtime]).unwrap()["uptime_s"], 0.0);
    // A program that has no text for a table answers with its rows.
    let rows = answer::text(vec![Response::rows("drops", &all[..2])]);
    assert_eq!(rows.lines().count(), 2, "{rows}");
}

/// A client says more of a table than is there: no panic.
#[test]
fn odd_tables_are_printed() {
    let text = |line: &str| answer::text(vec![serde_json::from_str(line).unwrap()]);
    let rows = text(r#"{"response":"table","columns":["a",">b"],"rows":[["1"],["1","2","3"],[]]}"#);
    assert_eq!(rows, "a  b\n1\n1  2\n\n");
    assert_eq!(text(r#"{"response":"table","columns":[],"rows":[["1"]]}"#), "\n\n");
}

#[test]
fn bad_lines_are_answered() {
    let place = Place::new();
    let limits = Limits { request_bytes: 256, long_request_bytes: 0, ..Limits::default() };
    let _server = Server::bind_with(place.socket(), limits, answer).unwrap();
    let long = format!("{{\"request\":\"{}\"}}", "x".repeat(1000));
    let cases = [
        "nonsense",
        "{\"request\":\"show\",\"what\":[]}",
        "{\"request\":\"show\",\"what\":\"routes\",\"text\":\"yes\"}",
        "{\"request\":\"reload\",\"extra\":1}",
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
    let _server = Server::bind(place.socket(), move |asked, out: &mut dyn Responder| {
        answer(asked, out);
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
    let streamed = client.stream(&rows(capture), |response| {
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
    let grace = Duration::from_secs(3600);
    let limits = Limits { connections: 2, reserved: 0, grace, ..Limits::default() };
    let server = Server::bind_with(place.socket(), limits, answer).unwrap();
    let mut clients = [(); 2].map(|()| Client::connect(place.socket()).unwrap());
    for client in &mut clients {
        client.call(&rows(Request::ClearCounters)).unwrap();
    }
    let mut third = Client::connect(place.socket()).unwrap();
    let Err(ClientError::Refused { kind: ErrorKind::Busy, .. }) = third.call(&rows(Request::Stop))
    else {
        panic!("expected busy");
    };
    let [first, mut second] = clients;
    drop(first);
    wait(|| {
        Client::connect(place.socket())
            .is_ok_and(|mut c| c.call(&rows(Request::ClearCounters)).is_ok())
    });
    drop(server);
    assert!(!place.socket().exists());
    assert!(second.call(&rows(Request::ClearCounters)).is_err());
    let Err(ClientError::NotRunning(_)) = Client::connect(place.socket()) else { panic!() };
}

/// Whether `path` answers.
fn answers(path: &Path) -> bool {
    Client::connect(path).is_ok_and(|mut c| c.call(&rows(Request::ClearCounters)).is_ok())
}

#[test]
fn slow_clients_keep_nobody_out() {
    let place = Place::new();
    let grace = Duration::from_millis(20);
    let limits = Limits { reserved: 0, is_root: |_| false, grace, ..Limits::default() };
    let _server = Server::bind_with(place.socket(), limits, answer).unwrap();
    // Half of them send nothing, half never end their request.
    let slow: Vec<_> = (0..2 * limits.connections)
        .map(|i| {
            let mut stream = UnixStream::connect(place.socket()).unwrap();
            // On a busy machine it may be thrown out before it has written.
            let _ = stream.write_all(&b"{\"request\""[..10 * (i % 2)]);
            stream
        })
        .collect();
    for _ in 0..100 {
        wait(|| answers(&place.socket()));
    }
    drop(slow);
    // Who is being answered keeps the place.
    let capture = Request::Capture {
        at: CaptureAt::Drops,
        filter: String::new(),
        count: None,
        duration_s: None,
    };
    let (sender, begun) = mpsc::sync_channel::<u64>(1000);
    let path = place.socket();
    let frames = std::thread::spawn(move || {
        let mut n = 0;
        let _ = Client::connect(path).unwrap().stream(&rows(capture), |_| {
            n += 1;
            let more = n < 1_000_000 && sender.send(n).is_ok();
            if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        n
    });
    begun.recv().unwrap();
    let _slow: Vec<_> = (0..3 * limits.connections)
        .map(|_| {
            std::thread::sleep(2 * grace / limits.connections as u32);
            UnixStream::connect(place.socket()).unwrap()
        })
        .collect();
    wait(|| answers(&place.socket()));
    let seen = (0..5000).map(|_| begun.recv().unwrap()).max().unwrap();
    assert!(seen >= 5000);
    drop(begun);
    assert!(frames.join().unwrap() > 5000);
}

#[test]
fn root_has_places_of_its_own() {
    static IS_ROOT: AtomicU64 = AtomicU64::new(0);
    let place = Place::new();
    let is_root = |_: &UnixStream| IS_ROOT.load(Ordering::Acquire) == 1;
    let limits = Limits {
        connections: 3,
        reserved: 1,
        is_root,
        grace: Duration::from_secs(3600),
        ..Limits::default()
    };
    let _server = Server::bind_with(place.socket(), limits, answer).unwrap();
    let connect = || {
        let mut client = Client::connect(place.socket()).unwrap();
        client.call(&rows(Request::ClearCounters)).map(|_| client)
    };
    let others: Vec<_> = (0..3).map(|_| connect().unwrap()).collect();
    assert!(matches!(connect(), Err(ClientError::Refused { kind: ErrorKind::Busy, .. })));
    IS_ROOT.store(1, Ordering::Release);
    let root = connect().unwrap();
    assert!(connect().is_err(), "one is reserved");
    drop(others);
    wait(|| connect().is_ok());
    drop(root);
}

/// How long a client that sends or reads so slowly keeps its connection.
#[test]
fn a_request_and_its_answer_have_a_time() {
    let place = Place::new();
    let limits = Limits {
        idle_timeout: Duration::from_secs(60),
        request_timeout: Duration::from_millis(300),
        write_timeout: Duration::from_millis(300),
        answer_timeout: Duration::from_millis(900),
        ..Limits::default()
    };
    let many = |asked: Asked, out: &mut dyn Responder| match asked.request {
        Request::Show { .. } => {
            let text = "x".repeat(100_000);
            while out.send(Response::Text { text: text.clone() }).is_ok() {}
        }
        _ => answer(asked, out),
    };
    let _server = Server::bind_with(place.socket(), limits, many).unwrap();
    // Byte by byte.
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    wait(|| {
        std::thread::sleep(Duration::from_millis(20));
        stream.write_all(b" ").is_err()
    });
    // A little of each response, in time.
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    stream.write_all(b"{\"request\":\"show\",\"what\":\"x\"}\n").unwrap();
    let begin = Instant::now();
    let mut bytes = vec![0; 50_000];
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(begin.elapsed() < Duration::from_secs(20), "it reads for ever");
    }
}

#[test]
fn a_long_request_has_a_place_of_its_own() {
    let place = Place::new();
    let limits = Limits {
        request_bytes: 256,
        long_request_bytes: 100_000,
        is_root: |_| false,
        ..Limits::default()
    };
    let _server = Server::bind_with(place.socket(), limits, answer).unwrap();
    let long = |n: usize| rows(call("x", json!({"field": "x".repeat(n)})));
    let ask = |asked: &Asked| Client::connect(place.socket()).unwrap().call(asked);
    assert!(ask(&long(90_000)).is_ok());
    let Err(ClientError::Refused { kind: ErrorKind::BadRequest, message }) = ask(&long(2_000_000))
    else {
        panic!("expected an error");
    };
    assert_eq!(message, "a request has at most 100000 bytes");
    // One of another client is under way, if it was there first.
    let mut first = None;
    wait(|| {
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        stream.write_all(&[b' '; 5000]).unwrap();
        first = Some(stream);
        let asked = ask(&long(50_000));
        matches!(asked, Err(ClientError::Refused { kind: ErrorKind::Busy, .. }))
    });
    assert!(ask(&long(50)).is_ok(), "others go on");
    drop(first);
    wait(|| ask(&long(50_000)).is_ok());
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
    Client::connect(place.socket()).unwrap().call(&rows(Request::ClearCounters)).unwrap();
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
    assert_eq!(table::drops(&rows), format!("{expected}{below}"));
    assert_eq!(table::drops(&[]), "no drops\n");
    let runtime = Runtime {
        version: "0.1.0".into(),
        uptime_s: 3723.0,
        table_bytes: 70 << 20,
        lines: [["flows", "3 of 7"], ["", "1 lost"]].map(|line| line.map(String::from)).into(),
        workers: vec![WorkerRow { busy_percent: 12.34, ..WorkerRow::default() }],
        ..Runtime::default()
    };
    let text = table::runtime(&runtime);
    assert!(text.contains("uptime         1 h 2 min\n"), "{text}");
    assert!(text.contains("tables         70.0 MiB\n"), "{text}");
    let lines = "table version  0\nflows          3 of 7\n               1 lost\ntables";
    assert!(text.contains(lines), "{text}");
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
    let row = |name: &str| InterfaceRow {
        name: name.to_owned(),
        kind: "west".to_owned(),
        ..InterfaceRow::default()
    };
    let long = "x".repeat(8000);
    let text = table::table(&[row("a"), row(&long), row("abcdefgh")]);
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

/// What applications say of themselves is beside the rest.
#[test]
fn the_runtime_holds_what_applications_say() {
    let totals = json!({"router": {"answers_sent": 3}, "routes_v4": 7});
    let runtime = Runtime {
        version: "0.1.0".into(),
        applications: fields_of(&totals).unwrap(),
        lines: vec![["routes".into(), "7 v4".into()]],
        ..Runtime::default()
    };
    let value = serde_json::to_value(&runtime).unwrap();
    assert_eq!((&value["version"], &value["routes_v4"]), (&json!("0.1.0"), &json!(7)));
    assert_eq!(value["router"]["answers_sent"], 3);
    assert!(value.get("lines").is_none() && value.get("applications").is_none());
    let read: Runtime = serde_json::from_value(value).unwrap();
    assert_eq!(read, Runtime { lines: Vec::new(), ..runtime });
}

#[track_caller]
fn wait(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "no answer in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_folder_of_the_socket_is_made_and_goes() {
    let place = Place::new();
    let folder = place.0.join("run");
    let bind = |name: &str| Server::bind(place.0.join(name), answer);
    {
        let _first = bind("run/a.sock").unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o022, 0);
    }
    assert!(!folder.exists());
    let first = bind("run/a.sock").unwrap();
    let second = bind("run/b.sock").unwrap();
    drop(first);
    assert!(second.path().exists(), "it is in use");
    drop(second);
    // One that was there stays.
    assert!(folder.exists());
    let error = bind("not/there/a.sock").unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
}
