#!/bin/sh
# tarball.sh TARBALL SUMS: the tarball unpacks, and what is in it works from there.
set -eu

(cd "$(dirname "$2")" && sha256sum --check --quiet "$(basename "$2")")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xJf "$1" -C "$work" --strip-components=1
cd "$work"

bin/shadeline --version
bin/shadeline check etc/shadeline/shadeline.toml
for example in router switch firewall ndn; do
    bin/shadeline check "share/doc/shadeline/examples/$example.toml" >/dev/null
done
test -s share/man/man1/shadeline.1
test -s share/man/man5/shadeline.toml.5
test -s share/doc/shadeline/docs/install.md
test -s share/doc/shadeline/LICENSE-MIT
test -s share/doc/shadeline/LICENSE-APACHE
grep -q '^clap 4' share/doc/shadeline/THIRD-PARTY
grep -q '^ExecStart=/usr/local/bin/shadeline run /etc/shadeline/shadeline.toml$' lib/systemd/system/shadeline.service
bash -n share/bash-completion/completions/shadeline
grep -q '^#compdef shadeline' share/zsh/site-functions/_shadeline
grep -q 'complete -c shadeline' share/fish/vendor_completions.d/shadeline.fish
# Everything belongs to the one folder, and to root.
test -z "$(tar -tJf "$1" | grep -v '^shadeline-[^/]*/')"
test -z "$(tar -tvJf "$1" --numeric-owner | grep -v ' 0/0 ')"
