//! Counters of what the switch does beside the fates of received frames, which the engine counts.

use engine::Counter;

/// Counters of one worker's switch stages. Written by that worker alone, read by anybody.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SwitchCounters {
    /// Frames that were flooded.
    pub flooded: Counter,
    /// Copies made of them, beside the frame itself.
    pub copies: Counter,
    /// Copies for which no cell was free.
    pub copies_lost: Counter,
    /// Station events lost because the channel was full; the next frame of the station repeats them.
    pub events_lost: Counter,
    /// Frames of stations that are not known, while the table is full: of static stations, or with more new stations
    /// on the port than may be learned in a second.
    pub table_full: Counter,
    /// Frames of stations that are not known on their port, which has as many as it may have.
    pub port_full: Counter,
}
