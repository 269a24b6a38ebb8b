//! Sessions and ports against those of a plain translator.

use std::collections::HashMap;

use nat::rules::Action;
use nat::translator::{Options, Refusal, Source, Way};
use nat::tuple::{End, Tuple};
use nat::{Tcp, Translator};
use proptest::prelude::*;

use crate::properties::{OUTSIDE, all_sessions, cached_step, options, rules};

/// The step of a packet of UDP with these ends.
fn step(translator: &mut Translator, of: &Tuple, now_s: u32) -> Option<(Tuple, Way)> {
    cached_step(translator, of, Tcp::default(), now_s)
}

/// The translator that a textbook would have, with the ports that the other one chose.
#[derive(Default)]
struct Textbook {
    sessions: HashMap<Tuple, (Tuple, u32)>,
    bindings: HashMap<(u8, End), (End, u32)>,
    /// Sessions without an answer, and those with one: oldest first.
    unanswered: Vec<Tuple>,
    answered: Vec<Tuple>,
}

impl Textbook {
    fn expire(&mut self, now_s: u32) {
        let idle: Vec<Tuple> = self
            .sessions
            .iter()
            .filter(|(_, (_, seen))| now_s - seen >= 30)
            .map(|(original, _)| *original)
            .collect();
        idle.iter().for_each(|original| self.end(original));
    }

    fn end(&mut self, original: &Tuple) {
        self.sessions.remove(original);
        for list in [&mut self.unanswered, &mut self.answered] {
            list.retain(|own| own != original);
        }
        let key = (original.protocol, original.src);
        let count = &mut self.bindings.get_mut(&key).expect("a binding").1;
        *count -= 1;
        if *count == 0 {
            self.bindings.remove(&key);
        }
    }

    /// The oldest session without an answer makes room, or of the eight that were answered first the one that is idle longest.
    fn least(&self) -> Tuple {
        self.unanswered.first().copied().unwrap_or_else(|| {
            let seen = |own: &&Tuple| self.sessions[*own].1;
            *self.answered.iter().take(8).min_by_key(seen).expect("a session")
        })
    }

    fn make_room(&mut self) {
        let gone = self.least();
        if self.unanswered.is_empty() && gone != self.answered[0] {
            self.answered.rotate_left(1);
        }
        self.end(&gone);
    }

    /// Whether the session that makes room leaves a port.
    fn leaves(&self) -> bool {
        let gone = self.least();
        self.bindings[&(gone.protocol, gone.src)].1 == 1
    }
}

proptest! {
    #[test]
    fn it_agrees_with_a_plain_translator(
        steps in prop::collection::vec((0u8..4, 0u16..12, 0u8..3, 0u32..4, any::<bool>()), 1..400),
        narrow in 0u16..40,
        sessions in prop::sample::select(vec![1usize, 2, 3, 6, 12, 64]),
    ) {
        let action = Action::Source(vec![OUTSIDE]);
        let options = Options { sessions, ..options() };
        let mut own = Translator::new(options, rules(action, 5000..=5000 + narrow, 1)).unwrap();
        let mut plain = Textbook::default();
        let mut now_s = 100;
        for (host, port, remote, pause, is_back) in steps {
            now_s += pause;
            while !own.sweep(7, now_s) {}
            plain.expire(now_s);
            let src = ([0, 0xc0a8_0100 + u64::from(host)], 5000 + port);
            let dst = ([0, 0x0808_0800 + u64::from(remote)], 53);
            let original = Tuple { src, dst, protocol: 17, family: 4, ..Tuple::default() };
            if is_back {
                // An answer to whatever the session is.
                let Some((translated, seen)) = plain.sessions.get_mut(&original) else { continue };
                let answer = translated.reversed();
                *seen = now_s;
                if let Some(at) = plain.unanswered.iter().position(|own| *own == original) {
                    plain.answered.push(plain.unanswered.remove(at));
                }
                let step = step(&mut own, &answer, now_s);
                prop_assert_eq!(step, Some((original.reversed(), Way::Back)));
                prop_assert_eq!(own.restore(&original.reversed()), Some(answer));
                continue;
            }
            match plain.sessions.get_mut(&original) {
                Some((translated, seen)) => {
                    *seen = now_s;
                    prop_assert_eq!(step(&mut own, &original, now_s), Some((*translated, Way::Forward)));
                    prop_assert_eq!(own.restore(translated), Some(original));
                }
                None => {
                    prop_assert_eq!(step(&mut own, &original, now_s), None);
                    let made = own.begin(&original, dst, 4, Source::Rule(3, 1), now_s);
                    let is_full = plain.sessions.len() >= sessions;
                    let known = plain.bindings.get(&(17, src)).map(|own| own.0);
                    let of_host = plain.bindings.keys().filter(|own| own.1.0 == src.0).count();
                    let left = usize::from(is_full && plain.leaves());
                    let free = usize::from(narrow) + 1 - plain.bindings.len() + left;
                    let want = if known.is_some() {
                        None
                    } else if of_host >= 9 {
                        Some(Refusal::HostLimit)
                    } else if free == 0 {
                        Some(Refusal::Ports)
                    } else {
                        None
                    };
                    prop_assert_eq!(made.err(), want);
                    let Ok(made) = made else {
                        // Nobody loses a session for it.
                        let all = all_sessions(&own, now_s);
                        prop_assert_eq!(all.len(), plain.sessions.len());
                        prop_assert!(all.iter().all(|own| plain.sessions.contains_key(&own.original)));
                        continue;
                    };
                    if let Some(binding) = plain.bindings.get_mut(&(17, src)) {
                        binding.1 += 1;
                    }
                    if is_full {
                        plain.make_room();
                    }
                    prop_assert_eq!((made.dst, made.src.0), (dst, [0, OUTSIDE.into()]));
                    match known {
                        Some(known) => prop_assert_eq!(made.src, known, "one mapping for all remote ends"),
                        None => {
                            let taken = plain.bindings.values().any(|own| own.0 == made.src);
                            prop_assert!(!taken && (5000..=5000 + narrow).contains(&made.src.1));
                            let preserved = !plain.bindings.values().any(|own| own.0.1 == src.1)
                                && src.1 <= 5000 + narrow;
                            prop_assert!(!preserved || made.src.1 == src.1);
                        }
                    }
                    plain.bindings.entry((17, src)).or_insert((made.src, 1));
                    plain.sessions.insert(original, (made, now_s));
                    plain.unanswered.push(original);
                }
            }
            prop_assert_eq!(own.len(), plain.sessions.len());
            let used: u32 = own.pools().map(|pool| pool.used).sum();
            prop_assert_eq!(used as usize, plain.bindings.len());
        }
    }
}
