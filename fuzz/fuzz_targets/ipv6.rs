//! The walk over extension headers is bounded, and its pieces tile the payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::decode::MAX_EXTENSION_HEADERS;
use packet::ipv6::{HEADER_LEN, Ipv6Header, Ipv6View};

fuzz_target!(|bytes: &[u8]| {
    let Some(view) = Ipv6View::new_checked(bytes) else { return };
    let mut walk = view.extensions();
    let mut covered = 0;
    let mut count = 0;
    for header in walk.by_ref() {
        assert!(header.bytes.len() >= 8 && header.kind.is_extension_header());
        assert_eq!(header.bytes, &view.payload()[covered..covered + header.bytes.len()]);
        covered += header.bytes.len();
        count += 1;
    }
    assert!(count <= MAX_EXTENSION_HEADERS);
    assert_eq!(walk.rest(), &view.payload()[covered..]);
    if let Some((protocol, upper)) = view.upper_layer() {
        assert!(view.payload().ends_with(upper));
        let later_fragment =
            view.extensions().filter_map(|h| h.fragment()).any(|fragment| fragment.offset != 0);
        assert!(later_fragment || (!protocol.is_extension_header() && upper == walk.rest()));
    }
    let header = Ipv6Header {
        traffic_class: view.traffic_class(),
        flow_label: view.flow_label(),
        next_header: view.next_header(),
        hop_limit: view.hop_limit(),
        src: view.src(),
        dst: view.dst(),
    };
    let mut out = [0; HEADER_LEN];
    assert_eq!(header.emit(view.payload().len(), &mut out), Some(HEADER_LEN));
    assert_eq!(out, bytes[..HEADER_LEN]);
});
