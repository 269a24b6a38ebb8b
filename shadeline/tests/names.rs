//! `shadeline names`, as a user calls it, against a map of component lists.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

fn names(folder: &Scratch, routes: &Path, names: &[String], options: &[&str]) -> Output {
    let names = folder.write("names", &(names.join("\n") + "\n"));
    Command::new(env!("CARGO_BIN_EXE_shadeline"))
        .arg("names")
        .arg("--routes")
        .arg(routes)
        .arg("--names")
        .arg(names)
        .arg("--results")
        .arg(folder.join("results"))
        .args(options)
        .output()
        .unwrap()
}

fn results(folder: &Scratch) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("results")).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn ok(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn filter(tool: &str, arguments: &[&str], path: &Path) -> Option<Vec<u8>> {
    testkit::require_tool(tool)?;
    let output = Command::new(tool).args(arguments).arg(path).output().unwrap();
    assert!(output.status.success());
    Some(output.stdout)
}

/// A component as a URI has it, and a URL as a name: the host's labels from the last on, then the path.
fn uri(url: &str) -> String {
    let url = url.trim().trim_start_matches('\u{feff}');
    let url = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (host, path) = url.split_once('/').unwrap_or((url, ""));
    let parts = host.split('.').rev().chain(path.split('/')).filter(|part| !part.is_empty());
    let mut uri = String::new();
    for part in parts {
        uri.push('/');
        if part.bytes().all(|byte| byte == b'.') {
            uri.push_str("...");
        }
        for byte in part.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    uri.push(byte.into());
                }
                other => uri += &format!("%{other:02X}"),
            }
        }
    }
    uri
}

/// The longest of the routes that begins the name, cut between slashes.
fn longest<'a>(routes: &HashMap<String, &'a str>, name: &str) -> &'a str {
    let mut name = name;
    loop {
        if let Some(hop) = routes.get(if name.is_empty() { "/" } else { name }) {
            return hop;
        }
        let Some(at) = name.rfind('/') else { return "-" };
        name = &name[..at];
    }
}

#[test]
fn real_names() {
    let mut all: Vec<String> = Vec::new();
    for file in ["ndn/urls-kasztp.txt", "ndn/opendns-top-domains.txt"] {
        let Some(text) = testkit::data::bytes(file) else { return };
        all.extend(String::from_utf8_lossy(&text).lines().map(uri));
    }
    all.retain(|name| !name.is_empty());
    let hops = ["a", "b", "192.0.2.1", "port%7"];
    let mut routes = HashMap::new();
    let mut text = String::new();
    for (at, name) in all.iter().enumerate().step_by(2) {
        // Whole, or without its last component.
        let cut = if at % 4 == 0 { name.rfind('/').unwrap() } else { name.len() };
        if cut > 0 {
            routes.insert(name[..cut].to_owned(), hops[at / 2 % 4]);
            text += &format!("{} {}\n", &name[..cut], hops[at / 2 % 4]);
        }
    }
    let folder = Scratch::new();
    let path = folder.write("routes", &text);
    let printed = ok(&names(&folder, &path, &all, &[]));
    println!("{printed}");
    let found = results(&folder);
    assert_eq!(found.len(), all.len());
    for (name, found) in all.iter().zip(&found) {
        assert_eq!(found, longest(&routes, name), "{name}");
    }
    assert!(found.iter().any(|hop| hop == "-") && found.iter().any(|hop| hop != "-"));
}

const MIXED: &str = "\
# a comment, then a blank line

/org/example wide          ; a comment behind
/org/example/video\tnarrow\r
  /org/example/video/a%20b 192.0.2.1
ndn:/org/example/8=video/54=%01 typed
/org/example/... empty
/ default
/org/example wide
/org/example wider
";

const WANTED: [(&str, &str); 10] = [
    ("/org/example/other", "wider"),
    ("/org/example", "wider"),
    ("/org/examples", "default"),
    ("/org/example/video/1", "narrow"),
    ("/org/example/video/a%20b/c", "192.0.2.1"),
    ("/org/example/video/a+b", "narrow"),
    ("/org/example/video/54=%01/x", "typed"),
    ("/org/example/.../x", "empty"),
    ("ndn:/com", "default"),
    ("/", "default"),
];

#[test]
fn uris_comments_and_tokens() {
    let folder = Scratch::new();
    let plain = folder.write("plain", MIXED);
    let mut files = vec![plain.clone()];
    if let Some(bytes) = filter("gzip", &["-c"], &plain) {
        std::fs::write(folder.join("routes.gz"), bytes).unwrap();
        files.push(folder.join("routes.gz"));
    }
    for routes in files {
        let asked = WANTED.map(|(name, _)| name.to_owned());
        let output = names(&folder, &routes, &asked, &["--json"]);
        let figures: Value = serde_json::from_str(&ok(&output)).unwrap();
        assert_eq!(results(&folder), WANTED.map(|(_, hop)| hop));
        assert_eq!((&figures["routes"], &figures["lookups"]), (&6.into(), &10.into()));
        assert!(figures["table_bytes"].as_u64().unwrap() > 0);
        assert!(figures["build_s"].as_f64().unwrap() > 0.0);
        assert!(figures["lookup_rate_mps"].as_f64().unwrap() > 0.0);
        assert!(figures["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert_eq!(figures["problems"], 1);
        let warnings = String::from_utf8_lossy(&output.stderr);
        for expected in [
            "line 10: /org/example has another next hop on an earlier line, wide; this line is used",
            "1 line repeats an earlier one",
        ] {
            assert!(warnings.contains(expected), "no {expected:?} in\n{warnings}");
        }
    }
}

#[test]
fn bad_routes_are_named_and_the_others_count() {
    let folder = Scratch::new();
    let deep = "/d".repeat(32);
    let long = format!("/{}", "x".repeat(9000));
    let mut text = format!(
        "nonsense a\n/a//b b\n/c\n/d e f\n/%zz g\n{deep} h\n{long} i\n/{} j\n/good k\n",
        "x".repeat(300_000)
    );
    text += &"more nonsense\n".repeat(200);
    text += "/last l";
    let routes = folder.write("routes", &text);
    let asked = ["/good/x", "/c", "/last"].map(str::to_owned);
    let output = names(&folder, &routes, &asked, &[]);
    ok(&output);
    assert_eq!(results(&folder), ["k", "-", "l"]);
    let warnings = String::from_utf8_lossy(&output.stderr);
    for expected in [
        "routes: line 1: expected NAME NEXTHOP, found `nonsense`: a name begins with `/`",
        "routes: line 2: expected NAME NEXTHOP, found `/a//b`: a component is empty",
        "routes: line 3: expected NAME NEXTHOP, found no next hop after `/c`",
        "routes: line 4: expected only NAME NEXTHOP, found `f`",
        "routes: line 5: expected NAME NEXTHOP, found `/%zz`: `%` is not followed",
        "routes: line 6: a prefix of 32 components, more than 31",
        "routes: line 7: a prefix of 9004 bytes, more than 8800",
        "routes: line 8: the line is longer than 278528 bytes",
        "routes: and 198 more",
    ] {
        assert!(warnings.contains(expected), "no {expected:?} in\n{warnings}");
    }
}

#[test]
fn nonsense_names_are_named_with_their_lines() {
    let folder = Scratch::new();
    let routes = folder.write("routes", MIXED);
    let mut asked = ["/a", "org", "", "/a b", "/.."].map(str::to_owned).to_vec();
    asked.extend(std::iter::repeat_n("x".repeat(5000), 30));
    let output = names(&folder, &routes, &asked, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for expected in [
        "names, line 2: expected a name, found `org`: a name begins with `/`",
        "names, line 4: expected only a name, found `b`",
        "names, line 5: expected a name, found `/..`: `.` and `..` are not components",
        "(and 23 more)",
    ] {
        assert!(errors.contains(expected), "no {expected:?} in\n{errors}");
    }
    assert_eq!(errors.lines().filter(|line| line.starts_with("error: ")).count(), 10, "{errors}");
    assert!(errors.len() < 3000, "{} bytes of errors", errors.len());
    assert!(!folder.join("results").exists());
}

#[test]
fn what_is_missing_or_broken_is_named() {
    let folder = Scratch::new();
    let none = names(&folder, &folder.join("nothing"), &["/".to_owned()], &[]);
    let errors = String::from_utf8_lossy(&none.stderr);
    assert_eq!(none.status.code(), Some(1));
    assert!(errors.contains("nothing: No such file"), "{errors}");

    let plain = folder.write("plain", &MIXED.repeat(1000));
    let Some(mut bytes) = filter("gzip", &["-c"], &plain) else { return };
    bytes.truncate(bytes.len() / 2);
    let routes = folder.join("half");
    std::fs::write(&routes, &bytes).unwrap();
    let half = names(&folder, &routes, &["/".to_owned()], &[]);
    let errors = String::from_utf8_lossy(&half.stderr);
    assert_eq!(half.status.code(), Some(1));
    assert!(errors.contains("half"), "{errors}");
}

/// Names of no components, of 10,000 and of one that is 8 KB long have results like any other.
#[test]
fn odd_names() {
    let folder = Scratch::new();
    let huge = format!("/{}", "h".repeat(8192));
    let routes = folder.write("routes", &format!("/m/m/m many\n{huge} huge\n"));
    let asked = ["/".to_owned(), "/m".repeat(10_000), huge.clone(), huge + "h"];
    ok(&names(&folder, &routes, &asked, &[]));
    assert_eq!(results(&folder), ["-", "many", "huge", "-"]);
    // As much as a packet holds, however it is written: 13,000 components of three bytes, 20,000 empty ones with their
    // type, and one of 60,000 bytes in escapes.
    let routes = folder.write("routes", "/abc three\n/252=... typed\n");
    let asked =
        ["/abc".repeat(13_000), "/252=...".repeat(20_000), "/".to_owned() + &"%FF".repeat(60_000)];
    ok(&names(&folder, &routes, &asked, &[]));
    assert_eq!(results(&folder), ["three", "typed", "-"]);
    // A line beyond that length is reported with its number.
    let asked = ["/abc".to_owned(), "/abc".repeat(80_000), "/".to_owned()];
    let output = names(&folder, &routes, &asked, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("names, line 2: the line is longer than 278528 bytes"), "{errors}");
    let empty = folder.write("empty", "# nothing\n");
    ok(&names(&folder, &empty, &["/a".to_owned()], &[]));
    assert_eq!(results(&folder), ["-"]);
}
