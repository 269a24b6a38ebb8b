//! Actions and instructions in text.

use std::fmt;

use super::{Parsed, Syntax, Word, matches, values};
use crate::action::{Action, Instruction, NO_BUFFER};
use crate::field::{Field, VLAN_PRESENT};
use crate::port::PortNo;

/// `name:argument`, `name(argument)`, `name=argument` or `name`.
fn take_apart<'a>(word: &Word<'a>) -> Parsed<(Word<'a>, Option<Word<'a>>)> {
    let Some(at) = word.text.find([':', '(', '=']) else { return Ok((*word, None)) };
    let argument = word.from(at + 1);
    match word.text.as_bytes()[at] {
        b'(' => match argument.text.strip_suffix(')') {
            Some(inner) => Ok((word.to(at), Some(argument.to(inner.len())))),
            None => Err(word.error("has no closing parenthesis at its end")),
        },
        _ => Ok((word.to(at), Some(argument))),
    }
}

pub(super) fn parse_actions(syntax: &Syntax<'_>, text: &Word<'_>) -> Parsed<Vec<Action>> {
    let words = text.split();
    if let [only] = words[..]
        && only.text.eq_ignore_ascii_case("drop")
    {
        return Ok(Vec::new());
    }
    words.iter().map(|word| parse_action(syntax, word)).collect()
}

/// Where instructions stand: meter, apply, clear, write, metadata, goto.
const fn rank(instruction: &Instruction) -> u8 {
    match instruction {
        Instruction::Meter(_) => 0,
        Instruction::ApplyActions(_) => 1,
        Instruction::ClearActions => 2,
        Instruction::WriteActions(_) => 3,
        Instruction::Experimenter { .. } => 4,
        Instruction::WriteMetadata { .. } => 5,
        Instruction::GotoTable(_) => 6,
    }
}

pub(super) fn parse_instructions(syntax: &Syntax<'_>, text: &Word<'_>) -> Parsed<Vec<Instruction>> {
    let words = text.split();
    if let [only] = words[..]
        && only.text.eq_ignore_ascii_case("drop")
    {
        return Ok(Vec::new());
    }
    let mut all: Vec<Instruction> = Vec::new();
    for word in &words {
        let next = match parse_instruction(syntax, word)? {
            Some(instruction) => instruction,
            None => Instruction::ApplyActions(vec![parse_action(syntax, word)?]),
        };
        match (all.last_mut(), next) {
            (Some(Instruction::ApplyActions(before)), Instruction::ApplyActions(more)) => {
                before.extend(more);
            }
            (Some(last), next) if rank(last) >= rank(&next) => {
                let order =
                    "meter, actions, clear_actions, write_actions, write_metadata, goto_table";
                return Err(word.error(&format!("is not in order ({order}), or is there already")));
            }
            (_, next) => all.push(next),
        }
    }
    Ok(all)
}

fn need<'a>(word: &Word<'_>, argument: Option<Word<'a>>) -> Parsed<Word<'a>> {
    argument.filter(|a| !a.text.is_empty()).ok_or_else(|| word.error("has no argument"))
}

fn parse_instruction(syntax: &Syntax<'_>, word: &Word<'_>) -> Parsed<Option<Instruction>> {
    let (name, argument) = take_apart(word)?;
    let lower = name.text.to_ascii_lowercase();
    if !INSTRUCTIONS.contains(&lower.as_str()) {
        return Ok(None);
    }
    Ok(Some(match lower.as_str() {
        "goto_table" => Instruction::GotoTable(need(word, argument)?.u8()?),
        "meter" => Instruction::Meter(need(word, argument)?.u32()?),
        "clear_actions" => Instruction::ClearActions,
        "write_metadata" => {
            let (value, mask) = need(word, argument)?.masked_u64()?;
            Instruction::WriteMetadata { value, mask }
        }
        "write_actions" => {
            let inner = argument.ok_or_else(|| word.error("has no actions"))?;
            Instruction::WriteActions(parse_actions(syntax, &inner)?)
        }
        "apply_actions" => {
            let inner = argument.ok_or_else(|| word.error("has no actions"))?;
            Instruction::ApplyActions(parse_actions(syntax, &inner)?)
        }
        _ => return Ok(None),
    }))
}

/// Names of actions; no other is read.
const ACTIONS: &[&str] = &[
    "output",
    "controller",
    "enqueue",
    "mod_vlan_vid",
    "set_vlan_vid",
    "mod_vlan_pcp",
    "set_vlan_pcp",
    "strip_vlan",
    "pop_vlan",
    "push_vlan",
    "push_mpls",
    "pop_mpls",
    "push_pbb",
    "pop_pbb",
    "mod_dl_src",
    "mod_dl_dst",
    "mod_nw_src",
    "mod_nw_dst",
    "mod_nw_ecn",
    "mod_nw_tos",
    "mod_nw_ttl",
    "set_nw_ttl",
    "mod_tp_src",
    "mod_tp_dst",
    "dec_ttl",
    "dec_nw_ttl",
    "set_mpls_ttl",
    "dec_mpls_ttl",
    "copy_ttl_in",
    "copy_ttl_out",
    "set_mpls_label",
    "set_mpls_tc",
    "set_queue",
    "group",
    "set_field",
    "drop",
];

/// Names of instructions; no other is read.
const INSTRUCTIONS: &[&str] =
    &["meter", "apply_actions", "clear_actions", "write_actions", "write_metadata", "goto_table"];

/// Names of actions and instructions.
fn names<'a>() -> impl Iterator<Item = &'a str> {
    ACTIONS.iter().chain(INSTRUCTIONS).copied()
}

fn parse_action(syntax: &Syntax<'_>, word: &Word<'_>) -> Parsed<Action> {
    let (name, argument) = take_apart(word)?;
    let argument_of = || need(word, argument);
    let field = |field: Field| -> Parsed<Action> {
        Ok(Action::SetField(field, values::value(syntax, field, &argument_of()?)?))
    };
    // Names are read without regard to case, as ports are.
    let lower = name.text.to_ascii_lowercase();
    if INSTRUCTIONS.contains(&lower.as_str()) {
        return Err(word.error("is an instruction, not an action"));
    }
    if !ACTIONS.contains(&lower.as_str()) {
        if argument.is_some() {
            return Err(name.unknown("is not an action", names()));
        }
        return match syntax.port(word) {
            Ok(PortNo::CONTROLLER) => Ok(Action::controller(NO_BUFFER)),
            Ok(port) => Ok(Action::output(port)),
            Err(_) => {
                let all = names().chain(syntax.port_names());
                Err(word.unknown("is neither an action nor a port", all))
            }
        };
    }
    Ok(match lower.as_str() {
        "output" => match argument_of()? {
            inner if inner.text.starts_with("port=") => output(syntax, &inner)?,
            port => Action::output(syntax.port(&port)?),
        },
        "controller" => controller(argument)?,
        "enqueue" => {
            let inner = argument_of()?;
            let (port, queue) = inner.split_at(&[':', ',']);
            let queue = queue.ok_or_else(|| word.error("has no queue (enqueue:PORT:QUEUE)"))?;
            Action::Enqueue { port: syntax.port(&port)?, queue: queue.u32()? }
        }
        "mod_vlan_vid" | "set_vlan_vid" => Action::SetVlanVid(argument_of()?.number(0xfff)? as u16),
        "mod_vlan_pcp" | "set_vlan_pcp" => Action::SetVlanPcp(argument_of()?.number(7)? as u8),
        "strip_vlan" | "pop_vlan" => Action::PopVlan,
        "push_vlan" => {
            let tag = argument_of()?;
            match tag.u16()? {
                ethertype @ (0x8100 | 0x88a8) => Action::PushVlan(ethertype),
                _ => {
                    return Err(
                        tag.error("is not the Ethernet type of a VLAN tag (0x8100, 0x88a8)")
                    );
                }
            }
        }
        "push_mpls" => {
            let tag = argument_of()?;
            match tag.u16()? {
                ethertype @ (0x8847 | 0x8848) => Action::PushMpls(ethertype),
                _ => return Err(tag.error("is not an Ethernet type of MPLS (0x8847, 0x8848)")),
            }
        }
        "pop_mpls" => Action::PopMpls(argument_of()?.u16()?),
        "push_pbb" => Action::PushPbb(argument_of()?.u16()?),
        "pop_pbb" => Action::PopPbb,
        "mod_dl_src" => field(Field::EthSrc)?,
        "mod_dl_dst" => field(Field::EthDst)?,
        "mod_nw_src" => field(Field::Ipv4Src)?,
        "mod_nw_dst" => field(Field::Ipv4Dst)?,
        "mod_nw_ecn" => field(Field::IpEcn)?,
        "mod_nw_tos" => {
            let tos = argument_of()?;
            match tos.u8()? {
                value if value & 3 == 0 => Action::SetField(Field::IpDscp, u128::from(value >> 2)),
                _ => return Err(tos.error("has bits of ECN set (mod_nw_ecn)")),
            }
        }
        "mod_nw_ttl" | "set_nw_ttl" => Action::SetNwTtl(argument_of()?.u8()?),
        "mod_tp_src" => Action::SetTpSrc(argument_of()?.u16()?),
        "mod_tp_dst" => Action::SetTpDst(argument_of()?.u16()?),
        "dec_ttl" | "dec_nw_ttl" => Action::DecNwTtl,
        "set_mpls_ttl" => Action::SetMplsTtl(argument_of()?.u8()?),
        "dec_mpls_ttl" => Action::DecMplsTtl,
        "copy_ttl_in" => Action::CopyTtlIn,
        "copy_ttl_out" => Action::CopyTtlOut,
        "set_mpls_label" => field(Field::MplsLabel)?,
        "set_mpls_tc" => field(Field::MplsTc)?,
        "set_queue" => Action::SetQueue(argument_of()?.u32()?),
        "group" => Action::Group(argument_of()?.u32()?),
        "set_field" => set_field(syntax, word, &argument_of()?)?,
        "drop" => return Err(word.error("has to be the only action")),
        _ => return Err(name.error("is not an action")),
    })
}

/// `output(port=1,max_len=100)`.
fn output(syntax: &Syntax<'_>, inner: &Word<'_>) -> Parsed<Action> {
    let (mut port, mut max_len) = (None, 0);
    for part in inner.split() {
        match part.split_at(&['=']) {
            (key, Some(value)) if key.text == "port" => port = Some(syntax.port(&value)?),
            (key, Some(value)) if key.text == "max_len" => max_len = value.u16()?,
            _ => return Err(part.error("is not part of output")),
        }
    }
    match port {
        Some(PortNo::CONTROLLER) => Ok(Action::controller(max_len)),
        Some(_) if max_len != 0 => {
            Err(inner.error("cuts packets, which only the controller's port does"))
        }
        Some(port) => Ok(Action::output(port)),
        None => Err(inner.error("has no port")),
    }
}

/// `controller`, `controller:128`, `controller(max_len=128)`.
fn controller(argument: Option<Word<'_>>) -> Parsed<Action> {
    let Some(inner) = argument else { return Ok(Action::controller(NO_BUFFER)) };
    if inner.text.is_empty() {
        return Ok(Action::controller(NO_BUFFER));
    }
    if !inner.text.contains('=') {
        return inner.u16().map(Action::controller);
    }
    let mut max_len = NO_BUFFER;
    for part in inner.split() {
        match part.split_at(&['=']) {
            (key, Some(value)) if key.text == "max_len" => max_len = value.u16()?,
            _ => return Err(part.error("is not part of controller (max_len)")),
        }
    }
    Ok(Action::controller(max_len))
}

/// Names of what `set_field` sets.
fn settable() -> impl Iterator<Item = &'static str> {
    const OTHERS: [&str; 8] =
        ["nw_tos", "nw_ttl", "mpls_ttl", "dl_vlan", "tp_src", "tp_dst", "nw_src", "nw_dst"];
    let fields = matches::fields().filter(|(_, field)| field.is_settable());
    fields.map(|(name, _)| name).chain(OTHERS)
}

/// `value->field`.
fn set_field(syntax: &Syntax<'_>, word: &Word<'_>, inner: &Word<'_>) -> Parsed<Action> {
    let Some(at) = inner.text.find("->") else {
        return Err(word.error("is not set_field:VALUE->FIELD"));
    };
    let (value, name) = (inner.to(at).trim(), inner.from(at + 2).trim());
    let name_of = match name.text {
        "nw_tos" => {
            let tos = value.u8()?;
            return Ok(Action::SetField(Field::IpDscp, u128::from(tos >> 2)));
        }
        "nw_ttl" => return Ok(Action::SetNwTtl(value.u8()?)),
        "mpls_ttl" => return Ok(Action::SetMplsTtl(value.u8()?)),
        "dl_vlan" => {
            let vid = value.number(0xfff)? | u128::from(VLAN_PRESENT);
            return Ok(Action::SetField(Field::VlanVid, vid));
        }
        // The field of the transport that the match names; in a bucket that of the packet.
        "tp_src" | "tp_dst" => {
            let is_source = name.text == "tp_src";
            match (syntax.proto, is_source) {
                (None, true) => return Ok(Action::SetTpSrc(value.u16()?)),
                (None, false) => return Ok(Action::SetTpDst(value.u16()?)),
                (Some(Some(6)), true) => "tcp_src",
                (Some(Some(6)), false) => "tcp_dst",
                (Some(Some(17)), true) => "udp_src",
                (Some(Some(17)), false) => "udp_dst",
                (Some(Some(132)), true) => "sctp_src",
                (Some(Some(132)), false) => "sctp_dst",
                _ => return Err(name.error("needs a protocol in the match (tcp, udp, sctp)")),
            }
        }
        "nw_src" => "ip_src",
        "nw_dst" => "ip_dst",
        other => other,
    };
    match matches::field(name_of) {
        Some(field) if field.is_settable() => {
            Ok(Action::SetField(field, values::value(syntax, field, &value)?))
        }
        Some(_) => Err(name.error("cannot be set")),
        None => Err(name.unknown("is not a field", settable())),
    }
}

/// Prints actions as ovs-ofctl does; `drop` where there is none.
#[derive(Clone, Copy, Debug)]
pub struct ActionsText<'a>(pub &'a [Action]);

impl fmt::Display for ActionsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("drop");
        }
        for (n, action) in self.0.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { "," })?;
            write_action(f, action)?;
        }
        Ok(())
    }
}

fn write_action(f: &mut fmt::Formatter<'_>, action: &Action) -> fmt::Result {
    match action {
        Action::Output { port: PortNo::CONTROLLER, max_len } => write!(f, "CONTROLLER:{max_len}"),
        Action::Output { port, .. } => match port.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "output:{port}"),
        },
        Action::SetField(field, value) => {
            f.write_str("set_field:")?;
            matches::write_set(f, *field, *value)
        }
        Action::PushVlan(ethertype) => write!(f, "push_vlan:{ethertype:#06x}"),
        Action::PopVlan => f.write_str("pop_vlan"),
        Action::PushMpls(ethertype) => write!(f, "push_mpls:{ethertype:#06x}"),
        Action::PopMpls(ethertype) => write!(f, "pop_mpls:{ethertype:#06x}"),
        Action::PushPbb(ethertype) => write!(f, "push_pbb:{ethertype:#06x}"),
        Action::PopPbb => f.write_str("pop_pbb"),
        Action::CopyTtlOut => f.write_str("copy_ttl_out"),
        Action::CopyTtlIn => f.write_str("copy_ttl_in"),
        Action::SetMplsTtl(ttl) => write!(f, "set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => f.write_str("dec_mpls_ttl"),
        Action::SetNwTtl(ttl) => write!(f, "mod_nw_ttl:{ttl}"),
        Action::DecNwTtl => f.write_str("dec_ttl"),
        Action::Group(group) => write!(f, "group:{group}"),
        Action::SetQueue(queue) => write!(f, "set_queue:{queue}"),
        Action::Enqueue { port, queue } => write!(f, "enqueue:{port}:{queue}"),
        Action::SetVlanVid(vid) => write!(f, "mod_vlan_vid:{vid}"),
        Action::SetVlanPcp(pcp) => write!(f, "mod_vlan_pcp:{pcp}"),
        Action::SetTpSrc(port) => write!(f, "mod_tp_src:{port}"),
        Action::SetTpDst(port) => write!(f, "mod_tp_dst:{port}"),
        Action::Experimenter { id, .. } => write!(f, "experimenter:{id:#x}"),
    }
}

/// Prints instructions as ovs-ofctl prints them behind `actions=`.
#[derive(Clone, Copy, Debug)]
pub struct InstructionsText<'a>(pub &'a [Instruction]);

impl fmt::Display for InstructionsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Instruction> = self.0.iter().collect();
        sorted.sort_by_key(|i| rank(i));
        // A list of no action to apply says nothing.
        sorted.retain(|i| !matches!(i, Instruction::ApplyActions(actions) if actions.is_empty()));
        if sorted.is_empty() {
            return f.write_str("drop");
        }
        for (n, instruction) in sorted.into_iter().enumerate() {
            f.write_str(if n == 0 { "" } else { "," })?;
            match instruction {
                Instruction::GotoTable(table) => write!(f, "goto_table:{table}")?,
                Instruction::WriteMetadata { value, mask: u64::MAX } => {
                    write!(f, "write_metadata:{value:#x}")?
                }
                Instruction::WriteMetadata { value, mask } => {
                    write!(f, "write_metadata:{value:#x}/{mask:#x}")?
                }
                Instruction::WriteActions(actions) => {
                    write!(f, "write_actions({})", ActionsText(actions))?
                }
                Instruction::ApplyActions(actions) => write!(f, "{}", ActionsText(actions))?,
                Instruction::ClearActions => f.write_str("clear_actions")?,
                Instruction::Meter(meter) => write!(f, "meter:{meter}")?,
                Instruction::Experimenter { id, .. } => write!(f, "experimenter:{id:#x}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an action or instruction of this name is read, with an argument that suits it.
    fn is_read(name: &str) -> bool {
        const ARGUMENTS: &[&str] = &[
            "",
            ":1",
            ":4",
            ":1:2",
            ":0x8100",
            ":0x8847",
            ":10.0.0.1",
            ":02:00:00:00:00:01",
            ":5->tun_id",
            "(output:1)",
        ];
        let texts = ARGUMENTS.iter().map(|argument| format!("{name}{argument}"));
        texts.into_iter().any(|text| Syntax::new().instructions(&text).is_ok())
    }

    #[test]
    fn all_names_are_read_and_offered() {
        for name in names().chain(Syntax::new().port_names()) {
            assert!(is_read(name), "{name}");
            assert!(is_read(&name.to_ascii_uppercase()), "{name}");
            let stem = &name[..name.len() - 1];
            let message = Syntax::new().instructions(stem).unwrap_err().message;
            let expected =
                format!("`{stem}` is neither an action nor a port, did you mean `{name}`?");
            // `controller` is both.
            assert!(message.eq_ignore_ascii_case(&expected), "{message}");
        }
        for name in names() {
            let stem = &name[..name.len() - 1];
            let message = Syntax::new().instructions(&format!("{stem}:1")).unwrap_err().message;
            assert_eq!(message, format!("`{stem}` is not an action, did you mean `{name}`?"));
        }
        assert!(!is_read("nonsense"));
    }

    #[test]
    fn all_fields_that_are_set_are_read_and_offered() {
        let set = |value: &str, name: &str| {
            Syntax::new().actions(&format!("set_field:{value}->{name}")).map_err(|e| e.message)
        };
        for name in settable() {
            let values = ["1", "10.0.0.1", "::1", "02:00:00:00:00:01"];
            assert!(values.iter().any(|value| set(value, name).is_ok()), "{name}");
            let stem = &name[..name.len() - 1];
            let hint = format!("`{stem}` is not a field, did you mean `{name}`?");
            assert_eq!(set("1", stem), Err(hint), "{name}");
        }
        assert!(!set("1", "vlan_tci").unwrap_err().contains("mean `vlan_tci`"), "no field to set");
    }
}
