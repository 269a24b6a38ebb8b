//! Fields against tshark, where it is installed: names and fingerprints of TLS, heads of HTTP/1, names of DNS.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::common::{Flow, flows};
use l7proto::http1::{Field, Head, Span};
use l7proto::tls::{HelloReader, hex};
use l7proto::{Direction, Protocol, dns};

const FOLDER: &str = "pcap-l7/zeek";

/// Rows of fields, each field the first of its name in the packet; `None` where tshark is not there.
fn tshark(capture: &Path, filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Y", filter, "-T", "fields", "-E", "occurrence=f"]).arg("-r").arg(capture);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: tshark: {error}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Captures with flows of this label.
fn captures(label: &str) -> Option<Vec<std::path::PathBuf>> {
    let folder = testdata::path(FOLDER)?;
    let labels = std::fs::read_to_string(folder.join("labels-tshark.tsv")).unwrap();
    let names: BTreeSet<&str> = labels
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|columns| columns[6] == label)
        .map(|columns| columns[0])
        .collect();
    Some(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The side of a flow that sends from this port to that one.
fn side(flow: &Flow, source: &str, destination: &str) -> Option<Direction> {
    let (a, b) = (flow.key.opener.1.to_string(), flow.key.responder.1.to_string());
    match (a == source && b == destination, a == destination && b == source) {
        (true, _) => Some(Direction::Opener),
        (_, true) => Some(Direction::Responder),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn hellos_of_tls() {
    let Some(captures) = captures("tls") else { return };
    let fields = [
        "tcp.srcport",
        "tcp.dstport",
        "tls.handshake.type",
        "tls.handshake.ja3_full",
        "tls.handshake.ja3",
        "tls.handshake.ja3s_full",
        "tls.handshake.ja3s",
        "tls.handshake.extensions_server_name",
        "tls.handshake.extensions_alpn_str",
    ];
    let mut compared = [0; 2];
    for capture in captures {
        let filter = "tls.handshake.type == 1 || tls.handshake.type == 2";
        let Some(rows) = tshark(&capture, filter, &fields) else { return };
        let all = flows(&capture);
        let mut first = BTreeMap::new();
        for row in rows {
            first.entry((row[0].clone(), row[1].clone())).or_insert(row);
        }
        for row in first.values() {
            let place = all.iter().find_map(|flow| Some((flow, side(flow, &row[0], &row[1])?)));
            let Some((flow, direction)) = place else { panic!("{}: {row:?}", capture.display()) };
            let mut reader = HelloReader::default();
            reader.feed(&flow.side(direction));
            let name = capture.display();
            if row[2] == "1" {
                let Some(hello) = reader.client_hello() else {
                    // SSL 2 has no records of this form.
                    assert!(name.to_string().ends_with("ssl-v2.pcap"), "{name}: {row:?}");
                    continue;
                };
                assert_eq!(hello.ja3_text(), row[3], "{name}");
                assert_eq!(hex(&hello.ja3()), row[4], "{name}");
                assert_eq!(text(hello.server_name().unwrap_or_default()), row[7], "{name}");
                assert_eq!(text(hello.alpn().next().unwrap_or_default()), row[8], "{name}");
                compared[0] += 1;
            } else {
                let Some(hello) = reader.server_hello() else { panic!("{name}: {row:?}") };
                assert_eq!(hello.ja3s_text(), row[5], "{name}");
                assert_eq!(hex(&hello.ja3s()), row[6], "{name}");
                compared[1] += 1;
            }
        }
    }
    println!("{} hellos of clients, {} of servers", compared[0], compared[1]);
    assert!(compared[0] >= 20 && compared[1] >= 15);
}

#[test]
fn heads_of_http() {
    let Some(captures) = captures("http") else { return };
    let fields = [
        "tcp.srcport",
        "tcp.dstport",
        "http.request.method",
        "http.request.uri",
        "http.host",
        "http.user_agent",
        "http.response.code",
        "http.content_type",
        "http.server",
    ];
    let mut compared = [0; 2];
    for capture in captures {
        let filter = "http.request || http.response";
        let Some(rows) = tshark(&capture, filter, &fields) else { return };
        let all = flows(&capture);
        let mut first = BTreeMap::new();
        for row in rows {
            first.entry((row[0].clone(), row[1].clone())).or_insert(row);
        }
        for row in first.values() {
            let place = all.iter().find_map(|flow| Some((flow, side(flow, &row[0], &row[1])?)));
            let Some((flow, direction)) = place else { panic!("{}: {row:?}", capture.display()) };
            if flow.answer().label().is_none_or(|label| label.protocol != Protocol::Http1) {
                continue;
            }
            let stream = flow.side(direction);
            let mut head = Head::new();
            head.feed(&stream);
            let at = |span: Option<Span>| text(span.unwrap_or_default().of(&stream));
            let found = vec![
                at(head.method()),
                at(head.target()),
                at(head.field(Field::Host)),
                at(head.field(Field::UserAgent)),
                head.status().map_or_else(String::new, |status| status.to_string()),
                at(head.field(Field::ContentType)),
                at(head.field(Field::Server)),
            ];
            let name = capture.display().to_string();
            if head.method().is_some() && differs_on_purpose(&name) {
                assert_ne!(found, row[2..], "{name}");
                continue;
            }
            assert_eq!(found, row[2..], "{name}");
            compared[usize::from(head.status().is_some())] += 1;
        }
    }
    println!("{} requests, {} responses", compared[0], compared[1]);
    assert!(compared[0] >= 25 && compared[1] >= 25);
}

/// Where tshark splits a line at each space and we at the first and the last: `CONNECT host:25 / HTTP/1.0`,
/// `GET HTTP/1.1`.
fn differs_on_purpose(name: &str) -> bool {
    ["connect-with-smtp.pcap", "no-uri.pcap"].iter().any(|capture| name.ends_with(capture))
}

#[test]
fn names_of_dns() {
    let Some(captures) = captures("dns") else { return };
    let fields = [
        "udp.srcport",
        "udp.dstport",
        "dns.id",
        "dns.qry.name",
        "dns.qry.type",
        "dns.count.answers",
        "dns.flags.rcode",
    ];
    let mut compared = 0;
    for capture in captures {
        let Some(rows) = tshark(&capture, "dns && udp && !_ws.malformed", &fields) else { return };
        let all = flows(&capture);
        for row in rows {
            if row[4].is_empty() {
                continue;
            }
            let id: u16 = u16::from_str_radix(row[2].trim_start_matches("0x"), 16).unwrap();
            let is_response = !row[6].is_empty();
            let message = all.iter().find_map(|flow| {
                let direction = side(flow, &row[0], &row[1])?;
                let same = |bytes: &[u8]| {
                    dns::Message::parse(bytes)
                        .is_some_and(|m| m.id() == id && m.is_response() == is_response)
                };
                let mut pieces = flow.pieces.iter();
                pieces.find(|(d, bytes)| *d == direction && same(bytes)).map(|(_, bytes)| bytes)
            });
            let Some(bytes) = message else { panic!("{}: {row:?}", capture.display()) };
            let message = dns::Message::parse(bytes).unwrap();
            let question = message.questions().next();
            let Some(question) = question else { panic!("{}: {row:?}", capture.display()) };
            let mut buffer = [0; 4 * dns::NAME_MAX];
            let name = question.name.write(&mut buffer);
            if row[3] == "<Name contains a pointer that loops>" {
                assert_eq!(name, None);
                continue;
            }
            let name = name.unwrap_or_else(|| panic!("{row:?}"));
            let expected = if row[3] == "<Root>" { "" } else { &row[3] };
            assert_eq!(name, expected, "{}", capture.display());
            assert_eq!(question.kind.to_string(), row[4]);
            assert_eq!(message.counts()[1].to_string(), row[5]);
            if is_response {
                assert_eq!(message.rcode().to_string(), row[6]);
            }
            compared += 1;
        }
    }
    println!("{compared} messages");
    assert!(compared >= 15);
}
