//! Which side shades a chunk.

/// Where a chunk is shaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// On the worker's core.
    Cpu,
    /// On the device, by way of its master.
    Device,
}

/// How the side is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Always the CPU.
    Cpu,
    /// The device whenever it has room.
    Device,
    /// `device` of each `of` chunks to the device, spread evenly: both sides share the load.
    Share {
        /// Chunks for the device.
        device: u32,
        /// Of so many.
        of: u32,
    },
}

/// A worker's choice, chunk by chunk.
#[derive(Clone, Debug)]
pub(crate) struct Balance {
    policy: Policy,
    credit: u32,
}

impl Balance {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, credit: 0 }
    }

    pub(crate) fn choose(&mut self) -> Side {
        match self.policy {
            Policy::Cpu => Side::Cpu,
            Policy::Device => Side::Device,
            Policy::Share { device, of } => {
                self.credit += device;
                if self.credit >= of {
                    self.credit -= of;
                    Side::Device
                } else {
                    Side::Cpu
                }
            }
        }
    }
}
