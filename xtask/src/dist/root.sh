# Sourced by scripts that change a whole system: a copy of this machine's files that takes all changes.

skip() {
    echo "$1"
    exit 77
}

# Skips where the machine does not allow what follows.
machine_allows() {
    test "$(id -u)" = 0 || skip "needs root"
    for tool in unshare dpkg setpriv ip; do
        command -v "$tool" >/dev/null || skip "$tool is not installed"
    done
    unshare --mount true 2>/dev/null || skip "mount namespaces are not allowed here"
}

# in_namespaces OPTION…: starts the script again, in namespaces of its own.
in_namespaces() {
    IN_NAMESPACES=1 exec unshare --mount --propagation private "$@" sh "$script" $arguments
}

# make_root: mounts the copy. $root is its root, $upper holds what has changed in it.
make_root() {
    # Mounted over in this namespace alone, so that nothing is left behind.
    work=/run
    mount -t tmpfs -o size=2g tmpfs "$work"
    root=$work/root upper=$work/upper
    mkdir "$root" "$upper" "$work/overlay"
    mount -t overlay -o "lowerdir=/,upperdir=$upper,workdir=$work/overlay" overlay "$root" 2>/dev/null ||
        skip "overlayfs is not allowed here"
    test -x "$root/usr/bin/dpkg" || skip "/usr is on another file system than /"
    mount -t proc proc "$root/proc" || skip "procfs is not allowed here"
    mount --rbind /dev "$root/dev"
    # Not the machine's: its service manager must not hear of this.
    for folder in run tmp; do
        mount -t tmpfs tmpfs "$root/$folder"
    done
    mkdir "$root/packages"
    cp "$new" "$root/packages/new.deb"
    cp "$old" "$root/packages/old.deb"
    # A machine that has the package starts without it.
    inside dpkg --purge shadeline >/dev/null 2>&1 || true
    # Some images leave out documentation; the index of manual pages takes seconds each time.
    rm -f "$root"/etc/dpkg/dpkg.cfg.d/* "$root/var/lib/man-db/auto-update"
}

inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
}

fail() {
    echo "failed: $1"
    exit 1
}

# soon WHAT COMMAND…: the command succeeds within 20 s.
soon() {
    what=$1
    shift
    for _ in $(seq 200); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    fail "$what"
}
