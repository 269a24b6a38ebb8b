//! Any bytes as a routes file: what is read is sorted and unique, and each next hop has a name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lookup::routes::{Problems, Token, parse_bytes};

fuzz_target!(|bytes: &[u8]| {
    let routes = parse_bytes(bytes);
    assert!(routes.v4.is_sorted_by(|a, b| a.0 < b.0));
    assert!(routes.v6.is_sorted_by(|a, b| a.0 < b.0));
    let hops = routes.v4.iter().map(|r| r.1).chain(routes.v6.iter().map(|r| r.1));
    for hop in hops {
        assert_ne!(routes.token(hop), Token::Unknown);
    }
    assert!(routes.problems.first.len() <= Problems::KEPT);
    assert!(routes.problems.first.len() as u64 <= routes.problems.count);
});
