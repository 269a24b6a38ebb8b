//! Random pipelines, compared with a model, for a time: `cargo xtask soak`.
//!
//! ```text
//! soak [--seconds N] [--seed S] [--count N] [--driver 0|1]
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant};

use teststages::harness::Random;
use teststages::soak::soak;

const USAGE: &str = "usage: soak [--seconds N] [--seed S] [--count N] [--driver 0|1]";

fn main() -> ExitCode {
    let (mut seconds, mut count, mut driver) = (60, u64::MAX, 1);
    // Short enough to be typed.
    let mut seed = Random::from_time().word() % 1_000_000_000;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|value| value.parse().ok());
        match (arg.as_str(), value) {
            ("--seconds", Some(value)) => seconds = value,
            ("--seed", Some(value)) => seed = value,
            ("--count", Some(value)) => count = value,
            ("--driver", Some(value)) => driver = value,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    // Without one a scenario is another one: this is for looking at the rest alone.
    let with_driver = driver != 0 && testkit::require_opencl();
    println!("soak: seed {seed}, {seconds} s");
    // Panics of stages are part of the plan: those of the engine come back as errors.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload_as_str().is_some_and(|text| text.ends_with("as planned")) {
            report(info);
        }
    }));
    let end = Instant::now() + Duration::from_secs(seconds);
    let ended = soak(seed, with_driver, |totals| totals.scenarios < count && Instant::now() < end);
    match ended {
        Ok(totals) => {
            println!("soak: ran {totals}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("soak: failed: {error}");
            ExitCode::FAILURE
        }
    }
}
