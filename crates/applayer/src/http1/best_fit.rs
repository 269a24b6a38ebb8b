//! The characters that servers of Windows take for others: `Ā` for `A`, a fullwidth slash for a slash.
//!
//! It is what libhtp's personality IDS makes of a character in a path, of which a part is Microsoft's mapping of Unicode to
//! code page 1252 by best fit: found by asking Suricata 7.0.10 for each character of the basic plane.

/// The first character of a row, and what it and those behind it become; `?` where there is nothing.
const ROWS: &[(u16, &str)] = &[
    (0x0100, "AaAaAaCcCcCcCcDd?dEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIi??JjKk?LlLlLl??LlNnNnNn"),
    (0x014c, "OoOoOo??RrRrRrSsSsSs??TtTtTtUuUuUuUuUuUuWwYy?Z?Zz"),
    (0x0180, "b"),
    (0x0197, "I??l"),
    (0x019f, "OOo"),
    (0x01ab, "t??TUu"),
    (0x01b6, "z"),
    (0x01c0, "|??!"),
    (0x01cd, "AaIiOoUuUuUuUuUu?Aa"),
    (0x01e4, "GgGgKkOoOo??j"),
    (0x0261, "g"),
    (0x02b9, "'\"?'"),
    (0x02c4, "^"),
    (0x02c8, "'??`?_"),
    (0x0300, "`?^~"),
    (0x030e, "\""),
    (0x0331, "__"),
    (0x037e, ";"),
    (0x0393, "G"),
    (0x0398, "T"),
    (0x03a3, "S??F??O"),
    (0x03b1, "a??de"),
    (0x03c0, "p??st?f"),
    (0x04bb, "h"),
    (0x0589, ":"),
    (0x066a, "%"),
    (0x2000, "       "),
    (0x2010, "--"),
    (0x2017, "="),
    (0x2032, "'??`"),
    (0x2044, "/"),
    (0x2074, "45678"),
    (0x207f, "n0123456789"),
    (0x20a7, "P"),
    (0x2102, "C"),
    (0x2107, "E??gHHHh?IILl?N??PPQRRR"),
    (0x2124, "Z"),
    (0x2128, "Z?K?BCeeEF?Mo"),
    (0x2212, "-??/\\*??v"),
    (0x221e, "8"),
    (0x2223, "|"),
    (0x2229, "n"),
    (0x2236, ":"),
    (0x223c, "~"),
    (0x2261, "=??=="),
    (0x2303, "^"),
    (0x2320, "()"),
    (0x2329, "<>"),
    (0x2500, "-"),
    (0x250c, "+"),
    (0x2510, "+"),
    (0x2514, "+"),
    (0x2518, "+"),
    (0x251c, "+"),
    (0x252c, "-"),
    (0x2534, "-"),
    (0x253c, "+"),
    (0x2550, "-?++++++++++++"),
    (0x2564, "------+++"),
    (0x2584, "_"),
    (0x2758, "|"),
    (0x3000, " "),
    (0x3008, "<>"),
    (0x301a, "[]"),
    (
        0xff01,
        "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~",
    ),
];

/// The byte for a character: itself below 256, else the one that fits best, else a question mark.
pub(crate) fn best_fit(character: u32) -> u8 {
    let Ok(character) = u16::try_from(character) else { return b'?' };
    if let Ok(byte) = u8::try_from(character) {
        return byte;
    }
    let row = ROWS.partition_point(|(first, _)| *first <= character);
    let found = row.checked_sub(1).and_then(|row| {
        let (first, bytes) = ROWS[row];
        bytes.as_bytes().get(usize::from(character - first))
    });
    found.copied().unwrap_or(b'?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters() {
        assert!(ROWS.is_sorted_by(|a, b| usize::from(a.0) + a.1.len() <= usize::from(b.0)));
        let cases = [
            ('a', b'a'),
            ('\u{e9}', 0xe9),
            ('\u{100}', b'A'),
            ('\u{110}', b'?'),
            ('\u{111}', b'd'),
            ('\u{2044}', b'/'),
            ('\u{2215}', b'/'),
            ('\u{2216}', b'\\'),
            ('\u{ff0f}', b'/'),
            ('\u{ff5e}', b'~'),
            ('\u{ff5f}', b'?'),
            ('\u{4e00}', b'?'),
            ('\u{1f600}', b'?'),
        ];
        for (character, byte) in cases {
            assert_eq!(best_fit(u32::from(character)), byte, "{character}");
        }
    }
}
