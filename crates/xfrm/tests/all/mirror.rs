//! The mirror has what the kernel has, whatever happens in whatever order, and whatever the kernel drops.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crypto::Secret;
use xfrm::reference::Kernel;
use xfrm::structs::value::*;
use xfrm::structs::*;
use xfrm::{
    AF_INET, Address, Algorithm, Association, AssociationId, Attribute, Body, Bounds, Change, Kind,
    Message, Mirror, Policy, Port, Spi, group,
};

use crate::random::{Random, fresh};

/// What the mirror listens to.
const GROUPS: [u32; 4] = [group::SA, group::POLICY, group::EXPIRE, group::MIGRATE];
const REQUEST: u16 = 5;

/// The queue of a listener, as af_netlink.c has it: from the first event that finds no room until it is empty, all are
/// dropped.
struct Queue {
    waiting: VecDeque<Secret>,
    room: usize,
    is_congested: bool,
    has_failed: bool,
}

enum Read {
    Event(Secret),
    Overrun,
    Nothing,
}

impl Queue {
    fn new(room: usize) -> Self {
        Self { waiting: VecDeque::new(), room, is_congested: false, has_failed: false }
    }

    fn push(&mut self, event: Secret) {
        if !self.is_congested && self.waiting.len() < self.room {
            self.waiting.push_back(event);
        } else if !self.is_congested {
            (self.is_congested, self.has_failed) = (true, true);
        }
    }

    fn read(&mut self) -> Read {
        if std::mem::take(&mut self.has_failed) {
            return Read::Overrun;
        }
        let event = self.waiting.pop_front();
        self.is_congested &= !self.waiting.is_empty();
        event.map_or(Read::Nothing, Read::Event)
    }
}

/// A kernel, a listener's queue, and a mirror with a dump that takes its time.
struct World {
    kernel: Kernel,
    queue: Queue,
    mirror: Mirror,
    /// What a consumer of the changes has.
    associations: BTreeMap<AssociationId, Arc<Association>>,
    policies: BTreeMap<xfrm::PolicyId, Arc<Policy>>,
    /// The consumer knows that policies are missing.
    is_missing: bool,
    bound: usize,
    /// Associations first: how far a dump is.
    dump: Option<(bool, u64)>,
}

impl World {
    /// With room for so many events, and for `bound` policies in the mirror.
    fn new(room: usize, bound: usize) -> Self {
        Self {
            kernel: Kernel::new(),
            queue: Queue::new(room),
            mirror: Mirror::new(Bounds { policies: bound, ..Bounds::default() }),
            is_missing: false,
            bound,
            associations: BTreeMap::new(),
            policies: BTreeMap::new(),
            dump: None,
        }
    }

    /// 0, or the error number.
    fn ask(&mut self, message: &Message, flags: u16) -> i32 {
        let request = message.to_datagram(REQUEST | flags, 1, 0);
        let answer = self.kernel.ask(77, request.expose());
        let last = answer.datagrams().last().expect("an answer").to_vec();
        self.listen();
        i32::from_ne_bytes(last[16..20].try_into().unwrap())
    }

    fn listen(&mut self) {
        for (group, event) in self.kernel.take_events() {
            if GROUPS.contains(&group) {
                self.queue.push(event);
            }
        }
    }

    /// As a thread beside the kernel does it: one event, or one piece of a dump. Whether there was something to do.
    fn turn(&mut self, piece: usize, prefers_dump: bool) -> bool {
        if let Some((is_policies, after)) = self.dump
            && prefers_dump
        {
            let part = match is_policies {
                false => self.kernel.dump_states(after, piece),
                true => self.kernel.dump_policies(after, piece),
            };
            part.iter().for_each(|(_, message)| self.mirror.dumped(message));
            self.dump = match (part.last(), is_policies) {
                (Some((last, _)), _) => Some((is_policies, *last)),
                (None, false) => Some((true, 0)),
                (None, true) => {
                    self.mirror.end(false);
                    None
                }
            };
            self.consume();
            return true;
        }
        match self.queue.read() {
            Read::Event(event) => self.mirror.event(&read(event.expose())),
            Read::Overrun => {
                self.mirror.overrun();
                self.dump = None;
            }
            Read::Nothing if self.mirror.wants_dump() => {
                self.mirror.begin();
                self.dump = Some((false, 0));
            }
            Read::Nothing => return self.dump.is_some(),
        }
        self.consume();
        true
    }

    fn consume(&mut self) {
        for change in self.mirror.take_changes() {
            match change {
                Change::AssociationAdded(own) => {
                    assert!(self.associations.insert(own.id, own).is_none());
                }
                Change::AssociationReplaced(own) => {
                    assert!(self.associations.insert(own.id, own).is_some());
                }
                Change::AssociationRemoved(id) => assert!(self.associations.remove(&id).is_some()),
                Change::PolicyAdded(own) => assert!(self.policies.insert(own.id, own).is_none()),
                Change::PolicyReplaced(own) => assert!(self.policies.insert(own.id, own).is_some()),
                Change::PolicyRemoved(id) => assert!(self.policies.remove(&id).is_some()),
                Change::PoliciesMissing(is_so) => {
                    assert_ne!(self.is_missing, is_so);
                    self.is_missing = is_so;
                }
            }
        }
    }

    fn settle(&mut self) {
        while !self.mirror.is_in_step() || !self.queue.waiting.is_empty() || self.queue.has_failed {
            let prefers_dump = self.queue.waiting.is_empty() && !self.queue.has_failed;
            self.turn(3, prefers_dump);
        }
    }

    fn compare(&self, what: &str) {
        let states = self.kernel.states.iter().filter(|own| !own.is_larval);
        let expected: Vec<_> =
            states.map(|own| Association::read(&own.info, &own.attributes).unwrap()).collect();
        assert_eq!(self.mirror.associations().count(), expected.len(), "{what}");
        assert_eq!(self.associations.len(), expected.len(), "{what}");
        for own in &expected {
            let found = self.mirror.association(&own.id);
            assert!(found.is_some_and(|found| found.is_same(own)), "{what}: {own:?}\n{found:?}");
            assert!(self.associations[&own.id].is_same(own), "{what}: {own:?}");
        }
        let policies = self.kernel.policies.iter();
        let mut expected: Vec<_> =
            policies.map(|own| Policy::read(&own.info, &own.attributes).unwrap()).collect();
        expected.sort_by_key(|own| own.id);
        let found: Vec<_> = self.mirror.policies().map(|own| (**own).clone()).collect();
        assert_eq!(self.is_missing, expected.len() > self.bound, "{what}");
        if self.is_missing {
            assert_eq!(found.len(), self.bound, "{what}");
            expected.retain(|own| self.policies.contains_key(&own.id));
        }
        assert_eq!(found, expected, "{what}");
        let found: Vec<_> = self.policies.values().map(|own| (**own).clone()).collect();
        assert_eq!(found, expected, "{what}");
    }
}

fn read(datagram: &[u8]) -> Message {
    let half = |at: usize| u16::from_ne_bytes([datagram[at], datagram[at + 1]]);
    Message::decode(half(4), half(6), &datagram[16..]).expect("an event")
}

fn address(last: u8) -> Address {
    std::net::IpAddr::from([192, 0, 2, last]).into()
}

fn info(random: &mut Random) -> SaInfo {
    SaInfo {
        id: Id {
            daddr: address(1 + random.below(2) as u8),
            spi: Spi(0x100 + random.below(4) as u32),
            proto: if random.chance(6) { IPPROTO_AH } else { IPPROTO_ESP },
        },
        saddr: address(9),
        lft: LifetimeLimits {
            soft_add_expires_seconds: random.below(3) * 10,
            hard_add_expires_seconds: random.below(3) * 20,
            ..LifetimeLimits::default()
        },
        reqid: 1 + random.below(2) as u32,
        family: AF_INET,
        mode: random.below(2) as u8,
        ..SaInfo::default()
    }
}

fn marked(random: &mut Random, message: Message) -> Message {
    match random.below(4) {
        0 => message.with(Attribute::Mark(Mark { v: 1, m: 0xff })),
        _ => message,
    }
}

fn with_keys(random: &mut Random, message: Message) -> Message {
    let mut key = |len: usize| Secret::new(vec![1 + random.below(3) as u8; len]);
    let keys = key(20);
    let (cipher, auth) = (key(16), key(32));
    let mut message = match random.below(4) {
        0 => message
            .with(Attribute::CipherKey(Algorithm::new("cbc(aes)", cipher, None)))
            .with(Attribute::TruncatedAuthKey(Algorithm::new("hmac(sha256)", auth, Some(128)))),
        1 => message.with(Attribute::CipherKey(Algorithm::new("cbc(serpent)", cipher, None))),
        _ => message.with(Attribute::AeadKey(Algorithm::new("rfc4106(gcm(aes))", keys, Some(128)))),
    };
    if random.chance(3) {
        let port = Port(4500 + random.below(2) as u16);
        let encapsulation =
            Encapsulation { encap_type: 2, encap_sport: port, ..Default::default() };
        message = message.with(Attribute::Encapsulation(encapsulation));
    }
    if random.chance(3) {
        message = message.with(Attribute::InterfaceId(random.below(2) as u32));
    }
    if random.chance(3) {
        message = message.with(Attribute::OutputMark(random.below(2) as u32));
    }
    message
}

fn policy(random: &mut Random) -> (xfrm::structs::Selector, u8) {
    let sel = xfrm::structs::Selector {
        daddr: address(0),
        prefixlen_d: 24 + random.below(3) as u8,
        family: AF_INET,
        ..Default::default()
    };
    (sel, random.below(3) as u8)
}

fn kind(random: &mut Random, message: Message) -> Message {
    let value = random.below(2) as u8;
    message.with(Attribute::PolicyType(PolicyType { value, ..Default::default() }))
}

fn sa_id(random: &mut Random) -> SaId {
    let SaInfo { id, family, .. } = info(random);
    SaId { daddr: id.daddr, spi: id.spi, family, proto: id.proto }
}

/// A request, and more flags for it.
fn request(random: &mut Random) -> (Message, u16) {
    let message = match random.below(16) {
        0..=4 => {
            let message = Message::new(Kind::NewSa, Body::SaInfo(info(random)));
            let message = with_keys(random, message);
            marked(random, message)
        }
        5 | 6 => {
            let message = Message::new(Kind::UpdSa, Body::SaInfo(info(random)));
            let message = with_keys(random, message);
            marked(random, message)
        }
        7 => {
            let message = Message::new(Kind::DelSa, Body::SaId(sa_id(random)));
            marked(random, message)
        }
        8 => {
            let spi = SpiInfo { info: info(random), min: 0x100, max: 0x103 };
            Message::new(Kind::AllocSpi, Body::SpiInfo(spi))
        }
        9 => {
            let hard = random.below(2) as u8;
            let message =
                Message::new(Kind::Expire, Body::Expire(Expire { state: info(random), hard }));
            marked(random, message)
        }
        10 => match random.below(8) {
            0 => {
                let protos = [0, IPPROTO_AH, IPPROTO_ESP, IPSEC_PROTO_ANY];
                let proto = protos[random.below(4) as usize];
                Message::new(Kind::FlushSa, Body::Flush(Flush { proto }))
            }
            1 => kind(random, Message::new(Kind::FlushPolicy, Body::None)),
            _ => {
                let id = EventId { sa_id: sa_id(random), ..Default::default() };
                let used = LifetimeCurrent { bytes: random.below(99), ..Default::default() };
                let message = Message::new(Kind::NewAe, Body::EventId(id));
                return (message.with(Attribute::Lifetime(used)), 0x100);
            }
        },
        11 | 12 => {
            let (sel, dir) = policy(random);
            let priority = random.below(3) as u32;
            let info = PolicyInfo { sel, dir, priority, ..Default::default() };
            let which = if random.chance(3) { Kind::UpdPolicy } else { Kind::NewPolicy };
            let template = Template {
                id: Id { daddr: address(1), proto: IPPROTO_ESP, ..Default::default() },
                saddr: address(9),
                family: AF_INET,
                reqid: 1,
                mode: XFRM_MODE_TUNNEL,
                ..Default::default()
            };
            let message = Message::new(which, Body::PolicyInfo(info))
                .with(Attribute::Templates(vec![template]));
            kind(random, message)
        }
        13 => {
            let (sel, dir) = policy(random);
            kind(
                random,
                Message::new(Kind::DelPolicy, Body::PolicyId(PolicyId { sel, index: 0, dir })),
            )
        }
        14 => {
            let (sel, dir) = policy(random);
            let pol = PolicyInfo { sel, dir, ..Default::default() };
            let hard = random.below(2) as u8;
            let body = Body::PolicyExpire(PolicyExpire { pol, hard });
            kind(random, Message::new(Kind::PolExpire, body))
        }
        _ => {
            let (sel, dir) = policy(random);
            let step = Migration {
                old_daddr: address(1),
                old_saddr: address(9),
                new_daddr: address(1 + random.below(2) as u8),
                new_saddr: address(9),
                proto: IPPROTO_ESP,
                mode: random.below(2) as u8,
                reqid: random.below(2) as u32,
                old_family: AF_INET,
                new_family: AF_INET,
                ..Default::default()
            };
            let body = Body::PolicyId(PolicyId { sel, index: 0, dir });
            kind(random, Message::new(Kind::Migrate, body).with(Attribute::Migrate(vec![step])))
        }
    };
    (message, 0)
}

/// Numbers of overruns, of torn dumps, and of requests that changed something.
fn check(seed: u64) -> (u64, u64, u64) {
    let mut random = Random(seed);
    let room = 1 + random.below(12) as usize;
    let (busy, eager) = (1 + random.below(6), 1 + random.below(4));
    let bound = if random.chance(3) { 1 + random.below(4) as usize } else { 1 << 16 };
    let mut world = World::new(room, bound);
    let mut done = 0;
    for round in 0..4 {
        for _ in 0..60 {
            let (message, flags) = request(&mut random);
            done += u64::from(world.ask(&message, flags) == 0);
            if random.chance(12) {
                world.kernel.pass(random.below(15));
                world.listen();
            }
            for _ in 0..random.below(busy + 1) {
                let piece = 1 + random.below(4) as usize;
                let prefers_dump = random.chance(eager);
                world.turn(piece, prefers_dump);
            }
        }
        world.settle();
        world.compare(&format!("seed {seed}, round {round}"));
    }
    let stats = world.mirror.stats();
    (stats.overruns, stats.torn_dumps, done)
}

#[test]
fn it_has_what_the_kernel_has() {
    let (mut overruns, mut torn, mut done) = (0, 0, 0);
    for seed in 0..400 {
        let (a, b, c) = check(seed);
        (overruns, torn, done) = (overruns + a, torn + b, done + c);
    }
    assert!(overruns > 1_000 && torn > 100 && done > 20_000, "{overruns} {torn} {done}");
}

/// One that cannot be read may be any.
#[test]
fn a_policy_that_cannot_be_read_is_missing() {
    let mut mirror = Mirror::new(Bounds::default());
    let missing = |mirror: &mut Mirror| {
        let said = mirror.take_changes().into_iter().filter_map(|change| match change {
            Change::PoliciesMissing(is_so) => Some(is_so),
            _ => None,
        });
        said.collect::<Vec<_>>()
    };
    mirror.begin();
    mirror.unread(Kind::NewPolicy.number());
    mirror.end(false);
    assert_eq!((missing(&mut mirror), mirror.wants_dump()), (vec![true], false));
    // It may be the one that is removed.
    let info = PolicyInfo { dir: XFRM_POLICY_OUT, index: 9, ..PolicyInfo::default() };
    let id = Body::PolicyId(xfrm::structs::PolicyId::default());
    let gone = Message::new(Kind::DelPolicy, id).with(Attribute::Policy(info));
    mirror.event(&gone);
    assert!(mirror.wants_dump());
    mirror.begin();
    mirror.end(false);
    assert_eq!(missing(&mut mirror), [false]);
    // By an event; others do not matter.
    mirror.unread(Kind::NewSa.number());
    assert!(missing(&mut mirror).is_empty() && !mirror.wants_dump());
    mirror.unread(Kind::UpdPolicy.number());
    assert_eq!(missing(&mut mirror), [true]);
}

/// Seeds that no run had before; a failure names its own.
#[test]
fn the_same_with_fresh_seeds() {
    let fresh = fresh();
    (0..100).for_each(|n| {
        check(fresh.wrapping_add(n));
    });
}
