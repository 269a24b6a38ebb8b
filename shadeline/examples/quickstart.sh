#!/bin/sh
# A first look: a router between two hosts, ping and iperf3 through it, a trace, and dropped packets.
#
#     sh quickstart.sh
#
# Hosts and router are in network namespaces of their own (lab/lab.sh), which end with the script, also on Ctrl-C.
# Nothing else on the machine changes. Root is not needed. SHADELINE names the program (see lab/lab.sh).
set -eu

folder=$(cd "$(dirname "$0")" && pwd)
if [ "${1-}" != --inside ]; then
    for tool in ip unshare nsenter ping; do
        command -v $tool > /dev/null && continue
        echo "quickstart.sh needs \`$tool\` (on Debian: apt install iproute2 util-linux iputils-ping)" >&2
        exit 2
    done
    # The router's interfaces in Linux are made by this device.
    tun=/dev/net/tun
    if [ ! -c $tun ]; then
        echo "quickstart.sh needs the device $tun: load its module (as root: modprobe tun)" >&2
        exit 2
    elif ! (: <> $tun) 2> /dev/null; then
        echo "quickstart.sh: this user may not open $tun; as root: chmod 666 $tun (the default of udev)" >&2
        exit 2
    fi
    namespaces=--net
    [ "$(id -u)" = 0 ] || namespaces='--user --map-root-user --net'
    # shellcheck disable=SC2086
    exec unshare $namespaces sh "$folder/lab/lab.sh" sh "$folder/quickstart.sh" --inside
fi

background=
finish() {
    # shellcheck disable=SC2086
    [ -z "$background" ] || kill $background 2> /dev/null || true
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n# %s\n' "$*"; }
try() {
    printf '$ %s\n' "$*"
    "$@"
}

say "The configuration: two ports with addresses."
try grep -v '^#' "$folder/lab/router.toml"

say "Host \`left\` reaches host \`right\` through the router, by IPv4 and IPv6."
try left ping -n -c 3 -i 0.2 10.0.2.2
try left ping -n -c 3 -i 0.2 fd00:2::2

if command -v iperf3 > /dev/null; then
    say "TCP through the router, for three seconds."
    right iperf3 --server --one-off > /dev/null &
    background=$!
    attempts=50
    until right ss -ltn | grep -q ':5201 ' || [ $((attempts -= 1)) = 0 ]; do sleep 0.1; done
    try left iperf3 --client 10.0.2.2 --time 3
else
    say "iperf3 is not installed: no measurement of TCP."
fi

say "One packet, stage by stage, while \`left\` pings \`right\`."
left ping -n -i 0.2 -w 20 10.0.2.2 > /dev/null &
background="$background $!"
try shadeline ctl trace -c 1 icmp and dst 10.0.2.2
finish

say "Lost packets are counted by reason. A destination without a route, and a packet that may take one hop only:"
try left ping -n -c 2 -i 0.2 -W 1 10.9.9.9 || true
try left ping -n -c 1 -t 1 -W 1 10.0.2.2 || true
try shadeline ctl show drops

say "The ports."
try shadeline ctl show interfaces

say "The end: router, hosts and links are removed."
echo "For a shell in such a network: unshare -Urn sh $folder/lab/lab.sh"
