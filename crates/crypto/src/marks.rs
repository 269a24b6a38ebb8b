//! Which keys are alike, without the keys.
//!
//! A database of associations has to know that a key has come back: its numbers must go on, and what was accepted under it must
//! not be accepted again. It must not keep the key for that. Marks are SipHash of the key under secrets of the process, so
//! they say nothing about the key to anybody who has them alone, and differ in each process. Two keys have the same mark by
//! chance once in 2^64 pairs.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::secret::Secret;
use crate::suite::{Authentication, Encryption, Suite};

static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The marks of the keys of an association. `Debug` shows nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Two packets with one number reveal their text.
    is_counter: bool,
    encryption: u64,
    /// Of what authenticates: the HMAC's key, or that of the cipher.
    authentication: u64,
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Marks")
    }
}

impl Marks {
    /// Those of the keys of a suite.
    pub(crate) fn new(suite: Suite, encryption: &Secret, authentication: &Secret) -> Self {
        let of = |key: &Secret| SECRET.hash_one(key.expose());
        let is_counter = !matches!(suite.encryption(), Encryption::Null | Encryption::AesCbc(_));
        let encryption = of(encryption);
        let authentication = match suite.authentication() {
            Authentication::None => encryption,
            _ => of(authentication),
        };
        Self { is_counter, encryption, authentication }
    }

    /// Whether a number must not be used under both: the ciphers count, and have the same key and salt (RFC 3686 §2.1, RFC
    /// 4106 §3.1).
    pub fn share_numbers(&self, other: &Self) -> bool {
        self.is_counter && other.is_counter && self.encryption == other.encryption
    }

    /// Whether packets of one are genuine for the other.
    pub fn authenticate_alike(&self, other: &Self) -> bool {
        self.authentication == other.authentication
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Icv, Key, KeySize};

    #[test]
    fn keys_are_alike_where_numbers_or_packets_are() {
        let of = |encryption, authentication, e: u8, a: u8| {
            let suite = Suite::new(encryption, authentication).unwrap();
            let key = |byte, len| Secret::new(vec![byte; len]);
            let (e, a) =
                (key(e, suite.encryption_key_len()), key(a, suite.authentication_key_len()));
            Key::new(suite, &e, &a).unwrap().marks()
        };
        let (sha1, none) = (Authentication::HmacSha1_96, Authentication::None);
        let gcm = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
        let (ctr, cbc) =
            (Encryption::AesCtr(KeySize::Bits128), Encryption::AesCbc(KeySize::Bits128));
        let alike = |a: Marks, b: Marks| (a.share_numbers(&b), a.authenticate_alike(&b));
        assert_eq!(alike(of(gcm, none, 1, 0), of(gcm, none, 1, 0)), (true, true));
        assert_eq!(alike(of(gcm, none, 1, 0), of(gcm, none, 2, 0)), (false, false));
        // The blocks of both count alike.
        assert_eq!(alike(of(gcm, none, 1, 0), of(ctr, sha1, 1, 7)), (true, false));
        assert_eq!(alike(of(ctr, sha1, 1, 7), of(ctr, sha1, 1, 8)), (true, false));
        assert_eq!(alike(of(ctr, sha1, 1, 7), of(ctr, sha1, 2, 7)), (false, true));
        assert_eq!(alike(of(cbc, sha1, 1, 7), of(cbc, sha1, 1, 7)), (false, true));
        let null = Encryption::Null;
        assert_eq!(alike(of(null, sha1, 0, 7), of(null, sha1, 0, 8)), (false, false));
        assert_eq!(format!("{:?}", of(gcm, none, 1, 0)), "Marks");
    }
}
