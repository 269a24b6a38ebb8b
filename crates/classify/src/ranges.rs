//! Ranges as prefixes, for structures that match masks only.

/// The fewest prefixes that together are `low..=high` of a field of `bits` bits: value and mask of each, in
/// order. At most `2 bits - 2` of them (Srinivasan, Suri, Varghese, Waldvogel, SIGCOMM 1998, §4).
pub(crate) fn prefixes(low: u32, high: u32, max: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut next = (low <= high).then_some(low);
    std::iter::from_fn(move || {
        let value = next?;
        // The longest block that begins here and does not reach beyond the end.
        let aligned = if value == 0 { max } else { (1_u32 << value.trailing_zeros()) - 1 };
        let mut span = aligned.min(max);
        while span > high - value {
            span >>= 1;
        }
        next = value.checked_add(span).filter(|last| *last < high).map(|last| last + 1);
        Some((value, max & !span))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tile_every_range_of_six_bits() {
        for low in 0..64_u32 {
            for high in low..64 {
                let found: Vec<_> = prefixes(low, high, 63).collect();
                assert!(found.len() <= 10, "{low}..={high}: {}", found.len());
                let mut covered: Vec<u32> = Vec::new();
                for (value, mask) in &found {
                    assert_eq!((!mask & 63).count_ones(), (!mask & 63).trailing_ones());
                    covered.extend((0..64).filter(|x| x & mask == *value));
                }
                assert!(covered.iter().copied().eq(low..=high), "{low}..={high}: {found:?}");
            }
        }
    }

    #[test]
    fn ends_of_32_bits() {
        let all = |low, high| prefixes(low, high, u32::MAX).collect::<Vec<_>>();
        assert_eq!(all(0, u32::MAX), [(0, 0)]);
        assert_eq!(all(u32::MAX, u32::MAX), [(u32::MAX, u32::MAX)]);
        assert_eq!(all(1, u32::MAX - 1).len(), 62);
        assert_eq!(prefixes(1, 0xfffe, 0xffff).count(), 30);
        assert_eq!(prefixes(1024, 65535, 0xffff).count(), 6);
    }
}
