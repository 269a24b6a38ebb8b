"""Flows by HTTP, on 127.0.0.1, port 8080.

    GET    /switches        numbers of the switches
    GET    /flows/SWITCH    flows with their counters
    POST   /flows/SWITCH    adds one:   {"priority": 1, "match": {"in_port": 1}, "actions": [{"output": 2}]}
    DELETE /flows/SWITCH    removes those within a match: {"match": {"in_port": 1}}, or all of them

An action is {"output": PORT}, {"group": NUMBER} or {"set_field": {FIELD: VALUE}}. A barrier follows each change; what the switch
refuses is 400 with the type and the code of its error.
"""

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

TIMEOUT = 10


class Rest(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.switches = {}
        self.waiting = {}  # number of the request: queue of what comes back
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                own.answer(self)

            do_POST = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 8080), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        self.switches[event.msg.datapath.id] = event.msg.datapath
        print(f"switch {event.msg.datapath.id}", flush=True)

    @set_ev_cls(
        [ofp_event.EventOFPBarrierReply, ofp_event.EventOFPFlowStatsReply, ofp_event.EventOFPErrorMsg],
        MAIN_DISPATCHER,
    )
    def came(self, event):
        waiting = self.waiting.get(event.msg.xid)
        if waiting is not None:
            waiting.put(event.msg)

    def ask(self, switch, *requests):
        """Sends requests; everything that comes back until the answer to the last one."""
        back = queue.Queue()
        for request in requests:
            switch.set_xid(request)
            self.waiting[request.xid] = back
        for request in requests:
            switch.send_msg(request)
        answers, last = [], requests[-1].xid
        try:
            while not answers or answers[-1].xid != last or self.goes_on(answers[-1]):
                answers.append(back.get(timeout=TIMEOUT))
        finally:
            for request in requests:
                self.waiting.pop(request.xid, None)
        return answers

    @staticmethod
    def goes_on(message):
        more = message.datapath.ofproto.OFPMPF_REPLY_MORE
        return bool(getattr(message, "flags", 0) & more)

    def answer(self, http):
        try:
            status, body = self.request(http)
        except (KeyError, ValueError, TypeError) as error:
            status, body = 400, {"error": repr(error)}
        except queue.Empty:
            status, body = 504, {"error": "the switch does not answer"}
        data = json.dumps(body).encode()
        http.send_response(status)
        http.send_header("Content-Type", "application/json")
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)

    def request(self, http):
        parts = http.path.strip("/").split("/")
        if parts == ["switches"] and http.command == "GET":
            return 200, sorted(self.switches)
        if len(parts) != 2 or parts[0] != "flows":
            return 404, {"error": "no such resource"}
        switch = self.switches[int(parts[1])]
        protocol, parser = switch.ofproto, switch.ofproto_parser
        length = int(http.headers.get("Content-Length") or 0)
        body = json.loads(http.rfile.read(length)) if length else {}
        match = parser.OFPMatch(**body.get("match", {}))
        if http.command == "GET":
            answers = self.ask(switch, parser.OFPFlowStatsRequest(switch))
            return 200, [flow for answer in answers for flow in map(self.shown, answer.body)]
        flow = {"datapath": switch, "match": match, "priority": body.get("priority", 1)}
        if http.command == "POST":
            actions = [self.action(parser, action) for action in body["actions"]]
            kind = protocol.OFPIT_APPLY_ACTIONS
            flow["instructions"] = [parser.OFPInstructionActions(kind, actions)]
        else:
            flow |= {"command": protocol.OFPFC_DELETE, "table_id": protocol.OFPTT_ALL}
            flow |= {"out_port": protocol.OFPP_ANY, "out_group": protocol.OFPG_ANY}
        answers = self.ask(switch, parser.OFPFlowMod(**flow), parser.OFPBarrierRequest(switch))
        for answer in answers:
            if isinstance(answer, parser.OFPErrorMsg):
                return 400, {"type": answer.type, "code": answer.code}
        return 200, {}

    @staticmethod
    def action(parser, action):
        ((name, value),) = action.items()
        match name:
            case "output":
                return parser.OFPActionOutput(value)
            case "group":
                return parser.OFPActionGroup(value)
            case "set_field":
                return parser.OFPActionSetField(**value)
        raise ValueError(f"no action {name}")

    @staticmethod
    def shown(flow):
        match = dict(flow.match.items())
        return {"priority": flow.priority, "match": match, "packets": flow.packet_count}
