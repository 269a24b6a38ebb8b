//! Drop reasons of the switch alone (IEEE 802.1Q).

chunk::drop_reasons! {
    /// What the switch drops for.
    pub const BLOCK: 4, "switch";

    VLAN_NOT_ALLOWED = 0, "vlan_not_allowed", "the port does not carry this VLAN, or does not accept tagged frames",
        "Add the VLAN to the port (`access`, or `trunk` and `native`), or correct the station's VLAN.";
    SOURCE_MAC_ZERO = 1, "source_mac_zero", "the source MAC address is zero, which no station has",
        "Find the sender: its address is not set.";
    BRIDGE_RESERVED = 2, "bridge_reserved", "the destination is one of 01:80:c2:00:00:00 to 0f, which no bridge forwards",
        "Nothing: spanning tree, LLDP, pause frames and the like end at each bridge.";
    SAME_PORT = 3, "same_port", "the destination is on the port that received the frame",
        "Normal behind a hub. Many of them point to a loop, or to a station that moved (`ctl show macs`).";
    FLOOD_NOWHERE = 4, "flood_nowhere", "no other port carries the VLAN",
        "Add the VLAN to the ports where its stations are, and check that they are up.";
    STORM_CONTROL = 5, "storm_control", "the port received more flooded frames than its `storm` limit",
        "Look for a loop or a station that floods; raise the port's `storm` limit if the traffic is intended.";
    STATION_LIMIT = 6, "station_limit", "the port has its maximum number of stations, and the sender is not one of them",
        "Look for a station that sends from many addresses; raise the port's `stations` or remove stations that are gone (`ctl clear macs`).";
}
