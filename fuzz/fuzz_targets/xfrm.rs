//! A message of NETLINK_XFRM: two bytes of type, two of flags, what follows the header. What is read is written, read again
//! as the same, and written as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xfrm::{Keys, Message};

fuzz_target!(|bytes: &[u8]| {
    let Some(([k, l, f, g], payload)) = bytes.split_first_chunk::<4>() else { return };
    let (kind, flags) = (u16::from_ne_bytes([*k, *l]), u16::from_ne_bytes([*f, *g]));
    let Ok(message) = Message::decode(kind, flags, payload) else { return };
    let written = message.encode();
    assert!(written.len() == payload.len().next_multiple_of(4) || written.expose() == payload);
    let again = Message::decode(kind, flags, written.expose()).expect("it was just written");
    assert_eq!(again, message);
    assert_eq!(again.encode().expose(), written.expose());
    if let Some(Ok(keys)) = Keys::from_attributes(&message.attributes) {
        keys.expand().expect("lengths that were checked");
    }
    let _ = format!("{message:?}");
});
