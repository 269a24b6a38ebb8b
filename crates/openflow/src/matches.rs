//! What packets a flow takes: values and masks of fields.

use crate::error::ErrorCode;
use crate::field::{Field, VLAN_PRESENT};

/// One field of a match: the packet's value under `mask` is `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldMatch {
    /// The field.
    pub field: Field,
    /// Its value, in the low [`Field::bits`] bits; no bit outside of `mask`.
    pub value: u128,
    /// The bits that count.
    pub mask: u128,
}

impl FieldMatch {
    /// All bits of the field count.
    pub const fn is_exact(&self) -> bool {
        self.mask == self.field.full()
    }
}

/// Fields with values and masks; each field at most once. A field that is not here may have any value.
///
/// The order of the fields is that of the wire; it is kept, and does not count in comparisons.
#[derive(Clone, Debug, Default)]
pub struct Match {
    fields: Vec<FieldMatch>,
}

impl Match {
    /// Every packet.
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// The match, and `field` has exactly `value`.
    #[must_use]
    pub fn with(mut self, field: Field, value: impl Into<u128>) -> Self {
        self.set(field, value.into(), field.full());
        self
    }

    /// The match, and `field` under `mask` is `value`.
    #[must_use]
    pub fn with_masked(mut self, field: Field, value: u128, mask: u128) -> Self {
        self.set(field, value, mask);
        self
    }

    /// Adds a field, or replaces what is there of it. Bits of `value` outside of `mask` are cleared, a mask of no bit
    /// removes the field.
    pub fn set(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & field.full();
        let new = FieldMatch { field, value: value & mask, mask };
        match self.fields.iter().position(|f| f.field == field) {
            Some(at) if mask == 0 => {
                self.fields.remove(at);
            }
            Some(at) => self.fields[at] = new,
            None if mask == 0 => {}
            None => self.fields.push(new),
        }
    }

    /// Value and mask of a field; `None`: any value.
    pub fn get(&self, field: Field) -> Option<FieldMatch> {
        self.fields.iter().find(|f| f.field == field).copied()
    }

    /// The value of a field of which all bits count.
    pub fn exact(&self, field: Field) -> Option<u128> {
        self.get(field).filter(FieldMatch::is_exact).map(|f| f.value)
    }

    /// The fields by their numbers of OXM, so that each comes behind what it needs (OpenFlow 1.3.5 §7.2.3.6).
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.fields.sort_by_key(|own| own.field.oxm());
        self
    }

    /// The fields in order of the wire.
    pub fn fields(&self) -> &[FieldMatch] {
        &self.fields
    }

    /// Every packet matches.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Every field has what it needs in this match.
    ///
    /// # Errors
    /// `BadMatchPrereq` for the first field that has not.
    pub fn check(&self) -> Result<(), ErrorCode> {
        match self.fields.iter().all(|f| self.provides(f.field)) {
            true => Ok(()),
            false => Err(ErrorCode::BadMatchPrereq),
        }
    }

    /// This match says what `field` needs ([`Field::needs`]), so that the field is in every packet that matches.
    pub fn provides(&self, field: Field) -> bool {
        field.needs().iter().all(|need| match need.values {
            [] if need.field == Field::VlanVid => self.get(Field::VlanVid).is_some_and(|f| {
                let present = u128::from(VLAN_PRESENT);
                f.mask & present != 0 && f.value & present != 0
            }),
            [] => self.get(need.field).is_some(),
            values => self.exact(need.field).is_some_and(|v| values.contains(&v)),
        })
    }

    /// Every packet that this match takes is also taken by `other` (loose commands: this flow is in the filter).
    pub fn is_within(&self, other: &Self) -> bool {
        other.fields.iter().all(|o| {
            self.get(o.field)
                .is_some_and(|f| f.mask & o.mask == o.mask && f.value & o.mask == o.value)
        })
    }

    /// A packet may match both: no bit that counts in both differs.
    pub fn overlaps(&self, other: &Self) -> bool {
        other
            .fields
            .iter()
            .all(|o| self.get(o.field).is_none_or(|f| (f.value ^ o.value) & f.mask & o.mask == 0))
    }
}

impl PartialEq for Match {
    fn eq(&self, other: &Self) -> bool {
        self.fields.len() == other.fields.len()
            && self.fields.iter().all(|f| other.get(f.field) == Some(*f))
    }
}

impl Eq for Match {}

impl std::hash::Hash for Match {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let mut sorted = self.fields.clone();
        sorted.sort_unstable();
        sorted.hash(state);
    }
}

impl FromIterator<FieldMatch> for Match {
    fn from_iter<I: IntoIterator<Item = FieldMatch>>(fields: I) -> Self {
        let mut all = Self::new();
        fields.into_iter().for_each(|f| all.set(f.field, f.value, f.mask));
        all
    }
}
