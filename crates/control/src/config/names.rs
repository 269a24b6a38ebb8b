//! Prefixes of names as a person writes them: in the configuration, in files and over the control socket.

use lookup::names::{DEPTH_MAX, PREFIX_BYTES_MAX};
use packet::ndn::{NameBuf, UriError};

/// Why a text is not a prefix of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParsePrefixError {
    /// It is not a name.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// More components than a table takes.
    #[error("a prefix of {0} components, more than {DEPTH_MAX}")]
    TooDeep(usize),
    /// More bytes than a table takes.
    #[error("a prefix of {0} bytes, more than {PREFIX_BYTES_MAX}")]
    TooLong(usize),
}

/// Reads the prefix of a route, a URI such as `/org/example`, into `name`; `/` is the prefix of all names.
///
/// # Errors
/// What is wrong with it.
pub fn read_prefix(text: &[u8], name: &mut NameBuf) -> Result<(), ParsePrefixError> {
    name.read_uri(text)?;
    let (depth, bytes) = (name.name().len(), name.name().value().len());
    if depth > DEPTH_MAX {
        return Err(ParsePrefixError::TooDeep(depth));
    }
    if bytes > PREFIX_BYTES_MAX {
        return Err(ParsePrefixError::TooLong(bytes));
    }
    Ok(())
}

/// The same, as a name of its own.
///
/// # Errors
/// What is wrong with it.
pub fn parse_prefix(text: &str) -> Result<NameBuf, ParsePrefixError> {
    let mut name = NameBuf::new();
    read_prefix(text.as_bytes(), &mut name)?;
    Ok(name)
}
