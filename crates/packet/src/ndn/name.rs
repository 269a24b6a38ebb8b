//! Names: lists of typed components.

use super::tlv::{self, Elements, Malformed, Tlv};

/// Types of components with a meaning of their own.
pub mod component_type {
    /// The SHA-256 of the whole Data packet.
    pub const IMPLICIT_DIGEST: u32 = super::tlv::IMPLICIT_DIGEST;
    /// The SHA-256 of an Interest's parameters.
    pub const PARAMETERS_DIGEST: u32 = super::tlv::PARAMETERS_DIGEST;
    /// Any bytes.
    pub const GENERIC: u32 = super::tlv::GENERIC;
}

/// One component of a name.
pub type Component<'a> = Tlv<'a>;

/// A name whose components have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Name<'a> {
    value: &'a [u8],
    len: usize,
}

impl<'a> Name<'a> {
    /// The components that are one behind the other in `value`.
    ///
    /// # Errors
    /// When they do not end where `value` ends, or one has a type above 65,535.
    pub fn new_checked(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut len = 0;
        for component in Elements(value) {
            let component = component?;
            if component.kind > 0xffff {
                return Err(Malformed::BadComponent(component.kind));
            }
            len += 1;
        }
        Ok(Name { value, len })
    }

    /// Number of components.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The name of no components.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The components' encodings, one behind the other.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The components.
    pub fn components(&self) -> impl Iterator<Item = Component<'a>> + Clone + use<'a> {
        Elements(self.value).map_while(Result::ok)
    }

    /// The components' encodings.
    pub fn encodings(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.components().map(|component| component.encoded)
    }

    /// Whether this name is the other or begins it.
    pub fn is_prefix_of(&self, other: &Name<'_>) -> bool {
        // Encodings tell their lengths, so a prefix of bytes that ends between components of both is one.
        self.len <= other.len && other.value.starts_with(self.value)
    }
}
