//! Carrying out: instructions and actions on one packet.

use openflow::flow::{ANY_GROUP, InReason};
use openflow::port::PortConfig;
use openflow::{Action, Field, GroupType, PortNo};

use crate::action_set::ActionSet;
use crate::edit::{self, Frame};
use crate::flow::{Counting, Flow, Group};
use crate::headers::{self, Headers, Network};
use crate::key::{Key, place};
use crate::meter::{Metered, remark};
use crate::pipeline::{COPIES_MAX, Dropped, Egress, Observer, Sent, ToController};
use crate::tables::{Direct, FlowTables};

/// A frame with what is known of it.
pub(crate) struct Work<F> {
    pub(crate) frame: F,
    pub(crate) key: Key,
    pub(crate) headers: Headers,
    /// The key is older than the frame.
    pub(crate) is_stale: bool,
    /// Where it goes unless another action comes before.
    pub(crate) pending: Option<Sent>,
    pub(crate) queue: Option<u32>,
}

/// A packet on its way.
pub(crate) struct Row<F> {
    pub(crate) number: usize,
    pub(crate) work: Option<Work<F>>,
    pub(crate) now_ns: u64,
    pub(crate) in_port: PortNo,
    /// The table that is next.
    pub(crate) next: Option<u8>,
    /// Of the flow that took it last.
    pub(crate) table: u8,
    pub(crate) cookie: u64,
    pub(crate) is_miss: bool,
    /// Frames sent.
    pub(crate) sent: u32,
    pub(crate) copies: u32,
    /// Why it was dropped where it was.
    pub(crate) dropped: Option<Dropped>,
    pub(crate) has_set: bool,
}

/// Buckets that are looked at, those of watched groups among them, to find one that is live: groups of 256 buckets that watch each
/// other eight deep would be looked at for ever.
pub(crate) const LOOKS_MAX: u32 = 1 << 17;

/// Whether the packet goes on.
pub(crate) enum Next {
    GoesOn,
    Ends,
}

impl<F: Frame> Work<F> {
    pub(crate) fn of(frame: F, in_port: PortNo) -> Self {
        let mut key = Key::default();
        let headers = headers::read(frame.head(), frame.frame_len(), in_port.0, &mut key);
        Self::with(frame, key, headers)
    }

    /// A frame that has been read.
    pub(crate) fn with(frame: F, key: Key, headers: Headers) -> Self {
        Self { frame, key, headers, is_stale: false, pending: None, queue: None }
    }

    /// Reads the frame again where it has changed.
    pub(crate) fn refresh(&mut self, in_port: PortNo) {
        if self.is_stale {
            let (head, len) = (self.frame.head(), self.frame.frame_len());
            let covered = self.headers.covered;
            self.headers = headers::read_behind(head, len, in_port.0, &mut self.key, covered);
            self.is_stale = false;
        }
    }
}

impl<F: Frame> Row<F> {
    /// A packet before the first table.
    pub(crate) fn of(number: usize, work: Work<F>, in_port: PortNo, now_ns: u64) -> Self {
        Self {
            number,
            work: Some(work),
            now_ns,
            in_port,
            next: Some(0),
            table: 0,
            cookie: u64::MAX,
            is_miss: false,
            sent: 0,
            copies: 0,
            dropped: None,
            has_set: false,
        }
    }

    pub(crate) fn refresh(&mut self) {
        if let Some(work) = &mut self.work {
            work.refresh(self.in_port);
        }
    }

    /// Another frame of the same packet.
    pub(crate) fn like(&self) -> Self {
        Self { work: None, next: None, dropped: None, has_set: false, sent: 0, ..*self }
    }
}

/// Carrying out.
pub(crate) struct Run<'a, E, O> {
    pub(crate) tables: &'a FlowTables,
    pub(crate) egress: &'a mut E,
    pub(crate) observer: &'a mut O,
    pub(crate) who: &'a Counting,
}

impl<F: Frame, E: Egress<Frame = F>, O: Observer> Run<'_, E, O> {
    /// [`Run::instructions`] of a flow whose only step is to send packets out by a port; `false`: the packet, or who looks on,
    /// needs the whole.
    #[inline]
    pub(crate) fn direct(&mut self, row: &mut Row<F>, flow: Direct<'_>) -> bool {
        let Some(work) = &mut row.work else { return false };
        if O::LOOKS || row.has_set || work.pending.is_some() {
            return false;
        }
        if O::COUNTS {
            flow.counters.add(self.who, work.frame.frame_len(), row.now_ns);
        }
        // A packet goes back by IN_PORT alone.
        match flow.port != row.in_port && self.tables.sends(flow.port) {
            true => {
                let (port, in_port, queue) = (flow.port, row.in_port, work.queue);
                work.pending = Some(Sent { port, in_port, queue, controller: None });
            }
            false => row.dropped = Some(Dropped::Port),
        }
        true
    }

    pub(crate) fn instructions(&mut self, row: &mut Row<F>, set: &mut ActionSet, flow: &Flow) {
        let Some(work) = &mut row.work else { return };
        let len = work.frame.frame_len();
        if O::COUNTS {
            flow.counters.add(self.who, len, row.now_ns);
        }
        (row.table, row.cookie) = (flow.table, flow.cookie);
        row.is_miss = flow.priority == 0 && flow.matches.is_empty();
        let steps = &flow.steps;
        let meter = steps.meter.filter(|_| O::COUNTS);
        if let Some(meter) = meter.and_then(|meter| self.tables.meter(meter)) {
            match meter.measure(len, row.now_ns) {
                Metered::Passes => {}
                Metered::Drops => return self.end(row, set, Dropped::Meter),
                Metered::Remarks(levels) => {
                    if matches!(work.headers.network, Network::Ipv4 | Network::Ipv6) {
                        let old = work.key.get(place::IP_DSCP) as u8;
                        let new = u128::from(remark(old, levels));
                        edit::set_field(work.frame.head_mut(), &work.headers, Field::IpDscp, new);
                        work.key.set(place::IP_DSCP, new);
                    }
                }
            }
        }
        let is_last = steps.goto.is_none() && steps.write.is_empty() && !row.has_set;
        if let Next::Ends = self.list(row, &steps.apply, is_last) {
            set.clear();
            return;
        }
        if steps.clear {
            set.clear();
            row.has_set = false;
        }
        if !steps.write.is_empty() {
            set.write(flow.id, &steps.write);
            row.has_set = true;
        }
        if let (Some((value, mask)), Some(work)) = (steps.metadata, &mut row.work) {
            let old = work.key.get(place::METADATA) as u64;
            work.key.set(place::METADATA, (old & !mask | value & mask).into());
        }
        row.next = steps.goto;
    }

    /// No flow took a packet: the action set is not carried out.
    pub(crate) fn miss(&mut self, row: &mut Row<F>, set: &mut ActionSet, table: u8) {
        set.clear();
        row.has_set = false;
        row.dropped = Some(Dropped::Miss);
        row.table = table;
        let config = self.tables.port(row.in_port).map_or(PortConfig::empty(), |port| port.config);
        if let Some(max_len) = self.tables.settings().miss_len
            && !config.contains(PortConfig::NO_PACKET_IN)
        {
            self.flush(row);
            row.cookie = u64::MAX;
            self.send_to_controller(row, max_len, InReason::NoMatch);
        }
    }

    /// Carries out the action set, and ends.
    pub(crate) fn finish(&mut self, row: &mut Row<F>, set: &mut ActionSet) {
        if row.has_set {
            let mut ends = false;
            for (flow, at) in set.iter() {
                let flow = self.tables.flow(flow);
                let Some(action) = flow.and_then(|flow| flow.steps.write.get(usize::from(at)))
                else {
                    continue;
                };
                if let Next::Ends = self.action(row, action, true) {
                    ends = true;
                    break;
                }
            }
            set.clear();
            if ends {
                row.has_set = false;
            }
        }
        let Some(mut work) = row.work.take() else {
            return self.egress.done(row.number, None, None);
        };
        match work.pending.take() {
            Some(to) => {
                self.egress.send(row.number, work.frame, &to);
                row.sent += 1;
                self.egress.done(row.number, None, None);
            }
            None if row.sent > 0 => self.egress.done(row.number, Some(work.frame), None),
            None => {
                let why = row.dropped.unwrap_or(Dropped::Actions);
                self.egress.done(row.number, Some(work.frame), Some(why));
            }
        }
    }

    /// The packet goes no further.
    fn end(&mut self, row: &mut Row<F>, set: &mut ActionSet, why: Dropped) {
        set.clear();
        row.has_set = false;
        row.next = None;
        row.dropped = Some(why);
    }

    /// Actions one after the other. `is_last`: nothing follows them.
    pub(crate) fn list(&mut self, row: &mut Row<F>, actions: &[Action], is_last: bool) -> Next {
        for (at, action) in actions.iter().enumerate() {
            let is_last = is_last && at + 1 == actions.len();
            if let Next::Ends = self.action(row, action, is_last) {
                return Next::Ends;
            }
        }
        Next::GoesOn
    }

    fn action(&mut self, row: &mut Row<F>, action: &Action, is_last: bool) -> Next {
        self.observer.acts(row.number, action);
        if row.work.is_none() {
            return Next::Ends;
        }
        match action {
            Action::Output { port, max_len } => {
                self.output(row, *port, *max_len);
                return Next::GoesOn;
            }
            Action::Enqueue { port, queue } => {
                let before = row.work.as_mut().and_then(|work| work.queue.replace(*queue));
                self.output(row, *port, 0);
                if let Some(work) = &mut row.work {
                    work.queue = before;
                }
                return Next::GoesOn;
            }
            Action::SetQueue(queue) => {
                if let Some(work) = &mut row.work {
                    work.queue = Some(*queue);
                }
                return Next::GoesOn;
            }
            Action::Group(number) => {
                match self.tables.group(*number) {
                    Some(group) => self.group(row, group, is_last),
                    None => row.dropped = Some(Dropped::Group),
                }
                return Next::GoesOn;
            }
            _ => {}
        }
        self.flush(row);
        match self.change(row, action) {
            Ok(()) => Next::GoesOn,
            Err(why) => {
                row.dropped = Some(why);
                if why == Dropped::Ttl {
                    self.send_to_controller(row, u16::MAX, InReason::InvalidTtl);
                }
                Next::Ends
            }
        }
    }

    /// An action that changes the frame.
    fn change(&mut self, row: &mut Row<F>, action: &Action) -> Result<(), Dropped> {
        let in_port = row.in_port;
        let Some(work) = &mut row.work else { return Ok(()) };
        let Work { frame, headers, key, .. } = work;
        let room = |fits: bool| if fits { Ok(()) } else { Err(Dropped::NoRoom) };
        let alive = |alive: bool| if alive { Ok(()) } else { Err(Dropped::Ttl) };
        let mut moves = true;
        match action {
            Action::SetField(Field::Metadata, value) => key.set(place::METADATA, *value),
            Action::SetField(Field::TunnelId, value) => key.set(place::TUNNEL_ID, *value),
            Action::SetField(field, value) => {
                edit::set_field(frame.head_mut(), headers, *field, *value);
                // What a frame is follows from these.
                moves = matches!(
                    field,
                    Field::EthType | Field::IpProto | Field::Icmpv6Type | Field::Icmpv6Code
                );
            }
            Action::PushVlan(tpid) => {
                room(edit::push_vlan(frame, headers, *tpid))?;
                headers.covered = headers.covered.saturating_add(headers.tagged.into());
            }
            Action::PopVlan => {
                edit::pop_vlan(frame, headers);
                headers.covered = headers.covered.saturating_sub(1);
            }
            Action::PushMpls(ethertype) => room(edit::push_mpls(frame, headers, *ethertype))?,
            Action::PopMpls(ethertype) => edit::pop_mpls(frame, headers, *ethertype),
            Action::PushPbb(ethertype) => room(edit::push_pbb(frame, headers, *ethertype))?,
            Action::PopPbb => edit::pop_pbb(frame, headers),
            Action::CopyTtlOut => edit::copy_ttl_out(frame.head_mut(), headers),
            Action::CopyTtlIn => edit::copy_ttl_in(frame.head_mut(), headers),
            Action::SetMplsTtl(ttl) => edit::set_mpls_ttl(frame.head_mut(), headers, *ttl),
            Action::DecMplsTtl => alive(edit::dec_mpls_ttl(frame.head_mut(), headers))?,
            Action::SetNwTtl(ttl) => edit::set_nw_ttl(frame.head_mut(), headers, *ttl),
            Action::DecNwTtl => alive(edit::dec_nw_ttl(frame.head_mut(), headers))?,
            Action::SetVlanVid(_) | Action::SetVlanPcp(_) => {
                if !headers.tagged {
                    room(edit::push_vlan(frame, headers, 0x8100))?;
                    *headers = headers::read(frame.head(), frame.frame_len(), in_port.0, key);
                }
                let (field, value) = match action {
                    Action::SetVlanVid(vid) => (Field::VlanVid, u128::from(*vid)),
                    Action::SetVlanPcp(pcp) => (Field::VlanPcp, u128::from(*pcp)),
                    _ => return Ok(()),
                };
                edit::set_field(frame.head_mut(), headers, field, value);
            }
            Action::SetTpSrc(port) => {
                for field in [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc] {
                    edit::set_field(frame.head_mut(), headers, field, (*port).into());
                }
            }
            Action::SetTpDst(port) => {
                for field in [Field::TcpDst, Field::UdpDst, Field::SctpDst] {
                    edit::set_field(frame.head_mut(), headers, field, (*port).into());
                }
            }
            Action::Output { .. }
            | Action::Enqueue { .. }
            | Action::SetQueue(_)
            | Action::Group(_)
            | Action::Experimenter { .. } => {}
        }
        work.is_stale = true;
        if moves {
            work.refresh(in_port);
        }
        Ok(())
    }

    /// An output that waits is carried out, on a copy.
    pub(crate) fn flush(&mut self, row: &mut Row<F>) {
        let Some(work) = &mut row.work else { return };
        let Some(to) = work.pending.take() else { return };
        if row.copies >= COPIES_MAX {
            return;
        }
        row.copies += 1;
        match self.egress.copy(&work.frame) {
            Some(copy) => {
                self.egress.send(row.number, copy, &to);
                row.sent += 1;
            }
            None => row.dropped = Some(Dropped::NoRoom),
        }
    }

    fn output(&mut self, row: &mut Row<F>, port: PortNo, max_len: u16) {
        let in_port = row.in_port;
        match port {
            PortNo::FLOOD | PortNo::ALL => {
                let tables = self.tables;
                let floods = |config: PortConfig| {
                    port == PortNo::ALL || !config.contains(PortConfig::NO_FLOOD)
                };
                for port in tables.ports() {
                    if port.number != in_port && floods(port.config) {
                        self.send_to_port(row, port.number);
                    }
                }
                if row.sent == 0 && row.work.as_ref().is_none_or(|work| work.pending.is_none()) {
                    row.dropped = Some(Dropped::Port);
                }
            }
            PortNo::IN_PORT => self.send_to_port(row, in_port),
            PortNo::CONTROLLER => {
                let reason = if row.is_miss { InReason::NoMatch } else { InReason::Action };
                self.send_to_controller(row, max_len, reason);
            }
            PortNo::NORMAL => self.send_to(row, port, None),
            // A packet goes back by IN_PORT alone.
            _ if port == in_port => row.dropped = Some(Dropped::Port),
            _ => self.send_to_port(row, port),
        }
    }

    fn send_to_port(&mut self, row: &mut Row<F>, port: PortNo) {
        match self.tables.sends(port) {
            true => self.send_to(row, port, None),
            false => row.dropped = Some(Dropped::Port),
        }
    }

    fn send_to_controller(&mut self, row: &mut Row<F>, max_len: u16, reason: InReason) {
        let Some(work) = &row.work else { return };
        let controller = ToController {
            max_len,
            reason,
            table: row.table,
            cookie: row.cookie,
            metadata: work.key.get(place::METADATA) as u64,
            tunnel_id: work.key.get(place::TUNNEL_ID) as u64,
        };
        self.send_to(row, PortNo::CONTROLLER, Some(controller));
    }

    fn send_to(&mut self, row: &mut Row<F>, port: PortNo, controller: Option<ToController>) {
        self.flush(row);
        if let Some(work) = &mut row.work {
            let (in_port, queue) = (row.in_port, work.queue);
            work.pending = Some(Sent { port, in_port, queue, controller });
        }
    }

    fn group(&mut self, row: &mut Row<F>, group: &Group, is_last: bool) {
        self.flush(row);
        row.refresh();
        let Some(work) = &row.work else { return };
        if O::COUNTS {
            group.counters.add(self.who, work.frame.frame_len(), row.now_ns);
        }
        let one = match group.kind {
            GroupType::All => {
                let count = group.buckets.len();
                for bucket in 0..count {
                    self.bucket(row, group, bucket, is_last && bucket + 1 == count);
                }
                return;
            }
            GroupType::Indirect => (!group.buckets.is_empty()).then_some(0),
            GroupType::FastFailover => {
                let mut looks = LOOKS_MAX;
                (0..group.buckets.len()).find(|bucket| self.is_live(group, *bucket, 0, &mut looks))
            }
            GroupType::Select => self.select(group, &work.key),
        };
        match one {
            Some(bucket) => self.bucket(row, group, bucket, is_last),
            None => row.dropped = Some(Dropped::Group),
        }
    }

    /// A live bucket by the hash of the flow, each as often as its weight says.
    fn select(&self, group: &Group, key: &Key) -> Option<usize> {
        let live = |bucket: &usize| {
            let mut looks = LOOKS_MAX / crate::groups::BUCKETS_MAX as u32;
            group.buckets[*bucket].weight > 0 && self.is_live(group, *bucket, 0, &mut looks)
        };
        let buckets = || (0..group.buckets.len()).filter(live);
        let total: u32 = buckets().map(|bucket| u32::from(group.buckets[bucket].weight)).sum();
        let mut rest = chunk::hash::to_range(flow_hash(key), total);
        buckets().find(|bucket| {
            let weight = u32::from(group.buckets[*bucket].weight);
            let is_it = rest < weight;
            rest = rest.wrapping_sub(weight);
            is_it
        })
    }

    /// A bucket is live as long as what it watches is. What `looks` buckets do not tell is not live.
    fn is_live(&self, group: &Group, bucket: usize, depth: usize, looks: &mut u32) -> bool {
        let Some(bucket) = group.buckets.get(bucket) else { return false };
        let Some(left) = looks.checked_sub(1) else { return false };
        *looks = left;
        let port = bucket.watch_port == PortNo::ANY
            || self
                .tables
                .port(bucket.watch_port)
                .is_some_and(|port| port.live && !port.config.contains(PortConfig::PORT_DOWN));
        let mut watched = || {
            let group = self.tables.group(bucket.watch_group)?;
            let is_live = |bucket: usize| self.is_live(group, bucket, depth + 1, looks);
            Some(depth < crate::groups::CHAIN_MAX && (0..group.buckets.len()).any(is_live))
        };
        port && (bucket.watch_group == ANY_GROUP || watched().unwrap_or(false))
    }

    /// Carries out a bucket: on a copy, unless nothing follows.
    fn bucket(&mut self, row: &mut Row<F>, group: &Group, bucket: usize, is_last: bool) {
        let Some(actions) = group.ordered.get(bucket) else { return };
        let Some(work) = &row.work else { return };
        if let Some(counters) = group.bucket_counters.get(bucket).filter(|_| O::COUNTS) {
            counters.add(self.who, work.frame.frame_len(), row.now_ns);
        }
        if is_last {
            self.list(row, actions, true);
            return;
        }
        if row.copies >= COPIES_MAX {
            return;
        }
        row.copies += 1;
        let Some(copy) = self.egress.copy(&work.frame) else {
            row.dropped = Some(Dropped::NoRoom);
            return;
        };
        let Work { key, headers, is_stale, queue, .. } = *work;
        let own = Work { frame: copy, key, headers, is_stale, pending: None, queue };
        let mut own = Row { work: Some(own), ..row.like() };
        self.list(&mut own, actions, true);
        self.end_copy(row, own);
    }

    /// A copy of a row's packet has been through its actions.
    pub(crate) fn end_copy(&mut self, row: &mut Row<F>, mut own: Row<F>) {
        if let Some(mut work) = own.work.take() {
            match work.pending.take() {
                Some(to) => {
                    self.egress.send(row.number, work.frame, &to);
                    own.sent += 1;
                }
                None => self.egress.free(work.frame),
            }
        }
        row.sent += own.sent;
        row.copies = own.copies;
        row.dropped = row.dropped.or(own.dropped);
    }
}

/// A hash of what makes a flow: MACs, EtherType, VLAN, addresses, protocol and ports. It chooses the bucket of a select group.
pub(crate) fn flow_hash(key: &Key) -> u32 {
    let mut words = [0; 14];
    words[..5].copy_from_slice(&key.0[5..10]);
    // What the traffic class says is not the flow's.
    words[4] &= 0xff00_0000;
    words[5] = key.0[10];
    words[6..].copy_from_slice(&key.0[11..19]);
    chunk::hash::murmur3_words(&words, 0x9e37_79b9)
}
