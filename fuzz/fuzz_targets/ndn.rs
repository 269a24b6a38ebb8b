//! A packet that is accepted is read the same from its own bytes, and its name from its text; whatever Interest may be
//! read as a command.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::ndn::management::{Command, response};
use packet::ndn::{Body, NameBuf, Packet, emit_link};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(name) = NameBuf::from_uri(bytes) {
        assert_eq!(NameBuf::from_uri(name.to_string().as_bytes()), Ok(name));
    }
    let Ok(packet) = Packet::new_checked(bytes) else { return };
    let (name, inner) = match &packet.body {
        Body::Interest(interest) => {
            if let Some(at) = interest.hop_limit_at() {
                assert_eq!(Some(interest.bytes()[at]), interest.fields().hop_limit);
            }
            if let Ok(command) = Command::read(interest) {
                response(200, "OK", Some(&command.parameters));
            }
            (interest.name(), interest.bytes())
        }
        Body::Data(data) => (data.name(), data.bytes()),
        Body::Idle => return,
    };
    assert_eq!(name.components().count(), name.len());
    let text = name.to_string();
    let again = NameBuf::from_uri(text.as_bytes()).expect("what was printed");
    assert_eq!(again.name().value(), name.value());
    let mut written = Vec::new();
    emit_link(&packet.link, inner, &mut written);
    let again = Packet::new_checked(&written).expect("what was written");
    assert_eq!(again.link, packet.link);
});
