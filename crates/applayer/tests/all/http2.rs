//! HTTP/2: streams are transactions with the buffers of HTTP.

use applayer::{AnomalyKind, Buffer, Data, FileState, Http, Limits, Progress};
use l7proto::{Protocol, Transport};

use crate::http::gzip;
use crate::random::Random;
use crate::recorder::{C, Recorder, S, Step, c, run, s, start, stream};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const PRIORITY: u8 = 0x20;

/// A frame (RFC 9113 §4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block of literal fields, which no table keeps, or with `0x40` as `first` the table does.
pub fn block(first: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(first);
        for text in [name, value] {
            assert!(text.len() < 127);
            out.push(text.len() as u8);
            out.extend(text.bytes());
        }
    }
    out
}

fn get(path: &str) -> Vec<u8> {
    block(0, &[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "H:80")])
}

fn http(r: &Recorder, at: usize) -> &Http {
    match &r.finished[at].data {
        Data::Http(http) => http,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_and_its_response() {
    let request = block(
        0x40,
        &[
            (":method", "POST"),
            (":path", "/a%2fb?q"),
            (":authority", "Host.example:8080"),
            ("user-agent", "agent"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ],
    );
    let r = stream(
        80,
        &[
            c(PREFACE),
            c(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])),
            s(&frame(SETTINGS, 0, 0, &[])),
            c(&frame(HEADERS, END_HEADERS, 1, &request)),
            c(&frame(DATA, 0, 1, b"one ")),
            c(&frame(DATA, END_STREAM | PADDED, 1, b"\x02two\0\0")),
            // `:status 200` of the static table.
            s(&frame(
                HEADERS,
                END_HEADERS,
                1,
                &[&[0x88][..], &block(0, &[("server", "x")])].concat(),
            )),
            s(&frame(DATA, 0, 1, b"answer")),
            s(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(0, &[("trailer", "y")]))),
        ],
    );
    assert_eq!(r.protocols, [Some(Protocol::Http2)]);
    assert_eq!(r.anomalies, []);
    let text = |buffer| r.text(0, buffer).unwrap_or_default();
    assert_eq!(text(Buffer::HttpMethod), "POST");
    assert_eq!(text(Buffer::HttpUri), "/a/b?q");
    assert_eq!(text(Buffer::HttpUriRaw), "/a%2fb?q");
    assert_eq!(text(Buffer::HttpHost), "host.example");
    assert_eq!(text(Buffer::HttpHostRaw), "Host.example:8080");
    assert_eq!(text(Buffer::HttpUserAgent), "agent");
    assert_eq!(text(Buffer::HttpCookie), "a=1; b=2");
    assert_eq!(text(Buffer::HttpRequestLine), "POST /a%2fb?q HTTP/2");
    assert_eq!(text(Buffer::HttpProtocol), "HTTP/2");
    assert_eq!(text(Buffer::HttpRequestBody), "one two");
    assert_eq!(text(Buffer::HttpStatCode), "200");
    assert_eq!(text(Buffer::HttpResponseLine), "HTTP/2 200");
    assert_eq!(text(Buffer::HttpServer), "x");
    assert_eq!(text(Buffer::HttpResponseBody), "answer");
    let headers = r.texts(0, Buffer::HttpHeader);
    let request = ":method: POST\r\n:path: /a%2fb?q\r\n:authority: Host.example:8080\r\nuser-agent: agent\r\n";
    assert_eq!(headers, [request, ":status: 200\r\nserver: x\r\n"]);
    assert_eq!(r.finished.len(), 1);
    assert_eq!(r.finished[0].protocol(), Protocol::Http2);
    let http = http(&r, 0);
    assert_eq!((http.status, http.port, http.body_bytes), (Some(200), Some(8080), [7, 6]));
    let steps: Vec<Progress> = r.progress.iter().map(|(_, progress)| *progress).collect();
    use Progress::{Begun, Done, Finished, Head};
    assert_eq!(steps, [Begun, Head(C), Done(C), Head(S), Done(S), Finished]);
    let files: Vec<_> = r.files.iter().map(|file| (file.size, file.state)).collect();
    assert_eq!(files, [(7, FileState::Closed), (6, FileState::Closed)]);
}

/// Streams that go on at the same time, blocks in parts, fields of the table, a coded body.
#[test]
fn streams_at_the_same_time() {
    let first = block(0x40, &[(":method", "GET"), (":path", "/one"), ("x-a", "b")]);
    let (begin, end) = first.split_at(7);
    let padded = [&[3, 0, 0, 0, 0, 9][..], begin, &[0; 3]].concat();
    let body = gzip(b"the second");
    let r = stream(
        80,
        &[
            c(PREFACE),
            c(&frame(HEADERS, PADDED | PRIORITY | END_STREAM, 1, &padded)),
            c(&frame(CONTINUATION, END_HEADERS, 1, end)),
            // The three fields of the first one, the latest first: another order.
            c(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0xbe, 0xbf, 0xc0])),
            s(&frame(HEADERS, END_HEADERS, 3, &block(0, &[(":status", "103")]))),
            s(&frame(
                HEADERS,
                END_HEADERS,
                3,
                &block(0, &[(":status", "200"), ("content-encoding", "gzip")]),
            )),
            s(&frame(HEADERS, END_HEADERS, 1, &[0x8d])),
            s(&frame(DATA, 0, 3, &body[..9])),
            s(&frame(DATA, END_STREAM, 1, b"the first")),
            s(&frame(DATA, END_STREAM, 3, &body[9..])),
        ],
    );
    assert_eq!(r.anomalies, []);
    assert_eq!(r.text(0, Buffer::HttpUri).unwrap(), "/one");
    assert_eq!(r.text(1, Buffer::HttpHeader).unwrap(), "x-a: b\r\n:path: /one\r\n:method: GET\r\n");
    assert_eq!(r.text(0, Buffer::HttpResponseBody).unwrap(), "the first");
    assert_eq!(r.text(1, Buffer::HttpResponseBody).unwrap(), "the second");
    let statuses: Vec<_> = (0..2).map(|at| (r.finished[at].id, http(&r, at).status)).collect();
    assert_eq!(statuses, [(0, Some(404)), (1, Some(200))]);
}

#[test]
fn streams_that_the_server_opens_or_resets() {
    let promise = [&[0, 0, 0, 2][..], &get("/pushed")].concat();
    let r = stream(
        80,
        &[
            c(PREFACE),
            c(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &get("/"))),
            s(&frame(PUSH_PROMISE, 0, 1, &promise[..10])),
            s(&frame(CONTINUATION, END_HEADERS, 1, &promise[10..])),
            s(&frame(HEADERS, END_HEADERS, 2, &[0x88])),
            s(&frame(DATA, END_STREAM, 2, b"pushed")),
            c(&frame(RST_STREAM, 0, 1, &[0; 4])),
        ],
    );
    assert_eq!(r.anomalies, []);
    assert_eq!(http(&r, 0).uri, b"/pushed");
    assert_eq!(r.text(1, Buffer::HttpUri), None, "no client asked for it");
    assert_eq!(r.text(1, Buffer::HttpResponseBody).unwrap(), "pushed");
    assert_eq!((r.finished[1].id, r.finished[1].done), (0, [true, false]));
}

/// After `101 Switching Protocols` the server may send frames first (RFC 7540 §3.2).
#[test]
fn an_upgrade_from_http_1() {
    let r = stream(
        80,
        &[
            c(b"GET /old HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
            s(b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
            s(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88])),
            c(PREFACE),
            c(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get("/new"))),
        ],
    );
    assert_eq!(r.protocols, [Some(Protocol::Http1), Some(Protocol::Http2)]);
    let found: Vec<_> = (0..3).map(|at| (http(&r, at).uri.clone(), http(&r, at).status)).collect();
    assert_eq!(
        found,
        [(b"/old".to_vec(), Some(101)), (vec![], Some(200)), (b"/new".to_vec(), None)]
    );
}

#[test]
fn what_cannot_be() {
    let begin = |rest: &[u8]| stream(80, &[c(PREFACE), c(rest)]);
    let has = |r: &Recorder, kind| {
        assert!(r.has(kind), "{:?}", r.anomalies);
        assert_eq!(r.buffers.len(), 0);
    };
    has(&stream(80, &[c(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\n\n")]), AnomalyKind::Http2Magic);
    has(&begin(&frame(CONTINUATION, 4, 1, &[])), AnomalyKind::Http2FrameData);
    has(&begin(&frame(DATA, 0, 0, b"x")), AnomalyKind::Http2FrameData);
    has(&begin(&frame(DATA, PADDED, 1, b"\x02x")), AnomalyKind::Http2FrameData);
    has(&begin(&frame(HEADERS, PADDED, 1, b"\x02x")), AnomalyKind::Http2FrameData);
    has(&begin(&frame(HEADERS, PRIORITY, 1, b"1234")), AnomalyKind::Http2FrameLength);
    has(&begin(&frame(HEADERS, END_HEADERS, 1, &[0x80])), AnomalyKind::Http2Header);
    // Only the rest of the block may follow its beginning.
    let open = frame(HEADERS, 0, 1, &[0x82]);
    let other = [&open[..], &frame(SETTINGS, 0, 0, &[])].concat();
    has(&begin(&other), AnomalyKind::Http2FrameData);
    // Blocks that are too long are not gathered.
    let long = [&open[..], &frame(CONTINUATION, 0, 1, &[0x82; 65_536])].concat();
    has(&begin(&long), AnomalyKind::Http2HeaderTooLong);
    let r = begin(&frame(
        HEADERS,
        END_HEADERS,
        1,
        &block(0, &[(":authority", "a"), ("host", "b"), ("X-Upper", "c")]),
    ));
    assert!(r.has(AnomalyKind::Http2AuthorityMismatch) && r.has(AnomalyKind::HttpRequestField));
    let user = frame(HEADERS, END_HEADERS, 1, &block(0, &[(":authority", "me@a")]));
    assert_eq!(begin(&user).kinds(), [AnomalyKind::Http2Userinfo]);
    // Streams begin in order, and once each; a trailer begins none.
    let ends = END_HEADERS | END_STREAM;
    for (streams, expected) in
        [([1, 3, 5], vec![]), ([1, 5, 3], vec![AnomalyKind::Http2StreamReuse]), ([1, 3, 3], vec![])]
    {
        let frames = streams.map(|stream| frame(HEADERS, ends, stream, &get("/")));
        assert_eq!(begin(&frames.concat()).kinds(), expected, "{streams:?}");
    }
    let range = [(":status", "206"), ("content-range", "bytes 9-0/*")];
    let answer = frame(HEADERS, END_HEADERS, 1, &block(0, &range));
    let request = frame(HEADERS, ends, 1, &get("/"));
    let r = stream(80, &[c(PREFACE), c(&request), s(&answer)]);
    assert_eq!(r.kinds(), [AnomalyKind::Http2Range]);
}

/// A block that names one large field a thousand times keeps what the bounds allow.
#[test]
fn a_bomb_of_fields() {
    let mut own = get("/");
    own.extend(block(0x40, &[("x", &"y".repeat(100))]));
    own.extend([0xbe; 1000]);
    let r = stream(80, &[c(PREFACE), c(&frame(HEADERS, END_HEADERS, 1, &own))]);
    assert!(r.has(AnomalyKind::Http2HeaderTooLong));
    assert_eq!(http(&r, 0).request_headers.len(), Limits::default().fields);
}

/// Streams that never end are given up, the oldest first; so are codings of more bodies than may have a window.
#[test]
fn many_streams() {
    let mut steps = vec![c(PREFACE)];
    let coded = [get("/"), block(0, &[("content-encoding", "gzip")])].concat();
    for at in 0..100 {
        steps.push(c(&frame(HEADERS, END_HEADERS, 2 * at + 1, &coded)));
    }
    let limits = Limits { anomalies: 1000, ..Limits::default() };
    let r = run(start(Transport::Stream, 80), &limits, &steps);
    let open = limits.open_transactions;
    let of = |id: usize| (AnomalyKind::Http2TooManyStreams, Some(id as u64));
    let found: Vec<_> = r.anomalies.iter().map(|(kind, id, _)| (*kind, *id)).collect();
    for id in 0..100 - open {
        assert!(found.contains(&of(id)), "{id}");
    }
    assert!(
        found.contains(&of(17))
            && !r.anomalies.contains(&(AnomalyKind::Http2TooManyStreams, Some(15), Some(C)))
    );
    assert_eq!(r.finished.len(), 100);
}

/// A gap in a body leaves the rest of the session; one in a head ends it.
#[test]
fn gaps() {
    let head = frame(HEADERS, END_HEADERS | END_STREAM, 1, &get("/"));
    let answer = frame(HEADERS, END_HEADERS, 1, &[0x88]);
    let steps = [
        c(PREFACE),
        c(&head),
        s(&answer),
        s(&frame(DATA, END_STREAM, 1, b"0123456789")[..12]),
        Step::Gap(S, 4),
        s(b"789"),
        c(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get("/after"))),
        Step::Gap(C, 5),
        c(&frame(HEADERS, END_HEADERS | END_STREAM, 5, &get("/lost"))),
    ];
    let r = stream(80, &steps);
    assert_eq!((r.files[0].size, r.files[0].has_gaps), (6, true));
    let uris: Vec<_> = (0..r.finished.len()).map(|at| http(&r, at).uri.clone()).collect();
    assert_eq!(uris, [b"/".to_vec(), b"/after".to_vec()]);
}

/// A conversation for the tests of cuts: whole frames, wrong ones, and what random bytes make of them.
pub fn conversation(random: &mut Random) -> Vec<Step> {
    let mut steps = vec![c(PREFACE)];
    for _ in 0..1 + random.below(12) {
        let stream = random.of(&[1, 1, 3, 5, 2]);
        let first = random.of(&[0, 0x40]);
        let (direction, mut own) = match random.one_in(2) {
            true => {
                (C, block(first, &[(":method", "POST"), (":path", random.of(&["/a", "/b?c"]))]))
            }
            false => (S, block(first, &[(":status", random.of(&["200", "404", "100"]))])),
        };
        if random.one_in(3) {
            own.extend(block(
                first,
                &[("content-encoding", "gzip"), ("cookie", "a"), ("cookie", "b")],
            ));
        }
        if random.one_in(3) {
            own.extend([0xbe, 0xbf][..1 + random.below(2)].iter());
        }
        let text = b"text of a body, again and again".repeat(random.below(4));
        let text = if random.one_in(2) { gzip(&text) } else { text };
        let ends = random.of(&[0, END_STREAM]);
        let frames = match random.below(6) {
            0 | 1 => frame(HEADERS, END_HEADERS | ends, stream, &own),
            2 => {
                let at = random.below(own.len());
                let begin = frame(HEADERS, ends, stream, &own[..at]);
                [begin, frame(CONTINUATION, END_HEADERS, stream, &own[at..])].concat()
            }
            3 => frame(DATA, ends, stream, &text),
            4 => frame(DATA, ends | PADDED, stream, &[&[4][..], &text, &[0; 4]].concat()),
            _ => frame(random.of(&[RST_STREAM, SETTINGS, PUSH_PROMISE, 77]), 0, stream, &[0; 6]),
        };
        steps.push(Step::Data(direction, frames));
    }
    steps
}
