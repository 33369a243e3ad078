#!/bin/sh
# gpu-tests.sh pack DIR [WHEEL EXAMPLE OPERATORS]    on a machine with Rust: puts everything that a run needs into DIR
# gpu-tests.sh run DIR          on a machine with a GPU: prints the table and "N passed, N failed", writes DIR/gpu-run.md
# gpu-tests.sh threads DIR      on a machine with many cores: prints calls per second by one thread and by more
# gpu-tests.sh show DIR         in the repository: puts the table of DIR/gpu-run.md into docs/guide/gpu.md
#
# DIR gets the wheels of dlbridge, the example extension and the example operators (built, unless they are named), the
# tests of python/tests/gpu, the Rust test programs that need a GPU, what `cargo xtask bench threads` measures, and this
# script. The machine with the GPU needs Python 3.11 or newer and the frameworks to test; no network, no Rust, no pip. A run
# takes at most 240 s on 16 cores. `threads` needs NumPy alone, and wheels for its Python: one without the GIL shows most.
#
# Ends with 0 if all tests that ran passed, with 1 after a failed test, with 2 if the command could not begin,
# and with 3 where there is no GPU, because the run then shows nothing of one.
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
    cp "$root/benches/python/threads.py" "$0" "$target"
    program=$(cd "$root" && cargo test --package dlbridge --features cudarc-0_19 \
        --test cudarc_0_19_gpu --no-run --message-format json |
        sed -n 's/.*"name":"cudarc_0_19_gpu".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -x "$program" ] || fail "cargo built no test program"
    cp "$program" "$target/programs/cudarc_0_19_gpu"
}

# unpack DIR: sets `target` and `python`, and puts what is imported into DIR/site
unpack() {
    [ -d "$1/tests" ] || fail "expected a packed folder, found $1"
    target=$(cd "$1" && pwd)
    python=${PYTHON:-python3}
    rm -rf "$target/site"
    # A wheel is an archive of what is imported.
    for wheel in "$target"/*.whl; do
        [ -f "$wheel" ] || fail "no wheel in $target"
        "$python" -m zipfile -e "$wheel" "$target/site"
    done
}

run() {
    unpack "$1"
    chmod +x "$target"/programs/*
    PYTHONPATH="$target/site" "$python" "$target/tests/gpus.py" "$target/gpu-run.md" "$target"/programs/*
}

threads() {
    unpack "$1"
    PYTHONPATH="$target/site" "$python" "$target/threads.py"
}

show() {
    [ -f "$1/gpu-run.md" ] || fail "expected a folder after a run, found $1"
    page=$(cd "$(dirname "$0")/.." && pwd)/docs/guide/gpu.md
    sed -i -e "/^<!-- gpu-run -->\$/,/^<!-- end of gpu-run -->\$/ {
        /^<!-- gpu-run -->\$/ r $1/gpu-run.md
        /^<!--/ !d
    }" "$page"
}

[ -n "${2:-}" ] || fail "expected pack DIR [WHEEL EXAMPLE OPERATORS], run DIR, threads DIR or show DIR"
case $1 in
    pack) pack "$2" "${3:-}" "${4:-}" "${5:-}" ;;
    run) run "$2" ;;
    threads) threads "$2" ;;
    show) show "$2" ;;
    *) fail "expected pack, run, threads or show, found $1" ;;
esac
