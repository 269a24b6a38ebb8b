//! RSA beside OpenSSL on the command line: its keys, its signatures, its texts.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crypto::Secret;
use crypto::rsa::{PrivateKey, PublicKey, RsaError};

/// What `openssl` writes for what it gets; `None` where there is no such program.
fn openssl(arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: no openssl");
        return None;
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

/// Files of one test, which go with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("crypto-rsa-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A new key, as PKCS#1.
fn new_key(bits: &str) -> Option<Vec<u8>> {
    let pem = openssl(&["genrsa", "-traditional", bits], b"")?;
    openssl(&["rsa", "-traditional", "-outform", "DER"], &pem)
}

fn private(der: &[u8]) -> PrivateKey {
    PrivateKey::from_der(&Secret::new(der.to_vec())).unwrap()
}

#[test]
fn signatures_are_those_of_openssl() {
    let folder = Folder::new("sign");
    for bits in ["1024", "2048"] {
        let Some(der) = new_key(bits) else { return };
        let file = folder.file("key.der", &der);
        let key = private(&der);
        assert_eq!(
            format!("{key:?} {:?}", key.public()),
            format!("PrivateKey(RSA-{bits}) PublicKey(RSA-{bits})")
        );
        for message in [&b""[..], b"a message", &[7; 5000]] {
            let expected =
                openssl(&["dgst", "-sha256", "-sign", &file, "-keyform", "DER"], message).unwrap();
            let mut signature = [0; 256];
            let len = key.sign(message, &mut signature).unwrap();
            assert_eq!(signature[..len], expected);
            let public = key.public();
            assert_eq!(public.verify(message, &expected), Ok(()));
            assert_eq!(public.verify(b"another message", &expected), Err(RsaError::NotGenuine));
            for at in [0, 1, len / 2, len - 1] {
                let mut wrong = expected.clone();
                wrong[at] ^= 0x10;
                assert_eq!(public.verify(message, &wrong), Err(RsaError::NotGenuine));
            }
            assert_eq!(public.verify(message, &expected[1..]), Err(RsaError::NotGenuine));
            // A number that is not below the modulus.
            assert_eq!(public.verify(message, &vec![0xff; len]), Err(RsaError::NotGenuine));
        }
        assert_eq!(key.sign(b"", &mut [0; 127]), Err(RsaError::NoRoom { needed: key.len() }));
    }
}

#[test]
fn texts_of_openssl_are_decrypted() {
    let folder = Folder::new("decrypt");
    for bits in ["1024", "2048"] {
        let Some(der) = new_key(bits) else { return };
        let file = folder.file("key.der", &der);
        let key = private(&der);
        let longest = key.len() - 66;
        for len in [0, 1, 16, longest - 1, longest] {
            let text: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let options = ["-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256"];
            let command = ["pkeyutl", "-encrypt", "-inkey", &file, "-keyform", "DER"];
            let encrypted = openssl(&[&command[..], &options].concat(), &text).unwrap();
            let mut out = [0; 256];
            assert_eq!(key.decrypt(&encrypted, &mut out), Ok(len));
            assert_eq!(out[..len], text);
            for at in [1, 40, encrypted.len() - 1] {
                let mut wrong = encrypted.clone();
                wrong[at] ^= 1;
                assert_eq!(key.decrypt(&wrong, &mut out), Err(RsaError::NotGenuine));
            }
            assert_eq!(key.decrypt(&encrypted[1..], &mut out), Err(RsaError::NotGenuine));
            let needed = longest;
            assert_eq!(
                key.decrypt(&encrypted, &mut out[..longest - 1]),
                Err(RsaError::NoRoom { needed })
            );
        }
    }
}

/// PKCS#1 and PKCS#8, and the two forms of a public key, are one key; everything else is refused without a panic.
#[test]
fn keys_in_all_forms_and_broken_ones() {
    let Some(der) = new_key("1024") else { return };
    let key = private(&der);
    let folder = Folder::new("forms");
    let file = folder.file("key.der", &der);
    let input = ["-inform", "DER", "-in", &file, "-outform", "DER"];
    let pkcs8 = openssl(&[&["pkcs8", "-topk8", "-nocrypt"], &input[..]].concat(), b"").unwrap();
    let info = openssl(&[&["rsa", "-pubout"], &input[..]].concat(), b"").unwrap();
    let plain = openssl(&[&["rsa", "-RSAPublicKey_out"], &input[..]].concat(), b"").unwrap();
    let mut signature = [0; 256];
    let len = private(&pkcs8).sign(b"text", &mut signature).unwrap();
    for public in
        [key.public(), PublicKey::from_der(&info).unwrap(), PublicKey::from_der(&plain).unwrap()]
    {
        assert_eq!(public.verify(b"text", &signature[..len]), Ok(()));
    }
    let is_key = |der: &[u8]| PrivateKey::from_der(&Secret::new(der.to_vec())).is_ok();
    for der in [&der, &pkcs8] {
        for len in 0..der.len() {
            assert!(!is_key(&der[..len]), "cut at {len}");
        }
        assert!(!is_key(&[der, &[0][..]].concat()), "something behind");
    }
    // A flipped bit in any number that is used; the private exponent is not.
    let step = 7;
    for at in (0..der.len()).step_by(step) {
        let mut wrong = der.clone();
        wrong[at] ^= 1;
        if is_key(&wrong) {
            let mut other = [0; 256];
            let len = private(&wrong).sign(b"text", &mut other).unwrap();
            assert_eq!(other[..len], signature[..len], "bit at {at}");
        }
    }
    for der in [&info, &plain] {
        for len in 0..der.len() {
            assert_eq!(PublicKey::from_der(&der[..len]).map(drop), Err(RsaError::Key));
        }
    }
    let Some(short) = new_key("512") else { return };
    assert!(!is_key(&short), "512 bits");
}
