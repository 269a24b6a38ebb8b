//! Commands as python-ndn 0.5.2 sends them, and what is wrong with those that are changed.

use packet::ndn::management::{
    Command, CommandError, Parameters, Scope, answer, is_command, response, scope,
};
use packet::ndn::{Body, Interest, NameBuf, Packet};
use proptest::prelude::*;

/// `/localhop/nfd/rib/register` for `/org/app`, a signed Interest of format 0.3.
const SIGNED: &str = "0599075008086c6f63616c686f7008036e6664080372696208087265676973746572080e680c070a08036f7267\
    08036170700220fffd575c79ca3c8a6484cadeb5ae91a4d450cc54bc446b93de6a556e8c6739d00a04112233440c0203e824002c171b01\
    002608010203040506070828080000018bcfe568002e208f84604d786d6f77c2d855ad1e5d0eaa2c7575ecd24f4b17887d83a7169b2eda";

/// `/localhop/nfd/rib/unregister` for the same with every parameter, signed in its name.
const OLD: &str = "058b077f08086c6f63616c686f7008036e66640803726962080a756e7265676973746572081e681c070a08036f72670803\
    6170706901006f01006a01036c01016d02ea6008080000018bcfe5680008080102030405060708080516031b010008221720d7376f74cd\
    37b5a2f1f5be1d11b29d06824d20ddbcf0038529c204a3fe2cb6c30a04112233440c0203e8";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn with_interest<R>(bytes: &[u8], look: impl FnOnce(&Interest<'_>) -> R) -> Option<R> {
    match Packet::new_checked(bytes).ok()?.body {
        Body::Interest(interest) => Some(look(&interest)),
        _ => None,
    }
}

fn error(bytes: &[u8]) -> CommandError {
    with_interest(bytes, |interest| Command::read(interest).unwrap_err()).expect("an Interest")
}

#[test]
fn both_forms_are_read() {
    let app = NameBuf::from_uri(b"/org/app").unwrap();
    let name = Some(app.name());
    with_interest(&bytes(SIGNED), |interest| {
        assert!(is_command(&interest.name()));
        let command = Command::read(interest).unwrap();
        assert_eq!((command.module, command.verb), (&b"rib"[..], &b"register"[..]));
        assert_eq!(command.parameters, Parameters { name, ..Parameters::default() });
    })
    .unwrap();
    with_interest(&bytes(OLD), |interest| {
        let command = Command::read(interest).unwrap();
        assert_eq!(command.verb, b"unregister");
        let expected = Parameters {
            name,
            face_id: Some(0),
            origin: Some(0),
            cost: Some(3),
            flags: Some(1),
            expiration_ms: Some(60_000),
        };
        assert_eq!(command.parameters, expected);
    })
    .unwrap();
}

#[test]
fn what_is_changed_is_found() {
    // A byte of the prefix, the nonce in the signature, the signature.
    for at in [0x36, 0x80, 0x9a] {
        let mut signed = bytes(SIGNED);
        signed[at] ^= 1;
        assert_eq!(error(&signed), CommandError::WrongDigest, "{at}");
    }
    let mut old = bytes(OLD);
    old[0x36] ^= 1;
    assert_eq!(error(&old), CommandError::WrongDigest);
    // Without parameters, and without a signature.
    let unsigned = |uri: &str| {
        let (mut out, fields) = (Vec::new(), Default::default());
        let name = NameBuf::from_uri(uri.as_bytes()).unwrap();
        packet::ndn::emit_interest(name.name().value(), &fields, None, &mut out).unwrap();
        out
    };
    for (uri, expected) in [
        ("/localhop/nfd", CommandError::Malformed),
        ("/localhop/nfd/rib/register", CommandError::Malformed),
        ("/localhop/nfd/rib/register/x", CommandError::Malformed),
        ("/localhop/nfd/rib/register/h%00", CommandError::NotSigned),
        ("/localhop/nfd/rib/register/h%00/1/2/3", CommandError::NotSigned),
        ("/localhop/nfd/rib/register/h%00/1/2/3/4", CommandError::Malformed),
    ] {
        assert_eq!(error(&unsigned(uri)), expected, "{uri}");
    }
}

#[test]
fn scopes() {
    for (uri, expected, command) in [
        ("/localhop/nfd/rib", Scope::Hop, true),
        ("/localhop/nf", Scope::Hop, false),
        ("/localhop", Scope::Hop, false),
        ("/localhost/nfd", Scope::Host, false),
        ("/localhopp/nfd", Scope::Global, false),
        ("/a/localhop/nfd", Scope::Global, false),
        ("/", Scope::Global, false),
    ] {
        let name = NameBuf::from_uri(uri.as_bytes()).unwrap();
        assert_eq!((scope(&name.name()), is_command(&name.name())), (expected, command), "{uri}");
    }
}

#[test]
fn an_answer_is_signed_data() {
    let name = NameBuf::from_uri(b"/localhop/nfd/rib/register/x").unwrap();
    let app = NameBuf::from_uri(b"/a").unwrap();
    let parameters =
        Parameters { name: Some(app.name()), cost: Some(300), ..Parameters::default() };
    let content = response(200, "OK", Some(&parameters));
    assert_eq!(content, bytes("6512 6601c8 67024f4b 6809 0703080161 6a02012c"));
    let out = answer(&name.name(), &content).unwrap();
    let Body::Data(data) = Packet::new_checked(&out).unwrap().body else { panic!() };
    assert_eq!(
        (data.name(), data.content(), data.freshness_ms()),
        (name.name(), &content[..], 1000)
    );
    let end = out.len() - 34;
    assert_eq!(data.signature_value(), packet::ndn::digest(&out[2..end]));
    assert!(answer(&name.name(), &[0; 8_800]).is_none());
}

proptest! {
    /// Whatever a command is changed to, it is read or refused.
    #[test]
    fn any_bytes(old in any::<bool>(), changes in prop::collection::vec((0..160_usize, any::<u8>()), 1..4)) {
        let mut packet = bytes(if old { OLD } else { SIGNED });
        for (at, value) in changes {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        with_interest(&packet, |interest| {
            is_command(&interest.name());
            let _ = Command::read(interest);
        });
    }
}
