//! Algorithms of the kernel and the suites that they make.

use crypto::Secret;
use xfrm::{Algorithm, Attribute, Keys, Unusable};

use crate::recorded::{self, From};

fn key(len: usize) -> Secret {
    Secret::new((1..=len as u8).collect())
}

fn suite(attributes: &[Attribute]) -> String {
    match Keys::from_attributes(attributes) {
        None => "none".to_owned(),
        Some(Ok(keys)) => {
            keys.expand().expect("checked lengths");
            keys.suite().to_string()
        }
        Some(Err(error)) => format!("! {error}"),
    }
}

#[test]
fn recorded_associations_have_the_suites_of_their_commands() {
    let found: Vec<(String, String)> = recorded::all()
        .iter()
        .filter(|own| own.from == From::Ip && own.kind == 0x10)
        .map(|own| {
            let words: Vec<&str> = own.command.split(' ').collect();
            let spi = words.iter().position(|word| *word == "spi").expect("an index");
            (words[spi + 1].to_owned(), suite(&own.decode().attributes))
        })
        .collect();
    let expected = [
        ("0x101", "AES-128-CBC with HMAC-SHA-256-128"),
        ("0x102", "AES-128-CTR with HMAC-SHA1-96"),
        ("0x103", "AES-256-GCM-16"),
        ("0x104", "AES-128-GCM-8"),
        ("0x105", "ChaCha20-Poly1305"),
        ("0x106", "AES-192-GMAC"),
        ("0x107", "NULL with HMAC-SHA-512-256"),
        ("0x108", "AES-256-CBC with HMAC-SHA-384-192"),
        ("0x109", "! cbc(des3_ede) is not supported"),
        ("0x10a", "AES-128-GCM-16"),
        ("0x10b", "AES-128-GCM-16"),
        ("0x10c", "AES-128-GCM-16"),
        ("0x10d", "AES-128-GCM-16"),
        ("0x10e", "NULL with HMAC-SHA1-96"), // AH, which is refused by its protocol
        ("0x10f", "none"),
    ];
    let found: Vec<_> = found.iter().map(|(spi, suite)| (spi.as_str(), suite.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_suite_has_a_name_in_the_kernel() {
    let auth = [
        None,
        Some(("hmac(sha1)", 20, 96)),
        Some(("hmac(sha256)", 32, 128)),
        Some(("hmac(sha384)", 48, 192)),
        Some(("hmac(sha512)", 64, 256)),
    ];
    let mut ciphers = vec![("ecb(cipher_null)", 0, None)];
    for size in [16, 24, 32] {
        ciphers.extend([("cbc(aes)", size, None), ("rfc3686(ctr(aes))", size + 4, None)]);
        ciphers.extend([64, 96, 128].map(|bits| ("rfc4106(gcm(aes))", size + 4, Some(bits))));
        ciphers.push(("rfc4543(gcm(aes))", size + 4, Some(128)));
    }
    ciphers.push(("rfc7539esp(chacha20,poly1305)", 36, Some(128)));
    let mut names = Vec::new();
    for (name, len, check) in ciphers {
        for auth in auth {
            let algorithm = Algorithm::new(name, key(len), check);
            let mut attributes = vec![match check {
                Some(_) => Attribute::AeadKey(algorithm),
                None => Attribute::CipherKey(algorithm),
            }];
            if let Some((name, len, bits)) = auth {
                attributes.push(Attribute::TruncatedAuthKey(Algorithm::new(
                    name,
                    key(len),
                    Some(bits),
                )));
            }
            if check.is_some() == auth.is_none() {
                names.push(suite(&attributes));
            } else {
                assert!(suite(&attributes).starts_with("! "), "{}", suite(&attributes));
            }
        }
    }
    let mut all: Vec<String> = crypto::Suite::all().map(|suite| suite.to_string()).collect();
    names.sort();
    all.sort();
    assert_eq!(names, all);
}

#[test]
fn what_cannot_be_used_is_named() {
    let aead =
        |name, len, bits| vec![Attribute::AeadKey(Algorithm::new(name, key(len), Some(bits)))];
    let cipher = |name, len| Attribute::CipherKey(Algorithm::new(name, key(len), None));
    let auth =
        |name, len, bits| Attribute::TruncatedAuthKey(Algorithm::new(name, key(len), Some(bits)));
    let plain = |name, len| Attribute::AuthKey(Algorithm::new(name, key(len), None));
    let sha1 = || plain("hmac(sha1)", 20);
    for (attributes, expected) in [
        (
            aead("rfc4309(ccm(aes))", 19, 128),
            "! rfc4309(ccm(aes)) with a check value of 128 bits is not supported",
        ),
        (
            aead("rfc4106(gcm(aes))", 20, 32),
            "! rfc4106(gcm(aes)) with a check value of 32 bits is not supported",
        ),
        (aead("rfc4106(gcm(aes))", 16, 128), "! rfc4106(gcm(aes)) has no keys of 128 bits"),
        (vec![cipher("cbc(aes)", 15), sha1()], "! cbc(aes) has no keys of 120 bits"),
        (vec![cipher("cbc(serpent)", 16), sha1()], "! cbc(serpent) is not supported"),
        (vec![cipher("cbc(aes)", 16), plain("hmac(md5)", 16)], "! hmac(md5) is not supported"),
        // The kernel's own check value of this one is that of a draft.
        (
            vec![cipher("cbc(aes)", 16), plain("hmac(sha256)", 32)],
            "! hmac(sha256) with a check value of 96 bits is not supported",
        ),
        (
            vec![cipher("cbc(aes)", 16), auth("hmac(sha256)", 16, 128)],
            "! hmac(sha256) has no keys of 128 bits",
        ),
        (
            vec![cipher("cbc(aes)", 16)],
            "! AES-128-CBC needs an authentication, because it has none of its own",
        ),
        (
            vec![cipher("cbc(aes)", 16), plain("digest_null", 0)],
            "! AES-128-CBC needs an authentication, because it has none of its own",
        ),
        (vec![], "none"),
        // Both attributes are in what the kernel writes; the second one counts.
        (
            vec![cipher("cbc(aes)", 16), plain("hmac(sha256)", 32), auth("hmac(sha256)", 32, 128)],
            "AES-128-CBC with HMAC-SHA-256-128",
        ),
    ] {
        assert_eq!(suite(&attributes), expected);
    }
}

#[test]
fn keys_that_the_kernel_blanks_are_named() {
    let zeros = |len: usize| Secret::new(vec![0; len]);
    let aead = Attribute::AeadKey(Algorithm::new("rfc4106(gcm(aes))", zeros(20), Some(128)));
    let hidden = "! the kernel hides the key of rfc4106(gcm(aes)) (lockdown, xfrm_redact)";
    assert_eq!(suite(&[aead]), hidden);
    let cipher = Attribute::CipherKey(Algorithm::new("cbc(aes)", key(16), None));
    let auth = Attribute::AuthKey(Algorithm::new("hmac(sha1)", zeros(20), None));
    let found = Keys::from_attributes(&[cipher, auth]);
    assert!(matches!(found, Some(Err(Unusable::Blanked { .. }))), "{found:?}");
    // No key at all is not a blanked one.
    let null = Attribute::CipherKey(Algorithm::new("ecb(cipher_null)", zeros(0), None));
    let auth = Attribute::AuthKey(Algorithm::new("hmac(sha1)", key(20), None));
    assert_eq!(suite(&[null, auth]), "NULL with HMAC-SHA1-96");
}

#[test]
fn keys_are_the_same_if_their_bytes_are() {
    let keys = |last: u8| {
        let mut bytes: Vec<u8> = (1..=20).collect();
        bytes[19] = last;
        let own = Algorithm::new("rfc4106(gcm(aes))", Secret::new(bytes), Some(128));
        Keys::from_attributes(&[Attribute::AeadKey(own)]).unwrap().unwrap()
    };
    assert_eq!(keys(20), keys(20));
    assert_ne!(keys(20), keys(21));
    assert!(!format!("{:?}", keys(20)).contains("1, 2"));
}
