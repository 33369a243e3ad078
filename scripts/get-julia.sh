#!/bin/sh
# get-julia.sh PREFIX
#
# Unpacks the Julia of Debian's "bullseye" (1.5.3) into PREFIX, for machines that have none.
# Nothing outside PREFIX is touched and root is not needed. Start PREFIX/bin/julia.
#
# Needs apt-get and dpkg-deb, a Debian mirror among apt's sources, Debian's archive keyring,
# and a C compiler. A PREFIX that already works is left alone.
set -eu

suite=bullseye
wanted=1.5.3
# Julia, and what it loads that a newer Debian has no longer under the same name. The C and C++
# libraries, zlib and lzma stay the machine's: Python, in the same process, needs those.
packages="julia julia-common libjulia1 libllvm9 libopenlibm3 libdsfmt-19937-1 libutf8proc2
          libpcre2-8-0 libgmp10 libmpfr6 libgfortran5 libquadmath0 libunwind8 libffi7 libz3-4
          libgit2-1.1 libmbedtls12 libmbedx509-0 libmbedcrypto3 libssh2-1 libhttp-parser2.9
          libpcre3"

name=get-julia.sh
. "$(dirname "$0")/debian.sh"

has_julia() {
    "$1/bin/julia" --startup-file=no -e 'using LinearAlgebra, Pkg, Test; print(VERSION)' \
        2>/dev/null | grep -qx "$wanted"
}

download_and_unpack() {
    # The list of packages is meant to be split into words.
    # shellcheck disable=SC2086
    download "$suite" patchelf $packages
    mkdir -p "$state/tools"
    dpkg-deb -x "$state"/debs/patchelf_*.deb "$state/tools"
    rm "$state"/debs/patchelf_*.deb
    unpack
}

# The libraries find each other by where they lie. A search path in the environment would reach
# every program that Julia starts.
link_libraries() {
    patchelf=$state/tools/usr/bin/patchelf
    libraries=$(dirname "$(find "$prefix/root/usr/lib" -name 'libjulia.so.1')")
    [ -d "$libraries/julia" ] || fail "the unpacked packages hold no Julia"
    older=$prefix/root/lib/$(basename "$libraries")
    if [ -d "$older" ]; then
        cp -a "$older/." "$libraries/"
        rm -rf "$older"
    fi
    stub_libedit
    for library in "$libraries"/*.so* "$libraries"/julia/libopenblas64_.so; do
        case $library in */libjulia.so*) continue ;; esac
        if [ -f "$library" ] && [ ! -L "$library" ]; then
            "$patchelf" --set-rpath "\$ORIGIN:\$ORIGIN/.." "$library"
        fi
    done
    # libunwind's _Unwind_ functions would otherwise be found before those of libgcc_s; a Rust
    # panic that uses some of each ends the process.
    "$patchelf" --add-needed libgcc_s.so.1 "$prefix/root/usr/bin/julia"
}

# LLVM wants a line editor that Julia never opens. The real one also has readline's names, at
# which Python's readline module crashes.
stub_libedit() {
    for name in el_end el_get el_getc el_gets el_init el_insertstr el_line el_push el_set \
        history history_end history_init; do
        echo "int $name(void) { return -1; }"
    done >"$state/libedit.c"
    cc -w -shared -fPIC -nostdlib -fno-builtin -Wl,-soname,libedit.so.2 \
        -o "$libraries/libedit.so.2" "$state/libedit.c"
}

# PREFIX/bin/julia, with a depot of its own. The registry in it is empty: without one, Pkg would
# fetch the public one.
write_wrapper() {
    mkdir -p "$prefix/bin" "$prefix/depot/registries/Empty"
    cat >"$prefix/bin/julia" <<WRAPPER
#!/bin/sh
: "\${JULIA_DEPOT_PATH=$prefix/depot:}"
export JULIA_DEPOT_PATH
exec "$prefix/root/usr/bin/julia" "\$@"
WRAPPER
    chmod +x "$prefix/bin/julia"
    cat >"$prefix/depot/registries/Empty/Registry.toml" <<'REGISTRY'
name = "Empty"
uuid = "0d5a1f3c-6f0e-4c8e-9a53-5b9f6f1d2a70"
repo = ""

[packages]
REGISTRY
}

[ $# -eq 1 ] || fail "usage: get-julia.sh PREFIX"
prepare "$1"

if has_julia "$prefix"; then
    echo "$prefix/bin/julia is there already"
    exit 0
fi
empty cc

download_and_unpack
link_libraries
write_wrapper
has_julia "$prefix" || fail "the unpacked Julia does not run: $("$prefix/bin/julia" --version 2>&1)"
rm -rf "$state"
echo "$prefix/bin/julia: $("$prefix/bin/julia" --version)"
