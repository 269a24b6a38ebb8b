//! Shares of the table of pending Interests: how much of it one face, and all faces of one port, may hold.
//!
//! A port may hold as much as is free (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2),
//! 1998), and each of its faces as much as its port may still have. With `n` faces of each of `m` ports that ask without
//! end, a face gets `1 / (1 + n + m·n)` of the table: some room always stays free, on the table for other ports and within
//! the share of a port for its other faces. Ports count, because on one port a neighbour may have many faces on demand.
//!
//! ```text
//!  one face of one port      │██████████│          │              free: others find room               │
//!                             face 1/3   for other faces of the port
//!  two faces of one port     │██████│██████│       │              free                                 │   1/5 each
//!  a face of each of two     │████████│████████│   │              free                                 │   1/4 each
//! ```
//!
//! Entries, in-records and blocks of names are held, each of which may run short first. An entry and its name belong to
//! the face that asked first.

/// Entries, in-records and blocks.
pub(super) type Amounts = [u32; 3];

/// Faces that are counted by themselves; with more, some share a count.
const FACES: usize = 1 << 15;

/// Likewise ports.
const PORTS: usize = 1 << 12;

/// Whom something in the table belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) face: u16,
    pub(super) port: u16,
}

/// What is held.
#[derive(Debug)]
pub(super) struct Shares {
    faces: Vec<Amounts>,
    ports: Vec<Amounts>,
}

impl Shares {
    pub(super) fn new() -> Self {
        Self { faces: vec![[0; 3]; FACES], ports: vec![[0; 3]; PORTS] }
    }

    /// Whether `holder` may have `more`, when so much is free.
    pub(super) fn allows(&self, holder: Holder, more: Amounts, free: Amounts) -> bool {
        let [face, port] = Self::places(holder);
        let (face, port) = (&self.faces[face], &self.ports[port]);
        (0..free.len()).all(|at| {
            let left = free[at].saturating_sub(port[at]); // what the port may still have
            more[at] == 0 || face[at] + more[at] <= left
        })
    }

    pub(super) fn take(&mut self, holder: Holder, amounts: Amounts) {
        self.each(holder, amounts, |held, more| held + more);
    }

    pub(super) fn give(&mut self, holder: Holder, amounts: Amounts) {
        self.each(holder, amounts, |held, less| held - less);
    }

    fn each(&mut self, holder: Holder, amounts: Amounts, change: impl Fn(u32, u32) -> u32) {
        let [face, port] = Self::places(holder);
        for held in [&mut self.faces[face], &mut self.ports[port]] {
            for (held, amount) in held.iter_mut().zip(amounts) {
                *held = change(*held, amount);
            }
        }
    }

    fn places(holder: Holder) -> [usize; 2] {
        [usize::from(holder.face) % FACES, usize::from(holder.port) % PORTS]
    }
}
