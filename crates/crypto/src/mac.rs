//! HMAC (RFC 2104) with SHA-1 and SHA-2.
//!
//! SHA-1 runs over many messages at once (`sha1`); SHA-2 one after another by the crate `hmac`, from the state behind
//! the key's block.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384, Sha512};

use crate::sha1::HmacSha1;
use crate::suite::Authentication;

/// Bytes of the longest digest.
pub(crate) const DIGEST_MAX: usize = 64;

/// States of the hash behind the inner and the outer pad.
pub(crate) enum MacKey {
    None,
    Sha1(HmacSha1),
    /// The long ones are apart, so that those of other suites are not.
    Sha256(Box<Hmac<Sha256>>),
    Sha384(Box<Hmac<Sha384>>),
    Sha512(Box<Hmac<Sha512>>),
    #[cfg(feature = "aws-lc-rs")]
    AwsLc(aws_lc_rs::hmac::Key),
}

impl MacKey {
    /// One of AWS-LC.
    #[cfg(feature = "aws-lc-rs")]
    pub(crate) fn of_aws_lc(authentication: Authentication, key: &[u8]) -> Self {
        crate::aws_lc::hmac_key(authentication, key).map_or(Self::None, Self::AwsLc)
    }

    /// A key of any length.
    pub(crate) fn new(authentication: Authentication, key: &[u8]) -> Self {
        const ANY: &str = "HMAC takes keys of any length";
        match authentication {
            Authentication::None => Self::None,
            Authentication::HmacSha1_96 => Self::Sha1(HmacSha1::new(key)),
            Authentication::HmacSha256_128 => {
                Self::Sha256(Box::new(KeyInit::new_from_slice(key).expect(ANY)))
            }
            Authentication::HmacSha384_192 => {
                Self::Sha384(Box::new(KeyInit::new_from_slice(key).expect(ANY)))
            }
            Authentication::HmacSha512_256 => {
                Self::Sha512(Box::new(KeyInit::new_from_slice(key).expect(ANY)))
            }
        }
    }

    /// One digest over two parts, in front of `out`, where it is not of the batches of SHA-1.
    pub(crate) fn digest(&self, parts: [&[u8]; 2], out: &mut [u8; DIGEST_MAX]) {
        fn run<M: Mac + Clone>(key: &M, parts: [&[u8]; 2], out: &mut [u8; DIGEST_MAX]) {
            let mut mac = key.clone();
            parts.iter().for_each(|part| mac.update(part));
            let digest = mac.finalize().into_bytes();
            out[..digest.len()].copy_from_slice(&digest);
        }
        match self {
            Self::None | Self::Sha1(_) => {}
            Self::Sha256(key) => run(&**key, parts, out),
            Self::Sha384(key) => run(&**key, parts, out),
            Self::Sha512(key) => run(&**key, parts, out),
            #[cfg(feature = "aws-lc-rs")]
            Self::AwsLc(key) => crate::aws_lc::digest(key, parts, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(authentication: Authentication, key: &[u8], message: &[u8]) -> Vec<u8> {
        let mut out = [0; DIGEST_MAX];
        let len = match MacKey::new(authentication, key) {
            MacKey::Sha1(key) => {
                let mut digests = [[0; 20]];
                crate::sha1::digests(&[key.job(message, &[])], &mut digests);
                out[..20].copy_from_slice(&digests[0]);
                20
            }
            key => {
                let (front, back) = message.split_at(message.len() / 2);
                key.digest([front, back], &mut out);
                authentication.icv_len() * 2
            }
        };
        out[..len].to_vec()
    }

    /// Keys shorter and longer than a block.
    #[test]
    fn published_digests() {
        let files = [
            (Authentication::HmacSha1_96, "rfc-2202-sha1.txt", 7),
            (Authentication::HmacSha256_128, "rfc-4231-sha256.txt", 6),
        ];
        for (authentication, name, count) in files {
            let path = format!("crypto/cryptography_vectors/HMAC/{name}");
            let Some(bytes) = testdata::bytes(&path) else { continue };
            let text = String::from_utf8(bytes).unwrap();
            let values = |name: &str| {
                let lines = text.lines().filter_map(|line| line.split_once(" ="));
                let values = lines.filter(|(key, _)| *key == name).map(|(_, value)| {
                    crate::Secret::from_hex(value.trim()).unwrap().expose().to_vec()
                });
                values.collect::<Vec<_>>()
            };
            let (keys, messages, digests) = (values("Key"), values("Msg"), values("MD"));
            assert_eq!((keys.len(), messages.len(), digests.len()), (count, count, count));
            for ((key, message), expected) in keys.iter().zip(&messages).zip(&digests) {
                let found = digest(authentication, key, message);
                assert_eq!(found[..expected.len()], expected[..]);
            }
        }
    }

    /// RFC 4231 §4.3, test case 2, the digests that no file has.
    #[test]
    fn longer_digests() {
        let cases = [
            (
                Authentication::HmacSha384_192,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
                 8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Authentication::HmacSha512_256,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ];
        for (authentication, expected) in cases {
            let expected = crate::Secret::from_hex(expected).unwrap();
            let found = digest(authentication, b"Jefe", b"what do ya want for nothing?");
            assert_eq!(found, expected.expose());
        }
    }
}
