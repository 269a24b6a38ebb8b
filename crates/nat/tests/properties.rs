//! Translations of random packets, against full checksums and a plain translator.

use std::collections::HashMap;
use std::sync::Arc;

use nat::deterministic::Blocks;
use nat::nat64;
use nat::rewrite::{set_ends, set_quoted};
use nat::rules::{Action, Own, Prefix, Rule, Rules};
use nat::translator::{Options, Refusal, Source, Timeouts, Way};
use nat::tuple::{End, Tuple};
use nat::{Translator, ports};
use packet::IpProtocol;
use packet::checksum::{finish, internet_checksum, partial_sum};
use proptest::prelude::*;
use stream::table::Found;

const LINK: usize = 14;

/// A frame with the ends `of`, right checksums and this payload.
fn frame(of: &Tuple, payload: &[u8], request: bool) -> Vec<u8> {
    let mut l4 = Vec::new();
    match IpProtocol(of.protocol) {
        IpProtocol::TCP => {
            l4.extend(of.src.1.to_be_bytes());
            l4.extend(of.dst.1.to_be_bytes());
            l4.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        }
        IpProtocol::UDP => {
            l4.extend(of.src.1.to_be_bytes());
            l4.extend(of.dst.1.to_be_bytes());
            l4.extend(((payload.len() + 8) as u16).to_be_bytes());
            l4.extend([0, 0]);
        }
        _ => {
            let kinds = if of.protocol == IpProtocol::ICMP.0 { [0, 8] } else { [129, 128] };
            l4.extend([kinds[usize::from(request)], 0, 0, 0]);
            l4.extend(of.src.1.to_be_bytes());
            l4.extend([0, 9]);
        }
    }
    l4.extend(payload);
    let sum = finish(partial_sum(&l4) + pseudo(of, l4.len()));
    let at = place(of.protocol);
    let sum = if of.protocol == IpProtocol::UDP.0 && sum == 0 { 0xffff } else { sum };
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut all = vec![2; 12];
    if of.family == 4 {
        all.extend([0x08, 0x00]);
        let mut ip = vec![0x45, 0];
        ip.extend(((l4.len() + 20) as u16).to_be_bytes());
        ip.extend([0, 7, 0, 0, 64, of.protocol, 0, 0]);
        ip.extend((of.src.0[1] as u32).to_be_bytes());
        ip.extend((of.dst.0[1] as u32).to_be_bytes());
        let sum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        all.extend(ip);
    } else {
        all.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        all.extend((l4.len() as u16).to_be_bytes());
        all.extend([of.protocol, 64]);
        for word in [of.src.0[0], of.src.0[1], of.dst.0[0], of.dst.0[1]] {
            all.extend(word.to_be_bytes());
        }
    }
    all.extend(l4);
    all
}

fn place(protocol: u8) -> usize {
    match IpProtocol(protocol) {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => 2,
    }
}

fn pseudo(of: &Tuple, len: usize) -> u32 {
    if of.protocol == IpProtocol::ICMP.0 {
        return 0;
    }
    let mut bytes = Vec::new();
    for word in [of.src.0[0], of.src.0[1], of.dst.0[0], of.dst.0[1]] {
        bytes.extend(word.to_be_bytes());
    }
    partial_sum(&bytes) + u32::from(of.protocol) + len as u32
}

fn end(family: u8) -> impl Strategy<Value = End> {
    (any::<u64>(), any::<u64>(), 1u16..).prop_map(move |(high, low, port)| match family {
        4 => ([0, u64::from(low as u32 | 0x0100_0000) & 0x7eff_ffff], port),
        _ => ([high >> 3 | 0x2000_0000_0000_0000, low], port),
    })
}

fn tuple(family: u8) -> impl Strategy<Value = Tuple> {
    let icmp = if family == 4 { 1 } else { 58 };
    (end(family), end(family), prop::sample::select(vec![6u8, 17, icmp])).prop_map(
        move |(src, dst, protocol)| {
            let dst = if protocol == icmp { (dst.0, src.1) } else { dst };
            Tuple { src, dst, protocol, family }
        },
    )
}

/// The other one's ends, of the same protocol.
fn with_protocol(of: Tuple, protocol: u8) -> Tuple {
    let is_icmp = matches!(protocol, 1 | 58);
    let dst = if is_icmp { (of.dst.0, of.src.1) } else { of.dst };
    Tuple { protocol, dst, ..of }
}

fn is_same_frame(got: &[u8], want: &[u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        prop_assert_eq!(got, want, "byte {}", at);
    }
    Ok(())
}

proptest! {
    /// Incremental checksums are those of the packet made anew, and the way back gives the same bytes.
    #[test]
    fn ends_are_written_there_and_back(
        from in tuple(4), to in tuple(4), payload in prop::collection::vec(any::<u8>(), 0..99),
        is_request: bool,
    ) {
        let to = with_protocol(to, from.protocol);
        let mut bytes = frame(&from, &payload, is_request);
        let before = bytes.clone();
        set_ends(&mut bytes[LINK..], 20, &to);
        // The identifier of an ICMP query is that of its sender, that of an answer its receiver's: here both are one.
        is_same_frame(&bytes, &frame(&to, &payload, is_request))?;
        set_ends(&mut bytes[LINK..], 20, &from);
        is_same_frame(&bytes, &before)?;
    }

    /// A quoted packet becomes what it would be by itself, and the error's checksum is right.
    #[test]
    fn quoted_ends_are_written(
        from in tuple(4), to in tuple(4), outer in tuple(4), payload in prop::collection::vec(any::<u8>(), 0..99),
        cut in 28usize..200,
    ) {
        let to = with_protocol(to, from.protocol);
        // Half of TCP's checksum (bytes 36 and 37) is no checksum: what it would become cannot be known from it.
        prop_assume!(cut != 37 || from.protocol != IpProtocol::TCP.0);
        let cut = |frame: Vec<u8>| frame[LINK..].iter().copied().take(cut).collect::<Vec<u8>>();
        let error = |quoted: &[u8]| {
            let mut ip = frame(&outer, &[], true)[LINK..LINK + 20].to_vec();
            ip[9] = 1;
            let mut icmp = vec![11, 0, 0, 0, 0, 0, 0, 0];
            icmp.extend(quoted);
            let sum = internet_checksum(&icmp);
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            ip.extend(icmp);
            ip
        };
        let mut bytes = error(&cut(frame(&from, &payload, true)));
        set_quoted(&mut bytes, 20, 20, &to);
        let want = error(&cut(frame(&to, &payload, true)));
        is_same_frame(&bytes, &want)?;
    }

    /// From IPv6 to IPv4 and back: each time the packet that would be made anew.
    #[test]
    fn headers_of_the_other_family(
        six in tuple(6), four in tuple(4), payload in prop::collection::vec(any::<u8>(), 0..99), is_request: bool,
    ) {
        let protocol = if six.protocol == 58 { 1 } else { six.protocol };
        let four = with_protocol(four, protocol);
        let bytes = frame(&six, &payload, is_request);
        let d = packet::decode(&bytes, bytes.len());
        prop_assume!(d.anomaly == packet::Anomaly::None);
        let mut ip = bytes[LINK..].to_vec();
        let head = nat64::to_v4(&d, &mut ip, &four, 7, false).unwrap();
        let mut got = frame(&four, &[], is_request)[..LINK].to_vec();
        got.extend(head.bytes());
        got.extend(&ip[40..]);
        is_same_frame(&got, &frame(&four, &payload, is_request))?;

        let d = packet::decode(&got, got.len());
        prop_assume!(d.anomaly == packet::Anomaly::None);
        let mut ip = got[LINK..].to_vec();
        let head = nat64::to_v6(&d, &mut ip, &six).unwrap();
        let mut back = bytes[..LINK].to_vec();
        back.extend(head.bytes());
        back.extend(&ip[20..]);
        is_same_frame(&back, &bytes)?;
    }

    /// Nothing panics, whatever the bytes; and what is quoted fits.
    #[test]
    fn bytes_of_any_kind(bytes in prop::collection::vec(any::<u8>(), 0..200), to in tuple(6), four in tuple(4)) {
        let d = packet::decode(&bytes, bytes.len());
        let ip = bytes.get(usize::from(d.l3_offset)..).unwrap_or_default();
        let l4 = bytes.get(usize::from(d.l4_offset)..).unwrap_or_default();
        let _ = (Tuple::of(&d, l4), Tuple::quoted(ip));
        let mut out = [0; 1280];
        for to in [to, four] {
            let _ = nat64::error(&d, ip, &to, to.src.0, &mut out);
            let _ = nat64::to_v6(&d, &mut ip.to_vec(), &to);
            let _ = nat64::to_v4(&d, &mut ip.to_vec(), &to, 1, false);
            set_ends(&mut ip.to_vec(), 20, &to);
            set_quoted(&mut ip.to_vec(), 20, 20, &to);
        }
    }
}

const OUTSIDE: u32 = 0xcb00_7101;

fn rules(action: Action, ports: std::ops::RangeInclusive<u16>, workers: usize) -> Arc<Rules> {
    let rule =
        Rule { number: 3, outside: vec![1], sources: Vec::new(), protocol: None, ports, action };
    let own = Own::new(4);
    own.set(1, Some(OUTSIDE));
    Arc::new(Rules::new(vec![rule], workers, Arc::new(own)))
}

fn options() -> Options {
    Options {
        sessions: 64,
        bindings_per_host: 9,
        filter_by_remote: true,
        timeouts: Timeouts { udp: 30, ..Timeouts::default() },
        seed: 5,
    }
}

/// The step of a packet with these ends.
fn step(translator: &mut Translator, of: &Tuple, now_s: u32) -> Option<(Tuple, Way)> {
    let (key, side) = of.key();
    let mut found = [Found::NONE];
    translator.find(&[key], now_s, &mut found);
    translator.step(found[0].slot()?, side, 0)
}

/// The translator that a textbook would have, with the ports that the other one chose.
#[derive(Default)]
struct Plain {
    sessions: HashMap<Tuple, (Tuple, u32)>,
    bindings: HashMap<(u8, End), (End, u32)>,
}

impl Plain {
    fn expire(&mut self, now_s: u32) {
        let idle: Vec<Tuple> = self
            .sessions
            .iter()
            .filter(|(_, (_, seen))| now_s - seen >= 30)
            .map(|(original, _)| *original)
            .collect();
        for original in idle {
            self.sessions.remove(&original);
            let key = (original.protocol, original.src);
            let count = &mut self.bindings.get_mut(&key).expect("a binding").1;
            *count -= 1;
            if *count == 0 {
                self.bindings.remove(&key);
            }
        }
    }
}

proptest! {
    #[test]
    fn it_agrees_with_a_plain_translator(
        steps in prop::collection::vec((0u8..4, 0u16..12, 0u8..3, 0u32..4, any::<bool>()), 1..400),
        narrow in 4u16..40,
    ) {
        let action = Action::Source(vec![OUTSIDE]);
        let mut own = Translator::new(options(), rules(action, 5000..=5000 + narrow, 1)).unwrap();
        let mut plain = Plain::default();
        let mut now_s = 100;
        for (host, port, remote, pause, is_back) in steps {
            now_s += pause;
            while !own.sweep(7, now_s) {}
            plain.expire(now_s);
            let src = ([0, 0xc0a8_0100 + u64::from(host)], 5000 + port);
            let dst = ([0, 0x0808_0800 + u64::from(remote)], 53);
            let original = Tuple { src, dst, protocol: 17, family: 4 };
            if is_back {
                // An answer to whatever the session is.
                let Some((translated, seen)) = plain.sessions.get_mut(&original) else { continue };
                let answer = translated.reversed();
                *seen = now_s;
                let step = step(&mut own, &answer, now_s);
                prop_assert_eq!(step, Some((original.reversed(), Way::Back)));
                prop_assert_eq!(own.restore(&original.reversed()), Some(answer));
                continue;
            }
            match plain.sessions.get_mut(&original) {
                Some((translated, seen)) => {
                    *seen = now_s;
                    prop_assert_eq!(step(&mut own, &original, now_s), Some((*translated, Way::Forward)));
                    prop_assert_eq!(own.restore(translated), Some(original));
                }
                None => {
                    prop_assert_eq!(step(&mut own, &original, now_s), None);
                    let made = own.begin(&original, dst, 4, Source::Rule(3, 1), now_s);
                    let known = plain.bindings.get(&(17, src)).map(|own| own.0);
                    let of_host = plain.bindings.keys().filter(|own| own.1.0 == src.0).count();
                    let free = usize::from(narrow) + 1 - plain.bindings.len();
                    let want = if plain.sessions.len() >= 64 {
                        Some(Refusal::Sessions)
                    } else if known.is_some() {
                        None
                    } else if of_host >= 9 {
                        Some(Refusal::HostLimit)
                    } else if free == 0 {
                        Some(Refusal::Ports)
                    } else {
                        None
                    };
                    prop_assert_eq!(made.err(), want);
                    let Ok(made) = made else { continue };
                    prop_assert_eq!((made.dst, made.src.0), (dst, [0, OUTSIDE.into()]));
                    match known {
                        Some(known) => prop_assert_eq!(made.src, known, "one mapping for all remote ends"),
                        None => {
                            let taken = plain.bindings.values().any(|own| own.0 == made.src);
                            prop_assert!(!taken && (5000..=5000 + narrow).contains(&made.src.1));
                            let preserved = !plain.bindings.values().any(|own| own.0.1 == src.1)
                                && src.1 <= 5000 + narrow;
                            prop_assert!(!preserved || made.src.1 == src.1);
                        }
                    }
                    plain.bindings.entry((17, src)).or_insert((made.src, 0)).1 += 1;
                    plain.sessions.insert(original, (made, now_s));
                }
            }
            prop_assert_eq!(own.len(), plain.sessions.len());
            let used: u32 = own.pools().map(|pool| pool.used).sum();
            prop_assert_eq!(used as usize, plain.bindings.len());
        }
    }

    /// Whatever the number of workers, a packet and its answer have one hash.
    #[test]
    fn both_directions_meet(workers in 1usize..20, original in tuple(4), deterministic: bool) {
        let host = 0x0a00_0000 | original.src.0[1] as u32 & 0xfff;
        let original = Tuple { src: ([0, host.into()], original.src.1), ..original };
        prop_assume!((original.dst.0[1] as u32).wrapping_sub(OUTSIDE) >= 64);
        let action = match deterministic {
            false => Action::Masquerade,
            true => Action::Deterministic {
                inside: Prefix::v4(0x0a00_0000, 20),
                blocks: Blocks::new((0x0a00_0000, 1 << 12), (OUTSIDE, 64), &(1024..=u16::MAX)).unwrap(),
            },
        };
        let rules = rules(action, 1024..=u16::MAX, workers);
        let mut own = Translator::new(options(), rules.clone()).unwrap();
        let made = own.begin(&original, original.dst, 4, Source::Rule(3, 1), 1).unwrap();
        let out = frame(&original, &[], true);
        let back = frame(&made.reversed(), &[], false);
        prop_assert_eq!(rules.frame_hash(&out), rules.frame_hash(&back));
        // And an error about it.
        let mut error = frame(&made.reversed(), &[], true)[..LINK + 20].to_vec();
        error[LINK + 9] = 1;
        error.extend([11, 0, 0, 0, 0, 0, 0, 0]);
        error.extend(&frame(&made, &[], true)[LINK..]);
        let len = (error.len() - LINK) as u16;
        error[LINK + 2..LINK + 4].copy_from_slice(&len.to_be_bytes());
        error[LINK + 10..LINK + 12].fill(0);
        let sum = internet_checksum(&error[LINK..LINK + 20]);
        error[LINK + 10..LINK + 12].copy_from_slice(&sum.to_be_bytes());
        prop_assert_eq!(rules.frame_hash(&out), rules.frame_hash(&error));
        // Workers are hit as classes are: the hash of class c leads to place c.
        for class in 0..rules.classes {
            let place = (u64::from(rules.hash_of(class)) * u64::from(rules.classes)) >> 32;
            prop_assert_eq!(place, u64::from(class));
        }
        prop_assert!(rules.classes <= ports::CLASSES_MAX);
    }
}

/// RFC 7915 §4.2 and §5.2.
#[test]
fn icmp_errors_of_the_rfc() {
    assert_eq!(nat64::icmp_to_v6(3, 4, 1400), Some((2, 0, 1420)));
    assert_eq!(nat64::icmp_to_v6(3, 4, 0), Some((2, 0, 1280)));
    assert_eq!(nat64::icmp_to_v6(3, 1, 0), Some((1, 0, 0)));
    assert_eq!(nat64::icmp_to_v6(3, 2, 0), Some((4, 1, 6)));
    assert_eq!(nat64::icmp_to_v6(3, 3, 0), Some((1, 4, 0)));
    assert_eq!(nat64::icmp_to_v6(3, 13, 0), Some((1, 1, 0)));
    assert_eq!(nat64::icmp_to_v6(3, 14, 0), None);
    assert_eq!(nat64::icmp_to_v6(11, 1, 0), Some((3, 1, 0)));
    assert_eq!(nat64::icmp_to_v6(12, 0, 9 << 24), Some((4, 0, 6)));
    assert_eq!(nat64::icmp_to_v6(12, 1, 0), None);
    assert_eq!(nat64::icmp_to_v6(5, 0, 0), None);
    assert_eq!(nat64::icmp_to_v4(1, 0, 0), Some((3, 1, 0)));
    assert_eq!(nat64::icmp_to_v4(1, 1, 0), Some((3, 10, 0)));
    assert_eq!(nat64::icmp_to_v4(1, 4, 0), Some((3, 3, 0)));
    assert_eq!(nat64::icmp_to_v4(2, 0, 1500), Some((3, 4, 1480)));
    assert_eq!(nat64::icmp_to_v4(3, 0, 0), Some((11, 0, 0)));
    assert_eq!(nat64::icmp_to_v4(4, 0, 6), Some((12, 0, 9 << 24)));
    assert_eq!(nat64::icmp_to_v4(4, 1, 6), Some((3, 2, 0)));
    assert_eq!(nat64::icmp_to_v4(4, 2, 0), None);
}
