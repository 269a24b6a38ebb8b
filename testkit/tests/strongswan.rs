//! Two daemons of strongSwan establish a tunnel, and packets pass it.

use testkit::strongswan::{Charon, DataPath, Ends, Proof, Tunnel, require_strongswan};

fn ping_passes(proof: Proof, esp: &str) {
    if !require_strongswan() || testkit::require_tool("ping").is_none() {
        return;
    }
    let ends = Ends::new("swan");
    let tunnel = Tunnel { proof, esp: esp.to_owned(), ..Tunnel::default() };
    let [left, right] = Charon::pair(&ends, [DataPath::Libipsec, DataPath::Libipsec], &tunnel);
    left.initiate();
    ends.left.run("ping -c 3 -i 0.05 -W 5 -I 10.1.0.1 10.2.0.1");
    // Both know the same keys, and the same indexes in the other order.
    let (ours, theirs) = (left.keys(), right.keys());
    assert_eq!((ours.len(), theirs.len()), (1, 1), "{}", left.log());
    let (ours, theirs) = (&ours[0], &theirs[0]);
    assert!(!ours.initiator[0].is_empty() && ours.initiator != ours.responder);
    assert_eq!((&ours.initiator, &ours.responder), (&theirs.initiator, &theirs.responder));
    assert_eq!((&ours.spis[0], &ours.spis[1]), (&theirs.spis[1], &theirs.spis[0]));
}

#[test]
fn by_a_pre_shared_key() {
    ping_passes(Proof::Psk, "aes128gcm16");
}

#[test]
fn by_certificates() {
    ping_passes(Proof::Certificates, "aes256-sha256");
}
