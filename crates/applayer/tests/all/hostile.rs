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
        (record(22, &[11, 0xff, 0xff, 0xff, 0]), AnomalyKind::TlsHandshake),
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
