//! The known answer of the forwarder's kernel.

use chunk::{Columns, Verdict};
use kernels::job::JobBytes;
use kernels::known::Known;
use kernels::known::samples::{A, LONG, name_table};
use kernels::reasons;

use super::{NAME_LOOKUP, NAMES, NameLookupColumns};

pub(super) fn name_lookups(_: u32) -> Vec<Known> {
    vec![name_lookup()]
}

/// Frames of which a part is a name: three that are looked up, one without a name, one that is dropped, and two
/// whose name would not end within the frame.
fn name_lookup() -> Known {
    const BEFORE: u32 = 77;
    let dropped = Verdict::drop(reasons::NO_ROUTE).0;
    let name = [A, LONG].concat();
    let (at, len) = (16_u16, name.len() as u16);
    let rows: [(u32, u16, u16, u32); 7] = [
        (Verdict::NEXT.0, at, len, 4),
        (Verdict::NEXT.0, at, A.len() as u16, 3),
        (Verdict::NEXT.0, 0, 4, 2), // no component is there
        (Verdict::NEXT.0, at, 0, BEFORE),
        (dropped, at, len, BEFORE),
        (Verdict::NEXT.0, at, u16::MAX, 0),
        (Verdict::NEXT.0, u16::MAX, len, 0),
    ];
    let mut frame = vec![0; usize::from(at)];
    frame.extend_from_slice(&name);
    let (mut before, mut payload) = (JobBytes::new(NameLookupColumns::COLUMNS, rows.len()), vec![]);
    for (row, (verdict, at, len, _)) in rows.into_iter().enumerate() {
        before.put(NameLookupColumns::VERDICT, row, verdict);
        before.put(NameLookupColumns::PAYLOAD_AT, row, payload.len() as u32);
        before.put(NameLookupColumns::PAYLOAD_LEN, row, frame.len() as u32);
        before.put(NameLookupColumns::NAME_AT, row, at);
        before.put(NameLookupColumns::NAME_LEN, row, len);
        before.put(NameLookupColumns::NEXT_HOP, row, BEFORE);
        payload.extend_from_slice(&frame);
    }
    let mut after = before.clone();
    for (row, (.., next_hop)) in rows.into_iter().enumerate() {
        after.put(NameLookupColumns::NEXT_HOP, row, next_hop);
    }
    payload.resize(payload.len().next_multiple_of(4), 0);
    let columns = NameLookupColumns::COLUMNS;
    // A part that is not the first one of its image.
    let first = 7;
    let mut known = Known::new("name_lookup", &[&NAME_LOOKUP], &["name_lookup"], columns);
    known.launches[0].job = first;
    Known { payload, tables: name_table(first as usize + NAMES), ..known.job(&before, &after) }
}
