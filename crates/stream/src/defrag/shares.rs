//! Which address pair holds the most of a resource, and lists in arrays.
//!
//! ```text
//!  amount 1: pair 7 ⇄ pair 2 ⇄ pair 9        in the order in which they came to this amount
//!  amount 2: -
//!  amount 3: pair 4                     ◀── most: this pair loses its oldest datagram
//! ```
//!
//! A pair moves from list to list as its amount changes, so that each step takes constant time; the highest amount goes
//! down by as many steps as it went up. Of several pairs with the most, the one that has had it for the longest gives way:
//! if each pair has one datagram, as under a flood with forged addresses, that is the oldest of all.
//!
//! All memory is taken at creation.

/// The end of a list, a place that is not used.
pub(super) const NONE: u32 = u32::MAX;

/// Doubly linked lists over items that have numbers. An item is in one list at most.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// By item: the one before and the one behind it.
    links: Vec<[u32; 2]>,
    /// By list: first and last item.
    ends: Vec<[u32; 2]>,
}

impl Lists {
    pub(super) fn new(lists: usize, items: usize) -> Self {
        Self { links: vec![[NONE; 2]; items], ends: vec![[NONE; 2]; lists] }
    }

    /// The item that is in a list for the longest.
    pub(super) fn first(&self, list: usize) -> Option<u32> {
        self.ends.get(list).map(|ends| ends[0]).filter(|item| *item != NONE)
    }

    pub(super) fn push(&mut self, list: usize, item: u32) {
        let last = std::mem::replace(&mut self.ends[list][1], item);
        self.links[item as usize] = [last, NONE];
        match self.links.get_mut(last as usize) {
            Some(link) => link[1] = item,
            None => self.ends[list][0] = item,
        }
    }

    /// Removes an item that is in `list`.
    pub(super) fn remove(&mut self, list: usize, item: u32) {
        let [before, behind] = std::mem::replace(&mut self.links[item as usize], [NONE; 2]);
        match self.links.get_mut(before as usize) {
            Some(link) => link[1] = behind,
            None => self.ends[list][0] = behind,
        }
        match self.links.get_mut(behind as usize) {
            Some(link) => link[0] = before,
            None => self.ends[list][1] = before,
        }
    }
}

/// The amounts that pairs hold of one resource.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// By pair.
    amounts: Vec<u32>,
    /// By amount.
    pairs: Lists,
    most: u32,
}

impl Shares {
    /// For `pairs` pairs that hold at most `total`.
    pub(super) fn new(pairs: usize, total: usize) -> Self {
        Self { amounts: vec![0; pairs], pairs: Lists::new(total + 1, pairs), most: 0 }
    }

    /// What a pair holds.
    pub(super) fn amount(&self, pair: u32) -> u32 {
        self.amounts[pair as usize]
    }

    /// A pair holds `amount` from now on.
    pub(super) fn set(&mut self, pair: u32, amount: u32) {
        let before = std::mem::replace(&mut self.amounts[pair as usize], amount);
        if before == amount {
            return;
        }
        if before > 0 {
            self.pairs.remove(before as usize, pair);
        }
        if amount > 0 {
            self.pairs.push(amount as usize, pair);
        }
        self.most = self.most.max(amount);
        while self.most > 0 && self.pairs.first(self.most as usize).is_none() {
            self.most -= 1;
        }
    }

    /// The pair with the most; `None` if no pair has any.
    pub(super) fn largest(&self) -> Option<u32> {
        (self.most > 0).then(|| self.pairs.first(self.most as usize)).flatten()
    }
}

/// Finds numbered items by the hashes of their keys: chains in arrays.
#[derive(Clone, Debug)]
pub(super) struct Index {
    heads: Vec<u32>,
    next: Vec<u32>,
}

impl Index {
    pub(super) fn new(items: usize) -> Self {
        let heads = items.saturating_mul(2).next_power_of_two();
        Self { heads: vec![NONE; heads], next: vec![NONE; items] }
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    /// The item of this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut item = self.heads[self.bucket(hash)];
        while item != NONE {
            if is_it(item) {
                return Some(item);
            }
            item = self.next[item as usize];
        }
        None
    }

    pub(super) fn insert(&mut self, hash: u64, item: u32) {
        let bucket = self.bucket(hash);
        self.next[item as usize] = std::mem::replace(&mut self.heads[bucket], item);
    }

    /// Removes an item that was inserted with this hash.
    pub(super) fn remove(&mut self, hash: u64, item: u32) {
        let behind = std::mem::replace(&mut self.next[item as usize], NONE);
        let bucket = self.bucket(hash);
        if self.heads[bucket] == item {
            self.heads[bucket] = behind;
            return;
        }
        let mut at = self.heads[bucket];
        while at != NONE && self.next[at as usize] != item {
            at = self.next[at as usize];
        }
        if let Some(next) = self.next.get_mut(at as usize) {
            *next = behind;
        }
    }
}
