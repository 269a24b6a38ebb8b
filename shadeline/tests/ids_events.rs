//! `shadeline ids` and `[ids]`: what is said of rules and files, and events.

use std::process::{Command, Output};

use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::{Record, write_pcap};

fn ids(folder: &Scratch, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(folder.path()).arg("ids").args(args).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a pass rule, or one that drops, hides from a rule is no reason why its conditions do not hold; which one hides it is named.
#[test]
fn other_rules_do_not_hide_conditions() {
    let folder = Scratch::new();
    let rules = "pass udp any any -> any any (content:\"que\"; sid:10;)\n\
                 drop udp any any -> any any (content:\"uer\"; sid:11;)\n\
                 alert udp any any -> any any (content:\"ry\"; sid:2;)\n";
    folder.write("local.rules", rules);
    let frame = Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(4000, 53, b"query").bytes();
    write_pcap(&folder.join("a.pcap"), &[Record::new(1_700_000_000_000_000_000, frame)]);
    for (sid, word, last) in [
        ("2", "ry", "1 match; rule 10 matches as well and passes what it matches"),
        ("10", "que", "1 match; it passes what it matches"),
    ] {
        let out = ids(&folder, &["-r", "a.pcap", "-S", "local.rules", "--explain", sid]);
        let said = text(&out.stdout);
        for line in [
            "1  udp any any -> any any\n",
            &format!("1  udp any any -> any any (content:\"{word}\";)\n"),
            &format!("rule {sid}: {last}"),
        ] {
            assert!(said.contains(line), "{said}");
        }
    }
    let rules = std::fs::read_to_string(folder.join("local.rules")).expect("it is there");
    folder.write("local.rules", rules.split_once('\n').expect("lines").1);
    for (more, last) in [
        (&[][..], "rule 2: 1 alert\n"),
        (&["--inline"], "rule 2: 1 match; rule 11 matches as well and drops what it matches"),
    ] {
        let args = ["-r", "a.pcap", "-S", "local.rules", "--explain", "2"];
        let out = ids(&folder, &[&args[..], more].concat());
        assert!(text(&out.stdout).contains(last), "{}", text(&out.stdout));
    }
}

/// The events of `[flow]` say of a flow that a rule raised an alert, as those of `[ids]` do.
#[test]
fn events_of_flows_know_of_alerts() {
    let folder = Scratch::new();
    folder.write("local.rules", "alert udp any any -> any any (content:\"que\"; sid:1;)\n");
    let frame = |port: u16, word: &[u8]| {
        Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(port, 53, word).bytes()
    };
    let at = |number: u64, data| Record::new(1_700_000_000_000_000_000 + number * 1_000_000, data);
    let records = [at(0, frame(4000, b"query")), at(1, frame(4001, b"other"))];
    write_pcap(&folder.join("a.pcap"), &records);
    for workers in ["1", "2"] {
        let config = format!(
            "mode = \"monitor\"\n[system]\nworkers = {workers}\n[port.a]\n[flow]\nevents = \"flow.json\"\n\
             [ids]\nrules = [\"local.rules\"]\noutput = \"out\"\n"
        );
        let config = folder.write("monitor.toml", &config);
        let _ = std::fs::remove_dir_all(folder.join("out"));
        let _ = std::fs::remove_file(folder.join("flow.json"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.current_dir(folder.path()).arg("run").arg(&config);
        let out = command.args(["-r", "a=a.pcap"]).output().expect("it runs");
        assert!(out.status.success(), "{}", text(&out.stderr));
        for file in ["flow.json", "out/eve.json"] {
            let events = std::fs::read_to_string(folder.join(file)).expect("it is written");
            let events = events.lines().map(|own| serde_json::from_str(own).expect("an object"));
            let flows = events.filter(|own: &serde_json::Value| own["event_type"] == "flow");
            let mut alerted: Vec<(u64, bool)> = flows
                .map(|own| {
                    let port = own["src_port"].as_u64().expect("a port");
                    (port, own["flow"]["alerted"].as_bool().expect("it is said"))
                })
                .collect();
            alerted.sort();
            assert_eq!(alerted, [(4000, true), (4001, false)], "{file}");
        }
    }
}

/// What is wrong in files beside the rules has its file and line; so have names of classes and numbers of rules that there are not.
#[test]
fn files_beside_the_rules_have_places() {
    let folder = Scratch::new();
    let rules = "alert udp any any -> any any (content:\"x\"; classtype:good; sid:1;)\n\
                 alert udp any any -> any any (content:\"y\"; classtype:god; sid:2;)\n\
                 alert tcp any any -> any any (itype:8; sid:3;)\n\
                 alert udp any any -> any any (seq:8; sid:4;)\n\
                 alert tcp any any -> any any (app-layer-protocol:http; app-layer-protocol:dns; sid:5;)\n\
                 alert tcp any any -> any any (content:\"x\"; base64_decode:bytes 0; base64_data; content:\"y\"; sid:6;)\n";
    folder.write("local.rules", rules);
    folder.write("classes", "config classification: good,Good,1\n");
    folder.write("categories", "1,Bad,bad hosts\n77,No,none\n3,short\n");
    folder.write("one.list", "192.0.2.1,1,10\n");
    folder.write("two.list", "192.0.2.1,1,10\n192.0.2.2,9,10\n");
    folder.write("limits", "suppress gen_id 1, sig_id 1\nsuppress gen_id 1, sig_id 99999\n");
    let args = ["-T", "-S", "local.rules", "--classification", "classes", "--thresholds", "limits"];
    let lists = ["--reputation-categories", "categories", "--reputation", "one.list"];
    let out = ids(&folder, &[&args[..], &lists, &["--reputation", "two.list"]].concat());
    let said = text(&out.stdout);
    for line in [
        "local.rules:2: rule 2 names the class `god`, which the classification file does not have",
        "categories:2: the number is not 1 to 60",
        "categories:3: it is written NUMBER,NAME,DESCRIPTION",
        "two.list:2: no category has this number",
        "limits:2: no rule has sid 99999",
        "local.rules:3: rule 3 never matches: packets of tcp have no `itype`",
        "local.rules:4: rule 4 never matches: packets of udp have no `seq`",
        "local.rules:5: rule 5 never matches: a flow is not both http and dns",
        "local.rules:6: rule 6 never matches: `base64_decode` decodes 0 bytes",
    ] {
        assert!(
            said.contains(&format!("warning: {line}\n")),
            "{line}: {said}{}",
            text(&out.stderr)
        );
    }
    assert_eq!(said.matches("warning: ").count(), 9, "{said}");
}

/// A tunnel whose packets come in fragments is not looked into, nor is one in three others; events say so, and rules may drop it.
#[test]
fn tunnels_that_are_not_looked_into_are_anomalies() {
    let folder = Scratch::new();
    folder.write(
        "local.rules",
        "drop pkthdr any any -> any any (decode-event:ip.tunnel_in_fragments; sid:1;)\n\
         drop pkthdr any any -> any any (decode-event:too_many_layers; sid:2;)\n\
         alert udp any any -> any any (content:\"query\"; sid:3;)\n",
    );
    let ip = |id: u16, protocol: u8, flags: u16, payload: &[u8]| {
        let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 9, 0, 0, 1, 9, 0, 0, 2];
        header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        header[4..6].copy_from_slice(&id.to_be_bytes());
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        let sum = packet::checksum::internet_checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&header[..], payload].concat()
    };
    let whole = Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(4000, 53, b"query").bytes();
    let (link, inner) = whole.split_at(14);
    let deep = (1..=4).fold(inner.to_vec(), |inside, id| ip(id, 4, 0, &inside));
    let frames =
        [ip(5, 4, 0, inner), ip(6, 4, 0x2000, &inner[..24]), ip(6, 4, 3, &inner[24..]), deep];
    let record = |(number, own): (usize, &Vec<u8>)| {
        let at = 1_700_000_000_000_000_000 + number as u64 * 1_000_000;
        Record::new(at, [link, own].concat())
    };
    let records: Vec<Record> = frames.iter().enumerate().map(record).collect();
    write_pcap(&folder.join("a.pcap"), &records);
    let out = ids(&folder, &["-r", "a.pcap", "-S", "local.rules", "-l", "out", "--inline"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let events = std::fs::read_to_string(folder.join("out/eve.json")).expect("it is written");
    let events: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let of = |kind: &str, of: fn(&serde_json::Value) -> String| -> Vec<String> {
        events.iter().filter(|own| own["event_type"] == kind).map(of).collect()
    };
    let anomalies = of("anomaly", |own| own["anomaly"]["event"].to_string());
    let expected = ["\"decoder.ip.tunnel_in_fragments\"", "\"decoder.too_many_layers\""];
    assert_eq!(anomalies, expected, "{events:?}");
    let alerts =
        of("alert", |own| format!("{} {}", own["alert"]["signature_id"], own["alert"]["action"]));
    assert_eq!(alerts, ["3 \"allowed\"", "1 \"blocked\"", "2 \"blocked\""], "{events:?}");
    let said = text(&out.stdout);
    assert!(said.contains("3 alerts"), "{said}");
}

/// A segment that no stream takes is dropped for that, not with its flow, which goes on.
#[test]
fn a_segment_of_no_stream_has_a_reason_of_its_own() {
    let folder = Scratch::new();
    folder.write("local.rules", "alert tcp any any -> any any (content:\"nothing\"; sid:1;)\n");
    let segment = |is_client: bool, (sequence, ack): (u32, u32), flags: u8, data: &[u8]| {
        let ends = [("10.0.0.1", 4000), ("10.0.0.2", 80)];
        let [from, to] = if is_client { ends } else { [ends[1], ends[0]] };
        let mut frame = Frame::new().ipv4(from.0, to.0).tcp(from.1, to.1, sequence, data).bytes();
        frame[42..46].copy_from_slice(&ack.to_be_bytes());
        frame[47] = flags;
        frame
    };
    let (syn, ack, push) = (2, 16, 24);
    let all = [
        (true, segment(true, (999, 0), syn, b"")),
        (false, segment(false, (4999, 1000), syn | ack, b"")),
        (true, segment(true, (1000, 5000), ack, b"")),
        (true, segment(true, (0x4000_0000, 5000), push, b"far away")),
        (true, segment(true, (1000, 5000), push, b"in order")),
    ];
    let at = |number: usize| 1_700_000_000_000_000_000 + number as u64 * 1_000_000;
    for (name, of_client) in [("a.pcap", true), ("b.pcap", false)] {
        let own = all.iter().enumerate().filter(|(_, (is_client, _))| *is_client == of_client);
        let own: Vec<Record> =
            own.map(|(number, (_, frame))| Record::new(at(number), frame.clone())).collect();
        write_pcap(&folder.join(name), &own);
    }
    let config = "mode = \"wire\"\n[port.a]\nchecksums = \"ignore\"\n[port.b]\nchecksums = \"ignore\"\n\
        [ids]\nrules = [\"local.rules\"]\naction = \"inline\"\noutput = \"out\"\n";
    let config = folder.write("wire.toml", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(folder.path()).arg("run").arg(config);
    let output = command.args(["-r", "a=a.pcap", "-r", "b=b.pcap"]).output().expect("it runs");
    let said = text(&[&output.stdout[..], &output.stderr].concat());
    assert!(output.status.success() && said.contains("ids_invalid"), "{said}");
    let events = std::fs::read_to_string(folder.join("out/eve.json")).expect("it is written");
    let drops: Vec<serde_json::Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .filter(|own: &serde_json::Value| own["event_type"] == "drop")
        .collect();
    let [drop] = &drops[..] else { panic!("{events}") };
    assert_eq!(drop["drop"]["reason"], "stream error");
}
