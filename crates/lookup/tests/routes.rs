//! Routes files: what counts, what is reported, and that nothing breaks the reader.

mod common;

use std::io::Write;

use lookup::routes::{self, Problem, ProblemKind, Problems, Token, parse_bytes};
use proptest::prelude::*;

fn lines(text: &str) -> (Vec<String>, Vec<String>) {
    let file = parse_bytes(text.as_bytes());
    let v4 = file.v4.iter().map(|(p, n)| format!("{p} {}", file.token(*n)));
    let v6 = file.v6.iter().map(|(p, n)| format!("{p} {}", file.token(*n)));
    (v4.chain(v6).collect(), file.problems.first.iter().map(Problem::to_string).collect())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn cases() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("", &[], &[]),
        ("\n\r\n  \t\n# a\n; b\n ;c d e f\n", &[], &[]),
        ("10.0.0.0/8 gw", &["10.0.0.0/8 gw"], &[]),
        ("\u{feff}10.0.0.0/8 gw\r\n", &["10.0.0.0/8 gw"], &[]),
        ("10.0.0.0/8", &["10.0.0.0/8 10.0.0.0/8"], &[]),
        ("1.0.0.0/24\t13335\n", &["1.0.0.0/24 13335"], &[]),
        ("10.0.0.0/8 a#b # why", &["10.0.0.0/8 a#b"], &[]),
        ("10.0.0.0/8 ;why", &["10.0.0.0/8 10.0.0.0/8"], &[]),
        ("10.0.0.1 x\n::1 y", &["10.0.0.1/32 x", "::1/128 y"], &[]),
        (
            "2001:db8::/32 a\n0.0.0.0/0 a\n::/0",
            &["0.0.0.0/0 a", "::/0 ::/0", "2001:db8::/32 a"],
            &[],
        ),
        (
            "10.1.0.0/8 a",
            &["10.0.0.0/8 a"],
            &["line 1: host bits are set in `10.1.0.0/8`, used as 10.0.0.0/8"],
        ),
        ("\nfoo bar", &[], &["line 2: expected PREFIX NEXTHOP, found `foo`"]),
        ("10.0.0.0/8 a b", &[], &["line 1: expected only PREFIX NEXTHOP, found `b`"]),
        ("10.0.0.0/33 a", &[], &["line 1: expected a prefix length of 0 to 32, found `33`"]),
        ("::/129", &[], &["line 1: expected a prefix length of 0 to 128, found `129`"]),
        (
            "::/1000\n::/",
            &[],
            &[
                "line 1: expected a prefix length of 0 to 128, found `1000`",
                "line 2: expected a prefix length of 0 to 128, found ``",
            ],
        ),
        ("10.0.0.0/8 a\n11.0.0.0/8 z\n10.0.0.0/8 a", &["10.0.0.0/8 a", "11.0.0.0/8 z"], &[]),
        (
            "10.0.0.0/8 a\n10.0.0.0/8 b\nx",
            &["10.0.0.0/8 b"],
            &[
                "line 2: 10.0.0.0/8 has another next hop on line 1; this line is used",
                "line 3: expected PREFIX NEXTHOP, found `x`",
            ],
        ),
        (
            "::/8 a\n::/8",
            &["::/8 ::/8"],
            &["line 2: ::/8 has another next hop on line 1; this line is used"],
        ),
    ];
    for (text, routes, problems) in cases {
        let (got_routes, got_problems) = lines(text);
        assert_eq!(
            (&got_routes[..], &got_problems[..]),
            (&routes.map_str()[..], &problems.map_str()[..]),
            "{text:?}"
        );
        let zipped = parse_bytes(&gzip(text.as_bytes()));
        assert_eq!(zipped.len(), routes.len(), "{text:?}");
    }
}

trait MapStr {
    fn map_str(&self) -> Vec<String>;
}

impl MapStr for [&str] {
    fn map_str(&self) -> Vec<String> {
        self.iter().map(|s| (*s).to_owned()).collect()
    }
}

#[test]
fn repeats_are_counted() {
    let file = parse_bytes(b"10.0.0.0/8 a\n10.0.0.0/8 a\n10.0.0.0/8 a\n");
    assert_eq!((file.problems.count, file.problems.repeated), (0, 2));
}

#[test]
fn problems_are_bounded() {
    let text = "nonsense\n".repeat(100_000);
    let file = parse_bytes(text.as_bytes());
    assert_eq!(file.problems.count, 100_000);
    assert_eq!(file.problems.first.len(), Problems::KEPT);
    assert!(file.is_empty());
}

#[test]
fn a_line_that_is_too_long_is_left_out_and_the_next_counts() {
    for bytes in [routes::MAX_LINE_BYTES + 1, 128 << 10, 1 << 20] {
        let text = format!("10.0.0.0/8 a\n{}\n11.0.0.0/8 b", "x".repeat(bytes));
        let file = parse_bytes(text.as_bytes());
        assert_eq!(file.v4.len(), 2, "{bytes}");
        assert_eq!(file.problems.first, [Problem { line: 2, kind: ProblemKind::TooLong }]);
    }
    let longest = format!("10.0.0.0/8 {}", "x".repeat(routes::MAX_LINE_BYTES - 11));
    assert_eq!(parse_bytes(longest.as_bytes()).v4.len(), 1);
}

#[test]
fn a_broken_gzip_stream_keeps_what_came_before() {
    let mut text = String::new();
    for i in 0..200_000_u32 {
        text += &format!("{}.{}.{}.0/24 {}\n", i >> 16, i >> 8 & 255, i & 255, i % 977);
    }
    let mut zipped = gzip(text.as_bytes());
    zipped.truncate(zipped.len() / 2);
    let file = parse_bytes(&zipped);
    assert!(file.len() > 1000 && file.len() < 200_000);
    assert!(matches!(
        file.problems.first[..],
        [Problem { kind: ProblemKind::Unreadable { .. }, .. }]
    ));
    assert!(routes::read(&zipped[..]).is_err());
}

#[test]
fn a_missing_file_is_named() {
    let error = routes::read_file("no/such/file".as_ref()).unwrap_err();
    assert!(error.to_string().contains("no/such/file"), "{error}");
}

#[test]
fn numbers_that_are_none_print_a_dash() {
    let file = parse_bytes(b"10.0.0.0/8 a\n");
    for number in [0, 2, 1 << 29, 1 << 29 | 7, 2 << 29, 3 << 29, u32::MAX] {
        let expected = if number == 1 << 29 { "10.0.0.0/8" } else { "-" };
        assert_eq!(file.token(number).to_string(), expected);
    }
    assert_eq!(file.tokens().collect::<Vec<_>>(), [(1, "a")]);
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        parse_bytes(&bytes);
    }

    /// What is printed is read back, wherever the buffer's pieces end.
    #[test]
    fn routes_are_read_back(
        routes in prop::collection::btree_map(common::prefix6(), "[a-z]{0,3}", 0..200),
        v4 in prop::collection::btree_map(common::prefix4(), "[a-z]{0,3}", 0..200),
        pad in 0..5000_usize,
    ) {
        let mut text = " ".repeat(pad);
        let mut expected = Vec::new();
        let all = v4.iter().map(|(p, t)| (p.to_string(), t))
            .chain(routes.iter().map(|(p, t)| (p.to_string(), t)));
        for (prefix, token) in all {
            text += &format!("{prefix} {token}\n{}", "#\n".repeat(pad % 7));
            expected.push(format!("{prefix} {}", if token.is_empty() { &prefix } else { token }));
        }
        prop_assume!(!text.starts_with(&" ".repeat(4000)));
        let (got, problems) = lines(&text);
        prop_assert_eq!(got, expected);
        prop_assert!(problems.is_empty());
    }
}

#[test]
fn the_full_table() {
    let internet = testdata::internet();
    let file = routes::read_file(&internet.path).unwrap();
    assert_eq!((file.v4.len(), file.v6.len()), internet.prefixes);
    assert_eq!((file.problems.count, file.problems.repeated), (0, 0));
    for (prefix, next_hop) in &file.v4 {
        assert_eq!(file.token(*next_hop), Token::V4(*prefix));
    }
    for (prefix, next_hop) in &file.v6 {
        assert_eq!(file.token(*next_hop), Token::V6(*prefix));
    }
}

#[test]
fn the_routeviews_table_with_origins() {
    let Some(path) = testdata::path("bgp/routeviews-ipasn-20140513.dat.gz") else { return };
    let file = routes::read_file(&path).unwrap();
    assert_eq!((file.v4.len(), file.v6.len(), file.problems.count), (512_621, 0, 0));
    assert_eq!(file.v4[0].0.to_string(), "1.0.0.0/24");
    assert_eq!(file.token(file.v4[0].1), Token::Text("15169"));
}
