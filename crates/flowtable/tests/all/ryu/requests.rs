//! Requests as Ryu writes them in JSON.

use openflow::flow::{ANY_GROUP, FlowCommand, FlowMod};
use openflow::group::{
    Band, BandKind, Bucket, GroupMod, GroupType, MeterFlags, MeterMod, TableCommand,
};
use openflow::message::Body;
use openflow::{Action, ErrorCode, Field, Instruction, Match, PortNo, Version};
use serde_json::Value;

use super::packets::{ipv4, ipv6, mac};
use crate::world::World;

/// Carries out a request.
pub fn apply(world: &mut World, body: &Body, version: Version) -> Result<(), ErrorCode> {
    match body {
        Body::FlowMod(flow) => world.control.flow_mod(flow, version, 1_000_000_000),
        Body::GroupMod(group) => world.control.group_mod(group, 1_000_000_000),
        Body::MeterMod(meter) => world.control.meter_mod(meter, 1_000_000_000),
        other => panic!("{other:?}"),
    }
}

/// A request of a case.
pub fn body(request: &Value, version: Version) -> Body {
    if let Some(flow) = request.get("OFPFlowMod") {
        let mut own = FlowMod::new(FlowCommand::Add);
        own.table = number(&flow["table_id"]) as u8;
        if version == Version::V10 {
            own.matches = match_10(&flow["match"]["OFPMatch"]);
            own.instructions = vec![Instruction::ApplyActions(actions(&flow["actions"], version))];
        } else {
            for (field, value, mask) in oxm_fields(&flow["match"]["OFPMatch"]["oxm_fields"]) {
                own.matches.set(field, value, mask);
            }
            let list = flow["instructions"].as_array().unwrap();
            own.instructions = list.iter().map(|one| instruction(one, version)).collect();
        }
        return Body::FlowMod(own);
    }
    if let Some(group) = request.get("OFPGroupMod") {
        let bucket = |bucket: &Value| Bucket {
            weight: number(&bucket["OFPBucket"]["weight"]) as u16,
            watch_port: PortNo::ANY,
            watch_group: ANY_GROUP,
            actions: actions(&bucket["OFPBucket"]["actions"], version),
        };
        let own = GroupMod {
            command: TableCommand::Add,
            kind: if number(&group["type"]) == 1 { GroupType::Select } else { GroupType::All },
            group: number(&group["group_id"]) as u32,
            buckets: group["buckets"].as_array().unwrap().iter().map(bucket).collect(),
        };
        return Body::GroupMod(own);
    }
    let meter = &request["OFPMeterMod"];
    let band = |band: &Value| {
        let (name, own) = band.as_object().unwrap().iter().next().unwrap();
        let kind = match name.as_str() {
            "OFPMeterBandDrop" => BandKind::Drop,
            _ => BandKind::DscpRemark { prec_level: number(&own["prec_level"]) as u8 },
        };
        Band { kind, rate: number(&own["rate"]) as u32, burst: 0 }
    };
    let mut flags = MeterFlags::empty();
    for flag in meter["flags"].as_array().into_iter().flatten() {
        flags |= match flag.as_str().unwrap() {
            "PKTPS" | "OFPMF_PKTPS" => MeterFlags::PKTPS,
            other => panic!("{other}"),
        };
    }
    if let Some(bits) = meter["flags"].as_u64() {
        flags = MeterFlags(bits as u16);
    }
    let own = MeterMod {
        command: TableCommand::Add,
        flags: if flags.is_empty() { MeterFlags::KBPS } else { flags },
        meter: number(&meter["meter_id"]) as u32,
        bands: meter["bands"].as_array().unwrap().iter().map(band).collect(),
    };
    Body::MeterMod(own)
}

/// Zero where there is none.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn value_of(field: Field, value: &Value) -> u128 {
    match value {
        Value::String(text) => match field.bits() {
            48 => mac(text),
            32 => ipv4(text),
            128 => ipv6(text),
            _ => panic!("{field} {text}"),
        },
        number => u128::from(number.as_u64().unwrap_or_else(|| panic!("{field} {number}"))),
    }
}

/// The names of the specification, in order of their numbers.
const NAMES: &str = "in_port in_phy_port metadata eth_dst eth_src eth_type vlan_vid vlan_pcp ip_dscp ip_ecn ip_proto ipv4_src \
    ipv4_dst tcp_src tcp_dst udp_src udp_dst sctp_src sctp_dst icmpv4_type icmpv4_code arp_op arp_spa arp_tpa arp_sha arp_tha \
    ipv6_src ipv6_dst ipv6_flabel icmpv6_type icmpv6_code ipv6_nd_target ipv6_nd_sll ipv6_nd_tll mpls_label mpls_tc mpls_bos \
    pbb_isid tunnel_id ipv6_exthdr";

fn field_of(name: &str) -> Field {
    let number = NAMES.split(' ').position(|own| own == name);
    Field::ALL[number.unwrap_or_else(|| panic!("{name}"))]
}

pub fn oxm_fields(list: &Value) -> Vec<(Field, u128, u128)> {
    let one = |entry: &Value| {
        let entry = &entry["OXMTlv"];
        let field = field_of(entry["field"].as_str().unwrap());
        let mask = entry
            .get("mask")
            .filter(|mask| !mask.is_null())
            .map_or(field.full(), |mask| value_of(field, mask));
        (field, value_of(field, &entry["value"]), mask)
    };
    list.as_array().into_iter().flatten().map(one).collect()
}

fn match_10(own: &Value) -> Match {
    let mut out = Match::new();
    for (name, value) in own.as_object().unwrap() {
        let protocol = number(&own["nw_proto"]);
        let (field, value) = match name.as_str() {
            "dl_dst" => (Field::EthDst, mac(value.as_str().unwrap())),
            "dl_src" => (Field::EthSrc, mac(value.as_str().unwrap())),
            "dl_type" => (Field::EthType, number(value).into()),
            "dl_vlan" => (Field::VlanVid, u128::from(number(value) | 0x1000)),
            "dl_vlan_pcp" => {
                // A priority without a VLAN: any tag.
                if out.get(Field::VlanVid).is_none() {
                    out.set(Field::VlanVid, 0x1000, 0x1000);
                }
                (Field::VlanPcp, number(value).into())
            }
            "nw_tos" => (Field::IpDscp, u128::from(number(value) >> 2)),
            "nw_proto" => (Field::IpProto, number(value).into()),
            "nw_src" => (Field::Ipv4Src, ipv4(value.as_str().unwrap())),
            "nw_dst" => (Field::Ipv4Dst, ipv4(value.as_str().unwrap())),
            "nw_dst_mask" => continue,
            "tp_src" if protocol == 17 => (Field::UdpSrc, number(value).into()),
            "tp_dst" if protocol == 17 => (Field::UdpDst, number(value).into()),
            "tp_src" => (Field::TcpSrc, number(value).into()),
            "tp_dst" => (Field::TcpDst, number(value).into()),
            other => panic!("{other}"),
        };
        let prefix = own.get("nw_dst_mask").filter(|_| field == Field::Ipv4Dst);
        let mask =
            prefix.map_or(field.full(), |bits| field.full() & !(field.full() >> number(bits)));
        out.set(field, value, mask);
    }
    out
}

fn instruction(one: &Value, version: Version) -> Instruction {
    let (name, own) = one.as_object().unwrap().iter().next().unwrap();
    match name.as_str() {
        "OFPInstructionGotoTable" => Instruction::GotoTable(number(&own["table_id"]) as u8),
        "OFPInstructionWriteMetadata" => Instruction::WriteMetadata {
            value: number(&own["metadata"]),
            mask: number(&own["metadata_mask"]),
        },
        "OFPInstructionMeter" => Instruction::Meter(number(&own["meter_id"]) as u32),
        "OFPInstructionActions" => match number(&own["type"]) {
            3 => Instruction::WriteActions(actions(&own["actions"], version)),
            4 => Instruction::ApplyActions(actions(&own["actions"], version)),
            _ => Instruction::ClearActions,
        },
        other => panic!("{other}"),
    }
}

fn actions(list: &Value, version: Version) -> Vec<Action> {
    list.as_array().into_iter().flatten().map(|one| action(one, version)).collect()
}

fn action(one: &Value, version: Version) -> Action {
    let (name, own) = one.as_object().unwrap().iter().next().unwrap();
    let of = |key: &str| number(&own[key]);
    let text = |key: &str| own[key].as_str().unwrap();
    match name.as_str() {
        "OFPActionOutput" => Action::Output {
            port: match version {
                Version::V10 => PortNo::from_v10(of("port") as u16),
                Version::V13 => PortNo(of("port") as u32),
            },
            max_len: of("max_len") as u16,
        },
        "OFPActionGroup" => Action::Group(of("group_id") as u32),
        "OFPActionSetField" => {
            let entry = &own["field"]["OXMTlv"];
            let field = field_of(entry["field"].as_str().unwrap());
            Action::SetField(field, value_of(field, &entry["value"]))
        }
        "OFPActionCopyTtlIn" => Action::CopyTtlIn,
        "OFPActionCopyTtlOut" => Action::CopyTtlOut,
        "OFPActionDecMplsTtl" => Action::DecMplsTtl,
        "OFPActionDecNwTtl" => Action::DecNwTtl,
        "OFPActionSetMplsTtl" => Action::SetMplsTtl(of("mpls_ttl") as u8),
        "OFPActionSetNwTtl" => Action::SetNwTtl(of("nw_ttl") as u8),
        "OFPActionPushVlan" => Action::PushVlan(of("ethertype") as u16),
        "OFPActionPushMpls" => Action::PushMpls(of("ethertype") as u16),
        "OFPActionPopMpls" => Action::PopMpls(of("ethertype") as u16),
        "OFPActionPushPbb" => Action::PushPbb(of("ethertype") as u16),
        "OFPActionPopPbb" => Action::PopPbb,
        "OFPActionVlanPcp" => Action::SetVlanPcp(of("vlan_pcp") as u8),
        "OFPActionSetDlSrc" => Action::SetField(Field::EthSrc, mac(text("dl_addr"))),
        "OFPActionSetDlDst" => Action::SetField(Field::EthDst, mac(text("dl_addr"))),
        "OFPActionSetNwSrc" => Action::SetField(Field::Ipv4Src, ipv4(text("nw_addr"))),
        "OFPActionSetNwDst" => Action::SetField(Field::Ipv4Dst, ipv4(text("nw_addr"))),
        "OFPActionSetNwTos" => Action::SetField(Field::IpDscp, u128::from(of("tos") >> 2)),
        "OFPActionSetTpSrc" => Action::SetTpSrc(of("tp") as u16),
        "OFPActionSetTpDst" => Action::SetTpDst(of("tp") as u16),
        other => panic!("{other}"),
    }
}
