//! Tables of each structure, and packets whose ways end everywhere. The answers are those of [`flowtable::walk`].

use chunk::{ColumnId, Columns, Verdict};
use flowtable::headers::read;
use flowtable::walk::{Path, Room, STEPS, flags_of, walk};
use flowtable::{FlowControl, FlowTables, Key, Settings, device};
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::{Known, Sparse, bytes_of};
use lookup::versions::Patchable;
use openflow::syntax::Syntax;
use openflow::{FlowCommand, Version};

use super::FLOWS;
use crate::openflow::columns::{KEYS, KeyColumns, PATHS, columns_of, path_of};

/// The part's first region: it is not the first one of the image.
const FIRST: u32 = 2;

pub(super) fn flows(_: u32) -> Vec<Known> {
    let of_13 = ["linear", "tuple", "bloom", "cuts"]
        .map(|search| known(Settings::of_13(18), search, FLOWS_13));
    let of_10 = known(Settings::of_10(128), "linear", FLOWS_10);
    of_13.into_iter().chain([of_10]).collect()
}

/// Exact, masked and catch-all flows; fields, tags and metadata that later tables see; ways that are open or too long.
const FLOWS_13: &[&str] = &[
    "table=0,priority=9,ip,nw_dst=10.0.0.0/8,actions=set_field:192.0.2.7->ip_dst,set_field:02:00:00:00:00:09->eth_dst,goto_table:1",
    "table=0,priority=5,ip,nw_dst=10.1.0.0/16,actions=drop",
    "table=0,priority=8,in_port=1,vlan_tci=0x1000/0x1000,actions=pop_vlan,write_metadata:0x5/0xff,goto_table:2",
    "table=0,priority=7,arp,arp_op=2,actions=push_vlan:0x8100,set_field:4103->vlan_vid,goto_table:2",
    "table=0,priority=6,ipv6,actions=set_field:2001:db8::7->ipv6_dst,goto_table:3",
    "table=0,priority=3,mpls,actions=pop_mpls:0x0800,goto_table:4",
    "table=0,priority=0,actions=goto_table:5",
    "table=1,priority=1,in_port=1,dl_dst=02:00:00:00:00:09,dl_src=02:00:00:00:00:02,vlan_tci=0,ip,nw_src=198.51.100.1,nw_dst=192.0.2.7,ip_dscp=0,udp,tp_src=1,tp_dst=2,actions=goto_table:17",
    "table=1,priority=0,actions=drop",
    "table=2,priority=4,dl_vlan=7,actions=goto_table:6",
    "table=2,priority=4,metadata=0x5/0xf,vlan_tci=0,actions=goto_table:3",
    "table=3,priority=4,ipv6,ipv6_dst=2001:db8::/32,actions=output:1",
    "table=5,actions=goto_table:6",
    "table=6,actions=goto_table:7",
    "table=7,actions=goto_table:8",
    "table=8,actions=goto_table:9",
    "table=9,actions=goto_table:10",
    "table=10,actions=goto_table:11",
    "table=11,actions=goto_table:12",
    "table=12,actions=goto_table:13",
];

const FLOWS_10: &[&str] = &[
    "priority=1,in_port=1,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:02,vlan_tci=0,udp,nw_src=198.51.100.1,nw_dst=10.2.0.1,nw_tos=0,tp_src=1,tp_dst=2,actions=output:1",
    "priority=900,ip,actions=output:2",
];

/// Frames, in hexadecimal behind the MACs 02:00:00:00:00:01 and 02:00:00:00:00:02.
const FRAMES: &[&str] = &[
    "0800 4500001c000000004011 0000 c6336401 0a020001 00010002 00080000",
    "0800 4500001c000000004011 0000 c6336401 0a020001 00010003 00080000",
    "0800 4500001c000000004011 0000 c6336401 0b020001 00010002 00080000",
    "8100 6064 0800 4500001c000000004011 0000 c6336401 0a020001 00010002 00080000",
    "8100 6064 86dd 60000000 0000 3b 40 20010db8000000000000000000000001 20010db8000000000000000000000002",
    "86dd 60000000 0000 3b 40 20010db8000000000000000000000001 fe800000000000000000000000000002",
    "0806 00010800060400 02 020000000002 0a000001 000000000000 0a000002",
    "0806 00010800060400 01 020000000002 0a000001 000000000000 0a000002",
    "8847 00064140 4500",
    "88cc 00000000",
];

/// The frames of the known answers.
pub(super) fn frames() -> Vec<Vec<u8>> {
    let digit = |c: char| c.to_digit(16).unwrap_or_default() as u8;
    let bytes = |text: &str| {
        let digits: Vec<u8> = text.chars().filter(|c| *c != ' ').map(digit).collect();
        let bytes =
            digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit));
        [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2].into_iter().chain(bytes).collect()
    };
    FRAMES.iter().map(|text| bytes(text)).collect()
}

/// Tables with these flows.
fn tables(settings: Settings, search: &str, flows: &[&str]) -> FlowTables {
    let version = if settings.exact_wins { Version::V10 } else { Version::V13 };
    let settings = Settings { device: true, ..settings };
    let (mut control, mut tables) = FlowControl::new(settings, 64, search);
    for text in flows {
        let flow = Syntax::new().flow(text, FlowCommand::Add).expect(text);
        control.flow_mod(&flow, version, 0).expect(text);
    }
    control.take_patches().iter().for_each(|patch| tables.apply(patch));
    tables
}

fn known(settings: Settings, search: &str, flows: &[&str]) -> Known {
    let tables = tables(settings, search, flows);
    let (mut keys, mut flags) = (Vec::new(), Vec::new());
    for frame in frames() {
        let mut key = Key::default();
        let headers = read(&frame, frame.len(), 1, &mut key);
        keys.push(key);
        flags.push(flags_of(&headers));
    }
    // One that nobody asks for, and one that is settled.
    let (wanted, rows) = (keys.len(), keys.len() + 2);
    keys.resize(rows, keys[0]);
    flags.extend([0, flags[0]]);
    let mut before = JobBytes::new(KeyColumns::COLUMNS, rows);
    for (row, (key, flags)) in keys.iter().zip(&flags).enumerate() {
        let verdict = if row <= wanted { Verdict::NEXT } else { Verdict::DUMP };
        before.put(KeyColumns::VERDICT, row, verdict.0);
        let columns = KEYS.iter().zip(columns_of(key, *flags));
        columns.for_each(|(column, value): (&ColumnId, _)| before.put(*column, row, value));
    }
    flags[wanted + 1] = 0;
    let mut paths = vec![Path([0; STEPS]); rows];
    walk(&tables, &mut keys, &mut flags, &mut paths, &mut Room::default());
    let mut after = before.clone();
    for (row, path) in paths.iter().enumerate() {
        PATHS.iter().zip(path_of(path)).for_each(|(column, value)| after.put(*column, row, value));
    }
    let own = device::regions(&tables);
    let regions: Vec<&[u32]> =
        (0..FIRST).map(|_| &[1u32][..]).chain(own.iter().map(|own| &**own)).collect();
    let lens: Vec<_> = regions.iter().map(|region| (region.len(), 0)).collect();
    let image = bytes_of(&ImageLayout::new(&lens).write(1, &regions));
    let mut known = Known::new("flows", &[&FLOWS], &["flow_tables"], KeyColumns::COLUMNS);
    known.launches[0].job = FIRST;
    known.tables = Sparse { bytes: image.len(), parts: vec![(0, image)] };
    known.job(&before, &after)
}
