#!/usr/bin/env bash
# Runs what has threads with an extension under a sanitizer: tools/sanitized_ext.sh thread|address [pytest arguments]. First
# workers alone, then hosts, then both, with a runtime between them (which has one thread, and stays as it is). A report ends its
# process, and so fails the test; it is shown at the end. Needs .venv (tools/setup.sh) or $VIRTUAL_ENV, and gcc.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SANITIZER=${1:?thread or address}
shift
readonly ENVIRONMENT=${VIRTUAL_ENV:-$PWD/.venv}
readonly BUILD=${AGENTIX_BUILD_DIR:-build/$SANITIZER-ext}
readonly SITE=$BUILD/site REPORTS=$BUILD/reports CALLS=${SANITIZED_CALLS:-20000}
declare -A LIBRARIES=([thread]=libtsan.so [address]=libasan.so)

export PATH=$ENVIRONMENT/bin:$PATH
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_C_COMPILER=gcc -DAGENTIX_EXTENSION=ON -DAGENTIX_RUNTIME=OFF \
  -DAGENTIX_SANITIZE="$SANITIZER" -DPython_EXECUTABLE="$ENVIRONMENT/bin/python" >"$BUILD.log" 2>&1 || { cat "$BUILD.log"; exit 1; }
cmake --build "$BUILD" --target _core --parallel "${JOBS:-2}" -- --quiet

rm -rf "$SITE" "$REPORTS"
mkdir -p "$SITE" "$REPORTS"
cp -r python/agentix "$SITE/"
cp "$BUILD"/_core*.so "$SITE/agentix/_core.abi3.so"

# Python is not built for it: what it does to memory is not looked at, but its locks are, and what it frees.
AGENTIX_TEST_WORKER_PATH=$(realpath "$SITE")
AGENTIX_TEST_WORKER_PRELOAD=$(realpath "$(gcc -print-file-name="${LIBRARIES[$SANITIZER]}")")
export AGENTIX_TEST_WORKER_PATH AGENTIX_TEST_WORKER_PRELOAD PYTHONDONTWRITEBYTECODE=1
TSAN_OPTIONS="halt_on_error=1 report_signal_unsafe=0 history_size=4 log_path=$(realpath "$REPORTS")/report"
ASAN_OPTIONS="halt_on_error=1 detect_leaks=0 allocator_may_return_null=1 log_path=$(realpath "$REPORTS")/report"
export TSAN_OPTIONS ASAN_OPTIONS

failed=no
run() {
  python -m pytest -q -o faulthandler_timeout=7300 "$@" || { [[ $? -eq 5 ]] || failed=yes; }
}
as_host() { LD_PRELOAD=$AGENTIX_TEST_WORKER_PRELOAD PYTHONPATH=$AGENTIX_TEST_WORKER_PATH run "$@"; }

# Left out: what measures time or memory, of which this takes more, and large values and storms where they are slow.
large=(--deselect tests/python/test_client_calls.py::test_large_values
  --deselect tests/python/test_client_link.py::test_large_values)
storms=()
if [[ $SANITIZER == address ]]; then
  large=(tests/python/test_client_landing.py)
  storms=(tests/e2e/test_fast_wire.py tests/e2e/test_storm.py)
fi
echo "== workers"
run tests/python/test_worker.py tests/python/test_worker_cancel.py tests/python/test_worker_load.py \
  tests/python/test_worker_pieces.py \
  --deselect tests/python/test_worker.py::test_calls_run_at_the_same_time \
  --deselect tests/python/test_worker.py::test_memory_does_not_grow_with_calls "$@"
echo "== hosts"
as_host tests/python/test_client_calls.py tests/python/test_client_awaitable.py tests/python/test_client_link.py \
  tests/python/test_client_faults.py tests/python/test_drive.py tests/python/test_feeds.py "${large[@]}" "$@"
echo "== hosts and workers"
as_host tests/e2e/test_two_loops.py tests/e2e/test_streams.py tests/e2e/test_side_channels.py \
  tests/e2e/test_files_conduit.py "${storms[@]}" "$@"
echo "== $CALLS calls of all kinds"
AGENTIX_TEST_CALLS=$CALLS as_host tests/e2e/test_stress.py -m long -s "$@"

reports=("$REPORTS"/*)
if [[ -e ${reports[0]} ]]; then
  cat "${reports[@]}"
  echo "sanitized_ext: ${#reports[@]} processes reported something"
  exit 1
fi
[[ $failed == no ]]
echo "sanitized_ext: $SANITIZER: nothing reported"
