//! The flow syntax: what is printed is read as the same, and is what ovs-ofctl prints and reads.

use std::process::Command;

use openflow::flow::FlowStats;
use openflow::group::{GroupDesc, MeterConfig, TableCommand};
use openflow::message::{ErrorMessage, MultipartReply};
use openflow::syntax::{FlowText, GroupText, MeterText};
use openflow::{
    Action, Body, ErrorCode, Field, FlowCommand, Instruction, Match, Message, PortNo, Syntax,
    Version, decode, encode,
};

use crate::ofctl;
use crate::random::{Random, seeds};

/// A flow that text can say: no experimenters, instructions in order.
fn flow(random: &mut Random) -> FlowStats {
    let mut flow = random.flow_stats(Version::V13);
    let known = |a: &Action| !matches!(a, Action::Experimenter { .. });
    for instruction in &mut flow.instructions {
        if let Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) = instruction
        {
            actions.retain(known);
            actions.retain(|a| !matches!(a, Action::Output { port: PortNo::CONTROLLER, .. }));
            for action in actions {
                match action {
                    Action::Output { max_len, .. } => *max_len = 0,
                    Action::PushPbb(ethertype) => *ethertype = 0x88e7,
                    _ => {}
                }
            }
        }
    }
    flow.instructions.retain(|i| !matches!(i, Instruction::ApplyActions(a) if a.is_empty()));
    flow
}

#[test]
fn what_is_printed_is_read() {
    for seed in seeds() {
        let mut random = Random(seed);
        for _ in 0..200 {
            let flow = flow(&mut random);
            for with_stats in [false, true] {
                let text = FlowText { flow: &flow, with_stats }.to_string();
                let read = Syntax::new().flow(&text, FlowCommand::Add);
                let read = read.unwrap_or_else(|e| panic!("seed {seed}: {e}: {text}"));
                assert_eq!(
                    read.to_flow(),
                    FlowStats {
                        duration: Default::default(),
                        packets: 0,
                        bytes: 0,
                        ..flow.clone()
                    },
                    "seed {seed}: {text}"
                );
            }
        }
    }
}

/// Random bytes and words never panic.
#[test]
fn nonsense_is_refused() {
    let words = [
        "tcp",
        "nw_src",
        "=",
        ",",
        " ",
        "actions=",
        "output:1",
        "(",
        ")",
        "10.0.0.0/8",
        "/",
        ":",
        "set_field:",
        "->",
        "table=",
        "dl_vlan=5",
        "bucket=",
        "weight:1",
        "meter=1",
        "bands=",
        "type=drop",
        "é",
        "0x",
        "*",
        "priority=1",
        "controller(",
        "enqueue:",
        "vlan_tci=",
        "#",
    ];
    for seed in seeds() {
        let mut random = Random(seed);
        for _ in 0..300 {
            let text: String = (0..random.below(12)).map(|_| random.of(&words)).collect();
            for command in [FlowCommand::Add, FlowCommand::Delete] {
                if let Err(error) = Syntax::new().flow(&text, command) {
                    assert!(error.at <= text.len(), "{error}: {text}");
                }
            }
            let _ = Syntax::new().group(&text, TableCommand::Add);
            let _ = Syntax::new().meter(&text, TableCommand::Add);
            let _ = Syntax::new().flows(&text);
        }
    }
}

#[test]
fn errors_say_where() {
    let cases = [
        ("tcp,nw_srk=10.0.0.1,actions=drop", 4, "`nw_srk` is not a field, did you mean `nw_src`?"),
        ("TCP,actions=drop", 0, "`TCP` is not a field, did you mean `tcp`?"),
        ("tcp,acton=output:1", 4, "`acton` is not a field, did you mean `actions`?"),
        (
            "send_flow_rm,actions=drop",
            0,
            "`send_flow_rm` is not a field, did you mean `send_flow_rem`?",
        ),
        ("check_overlap=1,actions=drop", 14, "`1` is a value, and there is none"),
        ("ip,nw_ttl=64,actions=drop", 3, "`nw_ttl` is for traces only, not a field of a flow"),
        ("group_id=7,type=all,bucket=output:1", 0, "`group_id` is of a group, not of a flow"),
        ("buffer_idd=1,actions=drop", 0, "`buffer_idd` is not a field, did you mean `buffer_id`?"),
        ("tcp,table,actions=drop", 4, "`table` has no value"),
        ("tcp,actions", 4, "`actions` has no value"),
        ("actions=set_nw_tl:1", 8, "`set_nw_tl` is not an action, did you mean `set_nw_ttl`?"),
        ("tcp,nw_src=10.0.0.300,actions=drop", 11, "`10.0.0.300` is not a value of ip_src"),
        ("tp_dst=80,actions=drop", 0, "`tp_dst` needs a protocol in the match (tcp, udp, sctp)"),
        (
            "tcp_dst=80,actions=drop",
            0,
            "tcp_dst needs eth_type and nw_proto in the match, with a value that has it",
        ),
        (
            "in_port=1,udp,tcp_dst=80,actions=drop",
            14,
            "tcp_dst needs eth_type and nw_proto in the match, with a value that has it",
        ),
        ("ip,arp,actions=drop", 3, "`arp` sets eth_type a second time"),
        ("tcp,tp_dst=70000,actions=drop", 11, "`70000` does not fit into tcp_dst"),
        ("in_port=1/1,actions=drop", 10, "`1` is a mask, and in_port takes none"),
        ("priority=66000,actions=drop", 9, "`66000` is above 65535"),
        ("in_port=1", 9, "`actions=` is missing"),
        ("actions=output:eth9", 15, "`eth9` is not a port"),
        ("actions=output:1,resubmit(,1)", 17, "`resubmit` is not an action"),
        (
            "actions=goto_table:1,output:2",
            21,
            "`output:2` is not in order (meter, actions, clear_actions, write_actions, write_metadata, goto_table), or is there already",
        ),
        ("actions=set_field:1->in_port", 21, "`in_port` cannot be set"),
        ("actions=output:1,drop", 17, "`drop` has to be the only action"),
        (
            "actions=write_actions(output:1",
            8,
            "`write_actions(output:1` has no closing parenthesis at its end",
        ),
    ];
    for (text, at, message) in cases {
        let error = Syntax::new().flow(text, FlowCommand::Add).unwrap_err();
        assert_eq!((error.at, error.message.as_str()), (at, message), "{text}");
    }
    let error =
        Syntax::new().flows("# flows\n\nactions=drop\n  ip,tos=1,actions=drop\n").unwrap_err();
    assert_eq!(error.to_string(), "line 4, column 6: `tos` is not a field");
    let names = [("wan".to_owned(), PortNo(7))];
    let syntax = Syntax::with_ports(&names);
    let flow = syntax.flow("in_port=wan,actions=wan", FlowCommand::Add).unwrap();
    assert_eq!(flow.matches, Match::new().with(Field::InPort, 7_u32));
    let cases = [
        ("actions=output:wna", 15, "`wna` is not a port, did you mean `wan`?"),
        ("actions=wna", 8, "`wna` is neither an action nor a port, did you mean `wan`?"),
        ("in_port=WAN,actions=drop", 8, "`WAN` is not a port, did you mean `wan`?"),
        ("actions=enqueue:locla:1", 16, "`locla` is not a port, did you mean `LOCAL`?"),
    ];
    for (text, at, message) in cases {
        let error = syntax.flow(text, FlowCommand::Add).unwrap_err();
        assert_eq!((error.at, error.message.as_str()), (at, message), "{text}");
    }
}

/// A modify of 1.3 has no cookie that flows get (§A.3.4.1); one of 1.0 has.
#[test]
fn cookies_of_a_modify() {
    let both = "cookie=1/1,cookie=7,actions=drop";
    for command in [FlowCommand::Modify, FlowCommand::ModifyStrict] {
        let of = |text, version| Syntax::new().for_version(version).flow(text, command);
        for text in [both, "cookie=0/1,cookie=0,actions=drop", "tcp,,,,,,,,cookie=0,actions=drop"] {
            let error = of(text, Version::V13).unwrap_err();
            assert_eq!(error.at, 11, "{error}");
            assert!(error.message.contains("is a new cookie"), "{error}");
        }
        let flow = of(both, Version::V10).unwrap();
        assert_eq!((flow.cookie, flow.cookie_mask, flow.new_cookie), (1, 1, Some(7)));
        let flow = of("cookie=0x12/-1,actions=drop", Version::V13).unwrap();
        assert_eq!((flow.cookie, flow.cookie_mask, flow.new_cookie), (0x12, u64::MAX, None));
        assert!(of("tcp,actions=drop", Version::V13).is_ok());
    }
    let of = |text: &str| Syntax::new().for_version(Version::V13).flow(text, FlowCommand::Add);
    let cookie =
        |text: &str| of(text).map(|flow| flow.cookie).map_err(|error| (error.at, error.message));
    assert_eq!(cookie("cookie=7,actions=drop"), Ok(7));
    assert_eq!(cookie("cookie=-0x5,actions=drop"), Ok(0_u64.wrapping_sub(5)));
    for text in ["--1", "-", "-x", "-0x1ffffffffffffffff"] {
        let error = (7, format!("`{text}` is not a number of 64 bits"));
        assert_eq!(cookie(&format!("cookie={text},actions=drop")), Err(error));
    }
    assert!(of("table=-1,actions=drop").is_err() && of("priority=-1,actions=drop").is_err());
}

#[test]
fn fields_have_the_names_of_ovs() {
    let cases = [
        ("tcp,actions=set_field:80->tp_dst", "tcp,actions=set_field:80->tcp_dst"),
        ("tcp6,actions=set_field:80->tp_src", "tcp6,actions=set_field:80->tcp_src"),
        ("udp,actions=set_field:53->tp_dst", "udp,actions=set_field:53->udp_dst"),
        ("sctp,actions=set_field:9->tp_src", "sctp,actions=set_field:9->sctp_src"),
        ("ip,actions=set_field:10.0.0.1->nw_src", "ip,actions=set_field:10.0.0.1->ip_src"),
        ("ip,actions=set_field:10.0.0.1->ipv4_dst", "ip,actions=set_field:10.0.0.1->ip_dst"),
        ("ip,actions=set_field:40->nw_tos", "ip,actions=set_field:10->ip_dscp"),
        ("ip,actions=set_field:1->ip_ecn", "ip,actions=set_field:1->nw_ecn"),
        ("ip,actions=set_field:9->nw_ttl", "ip,actions=mod_nw_ttl:9"),
        ("mpls,actions=set_field:9->mpls_ttl", "mpls,actions=set_mpls_ttl:9"),
        ("icmp,actions=set_field:8->icmpv4_type", "icmp,actions=set_field:8->icmp_type"),
        (
            "actions=set_field:02:00:00:00:00:01->dl_src",
            "actions=set_field:02:00:00:00:00:01->eth_src",
        ),
        ("actions=set_field:5->tunnel_id", "actions=set_field:5->tun_id"),
        ("dl_vlan=3,actions=set_field:7->dl_vlan", "dl_vlan=3,actions=set_field:4103->vlan_vid"),
        ("dl_vlan=3,actions=set_field:2->dl_vlan_pcp", "dl_vlan=3,actions=set_field:2->vlan_pcp"),
        ("arp,actions=set_field:10.0.0.1->arp_spa", "arp,actions=set_field:10.0.0.1->arp_spa"),
        (
            "icmp6,icmp_type=135,actions=set_field:fe80::1->ipv6_nd_target",
            "icmp6,icmp_type=135,actions=set_field:fe80::1->nd_target",
        ),
        ("ipv6,actions=set_field:5->ipv6_flabel", "ipv6,actions=set_field:5->ipv6_label"),
    ];
    for (text, plain) in cases {
        let read = |text| {
            Syntax::new().flow(text, FlowCommand::Add).unwrap_or_else(|e| panic!("{e}: {text}"))
        };
        assert_eq!(read(text), read(plain), "{text}");
    }
    // In a bucket the packet says which transport it is.
    let actions = Syntax::new().actions("set_field:80->tp_dst").unwrap();
    assert_eq!(actions, [Action::SetTpDst(80)]);
    let error =
        Syntax::new().flow("ip,actions=set_field:80->tp_dst", FlowCommand::Add).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1, column 26: `tp_dst` needs a protocol in the match (tcp, udp, sctp)"
    );
}

/// Of actions and instructions the first that is refused is found, wherever it is.
#[test]
fn what_is_refused_is_found() {
    let has = |flow: &openflow::FlowMod, wanted: &Action| {
        let of = |own: &Instruction| match own {
            Instruction::ApplyActions(own) | Instruction::WriteActions(own) => own.contains(wanted),
            _ => false,
        };
        flow.instructions.iter().any(of)
    };
    let cases = [
        ("actions=output:1,group:9,output:2", 17),
        ("priority=5,tcp actions=group:9", 23),
        ("actions=output:1,write_actions(output:2,group:9)", 17),
        ("modify tcp,actions=output:1,group:9", 28),
        ("actions=output:1", 0),
        ("actions=nonsense", 0),
        ("", 0),
    ];
    for (text, at) in cases {
        let refuses = |flow: &openflow::FlowMod| has(flow, &Action::Group(9));
        assert_eq!(Syntax::new().refused_at(text, FlowCommand::Add, refuses), at, "{text}");
    }
}

/// A packet to follow may have a TTL, if it is one of IP.
#[test]
fn packets_have_a_ttl() {
    let syntax = Syntax::new();
    let (matches, ttl) = syntax.packet("in_port=1,nw_ttl=64,udp").unwrap();
    assert_eq!((matches, ttl), (syntax.matches("in_port=1,udp").unwrap(), Some(64)));
    assert_eq!(syntax.packet("arp").unwrap().1, None);
    for (text, at, message) in [
        ("arp,nw_ttl=64", 4, "`nw_ttl=64` needs ip or ipv6"),
        ("ip,nw_ttl=256", 10, "`256` is above 255"),
        ("ip,nw_ttl", 3, "`nw_ttl` has no value"),
        ("ip,nw_dst=10.0.0.0/8", 3, "`nw_dst=10.0.0.0/8` has a mask, and a packet has values"),
    ] {
        let error = syntax.packet(text).unwrap_err();
        assert_eq!((error.at, error.message.as_str()), (at, message), "{text}");
    }
}

/// What ovs-ofctl prints of a message.
fn printed_by_ovs(message: &Message) -> String {
    let hex: String = encode(message).unwrap().iter().map(|b| format!("{b:02x}")).collect();
    let run = Command::new("ovs-ofctl").args(["ofp-print", &hex]).output().unwrap();
    String::from_utf8(run.stdout).unwrap()
}

fn reply(reply: MultipartReply) -> Message {
    Message::new(Version::V13, 1, Body::MultipartReply { more: false, reply })
}

/// Open vSwitch has no fields and actions of PBB, no operation of ARP above 255 and no port above 0xfeff.
fn is_known_to_ovs(flow: &FlowStats) -> bool {
    let unknown = [Field::PbbIsid, Field::InPhyPort, Field::Ipv6Exthdr];
    let settable = |f: &Field| !unknown.contains(f);
    let known = |actions: &[Action]| {
        actions.iter().all(|action| match action {
            Action::PushPbb(_) | Action::PopPbb | Action::CopyTtlIn | Action::CopyTtlOut => false,
            Action::SetField(Field::VlanVid, value) => value & 0x1000 != 0,
            Action::SetField(Field::ArpOp, value) => *value <= 0xff,
            // Fields that say what the packet is are not set there.
            Action::SetField(Field::EthType | Field::IpProto | Field::MplsBos, _) => false,
            Action::SetField(field, _) => settable(field),
            Action::PushVlan(ethertype) => *ethertype == 0x8100,
            Action::Output { port, .. } => {
                *port != PortNo::ANY && (port.0 <= 0xfeff || port.name().is_some())
            }
            _ => true,
        })
    };
    flow.matches.fields().iter().all(|f| settable(&f.field))
        && flow.matches.get(Field::InPort).is_none_or(|f| f.value <= 0xfeff)
        // A neighbour discovery of another code than 0 is none there.
        && flow.matches.get(Field::Icmpv6Code).is_none_or(|code| {
            let nd = [Field::Ipv6NdTarget, Field::Ipv6NdSll, Field::Ipv6NdTll];
            code.value == 0 || nd.iter().all(|field| flow.matches.get(*field).is_none())
        })
        && flow.matches.get(Field::ArpOp).is_none_or(|f| f.value <= 0xff)
        && flow.instructions.iter().all(|i| match i {
            Instruction::ApplyActions(a) | Instruction::WriteActions(a) => known(a),
            _ => true,
        })
}

#[test]
fn ovs_prints_the_same() {
    if !ofctl::is_there() {
        return;
    }
    for seed in seeds().take(25) {
        let mut random = Random(seed);
        let all = std::iter::repeat_with(|| flow(&mut random));
        let flows: Vec<FlowStats> = all.filter(is_known_to_ovs).take(40).collect();
        let theirs = printed_by_ovs(&reply(MultipartReply::Flow(flows.clone())));
        let lines: Vec<&str> = theirs.lines().skip(1).map(str::trim).collect();
        // What it does not know ends its text.
        if let Some(at) = lines.iter().position(|line| line.starts_with("***")) {
            let flow = FlowText { flow: &flows[at], with_stats: true };
            panic!("seed {seed}: {}: {flow}", lines[at]);
        }
        assert_eq!(lines.len(), flows.len(), "seed {seed}");
        for (flow, theirs) in flows.iter().zip(lines) {
            let ours = FlowText { flow, with_stats: true }.to_string();
            assert_eq!(ours, theirs, "seed {seed}");
        }
    }
}

/// Errors have the names that Open vSwitch has for their bytes, in both versions.
#[test]
fn ovs_names_errors_alike() {
    if !ofctl::is_there() {
        return;
    }
    // What the specification calls otherwise, and an error of 1.3.5 that Open vSwitch has from 1.4 on.
    let others = ["VENDOR", "SUBTYPE", "BAD_STAT", "IS_SLAVE", "OFPTFFC", "DUP_INST"];
    let (mut compared, mut wrong) = (0, Vec::new());
    for version in [Version::V10, Version::V13] {
        for code in ErrorCode::ALL {
            let error =
                ErrorMessage { code: *code, data: vec![version.wire(), 0, 0, 8, 0, 0, 0, 9] };
            let message = Message::new(version, 1, Body::Error(error));
            let read = decode(&encode(&message).unwrap());
            if read != Ok(message.clone()) || others.iter().any(|o| code.name().contains(o)) {
                continue; // 1.0 has the nearest one
            }
            let theirs = printed_by_ovs(&message);
            let first = theirs.lines().next().unwrap_or_default();
            if !first.contains(code.name()) {
                wrong.push(format!("{version}: {code}: {first}"));
            }
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 150, "{compared}");
}

/// ovs-ofctl reads what is printed here, and sends flows that are the same; both read its own forms alike.
#[test]
fn ovs_reads_the_same() {
    if !ofctl::is_there() {
        return;
    }
    let forms = include_str!("flows.txt");
    let ours = Syntax::new().flows(forms).unwrap();
    let theirs = ofctl::add_flows(forms);
    for (n, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(&in_13(&ours.to_flow()), theirs, "flow {n} of flows.txt");
    }
    assert_eq!(ours.len(), theirs.len());
    for seed in seeds().take(25) {
        let mut random = Random(seed);
        // Only actions that are consistent with every match; that is checked before they are sent.
        let consistent = |flow: &FlowStats| {
            // It prints masks of IPv6 addresses that it cannot read.
            let is_masked = |f: &openflow::FieldMatch| f.field.bits() == 128 && !f.is_exact();
            is_known_to_ovs(flow)
                && !flow.matches.fields().iter().any(is_masked)
                && flow.instructions.iter().all(|i| match i {
                    Instruction::WriteActions(a) if a.is_empty() => false,
                    Instruction::ApplyActions(a) | Instruction::WriteActions(a) => {
                        a.iter().all(|a| match a {
                            Action::SetField(field, _) => {
                                field.needs().is_empty() && *field != Field::VlanVid
                            }
                            Action::Output { port, .. } => port.0 <= 0xfeff && port.0 > 0,
                            Action::SetQueue(_) => true,
                            Action::Group(group) => *group <= openflow::group::GROUP_MAX,
                            _ => false,
                        })
                    }
                    Instruction::GotoTable(table) => *table > flow.table && *table < 255,
                    Instruction::Meter(meter) => *meter > 0 && *meter <= openflow::group::METER_MAX,
                    _ => true,
                })
        };
        let all = std::iter::repeat_with(|| {
            let mut flow = flow(&mut random);
            flow.table %= crate::plain::TABLES;
            // By chance two may overlap, and the second is then refused.
            flow.flags = flow.flags.without(openflow::FlowFlags::CHECK_OVERLAP);
            flow
        });
        // One with the table, priority and match of an earlier one would take its place.
        let mut seen = std::collections::HashSet::new();
        let is_new = |flow: &FlowStats| {
            seen.insert(format!("{} {} {:?}", flow.table, flow.priority, in_13(flow).matches))
        };
        let flows: Vec<FlowStats> = all.filter(consistent).filter(is_new).take(60).collect();
        let text: String = flows
            .iter()
            .map(|flow| format!("{}\n", FlowText { flow, with_stats: false }))
            .collect();
        let theirs = ofctl::add_flows(&text);
        assert_eq!(theirs.len(), flows.len(), "seed {seed}");
        for (flow, theirs) in flows.iter().zip(&theirs) {
            let expected =
                FlowStats { duration: Default::default(), packets: 0, bytes: 0, ..in_13(flow) };
            assert_eq!(&expected, theirs, "seed {seed}");
        }
    }
}

/// The flow as 1.3 carries it.
fn in_13(flow: &FlowStats) -> FlowStats {
    let bytes = encode(&reply(MultipartReply::Flow(vec![flow.clone()]))).unwrap();
    match openflow::decode(&bytes).unwrap().body {
        Body::MultipartReply { reply: MultipartReply::Flow(mut flows), .. } => flows.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_and_meters() {
    let texts = [
        "group_id=1,type=all,bucket=actions=output:1,output:2,bucket=actions=drop",
        "group_id=2,type=select,bucket=weight:10,actions=output:1,bucket=weight:0,actions=set_field:02:00:00:00:00:01->eth_dst,output:2",
        "group_id=3,type=indirect,bucket=actions=group:2",
        "group_id=4,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:2,actions=output:2",
    ];
    for text in texts {
        let group = Syntax::new().group(text, TableCommand::Add).unwrap();
        let desc =
            GroupDesc { kind: group.kind, group: group.group, buckets: group.buckets.clone() };
        let ours = GroupText(&desc).to_string();
        assert_eq!(Syntax::new().group(&ours, TableCommand::Add), Ok(group), "{ours}");
        if ofctl::is_there() {
            let theirs = printed_by_ovs(&reply(MultipartReply::GroupDesc(vec![desc])));
            assert_eq!(theirs.lines().nth(1).unwrap().trim(), ours);
        }
    }
    let short = Syntax::new()
        .group("group_id=7,type=select,bucket=output:1,bucket=weight:3,2", TableCommand::Add);
    let weights: Vec<u16> = short.unwrap().buckets.iter().map(|b| b.weight).collect();
    assert_eq!(weights, [1, 3]);
    let all = Syntax::new().group("", TableCommand::Delete).unwrap();
    assert_eq!(all.group, openflow::group::ALL_GROUPS);
    let wrong = [
        ("type=all", 0, "there is no `group_id=`"),
        (
            "group_id=1,type=any",
            16,
            "`any` is not a type of groups (all, select, indirect, fast_failover)",
        ),
        ("group_id=1,type=ff,bucket=output:1", 26, "`output:1` watches neither a port nor a group"),
        (
            "group_id=1,type=all,bucket=outptu:1",
            27,
            "`outptu` is not an action, did you mean `output`?",
        ),
    ];
    for (text, at, message) in wrong {
        let error = Syntax::new().group(text, TableCommand::Add).unwrap_err();
        assert_eq!((error.at, error.message.as_str()), (at, message));
    }

    let texts = [
        "meter=1 kbps burst stats bands=type=drop rate=1000 burst_size=100",
        "meter=2 pktps bands=type=dscp_remark rate=10 prec_level=1 type=drop rate=20",
        "meter=controller kbps bands=",
    ];
    for text in texts {
        let meter = Syntax::new().meter(text, TableCommand::Add).unwrap();
        let config = MeterConfig { flags: meter.flags, meter: meter.meter, bands: meter.bands };
        assert_eq!(MeterText(&config).to_string(), text);
        if ofctl::is_there() {
            let theirs = printed_by_ovs(&reply(MultipartReply::MeterConfig(vec![config])));
            let joined: Vec<&str> = theirs.lines().skip(1).map(str::trim).collect();
            let joined = joined.join(" ").replace("bands= type", "bands=type");
            assert_eq!(joined.trim(), text);
        }
    }
    let commas = "meter=3,pktps,burst,bands=type=drop,rate=5,burst_size=2";
    let meter = Syntax::new().meter(commas, TableCommand::Add).unwrap();
    assert_eq!((meter.bands.len(), meter.bands[0].rate, meter.bands[0].burst), (1, 5, 2));
    let wrong = [
        ("meter=1,kbps,pktps", 0, "a meter has one of `kbps` and `pktps`"),
        ("meter=1,rate=5", 8, "`rate=5` is not in a band (bands=type=)"),
        ("meter=0x1ffffffff", 6, "`0x1ffffffff` is above 4294901760"),
    ];
    for (text, at, message) in wrong {
        let error = Syntax::new().meter(text, TableCommand::Add).unwrap_err();
        assert_eq!((error.at, error.message.as_str()), (at, message));
    }
}
