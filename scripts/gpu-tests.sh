#!/bin/sh
# gpu-tests.sh pack DIR [WHEEL]    on a machine with Rust: puts all that the tests need into DIR
# gpu-tests.sh run DIR             on a machine with a GPU: runs them, prints "N passed, N failed"
#
# DIR gets the wheel (built, unless one is named), the tests of python/tests/gpu, the Rust test
# programs that need a GPU, and this script. The machine with the GPU needs Python 3.10 or newer
# and whatever frameworks are to be tested; no network, no Rust, no pip.
set -eu

fail() {
    echo "gpu-tests.sh: $*" >&2
    exit 2
}

pack() {
    root=$(cd "$(dirname "$0")/.." && pwd)
    mkdir -p "$1/tests" "$1/programs"
    target=$(cd "$1" && pwd)
    if [ -z "$2" ]; then
        (cd "$root/python" && "${MATURIN:-maturin}" build --profile wheel --auditwheel skip \
            --out "$target")
    else
        cp "$2" "$target"
    fi
    cp "$root"/python/tests/gpu/*.py "$target/tests"
    cp "$0" "$target"
    program=$(cd "$root" && cargo test --package dlbridge --features testing,cudarc-0_19 \
        --test cudarc_0_19_gpu --no-run --message-format json |
        sed -n 's/.*"name":"cudarc_0_19_gpu".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -x "$program" ] || fail "cargo built no test program"
    cp "$program" "$target/programs/cudarc_0_19_gpu"
}

run() {
    target=$(cd "$1" && pwd)
    python=${PYTHON:-python3}
    rm -rf "$target/site"
    # A wheel is an archive of what is imported.
    for wheel in "$target"/*.whl; do
        [ -f "$wheel" ] || fail "no wheel in $target"
        "$python" -m zipfile -e "$wheel" "$target/site"
    done
    chmod +x "$target"/programs/*
    PYTHONPATH="$target/site" "$python" "$target/tests/run.py" "$target"/programs/*
}

case "${1:-}" in
    pack) pack "${2:?wanted a folder}" "${3:-}" ;;
    run) run "${2:?wanted a folder}" ;;
    *) fail "wanted: pack DIR [WHEEL], or run DIR" ;;
esac
