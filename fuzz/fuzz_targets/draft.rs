//! Any text as a configuration that `ctl save` changes: what is not changed stays byte for byte, and what is changed can be
//! read again.
#![no_main]

use control::config::draft::Draft;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u8, &str)| {
    let (step, text) = data;
    let Ok(mut draft) = Draft::parse(text) else { return };
    for path in [&["route"] as &[_], &["stage", "edge", "rule"]] {
        let entries = draft.list(path).len();
        assert_eq!(draft.text(), text);
        let at = usize::from(step >> 2) % (entries + 1);
        let mut list = draft.list(path);
        match step % 4 {
            0 => list.insert(at, vec![("prefix".to_owned(), "10.0.0.0/8".into())]),
            1 => list.remove(at),
            2 => list.set(at, "prefix", Some("10.0.0.0/8".into())),
            _ => list.set(at, "prefix", None),
        }
        let changed = draft.text();
        draft = Draft::parse(&changed).expect("a changed text is one");
        if draft.text() != text {
            break;
        }
    }
});
