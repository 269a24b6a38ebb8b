//! A ruleset from rules in their order: numbers of rules and parts, and the indexes by which they are found.

use signatures::config::RateAction;
use signatures::{Action, Buffer, Condition, FlowSide, Transform};

use crate::Sender;
use crate::checks::Op;
use crate::compile::{Draft, DraftPart, is_header_buffer, priority};
use crate::headers::HeadersBuilder;
use crate::index::{Bytes, Ports, Ref, SetBuilder};
use crate::literals::Wanted;
use crate::passing;
use crate::rule::{Carried, Compiled, Cond, Event, Kind, Part, When, least};
use crate::ruleset::{BufferSets, Layers, Options, RuleInfo, Ruleset, Search};
use crate::tables::{Counted, How};

/// The lists of transforms of a buffer, each with what is looked for behind it.
type BufferBuilder = (Vec<Transform>, [LayersBuilder; 2]);

/// All parts, and those that wait for no key.
#[derive(Default)]
struct LayersBuilder {
    all: SetBuilder,
    keys: SetBuilder,
    has_lazy: bool,
}

impl LayersBuilder {
    fn build(self, search: Search) -> Layers {
        let keys = self.has_lazy.then(|| self.keys.build(search));
        Layers { all: self.all.build(search), keys }
    }
}

/// What a ruleset is made of.
#[derive(Default)]
pub(crate) struct Builder {
    ruleset: Ruleset,
    headers: HeadersBuilder,
    packets: [[SetBuilder; 2]; 3],
    in_stream: [SetBuilder; 2],
    streams: [SetBuilder; 2],
    buffers: Vec<(Buffer, Vec<BufferBuilder>)>,
}

impl Builder {
    pub(crate) fn add(
        &mut self,
        draft: Draft<'_>,
        options: &Options,
        wanted: &Wanted,
    ) -> Result<(), String> {
        let Draft { index, rule, mut compiled, parts, .. } = draft;
        let number = self.ruleset.rules.len() as u32;
        let is_key = |part: &DraftPart| {
            let is_of_transaction =
                part.buffer != Buffer::Payload && !is_header_buffer(part.buffer);
            is_of_transaction && !part.absent && best(part, wanted, options.search).is_some()
        };
        let keys = parts.iter().enumerate().filter(|(_, part)| is_key(part));
        let key = keys.max_by_key(|(_, part)| {
            best(part, wanted, options.search).map_or(0, |(_, strength)| strength)
        });
        let key = key.map(|(at, _)| at);
        compiled.key = key.map_or(0, |at| 1 << at);
        let header = match parts.is_empty() && compiled.kind != Kind::Packet {
            // Only what is looked for by bytes, or tried on each packet, is asked again and again.
            true => 0,
            false => self.headers.number(&compiled),
        };
        let decides = decides(rule.action, &compiled);
        self.ruleset.decides |= decides && !parts.is_empty();
        let too_large = |error: automata::PatternError| error.to_string();
        let mut numbers = Vec::with_capacity(parts.len());
        for (at, part) in parts.into_iter().enumerate() {
            let own = Ref { part: self.ruleset.parts.len() as u32, header };
            numbers.push(own.part);
            let literals: Vec<Bytes> =
                best(&part, wanted, options.search).map_or(&[][..], |own| own.0).to_vec();
            let is_lazy = key.is_some_and(|key| key != at)
                && part.buffer != Buffer::Payload
                && !part.ops.iter().any(|op| matches!(op, Op::Dataset { .. }));
            let senders =
                [Sender::Client, Sender::Server].into_iter().filter(|s| part.senders[s.index()]);
            for sender in senders {
                let side = sender.index();
                let ports = ports(&compiled, flow_to(&compiled), sender);
                if part.buffer == Buffer::Payload && part.transforms.is_empty() {
                    if compiled.kind == Kind::Stream
                        || compiled.kind == Kind::Transaction && !compiled.needs_packet
                    {
                        self.streams[side].add(own, &literals, ports.clone()).map_err(too_large)?;
                    }
                    let in_packets = compiled.needs_packet || compiled.in_packets;
                    if in_packets && classes(&compiled.carried).contains(&0) {
                        self.in_stream[side]
                            .add(own, &literals, ports.clone())
                            .map_err(too_large)?;
                    }
                    for class in classes(&compiled.carried) {
                        self.packets[class][side]
                            .add(own, &literals, ports.clone())
                            .map_err(too_large)?;
                    }
                    continue;
                }
                if part.buffer == Buffer::Payload {
                    return Err("transforms of the payload".to_owned());
                }
                if is_header_buffer(part.buffer) {
                    if !part.transforms.is_empty() {
                        return Err("transforms of a header".to_owned());
                    }
                    continue;
                }
                let sets = match self.buffers.iter().position(|(buffer, _)| *buffer == part.buffer)
                {
                    Some(at) => at,
                    None => {
                        self.buffers.push((part.buffer, Vec::new()));
                        self.buffers.len() - 1
                    }
                };
                let sets = &mut self.buffers[sets].1;
                let set = match sets.iter().position(|(own, _)| *own == part.transforms) {
                    Some(at) => at,
                    None => {
                        sets.push((part.transforms.clone(), Default::default()));
                        sets.len() - 1
                    }
                };
                let layers = &mut sets[set].1[side];
                layers.has_lazy |= is_lazy;
                if !is_lazy {
                    layers.keys.add(own, &literals, ports.clone()).map_err(too_large)?;
                }
                layers.all.add(own, &literals, ports).map_err(too_large)?;
                if part.absent && !is_lazy {
                    self.ruleset.absent[side].push(own.part);
                }
            }
            let is_of_set = part.ops.iter().any(|op| matches!(op, Op::Dataset { .. }));
            if is_of_set && part.buffer != Buffer::Payload && !is_header_buffer(part.buffer) {
                self.ruleset.of_sets.push(self.ruleset.parts.len() as u32);
            }
            self.ruleset.parts.push(Part {
                rule: number,
                header,
                bit: 1 << at,
                buffer: part.buffer,
                transforms: part.transforms.into(),
                when: When::of(&part.ops),
                defers: part.ops.iter().any(Op::defers),
                least: least(&part.ops),
                senders: part.senders,
                absent: part.absent,
                decides,
                has_literal: !literals.is_empty(),
                is_lazy,
                ops: part.ops.into(),
                texts: part.texts.into(),
            });
        }
        compiled.parts = numbers.into();
        match compiled.kind {
            Kind::Addresses => self.ruleset.addresses.push(number),
            Kind::Event => match compiled.event {
                Some(Event::Named(name)) => {
                    self.ruleset.events.entry(name).or_default().push(number);
                }
                Some(Event::Application(kind)) => {
                    self.ruleset.app_events.entry(kind).or_default().push(number);
                }
                None => {}
            },
            Kind::Application => self.ruleset.applications.push(number),
            Kind::Packet if compiled.payload == 0 => {
                if is_of_fragments(&compiled) {
                    self.ruleset.fragments.push(number);
                }
                let side = flow_to(&compiled);
                for class in classes(&compiled.carried) {
                    for sender in [Sender::Client, Sender::Server] {
                        let is_other = match side {
                            Some(FlowSide::Server) => sender == Sender::Server,
                            Some(FlowSide::Client) => sender == Sender::Client,
                            None => false,
                        };
                        if !is_other {
                            let plain = &mut self.ruleset.plain[class][sender.index()];
                            plain.add(number, header, &compiled);
                            let is_of_some = class == 0 && passing::is_of_some(&compiled);
                            if is_of_some && passing::may_hold_of_some(&compiled) {
                                let screen = &mut self.ruleset.screens[sender.index()];
                                screen.add(number, header, &compiled);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        let class = rule.classtype.as_ref();
        let class = class.and_then(|name| options.classes.get(&name.to_ascii_lowercase()));
        self.ruleset.info.push(RuleInfo {
            index,
            gid: rule.gid,
            sid: rule.sid,
            rev: rule.rev,
            msg: rule.msg.clone().unwrap_or_default(),
            action: rule.action,
            priority: priority(rule, options),
            category: class.map(|class| class.description.clone()).unwrap_or_default(),
            metadata: rule.metadata.clone(),
            references: rule.references.clone(),
            tags: rule.tags.clone(),
        });
        self.ruleset.rules.push(compiled);
        Ok(())
    }

    pub(crate) fn build(self, search: Search) -> Ruleset {
        let mut ruleset = self.ruleset;
        if search == Search::Shared {
            let sets = self.packets.iter().flatten().chain(&self.in_stream).chain(&self.streams);
            let literals = sets.flat_map(|set| set.patterns().iter().cloned());
            ruleset.literals = Some(literals.collect());
        }
        ruleset.headers = self.headers.build();
        ruleset.screened = passing::screened(&ruleset.screens);
        let both = |sets: [SetBuilder; 2]| sets.map(|set| set.build(search));
        ruleset.packets = self.packets.map(both);
        ruleset.in_stream = both(self.in_stream);
        ruleset.streams = both(self.streams);
        let most = self.buffers.iter().map(|(buffer, _)| *buffer as usize + 1).max().unwrap_or(0);
        ruleset.buffers.resize_with(most, Vec::new);
        for (buffer, sets) in self.buffers {
            let built = sets.into_iter().map(|(transforms, sets)| {
                let sets = sets.map(|layers| layers.build(search));
                BufferSets { transforms, sets }
            });
            ruleset.buffers[buffer as usize] = built.collect();
        }
        ruleset
    }
}

/// What a part is looked for by, and what speaks for it.
fn best<'a>(part: &'a DraftPart, wanted: &Wanted, search: Search) -> Option<(&'a [Bytes], i32)> {
    match search {
        Search::Every => None,
        search => part.candidates.best(wanted, search),
    }
}

/// Whether a rule may drop or pass packets.
fn decides(action: Action, rule: &Compiled) -> bool {
    let is_alert = |own: &Action| matches!(own, Action::Alert | Action::Log);
    let is_rate = |own: &Counted| match &own.how {
        How::Rate { action, .. } => !matches!(action, RateAction::Alert | RateAction::Log),
        _ => false,
    };
    !is_alert(&action) || rule.counted.iter().any(is_rate)
}

/// Whether single fragments are tried for a rule. They have no ports.
fn is_of_fragments(rule: &Compiled) -> bool {
    let names = |cond: &Cond| {
        matches!(cond, Cond::Packet(Condition::Fragbits(_) | Condition::FragOffset(_)))
    };
    let ends = &rule.ends;
    let has_ports = ends.source_ports.is_some() || ends.destination_ports.is_some();
    !has_ports && rule.conditions.iter().any(names)
}

/// The direction that a rule asks for.
fn flow_to(rule: &Compiled) -> Option<FlowSide> {
    rule.conditions.iter().find_map(|cond| match cond {
        Cond::Flow(flow) => flow.to,
        _ => None,
    })
}

/// The ports of servers for which a part of a rule is looked for in what `sender` sends.
fn ports(rule: &Compiled, to: Option<FlowSide>, sender: Sender) -> Ports {
    let ends = &rule.ends;
    let ports = match (rule.kind, to, sender) {
        _ if ends.both => return None,
        // Parts may be of either sender, whatever way the header is compared.
        (Kind::Transaction, None, _) => return None,
        (Kind::Transaction, Some(FlowSide::Server), _) => &ends.destination_ports,
        (Kind::Transaction, Some(FlowSide::Client), _) => &ends.source_ports,
        (_, _, Sender::Client) => &ends.destination_ports,
        (_, _, Sender::Server) => &ends.source_ports,
    };
    Some(ports.as_ref()?.to_vec())
}

/// The classes of packets that a rule's header may match: TCP, UDP, others.
fn classes(carried: &Carried) -> Vec<usize> {
    match carried {
        Carried::Any | Carried::Ipv4 | Carried::Ipv6 => vec![0, 1, 2],
        Carried::Upper(6) => vec![0],
        Carried::Upper(17) => vec![1],
        Carried::Upper(_) | Carried::Icmp => vec![2],
        Carried::Application(_) => vec![0, 1],
    }
}
