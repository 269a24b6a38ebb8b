//! From rules to a ruleset: the order of evaluation, parts and their literals, indexes.

use std::sync::atomic::{AtomicU64, Ordering};

use applayer::AnomalyKind;
use signatures::config::{Limit, LimitKind};
use signatures::{
    Action, AddressItem, Buffer, Check, Compare, Condition, FlowSide, Flowbits, FlowintOperation,
    FlowintValue, Inspection, List, PortRange, Protocol, ResolveError, Rule, RuleSet, Tag,
    TagScope, TextOf, Transform, Variables,
};

use crate::assemble::Builder;
use crate::checks::{self, Names, Op, Test};
use crate::events::{EVENTS, STREAM_EVENTS, no_event, unseen};
use crate::literals::{Candidates, Wanted};
use crate::reputation::Asked;
use crate::rule::{
    BitOf, Carried, Compiled, Cond, CounterOperation, Ends, Event, Kind, Operand, PortRanges, Post,
    Registry,
};
use crate::ruleset::{ActionKind, Options, Refused, Ruleset};
use crate::tables::{Counted, How};
use crate::transform;

/// Parts of a rule at most: each is a bit.
const PARTS_MAX: usize = 32;

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// A rule on its way.
pub(crate) struct Draft<'a> {
    pub(crate) index: usize,
    pub(crate) rule: &'a Rule,
    pub(crate) compiled: Compiled,
    pub(crate) parts: Vec<DraftPart>,
    pub(crate) order: (usize, u8, u8, u8, u8, usize),
}

pub(crate) struct DraftPart {
    pub(crate) buffer: Buffer,
    pub(crate) transforms: Vec<Transform>,
    pub(crate) ops: Vec<Op>,
    pub(crate) texts: Vec<Box<str>>,
    /// What may be looked for first.
    pub(crate) candidates: Candidates,
    /// It holds of a buffer that is not there.
    pub(crate) absent: bool,
    pub(crate) senders: [bool; 2],
}

pub(crate) fn compile(
    set: &RuleSet,
    variables: &Variables,
    options: &Options,
    mut registry: Registry,
) -> (Ruleset, Vec<Refused>) {
    let mut refused = Vec::new();
    let mut drafts = Vec::with_capacity(set.rules.len());
    for (index, loaded) in set.rules.iter().enumerate() {
        let compiled = match options.datasets.wrong(index) {
            Some(reason) => Err(reason.to_owned()),
            None => draft(index, &loaded.rule, variables, options, &mut registry),
        };
        match compiled {
            Ok(draft) => drafts.push(draft),
            Err(reason) => refused.push(Refused { index, sid: loaded.rule.sid, reason }),
        }
    }
    drafts.sort_by_key(|draft| draft.order);
    let mut wanted = Wanted::new();
    let parts = drafts.iter().flat_map(|draft| &draft.parts);
    parts.for_each(|part| part.candidates.count(&mut wanted));
    let mut builder = Builder::default();
    for draft in drafts {
        let (index, sid) = (draft.index, draft.rule.sid);
        if let Err(reason) = builder.add(draft, options, &wanted) {
            refused.push(Refused { index, sid, reason });
        }
    }
    refused.sort_by_key(|refused| refused.index);
    let mut ruleset = builder.build(options.search);
    ruleset.registry = registry;
    ruleset.generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
    ruleset.midstream = options.midstream;
    let conditions = |rule: &crate::rule::Compiled| {
        rule.conditions.iter().any(|own| matches!(own, crate::rule::Cond::StreamSize(..)))
    };
    let of_host = |tag: &Tag| tag.scope != TagScope::Session;
    ruleset.tags_hosts = ruleset.info.iter().any(|rule| rule.tags.iter().any(of_host));
    ruleset.asks_for_sizes = ruleset.rules.iter().any(conditions);
    (ruleset, refused)
}

fn kind_of(action: Action) -> ActionKind {
    match action {
        Action::Pass => ActionKind::Pass,
        Action::Drop | Action::SilentDrop => ActionKind::Drop,
        Action::RejectSource | Action::RejectDestination | Action::RejectBoth => ActionKind::Reject,
        Action::Alert | Action::Log => ActionKind::Alert,
    }
}

/// What of a packet a condition is on, so that packets are inspected and not streams.
fn needs_packet(condition: &Condition) -> bool {
    use Condition::*;
    matches!(
        condition,
        Dsize(_)
            | Flags(_)
            | Seq(_)
            | Ack(_)
            | Window(_)
            | Mss(_)
            | Ttl(_)
            | Id(_)
            | Fragbits(_)
            | FragOffset(_)
            | Ipopts(_)
            | Itype(_)
            | Icode(_)
            | IcmpId(_)
            | IcmpSeq(_)
            | Tos(_)
    )
}

pub(crate) fn is_header_buffer(buffer: Buffer) -> bool {
    use Buffer::*;
    matches!(
        buffer,
        IpSource
            | IpDestination
            | Ipv4Header
            | Ipv6Header
            | TcpHeader
            | UdpHeader
            | Icmpv4Header
            | Icmpv6Header
    )
}

/// The name under which a buffer is given.
pub(crate) fn canonical(buffer: Buffer) -> Buffer {
    match buffer {
        Buffer::DnsQuery => Buffer::DnsQueryName,
        buffer => buffer,
    }
}

fn carried(protocol: Protocol) -> Result<(Carried, bool), String> {
    Ok(match protocol {
        Protocol::Ip | Protocol::Packet => (Carried::Any, false),
        Protocol::Ipv4 => (Carried::Ipv4, false),
        Protocol::Ipv6 => (Carried::Ipv6, false),
        Protocol::Tcp | Protocol::TcpStream => (Carried::Upper(6), false),
        Protocol::TcpPacket => (Carried::Upper(6), true),
        Protocol::Udp => (Carried::Upper(17), false),
        Protocol::Icmp => (Carried::Icmp, false),
        Protocol::Icmpv4 => (Carried::Upper(1), false),
        Protocol::Icmpv6 => (Carried::Upper(58), false),
        Protocol::Sctp => (Carried::Upper(132), false),
        Protocol::Ether | Protocol::Arp => return Err(format!("protocol {}", protocol.name())),
        application => (Carried::Application(application.name()), false),
    })
}

/// Whether a buffer is one of applications that a flow of this one cannot be.
fn of_others(application: &str, buffer: &str) -> bool {
    let of: &[&str] = match buffer.split_once('.').map_or(buffer, |(first, _)| first) {
        "http" => &["http", "http1", "http2", "doh2"],
        "dns" => &["dns", "doh2"],
        "tls" => &["tls"],
        "ja3" | "ja3s" | "ja4" => &["tls", "quic"],
        "ssh" => &["ssh"],
        "smtp" | "email" => &["smtp"],
        "ftp" => &["ftp", "ftp-data"],
        _ => return false,
    };
    !of.contains(&application)
}

fn any_address(
    list: &List<AddressItem>,
    variables: &Variables,
) -> Result<Option<Box<signatures::Intervals>>, ResolveError> {
    if *list == List::Any {
        return Ok(None);
    }
    let addresses = list.resolve(variables)?;
    let is_all = addresses.low().next() == Some((0, u32::MAX))
        && addresses.ipv6().next() == Some((0, u128::MAX));
    Ok((!is_all).then(|| Box::new(addresses)))
}

fn any_port(list: &List<PortRange>, variables: &Variables) -> Result<PortRanges, ResolveError> {
    if *list == List::Any {
        return Ok(None);
    }
    let ports = list.resolve(variables)?;
    let ranges = ports.low().map(|(first, last)| (first as u16, last as u16));
    let ranges: Box<[(u16, u16)]> = ranges.collect();
    Ok((*ranges != [(0, u16::MAX)]).then_some(ranges))
}

fn draft<'a>(
    index: usize,
    rule: &'a Rule,
    variables: &Variables,
    options: &Options,
    registry: &mut Registry,
) -> Result<Draft<'a>, String> {
    let (carried, is_packet) = carried(rule.protocol)?;
    let resolve = |error: ResolveError| error.to_string();
    let ends = Ends {
        source: any_address(&rule.source, variables).map_err(resolve)?,
        destination: any_address(&rule.destination, variables).map_err(resolve)?,
        source_ports: any_port(&rule.source_ports, variables).map_err(resolve)?,
        destination_ports: any_port(&rule.destination_ports, variables).map_err(resolve)?,
        both: rule.direction == signatures::Direction::Both,
    };
    let mut side = None;
    let mut no_stream = None;
    let (mut event, mut is_of_stream) = (None, false);
    let (mut conditions, mut posts) = (Vec::new(), Vec::new());
    let mut parts: Vec<DraftPart> = Vec::new();
    for inspection in &rule.inspections {
        let name = inspection.buffer.name();
        if let Carried::Application(own) = &carried
            && of_others(own, name)
        {
            return Err(format!("flows of {own} have no {name}"));
        }
        match inspection.buffer {
            Buffer::Base64Data => decoded(inspection, &mut parts, options)?,
            _ => parts.push(part(inspection, options)?),
        }
    }
    // Which kinds of memory are read and written: rules that write come first.
    let mut bits = (false, false);
    let mut counters = (false, false);
    let mut hosts = (false, false);
    let mut texts: Vec<Box<str>> = Vec::new();
    let mut last: Option<&Condition> = None;
    for condition in &rule.conditions {
        // What the one before became.
        texts.resize_with(conditions.len(), || {
            last.map(ToString::to_string).unwrap_or_default().into()
        });
        last = Some(condition);
        match condition {
            Condition::Flow(flow) => {
                side = flow.to.or(side);
                no_stream = flow.stream.or(no_stream);
                conditions.push(Cond::Flow(*flow));
            }
            Condition::Flowbits(own) => {
                let mut ids = |names: &[String]| -> Box<[u32]> {
                    names.iter().map(|name| registry.number('b', name)).collect()
                };
                use signatures::BitOperation::{Set, Toggle, Unset};
                let (ids, operation) = match own {
                    Flowbits::IsSet(names) | Flowbits::IsNotSet(names) => {
                        bits.0 = true;
                        let set = matches!(own, Flowbits::IsSet(_));
                        conditions.push(Cond::Bits { ids: ids(names), set });
                        continue;
                    }
                    Flowbits::Set(names) => (ids(names), Set),
                    Flowbits::Unset(names) => (ids(names), Unset),
                    Flowbits::Toggle(names) => (ids(names), Toggle),
                };
                bits.1 = true;
                posts.push(Post::Bits { ids, operation });
            }
            Condition::Flowint(own) => {
                let id = registry.number('i', &own.name);
                let mut operand = |value: &FlowintValue| match value {
                    FlowintValue::Number(number) => Operand::Number(*number),
                    FlowintValue::Name(name) => Operand::Counter(registry.number('i', name)),
                };
                let (operation, operand) = match &own.operation {
                    FlowintOperation::Compare(relation, value) => {
                        counters.0 = true;
                        let (relation, operand) = (*relation, operand(value));
                        conditions.push(Cond::Counter { id, relation, operand });
                        continue;
                    }
                    FlowintOperation::IsSet | FlowintOperation::IsNotSet => {
                        counters.0 = true;
                        let set = own.operation == FlowintOperation::IsSet;
                        conditions.push(Cond::CounterIs { id, set });
                        continue;
                    }
                    FlowintOperation::Set(value) => (CounterOperation::Set, operand(value)),
                    FlowintOperation::Add(value) => (CounterOperation::Add, operand(value)),
                    FlowintOperation::Subtract(value) => {
                        (CounterOperation::Subtract, operand(value))
                    }
                };
                counters.1 = true;
                posts.push(Post::Counter { id, operation, operand });
            }
            Condition::Xbits(own) => {
                if own.track == signatures::XbitsTrack::Transaction {
                    return Err("xbits of transactions".to_owned());
                }
                let id = registry.number('x', &own.name);
                let (of, expire_s) = (BitOf::from(own.track), own.expire_s.unwrap_or(30));
                host_bit(own.operation, id, of, expire_s, &mut hosts, &mut conditions, &mut posts);
            }
            Condition::Hostbits(own) => {
                let id = registry.number('h', &own.name);
                let of = BitOf::from(own.side);
                host_bit(own.operation, id, of, 300, &mut hosts, &mut conditions, &mut posts);
            }
            Condition::StreamSize(side, size) => conditions.push(Cond::StreamSize(*side, *size)),
            Condition::AppProtocol { negated, name, mode } => conditions.push(Cond::Application {
                negated: *negated,
                name: name.clone(),
                mode: *mode,
            }),
            Condition::Iprep { side, category, value } => {
                let table = options.reputation.clone();
                let number = table.category(category);
                let category = number.ok_or_else(|| format!("iprep: no category {category}"))?;
                let asked = Asked { side: *side, category, value: *value, table };
                conditions.push(Cond::Reputation(Box::new(asked)));
            }
            Condition::Urilen { size, raw } => {
                let buffer = if *raw { Buffer::HttpUriRaw } else { Buffer::HttpUri };
                size_of(buffer, Op::Bsize(*size), condition.to_string().into(), &mut parts);
            }
            Condition::Text { of, negated, text } => {
                let inspection = text_of(*of, *negated, text)?;
                parts.push(part(&inspection, options)?);
            }
            Condition::FileStore(_) => {}
            Condition::DecodeEvent(name) | Condition::StreamEvent(name) => {
                is_of_stream = matches!(condition, Condition::StreamEvent(_));
                let all = if is_of_stream { STREAM_EVENTS } else { EVENTS };
                let known = all.binary_search(&name.as_str()).map(|at| all[at]);
                let known = known.map_err(|_| format!("{condition}: {}", unseen(all, name)))?;
                if event.replace(Event::Named(known)).is_some() {
                    return Err("several events".to_owned());
                }
            }
            Condition::AppEvent(name) => {
                let known = AnomalyKind::from_event(name);
                let known = known.ok_or_else(|| format!("{condition}: {}", no_event(name)))?;
                if event.replace(Event::Application(known)).is_some() {
                    return Err("several events".to_owned());
                }
            }
            condition if needs_packet(condition) => {
                conditions.push(Cond::Packet(condition.clone()))
            }
            Condition::IpProto(_) | Condition::SameIp => {
                conditions.push(Cond::Packet(condition.clone()));
            }
            other => {
                let number = number_of(other);
                let number = number.ok_or_else(|| format!("option {}", keyword_of(other)))?;
                let (buffer, test) = number;
                size_of(buffer, Op::Number(test), other.to_string().into(), &mut parts);
            }
        }
    }
    texts
        .resize_with(conditions.len(), || last.map(ToString::to_string).unwrap_or_default().into());
    if parts.len() > PARTS_MAX {
        return Err(format!("more than {PARTS_MAX} buffers"));
    }
    for part in &mut parts {
        let rule_side = match side {
            None => [true; 2],
            Some(FlowSide::Server) => [true, false],
            Some(FlowSide::Client) => [false, true],
        };
        let own = if part.buffer == Buffer::DnsQueryName && is_dns_query(rule) {
            Some(FlowSide::Server)
        } else {
            part.buffer.side()
        };
        let own = match own {
            None => [true; 2],
            Some(FlowSide::Server) => [true, false],
            Some(FlowSide::Client) => [false, true],
        };
        part.senders = [rule_side[0] && own[0], rule_side[1] && own[1]];
        if part.senders == [false; 2] {
            return Err(format!("{} is of the other direction", part.buffer.name()));
        }
    }
    // As in Suricata, a buffer that one side alone has gives the rule its direction.
    let of_one = |side: usize| parts.iter().any(|own| own.senders[side] && !own.senders[1 - side]);
    if let (true, false) | (false, true) = (of_one(0), of_one(1)) {
        let senders = [of_one(0), of_one(1)];
        parts.iter_mut().for_each(|part| part.senders = senders);
    }
    let is_of_side = parts.iter().all(|part| part.senders == parts[0].senders);
    let mask = |test: &dyn Fn(Buffer) -> bool| {
        let bits = parts.iter().enumerate().filter(|(_, part)| test(part.buffer));
        bits.fold(0, |mask, (at, _)| mask | 1 << at)
    };
    let payload = mask(&|buffer| buffer == Buffer::Payload);
    let headers = mask(&is_header_buffer);
    let buffers = mask(&|buffer| buffer != Buffer::Payload && !is_header_buffer(buffer));
    if buffers != 0 && headers != 0 {
        return Err("buffers of packets and of applications".to_owned());
    }
    let is_tcp = match carried {
        Carried::Any | Carried::Ipv4 | Carried::Ipv6 | Carried::Application(_) => true,
        Carried::Upper(upper) => upper == 6,
        Carried::Icmp => false,
    };
    let needs = is_packet
        || headers != 0
        || no_stream == Some(false)
        || conditions.iter().any(|c| matches!(c, Cond::Packet(c) if needs_packet(c)));
    let is_at_place = |check: &Check| match check {
        Check::Content(own) => own.offset.is_some() || own.depth.is_some() || own.startswith,
        _ => false,
    };
    let of_payload = rule.inspections.iter().filter(|own| own.buffer == Buffer::Payload);
    let in_packets = !needs
        && no_stream != Some(true)
        && rule.protocol != Protocol::TcpStream
        && of_payload.flat_map(|own| &own.checks).any(is_at_place);
    let is_of_application =
        matches!(carried, Carried::Application(_)) && parts.is_empty() && !needs;
    // As in Suricata, rules that ask for nothing but the detected protocol are tried once it is known.
    let is_named = |cond: &Cond| matches!(cond, Cond::Application { .. });
    let is_side = |cond: &Cond| match cond {
        Cond::Flow(flow) => (flow.state, flow.stream, flow.fragments) == (None, None, None),
        _ => false,
    };
    let sets_bits =
        |post: &Post| matches!(post, Post::Bits { operation: signatures::BitOperation::Set, .. });
    let is_of_detection = parts.is_empty()
        && !matches!(carried, Carried::Application(_))
        && conditions.iter().any(is_named)
        && conditions.iter().all(|cond| is_named(cond) || is_side(cond))
        && posts.iter().all(sets_bits);
    let is_plain = |cond: &Cond| match cond {
        Cond::Packet(own) => matches!(own, Condition::IpProto(_) | Condition::SameIp),
        Cond::Reputation(_) => true,
        _ => false,
    };
    let writes = |post: &Post| {
        matches!(post, Post::Bits { operation: signatures::BitOperation::Set, .. })
            || matches!(post, Post::HostBit { .. })
    };
    let is_addresses = (buffers | payload) == 0
        && !matches!(carried, Carried::Application(_))
        && parts.is_empty()
        && conditions.iter().all(is_plain)
        && posts.iter().all(writes);
    let is_of_packet = matches!(event, Some(Event::Named(_))) && !is_of_stream;
    if event.is_some() && !(parts.is_empty() && !(is_of_packet && side.is_some())) {
        let rest = if is_of_packet { "buffers or a direction" } else { "buffers" };
        let name = match event {
            Some(Event::Application(_)) => "app-layer-event",
            _ if is_of_stream => "stream-event",
            _ => "decode-event",
        };
        return Err(format!("{name} with {rest}"));
    }
    let kind = if event.is_some() {
        Kind::Event
    } else if buffers != 0 {
        Kind::Transaction
    } else if payload != 0 {
        if is_tcp && !needs { Kind::Stream } else { Kind::Packet }
    } else if is_of_detection {
        Kind::Application
    } else if is_addresses && !has_negation(&rule.source) && !has_negation(&rule.destination) {
        Kind::Addresses
    } else {
        Kind::Packet
    };
    if no_stream == Some(true) && kind == Kind::Packet && payload != 0 {
        return Err("flow: only_stream with options of packets".to_owned());
    }
    let rank = |(reads, writes): (bool, bool)| match (reads, writes) {
        (false, true) => 0,
        (true, true) => 1,
        (true, false) => 2,
        (false, false) => 3,
    };
    let action = options.action_order.iter().position(|kind| *kind == kind_of(rule.action));
    let order = (
        action.unwrap_or(usize::MAX),
        rank(bits),
        rank(counters),
        rank(hosts),
        priority(rule, options),
        index,
    );
    let compiled = Compiled {
        kind,
        is_of_flow: is_addresses || is_of_application || kind == Kind::Application,
        carried,
        ends,
        conditions: conditions.into(),
        header: rule.to_string().split(" (").next().unwrap_or_default().into(),
        texts: texts.into(),
        posts: posts.into(),
        parts: Box::default(),
        key: 0,
        is_of_side,
        payload,
        buffers,
        headers,
        needs_packet: needs,
        in_packets,
        event,
        noalert: rule.noalert,
        counted: counters_of(rule, options, variables, registry)?.into(),
    };
    Ok(Draft { index, rule, compiled, parts, order })
}

fn is_dns_query(rule: &Rule) -> bool {
    rule.inspections.iter().any(|inspection| inspection.buffer == Buffer::DnsQuery)
}

fn has_negation(list: &List<AddressItem>) -> bool {
    match list {
        List::Not(_) => true,
        List::Several(members) => members.iter().any(has_negation),
        _ => false,
    }
}

/// The keyword of a condition.
fn keyword_of(condition: &Condition) -> String {
    let mut text = condition.to_string();
    text.truncate(text.find(':').unwrap_or(text.len()));
    text
}

fn host_bit(
    operation: signatures::BitOperation,
    id: u32,
    of: BitOf,
    expire_s: u32,
    used: &mut (bool, bool),
    conditions: &mut Vec<Cond>,
    posts: &mut Vec<Post>,
) {
    use signatures::BitOperation::{IsNotSet, IsSet};
    match operation {
        IsSet | IsNotSet => {
            used.0 = true;
            conditions.push(Cond::HostBit { id, of, set: operation == IsSet });
        }
        operation => {
            used.1 = true;
            posts.push(Post::HostBit { id, of, operation, expire_s });
        }
    }
}

/// What a condition on a number asks for, and of which.
fn number_of(condition: &Condition) -> Option<(Buffer, Test)> {
    let (buffer, compare) = match condition {
        Condition::FileSize(own) => (Buffer::FileSize, *own),
        Condition::DnsOpcode(own) => (Buffer::DnsOpcode, *own),
        Condition::DnsRcode(own) => (Buffer::DnsRcode, *own),
        Condition::DnsRrtype(own) => (Buffer::DnsRrtype, *own),
        Condition::TlsChainLength(own) => (Buffer::TlsChainLength, *own),
        Condition::TlsVersion { negated, versions } => {
            let (negated, numbers) = (*negated, versions.as_slice().into());
            return Some((Buffer::TlsVersion, Test::OneOf { negated, numbers }));
        }
        _ => return None,
    };
    Some((buffer, Test::Compare(compare)))
}

/// The length of a buffer, or what it is as a number, as one more check of it.
fn size_of(buffer: Buffer, op: Op, text: Box<str>, parts: &mut Vec<DraftPart>) {
    let own = parts.iter_mut().find(|part| part.buffer == buffer && part.transforms.is_empty());
    match own {
        Some(part) => {
            part.ops.insert(0, op);
            part.texts.insert(0, text);
            part.absent = false;
        }
        None => parts.push(DraftPart {
            buffer,
            transforms: Vec::new(),
            ops: vec![op],
            texts: vec![text],
            candidates: Candidates::default(),
            absent: false,
            senders: [true; 2],
        }),
    }
}

/// An older option that looks for a text is an inspection.
fn text_of(of: TextOf, negated: bool, text: &str) -> Result<Inspection, String> {
    let content =
        signatures::Content { negated, bytes: text.as_bytes().to_vec(), ..Default::default() };
    let (buffer, content) = match of {
        TextOf::TlsSubject => (Buffer::TlsCertSubject, content),
        TextOf::TlsIssuer => (Buffer::TlsCertIssuer, content),
        TextOf::TlsFingerprint => (Buffer::TlsCertFingerprint, content),
        TextOf::FileName => (Buffer::FileName, signatures::Content { nocase: true, ..content }),
        TextOf::FileExtension => {
            let bytes = [b".", text.as_bytes()].concat();
            let content = signatures::Content { bytes, nocase: true, endswith: true, ..content };
            (Buffer::FileName, content)
        }
        TextOf::SshProtoVersion => return Err("ssh.protoversion".to_owned()),
        TextOf::SshSoftwareVersion => (Buffer::SshSoftware, content),
        TextOf::FileMagic => return Err("filemagic".to_owned()),
    };
    Ok(Inspection { buffer, transforms: Vec::new(), checks: vec![Check::Content(content)] })
}

fn part(inspection: &Inspection, options: &Options) -> Result<DraftPart, String> {
    let buffer = canonical(inspection.buffer);
    match buffer {
        Buffer::FileMagic => return Err("file.magic".to_owned()),
        Buffer::DnsResponseRrname => return Err("dns.response.rrname".to_owned()),
        _ => {}
    }
    inspection.transforms.iter().try_for_each(transform::check)?;
    // A number that is read in another buffer is none of this one.
    let mut names = Names::default();
    let mut ops =
        checks::compile(&inspection.checks, &mut names, &options.patterns, &options.datasets)?;
    let absent = inspection.checks.iter().find_map(|check| match check {
        Check::Absent { or_else } => Some(*or_else),
        _ => None,
    });
    if absent == Some(false) && !ops.is_empty() {
        return Err("absent with other checks".to_owned());
    }
    let candidates = match absent {
        // One that holds of a buffer that is not there, or only of that, has nothing in it for certain.
        Some(false) => Candidates::default(),
        _ => Candidates::new(inspection, &ops),
    };
    let is_check = |check: &&Check| !matches!(check, Check::Absent { .. }) || absent == Some(false);
    let texts = inspection.checks.iter().filter(is_check).map(|check| check.to_string().into());
    let mut texts: Vec<Box<str>> = texts.collect();
    // A set is looked up last, and written only if all other checks hold.
    if absent != Some(false) && ops.iter().any(|op| matches!(op, Op::Dataset { .. })) {
        let mut both: Vec<(Op, Box<str>)> = ops.into_iter().zip(texts).collect();
        both.sort_by_key(|(op, _)| (matches!(op, Op::Dataset { .. }), op.writes()));
        (ops, texts) = both.into_iter().unzip();
    }
    Ok(DraftPart {
        buffer,
        texts,
        transforms: inspection.transforms.clone(),
        // A buffer that must not be there holds of none: a check that nothing fulfils.
        ops: if absent == Some(false) { vec![Op::Bsize(Compare::Less(0))] } else { ops },
        candidates,
        absent: absent.is_some(),
        senders: [true; 2],
    })
}

/// Checks of `base64_data` are part of the last `base64_decode` before them.
fn decoded(
    inspection: &Inspection,
    parts: &mut [DraftPart],
    options: &Options,
) -> Result<(), String> {
    if !inspection.transforms.is_empty() {
        return Err("transforms of base64_data".to_owned());
    }
    let limits = (&options.patterns, &options.datasets);
    let own = checks::compile(&inspection.checks, &mut Names::default(), limits.0, limits.1)?;
    if own.iter().any(|op| matches!(op, Op::Dataset { .. })) {
        return Err("dataset of base64_data".to_owned());
    }
    let is_decode = |op: &Op| matches!(op, Op::Base64 { .. });
    for part in parts.iter_mut().rev() {
        let Some(at) = part.ops.iter().rposition(is_decode) else { continue };
        if let Op::Base64 { ops, .. } = &mut part.ops[at] {
            *ops = std::mem::take(ops).into_iter().chain(own).collect();
        }
        let texts: String = inspection.checks.iter().map(|check| format!("; {check}")).collect();
        part.texts[at] = format!("{}; base64_data{texts}", part.texts[at]).into();
        return Ok(());
    }
    Err("base64_data without base64_decode".to_owned())
}

pub(crate) fn priority(rule: &Rule, options: &Options) -> u8 {
    let class =
        rule.classtype.as_ref().and_then(|name| options.classes.get(&name.to_ascii_lowercase()));
    rule.priority.or(class.map(|class| class.priority)).unwrap_or(3)
}

/// Thresholds of the rule, and those of the file that are for it.
fn counters_of(
    rule: &Rule,
    options: &Options,
    variables: &Variables,
    registry: &mut Registry,
) -> Result<Vec<Counted>, String> {
    let mut all = Vec::new();
    if let Some(filter) = rule.detection_filter {
        all.push(How::Filter {
            track: filter.track,
            count: filter.count,
            seconds: filter.seconds,
            unique: filter.unique_on,
        });
    }
    let mut has_threshold = rule.threshold.is_some();
    if let Some(own) = rule.threshold {
        let (kind, track) = (own.kind, own.track);
        all.push(How::Threshold { kind, track, count: own.count, seconds: own.seconds });
    }
    // The narrowest first: of the rule, of its generator, of all.
    let mut limits: Vec<&Limit> = options
        .limits
        .iter()
        .filter(|l| (l.gid == 0 || l.gid == rule.gid) && (l.sid == 0 || l.sid == rule.sid))
        .collect();
    limits.sort_by_key(|limit| (limit.sid == 0, limit.gid == 0));
    let mut suppressing = Vec::new();
    for limit in limits {
        match &limit.kind {
            LimitKind::Suppress(None) => suppressing.push(How::Suppress {
                by: signatures::config::SuppressedBy::Either,
                addresses: None,
            }),
            LimitKind::Suppress(Some(own)) => {
                let addresses = own.addresses.resolve(variables).map_err(|e| e.to_string())?;
                let (by, addresses) = (own.by, Some(Box::new(addresses)));
                suppressing.push(How::Suppress { by, addresses });
            }
            LimitKind::Threshold(own) => {
                if !std::mem::replace(&mut has_threshold, true) {
                    let (kind, track) = (own.kind, own.track);
                    all.push(How::Threshold {
                        kind,
                        track,
                        count: own.count,
                        seconds: own.seconds,
                    });
                }
            }
            LimitKind::Rate { track, count, seconds, action, timeout } => all.push(How::Rate {
                track: *track,
                count: *count,
                seconds: *seconds,
                action: *action,
                timeout: *timeout,
            }),
        }
    }
    suppressing.extend(all);
    // Other rules after a reload go on with the windows of the same rule.
    let counted = suppressing.into_iter().enumerate().map(|(at, how)| {
        let name = format!("{}:{}:{at}", rule.gid, rule.sid);
        Counted { id: registry.number('t', &name), how }
    });
    Ok(counted.collect())
}
