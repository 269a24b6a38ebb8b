//! The Internet's table: both tables against the trie, and a run of updates against a fresh build.

mod common;

use common::{Random, around4, around6, ask, edges, shared};
use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{Dir24_8, Dir24_8Builder, Limits};
use lookup::rib::Rib;
use lookup::routes::{self, RoutesFile};
use lookup::trie::Trie;
use lookup::versions::versions;
use lookup::{Address, Blob, Lpm, NextHopId, Prefix};

fn full_table() -> Option<RoutesFile> {
    let path = shared("bgp/bart-prefixes-v4v6.txt.gz")?;
    Some(routes::read_file(&path).unwrap())
}

/// As many changes as one would see in some minutes, of all kinds, then all of them undone.
/// `change` changes the table under test; `None` removes.
fn update_run<A: Address>(
    routes: &[(Prefix<A>, NextHopId)],
    mut random_addr: impl FnMut(&mut Random) -> A,
    mut change: impl FnMut(Prefix<A>, Option<NextHopId>),
    check: impl Fn(&Rib<A>, &[Prefix<A>]),
) {
    let mut random = Random(11);
    let mut rib: Rib<A> = routes.iter().copied().collect();
    let mut touched = Vec::new();
    for round in 0..3000_u32 {
        let (known, _) = routes[random.below(routes.len())];
        let prefix = match random.below(5) {
            0 => known,
            1 => Prefix::masked(known.addr(), random.below(usize::from(A::WIDTH) + 1) as u8),
            2 => Prefix::masked(known.addr(), known.len() + random.below(4) as u8),
            3 => Prefix::masked(random_addr(&mut random), 4 + random.below(29) as u8),
            _ => Prefix::masked(known.last(), A::WIDTH - random.below(9) as u8),
        };
        let next_hop = (random.below(3) > 0).then_some(round + 1);
        match next_hop {
            Some(next_hop) => drop(rib.insert(prefix, next_hop)),
            None => drop(rib.remove(prefix)),
        }
        change(prefix, next_hop);
        touched.push(prefix);
    }
    check(&rib, &touched);
    let before: Rib<A> = routes.iter().copied().collect();
    for prefix in &touched {
        change(*prefix, before.get(*prefix));
    }
    check(&before, &touched);
}

#[test]
fn ipv4() {
    let Some(file) = full_table() else { return };
    let rib: Rib<u32> = file.v4.iter().copied().collect();
    let trie = Trie::build(&rib);
    let (builder, blob) = Dir24_8Builder::build(rib, Limits::default()).unwrap();
    let view = Dir24_8::new(&blob).unwrap();
    let mut addrs = edges(file.v4.iter().map(|r| r.0), around4);
    let mut random = Random(5);
    addrs.extend((0..500_000).map(|_| random.next() as u32));
    assert!(ask(&view, &addrs) == ask(&trie, &addrs));

    let state = std::cell::RefCell::new((builder, blob));
    update_run(
        &file.v4,
        |random| random.next() as u32,
        |prefix, next_hop| {
            let (builder, blob) = &mut *state.borrow_mut();
            let mut patches = Vec::new();
            match next_hop {
                Some(next_hop) => drop(builder.insert(prefix, next_hop, &mut patches).unwrap()),
                None => drop(builder.remove(prefix, &mut patches)),
            }
            blob.apply(&patches);
        },
        |rib, touched| {
            let (builder, blob) = &*state.borrow();
            assert!(builder.rib().iter().eq(rib.iter()));
            let (_, fresh) = Dir24_8Builder::build(rib.clone(), Limits::default()).unwrap();
            let mut addrs = edges(touched.iter().copied(), around4);
            addrs.extend((0..=u32::MAX).step_by(61));
            let (view, fresh) = (Dir24_8::new(blob).unwrap(), Dir24_8::new(&fresh).unwrap());
            assert!(ask(&view, &addrs) == ask(&fresh, &addrs));
        },
    );
}

#[test]
fn ipv6() {
    let Some(file) = full_table() else { return };
    let rib: Rib<u128> = file.v6.iter().copied().collect();
    let trie = Trie::build(&rib);
    let (builder, blob) = BsplBuilder::build(rib).unwrap();
    let view = Bspl::new(&blob).unwrap();
    let mut random = Random(5);
    let mut addrs = edges(file.v6.iter().map(|r| r.0), around6);
    addrs.extend((0..500_000).map(|_| {
        let prefix = file.v6[random.below(file.v6.len())].0;
        prefix.addr() | random.next128() & !u128::MAX.truncate(prefix.len())
    }));
    addrs.extend((0..100_000).map(|_| random.next128()));
    let answers = ask(&view, &addrs);
    assert!(answers == ask(&trie, &addrs));
    let keys: Vec<_> = addrs.iter().map(|addr| addr.to_key()).collect();
    let mut scalar = vec![0; keys.len()];
    view.lookup_scalar(&keys, &mut scalar);
    assert!(scalar == answers);

    let state = std::cell::RefCell::new((builder, blob));
    update_run(
        &file.v6,
        |random| random.next128() >> 3 | 1 << 125,
        |prefix, next_hop| {
            let (builder, blob) = &mut *state.borrow_mut();
            let mut patches = Vec::new();
            match next_hop {
                Some(next_hop) => drop(builder.insert(prefix, next_hop, &mut patches).unwrap()),
                None => drop(builder.remove(prefix, &mut patches)),
            }
            blob.apply(&patches);
        },
        |rib, touched| {
            let (builder, blob) = &*state.borrow();
            assert!(builder.rib().iter().eq(rib.iter()));
            let (_, fresh) = BsplBuilder::build(rib.clone()).unwrap();
            let mut addrs = edges(touched.iter().copied(), around6);
            addrs.extend(edges(rib.iter().map(|r| r.0), around6));
            let (view, fresh) = (Bspl::new(blob).unwrap(), Bspl::new(&fresh).unwrap());
            assert!(ask(&view, &addrs) == ask(&fresh, &addrs));
        },
    );
}

/// While routes change, a reader sees for each address the answer before or the answer after.
#[test]
fn a_lookup_is_old_or_new_and_never_a_third() {
    let mut random = Random(9);
    let rib: Rib<u32> = (0..5000)
        .map(|_| {
            (
                Prefix::masked(
                    0x0a00_0000 | random.next() as u32 >> 8,
                    12 + random.below(21) as u8,
                ),
                1,
            )
        })
        .collect();
    let routes: Vec<Prefix<u32>> = rib.iter().map(|(prefix, _)| prefix).collect();
    let (mut builder, blob) = Dir24_8Builder::build(rib, Limits::default()).unwrap();
    let (mut writer, reader) = versions::<Blob>(blob);
    let keys = edges(routes.iter().copied(), around4);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, keys, stop) = (reader.clone(), &keys, &stop);
            scope.spawn(move || {
                let mut out = vec![0; keys.len()];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let pin = reader.pin();
                    Dir24_8::new(&pin).unwrap().lookup(keys, &mut out);
                    // Version n has next hop n + 1 on the one route that covers all, and the other
                    // routes, which come and go, have 1.
                    let all = pin.version() as u32 + 1;
                    assert!(out.iter().all(|answer| [0, 1, all].contains(answer)));
                    let inside = keys.iter().zip(&out).filter(|(key, _)| **key >> 24 == 10);
                    assert!(all == 1 || inside.into_iter().all(|(_, answer)| *answer != 0));
                }
            });
        }
        for version in 1..=400_u32 {
            let mut patches = Vec::new();
            builder.insert("10.0.0.0/8".parse().unwrap(), version + 1, &mut patches).unwrap();
            for _ in 0..20 {
                let prefix = routes[random.below(routes.len())];
                if builder.remove(prefix, &mut patches).is_none() {
                    builder.insert(prefix, 1, &mut patches).unwrap();
                }
            }
            assert_eq!(writer.publish(patches), u64::from(version));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
