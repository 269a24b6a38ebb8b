//! The module over a capture: a connection with a short first line, and one whose long first line comes in pieces, one of
//! which came late.

use std::process::Command;

use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::{self, Record};

#[test]
fn connections_with_a_long_first_line_end() {
    let folder = Scratch::new();
    let segment = |client: u16, at: u32, bytes: &[u8]| {
        let frame = Frame::new().ipv4("192.0.2.1", "198.51.100.1");
        frame.tcp(client, 80, 1 + at, bytes).padded(60)
    };
    let long = [b'x'; 100];
    let frames = [
        segment(1, 0, b"short\r\n"),
        segment(1, 7, &long),
        segment(2, 0, &long[..30]),
        segment(2, 60, &long[60..90]), // waits for the next one
        segment(1, 107, &long),
        segment(2, 30, &long[30..60]), // now the line has 90 bytes
        segment(2, 90, b"\r\n"),
        segment(1, 207, b"more"),
    ];
    let record = |(i, frame): (usize, &Vec<u8>)| Record::new(1_000_000_000 + i as u64, frame.clone());
    let records: Vec<Record> = frames.iter().enumerate().map(record).collect();
    pcap::write_pcap(&folder.join("in.pcap"), &records);
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/first_line.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_own-stage"))
        .args(["run", config, "-r", "a=in.pcap", "-w", "out"])
        .current_dir(folder.path())
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<Vec<u8>> =
        pcap::read(&folder.join("out/b.pcapng")).into_iter().map(|record| record.data).collect();
    let expected: Vec<Vec<u8>> =
        [0, 1, 2, 3, 4, 7].iter().map(|at: &usize| frames[*at].clone()).collect();
    assert_eq!(left, expected);
}
