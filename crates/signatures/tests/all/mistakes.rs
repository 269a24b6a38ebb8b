//! What is wrong with a rule is said with its place, its reason and a near word.

use signatures::{LIST_DEPTH_MAX, RULE_BYTES_MAX, Rule, config};

/// Each rule of `mistakes.txt` gives the message below it.
#[test]
fn mistakes_have_messages() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mistakes.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut now = String::new();
    let mut count = 0;
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        now.push_str(line);
        now.push('\n');
        if line.starts_with('#') {
            continue;
        }
        count += 1;
        let problem = Rule::parse(line.as_bytes()).expect_err(line);
        assert_eq!(problem.line, 1);
        now.push_str(&format!("    {}: {}\n", problem.column, problem.message()));
    }
    assert!(count > 130, "{count}");
    if std::env::var_os("UPDATE_MISTAKES").is_some() {
        return std::fs::write(path, &now).unwrap();
    }
    for (number, (now, listed)) in now.lines().zip(text.lines()).enumerate() {
        assert_eq!(now, listed, "line {}", number + 1);
    }
    assert_eq!(now, text);
}

#[test]
fn places_in_continued_lines() {
    let text = b"alert tcp any any -> any any ( \\\n  msg:\"x\"; \\\n  flow:up; \\\n  sid:1;)";
    let problem = Rule::parse(text).unwrap_err();
    assert_eq!((problem.line, problem.column), (3, 8));
    assert_eq!(problem.keyword.as_deref(), Some("flow"));
    let text = b"alert tcp any any -> any any (\r\n  sid:1;)";
    let problem = Rule::parse(text).unwrap_err();
    assert_eq!((problem.line, problem.to_string().contains("after `\\`")), (1, true));
    let problem = Rule::parse(b"alert ip any any -> any any (sid:1;)\n\nalert").unwrap_err();
    assert_eq!((problem.line, problem.column), (3, 1));
}

#[test]
fn bounds() {
    let rule =
        |options: &str| Rule::parse(format!("alert tcp any any -> any any ({options})").as_bytes());
    let reason = |options: &str| rule(options).unwrap_err().reason;
    assert_eq!(reason("noalert; ".repeat(4097).as_str()), "the rule has more than 4096 options");
    assert!(reason(&"x".repeat(RULE_BYTES_MAX)).contains("longer than"));
    assert!(
        reason("file.data; content:\"a\"; ".repeat(65).as_str()).contains("more than 64 buffers")
    );
    let parts = vec!["a"; 1025].join(",");
    assert_eq!(reason(&format!("dataset:{parts};")), "it needs a sticky buffer before it");
    assert_eq!(reason(&format!("http.uri; dataset:{parts};")), "more than 1024 parts");
    let (open, close) = ("[".repeat(LIST_DEPTH_MAX + 1), "]".repeat(LIST_DEPTH_MAX + 1));
    let text = format!("alert tcp {open}10.0.0.1{close} any -> any any (sid:1;)");
    assert!(Rule::parse(text.as_bytes()).unwrap_err().reason.contains("deep"));
}

#[test]
fn files_beside_the_rules() {
    let text = "config classification: a,First,1\n# comment\nconfig classification: A,Again,2\n\
        config classification: b,No priority\nconfig clasification: c,C,3\nconfig classification: d,D,0\n";
    let read = config::classifications(text.as_bytes()).unwrap();
    assert_eq!(read.found.len(), 1);
    let problems: Vec<String> = read.problems.iter().map(|p| p.to_string()).collect();
    assert_eq!(
        problems,
        [
            "line 3, column 24: `a` is listed twice",
            "line 4, column 24: it is written `NAME,DESCRIPTION,PRIORITY`",
            "line 5, column 1: `config classification: …` expected",
            "line 6, column 24: a priority is 1 to 255",
        ]
    );
    let text = "config reference: url http://\nconfig reference: x\n";
    let read = config::references(text.as_bytes()).unwrap();
    assert_eq!(read.found["url"], "http://");
    assert_eq!(read.problems[0].to_string(), "line 2, column 19: it is written `SYSTEM URL`");
}

#[test]
fn threshold_files() {
    use config::{LimitKind, RateAction, SuppressedBy};
    use signatures::{Threshold, ThresholdKind, Track};
    let text = "suppress gen_id 1, sig_id 2\n\
        suppress gen_id 1, sig_id 3, track by_either, ip [10.0.0.0/8, !10.1.1.1]\n\
        threshold gen_id 1, sig_id 4, type both, track by_dst, count 5, \\\n    seconds 60\n\
        rate_filter gen_id 1, sig_id 5, track by_rule, count 7, seconds 8, new_action drop, timeout 9\n\
        suppres gen_id 1, sig_id 2\n\
        suppress gen_id 1, sig_id 2, track by_src\n\
        suppress gen_id 1, sig_id 2, track by_src, ip 10.0.0.x\n\
        threshold gen_id 1, sig_id 4, type both, track by_dst, count 5\n\
        rate_filter gen_id 1, track by_rule, count 7, seconds 8, new_action drop, timeout 9\n";
    let read = config::thresholds(text.as_bytes()).unwrap();
    let ids: Vec<(u64, u32, u32)> = read.found.iter().map(|l| (l.line, l.gid, l.sid)).collect();
    assert_eq!(ids, [(1, 1, 2), (2, 1, 3), (3, 1, 4), (5, 1, 5)]);
    assert_eq!(read.found[0].kind, LimitKind::Suppress(None));
    let LimitKind::Suppress(Some(suppressed)) = &read.found[1].kind else { panic!() };
    assert_eq!(suppressed.by, SuppressedBy::Either);
    assert_eq!(suppressed.addresses.to_string(), "[10.0.0.0/8,!10.1.1.1]");
    let (kind, track) = (ThresholdKind::Both, Track::Destination);
    let threshold = Threshold { kind, track, count: 5, seconds: 60 };
    assert_eq!(read.found[2].kind, LimitKind::Threshold(threshold));
    let action = RateAction::Drop;
    let rate = LimitKind::Rate { track: Track::Rule, count: 7, seconds: 8, action, timeout: 9 };
    assert_eq!(read.found[3].kind, rate);
    let problems: Vec<String> = read.problems.iter().map(|p| p.to_string()).collect();
    assert_eq!(
        problems,
        [
            "line 6, column 1: unknown directive `suppres`; did you mean `suppress`?",
            "line 7, column 10: `ip` is missing",
            "line 8, column 47: `10.0.0.x` is not an address, network or range",
            "line 9, column 11: `seconds` is missing",
            "line 10, column 13: `sig_id` is missing",
        ]
    );
}
