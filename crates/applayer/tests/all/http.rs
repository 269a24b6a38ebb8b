//! HTTP/1.

use std::io::Write;

use applayer::{AnomalyKind, Buffer, Data, FileState, Http, Limits, Transaction};
use flate2::Compression;
use flate2::write::GzEncoder;
use l7proto::{Protocol, Transport};

use crate::recorder::{C, Recorder, S, Step, c, run, s, start, stream};

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn http(transaction: &Transaction) -> &Http {
    match &transaction.data {
        Data::Http(http) => http,
        other => panic!("{other:?}"),
    }
}

fn body(recorder: &Recorder, id: u64) -> String {
    recorder.text(id, Buffer::HttpResponseBody).unwrap_or_default()
}

#[test]
fn a_request_and_its_response() {
    let r = stream(
        8080,
        &[
            c(b"GET /a%2fb/../c?d=%31 HTTP/1.1\r\nHost: Example.COM:8080\r\nUser-Agent: x y\r\n\
                Cookie: a=b\r\nX: 1\r\n 2\r\nAccept: */*\r\nx: 3\r\n\r\n"),
            s(b"HTTP/1.1 200 All right\r\nServer: s\r\nContent-Length: 5\r\nSet-Cookie: q\r\n\r\nhello"),
        ],
    );
    assert_eq!(r.protocols, [Some(Protocol::Http1)]);
    assert_eq!(r.anomalies, []);
    let expected = [
        (Buffer::HttpMethod, "GET"),
        (Buffer::HttpUri, "/a/c?d=1"),
        (Buffer::HttpUriRaw, "/a%2fb/../c?d=%31"),
        (Buffer::HttpHost, "example.com"),
        (Buffer::HttpHostRaw, "Example.COM:8080"),
        (Buffer::HttpUserAgent, "x y"),
        (Buffer::HttpRequestLine, "GET /a%2fb/../c?d=%31 HTTP/1.1"),
        (Buffer::HttpAccept, "*/*"),
        (Buffer::HttpStatCode, "200"),
        (Buffer::HttpStatMsg, "All right"),
        (Buffer::HttpServer, "s"),
        (Buffer::HttpContentLength, "5"),
        (Buffer::HttpResponseLine, "HTTP/1.1 200 All right"),
        (Buffer::HttpResponseBody, "hello"),
        (Buffer::FileData, "hello"),
        (Buffer::FileName, "/a/c"),
    ];
    for (buffer, text) in expected {
        assert_eq!(r.text(0, buffer).as_deref(), Some(text), "{buffer:?}");
    }
    assert_eq!(
        r.texts(0, Buffer::HttpHeader),
        [
            "Host: Example.COM:8080\r\nUser-Agent: x y\r\nX: 1 2, 3\r\nAccept: */*\r\n",
            "Server: s\r\nContent-Length: 5\r\n"
        ]
    );
    assert_eq!(r.texts(0, Buffer::HttpCookie), ["a=b", "q"]);
    assert_eq!(
        r.texts(0, Buffer::HttpHeaderNames)[1],
        "\r\nServer\r\nContent-Length\r\nSet-Cookie\r\n\r\n"
    );
    assert_eq!(r.texts(0, Buffer::HttpRequestHeader)[3], "X: 1 2, 3");
    assert!(
        r.texts(0, Buffer::HttpStart)[1].starts_with("HTTP/1.1 200 All right\r\nServer: s\r\n")
    );
    let found = http(&r.finished[0]);
    assert_eq!((found.host.as_deref(), found.port), (Some(&b"example.com"[..]), Some(8080)));
    assert_eq!((found.status, found.decoded_bytes), (Some(200), [0, 5]));
    let file = &r.files[0];
    assert_eq!((file.size, file.state, &file.name[..]), (5, FileState::Closed, &b"/a/c"[..]));
    let digests = file.digests.unwrap();
    assert_eq!(l7proto::tls::hex(&digests.md5), "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(l7proto::tls::hex(&digests.sha1), "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d");
    assert!(l7proto::tls::hex(&digests.sha256).starts_with("2cf24dba5fb0a30e26e83b2ac5b9e29e"));
}

#[test]
fn pipelined_requests_and_bodies_of_each_kind() {
    let text = "some text, some text".repeat(20);
    let packed = gzip(text.as_bytes());
    let chunks: Vec<u8> = packed
        .chunks(7)
        .flat_map(|chunk| {
            [format!("{:x};x=y\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()
        })
        .chain(*b"0\r\nTrailer: x\r\n\r\n")
        .collect();
    let sent = chunks.len() - b"Trailer: x\r\n\r\n".len();
    let r = stream(
        80,
        &[
            c(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: h\r\n\r\n\
                POST /3 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"),
            s(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"),
            Step::Data(S, chunks),
            s(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"),
            c(b"abcGET /4 HTTP/1.0\r\n\r\n"),
            s(b"HTTP/1.1 204 No\r\n\r\nHTTP/1.0 200 OK\r\n\r\nup to the end"),
            Step::End(S),
        ],
    );
    assert_eq!(r.finished.len(), 4);
    assert!(r.finished.iter().all(|transaction| transaction.done == [true; 2]));
    let status: Vec<_> = r.finished.iter().map(|t| http(t).status.unwrap()).collect();
    assert_eq!(status, [200, 200, 204, 200]);
    assert_eq!((body(&r, 0), body(&r, 1), body(&r, 3)), (text, "".into(), "up to the end".into()));
    assert_eq!(r.text(2, Buffer::HttpRequestBody).as_deref(), Some("abc"));
    assert_eq!(http(&r.finished[0]).body_bytes[1], sent as u64);
    assert_eq!(r.kinds(), [AnomalyKind::HttpResponseExtension]);
    assert!(r.files.iter().all(|file| file.state == FileState::Closed && file.digests.is_some()));
}

#[test]
fn tunnels() {
    let hello = b"SSH-2.0-a\r\n";
    let r = stream(
        8080,
        &[
            c(b"CONNECT a:22 HTTP/1.1\r\nHost: a:22\r\n\r\n"),
            c(hello),
            s(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"),
            c(b"\r\nCONNECT a:22 HTTP/1.1\r\nHost: a:22\r\n\r\n"),
            c(hello),
            s(b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0-b c\r\n"),
        ],
    );
    assert_eq!(r.protocols, [Some(Protocol::Http1), Some(Protocol::Ssh)]);
    assert_eq!(r.finished.len(), 3);
    assert_eq!(r.texts(2, Buffer::SshSoftware), ["a", "b"]);
    // What the client said behind the refused one was no request.
    assert!(r.has(AnomalyKind::HttpRequestLine));
}

#[test]
fn forms_and_their_files() {
    let form = b"--xx\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n\
        --xx\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a b.txt\"\r\n\
        Content-Type: text/plain\r\n\r\nline\r\n\r\n--x\r\n--xx\r\n\
        Content-Disposition: form-data; name=\"g\"; filename=\"empty\"\r\n\r\n\r\n--xx--\r\nrest";
    let head = format!(
        "POST /up HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=xx\r\n\
         Content-Length: {}\r\n\r\n",
        form.len()
    );
    let r = stream(80, &[c(head.as_bytes()), c(form)]);
    let files: Vec<_> =
        r.files.iter().map(|f| (String::from_utf8_lossy(&f.name).into_owned(), f.size)).collect();
    assert_eq!(files, [("a b.txt".into(), 11), ("empty".into(), 0)]);
    assert_eq!(r.texts(0, Buffer::FileData), ["line\r\n\r\n--x", ""]);
    assert_eq!(r.text(0, Buffer::HttpRequestBody).unwrap().as_bytes(), form);
    assert!(r.files.iter().all(|file| file.state == FileState::Closed));
}

/// What names one coding and has another is read all the same, and is odd.
#[test]
fn a_body_in_another_coding_than_its_head_says() {
    use flate2::write::{DeflateEncoder, ZlibEncoder};
    let text = "some text with a word in it, ".repeat(20);
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(text.as_bytes()).unwrap();
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
    raw.write_all(text.as_bytes()).unwrap();
    let (zlib, raw) = (zlib.finish().unwrap(), raw.finish().unwrap());
    let (odd, failed) = (AnomalyKind::HttpUnknownCoding, AnomalyKind::HttpDecompression);
    let plain = text.clone().into_bytes();
    let cases = [
        ("deflate", gzip(text.as_bytes()), odd),
        ("gzip", zlib, odd),
        ("gzip", raw, odd),
        ("gzip", plain, failed),
        ("gzip", b"short".to_vec(), failed),
    ];
    for (name, sent, kind) in cases {
        let expected = if sent == b"short" { "short" } else { &text };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {name}\r\nContent-Length: {}\r\n\r\n",
            sent.len()
        );
        let response = [head.as_bytes(), &sent].concat();
        let r = stream(80, &[c(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), s(&response)]);
        assert_eq!(r.text(0, Buffer::HttpResponseBody).as_deref(), Some(expected), "{name}");
        assert_eq!(r.kinds(), [kind], "{name}");
    }
}

/// Requests that are given up have a transaction each; what answers them later is none of another request.
#[test]
fn responses_of_requests_that_were_given_up() {
    let requests: String =
        (0..200).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    let answer = |n: u32| format!("HTTP/1.1 {} No\r\nContent-Length: 1\r\n\r\nx", 400 + n % 100);
    let answers: String = (0..200).map(answer).collect();
    let r = stream(80, &[c(requests.as_bytes()), s(answers.as_bytes())]);
    let own: Vec<_> = r.finished.iter().filter(|own| !own.is_late).map(http).collect();
    assert_eq!(own.len(), 200);
    let answered = own.iter().filter(|own| own.status.is_some());
    for http in answered.clone() {
        let number: u16 = String::from_utf8_lossy(&http.uri)[1..].parse().expect("a number");
        assert_eq!(http.status, Some(400 + number % 100));
    }
    assert_eq!(answered.count(), Limits::default().open_transactions);
    assert!(!r.has(AnomalyKind::HttpUnmatchedResponse), "{:?}", r.kinds());
}

#[test]
fn one_side_alone_and_from_the_middle() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    let r = stream(80, &[s(answer), s(answer)]);
    assert_eq!(r.finished.len(), 2);
    assert!(
        r.has(AnomalyKind::HttpUnmatchedResponse) && r.has(AnomalyKind::WrongDirectionFirstData)
    );
    assert_eq!((body(&r, 0), body(&r, 1)), ("ab".into(), "ab".into()));

    // The opener of a flow from the middle is the server.
    let mut begin = start(Transport::Stream, 50_001);
    begin.is_midstream = true;
    let steps = [c(answer), s(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"), c(answer)];
    let r = run(begin, &Limits::default(), &steps);
    assert_eq!(r.text(1, Buffer::HttpUri).as_deref(), Some("/x"));
    assert_eq!(r.finished.iter().find(|t| t.id == 1).unwrap().done, [true; 2]);
    assert!(!r.has(AnomalyKind::WrongDirectionFirstData));
}

#[test]
fn gaps() {
    let request = c(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    let r = stream(
        80,
        &[
            request.clone(),
            s(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"),
            Step::Gap(S, 4),
            s(b"ghij"),
            request.clone(),
            Step::Gap(S, 100),
            s(b"cut: off\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nz"),
        ],
    );
    assert_eq!((r.finished.len(), body(&r, 0), body(&r, 1)), (2, "abghij".into(), "z".into()));
    let file = &r.files[0];
    assert_eq!((file.state, file.has_gaps, file.digests), (FileState::Truncated, true, None));
    assert_eq!(r.files[1].state, FileState::Closed);
    assert_eq!(http(&r.finished[1]).status, Some(404));

    // What comes behind a gap at the very beginning is identified as the beginning would be.
    let r = stream(80, &[Step::Gap(C, 5), request, Step::Gap(S, 1000), Step::End(S)]);
    assert_eq!((r.finished.len(), r.text(0, Buffer::HttpUri).as_deref()), (1, Some("/x")));
}

/// Found by the fuzz target: while a side was lost, a line of eight bytes was taken for one of nine.
#[test]
fn a_short_line_while_a_side_is_lost() {
    let r = stream(80, &[c(b"GET / HTTP/1.0\r\n\r\nlost\r\n HTTP/1.\nGET /b HTTP/1.0\r\n\r\n")]);
    assert_eq!(r.text(1, Buffer::HttpUri).as_deref(), Some("/b"));
}

/// Found by the fuzz target: a line that is a request came from the server, and the bytes behind it were taken for its body.
#[test]
fn a_message_of_the_other_side() {
    let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let r = stream(80, &[c(request), s(b"HTTQ/1.1 220 a\r\nHTTQ/1.1 220 a\r\n"), s(request)]);
    assert!(r.has(AnomalyKind::HttpResponseLine));
    assert_eq!((r.finished.len(), r.files.len()), (1, 0));
    let r = stream(80, &[c(request), c(b"HTTP/1.1 200 OK\r\n\r\n"), s(b"HTTP/1.1 204 No\r\n\r\n")]);
    assert!(r.has(AnomalyKind::HttpRequestLine));
    assert_eq!(r.finished.len(), 1);
}

#[test]
fn anomalies() {
    let cases: &[(&[u8], &[u8], AnomalyKind)] = &[
        (b"GET / HTTP/1.1\r\n\r\n", b"", AnomalyKind::HttpNoHost),
        (b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", b"", AnomalyKind::HttpHostAmbiguous),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", b"", AnomalyKind::HttpHostInvalid),
        (b"GET / HTTP/1.1\r\nHost: a\r\nx y\r\n\r\n", b"", AnomalyKind::HttpRequestColon),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"",
            AnomalyKind::HttpRequestLengths,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"",
            AnomalyKind::HttpSmuggling,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"",
            AnomalyKind::HttpRequestChunk,
        ),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"no\r\n", AnomalyKind::HttpResponseLine),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip",
            AnomalyKind::HttpDecompression,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip, gzip\r\n\r\n",
            AnomalyKind::HttpTooManyCodings,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Type: multipart/form-data\r\n\r\na",
            b"",
            AnomalyKind::HttpMultipart,
        ),
    ];
    for (client, server, kind) in cases {
        let r = stream(80, &[c(client), s(server)]);
        assert!(r.has(*kind), "{kind:?}: {:?}", r.anomalies);
    }
    for kind in AnomalyKind::ALL {
        assert_eq!(AnomalyKind::from_event(&kind.event()), Some(*kind));
    }
}

/// Versions, statuses and lengths that are none of HTTP/1 hide neither fields nor bodies nor what follows them.
#[test]
fn odd_first_lines() {
    let second = "GET /second HTTP/1.1\r\nHost: h\r\n\r\n";
    let answer = s(b"HTTP/1.1 204 No\r\n\r\n");
    for (line, protocol, kind) in [
        ("HTTP/01.1", "HTTP/01.1", Some(AnomalyKind::HttpRequestLine)),
        ("HTTP/2", "HTTP/2", Some(AnomalyKind::HttpRequestLine)),
        ("JUNK/1.1", "JUNK/1.1", Some(AnomalyKind::HttpRequestLine)),
        ("HTTP/1.1 foo", "HTTP/1.1 foo", Some(AnomalyKind::HttpRequestLine)),
        // That of the response.
        ("", "HTTP/1.1", Some(AnomalyKind::HttpNoProtocol)),
        ("HTTP/1.1", "HTTP/1.1", None),
    ] {
        let (one, several) = (AnomalyKind::HttpRequestLength, AnomalyKind::HttpRequestLengths);
        for (length, odd) in [("9", None), ("+9", Some(one)), ("9, 5", Some(several))] {
            let first = format!(
                "POST /x {line}\r\nHost: h\r\nUser-Agent: a\r\nContent-Length: {length}\r\n\r\nbody here{second}"
            );
            let r = stream(80, &[c(first.as_bytes()), answer.clone(), answer.clone()]);
            let text = |buffer| r.text(0, buffer);
            assert_eq!(text(Buffer::HttpUri).as_deref(), Some("/x"), "{line}");
            assert_eq!(text(Buffer::HttpUserAgent).as_deref(), Some("a"), "{line}");
            assert_eq!(text(Buffer::HttpRequestBody).as_deref(), Some("body here"), "{line}");
            assert_eq!(text(Buffer::HttpProtocol).unwrap_or_default(), protocol, "{line}");
            assert_eq!(r.text(1, Buffer::HttpUri).as_deref(), Some("/second"), "{line}");
            let expected: Vec<_> = kind.into_iter().chain(odd).collect();
            assert_eq!(r.kinds(), expected, "{line} {length}");
        }
    }
    for (line, kind) in [
        ("HTTP/1.1 0200 OK", AnomalyKind::HttpResponseStatus),
        ("HTTP/1.1 +200 OK", AnomalyKind::HttpResponseStatus),
        ("HTTP/1.1", AnomalyKind::HttpResponseStatus),
        ("HTTP/9.1 200 OK", AnomalyKind::HttpResponseProtocol),
        ("HTTP 200 OK", AnomalyKind::HttpResponseProtocol),
    ] {
        let first = format!("{line}\r\nContent-Length: 4\r\n\r\nbody");
        let r = stream(80, &[c(second.as_bytes()), s(first.as_bytes())]);
        assert_eq!(r.text(0, Buffer::HttpResponseBody).as_deref(), Some("body"), "{line}");
        // A line of another version does not show the protocol.
        let kinds = r.anomalies.iter().map(|own| own.0);
        let kinds: Vec<_> = kinds.filter(|own| *own != AnomalyKind::OnlyOneDirection).collect();
        assert_eq!(kinds, [kind], "{line}");
    }
}

/// A line without a version is all of a request, unless fields follow; how the line of the first field is cut
/// does not matter.
#[test]
fn lines_without_versions() {
    let uris = |r: &crate::recorder::Recorder| -> Vec<String> {
        (0..r.finished.len() as u64).filter_map(|id| r.text(id, Buffer::HttpUri)).collect()
    };
    let answer = s(b"old");
    let r = stream(80, &[c(b"GET /a\r\n"), answer.clone()]);
    assert_eq!((uris(&r), r.anomalies.len()), (vec!["/a".to_owned()], 0));
    let r = stream(80, &[c(b"GET /a\r\n\r\nGET /b HTTP/1.0\r\n\r\n"), answer.clone()]);
    assert_eq!((uris(&r), r.anomalies.len()), (vec!["/a".to_owned(), "/b".to_owned()], 0));
    // Whoever answers has read all.
    let r = stream(80, &[c(b"GET /a\r\nGE"), answer.clone(), c(b"T /b\r\n")]);
    assert_eq!(uris(&r), ["/a", "/b"]);
    for cut in 9..20 {
        let whole = b"GET /a\r\nUser-Agent : x\r\n\r\n";
        let r = stream(80, &[c(&whole[..cut]), c(&whole[cut..]), answer.clone()]);
        assert_eq!(r.text(0, Buffer::HttpUserAgent).as_deref(), Some("x"), "{cut}");
        assert!(r.has(AnomalyKind::HttpNoProtocol), "{cut}");
    }
}

/// A body of chunks that is none is read as it is, up to the end.
#[test]
fn sizes_of_chunks_that_are_none() {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cases: [(&[u8], &[u8]); 3] = [
        (b"zz\r\nabcd\r\n0\r\n\r\n", b"zz\r\nabcd\r\n0\r\n\r\n"),
        (b"4\r\nabcd\r\nxyz\r\nmore", b"abcdxyz\r\nmore"),
        (b"<html>", b"<html>"),
    ];
    for (sent, expected) in cases {
        for size in [1, 3, 100] {
            let mut steps = vec![c(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), s(head)];
            steps.extend(sent.chunks(size).map(s));
            let r = stream(80, &steps);
            let expected = String::from_utf8_lossy(expected).into_owned();
            assert_eq!(r.text(0, Buffer::HttpResponseBody), Some(expected));
            assert!(r.has(AnomalyKind::HttpResponseChunk), "{:?}", r.anomalies);
        }
    }
}

/// Blanks in first lines are those that servers take.
#[test]
fn blanks_in_first_lines() {
    let lines: [(&[u8], Option<AnomalyKind>); 5] = [
        (b"GET\t/etc/passwd HTTP/1.1", Some(AnomalyKind::HttpMethodDelimiter)),
        (b" GET /etc/passwd HTTP/1.1", Some(AnomalyKind::HttpLeadingBlank)),
        (b"GET  /etc/passwd HTTP/1.1", None),
        (b"GET /%u0065tc/passwd \t HTTP/1.1 ", Some(AnomalyKind::HttpUriDelimiter)),
        (b"GET /a/..%c0%af..%c0%afetc/passwd HTTP/1.1", None),
    ];
    for (line, kind) in lines {
        let request = [line, b"\r\nHost: a\r\n\r\n"].concat();
        let r = stream(80, &[c(&request), s(b"HTTP/1.1\t204  No Content\r\n\r\n")]);
        assert_eq!(r.text(0, Buffer::HttpMethod).as_deref(), Some("GET"), "{line:?}");
        assert_eq!(r.text(0, Buffer::HttpUri).as_deref(), Some("/etc/passwd"), "{line:?}");
        assert_eq!(r.text(0, Buffer::HttpProtocol).as_deref(), Some("HTTP/1.1"), "{line:?}");
        assert_eq!(r.text(0, Buffer::HttpStatCode).as_deref(), Some("204"), "{line:?}");
        assert_eq!(r.text(0, Buffer::HttpStatMsg).as_deref(), Some("No Content"), "{line:?}");
        assert_eq!(r.kinds(), kind.into_iter().collect::<Vec<_>>(), "{line:?}");
    }
}

/// Fields behind a body of chunks are in the buffers of all fields once more, with those before.
#[test]
fn trailers() {
    let body = b"5\r\nhello\r\n0\r\nX-Trailer: evil\r\nserver: t\r\n\r\n";
    let head =
        b"HTTP/1.1  200 OK\r\nServer: s\r\nSet-Cookie: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for size in [1, 7, 100] {
        let mut steps = vec![c(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), s(head)];
        steps.extend(body.chunks(size).map(s));
        steps.extend([c(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), s(b"HTTP/1.1 204 No\r\n\r\n")]);
        let r = stream(80, &steps);
        let all = |buffer| -> Vec<String> {
            let own = r
                .buffers
                .iter()
                .filter(|((id, direction, own, _), _)| (*id, *direction, *own) == (0, S, buffer));
            own.map(|(_, (bytes, _))| String::from_utf8_lossy(bytes).into_owned()).collect()
        };
        let with = "Server: s, t\r\nTransfer-Encoding: chunked\r\nX-Trailer: evil\r\n";
        assert_eq!(all(Buffer::HttpHeader)[1..], [with]);
        assert_eq!(all(Buffer::HttpHeaderRaw)[1..], ["X-Trailer: evil\r\nserver: t\r\n\r\n"]);
        let start = "HTTP/1.1 200 OK\r\nServer: s, t\r\nSet-Cookie: a\r\nTransfer-Encoding: chunked\r\nX-Trailer: evil\r\n\r\n";
        assert_eq!(all(Buffer::HttpStart)[1..], [start]);
        let names = "\r\nServer\r\nSet-Cookie\r\nTransfer-Encoding\r\nX-Trailer\r\n\r\n";
        assert_eq!(all(Buffer::HttpHeaderNames)[1..], [names]);
        assert_eq!(all(Buffer::HttpResponseHeader)[3..], ["X-Trailer: evil", "server: t"]);
        assert_eq!(r.finished.len(), 2);
    }
}

/// The server of the target goes before that of the field, and the joined fields are as `http.header` has them.
#[test]
fn targets_and_heads() {
    let r = stream(
        80,
        &[
            c(b"GET http://Other.Example:8080/p HTTP/1.1\r\nHost: a\r\n\r\n"),
            c(b"GET /p  HTTP/1.1\r\nHost:  A:1 \r\nX: 1\r\nCookie: c\r\nx: 2\r\n\r\n"),
            c(b"CONNECT C.example:443 HTTP/1.1\r\n\r\n"),
        ],
    );
    let text = |at, buffer| r.text(at, buffer);
    assert_eq!(text(0, Buffer::HttpHostRaw).as_deref(), Some("other.example"));
    assert_eq!(text(1, Buffer::HttpHostRaw).as_deref(), Some("A:1"));
    assert_eq!(text(2, Buffer::HttpHostRaw).as_deref(), Some("c.example"));
    let start = "GET /p  HTTP/1.1\r\nHost: A:1\r\nX: 1, 2\r\nCookie: c\r\n\r\n";
    assert_eq!(text(1, Buffer::HttpStart).as_deref(), Some(start));
    let start = "CONNECT C.example:443 HTTP/1.1\r\n";
    assert_eq!(text(2, Buffer::HttpStart).as_deref(), Some(start));
    assert_eq!(text(2, Buffer::HttpUri).as_deref(), Some(""));
    assert_eq!(text(2, Buffer::HttpUriRaw).as_deref(), Some("C.example:443"));
}
