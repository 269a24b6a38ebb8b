//! Which checks may hold of a buffer: those whose literal is in it, and those that have none.
//!
//! ```text
//!  bytes ─▶ Automaton ─ pattern ─▶ starts ─▶ refs: numbers of parts
//!                                            always: parts without a literal
//! ```

use automata::{Automaton, Pattern, PatternError, Patterns, State};

/// The parts of one buffer and sender.
#[derive(Debug, Default)]
pub(crate) struct Set {
    automaton: Option<Automaton>,
    /// By pattern: where its parts begin in `refs`; one more at the end.
    starts: Vec<u32>,
    refs: Vec<u32>,
    pub(crate) always: Vec<u32>,
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.always.is_empty()
    }

    /// Walks on: `hit` gets parts, each as often as its literal is there, and where it ends.
    pub(crate) fn scan(
        &self,
        state: Option<State>,
        bytes: &[u8],
        offset: u64,
        mut hit: impl FnMut(u32, u64),
    ) -> Option<State> {
        let automaton = self.automaton.as_ref()?;
        let state = state.unwrap_or_else(|| automaton.start());
        Some(automaton.scan(state, bytes, offset, |found| {
            let at = found.pattern as usize;
            let parts = self.starts[at] as usize..self.starts[at + 1] as usize;
            self.refs[parts].iter().for_each(|part| hit(*part, found.end));
        }))
    }
}

/// Collects the parts of a set.
#[derive(Default)]
pub(crate) struct SetBuilder {
    patterns: Patterns,
    pairs: Vec<(u32, u32)>,
    always: Vec<u32>,
}

impl SetBuilder {
    pub(crate) fn add(
        &mut self,
        part: u32,
        literal: Option<&(Vec<u8>, bool)>,
    ) -> Result<(), PatternError> {
        match literal {
            None => self.always.push(part),
            Some((bytes, nocase)) => {
                let pattern = Pattern::new(bytes);
                let pattern = if *nocase { pattern.nocase() } else { pattern };
                self.pairs.push((self.patterns.insert(pattern)?, part));
            }
        }
        Ok(())
    }

    /// Where the tables of the literals are too large, every part is evaluated on every buffer.
    pub(crate) fn build(mut self) -> Set {
        let automaton = match self.patterns.is_empty() {
            true => None,
            false => Automaton::new(&self.patterns).ok(),
        };
        if automaton.is_none() {
            self.always.extend(self.pairs.drain(..).map(|(_, part)| part));
        }
        self.pairs.sort_unstable();
        let mut starts = vec![0; self.patterns.len() + 1];
        self.pairs.iter().for_each(|(pattern, _)| starts[*pattern as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let refs = self.pairs.iter().map(|(_, part)| *part).collect();
        Set { automaton, starts, refs, always: self.always }
    }
}
