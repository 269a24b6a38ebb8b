//! Algorithms with their keys, as attributes of associations have them, and the suites that they make.
//!
//! ```text
//!  XFRMA_ALG_AEAD         name 64 · key bits 4 · check value bits 4 · key     rfc4106(gcm(aes)), …
//!  XFRMA_ALG_CRYPT        name 64 · key bits 4 · key                          cbc(aes), rfc3686(ctr(aes)), …
//!  XFRMA_ALG_AUTH_TRUNC   name 64 · key bits 4 · check value bits 4 · key     hmac(sha256), …
//!  XFRMA_ALG_AUTH         name 64 · key bits 4 · key                          the same with the kernel's check value
//! ```
//!
//! A key has its salt (nonce) behind it, as `crypto` takes it.

use std::fmt;
use std::sync::Arc;

use crypto::{Authentication, Encryption, Icv, Key, KeyError, KeySize, Secret, Suite};

use crate::attribute::Attribute;
use crate::wire::{Reader, Wire};

/// Length of the field of an algorithm's name.
pub const NAME_LEN: usize = 64;

/// The kernel's name of an algorithm, filled up with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AlgorithmName([u8; NAME_LEN]);

impl AlgorithmName {
    /// The field of a message. Its first zero ends the name.
    pub fn from_bytes(bytes: [u8; NAME_LEN]) -> Self {
        Self(bytes)
    }

    /// A name of up to 63 bytes; what is longer is cut.
    pub fn new(name: &str) -> Self {
        let mut bytes = [0; NAME_LEN];
        let len = name.len().min(NAME_LEN - 1);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self(bytes)
    }

    fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(NAME_LEN);
        &self.0[..end]
    }
}

impl fmt::Display for AlgorithmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes().escape_ascii())
    }
}

impl fmt::Debug for AlgorithmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// An algorithm and its key. `Debug` shows the length of the key; the last owner wipes it.
#[derive(Debug, Clone)]
pub struct Algorithm {
    /// Which one.
    pub name: AlgorithmName,
    /// Length of the key in bits.
    pub key_bits: u32,
    /// Length of the check value in bits; none in the attributes that have no such field.
    pub check_bits: Option<u32>,
    /// The key: `key_bits`, rounded up to bytes.
    pub key: Arc<Secret>,
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Self) -> bool {
        let differ = |acc: u8, (a, b): (&u8, &u8)| acc | (a ^ b);
        let (ours, theirs) = (self.key.expose(), other.key.expose());
        (self.name, self.key_bits, self.check_bits)
            == (other.name, other.key_bits, other.check_bits)
            && ours.len() == theirs.len()
            && ours.iter().zip(theirs).fold(0, differ) == 0
    }
}

impl Eq for Algorithm {}

impl Algorithm {
    /// An algorithm with a key of whole bytes; `check_bits` for the attributes that have them.
    pub fn new(name: &str, key: Secret, check_bits: Option<u32>) -> Self {
        let key_bits = key.len() as u32 * 8;
        Self { name: AlgorithmName::new(name), key_bits, check_bits, key: Arc::new(key) }
    }

    const fn head_len(has_check: bool) -> usize {
        NAME_LEN + 4 + if has_check { 4 } else { 0 }
    }

    pub(crate) fn len(&self) -> usize {
        Self::head_len(self.check_bits.is_some()) + self.key.len()
    }

    pub(crate) fn read(value: &[u8], has_check: bool) -> Option<Self> {
        let head = Self::head_len(has_check);
        let key = value.get(head..)?;
        let mut from = Reader(value);
        let name = AlgorithmName(from.take());
        let key_bits = u32::read(&mut from);
        let check_bits = has_check.then(|| u32::read(&mut from));
        if key.len() != key_bits.div_ceil(8) as usize {
            return None;
        }
        Some(Self { name, key_bits, check_bits, key: Arc::new(Secret::new(key.to_vec())) })
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.name.0);
        self.key_bits.write(to);
        if let Some(check_bits) = self.check_bits {
            check_bits.write(to);
        }
        to.extend_from_slice(self.key.expose());
    }

    /// Whether the kernel has overwritten the key with zeros, as it does under lockdown (`xfrm_redact`). No association
    /// has such a key.
    pub fn is_blanked(&self) -> bool {
        !self.key.is_empty() && self.key.expose().iter().fold(0, |all, byte| all | byte) == 0
    }

    fn encryption(&self) -> Result<Encryption, Unusable> {
        let aes = |salt: usize| match self.key.len().checked_sub(salt) {
            Some(16) => Ok(KeySize::Bits128),
            Some(24) => Ok(KeySize::Bits192),
            Some(32) => Ok(KeySize::Bits256),
            _ => Err(Unusable::KeyLength { algorithm: self.name, bits: self.key_bits }),
        };
        match self.name.bytes() {
            b"ecb(cipher_null)" | b"cipher_null" => Ok(Encryption::Null),
            b"cbc(aes)" | b"aes" => aes(0).map(Encryption::AesCbc),
            b"rfc3686(ctr(aes))" => aes(4).map(Encryption::AesCtr),
            _ => Err(self.unknown()),
        }
    }

    fn aead(&self) -> Result<Encryption, Unusable> {
        let icv = match self.check_bits.unwrap_or_default() {
            64 => Icv::Bytes8,
            96 => Icv::Bytes12,
            128 => Icv::Bytes16,
            _ => return Err(self.unknown()),
        };
        let size = match self.key.len() {
            20 => Some(KeySize::Bits128),
            28 => Some(KeySize::Bits192),
            36 => Some(KeySize::Bits256),
            _ => None,
        };
        let encryption = match (self.name.bytes(), icv) {
            (b"rfc4106(gcm(aes))", icv) => size.map(|size| Encryption::AesGcm(size, icv)),
            (b"rfc4543(gcm(aes))", Icv::Bytes16) => size.map(Encryption::AesGmac),
            (b"rfc7539esp(chacha20,poly1305)", Icv::Bytes16) => {
                (self.key.len() == 36).then_some(Encryption::ChaCha20Poly1305)
            }
            _ => return Err(self.unknown()),
        };
        encryption.ok_or(Unusable::KeyLength { algorithm: self.name, bits: self.key_bits })
    }

    fn authentication(&self) -> Result<Authentication, Unusable> {
        // What the kernel truncates to where nothing else is said (net/xfrm/xfrm_algo.c).
        let (authentication, default) = match self.name.bytes() {
            b"hmac(sha1)" | b"sha1" => (Authentication::HmacSha1_96, 96),
            b"hmac(sha256)" | b"sha256" => (Authentication::HmacSha256_128, 96),
            b"hmac(sha384)" | b"sha384" => (Authentication::HmacSha384_192, 192),
            b"hmac(sha512)" | b"sha512" => (Authentication::HmacSha512_256, 256),
            _ => return Err(self.unknown()),
        };
        if self.check_bits.unwrap_or(default) != authentication.icv_len() as u32 * 8 {
            return Err(Unusable::Algorithm {
                algorithm: self.name,
                check_bits: Some(self.check_bits.unwrap_or(default)),
            });
        }
        if self.key.len() != authentication.key_len() {
            return Err(Unusable::KeyLength { algorithm: self.name, bits: self.key_bits });
        }
        Ok(authentication)
    }

    fn unknown(&self) -> Unusable {
        Unusable::Algorithm { algorithm: self.name, check_bits: self.check_bits }
    }
}

/// Why an association cannot carry packets here. Its policies discard what they would have protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// An algorithm that is not here, or not with check values of this length.
    Algorithm {
        /// The kernel's name.
        algorithm: AlgorithmName,
        /// Length of the check value in bits, where the message says it.
        check_bits: Option<u32>,
    },
    /// The key has a length that the algorithm does not have.
    KeyLength {
        /// The kernel's name.
        algorithm: AlgorithmName,
        /// Length of the key in bits, salt included.
        bits: u32,
    },
    /// The kernel shows zeros instead of the key.
    Blanked {
        /// The kernel's name.
        algorithm: AlgorithmName,
    },
    /// Nothing authenticates the packets, or two algorithms do.
    Suite(KeyError),
    /// A protocol other than ESP.
    Protocol(u8),
    /// A mode other than tunnel and transport.
    Mode(u8),
    /// An encapsulation other than that in UDP of RFC 3948.
    Encapsulation(u16),
    /// The network card encrypts.
    Offload,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm { algorithm, check_bits: None } => {
                write!(f, "{algorithm} is not supported")
            }
            Self::Algorithm { algorithm, check_bits: Some(bits) } => {
                write!(f, "{algorithm} with a check value of {bits} bits is not supported")
            }
            Self::KeyLength { algorithm, bits } => {
                write!(f, "{algorithm} has no keys of {bits} bits")
            }
            Self::Blanked { algorithm } => {
                write!(f, "the kernel hides the key of {algorithm} (lockdown, xfrm_redact)")
            }
            Self::Suite(error) => error.fmt(f),
            Self::Protocol(51) => f.write_str("AH is not supported"),
            Self::Protocol(108) => f.write_str("compression (IPComp) is not supported"),
            Self::Protocol(number) => write!(f, "IP protocol {number} is not supported"),
            Self::Mode(4) => f.write_str("mode BEET is not supported"),
            Self::Mode(number) => write!(f, "mode {number} is not supported"),
            Self::Encapsulation(1) => f.write_str("encapsulation espinudp-nonike is not supported"),
            Self::Encapsulation(7) => f.write_str("encapsulation in TCP is not supported"),
            Self::Encapsulation(number) => write!(f, "encapsulation {number} is not supported"),
            Self::Offload => f.write_str("encryption by the network card is not supported"),
        }
    }
}

impl std::error::Error for Unusable {}

/// A suite and the keys for it, of one association. `Debug` shows the suite and lengths.
#[derive(Debug)]
pub struct Keys {
    suite: Suite,
    encryption: Arc<Secret>,
    authentication: Arc<Secret>,
}

impl Keys {
    /// The suite.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The expanded keys, for packets.
    ///
    /// # Errors
    ///
    /// None in practice: lengths have been checked.
    pub fn expand(&self) -> Result<Key, KeyError> {
        Key::new(self.suite, &self.encryption, &self.authentication)
    }

    /// The suite that the attributes of an association make; none if there is no algorithm at all, as in an association
    /// that has an index only.
    ///
    /// # Errors
    ///
    /// The suite or its keys cannot be used here.
    pub fn from_attributes(attributes: &[Attribute]) -> Option<Result<Self, Unusable>> {
        let (mut crypt, mut aead, mut auth, mut truncated) = (None, None, None, None);
        for attribute in attributes {
            match attribute {
                Attribute::CipherKey(algorithm) => crypt = Some(algorithm),
                Attribute::AeadKey(algorithm) => aead = Some(algorithm),
                Attribute::AuthKey(algorithm) => auth = Some(algorithm),
                Attribute::TruncatedAuthKey(algorithm) => truncated = Some(algorithm),
                _ => {}
            }
        }
        // The kernel writes both; the first has no length of the check value.
        let auth = truncated.or(auth).filter(|auth| !is_null(auth));
        if crypt.is_none() && aead.is_none() && auth.is_none() {
            return None;
        }
        Some(Self::new(crypt, aead, auth))
    }

    fn new(
        crypt: Option<&Algorithm>,
        aead: Option<&Algorithm>,
        auth: Option<&Algorithm>,
    ) -> Result<Self, Unusable> {
        let encryption = match (aead, crypt) {
            (Some(aead), _) => aead.aead()?,
            (None, Some(crypt)) => crypt.encryption()?,
            (None, None) => Encryption::Null,
        };
        let authentication = auth.map_or(Ok(Authentication::None), Algorithm::authentication)?;
        let suite = Suite::new(encryption, authentication).map_err(Unusable::Suite)?;
        let used = [aead.or(crypt), auth];
        if let Some(blanked) = used.into_iter().flatten().find(|algorithm| algorithm.is_blanked()) {
            return Err(Unusable::Blanked { algorithm: blanked.name });
        }
        let [encryption, authentication] = used.map(|algorithm| {
            algorithm.map_or_else(|| Arc::new(Secret::none()), |algorithm| algorithm.key.clone())
        });
        if encryption.len() != suite.encryption_key_len() {
            let (algorithm, bits) =
                aead.or(crypt).map_or((AlgorithmName::new(""), 0), |a| (a.name, a.key_bits));
            return Err(Unusable::KeyLength { algorithm, bits });
        }
        Ok(Self { suite, encryption, authentication })
    }
}

fn is_null(auth: &Algorithm) -> bool {
    matches!(auth.name.bytes(), b"digest_null" | b"hmac(digest_null)")
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        let algorithm = |key: &Arc<Secret>| Algorithm {
            name: AlgorithmName([0; NAME_LEN]),
            key_bits: 0,
            check_bits: None,
            key: key.clone(),
        };
        self.suite == other.suite
            && algorithm(&self.encryption) == algorithm(&other.encryption)
            && algorithm(&self.authentication) == algorithm(&other.authentication)
    }
}

impl Eq for Keys {}
