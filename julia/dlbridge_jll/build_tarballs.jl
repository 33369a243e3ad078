# The recipe of `dlbridge_jll`, the C library as Julia's binary package, for Yggdrasil, the tree of such recipes.
# Before it is submitted, REPOSITORY and COMMIT name a public commit of this repository. Not run here: it needs
# BinaryBuilder and its compilers.
using BinaryBuilder

const REPOSITORY = ""
const COMMIT = ""

name = "dlbridge"
version = v"0.1.0"
sources = [GitSource(REPOSITORY, COMMIT)]

# Rust links musl statically unless told otherwise, and then makes no shared library.
script = raw"""
cd ${WORKSPACE}/srcdir/dlbridge*/
if [[ "${target}" == *-musl* ]]; then
    export RUSTFLAGS="-C target-feature=-crt-static"
fi
cargo build --release --locked --package dlbridge-capi
# The names that `cargo xtask capi` installs. The library's soname has its number.
built=target/${rust_target}/release
if [[ "${target}" == *-mingw* ]]; then
    install -Dvm 0755 ${built}/dlbridge_capi.dll -t "${libdir}"
else
    abi=$(sed -n 's/^const ABI: u32 = \([0-9]*\);$/\1/p' crates/dlbridge-capi/build.rs)
    [[ "${target}" == *-apple-* ]] && numbered=libdlbridge.${abi}.dylib || numbered=libdlbridge.so.${abi}
    install -Dvm 0755 ${built}/libdlbridge_capi.${dlext} "${libdir}/${numbered}"
    ln -s ${numbered} "${libdir}/libdlbridge.${dlext}"
fi
install -Dvm 0644 crates/dlbridge-capi/include/dlbridge.h -t "${includedir}"
install_license LICENSE-MIT LICENSE-APACHE
"""

# Rust has no standard library for the rest.
platforms = filter(supported_platforms()) do platform
    !(arch(platform) in ("armv6l", "powerpc64le", "riscv64"))
end

products = [LibraryProduct(["libdlbridge", "dlbridge_capi"], :libdlbridge)]

build_tarballs(
    ARGS, name, version, sources, script, platforms, products, Dependency[];
    compilers = [:c, :rust], preferred_rust_version = v"1.85", julia_compat = "1.6",
)
