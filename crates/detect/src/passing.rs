//! Whether anything can come of packets that only carry an encrypted stream on.
//!
//! Of such a packet no payload is searched. What is left are rules that have no payload.
//!
//! ```text
//!  rules of packets ─┬▶ flags of TCP, state of flows, … : cannot hold ─▶ not asked
//!                    ├▶ length, window, TTL, … decide: asked packet by packet, by length and port (Ruleset::asks_for)
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
use crate::ruleset::Plain;
use crate::{Detector, FlowState, Ruleset, Sender};

/// Payloads that are longer are asked about rule by rule.
const SCREENED: usize = 2_048;

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
        let port = decoded.dst_port();
        let screened = &self.screened[usize::from(segment.flags & PSH != 0)];
        let len = segment.payload.len();
        // Nearly all are of a length that no rule asks for.
        let may_ask = segment.flags & !PSH != ACK
            || screened.get(len / 64).is_none_or(|bits| bits >> (len % 64) & 1 != 0)
            || self.screens.iter().any(|screen| screen.may_have_port(port));
        may_ask && self.is_asked_for(decoded, segment, port)
    }

    /// The same, by all rules.
    fn is_asked_for(&self, decoded: &Decoded, segment: &Segment<'_>, port: u16) -> bool {
        let flags = segment.flags as u8;
        let payload = segment.payload.len();
        self.screens.iter().any(|screen| {
            let mut tried = screen.of(port).filter(|own| own.may_have(flags, payload));
            tried.any(|own| {
                let rule = &self.rules[own.rule as usize];
                rule.conditions.iter().all(|own| segment_may_have(own, decoded, segment))
            })
        })
    }
}

/// See [`Ruleset::screened`].
pub(crate) fn screened(screens: &[Plain; 2]) -> [Box<[u64]>; 2] {
    [ACK, ACK | PSH].map(|flags| {
        let mut bits = vec![0_u64; SCREENED / 64];
        for own in screens.iter().flat_map(Plain::of_any) {
            for len in (0..SCREENED).filter(|len| own.may_have(flags as u8, *len)) {
                bits[len / 64] |= 1 << (len % 64);
            }
        }
        bits.into()
    })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use signatures::{Loader, Variables};

    use super::*;
    use crate::Options;

    fn compiled(text: &str) -> Ruleset {
        let any = [("HOME_NET", "any"), ("EXTERNAL_NET", "any")];
        let variables = Variables::with_defaults(any, []).unwrap();
        let mut loader = Loader::new(variables.clone());
        loader.read("x", text.as_bytes()).unwrap();
        let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
        assert!(refused.is_empty(), "{refused:?}");
        rules
    }

    fn rule() -> impl Strategy<Value = String> {
        let size = prop_oneof![
            (0..2_200_u32).prop_map(|len| format!("dsize:{len}; ")),
            (0..2_200_u32).prop_map(|len| format!("dsize:<{len}; ")),
            (0..2_200_u32).prop_map(|len| format!("dsize:>{len}; ")),
            (0..2_200_u32).prop_map(|len| format!("dsize:!{len}; ")),
            (0..100_u32, 100..2_200_u32).prop_map(|(a, b)| format!("dsize:{a}<>{b}; ")),
            Just(String::new()),
        ];
        let flags =
            prop::sample::select(vec!["", "flags:A; ", "flags:PA; ", "flags:A+; ", "flags:P+; "]);
        let others = prop::sample::select(vec!["", "window:9; ", "ttl:<9; "]);
        let port = prop::sample::select(vec!["any", "443", "80:90", "1024:"]);
        (size, flags, others, port).prop_map(|(size, flags, others, port)| {
            format!("alert tcp any any -> any {port} ({size}{flags}{others}flow:established; sid:")
        })
    }

    proptest! {
        /// What no rule asks for at once is what none asks for one by one.
        #[test]
        fn lengths_screen_nothing_that_is_asked_for(
            rules in prop::collection::vec(rule(), 0..5),
            packets in prop::collection::vec(
                (0..2_300_usize, any::<bool>(), prop::sample::select(vec![9_u16, 10]), prop::sample::select(vec![80_u16, 443, 1_104, 2_000])),
                1..20,
            ),
        ) {
            let text = rules.iter().enumerate().map(|(at, own)| format!("{own}{};)\n", at + 1));
            let rules = compiled(&text.collect::<String>());
            for (len, pushes, window, port) in packets {
                let payload = vec![0; len];
                let flags = if pushes { ACK | PSH } else { ACK };
                let segment = Segment { flags, window, payload: &payload, ..Segment::default() };
                let mut frame = vec![0; 54];
                frame[12] = 8;
                frame[14] = 0x45;
                frame[17] = 40;
                frame[22] = 64;
                frame[23] = 6;
                frame[24..26].copy_from_slice(&[0x7a, 0xd1]);
                frame[36..38].copy_from_slice(&port.to_be_bytes());
                frame[46] = 0x50;
                let decoded = packet::decode(&frame, frame.len());
                prop_assert_eq!(decoded.dst_port(), port);
                let asked = rules.is_asked_for(&decoded, &segment, port);
                prop_assert_eq!(rules.asks_for(&decoded, &segment), asked);
            }
        }
    }
}
