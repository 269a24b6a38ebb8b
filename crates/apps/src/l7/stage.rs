//! Stage `l7`: the application of the flow of each packet, in a column, and the contexts of applications.
//!
//! | | |
//! | --- | --- |
//! | reads | `flow_state`, `flow_slot`, and what the follower found ([`gather`](super::gather)) |
//! | writes | `l7_application`; `context` |
//! | next | all packets, as they are |
//!
//! It looks at no packet and settles none. Rules of a firewall behind it may ask for the application.

use chunk::{Chunk, ColumnSet, Columns, Declaration, Verdict};
use engine::{Context, Phases, Stage};

use super::columns::L7Columns;
use super::gather::Shared;
use crate::flow::FlowColumns;
use crate::flow::by_worker::lock;
use crate::flow::calls::Asker;
use crate::flow::columns::{self, NO_SLOT, STATE};

/// The stage of one worker.
pub struct L7 {
    gathered: Shared,
    _asker: Asker,
    /// By number of an application: the contexts that its packets get.
    contexts: Vec<(u32, u32)>,
    slots: Vec<u32>,
}

impl L7 {
    /// With what the follower of the same worker leaves, and the contexts of applications, by their numbers.
    pub fn new(gathered: Shared, contexts: Vec<(u32, u32)>) -> Self {
        let _asker = lock(&gathered).asker();
        Self { gathered, _asker, contexts, slots: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX) }
    }
}

impl<T: Send + Sync + 'static> Stage<T> for L7 {
    fn name(&self) -> &'static str {
        super::STAGE
    }

    /// No byte is looked at here.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Declaration] {
        &[FlowColumns::COLUMNS, L7Columns::COLUMNS]
    }

    /// Rows that it does not see have no application.
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::of(&[L7Columns::L7_APPLICATION])
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn sets_context(&self) -> Phases {
        if self.contexts.is_empty() { Phases::NONE } else { Phases::PRE }
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, T>) {
        let view = FlowColumns::view(&mut chunk.rows);
        let call = columns::call(view.flow_call);
        self.slots.clear();
        let slots = view.flow_slot.iter().zip(view.flow_state.iter()).zip(view.verdict.iter());
        self.slots.extend(slots.map(|((slot, state), verdict)| {
            let is_of_flow = state & STATE != 0 && Verdict(*verdict).is_next();
            if is_of_flow { *slot } else { NO_SLOT }
        }));
        let mut gathered = lock(&self.gathered);
        let mut rows = gathered.rows(call);
        let view = L7Columns::view(&mut chunk.rows);
        for (row, slot) in self.slots.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT) {
            let number = rows.application(row, *slot as usize);
            view.l7_application[row] = number;
            if number != 0 {
                let own = self.contexts.iter().find(|own| own.0 == number);
                view.context[row] |= own.map_or(0, |own| own.1);
            }
        }
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _: &T) -> String {
        let number = L7Columns::view(&mut chunk.rows).l7_application[row];
        let gathered = lock(&self.gathered);
        let names = super::label::names().chain(gathered.sums().iter().map(|own| own.0));
        let name = { names }.find(|name| super::label::number(name) == number);
        match (number, name) {
            (0, _) => String::new(),
            (_, Some(name)) => format!("application {name}"),
            (_, None) => "an application of a file".to_owned(),
        }
    }
}
