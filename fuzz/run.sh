#!/usr/bin/env bash
# Fuzzes every parser for a while: fuzz/run.sh SECONDS [TARGET...]
#
# Needs only the stable toolchain and a C++ compiler: what `cargo fuzz` (which also works here)
# asks of a nightly compiler is the address sanitizer, and code without `unsafe` can do without.
# The corpora are copied, so the tree stays as it is; inputs that crash are kept in
# fuzz/artifacts/TARGET/. Exit code: 0 nothing found, 1 something found or not built, 2 usage.
set -euo pipefail
cd "$(dirname "$0")"

duration=${1:-}
if ! [[ $duration =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: fuzz/run.sh SECONDS [TARGET...]" >&2
    exit 2
fi
shift
if [ $# -eq 0 ]; then
    set -- $(ls corpus)
fi
for target in "$@"; do
    if ! [ -d "corpus/$target" ]; then
        echo "no target $target; there are: $(ls corpus | xargs)" >&2
        exit 2
    fi
done
if ! command -v c++ >/dev/null; then
    echo "no C++ compiler; install one: apt-get install g++" >&2
    exit 1
fi

# Coverage feedback. With --target the flags reach neither build scripts nor macros.
export RUSTFLAGS="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --target "$host" --target-dir target

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The longest seed, a state file of zones, fits -max_len.
fuzz_one() {
    local target=$1 log=$work/$1.log
    mkdir -p "artifacts/$target" "$work/$target"
    cp "corpus/$target/"* "$work/$target/"
    if FUZZ_TARGET=$target "target/$host/release/parsers" "$work/$target" -max_total_time="$duration" \
        -max_len=20480 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" >"$log" 2>&1; then
        rmdir "artifacts/$target" 2>/dev/null || true
        local runs coverage
        runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
        coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
        echo "$target: ok, $runs runs, $coverage"
    else
        grep -v '^#' "$log" | tail -40 >&2
        echo "$target: FAILED; again: FUZZ_TARGET=$target fuzz/target/$host/release/parsers fuzz/artifacts/$target/*" >&2
        return 1
    fi
}
export -f fuzz_one
export work host duration
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'fuzz_one {}' || exit 1
