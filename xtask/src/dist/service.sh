#!/bin/sh
# service.sh NEW OLD: systemd starts the service, hears of it, reloads, restarts and stops it.
#
#  this script ─ namespaces ─┬─ systemd, as their first process, over the copy of this machine's files
#                            └─ the tests, beside it, which end it
set -eu

script=$0 arguments="$1 $2" new=$1 old=$2
. "$(dirname "$0")/root.sh"

if [ -z "${IN_NAMESPACES-}" ]; then
    machine_allows
    test -x /lib/systemd/systemd || skip "systemd is not installed"
    # systemd wants a tree of control groups for itself.
    groups=$(findmnt -t cgroup2 -n -o TARGET | head -n 1)
    test -n "$groups" || skip "no file system of cgroup2 is mounted"
    group=$groups/shadeline-test-$$
    mkdir "$group" 2>/dev/null || skip "control groups cannot be made here"
    result=$(mktemp)
    (
        echo 0 >"$group/cgroup.procs"
        RESULT=$result in_namespaces --net --pid --cgroup --ipc --uts --fork --kill-child
    ) &
    namespaces=$!
    end='^(passed|failed|skipped:.*)$'
    for _ in $(seq 240); do
        if grep -Eq "$end" "$result" || ! kill -0 "$namespaces" 2>/dev/null; then break; fi
        sleep 1
    done
    # The first process goes with this one, and all others with that.
    kill -KILL "$namespaces" 2>/dev/null || true
    wait "$namespaces" 2>/dev/null || true
    sleep 0.2
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    cat "$result"
    last=$(grep -E "$end" "$result" | tail -n 1)
    rm "$result"
    case "$last" in
        passed) exit 0 ;;
        skipped:*) skip "${last#skipped: }" ;;
    esac
    exit 1
fi

skip() {
    echo "skipped: $1" >>"$RESULT"
    exit 77
}

tests() {
    trap 'test $? = 0 && echo passed || { inside journalctl -q -n 60; cat "$work/systemd.log"; echo failed; }' EXIT
    soon "systemd does not start" inside test -S /run/systemd/private
    soon "basic.target is not reached" inside systemctl is-active basic.target

    echo "== started"
    inside systemctl start shadeline
    show() { inside systemctl show --value -p "$1" shadeline; }
    test "$(show ActiveState)" = active
    show StatusText | grep '^1 port, [0-9]* worker'
    first=$(show MainPID)
    test "$(stat -c %U:%G --cached=never "$root/proc/$first")" != root:root
    grep '^CapEff:.0*8000007000$' "$root/proc/$first/status" # CAP_BPF, CAP_IPC_LOCK, CAP_NET_RAW, CAP_NET_ADMIN
    inside shadeline ctl show interfaces | grep unused
    soon "the journal has no line" inside sh -c 'journalctl -q -u shadeline | grep -q running:'
    inside journalctl -q -u shadeline -o json | grep '"MESSAGE":"running: ' | grep '"PRIORITY":"6"'

    echo "== reloaded"
    conf=$root/etc/shadeline/shadeline.toml
    inside systemctl reload shadeline
    test "$(show MainPID)" = "$first"
    echo 'workers = "many"' >>"$conf"
    if inside systemctl reload shadeline; then fail "a bad file was reloaded"; fi
    test "$(show ActiveState)" = active
    show StatusText | grep 'the last reload failed'
    soon "no error in the journal" inside sh -c 'journalctl -q -u shadeline -p err | grep -q "not reloaded"'
    sed -i '$d' "$conf"

    echo "== upgraded"
    inside dpkg --force-unsafe-io -i /packages/new.deb
    test "$(show ActiveState)" = active
    test "$(show MainPID)" != "$first"

    echo "== with interfaces"
    ip link add sl-a type veth peer name sl-b
    ip link add sl-c type veth peer name sl-d
    ip link set sl-b up
    ip link set sl-d up
    cat >"$conf" <<'END'
mode = "router"
[port.lan]
interface = "sl-a"
backend = "af_packet"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
[port.wan]
interface = "sl-c"
backend = "af_xdp"
addresses = ["198.51.100.1/24"]
[dump.all]
file = "all.pcapng"
END
    inside systemctl restart shadeline
    inside shadeline ctl show interfaces
    ip address show sl-lan | grep 192.0.2.1 # the twin
    test -e "$root/var/lib/shadeline/all.pcapng"

    echo "== stuck"
    mkdir -p "$root/run/systemd/system/shadeline.service.d"
    cat >"$root/run/systemd/system/shadeline.service.d/test.conf" <<'END'
[Service]
WatchdogSec=2s
TimeoutAbortSec=1s
LimitCORE=0
END
    inside systemctl daemon-reload
    inside systemctl restart shadeline
    first=$(show MainPID)
    sleep 3
    test "$(show MainPID)" = "$first" || fail "the watchdog bit a program that makes progress"
    kill -STOP "$first"
    soon "the watchdog does not bite" sh -c "test \"\$(chroot '$root' systemctl show --value -p NRestarts shadeline)\" = 1"

    echo "== stopped"
    soon "it is not active again" inside systemctl is-active shadeline
    inside systemctl stop shadeline
    test "$(show Result)" = success
    test ! -e "$root/run/shadeline"

    echo "== purged while it runs"
    inside systemctl start shadeline
    inside dpkg --purge shadeline
    if inside systemctl is-active shadeline; then fail "it still runs"; fi
    if inside getent passwd shadeline; then fail "the user is left"; fi
}

make_root
mount -t sysfs -o ro sysfs "$root/sys" || skip "sysfs cannot be mounted here"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || skip "cgroup2 cannot be mounted here"
# Units of the machine, and its word on which may start, have no place here.
rm -f "$root/usr/sbin/policy-rc.d"
find "$root/etc/systemd/system" -name '*.wants' -prune -exec rm -rf {} +
inside dpkg --force-unsafe-io -i /packages/old.deb
mkdir -p "$root/run/systemd/system"
cat >"$root/run/systemd/system/shadeline-test.target" <<'END'
[Unit]
Requires=basic.target
After=basic.target
END
mkdir "$root/sys/fs/cgroup/tests"
(
    echo 0 >"$root/sys/fs/cgroup/tests/cgroup.procs"
    set -x
    tests
) >>"$RESULT" 2>&1 </dev/null &
exec chroot "$root" env -i container=shadeline-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
    --system --unit=shadeline-test.target --log-target=console --show-status=0 >"$work/systemd.log" 2>&1 </dev/null
