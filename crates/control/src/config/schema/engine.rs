//! `[engine]`.

use std::fmt;
use std::time::Duration;

use toml::de::DeValue;

use crate::config::kinds::{Custom, Kind, custom, duration, integer, table, words};
use crate::config::values::{Value, Walk, array, word, wrong_kind};

/// Elements of `engine.devices` at most: each has threads and copies of the tables of its own.
const DEVICES_MAX: usize = 16;

// 200 µs is about what PacketShader's batches add at low load (§6.4). A job takes far less than half a second on
// anything that still works, and while one hangs, packets wait behind it.
crate::section! {
    /// Chunks of packets, and the devices that process them.
    pub struct Engine("engine") {
        /// Where packets are processed. `cpu`: by the workers. `opencl`, `opencl:N`, `cuda`, `cuda:N`: on a device
        /// ([devices.md](devices.md)). `sim`: on the simulated device. `auto`: on a GPU if one passes its self-test,
        /// otherwise by the workers. `--backend` of the command line takes precedence.
        restart backend: EngineBackend = EngineBackend::Auto, backend();
        /// Several devices at once, instead of `backend`: `["opencl:0", "cuda:1"]`. Workers are assigned to them in
        /// turn, so there should be at least as many workers as devices. The same device may appear twice. `--backend
        /// opencl:0,cuda:1` of the command line means the same.
        restart devices: Vec<EngineBackend> = Vec::new(), devices();
        /// Chunks that go to the device. `always`: all, as long as the device has capacity. `auto`: under heavy load,
        /// and only where that costs less and a result is back within `max_delay` (`ctl show runtime` shows which
        /// side is in use).
        restart offload: Option<Offload> = None, offload();
        /// Maximum number of packets in a chunk.
        restart chunk: usize = 256, integer(1..=256);
        /// With a device: the longest time that a packet may be under way because its chunk waits for more packets. A
        /// chunk leaves when it is full, or when further waiting would exceed this time. Without a device, a burst
        /// leaves at once. Packets that were under way longer, from the worker's first look at them, count as late
        /// (`ctl show runtime`).
        restart max_delay: Duration = Duration::from_micros(200),
            duration(Duration::ZERO..=Duration::from_secs(1));
        /// Jobs on a device at once.
        restart jobs_in_flight: usize = 4, integer(1..=64);
        /// A device is abandoned if a job takes longer than this; from then on the workers process its packets.
        /// Packets that follow a job that hangs wait this long. With modules, their time limits are added for each job at once,
        /// and 10 s after a module was disabled ([modules.md](modules.md#what-can-go-wrong)).
        restart device_timeout: Duration = Duration::from_millis(500),
            duration(Duration::from_millis(1)..=Duration::from_mins(1));
        /// Cost of the simulated device, see below.
        restart sim: SimCost = SimCost::default(), table();
    }
}

crate::section! {
    /// Cost of the simulated device.
    #[derive(Copy, Eq)]
    pub struct SimCost("engine.sim") {
        /// Time per launch.
        restart launch: Duration = Duration::from_micros(20),
            duration(Duration::ZERO..=Duration::from_secs(1));
        /// Time per packet.
        restart packet: Duration = Duration::from_nanos(10),
            duration(Duration::ZERO..=Duration::from_secs(1));
    }
}

impl Engine {
    /// Whether some chunks may be processed on a device that `is_such`.
    pub fn may_use(&self, is_such: impl Fn(EngineBackend) -> bool) -> bool {
        match self.devices.as_slice() {
            [] => is_such(self.backend),
            devices => devices.iter().any(|device| is_such(*device)),
        }
    }
}

/// `engine.backend`, or an element of `engine.devices`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineBackend {
    /// A GPU if one passes its self-test, otherwise the workers.
    Auto,
    /// The workers.
    Cpu,
    /// The simulated device.
    Sim,
    /// The OpenCL device of this number.
    OpenCl(u32),
    /// The CUDA device of this number.
    Cuda(u32),
}

impl fmt::Display for EngineBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Sim => f.write_str("sim"),
            Self::OpenCl(number) => write!(f, "opencl:{number}"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

crate::words! {
    /// `engine.offload`.
    pub enum Offload {
        /// By load and measured cost.
        Auto = "auto",
        /// Whenever the device has capacity.
        Always = "always",
    }
}

fn backend() -> Custom<EngineBackend> {
    const EXPECTED: &str = "auto, cpu, sim, opencl, opencl:N, cuda or cuda:N";
    let allowed =
        "`\"auto\"`, `\"cpu\"`, `\"sim\"`, `\"opencl\"`, `\"opencl:N\"`, `\"cuda\"`, `\"cuda:N\"`";
    custom("word", allowed, |walk, value| one(walk, value, EXPECTED), EngineBackend::to_string)
}

fn devices() -> impl Kind<Value = Vec<EngineBackend>> {
    let allowed = format!(
        "an array of 1 to {DEVICES_MAX}; each `\"sim\"`, `\"opencl\"`, `\"opencl:N\"`, `\"cuda\"`, `\"cuda:N\"`"
    );
    let text = |devices: &Vec<EngineBackend>| match devices.as_slice() {
        [] => "none".to_owned(),
        devices => devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    custom("array", allowed, read_devices, text).shown("set by `backend`")
}

/// `None`: as the back end has it.
fn offload() -> impl Kind<Value = Option<Offload>> {
    let text = |offload: &Option<Offload>| match offload {
        None => "default".to_owned(),
        Some(offload) => words().text(offload),
    };
    let allowed = words::<Offload>().allowed();
    custom("word", allowed, |walk, value| word(walk, value).map(Some), text)
        .shown("`\"auto\"` with `backend = \"auto\"`, otherwise `\"always\"`")
}

/// Devices, each as [`one`] reads it.
fn read_devices(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Vec<EngineBackend>> {
    const EXPECTED: &str = "sim, opencl, opencl:N, cuda or cuda:N";
    let list = array(walk, value, "an array of devices such as [\"opencl:0\", \"cuda:1\"]")?;
    if list.is_empty() {
        walk.error(value.span(), "`devices` is empty")
            .expected("at least one device")
            .help("`backend = \"cpu\"` runs on the workers only");
        return None;
    }
    if list.len() > DEVICES_MAX {
        walk.error(value.span(), format!("`devices` has {} elements", list.len()))
            .expected(format!("at most {DEVICES_MAX}"));
        return None;
    }
    let devices = walk.elements(list, |walk, value| {
        let device = one(walk, value, EXPECTED)?;
        if matches!(device, EngineBackend::Auto | EngineBackend::Cpu) {
            let message = format!("{} is `{device}`, which is not a device", walk.subject());
            walk.error(value.span(), message).expected(EXPECTED);
            return None;
        }
        Some(device)
    });
    let all = devices.len() == list.len();
    all.then(|| devices.into_iter().map(|(device, _)| device).collect())
}

fn one(walk: &mut Walk<'_>, value: &Value<'_>, expected: &'static str) -> Option<EngineBackend> {
    let DeValue::String(text) = value.get_ref() else {
        return wrong_kind(walk, value, expected);
    };
    let (name, number) = text.split_once(':').map_or((text.as_ref(), None), |(n, d)| (n, Some(d)));
    let digits = number.unwrap_or("0");
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let device = digits.parse().ok().filter(|_| is_number);
    let found = match (name, number, device) {
        ("auto", None, _) => Some(EngineBackend::Auto),
        ("cpu", None, _) => Some(EngineBackend::Cpu),
        ("sim", None, _) => Some(EngineBackend::Sim),
        ("opencl", _, Some(device)) => Some(EngineBackend::OpenCl(device)),
        ("cuda", _, Some(device)) => Some(EngineBackend::Cuda(device)),
        _ => None,
    };
    if found.is_none() {
        let message = format!("{} is `{text}`", walk.subject());
        let words = ["auto", "cpu", "sim", "opencl", "cuda"];
        walk.error(value.span(), message).nearest(name, words).expected(expected);
    }
    found
}
