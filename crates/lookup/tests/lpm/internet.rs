//! The Internet's routes: all tables against the trie, and a run of updates against a fresh build.

use std::sync::OnceLock;

use lookup::rib::Rib;
use lookup::routes::{self, RoutesFile};
use lookup::trie::Trie;
use lookup::{Address, Blob, NextHopId, Prefix};

use crate::common::Random;
use crate::suite::{Family, How, Table, ask, edges};

/// Read once, for all tables.
fn table() -> &'static RoutesFile {
    static FILE: OnceLock<RoutesFile> = OnceLock::new();
    FILE.get_or_init(|| routes::read_file(&testdata::internet().path).unwrap())
}

pub(crate) fn the_routes_of_the_internet<T: Table>() {
    let file = table();
    for &(next_hops, bytes_max) in T::INTERNET {
        let renamed = |&(prefix, id): &(Prefix<T::Addr>, NextHopId)| (prefix, 1 + id % next_hops);
        let routes: Vec<_> = T::Addr::internet(file).iter().map(renamed).collect();
        let mut run = Run::<T>::new(&routes);
        assert!(run.image.len_bytes() < bytes_max, "{} bytes", run.image.len_bytes());
        run.check_all(&routes);
        run.update(&routes);
    }
}

/// A table, and the trie as its reference.
struct Run<T: Table> {
    builder: T,
    image: Blob,
    trie: Trie<T::Addr>,
    rib: Rib<T::Addr>,
}

impl<T: Table> Run<T> {
    fn new(routes: &[(Prefix<T::Addr>, NextHopId)]) -> Self {
        let rib: Rib<T::Addr> = routes.iter().copied().collect();
        let (builder, image) = T::build(rib.clone(), T::ample()).unwrap();
        Self { builder, image, trie: Trie::build(&rib), rib }
    }

    fn check(&self, addrs: &[T::Addr], how: How) {
        let answers = ask::<T>(&self.image, addrs, how);
        for (addr, answer) in addrs.iter().zip(answers) {
            assert_eq!(answer, self.trie.lookup_one(addr.to_key()), "{}", addr.to_ip());
        }
    }

    /// Where answers change, anywhere below routes, and anywhere.
    fn check_all(&self, routes: &[(Prefix<T::Addr>, NextHopId)]) {
        let mut random = Random(5);
        let mut addrs = edges(routes.iter().map(|route| route.0));
        addrs.extend(
            (0..500_000)
                .map(|_| T::Addr::random(&mut random).below(routes[random.below(routes.len())].0)),
        );
        addrs.extend((0..500_000).map(|_| T::Addr::random(&mut random)));
        self.check(&addrs, How::AllForms);
    }

    /// Sets a route, or takes it away.
    fn change(&mut self, prefix: Prefix<T::Addr>, next_hop: Option<NextHopId>) {
        let mut patches = Vec::new();
        match next_hop {
            Some(next_hop) => {
                let known = self.builder.insert(prefix, next_hop, &mut patches).unwrap();
                assert_eq!(known, self.rib.insert(prefix, next_hop));
                self.trie.insert(prefix, next_hop);
            }
            None => {
                assert_eq!(self.builder.remove(prefix, &mut patches), self.rib.remove(prefix));
                self.trie.remove(prefix);
            }
        }
        self.image.apply(&patches);
    }

    /// As many changes as one would see in some minutes, of all kinds, then all of them undone.
    fn update(&mut self, routes: &[(Prefix<T::Addr>, NextHopId)]) {
        let (mut random, before) = (Random(11), self.rib.clone());
        let mut touched = Vec::new();
        for round in 1..=3000 {
            let (known, _) = routes[random.below(routes.len())];
            let width = T::Addr::WIDTH;
            let prefix = match random.below(5) {
                0 => known,
                1 => Prefix::masked(known.addr(), random.below(usize::from(width) + 1) as u8),
                2 => Prefix::masked(known.addr(), width.min(known.len() + random.below(4) as u8)),
                3 => Prefix::masked(T::Addr::routed(&mut random), 4 + random.below(29) as u8),
                _ => Prefix::masked(known.last(), width - random.below(9) as u8),
            };
            self.change(prefix, (random.below(3) > 0).then_some(round));
            touched.push(prefix);
        }
        self.check_fresh(&touched);
        for prefix in &touched {
            self.change(*prefix, before.get(*prefix));
        }
        self.check_fresh(&touched);
        assert!(self.rib.iter().eq(before.iter()));
    }

    /// What changes touched is as the trie has it, and everything as in an image that is built afresh.
    fn check_fresh(&self, touched: &[Prefix<T::Addr>]) {
        assert!(self.builder.rib().iter().eq(self.rib.iter()));
        self.check(&edges(touched.iter().copied()), How::AllForms);
        let (_, fresh) = T::build(self.rib.clone(), T::ample()).unwrap();
        let addrs = T::Addr::sweep(&self.rib, T::STRIDE);
        let answers = [&self.image, &fresh].map(|image| ask::<T>(image, &addrs, How::Once));
        assert!(answers[0] == answers[1], "patched, and built afresh");
    }
}
