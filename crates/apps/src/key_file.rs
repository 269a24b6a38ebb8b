//! Files with keys: hexadecimal digits, for nobody but their owner, who is root or runs the program.

use std::io::Read;
use std::path::Path;

use crypto::Secret;

/// Bytes of a file at most: digits of the longest keys, and some space.
const FILE_MAX: usize = 1024;

/// Reads the key of a file with one.
///
/// # Errors
/// As [`read`]; there are several.
pub(crate) fn read_one(path: &Path) -> Result<Secret, String> {
    let mut keys = read(path)?;
    match (keys.pop(), keys.len()) {
        (Some(key), 0) => Ok(key),
        (None, _) => Ok(Secret::none()),
        _ => Err(format!("{}: several keys: expected one", path.display())),
    }
}

/// Reads the keys of a file: as many lines of digits as it has.
///
/// # Errors
/// Why there are none, in words that do not have them.
pub(crate) fn read(path: &Path) -> Result<Vec<Secret>, String> {
    let shown = path.display();
    let wrong = |error: std::io::Error| format!("{shown}: {error}");
    let mut file = files::open_private(path).map_err(wrong)?;
    // As long as the longest file, so that it does not grow and leave copies behind.
    let mut bytes = vec![0; FILE_MAX + 1];
    let mut len = 0;
    let result = loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break Ok(()),
            Ok(count) => len += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => break Err(wrong(error)),
        }
    };
    // Wiped when it goes.
    let bytes = Secret::new(bytes);
    result?;
    if len > FILE_MAX {
        return Err(format!(
            "{shown}: longer than {FILE_MAX} bytes: expected the key as hexadecimal digits"
        ));
    }
    let text = std::str::from_utf8(&bytes.expose()[..len]);
    let text =
        text.map_err(|_| format!("{shown}: not text: expected the key as hexadecimal digits"))?;
    let lines = text.split_whitespace().map(Secret::from_hex);
    lines.collect::<Result<_, _>>().map_err(|error| format!("{shown}: {error}"))
}
