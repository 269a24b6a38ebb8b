#!/bin/sh
# image.sh ARCHIVE VERSION: the container image is read by another program, and its entrypoint starts.
set -eu

command -v umoci >/dev/null || { echo "umoci is not installed (\`cargo xtask setup dist\`)"; exit 77; }
test "$(id -u)" = 0 || { echo "needs root"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/layout"
tar -xf "$1" -C "$work/layout"
# Every blob is what its name says.
for blob in "$work"/layout/blobs/sha256/*; do
    echo "$(basename "$blob")  $blob"
done | sha256sum --check --quiet
umoci unpack --image "$work/layout:$2" "$work/bundle"

root=$work/bundle/rootfs
grep -q '"/usr/bin/shadeline"' "$work/bundle/config.json"
grep -q '"uid": 65532' "$work/bundle/config.json"
run() {
    chroot --userspec 65532:65532 "$root" /usr/bin/shadeline "$@"
}
run --version
run check /etc/shadeline/shadeline.toml
# The command of the image: the service's configuration, as its user, without privileges.
run run /etc/shadeline/shadeline.toml --duration 1s | grep unused
test -s "$root/usr/share/doc/shadeline/THIRD-PARTY"
