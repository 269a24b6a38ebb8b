//! Keys: the one of the file, and those of connections.
//!
//! ```text
//!  key file ─▶ Master ─ HKDF(cipher, addresses, ports, protocol) ─▶ Connections: sets of 4, a table of fixed size per worker
//! ```
//!
//! A connection has a key for each direction: what is derived depends on who sends to whom. A table that is full forgets
//! the key that was used longest ago; it is derived again when its connection goes on, so nothing depends on the size but
//! time. A worker wipes its keys before the first packet behind a change
//! of the key, and when the program ends.
//!
//! Threads: the master is shared, a table belongs to one worker.

use std::hash::{BuildHasher, RandomState};

use crypto::derive::{Derivation, Derived};
use crypto::modes::{Mode, RawKey, VectorKey};
use crypto::{Secret, SecretWords};
use kernels::cipher::sha256_record;

use super::settings::{Keys, Settings};
use crate::key_file;

/// Bytes of keys of `keys = "connection"`.
const MASTER: std::ops::RangeInclusive<usize> = 16..=64;
/// The salt of HKDF: what these keys are for.
const SALT: &[u8] = b"shadeline cipher";
/// Ways of a set.
const WAYS: usize = 4;

/// Bytes that name one direction of a connection: IP version, protocol, source and destination (IPv4 in the last 4 of 16
/// bytes), source port and destination port.
pub const NAME: usize = 38;

/// One direction of a connection.
pub type Name = [u8; NAME];

/// A key for text, and one for initialisation vectors.
pub struct Pair {
    /// That of the cipher.
    pub text: RawKey,
    /// That of initialisation vectors.
    pub vector: VectorKey,
}

/// What is made of the file. Nothing of it is ever printed.
pub struct Master {
    mode: Mode,
    key_len: usize,
    /// The cipher, for the derivation.
    label: String,
    derivation: Derivation,
    /// For all packets.
    fixed: Option<Pair>,
    /// What a device makes keys of, as `kernels/secrets.k` has it.
    words: SecretWords,
}

/// Words of the image's region.
const REGION_WORDS: usize = 64;
/// Where in it the state of HMAC is, and where the keys of all packets are.
const REGION_DERIVATION: usize = 8;
const REGION_FIXED: usize = 40;

impl Master {
    /// Of the file that the settings name.
    ///
    /// # Errors
    /// Why there is no key, in words that do not have the key.
    pub fn open(settings: &Settings) -> Result<Self, String> {
        settings.check()?;
        if settings.key_file.as_os_str().is_empty() {
            return Err(
                "`key_file` is missing: `[stage.NAME]` must name a file with the key".to_owned()
            );
        }
        let key = key_file::read_one(&settings.key_file)?;
        let shown = settings.key_file.display();
        Self::new(settings, &key).map_err(|error| format!("{shown}: {error}"))
    }

    /// Of a key.
    ///
    /// # Errors
    /// Its length is wrong.
    pub fn new(settings: &Settings, key: &Secret) -> Result<Self, String> {
        let (mode, key_len) = (settings.mode(), settings.key_len());
        let label = settings.name();
        let pseudorandom = Derivation::extract(SALT, key);
        let derivation = Derivation::of(&pseudorandom);
        let mut words = SecretWords::zeros(REGION_WORDS);
        words.take(0, &mut [u32::from(settings.keys == Keys::Static), key_len as u32]);
        words.set_bytes(2, label.as_bytes()); // and a zero byte
        if let Some(mut record) = sha256_record(Some(pseudorandom.expose())) {
            words.take(REGION_DERIVATION, &mut record);
        }
        let mut own = Self { mode, key_len, label, derivation, fixed: None, words };
        match settings.keys {
            Keys::Static if key.len() != key_len => Err(format!(
                "the key has {} bytes: {} with `keys = \"static\"` needs {key_len}",
                key.len(),
                own.label
            )),
            Keys::Static => {
                let made = own.derive(b"static");
                own.fixed = Some(own.pair(key.expose(), &made)?);
                own.words.set_bytes(REGION_FIXED, key.expose());
                own.words.set_bytes(REGION_FIXED + 8, &made.expose()[32..]);
                Ok(own)
            }
            Keys::Connection if !MASTER.contains(&key.len()) => {
                Err(format!("the key has {} bytes: expected 16 to 64", key.len()))
            }
            Keys::Connection => Ok(own),
        }
    }

    fn derive(&self, name: &[u8]) -> Derived<64> {
        self.derivation.expand(&[self.label.as_bytes(), &[0], name])
    }

    fn pair(&self, key: &[u8], made: &Derived<64>) -> Result<Pair, String> {
        let [.., vector] = made.expose().as_chunks::<32>().0 else { return Err(String::new()) };
        let text = RawKey::from_bytes(self.mode, key).map_err(|error| error.to_string())?;
        Ok(Pair { text, vector: VectorKey::new(vector) })
    }

    /// The keys of one direction of a connection.
    fn pair_of(&self, name: &Name) -> Option<Pair> {
        let made = self.derive(name);
        self.pair(&made.expose()[..self.key_len], &made).ok()
    }
}

/// The keys of connections that one worker has at hand.
pub struct Connections {
    slots: Box<[Slot]>,
    sets: usize,
    hasher: RandomState,
    /// Batches so far.
    batch: u64,
    /// Keys that were derived and not yet counted.
    derived: u64,
}

struct Slot {
    name: Name,
    /// The batch that used it last.
    batch: u64,
    pair: Option<Pair>,
}

impl Connections {
    /// Room for at least so many.
    pub fn new(count: usize) -> Self {
        let sets = count.div_ceil(WAYS).max(1);
        let empty = || Slot { name: [0; NAME], batch: 0, pair: None };
        let slots = std::iter::repeat_with(empty).take(sets * WAYS).collect();
        Self { slots, sets, hasher: RandomState::new(), batch: 0, derived: 0 }
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.pair = None);
    }

    /// A batch begins: keys that it uses stay until the next one begins.
    pub fn begin(&mut self) {
        self.batch += 1;
    }

    /// The slot with the keys of a name. `None`: its set is full of keys that the batch uses.
    pub fn find(&mut self, name: &Name, master: &Master) -> Option<usize> {
        let first = (self.hasher.hash_one(name) as usize % self.sets) * WAYS;
        let set = &mut self.slots[first..first + WAYS];
        let known = set.iter().position(|slot| slot.pair.is_some() && slot.name == *name);
        let at = match known {
            Some(at) => at,
            None => {
                let batch = self.batch;
                let free = set
                    .iter()
                    .enumerate()
                    .filter(|(_, slot)| slot.pair.is_none() || slot.batch < batch);
                let (at, _) = free.min_by_key(|(_, slot)| (slot.pair.is_some(), slot.batch))?;
                set[at].pair = None; // wiped first
                set[at].pair = Some(master.pair_of(name)?);
                set[at].name = *name;
                self.derived += 1;
                at
            }
        };
        set[at].batch = self.batch;
        Some(first + at)
    }

    /// The keys in a slot, or those of all packets.
    pub fn pair<'a>(&'a self, slot: usize, master: &'a Master) -> Option<&'a Pair> {
        master.fixed.as_ref().or_else(|| self.slots.get(slot)?.pair.as_ref())
    }

    /// How many keys were derived since the last time.
    pub fn take_derived(&mut self) -> u64 {
        std::mem::take(&mut self.derived)
    }
}

impl Master {
    /// Whether all packets have the same key.
    pub fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// What a device makes keys of.
    pub fn words(&self) -> &[u32] {
        self.words.expose()
    }
}
