"""A learning switch in the controller: it learns from PACKET_IN, and adds a flow for each pair of stations."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ether_types, ethernet, packet
from os_ken.ofproto import ofproto_v1_0, ofproto_v1_3


class Learning(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_0.OFP_VERSION, ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}  # (switch, MAC): port

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        switch = event.msg.datapath
        protocol, parser = switch.ofproto, switch.ofproto_parser
        print(f"switch {switch.id:x}, version {protocol.OFP_VERSION}", flush=True)
        if protocol.OFP_VERSION == ofproto_v1_0.OFP_VERSION:
            return  # a packet without a flow goes to the controller anyway
        actions = [parser.OFPActionOutput(protocol.OFPP_CONTROLLER, protocol.OFPCML_NO_BUFFER)]
        self.add(switch, 0, parser.OFPMatch(), actions)

    def add(self, switch, priority, match, actions, buffer_id=None):
        protocol, parser = switch.ofproto, switch.ofproto_parser
        buffer_id = protocol.OFP_NO_BUFFER if buffer_id is None else buffer_id
        flow = {"datapath": switch, "priority": priority, "match": match, "buffer_id": buffer_id}
        if protocol.OFP_VERSION == ofproto_v1_0.OFP_VERSION:
            flow |= {"command": protocol.OFPFC_ADD, "actions": actions, "cookie": 0}
        else:
            apply = parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)
            flow["instructions"] = [apply]
        switch.send_msg(parser.OFPFlowMod(**flow))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def received(self, event):
        message = event.msg
        switch = message.datapath
        protocol, parser = switch.ofproto, switch.ofproto_parser
        is_10 = protocol.OFP_VERSION == ofproto_v1_0.OFP_VERSION
        in_port = message.in_port if is_10 else message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        if frame is None or frame.ethertype == ether_types.ETH_TYPE_LLDP:
            return
        self.ports[switch.id, frame.src] = in_port
        out_port = self.ports.get((switch.id, frame.dst), protocol.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out_port)]
        is_buffered = message.buffer_id != protocol.OFP_NO_BUFFER
        if out_port != protocol.OFPP_FLOOD:
            names = ["dl_dst", "dl_src"] if is_10 else ["eth_dst", "eth_src"]
            fields = {"in_port": in_port, names[0]: frame.dst, names[1]: frame.src}
            match = parser.OFPMatch(**fields)
            self.add(switch, 1, match, actions, message.buffer_id)
            if is_buffered:
                return  # the flow takes the packet along
        out = parser.OFPPacketOut(
            datapath=switch,
            buffer_id=message.buffer_id,
            in_port=in_port,
            actions=actions,
            data=None if is_buffered else message.data,
        )
        switch.send_msg(out)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def refused(self, event):
        print(f"error: type {event.msg.type} code {event.msg.code}", flush=True)
