//! Bindings: outside ends of inside ends.

use std::ops::RangeInclusive;

use packet::IpProtocol;
use stream::table::Slot;

use super::{
    Kind, NIL, Refusal, Refused, SCOPE_HOST, SCOPE_INSIDE, SCOPE_OUTSIDE, Source, Translator,
    binding_key, host_end,
};
use crate::ports::{Class, Pool};
use crate::rules::Action;
use crate::tuple::{End, Tuple};

/// Ports that are tried at an address without a map of ports, as Linux does.
const TRIES: u32 = 128;

/// What makes room for a new session.
#[derive(Clone, Copy)]
pub(super) enum Room {
    /// Nothing: there is room.
    Free,
    /// A session, by its original entry, which has not ended yet: perhaps the new one is refused.
    Of(Slot),
    /// A session that has ended, and left this port.
    Left(u16),
}

/// Where a new session has its outside port from.
#[derive(Clone, Copy)]
pub(super) enum Binding {
    /// It needs none.
    None,
    /// This binding, which nobody may hold yet.
    Is(Slot),
    /// There is none before the session ends that makes room, and leaves this port.
    Left(u16),
}

/// The ends of a new session behind the translator.
pub(super) struct Ends {
    pub(super) tuple: Tuple,
    pub(super) binding: Binding,
    /// Number of its rule.
    pub(super) rule: u16,
}

impl Translator {
    /// The ends of a packet that become `to`, but for their source. `place`: the address of a masquerade.
    pub(super) fn ends(
        &mut self,
        original: &Tuple,
        to: &Tuple,
        source: Source,
        place: Option<u32>,
        room: Room,
    ) -> Result<Ends, Refusal> {
        let behind = |src: End| Tuple { src, ..*to };
        let (tuple, binding, rule) = match source {
            Source::Keep(rule) => {
                self.rules.rule(rule).ok_or(Refusal::Gone)?;
                (behind(original.src), Binding::None, rule)
            }
            Source::Rule(rule, _) => {
                self.source(original, behind, (rule, place), original.src.0, room)?
            }
            Source::Hairpin(rule, _) => {
                self.source(original, behind, (rule, place), to.dst.0, room)?
            }
            Source::Hairpin64(rule) => {
                let rules = self.rules.clone();
                let embedded = |(address, port): End| {
                    behind((rules.embed(original.dst.0, address[1] as u32), port))
                };
                self.source(original, embedded, (rule, None), to.dst.0, room)?
            }
        };
        // The identifier of an ICMP query is at both ends.
        let is_icmp = matches!(IpProtocol(to.protocol), IpProtocol::ICMP | IpProtocol::ICMPV6);
        let dst = if is_icmp { (to.dst.0, tuple.src.1) } else { to.dst };
        Ok(Ends { tuple: Tuple { dst, ..tuple }, binding, rule })
    }

    pub(super) fn pool(&mut self, rule: u16) -> Option<&mut Pool> {
        self.pools.iter_mut().find(|(number, _)| *number == rule).map(|(_, pool)| pool)
    }

    /// The address that a masquerade has now, by which a packet leaves.
    pub(super) fn place(&mut self, rule: u16, interface: u16) -> Option<u32> {
        let rules = self.rules.clone();
        let own = rules.rule(rule)?;
        if own.action != Action::Masquerade {
            return None;
        }
        let at = own.outside.iter().position(|out| *out == interface)?;
        let address = rules.own.of(interface)?;
        let known = *self.pool(rule)?.addresses().get(at)?;
        if known != address {
            // What had the address before cannot be answered any more.
            self.forget(|entry| entry.rule == rule && entry.behind == known);
            self.pool(rule)?.replace(at, address);
        }
        Some(address)
    }

    /// The ends of a packet whose source a rule changes, with the binding and the rule. The inside host `met_by` decides
    /// about the worker.
    fn source(
        &mut self,
        original: &Tuple,
        behind: impl Fn(End) -> Tuple,
        (number, address): (u16, Option<u32>),
        met_by: [u64; 2],
        room: Room,
    ) -> Result<(Tuple, Binding, u16), Refusal> {
        let rules = self.rules.clone();
        let rule = rules.rule(number).ok_or(Refusal::Gone)?;
        let host = original.src.0;
        let host_v4 = host[1] as u32;
        if let Action::Static { inside, outside } = &rule.action {
            let to = outside.address[1] as u32 + (host_v4 - inside.address[1] as u32);
            return Ok((behind(([0, to.into()], original.src.1)), Binding::None, number));
        }
        let (address, range, class) = match &rule.action {
            Action::Deterministic { blocks, .. } => {
                let (address, range) = blocks.of(host_v4).ok_or(Refusal::NoAddress)?;
                (address, range, Class::ALL)
            }
            action => {
                let address = match (action, address) {
                    (_, Some(address)) => address,
                    (Action::Source(to) | Action::Nat64 { to, .. }, None) if !to.is_empty() => {
                        to[chunk::hash::key128(host, 0x706f_6f6c) as usize % to.len()]
                    }
                    _ => {
                        let original = *original;
                        self.refused = Some(Refused { rule: number, outside: None, original });
                        return Err(Refusal::NoAddress);
                    }
                };
                let class = Class { number: rules.class_of(met_by), classes: rules.classes };
                // Identifiers are no ports: all of them will do.
                let is_icmp =
                    matches!(IpProtocol(original.protocol), IpProtocol::ICMP | IpProtocol::ICMPV6);
                let range = if is_icmp { 0..=u16::MAX } else { rule.ports.clone() };
                (address, range, class)
            }
        };
        let end = ([0, address.into()], 0);
        if !original.has_ports() {
            return Ok((behind(end), Binding::None, number));
        }
        let (binding, port) = self.bind(original, number, address, (&range, class), room)?;
        Ok((behind((end.0, port)), binding, number))
    }

    /// The binding of an inside end, which is made if there is none, and its outside port.
    pub(super) fn bind(
        &mut self,
        original: &Tuple,
        number: u16,
        address: u32,
        (range, class): (&RangeInclusive<u16>, Class),
        room: Room,
    ) -> Result<(Binding, u16), Refusal> {
        let (family, protocol) = (original.family, original.protocol);
        let outside_protocol = super::outside_protocol(protocol);
        let inside = binding_key(original.src, protocol, family, SCOPE_INSIDE | u32::from(number));
        if let Some(slot) = self.table.find(&inside) {
            let other = self.table.get(slot).map_or(NIL, |hot| hot.other);
            let known = self.table.key(Slot(other)).map(host_end).ok_or(Refusal::Conflict)?;
            let is_there = known.0 == [0, address.into()];
            return if is_there {
                Ok((Binding::Is(slot), known.1))
            } else {
                Err(Refusal::Conflict)
            };
        }
        self.refused = Some(Refused { rule: number, outside: Some(address), original: *original });
        let host_key = binding_key((original.src.0, 0), 0, family, SCOPE_HOST);
        let host = self.table.find(&host_key);
        let count = host.and_then(|slot| self.table.get(slot)).map_or(0, |hot| hot.count);
        if count >= self.options.bindings_per_host {
            return Err(Refusal::HostLimit);
        }
        let is_led = |port: u16| self.rules.destination(outside_protocol, address, port).is_some();
        let is_usable = |port: &u16| range.contains(port) && class.has(*port) && !is_led(*port);
        let (wanted, left) = match room {
            Room::Free => (original.src.1, None),
            Room::Of(session) => (original.src.1, self.leaves(session, address, outside_protocol)),
            Room::Left(port) => (port, None),
        };
        let left = left.filter(is_usable);
        let start = self.next_random();
        let (rules, table, pools) = (&self.rules, &self.table, &mut self.pools);
        let is_free = |port: u16| {
            let end = ([0, u64::from(address)], port);
            rules.destination(outside_protocol, address, port).is_none()
                && table.find(&binding_key(end, outside_protocol, 4, SCOPE_OUTSIDE)).is_none()
        };
        let pool = pools.iter_mut().find(|own| own.0 == number).ok_or(Refusal::NoAddress)?;
        let pool = &mut pool.1;
        let spread = u32::from(*range.end() - *range.start()) + 1;
        let start_at = range.start() + (start % spread) as u16;
        let ports = [wanted, start_at];
        let port = match pool.position(address) {
            Some(_) if left == Some(wanted) => None,
            Some(at) => pool.take(at, outside_protocol, range, class, ports, is_free),
            // The address of a port forward, for what its server announces.
            None if pool.addresses().is_empty() => {
                let tries = (0..TRIES).map(|at| chunk::hash::fmix32(start.wrapping_add(at)));
                let tries = tries.map(|random| {
                    let port = range.start() + (random % spread) as u16;
                    port & !(class.classes as u16 - 1) | class.number as u16
                });
                let mut all = std::iter::once(wanted).chain(tries);
                all.find(|port| range.contains(port) && class.has(*port) && is_free(*port))
            }
            None => return Err(Refusal::NoAddress),
        };
        let Some(port) = port else {
            let port = left.ok_or(Refusal::Ports)?;
            return Ok((Binding::Left(port), port));
        };
        let outside = binding_key(([0, address.into()], port), outside_protocol, 4, SCOPE_OUTSIDE);
        let host = match host {
            Some(host) => Some(host),
            None => self.insert(&host_key, 0),
        };
        let made = [self.insert(&inside, 0), self.insert(&outside, 0), host];
        let [Some(first), Some(second), Some(host)] = made else {
            made[..2].iter().flatten().for_each(|slot| {
                self.table.remove(*slot);
            });
            if let Some(pool) = self.pool(number) {
                pool.give(address, outside_protocol, port);
            }
            return Err(Refusal::Sessions);
        };
        self.set(first, Kind::Inside, (second.0, host.0), number, 0);
        self.set(second, Kind::Outside, (first.0, NIL), number, 0);
        if let Some(hot) = self.table.get_mut(host) {
            hot.kind = Kind::Host;
            hot.count += 1;
        }
        Ok((Binding::Is(first), port))
    }

    /// The port of this outside address that is free when a session has ended.
    fn leaves(&self, session: Slot, address: u32, protocol: u8) -> Option<u16> {
        let inside = self.table.get(Slot(self.table.get(session)?.owner))?;
        let key = self.table.key(Slot(inside.other))?;
        let (own, port) = host_end(key);
        let is_left = inside.kind == Kind::Inside && inside.count == 1;
        (is_left && own == [0, address.into()] && key.protocol == protocol).then_some(port)
    }

    fn next_random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (chunk::hash::fmix64(self.random) >> 32) as u32
    }

    /// Ends a binding without sessions.
    pub(super) fn release_if_unused(&mut self, slot: Slot) {
        let Some(hot) = self.table.get(slot).copied() else { return };
        if hot.kind != Kind::Inside || hot.count > 0 {
            return;
        }
        self.table.remove(slot);
        if let Some((key, outside)) = self.table.remove(Slot(hot.other)) {
            let (address, port) = host_end(&key);
            if let Some(pool) = self.pool(outside.rule) {
                pool.give(address[1] as u32, key.protocol, port);
            }
        }
        let host = Slot(hot.owner);
        let is_last = self.table.get_mut(host).is_some_and(|own| {
            own.count = own.count.saturating_sub(1);
            own.count == 0
        });
        if is_last {
            self.table.remove(host);
        }
    }

    /// A session, or what is expected, has a binding.
    pub(super) fn hold(&mut self, binding: Slot) {
        if let Some(hot) = self.table.get_mut(binding) {
            hot.count += 1;
        }
    }

    /// It has it no more; without others that have it the binding ends.
    pub(super) fn let_go(&mut self, binding: Slot) {
        if binding.0 == NIL {
            return;
        }
        if let Some(own) = self.table.get_mut(binding) {
            own.count = own.count.saturating_sub(1);
        }
        self.release_if_unused(binding);
    }
}
