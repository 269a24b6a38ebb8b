//! `shadeline l7` and the stage `l7`: labels of real flows, rules and contexts by application, patterns of a user.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{Scratch, repository};

fn shadeline(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.args(args).output().expect("the program starts")
}

/// What it said, in whichever stream.
fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// The lines of `l7 --json`, without the summary, and the summary.
fn labels(capture: &Path, more: &[&str]) -> (Vec<Value>, Value) {
    let output = shadeline(&[&["l7", "-k", "none", "--json", "-r", text(capture)], more].concat());
    assert!(output.status.success(), "{}", errors(&output));
    let lines = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = lines.pop().expect("a summary");
    // Some captures go back in time, and flows end in another order then.
    lines.sort_by_key(Value::to_string);
    (lines, last["summary"].clone())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn data(name: &str) -> std::path::PathBuf {
    repository().join("tests/data").join(name)
}

/// By application: flows.
fn flows(lines: &[Value]) -> BTreeMap<&str, u64> {
    let mut all = BTreeMap::new();
    for line in lines {
        *all.entry(line["application"].as_str().unwrap_or("-")).or_default() += 1;
    }
    all
}

#[test]
fn labels_do_not_depend_on_workers() {
    for name in
        ["wikipedia.pcap", "var-services-std-ports.pcap", "smtp.pcap", "ftp-bigtransfer.pcap"]
    {
        let one = labels(&data(name), &["--workers", "1"]);
        assert!(!one.0.is_empty(), "{name}");
        for workers in ["2", "4"] {
            assert_eq!(
                labels(&data(name), &["--workers", workers]),
                one,
                "{name}, {workers} workers"
            );
        }
    }
}

/// What each flow says adds up to the summary.
#[test]
fn the_summary_is_the_sum() {
    let (lines, summary) = labels(&data("wikipedia.pcap"), &[]);
    for (name, count) in flows(&lines) {
        let of = |line: &&Value| line["application"].as_str().unwrap_or("-") == name;
        let sum = |key: &str| lines.iter().filter(of).map(|line| line[key].as_u64().unwrap()).sum();
        let name = if name == "-" { "unknown" } else { name };
        let is_it = |row: &&Value| row["application"] == name;
        let row = summary.as_array().unwrap().iter().find(is_it).expect("a row");
        let (packets, bytes): (u64, u64) = (sum("packets"), sum("bytes"));
        assert_eq!(
            *row,
            serde_json::json!({"application": name, "flows": count, "packets": packets, "bytes": bytes})
        );
    }
}

/// Flows of Zeek's captures whose protocol tshark knows: the program says what the library says, which has a test of its own
/// for all of them.
#[test]
fn labels_are_those_of_tshark() {
    let Some(folder) = testdata::path("pcap-l7/zeek") else { return };
    let names = [
        ("smtp", "smtp"),
        ("ftp", "ftp"),
        ("dns", "dns"),
        ("sip", "sip"),
        ("cotp,tpkt", "rdp"),
        ("resp", "redis"),
        ("mbtcp", "modbus"),
        ("vnc", "rfb"),
    ];
    let list = std::fs::read_to_string(folder.join("labels-tshark.tsv")).expect("labels");
    let (mut known, mut agree, mut wrong) = (0, 0, Vec::new());
    let mut captures: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for line in list.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [capture, protocol, src, sport, dst, dport, label, _] = columns[..] else { continue };
        let Some((_, expected)) = names.iter().find(|(name, _)| *name == label) else { continue };
        let all = captures
            .entry(capture)
            .or_insert_with(|| labels(&folder.join(capture), &["--workers", "2"]).0);
        let end = |line: &Value, side: &str| {
            let port = line[format!("{side}_port")].to_string();
            (line[format!("{side}_ip")].as_str().unwrap_or_default().to_owned(), port)
        };
        let wanted = [(src.to_owned(), sport.to_owned()), (dst.to_owned(), dport.to_owned())];
        let is_it = |line: &&Value| {
            let ends = [end(line, "client"), end(line, "server")];
            let is_back = ends[0] == wanted[1] && ends[1] == wanted[0];
            line["proto"] == protocol && (ends == wanted || is_back)
        };
        let found = all.iter().find(is_it).unwrap_or_else(|| panic!("{capture}: no flow {line}"));
        known += 1;
        if found["application"] == *expected {
            agree += 1;
        } else if found["confidence"] == "high" {
            wrong.push(format!("{capture} {sport} {dport}: {label}, {}", found["application"]));
        }
    }
    println!("{agree} of {known} flows agree; {wrong:?}");
    assert!(known > 80 && agree * 100 >= known * 95, "{agree} of {known}");
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Rules by application drop what a look at the labels says, from the packet on that brings the label.
#[test]
fn rules_name_applications() {
    let folder = Scratch::new();
    let config = |rules: &str| {
        let head = "mode = \"wire\"\n[port.a]\nchecksums = \"ignore\"\n[port.b]\n[flow]\nevents = \"eve.json\"\n[l7]\n";
        folder.write("c.toml", &format!("{head}{rules}"))
    };
    let capture = data("wikipedia.pcap");
    let run = |rules: &str, workers: &str| {
        config(rules);
        let _ = std::fs::remove_file(folder.join("eve.json"));
        let text_of = std::fs::read_to_string(folder.join("c.toml")).unwrap();
        let with = format!("[system]\nworkers = {workers}\n");
        folder.write("c.toml", &text_of.replace("[port.a]", &format!("{with}[port.a]")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.current_dir(folder.path()).args(["run", "c.toml", "--json", "-r", text(&capture)]);
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{}", errors(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let events = std::fs::read_to_string(folder.join("eve.json")).expect("events");
        (report, events)
    };
    let passed = |report: &Value| report["tx_packets"].as_u64().expect("a number");
    let all = run("", "1");
    let rule = |name: &str, application: &str| {
        format!("[[rule]]\nname = \"{name}\"\napplication = \"{application}\"\naction = \"drop\"\n")
    };
    let dns = run(&rule("no-dns", "dns"), "1");
    let (lines, _) = labels(&capture, &[]);
    let of = |name: &str| -> u64 {
        let own = lines.iter().filter(|line| line["application"] == name);
        own.map(|line| line["packets"].as_u64().unwrap()).sum()
    };
    // Datagrams have their label with the first packet.
    assert!(of("dns") > 10);
    assert_eq!(passed(&all.0) - passed(&dns.0), of("dns"));
    let http = run(&rule("no-http", "http"), "1");
    let dropped = passed(&all.0) - passed(&http.0);
    // What came before the first request has passed.
    assert!(0 < dropped && dropped < of("http"), "{dropped} of {}", of("http"));
    // So many rules that those of established flows are remembered: the label comes later than the first ones.
    let many: String = (0..40).map(|at| rule(&format!("none{at}"), "rfb")).collect();
    for workers in ["1", "2", "4"] {
        let again = run(&format!("{many}{}", rule("no-http", "http")), workers);
        assert_eq!((passed(&again.0), &again.1), (passed(&http.0), &http.1), "{workers} workers");
    }
    let labelled = all.1.lines().filter(|line| line.contains("\"app_proto\":\"http\"")).count();
    assert_eq!(labelled as u64, flows(&lines)["http"]);
    let rows = all.0["applications"].as_array().expect("a section");
    let row = rows.iter().find(|row| row["application"] == "http").expect("a row");
    assert_eq!(
        (row["flows"].as_u64(), row["packets"].as_u64()),
        (Some(flows(&lines)["http"]), Some(of("http")))
    );
}

/// A context keeps a stage to the packets of an application.
#[test]
fn contexts_follow_applications() {
    let folder = Scratch::new();
    let text_of = |context: &str| {
        format!(
            "mode = \"x\"\n[port.a]\nchecksums = \"ignore\"\n[port.b]\n[flow]\n[l7.contexts]\ndns = \"{context}\"\n\
             [pipeline.x]\nstages = [\"flow\", \"l7\", \"only\", \"wire\"]\n\
             [stage.only]\nkind = \"firewall\"\ncontext = [\"names\"]\ndefault = \"drop\"\n"
        )
    };
    let capture = data("wikipedia.pcap");
    let passed = |context: &str| {
        let path = folder.write("c.toml", &text_of(context));
        let output = shadeline(&["run", text(&path), "--json", "-r", text(&capture)]);
        assert!(output.status.success(), "{}", errors(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["tx_packets"].as_u64().expect("a number")
    };
    let (lines, _) = labels(&capture, &[]);
    let of_dns = lines.iter().filter(|line| line["application"] == "dns");
    let of_dns: u64 = of_dns.map(|line| line["packets"].as_u64().unwrap()).sum();
    assert_eq!(passed("others") - passed("names"), of_dns);
    let path = folder.write("c.toml", &text_of("names").replace("dns =", "nds ="));
    let output = shadeline(&["check", text(&path)]);
    assert!(
        !output.status.success()
            && errors(&output).contains("unknown application `nds`, did you mean `dns`?"),
        "{}",
        errors(&output)
    );
}

#[test]
fn patterns_of_a_user_come_first() {
    let folder = Scratch::new();
    std::fs::create_dir(folder.join("patterns")).expect("a folder");
    let patterns = folder.join("patterns");
    folder.write(
        "patterns/wiki.pat",
        "# Pattern attributes: good\nwiki\n^get .*host: upload\\.wikimedia\\.org\n",
    );
    folder.write("patterns/any.pat", "# Pattern attributes: overmatch\nany\n.\n");
    let capture = data("wikipedia.pcap");
    let one = labels(&capture, &["--patterns", text(&patterns)]);
    let wiki: Vec<_> = one.0.iter().filter(|line| line["application"] == "wiki").collect();
    assert!(!wiki.is_empty());
    for line in &wiki {
        assert_eq!((&line["found_by"], &line["confidence"]), (&"file".into(), &"medium".into()));
        assert_eq!(line["host"], "upload.wikimedia.org");
    }
    let plain = labels(&capture, &[]).0;
    assert_eq!(flows(&one.0)["http"] + wiki.len() as u64, flows(&plain)["http"]);
    assert_eq!(flows(&one.0)["dns"], flows(&plain)["dns"], "one that overmatches comes last");
    for workers in ["2", "4"] {
        assert_eq!(labels(&capture, &["--patterns", text(&patterns), "--workers", workers]), one);
    }
    folder.write("patterns/bad.pat", "# mine\nbad\n\n(x\n");
    folder.write("patterns/worse.pat", "two words\nx\n");
    let output = shadeline(&["l7", "-r", text(&capture), "--patterns", text(&patterns)]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for expected in
        ["bad.pat:4: not a regular expression: unclosed group", "worse.pat:1: expected the name"]
    {
        assert!(said.contains(expected), "{said}");
    }
    let path = folder.write(
        "c.toml",
        &format!("mode = \"monitor\"\n[port.a]\n[l7]\npatterns = \"{}\"\n", text(&patterns)),
    );
    let output = shadeline(&["check", text(&path)]);
    assert!(
        errors(&output).contains("l7.patterns: ") && !output.status.success(),
        "{}",
        errors(&output)
    );
}
