# debian.sh: what the get-*.sh scripts share; sourced by them, not run.
#
# Unpacks Debian packages into a folder, as no part of the system and without root. The script
# that sources this sets $name (its own), and later $prefix and $state: where the packages go, and
# a folder of its own below it that is removed at the end. $architecture, if set, is that of the
# packages; otherwise they are for this machine.

fail() {
    echo "$name: $*" >&2
    exit 1
}

# Prints the first Debian mirror that apt is set up with.
configured_mirror() {
    apt-get update --print-uris 2>/dev/null |
        sed -n "s|^'\(.*/debian/\)dists/[^/]*/InRelease'.*|\1|p" | head -n 1
}

# Runs an apt program with lists, cache and package status of its own, under $state.
privately() {
    program=$1
    shift
    "$program" -qq \
        -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State="$state" -o Dir::State::Status="$state/status" \
        -o Dir::Cache="$state/cache" -o Dir::Log="$state" \
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3 \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        ${architecture:+-o APT::Architecture="$architecture" -o APT::Architectures="$architecture"} \
        "$@"
}

# A mirror that is out of reach for a moment is asked again.
private_apt() {
    for pause in 10 30 0; do
        privately apt-get "$@" >>"$state/log" 2>&1 && return
        sleep "$pause"
    done
    cat "$state/log" >&2
    fail "apt-get $1 failed"
}

# prepare_lists LINE: of sources.list.
prepare_lists() {
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"
    : >"$state/status"
    echo "$1" >"$state/sources.list"
}

# download SUITE PACKAGES...: into $state/debs.
download() {
    mirror=$(configured_mirror)
    [ -n "$mirror" ] || fail "no Debian mirror among apt's sources"
    prepare_lists "deb $mirror $1 main"
    shift
    private_apt update
    (cd "$state/debs" && private_apt download "$@")
}

# Unpacks what was downloaded into $prefix/root, without its documentation.
unpack() {
    for deb in "$state"/debs/*.deb; do
        dpkg-deb -x "$deb" "$prefix/root"
    done
    rm -rf "$prefix/root/usr/share/doc" "$prefix/root/usr/share/man"
}

# prepare FOLDER: sets $prefix, $state and $marker, and waits for any other script that fills this folder: apt
# would not wait for its lock.
prepare() {
    mkdir -p "$1"
    prefix=$(cd "$1" && pwd)
    if command -v flock >/dev/null; then
        exec 9>"$prefix.lock"
        flock 9
    fi
    state=$prefix/apt
    marker=$prefix/made-by-${name%.sh}
}

# empty TOOLS...: an unfinished prefix is emptied, but only one that this script made.
empty() {
    for tool in apt-get dpkg-deb "$@"; do
        command -v "$tool" >/dev/null ||
            fail "$tool not found: this script needs a Debian-like system"
    done
    if [ ! -e "$marker" ] && [ -n "$(ls -A "$prefix")" ]; then
        fail "$prefix is not empty"
    fi
    : >"$marker"
    rm -rf "${prefix:?}/root" "${prefix:?}/bin" "${state:?}"
}
