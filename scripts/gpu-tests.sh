#!/bin/sh
# gpu-tests.sh pack DIR [WHEEL [EXAMPLE [OPERATORS]]]    on a machine with Rust: puts all that is needed into DIR
# gpu-tests.sh run DIR                       on a machine with a GPU: prints "N passed, N failed"
#
# DIR gets the wheel and those of the example extension and operators (built, unless they are named), the tests of
# python/tests/gpu, the Rust test programs that need a GPU, and this script. The machine with the GPU
# needs Python 3.11 or newer and whatever frameworks are to be tested; no network, no Rust, no pip.
#
# Ends with 0 if all that ran passed, with 1 if something failed, with 2 if it could not be begun,
# and with 3 where there is no GPU: nothing was shown of one then.
set -eu

fail() {
    echo "gpu-tests.sh: $*" >&2
    exit 2
}

# wheel FOLDER WHEEL [OPTION ...]: the wheel, or if none is named the one that FOLDER builds
wheel() {
    folder=$1
    if [ -n "$2" ]; then
        cp "$2" "$target"
        return
    fi
    shift 2
    (cd "$root/$folder" && "${MATURIN:-maturin}" build --profile wheel --auditwheel skip \
        --out "$target" "$@")
}

pack() {
    root=$(cd "$(dirname "$0")/.." && pwd)
    mkdir -p "$1/tests" "$1/programs"
    target=$(cd "$1" && pwd)
    wheel python "$2"
    wheel examples/python-extension "$3" --features cuda
    wheel examples/cuda-operators "$4"
    cp "$root"/python/tests/gpu/*.py "$target/tests"
    cp "$0" "$target"
    program=$(cd "$root" && cargo test --package dlbridge --features testing,cudarc-0_19 \
        --test cudarc_0_19_gpu --no-run --message-format json |
        sed -n 's/.*"name":"cudarc_0_19_gpu".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -x "$program" ] || fail "cargo built no test program"
    cp "$program" "$target/programs/cudarc_0_19_gpu"
}

run() {
    [ -d "$1/tests" ] || fail "nothing was packed in $1"
    target=$(cd "$1" && pwd)
    python=${PYTHON:-python3}
    rm -rf "$target/site"
    # A wheel is an archive of what is imported.
    for wheel in "$target"/*.whl; do
        [ -f "$wheel" ] || fail "no wheel in $target"
        "$python" -m zipfile -e "$wheel" "$target/site"
    done
    chmod +x "$target"/programs/*
    PYTHONPATH="$target/site" "$python" "$target/tests/gpus.py" "$target"/programs/*
}

case "${1:-}" in
    pack | run) [ -n "${2:-}" ] || fail "$1: wanted a folder" ;;
    *) fail "wanted: pack DIR [WHEEL [EXAMPLE [OPERATORS]]], or run DIR" ;;
esac
case $1 in
    pack) pack "$2" "${3:-}" "${4:-}" "${5:-}" ;;
    run) run "$2" ;;
esac
