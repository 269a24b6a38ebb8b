//! Captures whose segments are cut: rules of streams and of buffers give the same alerts.

use std::path::PathBuf;
use std::sync::Arc;

use detect::{Found, Ruleset, Search, Sender};

use crate::bed::{Setup, run, run_counting};
use crate::verify::{Case, cases, load};

/// Cuts each segment of TCP over IPv4 that has more than `at` bytes; SYN is left as it is.
fn cut(frame: &[u8], at: usize) -> Vec<Vec<u8>> {
    let whole = || vec![frame.to_vec()];
    let d = packet::decode(frame, frame.len());
    let is_tcp = d.kind == packet::decode::Kind::Ipv4 && d.protocol == packet::IpProtocol::TCP;
    if !is_tcp || d.has(packet::Decoded::FRAGMENT) || d.l3_end() > frame.len() {
        return whole();
    }
    let (l3, l4, end) = (usize::from(d.l3_offset), usize::from(d.l4_offset), d.l3_end());
    let Some(view) = packet::tcp::TcpView::new_checked(&frame[l4..end]) else { return whole() };
    let begin = l4 + view.header_len();
    let (flags, len) = (view.flags() as u8, end - begin);
    if len <= at || flags & 2 != 0 || flags & 16 == 0 || flags & 32 != 0 {
        return whole();
    }
    let piece = |from: usize, to: usize| {
        let mut piece = frame[..begin].to_vec();
        piece.extend_from_slice(&frame[begin + from..begin + to]);
        let total = (piece.len() - l3) as u16;
        piece[l3 + 2..l3 + 4].copy_from_slice(&total.to_be_bytes());
        let sequence = view.sequence().wrapping_add(from as u32);
        piece[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        if to < len {
            // FIN and PSH come with the last byte.
            piece[l4 + 13] &= !9;
        }
        piece
    };
    vec![piece(0, at), piece(at, len)]
}

/// The alerts of streams and transactions, sorted.
fn alerts(
    rules: &Arc<Ruleset>,
    frames: &[(u64, Vec<u8>)],
    setup: &Setup,
) -> Vec<(u32, Option<u64>, Sender)> {
    let reported = run(rules.clone(), frames, setup).reported;
    let mut alerts: Vec<_> = reported
        .into_iter()
        .filter_map(|own| match own.alert.found {
            Found::Stream => Some((own.sid, None, own.alert.sender)),
            Found::Transaction(number) => Some((own.sid, Some(number), own.alert.sender)),
            _ => None,
        })
        .collect();
    alerts.sort_unstable_by_key(|(sid, transaction, sender)| (*sid, *transaction, *sender as u8));
    alerts
}

/// The frames with each segment cut at this byte.
fn cut_all(frames: &[(u64, Vec<u8>)], at: usize) -> Vec<(u64, Vec<u8>)> {
    let pieces = frames
        .iter()
        .flat_map(|(time_ns, frame)| cut(frame, at).into_iter().map(|frame| (*time_ns, frame)));
    pieces.collect()
}

#[test]
fn alerts_of_streams_and_buffers_do_not_depend_on_segments() {
    let Some(root) = testdata::path("ids/suricata-verify") else { return };
    let mut folders: Vec<PathBuf> = Vec::new();
    cases(&root, &mut folders);
    let mut compared = 0;
    for folder in &folders {
        let Case { rules, frames, mut setup, .. } = load(folder, Search::Shared);
        setup.checksums = false;
        let rules = Arc::new(rules);
        let expected = alerts(&rules, &frames, &setup);
        compared += expected.len();
        for at in [1, 2, 3, 5, 7, 16, 33, 100, 700] {
            let own = alerts(&rules, &cut_all(&frames, at), &setup);
            assert_eq!(own, expected, "{} at {at}", folder.display());
        }
    }
    assert!(compared > 50, "{compared} alerts");
}

/// Frames that the search of all cuts of one capture takes at most.
const FRAMES: usize = 500_000;

/// Segments are cut at each byte in turn, up to the last one that any segment has, in captures that are not too long for that.
#[test]
fn alerts_do_not_depend_on_any_cut() {
    let Some(root) = testdata::path("ids/suricata-verify") else { return };
    let mut folders: Vec<PathBuf> = Vec::new();
    cases(&root, &mut folders);
    let (mut compared, mut captures) = (0, 0);
    for folder in &folders {
        let Case { rules, frames, mut setup, .. } = load(folder, Search::Shared);
        setup.checksums = false;
        let rules = Arc::new(rules);
        let expected = alerts(&rules, &frames, &setup);
        // Behind the longest segment, no cut changes a frame.
        let longest = frames.iter().map(|(_, frame)| frame.len()).max().unwrap_or(0);
        if expected.is_empty() || longest * frames.len() > FRAMES {
            continue;
        }
        for at in 1..longest {
            let pieces = cut_all(&frames, at);
            if pieces.len() == frames.len() {
                continue;
            }
            let own = alerts(&rules, &pieces, &setup);
            assert_eq!(own, expected, "{} at {at}", folder.display());
            compared += expected.len();
        }
        captures += 1;
    }
    assert!(captures >= 20 && compared > 10_000, "{captures} captures, {compared} alerts");
}

/// A search of packets before it is known whose they are spares others, and changes nothing, wherever streams are cut.
#[test]
fn a_search_ahead_changes_no_alert() {
    let Some(root) = testdata::path("ids/suricata-verify") else { return };
    let mut folders: Vec<PathBuf> = Vec::new();
    cases(&root, &mut folders);
    let (mut compared, mut packets, mut clean) = (0, 0, 0);
    for folder in &folders {
        let Case { rules, frames, setup, .. } = load(folder, Search::Shared);
        let rules = Arc::new(rules);
        for at in [usize::MAX, 700, 33, 7] {
            let setup = Setup { checksums: setup.checksums && at == usize::MAX, ..setup.clone() };
            let cut = frames.iter().flat_map(|(time_ns, frame)| {
                cut(frame, at).into_iter().map(|frame| (*time_ns, frame))
            });
            let cut: Vec<(u64, Vec<u8>)> = cut.collect();
            let expected = run(rules.clone(), &cut, &setup);
            let ahead = Setup { ahead: true, ..setup };
            let (own, spared) = run_counting(rules.clone(), &cut, &ahead);
            assert_eq!(own, expected, "{} at {at}", folder.display());
            (compared, packets, clean) =
                (compared + own.reported.len(), packets + cut.len(), clean + spared);
        }
    }
    assert!(compared > 200 && clean > packets / 2, "{compared} alerts, {clean} of {packets} clean");
}
