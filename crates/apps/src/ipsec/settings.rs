//! Associations and policies of the configuration.

use control::config::{
    PolicyAction, PolicyDirection, PolicyEntry, PortRange, SaAuthentication, SaDf, SaDirection,
    SaEncryption, SaEntry, SaMode,
};
use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
use ipsec::policy::ANY_PORT;
use ipsec::{
    Action, Direction, Dont, Dscp, Limit, Limits, Mode, Parameters, Policy, Selector, Template, Udp,
};

use crate::key_file;

/// TTL of outer headers: `rewrite` takes one.
pub const HOP_LIMIT: u8 = 65;

/// The suite of an association.
///
/// # Errors
/// Cipher and authentication do not go together.
pub fn suite(own: &SaEntry) -> Result<Suite, String> {
    use KeySize::{Bits128, Bits192, Bits256};
    use SaEncryption as E;
    let encryption = match own.encryption {
        E::Gcm128 => Encryption::AesGcm(Bits128, Icv::Bytes16),
        E::Gcm192 => Encryption::AesGcm(Bits192, Icv::Bytes16),
        E::Gcm256 => Encryption::AesGcm(Bits256, Icv::Bytes16),
        E::Gcm128Icv12 => Encryption::AesGcm(Bits128, Icv::Bytes12),
        E::Gcm192Icv12 => Encryption::AesGcm(Bits192, Icv::Bytes12),
        E::Gcm256Icv12 => Encryption::AesGcm(Bits256, Icv::Bytes12),
        E::Gcm128Icv8 => Encryption::AesGcm(Bits128, Icv::Bytes8),
        E::Gcm192Icv8 => Encryption::AesGcm(Bits192, Icv::Bytes8),
        E::Gcm256Icv8 => Encryption::AesGcm(Bits256, Icv::Bytes8),
        E::ChaCha20Poly1305 => Encryption::ChaCha20Poly1305,
        E::Cbc128 => Encryption::AesCbc(Bits128),
        E::Cbc192 => Encryption::AesCbc(Bits192),
        E::Cbc256 => Encryption::AesCbc(Bits256),
        E::Ctr128 => Encryption::AesCtr(Bits128),
        E::Ctr192 => Encryption::AesCtr(Bits192),
        E::Ctr256 => Encryption::AesCtr(Bits256),
        E::Gmac128 => Encryption::AesGmac(Bits128),
        E::Gmac192 => Encryption::AesGmac(Bits192),
        E::Gmac256 => Encryption::AesGmac(Bits256),
        E::Null => Encryption::Null,
    };
    let authentication = match own.authentication {
        SaAuthentication::None => Authentication::None,
        SaAuthentication::Sha1 => Authentication::HmacSha1_96,
        SaAuthentication::Sha256 => Authentication::HmacSha256_128,
        SaAuthentication::Sha384 => Authentication::HmacSha384_192,
        SaAuthentication::Sha512 => Authentication::HmacSha512_256,
    };
    Suite::new(encryption, authentication).map_err(|error| error.to_string())
}

/// Whether two packets with one number would give text away: nothing but a daemon keeps numbers from coming again after a
/// restart (RFC 4106 §2, RFC 3686 §2.1).
pub fn needs_fresh_keys(own: &SaEntry) -> bool {
    use SaEncryption as E;
    !matches!(own.encryption, E::Null | E::Cbc128 | E::Cbc192 | E::Cbc256)
}

/// The key of an association, read from its file.
///
/// # Errors
/// Why there is none, in words that do not have it.
pub fn key(own: &SaEntry) -> Result<Key, String> {
    let suite = suite(own)?;
    let shown = own.key_file.display();
    if own.key_file.as_os_str().is_empty() {
        return Err("`key_file` is missing: it names a file with the keys".to_owned());
    }
    let keys = key_file::read(&own.key_file)?;
    let wants = [suite.encryption_key_len(), suite.authentication_key_len()].map(|len| len > 0);
    let wanted = wants.iter().filter(|wants| **wants).count();
    if keys.len() != wanted {
        let found = keys.len();
        return Err(format!("{shown}: {found} lines with keys: expected {wanted}"));
    }
    let mut keys = keys.into_iter();
    let mut next = |wants: bool| if wants { keys.next() } else { None };
    let [encryption, authentication] = wants.map(|wants| next(wants).unwrap_or(Secret::none()));
    Key::new(suite, &encryption, &authentication).map_err(|error| format!("{shown}: {error}"))
}

/// What an association is, but for its key.
pub fn parameters(own: &SaEntry) -> Parameters {
    let direction = match own.direction {
        SaDirection::In => Direction::In,
        SaDirection::Out => Direction::Out,
    };
    let limit = |soft, hard| Limit { soft, hard };
    Parameters {
        mode: match own.mode {
            SaMode::Tunnel => Mode::Tunnel,
            SaMode::Transport => Mode::Transport,
        },
        if_id: own.if_id.unwrap_or(0),
        is_extended: own.esn,
        window: own.window,
        first_number: own.first_number,
        udp: own.udp.then_some(Udp { source: ipsec::inbound::UDP_PORT, destination: own.udp_port }),
        pad_to: own.pad_to,
        dscp: own.dscp.map_or(Dscp::Copy, Dscp::Set),
        dont_fragment: match own.df {
            SaDf::Copy => Dont::Copy,
            SaDf::Set => Dont::Set,
            SaDf::Clear => Dont::Clear,
        },
        ecn: own.ecn,
        hop_limit: HOP_LIMIT,
        limits: Limits {
            bytes: limit(own.soft_bytes, own.hard_bytes),
            packets: limit(own.soft_packets, own.hard_packets),
            seconds: limit(own.soft_seconds, own.hard_seconds),
        },
        ..Parameters::new(direction, own.spi, (own.source, own.destination), own.reqid)
    }
}

/// The policies that an entry stands for; `priority`: its place.
pub fn policies(own: &PolicyEntry, priority: u32) -> Vec<Policy> {
    let ports = |own: &Option<PortRange>| own.as_ref().map_or(ANY_PORT, |own| own.0.clone());
    let selector = Selector {
        source: own.source,
        destination: own.destination,
        protocol: own.protocol.map(|own| own.0),
        source_ports: ports(&own.source_port),
        destination_ports: ports(&own.destination_port),
    };
    let action = match own.action {
        PolicyAction::Bypass => Action::Bypass,
        PolicyAction::Discard => Action::Discard,
        PolicyAction::Protect => {
            Action::Protect(Template { reqid: own.reqid.unwrap_or(0), tunnel: None })
        }
    };
    let if_id = own.if_id.unwrap_or(0);
    let of = |direction, selector| Policy { direction, priority, if_id, selector, action };
    match own.direction {
        PolicyDirection::In => vec![of(Direction::In, selector)],
        PolicyDirection::Out => vec![of(Direction::Out, selector)],
        PolicyDirection::Both => {
            let back = selector.reversed();
            vec![of(Direction::Out, selector), of(Direction::In, back)]
        }
    }
}
