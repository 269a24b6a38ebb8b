//! Sets of named bits.

/// A set of named bits in an integer; unknown bits are kept.
macro_rules! bits {
    ($(#[$doc:meta])* $name:ident : $int:ty { $($(#[$bit_doc:meta])* $bit:ident = $value:expr => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$bit_doc])* pub const $bit: Self = Self($value);)*

            /// Every bit with the name that ovs-ofctl prints.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$bit, $text),)*];

            /// No bit set.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// All bits of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// No bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The bits of both.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The bits that `other` does not have.
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Names of the set bits, in order of their values.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(bit, _)| self.contains(*bit)).map(|(_, name)| *name)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:#x}", stringify!($name), self.0)?;
                self.names().try_for_each(|name| write!(f, " {name}"))?;
                write!(f, ")")
            }
        }
    };
}

pub(crate) use bits;
