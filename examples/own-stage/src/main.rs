//! A Shadeline with the stage `dscp_limit` beside all shipped ones.

fn main() -> std::process::ExitCode {
    shadeline::main_with(&[&own_stage::DESCRIPTOR, &own_stage::first_line::DESCRIPTOR])
}
