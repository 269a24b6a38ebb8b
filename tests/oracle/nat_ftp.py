#!/usr/bin/env python3
"""What control connections of FTP must be behind a translator, checked a second time with scapy and text alone.

usage: nat_ftp.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r PORT=IN… -w OUT`. What an inside end sent, in order, is edited as a text:
each line that announces its own address has an outside one instead. What left must be that text, byte by byte by its
numbers; acknowledgements towards the inside must be the same places of the text that was sent. Each data connection that
was let through must have been announced before. Every checksum is computed anew.
"""

import pathlib
import re
import sys

from scapy.all import ICMP, TCP

from nat import check, packets
from router import Mismatch

CONTROL = {21, 2121}


def payload(ip):
    return bytes(ip)[ip.ihl * 4 + ip[TCP].dataofs * 4 : ip.len]


def text_of(segments):
    """Number of the first byte, and all bytes in order: segments as (number, bytes). Pieces that come early come again."""
    first, text = None, b""
    for seq, data in segments:
        first = seq if first is None else first
        at = (seq - first) % 2**32
        if at <= len(text) < at + len(data):
            text += data[len(text) - at :]
    return first, text


def edit_of(line, own):
    """A pattern for the line as it leaves, by the address of its sender."""
    own = own.encode()
    commas = own.replace(b".", b",")
    number = rb"(\d+)"
    six = re.fullmatch(rb"(PORT |227 [^(]*\()" + re.escape(commas) + rb",(\d+),(\d+)(\)?\.?\r\n)", line)
    if six and int(six[2]) * 256 + int(six[3]) >= 1024:
        return re.escape(six[1]) + rb"203,0,113,1," + number + b"," + number + re.escape(six[4])
    extended = re.fullmatch(rb"EPRT \|1\|" + re.escape(own) + rb"\|\d+\|\r\n", line)
    if extended:
        return rb"EPRT \|1\|203\.0\.113\.1\|" + number + rb"\|\r\n"
    if line.startswith(b"229 "):
        return re.sub(rb"\d{5}", lambda _: number, re.escape(line))
    return re.escape(line)


def ports_of(line):
    numbers = [int(own) for own in re.findall(rb"\d+", line)]
    if line[:4] in (b"PORT", b"227 "):
        return numbers[-2] * 256 + numbers[-1]
    return numbers[-1]


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    came = {}
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, _, path = arguments[at + 1].rpartition("=")
            came[name] = packets(pathlib.Path(path))
    left = {name: packets(out / f"{name}.pcapng") for name in came}
    for name in left:
        for number, ip in enumerate(left[name], 1):
            check(ip, f"packet {number} of {name}")
    tcp = lambda all: [ip for ip in all if TCP in ip and ICMP not in ip]
    announced, acks, lines = set(), 0, 0
    inside_ends = {(ip.src, ip[TCP].sport, ip.dst, ip[TCP].dport) for ip in tcp(came["lan"]) if {ip[TCP].sport, ip[TCP].dport} & CONTROL}
    for src, sport, dst, dport in sorted(inside_ends):
        sent = [ip for ip in tcp(came["lan"]) if (ip.src, ip[TCP].sport, ip.dst, ip[TCP].dport) == (src, sport, dst, dport)]
        gone = [ip for ip in tcp(left["wan"]) if ip.dst == dst and ip[TCP].dport == dport and {ip[TCP].sport, dport} & CONTROL]
        syn = next(ip[TCP].seq for ip in sent if "S" in ip[TCP].flags)
        first, text = text_of([(ip[TCP].seq, payload(ip)) for ip in sent if payload(ip)])
        there, edited = text_of([(ip[TCP].seq, payload(ip)) for ip in gone if payload(ip)])
        if (first, there) != ((syn + 1) % 2**32,) * 2:
            raise Mismatch(f"{src}: the stream begins at {there}, not behind {syn}")
        places, was, now = {0: 0}, 0, 0
        for line in text.splitlines(keepends=True):
            match = re.match(edit_of(line, src), edited[now:])
            if not match:
                raise Mismatch(f"{src}: {line} became {edited[now:now + 60]}")
            if match[0] != line or line.startswith(b"229 "):
                announced.add((dst, ports_of(match[0])))
            was, now, lines = was + len(line), now + len(match[0]), lines + 1
            places[now] = was
        if now != len(edited):
            raise Mismatch(f"{src}: {edited[now:]} was never sent")
        for ip in gone:
            data, at = payload(ip), (ip[TCP].seq - there) % 2**32
            if data and edited[at : at + len(data)] != data:
                raise Mismatch(f"{src}: other bytes at {at}: {data}")
        places[now + 1] = was + 1  # FIN
        for ip in tcp(left["lan"]):
            if (ip.src, ip[TCP].sport, ip.dst, ip[TCP].dport) != (dst, dport, src, sport) or "A" not in ip[TCP].flags:
                continue
            like = lambda own: (own.src, own[TCP].sport, own[TCP].seq, payload(own))
            matching = [own for own in tcp(came["wan"]) if like(own) == like(ip)]
            numbers = {(own[TCP].ack - there) % 2**32 for own in matching}
            known = {places[number] for number in numbers if number in places}
            own = (ip[TCP].ack - first) % 2**32
            within = any(number not in places for number in numbers) and own <= was
            if own not in known and not within:
                raise Mismatch(f"{src}: {ip.summary()} acknowledges {own}, must be one of {known}")
            acks += 1
    data = 0
    for ip in tcp(left["lan"]):
        if {ip[TCP].sport, ip[TCP].dport} & CONTROL:
            continue
        port = next(own[TCP].dport for own in tcp(came["wan"]) if (own.src, own[TCP].sport, own[TCP].seq) == (ip.src, ip[TCP].sport, ip[TCP].seq))
        if (ip.src, port) not in announced:
            raise Mismatch(f"{ip.summary()} was not announced")
        data += 1
    if not (lines and acks and data):
        raise Mismatch("nothing to judge")
    print(f"{lines} lines, {acks} acknowledgements, {data} packets of data connections, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
