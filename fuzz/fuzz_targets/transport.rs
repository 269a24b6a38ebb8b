//! TCP, UDP, ESP, ICMP and ICMPv6: pieces tile the bytes, and a header written over the old one is
//! read back with a correct checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::esp::EspView;
use packet::icmpv4::{Icmpv4Header, Icmpv4View};
use packet::icmpv6::{Icmpv6Header, Icmpv6View};
use packet::tcp::{TcpHeader, TcpView};
use packet::udp::{UdpHeader, UdpView};
use std::net::Ipv6Addr;

fuzz_target!(|bytes: &[u8]| {
    let mut out = bytes.to_vec();
    if let Some(view) = TcpView::new_checked(bytes) {
        assert_eq!(view.header_len() + view.payload().len(), bytes.len());
        let header = TcpHeader {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            sequence: view.sequence(),
            acknowledgment: view.acknowledgment(),
            flags: view.flags(),
            window: view.window(),
            urgent_pointer: view.urgent_pointer(),
            options: view.options_bytes(),
        };
        assert_eq!(header.emit(99, &mut out), Some(view.header_len()));
        let Some(again) = TcpView::new_checked(&out) else { panic!("unreadable") };
        assert!(again.is_checksum_correct(99));
        assert_eq!(
            (again.payload(), again.options_bytes()),
            (view.payload(), view.options_bytes())
        );
        assert_eq!((again.flags(), again.sequence()), (view.flags(), view.sequence()));
    }
    if let Some(view) = UdpView::new_checked(bytes) {
        assert_eq!(8 + view.payload().len(), usize::from(view.len()));
        let mut out = bytes[..usize::from(view.len())].to_vec();
        let header = UdpHeader { src_port: view.src_port(), dst_port: view.dst_port() };
        assert_eq!(header.emit(Some(99), &mut out), Some(8));
        let Some(again) = UdpView::new_checked(&out) else { panic!("unreadable") };
        assert!(again.is_checksum_correct(99) && again.checksum() != 0);
        assert_eq!(again.payload(), view.payload());
    }
    if let Some(view) = EspView::new_checked(bytes) {
        assert_eq!(view.payload().len() + 8, bytes.len());
    }
    if let Some(view) = Icmpv4View::new_checked(bytes) {
        let header =
            Icmpv4Header { kind: view.kind(), code: view.code(), parameter: view.parameter() };
        assert_eq!(header.emit(&mut out), Some(8));
        assert!(Icmpv4View::new_checked(&out).is_some_and(|again| again.is_checksum_correct()));
    }
    if let Some(view) = Icmpv6View::new_checked(bytes) {
        let header =
            Icmpv6Header { kind: view.kind(), code: view.code(), parameter: view.parameter() };
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        assert_eq!(header.emit(src, dst, &mut out), Some(8));
        assert!(
            Icmpv6View::new_checked(&out).is_some_and(|again| again.is_checksum_correct(src, dst))
        );
    }
});
