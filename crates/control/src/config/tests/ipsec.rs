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

/// A policy and its associations belong to one tunnel interface, or to none.
#[test]
fn policies_of_other_interfaces_than_their_associations_are_named() {
    let said = |sa: &str, policy: &str| {
        let port = "[port.t]\nbackend = \"ipsec\"\nif_id = 7";
        said(&format!(
            "direction = \"out\"\n{sa}\n[[policy]]\naction = \"protect\"\n{policy}\n{port}"
        ))
    };
    let none: [&str; 0] = [];
    assert_eq!(said("", "reqid = 1"), none);
    assert_eq!(said("if_id = 7", "reqid = 1\nif_id = 7"), none);
    assert_eq!(said("", "reqid = 2"), ["no [[sa]] has reqid 2: these packets are dropped"]);
    assert_eq!(
        said("if_id = 7", "reqid = 1"),
        ["each [[sa]] with reqid 1 has an `if_id`: these packets are dropped"]
    );
    assert_eq!(
        said("", "reqid = 1\nif_id = 7"),
        ["no [[sa]] has reqid 1 and if_id 7: these packets are dropped"]
    );
    let policy = "[[policy]]\naction = \"discard\"\nif_id = 8";
    let all = said("", &format!("reqid = 1\n{policy}"));
    assert_eq!(all, ["no port has if_id 8: this policy is never asked"]);
}

/// What is said of policies, each with its direction and keys, in their order.
fn said_of(policies: &[&str]) -> Vec<String> {
    let all: String =
        policies.iter().map(|own| format!("[[policy]]\naction = \"discard\"\n{own}\n")).collect();
    let port = "[port.t]\nbackend = \"ipsec\"\nif_id = 7";
    said(&format!("direction = \"out\"\n{all}{port}"))
}

#[test]
fn policies_that_never_match_are_named() {
    let ten = "source = \"10.0.0.0/8\"";
    let site = "source = \"10.1.0.0/16\"\ndestination = \"10.2.0.0/16\"";
    let back = "source = \"10.2.0.0/16\"\ndestination = \"10.1.0.0/16\"";
    let with = |policy: &str, more: &str| format!("{policy}\n{more}");
    let (inwards, outwards) = ("direction = \"in\"", "direction = \"out\"");
    let web = "protocol = \"tcp\"\ndestination_port = \"80-90\"";
    let narrow = "protocol = \"tcp\"\ndestination_port = 85";
    let hidden = |policies: &[&str], by: u32| {
        let expected = format!("this policy never matches: policy {by} matches all its packets");
        assert_eq!(said_of(policies), [expected], "{policies:?}");
    };
    let free = |policies: &[&str]| assert!(said_of(policies).is_empty(), "{policies:?}");
    hidden(&[ten, site], 1);
    free(&[site, ten]);
    hidden(&["", site], 1);
    free(&[site, ""]);
    hidden(&["destination = \"0.0.0.0/0\"", ten], 1);
    free(&["destination = \"::/0\"", ten]);
    // Both directions are those of the other one, with its ends exchanged.
    hidden(&[site, &with(back, inwards)], 1);
    free(&[site, &with(site, inwards)]);
    free(&[&with(site, outwards), site]);
    hidden(&[&with(site, outwards), &with(back, inwards), site], 2);
    hidden(&[&with(site, web), &with(site, narrow)], 1);
    free(&[&with(site, narrow), &with(site, web)]);
    free(&[&with(site, web), site]);
    hidden(&[site, &with(site, web)], 1);
    free(&[&with(site, "protocol = \"udp\""), &with(site, web)]);
    free(&[&with("", "if_id = 7"), site]);
}
