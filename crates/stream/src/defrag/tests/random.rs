//! Random fragments: the defragmenter and its twin must agree in every byte, reason and token.

use super::twin::Twin;
use super::*;
use packet::fragment::Fragmenter;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// A fragment of a hostile sender.
#[derive(Clone, Debug)]
struct Step {
    is_v6: bool,
    host: u8,
    protocol: u8,
    id: u8,
    /// In units of 8 bytes.
    offset: u16,
    units: usize,
    odd: usize,
    more: bool,
    fill: u8,
    /// One byte that differs from `fill`.
    spoiled: Option<prop::sample::Index>,
    ecn: u8,
    wait_ns: u64,
}

impl Step {
    fn frame(&self) -> Vec<u8> {
        let len = (self.units * 8).saturating_sub(self.odd);
        let mut payload: Vec<u8> =
            (0..len).map(|at| self.fill.wrapping_add(at as u8 & 7)).collect();
        if let Some(index) = self.spoiled.filter(|_| len > 0) {
            payload[index.index(len)] ^= 0x55;
        }
        let offset = self.offset * 8;
        let mut frame = match self.is_v6 {
            true => frame_v6(self.id.into(), offset, self.more, 17, (0, &[]), &payload),
            false => {
                frame_v4(self.host, self.protocol, self.id.into(), offset, self.more, &payload)
            }
        };
        if self.is_v6 {
            frame[14 + 8 + 15] = self.host;
            frame[15] |= self.ecn << 4;
        } else {
            frame[15] |= self.ecn;
            packet::ipv4::fill_checksum(&mut frame[14..34]);
        }
        frame
    }
}

fn offset() -> impl Strategy<Value = u16> {
    prop_oneof![
        12 => 0u16..8,
        2 => (0u16..32).prop_map(|block| block * 256 - block.min(1)), // over the ends of blocks
        1 => 8_180u16..8_192,
    ]
}

fn step(families: impl Strategy<Value = bool>) -> impl Strategy<Value = Step> {
    let place = (offset(), prop_oneof![12 => 1usize..5, 1 => Just(0), 1 => 100usize..600]);
    let odd = prop_oneof![6 => Just(0usize), 1 => 1usize..8];
    let key = (families, 1u8..4, prop::sample::select(vec![6u8, 17]), 0u8..3);
    let spoiled = prop::option::weighted(0.2, any::<prop::sample::Index>());
    let wait_ns = prop_oneof![20 => Just(0), 5 => 0..SECOND, 1 => 0..70 * SECOND];
    (key, place, odd, prop::bool::weighted(0.7), 0u8..2, spoiled, 0u8..4, wait_ns).prop_map(
        |((is_v6, host, protocol, id), (offset, units), odd, more, fill, spoiled, ecn, wait_ns)| {
            let odd = if more && odd % 2 == 0 { 0 } else { odd };
            Step {
                is_v6,
                host,
                protocol,
                id,
                offset,
                units,
                odd,
                more,
                fill,
                spoiled,
                ecn,
                wait_ns,
            }
        },
    )
}

fn config() -> impl Strategy<Value = Config> {
    let policy = || prop::sample::select(Policy::ALL.to_vec());
    let tiny = prop::sample::select(vec![TinyFirst::Report, TinyFirst::Drop]);
    let bounds = (1usize..12, 1usize..40, 1usize..20, 0usize..200_000);
    (any::<u64>(), bounds, policy(), policy(), tiny).prop_map(
        |(seed, bounds, policy_v4, policy_v6, tiny_first)| {
            let (datagrams, fragments, fragments_per_datagram, bytes) = bounds;
            Config {
                seed,
                datagrams,
                fragments,
                fragments_per_datagram,
                bytes,
                policy_v4,
                policy_v6,
                tiny_first,
                ..Config::default()
            }
        },
    )
}

/// Runs both over the steps and compares after each.
fn compare(config: Config, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut defragmenter = Defragmenter::new(config);
    let config = *defragmenter.config();
    let room = room(&defragmenter);
    let mut twin = Twin::new(&config);
    let (mut now_ns, mut tokens) = (0, Vec::new());
    for (token, step) in (0..).zip(steps) {
        now_ns += step.wait_ns;
        let frame = step.frame();
        let mut decoded = packet::decode(&frame, frame.len());
        // These are found by the decoder too.
        if matches!(
            decoded.anomaly,
            packet::Anomaly::ZeroLengthFragment | packet::Anomaly::OverlongFragment
        ) {
            decoded.anomaly = packet::Anomaly::None;
        }
        let Some(fragment) = Fragment::from_frame(&decoded, &frame).unwrap() else { continue };
        let mut events = Vec::new();
        let mut out = |output: Output<'_, u32>| events.push(event(output));
        defragmenter.expire(now_ns, &mut out);
        defragmenter.push(&fragment, token, now_ns, &mut out);
        twin.push(&fragment, token, now_ns);
        prop_assert_eq!(&events, &twin.events());
        tokens.extend(events.iter().flat_map(|event| event.tokens.iter().copied()));
        let sizes = (defragmenter.datagrams(), defragmenter.fragments(), defragmenter.bytes());
        prop_assert_eq!(sizes, twin.sizes());
        prop_assert!(sizes.0 <= config.datagrams && sizes.1 <= config.fragments);
        prop_assert!(sizes.2 <= config.bytes);
        prop_assert_eq!(defragmenter.next_timeout_ns(), twin.next_timeout_ns());
        prop_assert_eq!(tokens.len() + sizes.1, defragmenter.stats().fragments as usize);
    }
    defragmenter.clear(&mut |output| tokens.extend(output.tokens));
    let all = tokens.len() as u64;
    tokens.sort_unstable();
    tokens.dedup();
    prop_assert_eq!((tokens.len() as u64, all), (all, defragmenter.stats().fragments));
    let sizes = (defragmenter.datagrams(), defragmenter.fragments(), defragmenter.bytes());
    prop_assert_eq!(sizes, (0, 0, 0));
    prop_assert_eq!(self::room(&defragmenter), room);
    Ok(())
}

/// What could grow, if it were not taken at creation.
fn room(of: &Defragmenter<u32>) -> [usize; 6] {
    [
        of.merged.capacity(),
        of.frame.capacity(),
        of.tokens.capacity(),
        of.free_held.capacity(),
        of.free_datagrams.capacity(),
        of.free_pairs.capacity(),
    ]
}

/// A datagram's fragments in order: cuts at random multiples of 8.
fn cut(
    frame_of: impl Fn(u16, bool, &[u8]) -> Vec<u8>,
    payload: &[u8],
    cuts: &[u16],
) -> Vec<Vec<u8>> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) * 8).collect();
    ends.retain(|end| *end > 0 && *end < payload.len());
    ends.push(payload.len());
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    let mut frames = Vec::new();
    for end in ends {
        frames.push(frame_of(start as u16, end < payload.len(), &payload[start..end]));
        start = end;
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Few datagrams and many overlaps, both families, all bounds.
    #[test]
    fn hostile_fragments_as_the_twin(
        config in config(),
        steps in prop::collection::vec(step(any::<bool>()), 1..120),
    ) {
        compare(config, &steps)?;
    }

    /// One datagram after the other, with room for all of it: most become whole, with overlaps under each policy.
    #[test]
    fn overlapping_datagrams_as_the_twin(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        steps in prop::collection::vec(step(Just(false)), 1..120),
    ) {
        let config = Config {
            datagrams: 16,
            fragments: 512,
            policy_v4: policy,
            ..Config::default()
        };
        let steps: Vec<_> = steps
            .into_iter()
            .map(|step| {
                let more = step.more || step.offset < 7;
                let odd = if more { 0 } else { step.odd };
                Step { host: 1, protocol: 17, id: 0, offset: step.offset % 8, units: step.units.clamp(1, 4), more, odd, ..step }
            })
            .collect();
        compare(config, &steps)?;
    }

    /// Fragments of several datagrams in any order, some of them twice, come out as the datagrams that they were cut from;
    /// those with a lost fragment do not.
    #[test]
    fn cut_datagrams_become_whole(
        datagrams in prop::collection::vec(
            (
                any::<bool>(),
                prop_oneof![8 => 0usize..3000, 1 => 60_000usize..65_500],
                prop::collection::vec(0u16..400, 1..12),
                prop::option::weighted(0.2, any::<prop::sample::Index>()),
                prop::option::weighted(0.3, any::<prop::sample::Index>()),
            ),
            1..6,
        ),
        seed: u64,
        order in prop::collection::vec(any::<u32>(), 100),
    ) {
        let mut fragments = Vec::new();
        let mut expected = Vec::new();
        for (id, (is_v6, len, cuts, lost, twice)) in (0u16..).zip(&datagrams) {
            let payload: Vec<u8> =
                (0..*len).map(|at| (at * 7) as u8 ^ id as u8).collect();
            let mut frames = match is_v6 {
                true => cut(
                    |offset, more, part| frame_v6(id.into(), offset, more, 17, (0, &[]), part),
                    &payload,
                    cuts,
                ),
                false => cut(
                    |offset, more, part| frame_v4(1, 17, id, offset, more, part),
                    &payload,
                    cuts,
                ),
            };
            let whole = frame_v4(1, 17, id, 0, false, &payload);
            if frames.len() == 1 && !is_v6 {
                continue; // fits in one packet
            }
            if let Some(index) = twice {
                frames.push(frames[index.index(frames.len())].clone());
            }
            let lost = lost.map(|index| frames.remove(index.index(frames.len())));
            let is_cut = lost.is_none() || frames.contains(&lost.unwrap_or_default());
            if is_cut && !(frames.is_empty()) {
                expected.push((id, *is_v6, payload, whole));
            }
            fragments.extend(frames);
        }
        let mut places: Vec<usize> = (0..fragments.len()).collect();
        places.sort_by_key(|at| order.get(*at).copied());
        let frames: Vec<_> = places.into_iter().map(|at| fragments[at].clone()).collect();
        let mut defragmenter = Defragmenter::new(Config { seed, ..Config::default() });
        let events = run(&mut defragmenter, &frames);
        let mut found = Vec::new();
        for event in events {
            let frame = event.result.unwrap();
            let decoded = packet::decode(&frame, frame.len());
            prop_assert_eq!(decoded.anomaly, packet::Anomaly::None);
            let id = event.key.identification as u16;
            let payload = frame[usize::from(decoded.l4_offset)..].to_vec();
            let is_v6 = event.key.family == 6;
            let whole = if is_v6 { frame_v4(1, 17, id, 0, false, &payload) } else { frame };
            found.push((id, is_v6, payload, whole));
        }
        // A datagram in one piece that came twice is whole twice.
        found.sort();
        found.dedup();
        prop_assert_eq!(found, expected);
    }

    /// What the router fragments is what it was again.
    #[test]
    fn the_output_of_the_fragmenter_becomes_whole(
        len in 0usize..20_000,
        mtu in 68u16..2000,
        options in prop::sample::select(vec![&[][..], &[1, 1, 1, 0], &[148, 4, 0, 0, 7, 4, 4, 0]]),
        backwards: bool,
    ) {
        let header = Ipv4Header {
            identification: 3,
            options,
            ..Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 1, 1].into(), IpProtocol::UDP)
        };
        let mut frame = LINK_V4.to_vec();
        frame.resize(14 + header.len(), 0);
        header.emit(len, &mut frame[14..]).unwrap();
        frame.extend((0..len).map(|at| (at * 31) as u8));
        let mut frames: Vec<_> = Fragmenter::new(&frame[14..], mtu)
            .unwrap()
            .map(|piece| [&LINK_V4, piece.header(), &frame[14..][piece.payload.clone()]].concat())
            .collect();
        prop_assume!(frames.len() > 1);
        if backwards {
            frames.reverse();
        }
        let config = Config { fragments_per_datagram: 1000, ..Config::default() };
        let events = run(&mut Defragmenter::new(config), &frames);
        prop_assert_eq!(events.len(), 1);
        prop_assert_eq!(&events[0].result, &Ok(frame));
        prop_assert_eq!(&events[0].tokens, &(0..frames.len() as u32).collect::<Vec<_>>());
    }

    /// Frames with any bytes changed, or cut off, cause no panic; each token comes back once.
    #[test]
    fn changed_frames_come_back(
        config in config(),
        steps in prop::collection::vec(
            (
                step(any::<bool>()),
                prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                prop::option::weighted(0.1, any::<prop::sample::Index>()),
            ),
            1..60,
        ),
    ) {
        let mut defragmenter = Defragmenter::new(config);
        let mut tokens = Vec::new();
        for (token, (step, changes, cut)) in (0..).zip(&steps) {
            let mut frame = step.frame();
            for (index, byte) in changes {
                let len = frame.len().min(80);
                frame[index.index(len)] = *byte;
            }
            let len = frame.len();
            frame.truncate(cut.map_or(len, |cut| cut.index(len)));
            let mut decoded = packet::decode(&frame, len);
            packet::decode::ignore_checksum(&mut decoded);
            let mut outputs = Vec::new();
            let mut out = |output: Output<'_, u32>| {
                if let Outcome::Whole { frame, .. } = output.outcome {
                    let decoded = packet::decode(frame, frame.len());
                    assert!(decoded.is_ip() && decoded.l3_end() == frame.len());
                }
                outputs.extend(output.tokens);
            };
            let passed = defragmenter.push_frame(&decoded, &frame, token, 0, &mut out);
            tokens.extend(passed.into_iter().chain(outputs));
        }
        defragmenter.clear(&mut |output| tokens.extend(output.tokens));
        tokens.sort_unstable();
        prop_assert_eq!(tokens, (0..steps.len() as u32).collect::<Vec<_>>());
    }

    /// Time-outs that are asked for in between change nothing but when they are seen.
    #[test]
    fn any_split_into_calls_gives_the_same(
        config in config(),
        steps in prop::collection::vec((step(any::<bool>()), any::<bool>(), 0u64..100), 1..60),
    ) {
        let (mut plain, mut split) = (Vec::new(), Vec::new());
        let mut defragmenters = [Defragmenter::new(config), Defragmenter::new(config)];
        let mut now_ns = 0;
        for (token, (step, expires, part)) in (0..).zip(&steps) {
            let before_ns = now_ns;
            now_ns += step.wait_ns;
            let frame = step.frame();
            let decoded = packet::decode(&frame, frame.len());
            if *expires {
                let between_ns = before_ns + step.wait_ns / 100 * part;
                defragmenters[1].expire(between_ns, &mut |output| split.push(event(output)));
            }
            let [a, b] = &mut defragmenters;
            let mut out = |output: Output<'_, u32>| plain.push(event(output));
            a.expire(now_ns, &mut out);
            a.push_frame(&decoded, &frame, token, now_ns, &mut out);
            let mut out = |output: Output<'_, u32>| split.push(event(output));
            b.expire(now_ns, &mut out);
            b.push_frame(&decoded, &frame, token, now_ns, &mut out);
        }
        let [a, b] = &mut defragmenters;
        a.expire(now_ns, &mut |output| plain.push(event(output)));
        b.expire(now_ns, &mut |output| split.push(event(output)));
        prop_assert_eq!(plain, split);
        prop_assert_eq!(defragmenters[0].stats(), defragmenters[1].stats());
    }

    /// Where there is room for all, it does not matter when the time-outs of others are looked at, if ever.
    #[test]
    fn a_datagram_ends_by_its_own_time(
        seed: u64,
        steps in prop::collection::vec((step(any::<bool>()), any::<bool>()), 1..60),
    ) {
        let config = Config { seed, ..Config::default() };
        let mut all = [false, true].map(|expires| {
            let mut defragmenter = Defragmenter::new(config);
            let (mut events, mut now_ns) = (Vec::new(), 0);
            for (token, (step, is_at_once)) in (0..).zip(&steps) {
                now_ns += step.wait_ns;
                let frame = step.frame();
                let decoded = packet::decode(&frame, frame.len());
                let mut out = |output: Output<'_, u32>| events.push(event(output));
                if expires && *is_at_once {
                    defragmenter.expire(now_ns, &mut out);
                }
                defragmenter.push_frame(&decoded, &frame, token, now_ns, &mut out);
            }
            defragmenter.expire(now_ns, &mut |output| events.push(event(output)));
            defragmenter.clear(&mut |output| events.push(event(output)));
            events
        });
        for events in &mut all {
            events.sort_by(|a, b| a.tokens.cmp(&b.tokens));
        }
        prop_assert_eq!(&all[0], &all[1]);
    }
}
