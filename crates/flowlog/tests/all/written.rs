//! What is written of any input, as the fuzz targets `eve` and `ipfix` judge it.

use proptest::prelude::*;

use crate::writers;

fn any_input() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::sample::select(vec![
        &b"GET /\xff\x00\x1b HTTP/1.1\r\nHost: a\"b\\\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"220 mail\r\n",
        b"EHLO x\r\n",
    ]);
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        text.prop_map(|text| [&[1, text.len() as u8], text].concat()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn events_are_lines_of_json(input in any_input()) {
        writers::eve(&input);
    }

    #[test]
    fn messages_are_read_by_a_collector(input in any_input()) {
        writers::ipfix(&input);
    }
}
