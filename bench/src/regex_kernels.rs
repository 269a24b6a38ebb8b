//! The regular expressions of a folder's rules over payload on a device: the whole set, one table after the other.

use std::path::Path;

use automata::{Engine, Regex, RegexLimits, Regexes};
use chunk::Columns;
use device::accelerator::Step;
use device::driver::{Driver, Program};
use kernels::job::JobBytes;
use kernels::{WalkColumns as Walk, files};
use signatures::{Check, RuleSet};

use crate::app_kernels::{Alone, append, packets};
use crate::on_device::program_of;
use crate::{Report, Row, ids, patterns};

/// Bytes of payload of a packet.
const SIZE: usize = 1420;
/// Of so many rows the state is compared with the CPU's for one.
const ONE_IS_CHECKED: usize = 16;
/// Packets that each table walks over by itself, before anything is timed.
const CHECKED_ALONE: usize = 256;
/// Expressions out of the whole set, evenly, so that the tables are there in seconds.
const EXPRESSIONS: usize = 400;

/// Their program.
pub(crate) fn program() -> Program {
    program_of("regexes", &[&files::DFA, &files::AREAS], Walk::COLUMNS, "")
}

/// Expressions of the rules that can be a table: no look-around, no reference back, nothing that matches no byte. And how many
/// different ones the rules have.
fn expressions(rules: &RuleSet, limits: &RegexLimits) -> (Vec<Regex>, usize) {
    let inspections = rules.rules.iter().flat_map(|loaded| &loaded.rule.inspections);
    let checks = inspections.flat_map(|inspection| &inspection.checks);
    let mut all: Vec<Regex> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for check in checks {
        let Check::Pcre(pcre) = check else { continue };
        let mut regex = Regex::new(&pcre.pattern);
        for (is_set, option) in [
            (pcre.caseless, Regex::nocase as fn(Regex) -> Regex),
            (pcre.anchored, Regex::anchored),
            (pcre.dotall, Regex::dot_all),
            (pcre.multiline, Regex::lines),
            (pcre.extended, Regex::spaced),
        ] {
            if is_set {
                regex = option(regex);
            }
        }
        if seen.insert(regex.clone()) {
            all.push(regex);
        }
    }
    let different = all.len();
    // Whether one can be read is known without its table.
    let reading = RegexLimits { build_states_max: 0, table_bytes_max: 0, ..*limits };
    all.retain(|regex| Regexes::new(std::slice::from_ref(regex), &reading).is_ok());
    let step = all.len().div_ceil(EXPRESSIONS).max(1);
    (all.into_iter().step_by(step).collect(), different)
}

/// Walks over a few packets with each table by itself, and compares all states with the CPU's.
fn every_table(
    driver: &mut dyn Driver,
    regexes: &Regexes,
    report: &mut Report,
) -> Result<(), String> {
    let mut random = crate::tables::Random(10);
    let packets: Vec<Vec<u8>> = (0..CHECKED_ALONE)
        .map(|row| (0..SIZE - row % 64).map(|_| patterns::printable(&mut random)).collect())
        .collect();
    let mut scratch = regexes.scratch();
    let states: Vec<Box<[u64]>> = packets
        .iter()
        .map(|bytes| {
            let mut state = regexes.anywhere();
            regexes.scan(&mut state, bytes, 0, &mut scratch, &mut Vec::new());
            state
        })
        .collect();
    for (table, from) in regexes.anywhere().iter().enumerate().take(regexes.tables()) {
        let (mut payload, mut job) = (Vec::new(), JobBytes::new(Walk::COLUMNS, packets.len()));
        for (row, bytes) in packets.iter().enumerate() {
            job.put(Walk::PAYLOAD_AT, row, payload.len() as u32);
            job.put(Walk::PAYLOAD_LEN, row, bytes.len() as u32);
            job.put(Walk::WALK_FROM, row, *from);
            append(&mut payload, bytes);
        }
        job.add_areas(&[4 * (5 + packets.len()), 4]);
        let steps = [Step::rows("dfa_count", 128).with_job((table as u32) << 16)];
        let (rows, regions) = (packets.len(), &[regexes.words()][..]);
        let own = Alone {
            program: program(),
            steps: &steps,
            job,
            rows,
            payload,
            state: Vec::new(),
            regions,
        };
        let ran = own.run(driver, 1)?;
        let is_wrong = |row: usize| ran.job.get::<u64>(Walk::WALK_TO, row) != states[row][table];
        if (0..rows).any(is_wrong) {
            report
                .wrong
                .push(format!("regular expressions, table {table}: other states than the CPU's"));
        }
    }
    Ok(())
}

/// All tables over the same packets of random printable bytes: a byte counts once for the whole set.
///
/// # Errors
/// The device's, and rules that cannot be read.
pub(crate) fn run(
    driver: &mut dyn Driver,
    rounds: usize,
    folder: &Path,
    report: &mut Report,
) -> Result<(), String> {
    let mut without = |why: &str| {
        let note = format!("{} {why}", folder.display());
        report.rows.push(Row::new("regular expressions of rules", "GB/s", Vec::new()).note(note));
        Ok(())
    };
    if !folder.is_dir() {
        return without("is not there");
    }
    let limits = RegexLimits::default();
    let (all, different) = expressions(&ids::read_rules(folder, false)?.0, &limits);
    let regexes = Regexes::new(&all, &limits).map_err(|e| e.to_string())?;
    let is_table = |pattern: &u32| matches!(regexes.engine(*pattern), Engine::Table(_));
    let of_tables = (0..all.len() as u32).filter(is_table).count();
    let tables = regexes.tables();
    if tables == 0 {
        return without("has no regular expression that is a table");
    }
    let rows = packets(driver);
    every_table(driver, &regexes, report)?;
    let mut random = crate::tables::Random(9);
    let mut payload = Vec::new();
    let mut job = JobBytes::new(Walk::COLUMNS, rows);
    for row in 0..rows {
        let bytes: Vec<u8> = (0..SIZE).map(|_| patterns::printable(&mut random)).collect();
        job.put(Walk::PAYLOAD_AT, row, payload.len() as u32);
        job.put(Walk::PAYLOAD_LEN, row, SIZE as u32);
        append(&mut payload, &bytes);
    }
    // The state that a walk leaves is the last table's; each walk takes the one before it for unknown, and begins anew.
    let last = regexes.anywhere()[tables - 1];
    for row in 0..rows {
        job.put(Walk::WALK_FROM, row, last);
    }
    job.add_areas(&[4 * (5 + rows), 4]);
    let place = SIZE.next_multiple_of(16);
    let checked: Vec<usize> = (0..rows).step_by(ONE_IS_CHECKED).collect();
    let mut scratch = regexes.scratch();
    let mut wanted = Vec::new();
    for row in &checked {
        let mut state = regexes.anywhere();
        let bytes = &payload[row * place..][..SIZE];
        regexes.scan(&mut state, bytes, 0, &mut scratch, &mut Vec::new());
        wanted.push(state[tables - 1]);
    }
    let walk = |table: usize| Step::rows("dfa_count", 128).with_job((table as u32) << 16);
    let steps: Vec<Step> = (0..tables).map(walk).collect();
    let aim = driver.info().is_gpu.then_some(2.0);
    let of = format!("{of_tables} of {different} regular expressions of rules");
    // All tables over each packet, of which the last one's state is left. Then that one alone, as where a literal of its rules
    // was found before.
    for (steps, what, aim) in [(&steps[..], "all", aim), (&steps[tables - 1..], "one", None)] {
        let regions = &[regexes.words()];
        let (job, payload) = (job.clone(), payload.clone());
        let own =
            Alone { program: program(), steps, job, rows, payload, state: Vec::new(), regions };
        let ran = own.run(driver, rounds)?;
        let is_wrong =
            |(row, state): (&usize, &u64)| ran.job.get::<u64>(Walk::WALK_TO, *row) != *state;
        if checked.iter().zip(&wanted).any(is_wrong) {
            report.wrong.push(format!("regular expressions, {what}: other states than the CPU's"));
        }
        let name = format!("{of}, {what} of {tables} tables, {SIZE} bytes, kernels alone");
        report.rows.push(ran.row(name, "GB/s", (SIZE * rows) as f64 / 1e9, aim));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every table leaves the states of the CPU's.
    #[test]
    fn states_are_the_cpus() {
        if !testkit::require_opencl() {
            return;
        }
        let folder = testkit::Scratch::new();
        let rules = ["/id=[0-9]+x/i", "/^GET [a-z]{3,9}/", "/(ab|cd)+e$/m"].into_iter().enumerate();
        let rules = rules.map(|(number, pcre)| {
            format!(
                "alert tcp any any -> any any (msg:\"m\"; pcre:\"{pcre}\"; sid:{};)\n",
                number + 1
            )
        });
        folder.write("a.rules", &rules.collect::<String>());
        let mut driver = device::probe::open(device::driver::Api::OpenCl, 0).unwrap();
        let mut report = Report::new("device", String::new());
        run(&mut *driver, 1, folder.path(), &mut report).unwrap();
        assert_eq!(report.wrong, [""; 0]);
        assert_eq!(report.rows.len(), 2);
        assert!(report.rows[0].name.starts_with("3 of 3 "), "{}", report.rows[0].name);
    }
}
