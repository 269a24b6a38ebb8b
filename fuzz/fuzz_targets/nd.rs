//! The options of a message that is accepted tile it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::nd::NdView;

fuzz_target!(|bytes: &[u8]| {
    let (fixed, options) = match NdView::new_checked(bytes) {
        Some(NdView::NeighbourSolicitation(view) | NdView::NeighbourAdvertisement(view)) => {
            assert!(!view.target().is_multicast());
            let _ = (view.source_mac(), view.target_mac(), view.is_router());
            (24, view.options())
        }
        Some(NdView::RouterSolicitation(options)) => (8, options),
        Some(NdView::RouterAdvertisement(view)) => {
            let _ = (view.source_mac(), view.lifetime_s(), view.retransmit_timer_ms());
            (16, view.options())
        }
        None => return,
    };
    let covered: usize = options.map(|option| option.data.len() + 2).sum();
    assert_eq!(fixed + covered, bytes.len());
});
