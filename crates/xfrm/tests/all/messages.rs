//! What others wrote is read, and written again byte for byte.

use std::net::Ipv4Addr;

use crypto::Secret;
use xfrm::structs::value::*;
use xfrm::structs::{Encapsulation, Id, SaInfo};
use xfrm::{
    AF_INET, Algorithm, Association, Attribute, Body, DecodeError, Kind, Message, Port, Spi, group,
    mapping,
};

use crate::recorded::{self, From};

/// `ip` does not pad the last structure.
#[test]
fn recorded_messages_are_written_as_they_were() {
    let mut kinds = Vec::new();
    for own in recorded::all().into_iter().filter(|own| !own.is_status()) {
        let message = own.decode();
        let mut expected = own.payload;
        if own.from == From::Ip {
            expected.resize(expected.len().next_multiple_of(4), 0);
        }
        assert_eq!(message.encode().expose(), expected, "{} {:?}", own.command, own.from);
        kinds.push(message.kind.number());
    }
    kinds.sort();
    kinds.dedup();
    // What this kernel neither sends nor takes: Expire, NewAe, GetAe, Report, Mapping.
    assert_eq!(kinds.len(), Kind::ALL.len() - 5, "{kinds:x?}");
}

fn find(command: &str, from: From) -> Message {
    let mut all = recorded::all().into_iter();
    let found = all.find(|own| own.from == from && own.command.contains(command));
    found.unwrap_or_else(|| panic!("no {command}")).decode()
}

#[test]
fn fields_are_those_of_the_command() {
    let message = find("spi 0x10b", From::Ip);
    let Body::SaInfo(sa) = message.body else { panic!("{message:?}") };
    assert_eq!((sa.id.spi, sa.id.proto, sa.mode), (Spi(0x10b), IPPROTO_ESP, XFRM_MODE_TUNNEL));
    assert_eq!(sa.saddr.ip(AF_INET), Some([192, 0, 2, 1].into()));
    assert_eq!(sa.id.daddr.ip(AF_INET), Some([198, 51, 100, 2].into()));
    let sel = sa.sel;
    assert_eq!((sel.sport.0, sel.sport_mask.0, sel.dport.0, sel.proto), (80, 0xffff, 443, 6));
    assert_eq!((sel.prefixlen_s, sel.prefixlen_d, sel.family), (16, 16, AF_INET));
    let lft = sa.lft;
    assert_eq!((lft.soft_add_expires_seconds, lft.hard_add_expires_seconds), (100, 200));
    assert_eq!((lft.soft_byte_limit, lft.hard_byte_limit), (1000, 2000));
    assert_eq!((lft.soft_packet_limit, lft.hard_packet_limit), (10, 20));
    assert_eq!((lft.soft_use_expires_seconds, lft.hard_use_expires_seconds), (5, 6));
    let Some(Attribute::Replay(replay)) =
        message.attributes.iter().find(|a| matches!(a, Attribute::Replay(_)))
    else {
        panic!("{message:?}");
    };
    assert_eq!((replay.seq, replay.oseq), (9, 8));

    let message = find("spi 0x10a", From::Ip);
    for expected in [
        Attribute::InterfaceId(0x2a),
        Attribute::OutputMark(5),
        Attribute::OutputMarkMask(0xff),
        Attribute::Mark(xfrm::structs::Mark { v: 3, m: 0xf }),
        Attribute::ExtraFlags(XFRM_SA_XFLAG_DONT_ENCAP_DSCP | XFRM_SA_XFLAG_OSEQ_MAY_WRAP),
    ] {
        assert!(message.attributes.contains(&expected), "{expected:?} in {message:?}");
    }

    let message = find("spi 0x10c", From::Ip);
    let replay = message.attributes.iter().find_map(|attribute| match attribute {
        Attribute::ReplayEsn(replay) => Some(replay),
        _ => None,
    });
    let replay = replay.expect("extended numbers");
    assert_eq!((replay.seq, replay.oseq, replay.seq_hi, replay.oseq_hi), (9, 8, 1, 2));
    // `ip` leaves the bitmap out.
    assert_eq!((replay.replay_window, replay.words, replay.bitmap.len()), (64, 2, 0));

    let message = find("spi 0x108", From::Ip);
    let encapsulation = message.attributes.iter().find_map(|attribute| match attribute {
        Attribute::Encapsulation(own) => Some(own),
        _ => None,
    });
    let own = encapsulation.expect("UDP");
    assert_eq!((own.encap_type, own.encap_sport.0, own.encap_dport.0), (2, 4500, 4501));
    assert_eq!(own.encap_oa.ip(AF_INET), Some([203, 0, 113, 9].into()));
}

#[test]
fn the_kernels_policies_and_acquisitions_are_read() {
    let message = find("policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out", From::KernelEvent);
    let Body::PolicyInfo(policy) = message.body else { panic!("{message:?}") };
    assert_eq!((policy.dir, policy.action, policy.priority), (XFRM_POLICY_OUT, 0, 100));
    assert_eq!(policy.index & 7, u32::from(XFRM_POLICY_OUT));
    let Some(Attribute::Templates(templates)) = message.attributes.first() else {
        panic!("{message:?}")
    };
    assert_eq!((templates.len(), templates[0].reqid, templates[0].mode), (1, 7, XFRM_MODE_TUNNEL));

    let message = find("acquire", From::KernelEvent);
    let Body::Acquire(acquire) = message.body else { panic!("{message:?}") };
    assert_eq!(acquire.sel.daddr.ip(AF_INET), Some([10, 2, 0, 9].into()));

    let message = find("migrate", From::KernelEvent);
    assert_eq!(message.kind, Kind::NewPolicy);
    let migrate = recorded::all().into_iter().rfind(|own| own.kind == 0x21).unwrap().decode();
    let moves: Vec<_> = migrate
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            Attribute::Migrate(moves) => Some(moves[0]),
            _ => None,
        })
        .collect();
    assert_eq!(moves.len(), 1);
    assert_eq!(moves[0].new_daddr.ip(AF_INET), Some([198, 51, 100, 3].into()));

    let hard: Vec<u8> = recorded::all()
        .iter()
        .filter(|own| own.kind == 0x1b && own.from == From::KernelEvent)
        .map(|own| match own.decode().body {
            Body::PolicyExpire(expire) => expire.hard,
            body => panic!("{body:?}"),
        })
        .collect();
    assert_eq!(hard, [0, 1]);

    let index = find("allocspi src 192", From::KernelAnswer);
    let Body::SaInfo(sa) = index.body else { panic!("{index:?}") };
    assert!((0x300..=0x310).contains(&sa.id.spi.0), "{}", sa.id.spi);
}

#[test]
fn errors_name_message_and_attribute() {
    let short = Message::decode(0x10, 0, &[0; 100]).unwrap_err();
    assert_eq!(short.to_string(), "message NewSa has 100 bytes, its structure 224");
    assert_eq!(Message::decode(0x29, 0, &[]), Err(DecodeError::Kind(0x29)));
    assert_eq!(Message::decode(2, 0, &[]), Err(DecodeError::Kind(2)));
    let mut payload = vec![0; 24];
    payload.extend([8, 0, 21, 0, 1, 0, 0, 0]);
    let mark = Message::decode(0x11, 0, &payload).unwrap_err();
    assert_eq!(mark.to_string(), "message DelSa: attribute 21 cannot have 4 bytes");
    payload.truncate(27);
    let cut = Message::decode(0x11, 0, &payload).unwrap_err();
    assert_eq!(cut.to_string(), "message DelSa: the attributes (3 bytes) end in the middle of one");
}

#[test]
fn attributes_that_nobody_knows_are_kept_and_not_shown() {
    let mut payload = vec![0; 24];
    payload.extend([9, 0, 0xff, 0x80, 1, 2, 3, 4, 5, 0, 0, 0]);
    let message = Message::decode(0x11, 0, &payload).unwrap();
    assert_eq!(message.encode().expose(), payload);
    assert!(format!("{message:?}").contains("Other(33023, Secret(5 bytes))"), "{message:?}");
}

#[test]
fn debug_shows_no_key() {
    for own in recorded::all().into_iter().filter(|own| own.kind == 0x10) {
        let text = format!("{:?}", own.decode());
        // Keys are 1, 2, 3, …
        assert!(!text.contains("1, 2, 3") && !text.contains("010203"), "{text}");
    }
}

#[test]
fn headers_are_written() {
    let message = Message::new(Kind::FlushSa, Body::Flush(Default::default()));
    let datagram = message.to_datagram(5, 7, 9);
    assert_eq!(datagram.expose(), [20, 0, 0, 0, 0x1c, 0, 5, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
}

/// `struct xfrm_user_mapping`, which the kernel sends of its own accord only, byte by byte: a peer behind a translator gets another
/// port.
#[test]
fn a_mapping_has_the_kernels_bytes() {
    let encapsulation = Encapsulation {
        encap_type: UDP_ENCAP_ESPINUDP,
        encap_sport: Port(4500),
        encap_dport: Port(4500),
        ..Encapsulation::default()
    };
    let (from, to) = (Ipv4Addr::new(198, 51, 100, 2), Ipv4Addr::new(192, 0, 2, 1));
    let own = |address: Ipv4Addr| std::net::IpAddr::from(address).into();
    let info = SaInfo {
        id: Id { daddr: own(to), spi: Spi(0xc001_0203), proto: IPPROTO_ESP },
        saddr: own(from),
        reqid: 7,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        ..SaInfo::default()
    };
    let key = Algorithm::new("rfc4106(gcm(aes))", Secret::new(vec![9; 20]), Some(128));
    let attributes = [Attribute::AeadKey(key), Attribute::Encapsulation(encapsulation)];
    let own = Association::read(&info, &attributes).unwrap();
    assert!(mapping(&own, from.into(), 4500).is_none(), "it is there already");
    let message = mapping(&own, [203, 0, 113, 9].into(), 1044).unwrap();
    assert_eq!((message.kind.number(), message.kind.group()), (0x26, Some(group::MAPPING)));
    let v4 = |address: [u8; 4]| [&address[..], &[0; 12]].concat();
    let expected = [
        &v4(to.octets())[..],   // id.daddr
        &[0xc0, 1, 2, 3],       // id.spi
        &2u16.to_ne_bytes(),    // id.family
        &[50, 0],               // id.proto, padding
        &7u32.to_ne_bytes(),    // reqid
        &v4(from.octets()),     // old_saddr
        &v4([203, 0, 113, 9]),  // new_saddr
        &4500u16.to_be_bytes(), // old_sport
        &1044u16.to_be_bytes(), // new_sport
    ]
    .concat();
    assert_eq!(message.encode().expose(), expected);
    assert_eq!(Message::decode(0x26, 0, &expected).unwrap(), message);
}
