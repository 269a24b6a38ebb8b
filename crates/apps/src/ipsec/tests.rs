//! Keys and policies of the configuration. The golden case `ipsec` has the packets.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use control::config::{
    PolicyAction, PolicyDirection, PolicyEntry, SaAuthentication, SaDirection, SaEncryption,
    SaEntry,
};
use controlplane::{Findings, Interfaces};
use ipsec::{Action, Direction, Selector};
use testkit::Scratch;

use super::control_part::check_files;
use super::settings::{key, needs_fresh_keys, parameters, policies, suite};

fn entry(key_file: PathBuf) -> SaEntry {
    SaEntry {
        direction: SaDirection::In,
        spi: 0x1000,
        source: "192.0.2.1".parse().unwrap(),
        destination: "198.51.100.1".parse().unwrap(),
        reqid: 7,
        encryption: SaEncryption::Cbc128,
        authentication: SaAuthentication::Sha1,
        key_file,
        ..SaEntry::default()
    }
}

fn file(folder: &Scratch, text: &str, mode: u32) -> PathBuf {
    let path = folder.write("sa.key", text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn keys_are_read_from_files_that_are_private() {
    let folder = Scratch::new();
    let (encryption, authentication) = ("00112233445566778899aabbccddeeff", "ab".repeat(20));
    let both = format!("{encryption}\n{authentication}\n");
    let said = |text: &str, mode: u32, own: SaEntry| {
        let path = file(&folder, text, mode);
        let said = key(&SaEntry { key_file: path, ..own }).map(|_| ()).unwrap_err();
        // No digits of the key.
        assert!(!said.contains(&encryption[..8]) && !said.contains("abab"), "{said}");
        said
    };
    let own = || entry(PathBuf::new());
    let path = file(&folder, &both, 0o600);
    assert!(key(&entry(path)).is_ok());
    assert!(said(&both, 0o640, own()).contains("mode 640 gives others access"));
    assert!(said(encryption, 0o600, own()).contains("1 lines with keys: expected 2"));
    assert!(said(&format!("{encryption}0\n{authentication}"), 0o600, own()).contains("odd number"));
    assert!(said(&format!("{encryption}00\n{authentication}"), 0o600, own()).contains("17"));
    assert!(said(&format!("{encryption}\n{authentication}00"), 0o600, own()).contains("21"));
    let whole = SaEntry {
        encryption: SaEncryption::Gcm128,
        authentication: SaAuthentication::None,
        ..own()
    };
    assert!(said(encryption, 0o600, whole).contains("20"), "the salt is missing");
    assert!(key(&own()).unwrap_err().contains("`key_file` is missing"));
    assert!(key(&entry(Path::new("/nonexistent/key").into())).is_err());
}

#[test]
fn places_do_not_lead_past_the_policies() {
    let of = |places: &str| {
        let text = format!(
            "[port.a]\nbackend = \"memory\"\n[pipeline.main]\nstages = [\"decode\", \"esp_in\", \"route\", \"esp_out\", \"rewrite\"]\nplaces = {{ {places} }}\n"
        );
        let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
        let mut findings = Findings::default();
        check_files(&config, &Interfaces::of(&config), &mut findings);
        findings.0.iter().map(|own| own.message.clone()).collect::<Vec<_>>()
    };
    assert!(of("decode = \"decode\", esp_out = \"esp_out\"").is_empty());
    for places in ["decode = \"route\"", "esp_out = \"rewrite\""] {
        let said = of(places);
        assert!(said.len() == 1 && said[0].contains("with IPsec, place"), "{places}: {said:?}");
    }
}

#[test]
fn entries_become_parameters() {
    let own =
        SaEntry { udp: true, udp_port: 30_000, hard_packets: Some(9), ..entry(PathBuf::new()) };
    let parameters = parameters(&own);
    assert_eq!(parameters.udp.map(|own| (own.source, own.destination)), Some((4500, 30_000)));
    assert_eq!((parameters.spi, parameters.reqid, parameters.hop_limit), (0x1000, 7, 65));
    assert_eq!(parameters.limits.packets.hard, Some(9));
    assert!(!needs_fresh_keys(&own));
    assert!(needs_fresh_keys(&SaEntry::default()));
    // Each name of a cipher is one of a suite, and each suite has a name.
    use SaAuthentication as A;
    use SaEncryption as E;
    let ciphers = [
        E::Gcm128,
        E::Gcm192,
        E::Gcm256,
        E::Gcm128Icv12,
        E::Gcm192Icv12,
        E::Gcm256Icv12,
        E::Gcm128Icv8,
        E::Gcm192Icv8,
        E::Gcm256Icv8,
        E::ChaCha20Poly1305,
        E::Cbc128,
        E::Cbc192,
        E::Cbc256,
        E::Ctr128,
        E::Ctr192,
        E::Ctr256,
        E::Gmac128,
        E::Gmac192,
        E::Gmac256,
        E::Null,
    ];
    let mut found = std::collections::HashSet::new();
    for encryption in ciphers {
        for authentication in [A::None, A::Sha1, A::Sha256, A::Sha384, A::Sha512] {
            found.extend(suite(&SaEntry { encryption, authentication, ..SaEntry::default() }));
        }
    }
    assert_eq!(found, crypto::Suite::all().collect());
}

#[test]
fn a_policy_of_both_directions_is_two() {
    let own = PolicyEntry {
        action: PolicyAction::Protect,
        reqid: Some(7),
        source: Some("10.1.0.0/16".parse().unwrap()),
        destination: Some("10.2.0.0/16".parse().unwrap()),
        protocol: Some("tcp".parse().unwrap()),
        destination_port: Some("80-90".parse().unwrap()),
        ..PolicyEntry::default()
    };
    let both = policies(&own, 3);
    assert_eq!(both.len(), 2);
    assert_eq!((both[0].direction, both[1].direction), (Direction::Out, Direction::In));
    assert_eq!(both[0].selector.destination_ports, 80..=90);
    assert_eq!(both[1].selector, both[0].selector.reversed());
    assert!(both.iter().all(|own| own.priority == 3));
    assert!(matches!(both[1].action, Action::Protect(template) if template.reqid == 7));
    let all = PolicyEntry {
        action: PolicyAction::Discard,
        direction: PolicyDirection::In,
        ..PolicyEntry::default()
    };
    let one = policies(&all, 1);
    assert_eq!((one.len(), &one[0].selector), (1, &Selector::ANY));
}

#[test]
fn one_key_for_two_associations_is_warned_about() {
    let folder = Scratch::new();
    let path = file(&folder, &"5a".repeat(20), 0o600);
    let other = Scratch::new();
    let copy = file(&other, &"5a".repeat(20), 0o600);
    let of = |direction: &str, spi: u32, path: &std::path::Path| {
        let path = path.display();
        format!(
            "[[sa]]\ndirection = \"{direction}\"\nspi = {spi}\nsource = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\nreqid = 1\n\
             key_file = \"{path}\"\n"
        )
    };
    let ports = "mode = \"router\"\n[port.a]\nbackend = \"memory\"\n";
    // In the other direction, with the same index and a copy of the file.
    let [one, two] = [0x1000, 0x1001].map(|spi| of("in", spi, &path));
    let back = of("out", 0x1000, &copy);
    let back = back.replace("192.0.2.2", "192.0.2.3"); // a receiver has an index once
    let text = [ports, &one, &two, &back].concat();
    let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
    let mut findings = Findings::default();
    check_files(&config, &Interfaces::of(&config), &mut findings);
    let all: Vec<_> = findings.0.iter().map(|own| own.message.clone()).collect();
    let all: Vec<_> = all.iter().filter(|text| text.contains("it has the key of")).collect();
    assert!(all.len() == 2 && all[0].contains("0x1001") && all[0].contains("0x1000"), "{all:?}");
}
