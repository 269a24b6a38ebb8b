//! What every longest-prefix table must do, whichever it is: each case runs for each [`Table`].

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use lookup::rib::Rib;
use lookup::routes::RoutesFile;
use lookup::trie::Trie;
use lookup::versions::versions;
use lookup::{Address, Blob, NEXT_HOP_MAX, NO_ROUTE, NextHopId, Patch, Prefix, TableError};
use proptest::prelude::*;

use crate::common::{self, Change, Random, changes, property};
pub(crate) use crate::internet::the_routes_of_the_internet;

pub(crate) type KeyOf<T> = <<T as Table>::Addr as Address>::Key;

/// One of the ways to look up a batch.
pub(crate) type Form<'a, K> = &'a dyn Fn(&[K], &mut [NextHopId]);

/// Takes a form and its name.
pub(crate) type Visit<'a, K> = &'a mut dyn FnMut(&str, Form<'_, K>);

/// What a longest-prefix table offers to the suite: its builder, and the forms of its lookup.
pub(crate) trait Table: Sized {
    type Addr: Family;
    /// How large it may grow.
    type Limits: Copy + Debug + 'static;

    /// Runs of a property; routes of a set and changes of a run, at most.
    const CASES: u32;
    const ROUTES: usize;
    const CHANGES: usize;
    /// The Internet's routes: with how many next hops, and the bytes that the image may take then.
    const INTERNET: &[(u32, usize)] = &[(u32::MAX, usize::MAX)];
    /// Every how manyth address is asked when a patched image is compared with one built afresh.
    const STRIDE: usize = 1009;

    /// As the program uses it.
    fn ample() -> Self::Limits;
    /// So little that random routes do not fit; as [`Table::roomy`] for a table without limits.
    fn tight() -> BoxedStrategy<Self::Limits> {
        Just(Self::ample()).boxed()
    }
    /// A table that is exactly full; `None` for one without limits.
    fn full() -> Option<Full<Self>> {
        None
    }
    /// What routes are drawn from.
    fn prefixes() -> BoxedStrategy<Prefix<Self::Addr>> {
        Self::Addr::prefixes()
    }

    fn build(rib: Rib<Self::Addr>, limits: Self::Limits) -> Result<(Self, Blob), TableError>;
    fn insert(
        &mut self,
        prefix: Prefix<Self::Addr>,
        next_hop: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, TableError>;
    fn remove(&mut self, prefix: Prefix<Self::Addr>, patches: &mut Vec<Patch>)
    -> Option<NextHopId>;
    fn rib(&self) -> &Rib<Self::Addr>;

    /// Whether the image is one of this table.
    fn is_image(blob: &Blob) -> bool;
    /// Shows every form: first the one that the program uses, then one key at a time, then the rest.
    fn forms(blob: &Blob, visit: Visit<'_, KeyOf<Self>>);

    /// What the routes take, in any unit.
    fn used(&self) -> usize;
    /// Whether a region full of routes has brought it into its largest form.
    fn is_grown(&self) -> bool {
        true
    }
    /// Which structure holds the routes, of a table that goes over from one to another.
    fn kind(&self) -> &'static str {
        ""
    }
    /// What holds after each change in this table alone.
    fn check(&self, _image: &Blob) {}
}

/// The methods of a builder, which all tables name alike.
macro_rules! builder {
    ($addr:ty) => {
        type Addr = $addr;

        fn insert(
            &mut self,
            prefix: lookup::Prefix<$addr>,
            next_hop: lookup::NextHopId,
            patches: &mut Vec<lookup::Patch>,
        ) -> Result<Option<lookup::NextHopId>, lookup::TableError> {
            self.insert(prefix, next_hop, patches)
        }
        fn remove(
            &mut self,
            prefix: lookup::Prefix<$addr>,
            patches: &mut Vec<lookup::Patch>,
        ) -> Option<lookup::NextHopId> {
            self.remove(prefix, patches)
        }
        fn rib(&self) -> &lookup::rib::Rib<$addr> {
            self.rib()
        }
    };
}
pub(crate) use builder;

/// A table that is exactly full.
pub(crate) struct Full<T: Table> {
    pub(crate) limits: T::Limits,
    /// These fit.
    pub(crate) routes: Vec<Prefix<T::Addr>>,
    /// This one does not.
    pub(crate) more: Prefix<T::Addr>,
    /// What is said of it.
    pub(crate) refusal: TableError,
    /// What is said where all are to be built at once.
    pub(crate) refusal_of_build: TableError,
}

/// IPv4 or IPv6, as far as tests differ.
pub(crate) trait Family: Address + Arbitrary {
    fn prefixes() -> BoxedStrategy<Prefix<Self>>;
    /// One below and one above.
    fn around(self) -> [Self; 2];
    fn random(random: &mut Random) -> Self;
    /// An address as the random part of changes to the Internet's routes has it.
    fn routed(random: &mut Random) -> Self;
    /// The prefix of a region, and one of a crowd of prefixes in it.
    fn region() -> Prefix<Self>;
    fn crowded(random: &mut Random) -> Prefix<Self>;
    fn internet(file: &RoutesFile) -> &[(Prefix<Self>, NextHopId)];
    /// Addresses all over, or all over the routes.
    fn sweep(rib: &Rib<Self>, stride: usize) -> Vec<Self>;
    /// The address with other bits behind a prefix.
    fn below(self, prefix: Prefix<Self>) -> Self;
}

impl Family for u32 {
    fn prefixes() -> BoxedStrategy<Prefix<u32>> {
        common::prefix4().boxed()
    }
    fn around(self) -> [u32; 2] {
        [self.wrapping_sub(1), self.wrapping_add(1)]
    }
    fn random(random: &mut Random) -> u32 {
        random.next() as u32
    }
    fn routed(random: &mut Random) -> u32 {
        random.next() as u32
    }
    fn region() -> Prefix<u32> {
        "10.0.0.0/8".parse().unwrap()
    }
    fn crowded(random: &mut Random) -> Prefix<u32> {
        let addr = 10 << 24 | random.next() as u32 >> 8;
        Prefix::masked(addr, 12 + random.below(21) as u8)
    }
    fn internet(file: &RoutesFile) -> &[(Prefix<u32>, NextHopId)] {
        &file.v4
    }
    fn sweep(_rib: &Rib<u32>, stride: usize) -> Vec<u32> {
        (0..=u32::MAX).step_by(stride).collect()
    }
    fn below(self, prefix: Prefix<u32>) -> u32 {
        prefix.addr() | self & !u32::MAX.truncate(prefix.len())
    }
}

impl Family for u128 {
    fn prefixes() -> BoxedStrategy<Prefix<u128>> {
        prop_oneof![1 => common::prefix6(), 2 => common::crowded6()].boxed()
    }
    fn around(self) -> [u128; 2] {
        [self.wrapping_sub(1), self.wrapping_add(1)]
    }
    fn random(random: &mut Random) -> u128 {
        random.next128()
    }
    fn routed(random: &mut Random) -> u128 {
        random.next128() >> 3 | 1 << 125
    }
    fn region() -> Prefix<u128> {
        "2a00::/16".parse().unwrap()
    }
    fn crowded(random: &mut Random) -> Prefix<u128> {
        let addr = 0x2a00_u128 << 112 | u128::from(random.next() as u32) << 64;
        Prefix::masked(addr, 33 + random.below(32) as u8)
    }
    fn internet(file: &RoutesFile) -> &[(Prefix<u128>, NextHopId)] {
        &file.v6
    }
    fn sweep(rib: &Rib<u128>, _stride: usize) -> Vec<u128> {
        edges(rib.iter().map(|route| route.0))
    }
    fn below(self, prefix: Prefix<u128>) -> u128 {
        prefix.addr() | self & !u128::MAX.truncate(prefix.len())
    }
}

/// The cases, and the tables that run through them.
macro_rules! suite {
    ($($name:ident: $table:ty,)*) => {
        $(mod $name {
            crate::suite::cases! { $table:
                answers_are_those_of_a_scan
                changes_are_as_a_fresh_build
                a_full_table_keeps_what_it_holds
                a_full_table_says_so
                a_region_fills_and_empties
                readers_see_the_old_or_the_new
                the_routes_of_the_internet
                next_hops_out_of_range_are_refused
                other_images_are_refused
                slices_of_different_lengths_are_a_defect
            }
        })*
    };
}
pub(crate) use suite;

macro_rules! cases {
    ($table:ty: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            crate::suite::$case::<$table>();
        })*
    };
}
pub(crate) use cases;

/// Where answers change: the ends of each prefix and their neighbours.
pub(crate) fn edges<A: Family>(prefixes: impl IntoIterator<Item = Prefix<A>>) -> Vec<A> {
    let ends = prefixes.into_iter().flat_map(|prefix| [prefix.addr(), prefix.last()]);
    ends.flat_map(|end| {
        let [below, above] = end.around();
        [end, below, above]
    })
    .collect()
}

/// The longest covering prefix by a scan over all.
fn scan<A: Address>(routes: &[(Prefix<A>, NextHopId)], addr: A) -> NextHopId {
    let covering = routes.iter().filter(|(prefix, _)| prefix.contains(addr));
    covering.max_by_key(|(prefix, _)| prefix.len()).map_or(NO_ROUTE, |(_, next_hop)| *next_hop)
}

/// Looks up one key after the other.
pub(crate) fn one_by_one<K: Copy>(
    keys: &[K],
    out: &mut [NextHopId],
    lookup: impl Fn(K) -> NextHopId,
) {
    assert_eq!(keys.len(), out.len());
    keys.iter().zip(out).for_each(|(key, out)| *out = lookup(*key));
}

/// How a table is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum How {
    /// All addresses at once, in the form that the program uses.
    Once,
    /// That, one key at a time, and a third form.
    ThreeForms,
    /// All forms.
    AllForms,
    /// All forms, in batches of many sizes.
    AllSizes,
}

/// What the table answers, in all these ways the same.
pub(crate) fn ask<T: Table>(image: &Blob, addrs: &[T::Addr], how: How) -> Vec<NextHopId> {
    let keys: Vec<KeyOf<T>> = addrs.iter().map(|addr| addr.to_key()).collect();
    let (forms, sizes): (usize, &[usize]) = match how {
        How::Once => (1, &[usize::MAX]),
        How::ThreeForms => (3, &[usize::MAX]),
        How::AllForms => (usize::MAX, &[usize::MAX]),
        How::AllSizes => (usize::MAX, &[usize::MAX, 1, 31, 32, 33, 77, 1000]),
    };
    let (mut answers, mut shown) = (Vec::new(), 0);
    T::forms(image, &mut |name, form| {
        shown += 1;
        if shown > forms {
            return;
        }
        form(&[], &mut []);
        for size in sizes {
            let mut out = vec![0xdead_beef; keys.len()];
            keys.chunks(*size).zip(out.chunks_mut(*size)).for_each(|(k, o)| form(k, o));
            if answers.is_empty() {
                answers.clone_from(&out);
            }
            let differs = out.iter().zip(&answers).position(|(a, b)| a != b);
            assert_eq!(differs.map(|at| (addrs[at], out[at], answers[at])), None, "{name}, {size}");
        }
    });
    answers
}

/// A table with its readers' image, and the references: a trie, and the routes themselves.
pub(crate) struct Bed<T: Table> {
    pub(crate) builder: T,
    pub(crate) image: Blob,
    limits: T::Limits,
    trie: Trie<T::Addr>,
    pub(crate) routes: Vec<(Prefix<T::Addr>, NextHopId)>,
    /// Where answers have changed.
    addrs: Vec<T::Addr>,
    /// Patches that were whole images.
    pub(crate) replaced: usize,
}

impl<T: Table> Bed<T> {
    pub(crate) fn new(routes: Vec<(Prefix<T::Addr>, NextHopId)>, limits: T::Limits) -> Self {
        let rib: Rib<T::Addr> = routes.iter().copied().collect();
        let (trie, built) = (Trie::build(&rib), T::build(rib, limits));
        let (builder, image) = built.unwrap();
        let mut addrs = vec![T::Addr::ZERO, T::Addr::ZERO.fill(0)];
        addrs.extend(edges(routes.iter().map(|route| route.0)));
        Self { builder, image, limits, trie, routes, addrs, replaced: 0 }
    }

    /// Changes the image as the builder says, whose structure changes with a whole image alone.
    fn apply(&mut self, patches: &[Patch], kind: &str) {
        let replaced = patches.iter().filter(|patch| matches!(patch, Patch::Replace(_))).count();
        self.replaced += replaced;
        assert!(self.builder.kind() == kind || replaced > 0, "another structure without an image");
        self.image.apply(patches);
        self.builder.check(&self.image);
        assert_eq!(self.builder.rib().len(), self.routes.len());
    }

    /// Adds or replaces a route. If the table refuses it, nothing has changed.
    pub(crate) fn insert(
        &mut self,
        prefix: Prefix<T::Addr>,
        next_hop: NextHopId,
    ) -> Result<(), TableError> {
        let (mut patches, kind) = (Vec::new(), self.builder.kind());
        let result = self.builder.insert(prefix, next_hop, &mut patches);
        self.addrs.extend(edges([prefix]));
        match &result {
            Ok(known) => {
                assert_eq!(*known, self.trie.insert(prefix, next_hop));
                self.routes.retain(|route| route.0 != prefix);
                self.routes.push((prefix, next_hop));
            }
            Err(_) => {
                assert!(patches.is_empty() && self.builder.kind() == kind);
                let mut routes = self.routes.clone();
                routes.sort_unstable();
                let mut kept: Vec<_> = self.builder.rib().iter().collect();
                kept.sort_unstable();
                assert_eq!(kept, routes, "routes after a refusal");
            }
        }
        self.apply(&patches, kind);
        result.map(|_| ())
    }

    /// Takes a route away, which is never refused.
    pub(crate) fn remove(&mut self, prefix: Prefix<T::Addr>) {
        let (mut patches, kind) = (Vec::new(), self.builder.kind());
        assert_eq!(self.builder.remove(prefix, &mut patches), self.trie.remove(prefix));
        self.routes.retain(|route| route.0 != prefix);
        self.apply(&patches, kind);
    }

    fn change(&mut self, change: Change<T::Addr>) -> Result<(), TableError> {
        match change {
            Change::Insert(prefix, next_hop) => return self.insert(prefix, next_hop),
            Change::Remove(_) if self.routes.is_empty() => {}
            Change::Remove(index) => self.remove(self.routes[index.index(self.routes.len())].0),
            Change::RemoveExactly(prefix) => self.remove(prefix),
        }
        Ok(())
    }

    /// Image, trie and, where they are few, the routes themselves agree.
    pub(crate) fn check(&self, how: How) {
        let answers = ask::<T>(&self.image, &self.addrs, how);
        for (addr, answer) in self.addrs.iter().zip(&answers) {
            assert_eq!(*answer, self.trie.lookup_one(addr.to_key()), "{}", addr.to_ip());
            if self.routes.len() <= 250 {
                assert_eq!(*answer, scan(&self.routes, *addr), "{} by a scan", addr.to_ip());
            }
        }
    }

    /// An image that is built of the routes as they are says the same; `true` where they fit.
    fn check_fresh(&self) -> bool {
        let Ok((_, fresh)) = T::build(self.builder.rib().clone(), self.limits) else {
            return false;
        };
        let answers = [&fresh, &self.image].map(|image| ask::<T>(image, &self.addrs, How::Once));
        assert_eq!(answers[0], answers[1], "built afresh, and patched");
        true
    }

    /// Removes all routes, in any order; then the table takes what an empty one takes.
    pub(crate) fn remove_all(&mut self, random: &mut Random, used_when_empty: usize) {
        while !self.routes.is_empty() {
            self.remove(self.routes[random.below(self.routes.len())].0);
            if self.routes.len() % 200 == 199 {
                self.check(How::ThreeForms);
            }
        }
        self.check(How::AllSizes);
        assert_eq!(self.builder.used(), used_when_empty, "used by no routes");
    }
}

fn used_when_empty<T: Table>() -> usize {
    T::build(Rib::new(), T::ample()).unwrap().0.used()
}

/// Small next hops, and one that needs 15 bits.
fn next_hops() -> impl Strategy<Value = NextHopId> + Clone {
    prop_oneof![3 => 1..9_u32, 1 => Just((1 << 15) - 1)]
}

/// Built at once, with next hops of 15 bits, or one of 16.
pub(crate) fn answers_are_those_of_a_scan<T: Table>() {
    let routes = prop::collection::btree_map(T::prefixes(), next_hops(), 0..T::ROUTES);
    let more = prop::collection::vec(any::<T::Addr>(), 0..50);
    property(T::CASES, (routes, any::<bool>(), more), |(routes, is_wide, more)| {
        let mut routes: Vec<_> = routes.into_iter().collect();
        if let (true, Some(route)) = (is_wide, routes.first_mut()) {
            route.1 = 1 << 15;
        }
        let mut bed = Bed::<T>::new(routes, T::ample());
        bed.addrs.extend(more);
        bed.check(How::AllSizes);
    });
}

/// Each change's patches, applied to a copy, give what the routes say, and in the end what a fresh build gives.
pub(crate) fn changes_are_as_a_fresh_build<T: Table>() {
    let first = prop::collection::btree_map(T::prefixes(), 1..9_u32, 0..T::ROUTES);
    let first = prop_oneof![Just(BTreeMap::new()), first];
    let (changes, empty) = (changes(T::prefixes(), T::CHANGES), used_when_empty::<T>());
    property(T::CASES, (first, changes, any::<bool>()), |(first, changes, is_wide)| {
        let mut bed = Bed::<T>::new(first.into_iter().collect(), T::ample());
        for change in changes {
            let change = match change {
                Change::Insert(prefix, hop) if !is_wide => Change::Insert(prefix, hop.min(9)),
                other => other,
            };
            bed.change(change).unwrap();
            bed.check(How::ThreeForms);
        }
        bed.check(How::AllSizes);
        assert!(bed.check_fresh());
        bed.remove_all(&mut Random(1), empty);
    });
}

/// With little room, each change is made or refused as a whole, and a removal is never refused.
pub(crate) fn a_full_table_keeps_what_it_holds<T: Table>() {
    let changes = changes(T::prefixes(), T::CHANGES);
    property(T::CASES, (T::tight(), changes), |(limits, changes)| {
        let mut bed = Bed::<T>::new(Vec::new(), limits);
        for change in changes {
            if let Err(error) = bed.change(change) {
                assert!(matches!(error, TableError::Full { .. }), "{error}");
            }
            bed.check(How::Once);
        }
        bed.check_fresh();
    });
}

/// A refusal names what is full; what is freed is used again.
pub(crate) fn a_full_table_says_so<T: Table>() {
    let Some(full) = T::full() else { return };
    let mut bed = Bed::<T>::new(Vec::new(), full.limits);
    for (next_hop, prefix) in (1..).zip(&full.routes) {
        bed.insert(*prefix, next_hop).unwrap();
    }
    let all: Rib<T::Addr> = bed.routes.iter().copied().chain([(full.more, 9)]).collect();
    assert_eq!(T::build(all, full.limits).err(), Some(full.refusal_of_build));
    assert_eq!(bed.insert(full.more, 9), Err(full.refusal.clone()));
    bed.check(How::AllSizes);
    bed.insert(full.routes[0], 8).expect("another next hop needs no room");
    bed.remove(full.routes[0]);
    bed.insert(full.more, 9).unwrap();
    bed.check(How::AllSizes);
    assert_eq!(bed.insert(full.routes[0], 1), Err(full.refusal));
}

/// What grows for thousands of routes side by side is given back when they go.
pub(crate) fn a_region_fills_and_empties<T: Table>() {
    let random = &mut Random(3);
    let mut bed = Bed::<T>::new(Vec::new(), T::ample());
    let empty = bed.builder.used();
    for round in 1..=3000 {
        bed.insert(T::Addr::crowded(random), round).unwrap();
        if round % 500 == 0 {
            bed.check(How::AllSizes);
        }
    }
    assert!(bed.builder.is_grown());
    bed.remove_all(random, empty);
}

/// While routes change, a reader sees for each address the answer of its version.
pub(crate) fn readers_see_the_old_or_the_new<T: Table>() {
    let random = &mut Random(21);
    let routes: Vec<_> = (0..4000).map(|_| T::Addr::crowded(random)).collect();
    let rib = routes.iter().map(|prefix| (*prefix, 1)).collect();
    let (mut builder, image) = T::build(rib, T::ample()).unwrap();
    let (mut writer, reader) = versions(image);
    let region = T::Addr::region();
    // Version n has next hop n + 1 on the one route that covers all, and the others, which come and go, have 1.
    let check = |addrs: &[T::Addr], version: u64, answers: &[NextHopId]| {
        let all = version as u32 + 1;
        assert!(answers.iter().all(|answer| [0, 1, all].contains(answer)));
        let mut inside = addrs.iter().zip(answers).filter(|(addr, _)| region.contains(**addr));
        assert!(all == 1 || inside.all(|(_, answer)| *answer != 0));
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for watched in routes.chunks(1000).take(2) {
            let (reader, stop) = (reader.clone(), &stop);
            scope.spawn(move || {
                let addrs = edges(watched.iter().copied());
                let keys: Vec<KeyOf<T>> = addrs.iter().map(|addr| addr.to_key()).collect();
                let (mut out, mut round) = (vec![0; keys.len()], 0);
                while !stop.load(Ordering::Relaxed) {
                    let (pin, mut shown) = (reader.pin(), 0);
                    T::forms(&pin, &mut |_, form| {
                        if shown == round {
                            form(&keys, &mut out);
                        }
                        shown += 1;
                    });
                    check(&addrs, pin.version(), &out);
                    round = (round + 1) % shown;
                }
            });
        }
        for version in 1..=200_u32 {
            let mut patches = Vec::new();
            builder.insert(region, version + 1, &mut patches).unwrap();
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

pub(crate) fn next_hops_out_of_range_are_refused<T: Table>() {
    let mut bed = Bed::<T>::new(Vec::new(), T::ample());
    for next_hop in [NO_ROUTE, NEXT_HOP_MAX + 1, u32::MAX] {
        let refused = bed.insert(Prefix::default_route(), next_hop);
        assert_eq!(refused, Err(TableError::NextHop(next_hop)));
    }
    assert!(bed.builder.rib().is_empty());
}

pub(crate) fn other_images_are_refused<T: Table>() {
    assert!(T::is_image(&T::build(Rib::new(), T::ample()).unwrap().1));
    for words in [16, 1 << 10, 1 << 20, 1 << 25] {
        assert!(!T::is_image(&Blob::zeroed(words, 0).unwrap()), "{words} words of zeros");
    }
}

pub(crate) fn slices_of_different_lengths_are_a_defect<T: Table>() {
    let (_, image) = T::build(Rib::new(), T::ample()).unwrap();
    T::forms(&image, &mut |name, form| {
        let keys = [T::Addr::ZERO.to_key(); 2];
        let panic = catch_unwind(AssertUnwindSafe(|| form(&keys, &mut [0]))).unwrap_err();
        let said = panic.downcast::<String>().unwrap();
        assert!(said.contains("left == right"), "{name}: {said}");
    });
}
