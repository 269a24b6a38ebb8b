//! Forms of one lookup, run in turn: each round runs every form once, over the same keys.

use std::hint::black_box;

use interleave::Machine;
use rustix::time::{ClockId, clock_gettime};

use crate::Row;
use crate::report::median;

/// Looks all keys up, in order.
type Run<'a, V> = Box<dyn Fn(&mut [V]) + Sync + 'a>;

/// A form of a lookup, run over all keys.
pub(crate) struct Form<'a, V> {
    /// What its row is called.
    pub(crate) name: String,
    /// Looks all keys up, in order.
    pub(crate) run: Run<'a, V>,
}

impl<'a, V> Form<'a, V> {
    pub(crate) fn new(name: impl Into<String>, run: impl Fn(&mut [V]) + Sync + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Rates of the forms, in million keys a second of a thread's own time, one figure a round. All must give
/// what the first gives; those that do not are listed in `wrong`.
pub(crate) fn rates<V: Clone + Default + PartialEq + Send>(
    forms: &[Form<'_, V>],
    keys: usize,
    rounds: usize,
    threads: usize,
    wrong: &mut Vec<String>,
) -> Vec<Vec<f64>> {
    let mut rates = vec![Vec::new(); forms.len()];
    let mut expected = vec![V::default(); keys];
    let mut out = vec![vec![V::default(); keys]; threads.max(1)];
    if let Some(first) = forms.first() {
        (first.run)(&mut expected);
    }
    for round in 0..rounds.max(1) {
        for (form, rates) in forms.iter().zip(&mut rates) {
            rates.push(keys as f64 * out.len() as f64 / slowest(form, &mut out) / 1e6);
            if round == 0 && out.iter().any(|out| *out != expected) {
                wrong.push(format!("{} gives other answers than {}", form.name, forms[0].name));
            }
        }
    }
    rates
}

/// Runs a form on several threads at once; the seconds of the one that took longest.
fn slowest<V: Send>(form: &Form<'_, V>, out: &mut [Vec<V>]) -> f64 {
    let run = |out: &mut [V]| {
        let start = thread_seconds();
        (form.run)(black_box(out));
        thread_seconds() - start
    };
    if let [out] = out {
        return run(out);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = out.iter_mut().map(|out| scope.spawn(move || run(out))).collect();
        let seconds = threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN));
        seconds.fold(0.0, f64::max)
    })
}

/// The time that this thread ran, in seconds: others on the machine do not count.
pub(crate) fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Rows of rates, each with its share of the memory's limit, given how many lines a key reads.
pub(crate) fn rows<V>(
    prefix: &str,
    forms: &[Form<'_, V>],
    rates: &[Vec<f64>],
    lines_per_key: f64,
    limit: f64,
) -> Vec<Row> {
    let rows = forms.iter().zip(rates).map(|(form, rates)| {
        Row::new(format!("{prefix}{}", form.name), "Mlookups/s", rates.clone()).note(share(
            median(rates),
            lines_per_key,
            limit,
        ))
    });
    rows.collect()
}

/// What a rate in million keys a second is of the memory's limit in million lines a second.
pub(crate) fn share(rate: f64, lines_per_key: f64, limit: f64) -> String {
    format!("{:.0} % of the memory's limit", rate * lines_per_key / limit * 100.0)
}

/// How many cache lines a lookup reads, on average over some keys.
pub(crate) fn lines_per_key<M: Machine>(machine: &M, keys: &[M::Key]) -> f64 {
    let lines = |key| {
        let (mut state, mut lines) = (machine.begin(key), 1_u64);
        while machine.step(key, &mut state).is_pending() {
            lines += 1;
        }
        lines
    };
    mean(keys.iter().map(lines))
}

/// The mean of some numbers of lines.
pub(crate) fn mean(lines: impl ExactSizeIterator<Item = u64>) -> f64 {
    let count = lines.len().max(1);
    lines.sum::<u64>() as f64 / count as f64
}

/// The row of one form's rate over another's, round by round.
pub(crate) fn ratio(name: impl Into<String>, ours: &[f64], theirs: &[f64]) -> Row {
    Row::new(name, "ratio", ours.iter().zip(theirs).map(|(a, b)| a / b).collect())
}

#[cfg(test)]
mod tests {
    use lookup::cuckoo::{Cuckoo, CuckooBuilder, Limits};

    use super::*;

    #[test]
    fn lines_are_counted_and_shares_are_of_the_limit() {
        let limits = Limits { entries: 100, reserve: 100 };
        let (_, blob) = CuckooBuilder::<u64>::build((0..10).map(|key| (key, key)), limits).unwrap();
        let table = Cuckoo::<u64>::new(&blob).unwrap();
        // What is not there is looked for in both of its lines.
        assert_eq!(lines_per_key(&table, &[1000, 1001]), 2.0);
        let there = lines_per_key(&table, &(0..10).collect::<Vec<u64>>());
        assert!((1.0..2.0).contains(&there), "{there}");
        assert_eq!(mean([1, 2, 3].into_iter()), 2.0);
        assert_eq!(share(30.0, 2.0, 120.0), "50 % of the memory's limit");
    }
}
