//! Stage `esp_out`: asks the policies about packets that leave, and seals those that they protect.
//!
//! | | |
//! | --- | --- |
//! | reads | `decision`, `flags`, `l3`, the packets |
//! | writes | the packets; of tunnels `decision`, `flags`, `flow_hash` and the destination |
//! | next | `rewrite` |
//! | drop | what policies discard; no association, or one that has ended; no route to the peer; too long |
//!
//! A packet that goes nowhere, and one whose TTL runs out, is left as it is: `rewrite` answers it. So it does for a packet that
//! is too long when it is sealed, with the longest that is not. The packets of a chunk are sealed in batches; with `device` all
//! but encryption and check value is done before (`device`).

use std::sync::Arc;

use arrayvec::ArrayVec;
use chunk::{
    Chunk, ColumnSet, Columns, Declaration, DropReason, Packet, Pool, ReasonBlock, Verdict,
    VerdictKind,
};
use controlplane::{PartId, Tables};
use crypto::esp::{self, Numbers, Seal};
use engine::{Context, MARK_FROM_HOST, Phases, Shade, Stage};
use ipsec::inbound::{self, Found};
use ipsec::outbound::{self, Plan, Refusal};
use ipsec::{
    Action, Association, Direction, Dont, Mode, NotCarried, Room, Tally, Template, Tuple, View,
};
use lookup::fib::{Fib, Interface};
use packet::flow::FlowKey;
use packet::{Decoded, EtherType, IpProtocol, Kind};

use super::current::{Counters, Reader, Wanted};
use super::device::keys::{EspKeys, EspPart};
use super::device::shade::EspShade;
use super::device::{self, EspColumns};
use super::incoming::is_ike;
use super::keep_alive;
use super::reasons;
use super::tunnels::Tunnels;
use crate::received;
use crate::records::{self, RecordColumns, Records};
use crate::router::columns::{Answer, RouterColumns, RouterView, flags};
use crate::router::{
    MARK_OPENED, PipelineOptions, RouterCounters, RouterPart, egress, mtu_of, way,
};

/// Packets that are sealed together.
const GROUP: usize = 32;
/// Bytes of the longest frame.
const FRAME_MAX: usize = 66_000;
/// Packets whose lines are on their way while one is looked at.
const AHEAD: usize = 16;
/// Bytes of a line of a cache.
const LINE: usize = 64;
/// What every link of IPv6 takes.
const IPV6_MTU_MIN: usize = 1280;

chunk::columns! {
    /// The column of address translation, where it is in the pipeline.
    struct NatColumns / NatView {
        pub nat: u64,
    }
}

/// The stage of one worker.
pub struct EspOut {
    reader: Reader,
    with_nat: bool,
    /// Stages share records of headers.
    shares: bool,
    /// Rows of a chunk that are sealed.
    sealed: Vec<u16>,
    /// Rows that the policies are asked about, their headers, and the answers.
    rows: Vec<u16>,
    headers: Vec<Decoded>,
    tuples: Vec<Tuple>,
    actions: Vec<Option<Action>>,
    room: Room,
    tunnels: Tunnels,
    counters: Arc<Counters>,
    /// Of the interfaces.
    router: Arc<RouterCounters>,
    scratch: Vec<u8>,
    /// Encryption is a step of its own, with these keys.
    split: Option<(PartId<EspPart>, Arc<EspShade>)>,
    /// Packets of a chunk that are prepared for it.
    prepared: Vec<Ready>,
}

/// A packet that is sealed but for encryption and check value.
struct Ready {
    row: usize,
    key: usize,
    l3: usize,
    /// From the SPI on, in bytes of the frame.
    packet: std::ops::Range<usize>,
    high: u32,
}

/// A packet of a group.
struct Member<'v> {
    row: usize,
    association: &'v Association,
    plan: Plan,
    l3: usize,
}

/// What becomes of a packet.
enum Fate<'v> {
    /// It passes as it is.
    Pass,
    /// It is sealed, and goes this way; `None`: where it would have gone.
    Seal(Member<'v>, Option<u32>),
    /// It goes this way as it is.
    Send(u32),
    /// Its sender is told that it is longer than this.
    TooBig(u32),
}

impl EspOut {
    /// A stage in a pipeline with these stages.
    pub fn new(
        reader: Reader,
        options: &PipelineOptions,
        stages: &[String],
        counters: Arc<Counters>,
    ) -> Self {
        let with_nat = stages.iter().any(|own| own == crate::nat::STAGE);
        let shares = records::are_shared(stages);
        let max = chunk::CHUNK_PACKETS_MAX;
        Self {
            reader,
            with_nat,
            shares,
            sealed: Vec::with_capacity(max),
            rows: Vec::with_capacity(max),
            headers: Vec::with_capacity(max),
            tuples: Vec::with_capacity(max),
            actions: Vec::with_capacity(max),
            room: Room::for_packets(max),
            tunnels: Tunnels::default(),
            counters,
            router: options.counters.clone(),
            scratch: Vec::with_capacity(FRAME_MAX),
            split: None,
            prepared: Vec::new(),
        }
    }

    /// With encryption as a step of its own, by the keys of this part.
    #[must_use]
    pub fn with_device(mut self, part: PartId<EspPart>) -> Self {
        self.split = Some((part, Arc::new(EspShade::new(Direction::Out, part))));
        self.prepared.reserve(chunk::CHUNK_PACKETS_MAX);
        self
    }

    /// The packets of a chunk that the policies are asked about, and the answers.
    fn ask(&mut self, view: &View, chunk: &mut Chunk, fib: &Fib) {
        self.rows.clear();
        self.headers.clear();
        self.tuples.clear();
        let columns = RouterColumns::view(&mut chunk.rows);
        for row in 0..chunk.packets.len() {
            let bits = columns.flags[row];
            let is_ip = bits & (flags::IPV4 | flags::IPV6) != 0 && bits & flags::LINK_LOCAL == 0;
            let is_next = Verdict(columns.verdict[row]).is_next();
            if is_next && is_ip && egress(columns.decision[row], fib).is_some() {
                self.rows.push(row as u16);
            }
        }
        let mut records = self.shares.then(|| Records::of_rows(&mut chunk.rows));
        self.rows.retain(|row| {
            let packet = &chunk.packets[usize::from(*row)];
            let d = match &mut records {
                Some(records) => *records.of(usize::from(*row), packet),
                None => received::decode(packet),
            };
            let tuple = Tuple::of(&d);
            self.headers.extend(tuple.map(|_| d));
            self.tuples.extend(tuple);
            tuple.is_some()
        });
        view.outgoing.find_all(&self.tuples, &mut self.room, &mut self.actions);
    }

    /// What becomes of a packet that was asked about, at place `at`, and whose way is `decision`.
    fn decide<'v>(
        &self,
        view: &'v View,
        (at, row): (usize, usize),
        packet: &Packet,
        (decision, now_ns, fib): (u32, u64, &Fib),
        tunnel: Option<&Interface>,
        last: &mut Last<'v>,
    ) -> Result<Fate<'v>, DropReason> {
        let (d, tuple) = (&self.headers[at], &self.tuples[at]);
        // Translation may have given a packet that came otherwise a destination that has to be protected.
        if self.with_nat && packet.mark & MARK_OPENED == 0 {
            match view.incoming.find(tuple) {
                Some(Action::Protect(_)) => return Err(reasons::POLICY_UNPROTECTED),
                Some(Action::Discard) => return Err(reasons::POLICY_DISCARD),
                Some(Action::Bypass) | None => {}
            }
        }
        if tunnel.is_some() && d.ttl <= 1 {
            return Ok(Fate::Pass);
        }
        let own = (tuple, self.actions[at], now_ns);
        let Some(association) = self.choose(view, own, tunnel, last)? else {
            return Ok(Fate::Pass);
        };
        if d.ttl <= 1 {
            return Ok(Fate::Pass);
        }
        self.prepare(row, packet, d, association, ((Some(decision), now_ns, fib), last), tunnel)
    }

    /// The same of a packet that Linux sends by a twin. What `decode` decided is a frame's way out of the port: a packet in
    /// transport mode goes that way, too.
    fn decide_own<'v>(
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
            if is_ike(&d) || is_neighbour_discovery(&d) {
                return Ok(Fate::Pass);
            }
        }
        let action = if tunnel.is_none() { view.outgoing.find(&tuple) } else { None };
        let own = (&tuple, action, now_ns);
        let Some(association) = self.choose(view, own, tunnel, last)? else {
            return Ok(Fate::Pass);
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
        let plan = outbound::plan(association, ip, d).map_err(|refusal| match refusal {
            Refusal::Fragment => reasons::ESP_FRAGMENT,
            Refusal::TooLong => reasons::ESP_TOO_BIG,
            Refusal::Malformed => reasons::ESP_MALFORMED,
        })?;
        let parameters = association.parameters();
        let (decision, mtu) = match parameters.mode {
            Mode::Tunnel => {
                let found = last.way(association, fib);
                let Outer { decision, mtu, .. } = found.ok_or(reasons::ESP_NO_ROUTE)?;
                // What is sealed does not go into a tunnel again: that could go on forever.
                if self.tunnels.is_any() && tunnel_of(decision, fib).is_some() {
                    return Err(reasons::ESP_NO_ROUTE);
                }
                (Some(decision), mtu)
            }
            // By a tunnel interface, packets of transport mode have no way of their own.
            Mode::Transport if tunnel.is_some() => return Err(reasons::ESP_NO_ROUTE),
            Mode::Transport => match decision {
                Some(own) => (decision, mtu_of(fib, own).unwrap_or(u16::MAX)),
                None => (None, fib.interface(packet.port).map_or(u16::MAX, |own| own.mtu)),
            },
        };
        let (mtu, len) = (usize::from(mtu), d.ip_total_len as usize);
        let is_v4 = d.kind == Kind::Ipv4;
        let inner_df = !is_v4 || d.has(Decoded::DONT_FRAGMENT);
        let outer_df = match (plan.family, parameters.mode, parameters.dont_fragment) {
            (4, Mode::Transport, _) | (4, _, Dont::Copy) => inner_df,
            (4, _, Dont::Clear) => false,
            _ => true,
        };
        // DF asks for the MTU of the interface, too; other packets leave in fragments, if they must.
        let tunnel_mtu = tunnel.map_or(usize::MAX, |own| own.mtu.into());
        if plan.len() > mtu && outer_df || inner_df && len > tunnel_mtu {
            let most = match parameters.mode {
                Mode::Tunnel => outbound::inner_max(association, mtu),
                // Padding depends on the length by less than a block.
                Mode::Transport => mtu.saturating_sub(plan.len() - len + 16),
            };
            let most = most.min(tunnel_mtu);
            let most = if is_v4 { most } else { most.max(IPV6_MTU_MIN) };
            let is_told = inner_df && len > most && most > 0;
            return if is_told { Ok(Fate::TooBig(most as u32)) } else { Err(reasons::ESP_TOO_BIG) };
        }
        last.tally.count(association, plan.payload, now_ns).map_err(|_| reasons::SA_EXPIRED)?;
        if let Some(own) = tunnel {
            self.router.count_tagged_tx(own.port, packet.frame_len());
        }
        Ok(Fate::Seal(Member { row, association, plan, l3 }, decision))
    }

    /// Seals the packets of a group, in the order of their rows, or prepares those whose keys are among `keys`.
    fn seal(
        &mut self,
        members: &[Member<'_>],
        verdicts: &mut [u32],
        packets: &mut [Packet],
        (pool, keys): (&mut Pool, Option<&EspKeys>),
    ) {
        let before = self.prepared.len();
        {
            let mut seals: ArrayVec<Seal<'_>, GROUP> = ArrayVec::new();
            let mut of: ArrayVec<usize, GROUP> = ArrayVec::new();
            let mut numbers: Option<(&Association, Numbers<'_>)> = None;
            let mut wanted = members.iter().enumerate().peekable();
            let first = members.first().map_or(0, |own| own.row);
            for (row, packet) in packets.iter_mut().enumerate().skip(first) {
                let Some((at, member)) = wanted.next_if(|(_, own)| own.row == row) else {
                    if wanted.peek().is_none() { break } else { continue }
                };
                let Member { association, plan, l3, .. } = member;
                if !grow(packet, pool, plan, *l3) {
                    verdicts[row] = Verdict::drop(chunk::reasons::NO_CELLS).0;
                    continue;
                }
                // Packets of an association that follow one another take their numbers together.
                if numbers.as_ref().is_none_or(|own| !std::ptr::eq(own.0, *association)) {
                    let same = |own: &&Member<'_>| std::ptr::eq(own.association, *association);
                    let count = members[at..].iter().take_while(same).count();
                    numbers =
                        association.sealer().map(|own| (*association, own.take(count as u64)));
                }
                let Some(number) = numbers.as_mut().and_then(|own| own.1.next()) else {
                    verdicts[row] = Verdict::drop(reasons::SA_EXPIRED).0;
                    continue;
                };
                let (payload, padding) = (plan.payload_range(), plan.padding);
                if packet.cells() == 1 {
                    let ip = packet.data_mut().get_mut(*l3..).unwrap_or_default();
                    plan.write_headers(association, ip, number.value());
                    if let Some(key) = keys.and_then(|keys| keys.place(association)) {
                        match number.prepare(ip, payload, plan.next_header, padding) {
                            Ok(own) => {
                                let packet = l3 + own.packet.start..l3 + own.packet.end;
                                let (l3, high) = (*l3, own.high);
                                self.prepared.push(Ready { row, key, l3, packet, high });
                            }
                            Err(_) => verdicts[row] = Verdict::drop(reasons::ESP_TOO_BIG).0,
                        }
                        continue;
                    }
                    seals.push(number.seal(ip, payload, plan.next_header, padding));
                    of.push(at);
                    continue;
                }
                // A frame over several cells, by itself.
                self.scratch.resize(plan.len().min(FRAME_MAX), 0);
                packet.read_at(*l3, &mut self.scratch);
                plan.write_headers(association, &mut self.scratch, number.value());
                let mut seal = [number.seal(&mut self.scratch, payload, plan.next_header, padding)];
                esp::seal_batch(&mut seal);
                let is_sealed = seal[0].result().is_ok();
                outbound::finish(association, plan, &mut self.scratch);
                packet.write_at(*l3, &self.scratch);
                if !is_sealed {
                    verdicts[row] = Verdict::drop(reasons::ESP_TOO_BIG).0;
                }
            }
            esp::seal_batch(&mut seals);
            for (seal, at) in seals.iter().zip(of) {
                if seal.result().is_err() {
                    verdicts[members[at].row] = Verdict::drop(reasons::ESP_TOO_BIG).0;
                }
            }
        }
        let mut prepared = self.prepared[before..].iter().peekable();
        let (mut count, mut bytes) = (0, 0);
        for Member { row, association, plan, l3 } in members {
            let is_prepared = prepared.next_if(|own| own.row == *row).is_some();
            if !Verdict(verdicts[*row]).is_next() {
                continue;
            }
            (count, bytes) = (count + 1, bytes + plan.payload as u64);
            if is_prepared {
                continue;
            }
            let packet = &mut packets[*row];
            if packet.cells() == 1 {
                let ip = packet.data_mut().get_mut(*l3..).unwrap_or_default();
                outbound::finish(association, plan, ip);
            }
        }
        if count > 0 {
            self.counters.sealed.add(count);
            self.counters.sealed_bytes.add(bytes);
        }
    }
}

/// Where the packets of a tunnel go.
#[derive(Clone, Copy)]
struct Outer {
    decision: u32,
    mtu: u16,
    flow_hash: u32,
    /// Destination of the outer header.
    dst: ipsec::Words,
}

/// What is known of the last packet: those that follow one another often have one template and one association.
#[derive(Default)]
struct Last<'v> {
    choice: Option<(Template, &'v Association)>,
    way: Option<(&'v Association, Option<Outer>)>,
    tally: Tally<'v>,
}

impl<'v> Last<'v> {
    /// The way of an association's packets.
    fn way(&mut self, own: &'v Association, fib: &Fib) -> Option<Outer> {
        if let Some((known, outer)) = self.way
            && std::ptr::eq(known, own)
        {
            return outer;
        }
        let (dst, flow_hash) = (ipsec::words(own.peer().0).1, flow_hash(own));
        let found = way(fib, own.family(), dst, flow_hash);
        let outer = found.map(|(decision, mtu)| Outer { decision, mtu, flow_hash, dst });
        self.way = Some((own, outer));
        outer
    }
}

/// Starts to load what is written of a packet: the line in front of the frame, for headers, and all lines of the frame and
/// of what comes behind it.
#[inline]
fn prefetch(packet: &Packet) {
    let first = packet.data().as_ptr();
    interleave::prefetch_at(first.wrapping_sub(LINE));
    let end = packet.data().len() + 2 * LINE;
    (0..end).step_by(LINE).for_each(|at| interleave::prefetch_at(first.wrapping_add(at)));
}

/// The tunnel interface that a way leads to.
fn tunnel_of(decision: u32, fib: &Fib) -> Option<&Interface> {
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

/// Makes room as a plan says, and writes the EtherType of what comes out.
fn grow(packet: &mut Packet, pool: &mut Pool, plan: &Plan, l3: usize) -> bool {
    let Plan { kept, front, payload, back, family, .. } = *plan;
    // What is behind the IP packet goes.
    if !packet.truncate(pool, l3 + kept + payload)
        || !packet.grow_back(pool, back)
        || !packet.grow_front(pool, front)
    {
        return false;
    }
    let headers = l3 + kept;
    if packet.data().len() < front + headers && !packet.linearise(pool, front + headers) {
        return false;
    }
    packet.data_mut().copy_within(front..front + headers, 0);
    if packet.cells() > 1 {
        // If it fits one cell; otherwise it is sealed in a buffer.
        packet.linearise(pool, packet.frame_len());
    }
    let kind = if family == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let Some(place) = packet.data_mut().get_mut(l3 - 2..l3) else { return false };
    place.copy_from_slice(&kind.0.to_be_bytes());
    true
}

/// Says of a row what its packet has become, which is the last one.
fn tell(columns: &mut RouterView<'_>, member: &Member<'_>, decision: u32, last: &Last<'_>) {
    let Member { row, association, plan, .. } = member;
    if association.parameters().mode == Mode::Transport {
        return;
    }
    let Some((_, Some(Outer { flow_hash, dst, .. }))) = last.way else { return };
    lead(columns, *row, (plan.family, dst), (decision, flow_hash));
}

/// Gives the packet of a row a destination, its way there and its flow hash.
fn lead(
    columns: &mut RouterView<'_>,
    row: usize,
    (family, dst): (u8, [u64; 2]),
    (decision, flow_hash): (u32, u32),
) {
    columns.decision[row] = decision;
    columns.flow_hash[row] = flow_hash;
    match family {
        4 => {
            columns.flags[row] = flags::IPV4;
            columns.dst4[row] = dst[1] as u32;
        }
        _ => {
            columns.flags[row] = flags::IPV6;
            columns.dst6[row] = dst;
        }
    }
}

/// Has `rewrite` send a packet of Linux or of control as any other, by its way.
fn send(columns: &mut RouterView<'_>, row: usize, packet: &mut Packet, l3: usize) {
    packet.mark &= !MARK_FROM_HOST;
    columns.verdict[row] = Verdict::NEXT.0;
    columns.l3[row] = l3 as u8;
    columns.interface[row] = packet.port;
}

impl Stage<Tables> for EspOut {
    fn name(&self) -> &'static str {
        super::OUT
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn columns(&self) -> &'static [Declaration] {
        const ROUTER: Declaration = RouterColumns::COLUMNS;
        const NAT: Declaration = NatColumns::COLUMNS;
        const RECORD: Declaration = RecordColumns::COLUMNS;
        const ESP: Declaration = EspColumns::COLUMNS;
        match (self.with_nat, self.shares, self.split.is_some()) {
            (true, true, true) => &[ROUTER, NAT, RECORD, ESP],
            (true, true, false) => &[ROUTER, NAT, RECORD],
            (true, false, true) => &[ROUTER, NAT, ESP],
            (true, false, false) => &[ROUTER, NAT],
            (false, true, true) => &[ROUTER, RECORD, ESP],
            (false, true, false) => &[ROUTER, RECORD],
            (false, false, true) => &[ROUTER, ESP],
            (false, false, false) => &[ROUTER],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        if self.shares { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn phases(&self) -> Phases {
        if self.split.is_some() { Phases::BOTH } else { Phases::POST }
    }

    fn reads(&self) -> ColumnSet {
        if self.split.is_some() { ColumnSet::of(device::READS) } else { ColumnSet::EMPTY }
    }

    fn writes(&self) -> ColumnSet {
        if self.split.is_some() { ColumnSet::of(device::WRITES) } else { ColumnSet::EMPTY }
    }

    fn keeps(&self) -> ColumnSet {
        if self.split.is_some() { device::all() } else { ColumnSet::EMPTY }
    }

    fn reads_packets(&self) -> bool {
        self.split.is_some()
    }

    /// Packets get their numbers, and grow, when the stages before have decided about them.
    fn begins_segment(&self) -> bool {
        self.split.is_some()
    }

    /// Packets are right behind `post_shade` only.
    fn ends_segment(&self) -> bool {
        self.split.is_some()
    }

    fn shader(&self) -> Option<Arc<dyn Shade<Tables>>> {
        self.split.as_ref().map(|(_, shade)| shade.clone() as _)
    }

    fn changes_packets(&self) -> bool {
        true
    }

    fn needs_one_worker(&self, _: &Tables) -> Option<&'static str> {
        Some("sequence numbers depend on the order of all packets of an association")
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let Some((part, _)) = &self.split else { return };
        let part = *part;
        self.prepared.clear();
        EspColumns::view(&mut chunk.rows).esp_key.fill(0);
        self.protect(chunk, cx, Some(cx.tables.part(part)));
        let view = EspColumns::view(&mut chunk.rows);
        for Ready { row, key, l3, packet, high } in &self.prepared {
            let row = *row;
            view.esp_key[row] = *key as u32 + 1;
            (view.esp_at[row], view.esp_l3[row]) = (packet.start as u16, *l3 as u16);
            (view.esp_len[row], view.esp_high[row]) = (packet.len() as u32, *high);
        }
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let Some((part, _)) = &self.split else { return self.protect(chunk, cx, None) };
        let keys = cx.tables.part(*part);
        let view = EspColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            let key = view.esp_key[row] as usize;
            if key == 0 || !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            cx.at(row);
            if view.esp_done[row] == 0 {
                view.verdict[row] = Verdict::drop(reasons::ESP_TOO_BIG).0;
                continue;
            }
            let is_in_udp = keys.get(key - 1).is_some_and(|own| own.parameters().udp.is_some());
            let (l3, at) = (usize::from(view.esp_l3[row]), usize::from(view.esp_at[row]));
            let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
            if is_in_udp && ip.first().is_some_and(|byte| byte >> 4 == 6) {
                outbound::finish_udp(ip, at - l3 - outbound::UDP_LEN);
            }
        }
    }

    /// Keys of associations that are gone are wiped, although no packet comes.
    fn tick(&mut self, _: &mut Context<'_, Tables>) {
        self.reader.get();
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _: &Tables) -> String {
        let d = received::decode(&chunk.packets[row]);
        match (d.dst_ip(), d.protocol) {
            (Some(to), IpProtocol::ESP) => format!("ESP to {to}"),
            _ => String::new(),
        }
    }
}

impl EspOut {
    /// Asks the policies about the packets of a chunk, and seals, or prepares, those that they protect.
    fn protect(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>, keys: Option<&EspKeys>) {
        let view = self.reader.get();
        let Some(fib) = cx.tables.find::<RouterPart>() else { return };
        self.tunnels.look(cx.version, fib);
        let has_tunnels = self.tunnels.is_any();
        if view.outgoing.is_empty()
            && (view.incoming.is_empty() || !self.with_nat)
            && !has_tunnels
            && !view.sends_in_udp
        {
            return;
        }
        self.sealed.clear();
        self.ask(&view, chunk, fib);
        for row in self.rows.iter().take(AHEAD) {
            prefetch(&chunk.packets[usize::from(*row)]);
        }
        let (mut asked, mut last) = (0, Last::default());
        let mut columns = RouterColumns::view(&mut chunk.rows);
        let mut members: ArrayVec<Member<'_>, GROUP> = ArrayVec::new();
        for row in 0..chunk.packets.len() {
            let (bits, decision) = (columns.flags[row], columns.decision[row]);
            let verdict = Verdict(columns.verdict[row]);
            let is_own = chunk.packets[row].mark & MARK_FROM_HOST != 0;
            let is_sent = is_own && verdict.kind() == VerdictKind::Forward;
            let at = asked;
            let is_asked = self.rows.get(at).is_some_and(|own| usize::from(*own) == row);
            if is_asked {
                asked += 1;
            } else if !is_sent {
                continue;
            }
            cx.at(row);
            if let Some(ahead) = self.rows.get(at + AHEAD) {
                prefetch(&chunk.packets[usize::from(*ahead)]);
            }
            let packet = &mut chunk.packets[row];
            let now_ns = cx.arrival_ns(packet);
            let fate = match is_sent {
                true => self.decide_own(&view, row, packet, (now_ns, fib), &mut last),
                false => {
                    let tunnel = if has_tunnels { tunnel_of(decision, fib) } else { None };
                    let own = (decision, now_ns, fib);
                    self.decide(&view, (at, row), packet, own, tunnel, &mut last)
                }
            };
            match fate {
                Ok(Fate::Pass) => {}
                Ok(Fate::Seal(member, way)) => {
                    if let Some(decision) = way {
                        tell(&mut columns, &member, decision, &last);
                    }
                    if is_sent && way.is_some() {
                        send(&mut columns, row, packet, member.l3);
                    }
                    self.sealed.push(row as u16);
                    members.push(member);
                }
                Ok(Fate::Send(decision)) => {
                    let d = received::decode(packet);
                    let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
                    lead(&mut columns, row, (family, d.dst), (decision, 0));
                    send(&mut columns, row, packet, usize::from(d.l3_offset));
                }
                Ok(Fate::TooBig(most)) => {
                    let is_v4 = bits & flags::IPV4 != 0;
                    let answer = if is_v4 { Answer::TooBigV4 } else { Answer::TooBigV6 };
                    columns.flags[row] = answer.encode();
                    columns.decision[row] = most;
                }
                Err(reason) => columns.verdict[row] = Verdict::drop(reason).0,
            }
            if members.is_full() {
                self.seal(&members, columns.verdict, &mut chunk.packets, (cx.pool, keys));
                members.clear();
            }
        }
        self.seal(&members, columns.verdict, &mut chunk.packets, (cx.pool, keys));
        if self.shares {
            let mut records = Records::of_rows(&mut chunk.rows);
            self.sealed.iter().for_each(|row| records.forget(usize::from(*row)));
        }
        if self.with_nat {
            // What is sealed is not translated.
            let columns = NatColumns::view(&mut chunk.rows);
            self.sealed.iter().for_each(|row| columns.nat[usize::from(*row)] = 0);
        }
    }
}
