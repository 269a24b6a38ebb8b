//! Messages that others made: decoded and encoded again they are the same bytes.

use openflow::{Body, ErrorCode, Extensions, decode, decode_with, encode, encode_with};

use crate::random::{Random, seeds};

/// Lines of a name and bytes in hexadecimal.
pub(crate) fn messages(file: &str) -> Vec<(String, Vec<u8>)> {
    let path = format!("{}/../../tests/data/openflow/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (name, hex) = line.split_once(' ').unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (name.to_string(), (0..hex.len()).step_by(2).map(byte).collect())
    };
    text.lines().filter(|l| !l.starts_with('#')).map(line).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What is not read: fields and registers of Nicira, fields of experimenters, fields without what they need. Each has the error that its sender gets.
const REFUSED: &[(&str, ErrorCode)] = &[
    ("of13/4-12-ofp_flow_stats_reply", ErrorCode::BadActionSetType), // ONF's actset_output
    ("of13/4-2-ofp_flow_mod", ErrorCode::BadActionSetType),
    ("of13/4-59-ofp_packet_in", ErrorCode::BadMatchPrereq), // vlan_pcp without vlan_vid, among others
    ("of13/4-60-ofp_flow_mod", ErrorCode::BadMatchPrereq),
    ("of13/4-63-onf_flow_monitor_request", ErrorCode::BadMatchPrereq),
    ("of13/libofproto-OFP13-flow_mod", ErrorCode::BadMatchField), // ends of a tunnel
    ("of13/libofproto-OFP13-flow_mod_conjunction", ErrorCode::BadMatchField),
    ("of13/libofproto-OFP13-flow_mod_match_conj", ErrorCode::BadMatchField),
    ("of13/libofproto-OFP13-flow_removed", ErrorCode::BadMatchField),
    ("of13/libofproto-OFP13-packet_in", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-action_conjunction", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-action_ct", ErrorCode::BadMatchField), // ct_state
    ("of13/ovs-ofctl-of13-action_ct_clear", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-action_ct_exec", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-action_learn", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-action_resubmit", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-match_conj", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-match_load_nx_register", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-match_move_nx_register", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-match_pkt_mark", ErrorCode::BadMatchField),
    ("of13/ovs-ofctl-of13-match_pkt_mark_masked", ErrorCode::BadMatchField),
];

/// 63 bits of an address left open in 1.0 mean all 32, and come back as 32.
const ALL_OPEN: &[&str] = &["of10/1-2-ofp_flow_mod"];

/// os-ken's own test messages, many of them sent by switches and controllers of several makers.
#[test]
fn messages_of_os_ken() {
    let mut wrong = Vec::new();
    let all = messages("os-ken.txt");
    assert_eq!(all.len(), 117);
    for (name, bytes) in &all {
        match decode(bytes) {
            Err(error) if REFUSED.contains(&(name.as_str(), error)) => {}
            Err(error) => wrong.push(format!("{name}: {error}\n  {}", hex(bytes))),
            Ok(message) => match encode(&message) {
                Err(error) => wrong.push(format!("{name}: {error}: {message:?}")),
                Ok(again) if again != *bytes && !ALL_OPEN.contains(&name.as_str()) => {
                    wrong.push(format!("{name}:\n  {}\n  {}", hex(bytes), hex(&again)))
                }
                Ok(_) => {}
            },
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

/// Messages of all types, random: the bytes are read as the message that they were made of.
#[test]
fn messages_come_back() {
    for seed in seeds() {
        let mut random = Random(seed);
        for n in 0..300 {
            let version = random.version();
            let mut message = random.message(version);
            let extensions = Extensions { flow_mod_table_id: random.below(2) == 0 };
            if let Body::FlowMod(flow) | Body::NiciraFlowMod(flow) = &mut message.body
                && extensions.flow_mod_table_id
            {
                flow.table = random.next() as u8;
            }
            let bytes = encode_with(&message, extensions)
                .unwrap_or_else(|e| panic!("seed {seed} {n}: {e}: {message:?}"));
            assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
            let again = decode_with(&bytes, extensions);
            assert_eq!(again, Ok(message), "seed {seed}, message {n}: {}", hex(&bytes));
        }
    }
}

/// Bytes that are no message never panic, and what can be read from them is written again as something that reads the same.
#[test]
fn broken_messages() {
    for seed in seeds() {
        let mut random = Random(seed);
        for n in 0..400 {
            let version = random.version();
            let mut bytes = encode(&random.message(version)).unwrap();
            for _ in 0..=random.below(3) {
                match random.below(4) {
                    0 => bytes.truncate(random.below(bytes.len() + 1)),
                    1 => bytes.extend(random.bytes(16)),
                    _ if bytes.is_empty() => {}
                    _ => {
                        let at = random.below(bytes.len());
                        bytes[at] = random.next() as u8;
                    }
                }
            }
            // Often with the right length, so that more than the length is looked at.
            if bytes.len() >= 8 && random.below(4) > 0 {
                let len = bytes.len() as u16;
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
            }
            let Ok(message) = decode(&bytes) else { continue };
            let again =
                encode(&message).unwrap_or_else(|e| panic!("seed {seed} {n}: {e}: {message:?}"));
            assert_eq!(decode(&again), Ok(message), "seed {seed}, message {n}: {}", hex(&bytes));
        }
    }
}
