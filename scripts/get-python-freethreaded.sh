#!/bin/sh
# get-python-freethreaded.sh PREFIX
#
# Builds a free-threaded Python from Debian's source into PREFIX, for machines that have none:
# Debian packages no such build. Two minutes on two cores. Nothing outside PREFIX is touched and
# root is not needed. Start PREFIX/bin/python3.
#
# Needs apt-get, a Debian mirror among apt's sources, Debian's archive keyring, make, a C compiler,
# and the headers of zlib, OpenSSL and libffi. A PREFIX that already works is left alone.
set -eu

# Tried first, since it is known to build; mirrors drop what is no longer in a suite, and list
# what they do not have yet.
known=python3.14_3.14.7.orig.tar.xz
known_sum=3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81
# Otherwise, whatever these suites list.
package=python3.14
suites="forky sid"

name=get-python-freethreaded.sh
. "$(dirname "$0")/debian.sh"

has_python() {
    "$1/bin/python3" -c '
import ctypes, ensurepip, ssl, sysconfig, venv, zlib
assert sysconfig.get_config_var("Py_GIL_DISABLED")' 2>/dev/null
}

check_headers() {
    for header in zlib.h openssl/ssl.h ffi.h; do
        echo "#include <$header>" | cc -E - >/dev/null 2>&1 ||
            fail "$header not found (Debian and Ubuntu: zlib1g-dev, libssl-dev, libffi-dev)"
    done
}

# Prints "checksum path" of each source tarball that a suite lists.
listed() {
    prepare_lists "deb-src $mirror $1 main"
    private_apt update
    privately apt-cache showsrc "$package" | awk '
        $1 == "Directory:" { folder = $2 }
        length($1) == 64 && $3 ~ /\.orig\.tar\.xz$/ { sum = $1; file = $3 }
        NF == 0 && sum != "" { print sum, folder "/" file; sum = "" }
        END { if (sum != "") print sum, folder "/" file }'
}

# fetch CHECKSUM PATH: through apt, which knows how this machine reaches its mirror.
fetch() {
    /usr/lib/apt/apt-helper download-file "$mirror$2" "$state/source.tar.xz" "SHA256:$1" \
        >>"$state/log" 2>&1
}

download_source() {
    mirror=$(configured_mirror)
    [ -n "$mirror" ] || fail "no Debian mirror among apt's sources"
    mkdir -p "$state"
    fetch "$known_sum" "pool/main/p/$package/$known" && return
    for suite in $suites; do
        listed "$suite" >"$state/listed"
        while read -r sum path; do
            fetch "$sum" "$path" && return
        done <"$state/listed"
    done
    cat "$state/log" >&2
    fail "the mirror has none of the sources that it lists"
}

# Without the tests, and without the optimisation that runs them to learn what is used most.
build() {
    mkdir "$state/source"
    tar -xJf "$state/source.tar.xz" -C "$state/source" --strip-components=1
    (
        cd "$state/source"
        ./configure --quiet --prefix="$prefix/root" --disable-gil --enable-shared \
            --without-static-libpython --disable-test-modules \
            LDFLAGS="-Wl,-rpath,$prefix/root/lib"
        make --silent -j "$(nproc)"
        make --silent install
    ) >"$state/log" 2>&1 || { tail -n 40 "$state/log" >&2; fail "the build failed"; }
    mkdir -p "$prefix/bin"
    ln -s ../root/bin/python3 "$prefix/bin/python3"
}

[ $# -eq 1 ] || fail "usage: get-python-freethreaded.sh PREFIX"
prepare "$1"

if has_python "$prefix"; then
    echo "$prefix/bin/python3 is there already"
    exit 0
fi
empty cc make
check_headers

download_source
build
has_python "$prefix" || fail "the Python that was built does not run, or lacks a module"
rm -rf "$state"
echo "$prefix/bin/python3: $("$prefix/bin/python3" -VV)"
