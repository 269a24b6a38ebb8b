//! What `check` says of associations.

use super::*;

/// What is said of an association that sends, with more keys.
fn said(more: &str) -> Vec<String> {
    let text = format!(
        "mode = \"router\"\n[port.lan]\n[[sa]]\nspi = 0x1001\nsource = \"192.0.2.1\"\n\
         destination = \"198.51.100.1\"\nreqid = 1\nkey_file = \"a.key\"\n{more}\n"
    );
    let all = match parse(&text, &known()) {
        Ok((_, warnings)) => warnings,
        Err(all) => all,
    };
    all.into_iter().map(|own| own.message).collect()
}

#[test]
fn keys_that_cannot_be_meant_are_named() {
    for (more, expected) in [
        ("direction = \"out\"\nfirst_number = 4294967295", &[][..]),
        ("direction = \"out\"\nfirst_number = 4294967296\nesn = true", &[]),
        (
            "direction = \"out\"\nfirst_number = 4294967296",
            &["without `esn` the last number is 4,294,967,295"],
        ),
        ("direction = \"out\"\nwindow = 32", &["`window` has no effect in this direction"]),
        ("direction = \"in\"\nwindow = 32", &[]),
        (
            "direction = \"in\"\nfirst_number = 2",
            &["`first_number` has no effect in this direction"],
        ),
        ("direction = \"out\"\nsoft_bytes = 9\nhard_bytes = 10", &[]),
        (
            "direction = \"out\"\nsoft_packets = 10\nhard_packets = 10",
            &["`soft_packets` comes no sooner than `hard_packets`"],
        ),
        (
            "direction = \"out\"\nif_id = 7",
            &["no port has if_id 7: no packet comes or leaves by it"],
        ),
        ("direction = \"out\"\nif_id = 7\n[port.t]\nbackend = \"ipsec\"\nif_id = 7", &[]),
    ] {
        assert_eq!(said(more), expected, "{more}");
    }
    // A cipher that there is not is one mistake.
    let all = said("direction = \"out\"\nencryption = \"aes-128-xyz\"");
    assert_eq!(all.len(), 1, "{all:?}");
}
