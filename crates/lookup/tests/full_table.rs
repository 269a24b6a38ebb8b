//! The Internet's table: all tables against the trie, and a run of updates against a fresh build.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Random, around4, around6, ask, edges, shared};
use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{Dir24_8, Dir24_8Builder, Limits};
use lookup::mtrie6::{self, Mtrie6, Mtrie6Builder};
use lookup::poptrie::{self, Poptrie, PoptrieBuilder};
use lookup::rib::Rib;
use lookup::routes::{self, RoutesFile};
use lookup::trie::Trie;
use lookup::versions::{Reader, versions};
use lookup::{Address, Blob, Lpm, NextHopId, Prefix};

/// A form's name and what it does.
type Form<'a, K> = (&'a str, &'a dyn Fn(&[K], &mut [NextHopId]));

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
    let mut out = vec![0; keys.len()];
    // The batch is its own group form; 1 and 3 in turns are the edges, 64 the most that anybody uses.
    let forms: [Form<'_, lookup::Key6>; 9] = [
        ("scalar", &|k, o| view.lookup_scalar(k, o)),
        ("plain", &|k, o| view.lookup_plain(k, o)),
        ("switched by 1", &|k, o| view.lookup_switched::<1>(k, o)),
        ("switched by 3", &|k, o| view.lookup_switched::<3>(k, o)),
        ("switched by 32", &|k, o| view.lookup_switched::<32>(k, o)),
        ("switched by 64", &|k, o| view.lookup_switched::<64>(k, o)),
        ("machine by 1", &|k, o| view.lookup_machine::<1>(k, o)),
        ("machine by 16", &|k, o| view.lookup_machine::<16>(k, o)),
        ("machine by 64", &|k, o| view.lookup_machine::<64>(k, o)),
    ];
    for (name, form) in forms {
        out.fill(0xdead_beef);
        form(&keys, &mut out);
        assert!(out == answers, "{name}");
        // A burst that is no multiple of anything, and none at all.
        let some = 77.min(keys.len());
        out[..some].fill(0xdead_beef);
        form(&keys[..some], &mut out[..some]);
        form(&[], &mut []);
        assert!(out == answers, "{name}, {some} keys");
    }

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

/// Poptrie with a next hop for each route (answers of 32 bits) and with few (16 bits).
#[test]
fn ipv4_compressed() {
    let Some(file) = full_table() else { return };
    for (next_hops, megabytes) in [(u32::MAX, 10), (200, 8)] {
        let routes: Vec<_> = file.v4.iter().map(|(p, id)| (*p, 1 + id % next_hops)).collect();
        let rib: Rib<u32> = routes.iter().copied().collect();
        let trie = Trie::build(&rib);
        let (builder, blob) = PoptrieBuilder::build(rib, poptrie::Limits::default()).unwrap();
        assert!(blob.len_bytes() < megabytes * 1_000_000, "{}", blob.len_bytes());
        let view = Poptrie::new(&blob).unwrap();
        let mut addrs = edges(routes.iter().map(|r| r.0), around4);
        let mut random = Random(5);
        addrs.extend((0..500_000).map(|_| random.next() as u32));
        let answers = ask(&view, &addrs);
        assert!(answers == ask(&trie, &addrs));
        let mut out = vec![0; addrs.len()];
        let forms: [Form<'_, u32>; 4] = [
            ("plain", &|k, o| view.lookup_plain(k, o)),
            ("switched", &|k, o| view.lookup_switched::<32>(k, o)),
            ("machine", &|k, o| view.lookup_machine::<32>(k, o)),
            ("group", &|k, o| view.lookup_grouped::<64>(k, o)),
        ];
        for (name, form) in forms {
            out.fill(0xdead_beef);
            form(&addrs, &mut out);
            assert!(out == answers, "{name}");
        }

        let state = std::cell::RefCell::new((builder, blob));
        update_run(
            &routes,
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
                let trie = Trie::build(rib);
                let mut addrs = edges(touched.iter().copied(), around4);
                addrs.extend((0..=u32::MAX).step_by(1009));
                assert!(ask(&Poptrie::new(blob).unwrap(), &addrs) == ask(&trie, &addrs));
            },
        );
    }
}

#[test]
fn ipv6_multibit_trie() {
    let Some(file) = full_table() else { return };
    let rib: Rib<u128> = file.v6.iter().copied().collect();
    let trie = Trie::build(&rib);
    let (builder, blob) = Mtrie6Builder::build(rib, mtrie6::Limits::default()).unwrap();
    assert!(blob.len_bytes() < 250_000_000, "{}", blob.len_bytes());
    let view = Mtrie6::new(&blob).unwrap();
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
    let mut out = vec![0; keys.len()];
    let forms: [Form<'_, lookup::Key6>; 4] = [
        ("plain", &|k, o| view.lookup_plain(k, o)),
        ("switched", &|k, o| view.lookup_switched::<32>(k, o)),
        ("machine", &|k, o| view.lookup_machine::<32>(k, o)),
        ("group", &|k, o| view.lookup_grouped::<64>(k, o)),
    ];
    for (name, form) in forms {
        out.fill(0xdead_beef);
        form(&keys, &mut out);
        assert!(out == answers, "{name}");
    }

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
            let trie = Trie::build(rib);
            let mut addrs = edges(touched.iter().copied(), around6);
            addrs.extend(edges(rib.iter().map(|r| r.0), around6));
            assert!(ask(&Mtrie6::new(blob).unwrap(), &addrs) == ask(&trie, &addrs));
        },
    );
}

/// As the test below, for the tries of both families and binary search on lengths: next hops of a version are its
/// number or that of the routes that come and go.
#[test]
fn lookups_while_another_thread_changes_the_tables() {
    let mut random = Random(21);
    let four: Vec<Prefix<u32>> = (0..4000)
        .map(|_| Prefix::masked(10 << 24 | random.next() as u32 >> 8, 12 + random.below(21) as u8))
        .collect();
    let six: Vec<Prefix<u128>> = (0..4000)
        .map(|_| {
            let addr = 0x2a00_u128 << 112 | u128::from(random.next() >> 16) << 64;
            Prefix::masked(addr, 20 + random.below(50) as u8)
        })
        .collect();
    let rib4 = four.iter().map(|prefix| (*prefix, 1)).collect();
    let rib6: Rib<u128> = six.iter().map(|prefix| (*prefix, 1)).collect();
    let (mut builder4, blob4) = PoptrieBuilder::build(rib4, poptrie::Limits::default()).unwrap();
    let (mut trie, trie_blob) =
        Mtrie6Builder::build(rib6.clone(), mtrie6::Limits::default()).unwrap();
    let (mut search, search_blob) = BsplBuilder::build(rib6).unwrap();
    let (mut writer4, reader4) = versions::<Blob>(blob4);
    let (mut trie_writer, trie_reader) = versions::<Blob>(trie_blob);
    let (mut search_writer, search_reader) = versions::<Blob>(search_blob);
    let keys4 = edges(four.iter().copied(), around4);
    let keys6: Vec<_> =
        edges(six.iter().copied(), around6).into_iter().map(|addr| addr.to_key()).collect();
    let is_inside4 = |key: &u32| key >> 24 == 10;
    let is_inside6 = |key: &lookup::Key6| key[0] >> 48 == 0x2a00;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, keys6) = (&stop, &keys6);
        scope.spawn(move || {
            watch(&reader4, &keys4, is_inside4, stop, |blob, keys, out| {
                Poptrie::new(blob).unwrap().lookup(keys, out);
            });
        });
        scope.spawn(move || {
            watch(&trie_reader, keys6, is_inside6, stop, |blob, keys, out| {
                Mtrie6::new(blob).unwrap().lookup(keys, out);
            });
        });
        scope.spawn(move || {
            let mut round = 0;
            watch(&search_reader, keys6, is_inside6, stop, |blob, keys, out| {
                let view = Bspl::new(blob).unwrap();
                match round % 3 {
                    0 => view.lookup(keys, out),
                    1 => view.lookup_switched::<32>(keys, out),
                    _ => view.lookup_machine::<32>(keys, out),
                }
                round += 1;
            });
        });
        for version in 1..=200_u32 {
            let (mut patches4, mut of_trie, mut of_search) = (Vec::new(), Vec::new(), Vec::new());
            let all4 = "10.0.0.0/8".parse().unwrap();
            let all6 = "2a00::/16".parse().unwrap();
            builder4.insert(all4, version + 1, &mut patches4).unwrap();
            trie.insert(all6, version + 1, &mut of_trie).unwrap();
            search.insert(all6, version + 1, &mut of_search).unwrap();
            for _ in 0..20 {
                let (four, six) = (four[random.below(four.len())], six[random.below(six.len())]);
                if builder4.remove(four, &mut patches4).is_none() {
                    builder4.insert(four, 1, &mut patches4).unwrap();
                }
                let before = trie.remove(six, &mut of_trie);
                assert_eq!(search.remove(six, &mut of_search), before);
                if before.is_none() {
                    trie.insert(six, 1, &mut of_trie).unwrap();
                    search.insert(six, 1, &mut of_search).unwrap();
                }
            }
            assert_eq!(writer4.publish(patches4), u64::from(version));
            assert_eq!(trie_writer.publish(of_trie), u64::from(version));
            assert_eq!(search_writer.publish(of_search), u64::from(version));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Looks up until `stop`: version n has next hop n + 1 on the route that covers whatever `is_inside`, and the other
/// routes, which come and go, have 1.
fn watch<K>(
    reader: &Reader<Blob>,
    keys: &[K],
    is_inside: impl Fn(&K) -> bool,
    stop: &AtomicBool,
    mut lookup: impl FnMut(&Blob, &[K], &mut [NextHopId]),
) {
    let mut out = vec![0; keys.len()];
    while !stop.load(Ordering::Relaxed) {
        let pin = reader.pin();
        lookup(&pin, keys, &mut out);
        let all = pin.version() as u32 + 1;
        assert!(out.iter().all(|answer| [0, 1, all].contains(answer)));
        let mut inside = keys.iter().zip(&out).filter(|(key, _)| is_inside(key));
        assert!(all == 1 || inside.all(|(_, answer)| *answer != 0));
    }
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
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, keys, stop) = (reader.clone(), &keys, &stop);
            scope.spawn(move || {
                let mut out = vec![0; keys.len()];
                while !stop.load(Ordering::Relaxed) {
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
        stop.store(true, Ordering::Relaxed);
    });
}
