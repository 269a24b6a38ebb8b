//! The word that a mistyped one may have meant.

/// Steps from one word to another: a letter more, less or another one, or two letters in the other order.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let other = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if is_swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                other.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(swapped)
            };
        }
    }
    rows[a.len()][b.len()]
}

/// The nearest of names, one step away, or two where the word is longer than four letters. Case does not count. Of names as near
/// one that begins with the word is preferred, then the first.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // What is longer than any name is not compared.
    let most = if word.len() > 4 { 2 } else { 1 };
    let near = names.filter(|name| word.len().abs_diff(name.len()) <= most);
    let word = word.to_ascii_lowercase();
    let with_steps = near.map(|name| {
        let lower = name.to_ascii_lowercase();
        (distance(&word, &lower), !lower.starts_with(&word), name)
    });
    let (steps, _, name) = with_steps.min_by_key(|(steps, is_other, _)| (*steps, *is_other))?;
    (steps <= most).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named_where_it_is_near() {
        let names = ["table", "tcp", "tp_dst", "tp_src", "output", "ip"];
        let of = |word| nearest(word, names.into_iter());
        assert_eq!(of("tabel"), Some("table"));
        assert_eq!(of("tpc"), Some("tcp"));
        assert_eq!(of("tp_dest"), Some("tp_dst"));
        assert_eq!(of("outpt"), Some("output"));
        assert_eq!(of("TCP"), Some("tcp"));
        assert_eq!(of("OUTPT"), Some("output"));
        assert_eq!(of("tp_ds"), Some("tp_dst"));
        assert_eq!(of("tp_xxx"), None);
        assert_eq!(of("zz"), None);
        assert_eq!(of("vlan"), None);
        assert_eq!(of(&"x".repeat(10_000)), None);
    }
}
