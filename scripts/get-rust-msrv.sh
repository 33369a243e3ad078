#!/bin/sh
# get-rust-msrv.sh PREFIX
#
# Unpacks the rustc and standard library of Debian's "trixie" (1.85, our MSRV) into
# PREFIX, for machines whose rustup has no such toolchain. Nothing outside PREFIX is
# touched and root is not needed. Cargo is not included: use any cargo with
#
#   RUSTC=PREFIX/bin/rustc cargo check
#
# Needs apt-get and dpkg-deb, a Debian mirror among apt's sources, and Debian's archive
# keyring. A PREFIX that already works is left alone.
set -eu

suite=trixie
wanted="1.85"
# The compiler, what it loads, and the C library it was built for: rustc runs through
# this C library's own loader, so the machine's may be older.
packages="rustc libstd-rust-$wanted libstd-rust-dev libllvm19 libc6 libgcc-s1 libstdc++6
          libz3-4 libedit2 libbsd0 libmd0 libtinfo6 libffi8 libxml2 liblzma5 libzstd1 zlib1g"

fail() {
    echo "get-rust-msrv.sh: $*" >&2
    exit 1
}

has_compiler() {
    "$1/bin/rustc" --version 2>/dev/null | grep -q "^rustc $wanted\."
}

# Prints the first Debian mirror that apt is set up with.
configured_mirror() {
    apt-get update --print-uris 2>/dev/null |
        sed -n "s|^'\(.*/debian/\)dists/[^/]*/InRelease'.*|\1|p" | head -n 1
}

# Runs apt-get with lists, cache and package status of its own, under $state.
private_apt() {
    apt-get -qq \
        -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State="$state" -o Dir::State::Status="$state/status" \
        -o Dir::Cache="$state/cache" -o Dir::Log="$state" \
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3 \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        "$@" >>"$state/log" 2>&1 || { cat "$state/log" >&2; fail "apt-get $1 failed"; }
}

download_and_unpack() {
    mirror=$(configured_mirror)
    [ -n "$mirror" ] || fail "no Debian mirror among apt's sources"
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"
    : >"$state/status"
    echo "deb $mirror $suite main" >"$state/sources.list"
    private_apt update
    # The list of packages is meant to be split into words.
    # shellcheck disable=SC2086
    (cd "$state/debs" && private_apt download $packages)
    for deb in "$state"/debs/*.deb; do
        dpkg-deb -x "$deb" "$prefix/root"
    done
    rm -rf "$prefix/root/usr/share/doc"
}

# PREFIX/bin/rustc: the compiler under its own loader and libraries. Programs that it
# starts (the linker) see none of them.
write_wrapper() {
    loader=$(find "$prefix/root/usr/lib" -name 'ld-linux*.so.*' | head -n 1)
    driver=$(find "$prefix/root/usr/lib" -name 'librustc_driver-*.so' | head -n 1)
    if [ -z "$loader" ] || [ -z "$driver" ]; then
        fail "the unpacked packages hold no rustc"
    fi
    libraries=$(dirname "$driver")
    mkdir -p "$prefix/bin"
    cat >"$prefix/bin/rustc" <<WRAPPER
#!/bin/sh
exec "$loader" --library-path "$libraries" "$prefix/root/usr/bin/rustc" \\
    --sysroot "$prefix/root/usr" "\$@"
WRAPPER
    chmod +x "$prefix/bin/rustc"
}

[ $# -eq 1 ] || fail "usage: get-rust-msrv.sh PREFIX"
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
state=$prefix/apt
marker=$prefix/made-by-get-rust-msrv

if has_compiler "$prefix"; then
    echo "$prefix/bin/rustc is there already"
    exit 0
fi
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool not found: this script needs a Debian-like system"
done
# An unfinished PREFIX is emptied, but only one that this script made.
if [ ! -e "$marker" ] && [ -n "$(ls -A "$prefix")" ]; then
    fail "$prefix is not empty"
fi
: >"$marker"
rm -rf "${prefix:?}/root" "${prefix:?}/bin" "${state:?}"

download_and_unpack
write_wrapper
has_compiler "$prefix" || fail "the unpacked compiler does not run: $("$prefix/bin/rustc" --version 2>&1)"
rm -rf "$state"
echo "$prefix/bin/rustc: $("$prefix/bin/rustc" --version)"
