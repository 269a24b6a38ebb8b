//! Pieces of a flow: the label of a stream is that of the stream in single bytes, and a settled answer stays.
//!
//! Each piece begins with a byte: its length in the lower seven bits, then its direction. The first byte of the input
//! chooses the transport and the ports.
#![no_main]

use l7proto::{Answer, Direction, Identifier, Ports, Transport};
use libfuzzer_sys::fuzz_target;

const PORTS: [u16; 8] = [0, 21, 53, 80, 123, 443, 502, 5353];

fn identify(transport: Transport, pieces: &[(Direction, &[u8])], ports: Ports) -> Answer {
    let mut identifier = Identifier::new(transport);
    for (direction, bytes) in pieces {
        let before = identifier.answer();
        let after = identifier.feed(*direction, bytes, ports);
        assert!(!before.is_settled() || before == after);
    }
    identifier.finish(ports)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, mut rest)) = bytes.split_first() else { return };
    let port = |bits: u8| PORTS[usize::from(bits & 7)];
    let ports = Ports { opener: port(choice >> 1), responder: port(choice >> 4) };
    let transport = if choice & 1 == 0 { Transport::Stream } else { Transport::Datagram };
    let mut pieces = Vec::new();
    while let Some((head, bytes)) = rest.split_first() {
        let (piece, bytes) = bytes.split_at(usize::from(head & 0x7f).min(bytes.len()));
        rest = bytes;
        let direction = if head & 0x80 == 0 { Direction::Opener } else { Direction::Responder };
        pieces.push((direction, piece));
    }
    let whole = identify(transport, &pieces, ports);
    assert!(whole.is_settled());
    if transport == Transport::Stream {
        let single: Vec<_> = pieces
            .iter()
            .flat_map(|(direction, bytes)| bytes.chunks(1).map(|b| (*direction, b)))
            .collect();
        assert_eq!(identify(transport, &single, ports), whole);
    }
});
