//! Flows that others have announced, until they come.
//!
//! An expectation names the end that opens the flow, the other end, and the port there; the port of the end that opens it is
//! not known. It ends when the flow comes, with its control flow, when that announces another one, or with its time-out.
//! There are at most so many. Nothing is allocated after the first one.

use std::collections::HashMap;

use crate::key::{FlowKey, Side};

/// A flow that is expected: what is known of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expected {
    /// Address of the end that opens it, as [`FlowKey`] has it.
    pub opener: [u64; 2],
    /// Address of the other end.
    pub listener: [u64; 2],
    /// Port of the other end.
    pub port: u16,
    /// Upper-layer protocol (IANA).
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// As [`FlowKey::scope`].
    pub scope: u32,
}

impl Expected {
    /// What a flow is, the first packet of which `opener` sends.
    pub fn of(key: &FlowKey, opener: Side) -> Self {
        Self {
            opener: key.addresses[opener.index()],
            listener: key.addresses[opener.other().index()],
            port: key.port(opener.other()),
            protocol: key.protocol,
            family: key.family,
            scope: key.scope,
        }
    }
}

/// Why a flow is not expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are as many as there may be.
    Full,
    /// Another flow has announced the same.
    Taken,
}

#[derive(Clone, Copy, Debug)]
struct Expectation {
    control: u64,
    until_ns: u64,
}

/// The expectations of one worker.
#[derive(Debug, Default)]
pub struct Expectations {
    all: HashMap<Expected, Expectation>,
    max: usize,
}

impl Expectations {
    /// At most so many.
    pub fn new(max: usize) -> Self {
        Self { all: HashMap::new(), max }
    }

    /// How many there are, those included whose time-out is over.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Expects a flow that the flow with the number `control` announces, until `until_ns`.
    ///
    /// # Errors
    /// There is no room, or another one has announced it.
    pub fn put(
        &mut self,
        expected: Expected,
        control: u64,
        (now_ns, until_ns): (u64, u64),
    ) -> Result<(), Refused> {
        if let Some(own) = self.all.get_mut(&expected) {
            if own.control != control && own.until_ns >= now_ns {
                return Err(Refused::Taken);
            }
            *own = Expectation { control, until_ns };
            return Ok(());
        }
        if self.all.capacity() == 0 {
            self.all.reserve(self.max);
        }
        if self.all.len() >= self.max {
            self.all.retain(|_, own| own.until_ns >= now_ns);
        }
        if self.all.len() >= self.max {
            return Err(Refused::Full);
        }
        self.all.insert(expected, Expectation { control, until_ns });
        Ok(())
    }

    /// The number of the flow that announced what is expected.
    pub fn control(&self, expected: &Expected) -> Option<u64> {
        self.all.get(expected).map(|own| own.control)
    }

    /// The flow that is expected has come; the number of the one that announced it.
    pub fn take(&mut self, expected: &Expected, now_ns: u64) -> Option<u64> {
        let own = self.all.remove(expected)?;
        (own.until_ns >= now_ns).then_some(own.control)
    }

    /// It is not expected any more, if the flow with this number has announced it.
    pub fn withdraw(&mut self, expected: &Expected, control: u64) {
        if self.all.get(expected).is_some_and(|own| own.control == control) {
            self.all.remove(expected);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn expected(number: u16) -> Expected {
        let key = FlowKey::new(([0, 1], 7), ([0, 2], number), 6, 4, 0);
        Expected::of(&key.0, key.1)
    }

    #[test]
    fn the_port_of_the_opener_does_not_matter() {
        for (src, dst) in [(1, 2), (2, 1)] {
            let of = |port| {
                let (key, side) = FlowKey::new(([0, src], port), ([0, dst], 40_000), 6, 4, 9);
                Expected::of(&key, side)
            };
            assert_eq!(of(20), of(50_000));
            assert_eq!((of(20).opener, of(20).listener, of(20).port), ([0, src], [0, dst], 40_000));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// A list that is searched from end to end says the same.
        #[test]
        fn agrees_with_a_list(
            steps in vec((0_u8..4, 0_u16..6, 1_u64..4, 0_u64..5), 1..60),
            max in 1_usize..5,
        ) {
            let mut fast = Expectations::new(max);
            let mut list: Vec<(Expected, u64, u64)> = Vec::new();
            let mut now_ns = 10;
            for (what, number, control, time_ns) in steps {
                let own = expected(number);
                let at = list.iter().position(|known| known.0 == own);
                match what {
                    0 => {
                        let until_ns = now_ns + time_ns;
                        let result = match at {
                            Some(at) if list[at].1 != control && list[at].2 >= now_ns => Err(Refused::Taken),
                            Some(at) => {
                                list[at] = (own, control, until_ns);
                                Ok(())
                            }
                            None => {
                                if list.len() >= max {
                                    list.retain(|known| known.2 >= now_ns);
                                }
                                if list.len() < max {
                                    list.push((own, control, until_ns));
                                    Ok(())
                                } else {
                                    Err(Refused::Full)
                                }
                            }
                        };
                        prop_assert_eq!(fast.put(own, control, (now_ns, until_ns)), result);
                    }
                    1 => {
                        let known = at.map(|at| list.remove(at)).filter(|known| known.2 >= now_ns);
                        prop_assert_eq!(fast.take(&own, now_ns), known.map(|known| known.1));
                    }
                    2 => {
                        list.retain(|known| known.0 != own || known.1 != control);
                        fast.withdraw(&own, control);
                    }
                    _ => now_ns += time_ns,
                }
                let known = list.iter().find(|known| known.0 == own).map(|known| known.1);
                prop_assert_eq!(fast.control(&own), known);
                prop_assert_eq!((fast.len(), fast.is_empty()), (list.len(), list.is_empty()));
            }
        }
    }
}
