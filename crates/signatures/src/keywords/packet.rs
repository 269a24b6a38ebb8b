//! Conditions on headers, flows and messages.

use super::arg::{Arg, Part};
use super::bytes::is_number;
use crate::list::clip;
use crate::parse::Builder;
use crate::problem::Fault;
use crate::{
    BitOperation, BitsMode, Compare, Condition, EndSide, Flow, FlowSide, FlowState, Flowbits,
    Flowint, FlowintOperation, FlowintRelation, FlowintValue, Fragbits, Hostbits, IpOption,
    IprepSide, ProtocolMode, StreamSide, TcpFlags, TextOf, Unsupported, Xbits, XbitsTrack,
};

const U8: u64 = u8::MAX as u64;
const U16: u64 = u16::MAX as u64;
const U32: u64 = u32::MAX as u64;

pub(super) fn apply(builder: &mut Builder, name: &str, arg: &Arg<'_>) -> Result<bool, Fault> {
    let condition = match name {
        "flow" => {
            let more = flow(arg)?;
            return another_flow(builder, more).map(|()| true);
        }
        // Snort's groups of flowbits.
        "flowbits" if is_group(arg)? => {
            let value = Some(String::from_utf8_lossy(arg.bytes()?).into_owned());
            builder.rule.unsupported.push(Unsupported { keyword: "flowbits", value });
            return Ok(true);
        }
        "flowbits" => {
            match flowbits(arg)? {
                Some(all) => {
                    all.into_iter().for_each(|own| builder.condition(Condition::Flowbits(own)));
                }
                None => builder.rule.noalert = true,
            }
            return Ok(true);
        }
        "xbits" => match xbits(arg)? {
            Some(xbits) => Condition::Xbits(xbits),
            None => {
                builder.rule.noalert = true;
                return Ok(true);
            }
        },
        "hostbits" => Condition::Hostbits(hostbits(arg)?),
        "flowint" => Condition::Flowint(flowint(arg)?),
        "dsize" => {
            builder.once("dsize")?;
            Condition::Dsize(arg.compare(U16)?)
        }
        "urilen" => urilen(arg)?,
        "flags" | "tcp.flags" => Condition::Flags(tcp_flags(arg)?),
        "seq" | "tcp.seq" => Condition::Seq(arg.number(U32)? as u32),
        "ack" | "tcp.ack" => Condition::Ack(arg.number(U32)? as u32),
        "window" | "tcp.window" => Condition::Window(arg.negatable(U16)?),
        "tcp.mss" => Condition::Mss(arg.compare(U16)?),
        "ttl" => Condition::Ttl(arg.compare(U8)?),
        "id" => Condition::Id(arg.number(U16)? as u16),
        "fragbits" => Condition::Fragbits(fragbits(arg)?),
        "fragoffset" => Condition::FragOffset(arg.compare(U16)?),
        "ipopts" => Condition::Ipopts(ip_option(arg)?),
        "itype" => Condition::Itype(arg.compare(U8)?),
        "icode" => Condition::Icode(arg.compare(U8)?),
        "icmp_id" => Condition::IcmpId(arg.number(U16)? as u16),
        "icmp_seq" => Condition::IcmpSeq(arg.number(U16)? as u16),
        "ip_proto" => Condition::IpProto(ip_proto(arg)?),
        "sameip" => {
            arg.none()?;
            Condition::SameIp
        }
        "tos" => Condition::Tos(arg.negatable(U8)?),
        "stream_size" => stream_size(arg)?,
        "app-layer-protocol" => app_protocol(arg)?,
        "app-layer-event" => Condition::AppEvent(one(arg)?.name()?),
        "decode-event" => Condition::DecodeEvent(one(arg)?.name()?),
        "engine-event" => engine_event(one(arg)?.name()?),
        "stream-event" => Condition::StreamEvent(one(arg)?.name()?),
        "iprep" => iprep(arg)?,
        "tls.version" | "ssl_version" => tls_version(arg)?,
        "ssl_state" => ssl_state(arg)?,
        "tls_cert_valid" => {
            arg.none()?;
            Condition::TlsCertValid(true)
        }
        "tls_cert_expired" => {
            arg.none()?;
            Condition::TlsCertValid(false)
        }
        "tls.cert_chain_len" => Condition::TlsChainLength(arg.compare(U32)?),
        "tls.subject" => text(TextOf::TlsSubject, arg)?,
        "tls.issuerdn" => text(TextOf::TlsIssuer, arg)?,
        "tls.fingerprint" => text(TextOf::TlsFingerprint, arg)?,
        "ssh.protoversion" => text(TextOf::SshProtoVersion, arg)?,
        "ssh.softwareversion" => text(TextOf::SshSoftwareVersion, arg)?,
        "filename" => text(TextOf::FileName, arg)?,
        "fileext" => text(TextOf::FileExtension, arg)?,
        "filemagic" => text(TextOf::FileMagic, arg)?,
        "filesize" => Condition::FileSize(file_size(arg)?),
        "filestore" => {
            builder.once("filestore")?;
            let options = arg.raw.filter(|raw| !raw.is_empty()).map(|_| arg.text());
            Condition::FileStore(options.transpose()?)
        }
        "dns.opcode" => Condition::DnsOpcode(arg.compare(15)?),
        "dns.rcode" => Condition::DnsRcode(arg.compare(U16)?),
        "dns.rrtype" => Condition::DnsRrtype(arg.compare(U16)?),
        _ => return Ok(false),
    };
    builder.condition(condition);
    Ok(true)
}

fn one<'a>(arg: &Arg<'a>) -> Result<Part<'a>, Fault> {
    Ok(Part { at: arg.at, text: arg.plain()? })
}

const FLOW_WORDS: &[&str] = &[
    "to_server",
    "to_client",
    "from_server",
    "from_client",
    "established",
    "not_established",
    "stateless",
    "only_stream",
    "no_stream",
    "only_frag",
    "no_frag",
];

fn flow(arg: &Arg<'_>) -> Result<Flow, Fault> {
    let mut flow = Flow::default();
    for part in arg.parts()? {
        let word = part.text.to_ascii_lowercase();
        let clash = match word.as_str() {
            "to_server" | "from_client" => flow.to.replace(FlowSide::Server).is_some(),
            "to_client" | "from_server" => flow.to.replace(FlowSide::Client).is_some(),
            "established" => flow.state.replace(FlowState::Established).is_some(),
            "not_established" => flow.state.replace(FlowState::NotEstablished).is_some(),
            "stateless" => flow.state.replace(FlowState::Stateless).is_some(),
            "only_stream" => flow.stream.replace(true).is_some(),
            "no_stream" => flow.stream.replace(false).is_some(),
            "only_frag" => flow.fragments.replace(true).is_some(),
            "no_frag" => flow.fragments.replace(false).is_some(),
            _ => return Err(part.unknown(FLOW_WORDS)),
        };
        if clash {
            return Err(part.fault(format!("`{word}` repeats or contradicts an earlier value")));
        }
    }
    Ok(flow)
}

/// One of several `flow` options, as in Suricata: directions add up, and one option has the rest.
fn another_flow(builder: &mut Builder, more: Flow) -> Result<(), Fault> {
    let is_flow = |condition: &Condition| matches!(condition, Condition::Flow(_));
    let Some(at) = builder.rule.conditions.iter().position(is_flow) else {
        builder.condition(Condition::Flow(more));
        return Ok(());
    };
    let Condition::Flow(own) = &mut builder.rule.conditions[at] else { return Ok(()) };
    let rest = |flow: &Flow| Flow { to: None, ..*flow };
    let none = Flow::default();
    if rest(own) != none && rest(&more) != none {
        return Err(builder.fault("one `flow` option has all but the direction"));
    }
    let to = match (own.to, more.to) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => one.or(other),
    };
    let rest = if rest(own) == none { more } else { *own };
    *own = Flow { to, ..rest };
    if *own == none {
        builder.rule.conditions.remove(at);
    }
    Ok(())
}

fn is_group(arg: &Arg<'_>) -> Result<bool, Fault> {
    let parts = arg.parts()?;
    let known = ["set", "unset", "toggle", "isset", "isnotset"].contains(&parts[0].text);
    Ok(matches!(parts[0].text, "reset" | "setx") || known && parts.len() == 3)
}

/// None is `noalert`. A condition on all of several bits (Snort's `a&b`) is one for each of them.
fn flowbits(arg: &Arg<'_>) -> Result<Option<Vec<Flowbits>>, Fault> {
    let parts = arg.parts()?;
    type Make = fn(Vec<String>) -> Flowbits;
    let make: Make = match parts[0].text {
        "noalert" => {
            return match parts.get(1) {
                None => Ok(None),
                Some(part) => Err(part.fault("`noalert` takes no name")),
            };
        }
        "isset" => Flowbits::IsSet,
        "isnotset" => Flowbits::IsNotSet,
        "set" => Flowbits::Set,
        "unset" => Flowbits::Unset,
        "toggle" => Flowbits::Toggle,
        _ => {
            let known = &["isset", "isnotset", "set", "unset", "toggle", "noalert"];
            return Err(parts[0].unknown(known));
        }
    };
    let [_, names] = parts.as_slice() else {
        return Err(arg.fault("it is written `OPERATION,NAME`"));
    };
    let split = names.text.split(['|', '&']);
    let found: Result<Vec<String>, Fault> =
        split.map(|name| Part { at: names.at, text: name.trim_ascii() }.name()).collect();
    let found = found?;
    let is_condition = matches!(parts[0].text, "isset" | "isnotset");
    match (names.text.contains('|'), names.text.contains('&')) {
        (true, true) => Err(names.fault("either `&` or `|` is between names")),
        (true, _) if !is_condition => Err(names.fault("`|` is for isset and isnotset")),
        (_, true) if is_condition => {
            Ok(Some(found.into_iter().map(|name| make(vec![name])).collect()))
        }
        _ => Ok(Some(vec![make(found)])),
    }
}

fn bit_operation(part: &Part<'_>) -> Result<BitOperation, Fault> {
    Ok(match part.text {
        "set" => BitOperation::Set,
        "unset" => BitOperation::Unset,
        "toggle" => BitOperation::Toggle,
        "isset" => BitOperation::IsSet,
        "isnotset" => BitOperation::IsNotSet,
        _ => return Err(part.unknown(&["set", "unset", "toggle", "isset", "isnotset", "noalert"])),
    })
}

/// None is `noalert`.
fn xbits(arg: &Arg<'_>) -> Result<Option<Xbits>, Fault> {
    let parts = arg.parts()?;
    if parts.len() == 1 && parts[0].text == "noalert" {
        return Ok(None);
    }
    let [operation, name, rest @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `OPERATION,NAME,track WHAT[,expire SECONDS]`"));
    };
    let (operation, name) = (bit_operation(operation)?, name.name()?);
    let (mut track, mut expire_s) = (None, None);
    for part in rest {
        let (word, value) = part.pair();
        match word {
            "track" => {
                track = Some(match value.text {
                    "ip_src" => XbitsTrack::Source,
                    "ip_dst" => XbitsTrack::Destination,
                    "ip_pair" => XbitsTrack::Pair,
                    "tx" => XbitsTrack::Transaction,
                    _ => return Err(value.unknown(&["ip_src", "ip_dst", "ip_pair", "tx"])),
                });
            }
            "expire" => match value.number(U32)? as u32 {
                0 => return Err(value.fault("a bit lasts at least 1 second")),
                seconds => expire_s = Some(seconds),
            },
            _ => return Err(part.unknown(&["track", "expire"])),
        }
    }
    let track = track.ok_or_else(|| arg.fault("`track` is missing"))?;
    if expire_s.is_some() && operation != BitOperation::Set {
        return Err(arg.fault("`expire` belongs to `set`"));
    }
    Ok(Some(Xbits { operation, name, track, expire_s }))
}

fn hostbits(arg: &Arg<'_>) -> Result<Hostbits, Fault> {
    let parts = arg.parts()?;
    let [operation, name, rest @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `OPERATION,NAME[,src|dst|both]`"));
    };
    let side = match rest {
        [] => None,
        [side] => Some(match side.text {
            "src" => EndSide::Source,
            "dst" => EndSide::Destination,
            "both" => EndSide::Both,
            _ => return Err(side.unknown(&["src", "dst", "both"])),
        }),
        [_, more, ..] => return Err(more.fault("too many parts")),
    };
    Ok(Hostbits { operation: bit_operation(operation)?, name: name.name()?, side })
}

fn flowint(arg: &Arg<'_>) -> Result<Flowint, Fault> {
    let parts = arg.parts()?;
    let (name, sign, value) = match parts.as_slice() {
        [name, sign] => (name, sign, None),
        [name, sign, value] => (name, sign, Some(value)),
        _ => return Err(arg.fault("it is written `NAME,OPERATION[,VALUE]`")),
    };
    let name = name.name()?;
    let word = sign.text.to_ascii_lowercase();
    let Some(value) = value else {
        let operation = match word.as_str() {
            "isset" => FlowintOperation::IsSet,
            "notset" | "isnotset" => FlowintOperation::IsNotSet,
            _ => return Err(sign.unknown(&["isset", "notset"])),
        };
        return Ok(Flowint { name, operation });
    };
    let value = match is_number(value.text) {
        true => FlowintValue::Number(value.number(U32)? as u32),
        false => FlowintValue::Name(value.name()?),
    };
    let operation = match word.as_str() {
        "=" => FlowintOperation::Set(value),
        "+" => FlowintOperation::Add(value),
        "-" => FlowintOperation::Subtract(value),
        "==" => FlowintOperation::Compare(FlowintRelation::Equal, value),
        "!=" => FlowintOperation::Compare(FlowintRelation::NotEqual, value),
        "<" => FlowintOperation::Compare(FlowintRelation::Less, value),
        "<=" => FlowintOperation::Compare(FlowintRelation::LessOrEqual, value),
        ">" => FlowintOperation::Compare(FlowintRelation::Greater, value),
        ">=" => FlowintOperation::Compare(FlowintRelation::GreaterOrEqual, value),
        _ => return Err(sign.unknown(&[])),
    };
    Ok(Flowint { name, operation })
}

fn urilen(arg: &Arg<'_>) -> Result<Condition, Fault> {
    let parts = arg.parts()?;
    let raw = match &parts[1..] {
        [] => false,
        [kind] => match kind.text {
            "raw" => true,
            "norm" => false,
            _ => return Err(kind.unknown(&["raw", "norm"])),
        },
        [_, more, ..] => return Err(more.fault("too many parts")),
    };
    Ok(Condition::Urilen { size: parts[0].compare(U16)?, raw })
}

/// The letters, by bit.
pub(crate) const TCP_FLAGS: &[u8; 8] = b"FSRPAUEC";
pub(crate) const FRAG_BITS: &[u8; 3] = b"MDR";

fn bits(text: &str, letters: &[u8], at: usize) -> Result<u8, Fault> {
    let mut bits = 0;
    for letter in text.bytes().filter(|b| !b.is_ascii_whitespace()) {
        // Snort's names of what RFC 3168 called ECE and CWR.
        let letter = match (letter.to_ascii_uppercase(), letters.len()) {
            (b'1', 8) => b'C',
            (b'2', 8) => b'E',
            (b'0', 8) => continue,
            (letter, _) => letter,
        };
        match letters.iter().position(|known| *known == letter) {
            Some(bit) => bits |= 1 << bit,
            None => {
                let letter = letter.escape_ascii();
                return Err(Fault::new(at, format!("unknown flag `{letter}`")));
            }
        }
    }
    Ok(bits)
}

fn mode(text: &str) -> (BitsMode, String) {
    // The sign is in front or behind.
    for (sign, mode) in [('+', BitsMode::AtLeast), ('*', BitsMode::Any), ('!', BitsMode::NotAll)] {
        if let Some(rest) = text.strip_prefix(sign).or_else(|| text.strip_suffix(sign)) {
            return (mode, rest.to_owned());
        }
    }
    (BitsMode::Exactly, text.to_owned())
}

fn tcp_flags(arg: &Arg<'_>) -> Result<TcpFlags, Fault> {
    let parts = arg.parts()?;
    let (set, ignored) = match parts.as_slice() {
        [set] => (set, 0),
        [set, ignored] => {
            let text = ignored.text.trim_start_matches(['!', '+', '*']);
            (set, bits(text, TCP_FLAGS, ignored.at)?)
        }
        _ => return Err(arg.fault("it is written `[MODE]FLAGS[,IGNORED]`")),
    };
    let (mode, letters) = mode(set.text);
    if letters.is_empty() {
        return Err(set.fault("flags are missing; none at all are written `0`"));
    }
    let bits = bits(&letters, TCP_FLAGS, set.at)?;
    if bits == 0 && mode == BitsMode::Any {
        return Err(set.fault("flags are missing"));
    }
    Ok(TcpFlags { mode, bits, ignored })
}

/// The old name of both, with the kind of the event before its name.
fn engine_event(name: String) -> Condition {
    match (name.strip_prefix("stream."), name.strip_prefix("decoder.")) {
        (Some(name), _) => Condition::StreamEvent(name.to_owned()),
        (_, Some(name)) => Condition::DecodeEvent(name.to_owned()),
        _ => Condition::DecodeEvent(name),
    }
}

fn fragbits(arg: &Arg<'_>) -> Result<Fragbits, Fault> {
    let text = arg.plain()?;
    let (mode, letters) = mode(text);
    let sign_behind = mode == BitsMode::AtLeast && text.ends_with('+');
    match bits(&letters, FRAG_BITS, arg.at)? {
        0 => Err(arg.fault("flags are missing")),
        bits => Ok(Fragbits { mode, sign_behind, bits }),
    }
}

/// Names of options of IPv4.
pub(crate) const IP_OPTIONS: &[(&str, IpOption)] = &[
    ("rr", IpOption::Rr),
    ("lsrr", IpOption::Lsrr),
    ("lsrre", IpOption::Lsrre),
    ("ssrr", IpOption::Ssrr),
    ("eol", IpOption::Eol),
    ("nop", IpOption::Nop),
    ("ts", IpOption::Ts),
    ("sec", IpOption::Sec),
    ("esec", IpOption::Esec),
    ("satid", IpOption::Satid),
    ("any", IpOption::Any),
];

fn ip_option(arg: &Arg<'_>) -> Result<IpOption, Fault> {
    let text = arg.plain()?;
    let found = IP_OPTIONS.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, option)| *option)
        .ok_or_else(|| arg.fault(format!("unknown option of IPv4 `{}`", clip(text))))
}

/// Numbers of the protocols that rules name (IANA).
const IP_PROTOCOLS: &[(&str, u64)] = &[
    ("ip", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

fn ip_proto(arg: &Arg<'_>) -> Result<Compare, Fault> {
    let text = arg.plain()?;
    let sign = text.len() - text.trim_start_matches(['!', '<', '>', '=', ' ']).len();
    let name = text[sign..].to_ascii_lowercase();
    let number = IP_PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| number);
    match number {
        Some(number) => {
            let text = format!("{}{number}", &text[..sign]);
            Part { at: arg.at, text: &text }.compare(U8)
        }
        None if name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Err(arg.fault(format!("unknown protocol `{}`", clip(&name))))
        }
        None => arg.compare(U8),
    }
}

fn signed_compare(sign: &Part<'_>, value: &Part<'_>, max: u64) -> Result<Compare, Fault> {
    let number = value.number(max)?;
    Ok(match sign.text {
        "<" => Compare::Less(number),
        "<=" => Compare::LessOrEqual(number),
        ">" => Compare::Greater(number),
        ">=" => Compare::GreaterOrEqual(number),
        "=" => Compare::Equal(number),
        "!=" | "!" => Compare::NotEqual(number),
        _ => return Err(sign.unknown(&[])),
    })
}

fn stream_size(arg: &Arg<'_>) -> Result<Condition, Fault> {
    let parts = arg.parts()?;
    let [side, sign, size] = parts.as_slice() else {
        return Err(arg.fault("it is written `SIDE,RELATION,BYTES`"));
    };
    let side = match side.text {
        "server" => StreamSide::Server,
        "client" => StreamSide::Client,
        "both" => StreamSide::Both,
        "either" => StreamSide::Either,
        _ => return Err(side.unknown(&["server", "client", "both", "either"])),
    };
    Ok(Condition::StreamSize(side, signed_compare(sign, size, U32)?))
}

fn app_protocol(arg: &Arg<'_>) -> Result<Condition, Fault> {
    let parts = arg.parts()?;
    let (negated, name) = match parts[0].text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_ascii()),
        None => (false, parts[0].text),
    };
    let mode = match &parts[1..] {
        [] => None,
        [mode] => Some(match mode.text {
            "final" => ProtocolMode::Final,
            "original" => ProtocolMode::Original,
            "to_server" | "toserver" => ProtocolMode::ToServer,
            "to_client" | "toclient" => ProtocolMode::ToClient,
            "either" => ProtocolMode::Either,
            _ => {
                let known = &["final", "original", "to_server", "to_client", "either"];
                return Err(mode.unknown(known));
            }
        }),
        [_, more, ..] => return Err(more.fault("too many parts")),
    };
    let name = Part { at: parts[0].at, text: name }.name()?;
    if name != "failed" && name != "unknown" && crate::Protocol::from_name(&name).is_none() {
        let reason = format!("unknown protocol `{}`", clip(&name));
        return Err(Fault::unknown(parts[0].at, reason, crate::model::PROTOCOL_WORDS, &name));
    }
    Ok(Condition::AppProtocol { negated, name, mode })
}

fn iprep(arg: &Arg<'_>) -> Result<Condition, Fault> {
    let parts = arg.parts()?;
    let [side, category, rest @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `SIDE,CATEGORY,RELATION,VALUE`"));
    };
    let side = match side.text {
        "any" => IprepSide::Any,
        "src" => IprepSide::Source,
        "dst" => IprepSide::Destination,
        "both" => IprepSide::Both,
        _ => return Err(side.unknown(&["any", "src", "dst", "both"])),
    };
    let value = match rest {
        [sign, value] => Some(signed_compare(sign, value, 127)?),
        [value] if value.text == "isset" => Some(Compare::GreaterOrEqual(0)),
        [value] if value.text == "isnotset" => None,
        [value] => return Err(value.unknown(&["isset", "isnotset"])),
        _ => return Err(arg.fault("it is written `SIDE,CATEGORY,RELATION,VALUE`")),
    };
    Ok(Condition::Iprep { side, category: category.name()?, value })
}

/// Names and numbers on the wire.
pub(crate) const TLS_VERSIONS: &[(&str, u16)] = &[
    ("sslv2", 0x0002),
    ("sslv3", 0x0300),
    ("tls1.0", 0x0301),
    ("tls1.1", 0x0302),
    ("tls1.2", 0x0303),
    ("tls1.3", 0x0304),
];

fn tls_version(arg: &Arg<'_>) -> Result<Condition, Fault> {
    let (mut versions, mut negated) = (Vec::new(), None);
    for part in arg.parts()? {
        let (not, name) = match part.text.strip_prefix('!') {
            Some(rest) => (true, rest.trim_ascii()),
            None => (false, part.text),
        };
        if negated.replace(not).is_some_and(|before| before != not) {
            return Err(part.fault("either all versions are negated or none is"));
        }
        let name = name.to_ascii_lowercase();
        let name = if name.starts_with("1.") { format!("tls{name}") } else { name };
        match TLS_VERSIONS.iter().find(|(known, _)| *known == name) {
            Some((_, version)) if versions.contains(version) => {
                return Err(part.fault("the version is given twice"));
            }
            Some((_, version)) => versions.push(*version),
            None => {
                let known = &["sslv2", "sslv3", "tls1.0", "tls1.1", "tls1.2", "tls1.3"];
                return Err(part.unknown(known));
            }
        }
    }
    Ok(Condition::TlsVersion { negated: negated.unwrap_or(false), versions })
}

fn ssl_state(arg: &Arg<'_>) -> Result<Condition, Fault> {
    const STATES: &[&str] =
        &["client_hello", "server_hello", "client_keyx", "server_keyx", "unknown"];
    let mut states = Vec::new();
    for part in arg.parts()? {
        for state in part.text.split('|') {
            let part = Part { at: part.at, text: state.trim_ascii() };
            match STATES.contains(&part.text) {
                true if states.len() < STATES.len() => states.push(part.text.to_owned()),
                true => return Err(part.fault("too many states")),
                false => return Err(part.unknown(STATES)),
            }
        }
    }
    Ok(Condition::SslState(states))
}

fn text(of: TextOf, arg: &Arg<'_>) -> Result<Condition, Fault> {
    let value = arg.unquoted()?;
    let text = Arg::new(value.at, Some(value.bytes)).text()?;
    Ok(Condition::Text { of, negated: value.negated, text })
}

/// As other numbers, with units of 1,024: `10KB`.
fn file_size(arg: &Arg<'_>) -> Result<Compare, Fault> {
    let text = arg.plain()?.to_ascii_lowercase();
    if !text.contains(['k', 'm', 'g']) {
        return arg.compare(u64::MAX);
    }
    let mut plain = String::new();
    let mut number = 0_u64;
    let mut chars = text.chars().filter(|c| *c != ' ' && *c != 'b').peekable();
    while let Some(char) = chars.next() {
        let Some(digit) = char.to_digit(10) else {
            plain.push(char);
            continue;
        };
        number = number
            .checked_mul(10)
            .and_then(|n| n.checked_add(u64::from(digit)))
            .ok_or_else(|| arg.fault("the size is too large"))?;
        if chars.peek().is_none_or(|next| !next.is_ascii_digit()) {
            let shift = match chars.peek() {
                Some('k') => 10,
                Some('m') => 20,
                Some('g') => 30,
                _ => 0,
            };
            if shift > 0 {
                chars.next();
            }
            let size = number.checked_mul(1 << shift);
            let size = size.ok_or_else(|| arg.fault("the size is too large"))?;
            plain.push_str(&size.to_string());
            number = 0;
        }
    }
    Part { at: arg.at, text: &plain }.compare(u64::MAX)
}
