//! A Shadeline with the stage `dscp_limit` beside all shipped ones.

fn main() -> std::process::ExitCode {
    let own = [&own_stage::DESCRIPTOR, &own_stage::first_line::DESCRIPTOR, &own_stage::signed::DESCRIPTOR];
    shadeline::main_with(&own)
}
