//! Keys of associations as a part of the tables, so that a packet has the key of its version wherever it is sealed or opened.
//!
//! ```text
//!  Database ─ Places::look ─▶ patches ─▶ version n: │ association │ – │ association │ …   by place
//!                                                   └ records of words ─▶ a region of a device's image
//! ```
//!
//! A patch only knows where an association is: a log of changes keeps no key. An association that has ended leaves both copies
//! of the tables with the next two versions, and an image of a device when the next job is sent, as all regions with keys do
//! (`device::tables`).
//!
//! Threads: control makes patches, workers read versions.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Weak};

use controlplane::{PartId, TablePart, Tables, TablesPatch};
use crypto::{Authentication, Encryption, SecretWords, Suite};
use device::tables::Change;
use ipsec::{Association, Database};
use kernels::cipher::{aes_record, ghash_powers, sha1_record, sha256_record};
use lookup::versions::Patchable;

/// Associations that devices can have at a time; workers do those beyond.
pub const PLACES_MAX: usize = 16_384;
/// Places at first.
const PLACES: usize = 64;

/// Words of the record of an association.
pub const KEY_WORDS: usize = 136;
/// Powers of the key of Galois' hash in it.
pub const POWERS: usize = 16;

/// Words of a record, as `kernels/esp.k` has them.
pub mod word {
    /// One of [`cipher`](super::cipher); 0: there is no key.
    pub const CIPHER: usize = 0;
    /// One of [`mac`](super::mac).
    pub const MAC: usize = 1;
    /// The salt, its first byte lowest.
    pub const SALT: usize = 2;
    /// Bytes of the check value.
    pub const ICV: usize = 3;
    /// 1: sequence numbers are extended.
    pub const EXTENDED: usize = 4;
    /// The expanded key of AES, 64 words.
    pub const AES: usize = 8;
    /// Powers of the key of Galois' hash, or the states of HMAC.
    pub const HASH: usize = 72;
}

/// How a text is encrypted.
pub mod cipher {
    /// Not at all.
    pub const NULL: u32 = 1;
    /// AES-CTR.
    pub const CTR: u32 = 2;
    /// AES-CBC.
    pub const CBC: u32 = 3;
    /// AES-GCM.
    pub const GCM: u32 = 4;
    /// AES-GMAC.
    pub const GMAC: u32 = 5;
}

/// How a packet is authenticated.
pub mod mac {
    /// By Galois' hash.
    pub const GHASH: u32 = 0;
    /// HMAC-SHA1-96.
    pub const SHA1: u32 = 1;
    /// HMAC-SHA-256-128.
    pub const SHA256: u32 = 2;
}

/// The words for cipher and authentication of a suite; none if there are no kernels for it.
fn kinds(suite: Suite) -> Option<(u32, u32)> {
    let cipher = match suite.encryption() {
        Encryption::Null => cipher::NULL,
        Encryption::AesCtr(_) => cipher::CTR,
        Encryption::AesCbc(_) => cipher::CBC,
        Encryption::AesGcm(..) => cipher::GCM,
        Encryption::AesGmac(_) => cipher::GMAC,
        Encryption::ChaCha20Poly1305 => return None,
    };
    let mac = match suite.authentication() {
        Authentication::None => mac::GHASH,
        Authentication::HmacSha1_96 => mac::SHA1,
        Authentication::HmacSha256_128 => mac::SHA256,
        Authentication::HmacSha384_192 | Authentication::HmacSha512_256 => return None,
    };
    Some((cipher, mac))
}

/// Whether devices have kernels for a suite.
pub fn has_kernels(suite: Suite) -> bool {
    kinds(suite).is_some()
}

/// Writes the record of an association to `at`; zeros for none, or for a suite without kernels.
pub fn write_record(words: &mut SecretWords, at: usize, association: Option<&Association>) {
    words.take(at, &mut [0; KEY_WORDS]);
    let Some(own) = association else { return };
    let suite = own.suite();
    let Some((cipher, mac)) = kinds(suite) else { return };
    let key = own.key().expose();
    let salt = u32::from_le_bytes(key.salt);
    let icv = suite.icv_len() as u32;
    let extended = u32::from(own.parameters().is_extended);
    words.take(at, &mut [cipher, mac, salt, icv, extended]);
    if let Some(mut record) = aes_record(key.encryption) {
        words.take(at + word::AES, &mut record);
    }
    let hash = at + word::HASH;
    let record = match mac {
        mac::SHA1 => sha1_record(Some(key.authentication)),
        mac::SHA256 => sha256_record(Some(key.authentication)),
        _ => None,
    };
    if let Some(mut record) = record {
        words.take(hash, &mut record);
    }
    if let Some(h) = key.hash.as_ref().and_then(|own| own.expose().first_chunk::<16>()) {
        words.take(hash, &mut ghash_powers(*h, POWERS));
    }
}

/// One version of the keys.
pub struct EspKeys {
    places: Vec<Option<Arc<Association>>>,
    /// A record for each place.
    words: SecretWords,
}

impl EspKeys {
    /// None, with room for some.
    pub fn new() -> Self {
        Self { places: vec![None; PLACES], words: SecretWords::zeros(PLACES * KEY_WORDS) }
    }

    /// The association at a place.
    pub fn get(&self, place: usize) -> Option<&Arc<Association>> {
        self.places.get(place)?.as_ref()
    }

    /// The place of an association, if this version has it.
    pub fn place(&self, association: &Association) -> Option<usize> {
        let place = association.place()?;
        let is_it = std::ptr::eq(Arc::as_ptr(self.get(place)?), association);
        is_it.then_some(place)
    }

    fn resize(&mut self, len: usize) {
        if len <= self.places.len() {
            return;
        }
        self.places.resize(len, None);
        let mut words = SecretWords::zeros(len * KEY_WORDS);
        words.take(0, &mut self.words.expose().to_vec());
        self.words = words;
    }

    fn set(&mut self, place: usize, association: Option<Arc<Association>>) {
        if place < self.places.len() {
            write_record(&mut self.words, place * KEY_WORDS, association.as_deref());
            self.places[place] = association;
        }
    }
}

impl Default for EspKeys {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for EspKeys {
    fn clone(&self) -> Self {
        let mut words = SecretWords::zeros(self.words.expose().len());
        words.take(0, &mut self.words.expose().to_vec());
        Self { places: self.places.clone(), words }
    }
}

impl fmt::Debug for EspKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EspKeys({} places)", self.places.len())
    }
}

/// A change of a place.
#[derive(Debug, Clone)]
pub struct EspPatch {
    /// Places of the version.
    len: usize,
    /// It grows with this patch.
    grows: bool,
    place: usize,
    association: Option<Weak<Association>>,
}

impl Patchable for EspKeys {
    type Patch = EspPatch;

    fn apply(&mut self, patch: &EspPatch) {
        self.resize(patch.len);
        // One that is gone by now goes from its place with a later patch.
        self.set(patch.place, patch.association.as_ref().and_then(Weak::upgrade));
    }
}

/// The part of IPsec, with one region.
#[derive(Debug)]
pub struct EspPart;

impl TablePart for EspPart {
    type Tables = EspKeys;

    const REGIONS: usize = 1;

    const IS_SECRET: bool = true;

    fn len_bytes(tables: &EspKeys) -> usize {
        size_of_val(tables.words.expose()) + size_of_val(&*tables.places)
    }

    fn regions(tables: &EspKeys) -> Vec<Cow<'_, [u32]>> {
        vec![Cow::Borrowed(tables.words.expose())]
    }

    /// Regions of keys are copied, never patched: a change only says that there is one.
    fn changes(patch: &EspPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        change(0, Change::Write { at: patch.place * KEY_WORDS, words: &[] });
        !patch.grows
    }
}

/// Where control puts associations.
pub struct Places {
    part: PartId<EspPart>,
    assigned: Assigned,
}

/// Who has which place.
struct Assigned {
    used: Vec<Option<Arc<Association>>>,
    free: Vec<usize>,
    pending: Vec<EspPatch>,
}

impl Places {
    /// Those of a database, as a part of tables that nobody reads yet.
    pub fn start(database: &Database, tables: &mut Tables) -> Self {
        let mut assigned = Assigned::new();
        let mut keys = EspKeys::new();
        assigned.look(database);
        assigned.apply_to(&mut keys);
        Self { part: tables.add::<EspPart>(keys), assigned }
    }

    /// The part.
    pub fn part(&self) -> PartId<EspPart> {
        self.part
    }

    /// Gives places to associations of the database that have none, and frees those of associations that are gone.
    pub fn look(&mut self, database: &Database) {
        self.assigned.look(database);
    }

    /// What has changed since the last call.
    pub fn take_patches(&mut self) -> Option<TablesPatch> {
        let pending = std::mem::take(&mut self.assigned.pending);
        (!pending.is_empty()).then(|| self.part.patch(pending))
    }
}

impl Assigned {
    fn new() -> Self {
        Self { used: vec![None; PLACES], free: (0..PLACES).rev().collect(), pending: Vec::new() }
    }

    fn look(&mut self, database: &Database) {
        let all = database.associations();
        let mut is_there = vec![false; self.used.len()];
        let has = |used: &[Option<Arc<Association>>], own: &Arc<Association>| {
            let place = own.place()?;
            let at = used.get(place)?.as_ref()?;
            Arc::ptr_eq(at, own).then_some(place)
        };
        for place in all.iter().filter_map(|own| has(&self.used, own)) {
            is_there[place] = true;
        }
        for (place, is_there) in is_there.into_iter().enumerate() {
            if !is_there && self.used[place].take().is_some() {
                self.free.push(place);
                self.push(place, None, false);
            }
        }
        for own in all {
            if !has_kernels(own.suite()) || has(&self.used, own).is_some() {
                continue;
            }
            let grows = self.free.is_empty();
            if grows {
                let len = self.used.len();
                let more = len.min(PLACES_MAX.saturating_sub(len));
                self.used.resize(len + more, None);
                self.free.extend((len..len + more).rev());
            }
            let Some(place) = self.free.pop() else { break };
            own.set_place(place as u32);
            self.push(place, Some(Arc::downgrade(own)), grows);
            self.used[place] = Some(own.clone());
        }
    }

    fn push(&mut self, place: usize, association: Option<Weak<Association>>, grows: bool) {
        self.pending.push(EspPatch { len: self.used.len(), grows, place, association });
    }

    fn apply_to(&mut self, keys: &mut EspKeys) {
        self.pending.drain(..).for_each(|patch| keys.apply(&patch));
    }
}

#[cfg(test)]
mod tests {
    use crypto::{Icv, Key, KeySize, Secret};
    use ipsec::{Direction, Parameters};

    use super::*;

    fn add(database: &mut Database, spi: u32, suite: Suite) {
        let of = |len: usize| Secret::new(vec![spi as u8 | 1; len]);
        let key =
            Key::new(suite, &of(suite.encryption_key_len()), &of(suite.authentication_key_len()));
        let ends = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        database.replace(Parameters::new(Direction::In, spi, ends, 1), key.unwrap(), 0).unwrap();
    }

    fn gcm() -> Suite {
        Suite::new(Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16), Authentication::None)
            .unwrap()
    }

    /// Both copies of the tables have the associations of the database after any changes, and records of no others.
    #[test]
    fn places_follow_the_database() {
        let mut places = Assigned::new();
        let (mut keys, mut database) = (EspKeys::new(), Database::new());
        let mut random = teststages::harness::Random::from_time();
        for _ in 0..400 {
            let spi = 0x1000 + random.below(200) as u32;
            match random.below(3) {
                0 => drop(database.delete(spi, "192.0.2.2".parse().unwrap())),
                _ => add(&mut database, spi, gcm()),
            }
            places.look(&database);
            places.apply_to(&mut keys);
        }
        let all = database.associations();
        assert!(all.iter().all(|own| keys.place(own).is_some()));
        let zeros = [0; KEY_WORDS];
        let records = keys.words.expose().chunks(KEY_WORDS).zip(&keys.places);
        let used = records.filter(|(record, own)| {
            assert_eq!(**record != zeros, own.is_some());
            own.is_some()
        });
        assert_eq!(used.count(), all.len());
    }

    #[test]
    fn an_association_without_kernels_has_no_place() {
        let mut places = Assigned::new();
        let mut database = Database::new();
        let chacha = Suite::new(Encryption::ChaCha20Poly1305, Authentication::None).unwrap();
        add(&mut database, 0x1000, chacha);
        places.look(&database);
        assert!(places.pending.is_empty() && database.associations()[0].place().is_none());
    }

    /// An association that a later patch takes away may be gone when the first one is applied.
    #[test]
    fn patches_keep_no_key() {
        let mut places = Assigned::new();
        let mut database = Database::new();
        add(&mut database, 0x1000, gcm());
        places.look(&database);
        let weak = Arc::downgrade(database.associations()[0]);
        drop(database.delete(0x1000, "192.0.2.2".parse().unwrap()));
        places.look(&database);
        assert!(weak.upgrade().is_none() && places.pending.len() == 2);
        let mut keys = EspKeys::new();
        places.apply_to(&mut keys);
        assert!(keys.words.expose().iter().all(|word| *word == 0));
    }
}
