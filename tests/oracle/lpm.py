#!/usr/bin/env python3
"""Longest-prefix match by dictionary, one length after another, compared with what `shadeline lpm` wrote.

usage: lpm.py OUT ARGUMENTS…      ARGUMENTS are those of the program.
"""

import gzip
import ipaddress
import pathlib
import sys


def words(path):
    """The words of each line that has any; `#` and `;` begin comments."""
    data = pathlib.Path(path).read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    for line in text.decode().splitlines():
        found = line.split("#")[0].split(";")[0].split()
        if found:
            yield found


def main():
    arguments = sys.argv[2:]
    files = {name: arguments[arguments.index(f"--{name}") + 1] for name in ("routes", "addresses", "results")}
    tables = {4: {}, 6: {}}
    for prefix, *hop in words(files["routes"]):
        network = ipaddress.ip_network(prefix)
        table = tables[network.version].setdefault(network.prefixlen, {})
        # Of two routes for a prefix the later one stands.
        table[int(network.network_address)] = hop[0] if hop else prefix
    wanted = []
    for (text,) in words(files["addresses"]):
        address = ipaddress.ip_address(text)
        number, bits = int(address), address.max_prefixlen
        found = "-"
        for length in sorted(tables[address.version], reverse=True):
            network = number >> (bits - length) << (bits - length)
            if network in tables[address.version][length]:
                found = tables[address.version][length][network]
                break
        wanted.append(found)
    written = pathlib.Path(files["results"]).read_text().splitlines()
    for number, (one, other) in enumerate(zip(wanted, written), 1):
        if one != other:
            sys.exit(f"oracle: line {number}: {other}, must be {one}")
    if len(wanted) != len(written):
        sys.exit(f"oracle: {len(written)} results for {len(wanted)} addresses")
    print(f"{len(wanted)} addresses, {sum(found != '-' for found in wanted)} with a route, all as they must be")


if __name__ == "__main__":
    main()
