//! A netlink message about a next-hop object: what is read is read back as written.
#![no_main]

use control::netlink::nexthop::{NextHopAttribute, NextHopMessage};
use control::netlink::{Messages, attributes, emit};
use libfuzzer_sys::fuzz_target;
use netlink_packet_core::Parseable;

fuzz_target!(|bytes: &[u8]| {
    // As they come from the socket, and bare.
    let _ = Messages::new(bytes).count();
    let held: usize = attributes(bytes).map(|(_, value)| value.len() + 4).sum();
    assert!(held <= bytes.len());
    if let Ok(message) = NextHopMessage::parse(bytes) {
        let again = NextHopMessage::parse(&emit(&message)).expect("it was just written");
        // The flag bits of attributes that are not known do not all survive.
        let is_known = |a: &NextHopAttribute| !matches!(a, NextHopAttribute::Other(_));
        if message.attributes.iter().all(is_known) {
            assert_eq!(again, message);
        }
    }
});
