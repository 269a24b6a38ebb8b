//! The columns of an OpenFlow switch with a device: keys in, paths out.
//!
//! ```text
//!  key0   port of entry, MACs                    key3, key4   the upper words of addresses; target of neighbour discovery
//!  key1   EtherType and tag … ports, source      key5, key6   its other words, MACs of ARP, service of PBB
//!  key2   destination, flow label, label, flags  path0, path1 the flow of each table that the packet meets
//! ```
//!
//! Words of a key ([`flowtable::Key`]), four to a column. Metadata and tunnel begin as zero, and the physical port is that of
//! entry: these have no place.

use chunk::ColumnId;
use flowtable::Key;
use flowtable::walk::{Path, STEPS};

chunk::columns! {
    /// Columns of `flow_tables`.
    pub struct KeyColumns / KeyView {
        /// Words 4 to 7 of the key.
        pub openflow_key0: [u64; 2],
        /// Words 8, 9, 10 and 14.
        pub openflow_key1: [u64; 2],
        /// Words 18, 26 and 27, and [flags](flowtable::walk::flags); 0: the row is not looked up.
        pub openflow_key2: [u64; 2],
        /// Words 11, 12, 13 and 15.
        pub openflow_key3: [u64; 2],
        /// Words 16, 17, 19 and 20.
        pub openflow_key4: [u64; 2],
        /// Words 21 to 24.
        pub openflow_key5: [u64; 2],
        /// Words 25 and 28, and zeros.
        pub openflow_key6: [u64; 2],
        /// The first four flows of the [path](flowtable::walk::Path). Written for every row.
        pub openflow_path0: [u64; 2],
        /// The others.
        pub openflow_path1: [u64; 2],
    }
}

/// Where the words of a key are; 32: the flags, above: nothing.
const PLACES: [[usize; 4]; 7] = [
    [4, 5, 6, 7],
    [8, 9, 10, 14],
    [18, 26, 27, 32],
    [11, 12, 13, 15],
    [16, 17, 19, 20],
    [21, 22, 23, 24],
    [25, 28, 33, 34],
];

/// The columns of keys.
pub const KEYS: [ColumnId; 7] = [
    KeyColumns::OPENFLOW_KEY0,
    KeyColumns::OPENFLOW_KEY1,
    KeyColumns::OPENFLOW_KEY2,
    KeyColumns::OPENFLOW_KEY3,
    KeyColumns::OPENFLOW_KEY4,
    KeyColumns::OPENFLOW_KEY5,
    KeyColumns::OPENFLOW_KEY6,
];

/// The columns of paths.
pub const PATHS: [ColumnId; 2] = [KeyColumns::OPENFLOW_PATH0, KeyColumns::OPENFLOW_PATH1];

/// A key and the flags of its packet as they are in [`KEYS`].
pub fn columns_of(key: &Key, flags: u32) -> [[u64; 2]; 7] {
    let word = |at: usize| match at {
        32 => flags,
        _ => key.0.get(at).copied().unwrap_or_default(),
    };
    PLACES.map(|places| pair(places.map(word)))
}

/// A path as it is in [`PATHS`].
pub fn path_of(path: &Path) -> [[u64; 2]; 2] {
    let [a, b, c, d, e, f, g, h] = path.0;
    [pair([a, b, c, d]), pair([e, f, g, h])]
}

fn pair([a, b, c, d]: [u32; 4]) -> [u64; 2] {
    [u64::from(b) << 32 | u64::from(a), u64::from(d) << 32 | u64::from(c)]
}

fn quad([low, high]: [u64; 2]) -> [u32; 4] {
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}

impl KeyView<'_> {
    /// The columns of keys.
    fn keys(&mut self) -> [&mut [[u64; 2]]; 7] {
        [
            self.openflow_key0,
            self.openflow_key1,
            self.openflow_key2,
            self.openflow_key3,
            self.openflow_key4,
            self.openflow_key5,
            self.openflow_key6,
        ]
    }

    /// The row is not to be looked up.
    pub fn leave(&mut self, row: usize) {
        self.openflow_key2[row] = [0; 2];
    }

    /// The key of a row that is to be looked up.
    pub fn put(&mut self, row: usize, key: &Key, flags: u32) {
        for (column, value) in self.keys().into_iter().zip(columns_of(key, flags)) {
            column[row] = value;
        }
    }

    /// What was put.
    pub fn get(&mut self, row: usize) -> (Key, u32) {
        let (mut key, mut flags) = (Key::default(), 0);
        for (column, places) in self.keys().into_iter().zip(PLACES) {
            for (at, word) in places.into_iter().zip(quad(column[row])) {
                match key.0.get_mut(at) {
                    Some(own) => *own = word,
                    None if at == 32 => flags = word,
                    None => {}
                }
            }
        }
        key.0[29] = key.0[4];
        (key, flags)
    }

    /// Writes the path of a row.
    pub fn put_path(&mut self, row: usize, path: &Path) {
        [self.openflow_path0[row], self.openflow_path1[row]] = path_of(path);
    }

    /// The path of a row.
    pub fn path(&self, row: usize) -> Path {
        let mut path = [0; STEPS];
        path[..4].copy_from_slice(&quad(self.openflow_path0[row]));
        path[4..].copy_from_slice(&quad(self.openflow_path1[row]));
        Path(path)
    }
}

#[cfg(test)]
mod tests {
    use chunk::{Arena, Columns, Layout};

    use super::*;

    #[test]
    fn keys_are_got_as_they_were_put() {
        let mut rows =
            Arena::new(Layout::join(&[KeyColumns::COLUMNS], 4).unwrap()).reserve(4).unwrap();
        let mut view = KeyColumns::view(&mut rows);
        let mut key = Key(std::array::from_fn(|at| if at < 4 { 0 } else { 100 + at as u32 }));
        (key.0[29], key.0[30], key.0[31]) = (key.0[4], 0, 0);
        view.put(2, &key, 7);
        assert_eq!(view.get(2), (key, 7));
        view.leave(2);
        assert_eq!(view.get(2).1, 0);
        let path = Path(std::array::from_fn(|at| at as u32));
        view.put_path(3, &path);
        assert_eq!(view.path(3), path);
    }
}
