//! An error about whatever came is a valid packet, and no error is sent about it in turn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::checksum::Checksums;
use packet::icmp_error::*;
use packet::icmpv4::Icmpv4View;
use packet::icmpv6::Icmpv6View;
use packet::ipv4::Ipv4View;
use packet::ipv6::Ipv6View;
use std::net::{Ipv4Addr, Ipv6Addr};

const R4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const R6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe);

fuzz_target!(|original: &[u8]| {
    let mut out = [0; 2048];
    let may = may_send_icmp_error(original);
    let too_big = Icmpv4Error::FragmentationNeeded { mtu: 1280 };
    if let Some(len) = build_icmpv4_error(original, too_big, R4, &mut out) {
        assert!(len <= ICMPV4_ERROR_LEN_MAX);
        let Some(view) = Ipv4View::new_checked(&out[..len]) else { panic!("no packet") };
        assert!(view.is_checksum_correct() && view.payload().len() + 20 == len);
        let icmp = Icmpv4View::new_checked(view.payload());
        assert!(icmp.is_some_and(|icmp| icmp.is_checksum_correct()
            && original.starts_with(icmp.payload())
            && icmp.mtu() == 1280));
        assert!(!may_send_icmp_error(&out[..len]));
    } else {
        assert!(!may || original[0] >> 4 == 6);
    }
    let too_big = Icmpv6Error::PacketTooBig { mtu: 1280 };
    if let Some(len) = build_icmpv6_error(original, too_big, R6, &mut out) {
        assert!(len <= ICMPV6_ERROR_LEN_MAX);
        let Some(view) = Ipv6View::new_checked(&out[..len]) else { panic!("no packet") };
        let icmp = Icmpv6View::new_checked(view.payload());
        assert!(icmp.is_some_and(|icmp| icmp.is_checksum_correct(view.src(), view.dst())
            && original.starts_with(icmp.payload())
            && icmp.mtu() == 1280));
        assert!(!may_send_icmp_error(&out[..len]));
    } else {
        assert!(!may || original[0] >> 4 == 4);
    }
    if let Some(len) = build_icmpv4_echo_reply(original, Checksums::Verify, &mut out) {
        let reply = out[..len].to_vec();
        assert_eq!(build_icmpv4_echo_reply(&reply, Checksums::Verify, &mut out), None);
    }
    if let Some(len) = build_icmpv6_echo_reply(original, R6, Checksums::Verify, &mut out) {
        let reply = out[..len].to_vec();
        assert_eq!(build_icmpv6_echo_reply(&reply, R6, Checksums::Verify, &mut out), None);
    }
});
