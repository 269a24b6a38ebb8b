//! The set of patterns, and what a set may be at most.
//!
//! A rule file of another may hold anything: each limit here bounds time and memory of all that follows. Equal patterns
//! get one number, so that at any place of a stream at most one match for each length and kind can end.

use std::collections::HashMap;
use std::sync::Arc;

/// The longest pattern that tables can hold, in bytes: they keep depths in 16 bits.
pub const PATTERN_BYTES_MAX: usize = 65_534;

/// A string of bytes to look for.
///
/// ```
/// use automata::Pattern;
///
/// let method = Pattern::new(b"GET ").anchored();
/// let agent = Pattern::new(b"User-Agent:").nocase();
/// assert!(method.is_anchored() && !method.is_nocase());
/// assert_eq!(agent.bytes(), b"user-agent:");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    bytes: Arc<[u8]>,
    nocase: bool,
    anchored: bool,
}

impl Pattern {
    /// A pattern that matches exactly these bytes, anywhere in a stream.
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), nocase: false, anchored: false }
    }

    /// The same, where A–Z and a–z match each other. A pattern without a letter stays as it is.
    #[must_use]
    pub fn nocase(mut self) -> Self {
        if self.bytes.iter().any(u8::is_ascii_alphabetic) {
            self.bytes = self.bytes.to_ascii_lowercase().into();
            self.nocase = true;
        }
        self
    }

    /// The same, at the start of the stream only.
    #[must_use]
    pub fn anchored(mut self) -> Self {
        self.anchored = true;
        self
    }

    /// The bytes; in lower case where case does not count.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether A–Z and a–z match each other.
    pub fn is_nocase(&self) -> bool {
        self.nocase
    }

    /// Whether it matches at the start of the stream only.
    pub fn is_anchored(&self) -> bool {
        self.anchored
    }
}

/// What a set and its tables may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Different patterns.
    pub patterns_max: usize,
    /// Bytes of one pattern; above [`PATTERN_BYTES_MAX`] that applies.
    pub pattern_bytes_max: usize,
    /// Bytes of all different patterns.
    pub bytes_max: usize,
    /// Bytes of the tables. They need at least 16 for each byte of the patterns that is not in a common prefix.
    /// Building takes about twice as much beside them.
    pub table_bytes_max: usize,
}

impl Default for Limits {
    /// 1,000,000 patterns, 8,192 bytes each, 16 MiB of all, 256 MiB of tables.
    fn default() -> Self {
        Self {
            patterns_max: 1_000_000,
            pattern_bytes_max: 8_192,
            bytes_max: 16 << 20,
            table_bytes_max: 256 << 20,
        }
    }
}

/// Why a pattern or a set of them was refused. The set is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It would match everywhere.
    #[error("a pattern needs at least one byte")]
    Empty,
    /// One pattern is too long.
    #[error("the pattern has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The set has no place for another one.
    #[error("more than {limit} patterns")]
    TooMany {
        /// What is allowed.
        limit: usize,
    },
    /// The patterns are too long together.
    #[error("the patterns have {bytes} bytes together, at most {limit} are allowed")]
    TooManyBytes {
        /// With the one that was refused.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The tables would be too large.
    #[error("the tables of the patterns need at least {bytes} bytes, at most {limit} are allowed")]
    TableTooLarge {
        /// What was known to be needed when building stopped.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
}

/// A set of different patterns, numbered in the order in which they came.
///
/// ```
/// use automata::{Pattern, PatternError, Patterns};
///
/// let mut patterns = Patterns::default();
/// assert_eq!(patterns.insert(Pattern::new(b"cmd.exe")), Ok(0));
/// assert_eq!(patterns.insert(Pattern::new(b"cmd.exe").nocase()), Ok(1));
/// assert_eq!(patterns.insert(Pattern::new(b"cmd.exe")), Ok(0)); // again
/// assert_eq!(patterns.insert(Pattern::new(b"")), Err(PatternError::Empty));
/// assert_eq!(patterns.len(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    limits: Limits,
    patterns: Vec<Pattern>,
    numbers: HashMap<Pattern, u32>,
    bytes: usize,
}

impl Patterns {
    /// An empty set with limits of its own.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds a pattern and gives its number; one that is there already keeps the number that it has.
    ///
    /// # Errors
    /// When the pattern is empty or too long, or the set is full.
    pub fn insert(&mut self, pattern: Pattern) -> Result<u32, PatternError> {
        let len = pattern.bytes.len();
        let longest = self.limits.pattern_bytes_max.min(PATTERN_BYTES_MAX);
        if len == 0 {
            return Err(PatternError::Empty);
        }
        if len > longest {
            return Err(PatternError::TooLong { bytes: len, limit: longest });
        }
        if let Some(number) = self.numbers.get(&pattern) {
            return Ok(*number);
        }
        let most = self.limits.patterns_max.min(u32::MAX as usize);
        if self.patterns.len() >= most {
            return Err(PatternError::TooMany { limit: most });
        }
        let bytes = self.bytes + len;
        if bytes > self.limits.bytes_max {
            return Err(PatternError::TooManyBytes { bytes, limit: self.limits.bytes_max });
        }
        let number = self.patterns.len() as u32;
        self.numbers.insert(pattern.clone(), number);
        self.patterns.push(pattern);
        self.bytes = bytes;
        Ok(number)
    }

    /// The patterns in the order of their numbers.
    pub fn as_slice(&self) -> &[Pattern] {
        &self.patterns
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Bytes of all patterns.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it may be at most.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
