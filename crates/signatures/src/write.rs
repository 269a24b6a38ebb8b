//! The normal form of a rule: one line, sticky buffers, options in a fixed order. It parses back to the same rule.

use std::fmt::{self, Display, Formatter, Write};

use crate::keywords::{FRAG_BITS, IP_OPTIONS, TCP_FLAGS, TLS_VERSIONS};
use crate::*;

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            Direction::Forward => "->",
            Direction::Both => "<>",
        };
        let (action, protocol) = (self.action.name(), self.protocol.name());
        write!(f, "{action} {protocol} {} {} {arrow} ", self.source, self.source_ports)?;
        write!(f, "{} {} (", self.destination, self.destination_ports)?;
        if let Some(msg) = &self.msg {
            write!(f, "msg:\"{}\"; ", Escaped(msg))?;
        }
        for condition in &self.conditions {
            write!(f, "{condition}; ")?;
        }
        let mut buffer = Buffer::Payload;
        for inspection in &self.inspections {
            if inspection.buffer != Buffer::Payload || buffer != Buffer::Payload {
                write!(f, "{}; ", inspection.buffer.name())?;
            }
            buffer = inspection.buffer;
            for transform in &inspection.transforms {
                write!(f, "{transform}; ")?;
            }
            for check in &inspection.checks {
                write!(f, "{check}; ")?;
            }
        }
        if let Some(Threshold { kind, track, count, seconds }) = self.threshold {
            let kind = match kind {
                ThresholdKind::Limit => "limit",
                ThresholdKind::Threshold => "threshold",
                ThresholdKind::Both => "both",
            };
            write!(f, "threshold:type {kind}, track {track}, count {count}, seconds {seconds}; ")?;
        }
        if let Some(DetectionFilter { track, count, seconds, unique_on }) = self.detection_filter {
            write!(f, "detection_filter:track {track}, count {count}, seconds {seconds}")?;
            f.write_str(match unique_on {
                None => "; ",
                Some(UniqueOn::SourcePort) => ", unique_on src_port; ",
                Some(UniqueOn::DestinationPort) => ", unique_on dst_port; ",
            })?;
        }
        for tag in &self.tags {
            write!(f, "{tag}; ")?;
        }
        if self.noalert {
            f.write_str("noalert; ")?;
        }
        if self.prefilter {
            f.write_str("prefilter; ")?;
        }
        if self.bypass {
            f.write_str("bypass; ")?;
        }
        for Unsupported { keyword, value } in &self.unsupported {
            match value {
                Some(value) => write!(f, "{keyword}:{value}; ")?,
                None => write!(f, "{keyword}; ")?,
            }
        }
        match self.target {
            None => {}
            Some(TargetSide::Source) => f.write_str("target:src_ip; ")?,
            Some(TargetSide::Destination) => f.write_str("target:dest_ip; ")?,
        }
        for (system, id) in &self.references {
            write!(f, "reference:{},{}; ", Escaped(system), Escaped(id))?;
        }
        if let Some(classtype) = &self.classtype {
            write!(f, "classtype:{classtype}; ")?;
        }
        if let Some(priority) = self.priority {
            write!(f, "priority:{priority}; ")?;
        }
        for (at, (key, value)) in self.metadata.iter().enumerate() {
            let before = if at % METADATA_ENTRIES == 0 { "metadata:" } else { ", " };
            write!(f, "{before}{}", Escaped(key))?;
            if !value.is_empty() {
                write!(f, " {}", Escaped(value))?;
            }
            if (at + 1) % METADATA_ENTRIES == 0 || at + 1 == self.metadata.len() {
                f.write_str("; ")?;
            }
        }
        if self.gid != 1 {
            write!(f, "gid:{}; ", self.gid)?;
        }
        write!(f, "sid:{};", self.sid)?;
        if self.rev != 0 {
            write!(f, " rev:{};", self.rev)?;
        }
        f.write_str(")")
    }
}

/// Entries of one `metadata`: generators of rules write one, people read short ones.
const METADATA_ENTRIES: usize = 256;

/// A text with backslashes before `\`, `"` and `;`.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            if matches!(char, '\\' | '"' | ';') {
                f.write_char('\\')?;
            }
            f.write_char(char)?;
        }
        Ok(())
    }
}

impl Display for Track {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "by_src",
            Self::Destination => "by_dst",
            Self::Pair => "by_both",
            Self::Rule => "by_rule",
            Self::Flow => "by_flow",
        })
    }
}

impl Display for Tag {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scope {
            TagScope::Session => "tag:session",
            TagScope::Source | TagScope::Destination => "tag:host",
        })?;
        if let Some((amount, unit)) = self.amount {
            let unit = match unit {
                TagUnit::Packets => "packets",
                TagUnit::Seconds => "seconds",
                TagUnit::Bytes => "bytes",
            };
            write!(f, ",{amount},{unit}")?;
        }
        f.write_str(match self.scope {
            TagScope::Session => "",
            TagScope::Source => ",src",
            TagScope::Destination => ",dst",
        })
    }
}

impl Display for Compare {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(n) => write!(f, "{n}"),
            Self::NotEqual(n) => write!(f, "!{n}"),
            Self::Less(n) => write!(f, "<{n}"),
            Self::LessOrEqual(n) => write!(f, "<={n}"),
            Self::Greater(n) => write!(f, ">{n}"),
            Self::GreaterOrEqual(n) => write!(f, ">={n}"),
            Self::Between(a, b) => write!(f, "{a}<>{b}"),
        }
    }
}

/// A relation and a number as parts of their own.
struct Parts(Compare);

impl Display for Parts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Compare::Equal(n) => write!(f, "=,{n}"),
            Compare::NotEqual(n) => write!(f, "!=,{n}"),
            Compare::Less(n) => write!(f, "<,{n}"),
            Compare::LessOrEqual(n) => write!(f, "<=,{n}"),
            Compare::Greater(n) => write!(f, ">,{n}"),
            Compare::GreaterOrEqual(n) => write!(f, ">=,{n}"),
            // These options have no such relation.
            Compare::Between(a, _) => write!(f, ">,{a}"),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", not(self.negated), self.number)
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "!" } else { "" }
}

impl Display for Transform {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::CompressWhitespace => "compress_whitespace",
            Self::StripWhitespace => "strip_whitespace",
            Self::StripPseudoHeaders => "strip_pseudo_headers",
            Self::DotPrefix => "dotprefix",
            Self::ToLowercase => "to_lowercase",
            Self::ToUppercase => "to_uppercase",
            Self::HeaderLowercase => "header_lowercase",
            Self::ToMd5 => "to_md5",
            Self::ToSha1 => "to_sha1",
            Self::ToSha256 => "to_sha256",
            Self::UrlDecode => "url_decode",
            Self::Domain => "domain",
            Self::Tld => "tld",
            Self::Xor(key) => {
                f.write_str("xor:\"")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                "\""
            }
            Self::Pcre(pattern) => return write!(f, "pcrexform:\"{pattern}\""),
            Self::FromBase64 { bytes, offset, mode } => {
                f.write_str("from_base64")?;
                let mut parts = Joiner::new(":");
                if let Some(bytes) = bytes {
                    write!(f, "{}bytes {bytes}", parts.next())?;
                }
                if let Some(offset) = offset {
                    write!(f, "{}offset {offset}", parts.next())?;
                }
                if let Some(mode) = mode {
                    let mode = match mode {
                        Base64Mode::Rfc2045 => "rfc2045",
                        Base64Mode::Rfc4648 => "rfc4648",
                        Base64Mode::Strict => "strict",
                    };
                    write!(f, "{}mode {mode}", parts.next())?;
                }
                ""
            }
        };
        f.write_str(name)
    }
}

/// What is before the first part, and commas before the others.
struct Joiner(&'static str);

impl Joiner {
    fn new(first: &'static str) -> Self {
        Self(first)
    }

    fn next(&mut self) -> &'static str {
        std::mem::replace(&mut self.0, ",")
    }
}

impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(content) => write!(f, "{content}"),
            Self::Pcre(pcre) => write!(f, "{pcre}"),
            Self::IsDataAt(is) => {
                write!(f, "isdataat:{}{}", not(is.negated), is.at)?;
                f.write_str(if is.relative { ",relative" } else { "" })?;
                f.write_str(if is.rawbytes { ",rawbytes" } else { "" })
            }
            Self::ByteTest(test) => {
                let sign = match test.relation {
                    Relation::Equal => "=",
                    Relation::Less => "<",
                    Relation::LessOrEqual => "<=",
                    Relation::Greater => ">",
                    Relation::GreaterOrEqual => ">=",
                    Relation::And => "&",
                    Relation::Xor => "^",
                };
                let negated = not(test.negated);
                write!(
                    f,
                    "byte_test:{},{negated}{sign},{},{}",
                    test.bytes, test.value, test.offset
                )?;
                write!(f, "{}", test.field)
            }
            Self::ByteJump(jump) => {
                write!(f, "byte_jump:{},{}{}", jump.bytes, jump.offset, jump.field)?;
                if let Some(times) = jump.multiplier {
                    write!(f, ",multiplier {times}")?;
                }
                f.write_str(if jump.align { ",align" } else { "" })?;
                f.write_str(match jump.from {
                    JumpFrom::Here => "",
                    JumpFrom::Beginning => ",from_beginning",
                    JumpFrom::End => ",from_end",
                })?;
                match &jump.post_offset {
                    Some(offset) => write!(f, ",post_offset {offset}"),
                    None => Ok(()),
                }
            }
            Self::ByteExtract(extract) => {
                let ByteExtract { bytes, offset, name, field, multiplier, align } = extract;
                write!(f, "byte_extract:{bytes},{offset},{name}{field}")?;
                if let Some(times) = multiplier {
                    write!(f, ",multiplier {times}")?;
                }
                match align {
                    Some(align) => write!(f, ",align {align}"),
                    None => Ok(()),
                }
            }
            Self::ByteMath(math) => write!(f, "{math}"),
            Self::Absent { or_else: true } => f.write_str("absent:or_else"),
            Self::Absent { or_else: false } => f.write_str("absent"),
            Self::Bsize(size) => write!(f, "bsize:{size}"),
            Self::Base64Decode(decode) => {
                f.write_str("base64_decode")?;
                let mut parts = Joiner::new(":");
                if let Some(bytes) = decode.bytes {
                    write!(f, "{}bytes {bytes}", parts.next())?;
                }
                if let Some(offset) = &decode.offset {
                    write!(f, "{}offset {offset}", parts.next())?;
                }
                match decode.relative {
                    true => write!(f, "{}relative", parts.next()),
                    false => Ok(()),
                }
            }
            Self::Dataset(set) => {
                let operation = match set.operation {
                    SetOperation::IsSet => "isset",
                    SetOperation::IsNotSet => "isnotset",
                    SetOperation::Set => "set",
                    SetOperation::Unset => "unset",
                };
                write!(f, "dataset:{operation},{}", set.name)?;
                set.settings.iter().try_for_each(|(name, value)| write!(f, ",{name} {value}"))
            }
            Self::Datarep(set) => {
                write!(f, "datarep:{},{}", set.name, Parts(set.value))?;
                set.settings.iter().try_for_each(|(name, value)| write!(f, ",{name} {value}"))
            }
        }
    }
}

impl Display for Content {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "content:{}\"", not(self.negated))?;
        let mut hex = false;
        for &byte in &self.bytes {
            let plain = (byte.is_ascii_graphic() || byte == b' ') && !b"|\"\\;:".contains(&byte);
            match (plain, hex) {
                (true, true) => write!(f, "|{}", char::from(byte))?,
                (true, false) => f.write_char(char::from(byte))?,
                (false, true) => write!(f, " {byte:02X}")?,
                (false, false) => write!(f, "|{byte:02X}")?,
            }
            hex = !plain;
        }
        f.write_str(if hex { "|\"" } else { "\"" })?;
        f.write_str(if self.nocase { "; nocase" } else { "" })?;
        f.write_str(if self.rawbytes { "; rawbytes" } else { "" })?;
        let places = [
            ("offset", &self.offset),
            ("depth", &self.depth),
            ("distance", &self.distance),
            ("within", &self.within),
        ];
        for (name, value) in places {
            if let Some(value) = value {
                write!(f, "; {name}:{value}")?;
            }
        }
        f.write_str(if self.startswith { "; startswith" } else { "" })?;
        f.write_str(if self.endswith { "; endswith" } else { "" })?;
        match self.fast_pattern {
            None => Ok(()),
            Some(FastPattern::Whole) => f.write_str("; fast_pattern"),
            Some(FastPattern::Only) => f.write_str("; fast_pattern:only"),
            Some(FastPattern::Piece { offset, length }) => {
                write!(f, "; fast_pattern:{offset},{length}")
            }
        }
    }
}

impl Display for Pcre {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "pcre:{}\"/{}/", not(self.negated), self.pattern)?;
        let flags = [
            (self.caseless, 'i'),
            (self.multiline, 'm'),
            (self.dotall, 's'),
            (self.extended, 'x'),
            (self.anchored, 'A'),
            (self.dollar_end_only, 'E'),
            (self.ungreedy, 'G'),
            (self.relative, 'R'),
            (self.rawbytes, 'B'),
            (self.no_limit, 'O'),
        ];
        for (_, letter) in flags.iter().filter(|(set, _)| *set) {
            f.write_char(*letter)?;
        }
        for Capture { scope, name } in &self.captures {
            let scope = match scope {
                CaptureScope::Flow => "flow",
                CaptureScope::Packet => "pkt",
                CaptureScope::Alert => "alert",
            };
            write!(f, ",{scope}:{name}")?;
        }
        f.write_char('"')
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.relative { ",relative" } else { "" })?;
        f.write_str(match self.endian {
            Endian::Big => "",
            Endian::Little => ",little",
            Endian::Dce => ",dce",
        })?;
        f.write_str(match self.base {
            Base::Bytes => "",
            Base::Hex => ",string,hex",
            Base::Dec => ",string,dec",
            Base::Oct => ",string,oct",
            Base::Auto => ",string",
        })?;
        match self.bitmask {
            Some(mask) => write!(f, ",bitmask {mask:#x}"),
            None => Ok(()),
        }
    }
}

impl Display for ByteMath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = match self.operation {
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::Multiply => "*",
            Operation::Divide => "/",
            Operation::ShiftLeft => "<<",
            Operation::ShiftRight => ">>",
        };
        write!(f, "byte_math:bytes {}, offset {}, oper {sign}, ", self.bytes, self.offset)?;
        write!(f, "rvalue {}, result {}", self.value, self.result)?;
        f.write_str(if self.field.relative { ", relative" } else { "" })?;
        f.write_str(match self.field.endian {
            Endian::Big => "",
            Endian::Little => ", endian little",
            Endian::Dce => ", dce",
        })?;
        f.write_str(match self.field.base {
            Base::Bytes | Base::Auto => "",
            Base::Hex => ", string hex",
            Base::Dec => ", string dec",
            Base::Oct => ", string oct",
        })?;
        match self.field.bitmask {
            Some(mask) => write!(f, ", bitmask {mask:#x}"),
            None => Ok(()),
        }
    }
}

impl Display for BitOperation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Unset => "unset",
            Self::Toggle => "toggle",
            Self::IsSet => "isset",
            Self::IsNotSet => "isnotset",
        })
    }
}

impl Display for Flow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let to = self.to.map(|to| match to {
            FlowSide::Server => "to_server",
            FlowSide::Client => "to_client",
        });
        let state = self.state.map(|state| match state {
            FlowState::Established => "established",
            FlowState::NotEstablished => "not_established",
            FlowState::Stateless => "stateless",
        });
        let stream = self.stream.map(|only| if only { "only_stream" } else { "no_stream" });
        let fragments = self.fragments.map(|only| if only { "only_frag" } else { "no_frag" });
        f.write_str("flow")?;
        let mut parts = Joiner::new(":");
        let words = [to, state, stream, fragments].into_iter().flatten();
        words.into_iter().try_for_each(|word| write!(f, "{}{word}", parts.next()))
    }
}

/// Letters of bits with the sign of their mode.
fn bits(f: &mut Formatter<'_>, mode: BitsMode, bits: u8, letters: &[u8]) -> fmt::Result {
    f.write_str(match mode {
        BitsMode::Exactly => "",
        BitsMode::AtLeast => "+",
        BitsMode::Any => "*",
        BitsMode::NotAll => "!",
    })?;
    if bits == 0 {
        return f.write_char('0');
    }
    let set = letters.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    set.into_iter().try_for_each(|(_, letter)| f.write_char(char::from(*letter)))
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flow(flow) => write!(f, "{flow}"),
            Self::Flowbits(flowbits) => {
                let (operation, names, joint) = match flowbits {
                    Flowbits::IsSet(names) => ("isset", names, "|"),
                    Flowbits::IsNotSet(names) => ("isnotset", names, "|"),
                    Flowbits::Set(names) => ("set", names, "&"),
                    Flowbits::Unset(names) => ("unset", names, "&"),
                    Flowbits::Toggle(names) => ("toggle", names, "&"),
                };
                write!(f, "flowbits:{operation},{}", names.join(joint))
            }
            Self::Flowint(Flowint { name, operation }) => {
                write!(f, "flowint:{name},")?;
                let (sign, value) = match operation {
                    FlowintOperation::IsSet => return f.write_str("isset"),
                    FlowintOperation::IsNotSet => return f.write_str("notset"),
                    FlowintOperation::Set(value) => ("=", value),
                    FlowintOperation::Add(value) => ("+", value),
                    FlowintOperation::Subtract(value) => ("-", value),
                    FlowintOperation::Compare(relation, value) => {
                        let sign = match relation {
                            FlowintRelation::Equal => "==",
                            FlowintRelation::NotEqual => "!=",
                            FlowintRelation::Less => "<",
                            FlowintRelation::LessOrEqual => "<=",
                            FlowintRelation::Greater => ">",
                            FlowintRelation::GreaterOrEqual => ">=",
                        };
                        (sign, value)
                    }
                };
                match value {
                    FlowintValue::Number(number) => write!(f, "{sign},{number}"),
                    FlowintValue::Name(name) => write!(f, "{sign},{name}"),
                }
            }
            Self::Xbits(Xbits { operation, name, track, expire_s }) => {
                let track = match track {
                    XbitsTrack::Source => "ip_src",
                    XbitsTrack::Destination => "ip_dst",
                    XbitsTrack::Pair => "ip_pair",
                    XbitsTrack::Transaction => "tx",
                };
                write!(f, "xbits:{operation},{name},track {track}")?;
                match expire_s {
                    Some(seconds) => write!(f, ",expire {seconds}"),
                    None => Ok(()),
                }
            }
            Self::Hostbits(Hostbits { operation, name, side }) => {
                write!(f, "hostbits:{operation},{name}")?;
                f.write_str(match side {
                    None => "",
                    Some(EndSide::Source) => ",src",
                    Some(EndSide::Destination) => ",dst",
                    Some(EndSide::Both) => ",both",
                })
            }
            Self::Dsize(size) => write!(f, "dsize:{size}"),
            Self::Urilen { size, raw } => {
                write!(f, "urilen:{size}{}", if *raw { ",raw" } else { "" })
            }
            Self::Flags(TcpFlags { mode, bits: set, ignored }) => {
                f.write_str("tcp.flags:")?;
                bits(f, *mode, *set, TCP_FLAGS)?;
                if *ignored == 0 {
                    return Ok(());
                }
                f.write_char(',')?;
                bits(f, BitsMode::Exactly, *ignored, TCP_FLAGS)
            }
            Self::Seq(number) => write!(f, "seq:{number}"),
            Self::Ack(number) => write!(f, "ack:{number}"),
            Self::Window(number) => write!(f, "window:{number}"),
            Self::Mss(size) => write!(f, "tcp.mss:{size}"),
            Self::Ttl(ttl) => write!(f, "ttl:{ttl}"),
            Self::Id(id) => write!(f, "id:{id}"),
            Self::Fragbits(Fragbits { mode, sign_behind, bits: set }) => {
                f.write_str("fragbits:")?;
                let in_front = if *sign_behind { BitsMode::Exactly } else { *mode };
                bits(f, in_front, *set, FRAG_BITS)?;
                f.write_str(if *sign_behind { "+" } else { "" })
            }
            Self::FragOffset(offset) => write!(f, "fragoffset:{offset}"),
            Self::Ipopts(option) => {
                let found = IP_OPTIONS.iter().find(|(_, known)| known == option);
                write!(f, "ipopts:{}", found.map_or("any", |(name, _)| name))
            }
            Self::Itype(itype) => write!(f, "itype:{itype}"),
            Self::Icode(icode) => write!(f, "icode:{icode}"),
            Self::IcmpId(id) => write!(f, "icmp_id:{id}"),
            Self::IcmpSeq(seq) => write!(f, "icmp_seq:{seq}"),
            Self::IpProto(protocol) => write!(f, "ip_proto:{protocol}"),
            Self::SameIp => f.write_str("sameip"),
            Self::Tos(tos) => write!(f, "tos:{tos}"),
            Self::StreamSize(side, size) => {
                let side = match side {
                    StreamSide::Server => "server",
                    StreamSide::Client => "client",
                    StreamSide::Both => "both",
                    StreamSide::Either => "either",
                };
                write!(f, "stream_size:{side},{}", Parts(*size))
            }
            Self::AppProtocol { negated, name, mode } => {
                write!(f, "app-layer-protocol:{}{name}", not(*negated))?;
                f.write_str(match mode {
                    None => "",
                    Some(ProtocolMode::Final) => ",final",
                    Some(ProtocolMode::Original) => ",original",
                    Some(ProtocolMode::ToServer) => ",to_server",
                    Some(ProtocolMode::ToClient) => ",to_client",
                    Some(ProtocolMode::Either) => ",either",
                })
            }
            Self::AppEvent(event) => write!(f, "app-layer-event:{event}"),
            Self::DecodeEvent(event) => write!(f, "decode-event:{event}"),
            Self::StreamEvent(event) => write!(f, "stream-event:{event}"),
            Self::Iprep { side, category, value } => {
                let side = match side {
                    IprepSide::Any => "any",
                    IprepSide::Source => "src",
                    IprepSide::Destination => "dst",
                    IprepSide::Both => "both",
                };
                match value {
                    Some(value) => write!(f, "iprep:{side},{category},{}", Parts(*value)),
                    None => write!(f, "iprep:{side},{category},isnotset"),
                }
            }
            Self::TlsVersion { negated, versions } => {
                f.write_str("tls.version")?;
                let mut parts = Joiner::new(":");
                versions.iter().try_for_each(|version| {
                    let found = TLS_VERSIONS.iter().find(|(_, number)| number == version);
                    let name = found.map_or("tls1.3", |(name, _)| name);
                    write!(f, "{}{}{name}", parts.next(), not(*negated))
                })
            }
            Self::SslState(states) => write!(f, "ssl_state:{}", states.join("|")),
            Self::TlsCertValid(true) => f.write_str("tls_cert_valid"),
            Self::TlsCertValid(false) => f.write_str("tls_cert_expired"),
            Self::TlsChainLength(length) => write!(f, "tls.cert_chain_len:{length}"),
            Self::Text { of, negated, text } => {
                let name = match of {
                    TextOf::TlsSubject => "tls.subject",
                    TextOf::TlsIssuer => "tls.issuerdn",
                    TextOf::TlsFingerprint => "tls.fingerprint",
                    TextOf::SshProtoVersion => "ssh.protoversion",
                    TextOf::SshSoftwareVersion => "ssh.softwareversion",
                    TextOf::FileName => "filename",
                    TextOf::FileExtension => "fileext",
                    TextOf::FileMagic => "filemagic",
                };
                write!(f, "{name}:{}\"{}\"", not(*negated), Escaped(text))
            }
            Self::FileSize(size) => write!(f, "filesize:{size}"),
            Self::FileStore(None) => f.write_str("filestore"),
            Self::FileStore(Some(options)) => write!(f, "filestore:\"{}\"", Escaped(options)),
            Self::DnsOpcode(code) => write!(f, "dns.opcode:{code}"),
            Self::DnsRcode(code) => write!(f, "dns.rcode:{code}"),
            Self::DnsRrtype(kind) => write!(f, "dns.rrtype:{kind}"),
        }
    }
}
