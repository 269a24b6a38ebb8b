//! A plain binary trie: the reference that the fast tables are tested against, and `--algorithm trie`.
//!
//! One bit of the address per node, the last next hop seen on the way is the answer. Nodes lie in
//! one vector and name each other by index.
//!
//! Thread rule: `&mut` changes, `&` looks up.

use crate::rib::Rib;
use crate::{Address, Lpm, NO_ROUTE, NextHopId, Prefix};

/// A binary trie over addresses `A`. Insert, remove and lookup take a step per bit.
#[derive(Debug, Clone)]
pub struct Trie<A> {
    nodes: Vec<Node>, // nodes[0] is the root
    _address: std::marker::PhantomData<A>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    children: [u32; 2], // 0: none
    next_hop: NextHopId,
}

impl<A: Address> Trie<A> {
    /// An empty trie.
    pub fn new() -> Self {
        Self { nodes: vec![Node::default()], _address: std::marker::PhantomData }
    }

    /// All prefixes of `rib`.
    pub fn build(rib: &Rib<A>) -> Self {
        let mut trie = Self::new();
        for (prefix, next_hop) in rib.iter() {
            trie.insert(prefix, next_hop);
        }
        trie
    }

    /// Adds or replaces; the next hop that stood there before.
    pub fn insert(&mut self, prefix: Prefix<A>, next_hop: NextHopId) -> Option<NextHopId> {
        let mut at = 0;
        for index in 0..prefix.len() {
            let side = usize::from(prefix.addr().bit(index));
            if self.nodes[at].children[side] == 0 {
                self.nodes[at].children[side] = self.nodes.len() as u32;
                self.nodes.push(Node::default());
            }
            at = self.nodes[at].children[side] as usize;
        }
        let before = std::mem::replace(&mut self.nodes[at].next_hop, next_hop);
        (before != NO_ROUTE).then_some(before)
    }

    /// Takes away exactly this prefix; its next hop. Nodes stay for later use.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        let mut at = 0;
        for index in 0..prefix.len() {
            at = self.nodes[at].children[usize::from(prefix.addr().bit(index))] as usize;
            if at == 0 {
                return None;
            }
        }
        let before = std::mem::replace(&mut self.nodes[at].next_hop, NO_ROUTE);
        (before != NO_ROUTE).then_some(before)
    }

    /// The next hop of one address, or [`NO_ROUTE`].
    pub fn lookup_one(&self, key: A::Key) -> NextHopId {
        let addr = A::from_key(key);
        let mut node = self.nodes[0];
        let mut best = node.next_hop;
        for index in 0..A::WIDTH {
            let child = node.children[usize::from(addr.bit(index))] as usize;
            if child == 0 {
                break;
            }
            node = self.nodes[child];
            if node.next_hop != NO_ROUTE {
                best = node.next_hop;
            }
        }
        best
    }

    /// Memory in use, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
}

impl<A: Address> Default for Trie<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Address> Lpm<A::Key> for Trie<A> {
    fn lookup(&self, keys: &[A::Key], out: &mut [NextHopId]) {
        assert_eq!(keys.len(), out.len());
        for (key, out) in keys.iter().zip(out) {
            *out = self.lookup_one(*key);
        }
    }
}
