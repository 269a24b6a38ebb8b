//! Engines from outside, in one program: each of them would build an engine of its own. Those that count allocations, or
//! go along to a machine with a GPU, are apart.

mod columns;
mod contexts;
mod divided;
mod engine;
mod handover;
mod hazards;
mod held;
mod instances;
mod merge;
mod offload;
mod reasons;
mod retired;
mod state;
mod ticks;
