//! Attacks on a live router and a live switch, with a bystander's stream beside them: `cargo xtask abuse`.
//!
//! ```text
//!   bystander ──src0──┐                  ┌──dst0── bystander      each attack: frames, a rate, a time
//!                     ├─ router / switch ┤                        reported: what the bystander lost, the longest
//!   attacker ───evil──┘                                           gap in its stream, memory, what must not change
//! ```
//!
//! ```text
//! abuse [--short] [--seconds N] [--rate PPS] [--only NAME[,NAME…]] [--same-port] [--mixed SECONDS] [--json FILE]
//! ```
//!
//! A rate is what the attacker is told to send; the table has what it sent. What fails is what no machine excuses: a
//! router that ends, answers no `ctl`, lets an attack change its routes or sends one host's frames to another, or keeps
//! the memory. Loss is reported; it fails only where it is far from what a busy machine explains (`LOSS_MAX_PERCENT`).

mod attacks;
mod lab;
mod named;

use std::process::ExitCode;
use std::time::Duration;

use attacks::{ATTACKS, Attack};
use lab::{Lab, Row};

const USAGE: &str = "usage: abuse [--short] [--seconds N] [--rate PPS] [--only NAME[,NAME…]] [--same-port] \
                     [--mixed SECONDS] [--json FILE]";

/// Growth of the program's memory over one attack or all of them.
const GROWTH_MAX_MB: f64 = 32.0;

/// The attacks of the mixed run last so long, one after another.
const MIXED_EACH: Duration = Duration::from_secs(5);

/// What to do.
#[derive(Debug)]
struct Options {
    short: bool,
    seconds: u64,
    /// Packets a second of the attacks that have no rate of their own.
    rate: u64,
    only: Vec<String>,
    /// Also with the attacker behind the bystander's own port.
    same_port: bool,
    /// All attacks in turn for so long, on one router.
    mixed: Option<Duration>,
    json: Option<String>,
}

impl Options {
    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            short: false,
            seconds: 10,
            rate: 300_000,
            only: Vec::new(),
            same_port: false,
            mixed: None,
            json: None,
        };
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} expects a value"));
            let number =
                |text: String| text.parse::<u64>().map_err(|_| format!("{text}: no number"));
            match arg.as_str() {
                "--short" => {
                    options.short = true;
                    options.seconds = 2;
                    options.rate = 20_000;
                }
                "--seconds" => options.seconds = number(value()?)?,
                "--rate" => options.rate = number(value()?)?,
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--same-port" => options.same_port = true,
                "--mixed" => options.mixed = Some(Duration::from_secs(number(value()?)?)),
                "--json" => options.json = Some(value()?),
                _ => return Err(format!("no such option: {arg}")),
            }
        }
        if let Some(name) = options.only.iter().find(|name| attacks::named(name).is_none()) {
            let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
            return Err(format!("no attack `{name}`: expected one of {}", names.join(", ")));
        }
        Ok(options)
    }

    fn chosen(&self) -> impl Iterator<Item = &'static Attack> {
        ATTACKS.iter().filter(|attack| {
            self.only.is_empty() || self.only.iter().any(|name| name == attack.name)
        })
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, pps, millis] = &words[..]
        && first == "--names"
        && let (Ok(pps), Ok(millis)) = (pps.parse(), millis.parse())
    {
        return named::stream(pps, Duration::from_millis(millis));
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("abuse: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if !testkit::require_namespaces() {
        return ExitCode::from(77);
    }
    let Some(program) = testkit::shadeline_bin() else { return ExitCode::from(77) };
    println!("{}", Row::TITLES);
    let mut rows = Vec::new();
    let mut shared: Option<Lab> = None;
    for attack in options.chosen() {
        for same_port in [false, true] {
            // Flaps of the stream's own interface are no attack.
            if same_port && (!options.same_port || attack.is_flaps()) {
                continue;
            }
            // In short the next attack meets the router that the one before it left.
            let kept =
                shared.take().filter(|lab| options.short && lab.is_of(attack) && lab.is_well());
            let mut lab = kept.unwrap_or_else(|| Lab::start(&program, attack.mode, attack.keys));
            rows.push(lab.run(
                attack,
                options.rate,
                Duration::from_secs(options.seconds),
                same_port,
            ));
            println!("{}", rows.last().map(Row::line).unwrap_or_default());
            shared = Some(lab);
        }
    }
    if let Some(time) = options.mixed {
        let row = mixed(&options, &program, time);
        println!("{}", row.line());
        rows.push(row);
    }
    if let Some(path) = &options.json
        && let Err(error) = std::fs::write(path, lab::json(&rows))
    {
        eprintln!("abuse: {path}: {error}");
        return ExitCode::FAILURE;
    }
    let failed: Vec<String> = rows.iter().flat_map(|row| row.problems(GROWTH_MAX_MB)).collect();
    for problem in &failed {
        println!("failed: {problem}");
    }
    println!("{} attacks, {} problems", rows.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All attacks on the router in turn, over and over, on one router with one stream beside them.
fn mixed(options: &Options, program: &std::path::Path, time: Duration) -> Row {
    let attacks: Vec<&Attack> = options
        .chosen()
        .filter(|attack| attack.mode == "router" && attack.keys.is_empty())
        .collect();
    let mut lab = Lab::start(program, "router", "");
    lab.mixed(&attacks, options.rate, MIXED_EACH.min(time), time)
}
