//! ClassBench sets as flows of the twelve fields that GSwitch matches.
//!
//! A rule gives addresses as prefixes, protocol and ports; port of entry, EtherType, MACs and tag are those of all packets. OpenFlow
//! 1.0 has a port or none: a range of more than one port becomes any port. The better rule has the higher priority.

use std::path::Path;

use ::classify::{Condition, RuleSet};
use ::openflow::{Field, FlowCommand, FlowMod};

use super::{Load, MACS, frame, out_port, to_port};
use crate::classify::sets;

const NAMES: [&str; 6] = ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"];

/// All sets of a folder, each with so many packets for its rules at random; or why not.
pub(super) fn loads(folder: &Path, packets: usize) -> impl Iterator<Item = Result<Load, String>> {
    NAMES.into_iter().map(move |name| {
        let set = sets::rules(&folder.join("neurocuts"), name)?;
        let flows = (0..set.len()).map(|index| flow(&set, index)).collect();
        let headers = sets::uniform(&set, packets).headers;
        let frames = headers.chunks_exact(4).map(|header| {
            let ports = [(header[2] >> 16) as u16, header[2] as u16];
            with_protocol(frame((header[0], header[1], ports[0], ports[1])), header[3])
        });
        let frames: Vec<_> = frames.collect();
        let wanted = vec![None; frames.len()];
        Ok(Load { name: format!("{name} (ClassBench)"), flows, exact: None, frames, wanted })
    })
}

/// Another protocol; where it is TCP the header is whole.
fn with_protocol(mut frame: Vec<u8>, word: u32) -> Vec<u8> {
    frame[23] = (word >> 24) as u8;
    if frame[23] == 6 {
        frame[46] = 5 << 4;
    }
    frame[24..26].fill(0);
    let sum = packet::checksum::internet_checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn flow(set: &RuleSet, index: usize) -> FlowMod {
    let (schema, words) = (set.schema(), set.rule(index).words);
    let mut flow = FlowMod::new(FlowCommand::Add);
    flow.priority = u16::MAX - 1 - index as u16;
    let link = [
        (Field::InPort, 1),
        (Field::EthDst, MACS[0].into()),
        (Field::EthSrc, MACS[1].into()),
        (Field::VlanVid, 0),
        (Field::EthType, 0x0800),
    ];
    link.into_iter().for_each(|(field, value)| flow.matches.set(field, value, field.full()));
    let (mut protocol, mut ports) = (None, [None; 2]);
    for number in 0..schema.fields().len() {
        match (number, schema.condition(words, number)) {
            (0 | 1, Condition::Prefix { value, len }) if len > 0 => {
                let mask = u128::from(super::prefix(len.into()));
                let field = [Field::Ipv4Src, Field::Ipv4Dst][number];
                flow.matches.set(field, value & mask, mask);
            }
            (2 | 3, Condition::Range { low, high }) if low == high => {
                ports[number - 2] = Some(low);
            }
            (4, Condition::Mask { value, mask: 0xff }) => protocol = Some(value),
            _ => {}
        }
    }
    if let Some(protocol) = protocol {
        flow.matches.set(Field::IpProto, protocol, 0xff);
        let fields = match protocol {
            6 => [Field::TcpSrc, Field::TcpDst],
            17 => [Field::UdpSrc, Field::UdpDst],
            _ => [Field::SctpSrc; 2],
        };
        for (field, port) in fields.into_iter().zip(ports) {
            // Other protocols have no ports here.
            if let Some(port) = port.filter(|_| matches!(protocol, 6 | 17)) {
                flow.matches.set(field, port, 0xffff);
            }
        }
    }
    flow.instructions = to_port(out_port(index));
    flow
}

#[cfg(test)]
mod tests {
    use ::classify::classbench::parse_rules;
    use ::openflow::{Match, Version};

    use super::*;

    #[test]
    fn a_rule_is_a_flow_of_twelve_fields() {
        let text = b"@10.1.0.0/16\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n\
            @0.0.0.0/0\t192.0.2.1/32\t1024 : 65535\t53 : 53\t0x00/0x00\n";
        let set = parse_rules(text).unwrap().set;
        let value = |matches: &Match, field| {
            let found = matches.fields().iter().find(|own| own.field == field)?;
            Some((found.value, found.mask))
        };
        let first = flow(&set, 0).matches;
        assert_eq!(value(&first, Field::Ipv4Src), Some((0x0a01_0000, 0xffff_0000)));
        assert_eq!(value(&first, Field::TcpDst), Some((80, 0xffff)));
        assert_eq!(value(&first, Field::TcpSrc), None);
        let second = flow(&set, 1).matches;
        assert_eq!(value(&second, Field::Ipv4Dst), Some((0xc000_0201, 0xffff_ffff)));
        assert_eq!(value(&second, Field::UdpDst), None, "a port needs a protocol");
        let (mut control, _tables) = super::super::switch(10);
        for index in 0..2 {
            control.flow_mod(&flow(&set, index), Version::V10, 1).unwrap();
        }
    }
}
