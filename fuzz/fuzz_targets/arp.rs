//! What is accepted is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::arp::{ArpView, PACKET_LEN};

fuzz_target!(|bytes: &[u8]| {
    let Some(view) = ArpView::new_checked(bytes) else { return };
    let mut out = [0; PACKET_LEN];
    assert_eq!(view.header().emit(&mut out), Some(PACKET_LEN));
    assert_eq!(out, bytes[..PACKET_LEN]);
    let reply = view.header().reply(packet::MacAddr([2; 6]));
    assert_eq!(reply.emit(&mut out), Some(PACKET_LEN));
    assert_eq!(ArpView::new_checked(&out).map(|view| view.header()), Some(reply));
});
