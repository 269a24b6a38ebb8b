//! What captures say, against tshark and openssl where they are installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use applayer::{Certificate, Data, DnsData, FileState, Limits};
use l7proto::tls::hex;

use crate::recorder::{Recorder, run};
use crate::segments::captures;

/// Rows of fields, all of a name joined by `|`; `None` where tshark is not there.
fn tshark(capture: &Path, filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Y", filter, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|"]);
    command.arg("-r").arg(capture);
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

/// A flow: its ports, and what was read of it.
type Flow = ((u16, u16), Recorder);

/// The captures of a folder and what their flows say, by the client's and the server's port.
fn folder(name: &str) -> BTreeMap<PathBuf, Vec<Flow>> {
    let mut all: BTreeMap<PathBuf, Vec<_>> = BTreeMap::new();
    for (file, begin, steps) in captures() {
        if file.parent().is_some_and(|folder| folder.ends_with(name)) {
            let recorder = run(begin, &Limits::default(), &steps);
            let ports = (begin.ports.opener, begin.ports.responder);
            all.entry(file).or_default().push((ports, recorder));
        }
    }
    all
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Captures with bytes that are no HTTP, which tshark skips or reads in another way.
const HTTP_DIFFERS: [&str; 11] = [
    "http-lower-case.pcap",                // `http/1.1 200 OK`
    "entity_gap2.pcap",                    // lost segments
    "content-range-gap-skip.pcap",         // lost segments
    "connect-with-smtp.pcap", // a header without a colon; the first line split at each space
    "http-11-request-then-cruft.pcap", // ` T / HTTP` is a request of HTTP/0.9 here
    "http-bad-request-with-version.pcap", // bytes before the method
    "no-uri.pcap",            // `GET HTTP/1.1`
    "http-desync-request-response-5.pcap", // responses before their requests
    "zero-length-bodies-with-drops.pcap", // lost segments
    "byteranges.pcap",        // cut in a body
    "curl_http_09.pcap",      // an answer without a head
];

#[test]
fn requests_and_responses_of_http() {
    let fields = [
        "tcp.srcport",
        "tcp.dstport",
        "http.request.method",
        "http.request.uri",
        "http.host",
        "http.response.code",
        "http.response.phrase",
    ];
    let mut compared = [0; 2];
    for (capture, flows) in folder("http") {
        if HTTP_DIFFERS.contains(&name(&capture).as_str()) {
            continue;
        }
        let filter = "http.request || (http.response && http.response.code >= 101)";
        let Some(rows) = tshark(&capture, filter, &fields) else { return };
        for ((client, server), recorder) in flows {
            let (client, server) = (client.to_string(), server.to_string());
            let all = |place: usize, from: &str, to: &str| -> Vec<String> {
                let of = rows.iter().filter(|row| row[0] == from && row[1] == to);
                of.flat_map(|row| row[place].split('|'))
                    .filter(|t| !t.is_empty())
                    .map(str::to_owned)
                    .collect()
            };
            if all(2, &client, &server).is_empty() {
                continue; // tshark goes by the port
            }
            let mut http: Vec<_> = recorder
                .finished
                .iter()
                .filter_map(
                    |t| if let Data::Http(http) = &t.data { Some((t.id, http)) } else { None },
                )
                .collect();
            http.sort_by_key(|(id, _)| *id);
            let methods: Vec<_> =
                http.iter().map(|(_, h)| text(&h.method)).filter(|m| !m.is_empty()).collect();
            assert_eq!(methods, all(2, &client, &server), "{}", capture.display());
            let uris: Vec<_> =
                http.iter().map(|(_, h)| text(&h.uri_raw)).filter(|m| !m.is_empty()).collect();
            assert_eq!(uris, all(3, &client, &server), "{}", capture.display());
            let codes: Vec<_> =
                http.iter().filter_map(|(_, h)| h.status).map(|s| s.to_string()).collect();
            assert_eq!(codes, all(5, &server, &client), "{}", capture.display());
            let reasons: Vec<_> =
                http.iter().map(|(_, h)| text(&h.reason)).filter(|r| !r.is_empty()).collect();
            assert_eq!(reasons, all(6, &server, &client), "{}", capture.display());
            compared[0] += methods.len();
            compared[1] += codes.len();
        }
    }
    println!("{} requests, {} responses", compared[0], compared[1]);
    assert!(compared == [0; 2] || compared[0] >= 25 && compared[1] >= 25);
}

#[test]
fn bodies_of_http() {
    const CAPTURES: [&str; 7] = [
        "get-gzip.pcap",
        "get.pcap",
        "post.pcap",
        "proxy.pcap",
        "putty-upload.pcap",
        "docker-http-upgrade.pcap",
        "content-length-in-request-body.pcap",
    ];
    let mut compared = 0;
    for (capture, flows) in folder("http") {
        if !CAPTURES.contains(&name(&capture).as_str()) {
            continue;
        }
        let place = std::env::temp_dir().join(format!(
            "applayer-{}-{}",
            std::process::id(),
            name(&capture)
        ));
        let mut command = Command::new("tshark");
        command.args(["-n", "-q", "-r"]).arg(&capture).arg("--export-objects");
        command
            .arg(format!("http,{}", place.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if command.status().is_err() {
            return println!("skipped: tshark");
        }
        let bodies: Vec<Vec<u8>> = flows
            .iter()
            .flat_map(|(_, recorder)| {
                recorder.files.iter().filter(|file| file.state == FileState::Closed).map(|file| {
                    let data = applayer::Buffer::FileData;
                    let key = (file.transaction, file.direction, data, file.number);
                    recorder.buffers.get(&key).map(|(bytes, _)| bytes.clone()).unwrap_or_default()
                })
            })
            .collect();
        let objects =
            std::fs::read_dir(&place).map(|entries| entries.flatten().collect::<Vec<_>>());
        for object in objects.unwrap_or_default() {
            let bytes = std::fs::read(object.path()).unwrap();
            if bytes.is_empty() {
                continue;
            }
            let is_there = bodies.contains(&bytes);
            // tshark has forms as they are, and bodies whose end is missing.
            let is_other = recorded_whole(&flows, &bytes);
            assert!(is_there || is_other, "{}: {:?}", capture.display(), object.file_name());
            compared += usize::from(is_there);
        }
        let _ = std::fs::remove_dir_all(&place); // there may be none
    }
    println!("{compared} bodies");
    assert!(compared == 0 || compared >= 8);
}

/// Is it the body of a form, or one that is cut?
fn recorded_whole(flows: &[Flow], bytes: &[u8]) -> bool {
    use applayer::Buffer::{HttpRequestBody, HttpResponseBody};
    flows.iter().flat_map(|(_, recorder)| &recorder.buffers).any(
        |((_, _, buffer, _), (found, _))| {
            [HttpRequestBody, HttpResponseBody].contains(buffer) && found == bytes
        },
    )
}

/// What openssl says of a certificate: subject, issuer, serial number, validity, fingerprint.
fn openssl(certificate: &Certificate) -> Option<BTreeMap<String, String>> {
    use std::io::Write;
    let mut command = Command::new("openssl");
    command.args(["x509", "-inform", "DER", "-noout", "-subject", "-issuer", "-serial"]);
    command.args(["-startdate", "-enddate", "-fingerprint", "-sha1"]);
    command.args(["-dateopt", "iso_8601", "-nameopt", "utf8,sep_comma_plus_space"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    child.stdin.take()?.write_all(&certificate.der).ok()?;
    let output = child.wait_with_output().ok()?;
    let text = text(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    Some(pairs.map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned())).collect())
}

/// Seconds since 1970 as `2024-02-29 12:00:00Z`.
fn date(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let mut year = 1970;
    let mut left = days;
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left >= 365 + i64::from(leap(year)) {
        left -= 365 + i64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}Z", left + 1)
}

/// A field of a name with the word that Suricata has for that of openssl.
fn suricatas(field: &str) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("emailAddress", "Email"),
        ("SN", "surname"),
        ("GN", "givenName"),
        ("street", "streetAddress"),
        ("UID", "uid"),
        ("jurisdictionL", "msJurisdictionLocality"),
        ("jurisdictionST", "msJurisdictionStateOrProvince"),
        ("jurisdictionC", "msJurisdictionCountry"),
    ];
    let Some((name, value)) = field.split_once('=') else { return field.to_owned() };
    let found = NAMES.iter().find(|(theirs, _)| *theirs == name);
    format!("{}={value}", found.map_or(name, |(_, own)| own))
}

#[test]
fn certificates() {
    let mut compared = 0;
    for (capture, flows) in folder("tls") {
        let filter = "tls.handshake.certificate && tcp && !tls.alert_message";
        let Some(rows) = tshark(&capture, filter, &["tls.handshake.certificate"]) else { return };
        let theirs: Vec<&str> = rows.iter().flat_map(|row| row[0].split('|')).collect();
        for certificate in
            flows.iter().flat_map(|(_, recorder)| &recorder.finished).flat_map(|t| match &t.data {
                Data::Tls(tls) => tls.certificates.concat(),
                _ => Vec::new(),
            })
        {
            assert!(theirs.contains(&hex(&certificate.der).as_str()), "{}", capture.display());
            assert!(certificate.is_read);
            let Some(facts) = openssl(&certificate) else { return println!("skipped: openssl") };
            let fact = |key: &str| facts.get(key).map(String::as_str).unwrap_or_default();
            // Without the byte that keeps it positive.
            let serial = certificate.serial.replace(':', "");
            let short = serial.strip_prefix("00").filter(|rest| !rest.is_empty());
            assert_eq!(fact("serial"), short.unwrap_or(&serial));
            assert_eq!(fact("sha1 fingerprint").to_lowercase(), certificate.fingerprint);
            assert_eq!(fact("notbefore"), date(certificate.not_before));
            assert_eq!(fact("notafter"), date(certificate.not_after));
            let plain = |name: &str| name.replace(" + ", ", ").replace(['\\', '"'], "");
            let theirs = |name: &str| {
                let name = plain(name);
                name.split(", ").map(suricatas).collect::<Vec<_>>().join(", ")
            };
            assert_eq!(theirs(fact("subject")), plain(&certificate.subject));
            assert_eq!(theirs(fact("issuer")), plain(&certificate.issuer));
            compared += 1;
        }
    }
    println!("{compared} certificates");
    assert!(compared == 0 || compared >= 20);
}

#[test]
fn key_exchanges_of_ssh() {
    let mut compared = 0;
    for (capture, flows) in folder("ssh") {
        let fields = ["tcp.srcport", "ssh.kex.hassh", "ssh.kex.hasshserver"];
        let filter = "ssh.kex.hassh || ssh.kex.hasshserver";
        let Some(rows) = tshark(&capture, filter, &fields) else { return };
        for ((client, _), recorder) in &flows {
            let Some(Data::Ssh(ssh)) = recorder.finished.first().map(|t| &t.data) else { continue };
            for row in &rows {
                let (side, field) = if row[0] == client.to_string() { (0, 1) } else { (1, 2) };
                let found = ssh.sides[side].as_ref().and_then(|side| side.hassh.clone());
                if !row[field].is_empty() {
                    assert_eq!(
                        found.as_deref(),
                        Some(row[field].as_str()),
                        "{}",
                        capture.display()
                    );
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} fingerprints");
    assert!(compared == 0 || compared >= 4);
}

#[test]
fn commands_of_ftp_and_smtp() {
    let mut compared = [0; 2];
    for (capture, flows) in folder("ftp") {
        let fields = ["tcp.srcport", "ftp.request.command", "ftp.request.arg"];
        let Some(rows) = tshark(&capture, "ftp.request", &fields) else { return };
        for ((client, _), recorder) in &flows {
            let theirs = rows.iter().filter(|row| row[0] == client.to_string());
            let theirs: Vec<_> =
                theirs.map(|row| (row[1].clone(), row[2].trim().to_owned())).collect();
            let ours: Vec<_> = recorder
                .progress
                .iter()
                .filter(|(_, progress)| *progress == applayer::Progress::Begun)
                .filter_map(|(id, _)| recorder.finished.iter().find(|t| t.id == *id))
                .filter_map(|t| if let Data::Ftp(ftp) = &t.data { Some(ftp) } else { None })
                .filter(|ftp| !ftp.command.is_empty())
                .map(|ftp| (text(&ftp.command), text(&ftp.argument)))
                .collect();
            // One command a segment, as tshark reads them.
            if ours.len() == theirs.len() {
                assert_eq!(ours, theirs, "{}", capture.display());
                compared[0] += ours.len();
            }
        }
    }
    for (capture, flows) in folder("smtp") {
        if name(&capture).contains("pipeline") {
            continue; // tshark reads one command a segment
        }
        let fields = ["smtp.req.command", "smtp.req.parameter"];
        let filter = "smtp.req.command == \"MAIL\" || smtp.req.command == \"RCPT\"";
        let Some(rows) = tshark(&capture, filter, &fields) else { return };
        let parameters: Vec<&str> = rows.iter().flat_map(|row| row[1].split('|')).collect();
        for (_, recorder) in &flows {
            for smtp in recorder
                .finished
                .iter()
                .filter_map(|t| if let Data::Smtp(s) = &t.data { Some(s) } else { None })
            {
                for path in smtp.mail_from.iter().chain(&smtp.rcpt_to).take(50) {
                    let path = text(path);
                    assert!(
                        parameters.iter().any(|p| p.contains(&path)),
                        "{}: {path}",
                        capture.display()
                    );
                    compared[1] += 1;
                }
            }
        }
    }
    println!("{} commands of FTP, {} paths of SMTP", compared[0], compared[1]);
    assert!(compared == [0; 2] || compared[0] >= 50 && compared[1] >= 4);
}

#[test]
fn records_of_dns() {
    let mut compared = 0;
    for (capture, flows) in folder("dns") {
        let fields = [
            "udp.srcport",
            "dns.id",
            "dns.flags.response",
            "dns.qry.name",
            "dns.a",
            "dns.aaaa",
            "dns.resp.ttl",
        ];
        let Some(rows) =
            tshark(&capture, "dns && udp && !_ws.malformed && udp.port != 5353", &fields)
        else {
            return;
        };
        for row in rows {
            let id = u16::from_str_radix(row[1].trim_start_matches("0x"), 16).unwrap();
            let messages = flows.iter().flat_map(|(_, recorder)| &recorder.finished);
            let found = messages
                .filter_map(|t| if let Data::Dns(dns) = &t.data { Some(dns) } else { None });
            let mut found =
                found.filter(|dns| dns.id == id && dns.is_response() == (row[2] == "1"));
            let Some(dns) = found.next() else {
                // Names that cannot be, which is no DNS here.
                assert!(name(&capture).contains("invalid-names"), "{}: {row:?}", capture.display());
                continue;
            };
            if dns.is_cut || name(&capture).contains("invalid-names") {
                continue;
            }
            let join = |texts: Vec<String>| texts.join("|");
            let names = dns.questions.iter().map(|q| {
                if q.name.is_empty() {
                    "<Root>".into()
                } else {
                    String::from_utf8_lossy(&q.name).into_owned()
                }
            });
            assert_eq!(join(names.collect()), row[3], "{}", capture.display());
            let records: Vec<_> =
                [&dns.answers, &dns.authorities, &dns.additionals].into_iter().flatten().collect();
            // OPT has flags there.
            let plain = records.iter().filter(|record| record.kind != 41);
            let times = join(plain.map(|record| record.ttl_s.to_string()).collect());
            assert_eq!(times, row[6], "{}", capture.display());
            let of = |read: fn(&DnsData) -> Option<String>| {
                join(records.iter().filter_map(|record| read(&record.data)).collect())
            };
            assert_eq!(
                of(|d| if let DnsData::A(a) = d { Some(a.to_string()) } else { None }),
                row[4]
            );
            assert_eq!(
                of(|d| if let DnsData::Aaaa(a) = d { Some(a.to_string()) } else { None }),
                row[5]
            );
            compared += 1;
        }
    }
    println!("{compared} messages");
    assert!(compared == 0 || compared >= 12);
}
