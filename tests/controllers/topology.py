"""Switches and their links, found with LLDP, and flows along the shortest way between two stations."""

from collections import deque

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ether_types, ethernet, packet
from os_ken.ofproto import ofproto_v1_3
from os_ken.topology import event as topology


class Topology(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.switches = {}  # number: datapath
        self.links = {}  # (switch, port): (switch, port)
        self.stations = {}  # MAC: (switch, port)

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        switch = event.msg.datapath
        self.switches[switch.id] = switch
        protocol, parser = switch.ofproto, switch.ofproto_parser
        output = [parser.OFPActionOutput(protocol.OFPP_CONTROLLER, protocol.OFPCML_NO_BUFFER)]
        self.add(switch, 0, parser.OFPMatch(), output)

    def add(self, switch, priority, match, actions):
        protocol, parser = switch.ofproto, switch.ofproto_parser
        apply = parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)
        flow = parser.OFPFlowMod(switch, priority=priority, match=match, instructions=[apply])
        switch.send_msg(flow)

    @set_ev_cls(topology.EventSwitchEnter)
    def entered(self, event):
        ports = sorted(port.port_no for port in event.switch.ports)
        print(f"switch {event.switch.dp.id} ports {ports}", flush=True)

    @set_ev_cls(topology.EventLinkAdd)
    def link_added(self, event):
        source, target = event.link.src, event.link.dst
        self.links[source.dpid, source.port_no] = (target.dpid, target.port_no)
        print(f"link {source.dpid}:{source.port_no} {target.dpid}:{target.port_no}", flush=True)

    @set_ev_cls(topology.EventLinkDelete)
    def link_deleted(self, event):
        source, target = event.link.src, event.link.dst
        self.links.pop((source.dpid, source.port_no), None)
        print(f"gone {source.dpid}:{source.port_no} {target.dpid}:{target.port_no}", flush=True)

    def way(self, source, target):
        """Outputs on the shortest way: (switch, port) for each switch behind the first one."""
        before, open_ = {source: None}, deque([source])
        while open_:
            switch = open_.popleft()
            if switch == target:
                break
            for (own, port), (other, _) in self.links.items():
                if own == switch and other not in before:
                    before[other] = (own, port)
                    open_.append(other)
        if target not in before:
            return None
        outputs, at = [], target
        while before[at] is not None:
            outputs.append(before[at])
            at = before[at][0]
        return outputs[::-1]

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def received(self, event):
        message = event.msg
        switch = message.datapath
        in_port = message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        if frame is None or frame.ethertype == ether_types.ETH_TYPE_LLDP:
            return
        ends = set(self.links) | set(self.links.values())
        if (switch.id, in_port) in ends:
            return
        self.stations[frame.src] = (switch.id, in_port)
        target = self.stations.get(frame.dst)
        way = self.way(switch.id, target[0]) if target else None
        if way is None:
            outputs = self.edges(ends) - {(switch.id, in_port)}
            self.send(message.data, outputs)
            return
        for number, port in way + [target]:
            datapath = self.switches[number]
            parser = datapath.ofproto_parser
            match = parser.OFPMatch(eth_src=frame.src, eth_dst=frame.dst)
            self.add(datapath, 10, match, [parser.OFPActionOutput(port)])
        self.send(message.data, {target})

    def edges(self, ends):
        """Ports without a link: stations are there."""
        every = set()
        for number, switch in self.switches.items():
            every |= {(number, port) for port in switch.ports if port < 0xFFFFFF00}
        return every - ends

    def send(self, data, outputs):
        for number, port in sorted(outputs):
            switch = self.switches[number]
            protocol, parser = switch.ofproto, switch.ofproto_parser
            out = parser.OFPPacketOut(
                datapath=switch,
                buffer_id=protocol.OFP_NO_BUFFER,
                in_port=protocol.OFPP_CONTROLLER,
                actions=[parser.OFPActionOutput(port)],
                data=data,
            )
            switch.send_msg(out)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def refused(self, event):
        print(f"error: type {event.msg.type} code {event.msg.code}", flush=True)
