#!/bin/sh
# A live router between two hosts, for an ordinary user: no root, no change to the machine's network.
#
#     unshare -Urn sh lab.sh              # a shell; `left` and `right` run a command on a host
#     unshare -Urn sh lab.sh COMMAND …    # a command in place of the shell
#
# SHADELINE names the program (default: `shadeline` in the PATH, or else the release build of the checkout that
# contains this file), CONFIG the configuration (default: router.toml beside this file). docs/lab.md explains
# the rest.
set -eu

folder=$(cd "$(dirname "$0")" && pwd)
shadeline=${SHADELINE:-$(command -v shadeline || echo "$folder/../../../target/release/shadeline")}
if ! command -v "$shadeline" > /dev/null; then
    echo "lab.sh: there is no program $shadeline: build it (cargo build --release), or set SHADELINE" >&2
    exit 2
fi
shadeline=$(realpath "$(command -v "$shadeline")")
config=${CONFIG:-$folder/router.toml}
if ip -oneline link show up | grep -qv ': lo:'; then
    echo "lab.sh: this network has interfaces in use; start the lab in a network of its own:" >&2
    echo "    unshare -Urn sh $0" >&2
    exit 2
fi

work=$(mktemp -d)
# Another instance runs already, as the installed service does for root: this router and its `ctl` meet elsewhere.
if "$shadeline" ctl show interfaces > /dev/null 2>&1; then
    export SHADELINE_SOCKET="$work/ctl.sock"
fi
processes=
# The router ends first, in order. A second Ctrl-C does not stop this.
finish() {
    trap '' INT TERM
    for process in $processes; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -r "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# A host is a network namespace that a sleeping process keeps.
host() { # NAME NUMBER
    unshare --net sleep infinity &
    process=$!
    processes="$processes $process"
    attempts=100
    # Before it has its own, it is in this one; if it has ended, there is none.
    while net=$(readlink "/proc/$process/ns/net"); [ "$net" = "$(readlink /proc/self/ns/net)" ]; do
        [ $((attempts -= 1)) -gt 0 ] || break
        sleep 0.1
    done
    if [ -z "$net" ] || [ "$attempts" = 0 ]; then
        echo "lab.sh: host $1: \`unshare --net\` made no network namespace" >&2
        exit 1
    fi
    printf '#!/bin/sh\nexec nsenter --net --target %s "$@"\n' "$process" > "$work/$1"
    chmod +x "$work/$1"
    ip link add "eth$2" type veth peer name eth0 netns "$process"
    ip link set "eth$2" up
    "$1" ip link set lo up
    "$1" ip link set eth0 up
    "$1" ip address add "10.0.$2.2/24" dev eth0
    "$1" ip address add "fd00:$2::2/64" dev eth0 nodad
    "$1" ip route add default via "10.0.$2.1"
    "$1" ip route add default via "fd00:$2::1"
}

ln -s "$shadeline" "$work/shadeline"
PATH="$work:$PATH"
ip link set lo up
host left 1
host right 2

: > "$work/log" # it is read before the router has opened it
"$shadeline" run "$config" > "$work/log" 2>&1 &
router=$!
processes="$router $processes"
until grep -q 'running: ' "$work/log"; do
    if ! kill -0 "$router" 2>/dev/null; then
        cat "$work/log" >&2
        exit 1
    fi
    sleep 0.1
done
cat "$work/log"

if [ $# -gt 0 ]; then
    "$@"
else
    echo "The router is running. Try: left ping 10.0.2.2 · shadeline ctl show interfaces · exit"
    "${SHELL:-/bin/sh}" || true
fi
