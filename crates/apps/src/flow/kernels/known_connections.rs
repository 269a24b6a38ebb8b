//! The known answers of the connection table.

use chunk::Columns;
use kernels::job::JobBytes;
use kernels::known::{Known, Place, bytes_of};

use super::CONNECTIONS;
use crate::flow::connections::{
    ConnectionColumns as C, Connections, MARK_ENDED, MARK_RESET, NO_NUMBER, OfConnection, memory_of,
};
use crate::flow::decode::{head, segment};
use crate::flow::reassembly::NO_ROW;

const SEED: u32 = 5;

/// Two shards, one of which has a bucket alone.
fn shards() -> [Connections; 2] {
    [Connections::new(64), Connections::new(8)]
}

pub(super) fn connections(_: u32) -> Vec<Known> {
    vec![found(), swept()]
}

/// Connections that are there and new ones, in both directions, with FIN and RST, of which the second shard has no room for all; rows
/// that are no segments, or of no group, or of a shard that there is not.
fn found() -> Known {
    // Shard, host, whether it answers, status, group, flags, time.
    let right = segment::RIGHT;
    let mut rows = vec![
        (0, 1, false, right, 0, 2, 100),
        (0, 1, true, right, 1, 0x12, 101),
        (0, 2, false, right, 2, 0x11, 90),
        (0, 1, false, right, 0, 0x10, 99),
        (0, 3, false, segment::NONE, NO_ROW, 0, 100),
        (0, 4, false, right, NO_ROW, 0x10, 100),
        (7, 5, false, right, 6, 0x10, 100),
        (0, 2, true, right, 7, 0x14, 91),
    ];
    rows.extend((8..18).map(|row| (1, row, false, right, row, 0x10, 50 + row)));
    let mut before = JobBytes::new(C::COLUMNS, rows.len());
    let area = before.add_areas(&[8 * rows.len()])[0];
    let mut own = vec![None; rows.len()];
    for (at, (row, (shard, host, answers, status, group, flags, time))) in
        own.iter_mut().zip(rows.iter().enumerate())
    {
        let ends = [([0, u64::from(*host)], 40_000), ([0, 0x0a00_0001], 80)];
        let [src, dst] = if *answers { [ends[1], ends[0]] } else { ends };
        let header0 = [src.1 << 48 | dst.1 << 32 | 40, 0];
        let words = [9, u64::from(*status) << 56 | 20 << 48 | *flags];
        before.put(C::FLOW_SRC, row, src.0);
        before.put(C::FLOW_DST, row, dst.0);
        before.put(C::FLOW_HEADER0, row, header0);
        before.put(C::FLOW_SEGMENT, row, words);
        before.put(C::FLOW_GROUP, row, *group);
        before.put(C::SHARD, row, *shard);
        before.put(C::FLOW_TIME, row, *time);
        before.put(C::FLOW_NUMBER, row, 7u32);
        if *group != NO_ROW && *shard < 2 {
            *at = OfConnection::of_columns((src.0, dst.0), header0, words, *time, SEED)
                .map(|own| (*shard, own));
        }
    }
    let mut tables = shards();
    tables[0].job(&[own[0].map(|own| own.1)]);
    let state = memory_of(&tables);
    let mut after = before.clone();
    for (shard, table) in (0..).zip(&mut tables) {
        let of = |own: &Option<(u32, OfConnection)>| own.filter(|own| own.0 == shard).map(|o| o.1);
        let numbers = table.job(&own.iter().map(of).collect::<Vec<_>>());
        for (row, number) in numbers.into_iter().enumerate() {
            if own[row].is_none_or(|own| own.0 == shard) {
                after.put(C::FLOW_NUMBER, row, number);
            }
        }
    }
    after.put(C::FLOW_NUMBER, 6, NO_NUMBER);
    known((&before, &after, area), &state, &tables)
}

/// Idle connections, some of which are over, of the first piece of a shard; nothing of a shard that there is not, or behind the end.
fn swept() -> Known {
    let mut tables = shards();
    let own = |hash: u64, time, marks| Some(OfConnection { hash: hash << 60 | hash, time, marks });
    let rows = [
        own(1, 940, 3),
        own(2, 941, 3),
        own(3, 990, 3 | MARK_ENDED),
        own(4, 990, 1 | MARK_RESET),
        own(5, 991, 3 | MARK_RESET),
        own(6, 1010, 3),
    ];
    tables.iter_mut().for_each(|table| _ = table.job(&rows));
    let state = memory_of(&tables);
    let mut before = JobBytes::new(C::COLUMNS, 3);
    let area = before.add_areas(&[8 * 3])[0];
    for (row, (shard, piece)) in [(0u32, 0u32), (0, 9), (7, 0)].into_iter().enumerate() {
        before.put(C::SHARD, row, shard);
        before.put(C::FLOW_HEAD, row, head::SWEEPS | piece);
        before.put(C::FLOW_TIME, row, 1000u32);
        before.put(C::FLOW_GROUP, row, NO_ROW);
        before.put(C::FLOW_NUMBER, row, 7u32);
    }
    let mut after = before.clone();
    (0..3).for_each(|row| after.put(C::FLOW_NUMBER, row, NO_NUMBER));
    tables[0].sweep(0, 1000);
    known((&before, &after, area), &state, &tables)
}

fn known(
    (before, after, area): (&JobBytes, &JobBytes, usize),
    state: &[u32],
    tables: &[Connections],
) -> Known {
    let names = ["connections_insert", "connections_number"];
    let mut known = Known::new("connections", &[&CONNECTIONS], &names, C::COLUMNS);
    known.launches.iter_mut().for_each(|launch| launch.job = SEED);
    known.state = bytes_of(state);
    known.arena = before.bytes().to_vec();
    // What is in the area has no meaning afterwards.
    let known = known.expect(Place::Arena, 0, after.bytes()[..area].to_vec());
    known.expect(Place::State, 0, bytes_of(&memory_of(tables)))
}
