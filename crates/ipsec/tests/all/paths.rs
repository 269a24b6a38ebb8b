//! Path MTUs by ICMP errors, beside what errors that are written field by field should do.

use std::net::IpAddr;

use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
use ipsec::path::{self, AGE_MS, Learned, NUMBERS_BACK, too_big};
use ipsec::{Association, Database, Direction, Mode, Parameters, Udp, words};
use packet::IpProtocol;
use packet::checksum::{internet_checksum, pseudo_header};
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn key(byte: u8) -> Key {
    let cipher = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
    let suite = Suite::new(cipher, Authentication::None).unwrap();
    Key::new(suite, &Secret::new(vec![byte; 20]), &Secret::none()).unwrap()
}

fn ends(is_v6: bool) -> (IpAddr, IpAddr) {
    match is_v6 {
        false => ([192, 0, 2, 1].into(), [198, 51, 100, 1].into()),
        true => ("2001:db8::1".parse().unwrap(), "2001:db8:9::1".parse().unwrap()),
    }
}

/// An error, field by field.
#[derive(Debug, Clone)]
struct Error {
    is_v6: bool,
    /// Ports of UDP around ESP.
    ports: Option<(u16, u16)>,
    spi: u32,
    number: u32,
    /// Of the quoted packet.
    len: u16,
    mtu: u32,
    /// Bytes of it that are quoted behind its IP header.
    quoted: usize,
}

/// A packet of a family.
fn ip((from, to): (IpAddr, IpAddr), protocol: IpProtocol, payload: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; 40];
    match (from, to) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            out.truncate(20);
            let header = Ipv4Header { dont_fragment: true, ..Ipv4Header::new(src, dst, protocol) };
            header.emit(len, &mut out).unwrap();
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Ipv6Header::new(src, dst, protocol).emit(len, &mut out).unwrap();
        }
        _ => unreachable!(),
    }
    out.extend_from_slice(payload);
    out
}

impl Error {
    fn bytes(&self) -> Vec<u8> {
        let mut inner = Vec::new();
        if let Some((from, to)) = self.ports {
            let len = self.len - if self.is_v6 { 40 } else { 20 };
            [from, to, len, 0].iter().for_each(|own| inner.extend(own.to_be_bytes()));
        }
        inner.extend(self.spi.to_be_bytes());
        inner.extend(self.number.to_be_bytes());
        inner.resize(600, 0x5a);
        inner.truncate(self.quoted);
        let protocol = if self.ports.is_some() { IpProtocol::UDP } else { IpProtocol::ESP };
        let header = if self.is_v6 { 40 } else { 20 };
        let quoted = ip(ends(self.is_v6), protocol, &inner, usize::from(self.len) - header);
        let mut message = if self.is_v6 { vec![2, 0, 0, 0] } else { vec![3, 4, 0, 0] };
        message.extend(self.mtu.to_be_bytes());
        message.extend(quoted);
        let (own, _) = ends(self.is_v6);
        let router: IpAddr = match self.is_v6 {
            false => [203, 0, 113, 7].into(),
            true => "2001:db8:7::7".parse().unwrap(),
        };
        let protocol = if self.is_v6 { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
        let pseudo = match self.is_v6 {
            false => 0,
            true => {
                let len = message.len() as u32;
                pseudo_header(words(router).1, words(own).1, protocol, len)
            }
        };
        let sum = pseudo + u32::from(!internet_checksum(&message));
        let sum = packet::checksum::finish(sum);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let len = message.len();
        ip((router, own), protocol, &message, len)
    }

    fn told(&self, own: &Association, now_ns: u64) -> Option<Learned> {
        let bytes = self.bytes();
        let d = packet::decode::decode_ip(&bytes, bytes.len());
        assert_eq!(d.anomaly, packet::Anomaly::None);
        Some(too_big(&bytes, &d)?.learn(own, now_ns))
    }
}

fn association(is_v6: bool, udp: Option<Udp>, mode: Mode, first_number: u64) -> Association {
    let own = Parameters::new(Direction::Out, 0x1001, ends(is_v6), 1);
    let own = Parameters { udp, mode, first_number, is_extended: true, ..own };
    Association::new(own, key(7), 0).unwrap()
}

fn errors() -> impl Strategy<Value = (Error, u64, u64, bool)> {
    let first = prop_oneof![Just(1u64), Just(u64::from(u32::MAX) - 40), 1..1u64 << 40];
    let sent = prop_oneof![0..4u64, 0..3 * NUMBERS_BACK];
    let back = prop_oneof![0..4u64, 0..2 * NUMBERS_BACK];
    let mtu = prop_oneof![Just(0u32), Just(1280), 0..2000u32, any::<u32>()];
    let len = prop_oneof![Just(1500u16), 100..9000u16];
    let spi = prop_oneof![9 => Just(0x1001u32), 1 => any::<u32>()];
    let quoted = prop_oneof![Just(8usize), Just(16), 0..64usize];
    let kinds = (any::<bool>(), any::<bool>(), any::<bool>());
    (kinds, first, sent, back, mtu, len, spi, quoted).prop_map(
        |((is_v6, is_udp, is_right), first, sent, back, mtu, len, spi, quoted)| {
            let ports = is_udp.then_some((4500, 4500));
            let number = (first + sent).wrapping_sub(1 + back) as u32;
            let mtu = if is_v6 { mtu } else { mtu & 0xffff };
            let error = Error { is_v6, ports, spi, number, len, mtu, quoted };
            (error, first, sent, is_right || !is_udp)
        },
    )
}

proptest! {
    /// Numbers that were sent, as a list; what the MTU is, by its rules.
    #[test]
    fn errors_are_believed_if_they_are_plausible((error, first, sent, udp_is_right) in errors()) {
        let port = if udp_is_right { 4500 } else { 4501 };
        let udp = error.ports.map(|_| Udp { source: 4500, destination: port });
        let own = association(error.is_v6, udp, Mode::Tunnel, first);
        own.sealer().unwrap().take(sent);
        let needed = if error.ports.is_some() { 16 } else { 8 };
        let learned = error.told(&own, SECOND);
        if error.quoted < needed || error.spi == 0 {
            prop_assert_eq!(learned, None);
            return Ok(());
        }
        let lately = (first + sent).saturating_sub(NUMBERS_BACK).max(first)..first + sent;
        let was_sent = lately.into_iter().any(|number| number as u32 == error.number);
        let len = u32::from(error.len);
        let named = match error.mtu {
            0 if !error.is_v6 => {
                let known = [68, 296, 508, 1006, 1492, 2002, 4352, 8166];
                known.into_iter().rev().find(|own| *own < len).unwrap()
            }
            own => own,
        };
        let least = if error.is_v6 { 1280 } else { 0 };
        let is_right = was_sent && udp_is_right && error.spi == 0x1001 && named < len && named >= least;
        let expected = match is_right {
            true => Learned::Lowered(named.max(576) as u16),
            false => Learned::Refused,
        };
        prop_assert_eq!(learned, Some(expected));
        let mtu = is_right.then(|| named.max(576) as u16);
        prop_assert_eq!(own.path_mtu(SECOND), mtu);
        prop_assert_eq!(own.path_mtu(SECOND + AGE_MS * 1_000_000), None);
    }

    /// A bit that is wrong is seen by the checksum, or makes it another packet.
    #[test]
    fn damaged_errors_change_nothing(is_v6: bool, at in 0usize..2000, bit in 0u8..8) {
        let error = Error { is_v6, ports: None, spi: 0x1001, number: 1, len: 1500, mtu: 1400, quoted: 64 };
        let own = association(is_v6, None, Mode::Tunnel, 1);
        own.sealer().unwrap().take(1);
        let mut bytes = error.bytes();
        let header = if is_v6 { 40 } else { 20 };
        let at = header + at % (bytes.len() - header);
        bytes[at] ^= 1 << bit;
        let d = packet::decode::decode_ip(&bytes, bytes.len());
        prop_assert_eq!(too_big(&bytes, &d), None);
    }
}

#[test]
fn errors_about_others_are_refused() {
    let error = Error {
        is_v6: false,
        ports: None,
        spi: 0x1001,
        number: 1,
        len: 1500,
        mtu: 1400,
        quoted: 8,
    };
    let sent = |own: Association| {
        own.sealer().unwrap().take(1);
        own
    };
    let plain = sent(association(false, None, Mode::Transport, 1));
    assert_eq!(error.told(&plain, SECOND), Some(Learned::Lowered(1400)));
    assert_eq!(error.told(&plain, 2 * SECOND), Some(Learned::Known));
    let udp = Some(Udp { source: 4500, destination: 4500 });
    let in_udp = sent(association(false, udp, Mode::Tunnel, 1));
    assert_eq!(error.told(&in_udp, SECOND), Some(Learned::Refused));
    assert_eq!(
        error.told(&sent(association(true, None, Mode::Tunnel, 1)), 0),
        Some(Learned::Refused)
    );
    let other = Parameters::new(Direction::Out, 0x1001, (ends(false).1, ends(false).0), 1);
    let other = sent(Association::new(other, key(7), 0).unwrap());
    assert_eq!(error.told(&other, SECOND), Some(Learned::Refused));
    assert_eq!(other.path_mtu(SECOND), None);
    // Other messages are none.
    let mut bytes = error.bytes();
    bytes[20] = 11;
    let d = packet::decode::decode_ip(&bytes, bytes.len());
    assert!(!path::is_too_big(&d));
    assert_eq!(too_big(&bytes, &d), None);
}

/// The same way, other keys: nothing has to be learned again.
#[test]
fn a_new_association_begins_with_the_path_mtu_of_its_ends() {
    let mut database = Database::new();
    let of = |spi| Parameters::new(Direction::Out, spi, ends(false), 1);
    let destination = ends(false).1;
    let own = database.add(of(0x1001), key(1), 0).unwrap();
    let beside = database.add(of(0x1002), key(2), 0).unwrap();
    let elsewhere = Parameters { destination: [198, 51, 100, 2].into(), ..of(0x1003) };
    let elsewhere = database.add(elsewhere, key(3), 0).unwrap();
    own.sealer().unwrap().take(1);
    let (ports, quoted) = (None, 8);
    let error = Error { is_v6: false, ports, spi: 0x1001, number: 1, len: 1500, mtu: 1400, quoted };
    let view = database.view().unwrap();
    let known = view.sender(4, words(destination).1, 0x1001).unwrap();
    assert_eq!(error.told(known, 10 * SECOND), Some(Learned::Lowered(1400)));
    assert_eq!((own.path_mtu(10 * SECOND), beside.path_mtu(10 * SECOND)), (Some(1400), None));
    database.share_path_mtu(0x1001, destination, 9 * SECOND);
    assert_eq!((beside.path_mtu(10 * SECOND), elsewhere.path_mtu(10 * SECOND)), (Some(1400), None));
    let later = database.add(of(0x1004), key(4), 0).unwrap();
    assert_eq!((later.path_mtu(11 * SECOND), later.path_mtu(700 * SECOND)), (Some(1400), None));
    let again = database.replace(Parameters { pad_to: 7, ..of(0x1001) }, key(1), 0).unwrap();
    assert_eq!(again.path_mtu(11 * SECOND), Some(1400));
    // A shorter one that another has learned stays.
    let error = Error { spi: 0x1002, mtu: 1300, ..error };
    beside.sealer().unwrap().take(1);
    assert_eq!(error.told(&beside, 20 * SECOND), Some(Learned::Lowered(1300)));
    database.share_path_mtu(0x1001, destination, 20 * SECOND);
    assert_eq!(beside.path_mtu(21 * SECOND), Some(1300));
    // Nobody said which one has learned it: all are looked at, in any order.
    let late = database.add(of(0x1005), key(5), 0).unwrap();
    assert_eq!(late.path_mtu(21 * SECOND), Some(1400));
    database.share_path_mtus(21 * SECOND);
    let last = database.add(of(0x1006), key(6), 0).unwrap();
    let all = [&again, &beside, &later, &late, &last].map(|own| own.path_mtu(22 * SECOND));
    assert_eq!(all, [Some(1300); 5]);
    assert_eq!(elsewhere.path_mtu(22 * SECOND), None);
}
