//! The bystander of a named-data forwarder: a consumer that asks at a rate, and a producer that answers.
//!
//! Packets are written by hand (NDN packet format 0.3): Interests with name, nonce and lifetime, Data with name, content
//! and a signature of no length.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

/// What the stream of a bystander is measured by.
#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    received: u64,
    gap_ms: f64,
}

/// How long Data may take.
const LATE: Duration = Duration::from_millis(500);

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    match u8::try_from(value.len()) {
        Ok(len) if len < 253 => bytes.push(len),
        _ => {
            bytes.push(253);
            bytes.extend((value.len() as u16).to_be_bytes());
        }
    }
    bytes.extend(value);
    bytes
}

/// A name of two components, the second a number.
fn name(first: &str, number: u32) -> Vec<u8> {
    tlv(7, &[tlv(8, first.as_bytes()), tlv(8, format!("{number:010}").as_bytes())].concat())
}

/// An Interest of this lifetime.
pub(crate) fn interest(first: &str, number: u32, lifetime: Duration) -> Vec<u8> {
    let lifetime = (lifetime.as_millis() as u32).to_be_bytes();
    let nonce = (number ^ 0x5a5a_0000).to_be_bytes();
    tlv(5, &[name(first, number), tlv(10, &nonce), tlv(12, &lifetime)].concat())
}

/// Both ends in the namespace that this process runs in: Interests from 10.0.1.2, Data from 10.0.2.2. Prints what
/// `shadeline measure` prints of its stream.
pub(crate) fn stream(pps: u64, time: Duration) -> ExitCode {
    let ended = AtomicBool::new(false);
    let counted = || -> std::io::Result<Counts> {
        let producer = UdpSocket::bind("10.0.2.2:6363")?;
        let consumer = UdpSocket::bind("10.0.1.2:0")?;
        consumer.connect("10.0.1.1:6363")?;
        std::thread::scope(|scope| {
            scope.spawn(|| produce(&producer, || ended.load(Ordering::Relaxed)));
            let counts = consume(&consumer, pps, time);
            ended.store(true, Ordering::Relaxed);
            counts
        })
    };
    match counted() {
        Ok(counts) => {
            let found = json!({
                "offered_pps": counts.sent as f64 / time.as_secs_f64(),
                "sent_packets": counts.sent,
                "lost_packets": counts.sent - counts.received,
                "longest_gap_ms": counts.gap_ms,
            });
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers each Interest under `/by`, and no other, until `ended` says so.
fn produce(socket: &UdpSocket, ended: impl Fn() -> bool) -> std::io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut packet = [0; 9000];
    while !ended() {
        let Ok((len, from)) = socket.recv_from(&mut packet) else { continue };
        // The name is the first element of an Interest; in a link packet there would be something before it.
        let Some(own) = packet[..len].get(2..2 + 2 + 16) else { continue };
        if own.starts_with(&[7, 16, 8, 2, b'b', b'y']) {
            let data =
                [own, &tlv(21, b"content"), &tlv(22, &tlv(27, &[0])), &tlv(23, &[])].concat();
            socket.send_to(&tlv(6, &data), from)?;
        }
    }
    Ok(())
}

/// Asks for other names at a rate for a time; what came back.
fn consume(socket: &UdpSocket, pps: u64, time: Duration) -> std::io::Result<Counts> {
    socket.set_nonblocking(true)?;
    // Other names than the stream before it: a forwarder drops an Interest whose name and nonce it knows.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = since.as_millis() as u32;
    let begin = Instant::now();
    let (mut counts, mut latest, mut seen) = (Counts::default(), begin, HashSet::new());
    let mut packet = [0; 9000];
    let mut sending = true;
    while sending || begin.elapsed() < time + LATE {
        let due = (begin.elapsed().min(time).as_secs_f64() * pps as f64) as u64;
        sending = begin.elapsed() < time;
        while counts.sent < due {
            let number = first.wrapping_add(counts.sent as u32);
            // A full queue of the sender's own is as if it were not sent.
            if socket.send(&interest("by", number, Duration::from_secs(2))).is_err() {
                break;
            }
            counts.sent += 1;
        }
        while let Ok(len) = socket.recv(&mut packet) {
            if len > 22 && packet[0] == 6 && seen.insert(packet[4..22].to_vec()) {
                counts.received += 1;
                counts.gap_ms = counts.gap_ms.max(latest.elapsed().as_secs_f64() * 1e3);
                latest = Instant::now();
            }
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    let end = begin + time;
    counts.gap_ms = counts.gap_ms.max(end.saturating_duration_since(latest).as_secs_f64() * 1e3);
    Ok(counts)
}
