//! The engine: carries chunks from receive queues through stages to transmit queues, on CPU cores
//! and on devices. It knows no protocol and no table.
//!
//! ```text
//!  RxQueue ─burst→ chunk ─→ pre_shade ─→ [ shade · shade ] ─→ post_shade ─→ TxQueue
//!                                           │        ▲
//!                                    worker's core   or a job, by way of a master
//! ```
//!
//! An application is a list of [`Stage`]s. [`Engine::start`] gives each [`WorkerSpec`] a thread; a
//! chunk stays with its worker from receipt to retirement, and chunks retire in order of receipt,
//! whichever side shaded them (PacketShader §5.3: packets of a flow are not reordered).
//!
//! Nothing is allocated per packet after the start.

#![forbid(unsafe_code)]

mod balance;
mod columns;
mod context;
mod counters;
mod engine;
mod handover;
mod heirs;
mod hooks;
mod in_flight;
mod master;
mod merge;
mod payload;
mod plan;
mod quiet;
mod reserve;
mod ring;
mod segment;
mod slot_set;
mod stage;
mod twins;
mod view;
mod ways;
mod worker;

pub use balance::{Auto, DeviceCost, Policy, Side};
pub use columns::{ColumnsError, Shard, layout};
pub use context::InContext;
pub use counters::{Counter, DropPlaces, QueueCounters, StageCounters, WorkerCounters};
pub use device::accelerator::{Part, Records, StateForm, Step};
pub use engine::{
    DeviceEvent, DeviceKind, DeviceSink, DeviceSpec, Engine, EngineError, EngineSpec, PipelineSpec,
    WorkerSpec,
};
pub use handover::{Suspended, WorkerQueues};
pub use hooks::{
    Capture, CapturePoint, CaptureReader, CapturedFrame, FrameFilter, Hooks, Trace, TraceEvent,
    TraceGuard, frame_text,
};
pub use merge::{Gate, InOrder, MARK_DEFERRED, UnderWay};
pub use reserve::Reserve;
pub use segment::{
    KernelForm, KernelStep, OutputForm, Parameter, Parameters, ScheduleForm, Scratch, Segment,
    SortKey, device_programs, segments,
};
pub use slot_set::SlotSet;
pub use stage::{Context, Phases, Shade, Spread, Stage, Versions};
pub use view::{EngineView, MasterView, PipelineView, StageTotals};
pub use worker::{
    DropSink, DumpSink, Entry, ErrorSink, HostGate, MARK_CHECKSUMS_IGNORED, MARK_FROM_HOST,
    PanicSink, RxSlot, SpreadHash, StagePanic, TxSlot, panic_text,
};
