//! `ip xfrm` is the other program here: it adds, lists and watches, and what it prints is compared.

use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::process::Process;
use testkit::strongswan::shim;
use testkit::{Scratch, require_tool, wait_until};
use xfrm::{Change, Counters, Mode, Udp, counters, expire};

use crate::recorder::Recorder;

struct Bed {
    scratch: Scratch,
    recorder: Recorder,
    shim: std::path::PathBuf,
}

impl Bed {
    fn new() -> Option<Bed> {
        require_tool("ip")?;
        let scratch = Scratch::new();
        let shim = shim(scratch.path())?;
        let recorder = Recorder::start(scratch.path());
        Some(Bed { scratch, recorder, shim })
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new("ip");
        let (options, words) = match words.strip_prefix("-s ") {
            Some(words) => (&["-s"][..], words),
            None => (&[][..], words),
        };
        command
            .args(options)
            .arg("xfrm")
            .args(words.split(' ').map(|word| if word == "-" { "" } else { word }));
        command.env("LD_PRELOAD", &self.shim).env("NETLINK_XFRM_SOCKET", &self.recorder.path);
        command
    }

    fn try_ip(&self, words: &str) -> (bool, String) {
        let output = self.command(words).stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn ip(&self, words: &str) -> String {
        let (is_good, text) = self.try_ip(words);
        assert!(is_good, "ip xfrm {words}: {text}");
        text
    }
}

const KEY: &str = "0x0102030405060708090a0b0c0d0e0f1011121314";
const ENDS: &str = "src 192.0.2.1 dst 198.51.100.2";

#[test]
fn what_it_adds_is_mirrored_and_what_is_there_is_listed() {
    let Some(bed) = Bed::new() else { return };
    let mut mirror = bed.recorder.mirror();
    bed.ip(&format!(
        "state add {ENDS} proto esp spi 0x101 reqid 7 mode tunnel aead rfc4106(gcm(aes)) {KEY} 128 \
         replay-window 32 encap espinudp 4500 4501 0.0.0.0 if_id 0x2a mark 0x3 mask 0xf"
    ));
    bed.ip(&format!("state add {ENDS} proto esp spi 0x102 mode transport enc cbc(des) 0x0102030405060708 auth hmac(md5) {KEY}"));
    let (is_good, text) = bed.try_ip(&format!("state add {ENDS} proto esp spi 0x102 mode transport enc cbc(des) 0x0102030405060708 auth hmac(md5) {KEY}"));
    assert!(!is_good && text.contains("File exists"), "{text}");
    bed.ip("policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out priority 9 tmpl src 192.0.2.1 dst 198.51.100.2 proto esp reqid 7 mode tunnel");
    bed.ip("policy add src 10.1.0.0/16 dst 10.3.0.0/16 dir out priority 8 action block");

    bed.recorder.feed(&mut mirror);
    let changes = mirror.take_changes();
    let [
        Change::AssociationAdded(usable),
        Change::AssociationAdded(other),
        Change::PolicyAdded(protect),
        Change::PolicyAdded(block),
    ] = &changes[..]
    else {
        panic!("{changes:?}");
    };
    assert_eq!(usable.keys.as_ref().unwrap().suite().to_string(), "AES-128-GCM-16");
    assert_eq!((usable.id.spi, usable.reqid, usable.mode), (0x101, 7, Mode::Tunnel));
    assert_eq!((usable.if_id, usable.id.mark, usable.window), (0x2a, (3, 0xf), 32));
    let udp = Udp { source_port: 4500, destination_port: 4501, original: None };
    assert_eq!(usable.udp, Some(udp));
    assert_eq!(other.keys.as_ref().unwrap_err().to_string(), "cbc(des) is not supported");
    assert_eq!((protect.templates[0].reqid, protect.priority), (7, 9));
    assert_eq!(protect.selector.destination, Some(("10.2.0.0".parse().unwrap(), 16)));
    assert!(block.is_block && block.templates.is_empty());

    // What was carried, written back as a gateway does it, shows in what `ip` lists.
    let carried = Counters {
        sent: 0x1234,
        received: 40,
        window: vec![0b1011],
        used: xfrm::structs::LifetimeCurrent { bytes: 4711, packets: 42, add_time: 1, use_time: 2 },
    };
    assert_eq!(bed.recorder.ask(&counters(usable, &carried)), 0);
    let listed = bed.ip("-s state list");
    for expected in [
        "src 192.0.2.1 dst 198.51.100.2",
        "proto esp spi 0x00000101(257) reqid 7(0x00000007) mode tunnel",
        "mark 0x3/0xf",
        "rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 (160 bits) 128",
        "encap type espinudp sport 4500 dport 4501 addr 0.0.0.0",
        "anti-replay context: seq 0x28, oseq 0x1234, bitmap 0x0000000b",
        "4711(bytes), 42(packets)",
        "if_id 0x2a",
        "enc cbc(des) 0x0102030405060708 (64 bits)",
    ] {
        assert!(listed.contains(expected), "no {expected}\n{listed}");
    }
    let listed = bed.ip("policy list");
    for expected in
        ["dir out action block priority 8", "dir out priority 9", "proto esp reqid 7 mode tunnel"]
    {
        assert!(listed.contains(expected), "no {expected}\n{listed}");
    }
    assert!(bed.ip("state count").contains("SAD count 2"));
    assert!(bed.ip("policy count").contains("OUT 2"), "{}", bed.ip("policy count"));
    assert!(bed.ip(&format!("state get {ENDS} proto esp spi 0x102")).contains("cbc(des)"));
    let allocated =
        bed.ip(&format!("state allocspi {ENDS} proto esp mode tunnel min 0x300 max 0x300"));
    assert!(allocated.contains("spi 0x00000300"), "{allocated}");
    // An index is no association yet.
    bed.recorder.feed(&mut mirror);
    assert!(mirror.take_changes().is_empty());
    bed.ip(&format!(
        "state update {ENDS} proto esp spi 0x300 mode tunnel aead rfc4106(gcm(aes)) {KEY} 128"
    ));
    bed.ip(&format!("state delete {ENDS} proto esp spi 0x101 mark 0x3 mask 0xf"));
    bed.ip("policy delete src 10.1.0.0/16 dst 10.3.0.0/16 dir out");
    bed.ip("state flush");
    bed.ip("policy flush");
    bed.recorder.feed(&mut mirror);
    let changes = mirror.take_changes();
    assert!(matches!(changes[0], Change::AssociationAdded(_)), "{changes:?}");
    assert_eq!(changes.len(), 6, "{changes:?}");
    assert_eq!(mirror.associations().count() + mirror.policies().count(), 0);
}

#[test]
fn what_a_gateway_says_is_seen_by_all_who_watch() {
    let Some(bed) = Bed::new() else { return };
    let watching = Process::spawn(bed.command("monitor"));
    assert!(wait_until(Duration::from_secs(10), || bed.recorder.has_listener()));
    bed.ip(&format!(
        "state add {ENDS} proto esp spi 0x101 reqid 7 mode tunnel aead rfc4106(gcm(aes)) {KEY} 128 \
         flag esn replay-window 128"
    ));
    bed.ip("policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out tmpl src 192.0.2.1 dst 198.51.100.2 proto esp reqid 7 mode tunnel");
    let mirror = bed.recorder.mirror();
    let association = mirror.associations().next().unwrap().clone();
    let policy = mirror.policies().next().unwrap().clone();
    let ends = ("10.1.0.9".parse().unwrap(), "10.2.0.9".parse().unwrap());
    let acquire = xfrm::acquire(&policy, ends, 17, (7, 53)).unwrap();
    assert_eq!(bed.recorder.ask(&acquire), 0);
    let carried = Counters {
        sent: 1 << 32 | 5,
        received: 130,
        window: vec![1, 1 << 63],
        ..Counters::default()
    };
    assert_eq!(bed.recorder.ask(&counters(&association, &carried)), 0);
    assert_eq!(bed.recorder.ask(&expire(&association, &carried, false)), 0);
    assert_eq!(bed.recorder.ask(&expire(&association, &carried, true)), 0);
    assert!(bed.recorder.ask(&expire(&association, &carried, true)) < 0);
    assert_eq!(bed.recorder.ask(&xfrm::expire_policy(&policy, true)), 0);
    let expected = [
        "acquire proto esp",
        "sel src 10.1.0.9/32 dst 10.2.0.9/32 proto udp sport 7 dport 53",
        "Async event",
        "Expired src 192.0.2.1 dst 198.51.100.2",
        "hard 0",
        "hard 1",
        "Expired src 10.1.0.0/16 dst 10.2.0.0/16",
    ];
    let has_all = || expected.iter().all(|text| watching.output().contains(text));
    assert!(wait_until(Duration::from_secs(10), has_all), "{}", watching.output());
    assert_eq!(bed.recorder.with(|kernel| kernel.states.len() + kernel.policies.len()), 0);
    drop(bed.scratch);
}
