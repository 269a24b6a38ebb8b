#!/bin/sh
# package.sh NEW OLD: a Debian package is installed over an older one, started, removed and purged.
set -eu

script=$0 arguments="$1 $2" new=$1 old=$2
. "$(dirname "$0")/root.sh"
if [ -z "${IN_NAMESPACES-}" ]; then
    machine_allows
    # A network of its own, too: the last part makes interfaces.
    in_namespaces --net
fi
make_root

conf=$root/etc/shadeline/shadeline.toml
dpkg() {
    inside dpkg --force-unsafe-io "$@" </dev/null
}

echo "== installed"
dpkg -i /packages/old.deb
test "$(inside dpkg-query -W -f '${db:Status-Status}' shadeline)" = installed
inside getent passwd shadeline
inside dpkg --verify shadeline
inside shadeline --version
inside shadeline check /etc/shadeline/shadeline.toml
inside test -L /etc/systemd/system/multi-user.target.wants/shadeline.service
head -1 "$conf" | grep -q '^# Of an older version'
if command -v systemd-analyze >/dev/null; then
    inside systemd-analyze verify --man=no /usr/lib/systemd/system/shadeline.service 2>&1 |
        { ! grep shadeline; }
fi

echo "== upgraded, configuration unchanged"
dpkg -i /packages/new.deb
if grep -q 'Of an older version' "$conf"; then fail "an unchanged configuration was not replaced"; fi

echo "== upgraded over a changed configuration"
dpkg --purge shadeline
dpkg -i /packages/old.deb
echo "# mine" >>"$conf"
dpkg --force-confold -i /packages/new.deb
tail -1 "$conf" | grep -q '^# mine$'
test -f "$conf.dpkg-dist"
# The same default again is no question at all.
dpkg -i /packages/new.deb
tail -1 "$conf" | grep -q '^# mine$'

echo "== started as the unit does: its user, its capabilities, its folders"
unit=$root/usr/lib/systemd/system/shadeline.service
capabilities=$(sed -n 's/^AmbientCapabilities=//p' "$unit" | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
mount -t sysfs sysfs "$root/sys"
mkdir "$root/run/shadeline"
chroot "$root" chown shadeline:shadeline /run/shadeline
mkdir "$root/tmp/work"
start() {
    inside setpriv --reuid shadeline --regid shadeline --clear-groups --no-new-privs \
        --bounding-set "-all,$capabilities" --inh-caps "-all,$capabilities" --ambient-caps "-all,$capabilities" \
        shadeline run "$1" >"$work/log" 2>&1 &
    program=$!
    soon "it does not start: $(cat "$work/log")" grep -q 'running:' "$work/log"
}
stop() {
    inside shadeline ctl stop
    wait "$program" || fail "it ended badly: $(cat "$work/log")"
}
start /etc/shadeline/shadeline.toml
inside shadeline ctl show interfaces | grep unused
stop

echo "== with interfaces"
ip link add sl-a type veth peer name sl-b
ip link set sl-b up
cat >"$conf" <<'END'
mode = "router"
[port.lan]
interface = "sl-a"
backend = "af_packet"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
END
start /etc/shadeline/shadeline.toml
inside shadeline ctl show interfaces | grep lan
ip address show sl-lan | grep 192.0.2.1 # the twin
inside shadeline ctl reload
stop
cat "$work/log"

echo "== removed"
dpkg -r shadeline
test ! -e "$root/usr/bin/shadeline"
test -e "$conf"

echo "== purged"
mkdir -p "$root/var/lib/shadeline" "$root/var/cache/shadeline/kernels"
dpkg -P shadeline
if inside getent passwd shadeline || inside getent group shadeline; then fail "the user is left"; fi
# Whiteouts of overlayfs (character devices) say that something is gone. dpkg's log keeps its history.
left=$(find "$upper" -iname '*shadeline*' ! -type c)
test -z "$left" || fail "left behind: $left"
left=$(find "$upper" -type f ! -path "$upper/packages/*" ! -path "$upper/var/lib/dpkg/*" ! -path "$upper/var/log/*" ! -path "$upper/var/cache/man/*" -exec grep -l shadeline {} + |
    { grep -v -- '-$' || true; })
test -z "$left" || fail "still named in: $left"
