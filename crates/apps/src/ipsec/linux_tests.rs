//! What a daemon has the kernel do, as the reference kernel announces it, becomes the gateway's databases.

use std::net::IpAddr;

use crypto::{Secret, esp};
use ipsec::{Action, Database, Direction, Dont, Dscp, Expiry, Mode, Template, Tuple, Udp};
use xfrm::reference::Kernel;
use xfrm::structs::value::*;
use xfrm::structs::{
    Encapsulation, Id, LifetimeLimits, Migration, PolicyInfo, ReplayState, SaId, SaInfo, Selector,
};
use xfrm::{AF_INET, Algorithm, Attribute, Body, Bounds, Kind, Message, Mirror, Port, Spi, group};

use super::current::Wanted;
use super::linux::{Linux, doubts, parameters, policy};

const US: &str = "192.0.2.1";
const PEER: &str = "198.51.100.2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A kernel, a mirror of it, and what the gateway makes of that.
struct Bed {
    kernel: Kernel,
    mirror: Mirror,
    linux: Linux,
    database: Database,
}

impl Bed {
    fn new() -> Bed {
        let mut mirror = Mirror::new(Bounds::default());
        mirror.begin();
        mirror.end(false);
        let linux = Linux::new(None, vec![ip(US)], 64);
        Bed { kernel: Kernel::new(), mirror, linux, database: Database::new() }
    }

    fn ask(&mut self, message: Message) {
        let answer = self.kernel.ask(1, message.to_datagram(5, 1, 0).expose());
        let last = answer.datagrams().last().unwrap().to_vec();
        assert_eq!(last[16..20], [0; 4], "{message:?}");
        let mut has_migrated = false;
        for (from, event) in self.kernel.take_events() {
            has_migrated |= from == group::MIGRATE;
            let event = event.expose();
            let kind = u16::from_ne_bytes([event[4], event[5]]);
            if [group::SA, group::POLICY, group::EXPIRE, group::MIGRATE].contains(&from) {
                self.mirror.event(&Message::decode(kind, 0, &event[16..]).unwrap());
            }
        }
        if has_migrated {
            self.mirror.begin();
            let (states, policies) =
                (self.kernel.dump_states(0, usize::MAX), self.kernel.dump_policies(0, usize::MAX));
            states.iter().chain(&policies).for_each(|(_, own)| self.mirror.dumped(own));
            self.mirror.end(false);
        }
        if self.linux.take(self.mirror.take_changes(), &mut self.database, 0) {
            self.database.clear_policies();
            for own in self.linux.policies(2) {
                self.database.add_policy(own).unwrap();
            }
        }
    }
}

fn sa(from: &str, to: &str, spi: u32) -> SaInfo {
    SaInfo {
        id: Id { daddr: ip(to).into(), spi: Spi(spi), proto: IPPROTO_ESP },
        saddr: ip(from).into(),
        lft: LifetimeLimits {
            soft_byte_limit: XFRM_INF,
            hard_byte_limit: XFRM_INF,
            soft_packet_limit: 10,
            hard_packet_limit: 20,
            hard_add_expires_seconds: 60,
            ..LifetimeLimits::default()
        },
        reqid: 7,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        replay_window: 32,
        ..SaInfo::default()
    }
}

fn new(kind: Kind, info: SaInfo) -> Message {
    let key = Secret::new((1..=20).collect());
    let key = Algorithm::new("rfc4106(gcm(aes))", key, Some(128));
    Message::new(kind, Body::SaInfo(info)).with(Attribute::AeadKey(key))
}

fn gone(info: &SaInfo) -> Message {
    let SaInfo { id, family, .. } = info;
    let (daddr, spi, family, proto) = (id.daddr, id.spi, *family, id.proto);
    Message::new(Kind::DelSa, Body::SaId(SaId { daddr, spi, family, proto }))
}

fn selector(from: &str, to: &str) -> Selector {
    Selector {
        saddr: ip(from).into(),
        daddr: ip(to).into(),
        prefixlen_s: 16,
        prefixlen_d: 16,
        family: AF_INET,
        ..Selector::default()
    }
}

fn template(from: &str, to: &str) -> xfrm::structs::Template {
    xfrm::structs::Template {
        id: Id { daddr: ip(to).into(), spi: Spi(0), proto: IPPROTO_ESP },
        saddr: ip(from).into(),
        family: AF_INET,
        reqid: 7,
        mode: XFRM_MODE_TUNNEL,
        ..Default::default()
    }
}

fn protect(dir: u8, sel: Selector, template: xfrm::structs::Template) -> Message {
    let info = PolicyInfo { sel, dir, priority: 5, ..PolicyInfo::default() };
    Message::new(Kind::NewPolicy, Body::PolicyInfo(info)).with(Attribute::Templates(vec![template]))
}

fn tuple(from: &str, to: &str) -> Tuple {
    let ((family, src), (_, dst)) = (ipsec::words(ip(from)), ipsec::words(ip(to)));
    Tuple { family, protocol: 17, src, dst, ports: Some((7, 53)) }
}

#[test]
fn a_tunnel_of_a_daemon_carries_packets() {
    let mut bed = Bed::new();
    let encapsulation = Encapsulation {
        encap_type: UDP_ENCAP_ESPINUDP,
        encap_sport: Port(4500),
        encap_dport: Port(4501),
        ..Encapsulation::default()
    };
    bed.ask(new(Kind::NewSa, sa(PEER, US, 0x101)));
    bed.ask(new(Kind::NewSa, sa(US, PEER, 0x201)).with(Attribute::Encapsulation(encapsulation)));
    bed.ask(protect(XFRM_POLICY_OUT, selector("10.1.0.0", "10.2.0.0"), template(US, PEER)));
    bed.ask(protect(XFRM_POLICY_IN, selector("10.2.0.0", "10.1.0.0"), template(PEER, US)));
    bed.ask(protect(XFRM_POLICY_FWD, selector("10.2.0.0", "10.1.0.0"), template(PEER, US)));

    let inbound = bed.database.get(0x101, ip(US)).unwrap();
    let outbound = bed.database.get(0x201, ip(PEER)).unwrap();
    let (own, other) = (outbound.parameters(), inbound.parameters());
    assert_eq!((own.direction, other.direction), (Direction::Out, Direction::In));
    assert_eq!((own.mode, own.reqid, other.window), (Mode::Tunnel, 7, 32));
    assert_eq!(own.udp, Some(Udp { source: 4500, destination: 4501 }));
    assert_eq!((own.dscp, own.dont_fragment, own.ecn), (Dscp::Copy, Dont::Copy, true));
    let limits = own.limits;
    assert_eq!((limits.packets.soft, limits.packets.hard), (Some(10), Some(20)));
    // Time is the kernel's, and a limit that is none is none.
    assert_eq!((limits.bytes.hard, limits.seconds.hard), (None, None));

    // `in` and `fwd` are one.
    assert_eq!(bed.database.policies().len(), 2);
    let view = bed.database.view().unwrap();
    let there = tuple("10.1.0.9", "10.2.0.9");
    let tunnel = Some((ip(US), ip(PEER)));
    let expected = Template { reqid: 7, tunnel };
    assert_eq!(view.outgoing().find(&there), Some(Action::Protect(expected)));
    assert_eq!(view.outbound(&expected, &there).unwrap().parameters().spi, 0x201);
    assert_eq!(view.outgoing().find(&tuple("10.1.0.9", "10.3.0.9")), None);

    // A packet without an association is asked for.
    bed.ask(gone(&sa(US, PEER, 0x201)));
    assert!(bed.database.get(0x201, ip(PEER)).is_none());
    let wanted = |tuple| Wanted { tuple, template: expected, if_id: 0 };
    let (message, _) = bed.linux.wanted(&wanted(there)).unwrap();
    let Body::Acquire(acquire) = message.body else { panic!("{message:?}") };
    assert_eq!(acquire.sel.daddr.ip(AF_INET), Some(ip("10.2.0.9")));
    assert_eq!(acquire.id.daddr.ip(AF_INET), Some(ip(PEER)));
    assert!(bed.linux.wanted(&wanted(tuple("10.1.0.9", "10.3.0.9"))).is_none());
    // Without a follower this has nobody to tell, and nothing breaks.
    let expiry = Expiry {
        spi: 0x101,
        destination: ip(US),
        direction: Direction::In,
        reqid: 7,
        is_hard: true,
    };
    bed.linux.expired(&expiry);
}

/// Numbers of the gateway's own end.
fn next(bed: &Bed, to: &str) -> u64 {
    bed.database.get(0x201, ip(to)).unwrap().number()
}

#[test]
fn no_number_is_sent_twice() {
    let mut bed = Bed::new();
    bed.ask(new(Kind::NewSa, sa(US, PEER, 0x201)));
    assert_eq!(next(&bed, PEER), 1);
    let take = |bed: &Bed, to: &str, count: u64| {
        let own = bed.database.get(0x201, ip(to)).unwrap();
        let _ = own.sealer().unwrap().take(count);
    };
    take(&bed, PEER, 100);
    assert_eq!(next(&bed, PEER), 101);
    // A change of its settings.
    let encapsulation = Encapsulation { encap_type: 2, encap_sport: Port(9), ..Default::default() };
    let mut changed = sa(US, PEER, 0x201);
    changed.lft.hard_packet_limit = 99;
    bed.ask(new(Kind::UpdSa, changed).with(Attribute::Encapsulation(encapsulation)));
    assert_eq!(next(&bed, PEER), 101);
    assert_eq!(
        bed.database.get(0x201, ip(PEER)).unwrap().parameters().limits.packets.hard,
        Some(99)
    );
    // The peer has moved: a daemon removes the association and adds it to the new address, with numbers that the kernel had.
    take(&bed, PEER, 1000);
    bed.ask(gone(&sa(US, PEER, 0x201)));
    let moved = "203.0.113.5";
    let known = ReplayState { oseq: 40, ..ReplayState::default() };
    bed.ask(new(Kind::NewSa, sa(US, moved, 0x201)).with(Attribute::Replay(known)));
    assert_eq!(next(&bed, moved), 1101);
    // Another process had it.
    let mut other = Bed::new();
    other.ask(new(Kind::NewSa, sa(US, PEER, 0x201)).with(Attribute::Replay(known)));
    assert!(next(&other, PEER) > 1 << 24);
}

/// Policies of which some are missing let nothing pass.
#[test]
fn missing_policies_drop_packets() {
    let mut bed = Bed::new();
    bed.mirror = Mirror::new(Bounds { policies: 2, ..Bounds::default() });
    bed.mirror.begin();
    bed.mirror.end(false);
    let policy = |bed: &mut Bed, to: &str, priority, templates: Vec<_>| {
        let sel = selector("10.1.0.0", to);
        let info = PolicyInfo { sel, dir: XFRM_POLICY_OUT, priority, ..PolicyInfo::default() };
        let message = Message::new(Kind::NewPolicy, Body::PolicyInfo(info));
        bed.ask(match templates.is_empty() {
            true => message,
            false => message.with(Attribute::Templates(templates)),
        });
        info
    };
    let protected = vec![template(US, PEER)];
    policy(&mut bed, "10.2.0.0", 1, protected.clone());
    policy(&mut bed, "10.3.0.0", 2, Vec::new());
    let find = |bed: &mut Bed, to: &str| {
        bed.database.view().unwrap().outgoing().find(&tuple("10.1.0.9", to))
    };
    let all = ["10.2.0.9", "10.3.0.9", "10.9.0.9"];
    let found = all.map(|to| find(&mut bed, to));
    assert!(matches!(found, [Some(Action::Protect(_)), Some(Action::Bypass), None]), "{found:?}");
    let last = policy(&mut bed, "10.4.0.0", 3, protected);
    let found = all.map(|to| find(&mut bed, to));
    let drops = Some(Action::Discard);
    assert!(
        matches!(found[0], Some(Action::Protect(_))) && found[1..] == [drops, drops],
        "{found:?}"
    );
    let view = bed.database.view().unwrap();
    assert_eq!(view.incoming.find(&tuple("10.9.0.9", "10.1.0.9")), drops);
    // It is gone, and nothing is missing.
    let id = xfrm::structs::PolicyId { sel: last.sel, dir: last.dir, ..Default::default() };
    bed.ask(Message::new(Kind::DelPolicy, Body::PolicyId(id)));
    assert!(bed.mirror.wants_dump());
    bed.mirror.begin();
    for (_, message) in bed.kernel.dump_policies(0, usize::MAX) {
        bed.mirror.dumped(&message);
    }
    bed.mirror.end(false);
    bed.ask(new(Kind::NewSa, sa(US, PEER, 0x201)));
    assert_eq!(find(&mut bed, "10.3.0.9"), Some(Action::Bypass));
    assert_eq!(find(&mut bed, "10.9.0.9"), None);
}

#[test]
fn no_number_is_accepted_twice() {
    let mut bed = Bed::new();
    let known = ReplayState { seq: 40, ..ReplayState::default() };
    bed.ask(new(Kind::NewSa, sa(PEER, US, 0x101)).with(Attribute::Replay(known)));
    let own = bed.database.get(0x101, ip(US)).unwrap();
    let accept = |number| own.opener().unwrap().accept(number);
    assert!(matches!(accept(40), Err(esp::OpenError::Replay(_))));
    assert!(matches!(accept(9), Err(esp::OpenError::Replay(_))));
    assert_eq!(accept(41), Ok(()));
}

/// The daemon may be faster than a reload of the gateway.
#[test]
fn associations_wait_for_the_address_that_they_need() {
    const ALSO_US: &str = "192.0.2.77";
    let mut bed = Bed::new();
    bed.ask(new(Kind::NewSa, sa(ALSO_US, PEER, 0x1001)));
    bed.ask(new(Kind::NewSa, sa(PEER, ALSO_US, 0x2001)));
    bed.ask(new(Kind::NewSa, sa(PEER, ALSO_US, 0x3001)));
    bed.ask(gone(&sa(PEER, ALSO_US, 0x3001)));
    assert!(bed.database.associations().is_empty());
    bed.linux.set_local(vec![ip(US), ip(ALSO_US)], &mut bed.database, 0);
    let direction = |bed: &Bed, spi: u32, to: &str| {
        bed.database.get(spi, ip(to)).map(|own| own.parameters().direction)
    };
    assert_eq!(direction(&bed, 0x1001, PEER), Some(Direction::Out));
    assert_eq!(direction(&bed, 0x2001, ALSO_US), Some(Direction::In));
    assert_eq!(bed.database.associations().len(), 2, "the third one is gone");
}

#[test]
fn what_cannot_be_done_drops_packets() {
    let mut bed = Bed::new();
    let key = |len: usize| Secret::new(vec![1; len]);
    let old = Message::new(Kind::NewSa, Body::SaInfo(sa(US, PEER, 0x201)))
        .with(Attribute::CipherKey(Algorithm::new("cbc(des3_ede)", key(24), None)))
        .with(Attribute::AuthKey(Algorithm::new("hmac(sha1)", key(20), None)));
    bed.ask(old);
    bed.ask(new(Kind::NewSa, sa("203.0.113.1", "203.0.113.2", 0x301)));
    bed.ask(new(Kind::NewSa, SaInfo { reqid: 0, ..sa(PEER, US, 0x302) }));
    assert!(bed.database.associations().is_empty());
    bed.ask(protect(XFRM_POLICY_OUT, selector("10.1.0.0", "10.2.0.0"), template(US, PEER)));
    let view = bed.database.view().unwrap();
    let there = tuple("10.1.0.9", "10.2.0.9");
    let Some(Action::Protect(template)) = view.outgoing().find(&there) else { panic!() };
    assert!(view.outbound(&template, &there).is_none());

    // Policies that ask for more than ESP once.
    let of = |change: &dyn Fn(&mut xfrm::structs::Template), twice: bool| {
        let mut own = self::template(US, PEER);
        change(&mut own);
        let sel = selector("10.1.0.0", "10.2.0.0");
        let info = PolicyInfo { sel, dir: XFRM_POLICY_OUT, ..PolicyInfo::default() };
        let templates = vec![own; if twice { 2 } else { 1 }];
        let own = xfrm::Policy::read(&info, &[Attribute::Templates(templates)]).unwrap();
        policy(&own).0.unwrap().action
    };
    assert!(matches!(of(&|_| {}, false), Action::Protect(_)));
    assert_eq!(of(&|_| {}, true), Action::Discard);
    assert_eq!(of(&|own| own.id.proto = IPPROTO_AH, false), Action::Discard);
    assert_eq!(of(&|own| own.mode = XFRM_MODE_BEET, false), Action::Discard);
}

#[test]
fn selectors_are_those_of_the_kernel() {
    let of = |change: &dyn Fn(&mut Selector), action: u8| {
        let mut sel = selector("10.1.0.0", "10.2.0.0");
        change(&mut sel);
        let info = PolicyInfo { sel, action, dir: XFRM_POLICY_OUT, ..PolicyInfo::default() };
        policy(&xfrm::Policy::read(&info, &[]).unwrap())
    };
    let (own, doubts) = of(&|_| {}, XFRM_POLICY_ALLOW);
    let own = own.unwrap();
    assert!(doubts.is_empty() && own.action == Action::Bypass);
    assert_eq!(own.selector.to_string(), "10.1.0.0/16 > 10.2.0.0/16");
    let ports = |value: u16, mask: u16, action| {
        of(&|own| (own.proto, own.dport, own.dport_mask) = (6, Port(value), Port(mask)), action)
    };
    let text = |(own, _): (Option<ipsec::Policy>, Vec<String>)| own.unwrap().selector.to_string();
    assert!(text(ports(80, 0xffff, 0)).contains("10.2.0.0/16 port 80 "));
    assert!(text(ports(0x1000, 0xf000, 0)).contains("port 4096-8191"));
    // No range: what passes is not widened, what is dropped is.
    assert!(ports(1, 1, XFRM_POLICY_ALLOW).0.is_none());
    let (wide, doubts) = ports(1, 1, XFRM_POLICY_BLOCK);
    assert_eq!((wide.unwrap().action, doubts.len()), (Action::Discard, 1));
    // Nor is what passes on one interface.
    assert!(of(&|own| own.ifindex = 3, XFRM_POLICY_ALLOW).0.is_none());
    assert!(of(&|own| own.ifindex = 3, XFRM_POLICY_BLOCK).0.is_some());
    // All addresses of one family are not those of the other one.
    let (all, _) = of(&|own| (own.prefixlen_d, own.prefixlen_s) = (0, 0), XFRM_POLICY_BLOCK);
    assert_eq!(all.unwrap().selector.to_string(), "0.0.0.0/0 > 0.0.0.0/0");
}

/// The ends of a tunnel move (RFC 4555): associations and policies go with them, and no number comes twice.
#[test]
fn associations_and_policies_migrate() {
    const AWAY: &str = "203.0.113.7";
    let mut bed = Bed::new();
    let sel = selector("10.1.0.0", "10.2.0.0");
    bed.ask(new(Kind::NewSa, sa(PEER, US, 0x101)));
    bed.ask(new(Kind::NewSa, sa(US, PEER, 0x201)));
    bed.ask(protect(XFRM_POLICY_OUT, sel, template(US, PEER)));
    let before = bed.database.get(0x201, ip(PEER)).unwrap().clone();
    let taken = before.sealer().unwrap().take(40).count();
    bed.database.get(0x101, ip(US)).unwrap().opener().unwrap().accept(9).unwrap();

    let step = |from: [&str; 2], to: [&str; 2]| Migration {
        old_saddr: ip(from[0]).into(),
        old_daddr: ip(from[1]).into(),
        new_saddr: ip(to[0]).into(),
        new_daddr: ip(to[1]).into(),
        proto: IPPROTO_ESP,
        mode: XFRM_MODE_TUNNEL,
        reqid: 7,
        old_family: AF_INET,
        new_family: AF_INET,
        ..Migration::default()
    };
    let steps = vec![step([US, PEER], [US, AWAY]), step([PEER, US], [AWAY, US])];
    let id = xfrm::structs::PolicyId { sel, index: 0, dir: XFRM_POLICY_OUT };
    let body = Body::PolicyId(id);
    bed.ask(Message::new(Kind::Migrate, body).with(Attribute::Migrate(steps)));

    assert!(bed.database.get(0x201, ip(PEER)).is_none());
    let out = bed.database.get(0x201, ip(AWAY)).unwrap();
    assert_eq!(out.sealer().unwrap().sequence().next(), taken as u64 + 1);
    let back = bed.database.get(0x101, ip(US)).unwrap();
    assert_eq!(back.parameters().source, ip(AWAY));
    assert!(back.opener().unwrap().accept(9).is_err(), "accepted before");
    let view = bed.database.view().unwrap();
    let expected = Template { reqid: 7, tunnel: Some((ip(US), ip(AWAY))) };
    let there = tuple("10.1.0.9", "10.2.0.9");
    assert_eq!(view.outgoing().find(&there), Some(Action::Protect(expected)));
    assert_eq!(view.outbound(&expected, &there).unwrap().peer().0, ip(AWAY));
}

#[test]
fn marks_and_interface_numbers_are_not_ignored() {
    let read = |attribute| {
        let message = new(Kind::NewSa, sa(US, PEER, 0x201)).with(attribute);
        let Body::SaInfo(info) = message.body else { panic!() };
        let own = xfrm::Association::read(&info, &message.attributes).unwrap();
        parameters(&own, &[ip(US)], 64)
    };
    let mark = |v, m| Attribute::Mark(xfrm::structs::Mark { v, m });
    assert!(read(mark(0x2a, 0xff)).unwrap_err().contains("mark 0x2a/0xff"));
    // The kernel finds these for packets without a mark; those with bits outside of the mask it finds for none.
    assert!(read(mark(0, 0xff)).is_ok() && read(mark(0, 0)).is_ok());
    assert!(read(mark(0x100, 0xff)).is_err());
    let mark = mark(1, 1);
    assert_eq!(read(Attribute::InterfaceId(9)).unwrap().if_id, 9);
    let sel = selector("10.1.0.0", "10.2.0.0");
    let info = PolicyInfo { sel, dir: XFRM_POLICY_OUT, ..PolicyInfo::default() };
    let (none, doubts) = policy(&xfrm::Policy::read(&info, &[mark]).unwrap());
    assert!(none.is_none() && doubts.len() == 1 && doubts[0].contains("mark 0x1/0x1"));
    let zero = Attribute::Mark(xfrm::structs::Mark { v: 0, m: 0xff });
    let (some, doubts) = policy(&xfrm::Policy::read(&info, &[zero]).unwrap());
    assert!(some.is_some() && doubts.is_empty());
    let (some, doubts) = policy(&xfrm::Policy::read(&info, &[Attribute::InterfaceId(9)]).unwrap());
    assert!(some.unwrap().if_id == 9 && doubts.is_empty());
}

/// What is sent gets no mark here, which is said; a mark of zero bits is none.
#[test]
fn marks_that_packets_would_get_are_named() {
    let read = |attributes: &[Attribute]| {
        let Body::SaInfo(info) = new(Kind::NewSa, sa(US, PEER, 0x201)).body else { panic!() };
        let mut all = new(Kind::NewSa, info).attributes;
        all.extend_from_slice(attributes);
        let own = xfrm::Association::read(&info, &all).unwrap();
        assert!(parameters(&own, &[ip(US)], 64).is_ok());
        doubts(&own)
    };
    assert!(read(&[]).is_empty());
    let doubts = read(&[Attribute::OutputMark(0x2a)]);
    assert!(doubts.len() == 1 && doubts[0].contains("mark 0x2a/0xffffffff"), "{doubts:?}");
    assert!(read(&[Attribute::OutputMark(0x2a), Attribute::OutputMarkMask(0)]).is_empty());
}

/// Associations that the kernel tells apart by marks are not taken for one another, and what is not used is not removed with
/// another one's end.
#[test]
fn an_association_with_a_mark_is_not_the_one_without() {
    let mut bed = Bed::new();
    bed.ask(new(Kind::NewSa, sa(PEER, US, 0x101)));
    let marked = Attribute::Mark(xfrm::structs::Mark { v: 7, m: 0xff });
    bed.ask(new(Kind::NewSa, sa(PEER, US, 0x102)).with(marked.clone()));
    assert!(bed.database.get(0x102, ip(US)).is_none());
    bed.ask(gone(&sa(PEER, US, 0x102)).with(marked));
    assert!(bed.database.get(0x101, ip(US)).is_some());
}

/// A peer that an address translator moves is announced as the kernel does, until the association says where it is.
#[test]
fn a_peer_that_has_moved_is_announced() {
    let mut bed = Bed::new();
    let udp = |port| {
        Attribute::Encapsulation(Encapsulation {
            encap_type: UDP_ENCAP_ESPINUDP,
            encap_sport: Port(port),
            encap_dport: Port(4500),
            ..Encapsulation::default()
        })
    };
    bed.ask(new(Kind::NewSa, sa(PEER, US, 0x101)).with(udp(4500)));
    bed.ask(new(Kind::NewSa, sa(PEER, US, 0x102)));
    let own = bed.database.get(0x101, ip(US)).unwrap().clone();
    let moved = |bed: &Bed| bed.linux.moved(0x101, ip(US), &bed.database);
    assert!(moved(&bed).is_none(), "nothing was heard");
    own.heard_from(1, ipsec::words(ip(PEER)).1, 4500).unwrap();
    assert!(moved(&bed).is_none(), "it is where the association says");
    own.heard_from(2, ipsec::words(ip("203.0.113.7")).1, 1044).unwrap();
    let message = moved(&bed).unwrap();
    let Body::Mapping(mapping) = &message.body else { panic!("{message:?}") };
    let host = |address: xfrm::Address| address.ip(AF_INET).unwrap();
    assert_eq!((mapping.id.spi.0, host(mapping.id.daddr)), (0x101, ip(US)));
    assert_eq!((host(mapping.old_saddr), mapping.old_sport), (ip(PEER), Port(4500)));
    assert_eq!((host(mapping.new_saddr), mapping.new_sport), (ip("203.0.113.7"), Port(1044)));
    assert_eq!((mapping.reqid, message.kind.group()), (7, Some(group::MAPPING)));
    assert!(bed.linux.moved(0x102, ip(US), &bed.database).is_none(), "not in UDP");
    // The daemon says so: there is nothing to announce any more.
    bed.ask(gone(&sa(PEER, US, 0x101)));
    bed.ask(new(Kind::NewSa, sa("203.0.113.7", US, 0x101)).with(udp(1044)));
    bed.database.get(0x101, ip(US)).unwrap().heard_from(3, ipsec::words(ip("203.0.113.7")).1, 1044);
    assert!(moved(&bed).is_none());
}
