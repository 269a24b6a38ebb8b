//! SCTP's common header (RFC 9260 §3.1) and its checksum, CRC-32C (appendix A), whole and incremental.

/// Bytes of the common header.
pub const HEADER_LEN: usize = 12;

/// Where the checksum is in the header. It is stored least significant byte first.
pub const CHECKSUM_AT: usize = 8;

/// The polynomial of CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (POLYNOMIAL & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

fn feed(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| TABLE[usize::from(state as u8 ^ byte)] ^ (state >> 8))
}

/// The checksum of a packet of SCTP whose checksum field is `packet[8..12]`, taken as zero.
pub fn checksum(packet: &[u8]) -> u32 {
    let (head, rest) = packet.split_at(packet.len().min(CHECKSUM_AT));
    let state = feed(feed(u32::MAX, head), &[0; 4][..rest.len().min(4)]);
    !feed(state, rest.get(4..).unwrap_or_default())
}

/// The checksum after bytes have changed: `changed` is old XOR new, and `behind` bytes of the packet follow. CRC is linear, so
/// the change of the checksum is the CRC of the change, which `behind` zero bytes are fed to; those take a number of
/// steps that grows with the logarithm of `behind`.
pub fn update(checksum: u32, changed: &[u8], behind: usize) -> u32 {
    checksum ^ feed_zeros(feed(0, changed), behind)
}

/// The state after `count` zero bytes: a product with x^(8 count) modulo the polynomial.
fn feed_zeros(state: u32, count: usize) -> u32 {
    // The state is a polynomial whose highest bit is the coefficient of x^0. One zero byte is a product with x^8.
    let (mut power, mut product, mut count) = (1 << (31 - 8), state, count);
    while count > 0 {
        if count & 1 == 1 {
            product = multiply(product, power);
        }
        power = multiply(power, power);
        count >>= 1;
    }
    product
}

/// The product of two polynomials modulo the polynomial of CRC-32C.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_is_the_catalogue_s() {
        assert_eq!(!feed(u32::MAX, b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn an_update_is_the_checksum_of_the_change(
            packet in prop::collection::vec(any::<u8>(), 12..300),
            ports: [u8; 4],
        ) {
            let mut changed = packet.clone();
            changed[..4].copy_from_slice(&ports);
            let delta: Vec<u8> = (0..4).map(|at| packet[at] ^ ports[at]).collect();
            let updated = update(checksum(&packet), &delta, packet.len() - 4);
            prop_assert_eq!(updated, checksum(&changed));
        }
    }
}
