//! Bytes for the parsers of application protocols: segments of any size say the same, and every bound holds.
//!
//! The first byte is the size of a segment, the rest a stream; as a whole it is also a message of DNS, the body of a
//! hello and a datagram of QUIC.
#![no_main]

use l7proto::http1::{self, Field, Head};
use l7proto::lines::{Command, Lines, Reply, SshBanner};
use l7proto::quic::InitialReader;
use l7proto::tls::{ClientHello, HELLO_MAX, HelloReader, Ja4Transport, ServerHello};
use l7proto::{Direction, dns};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, stream)) = bytes.split_first() else { return };
    let size = usize::from(*size).max(1);
    let segments = || stream.chunks(size);

    let (mut whole, mut head) = (Head::new(), Head::new());
    let done = whole.feed(stream);
    let mut fed = 0;
    let mut last = http1::Progress::More;
    for segment in segments() {
        last = head.feed(segment);
        if let http1::Progress::Done(len) = last {
            last = http1::Progress::Done(fed + len);
            break;
        }
        fed += segment.len();
    }
    assert_eq!(last, done);
    assert_eq!((head.method(), head.target()), (whole.method(), whole.target()));
    assert_eq!((head.status(), head.version()), (whole.status(), whole.version()));
    for field in [Field::Host, Field::UserAgent, Field::ContentType, Field::Upgrade] {
        assert_eq!(head.field(field), whole.field(field));
        let span = head.field(field).unwrap_or_default();
        assert_eq!(span.of(stream).len(), span.len as usize);
    }

    let (mut whole, mut reader) = (HelloReader::default(), HelloReader::default());
    let done = whole.feed(stream);
    for segment in segments() {
        reader.feed(segment);
    }
    assert_eq!(reader.feed(&[]), done);
    assert_eq!(reader.message(), whole.message());
    assert!(reader.message().is_none_or(|message| message.len() <= HELLO_MAX));
    for kind in [1, 2] {
        let len = (stream.len() as u32).to_be_bytes();
        let message = [&[kind], &len[1..], stream].concat();
        if let Some(hello) = ClientHello::parse(&message) {
            assert_eq!(hello.ja4(Ja4Transport::Tcp).len(), 36);
            let _ = (hello.ja3(), hello.server_name(), hello.alpn().count());
        }
        if let Some(hello) = ServerHello::parse(&message) {
            let _ = (hello.ja3s(), hello.alpn(), hello.version());
        }
    }

    let mut lines = Lines::default();
    for segment in segments() {
        lines.feed(segment, |line, _| {
            let _ = (SshBanner::parse(line), Reply::parse(line), Command::parse(line));
        });
    }

    if let Some(message) = dns::Message::parse(stream) {
        let mut buffer = [0; 4 * dns::NAME_MAX];
        let names = message.questions().map(|q| q.name).chain(message.records().map(|r| r.name));
        for name in names {
            assert!(name.labels().count() <= 128);
            let is_whole = name.labels().all(|label| label.is_some());
            assert_eq!(name.write(&mut buffer).is_some(), is_whole);
        }
        assert!(message.end().is_none_or(|end| end <= stream.len()));
    }

    let mut reader = InitialReader::new(Direction::Opener);
    reader.feed(Direction::Opener, stream);
    reader.feed(Direction::Opener, stream);
});
