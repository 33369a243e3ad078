#!/bin/sh
# get-python.sh VERSION PREFIX
#
# Puts a Python into PREFIX, for machines that have none. VERSION is 3.15: Debian's packages with
# the libraries that they need, unpacked in seconds. Or it is 3.14t or 3.15t, without the GIL,
# which Debian does not package: built from its source, a minute on two cores. Nothing outside
# PREFIX is touched and root is not needed. Start PREFIX/bin/python3.
#
# Needs apt-get, a Debian mirror among apt's sources and Debian's archive keyring; to build, make, a
# C compiler, and the headers of zlib, OpenSSL and libffi. A PREFIX that already works is left alone.
set -eu

# What is built is listed in these suites, the first of which has the packages.
suites="forky sid"

name=get-python.sh
. "$(dirname "$0")/debian.sh"

version=${1-}
package=python${version%t}
# A source that is known to build is tried first; mirrors drop what is no longer in a suite, and list
# what they do not have yet.
case $version in
3.14t)
    known=python3.14_3.14.7.orig.tar.xz
    known_sum=3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81
    ;;
3.15 | 3.15t) known= ;;
*) fail "expected 3.14t, 3.15 or 3.15t, found '$version'" ;;
esac

# Whether it is the version that was asked for, and has the modules that tests need.
has_python() {
    "$1/bin/python3" -c '
import ctypes, ensurepip, sqlite3, ssl, sys, sysconfig, venv, zlib
suffix = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
assert sys.argv[1] == "{}.{}{}".format(*sys.version_info[:2], suffix)' "$version" 2>/dev/null
}

# Debian's packages. Their C library is newer than most machines', so that Python is started by
# their loader, which finds all libraries beside it.
unpack_packages() {
    # The list of packages is meant to be split into words.
    # shellcheck disable=SC2086
    download "${suites%% *}" "$package" "$package-minimal" "lib$package-minimal" \
        "lib$package-stdlib" "$package-venv" python3-pip-whl libc6 libgcc-s1 libstdc++6 zlib1g \
        libexpat1 libffi8 libssl3t64 libsqlite3-0 libzstd1 libbz2-1.0 liblzma5 libuuid1
    unpack
    usr=$prefix/root/usr
    libraries=$(dirname "$(find "$usr/lib" -name libc.so.6)")
    loader=$(find "$libraries" -name 'ld-linux*')
    [ -f "$loader" ] || fail "the unpacked packages hold no loader"
    sed -i "s|'/usr/share/python-wheels/'|'$usr/share/python-wheels/'|" \
        "$usr/lib/$package"/_sysconfigdata*.py
    # Python finds its library from the folder of the program that it is started as.
    mkdir -p "$prefix/bin"
    ln -s root/usr/lib "$prefix/lib"
    cat >"$prefix/bin/python3" <<WRAPPER
#!/bin/sh
exec "$loader" --library-path "$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" \\
    --argv0 "\$0" "$usr/bin/$package" "\$@"
WRAPPER
    chmod +x "$prefix/bin/python3"
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
    [ -n "$known" ] && fetch "$known_sum" "pool/main/p/$package/$known" && return
    for suite in $suites; do
        listed "$suite" >"$state/listed"
        while read -r sum path; do
            fetch "$sum" "$path" && return
        done <"$state/listed"
    done
    cat "$state/log" >&2
    fail "the mirror has none of the sources that it lists"
}

# Without the tests, the optimisation that runs them to learn what is used most, and debug information; with the
# level of optimisation that takes half as long to build.
build() {
    mkdir "$state/source"
    tar -xJf "$state/source.tar.xz" -C "$state/source" --strip-components=1
    (
        cd "$state/source"
        ./configure --quiet --prefix="$prefix/root" --disable-gil --enable-shared \
            --without-static-libpython --disable-test-modules OPT="-DNDEBUG -fwrapv -O1" \
            LDFLAGS="-Wl,-rpath,$prefix/root/lib"
        make --silent -j "$(nproc)"
        make --silent install
    ) >"$state/log" 2>&1 || { tail -n 40 "$state/log" >&2; fail "the build failed"; }
    mkdir -p "$prefix/bin"
    ln -s ../root/bin/python3 "$prefix/bin/python3"
}

[ $# -eq 2 ] || fail "usage: get-python.sh VERSION PREFIX"
prepare "$2"

if has_python "$prefix"; then
    echo "$prefix/bin/python3 is there already"
    exit 0
fi
case $version in
*t)
    empty cc make
    check_headers
    download_source
    build
    ;;
*)
    empty
    unpack_packages
    ;;
esac
has_python "$prefix" || fail "the Python in $prefix does not run, or lacks a module"
rm -rf "$state"
echo "$prefix/bin/python3: $("$prefix/bin/python3" -VV)"
