//! Which bytes count where two segments give different ones for the same place.
//!
//! TCP says nothing about it, and hosts differ; what inspects a stream must decide as the receiving host does, or an
//! attacker shows it another stream (Ptacek and Newsham, 1998). The rules are those of Novak and Sturges, "Target-Based TCP
//! Stream Reassembly" (2007), in the form in which Suricata applies them (`stream-tcp-list.c`): they compare the bounds of
//! the segment that arrives with the bounds of the one that is buffered.
//!
//! ```text
//!   buffered        |-----------|
//!   arrives      |-----------|            begins before                 (bsd, linux, windows: new bytes)
//!                   |-----------|         the same bounds               (solaris, old linux: new bytes)
//!                   |---------------|     begins with it, ends beyond   (linux, solaris: new bytes)
//!                       |-----------|     within                        (all but last: old bytes)
//!                       |-----------|---  ends beyond                   (solaris: new bytes)
//! ```
//!
//! Pure: any thread.

use std::ops::Range;
use std::str::FromStr;

/// How a host resolves overlaps of buffered segments. Bytes that were delivered never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Policy {
    /// BSD and most others: the segment that begins first.
    #[default]
    Bsd,
    /// The bytes that came first.
    First,
    /// The bytes that came last.
    Last,
    /// Linux since 2.4: as BSD, and of two with the same begin the one that ends beyond the other.
    Linux,
    /// Linux before: as BSD, and of two with the same begin the newer one, if it is not shorter.
    OldLinux,
    /// Windows before Vista: as BSD.
    Windows,
    /// Windows 2003: as BSD.
    Windows2003,
    /// Windows Vista and later: as first.
    Vista,
    /// Solaris: the segment that ends last.
    Solaris,
    /// HP-UX 10: as BSD.
    Hpux10,
    /// HP-UX 11: as Solaris.
    Hpux11,
    /// IRIX: as BSD.
    Irix,
    /// macOS: as BSD.
    Macos,
}

impl Policy {
    /// All, with the names by which they are configured.
    pub const NAMES: [(&'static str, Policy); 13] = [
        ("bsd", Policy::Bsd),
        ("first", Policy::First),
        ("last", Policy::Last),
        ("linux", Policy::Linux),
        ("old-linux", Policy::OldLinux),
        ("windows", Policy::Windows),
        ("windows2003", Policy::Windows2003),
        ("vista", Policy::Vista),
        ("solaris", Policy::Solaris),
        ("hpux10", Policy::Hpux10),
        ("hpux11", Policy::Hpux11),
        ("irix", Policy::Irix),
        ("macos", Policy::Macos),
    ];

    /// The name by which it is configured.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    pub(super) fn from_index(index: u8) -> Option<Policy> {
        Self::NAMES.get(usize::from(index)).map(|&(_, policy)| policy)
    }

    /// Whether the bytes of a segment with the bounds `new` replace those of a buffered one with the bounds `old`, which
    /// came before and overlaps it. Bounds are those of the segments as they came.
    #[inline]
    pub fn new_wins(self, new: &Range<u64>, old: &Range<u64>) -> bool {
        let begins_before = new.start < old.start;
        match self {
            Policy::First | Policy::Vista => false,
            Policy::Last => true,
            Policy::Bsd
            | Policy::Windows
            | Policy::Windows2003
            | Policy::Hpux10
            | Policy::Irix
            | Policy::Macos => begins_before,
            Policy::Linux => begins_before || new.start == old.start && new.end > old.end,
            Policy::OldLinux => begins_before || new.start == old.start && new.end >= old.end,
            Policy::Solaris | Policy::Hpux11 => {
                new.end > old.end || new.end == old.end && new.start <= old.start
            }
        }
    }
}

/// No policy has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl std::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Policy::NAMES.map(|(name, _)| name).join(", ");
        write!(f, "unknown policy; expected one of {names}")
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, policy)| policy).ok_or(UnknownPolicy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_policies() {
        for (index, (name, policy)) in Policy::NAMES.into_iter().enumerate() {
            assert_eq!((policy as usize, policy.name(), name.parse()), (index, name, Ok(policy)));
            assert_eq!(Policy::from_index(index as u8), Some(policy));
        }
        assert_eq!("plan9".parse::<Policy>(), Err(UnknownPolicy));
        assert_eq!(Policy::from_index(13), None);
    }

    /// One row per relation of the bounds, one column per kind of policy: the table of the paper.
    #[test]
    fn relations_of_bounds() {
        const COLUMNS: [Policy; 6] = [
            Policy::First,
            Policy::Last,
            Policy::Bsd,
            Policy::Linux,
            Policy::OldLinux,
            Policy::Solaris,
        ];
        // The buffered segment is 10..20.
        let rows = [
            (5..15, [0, 1, 1, 1, 1, 0], "begins before, ends within"),
            (5..20, [0, 1, 1, 1, 1, 1], "begins before, ends with it"),
            (5..25, [0, 1, 1, 1, 1, 1], "begins before, ends beyond"),
            (10..15, [0, 1, 0, 0, 0, 0], "begins with it, ends within"),
            (10..20, [0, 1, 0, 0, 1, 1], "same bounds"),
            (10..25, [0, 1, 0, 1, 1, 1], "begins with it, ends beyond"),
            (12..18, [0, 1, 0, 0, 0, 0], "within"),
            (12..20, [0, 1, 0, 0, 0, 0], "begins within, ends with it"),
            (12..25, [0, 1, 0, 0, 0, 1], "begins within, ends beyond"),
        ];
        for (new, expected, what) in rows {
            let found = COLUMNS.map(|policy| u8::from(policy.new_wins(&new, &(10..20))));
            assert_eq!(found, expected, "{what}");
        }
    }
}
