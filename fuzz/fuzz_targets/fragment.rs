//! The fragments of a packet, put together, are the packet; none exceeds the MTU.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::fragment::Fragmenter;
use packet::ipv4::Ipv4View;

fuzz_target!(|bytes: &[u8]| {
    let Some((mtu, packet)) = bytes.split_first_chunk::<2>() else { return };
    let mtu = u16::from_be_bytes(*mtu);
    let Some(fragments) = Fragmenter::new(packet, mtu) else { return };
    // Without the payload, too: only the header is looked at.
    let Some(view) = Ipv4View::new_quoted(packet) else { panic!("fragments of nothing") };
    let payload_len = usize::from(view.total_len()) - view.header_len();
    let start = usize::from(view.fragment_offset());
    let mut done = 0;
    let mut last_more = true;
    for fragment in fragments {
        assert!(fragment.total_len() <= usize::from(mtu));
        assert_eq!(fragment.payload.start, view.header_len() + done);
        let Some(piece) = Ipv4View::new_quoted(fragment.header()) else { panic!("no header") };
        assert!(piece.is_checksum_correct());
        assert_eq!(usize::from(piece.total_len()), fragment.total_len());
        assert_eq!(usize::from(piece.fragment_offset()), (start + done) & 0xffff);
        assert_eq!((piece.src(), piece.dst()), (view.src(), view.dst()));
        assert!(piece.options().all(|option| done == 0 || option.is_copied()));
        assert!(last_more, "a piece behind the last");
        done += fragment.payload.len();
        last_more = piece.more_fragments();
        assert!(done < payload_len || last_more == view.more_fragments());
        last_more |= view.more_fragments();
    }
    assert_eq!(done, payload_len);
});
