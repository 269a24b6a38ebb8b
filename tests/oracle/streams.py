#!/usr/bin/env python3
"""TCP streams of a capture by tshark, beside those of `shadeline streams --json` on standard input.

    shadeline streams -r IN.pcap --json | streams.py IN.pcap

tshark follows each stream by itself (`follow,tcp,raw`). Both must have the same connections with the same bytes in each
direction. Where tshark reports missing bytes, its text about them is taken out. A line for each difference, and exit status 1.
"""

import collections
import hashlib
import json
import re
import subprocess
import sys

MISSING = re.compile(rb"\[(\d+) bytes missing in capture file\]\0*")


def tshark(path, *arguments):
    command = ["tshark", "-r", path, "-o", "tcp.check_checksum:FALSE", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def followed(path, count):
    """Of the first `count` streams, for each that there is: both ends, and the bytes that each sent."""
    asked = [word for number in range(count) for word in ("-z", f"follow,tcp,raw,{number}")]
    # tshark prints the last one first.
    for text in tshark(path, "-q", *asked).split("\nFollow: tcp,raw\n")[1:]:
        ends, sent = [None, None], [bytearray(), bytearray()]
        for line in text.splitlines():
            if line.startswith("Node "):
                node, _, end = line.partition(": ")
                address, _, port = end.rpartition(":")
                ends[int(node.split()[1])] = (address.strip("[]"), int(port))
            elif ends[1] is not None and not line.startswith("="):
                sent[line.startswith("\t")] += bytes.fromhex(line.strip())
        if ends[0] != ("", 0):
            yield ends, [MISSING.sub(b"", bytes(own)) for own in sent]


def of_tshark(path, expected):
    """All streams; one run of tshark if there are no more than expected."""
    count = expected + 1
    while len(found := list(followed(path, count))) == count:
        count *= 2
    return collections.Counter(
        frozenset((ends[i], len(sent[i]), hashlib.sha1(sent[i]).hexdigest()) for i in (0, 1)) for ends, sent in found
    )


def of_shadeline(lines):
    found = []
    for line in lines:
        row = json.loads(line)
        ends = []
        for end in ("client", "server"):
            own = row[end]
            ends.append(((row[f"{end}_ip"], row[f"{end}_port"]), own["bytes"], own["sha1"]))
        found.append(frozenset(ends))
    return collections.Counter(found)


def main():
    path, theirs = sys.argv[1], of_shadeline(sys.stdin)
    expected = of_tshark(path, theirs.total())
    for stream, count in (expected - theirs).items():
        print(f"{path}: only tshark has {count} x {sorted(stream)}")
    for stream, count in (theirs - expected).items():
        print(f"{path}: only shadeline has {count} x {sorted(stream)}")
    sys.exit(expected != theirs)


if __name__ == "__main__":
    main()
