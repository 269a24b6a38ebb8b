#!/usr/bin/env python3
"""First match by trying every rule in order, compared with what `shadeline classify` wrote.

usage: classify.py OUT ARGUMENTS…      ARGUMENTS are those of the program.
"""

import ipaddress
import pathlib
import re
import sys

ADDRESS = r"(\d+\.\d+\.\d+\.\d+)/(\d+)"
RULE = re.compile(
    rf"@{ADDRESS}\s+{ADDRESS}\s+(\d+)\s*:\s*(\d+)\s+(\d+)\s*:\s*(\d+)\s+0x([0-9a-fA-F]+)/0x([0-9a-fA-F]+)"
)


def lines(path):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


def rules(path):
    """For each rule a list of ranges: lowest and highest value of each field."""
    for line in lines(path):
        src, src_len, dst, dst_len, *ports, proto, mask = RULE.match(line.strip()).groups()
        found = []
        for address, length in ((src, src_len), (dst, dst_len)):
            network = ipaddress.ip_network(f"{address}/{length}", strict=False)
            found.append((int(network.network_address), int(network.broadcast_address)))
        low, high, low2, high2 = map(int, ports)
        found += [(low, high), (low2, high2)]
        found.append((0, 255) if int(mask, 16) == 0 else (int(proto, 16), int(proto, 16)))
        yield found


def main():
    arguments = sys.argv[2:]
    files = {name: arguments[arguments.index(f"--{name}") + 1] for name in ("rules", "trace", "matches")}
    table = list(rules(files["rules"]))
    wanted = []
    for line in lines(files["trace"]):
        header = [int(word) for word in line.split()[:5]]
        match = (
            index
            for index, rule in enumerate(table)
            if all(low <= value <= high for value, (low, high) in zip(header, rule))
        )
        wanted.append(next(match, -1))
    written = [int(line) for line in pathlib.Path(files["matches"]).read_text().split()]
    for number, (one, other) in enumerate(zip(wanted, written), 1):
        if one != other:
            sys.exit(f"oracle: line {number}: {other}, must be {one}")
    if len(wanted) != len(written):
        sys.exit(f"oracle: {len(written)} matches for {len(wanted)} headers")
    print(f"{len(wanted)} headers, {sum(index >= 0 for index in wanted)} with a rule, all as they must be")


if __name__ == "__main__":
    main()
