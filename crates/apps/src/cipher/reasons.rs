//! Drop reasons of the encryption stage.

chunk::drop_reasons! {
    /// What the encryption stage drops for.
    pub const BLOCK: 14, "encryption";

    CIPHER_MTU = 0, "cipher_mtu", "the encrypted packet would be longer than `mtu` of the stage",
        "Lower the MTU of the hosts or of the interface before the stage by the bytes that the cipher adds (docs/cipher.md).";
    CIPHER_FRAGMENT = 1, "cipher_fragment", "a fragment of a TCP or UDP packet, or of one whose protocol is not known, which cannot be encrypted or decrypted by itself",
        "Encrypt before a router that fragments, or lower the MTU of the sender.";
    CIPHER_NOT_WHOLE = 2, "cipher_not_whole", "the payload is not a multiple of 16 bytes, which ECB and CBC need without padding",
        "Set `padding = \"pkcs7\"`, or use a mode that takes any length.";
    CIPHER_SHORT = 3, "cipher_short", "the payload is shorter than what the cipher adds, or not a multiple of the block size",
        "Check that the sender encrypts with the same cipher, `iv` and `padding`.";
    CIPHER_NOT_GENUINE = 4, "cipher_not_genuine", "tag or padding of the payload is wrong",
        "Check that both ends have the same key and settings, and that nothing between them translates addresses or ports.";
    CIPHER_MALFORMED = 5, "cipher_malformed", "a header or a length of the IP, TCP or UDP packet is wrong",
        "Find the sender (`ctl capture drops -w drops.pcapng`).";
    CIPHER_ENCAPSULATED = 6, "cipher_encapsulated", "TCP or UDP may be behind headers that the stage does not read: an authentication header of IPv4, more than two VLAN tags, or LLC and SNAP",
        "Encrypt where packets do not have these headers yet, or remove them before.";
}
