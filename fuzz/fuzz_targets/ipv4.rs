//! A packet that is accepted, written again from its fields, is the same header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::checksum::ipv4_decrement_ttl;
use packet::ipv4::{self, Ipv4Header, Ipv4View};

fuzz_target!(|bytes: &[u8]| {
    let Some(view) = Ipv4View::new_checked(bytes) else { return };
    assert_eq!(view.header_len() + view.payload().len(), usize::from(view.total_len()));
    let options: usize = view.options().map(|option| option.bytes.len()).sum();
    assert!(options <= view.options_bytes().len());
    let header = Ipv4Header {
        traffic_class: view.dscp() << 2 | view.ecn(),
        identification: view.identification(),
        dont_fragment: view.dont_fragment(),
        more_fragments: view.more_fragments(),
        fragment_offset: view.fragment_offset(),
        ttl: view.ttl(),
        protocol: view.protocol(),
        src: view.src(),
        dst: view.dst(),
        options: view.options_bytes(),
    };
    let mut out = [0; 60];
    let Some(len) = header.emit(view.payload().len(), &mut out) else { panic!("no room") };
    let mut expected = bytes[..len].to_vec();
    expected[6] &= 0x7f; // the reserved bit
    ipv4::fill_checksum(&mut expected);
    assert_eq!(out[..len], expected);
    // Decrementing by RFC 1624 is what a full sum gives.
    ipv4_decrement_ttl(&mut out[..len]);
    expected[8] = expected[8].saturating_sub(1);
    ipv4::fill_checksum(&mut expected);
    assert_eq!(out[..len], expected);
});
