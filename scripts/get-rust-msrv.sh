#!/bin/sh
# get-rust-msrv.sh PREFIX [ARCHITECTURE...]
#
# Unpacks the rustc and standard library of Debian's "trixie" (1.85, our MSRV) into
# PREFIX, for machines whose rustup has no such toolchain. Nothing outside PREFIX is
# touched and root is not needed. Cargo is not included: use any cargo with
#
#   RUSTC=PREFIX/bin/rustc cargo check
#
# For each ARCHITECTURE, as Debian calls it (arm64, i386, s390x), it also unpacks the standard
# library with which this compiler builds programs for that machine.
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

name=get-rust-msrv.sh
. "$(dirname "$0")/debian.sh"

has_compiler() {
    "$1/bin/rustc" --version 2>/dev/null | grep -q "^rustc $wanted\."
}

download_and_unpack() {
    # The list of packages is meant to be split into words.
    # shellcheck disable=SC2086
    download "$suite" $packages
    unpack
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

[ $# -ge 1 ] || fail "usage: get-rust-msrv.sh PREFIX [ARCHITECTURE...]"
prepare "$1"
shift

if ! has_compiler "$prefix"; then
    empty
    download_and_unpack
    write_wrapper
    has_compiler "$prefix" || fail "the unpacked compiler does not run: $("$prefix/bin/rustc" --version 2>&1)"
fi
for architecture; do
    [ -e "$prefix/libstd-$architecture" ] && continue
    rm -rf "$state"
    download "$suite" libstd-rust-dev
    unpack
    : >"$prefix/libstd-$architecture"
done
rm -rf "$state"
echo "$prefix/bin/rustc: $("$prefix/bin/rustc" --version)"
