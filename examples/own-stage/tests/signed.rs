//! The module over a capture: datagrams with the right signature, whole and in fragments, and others. The key and one signature
//! are those of OpenSSL, where it is installed.

use std::path::Path;
use std::process::Command;

use crypto::Secret;
use crypto::rsa::PrivateKey;
use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::{self, Record};

/// Runs `openssl` in a folder; `false` where there is none.
fn openssl(folder: &Path, arguments: &str) -> bool {
    let ran = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let Ok(output) = ran else { return false };
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn datagrams_without_the_right_signature_end() {
    let folder = Scratch::new();
    if !openssl(folder.path(), "genrsa -traditional -out key.pem 2048") {
        println!("skipped: no openssl");
        return;
    }
    openssl(folder.path(), "rsa -traditional -in key.pem -outform DER -out key.der");
    openssl(folder.path(), "rsa -in key.pem -pubout -outform DER -out signed.der");
    folder.write("text", "the words of OpenSSL");
    openssl(folder.path(), "dgst -sha256 -sign key.pem -out signature text");
    let read = |file: &str| std::fs::read(folder.join(file)).expect("openssl has written it");
    let key = PrivateKey::from_der(&Secret::new(read("key.der"))).expect("a key");
    let signed = |text: &[u8]| {
        let mut signature = [0; 256];
        let len = key.sign(text, &mut signature).expect("random numbers");
        [text, &signature[..len]].concat()
    };
    let datagram = |payload: &[u8]| Frame::new().ipv4("192.0.2.1", "198.51.100.1").udp(1000, 2000, payload).bytes();
    let long = datagram(&signed(&[7; 1000]));
    let piece = |begin: usize, end: usize, more: bool| {
        let frame = Frame::new().ipv4("192.0.2.1", "198.51.100.1").identification(3);
        frame.raw(17, &long[34 + begin..34 + end]).fragment((begin / 8) as u16, more).bytes()
    };
    let mut changed = signed(b"a word");
    changed[0] ^= 1;
    let frames = [
        datagram(&signed(b"a word")),
        datagram(&[&b"the words of OpenSSL"[..], &read("signature")].concat()),
        datagram(&changed),
        datagram(b"short"),
        datagram(&[0; 300]),
        piece(0, 800, true),
        piece(800, long.len() - 34, false),
        datagram(&signed(b"")),
    ];
    let record = |(i, frame): (usize, &Vec<u8>)| Record::new(1_000_000_000 + i as u64, frame.clone());
    let records: Vec<Record> = frames.iter().enumerate().map(record).collect();
    pcap::write_pcap(&folder.join("in.pcap"), &records);
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/signed.toml");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_own-stage"));
        command.args(["run", config, "-r", "a=in.pcap", "-w", "out"]).current_dir(folder.path());
        command.output().expect("the program starts")
    };
    let output = run();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<Vec<u8>> = pcap::read(&folder.join("out/b.pcapng")).into_iter().map(|record| record.data).collect();
    let expected: Vec<Vec<u8>> = [0, 1, 5, 6, 7].iter().map(|at: &usize| frames[*at].clone()).collect();
    assert_eq!(left, expected);
    // Without a key it does not start.
    folder.write("signed.der", "no key");
    let output = run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("signed.der: "), "{said}");
}
