//! Published known answers, and those that OpenSSL gave (`vectors/make.py`).

use std::collections::HashMap;

use crate::common::{bytes, values};
use crypto::modes::{Mode, Padding, RawKey, Text, decrypt_batch, encrypt_batch};
use crypto::{
    Authentication, Encryption, Key, KeySize, Request, Secret, Suite, open_batch, seal_batch,
};

/// Encrypts and decrypts; what is there must be what a vector says.
fn both_ways(mode: Mode, key: &[u8], iv: &[u8], text: &[u8], encrypted: &[u8]) {
    let key = RawKey::new(mode, &Secret::new(key.to_vec())).unwrap();
    let mut buffer = text.to_vec();
    buffer.resize(mode.encrypted_len(text.len()), 0);
    assert_eq!(key.encrypt(iv, &[], &mut buffer, text.len()), Ok(encrypted.len()), "{mode}");
    assert_eq!(buffer, encrypted, "{mode}");
    assert_eq!(key.decrypt(iv, &[], &mut buffer, encrypted.len()), Ok(text.len()), "{mode}");
    assert_eq!(buffer[..text.len()], *text, "{mode}");
    // The same in a batch.
    let mut whole = [0; 16];
    whole[..iv.len()].copy_from_slice(iv);
    let mut batch = [Text::new(&key, whole, &mut buffer, text.len())];
    encrypt_batch(&mut batch);
    assert_eq!(batch[0].result, Ok(encrypted.len()), "{mode}");
    assert_eq!(buffer, encrypted, "{mode}");
    let mut batch = [Text::new(&key, whole, &mut buffer, encrypted.len())];
    decrypt_batch(&mut batch);
    assert_eq!(batch[0].result, Ok(text.len()), "{mode}");
    assert_eq!(buffer[..text.len()], *text, "{mode}");
}

/// A file of NIST's: its number of answers.
fn nist(name: &str, mode: Mode, answers: usize) {
    let path = format!("crypto/cryptography_vectors/ciphers/AES/{name}");
    let Some(file) = testdata::bytes(&path) else { return };
    let text = String::from_utf8(file).unwrap();
    let (keys, ivs) = (values(&text, "KEY"), values(&text, "IV"));
    let (plain, encrypted) = (values(&text, "PLAINTEXT"), values(&text, "CIPHERTEXT"));
    assert_eq!((keys.len(), plain.len(), encrypted.len()), (answers, answers, answers), "{name}");
    for at in 0..answers {
        let iv = if mode.iv_len() > 0 { bytes(ivs[at]) } else { Vec::new() };
        both_ways(mode, &bytes(keys[at]), &iv, &bytes(plain[at]), &bytes(encrypted[at]));
    }
}

#[test]
fn nist_cbc() {
    let mode = Mode::Cbc(Padding::None);
    nist("CBC/CBCGFSbox128.rsp", mode, 14);
    nist("CBC/CBCKeySbox128.rsp", mode, 42);
    nist("CBC/CBCMMT128.rsp", mode, 20);
    nist("CBC/CBCMMT256.rsp", mode, 20);
    nist("CBC/CBCVarKey128.rsp", mode, 256);
    nist("CBC/CBCVarTxt128.rsp", mode, 256);
}

#[test]
fn nist_ecb() {
    let mode = Mode::Ecb(Padding::None);
    nist("ECB/ECBKeySbox128.rsp", mode, 42);
    nist("ECB/ECBVarTxt128.rsp", mode, 256);
    nist("ECB/ECBMMT128.rsp", mode, 20);
}

#[test]
fn rfc3686_as_a_raw_mode() {
    nist("CTR/aes-128-ctr.txt", Mode::Ctr, 3);
    nist("CTR/aes-192-ctr.txt", Mode::Ctr, 3);
}

/// The same vectors as packets: the counter block is nonce, initialisation vector and 1.
#[test]
fn rfc3686_as_packets() {
    let mut count = 0;
    for (name, size) in [("128", KeySize::Bits128), ("192", KeySize::Bits192)] {
        let path = format!("crypto/cryptography_vectors/ciphers/AES/CTR/aes-{name}-ctr.txt");
        let Some(file) = testdata::bytes(&path) else { return };
        let text = String::from_utf8(file).unwrap();
        let suite = Suite::new(Encryption::AesCtr(size), Authentication::HmacSha256_128).unwrap();
        let (keys, ivs) = (values(&text, "KEY"), values(&text, "IV"));
        let plain = values(&text, "PLAINTEXT").into_iter().zip(values(&text, "CIPHERTEXT"));
        for ((key, iv), (plain, encrypted)) in keys.into_iter().zip(ivs).zip(plain) {
            let (iv, plain) = (bytes(iv), bytes(plain));
            assert_eq!(iv[12..], [0, 0, 0, 1]);
            let salted = [bytes(key), iv[..4].to_vec()].concat();
            let key = Key::new(suite, &Secret::new(salted), &Secret::new(vec![0; 32])).unwrap();
            let mut buffer = [vec![0; 8 + 8], plain.clone(), vec![0; 16]].concat();
            let mut requests = [Request::new(&key, &mut buffer, 8, plain.len())];
            requests[0].iv[..8].copy_from_slice(&iv[4..12]);
            seal_batch(&mut requests);
            assert_eq!(requests[0].result, Ok(()));
            assert_eq!(buffer[16..16 + plain.len()], bytes(encrypted));
            count += 1;
        }
    }
    assert_eq!(count, 6);
}

#[test]
fn openssl_raw_modes() {
    let names = HashMap::from([
        ("ECB", Mode::Ecb(Padding::None)),
        ("CBC", Mode::Cbc(Padding::None)),
        ("CTR", Mode::Ctr),
        ("CFB", Mode::Cfb),
        ("OFB", Mode::Ofb),
        ("GCM", Mode::Gcm),
    ]);
    let lines = include_str!("vectors/texts.txt").lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(" |").map(str::trim).collect();
        let [name, key, iv, text, encrypted] = fields[..] else { panic!("{line}") };
        both_ways(names[name], &bytes(key), &bytes(iv), &bytes(text), &bytes(encrypted));
        count += 1;
    }
    assert_eq!(count, 3 * 6 * 5);
}

/// All packets of all suites in one batch, sealed and opened.
#[test]
fn openssl_packets() {
    struct Case {
        key: Key,
        header: Vec<u8>,
        high: Option<u32>,
        iv: Vec<u8>,
        text: Vec<u8>,
        body: Vec<u8>,
    }
    let suites: HashMap<String, Suite> =
        Suite::all().map(|suite| (suite.to_string(), suite)).collect();
    let lines = include_str!("vectors/packets.txt").lines().filter(|line| !line.starts_with('#'));
    let cases: Vec<Case> = lines
        .map(|line| {
            let fields: Vec<&str> = line.split(" |").map(str::trim).collect();
            let [suite, encryption, authentication, header, high, iv, text, body] = fields[..]
            else {
                panic!("{line}")
            };
            let secret = |hex| Secret::from_hex(hex).unwrap();
            let key = Key::new(suites[suite], &secret(encryption), &secret(authentication));
            let high = (high != "-").then(|| u32::from_str_radix(high, 16).unwrap());
            Case {
                key: key.unwrap(),
                header: bytes(header),
                high,
                iv: bytes(iv),
                text: bytes(text),
                body: bytes(body),
            }
        })
        .collect();
    assert_eq!(cases.len(), suites.len() * 4);
    let mut buffers: Vec<Vec<u8>> = cases
        .iter()
        .map(|case| {
            let icv = vec![0; case.key.suite().icv_len()];
            [&case.header[..], &vec![0; case.iv.len()], &case.text, &icv].concat()
        })
        .collect();
    let requests = |buffers: &mut Vec<Vec<u8>>, run: fn(&mut [Request<'_>])| {
        let mut requests: Vec<Request<'_>> = cases
            .iter()
            .zip(buffers)
            .map(|(case, buffer)| {
                let mut request = Request::new(&case.key, buffer, 8, case.text.len());
                request.iv[..case.iv.len()].copy_from_slice(&case.iv);
                request.sequence_high = case.high;
                request
            })
            .collect();
        run(&mut requests);
        let wrong = requests.iter().find(|request| request.result.is_err());
        assert!(wrong.is_none(), "{wrong:?}");
    };
    requests(&mut buffers, seal_batch);
    for (case, buffer) in cases.iter().zip(&buffers) {
        assert_eq!(buffer[8..], case.body, "{:?}, {} bytes", case.key, case.text.len());
    }
    requests(&mut buffers, open_batch);
    for (case, buffer) in cases.iter().zip(&buffers) {
        let text = 8 + case.iv.len();
        assert_eq!(buffer[text..text + case.text.len()], case.text, "{:?}", case.key);
    }
}
