//! The rule which unicast frames of a port are the router's.

use controlplane::interfaces::record;
use controlplane::{Interfaces, PortFacts};

/// Whether a port with these keys, or its subinterface, takes frames for any unicast MAC, live and over captures.
fn takes_any(keys: &str, name: &str) -> [bool; 2] {
    let text = format!(
        "[port.a]\n{keys}\n[port.\"a.7\"]\nparent = \"a\"\nvlan = 7\nmac = \"02:00:00:00:00:07\"\n"
    );
    let (config, _) = control::config::parse(&text, &apps::known_stages()).unwrap();
    let interfaces = Interfaces::of(&config);
    let number = interfaces.number(name).unwrap();
    let of =
        |is_live| record(&config, &interfaces, number, |_| PortFacts::default(), is_live).any_mac;
    [of(true), of(false)]
}

#[test]
fn captures_take_every_unicast_mac_unless_the_port_says_otherwise() {
    let capture = "backend = \"pcap\"\nread = \"in.pcap\"";
    for name in ["a", "a.7"] {
        for keys in ["", "backend = \"af_packet\"", "backend = \"tap\"", "backend = \"memory\""] {
            assert_eq!(takes_any(keys, name), [false, true], "{keys}");
        }
        assert_eq!(takes_any(capture, name), [true, true]);
        for (word, expected) in [("true", true), ("false", false)] {
            for keys in ["backend = \"af_packet\"", capture] {
                let keys = format!("{keys}\npromiscuous = {word}");
                assert_eq!(takes_any(&keys, name), [expected; 2], "{keys}");
            }
        }
    }
}
