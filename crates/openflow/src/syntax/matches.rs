//! Matches in text.
//!
//! `nw_src`, `tp_src` and their like are of the protocol that the rest of the match names, wherever it is named.

use std::fmt;

use super::flows::KEYS;
use super::values::{masked, value, write, write_masked};
use super::{Parsed, Syntax, Word};
use crate::field::{Field, VLAN_PRESENT};
use crate::flow::FlowFlags;
use crate::matches::Match;

/// Words that name a protocol: Ethernet type, IP protocol.
const PROTOCOLS: &[(&str, u16, Option<u8>)] = &[
    ("ip", 0x0800, None),
    ("ipv4", 0x0800, None),
    ("icmp", 0x0800, Some(1)),
    ("tcp", 0x0800, Some(6)),
    ("udp", 0x0800, Some(17)),
    ("sctp", 0x0800, Some(132)),
    ("arp", 0x0806, None),
    ("rarp", 0x8035, None),
    ("ipv6", 0x86dd, None),
    ("icmp6", 0x86dd, Some(58)),
    ("tcp6", 0x86dd, Some(6)),
    ("udp6", 0x86dd, Some(17)),
    ("sctp6", 0x86dd, Some(132)),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

/// Other names of fields.
const ALIASES: &[(&str, Field)] = &[
    ("dl_src", Field::EthSrc),
    ("dl_dst", Field::EthDst),
    ("dl_type", Field::EthType),
    ("dl_vlan_pcp", Field::VlanPcp),
    ("ip_proto", Field::IpProto),
    ("ip_ecn", Field::IpEcn),
    ("ipv4_src", Field::Ipv4Src),
    ("ipv4_dst", Field::Ipv4Dst),
    ("icmpv4_type", Field::Icmpv4Type),
    ("icmpv4_code", Field::Icmpv4Code),
    ("ipv6_flabel", Field::Ipv6Flabel),
    ("ipv6_nd_target", Field::Ipv6NdTarget),
    ("ipv6_nd_sll", Field::Ipv6NdSll),
    ("ipv6_nd_tll", Field::Ipv6NdTll),
    ("tunnel_id", Field::TunnelId),
];

/// Words that are a field by what the rest of the match says, or more than one.
const OTHERS: &[&str] = &[
    "eth",
    "dl_vlan",
    "vlan_tci",
    "nw_tos",
    "nw_src",
    "nw_dst",
    "nw_proto",
    "tp_src",
    "tp_dst",
    "icmp_type",
    "icmp_code",
];

/// The field of a name.
pub(super) fn field(name: &str) -> Option<Field> {
    fields().find(|(own, _)| *own == name).map(|(_, field)| field)
}

/// Fields by all of their names.
pub(super) fn fields() -> impl Iterator<Item = (&'static str, Field)> {
    let own = Field::ALL.into_iter().map(|field| (field.name(), field));
    ALIASES.iter().copied().chain(own)
}

/// Reads a word that belongs to the match; `false`: it does not.
pub(super) fn is_word(name: &str) -> bool {
    field(name).is_some()
        || OTHERS.contains(&name)
        || PROTOCOLS.iter().any(|(word, _, _)| *word == name)
}

/// All words of a flow before its actions, and `actions`.
fn all_words() -> impl Iterator<Item = &'static str> {
    let own = fields().map(|(name, _)| name).chain(OTHERS.iter().copied());
    let protocols = PROTOCOLS.iter().map(|(name, _, _)| *name);
    let flags = FlowFlags::NAMES.iter().map(|(_, name)| *name);
    own.chain(protocols).chain(flags).chain(KEYS.iter().copied()).chain(["actions"])
}

/// A word that no flow has.
fn unknown(name: &Word<'_>) -> super::SyntaxError {
    match name.text {
        "nw_ttl" => name.error("is for traces only, not a field of a flow"),
        "group_id" | "bucket" | "buckets" => name.error("is of a group, not of a flow"),
        "bands" => name.error("is of a meter, not of a flow"),
        _ => name.unknown("is not a field", all_words()),
    }
}

pub(super) fn parse(syntax: &Syntax<'_>, words: &[Word<'_>]) -> Parsed<Match> {
    let mut matches = Match::new();
    // Protocols first: the meaning of others depends on them.
    for word in words {
        let (name, given) = word.split_at(&['=']);
        let protocol = PROTOCOLS.iter().find(|(p, _, _)| *p == name.text);
        match (protocol, given, name.text) {
            (Some((_, ethertype, proto)), None, _) => {
                set(&mut matches, word, Field::EthType, u128::from(*ethertype), 0xffff)?;
                if let Some(proto) = proto {
                    set(&mut matches, word, Field::IpProto, u128::from(*proto), 0xff)?;
                }
            }
            (Some(_), Some(given), _) => return Err(given.error("is a value, and there is none")),
            (None, Some(given), "dl_type" | "eth_type") => {
                let ethertype = value(syntax, Field::EthType, &given)?;
                set(&mut matches, word, Field::EthType, ethertype, 0xffff)?;
            }
            _ => {}
        }
    }
    for word in words {
        let (name, given) = word.split_at(&['=']);
        if name.text == "nw_proto" || name.text == "ip_proto" {
            let given = given.ok_or_else(|| word.error("has no value"))?;
            let field = match matches.exact(Field::EthType) {
                Some(0x0806 | 0x8035) => Field::ArpOp,
                _ => Field::IpProto,
            };
            set(&mut matches, word, field, value(syntax, field, &given)?, field.full())?;
        }
    }
    for word in words {
        let (name, given) = word.split_at(&['=']);
        let is_done = PROTOCOLS.iter().any(|(p, _, _)| *p == name.text)
            || ["dl_type", "eth_type", "nw_proto", "ip_proto", "eth"].contains(&name.text);
        if !is_done {
            let given = given.ok_or_else(|| match is_word(name.text) {
                true => name.error("has no value"),
                false => unknown(&name),
            })?;
            one(syntax, &mut matches, word, &name, &given)?;
        }
    }
    // The field that lacks what it needs is named.
    for f in matches.fields() {
        if !matches.provides(f.field) {
            let named = words
                .iter()
                .find(|w| resolve(&matches, w.split_at(&['=']).0.text) == Some(f.field));
            let at = named.or(words.first()).map_or(0, |word| word.at);
            let needs: Vec<&str> = f.field.needs().iter().map(|need| need.field.name()).collect();
            let message = format!(
                "{} needs {} in the match, with a value that has it",
                f.field,
                needs.join(" and ")
            );
            return Err(super::SyntaxError::new(at, message));
        }
    }
    Ok(matches.in_order())
}

/// The field of a name, given the protocols of a match.
fn resolve(matches: &Match, name: &str) -> Option<Field> {
    let ethertype = matches.exact(Field::EthType);
    let is_arp = matches!(ethertype, Some(0x0806 | 0x8035));
    let proto = matches.exact(Field::IpProto);
    Some(match (name, proto) {
        ("nw_src", _) if is_arp => Field::ArpSpa,
        ("nw_dst", _) if is_arp => Field::ArpTpa,
        ("nw_src", _) => Field::Ipv4Src,
        ("nw_dst", _) => Field::Ipv4Dst,
        ("tp_src", Some(6)) => Field::TcpSrc,
        ("tp_dst", Some(6)) => Field::TcpDst,
        ("tp_src", Some(17)) => Field::UdpSrc,
        ("tp_dst", Some(17)) => Field::UdpDst,
        ("tp_src", Some(132)) => Field::SctpSrc,
        ("tp_dst", Some(132)) => Field::SctpDst,
        ("tp_src" | "icmp_type", Some(58)) => Field::Icmpv6Type,
        ("tp_dst" | "icmp_code", Some(58)) => Field::Icmpv6Code,
        ("tp_src", Some(1)) => Field::Icmpv4Type,
        ("tp_dst", Some(1)) => Field::Icmpv4Code,
        _ => return field(name),
    })
}

/// One word with a value.
fn one(
    syntax: &Syntax<'_>,
    matches: &mut Match,
    word: &Word<'_>,
    name: &Word<'_>,
    given: &Word<'_>,
) -> Parsed<()> {
    let present = u128::from(VLAN_PRESENT);
    match name.text {
        "dl_vlan" => match given.number(0xffff)? {
            0xffff => set(matches, word, Field::VlanVid, 0, 0x1fff),
            vid @ ..=0xfff => set(matches, word, Field::VlanVid, vid | present, 0x1fff),
            _ => Err(given.error("is not a VLAN")),
        },
        "vlan_tci" => {
            let (tci, mask) = match given.split_at(&['/']) {
                (tci, Some(mask)) => (tci.number(0xffff)?, mask.number(0xffff)?),
                (tci, None) => (given.number(0xffff).or(tci.number(0xffff))?, 0xffff),
            };
            if tci == 0 && mask == 0xffff {
                // No tag.
                return set(matches, word, Field::VlanVid, 0, 0x1fff);
            }
            set(matches, word, Field::VlanVid, tci & 0x1fff, mask & 0x1fff)?;
            match mask >> 13 {
                0 => Ok(()),
                7 => set(matches, word, Field::VlanPcp, tci >> 13, 7),
                _ => Err(given.error("is a part of the priority, which takes no mask")),
            }
        }
        "dl_vlan_pcp" | "vlan_pcp" => {
            let pcp = value(syntax, Field::VlanPcp, given)?;
            if matches.get(Field::VlanVid).is_none() {
                set(matches, word, Field::VlanVid, present, present)?;
            }
            set(matches, word, Field::VlanPcp, pcp, 7)
        }
        "vlan_vid" => {
            let (value, mask) = masked(syntax, Field::VlanVid, given)?;
            // The priority came first and said only that there is a tag.
            let is_tag = matches.get(Field::VlanVid).is_some_and(|f| f.mask == present);
            match is_tag {
                true => matches.set(Field::VlanVid, value, mask),
                false => set(matches, word, Field::VlanVid, value, mask)?,
            }
            Ok(())
        }
        "nw_tos" => match given.number(0xff)? {
            tos if tos & 3 == 0 => set(matches, word, Field::IpDscp, tos >> 2, 0x3f),
            _ => Err(given.error("has bits of ECN set (nw_ecn)")),
        },
        other => {
            let Some(field) = resolve(matches, other) else {
                return Err(match other {
                    "tp_src" | "tp_dst" => {
                        name.error("needs a protocol in the match (tcp, udp, sctp)")
                    }
                    _ => unknown(name),
                });
            };
            let (value, mask) = masked(syntax, field, given)?;
            set(matches, word, field, value, mask)
        }
    }
}

/// Sets a field that is not there yet, or is the same.
fn set(matches: &mut Match, word: &Word<'_>, field: Field, value: u128, mask: u128) -> Parsed<()> {
    let before = matches.get(field);
    // A tag of any identifier, from the priority: the identifier itself says more.
    let is_tag =
        field == Field::VlanVid && before.is_some_and(|f| f.mask == u128::from(VLAN_PRESENT));
    let is_other = before.is_some_and(|f| (f.value, f.mask) != (value & mask, mask));
    if is_other && !is_tag {
        return Err(word.error(&format!("sets {field} a second time")));
    }
    matches.set(field, value, mask);
    Ok(())
}

/// Prints a match as ovs-ofctl does; of no field nothing.
#[derive(Clone, Copy, Debug)]
pub struct MatchText<'a>(pub &'a Match);

impl fmt::Display for MatchText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.0;
        let mut words = Words { f, is_first: true };
        let (ethertype, proto) = (m.exact(Field::EthType), m.exact(Field::IpProto));
        let named = PROTOCOLS.iter().rev().find(|(_, e, p)| {
            ethertype == Some(u128::from(*e))
                && p.is_none_or(|p| proto == Some(u128::from(p)))
                && (p.is_some() || !has_name(ethertype, proto))
        });
        if let Some((name, _, _)) = named {
            words.word(if *name == "ipv4" { "ip" } else { name })?;
        }
        let named_proto = named.is_some_and(|(_, _, proto)| proto.is_some());
        for (field, name) in ORDER {
            let Some(fm) = m.get(*field) else { continue };
            let masked = |w: &mut Words<'_, '_>| {
                w.key(name)?;
                write_masked(w.f, *field, fm.value, fm.mask)
            };
            match field {
                Field::EthType if named.is_some() => {}
                Field::EthType => {
                    words.key(name)?;
                    write!(words.f, "{:#06x}", fm.value)?;
                }
                Field::IpProto if named_proto => {}
                Field::IpDscp => {
                    words.key("nw_tos")?;
                    write!(words.f, "{}", fm.value << 2)?;
                }
                Field::VlanVid => vlan(&mut words, m, fm.value, fm.mask)?,
                // With a part of the identifier it is in vlan_tci.
                Field::VlanPcp if is_tci(m) => {}
                _ => masked(&mut words)?,
            }
        }
        Ok(())
    }
}

fn has_name(ethertype: Option<u128>, proto: Option<u128>) -> bool {
    PROTOCOLS.iter().any(|(_, e, p)| {
        ethertype == Some(u128::from(*e)) && p.is_some_and(|p| proto == Some(u128::from(p)))
    })
}

/// The VLAN is neither a whole identifier nor any tag with a priority.
fn is_tci(m: &Match) -> bool {
    let present = u128::from(VLAN_PRESENT);
    m.get(Field::VlanVid).is_some_and(|vid| {
        let is_whole = vid.is_exact() && vid.value & present != 0;
        let is_any = (vid.value, vid.mask) == (present, present) && m.get(Field::VlanPcp).is_some();
        !is_whole && !is_any
    })
}

fn vlan(words: &mut Words<'_, '_>, m: &Match, value: u128, mask: u128) -> fmt::Result {
    if !is_tci(m) {
        if mask == Field::VlanVid.full() {
            words.key("dl_vlan")?;
            write!(words.f, "{}", value & 0xfff)?;
        }
        return Ok(());
    }
    let pcp = m.exact(Field::VlanPcp);
    let (value, mask) = match pcp {
        Some(pcp) => (value | pcp << 13, mask | 0xe000),
        None => (value, mask),
    };
    words.key("vlan_tci")?;
    match mask {
        0xffff => write!(words.f, "{value:#06x}"),
        _ => write!(words.f, "{value:#06x}/{mask:#06x}"),
    }
}

/// The order of ovs-ofctl, and the names that it prints.
const ORDER: &[(Field, &str)] = &[
    (Field::TunnelId, "tun_id"),
    (Field::Metadata, "metadata"),
    (Field::InPort, "in_port"),
    (Field::InPhyPort, "in_phy_port"),
    (Field::VlanVid, "vlan_vid"),
    (Field::VlanPcp, "dl_vlan_pcp"),
    (Field::EthSrc, "dl_src"),
    (Field::EthDst, "dl_dst"),
    (Field::EthType, "dl_type"),
    (Field::PbbIsid, "pbb_isid"),
    (Field::Ipv6Src, "ipv6_src"),
    (Field::Ipv6Dst, "ipv6_dst"),
    (Field::Ipv6Flabel, "ipv6_label"),
    (Field::Ipv6Exthdr, "ipv6_exthdr"),
    (Field::Ipv4Src, "nw_src"),
    (Field::Ipv4Dst, "nw_dst"),
    (Field::ArpSpa, "arp_spa"),
    (Field::ArpTpa, "arp_tpa"),
    (Field::ArpOp, "arp_op"),
    (Field::IpProto, "nw_proto"),
    (Field::ArpSha, "arp_sha"),
    (Field::ArpTha, "arp_tha"),
    (Field::IpDscp, "nw_tos"),
    (Field::IpEcn, "nw_ecn"),
    (Field::MplsLabel, "mpls_label"),
    (Field::MplsTc, "mpls_tc"),
    (Field::MplsBos, "mpls_bos"),
    (Field::Icmpv4Type, "icmp_type"),
    (Field::Icmpv4Code, "icmp_code"),
    (Field::Icmpv6Type, "icmp_type"),
    (Field::Icmpv6Code, "icmp_code"),
    (Field::Ipv6NdTarget, "nd_target"),
    (Field::Ipv6NdSll, "nd_sll"),
    (Field::Ipv6NdTll, "nd_tll"),
    (Field::TcpSrc, "tp_src"),
    (Field::TcpDst, "tp_dst"),
    (Field::UdpSrc, "tp_src"),
    (Field::UdpDst, "tp_dst"),
    (Field::SctpSrc, "tp_src"),
    (Field::SctpDst, "tp_dst"),
];

/// Words with commas between.
struct Words<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    is_first: bool,
}

impl Words<'_, '_> {
    fn word(&mut self, word: &str) -> fmt::Result {
        if !std::mem::replace(&mut self.is_first, false) {
            self.f.write_str(",")?;
        }
        self.f.write_str(word)
    }

    fn key(&mut self, name: &str) -> fmt::Result {
        self.word(name)?;
        self.f.write_str("=")
    }
}

/// `value->field` of `set_field`.
pub(super) fn write_set(f: &mut fmt::Formatter<'_>, field: Field, to: u128) -> fmt::Result {
    match field {
        Field::Ipv6Flabel => write!(f, "{to:#x}")?,
        _ => write(f, field, to)?,
    }
    write!(f, "->{field}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowCommand;

    /// Whether a flow with this word, and with what it needs, is read.
    fn is_read(word: &str) -> bool {
        const BEFORE: &[&str] = &[
            "",
            "in_port=1,",
            "ip,",
            "ipv6,",
            "arp,",
            "mpls,",
            "tcp,",
            "udp,",
            "sctp,",
            "icmp,",
            "icmp6,",
            "icmp6,icmp_type=135,",
            "icmp6,icmp_type=136,",
            "dl_vlan=1,",
            "dl_type=0x88e7,",
        ];
        const VALUES: &[&str] =
            &["", "=0", "=1", "=10.0.0.1", "=::1", "=02:00:00:00:00:01", "=drop"];
        let tries = |before: &&str| {
            VALUES.iter().any(|value| {
                let rule = format!("{before}{word}{value}");
                let add = Syntax::new().flow(&format!("{rule},actions=drop"), FlowCommand::Add);
                let alone = [FlowCommand::Add, FlowCommand::Delete];
                add.is_ok() || alone.iter().any(|own| Syntax::new().flow(&rule, *own).is_ok())
            })
        };
        BEFORE.iter().any(tries)
    }

    #[test]
    fn all_words_are_read_and_offered() {
        for name in all_words() {
            assert!(is_read(name), "{name}");
            let stem = &name[..name.len() - 1];
            if is_read(stem) {
                continue; // another word: `icmp` of `icmp6`
            }
            let error = Syntax::new().flow(&format!("{stem}=1,actions=drop"), FlowCommand::Add);
            let message = error.unwrap_err().message;
            // `ipv` may be `ipv4` or `ipv6`.
            let begin = format!("`{stem}` is not a field, did you mean `{stem}");
            let rest = message.strip_prefix(&begin).unwrap_or_else(|| panic!("{name}: {message}"));
            assert!(rest.len() == "x`?".len(), "{name}: {message}");
        }
        assert!(!is_read("nonsense"));
    }
}
