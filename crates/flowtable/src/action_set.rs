//! Action sets: of each kind of action the latest, carried out in the order of OpenFlow 1.3.5 §5.10.
//!
//! copy TTL inwards · pop · push MPLS · push PBB · push VLAN · copy TTL outwards · decrement TTL · set fields · queue · group ·
//! output. A group stands for the output.

use openflow::{Action, Field};

/// Places of a set: what stands before and behind the fields, which have a place each.
const BEFORE: usize = 12;
const BEHIND: usize = 7;

/// Places of a set.
pub const PLACES: usize = BEFORE + Field::ALL.len() + BEHIND;

const SET_QUEUE: usize = PLACES - 3;
const GROUP: usize = PLACES - 2;
const OUTPUT: usize = PLACES - 1;

/// The place of an action; `None` for one that is in no set.
pub fn place(action: &Action) -> Option<usize> {
    Some(match action {
        Action::CopyTtlIn => 0,
        Action::PopVlan => 1,
        Action::PopMpls(_) => 2,
        Action::PopPbb => 3,
        Action::PushMpls(_) => 4,
        Action::PushPbb(_) => 5,
        Action::PushVlan(_) => 6,
        Action::CopyTtlOut => 7,
        Action::DecMplsTtl => 8,
        Action::DecNwTtl => 9,
        Action::SetMplsTtl(_) => 10,
        Action::SetNwTtl(_) => 11,
        Action::SetField(field, _) => BEFORE + usize::from(field.oxm()),
        Action::SetVlanVid(_) => BEFORE + Field::ALL.len(),
        Action::SetVlanPcp(_) => BEFORE + Field::ALL.len() + 1,
        Action::SetTpSrc(_) => BEFORE + Field::ALL.len() + 2,
        Action::SetTpDst(_) => BEFORE + Field::ALL.len() + 3,
        Action::SetQueue(_) => SET_QUEUE,
        Action::Group(_) => GROUP,
        Action::Output { .. } | Action::Enqueue { .. } => OUTPUT,
        Action::Experimenter { .. } => return None,
    })
}

/// Actions of a bucket or of a flow by the places of a set, in the order in which they are carried out.
pub fn ordered(actions: &[Action]) -> Vec<Action> {
    let mut places: Vec<Option<&Action>> = vec![None; PLACES];
    for action in actions {
        if let Some(place) = place(action) {
            places[place] = Some(action);
        }
    }
    if places[GROUP].is_some() {
        places[OUTPUT] = None;
    }
    places.into_iter().flatten().cloned().collect()
}

/// An action set, as the flows whose actions are in it: the flow's number and the action's in its
/// [`write`](crate::flow::Steps::write).
#[derive(Debug, Clone)]
pub struct ActionSet {
    places: [(u32, u16); PLACES],
    is_empty: bool,
}

const NONE: (u32, u16) = (u32::MAX, u16::MAX);

impl Default for ActionSet {
    fn default() -> Self {
        Self { places: [NONE; PLACES], is_empty: true }
    }
}

impl ActionSet {
    /// Empties it.
    pub fn clear(&mut self) {
        if !self.is_empty {
            *self = Self::default();
        }
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Adds the actions of a flow.
    pub fn write(&mut self, flow: u32, actions: &[Action]) {
        for (at, action) in actions.iter().enumerate() {
            if let Some(place) = place(action) {
                self.places[place] = (flow, at as u16);
                self.is_empty = false;
            }
        }
    }

    /// What is carried out, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u16)> {
        let has_group = self.places[GROUP] != NONE;
        let places = self.places.iter().enumerate();
        let places =
            places.filter(move |(at, place)| **place != NONE && !(has_group && *at == OUTPUT));
        places.map(|(_, place)| *place)
    }
}
