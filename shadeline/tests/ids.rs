//! `shadeline ids`: rules over captures, with any number of workers.

use std::path::Path;
use std::process::{Command, Output};

use testkit::Scratch;

/// A case of Suricata's own tests; skipped where the data are absent.
const CASE: &str = "../shared/data/ids/suricata-verify/smtp-file-data-01";

fn ids(folder: &Scratch, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("ids").args(args).current_dir(folder.path());
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn rules_that_cannot_be_loaded_are_named_with_their_place() {
    let folder = Scratch::new();
    let rules = "alert tcp any any -> any any (msg:\"x\"; content:\"x\"; sid:1;)\n\
                 alert tcp any any -> any any (msg:\"y\"; contnet:\"x\"; sid:2;)\n";
    folder.write("local.rules", rules);
    let out = ids(&folder, &["-T", "-S", "local.rules"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    assert!(said.starts_with("local.rules:2:"), "{said}");
    assert!(said.contains("did you mean `content`?"), "{said}");
    assert!(said.contains("2 rules: 1 loaded (50.00 %), 1 not; 0 disabled"), "{said}");
}

#[test]
fn any_number_of_workers_writes_the_same() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(CASE);
    if !case.is_dir() {
        return;
    }
    let file = |name: &str| case.join(name).display().to_string();
    let (capture, rules) = (file("input.pcap"), file("test.rules"));
    let folder = Scratch::new();
    let mut all = Vec::new();
    for workers in ["1", "2", "4"] {
        let args =
            ["-r", &capture, "-S", &rules, "-l", workers, "--workers", workers, "-k", "none"];
        let out = ids(&folder, &args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let read = |name: &str| {
            let path = folder.path().join(workers).join(name);
            std::fs::read_to_string(path).expect("it is written")
        };
        all.push((read("eve.json"), read("fast.log"), read("stats.log")));
    }
    let (eve, fast, _) = &all[0];
    assert_eq!(fast.lines().count(), 1, "{fast}");
    assert!(fast.contains("[**] [1:1:0] file_data smtp test [**]"), "{fast}");
    for kind in ["alert", "fileinfo", "smtp", "flow"] {
        assert!(eve.contains(&format!("\"event_type\":\"{kind}\"")), "{kind}: {eve}");
    }
    assert!(all.iter().all(|own| own == &all[0]));
}

/// Rules that count per host need one worker over captures, whatever was asked for; their lines come out all the same.
#[test]
fn rules_that_count_per_host_write_with_one_worker() {
    let folder = Scratch::new();
    let capture = testkit::repository().join("tests/data/vxlan-pings.pcap").display().to_string();
    let rule = "alert icmp any any -> any any (msg:\"echo\"; itype:8; threshold:type limit, track by_src, count 1, \
                seconds 600; sid:1;)\n";
    folder.write("local.rules", rule);
    for workers in ["1", "3"] {
        let args = ["-r", &capture, "-S", "local.rules", "-l", workers, "--workers", workers];
        let out = ids(&folder, &args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let is_said = text(&out.stderr).contains("captures are processed by one worker");
        assert_eq!(is_said, workers != "1", "{}", text(&out.stderr));
        let path = folder.path().join(workers).join("fast.log");
        let lines = std::fs::read_to_string(path).expect("it is written").lines().count();
        assert_eq!(lines, 1, "{workers} workers");
    }
}
