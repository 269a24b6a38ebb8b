//! What becomes of a packet that leaves: which association protects it, and which way it goes then.

use chunk::{DropReason, Packet};
use engine::MARK_FROM_HOST;
use ipsec::inbound::{self, Found};
use ipsec::outbound::{self, Refusal};
use ipsec::{Action, Association, Dont, Mode, NotCarried, Number, Tally, Template, Tuple, View};
use lookup::fib::{Fib, Interface};
use packet::flow::FlowKey;
use packet::{Decoded, IpProtocol, Kind};

use super::super::current::Wanted;
use super::super::incoming::is_own_ike;
use super::super::{keep_alive, reasons};
use super::{EspOut, IPV6_MTU_MIN, Member};
use crate::received;
use crate::router::{MARK_OPENED, egress, mtu_of, way};

/// What becomes of a packet.
pub(super) enum Fate<'v> {
    /// It passes as it is.
    Pass,
    /// It is sealed, and goes this way; `None`: where it would have gone.
    Seal(Member<'v>, Option<u32>),
    /// This worker seals it.
    Away(u16),
    /// It goes this way as it is.
    Send(u32),
    /// Its sender is told that it is longer than this.
    TooBig(u32),
}

impl EspOut {
    /// What becomes of a packet that was asked about, at place `at`, and whose way is `decision`.
    pub(super) fn decide<'v>(
        &self,
        view: &'v View,
        (at, row): (usize, usize),
        packet: &Packet,
        (decision, now_ns, fib): (u32, u64, &Fib),
        tunnel: Option<&Interface>,
        last: &mut Last<'v>,
    ) -> Result<Fate<'v>, DropReason> {
        let d = &self.headers[at];
        let Some(tuple) = Tuple::of(d) else { return Ok(Fate::Pass) };
        // Translation may have given a packet that came otherwise a destination that has to be protected.
        if self.with_nat && packet.mark & MARK_OPENED == 0 && !self.is_handed {
            match view.incoming.find(&tuple) {
                Some(Action::Protect(_)) => return Err(reasons::POLICY_UNPROTECTED),
                Some(Action::Discard) => return Err(reasons::POLICY_DISCARD),
                Some(Action::Bypass) | None => {}
            }
        }
        if tunnel.is_some() && d.ttl <= 1 {
            return Ok(Fate::Pass);
        }
        let number = self.room.number(at);
        // Mostly the first association of the policy: what that says need not be looked at then.
        let first = if tunnel.is_none() { view.carrier(number, &tuple) } else { None };
        let chosen = match first {
            None => {
                let action = view.outgoing().answer(number).copied();
                self.choose(view, (&tuple, action, now_ns), tunnel, last)?
            }
            first => first,
        };
        let Some(association) = chosen else { return Ok(Fate::Pass) };
        if d.ttl <= 1 {
            return Ok(Fate::Pass);
        }
        self.prepare(row, packet, d, association, ((Some(decision), now_ns, fib), last), tunnel)
    }

    /// The same of a packet that the policy of the one before protects, if it is to be sealed likewise: its association and its way
    /// are known, and nothing of it has to be looked at but its length. Otherwise `None`.
    #[inline]
    pub(super) fn decide_again<'v>(
        &self,
        (at, row): (usize, usize),
        now_ns: u64,
        last: &mut Last<'v>,
    ) -> Option<Result<(Member<'v>, u32), DropReason>> {
        let (association, Some(Outer { decision, mtu, at_ns, .. })) = last.way? else {
            return None;
        };
        let d = self.headers.get(at)?;
        let is_same = last.same == Some(self.room.number(at));
        if !is_same || d.ttl <= 1 || association.has_ended() || at_ns.is_some_and(|at| at != now_ns)
        {
            return None;
        }
        let plan = outbound::plan_tunnel(association, d, mtu.into());
        if plan.len() > mtu.into() {
            return None;
        }
        let len = plan.payload as usize;
        if self.reader.count(&mut last.tally, association, len, now_ns).is_err() {
            return Some(Err(reasons::SA_EXPIRED));
        }
        // Rows of a chunk are few, and so are the bytes in front of an IP header.
        let member = Member { association, plan, row: row as u16, l3: d.l3_offset };
        Some(Ok((member, decision)))
    }

    /// The same of a packet that Linux sends by a twin. What `decode` decided is a frame's way out of the port: a packet in
    /// transport mode goes that way, too.
    pub(super) fn decide_own<'v>(
        &self,
        view: &'v View,
        row: usize,
        packet: &Packet,
        (now_ns, fib): (u64, &Fib),
        last: &mut Last<'v>,
    ) -> Result<Fate<'v>, DropReason> {
        let d = received::decode(packet);
        let tunnel = fib.interface(packet.port).filter(|own| own.if_id != 0);
        let Some(tuple) = Tuple::of(&d) else {
            return match tunnel {
                Some(_) => Err(packet::reasons::ETHERTYPE_UNKNOWN),
                None => Ok(Fate::Pass),
            };
        };
        if keep_alive::is_own(packet.data()) {
            let (decision, _) =
                way(fib, tuple.family, tuple.dst, 0).ok_or(reasons::ESP_NO_ROUTE)?;
            return match tunnel_of(decision, fib) {
                Some(_) => Err(reasons::ESP_NO_ROUTE),
                None => Ok(Fate::Send(decision)),
            };
        }
        if tunnel.is_none() {
            if is_sealed(view, packet, &d) {
                return Err(reasons::ESP_FROM_HOST);
            }
            // Key agreement cannot be protected by what it agrees on, nor the way to a neighbour by what goes there.
            if is_own_ike(&d) || is_neighbour_discovery(&d) {
                return Ok(Fate::Pass);
            }
        }
        let action = if tunnel.is_none() { view.outgoing().find(&tuple) } else { None };
        let by = self.by_answer(view, (packet, &d), (&tuple, action), tunnel);
        let is_by_answer = by.is_some();
        let (tuple, action) = by.unwrap_or((tuple, action));
        let own = (&tuple, action, now_ns);
        let chosen = self.choose(view, own, tunnel, last)?;
        // The ends of transport mode are those of the packet.
        let fits = |own: &&Association| !is_by_answer || own.parameters().mode == Mode::Tunnel;
        let Some(association) = chosen.filter(fits) else {
            let is_answer = packet.mark & MARK_OPENED != 0;
            return if is_answer { Err(reasons::ESP_ANSWER) } else { Ok(Fate::Pass) };
        };
        match self.prepare(row, packet, &d, association, ((None, now_ns, fib), last), tunnel)? {
            Fate::Seal(mut member, way) => {
                member.plan.is_own = true;
                Ok(Fate::Seal(member, way))
            }
            // Linux knows the MTU of the twin.
            Fate::TooBig(_) => Err(reasons::ESP_TOO_BIG),
            other => Ok(other),
        }
    }

    /// By what an ICMP error is looked up that no policy is for: what it is about would be answered so, and the policy of such
    /// packets protects it (RFC 4301 §6.2). `None`: by what it is itself.
    fn by_answer(
        &self,
        view: &View,
        (packet, d): (&Packet, &Decoded),
        (tuple, action): (&Tuple, Option<Action>),
        tunnel: Option<&Interface>,
    ) -> Option<(Tuple, Option<Action>)> {
        let Some(own) = tunnel else {
            let answer = action.is_none().then(|| Tuple::answering(packet.data(), d))??;
            let action = view.outgoing().find(&answer);
            return matches!(action, Some(Action::Protect(_))).then_some((answer, action));
        };
        match view.through(own.if_id, tuple) {
            Err(NotCarried::Discard) => Some((Tuple::answering(packet.data(), d)?, None)),
            _ => None,
        }
    }

    /// The association that a packet leaves by; `None`: it passes as it is. `action`: what the policies say, where the packet does
    /// not leave by a tunnel interface.
    fn choose<'v>(
        &self,
        view: &'v View,
        (tuple, action, now_ns): (&Tuple, Option<Action>, u64),
        tunnel: Option<&Interface>,
        last: &mut Last<'v>,
    ) -> Result<Option<&'v Association>, DropReason> {
        let missing = |template: Option<Template>, if_id| {
            self.counters.wanted.add(1);
            if let Some(template) = template {
                self.reader.ask(Wanted { tuple: *tuple, template, if_id }, now_ns);
            }
            reasons::SA_MISSING
        };
        if let Some(&Interface { if_id, .. }) = tunnel {
            let found = view.through(if_id, tuple).map_err(|why| match why {
                NotCarried::Discard => reasons::POLICY_DISCARD,
                NotCarried::Missing(template) => missing(template, if_id),
            });
            return found.map(|own| Some(&**own));
        }
        match action {
            None | Some(Action::Bypass) => {
                self.counters.passed.add(1);
                Ok(None)
            }
            Some(Action::Discard) => Err(reasons::POLICY_DISCARD),
            Some(Action::Protect(template)) => {
                // Of one template, an association of tunnels serves all packets.
                if let Some((known, own)) = last.choice
                    && known == template
                    && own.parameters().mode == Mode::Tunnel
                    && !own.has_ended()
                {
                    return Ok(Some(own));
                }
                let found = view.outbound(&template, tuple);
                let own = found.ok_or_else(|| missing(Some(template), 0))?;
                last.choice = Some((template, own));
                Ok(Some(own))
            }
        }
    }

    /// How a packet is sealed by an association, and its way. `decision`: the one of `route`, if that was asked.
    fn prepare<'v>(
        &self,
        row: usize,
        packet: &Packet,
        d: &Decoded,
        association: &'v Association,
        ((decision, now_ns, fib), last): ((Option<u32>, u64, &Fib), &mut Last<'v>),
        tunnel: Option<&Interface>,
    ) -> Result<Fate<'v>, DropReason> {
        let l3 = usize::from(d.l3_offset);
        let ip = packet.data().get(l3..).unwrap_or_default();
        let parameters = association.parameters();
        let (decision, mtu) = match parameters.mode {
            Mode::Tunnel => {
                let found = last.way(association, fib, now_ns);
                let Outer { decision, mtu, .. } = found.ok_or(reasons::ESP_NO_ROUTE)?;
                // What is sealed does not go into a tunnel again: that could go on forever.
                if self.tunnels.is_any() && tunnel_of(decision, fib).is_some() {
                    return Err(reasons::ESP_NO_ROUTE);
                }
                (Some(decision), mtu)
            }
            // By a tunnel interface, packets of transport mode have no way of their own.
            Mode::Transport if tunnel.is_some() => return Err(reasons::ESP_NO_ROUTE),
            Mode::Transport => {
                let link = match decision {
                    Some(own) => mtu_of(fib, own),
                    None => fib.interface(packet.port).map(|own| own.mtu),
                };
                (decision, path_mtu(association, link.unwrap_or(u16::MAX), now_ns).0)
            }
        };
        let (mtu, len) = (usize::from(mtu), d.ip_total_len as usize);
        let mut plan =
            outbound::plan(association, ip, d, mtu).map_err(|refusal| match refusal {
                Refusal::Fragment => reasons::ESP_FRAGMENT,
                Refusal::TooLong => reasons::ESP_TOO_BIG,
                Refusal::Malformed => reasons::ESP_MALFORMED,
            })?;
        let is_v4 = d.kind == Kind::Ipv4;
        let inner_df = !is_v4 || d.has(Decoded::DONT_FRAGMENT);
        // Their senders are asked for no shorter ones: the outer packet, whose source the gateway is, leaves in fragments (RFC 2473 §7).
        let is_short = if is_v4 { !inner_df } else { len <= IPV6_MTU_MIN };
        if is_short && plan.len() > mtu && parameters.mode == Mode::Tunnel {
            plan = plan.divided().map_err(|_| reasons::ESP_TOO_BIG)?;
        }
        let outer_df = match (plan.family, parameters.mode, parameters.dont_fragment) {
            (4, Mode::Transport, _) => inner_df,
            (4, _, Dont::Copy) => inner_df && !plan.may_divide,
            (4, _, Dont::Clear) => false,
            (4, _, Dont::Set) => true,
            _ => !plan.may_divide,
        };
        // DF asks for the MTU of the interface, too; other packets leave in fragments, if they must.
        let tunnel_mtu = tunnel.map_or(usize::MAX, |own| own.mtu.into());
        // IPv6 needs 1,280 bytes of every link; what has fewer below it fragments there (RFC 8200 §5).
        let tunnel_mtu = if is_v4 { tunnel_mtu } else { tunnel_mtu.max(IPV6_MTU_MIN) };
        if plan.len() > mtu && outer_df || inner_df && len > tunnel_mtu {
            let most = match parameters.mode {
                Mode::Tunnel => outbound::inner_max(association, mtu),
                Mode::Transport => outbound::packet_max(association, &plan, mtu),
            };
            let most = most.min(tunnel_mtu);
            let most = if is_v4 { most } else { most.max(IPV6_MTU_MIN) };
            let is_told = inner_df && len > most && most > 0;
            let is_least = !is_v4 && len <= IPV6_MTU_MIN;
            return match (is_told, is_least) {
                (true, _) => Ok(Fate::TooBig(most as u32)),
                (false, true) => Err(reasons::ESP_MIN_MTU),
                (false, false) => Err(reasons::ESP_TOO_BIG),
            };
        }
        // Before it counts. What Linux sends by a twin comes by one worker as it is.
        let is_own = packet.mark & MARK_FROM_HOST != 0;
        if !is_own && let Some(worker) = self.owners.elsewhere(association, self.is_handed) {
            return Ok(Fate::Away(worker));
        }
        let payload = plan.payload as usize;
        let counted = self.reader.count(&mut last.tally, association, payload, now_ns);
        counted.map_err(|_| reasons::SA_EXPIRED)?;
        if let Some(own) = tunnel {
            self.router.count_tagged_tx(own.port, packet.frame_len());
        }
        let (row, l3) = (row as u16, d.l3_offset); // rows of a chunk are few
        Ok(Fate::Seal(Member { association, plan, row, l3 }, decision))
    }
}

/// Where the packets of a tunnel go.
#[derive(Clone, Copy)]
pub(super) struct Outer {
    decision: u32,
    /// Of the link, or of the path, if that is shorter.
    mtu: u16,
    /// If a path MTU was looked at: when. It ages.
    at_ns: Option<u64>,
    pub(super) flow_hash: u32,
    /// Destination of the outer header.
    pub(super) dst: ipsec::Words,
}

/// What is known of the last packet: those that follow one another often have one template and one association.
#[derive(Default)]
pub(super) struct Last<'v> {
    choice: Option<(Template, &'v Association)>,
    pub(super) way: Option<(&'v Association, Option<Outer>)>,
    /// The policy whose packets go this way, by this association in tunnel mode.
    same: Option<Number>,
    tally: Tally<'v>,
}

impl<'v> Last<'v> {
    /// A packet that policy `number` protects was decided about; no interface and no translation had a say.
    pub(super) fn remember(&mut self, number: Number, member: &Member<'v>) {
        let own = member.association;
        let is_way = self.way.is_some_and(|(known, _)| std::ptr::eq(known, own));
        let is_tunnel = own.parameters().mode == Mode::Tunnel;
        self.same = (is_way && is_tunnel && number != Number::NONE).then_some(number);
    }

    /// What was known of ways may have changed.
    #[cold]
    pub(super) fn forget(&mut self) {
        (self.way, self.same) = (None, None);
    }

    /// The way of an association's packets.
    fn way(&mut self, own: &'v Association, fib: &Fib, now_ns: u64) -> Option<Outer> {
        if let Some((known, outer)) = self.way
            && std::ptr::eq(known, own)
            && outer.and_then(|own| own.at_ns).is_none_or(|at| at == now_ns)
        {
            return outer;
        }
        let (dst, flow_hash) = (ipsec::words(own.peer().0).1, flow_hash(own));
        let found = way(fib, own.family(), dst, flow_hash);
        let outer = found.map(|(decision, link)| {
            let (mtu, at_ns) = path_mtu(own, link, now_ns);
            Outer { decision, mtu, at_ns, flow_hash, dst }
        });
        (self.way, self.same) = (Some((own, outer)), None);
        outer
    }
}

/// The MTU for an association's packets that leave by a link, and the time, if a path MTU had a say.
#[inline]
fn path_mtu(own: &Association, link: u16, now_ns: u64) -> (u16, Option<u64>) {
    match own.knows_path() {
        false => (link, None),
        true => (own.aged_path_mtu(now_ns).map_or(link, |path| path.min(link)), Some(now_ns)),
    }
}

/// The tunnel interface that a way leads to.
pub(super) fn tunnel_of(decision: u32, fib: &Fib) -> Option<&Interface> {
    fib.interface(egress(decision, fib)?).filter(|own| own.if_id != 0)
}

/// Whether Linux has sealed a packet by an association that is used here.
fn is_sealed(view: &View, packet: &Packet, d: &Decoded) -> bool {
    let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
    match inbound::found(packet.data(), d) {
        Found::Esp { spi, .. } => view.sends(family, d.dst, spi),
        _ => false,
    }
}

/// Whether a packet is of neighbour discovery (RFC 4861).
fn is_neighbour_discovery(d: &Decoded) -> bool {
    d.kind == Kind::Ipv6 && matches!(d.icmp_type_code(), Some((133..=137, _)))
}

/// The hash by which the packets of an association choose among equal ways: all go the same.
fn flow_hash(own: &Association) -> u32 {
    let ((src, _), version) = (own.ends(), own.family());
    let dst = ipsec::words(own.peer().0).1;
    let (src_port, dst_port, protocol) = (0, 0, IpProtocol::ESP);
    FlowKey { src, dst, src_port, dst_port, protocol, version }.hash32()
}
