#!/usr/bin/env python3
"""What a translator of addresses must do, checked a second time with scapy.

usage: nat.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r PORT=IN… -w OUT`. Every checksum of what leaves is computed anew, those
of quoted packets too. What leaves is matched to what came by its payload: inside ends must have one outside end each, and
no two the same one; answers must go back to the inside end; port forwards and static addresses are exact; errors of the
router must quote packets as their senders sent them. Outside ports are free otherwise.
"""

import ipaddress
import pathlib
import sys
import tomllib

from scapy.all import ICMP, IP, TCP, UDP, Ether

import router as routing
from router import Mismatch


def packets(path, reader=routing.frames):
    return [Ether(frame)[IP] for frame in reader(path) if frame[12:14] == b"\x08\x00"]


def check(ip, what):
    """All checksums, computed anew."""
    if ip.frag == 0 and not ip.flags.MF:
        raw = bytes(ip)[: ip.len]
        fresh = IP(raw)
        for layer in (IP, TCP, UDP, ICMP):
            if fresh.haslayer(layer):
                if layer is UDP and fresh[UDP].chksum == 0:
                    continue
                old = fresh[layer].chksum
                del fresh[layer].chksum
                fresh = IP(bytes(fresh))
                if fresh[layer].chksum != old:
                    raise Mismatch(f"{what}: checksum of {layer.__name__} is {old:#x}, must be {fresh[layer].chksum:#x}")
        if fresh.haslayer(ICMP) and fresh[ICMP].type in (3, 4, 5, 11, 12):
            quoted = bytes(fresh[ICMP].payload)
            header = IP(quoted[:20])
            old = header.chksum
            del header.chksum
            if IP(bytes(header)).chksum != old:
                raise Mismatch(f"{what}: checksum of the quoted header")
            if header.proto == 17 and len(quoted) >= header.len and quoted[26:28] != b"\0\0":
                inner = IP(bytes(header)[:20] + quoted[20 : header.len])
                old = inner[UDP].chksum
                del inner[UDP].chksum
                if IP(bytes(inner))[UDP].chksum != old:
                    raise Mismatch(f"{what}: UDP checksum of the quoted packet")


def whole(all):
    """Fragments become the datagrams that they are of; everything else stays."""
    parts, done = {}, []
    for ip in all:
        if not ip.frag and not ip.flags.MF:
            done.append(ip)
            continue
        pieces = parts.setdefault((ip.src, ip.dst, ip.proto, ip.id), [])
        pieces.append(ip)
        pieces.sort(key=lambda piece: piece.frag)
        at = 0
        for piece in pieces:
            if piece.frag * 8 != at:
                break
            at += len(piece.payload)
        else:
            if not pieces[-1].flags.MF:
                head = IP(src=ip.src, dst=ip.dst, proto=ip.proto, id=ip.id, ttl=ip.ttl)
                done.append(IP(bytes(head / b"".join(bytes(piece.payload) for piece in pieces))))
    return done


def ends(ip):
    """Source and destination with ports or identifier, and the payload by which a packet is known again."""
    for layer in (TCP, UDP):
        if layer in ip:
            payload = bytes(ip[layer])[4:]
            at = 12 if layer is TCP else 2  # without the checksum
            payload = payload[:at] + payload[at + 2 :]
            return (ip.src, ip[layer].sport), (ip.dst, ip[layer].dport), (ip.proto, payload)
    if ICMP in ip and ip[ICMP].type in (0, 8, 13, 14):
        own = ip[ICMP].id
        return (ip.src, own), (ip.dst, own), (1, bytes(ip[ICMP])[:2] + bytes(ip[ICMP])[6:])
    return (ip.src, 0), (ip.dst, 0), (ip.proto, bytes(ip.payload))


class Rules:
    def __init__(self, path):
        text = tomllib.loads(path.read_text())
        own = {name: [str(ipaddress.ip_interface(a).ip) for a in port.get("addresses", [])] for name, port in text["port"].items()}
        self.own = {address for all in own.values() for address in all}
        self.forwards, self.static, self.masquerade = {}, {}, set()
        for rule in text["nat"]:
            if rule["kind"] == "destination":
                address, port = rule["to"].split(":")
                for outside in rule["outside"]:
                    self.forwards[(own[outside][0], rule["port"])] = (address, int(port))
            elif rule["kind"] == "static":
                self.static[rule["source"][0].split("/")[0]] = rule["to"].split("/")[0]
            else:
                self.masquerade |= {own[outside][0] for outside in rule["outside"]}


def judge(rules, came, left):
    """`came` and `left`: by port, packets."""
    counted = 0
    bindings = {}
    unstatic = {outside: inside for inside, outside in rules.static.items()}
    for port in ("wan", "lan"):
        for ip in left[port]:
            src, dst, payload = ends(ip)
            if ICMP in ip and ip[ICMP].type in (3, 11):
                continue
            sources = [ends(x) for x in came["lan"] + came["wan"] if ends(x)[2] == payload]
            if not sources:
                if ip.src in rules.own and ICMP in ip:
                    continue  # the router's own answer
                raise Mismatch(f"{port}: nobody sent {ip.summary()}")
            fits = False
            for was_src, was_dst, _ in sources:
                key = (ip.proto, was_src)
                if port == "wan":
                    if was_dst != dst and not (ip.proto == 1 and was_dst[0] == dst[0]):
                        continue
                    if was_src[0] in rules.static:
                        fits |= src == (rules.static[was_src[0]], was_src[1])
                    elif was_src in rules.forwards.values() and any(
                        src == outside for outside, inside in rules.forwards.items() if inside == was_src
                    ):
                        fits = True
                    elif src[0] in rules.masquerade:
                        known = bindings.setdefault(key, src)
                        fits |= known == src
                else:
                    to = rules.forwards.get(was_dst) or (unstatic.get(was_dst[0]), was_dst[1])
                    back = [inside for (proto, inside), outside in bindings.items() if (proto, outside) == (ip.proto, was_dst)]
                    fits |= dst == to or dst in back or was_dst == dst or src[0] in rules.own
                    fits |= (ip.proto not in (1, 6, 17)) and was_dst[0] in rules.masquerade
            if not fits:
                raise Mismatch(f"{port}: {ip.summary()} is no translation of {[s[:2] for s in sources]}")
            counted += 1
    if len(set((p, out) for (p, _), out in bindings.items())) != len(bindings):
        raise Mismatch(f"two inside ends have one outside end: {bindings}")
    return counted, bindings


def errors(rules, came, left):
    """Errors of the router quote what senders sent; errors of others quote what they, translated back, had sent."""
    sent = {bytes(ip)[12:28] for all in came.values() for ip in all}
    count = 0
    for port, all in left.items():
        for ip in all:
            if ICMP not in ip or ip[ICMP].type not in (3, 11):
                continue
            quoted = bytes(ip[ICMP].payload)
            # Addresses and ports as some sender sent them: a packet came with these ends.
            if quoted[9] in (6, 17):
                ends_of = quoted[12:20] + quoted[(quoted[0] & 15) * 4 :][:4]
                known = {bytes(x)[12:20] + bytes(x)[(bytes(x)[0] & 15) * 4 :][:4] for a in came.values() for x in a}
                if ends_of not in known:
                    raise Mismatch(f"{port}: {ip.summary()} quotes what nobody sent")
            if ip.dst != str(ipaddress.ip_address(quoted[12:16])):
                raise Mismatch(f"{port}: {ip.summary()} does not go to whom it quotes")
            count += 1
    return count


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    rules = Rules(pathlib.Path(arguments[1]))
    came, left = {}, {}
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, _, path = arguments[at + 1].rpartition("=")
            came[name] = packets(pathlib.Path(path))
    for name in came:
        left[name] = packets(out / f"{name}.pcapng")
        for number, ip in enumerate(left[name], 1):
            check(ip, f"packet {number} of {name}")
    came = {name: whole(all) for name, all in came.items()}
    left = {name: whole(all) for name, all in left.items()}
    for name, all in left.items():
        for number, ip in enumerate(all, 1):
            check(ip, f"datagram {number} of {name}")
    counted, bindings = judge(rules, came, left)
    print(f"{counted} packets translated, {len(bindings)} bindings, {errors(rules, came, left)} errors, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
