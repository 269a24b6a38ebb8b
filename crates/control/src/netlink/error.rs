//! What can go wrong between us and the kernel.

use std::io;

use thiserror::Error as ThisError;

/// A failed netlink operation. `what` names the operation in the user's words.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The socket itself failed.
    #[error("{what}: {source}")]
    Socket {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel refused the request.
    #[error("{what}: {}{source}", .message.as_deref().map(|m| format!("{m}: ")).unwrap_or_default())]
    Refused {
        /// The operation.
        what: String,
        /// The extended acknowledgement, if the kernel sent one.
        message: Option<String>,
        /// The error number as an error.
        source: io::Error,
    },
    /// No answer within the client's time limit.
    #[error("{what}: no answer from the kernel within {limit_ms} ms")]
    Timeout {
        /// The operation.
        what: String,
        /// The limit that passed.
        limit_ms: u64,
    },
    /// The answer could not be read.
    #[error("{what}: unexpected answer: {detail}")]
    Malformed {
        /// The operation.
        what: String,
        /// What was wrong with it.
        detail: String,
    },
    /// The named interface does not exist in this network namespace.
    #[error("no interface named `{name}` in this network namespace")]
    NoSuchLink {
        /// The name looked for.
        name: String,
    },
}

impl Error {
    pub(crate) fn socket(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error::Socket { what: what.into(), source: source.into() }
    }

    pub(crate) fn malformed(what: impl Into<String>, detail: impl ToString) -> Self {
        Error::Malformed { what: what.into(), detail: detail.to_string() }
    }

    /// The errno of a refusal, for callers that treat some of them as answers.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Refused { source, .. } | Error::Socket { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
