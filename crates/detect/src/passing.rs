//! Whether anything can come of packets that only carry an encrypted stream on.
//!
//! Of such a packet no payload is searched. What is left are rules that have no payload.
//!
//! ```text
//!  rules of packets ─┬▶ flags of TCP, state of flows, … : cannot hold ─▶ not asked
//!                    ├▶ length, window, TTL, … decide: asked packet by packet, by their ports alone (Ruleset::asks_for)
//!                    └▶ all else, if the header of the rule holds: the flow is looked at (Detector::may_pass_over)
//! ```

use packet::Decoded;
use packet::tcp::flags::{ACK, PSH};
use signatures::{Compare, Condition, FlowSide, FlowState as State};
use stream::tcp::Segment;

use crate::conditions::is_application;
use crate::header::flags_hold;
use crate::headers::Compared;
use crate::rule::{Carried, Compiled, Cond, Way};
use crate::{Detector, FlowState, Ruleset, Sender};

impl Detector {
    /// Whether no rule can match a packet of a flow of TCP that only carries an encrypted stream on: the next segment of either end,
    /// with no flags but ACK and PSH, unless [`Ruleset::asks_for`] it. It stays so as long as the rules are the same and packets of the flow do no more than that;
    /// nothing that the detector keeps depends on them. `None`: not yet, something of the flow is still waited for.
    pub fn may_pass_over(&self, flow: &mut FlowState) -> Option<bool> {
        let rules = &self.rules;
        if rules.asks_for_sizes || flow.is_none || flow.is_dropped {
            return Some(false);
        }
        if !flow.is_encrypted || flow.generation != rules.generation || !flow.is_established() {
            return None;
        }
        if flow.is_passed {
            return Some(true);
        }
        let application = { flow.application.iter().flatten() }.find(|name| **name != "failed")?;
        let has_both = |done: &[bool; 2], rules: &[u32]| rules.is_empty() || *done == [true; 2];
        let is_settled = flow.waiting.is_empty()
            && has_both(&flow.addresses_done, &rules.addresses)
            && has_both(&flow.application_done, &rules.applications);
        if !is_settled {
            return None;
        }
        for sender in [Sender::Client, Sender::Server] {
            let way = flow.way_of(sender).filter(|way| way.protocol == 6)?;
            let side = sender.index();
            let headers: &mut Compared = &mut flow.headers[side];
            for own in rules.plain[0][side].of(way.destination_port) {
                let rule = &rules.rules[own.rule as usize];
                if !is_of_some(rule)
                    && headers.holds(&rules.headers, own.header, Some(&way))
                    && may_hold(rule, &way, sender, application)
                {
                    return Some(false);
                }
            }
        }
        Some(true)
    }
}

impl Ruleset {
    /// Whether a rule may ask for a segment that carries an encrypted stream on, by what its headers have.
    pub fn asks_for(&self, decoded: &Decoded, segment: &Segment<'_>) -> bool {
        let flags = segment.flags as u8;
        let payload = segment.payload.len();
        let port = decoded.dst_port();
        self.screens.iter().any(|screen| {
            let mut tried = screen.of(port).filter(|own| own.may_have(flags, payload));
            tried.any(|own| {
                let rule = &self.rules[own.rule as usize];
                rule.conditions.iter().all(|own| segment_may_have(own, decoded, segment))
            })
        })
    }
}

/// Whether a rule is only of some of the packets that carry a stream on, as their headers are: it is asked packet by packet.
pub(crate) fn is_of_some(rule: &Compiled) -> bool {
    rule.conditions.iter().any(|own| {
        let Cond::Packet(own) = own else { return false };
        match own {
            Condition::Dsize(_)
            | Condition::Window(_)
            | Condition::Ttl(_)
            | Condition::Tos(_)
            | Condition::Seq(_)
            | Condition::Ack(_) => true,
            Condition::Flags(flags) => {
                !flags_hold(flags, ACK as u8) || !flags_hold(flags, (ACK | PSH) as u8)
            }
            _ => false,
        }
    })
}

/// Whether a rule may hold of some packet that carries a stream on.
pub(crate) fn may_hold_of_some(rule: &Compiled) -> bool {
    let carried = match rule.carried {
        Carried::Upper(upper) => upper == 6,
        Carried::Icmp => false,
        _ => true,
    };
    carried && rule.conditions.iter().all(may_ever_hold)
}

fn segment_may_have(condition: &Cond, d: &Decoded, segment: &Segment<'_>) -> bool {
    let Cond::Packet(condition) = condition else { return true };
    match condition {
        Condition::Dsize(size) => match size {
            Compare::NotEqual(_) if segment.payload.is_empty() => false,
            size => size.holds(segment.payload.len() as u64),
        },
        Condition::Flags(flags) => flags_hold(flags, segment.flags as u8),
        Condition::Window(window) => (window.number == u32::from(segment.window)) != window.negated,
        Condition::Ttl(ttl) => ttl.holds(u64::from(d.ttl)),
        Condition::Tos(tos) => (tos.number == u32::from(d.traffic_class)) != tos.negated,
        Condition::Seq(number) => *number == segment.sequence,
        Condition::Ack(number) => *number == segment.acknowledgment,
        _ => true,
    }
}

/// Whether a rule of packets may hold of one that carries a stream on.
fn may_hold(rule: &Compiled, way: &Way, sender: Sender, application: &str) -> bool {
    let carried = match rule.carried {
        Carried::Any => true,
        Carried::Ipv4 => way.source.is_ipv4(),
        Carried::Ipv6 => way.source.is_ipv6(),
        Carried::Upper(upper) => upper == way.protocol,
        Carried::Icmp => false,
        Carried::Application(name) => is_application(name, application),
    };
    let to = |condition: &Cond| match condition {
        Cond::Packet(Condition::SameIp) => way.source == way.destination,
        Cond::Flow(flow) => match flow.to {
            None => true,
            Some(FlowSide::Server) => sender == Sender::Client,
            Some(FlowSide::Client) => sender == Sender::Server,
        },
        _ => true,
    };
    carried && rule.conditions.iter().all(|own| may_ever_hold(own) && to(own))
}

/// Whether a condition may hold of some packet that carries a stream of TCP on.
fn may_ever_hold(condition: &Cond) -> bool {
    match condition {
        Cond::Packet(condition) => match condition {
            Condition::Flags(flags) => {
                [ACK, ACK | PSH].into_iter().any(|own| flags_hold(flags, own as u8))
            }
            Condition::IpProto(protocol) => protocol.holds(6),
            // It is no fragment.
            Condition::FragOffset(offset) => offset.holds(0),
            Condition::Itype(_)
            | Condition::Icode(_)
            | Condition::IcmpId(_)
            | Condition::IcmpSeq(_) => false,
            _ => true,
        },
        // What is matched is a packet of an established flow.
        Cond::Flow(flow) => flow.state != Some(State::NotEstablished) && flow.stream != Some(true),
        _ => true,
    }
}
