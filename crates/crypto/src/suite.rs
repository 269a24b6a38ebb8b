//! Suites, which say what is done to packets, and keys, with which it is done.

use std::fmt;
use std::ops::Range;

use chacha20poly1305::ChaCha20Poly1305;
use cipher::KeyInit;
use zeroize::Zeroize;

use crate::aes::{Aes, AesEnc, BLOCK, Block};
use crate::gcm::GcmKey;
use crate::mac::MacKey;
use crate::marks::Marks;
use crate::secret::Secret;
use crate::stream::CtrKey;

/// Length of a key of AES.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeySize {
    /// 16 bytes.
    Bits128,
    /// 24 bytes.
    Bits192,
    /// 32 bytes.
    Bits256,
}

impl KeySize {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bits128, Self::Bits192, Self::Bits256];

    /// In bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits128 => 16,
            Self::Bits192 => 24,
            Self::Bits256 => 32,
        }
    }
}

/// Length of the integrity check value of AES-GCM (RFC 4106 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Icv {
    /// 8 bytes.
    Bytes8,
    /// 12 bytes.
    Bytes12,
    /// 16 bytes.
    Bytes16,
}

impl Icv {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bytes8, Self::Bytes12, Self::Bytes16];

    /// In bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bytes8 => 8,
            Self::Bytes12 => 12,
            Self::Bytes16 => 16,
        }
    }
}

/// How the text of a packet is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// It is not (RFC 2410).
    Null,
    /// AES in cipher block chaining mode (RFC 3602).
    AesCbc(KeySize),
    /// AES in counter mode (RFC 3686).
    AesCtr(KeySize),
    /// AES in Galois/counter mode, which authenticates too (RFC 4106).
    AesGcm(KeySize, Icv),
    /// The text is authenticated by AES-GCM's hash and not encrypted (RFC 4543).
    AesGmac(KeySize),
    /// ChaCha20 with Poly1305, which authenticates too (RFC 7634).
    ChaCha20Poly1305,
}

impl Encryption {
    /// Length of the key in bytes, without the salt behind it.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc(size)
            | Self::AesCtr(size)
            | Self::AesGcm(size, _)
            | Self::AesGmac(size) => size.bytes(),
            Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Whether it authenticates by Galois' hash.
    #[cfg(feature = "aws-lc-rs")]
    const fn has_hash_key(self) -> bool {
        matches!(self, Self::AesGcm(..) | Self::AesGmac(_))
    }

    /// Length in bytes of the salt (a nonce of the association), which follows the key in keying material.
    pub const fn salt_len(self) -> usize {
        match self {
            Self::Null | Self::AesCbc(_) => 0,
            _ => 4,
        }
    }

    /// Length in bytes of the initialisation vector in each packet.
    #[inline]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc(_) => BLOCK,
            _ => 8,
        }
    }

    /// The text is a multiple of this.
    #[inline]
    pub const fn block_len(self) -> usize {
        match self {
            Self::AesCbc(_) => BLOCK,
            _ => 1,
        }
    }

    /// Length in bytes of its own check value: 0 without authentication.
    #[inline]
    pub const fn icv_len(self) -> usize {
        match self {
            Self::Null | Self::AesCbc(_) | Self::AesCtr(_) => 0,
            Self::AesGcm(_, icv) => icv.bytes(),
            Self::AesGmac(_) | Self::ChaCha20Poly1305 => 16,
        }
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aes = |f: &mut fmt::Formatter<'_>, size: &KeySize, mode| {
            write!(f, "AES-{}-{mode}", size.bytes() * 8)
        };
        match self {
            Self::Null => f.write_str("NULL"),
            Self::AesCbc(size) => aes(f, size, "CBC"),
            Self::AesCtr(size) => aes(f, size, "CTR"),
            Self::AesGcm(size, icv) => {
                aes(f, size, "GCM")?;
                write!(f, "-{}", icv.bytes())
            }
            Self::AesGmac(size) => aes(f, size, "GMAC"),
            Self::ChaCha20Poly1305 => f.write_str("ChaCha20-Poly1305"),
        }
    }
}

/// How a packet is authenticated, where its encryption does not do that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Authentication {
    /// By the encryption.
    None,
    /// HMAC with SHA-1, 12 bytes (RFC 2404).
    HmacSha1_96,
    /// HMAC with SHA-256, 16 bytes (RFC 4868).
    HmacSha256_128,
    /// HMAC with SHA-384, 24 bytes (RFC 4868).
    HmacSha384_192,
    /// HMAC with SHA-512, 32 bytes (RFC 4868).
    HmacSha512_256,
}

impl Authentication {
    /// All that authenticate.
    pub const ALL: [Self; 4] =
        [Self::HmacSha1_96, Self::HmacSha256_128, Self::HmacSha384_192, Self::HmacSha512_256];

    /// Length of the key in bytes: that of the hash (RFC 2404 §3, RFC 4868 §2.1.1).
    pub const fn key_len(self) -> usize {
        match self {
            Self::None => 0,
            Self::HmacSha1_96 => 20,
            Self::HmacSha256_128 => 32,
            Self::HmacSha384_192 => 48,
            Self::HmacSha512_256 => 64,
        }
    }

    /// Length of the check value in bytes.
    #[inline]
    pub const fn icv_len(self) -> usize {
        match self {
            Self::None => 0,
            Self::HmacSha1_96 => 12,
            Self::HmacSha256_128 => 16,
            Self::HmacSha384_192 => 24,
            Self::HmacSha512_256 => 32,
        }
    }
}

impl fmt::Display for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no HMAC",
            Self::HmacSha1_96 => "HMAC-SHA1-96",
            Self::HmacSha256_128 => "HMAC-SHA-256-128",
            Self::HmacSha384_192 => "HMAC-SHA-384-192",
            Self::HmacSha512_256 => "HMAC-SHA-512-256",
        })
    }
}

/// Encryption and authentication that go together. Lengths that each packet asks for follow from them and stand beside them: to
/// find them again is a branch each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Suite {
    encryption: Encryption,
    authentication: Authentication,
    iv_len: u8,
    icv_len: u8,
    block_len: u8,
}

impl Suite {
    /// Joins the two.
    ///
    /// # Errors
    ///
    /// Nothing would authenticate, which RFC 8221 §5 forbids, or both would.
    pub fn new(encryption: Encryption, authentication: Authentication) -> Result<Self, KeyError> {
        match (encryption.icv_len() > 0, authentication != Authentication::None) {
            (false, false) => Err(KeyError::Unauthenticated { encryption }),
            (true, true) => Err(KeyError::AuthenticatedTwice { encryption, authentication }),
            _ => Ok(Self {
                encryption,
                authentication,
                iv_len: encryption.iv_len() as u8, // all below 100
                icv_len: (encryption.icv_len() + authentication.icv_len()) as u8, // one of them is 0
                block_len: encryption.block_len() as u8,
            }),
        }
    }

    /// Every suite there is.
    pub fn all() -> impl Iterator<Item = Self> {
        let aes = KeySize::ALL.into_iter().flat_map(|size| {
            let gcm = Icv::ALL.map(|icv| Encryption::AesGcm(size, icv));
            let rest = [Encryption::AesCbc(size), Encryption::AesCtr(size)];
            gcm.into_iter().chain(rest).chain([Encryption::AesGmac(size)])
        });
        let encryptions = [Encryption::Null, Encryption::ChaCha20Poly1305].into_iter().chain(aes);
        encryptions.flat_map(|encryption| {
            let authentications = [Authentication::None].into_iter().chain(Authentication::ALL);
            authentications.filter_map(move |a| Self::new(encryption, a).ok())
        })
    }

    /// How the text is encrypted.
    pub const fn encryption(self) -> Encryption {
        self.encryption
    }

    /// How a packet is authenticated beside.
    pub const fn authentication(self) -> Authentication {
        self.authentication
    }

    /// Length in bytes of the key of the encryption, salt included.
    pub const fn encryption_key_len(self) -> usize {
        self.encryption.key_len() + self.encryption.salt_len()
    }

    /// Length in bytes of the key of the authentication.
    pub const fn authentication_key_len(self) -> usize {
        self.authentication.key_len()
    }

    /// Length in bytes of the initialisation vector.
    #[inline]
    pub const fn iv_len(self) -> usize {
        self.iv_len as usize
    }

    /// Length in bytes of the check value.
    #[inline]
    pub const fn icv_len(self) -> usize {
        self.icv_len as usize
    }

    /// The text is a multiple of this.
    #[inline]
    pub const fn block_len(self) -> usize {
        self.block_len as usize
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.authentication {
            Authentication::None => self.encryption.fmt(f),
            authentication => write!(f, "{} with {authentication}", self.encryption),
        }
    }
}

/// Why keys do not make a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// The key of the encryption has another length.
    EncryptionLength {
        /// What it is for.
        encryption: Encryption,
        /// Its length in bytes.
        found: usize,
    },
    /// The key of the authentication has another length.
    AuthenticationLength {
        /// What it is for.
        authentication: Authentication,
        /// Its length in bytes.
        found: usize,
    },
    /// Nothing authenticates.
    Unauthenticated {
        /// The encryption that would be alone.
        encryption: Encryption,
    },
    /// The encryption authenticates already.
    AuthenticatedTwice {
        /// The encryption that does.
        encryption: Encryption,
        /// What is too much.
        authentication: Authentication,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EncryptionLength { encryption, found } => {
                let (key, salt) = (encryption.key_len(), encryption.salt_len());
                let expected = key + salt;
                write!(f, "the key of {encryption} must have {expected} bytes")?;
                if salt > 0 {
                    write!(f, " ({key} of key, {salt} of salt)")?;
                }
                write!(f, ", not {found}")
            }
            Self::AuthenticationLength { authentication, found } => {
                let expected = authentication.key_len();
                write!(f, "the key of {authentication} must have {expected} bytes, not {found}")
            }
            Self::Unauthenticated { encryption } => {
                write!(f, "{encryption} needs an authentication, because it has none of its own")
            }
            Self::AuthenticatedTwice { encryption, authentication } => {
                write!(f, "{encryption} authenticates by itself; {authentication} cannot be added")
            }
        }
    }
}

impl std::error::Error for KeyError {}

/// The expanded keys of one association and direction. They are wiped when they are dropped, and `Debug` shows the suite
/// only.
///
/// A key is shared by threads: nothing changes it.
///
/// What packets read is in front, side by side: with many keys, each of its lines comes from memory.
#[repr(C)]
pub struct Key {
    suite: Suite,
    pub(crate) salt: [u8; 4],
    pub(crate) mac: MacKey,
    pub(crate) cipher: CipherKey,
    marks: Marks,
    /// What it was made of: key of the encryption with its salt, and key of the authentication.
    raw: [Secret; 2],
}

/// What a device makes a key of. It is key material: whoever takes it wipes what he makes of it.
pub struct Exposed<'a> {
    /// The key of the encryption, without salt.
    pub encryption: &'a [u8],
    /// The salt; zeros where there is none.
    pub salt: [u8; 4],
    /// The key of the authentication.
    pub authentication: &'a [u8],
    /// The key of Galois' hash, 16 bytes, where the encryption has it.
    pub hash: Option<Secret>,
}

impl fmt::Debug for Exposed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exposed")
    }
}

#[allow(clippy::large_enum_variant)] // a key is made once and not moved
pub(crate) enum CipherKey {
    Null,
    /// The second key makes initialisation vectors.
    Cbc(Box<Aes>, Box<AesEnc>),
    Ctr(CtrKey),
    Gcm(Box<GcmKey>),
    Gmac(Box<GcmKey>),
    ChaCha(ChaCha20Poly1305),
    #[cfg(feature = "aws-lc-rs")]
    AwsLc(crate::aws_lc::AwsCipher),
}

/// Whose ciphers and hashes a key uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Provider {
    /// Those of RustCrypto, and this crate's own forms for batches.
    #[cfg_attr(not(feature = "aws-lc-rs"), default)]
    RustCrypto,
    /// AWS-LC's, one packet at a time. AES-GCM with check values of 8 and 12 bytes, which it does not offer, and NULL are as in
    /// [`Provider::RustCrypto`].
    #[cfg(feature = "aws-lc-rs")]
    #[default]
    AwsLc,
}

impl Key {
    /// Expands the keys of a suite, for the default provider: AWS-LC with the feature `aws-lc-rs`, otherwise RustCrypto.
    ///
    /// `encryption` and `authentication` are those of [`Key::by`].
    ///
    /// # Errors
    ///
    /// A key has another length than the suite wants.
    pub fn new(
        suite: Suite,
        encryption: &Secret,
        authentication: &Secret,
    ) -> Result<Self, KeyError> {
        Self::by(Provider::default(), suite, encryption, authentication)
    }

    /// Expands the keys of a suite. Whoever provides, packets have the same bytes.
    ///
    /// `encryption` is the key with the salt behind it where the suite has one, as IKE derives it (RFC 4106 §8.1);
    /// `authentication` is empty where the encryption authenticates.
    ///
    /// # Errors
    ///
    /// A key has another length than the suite wants.
    pub fn by(
        provider: Provider,
        suite: Suite,
        encryption: &Secret,
        authentication: &Secret,
    ) -> Result<Self, KeyError> {
        let Suite { encryption: kind, authentication: mac, .. } = suite;
        let wrong = KeyError::EncryptionLength { encryption: kind, found: encryption.len() };
        if encryption.len() != suite.encryption_key_len() {
            return Err(wrong);
        }
        let found = authentication.len();
        if found != mac.key_len() {
            return Err(KeyError::AuthenticationLength { authentication: mac, found });
        }
        let (key, salt) = encryption.expose().split_at(kind.key_len());
        let gcm = || GcmKey::new(key).map(Box::new);
        let own = || match kind {
            Encryption::Null => Some(CipherKey::Null),
            Encryption::AesCbc(_) => cbc_key(key),
            Encryption::AesCtr(_) => CtrKey::new(key).map(CipherKey::Ctr),
            Encryption::AesGcm(..) => gcm().map(CipherKey::Gcm),
            Encryption::AesGmac(_) => gcm().map(CipherKey::Gmac),
            Encryption::ChaCha20Poly1305 => {
                ChaCha20Poly1305::new_from_slice(key).ok().map(CipherKey::ChaCha)
            }
        };
        let (cipher, mac) = match provider {
            Provider::RustCrypto => (own(), MacKey::new(mac, authentication.expose())),
            #[cfg(feature = "aws-lc-rs")]
            Provider::AwsLc => {
                let found =
                    crate::aws_lc::AwsCipher::new(kind, key, || key_of_ivs(&Aes::new(key)?));
                let mac = MacKey::of_aws_lc(mac, authentication.expose());
                (found.map(CipherKey::AwsLc).or_else(own), mac)
            }
        };
        Ok(Self {
            suite,
            cipher: cipher.ok_or(wrong)?,
            mac,
            salt: salt.try_into().unwrap_or_default(),
            marks: Marks::new(suite, encryption, authentication),
            raw: [encryption, authentication].map(|own| Secret::new(own.expose().to_vec())),
        })
    }

    /// The keys themselves, for a device.
    pub fn expose(&self) -> Exposed<'_> {
        let [encryption, authentication] = &self.raw;
        let key_len = self.suite.encryption.key_len().min(encryption.len());
        let hash = match &self.cipher {
            CipherKey::Gcm(key) | CipherKey::Gmac(key) => Some(hash_key(&key.aes)),
            #[cfg(feature = "aws-lc-rs")]
            CipherKey::AwsLc(_) if self.suite.encryption.has_hash_key() => {
                CtrKey::new(&encryption.expose()[..key_len]).map(|aes| hash_key(&aes))
            }
            _ => None,
        };
        Exposed {
            encryption: &encryption.expose()[..key_len],
            salt: self.salt,
            authentication: authentication.expose(),
            hash,
        }
    }

    /// Where what the packets of a key read is, in ranges of addresses, for a caller with many keys who loads them ahead: expanded
    /// keys are long, and only a part of them is of a suite.
    pub fn read_by_packets(&self, see: &mut dyn FnMut(Range<usize>)) {
        see(place_of(&self.suite));
        see(place_of(&self.salt));
        // The variant of an enumeration is somewhere in its first bytes or in those of its values.
        see(place_of(&self.cipher).start..place_of(&self.cipher).start + 1);
        see(place_of(&self.mac).start..place_of(&self.mac).start + 1);
        match &self.cipher {
            CipherKey::Null => {}
            CipherKey::Ctr(key) => key.read_by_packets(see),
            CipherKey::Gcm(key) | CipherKey::Gmac(key) => key.read_by_packets(see),
            CipherKey::Cbc(key, for_iv) => {
                see(place_of(&**key));
                see(place_of(&**for_iv));
            }
            CipherKey::ChaCha(key) => see(place_of(key)),
            #[cfg(feature = "aws-lc-rs")]
            CipherKey::AwsLc(key) => see(place_of(key)),
        }
        match &self.mac {
            MacKey::None => {}
            MacKey::Sha1(key) => see(place_of(key)),
            MacKey::Sha256(key) => see(place_of(&**key)),
            MacKey::Sha384(key) => see(place_of(&**key)),
            MacKey::Sha512(key) => see(place_of(&**key)),
            #[cfg(feature = "aws-lc-rs")]
            MacKey::AwsLc(key) => see(place_of(key)),
        }
    }

    /// Starts to load what a short packet reads of a key that is too long to be beside the association; what is in the key itself is
    /// to be there by now.
    #[inline]
    pub fn prefetch(&self) {
        if let CipherKey::Gcm(key) | CipherKey::Gmac(key) = &self.cipher {
            key.prefetch();
        }
    }

    /// What it is a key of.
    #[inline]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// By which keys are compared.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// The initialisation vector of a packet: unique under this key as long as `number` is.
    ///
    /// Counter modes take the number itself (RFC 3686 §3.1, RFC 4106 §3.1, RFC 7634 §2), so two associations must not have one
    /// key. CBC needs one that nobody
    /// foresees (RFC 3602 §3): the number encrypted (NIST SP 800-38A, appendix C, first method), under a key of its own,
    /// so that no text can be chosen to meet it. The first `iv_len` bytes are used.
    #[inline]
    pub fn iv(&self, spi: u32, number: u64) -> [u8; BLOCK] {
        // Numbers of 128 bits, so that nothing is put together in memory: what is read back as a whole would wait for its parts.
        let chained = |for_iv: &AesEnc| {
            let mut iv: Block = (u128::from(spi) << 96 | u128::from(number)).to_be_bytes().into();
            for_iv.encrypt_block(&mut iv);
            iv.into()
        };
        match &self.cipher {
            CipherKey::Null => [0; BLOCK],
            CipherKey::Cbc(_, for_iv) => chained(for_iv),
            #[cfg(feature = "aws-lc-rs")]
            CipherKey::AwsLc(crate::aws_lc::AwsCipher::Cbc(.., for_iv)) => chained(for_iv),
            _ => (u128::from(number) << 64).to_be_bytes(),
        }
    }

    /// The nonce of a packet: salt and initialisation vector.
    #[inline]
    pub(crate) fn nonce(&self, iv: &[u8; BLOCK]) -> [u8; 12] {
        let mut nonce = [0; 12];
        if let (Some(salt), Some(own)) = (nonce.first_chunk_mut(), iv.first_chunk()) {
            *salt = self.salt;
            *nonce.last_chunk_mut::<8>().unwrap_or(&mut [0; 8]) = *own;
        }
        nonce
    }
}

/// The addresses of a value.
pub(crate) fn place_of<T: ?Sized>(value: &T) -> Range<usize> {
    let start = std::ptr::from_ref(value).cast::<u8>().addr();
    start..start + size_of_val(value)
}

/// The key of Galois' hash.
fn hash_key(aes: &CtrKey) -> Secret {
    let mut block = Block::default();
    aes.encrypt_block(&mut block);
    let hash = Secret::new(block.to_vec());
    block.zeroize();
    hash
}

fn cbc_key(key: &[u8]) -> Option<CipherKey> {
    let aes = Aes::new(key)?;
    key_of_ivs(&aes).map(|for_iv| CipherKey::Cbc(Box::new(aes), Box::new(for_iv)))
}

/// The key that makes initialisation vectors of CBC.
fn key_of_ivs(aes: &Aes) -> Option<AesEnc> {
    let mut derived = Block::from(*b"key of CBC's IVs");
    aes.encrypt_blocks(std::slice::from_mut(&mut derived));
    let for_iv = AesEnc::new(&derived);
    derived.zeroize();
    for_iv
}

impl Drop for Key {
    fn drop(&mut self) {
        self.salt.zeroize(); // ciphers and HMACs wipe themselves
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.suite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(suite: Suite, encryption: usize, authentication: usize) -> Result<Key, KeyError> {
        let (e, a) = (Secret::new(vec![7; encryption]), Secret::new(vec![7; authentication]));
        Key::new(suite, &e, &a)
    }

    #[test]
    fn every_suite_takes_keys_of_its_length_and_no_other() {
        let mut names = Vec::new();
        for suite in Suite::all() {
            let (e, a) = (suite.encryption_key_len(), suite.authentication_key_len());
            let right = key(suite, e, a).unwrap();
            assert_eq!(format!("{right:?}"), format!("Key({suite})"));
            for (e, a) in [(e + 1, a), (e.wrapping_sub(1), a), (e, a + 1), (e, a.wrapping_sub(1))] {
                if e.max(a) < 100 {
                    let error = key(suite, e, a).unwrap_err().to_string();
                    assert!(error.contains("must have"), "{error}");
                }
            }
            names.push(suite.to_string());
        }
        assert_eq!(names.len(), 4 + 1 + 3 * (3 + 2 * 4 + 1));
        names.dedup();
        assert_eq!(names.len(), 41);
    }

    #[test]
    fn errors_name_the_algorithm_and_the_length() {
        let gcm = Encryption::AesGcm(KeySize::Bits256, Icv::Bytes16);
        let suite = Suite::new(gcm, Authentication::None).unwrap();
        assert_eq!(
            key(suite, 32, 0).unwrap_err().to_string(),
            "the key of AES-256-GCM-16 must have 36 bytes (32 of key, 4 of salt), not 32"
        );
        let suite = Suite::new(Encryption::Null, Authentication::HmacSha384_192).unwrap();
        assert_eq!(
            key(suite, 0, 20).unwrap_err().to_string(),
            "the key of HMAC-SHA-384-192 must have 48 bytes, not 20"
        );
        assert_eq!(
            Suite::new(Encryption::Null, Authentication::None).unwrap_err().to_string(),
            "NULL needs an authentication, because it has none of its own"
        );
        assert_eq!(
            Suite::new(gcm, Authentication::HmacSha1_96).unwrap_err().to_string(),
            "AES-256-GCM-16 authenticates by itself; HMAC-SHA1-96 cannot be added"
        );
    }

    #[test]
    fn initialisation_vectors_are_unique_and_those_of_cbc_unforeseen() {
        let suite = |e| Suite::new(e, Authentication::HmacSha1_96).unwrap();
        let counted = key(suite(Encryption::AesCtr(KeySize::Bits128)), 20, 20).unwrap();
        assert_eq!(counted.iv(1, 0x0102_0304_0506_0708)[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        let chained = key(suite(Encryption::AesCbc(KeySize::Bits128)), 16, 20).unwrap();
        let numbers = [(1, 1), (1, 2), (2, 1), (1, 1 << 32)];
        let mut ivs: Vec<_> = numbers.iter().map(|&(spi, n)| chained.iv(spi, n)).collect();
        assert_eq!(ivs[0], chained.iv(1, 1));
        ivs.sort();
        ivs.dedup();
        assert_eq!(ivs.len(), numbers.len());
        // Not a few bits apart.
        let far = ivs.windows(2).all(|pair| {
            let bits = pair[0].iter().zip(&pair[1]).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
            bits > 20
        });
        assert!(far);
    }
}
