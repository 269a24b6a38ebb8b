use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::cell::{HugePages, Region};

/// Few, so that operations run short of cells.
const CELLS: u32 = 24;

/// Sizes around the borders of cells as well as any others.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        0usize..200,
        CELL_CAPACITY - 3..CELL_CAPACITY + 4,
        CELL_FRAME_BYTES - 3..CELL_FRAME_BYTES + 4,
        0usize..9000,
        30_000usize..60_000,
    ]
}

/// One operation on one of the packets; places are shares of its length, or a little behind its end.
#[derive(Clone, Debug)]
enum Op {
    Copy(usize),
    GrowFront(usize),
    GrowBack(usize),
    PushFront(usize),
    PullFront(Index),
    ShrinkFront(Index),
    Truncate(Index),
    Split(Index),
    Append(Index),
    Linearise(usize),
    Linear(Index, Index),
    Write(Index, usize, u8),
    WriteAll(u8),
    Duplicate,
    Free,
}

fn op() -> impl Strategy<Value = Op> {
    let at = any::<Index>;
    prop_oneof![
        2 => size().prop_map(Op::Copy),
        3 => size().prop_map(Op::GrowFront),
        3 => size().prop_map(Op::GrowBack),
        1 => (0usize..400).prop_map(Op::PushFront),
        1 => at().prop_map(Op::PullFront),
        2 => at().prop_map(Op::ShrinkFront),
        2 => at().prop_map(Op::Truncate),
        3 => at().prop_map(Op::Split),
        2 => at().prop_map(Op::Append),
        2 => size().prop_map(Op::Linearise),
        3 => (at(), at()).prop_map(|(a, b)| Op::Linear(a, b)),
        3 => (at(), size(), any::<u8>()).prop_map(|(a, n, b)| Op::Write(a, n, b)),
        1 => any::<u8>().prop_map(Op::WriteAll),
        1 => Just(Op::Duplicate),
        1 => Just(Op::Free),
    ]
}

/// Bytes that differ from place to place.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8 ^ seed).collect()
}

/// A packet and the same frame as plain bytes.
struct Twins {
    packet: Packet,
    bytes: Vec<u8>,
    number: u32,
}

struct Bench {
    pool: Pool,
    all: Vec<Twins>,
    scratch: Vec<u8>,
    made: u32,
}

impl Bench {
    fn free_cells(&self) -> usize {
        CELLS as usize - self.all.iter().map(|t| t.packet.cells()).sum::<usize>()
    }

    fn add(&mut self, mut packet: Packet, bytes: Vec<u8>) {
        self.made += 1;
        (packet.time_ns, packet.port, packet.mark) =
            (self.made.into(), self.made as u16, self.made);
        self.all.push(Twins { packet, bytes, number: self.made });
    }

    /// Does `op` to packet `which` and to its twin.
    fn step(&mut self, which: Index, op: &Op) {
        let free = self.free_cells();
        if self.all.is_empty() && !matches!(op, Op::Copy(_)) {
            return;
        }
        let i = if self.all.is_empty() { 0 } else { which.index(self.all.len()) };
        let pool = &mut self.pool;
        // Now and then one byte behind the end.
        let place = |t: &Twins, at: &Index| at.index(t.bytes.len() + 2);
        match op {
            Op::Copy(len) => {
                let bytes = pattern(*len, self.made as u8);
                let packet = Packet::copy_from(pool, &bytes);
                assert_eq!(packet.is_some(), len.div_ceil(CELL_CAPACITY).max(1) <= free);
                if let Some(packet) = packet {
                    self.add(packet, bytes);
                }
            }
            Op::GrowFront(n) => {
                let t = &mut self.all[i];
                let fits = *n <= t.packet.headroom() || n.div_ceil(CELL_CAPACITY) <= free;
                assert_eq!(t.packet.grow_front(pool, *n), fits);
                if fits {
                    t.bytes.splice(..0, std::iter::repeat_n(0, *n));
                }
            }
            Op::GrowBack(n) => {
                let t = &mut self.all[i];
                let cells = t.packet.cells();
                let grown = t.packet.grow_back(pool, *n);
                assert!(grown || n.div_ceil(CELL_CAPACITY) > free);
                assert!(t.packet.cells() - cells <= n.div_ceil(CELL_CAPACITY));
                if grown {
                    t.bytes.resize(t.bytes.len() + n, 0);
                }
            }
            Op::PushFront(n) => {
                let t = &mut self.all[i];
                let fits = *n <= t.packet.headroom();
                assert_eq!(t.packet.push_front(*n), fits);
                if fits {
                    t.packet.data_mut()[..*n].fill(9);
                    t.bytes.splice(..0, std::iter::repeat_n(9, *n));
                }
            }
            Op::PullFront(at) => {
                let t = &mut self.all[i];
                let n = place(t, at);
                let fits = n <= t.packet.data().len();
                assert_eq!(t.packet.pull_front(n), fits);
                if fits {
                    t.bytes.drain(..n);
                }
            }
            Op::ShrinkFront(at) => {
                let t = &mut self.all[i];
                let n = place(t, at);
                let fits = n <= t.bytes.len();
                assert_eq!(t.packet.shrink_front(pool, n), fits);
                if fits {
                    t.bytes.drain(..n);
                    assert!(t.packet.cells() == 1 || !t.packet.data().is_empty());
                }
            }
            Op::Truncate(at) => {
                let t = &mut self.all[i];
                let len = place(t, at);
                assert_eq!(t.packet.truncate(pool, len), len <= t.bytes.len());
                t.bytes.truncate(len);
            }
            Op::Split(at) => {
                let t = &mut self.all[i];
                let at = place(t, at);
                let cells = t.packet.cells();
                let Some(tail) = t.packet.split(pool, at) else {
                    assert!(at > t.bytes.len() || free == 0);
                    return;
                };
                let bytes = t.bytes.split_off(at);
                assert!(t.packet.cells() + tail.cells() <= cells + 1);
                assert_eq!((tail.time_ns, tail.mark), (t.number.into(), t.number));
                assert_eq!(tail.port, t.number as u16);
                self.add(tail, bytes);
            }
            Op::Append(other) => {
                let j = other.index(self.all.len());
                if i != j {
                    let other = self.all.swap_remove(j);
                    // The last one has moved to place `j`.
                    let i = if i == self.all.len() { j } else { i };
                    let t = &mut self.all[i];
                    t.packet.append(other.packet).expect("few cells");
                    t.bytes.extend(other.bytes);
                }
            }
            Op::Linearise(n) => {
                let t = &mut self.all[i];
                let fits = *n <= t.bytes.len() && *n <= CELL_FRAME_BYTES;
                let before = t.packet.cells();
                // What lies in one piece already is more than is asked for.
                let fits = fits || *n <= t.packet.data().len();
                assert_eq!(t.packet.linearise(pool, *n), fits);
                assert!(!fits || t.packet.data().len() >= *n);
                assert!(t.packet.cells() <= before);
            }
            Op::Linear(a, b) => {
                let t = &self.all[i];
                let (a, b) = (place(t, a), place(t, b));
                let (a, b) = (a.min(b), a.max(b));
                let view = t.packet.linear(a..b, &mut self.scratch);
                assert_eq!(view, t.bytes.get(a..b));
                let mut out = vec![1; b - a];
                assert_eq!(t.packet.read_at(a, &mut out), b <= t.bytes.len());
                match t.bytes.get(a..b) {
                    Some(bytes) => assert_eq!(out, bytes),
                    None => assert!(out.iter().all(|&b| b == 1)),
                }
            }
            Op::Write(at, len, seed) => {
                let t = &mut self.all[i];
                let (at, bytes) = (place(t, at), pattern(*len, *seed));
                let fits = at + len <= t.bytes.len();
                assert_eq!(t.packet.write_at(at, &bytes), fits);
                if fits {
                    t.bytes[at..at + len].copy_from_slice(&bytes);
                }
            }
            Op::WriteAll(seed) => {
                let t = &mut self.all[i];
                let bytes = pattern(t.bytes.len() + 5, *seed);
                t.packet.write_all(&bytes);
                t.bytes.copy_from_slice(&bytes[..bytes.len() - 5]);
            }
            Op::Duplicate => {
                let t = &self.all[i];
                if let Some(copy) = t.packet.duplicate(pool) {
                    assert_eq!((copy.time_ns, copy.mark), (t.number.into(), t.number));
                    let bytes = t.bytes.clone();
                    self.add(copy, bytes);
                } else {
                    assert!(free < t.packet.cells().max(t.bytes.len().div_ceil(CELL_CAPACITY)));
                }
            }
            Op::Free => {
                self.all.swap_remove(i).packet.free(pool);
            }
        }
    }

    fn check(&self) {
        for t in &self.all {
            assert_eq!(t.packet.frame_len(), t.bytes.len());
            assert_eq!(t.packet.segments().count(), t.packet.cells());
            assert!(t.packet.segments().collect::<Vec<_>>().concat() == t.bytes);
            assert!(t.packet.data() == &t.bytes[..t.packet.data().len()]);
            assert_eq!((t.packet.time_ns, t.packet.mark), (t.number.into(), t.number));
            assert_eq!(t.packet.port, t.number as u16);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_operations_do_what_a_vector_does(
        ops in prop::collection::vec((any::<Index>(), op()), 1..60),
    ) {
        let (_, depot) = Region::new(CELLS, HugePages::Off).unwrap();
        let pool = Pool::new(depot.clone(), 4);
        let mut bench = Bench { pool, all: Vec::new(), scratch: Vec::new(), made: 0 };
        for (which, op) in &ops {
            bench.step(*which, op);
            bench.check();
        }
        let Bench { mut pool, all, .. } = bench;
        for t in all {
            t.packet.free(&mut pool);
        }
        drop(pool);
        prop_assert_eq!(depot.available(), CELLS as usize);
    }
}

/// A pool of `cells` cells.
fn pool_of(cells: u32) -> (Pool, std::sync::Arc<crate::Depot>) {
    let (_, depot) = Region::new(cells, HugePages::Off).unwrap();
    (Pool::new(depot.clone(), 4), depot)
}

#[test]
fn a_frame_that_finds_too_few_cells_keeps_none() {
    let (mut pool, depot) = pool_of(3);
    assert!(Packet::copy_from(&mut pool, &[1; 6000]).is_none());
    drop(pool);
    assert_eq!(depot.available(), 3);
}

#[test]
fn what_grows_is_zero_also_where_cells_were_used_before() {
    let (mut pool, depot) = pool_of(4);
    Packet::copy_from(&mut pool, &[7; 4 * CELL_CAPACITY]).unwrap().free(&mut pool);
    let mut p = Packet::copy_from(&mut pool, &[1; 10]).unwrap();
    assert!(p.grow_front(&mut pool, 2500) && p.grow_back(&mut pool, 300));
    let mut expected = vec![0; 2500];
    expected.extend([1; 10]);
    expected.extend([0; 300]);
    assert_eq!(p.segments().collect::<Vec<_>>().concat(), expected);
    assert_eq!(p.cells(), 3);
    assert!(!p.grow_front(&mut pool, 1 + 2 * CELL_CAPACITY), "one cell is left");
    assert!(!p.grow_back(&mut pool, 3 * CELL_BYTES), "one cell is left");
    assert_eq!(p.segments().collect::<Vec<_>>().concat(), expected);
    p.free(&mut pool);
    drop(pool);
    assert_eq!(depot.available(), 4);
}

#[test]
fn a_cell_full_to_its_link_can_be_split_anywhere() {
    let (mut pool, _) = pool_of(3);
    let bytes = pattern(CELL_FRAME_BYTES, 3);
    for at in [0, 1, 100, CELL_CAPACITY, CELL_FRAME_BYTES - 1, CELL_FRAME_BYTES] {
        let mut cell = pool.get().unwrap();
        cell.bytes_mut()[LINK_BYTES..].copy_from_slice(&bytes);
        let mut p = Packet::from_cell(cell, LINK_BYTES, CELL_FRAME_BYTES);
        let tail = p.split(&mut pool, at).unwrap();
        assert!((p.data(), tail.data()) == bytes.split_at(at), "at {at}");
        p.append(tail).unwrap();
        assert!(p.linearise(&mut pool, CELL_FRAME_BYTES));
        assert!(p.data() == bytes, "at {at}");
        assert!(
            p.cells() == 1 || at == CELL_FRAME_BYTES,
            "only what was in one piece is left as it is"
        );
        p.free(&mut pool);
    }
}

#[test]
fn the_placeholder_of_a_packet_neither_grows_nor_joins() {
    let (mut pool, _) = pool_of(2);
    let mut none = Packet::empty();
    assert!(!none.grow_front(&mut pool, 0) && !none.grow_back(&mut pool, 3));
    assert!(none.split(&mut pool, 0).is_none());
    assert!(none.truncate(&mut pool, 0) && !none.truncate(&mut pool, 1));
    assert!(!none.shrink_front(&mut pool, 1) && !none.linearise(&mut pool, 1));
    assert_eq!(none.linear(0..1, &mut Vec::new()), None);
    let mut p = Packet::copy_from(&mut pool, &[1]).unwrap();
    let none = p.append(none).expect_err("there is nothing to append");
    let p = { none }.append(p).expect_err("there is nothing to append to");
    assert_eq!(p.data(), [1]);
    p.free(&mut pool);
}

#[test]
fn a_frame_is_at_most_as_long_as_its_extent_counts() {
    if cfg!(miri) {
        return; // megabytes
    }
    const MOST: usize = FRAME_BYTES_MAX;
    let cells = MOST.div_ceil(CELL_CAPACITY);
    let (mut pool, depot) = pool_of(cells as u32 + 2);
    assert!(Packet::copy_from(&mut pool, &vec![0; MOST + 1]).is_none());
    let mut p = Packet::copy_from(&mut pool, &vec![5; MOST]).unwrap();
    assert_eq!((p.cells(), p.frame_len()), (cells, MOST));
    assert!(!p.grow_back(&mut pool, 1) && !p.grow_front(&mut pool, 1000));
    let headroom = p.headroom();
    assert!(p.grow_front(&mut pool, headroom), "the headroom needs no cell");
    let one = Packet::copy_from(&mut pool, &[1]).unwrap();
    let one = p.append(one).expect_err("no more bytes can be counted");
    assert_eq!((p.cells(), p.frame_len()), (cells, MOST + headroom));
    one.free(&mut pool);
    p.free(&mut pool);
    drop(pool);
    assert_eq!(depot.available(), cells + 2);
}

#[test]
fn a_chain_has_at_most_as_many_cells_as_its_extent_counts() {
    if cfg!(miri) {
        return; // thousands of cells
    }
    const MOST: usize = FRAME_CELLS_MAX;
    let (mut pool, depot) = pool_of(MOST as u32 + 2);
    let mut p = Packet::copy_from(&mut pool, &[0]).unwrap();
    for i in 1..MOST {
        let one = Packet::copy_from(&mut pool, &[i as u8]).unwrap();
        p.append(one).unwrap();
    }
    assert_eq!((p.cells(), p.frame_len()), (MOST, MOST));
    let one = Packet::copy_from(&mut pool, &[1]).unwrap();
    let one = p.append(one).expect_err("no more cells can be counted");
    assert!(!p.grow_front(&mut pool, 1000) && !p.grow_back(&mut pool, 5000));
    assert_eq!((p.cells(), p.frame_len()), (MOST, MOST));
    one.free(&mut pool);
    p.free(&mut pool);
    drop(pool);
    assert_eq!(depot.available(), MOST + 2);
}
