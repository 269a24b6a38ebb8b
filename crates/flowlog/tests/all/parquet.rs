//! Tables of flow records, as pandas, pyarrow and DuckDB read them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use flowlog::community_id;
use flowlog::parquet::{Options, Table};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use stream::record::{FlowRecord, SideRecord};
use testkit::Scratch;

use crate::records;

fn write(path: &Path, records: &[FlowRecord], options: Options) {
    let mut table = Table::create(path, options).unwrap();
    for record in records {
        table.write(record).unwrap();
    }
    assert_eq!(table.close().unwrap(), records.len() as u64);
}

/// What a row should have, as JSON: numbers, and times as nanoseconds since 1970.
fn expected(record: &FlowRecord) -> Value {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let client = (record.client, record.client_port);
    let server = (record.server, record.server_port);
    let id = community_id::v1(1, client, server, record.protocol, record.icmp);
    let mut row = json!({
        "flow_id": record.id,
        "start": signed(record.start_ns),
        "end": signed(record.end_ns),
        "client": record.client.to_string(),
        "server": record.server.to_string(),
        "client_port": record.client_port,
        "server_port": record.server_port,
        "protocol": record.protocol,
        "icmp_type": record.icmp.map(|icmp| icmp.0),
        "icmp_code": record.icmp.map(|icmp| icmp.1),
        "vlan": (record.vlans[0] != 0).then_some(record.vlans[0]),
        "vlan_inner": (record.vlans[1] != 0).then_some(record.vlans[1]),
        "tunnels": (!record.tunnels.is_empty()).then(|| record.tunnels.to_string()),
        "port": record.port,
        "state": format!("{:?}", record.state).to_lowercase(),
        "reason": format!("{:?}", record.reason).to_lowercase(),
        "handshake_rtt_ns": record.handshake_rtt_ns.map(signed),
        "community_id": std::str::from_utf8(&id).unwrap(),
    });
    for (name, side) in ["client", "server"].into_iter().zip(&record.sides) {
        let SideRecord { ttl, tcp_flags, .. } = *side;
        let mut put = |field: &str, value: Value| row[format!("{name}_{field}")] = value;
        put("packets", signed(side.packets).into());
        put("bytes", signed(side.bytes).into());
        put("ip_bytes", signed(side.ip_bytes).into());
        put("ttl_min", ttl.0.into());
        put("ttl_max", ttl.1.into());
        put("tcp_flags", tcp_flags.into());
        put("stream_bytes", signed(side.stream_bytes).into());
        put("retransmissions", side.retransmissions.into());
        put("out_of_order", side.out_of_order.into());
        put("overlaps", side.overlaps.into());
        put("conflicts", side.conflicts.into());
        put("gaps", side.gaps.into());
        put("gap_bytes", signed(side.gap_bytes).into());
        put("rtt_min_ns", side.rtt_min_ns.map(signed).into());
    }
    row
}

/// Rows of three readers are compared with those expected, and the types with those that people work with.
const READERS: &str = r#"
import json, sys
import duckdb, pandas, pyarrow.parquet
path, groups = sys.argv[1], int(sys.argv[2])
expected = json.load(sys.stdin)

def same(reader, rows):
    assert len(rows) == len(expected), (reader, len(rows))
    for row, want in zip(rows, expected):
        for name, value in want.items():
            assert row[name] == value, (reader, name, row[name], value)

file = pyarrow.parquet.ParquetFile(path)
assert file.num_row_groups == groups, file.num_row_groups
table = file.read()
types = {field.name: str(field.type) for field in table.schema}
assert types["start"] == types["end"] == "timestamp[ns, tz=UTC]", types
assert types["flow_id"] == "uint64" and types["client_bytes"] == "int64", types
assert types["client"] == types["state"] == "string" and types["vlan"] == "int32", types
times = {"start": pyarrow.int64(), "end": pyarrow.int64()}
columns = {f.name: table[f.name].cast(times.get(f.name, f.type)).to_pylist() for f in table.schema}
same("pyarrow", [dict(zip(columns, row)) for row in zip(*columns.values())])

frame = pandas.read_parquet(path)
assert str(frame["start"].dtype) == "datetime64[ns, UTC]", frame.dtypes
assert str(frame["client_bytes"].dtype) == "int64", frame.dtypes
# Without this, pandas makes floating-point numbers of whole ones where some are missing.
frame = pandas.read_parquet(path, dtype_backend="numpy_nullable")
frame["start"], frame["end"] = frame["start"].astype("int64"), frame["end"].astype("int64")
known = frame.astype(object).where(frame.notna(), None)
same("pandas", known.to_dict("records"))

base = duckdb.connect()
base.execute("set timezone = 'UTC'")
query = base.execute("select * from read_parquet(?)", [path])
kinds = {column[0]: str(column[1]) for column in query.description}
assert kinds["client_bytes"] == "BIGINT" and kinds["flow_id"] == "UBIGINT", kinds
assert kinds["start"].startswith("TIMESTAMP"), kinds
names = list(kinds)
cast = ["epoch_ns(\"%s\")" % n if n in times else '"%s"' % n for n in names]
rows = base.execute("select %s from read_parquet(?)" % ", ".join(cast), [path]).fetchall()
rows = [dict(zip(names, row)) for row in rows]
if "WITH TIME ZONE" in kinds["start"]:
    # DuckDB before 2.0 has microseconds only.
    for want in expected:
        want["start"], want["end"] = (want[n] // 1000 * 1000 for n in ("start", "end"))
same("duckdb", rows)
total = base.execute("select sum(client_bytes) from read_parquet(?)", [path]).fetchone()[0]
assert total == sum(row["client_bytes"] for row in expected), total
"#;

/// Each of the readers sees every value.
fn read_by_others(records: &[FlowRecord], row_group_rows: usize) {
    let Some(python) = testkit::require_python("duckdb, pandas, pyarrow.parquet") else {
        return;
    };
    let scratch = Scratch::new();
    let path = scratch.join("flows.parquet");
    write(&path, records, Options { row_group_rows, community_id_seed: Some(1) });
    let groups = records.len().div_ceil(row_group_rows);
    let mut child = Command::new(python)
        .args(["-c", READERS])
        .arg(&path)
        .arg(groups.to_string())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let rows: Vec<Value> = records.iter().map(expected).collect();
    let mut input = child.stdin.take().unwrap();
    serde_json::to_writer(&mut input, &rows).unwrap();
    input.flush().unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn others_read_the_same() {
    read_by_others(&records::all(), 4);
}

#[test]
fn others_read_the_same_of_any_records() {
    let mut runner = TestRunner::deterministic();
    let records = prop::collection::vec(records::any_record(), 500);
    let mut records = records.new_tree(&mut runner).unwrap().current();
    for record in &mut records {
        // What a timestamp of 64 bits holds in all three.
        record.start_ns %= 8_000_000_000_000_000_000;
        record.end_ns %= 8_000_000_000_000_000_000;
    }
    read_by_others(&records, 128);
}

#[test]
fn an_empty_table_is_a_file() {
    let scratch = Scratch::new();
    let path = scratch.join("flows.parquet");
    write(&path, &[], Options::default());
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    // A dropped table ends its file, too.
    let mut table = Table::create(&path, Options::default()).unwrap();
    table.write(&records::tcp()).unwrap();
    drop(table);
    assert!(std::fs::read(&path).unwrap().ends_with(b"PAR1"));
}

#[test]
fn a_full_disk_is_an_error() {
    let options = Options { row_group_rows: 2, ..Options::default() };
    let mut table = Table::create(Path::new("/dev/full"), options).unwrap();
    table.write(&records::tcp()).unwrap();
    let errors = (0..2_000).filter_map(|_| table.write(&records::tcp()).err()).count();
    assert!(errors > 0);
    assert!(table.close().is_err());
    let table = Table::create(Path::new("/dev/full"), Options::default()).unwrap();
    let error = table.close().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    assert!(Table::create(Path::new("/proc/flows.parquet"), Options::default()).is_err());
}
