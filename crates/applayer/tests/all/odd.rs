//! What is odd by Suricata's names: each event by what brings it, and no other one.

use applayer::AnomalyKind::{self, *};
use applayer::{Limits, Others, Session, Sink, Spoken};
use l7proto::{Protocol, Transport};

use crate::recorder::{C, Recorder, S, Step, c, s, start, stream};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn http(client: &str, server: &str) -> Vec<AnomalyKind> {
    let mut steps = vec![c(client.as_bytes())];
    steps.extend((!server.is_empty()).then(|| s(server.as_bytes())));
    stream(80, &steps).kinds()
}

/// A request with these fields beside `Host`.
fn request(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn requests() {
    let cookies = |count| request(&"X: y\r\n".repeat(count));
    let name = |len| {
        format!("POST /{} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", "n".repeat(len))
    };
    let many: String = (0..1100).map(|number| format!("X{number}: y\r\n")).collect();
    let long = request(&format!("X: {}\r\n", "y".repeat(70_000)));
    let ports = |port: &str| format!("GET / HTTP/1.1\r\nHost: a{port}\r\n\r\n");
    let cases: Vec<(String, Vec<AnomalyKind>)> = vec![
        (request(""), vec![]),
        (request("no colon\r\n"), vec![HttpRequestColon]),
        (request("bad name: x\r\n"), vec![HttpRequestField]),
        ("GET / HTTP/1.1\r\n folded\r\nHost: a\r\n\r\n".into(), vec![HttpRequestFolding]),
        (request("X: y\r\n folded\r\n"), vec![]),
        (cookies(65), vec![]),
        (cookies(66), vec![HttpRequestRepetitions]),
        (request("Authorization: Basic eDp5\r\n"), vec![]),
        (request("Authorization: bearer x\r\n"), vec![]),
        (request("Authorization: NTLM x\r\n"), vec![HttpAuthorization]),
        (ports(""), vec![]),
        (ports(":"), vec![]),
        (ports(":80"), vec![]),
        (ports(":8080"), vec![HttpPortMismatch]),
        (ports(":8o"), vec![HttpPortInvalid]),
        (ports(":70000"), vec![HttpAuthorityPort]),
        ("GET http://a:8080/ HTTP/1.1\r\nHost: a:8080\r\n\r\n".into(), vec![]),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".into(), vec![]),
        ("GET http://a~b/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), vec![HttpUriHostInvalid]),
        ("GET / HTTP/1.1\r\nHost: a~b\r\n\r\n".into(), vec![HttpHostInvalid]),
        ("\r\n GET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), vec![HttpLeadingBlank]),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), vec![]),
        (long, vec![HttpHeadTooLong]),
        (request(&many), vec![HttpTooManyFields]),
        (name(4095), vec![]),
        (name(4096), vec![HttpNameTooLong]),
        (request("Content-Length: 1\r\nContent-Length: 1\r\n") + "x", vec![]),
        (request("Content-Length: 1\r\nContent-Length: 2\r\n") + "x", vec![HttpRequestLengths]),
        (request("Content-Length: x\r\n"), vec![HttpRequestLength]),
        (request("Transfer-Encoding: chunked\r\n") + "1\r\nx\r\n0\r\n\r\n", vec![]),
        (
            request("Transfer-Encoding: chunked\r\n") + "1;a\r\nx\r\n1;a=b\r\nx\r\n0\r\n\r\n",
            vec![HttpRequestExtension],
        ),
        (request("Transfer-Encoding: own\r\n"), vec![HttpTransferCoding]),
        (GET.to_owned() + "body\r\n", vec![HttpRequestLine, HttpBodyUnexpected]),
    ];
    for (text, expected) in cases {
        let text_start: String = text.chars().take(80).collect();
        assert_eq!(http(&text, ""), expected, "{text_start:?}");
    }
    // The stream ends within the first line.
    for (text, expected) in [
        ("GET /x HTTP", vec![HttpLineIncomplete]),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n", vec![]),
    ] {
        let steps = [c(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), c(text.as_bytes()), Step::End(C)];
        assert_eq!(stream(80, &steps).kinds(), expected, "{text}");
    }
}

#[test]
fn responses() {
    let answer = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
    let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let chunks = |coding: &str, size: &str| {
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n{size}\r\nx\r\n0\r\n\r\n")
    };
    let many: String = (0..1100).map(|number| format!("X{number}: y\r\n")).collect();
    let go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    let cases: Vec<(String, Vec<AnomalyKind>)> = vec![
        (answer(""), vec![]),
        (answer("no colon\r\n"), vec![HttpResponseColon]),
        (answer("bad name: x\r\n"), vec![HttpResponseField]),
        (OK.replace("OK\r\n", "OK\r\n folded\r\n"), vec![HttpResponseFolding]),
        (answer(&"X: y\r\n".repeat(66)), vec![HttpResponseRepetitions]),
        (answer(&many), vec![HttpResponseTooManyFields]),
        (answer(&format!("X: {}\r\n", "y".repeat(70_000))), vec![HttpResponseHeadTooLong]),
        (answer("Content-Length: 1\r\n"), vec![HttpResponseLengths]),
        (answer("Content-Type: multipart/byteranges; boundary=x\r\n"), vec![HttpByteranges]),
        (answer("Content-Range: bytes 0-9/*\r\n"), vec![]),
        (answer("Content-Range: bytes 9-0/*\r\n"), vec![HttpRange]),
        (old.to_owned(), vec![HttpChunkedOld]),
        (chunks("chunked", "1"), vec![]),
        (chunks("chunked", "1;a=b"), vec![HttpResponseExtension]),
        (chunks("own, chunked", "1"), vec![HttpOddChunked]),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: own\r\n\r\n".into(),
            vec![HttpResponseTransferCoding],
        ),
        (go_on.to_owned() + OK, vec![]),
        (go_on.repeat(2) + OK, vec![HttpContinued]),
    ];
    for (text, expected) in cases {
        let text_start: String = text.chars().take(80).collect();
        assert_eq!(http(GET, &text), expected, "{text_start:?}");
    }
    // Once for each request.
    let steps = [GET, GET].map(|text| c(text.as_bytes()));
    let answers = [go_on, OK, go_on, OK].concat();
    let steps = [&steps[..], &[s(answers.as_bytes())]].concat();
    assert_eq!(stream(80, &steps).kinds(), []);
}

#[test]
fn forms() {
    let form = |part: &str| {
        let body = format!("--x\r\n{part}\r\n--x--\r\n");
        let len = body.len();
        request(&format!(
            "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {len}\r\n"
        )) + &body
    };
    let file =
        |name: &str| format!("Content-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n");
    for (part, expected) in [
        (file("a") + "\r\ntext", vec![]),
        (file("a") + "\r\n", vec![HttpMultipartNoData]),
        // No file was chosen.
        (file("") + "\r\n", vec![]),
        (file("a") + "no colon\r\n\r\ntext", vec![HttpMultipartHeader]),
        (file(&"n".repeat(4097)) + "\r\ntext", vec![HttpNameTooLong]),
    ] {
        assert_eq!(http(&form(&part), ""), expected, "{part:.80}");
    }
}

/// What a mail brings behind the greeting.
fn mail(text: &str) -> Vec<AnomalyKind> {
    let commands = b"EHLO a\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n";
    let steps = [
        s(b"220 a ESMTP\r\n"),
        c(commands),
        s(b"250 a\r\n250 ok\r\n250 ok\r\n354 go on\r\n"),
        c(text.as_bytes()),
        c(b".\r\n"),
        s(b"250 ok\r\n"),
    ];
    stream(25, &steps).kinds()
}

#[test]
fn mails() {
    let encoded = |coding: &str, len: usize| {
        format!("Content-Transfer-Encoding: {coding}\r\n\r\n{}\r\n", "A".repeat(len))
    };
    let part = |boundary: usize| {
        let boundary = "b".repeat(boundary);
        format!(
            "Content-Type: multipart/mixed; boundary={boundary}\r\n\r\n--{boundary}\r\n\r\nx\r\n--{boundary}--\r\n"
        )
    };
    let attached = |len: usize| {
        let names: String = (0..len.div_ceil(800))
            .map(|number| {
                format!(" filename*{number}={};\r\n", "n".repeat(800.min(len - number * 800)))
            })
            .collect();
        format!(
            "Content-Disposition: attachment;\r\n{}\r\n\r\nx\r\n",
            names.trim_end_matches(";\r\n")
        )
    };
    for (text, expected) in [
        ("Subject: x\r\n\r\ny\r\n".to_owned(), vec![]),
        (format!("{}: x\r\n\r\ny\r\n", "N".repeat(75)), vec![]),
        (format!("{}: x\r\n\r\ny\r\n", "N".repeat(76)), vec![MimeLongName]),
        (
            format!("X:\r\n{}\r\ny\r\n", format!(" {}\r\n", "v".repeat(900)).repeat(3)),
            vec![MimeLongValue],
        ),
        (format!("X: y\r\n\r\n{}\r\n", "t".repeat(998)), vec![]),
        (format!("X: y\r\n\r\n{}\r\n", "t".repeat(999)), vec![MimeLongLine]),
        (format!("X: y\r\n\r\n{0}\r\n{0}\r\n", "t".repeat(3000)), vec![MimeLongLine]),
        (encoded("base64", 76), vec![]),
        (encoded("base64", 80), vec![MimeLongEncoded]),
        (encoded("7bit", 80), vec![]),
        ("Content-Transfer-Encoding: quoted-printable\r\n\r\na=3Db=\r\nc\r\n".to_owned(), vec![]),
        (
            "Content-Transfer-Encoding: quoted-printable\r\n\r\na=xyz\r\n".to_owned(),
            vec![MimeQuoted],
        ),
        ("Content-Transfer-Encoding: base64\r\n\r\n!!!!\r\n".to_owned(), vec![MimeBase64]),
        (part(70), vec![]),
        (part(201), vec![MimeLongBoundary]),
        (attached(100), vec![]),
        (attached(4800), vec![MimeLongValue, MimeLongFilename]),
    ] {
        assert_eq!(mail(&text), expected, "{text:.80}");
    }
}

#[test]
fn servers_of_mail() {
    let steps = |answers: &str| stream(25, &[s(answers.as_bytes()), c(b"QUIT\r\n")]).kinds();
    assert_eq!(
        (steps("220 a ESMTP\r\n"), steps("554 a ESMTP no\r\n")),
        (vec![], vec![SmtpNoWelcome])
    );
    let tls = |answer: &[u8]| {
        let steps =
            [s(b"220 a ESMTP\r\n"), c(b"EHLO a\r\nSTARTTLS\r\n"), s(b"250 a\r\n"), s(answer)];
        stream(25, &steps).kinds()
    };
    assert_eq!((tls(b"220 go on\r\n"), tls(b"454 no\r\n")), (vec![], vec![SmtpTlsRejected]));
    // The mail comes before its place.
    let steps = [
        s(b"220 a ESMTP\r\n"),
        c(b"EHLO a\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\nSubject: x\r\n\r\ny\r\n.\r\n"),
        s(b"250 a\r\n250 ok\r\n250 ok\r\n354 go on\r\n250 ok\r\n"),
    ];
    assert_eq!(stream(25, &steps).kinds(), [SmtpPipelined]);
}

#[test]
fn tls() {
    let record = |kind: u8, body: &[u8]| {
        [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
    };
    let hello = |extensions: &[u8]| {
        let len = (extensions.len() as u16).to_be_bytes();
        let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0, 1, 1, 0], &len, extensions].concat();
        record(22, &[&[1, 0, 0, body.len() as u8][..], &body].concat())
    };
    let name = |kind: u8, list: u8, len: u8| [0, 0, 0, 6, 0, list, kind, 0, len, b'a'];
    let right = name(0, 4, 1);
    for (extensions, expected) in [
        (&right[..], vec![]),
        (&[right, right].concat(), vec![TlsSeveralSni]),
        (&name(1, 4, 1), vec![TlsSniType]),
        (&name(0, 9, 1), vec![TlsSniLength]),
        (&name(0, 4, 9), vec![TlsSniLength]),
    ] {
        assert_eq!(stream(443, &[c(&hello(extensions))]).kinds(), expected, "{extensions:?}");
    }
    for (heartbeat, expected) in [
        (&[&[1, 0, 1, b'x'][..], &[0; 16]].concat()[..], vec![TlsHeartbeatSeen]),
        (&[1, 0xff, 0xff, 0], vec![TlsHeartbeat, TlsHeartbeatSeen]),
        (&[9, 0, 1, 0], vec![TlsHeartbeatSeen, TlsHeartbeatInvalid]),
        (&[1, 0], vec![TlsHeartbeatSeen, TlsHeartbeatInvalid]),
    ] {
        let r = stream(443, &[c(&hello(&right)), c(&record(24, heartbeat))]);
        let mut expected = expected.clone();
        expected.sort();
        assert_eq!(r.kinds(), expected, "{heartbeat:?}");
    }
}

/// Implementations take a hello in a record of any minor version. One that is too long is refused by all, and is odd.
#[test]
fn records_of_odd_versions_and_lengths() {
    let extension = [0, 0, 0, 6, 0, 4, 0, 0, 1, b'a'];
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0, 1, 1, 0, 0, 10], &extension].concat();
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    for (minor, expected) in
        [(1, vec![]), (4, vec![]), (5, vec![TlsRecordVersion]), (0xff, vec![TlsRecordVersion])]
    {
        let half = message.len() as u8 / 2;
        let (front, back) = message.split_at(half.into());
        let first = [&[22, 3, minor, 0, half][..], front].concat();
        let rest = [&[22, 3, minor, 0, back.len() as u8][..], back].concat();
        let r = stream(40_000, &[c(&[first, rest].concat())]);
        assert_eq!(r.text(0, applayer::Buffer::TlsSni).as_deref(), Some("a"), "{minor}");
        assert_eq!(r.kinds(), expected, "{minor}");
    }
    let long = [&[22, 3, 1, 0xff, 0xff][..], &message, &[0; 20_000]].concat();
    let r = stream(40_000, &[c(&long)]);
    assert_eq!(r.protocols, [Some(Protocol::Tls)]);
    assert_eq!(r.kinds(), [TlsRecordLength]);
}

/// Commands and replies that are longer than the limit have Suricata's names.
#[test]
fn lines_of_ftp() {
    let long = "x".repeat(9000);
    let command = format!("USER {long}\r\n");
    let steps =
        [s(b"220 a FTP\r\n"), c(command.as_bytes()), s(format!("331 {long}\r\n").as_bytes())];
    let r = stream(21, &steps);
    let events: Vec<String> = r.kinds().iter().map(|kind| kind.event()).collect();
    assert_eq!(events, ["ftp.request_command_too_long", "ftp.response_command_too_long"]);
}

/// What a session has to do with beside its protocol: a change, and what sides speak.
#[test]
fn other_protocols() {
    let others = |port, steps: &[Step]| {
        let mut session = Session::new(start(Transport::Stream, port));
        let (mut sink, mut offsets) = (Recorder::default(), [0; 2]);
        for step in steps {
            let Step::Data(direction, bytes) = step else { panic!("{step:?}") };
            let offset = &mut offsets[*direction as usize];
            session.data(&Limits::default(), *direction, *offset, bytes, 1, &mut sink);
            *offset += bytes.len() as u64;
        }
        session.finish(&Limits::default(), 1, &mut sink);
        (session.protocol(), *session.others())
    };
    let none = Others::default();
    let request = c(GET.as_bytes());
    let answer = s(OK.as_bytes());
    let tls = |expected| Others { original: Some(Protocol::Smtp), expected, ..none };
    let greeting =
        [s(b"220 a ESMTP\r\n"), c(b"EHLO a\r\nSTARTTLS\r\n"), s(b"250 a\r\n220 go on\r\n")];
    let hello = [22, 3, 1, 0, 49, 1, 0, 0, 45, 3, 3].into_iter().chain([7; 32]);
    let hello: Vec<u8> = hello.chain([0, 0, 4, 0, 1, 0, 2, 1, 0, 0, 0]).collect();
    let with = |more: Step| [&greeting[..], &[more]].concat();
    let ssh = s(b"SSH-2.0-OpenSSH_9.0\r\n");
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let changed = s(b"HTTP/1.1 101 Go\r\nUpgrade: h2c\r\n\r\n");
    let side = |spoken| Others { sides: [None, Some(spoken)], ..none };
    let http = Some(Protocol::Http1);
    let cases: [(u16, Vec<Step>, Option<Protocol>, Others); 6] = [
        (80, vec![request.clone(), answer], http, none),
        (80, vec![request.clone(), ssh], http, side(Spoken::Known(Protocol::Ssh))),
        (80, vec![request, s(&[b'?'; 5000])], http, side(Spoken::Unknown)),
        (25, with(c(&hello)), Some(Protocol::Tls), tls(Some(Protocol::Tls))),
        (25, with(c(&[b'?'; 5000])), None, tls(Some(Protocol::Tls))),
        (
            80,
            vec![c(upgrade.as_bytes()), changed],
            Some(Protocol::Http2),
            Others { original: http, expected: Some(Protocol::Http2), ..none },
        ),
    ];
    for (port, steps, protocol, expected) in cases {
        assert_eq!(others(port, &steps), (protocol, expected), "{steps:?}");
    }
}

/// What is known of a mail before it ends.
#[test]
fn a_mail_that_goes_on() {
    #[derive(Default)]
    struct Mails(Vec<(usize, usize, usize)>);
    impl Sink for Mails {
        fn protocol(&mut self, _: Option<Protocol>) {}
        fn piece(&mut self, _: &applayer::Piece<'_>) {}
        fn transaction(&mut self, _: &applayer::Transaction, _: applayer::Progress) {}
        fn file(&mut self, _: &applayer::File) {}
        fn anomaly(&mut self, _: &applayer::Anomaly) {}
        fn mail(&mut self, _: u64, email: &applayer::Email) {
            assert!(!email.is_complete);
            self.0.push((email.fields.len(), email.attachments.len(), email.urls.len()));
        }
    }
    let text: &[u8] = b"EHLO a\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\nSubject: x\r\n\
        Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nhttp://a/ http://b/\r\n--b\r\n\
        Content-Disposition: attachment; filename=f\r\n\r\nx\r\n--b--\r\n.\r\n";
    for size in [1, 7, 1000] {
        let mut session = Session::new(start(Transport::Stream, 25));
        let (mut sink, limits) = (Mails::default(), Limits::default());
        session.data(&limits, S, 0, b"220 a ESMTP\r\n", 1, &mut sink);
        for (number, piece) in text.chunks(size).enumerate() {
            session.data(&limits, C, (number * size) as u64, piece, 1, &mut sink);
        }
        assert_eq!(sink.0, [(2, 0, 0), (2, 0, 1), (2, 0, 2), (2, 1, 2)], "{size}");
    }
}
