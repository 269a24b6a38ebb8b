//! Many files into one set: counts, duplicates, variables; and that nothing takes more than linear time.

use std::io::{BufReader, Read};
use std::time::{Duration, Instant};

use signatures::{Buffer, Check, Loader, PROBLEMS_MAX, Rule, RuleSet, Variables};

fn load(files: &[&str]) -> RuleSet {
    let mut loader = Loader::new(Variables::with_defaults([], []).unwrap());
    for (number, text) in files.iter().enumerate() {
        loader.read(&format!("{number}.rules"), text.as_bytes()).unwrap();
    }
    loader.finish()
}

fn problems(set: &RuleSet) -> Vec<String> {
    set.problems.iter().map(|p| p.to_string()).collect()
}

#[test]
fn counts_and_places() {
    let set = load(&[
        "# comment\nalert tcp any any -> any any (sid:1;)\n\n#alert tcp any any -> any any (sid:2;)\n",
        "alert tcp any any -> any any ( \\\n msg:\"two\"; \\\n sid:3;)\nalert tcp any any -> any any (sid:x;)\n\
         alert tcp any any -> any any (lua:a.lua; mqtt.publish.topic; content:\"a\"; sid:4;)\n",
    ]);
    assert_eq!(
        set.summary.to_string(),
        "4 rules: 2 loaded (50.00 %), 1 with unsupported options, 1 with errors; 1 disabled"
    );
    let places: Vec<(usize, u64, u32)> =
        set.rules.iter().map(|l| (l.file, l.line, l.rule.sid)).collect();
    assert_eq!(places, [(0, 2, 1), (1, 1, 3)]);
    assert_eq!(
        problems(&set),
        [
            "1.rules: line 4, column 35: sid: `x` is not a number",
            "1.rules: line 5, column 1: not supported: lua, mqtt.publish.topic",
        ]
    );
    assert_eq!(load(&[""]).summary.share(), 1.0);
}

/// Rules for other programs are not evaluated, whatever else they have.
#[test]
fn requirements() {
    let rule = |(at, requires): (usize, &&str)| {
        format!("alert tcp any any -> any any (requires:{requires}; sid:{};)\n", at + 1)
    };
    let met = [
        "version >= 7.0.3",
        "version >= 6 < 7.0.11",
        "version <= 6 | >= 7, feature ja3",
        "keyword content, keyword http.uri",
    ];
    let unmet = [
        "version >= 8",
        "version >= 7.0.3 < 7.0.10 | > 7.0.10",
        "feature geoip",
        "keyword mqtt.type",
        "keyword nosuch; nosuch:1; http.uri",
    ];
    let set = load(&[&met.iter().enumerate().map(rule).collect::<String>()]);
    assert_eq!(problems(&set), [""; 0]);
    let set = load(&[&unmet.iter().enumerate().map(rule).collect::<String>()]);
    let reasons = unmet.iter().enumerate().map(|(at, requires)| {
        let requires = requires.split(';').next().unwrap_or_default();
        format!("0.rules: line {}, column 1: what it requires is not there: {requires}", at + 1)
    });
    assert_eq!(problems(&set), reasons.collect::<Vec<_>>());
    assert_eq!(set.summary.unsupported, 5);
}

#[test]
fn revisions() {
    let rule = |sid: u32, rev: u32, gid: u32| {
        format!("alert tcp any any -> any any (gid:{gid}; sid:{sid}; rev:{rev};)\n")
    };
    let first = [rule(1, 2, 1), rule(2, 1, 1), rule(1, 1, 3)].concat();
    let second = [rule(1, 2, 1), rule(1, 1, 1), rule(2, 5, 1)].concat();
    let set = load(&[&first, &second]);
    let kept: Vec<(u32, u32, u32)> =
        set.rules.iter().map(|l| (l.rule.gid, l.rule.sid, l.rule.rev)).collect();
    assert_eq!(kept, [(1, 1, 2), (3, 1, 1), (1, 2, 5)]);
    assert_eq!(
        problems(&set),
        [
            "1.rules: line 1, column 1: sid 1 has revision 2 already (0.rules:1)",
            "1.rules: line 2, column 1: replaced: sid 1 has revision 2 at 0.rules:1",
            "0.rules: line 2, column 1: replaced: sid 2 has revision 5 at 1.rules:3",
        ]
    );
    let is_replaced: Vec<bool> = set.problems.iter().map(|own| own.is_replaced).collect();
    assert_eq!(is_replaced, [false, true, true]);
    assert_eq!(
        set.summary.to_string(),
        "6 rules: 3 loaded (50.00 %), 0 with unsupported options, 1 with errors, 2 replaced; 0 disabled"
    );
}

/// What is said of an older rule does not depend on the order, and the newest one counts even where it is not supported.
#[test]
fn older_revisions_are_said_once() {
    let rule =
        |rev: u32, more: &str| format!("alert tcp any any -> any any ({more}sid:1; rev:{rev};)\n");
    let (old, new) = (rule(1, ""), rule(2, ""));
    let (other, newest) = (rule(1, "lua:a.lua; "), rule(3, "lua:a.lua; "));
    let said = |files: &[&str]| {
        let set = load(files);
        let all = set.summary;
        assert_eq!(all.total, all.loaded + all.unsupported + all.failed + all.replaced);
        assert_eq!(all.loaded as usize, set.rules.len());
        assert!(set.rules.iter().all(|own| own.rule.rev == 2));
        (all.loaded, problems(&set).concat())
    };
    let replaced = |old: u32, rev: u32, new: u32| {
        format!(
            "{old}.rules: line 1, column 1: replaced: sid 1 has revision {rev} at {new}.rules:1"
        )
    };
    let unsupported = |file: u32| format!("{file}.rules: line 1, column 1: not supported: lua");
    assert_eq!(said(&[&old, &new]), (1, replaced(0, 2, 1)));
    assert_eq!(said(&[&new, &old]), (1, replaced(1, 2, 0)));
    assert_eq!(said(&[&other, &new]), (1, unsupported(0)));
    assert_eq!(said(&[&new, &other]), (1, unsupported(1)));
    assert_eq!(said(&[&new, &newest]), (0, replaced(0, 3, 1) + &unsupported(1)));
    assert_eq!(said(&[&newest, &new]), (0, unsupported(0) + &replaced(1, 3, 0)));
}

#[test]
fn variables_of_headers() {
    let set = load(&["alert tcp $HOME_NET any -> $EXTERNAL_NET $HTTP_PORTS (sid:1;)\n\
        alert tcp $HOME any -> any any (sid:2;)\nalert tcp any any -> any !any (sid:3;)\n\
        alert tcp any any -> any $HOME_NET (sid:4;)\n"]);
    assert_eq!(
        problems(&set),
        [
            "0.rules: line 2, column 1: source address: variable $HOME is not defined",
            "0.rules: line 3, column 1: destination port: the list excludes everything",
            "0.rules: line 4, column 1: destination port: variable $HOME_NET is not defined",
        ]
    );
    let variables = Variables::with_defaults([("HOME_NET", "10.0.0.0/8")], []).unwrap();
    let source = set.rules[0].rule.source.resolve(&variables).unwrap();
    assert_eq!(source.low().collect::<Vec<_>>(), [(0x0a00_0000, 0x0aff_ffff)]);
}

#[test]
fn a_file_that_is_not_there() {
    let error = Loader::new(Variables::default()).read_file("no/such.rules".as_ref()).unwrap_err();
    assert!(error.to_string().starts_with("no/such.rules: "), "{error}");
}

/// Both ways to name a buffer are the same rule.
#[test]
fn modifiers_are_sticky_buffers() {
    let parse = |options: &str| {
        let text = format!("alert http any any -> any any ({options} sid:1;)");
        Rule::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"))
    };
    let same = [
        ("content:\"a\"; http_uri; nocase;", "http.uri; content:\"a\"; nocase;"),
        ("uricontent:\"a\";", "http.uri; content:\"a\";"),
        ("pcre:\"/a/Ui\";", "http.uri; pcre:\"/a/i\";"),
        (
            "content:\"a\"; http_uri; content:\"b\"; http_header; content:\"c\"; http_uri; distance:0;",
            "http.uri; content:\"a\"; http.header; content:\"b\"; http.uri; content:\"c\"; distance:0;",
        ),
        (
            "content:\"a\"; content:\"b\"; http_cookie; isdataat:4,relative; content:\"c\";",
            "content:\"a\"; http.cookie; content:\"b\"; isdataat:4,relative; pkt_data; content:\"c\";",
        ),
        ("file_data; content:\"a\";", "file.data; content:\"a\";"),
        ("flowbits:noalert;", "noalert;"),
        ("content:\"|41 3a|\\;\";", "content:\"A\\:|3B|\";"),
        ("content:\"a\"; http_host;", "http.host; content:\"a\";"),
        ("Content:\"a\"; NOCASE;", "content:\"a\"; nocase;"),
        ("flags:S,12; flow:from_client;", "tcp.flags:S,CE; flow:to_server;"),
    ];
    for (old, new) in same {
        assert_eq!(parse(old), parse(new), "{old}");
    }
    // A flow has several files: choosing them again is another look.
    let twice = parse("file.data; content:\"a\"; file.data; content:\"b\";");
    assert_eq!(twice.inspections.len(), 2);
    let once = parse("http.uri; content:\"a\"; http.uri; content:\"b\";");
    assert_eq!(once.inspections.len(), 1);
    assert_eq!(once.inspections[0].buffer, Buffer::HttpUri);
    assert!(once.inspections[0].checks.iter().all(|c| matches!(c, Check::Content(_))));
}

/// A text over and over, without ever being in memory.
struct Repeated {
    text: Vec<u8>,
    at: usize,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = into.len().min(self.left).min(self.text.len() - self.at);
        into[..count].copy_from_slice(&self.text[self.at..self.at + count]);
        self.at = (self.at + count) % self.text.len();
        self.left -= count;
        Ok(count)
    }
}

fn rule(options: &str) -> Vec<u8> {
    format!("alert tcp any any -> any any ({options} sid:1;)\n").into_bytes()
}

/// Texts that a careless parser takes quadratic time or much memory for. `SIGNATURES_MB` says how many megabytes there are of
/// each. Of 100, most took 0.1 to 17 seconds on a shared core in the test profile; lines of one letter, 52 million mistakes,
/// took 43.
#[test]
fn traps_take_linear_time() {
    let size = std::env::var("SIGNATURES_MB").ok().and_then(|mb| mb.parse().ok()).unwrap_or(4);
    let list = |open: &str, item: &str, close: &str| {
        format!("alert tcp {open}{item}{close} any -> any any (sid:1;)\n").into_bytes()
    };
    let names: String =
        (0..1000).map(|n| format!("byte_extract:4,0,name{n}; isdataat:name{n}; ")).collect();
    let switches: String = (0..1000)
        .map(|n| format!("content:\"a\"; {}; ", ["http_uri", "http_header"][n % 2]))
        .collect();
    let traps: [(&str, Vec<u8>); 19] = [
        ("one line", b"a".to_vec()),
        ("one continued line", b"alert tcp \\\n".to_vec()),
        ("empty lines", b"\n".to_vec()),
        ("disabled", b"#alert ip any any -> any any (sid:1;)\n".to_vec()),
        ("a disabled one that goes on", b"#alert ip ( \\\n".to_vec()),
        ("small rules", rule("")),
        ("unknown words", b"alert ip any any -> any any (conentt;)\n".to_vec()),
        ("unknown actions", b"x\n".to_vec()),
        ("options", rule(&"noalert;".repeat(4000))),
        ("contents", rule(&"content:\"a\";distance:0;".repeat(2000))),
        ("buffers in turns", rule(&switches)),
        ("names", rule(&names)),
        ("flowbits", rule(&format!("flowbits:isset,{};", "a|".repeat(30_000)))),
        ("parentheses", rule(&format!("pcre:\"/{}/\";", "(".repeat(60_000)))),
        ("brackets", rule(&format!("pcre:\"/{}/\";", "[[:a".repeat(15_000)))),
        (
            "closing parentheses",
            [b"alert ip any any -> any any (".to_vec(), vec![b')'; 60_000], b"x\n".to_vec()]
                .concat(),
        ),
        ("nested lists", list(&"[".repeat(30_000), "10.0.0.1", &"]".repeat(30_000))),
        ("long lists", list("[", &vec!["10.0.0.1"; 7000].join(","), "]")),
        ("variables", list("[!", &vec!["$HOME_NET"; 5000].join(",!"), "]")),
    ];
    for (name, text) in traps {
        let left = size << 20;
        let start = Instant::now();
        let mut loader = Loader::new(Variables::with_defaults([], []).unwrap());
        loader.read(name, BufReader::new(Repeated { text, at: 0, left })).unwrap();
        let set = loader.finish();
        let took = start.elapsed();
        println!("{name}: {size} MB, {took:?}, {}", set.summary);
        assert!(set.rules.len() <= 1 && set.problems.len() <= PROBLEMS_MAX);
        let kept = set.problems.len() as u64 + set.problems_dropped;
        let summary = set.summary;
        assert_eq!(kept, summary.failed + summary.unsupported + summary.replaced);
        assert!(took < Duration::from_secs(5) + Duration::from_secs(1) * size as u32, "{name}");
    }
}
