//! The way of a header: the tables of the first stage, then the instructions that the interpreter executes.

use super::code::*;
use super::view::*;
use crate::explain::{Explained, Outcome, Step};
use crate::reduction::explain::{Way, rank};
use crate::reduction::frame::*;

impl Tic<'_> {
    /// Which table is read at which entry, then which instructions of which blocks are true. The first instruction
    /// of a block counts as its access.
    ///
    /// # Panics
    /// For a header of another width.
    pub(crate) fn explain(&self, header: &[u32]) -> Explained {
        let header = header.first_chunk::<WORDS>().expect("a header of four words");
        let mut way = Way::new(&self.frame, &NAMES);
        let addresses = way.addresses(header, true);
        let start = |entry: u32| entry.wrapping_mul(self.unit);
        let entry = way.in_strips(2, ADDRESSES, addresses, |entry| {
            Outcome::LeadsTo(format!("code from {} on", self.place_text(start(entry))))
        });
        let mut pointer = Pointer { at: start(entry), ..Pointer::default() };
        let mut block = None;
        let number = loop {
            let before = pointer;
            let number = self.instruction(header, &mut pointer);
            let at = before.at & !self.block_mask;
            let place = format!("{}: {}", self.place_text(before.at), self.text(before.at));
            let accesses = u32::from(block.replace(at) != Some(at));
            way.steps.push(Step {
                place,
                accesses,
                outcome: self.outcome(before, pointer, number),
            });
            if let Some(number) = number {
                break number;
            }
        };
        let found = way.rule(number);
        let end = match found.is_some() {
            true => "the first instruction that is true is of the best rule",
            false => "the list ends",
        };
        Explained { steps: way.steps, end, found }
    }

    fn place_text(&self, at: u32) -> String {
        let words = self.block_mask + 1;
        format!("block {}, word {}", at / words, at % words)
    }

    fn word(&self, at: u32) -> u32 {
        self.code.get(at as usize).copied().unwrap_or(NOP_WORD)
    }

    /// What an instruction did, by the interpreter before and behind it.
    fn outcome(&self, before: Pointer, behind: Pointer, number: Option<u32>) -> Outcome {
        let operator = self.word(before.at) >> 24;
        match (operator >> 3 & 7, operator & 7, number) {
            (_, _, Some(number @ 1..)) => rank(number),
            (SPECIAL, NOP, Some(_)) => Outcome::Nothing("an empty list"),
            (SPECIAL, NOP, _) => Outcome::Nothing("padding"),
            (SPECIAL, BASE, _) => Outcome::LeadsTo(format!("ranks from {} on", behind.base)),
            (SPECIAL, _, _) if behind.skip => Outcome::Nothing("the protocol does not match"),
            (SPECIAL, _, _) => Outcome::LeadsTo("the next instruction".to_owned()),
            _ if before.skip => Outcome::Nothing("skipped"),
            _ => Outcome::Nothing("not true"),
        }
    }

    /// An instruction as the paper names it, protocol and ports: `EM-WC-AR proto 6 dport 80:82`.
    fn text(&self, at: u32) -> String {
        let word = self.word(at);
        let operator = word >> 24;
        let (sport, dport) = (operator >> 3 & 7, operator & 7);
        if sport == SPECIAL {
            return match dport {
                NOP => "NOP".to_owned(),
                BASE => format!("BASE {:#x}", word & 0xffff),
                _ => format!("GUARD proto {:#x}/{:#x}", word >> 16 & 0xff, word >> 8 & 0xff),
            };
        }
        let is_exact = operator & PROTO != 0;
        let class = |class: u32| CLASSES.get(class as usize).copied().unwrap_or("?");
        let proto = if is_exact { "EM" } else { "WC" };
        let mut text = format!("{proto}-{}-{}", class(sport), class(dport));
        if is_exact {
            text += &format!(" proto {}", word >> 16 & 0xff);
        }
        let mut operand = 0;
        for (name, class) in [("sport", sport), ("dport", dport)] {
            let mut next = || {
                let pair = self.word(at + 1 + operand / 2);
                let half = pair >> (operand % 2 * 16) & 0xffff;
                operand += 1;
                half
            };
            let at = class as usize;
            match OPERANDS[at] {
                1 => text += &format!(" {name} {}", next()),
                2 => {
                    let low = next();
                    text += &format!(" {name} {low}:{}", next());
                }
                _ if class > 0 => text += &format!(" {name} {}:{}", LOWS[at], HIGHS[at]),
                _ => {}
            }
        }
        text
    }
}

/// The classes of ports, as the paper calls them.
const CLASSES: [&str; 5] = ["WC", "HI", "LO", "EM", "AR"];
