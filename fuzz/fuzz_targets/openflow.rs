//! Bytes as messages of OpenFlow: what can be read is written as something that reads the same, and can be printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow::message::MultipartReply;
use openflow::syntax::FlowText;
use openflow::{
    Body, Extensions, FlowCommand, Header, Syntax, decode, decode_with, encode, encode_with,
};

fuzz_target!(|bytes: &[u8]| {
    // The length is made right, so that more than the length is looked at.
    let mut bytes = bytes.to_vec();
    let Ok(len) = u16::try_from(bytes.len()) else { return };
    if Header::read(&bytes).is_some() {
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
    }
    let with_tables = Extensions { flow_mod_table_id: true };
    if let Ok(message) = decode_with(&bytes, with_tables) {
        let again = encode_with(&message, with_tables).expect("what was read can be written");
        assert_eq!(decode_with(&again, with_tables), Ok(message));
    }
    let Ok(message) = decode(&bytes) else { return };
    let again = encode(&message).expect("what was read can be written");
    assert_eq!(decode(&again).as_ref(), Ok(&message));
    let flows = match message.body {
        Body::FlowMod(flow) => vec![flow.to_flow()],
        Body::MultipartReply { reply: MultipartReply::Flow(flows), .. } => flows,
        _ => return,
    };
    for flow in flows {
        let text = FlowText { flow: &flow, with_stats: true }.to_string();
        // Only what the syntax cannot say is refused: experimenters, values that no switch takes.
        let _ = Syntax::new().flow(&text, FlowCommand::Add);
    }
});
