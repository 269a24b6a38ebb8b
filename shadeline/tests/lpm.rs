//! `shadeline lpm`, as a user calls it, against a table of hash maps.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

/// Every prefix by family and length: looked up from the longest length on.
#[derive(Default)]
struct Reference {
    maps: HashMap<(bool, u8), HashMap<u128, String>>,
}

impl Reference {
    /// Reads lines that are all well-formed.
    fn parse(text: &str) -> Reference {
        let mut reference = Reference::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(prefix) = words.next() else { continue };
            let (address, len) = prefix.split_once('/').unwrap();
            let (v4, bits) = bits(address.parse().unwrap());
            let len: u8 = len.parse().unwrap();
            let map = reference.maps.entry((v4, len)).or_default();
            map.insert(network(bits, len), words.next().unwrap_or(prefix).to_owned());
        }
        reference
    }

    fn lookup(&self, address: IpAddr) -> &str {
        let (v4, bits) = bits(address);
        let longest = if v4 { 32 } else { 128 };
        let found =
            (0..=longest).rev().find_map(|len| self.maps.get(&(v4, len))?.get(&network(bits, len)));
        found.map_or("-", String::as_str)
    }
}

/// An address's bits, the first one highest.
fn bits(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(v4) => (true, u128::from(v4.to_bits()) << 96),
        IpAddr::V6(v6) => (false, v6.to_bits()),
    }
}

fn network(bits: u128, len: u8) -> u128 {
    if len == 0 { 0 } else { bits & (u128::MAX << (128 - u32::from(len))) }
}

fn address(v4: bool, bits: u128) -> IpAddr {
    if v4 { IpAddr::V4(((bits >> 96) as u32).into()) } else { IpAddr::V6(bits.into()) }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

fn lpm(folder: &Scratch, routes: &Path, addresses: &[String], options: &[&str]) -> Output {
    let addresses = folder.write("addresses", &(addresses.join("\n") + "\n"));
    Command::new(env!("CARGO_BIN_EXE_shadeline"))
        .arg("lpm")
        .arg("--routes")
        .arg(routes)
        .arg("--addresses")
        .arg(addresses)
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

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    testkit::require_tool("gzip")?;
    let scratch = Scratch::new();
    let path = scratch.join("plain");
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new("gzip").arg("-c").arg(path).output().unwrap();
    assert!(output.status.success());
    Some(output.stdout)
}

fn gunzip(path: &Path) -> Option<String> {
    testkit::require_tool("gzip")?;
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Addresses inside prefixes of the table, at and beside their ends, and anywhere.
fn sample(reference: &Reference, n: usize) -> Vec<IpAddr> {
    let mut random = Random(7);
    let mut prefixes: Vec<(bool, u8, u128)> = Vec::new();
    for (&(v4, len), map) in &reference.maps {
        prefixes.extend(map.keys().map(|&bits| (v4, len, bits)));
    }
    prefixes.sort_unstable();
    let mut all = Vec::with_capacity(n);
    while all.len() < n {
        let (v4, len, bits) = prefixes[random.next() as usize % prefixes.len()];
        let host = if len == 128 { 0 } else { u128::MAX >> len };
        let unit = if v4 { 1 << 96 } else { 1 };
        let bits = match all.len() % 6 {
            0 => bits,
            1 => bits | host,
            2 => bits.wrapping_sub(unit),
            3 => (bits | host).wrapping_add(1),
            4 => random.wide(),
            _ => bits | random.wide() & host,
        };
        all.push(address(v4, bits));
    }
    all
}

/// Looks a sample up with every algorithm and compares with the reference.
fn compare(routes: &Path, text: &str, n: usize, options: &[&[&str]]) {
    let reference = Reference::parse(text);
    let sample = sample(&reference, n);
    let addresses: Vec<String> = sample.iter().map(IpAddr::to_string).collect();
    let expected: Vec<&str> = sample.iter().map(|&address| reference.lookup(address)).collect();
    assert!(expected.contains(&"-"), "the sample also holds addresses without a route");
    for options in options {
        let folder = Scratch::new();
        let printed = ok(&lpm(&folder, routes, &addresses, options));
        println!("{options:?}\n{printed}");
        for ((found, expected), address) in results(&folder).iter().zip(&expected).zip(&addresses) {
            assert_eq!(found, expected, "{address} with {options:?}");
        }
        assert_eq!(results(&folder).len(), n);
    }
}

#[test]
fn the_full_table() {
    let path = testkit::data::internet().path;
    let Some(text) = gunzip(&path) else { return };
    compare(&path, &text, 300_000, &[&[], &["--algorithm", "dir24-8"], &["--algorithm", "trie"]]);
}

#[test]
fn a_table_with_origins_as_next_hops() {
    let Some(path) = testkit::data::path("bgp/routeviews-ipasn-20140513.dat.gz") else { return };
    let Some(text) = gunzip(&path) else { return };
    compare(&path, &text, 100_000, &[&["--algorithm", "bspl"]]);
}

const MIXED: &str = "\
# a comment, then a blank line

10.0.0.0/8 wide          ; a comment behind
10.1.0.0/16\tnarrow\r
  10.1.2.0/24
10.1.2.3/32 192.0.2.1
0.0.0.0/0 default4
2001:db8::/32 six#
2001:db8::/32
2001:DB8:0:1::/64 seven
::ffff:0:0/96 mapped
fe80::1 one
";

const WANTED: [(&str, &str); 11] = [
    ("10.200.0.1", "wide"),
    ("10.1.255.255", "narrow"),
    ("10.1.2.4", "10.1.2.0/24"),
    ("10.1.2.3", "192.0.2.1"),
    ("11.0.0.0", "default4"),
    ("2001:db8:1::", "2001:db8::/32"),
    ("2001:db8:0:1:ffff::", "seven"),
    ("2001:db9::", "-"),
    ("::ffff:10.1.2.3", "mapped"),
    ("fe80::1", "one"),
    ("fe80::2", "-"),
];

#[test]
fn families_comments_and_tokens() {
    let plain = MIXED.as_bytes().to_vec();
    for bytes in [Some(plain.clone()), gzip(&plain)].into_iter().flatten() {
        let folder = Scratch::new();
        let routes = folder.join("routes");
        std::fs::write(&routes, bytes).unwrap();
        let addresses = WANTED.map(|(address, _)| address.to_owned());
        for (algorithm, v4, v6) in [
            ("auto", "poptrie", "mtrie6"),
            ("dir24-8", "dir24-8", "mtrie6"),
            ("poptrie", "poptrie", "mtrie6"),
            ("bspl", "poptrie", "bspl"),
            ("mtrie6", "poptrie", "mtrie6"),
            ("trie", "trie", "trie"),
        ] {
            let output = lpm(&folder, &routes, &addresses, &["--algorithm", algorithm, "--json"]);
            let figures: Value = serde_json::from_str(&ok(&output)).unwrap();
            assert_eq!(results(&folder), WANTED.map(|(_, hop)| hop), "{algorithm}");
            assert_eq!(
                (&figures["ipv4"]["algorithm"], &figures["ipv6"]["algorithm"]),
                (&v4.into(), &v6.into())
            );
            assert_eq!(
                (&figures["ipv4"]["routes"], &figures["ipv6"]["routes"]),
                (&5.into(), &4.into())
            );
            assert_eq!(
                (&figures["ipv4"]["lookups"], &figures["ipv6"]["lookups"]),
                (&5.into(), &6.into())
            );
            for family in ["ipv4", "ipv6"] {
                assert!(figures[family]["table_bytes"].as_u64().unwrap() > 0);
                assert!(figures[family]["build_s"].as_f64().unwrap() > 0.0);
            }
            assert!(figures["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
            // The second next hop of 2001:db8::/32 is used, with a warning.
            assert_eq!(figures["problems"], 1);
            let warnings = String::from_utf8_lossy(&output.stderr);
            assert!(
                warnings.contains("line 9: 2001:db8::/32 has another next hop on line 8"),
                "{warnings}"
            );
        }
    }
}

#[test]
fn bad_routes_are_named_and_the_others_count() {
    let folder = Scratch::new();
    let mut text =
        "10.0.0.0/33 a\nnonsense b\n10.1.0.0/16 c\n10.0.0.0/8 d e\n10.1.2.3/16 f\n".to_owned();
    text += &"more nonsense\n".repeat(200);
    text += "10.9.0.0/16 last";
    let routes = folder.write("routes", &text);
    let addresses = ["10.1.0.0", "10.0.0.1", "10.9.9.9"].map(str::to_owned);
    let output = lpm(&folder, &routes, &addresses, &[]);
    ok(&output);
    assert_eq!(results(&folder), ["f", "-", "last"]);
    let warnings = String::from_utf8_lossy(&output.stderr);
    for expected in [
        "routes: line 1: expected a prefix length of 0 to 32, found `33`",
        "routes: line 2: expected PREFIX NEXTHOP, found `nonsense`",
        "routes: line 4: expected only PREFIX NEXTHOP, found `e`",
        "routes: line 5: host bits are set in `10.1.2.3/16`, used as 10.1.0.0/16",
        "routes: and 105 more",
    ] {
        assert!(warnings.contains(expected), "no {expected:?} in\n{warnings}");
    }
}

#[test]
fn nonsense_addresses_are_named_with_their_lines() {
    let folder = Scratch::new();
    let routes = folder.write("routes", MIXED);
    let mut addresses = ["10.0.0.1", "10.0.0", "", "10.0.0.0/8", "::g"].map(str::to_owned).to_vec();
    addresses.extend(std::iter::repeat_n("x".repeat(5000), 30));
    let output = lpm(&folder, &routes, &addresses, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for expected in [
        "addresses, line 2: expected an address, found `10.0.0`",
        "addresses, line 4: expected an address, found `10.0.0.0/8`",
        "addresses, line 5: expected an address, found `::g`",
        "(and 23 more)",
    ] {
        assert!(errors.contains(expected), "no {expected:?} in\n{errors}");
    }
    assert!(errors.len() < 2000, "{} bytes of errors", errors.len());
    assert!(!folder.join("results").exists());
}

#[test]
fn what_is_missing_or_broken_is_named() {
    let folder = Scratch::new();
    let none = lpm(&folder, &folder.join("nothing"), &["::".to_owned()], &[]);
    let errors = String::from_utf8_lossy(&none.stderr);
    assert_eq!(none.status.code(), Some(1));
    assert!(errors.contains("nothing: No such file"), "{errors}");

    let Some(mut bytes) = gzip(MIXED.repeat(1000).as_bytes()) else { return };
    bytes.truncate(bytes.len() / 2);
    let routes = folder.join("half");
    std::fs::write(&routes, &bytes).unwrap();
    let half = lpm(&folder, &routes, &["::".to_owned()], &[]);
    let errors = String::from_utf8_lossy(&half.stderr);
    assert_eq!(half.status.code(), Some(1));
    assert!(errors.contains("half, line "), "{errors}");

    let output = Command::new(env!("CARGO_BIN_EXE_shadeline"))
        .args(["lpm", "--routes", "r", "--addresses", "a", "--results", "o", "--algorithm", "hash"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    for name in ["auto", "dir24-8", "poptrie", "bspl", "mtrie6", "trie"] {
        assert!(errors.contains(name), "{errors}");
    }
}

#[test]
fn an_empty_table_and_no_addresses() {
    let folder = Scratch::new();
    let routes = folder.write("routes", "# nothing\n");
    for algorithm in ["auto", "dir24-8", "poptrie", "bspl", "mtrie6", "trie"] {
        ok(&lpm(&folder, &routes, &["10.0.0.1".into(), "::1".into()], &["--algorithm", algorithm]));
        assert_eq!(results(&folder), ["-", "-"]);
    }
}

#[test]
fn comments_blank_lines_and_gzip_in_addresses() {
    let folder = Scratch::new();
    let routes = folder.write("routes", "10.0.0.0/8 a\n10.0.0.0/8 a\n2001:db8::/32 b\n");
    let lines = ["# of both families", "10.0.0.1 # one", "", "2001:db8::1;two", "  ", "11.0.0.1"];
    let addresses = lines.map(str::to_owned);
    let output = lpm(&folder, &routes, &addresses, &[]);
    ok(&output);
    assert_eq!(results(&folder), ["a", "b", "-"], "one line an address");
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(warnings.contains("routes: 1 line repeats an earlier one"), "{warnings}");

    let Some(bytes) = gzip((addresses.join("\n") + "\n").as_bytes()) else { return };
    std::fs::write(folder.join("addresses.gz"), bytes).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("lpm").arg("--routes").arg(&routes).arg("--results").arg(folder.join("results"));
    ok(&command.arg("--addresses").arg(folder.join("addresses.gz")).output().unwrap());
    assert_eq!(results(&folder), ["a", "b", "-"]);
}

/// The same results from kernels, the device named in the figures; what has no kernels is refused.
#[test]
fn on_a_device() {
    if !testkit::require_opencl() {
        return;
    }
    let scratch = Scratch::new();
    let routes = scratch.write("routes", MIXED);
    let addresses: Vec<String> = (0..3000u32)
        .map(|i| match i % 3 {
            0 => format!("2001:db8:{:x}::{i:x}", i % 7),
            1 => format!("10.{}.{}.1", i % 256, i % 11),
            _ => format!("{}.0.2.{}", i % 224, i % 256),
        })
        .collect();
    let on = |options: &[&str]| lpm(&scratch, &routes, &addresses, options);
    ok(&on(&[]));
    let expected = results(&scratch);
    assert_eq!(expected.len(), 3000);
    let printed = ok(&on(&["--backend", "opencl", "--json"]));
    assert_eq!(results(&scratch), expected);
    let figures: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(figures["device"].as_str().is_some_and(|name| !name.is_empty()), "{figures}");

    for algorithm in ["dir24-8", "poptrie", "bspl", "mtrie6"] {
        let printed = ok(&on(&["--backend", "opencl", "--algorithm", algorithm, "--json"]));
        assert_eq!(results(&scratch), expected, "{algorithm}");
        let figures: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let used = [&figures["ipv4"]["algorithm"], &figures["ipv6"]["algorithm"]];
        assert!(used.contains(&&algorithm.into()), "{figures}");
        assert!(figures["device"].is_string(), "{figures}");
    }
    for (options, said) in [
        (&["--backend", "opencl", "--algorithm", "trie"][..], "trie has no device form"),
        (&["--backend", "sim"], "expected auto, cpu, opencl"),
    ] {
        let output = on(options);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(said), "{errors}");
    }
    let absent = on(&["--backend", "opencl:99"]);
    assert_eq!(absent.status.code(), Some(1), "{absent:?}");
}
