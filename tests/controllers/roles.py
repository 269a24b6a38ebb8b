"""A controller with a role: it asks for it (environment: ROLE, GENERATION), and adds a flow of its PRIORITY again and again."""

import os

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser as parser

ROLES = {
    "master": ofproto_v1_3.OFPCR_ROLE_MASTER,
    "slave": ofproto_v1_3.OFPCR_ROLE_SLAVE,
    "equal": ofproto_v1_3.OFPCR_ROLE_EQUAL,
}


class Roles(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        switch = event.msg.datapath
        role, generation = ROLES[os.environ["ROLE"]], int(os.environ["GENERATION"])
        switch.send_msg(parser.OFPRoleRequest(switch, role, generation))
        hub.spawn(self.work, switch)

    def work(self, switch):
        priority = int(os.environ["PRIORITY"])
        while switch.is_active:
            for ports in [(1, 2), (2, 1)]:
                apply = parser.OFPInstructionActions(
                    ofproto_v1_3.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(ports[1])]
                )
                match = parser.OFPMatch(in_port=ports[0])
                switch.send_msg(
                    parser.OFPFlowMod(switch, priority=priority, match=match, instructions=[apply])
                )
            hub.sleep(0.2)

    @set_ev_cls(ofp_event.EventOFPRoleReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def told(self, event):
        names = {number: name for name, number in ROLES.items()}
        print(f"role: {names[event.msg.role]}, generation {event.msg.generation_id}", flush=True)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port(self, event):
        print(f"port: {event.msg.desc.port_no}", flush=True)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def received(self, event):
        print("packet", flush=True)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def refused(self, event):
        print(f"error: type {event.msg.type} code {event.msg.code}", flush=True)
