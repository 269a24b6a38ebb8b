//! What whoever carries the packets tells the kernel: requests that lead to the kernel's own announcements.
//!
//! | message | what the kernel does |
//! | --- | --- |
//! | `NEWAE` with `NLM_F_REPLACE` | takes numbers, window and counts; `GETAE` and `GETSA` show them |
//! | `EXPIRE` | announces it; removes the association if the limit is hard |
//! | `POLEXPIRE` | the same for a policy |
//! | `ACQUIRE` | announces it, and a key-exchange daemon begins |
//!
//! [`mapping`] is no request: the kernel announces it of its own accord only, so whoever carries the packets announces it in the
//! kernel's form.
//!
//! Each function gives a message and the flags of its header, without `NLM_F_REQUEST` and `NLM_F_ACK`.

use std::net::IpAddr;

use crate::attribute::Attribute;
use crate::message::{Body, Kind, Message};
use crate::structs::value::*;
use crate::structs::{
    Acquire, EventId, Expire, Id, Mapping, Mark, PolicyExpire, PolicyType, SaInfo, Selector,
};
use crate::types::{Association, Counters, Mode, Policy, PolicyDirection};
use crate::wire::{Port, Spi, family};

/// `NLM_F_REPLACE`.
const REPLACE: u16 = 0x100;

fn with_mark(message: Message, (v, m): (u32, u32)) -> Message {
    match (v, m) {
        (0, 0) => message,
        _ => message.with(Attribute::Mark(Mark { v, m })),
    }
}

/// Sets sequence numbers, window and counts of an association.
pub fn counters(association: &Association, counters: &Counters) -> (Message, u16) {
    let id = EventId {
        sa_id: association.id.to_wire(),
        saddr: association.source.into(),
        flags: XFRM_AE_RVAL | XFRM_AE_LVAL,
        reqid: association.reqid,
    };
    let message = Message::new(Kind::NewAe, Body::EventId(id))
        .with(counters.replay(association))
        .with(Attribute::Lifetime(counters.used));
    (with_mark(message, association.id.mark), REPLACE)
}

/// An association has reached a limit; a hard one ends it.
pub fn expire(association: &Association, counters: &Counters, is_hard: bool) -> (Message, u16) {
    let id = association.id;
    let state = SaInfo {
        id: Id { daddr: id.destination.into(), spi: Spi(id.spi), proto: id.protocol },
        saddr: association.source.into(),
        lft: association.limits,
        curlft: counters.used,
        reqid: association.reqid,
        family: family(id.destination),
        mode: match association.mode {
            Mode::Transport => XFRM_MODE_TRANSPORT,
            Mode::Tunnel => XFRM_MODE_TUNNEL,
            Mode::Other(mode) => mode,
        },
        ..SaInfo::default()
    };
    let body = Body::Expire(Expire { state, hard: is_hard.into() });
    (with_mark(Message::new(Kind::Expire, body), id.mark), 0)
}

/// The sender of UDP-encapsulated packets of an association has another address or port (`build_mapping` of the kernel): a message
/// for the group `MAPPING`. `None` if the association has no encapsulation, or if this is where it says that the sender is.
pub fn mapping(association: &Association, address: IpAddr, port: u16) -> Option<Message> {
    let (id, udp) = (association.id, association.udp?);
    let before = (association.source, udp.source_port);
    if before == (address, port) || address.is_ipv4() != association.source.is_ipv4() {
        return None;
    }
    let body = Mapping {
        id: id.to_wire(),
        reqid: association.reqid,
        old_saddr: before.0.into(),
        new_saddr: address.into(),
        old_sport: Port(before.1),
        new_sport: Port(port),
    };
    Some(Message::new(Kind::Mapping, Body::Mapping(body)))
}

/// A policy has reached a limit; a hard one ends it.
pub fn expire_policy(policy: &Policy, is_hard: bool) -> (Message, u16) {
    let body = Body::PolicyExpire(PolicyExpire { pol: policy.info, hard: is_hard.into() });
    (with_policy(Message::new(Kind::PolExpire, body), policy), 0)
}

fn with_policy(message: Message, policy: &Policy) -> Message {
    let mut message = with_mark(message, policy.mark);
    if policy.is_sub {
        let kind = PolicyType { value: XFRM_POLICY_TYPE_SUB, ..PolicyType::default() };
        message = message.with(Attribute::PolicyType(kind));
    }
    match policy.if_id {
        0 => message,
        id => message.with(Attribute::InterfaceId(id)),
    }
}

/// A packet that a policy protects found no association. Source and destination are the packet's; the ends of the
/// association are those of the policy's template in tunnel mode, otherwise the packet's. `None` if the policy is not for
/// packets that leave, or has no template.
pub fn acquire(
    policy: &Policy,
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    (source_port, destination_port): (u16, u16),
) -> Option<(Message, u16)> {
    let (template, wire) = policy.templates.first().zip(policy.wire_templates.first())?;
    if policy.id.direction != PolicyDirection::Out || source.is_ipv4() != destination.is_ipv4() {
        return None;
    }
    let (from, to) = template.tunnel.unwrap_or((source, destination));
    let bits = if source.is_ipv4() { 32 } else { 128 };
    let mask = |port: u16| Port(if port == 0 { 0 } else { u16::MAX });
    let sel = Selector {
        daddr: destination.into(),
        saddr: source.into(),
        dport: Port(destination_port),
        dport_mask: mask(destination_port),
        sport: Port(source_port),
        sport_mask: mask(source_port),
        family: family(source),
        prefixlen_d: bits,
        prefixlen_s: bits,
        proto: protocol,
        ..Selector::default()
    };
    let body = Acquire {
        id: Id { daddr: to.into(), spi: Spi(0), proto: template.protocol },
        saddr: from.into(),
        sel,
        policy: policy.info,
        aalgos: wire.aalgos,
        ealgos: wire.ealgos,
        calgos: wire.calgos,
        seq: 0,
    };
    let message = Message::new(Kind::Acquire, Body::Acquire(body))
        .with(Attribute::Templates(policy.wire_templates.clone()));
    Some((with_policy(message, policy), 0))
}
