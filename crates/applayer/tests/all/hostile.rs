//! Input that asks for more than it is worth: time and memory have bounds, and what exceeds them is said.

use applayer::{AnomalyKind, Buffer, Direction, Limits, Piece, Session, Sink, Transaction};
use l7proto::Transport;

use crate::http::gzip;
use crate::recorder::{S, Step, c, run, s, start, stream};

/// Counts what it is given and keeps nothing.
#[derive(Default)]
struct Counter {
    bytes: u64,
    largest: usize,
    transactions: u64,
    open: u64,
    most_open: u64,
    anomalies: u64,
}

impl Sink for Counter {
    fn piece(&mut self, piece: &Piece<'_>) {
        self.bytes += piece.bytes.len() as u64;
        self.largest = self.largest.max(piece.bytes.len());
    }

    fn transaction(&mut self, _: &Transaction, progress: applayer::Progress) {
        match progress {
            applayer::Progress::Begun => {
                (self.transactions, self.open) = (self.transactions + 1, self.open + 1)
            }
            applayer::Progress::Finished => self.open -= 1,
            _ => {}
        }
        self.most_open = self.most_open.max(self.open);
    }

    fn anomaly(&mut self, _: &applayer::Anomaly) {
        self.anomalies += 1;
    }
}

/// The same bytes over and over behind a beginning.
fn endless(port: u16, begin: &[Step], direction: Direction, again: &[u8], times: usize) -> Counter {
    let limits = Limits::default();
    let mut counter = Counter::default();
    let mut session = Session::new(start(Transport::Stream, port));
    let mut offsets = [0; 2];
    let mut feed = |direction: Direction, bytes: &[u8]| {
        let offset = &mut offsets[direction as usize];
        session.data(&limits, direction, *offset, bytes, 1, &mut counter);
        *offset += bytes.len() as u64;
    };
    for step in begin {
        if let Step::Data(direction, bytes) = step {
            feed(*direction, bytes);
        }
    }
    (0..times).for_each(|_| feed(direction, again));
    session.finish(&limits, 1, &mut counter);
    counter
}

#[test]
fn content_that_grows() {
    let bomb = gzip(&gzip(&vec![0; 20 << 20]));
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {}\r\n\r\n",
        bomb.len()
    );
    let r = stream(
        80,
        &[c(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), s(head.as_bytes()), Step::Data(S, bomb)],
    );
    assert!(r.has(AnomalyKind::HttpBomb));
    assert!(r.files[0].size <= 1 << 20);
    let body = r.text(0, Buffer::HttpResponseBody).unwrap();
    assert!(body.len() as u64 <= Limits::default().body_bytes);
}

#[test]
fn endless_parts_of_http() {
    let request = [c(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")];
    let chunked = s(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let begin = [request[0].clone(), chunked];
    // Bodies beyond the limit are counted and not handed on.
    let found = endless(80, &begin, S, &b"1\r\nx\r\n".repeat(1000), 3000);
    let limits = Limits::default();
    assert!(found.bytes <= 2 * limits.body_bytes + 1000, "{}", found.bytes);
    assert_eq!(found.anomalies, 0);
    // A size of a chunk, a trailer, a head, a line that never end.
    endless(80, &begin, S, b"0;extension", 100_000);
    endless(80, &[begin[0].clone(), begin[1].clone(), s(b"0\r\n")], S, b"a: b\r\n", 100_000);
    let found = endless(80, &request, S, &b"HTTP/1.1 200 OK\r\n".repeat(10), 5000);
    assert!(found.largest <= 64 << 10);
    let found = endless(80, &[], Direction::ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 10_000);
    assert_eq!((found.transactions, found.anomalies), (10_000, u64::from(limits.anomalies)));
    // Responses that nobody asked for end when they are whole; while a request goes on too.
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let post = [c(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n")];
    for begin in [&request, &post] {
        let found = endless(80, begin, S, response, 10_000);
        assert_eq!((found.transactions, found.anomalies), (10_000, u64::from(limits.anomalies)));
        assert!(found.most_open <= 2 && found.open == 0, "{} at a time", found.most_open);
    }
    let field = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 100]].concat();
    let found = endless(80, &[c(&field)], Direction::ToServer, &[b'a'; 1000], 1000);
    assert!(found.anomalies >= 1 && found.transactions == 0);
}

/// Bytes that open transactions say: of each its number, and how many.
#[derive(Default)]
struct Holder {
    open: Vec<(u64, usize)>,
    most: usize,
    anomalies: Vec<AnomalyKind>,
}

fn said(transaction: &Transaction) -> usize {
    let sum = |texts: &[Vec<u8>]| texts.iter().map(Vec::len).sum::<usize>();
    let pairs = |pairs: &[(Vec<u8>, Vec<u8>)]| {
        pairs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    };
    match &transaction.data {
        applayer::Data::Http(http) => {
            let heads = pairs(&http.request_headers) + pairs(&http.response_headers);
            heads + http.uri.len() + http.uri_raw.len()
        }
        applayer::Data::Ftp(ftp) => {
            let replies = ftp.replies.iter().map(|(_, text)| text.len()).sum::<usize>();
            ftp.command.len() + ftp.argument.len() + replies
        }
        applayer::Data::Smtp(smtp) => {
            let mail = sum(&smtp.email.attachments) + sum(&smtp.email.urls);
            sum(&smtp.rcpt_to) + mail + pairs(&smtp.email.fields)
        }
        _ => 0,
    }
}

impl Sink for Holder {
    fn transaction(&mut self, transaction: &Transaction, progress: applayer::Progress) {
        self.open.retain(|(id, _)| *id != transaction.id);
        self.open.push((transaction.id, said(transaction)));
        self.most = self.most.max(self.open.iter().map(|(_, bytes)| bytes).sum());
        if progress == applayer::Progress::Finished {
            self.open.pop();
        }
    }

    fn anomaly(&mut self, anomaly: &applayer::Anomaly) {
        self.anomalies.push(anomaly.kind);
    }
}

/// What a session says at most at a time, of steps that are repeated.
fn held(port: u16, begin: &[Step], again: &[Step], times: usize) -> Holder {
    let limits = Limits::default();
    let mut holder = Holder::default();
    let mut session = Session::new(start(Transport::Stream, port));
    let (mut offsets, mut most_memory) = ([0; 2], 0);
    for step in begin.iter().chain((0..times).flat_map(|_| again)) {
        let Step::Data(direction, bytes) = step else { continue };
        let offset = &mut offsets[*direction as usize];
        session.data(&limits, *direction, *offset, bytes, 1, &mut holder);
        *offset += bytes.len() as u64;
        // What it says that it holds is no less than what its transactions say, and has a bound too.
        let said = holder.open.iter().map(|(_, bytes)| bytes).sum::<usize>();
        let memory = session.memory();
        assert!(memory >= said, "{memory} bytes of memory, {said} said");
        most_memory = most_memory.max(memory);
    }
    assert!(most_memory <= limits.session_bytes + (256 << 10), "{most_memory} bytes of memory");
    session.finish(&limits, 1, &mut holder);
    assert_eq!(holder.open, []);
    assert_eq!(session.memory(), size_of::<Session>());
    holder
}

/// Many large transactions that wait, or large ones that go on: a session has a bound for all of them together.
#[test]
fn sessions_hold_no_more_than_their_bytes() {
    let bound = Limits::default().session_bytes;
    // 63 heads of 45 kB, and nobody answers.
    let field = |n| format!("X{n}: {}\r\n", "z".repeat(220));
    let fields = (0..200).map(field).collect::<String>();
    let request = c(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes());
    let found = held(80, &[], std::slice::from_ref(&request), 63);
    assert!(found.most <= bound, "{} bytes", found.most);
    assert!(found.most > bound / 2, "{} bytes", found.most);
    let many = AnomalyKind::HttpTooManyOpen;
    assert_eq!(found.anomalies.iter().filter(|kind| **kind == many).count(), 63 - 4);
    // Tiny fields cost more to keep than they say.
    let tiny = (0..250).map(|_| "a:\n").collect::<String>();
    let tiny = c(format!("GET / HTTP/1.1\nHost: h\n{tiny}\n").as_bytes());
    let found = held(80, &[], &[tiny], 63);
    assert!(found.anomalies.contains(&many));
    // The answers are large too: one more head at most.
    let response = s(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{fields}\r\nx").as_bytes());
    let found = held(80, &[], &[request.clone(), request.clone(), response.clone()], 50);
    assert!(found.most <= bound + (64 << 10), "{} bytes", found.most);
    // Requests that are answered leave nothing behind.
    let found = held(80, &[], &[request, response], 50);
    assert!(!found.anomalies.contains(&many), "{:?}", found.anomalies);
    // Commands, replies.
    let long = "a".repeat(4000);
    let begin = [s(b"220 ftp\r\n")];
    let command = c(format!("STOR {long}\r\n").as_bytes());
    let reply = s(format!("200-{long}\r\n").as_bytes());
    let found = held(21, &begin, std::slice::from_ref(&command), 200);
    assert!(found.most <= bound / 2, "{} bytes", found.most);
    let found = held(21, &begin, &[command, reply], 200);
    assert!(found.most <= bound, "{} bytes", found.most);
    // Recipients, names of attachments, URLs.
    let begin = [s(b"220 a ESMTP\r\n"), c(b"EHLO a\r\nMAIL FROM:<a>\r\n")];
    let found = held(25, &begin, &[c(format!("RCPT TO:<{long}>\r\n").as_bytes())], 200);
    assert!(found.most <= bound / 2, "{} bytes", found.most);
    let data = c(b"DATA\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n");
    let begin = [begin[0].clone(), begin[1].clone(), data];
    let part = format!(
        "--b\r\nContent-Disposition: attachment; filename={long}\r\n\r\nx\r\n--b\r\n\r\nhttp://a/{long}\r\n"
    );
    let found = held(25, &begin, &[c(part.as_bytes())], 200);
    assert!(found.most <= bound / 2 + 1000, "{} bytes", found.most);
}

#[test]
fn endless_parts_of_mail() {
    let begin = [s(b"220 a ESMTP\r\n"), c(b"EHLO a\r\nMAIL FROM:<a>\r\nDATA\r\n")];
    let to_server = Direction::ToServer;
    endless(25, &begin, to_server, b"X: y\r\n", 50_000);
    endless(25, &begin, to_server, &[b'a'; 1000], 2000);
    endless(25, &begin[..1], to_server, b"RCPT TO:<a>\r\n", 50_000);
    endless(25, &begin, S, b"250 a\r\n", 50_000);
    // Parts within parts, each with a boundary of its own.
    let mut text = Vec::new();
    for depth in 0..1000 {
        text.extend(
            format!("Content-Type: multipart/mixed; boundary=b{depth}\r\n\r\n--b{depth}\r\n")
                .bytes(),
        );
    }
    let r = stream(25, &[begin[0].clone(), begin[1].clone(), c(&text)]);
    assert!(r.has(AnomalyKind::MimeDepth));
    // Attachments without end.
    let mut text = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n".to_vec();
    for _ in 0..1000 {
        text.extend(b"--b\r\nContent-Disposition: attachment; filename=f\r\n\r\nx http://a/\r\n");
    }
    let r = stream(25, &[begin[0].clone(), begin[1].clone(), c(&text)]);
    let applayer::Data::Smtp(smtp) = &r.finished[0].data else { panic!() };
    assert_eq!(smtp.email.attachments.len(), Limits::default().entries);
    assert_eq!(r.files.len(), 1000);
}

#[test]
fn records_that_lie() {
    let record = |kind: u8, body: &[u8]| {
        [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
    };
    let hello =
        record(22, &[&[1, 0, 0, 43, 3, 3][..], &[7; 32], &[0, 0, 2, 0, 1, 1, 0, 0, 0]].concat());
    let cases: [(Vec<u8>, AnomalyKind); 4] = [
        (record(99, b"x"), AnomalyKind::TlsRecordType),
        (vec![22, 9, 9, 0, 1, 0], AnomalyKind::TlsRecordVersion),
        (vec![22, 3, 3, 0xff, 0xff], AnomalyKind::TlsRecordLength),
        (record(22, &[11, 0xff, 0xff, 0xff, 0]), AnomalyKind::TlsHandshakeLength),
    ];
    for (bytes, kind) in cases {
        let r = stream(443, &[c(&hello), c(&bytes)]);
        assert!(r.has(kind), "{kind:?}: {:?}", r.anomalies);
    }
    // A message of many small records, never whole.
    let part = record(22, b"\x0b\x00\xff\x00\x00\x00");
    let found = endless(443, &[c(&hello)], Direction::ToClient, &part, 20_000);
    assert!(found.anomalies >= 1);
    // A chain whose lengths lie.
    let chain = record(22, &[11, 0, 0, 6, 0, 0, 3, 0xff, 0xff, 0xff]);
    let r = stream(443, &[c(&hello), s(&chain)]);
    assert!(r.has(AnomalyKind::TlsHandshake));
}

#[test]
fn other_sides_without_end() {
    let banner = [c(b"SSH-2.0-a\r\n"), s(b"SSH-2.0-b\r\n")];
    endless(22, &banner, S, &[0, 0, 0, 12, 4, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 20_000);
    endless(22, &banner[..1], S, b"no banner\r\n", 20_000);
    endless(21, &[s(b"220 ftp\r\n"), c(b"USER a\r\n")], Direction::ToServer, b"NOOP\r\n", 20_000);
    endless(21, &[s(b"220 ftp\r\n"), c(b"USER a\r\n")], S, b"200-a\r\n", 20_000);
    endless(9, &[], S, &[0x80; 100], 1000);
    // Nothing is read of what is no protocol.
    let limits = Limits { held_bytes: 100, ..Limits::default() };
    let r = run(start(Transport::Stream, 9), &limits, &[s(&[0x80; 1000]), c(&[0x81; 1000])]);
    assert_eq!(r.protocols, [None]);
}
