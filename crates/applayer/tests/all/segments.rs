//! A stream says the same however it is cut.

use std::path::PathBuf;

use applayer::{Direction, Limits, Start};
use l7proto::Transport;

use crate::common::flows;
use crate::http::gzip;
use crate::mail::MAIL;
use crate::random::{Random, cut, seeds};
use crate::recorder::{C, Recorder, S, Step, run, start};

/// Limits that are met often.
fn small(random: &mut Random) -> Limits {
    Limits {
        held_bytes: 40 + random.below(100),
        open_transactions: 1 + random.below(4),
        line_bytes: 20 + random.below(60),
        body_bytes: random.below(200) as u64,
        head_bytes: 50 + random.below(300),
        decoded_bytes: 100 + random.below(3000) as u64,
        ratio: 2,
        ratio_from_bytes: 100,
        handshake_bytes: 300,
        depth: random.below(3),
        ..Limits::default()
    }
}

fn http_message(random: &mut Random, is_request: bool) -> Vec<u8> {
    let mut out: Vec<u8> = match is_request {
        true => random
            .of(&[
                "GET /a?b HTTP/1.1",
                "POST /%41/../x HTTP/1.0",
                "HEAD http://h/ HTTP/1.1",
                "PUT /",
                "bad",
            ])
            .into(),
        false => random
            .of(&[
                "HTTP/1.1 200 OK",
                "HTTP/1.0 404 No",
                "HTTP/1.1 204 No",
                "HTTP/1.1 100 Go",
                "bad",
                "HTTP/1.1 x",
            ])
            .into(),
    };
    let end = random.of(&["\r\n", "\n"]);
    out.extend(end.bytes());
    for _ in 0..random.below(4) {
        let field =
            random.of(&["Host: h", "X-Y: z", "no colon", " folded", "Cookie: a", "Set-Cookie: b"]);
        out.extend(field.bytes().chain(end.bytes()));
    }
    let text = b"text of a body, again and again, text of a body".repeat(random.below(8));
    let is_form = is_request && random.one_in(3);
    let mut body = match is_form {
        true => {
            out.extend(b"Content-Type: multipart/form-data; boundary=q\r\n");
            let part = b"\r\n--q\r\nContent-Disposition: form-data; filename=f\r\n\r\n";
            [part, &text[..], part, b"\r", b"\r\n--q--\r\n"].concat()
        }
        false => text,
    };
    for _ in 0..random.below(3) {
        if random.one_in(2) {
            body = gzip(&body);
            out.extend(b"Content-Encoding: gzip\r\n");
        }
    }
    if random.one_in(6) && !body.is_empty() {
        let at = random.below(body.len());
        body[at] ^= 0x10;
    }
    match random.below(3) {
        0 => out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes()),
        1 => {
            out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            let size = 1 + random.below(90);
            body = body
                .chunks(size)
                .flat_map(|chunk| {
                    [format!("{:X}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()
                })
                .chain(*b"0\r\n\r\n")
                .collect();
        }
        _ => out.extend(b"\r\n"),
    }
    out.extend(body);
    out
}

fn conversation(random: &mut Random) -> (u16, Vec<Step>) {
    let mut steps = Vec::new();
    let port = random.of(&[80, 8080, 25, 21, 53, 22]);
    match port {
        80 => {
            for _ in 0..1 + random.below(4) {
                steps.push(Step::Data(C, http_message(random, true)));
                if random.one_in(8) {
                    steps.push(Step::Data(C, b"CONNECT a:1 HTTP/1.1\r\n\r\n".to_vec()));
                }
                steps.push(Step::Data(S, http_message(random, false)));
            }
        }
        8080 => steps = crate::http2::conversation(random),
        25 => {
            let client: [&[u8]; 8] = [
                b"EHLO me\r\n",
                b"MAIL FROM:<a>\r\nRCPT TO:<b>\r\n",
                b"DATA\r\n",
                MAIL,
                b"BDAT 9 LAST\r\nA: b\r\n\r\nc",
                b"RSET\r\n",
                b"STARTTLS\r\n",
                b"a line that is longer than some limits, by far, one would say\r\n",
            ];
            steps.push(Step::Data(S, b"220 mail ESMTP\r\n".to_vec()));
            for _ in 0..random.below(10) {
                steps.push(Step::Data(C, random.of(&client).to_vec()));
                let replies: [&[u8]; 4] =
                    [b"250 ok\r\n", b"354 go\r\n", b"250-a\r\n250 b\r\n", b"550 no\r\n"];
                steps.push(Step::Data(S, random.of(&replies).to_vec()));
            }
        }
        21 => {
            steps.push(Step::Data(S, b"220 ftp\r\n".to_vec()));
            for _ in 0..random.below(10) {
                let client: [&[u8]; 4] = [b"USER a\r\n", b"PASV\r\n", b"\r\n", b"RETR \xff b\n"];
                let server: [&[u8]; 4] =
                    [b"331 ok\r\n", b"150 a\r\n226 b\r\n", b"200-a\r\nb\r\n200 c\r\n", b"x\r\n"];
                steps.push(Step::Data(C, random.of(&client).to_vec()));
                steps.push(Step::Data(S, random.of(&server).to_vec()));
            }
        }
        53 => {
            for _ in 0..1 + random.below(5) {
                let message = crate::dns::query(b"www.example");
                let mut framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
                if random.one_in(4) {
                    let at = random.below(framed.len());
                    framed[at] = random.next() as u8;
                }
                steps.push(Step::Data(random.of(&[C, S]), framed));
            }
        }
        _ => {
            for side in [C, S] {
                steps.push(Step::Data(side, b"SSH-2.0-x y\r\n".to_vec()));
                let mut lists = vec![20; 17];
                for n in 0..10 {
                    lists.extend([0, 0, 0, 3, b'a', b',', b'a' + n]);
                }
                lists.extend([0; 5]);
                for payload in [lists, vec![30, 1, 2], vec![21], random.bytes(30)] {
                    let mut packet = ((payload.len() + 5) as u32).to_be_bytes().to_vec();
                    packet.push(4);
                    packet.extend(payload.iter().chain(&[0; 4]));
                    steps.push(Step::Data(side, packet));
                }
            }
        }
    }
    if random.one_in(4) {
        let at = random.below(steps.len() + 1);
        steps.insert(at, Step::Gap(random.of(&[C, S]), 1 + random.below(50) as u64));
    }
    if random.one_in(4) {
        let at = random.below(steps.len() + 1);
        steps.insert(at, Step::Data(random.of(&[C, S]), random.bytes(40)));
    }
    if random.one_in(2) {
        steps.extend([Step::End(C), Step::End(S)]);
    }
    (port, steps)
}

/// Limits that count what is handed on do not change with the cut; neither does what is said of them.
fn same(begin: Start, limits: &Limits, steps: &[Step], random: &mut Random, what: &str) {
    let whole = run(begin, limits, &cut(random, steps, 1 << 20));
    for longest in [1, 5, 100] {
        let parts: Recorder = run(begin, limits, &cut(random, steps, longest));
        let differ = || first_difference(&parts, &whole);
        assert!(parts == whole, "segments up to {longest}: {}; {what}", differ());
    }
}

fn first_difference(a: &Recorder, b: &Recorder) -> String {
    if a.buffers != b.buffers {
        let differ = |(key, value): &(_, _)| b.buffers.get(*key) != Some(*value);
        return format!("{:?}", a.buffers.iter().find(differ));
    }
    format!(
        "{:?} {:?} {:?} {:?}\n{:?} {:?} {:?} {:?}",
        a.protocols,
        a.progress,
        a.files,
        a.anomalies,
        b.protocols,
        b.progress,
        b.files,
        b.anomalies
    )
}

fn check(seed: u64) {
    let mut random = Random(seed);
    for _ in 0..8 {
        let (port, steps) = conversation(&mut random);
        let limits = if random.one_in(2) { small(&mut random) } else { Limits::default() };
        let mut begin = start(Transport::Stream, if random.one_in(4) { 9999 } else { port });
        begin.is_midstream = random.one_in(5);
        same(begin, &limits, &steps, &mut random, &format!("seed {seed}: {steps:?}"));
    }
}

#[test]
fn conversations_cut_anywhere() {
    seeds().for_each(check);
}

/// The flows of captures.
pub fn captures() -> Vec<(PathBuf, Start, Vec<Step>)> {
    let mut found = Vec::new();
    for folder in ["http", "dns", "tls", "ssh", "smtp", "ftp", "websocket", "sip", "pop3"] {
        let Some(folder) = testdata::path(&format!("pcap-l7/zeek/{folder}")) else { continue };
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.to_string_lossy().contains(".pcap")) {
            for flow in flows(file) {
                let side = |d| match d {
                    l7proto::Direction::Opener => Direction::ToServer,
                    l7proto::Direction::Responder => Direction::ToClient,
                };
                let steps = flow.pieces.iter().map(|(d, b)| Step::Data(side(*d), b.clone()));
                let (transport, ports) = (flow.key.transport(), flow.key.ports());
                let begin = Start { transport, ports, is_midstream: false };
                found.push((file.clone(), begin, steps.collect()));
            }
        }
    }
    found
}

#[test]
fn captures_cut_anywhere() {
    let mut random = Random(1);
    let mut count = 0;
    for (file, begin, steps) in captures() {
        let size: usize =
            steps.iter().map(|s| if let Step::Data(_, b) = s { b.len() } else { 0 }).sum();
        if begin.transport == Transport::Stream && size < 100_000 {
            same(begin, &Limits::default(), &steps, &mut random, &file.display().to_string());
            count += 1;
        }
    }
    println!("{count} streams");
}

/// Bytes of captures that are changed, cut and dropped: no panic, and every transaction and buffer ends.
#[test]
fn spoiled_captures() {
    let captures = captures();
    for seed in seeds().take(if captures.is_empty() { 0 } else { 70 }) {
        let mut random = Random(seed);
        for _ in 0..4 {
            let (file, mut begin, mut steps) = captures[random.below(captures.len())].clone();
            steps.truncate(60);
            for _ in 0..1 + random.below(6) {
                let at = random.below(steps.len() + 1);
                match (random.below(4), steps.get_mut(at)) {
                    (0, _) => steps
                        .insert(at, Step::Gap(random.of(&[C, S]), 1 + random.below(2000) as u64)),
                    (1, Some(_)) => {
                        steps.remove(at);
                    }
                    (_, Some(Step::Data(_, bytes))) if !bytes.is_empty() => {
                        let place = random.below(bytes.len());
                        bytes[place] = random.next() as u8;
                    }
                    _ => steps.insert(at, Step::End(random.of(&[C, S]))),
                }
            }
            begin.is_midstream = random.one_in(2);
            let limits = if random.one_in(2) { small(&mut random) } else { Limits::default() };
            if begin.transport == Transport::Datagram {
                run(begin, &limits, &steps);
            } else {
                same(
                    begin,
                    &limits,
                    &steps,
                    &mut random,
                    &format!("seed {seed}: {}", file.display()),
                );
            }
        }
    }
}
