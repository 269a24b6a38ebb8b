//! The known answer of the switch's kernel.

use chunk::{Columns, Verdict};
use kernels::job::JobBytes;
use kernels::known::Known;
use kernels::known::samples::{MISS, exact_table, exact_value};
use kernels::reasons;

use super::{BRIDGE, BridgeColumns, STATIONS, flags};

pub(super) fn bridges(_: u32) -> Vec<Known> {
    vec![bridge()]
}

fn bridge() -> Known {
    let columns = BridgeColumns::COLUMNS;
    let dropped = Verdict::drop(reasons::NO_ROUTE).0;
    let rows: [(u32, u16, u64, u64); 5] = [
        (Verdict::NEXT.0, 0, 11, 12),
        (Verdict::NEXT.0, 0, 25, 19),
        (Verdict::NEXT.0, flags::GROUP, 19, 13), // the table is not asked for a group
        (dropped, 0, 11, 12),
        (Verdict::NEXT.0, 0xff00, 14, 21),
    ];
    let mut before = JobBytes::new(columns, rows.len());
    for (row, (verdict, flags, source, destination)) in rows.into_iter().enumerate() {
        before.put(BridgeColumns::VERDICT, row, verdict);
        before.put(BridgeColumns::FLAGS, row, flags);
        before.put(BridgeColumns::SOURCE_KEY, row, source);
        before.put(BridgeColumns::DESTINATION_KEY, row, destination);
        before.put(BridgeColumns::SOURCE, row, 5u64);
        before.put(BridgeColumns::DESTINATION, row, 6u64);
    }
    let mut after = before.clone();
    for (row, (verdict, flags, source, destination)) in rows.into_iter().enumerate() {
        if verdict == Verdict::NEXT.0 {
            let group = flags & flags::GROUP != 0;
            after.put(BridgeColumns::SOURCE, row, exact_value(source));
            after.put(
                BridgeColumns::DESTINATION,
                row,
                if group { MISS } else { exact_value(destination) },
            );
        }
    }
    // A part that is not the first one of its image.
    let first = 3;
    let mut known = Known::new("bridge", &[&BRIDGE], &["bridge"], columns);
    known.launches[0].job = first;
    let tables = exact_table(first as usize + STATIONS);
    Known { tables, ..known }.job(&before, &after)
}
