//! strongSwan's charon, as it is, steers a gateway: its kernel-netlink speaks to the recorder, the other end carries packets
//! itself.

use std::time::Duration;

use crypto::Secret;
use testkit::strongswan::{Charon, DataPath, Ends, Proof, Tunnel, require_strongswan, shim};
use testkit::{Scratch, wait_until};
use xfrm::{
    Algorithm, Association, Attribute, Counters, Keys, Kind, Mirror, Mode, PolicyDirection,
    counters, expire, group, mapping,
};

use crate::recorder::Recorder;

const LIMIT: Duration = Duration::from_secs(20);

struct Bed {
    recorder: Recorder,
    left: Charon,
    right: Charon,
    _ends: Ends,
    _scratch: Scratch,
}

fn bed(tunnel: &Tunnel) -> Option<Bed> {
    if !require_strongswan() {
        return None;
    }
    let scratch = Scratch::new();
    let shim = shim(scratch.path())?;
    let recorder = Recorder::start(scratch.path());
    let ends = Ends::new("xfrm");
    let socket = recorder.path.clone();
    let paths = [DataPath::Xfrm { shim, socket }, DataPath::Libipsec];
    let [left, right] = Charon::pair(&ends, paths, tunnel);
    Some(Bed { recorder, left, right, _ends: ends, _scratch: scratch })
}

/// Inbound and outbound, of the left end.
fn both(mirror: &Mirror) -> Option<[&Association; 2]> {
    let to = |last: &str| {
        let all = mirror.associations().filter(|own| own.id.destination.to_string() == last);
        let own: Vec<_> = all.collect();
        (own.len() == 1).then(|| &**own[0])
    };
    Some([to("192.0.2.1")?, to("192.0.2.2")?])
}

fn made_of(name: &str, key: &[u8], hmac: &[u8]) -> Keys {
    let key = Secret::new(key.to_vec());
    let attributes = match hmac {
        [] => vec![Attribute::AeadKey(Algorithm::new(name, key, Some(128)))],
        hmac => vec![
            Attribute::CipherKey(Algorithm::new(name, key, None)),
            Attribute::TruncatedAuthKey(Algorithm::new(
                "hmac(sha256)",
                Secret::new(hmac.to_vec()),
                Some(128),
            )),
        ],
    };
    Keys::from_attributes(&attributes).unwrap().unwrap()
}

fn establishes(proof: Proof, esp: &str, name: &str, suite: &str) {
    let Some(bed) = bed(&Tunnel { proof, esp: esp.to_owned(), ..Tunnel::default() }) else {
        return;
    };
    let mut mirror = bed.recorder.mirror();
    bed.left.initiate();
    bed.recorder.feed(&mut mirror);
    let [inbound, outbound] = both(&mirror).unwrap_or_else(|| panic!("{}", bed.left.log()));
    // The other end's log has the same keys: the left one has asked.
    let keys = &bed.right.keys()[0];
    for (own, [key, hmac], other) in
        [(outbound, &keys.initiator, &keys.spis[0]), (inbound, &keys.responder, &keys.spis[1])]
    {
        let found = own.keys.as_ref().unwrap();
        assert_eq!(found.suite().to_string(), suite);
        assert_eq!(**found, made_of(name, key, hmac));
        assert_eq!(own.id.spi, other.0);
        assert_eq!((own.mode, own.reqid), (Mode::Tunnel, 1));
        // kernel-libipsec takes ESP in UDP only.
        assert_eq!(own.udp.map(|udp| (udp.source_port, udp.destination_port)), Some((4500, 4500)));
    }
    let directions: Vec<_> = mirror.policies().map(|own| own.id.direction).collect();
    let all = [PolicyDirection::In, PolicyDirection::Out, PolicyDirection::Forward];
    assert_eq!(directions, all, "{:?}", mirror.policies().collect::<Vec<_>>());
    for own in mirror.policies() {
        assert_eq!((own.templates.len(), own.templates[0].reqid, own.is_block), (1, 1, false));
        let source = if own.id.direction == PolicyDirection::Out { "10.1.0.0" } else { "10.2.0.0" };
        assert_eq!(own.selector.source, Some((source.parse().unwrap(), 24)));
    }
    // What was carried shows in charon's list: it asks the kernel.
    let used = xfrm::structs::LifetimeCurrent { bytes: 8888, packets: 9, ..outbound.start.used };
    let carried = Counters { sent: 9, used, ..Counters::default() };
    assert_eq!(bed.recorder.ask(&counters(outbound, &carried)), 0);
    let listed = bed.left.swanctl(&["--list-sas"]);
    assert!(listed.contains("8888 bytes,     9 packets"), "{listed}");

    let mut left = bed.left;
    left.stop();
    bed.recorder.feed(&mut mirror);
    assert_eq!(mirror.associations().count() + mirror.policies().count(), 0, "{}", left.log());
}

#[test]
fn a_tunnel_by_a_pre_shared_key() {
    establishes(Proof::Psk, "aes128gcm16", "rfc4106(gcm(aes))", "AES-128-GCM-16");
}

#[test]
fn a_tunnel_by_certificates() {
    let suite = "AES-256-CBC with HMAC-SHA-256-128";
    establishes(Proof::Certificates, "aes256-sha256", "cbc(aes)", suite);
}

#[test]
fn a_soft_limit_makes_new_associations_and_a_packet_makes_the_first() {
    let child = "start_action = trap".to_owned();
    let Some(bed) = bed(&Tunnel { child, ..Tunnel::default() }) else { return };
    let mut mirror = bed.recorder.mirror();
    // The policy is there, and no association.
    let policy = mirror.policies().find(|own| own.id.direction == PolicyDirection::Out).cloned();
    let policy = policy.unwrap_or_else(|| panic!("{}", bed.left.log()));
    assert_eq!(mirror.associations().count(), 0);
    let ends = ("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap());
    assert_eq!(bed.recorder.ask(&xfrm::acquire(&policy, ends, 1, (8, 0)).unwrap()), 0);
    let established = wait_until(LIMIT, || {
        bed.recorder.feed(&mut mirror);
        // Before, it does not look for what expires.
        both(&mirror).is_some() && bed.left.log().contains("established with SPIs")
    });
    assert!(established, "{}", bed.left.log());

    let first = both(&mirror).unwrap().map(Association::clone);
    assert_eq!(bed.recorder.ask(&expire(&first[1], &Counters::default(), false)), 0);
    let renewed = wait_until(LIMIT, || {
        bed.recorder.feed(&mut mirror);
        let is_new = |[inbound, outbound]: [&Association; 2]| {
            inbound.id != first[0].id && outbound.id != first[1].id
        };
        both(&mirror).is_some_and(is_new)
    });
    assert!(renewed, "{:#?}\n{}", mirror.associations().collect::<Vec<_>>(), bed.left.log());
    assert_eq!(bed.right.keys().len(), 2);
    // Which types it uses.
    let asked = bed.recorder.asked();
    for kind in [Kind::AllocSpi, Kind::NewSa, Kind::UpdSa, Kind::DelSa, Kind::NewPolicy] {
        assert!(asked.contains_key(&kind.number()), "{kind:?}: {asked:?}");
    }
}

/// An announcement in the kernel's form, which charon cannot tell from the kernel's here: it has both associations follow the peer.
#[test]
fn an_announced_mapping_moves_the_peer() {
    const PORT: u16 = 4600;
    let Some(bed) = bed(&Tunnel::default()) else { return };
    let mut mirror = bed.recorder.mirror();
    bed.left.initiate();
    bed.recorder.feed(&mut mirror);
    let [inbound, outbound] = both(&mirror).unwrap_or_else(|| panic!("{}", bed.left.log()));
    let (inbound, ids) = (inbound.clone(), [inbound.id, outbound.id]);
    let peer = inbound.source;
    assert!(mapping(outbound, peer, PORT).is_some() && mapping(&inbound, peer, 4500).is_none());
    bed.recorder.announce(group::MAPPING, &mapping(&inbound, peer, PORT).unwrap());
    let moved = wait_until(LIMIT, || {
        bed.recorder.feed(&mut mirror);
        both(&mirror).is_some_and(|[inbound, outbound]| {
            let ports = [inbound.udp.unwrap().source_port, outbound.udp.unwrap().destination_port];
            [inbound.id, outbound.id] == ids && ports == [PORT; 2]
        })
    });
    assert!(moved, "{:#?}\n{}", mirror.associations().collect::<Vec<_>>(), bed.left.log());
    assert!(bed.left.log().contains("received a XFRM_MSG_MAPPING"));
}
