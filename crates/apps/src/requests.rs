//! What the tests of applications' requests share.

use std::fmt::Debug;

use control::api::{Request, decode, fields_of};
use controlplane::request::keywords;
use controlplane::{RequestKind, TableKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn parsed(kind: &RequestKind, words: &[&str]) -> Result<Request, String> {
    let command = kind.named(kind.words[kind.words.len() - 1]).no_binary_name(true);
    let words = keywords(&command, kind.keywords, words.iter().map(|word| (*word).to_owned()));
    let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
    kind.request(&matches)
}

/// The request that arguments of a table make.
pub(crate) fn table_of(kind: &TableKind, words: &[&str]) -> Result<Request, String> {
    let command = kind.named().no_binary_name(true);
    let words = keywords(&command, kind.keywords, words.iter().map(|word| (*word).to_owned()));
    let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
    kind.request(&matches)
}

/// Arguments make this request, which is read as `T` and written alike.
#[track_caller]
pub(crate) fn request_of<T: DeserializeOwned + Serialize + Debug>(
    kind: &RequestKind,
    words: &[&str],
    name: &str,
    fields: &Value,
) -> T {
    let expected = fields_of(fields).unwrap();
    let request = parsed(kind, words).unwrap();
    assert_eq!(request, Request::Call { name: name.to_owned(), fields: expected.clone() });
    let read: T = decode(expected.clone()).unwrap();
    assert_eq!(fields_of(&read).unwrap(), expected, "{read:?}");
    // An unknown field is an error; it is not ignored.
    let mut more = expected;
    more.insert("no_such_field".to_owned(), Value::Null);
    decode::<T>(more).unwrap_err();
    read
}

/// Why arguments are refused.
#[track_caller]
pub(crate) fn error_of(kind: &RequestKind, words: &[&str]) -> String {
    parsed(kind, words).unwrap_err()
}
