//! A kernel's databases in plain form, which answers and announces as the kernel does (net/xfrm): for tests of the mirror
//! and of programs that steer a gateway.
//!
//! Lists that are searched from the front. It does not look at packets, so limits of bytes and packets do nothing; time
//! passes by [`Kernel::pass`].

use crypto::Secret;

use crate::algorithm::Algorithm;
use crate::attribute::Attribute;
use crate::message::{Body, Kind, Message};
use crate::structs::value::*;
use crate::structs::*;
use crate::types::mark;
use crate::wire::{Address, Spi};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const ACK: u16 = 4;
const MULTI: u16 = 2;
const REPLACE: u16 = 0x100;
const DUMP: u16 = 0x300;

const ENOENT: i32 = -2;
const ESRCH: i32 = -3;
const EEXIST: i32 = -17;
const EINVAL: i32 = -22;

/// An association.
#[derive(Debug, Clone)]
pub struct State {
    /// The order of creation.
    pub number: u64,
    /// What it is.
    pub info: SaInfo,
    /// What the kernel shows behind it.
    pub attributes: Vec<Attribute>,
    /// It has an index only.
    pub is_larval: bool,
    is_dying: bool,
}

/// A policy.
#[derive(Debug, Clone)]
pub struct PolicyState {
    /// The order of creation.
    pub number: u64,
    /// What it is.
    pub info: PolicyInfo,
    /// What the kernel shows behind it.
    pub attributes: Vec<Attribute>,
}

/// The databases.
#[derive(Debug, Default)]
pub struct Kernel {
    /// Associations in the order of creation.
    pub states: Vec<State>,
    /// Policies in the order of creation.
    pub policies: Vec<PolicyState>,
    /// Seconds since 1970.
    pub now: u64,
    created: u64,
    defaults: PolicyDefault,
    events: Vec<(u32, u32, Message)>,
}

/// What goes to the program that asked.
#[derive(Debug)]
pub struct Answer(Vec<Secret>);

impl Answer {
    /// Datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Secret::expose)
    }
}

/// Header of a request.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

impl Kernel {
    /// Empty databases.
    pub fn new() -> Self {
        Self { defaults: PolicyDefault { input: 2, forward: 2, output: 2 }, ..Self::default() }
    }

    /// Takes a datagram of requests from a program with a port, and answers.
    pub fn ask(&mut self, port: u32, mut datagram: &[u8]) -> Answer {
        let mut answer = Answer(Vec::new());
        while let Some(head) = datagram.first_chunk::<16>() {
            let word = |at: usize| {
                u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
            let len = word(0) as usize;
            let Some(payload) = datagram.get(16..len) else { break };
            let header = Header { kind: half(4), flags: half(6), sequence: word(8), port };
            let result = match Message::decode(header.kind, header.flags, payload) {
                Ok(message) => self.request(header, message, &mut answer),
                Err(_) => Err(EINVAL),
            };
            let is_dump = matches!(header.kind, 0x12 | 0x15) && header.flags & DUMP != 0;
            match result {
                Err(error) => answer.status(NLMSG_ERROR, header, error),
                Ok(()) if header.flags & ACK != 0 && !is_dump => {
                    answer.status(NLMSG_ERROR, header, 0)
                }
                Ok(()) => {}
            }
            datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        answer
    }

    /// What was announced since the last call: multicast group and datagram.
    pub fn take_events(&mut self) -> Vec<(u32, Secret)> {
        let events = std::mem::take(&mut self.events);
        let datagram = |(group, sequence, message): (u32, u32, Message)| {
            (group, message.to_datagram(0, sequence, 0))
        };
        events.into_iter().map(datagram).collect()
    }

    /// The next part of a dump of associations: up to `most` that were created after number `after`.
    pub fn dump_states(&self, after: u64, most: usize) -> Vec<(u64, Message)> {
        let rest = self.states.iter().filter(|own| own.number > after).take(most);
        rest.map(|own| (own.number, own.message(Kind::NewSa))).collect()
    }

    /// The next part of a dump of policies.
    pub fn dump_policies(&self, after: u64, most: usize) -> Vec<(u64, Message)> {
        let rest = self.policies.iter().filter(|own| own.number > after).take(most);
        rest.map(|own| (own.number, own.message(Kind::NewPolicy))).collect()
    }

    /// Time passes: limits of seconds since the creation are reached.
    pub fn pass(&mut self, seconds: u64) {
        self.now += seconds;
        let now = self.now;
        for at in (0..self.states.len()).rev() {
            let own = &mut self.states[at];
            let age = now - own.info.curlft.add_time;
            let LifetimeLimits { soft_add_expires_seconds, hard_add_expires_seconds, .. } =
                own.info.lft;
            let is_over = |limit: u64| limit != 0 && age >= limit;
            if is_over(hard_add_expires_seconds) {
                self.expire(at, true, 0);
            } else if is_over(soft_add_expires_seconds) && !own.is_dying {
                own.is_dying = true;
                self.expire(at, false, 0);
            }
        }
    }

    fn announce(&mut self, group: u32, sequence: u32, message: Message) {
        self.events.push((group, sequence, message));
    }

    fn number(&mut self) -> u64 {
        self.created += 1;
        self.created
    }

    fn request(
        &mut self,
        header: Header,
        message: Message,
        answer: &mut Answer,
    ) -> Result<(), i32> {
        let Message { kind, body, attributes } = message;
        let sequence = header.sequence;
        match (kind, body) {
            (Kind::NewSa, Body::SaInfo(info)) => self.add(sequence, info, attributes),
            (Kind::UpdSa, Body::SaInfo(info)) => self.update(sequence, info, attributes),
            (Kind::DelSa, Body::SaId(id)) => {
                let at = self.find(&id, &attributes).ok_or(ESRCH)?;
                let own = self.states.remove(at);
                let mut message = Message::new(Kind::DelSa, Body::SaId(own.id()));
                message.attributes.push(Attribute::Sa(own.info));
                message.attributes.extend(own.attributes);
                self.announce(crate::group::SA, sequence, message);
                Ok(())
            }
            (Kind::GetSa, Body::SaId(id)) => {
                let at = self.find(&id, &attributes).ok_or(ESRCH)?;
                answer.message(header, 0, &self.states[at].message(Kind::NewSa));
                Ok(())
            }
            (Kind::GetSa, _) => {
                answer.dump(header, self.dump_states(0, usize::MAX));
                Ok(())
            }
            (Kind::AllocSpi, Body::SpiInfo(spi)) => self.allocate(header, spi, attributes, answer),
            (Kind::FlushSa, Body::Flush(flush)) => {
                let before = self.states.len();
                self.states.retain(|own| !flushes(flush.proto, own.info.id.proto));
                if self.states.len() < before {
                    let event = Message::new(Kind::FlushSa, Body::Flush(flush));
                    self.announce(crate::group::SA, sequence, event);
                }
                Ok(())
            }
            (Kind::NewPolicy | Kind::UpdPolicy, Body::PolicyInfo(info)) => {
                self.put_policy(kind, sequence, info, attributes)
            }
            (Kind::DelPolicy, Body::PolicyId(id)) => {
                let at = self.find_policy(&id, &attributes).ok_or(ENOENT)?;
                let own = self.policies.remove(at);
                let mut event = Message::new(Kind::DelPolicy, Body::PolicyId(id));
                event.attributes.push(Attribute::Policy(own.info));
                event.attributes.extend(own.attributes);
                self.announce(crate::group::POLICY, sequence, event);
                Ok(())
            }
            (Kind::GetPolicy, Body::PolicyId(id)) => {
                let at = self.find_policy(&id, &attributes).ok_or(ENOENT)?;
                answer.message(header, 0, &self.policies[at].message(Kind::NewPolicy));
                Ok(())
            }
            (Kind::GetPolicy, _) => {
                answer.dump(header, self.dump_policies(0, usize::MAX));
                Ok(())
            }
            (Kind::FlushPolicy, _) => {
                let wanted = policy_type(&attributes);
                let before = self.policies.len();
                self.policies.retain(|own| policy_type(&own.attributes) != wanted);
                if self.policies.len() < before {
                    let value = PolicyType { value: wanted, ..PolicyType::default() };
                    let event = Message::new(Kind::FlushPolicy, Body::None)
                        .with(Attribute::PolicyType(value));
                    self.announce(crate::group::POLICY, sequence, event);
                }
                Ok(())
            }
            (Kind::Expire, Body::Expire(expire)) => {
                let id = id_of(&expire.state);
                let at = self.find(&id, &attributes).ok_or(ENOENT)?;
                if self.states[at].is_larval {
                    return Err(EINVAL);
                }
                self.expire(at, expire.hard != 0, sequence);
                Ok(())
            }
            (Kind::PolExpire, Body::PolicyExpire(expire)) => {
                let id =
                    PolicyId { sel: expire.pol.sel, index: expire.pol.index, dir: expire.pol.dir };
                let at = self.find_policy(&id, &attributes).ok_or(ENOENT)?;
                let own = match expire.hard {
                    0 => self.policies[at].clone(),
                    _ => self.policies.remove(at),
                };
                let body = PolicyExpire { pol: own.info, hard: expire.hard };
                let mut event = Message::new(Kind::PolExpire, Body::PolicyExpire(body));
                event.attributes = own.attributes;
                self.announce(crate::group::EXPIRE, sequence, event);
                Ok(())
            }
            (Kind::NewAe, Body::EventId(event)) => self.set_event(header, event, attributes),
            (Kind::GetAe, Body::EventId(event)) => {
                let at = self.find(&event.sa_id, &attributes).ok_or(ESRCH)?;
                answer.message(header, 0, &self.states[at].event(event.flags));
                Ok(())
            }
            (Kind::Acquire, Body::Acquire(acquire)) => {
                let templates = attributes.iter().any(|a| matches!(a, Attribute::Templates(_)));
                if !templates {
                    return Err(EINVAL);
                }
                let event = Message { kind, body: Body::Acquire(acquire), attributes };
                self.announce(crate::group::ACQUIRE, 0, event);
                Ok(())
            }
            (Kind::Migrate, Body::PolicyId(id)) => self.migrate(id, attributes),
            (Kind::GetSadInfo, Body::Flags(flags)) => {
                let info = Message::new(Kind::NewSadInfo, Body::Flags(flags))
                    .with(Attribute::SadCount(self.states.len() as u32))
                    .with(Attribute::SadHash(SadHash { buckets: 8, buckets_max: 1 << 20 }));
                answer.message(header, 0, &info);
                Ok(())
            }
            (Kind::GetSpdInfo, Body::Flags(flags)) => {
                let count =
                    |dir: u8| self.policies.iter().filter(|own| own.info.dir == dir).count() as u32;
                let counts = SpdCounts {
                    input: count(XFRM_POLICY_IN),
                    output: count(XFRM_POLICY_OUT),
                    forward: count(XFRM_POLICY_FWD),
                    ..SpdCounts::default()
                };
                let info = Message::new(Kind::NewSpdInfo, Body::Flags(flags))
                    .with(Attribute::SpdCounts(counts))
                    .with(Attribute::SpdHash(SpdHash { buckets: 7, buckets_max: 1 << 20 }));
                answer.message(header, 0, &info);
                Ok(())
            }
            (Kind::SetDefault, Body::PolicyDefault(wanted)) => {
                let set = |own: &mut u8, value: u8| *own = if value == 0 { *own } else { value };
                set(&mut self.defaults.input, wanted.input);
                set(&mut self.defaults.forward, wanted.forward);
                set(&mut self.defaults.output, wanted.output);
                let event = Message::new(Kind::GetDefault, Body::PolicyDefault(self.defaults));
                self.announce(crate::group::POLICY, sequence, event);
                Ok(())
            }
            (Kind::GetDefault, _) => {
                let body = Body::PolicyDefault(self.defaults);
                answer.message(header, 0, &Message::new(Kind::GetDefault, body));
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }

    fn find(&self, id: &SaId, attributes: &[Attribute]) -> Option<usize> {
        let (value, mask) = mark(attributes);
        self.states.iter().position(|own| {
            let (v, m) = mark(&own.attributes);
            own.id() == *id && (value & mask) & m == v
        })
    }

    fn same(&self, info: &SaInfo, attributes: &[Attribute]) -> Option<usize> {
        let wanted = mark(attributes);
        let is_same = |own: &State| own.id() == id_of(info) && mark(&own.attributes) == wanted;
        self.states.iter().position(is_same)
    }

    fn add(&mut self, sequence: u32, info: SaInfo, given: Vec<Attribute>) -> Result<(), i32> {
        if self.same(&info, &given).is_some() {
            return Err(EEXIST);
        }
        let own = self.state(info, &given)?;
        let event = own.message(Kind::NewSa);
        self.states.push(own);
        self.announce(crate::group::SA, sequence, event);
        Ok(())
    }

    fn update(&mut self, sequence: u32, info: SaInfo, given: Vec<Attribute>) -> Result<(), i32> {
        let at = self.same(&info, &given).ok_or(ESRCH)?;
        let change = self.state(info, &given)?;
        // The announcement shows what was asked for, also where the association keeps what it had.
        let event = change.message(Kind::UpdSa);
        if self.states[at].is_larval {
            self.states[at] = State { number: self.number(), ..change };
            self.states.sort_by_key(|own| own.number);
        } else {
            self.states[at].change(&change);
        }
        self.announce(crate::group::SA, sequence, event);
        Ok(())
    }

    /// A new association with the attributes that the kernel shows, in its order (`copy_to_user_state_extra`).
    fn state(&mut self, mut info: SaInfo, given: &[Attribute]) -> Result<State, i32> {
        let get = |number: u16| given.iter().find(|a| a.number() == number).cloned();
        info.curlft = LifetimeCurrent { add_time: self.now, ..LifetimeCurrent::default() };
        info.stats = Stats::default();
        if let Some(Attribute::Lifetime(used)) = get(9) {
            info.curlft = used;
        }
        let mut attributes = Vec::new();
        attributes.extend([24, 14, 18].into_iter().filter_map(get));
        match (get(20), get(1)) {
            (Some(Attribute::TruncatedAuthKey(auth)), _)
            | (None, Some(Attribute::AuthKey(auth))) => {
                let check_bits = auth.check_bits.unwrap_or_else(|| default_check_bits(&auth));
                attributes.push(Attribute::AuthKey(Algorithm { check_bits: None, ..auth.clone() }));
                let check_bits = Some(check_bits);
                attributes.push(Attribute::TruncatedAuthKey(Algorithm { check_bits, ..auth }));
            }
            _ => {}
        }
        attributes.extend([2, 3, 4, 22, 21, 29, 30].into_iter().filter_map(get));
        match (get(23), get(10)) {
            (Some(Attribute::ReplayEsn(mut replay)), _) => {
                replay.bitmap.resize(replay.words as usize, 0);
                info.replay_window = 0;
                attributes.push(Attribute::ReplayEsn(replay));
            }
            (_, Some(replay)) => attributes.push(replay),
            _ if info.flags & XFRM_STATE_ESN != 0 => return Err(EINVAL),
            _ => attributes.push(Attribute::Replay(ReplayState::default())),
        }
        attributes.extend([28, 31, 8, 32, 33, 34, 35].into_iter().filter_map(get));
        let number = self.number();
        Ok(State { number, info, attributes, is_larval: false, is_dying: false })
    }

    fn allocate(
        &mut self,
        header: Header,
        spi: SpiInfo,
        attributes: Vec<Attribute>,
        answer: &mut Answer,
    ) -> Result<(), i32> {
        let mut info = spi.info;
        let is_free = |spi: &u32| {
            let is_used = |own: &State| {
                own.info.id.spi.0 == *spi
                    && own.info.id.daddr == info.id.daddr
                    && own.info.id.proto == info.id.proto
            };
            !self.states.iter().any(is_used)
        };
        // Not the same for each, as the kernel's are random.
        let span = u64::from(spi.max.checked_sub(spi.min).ok_or(EINVAL)?) + 1;
        let first = self.created.wrapping_mul(0x9e37_79b9_7f4a_7c15) % span;
        let candidates = (0..span.min(4096)).map(|n| spi.min + ((first + n) % span) as u32);
        let found = candidates.into_iter().find(is_free).ok_or(ENOENT)?;
        info.id.spi = Spi(found);
        info.curlft = LifetimeCurrent { add_time: self.now, ..LifetimeCurrent::default() };
        let mut shown: Vec<_> =
            attributes.into_iter().filter(|a| matches!(a.number(), 21 | 31 | 33)).collect();
        shown.push(Attribute::Replay(ReplayState::default()));
        let number = self.number();
        let own = State { number, info, attributes: shown, is_larval: true, is_dying: false };
        answer.message(header, 0, &own.message(Kind::NewSa));
        self.states.push(own);
        Ok(())
    }

    fn expire(&mut self, at: usize, is_hard: bool, sequence: u32) {
        let own = match is_hard {
            true => self.states.remove(at),
            false => self.states[at].clone(),
        };
        let body = Expire { state: own.info, hard: is_hard.into() };
        let mut event = Message::new(Kind::Expire, Body::Expire(body));
        let shown = own.attributes.into_iter().filter(|a| matches!(a.number(), 21 | 31 | 33));
        event.attributes.extend(shown);
        self.announce(crate::group::EXPIRE, sequence, event);
    }

    fn set_event(
        &mut self,
        header: Header,
        event: EventId,
        attributes: Vec<Attribute>,
    ) -> Result<(), i32> {
        let is_one = |a: &Attribute| matches!(a.number(), 9..=12 | 23);
        if header.flags & REPLACE == 0 || !attributes.iter().any(is_one) {
            return Err(EINVAL);
        }
        let at = self.find(&event.sa_id, &attributes).ok_or(ESRCH)?;
        if self.states[at].is_larval {
            return Err(EINVAL);
        }
        for attribute in attributes {
            let own = &mut self.states[at];
            let has = |number: u16| own.attributes.iter().position(|a| a.number() == number);
            match (&attribute, has(23), has(10)) {
                (Attribute::Lifetime(used), ..) => own.info.curlft = *used,
                (Attribute::ReplayEsn(new), Some(place), _) => {
                    let Attribute::ReplayEsn(old) = &own.attributes[place] else { continue };
                    if old.words != new.words || new.bitmap.len() != new.words as usize {
                        return Err(EINVAL);
                    }
                    own.attributes[place] = attribute;
                }
                (Attribute::ReplayEsn(_), None, _) => return Err(EINVAL),
                (Attribute::Replay(_), None, Some(place)) => own.attributes[place] = attribute,
                _ => {}
            }
        }
        let message = self.states[at].event(XFRM_AE_CU);
        self.announce(crate::group::AEVENTS, header.sequence, message);
        Ok(())
    }

    fn find_policy(&self, id: &PolicyId, attributes: &[Attribute]) -> Option<usize> {
        let wanted = (id.dir, policy_type(attributes));
        self.policies.iter().position(|own| {
            let is_named = match id.index {
                0 => {
                    own.info.sel == id.sel
                        && mark(&own.attributes) == mark(attributes)
                        && interface(&own.attributes) == interface(attributes)
                }
                index => own.info.index == index,
            };
            (own.info.dir, policy_type(&own.attributes)) == wanted && is_named
        })
    }

    fn put_policy(
        &mut self,
        kind: Kind,
        sequence: u32,
        mut info: PolicyInfo,
        given: Vec<Attribute>,
    ) -> Result<(), i32> {
        if info.dir > XFRM_POLICY_FWD {
            return Err(EINVAL);
        }
        let id = PolicyId { sel: info.sel, index: 0, dir: info.dir };
        let known = self.find_policy(&id, &given);
        if known.is_some() && kind == Kind::NewPolicy {
            return Err(EEXIST);
        }
        let number = self.number();
        info.index = match known {
            Some(at) => self.policies.remove(at).info.index,
            None => (number as u32) << 3 | u32::from(info.dir),
        };
        info.curlft = LifetimeCurrent { add_time: self.now, ..LifetimeCurrent::default() };
        let get = |number: u16| given.iter().find(|a| a.number() == number).cloned();
        let mut attributes: Vec<_> = [5, 8].into_iter().filter_map(get).collect();
        let value = PolicyType { value: policy_type(&given), ..PolicyType::default() };
        attributes.push(Attribute::PolicyType(value));
        attributes.extend([21, 31].into_iter().filter_map(get));
        let own = PolicyState { number, info, attributes };
        let event = own.message(kind);
        self.policies.push(own);
        self.announce(crate::group::POLICY, sequence, event);
        Ok(())
    }

    fn migrate(&mut self, id: PolicyId, attributes: Vec<Attribute>) -> Result<(), i32> {
        let id = PolicyId { index: 0, ..id };
        let at = self.find_policy(&id, &attributes).ok_or(ENOENT)?;
        let moves: Vec<Migration> = attributes
            .iter()
            .filter_map(|a| match a {
                Attribute::Migrate(moves) => Some(moves.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        if moves.is_empty() {
            return Err(EINVAL);
        }
        for step in &moves {
            let fits = |proto, mode, reqid, daddr: Address, saddr: Address| {
                (proto, mode) == (step.proto, step.mode)
                    && (step.reqid == 0 || reqid == step.reqid)
                    && (daddr, saddr) == (step.old_daddr, step.old_saddr)
            };
            let found = self.states.iter().position(|own| {
                let SaInfo { id, saddr, mode, reqid, .. } = own.info;
                !own.is_larval && fits(id.proto, mode, reqid, id.daddr, saddr)
            });
            if let Some(found) = found {
                let mut own = self.states.remove(found);
                own.number = self.number();
                own.info.id.daddr = step.new_daddr;
                own.info.saddr = step.new_saddr;
                own.info.family = step.new_family;
                match self.same(&own.info, &own.attributes) {
                    Some(_) => {}
                    None => self.states.push(own),
                }
            }
            for attribute in &mut self.policies[at].attributes {
                let Attribute::Templates(templates) = attribute else { continue };
                for own in templates {
                    if fits(own.id.proto, own.mode, own.reqid, own.id.daddr, own.saddr) {
                        own.id.daddr = step.new_daddr;
                        own.saddr = step.new_saddr;
                        own.family = step.new_family;
                    }
                }
            }
        }
        let event = Message { kind: Kind::Migrate, body: Body::PolicyId(id), attributes };
        self.announce(crate::group::MIGRATE, 0, event);
        Ok(())
    }
}

impl State {
    fn id(&self) -> SaId {
        id_of(&self.info)
    }

    fn message(&self, kind: Kind) -> Message {
        let attributes = self.attributes.clone();
        Message { kind, body: Body::SaInfo(self.info), attributes }
    }

    fn event(&self, flags: u32) -> Message {
        let SaInfo { saddr, reqid, .. } = self.info;
        let body = EventId { sa_id: self.id(), saddr, flags, reqid };
        let mut event = Message::new(Kind::NewAe, Body::EventId(body));
        let replay = self.attributes.iter().filter(|a| matches!(a.number(), 10 | 23));
        event.attributes.extend(replay.cloned());
        event.attributes.push(Attribute::Lifetime(self.info.curlft));
        event.attributes.extend(self.attributes.iter().filter(|a| a.number() == 21).cloned());
        event
    }

    /// `xfrm_state_update` of an association that is in use.
    fn change(&mut self, change: &Self) {
        let get = |number: u16| change.attributes.iter().find(|a| a.number() == number);
        let mut place = |number: u16, is_added: bool| {
            let Some(new) = get(number) else { return };
            match self.attributes.iter_mut().find(|a| a.number() == number) {
                Some(own) => *own = new.clone(),
                None if is_added => self.attributes.push(new.clone()),
                None => {}
            }
        };
        place(4, false);
        place(14, false);
        if get(29).is_some() || interface(&change.attributes) != 0 {
            [29, 30].into_iter().for_each(|number| place(number, true));
            if interface(&change.attributes) != 0 {
                place(31, true);
            }
            for number in [29, 30] {
                if get(number).is_none() {
                    self.attributes.retain(|a| a.number() != number);
                }
            }
        }
        self.info.lft = change.info.lft;
        self.is_dying = false;
    }
}

impl PolicyState {
    fn message(&self, kind: Kind) -> Message {
        Message { kind, body: Body::PolicyInfo(self.info), attributes: self.attributes.clone() }
    }
}

impl Answer {
    fn message(&mut self, header: Header, flags: u16, message: &Message) {
        self.0.push(message.to_datagram(flags, header.sequence, header.port));
    }

    fn dump(&mut self, header: Header, all: Vec<(u64, Message)>) {
        all.iter().for_each(|(_, message)| self.message(header, MULTI, message));
        self.status(NLMSG_DONE, header, 0);
    }

    /// The end of a dump, or an error with the header of the request (0: an acknowledgement).
    fn status(&mut self, kind: u16, header: Header, error: i32) {
        let Header { kind: asked, flags, sequence, port } = header;
        let is_error = kind == NLMSG_ERROR;
        let mut bytes = Vec::new();
        let mut head = |len: u32, kind: u16, flags: u16| {
            bytes.extend(len.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(flags.to_ne_bytes());
            bytes.extend(sequence.to_ne_bytes());
            bytes.extend(port.to_ne_bytes());
            if len > 16 {
                bytes.extend(error.to_ne_bytes());
            }
        };
        head(if is_error { 36 } else { 20 }, kind, if is_error { 0 } else { MULTI });
        if is_error {
            head(16, asked, flags);
        }
        self.0.push(Secret::new(bytes));
    }
}

fn id_of(info: &SaInfo) -> SaId {
    SaId { daddr: info.id.daddr, spi: info.id.spi, family: info.family, proto: info.id.proto }
}

fn policy_type(attributes: &[Attribute]) -> u8 {
    let kind = attributes.iter().find_map(|attribute| match attribute {
        Attribute::PolicyType(kind) => Some(kind.value),
        _ => None,
    });
    kind.unwrap_or(XFRM_POLICY_TYPE_MAIN)
}

fn interface(attributes: &[Attribute]) -> u32 {
    let id = attributes.iter().find_map(|attribute| match attribute {
        Attribute::InterfaceId(id) => Some(*id),
        _ => None,
    });
    id.unwrap_or_default()
}

fn flushes(flush: u8, protocol: u8) -> bool {
    match flush {
        0 => true,
        IPSEC_PROTO_ANY => [IPPROTO_ESP, IPPROTO_AH, IPPROTO_COMP].contains(&protocol),
        only => only == protocol,
    }
}

/// What the kernel truncates to if nobody says (net/xfrm/xfrm_algo.c).
fn default_check_bits(auth: &Algorithm) -> u32 {
    match auth.name.to_string().as_str() {
        "hmac(sha384)" => 192,
        "hmac(sha512)" => 256,
        _ => 96,
    }
}
