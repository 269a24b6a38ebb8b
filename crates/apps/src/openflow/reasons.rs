//! Drop reasons of an OpenFlow switch.

chunk::drop_reasons! {
    /// What an OpenFlow switch drops for.
    pub const BLOCK: 15, "OpenFlow";

    FLOW_MISS = 0, "flow_miss", "no flow of the table matches the packet",
        "Add a flow for all packets with priority 0 (`ctl flow add priority=0,actions=…`), or one for these packets.";
    FLOW_DROP = 1, "flow_drop", "the matching flows send the packet nowhere",
        "Nothing if it is intended: a flow without actions drops. `ctl show openflow-flows` has the flows with their counters.";
    FLOW_METER = 2, "flow_meter", "the packet exceeds the rate of a meter's band that drops",
        "Raise the rate of the band if the traffic is intended.";
    FLOW_TTL = 3, "flow_ttl", "the TTL ended at an action that decrements it",
        "Look for a loop between switches, or for a sender with a small TTL.";
    FLOW_PORT = 4, "flow_port", "the port that the packet is sent to does not exist, is down, must not be sent to, or is the receiving port",
        "Correct the port of the flow's output; only `in_port` sends a packet back.";
    FLOW_GROUP = 5, "flow_group", "the group has no live bucket",
        "Check the ports and groups that its buckets watch.";
    FLOW_NO_ROOM = 6, "flow_no_room", "there is no room in front of the packet for another tag, or no cell for a copy",
        "Push fewer tags; raise the number of cells.";
    NO_CONTROLLER = 7, "no_controller", "the packet is sent to a controller, and none is connected or the queue is full",
        "Add flows that forward these packets; `ctl show openflow-controllers` has the connections.";
    FLOW_NORMAL = 8, "flow_normal", "the packet is sent to NORMAL, and the stages of a switch do not follow `openflow`",
        "Put `bridge_in`, `bridge` and `bridge_out` after `openflow`, as `mode = \"openflow\"` does.";
    TO_CONTROLLER = 9, "to_controller", "the packet was handed over for the controllers",
        "Nothing, if a controller handles such packets. Add flows to forward such packets at once.";
    CONTROLLER_RATE = 10, "controller_rate", "the packet is for the controllers and exceeds `packet_in_rate`",
        "Add flows that forward these packets, or raise `packet_in_rate`.";
    QUEUE_FULL = 14, "queue_full", "the queue that a flow sends the packet to is full",
        "Raise the rate of the queue, or the packets that it holds, if the traffic is intended.";
    QUEUE_END = 15, "queue_end", "the program ended while the packet waited in a queue",
        "Nothing: packets in queues are not sent at the end.";
}
