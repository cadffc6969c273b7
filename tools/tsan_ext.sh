#!/usr/bin/env bash
# Runs the worker's tests with an extension under ThreadSanitizer: tools/tsan_ext.sh [pytest arguments].
# A report ends the worker with code 66, and so fails the test. Needs .venv (tools/setup.sh) or $VIRTUAL_ENV, and gcc.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ENVIRONMENT=${VIRTUAL_ENV:-$PWD/.venv}
readonly BUILD=${AGENTIX_BUILD_DIR:-build/tsan-ext}
readonly SITE=$BUILD/site

export PATH=$ENVIRONMENT/bin:$PATH
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_C_COMPILER=gcc -DAGENTIX_EXTENSION=ON -DAGENTIX_RUNTIME=OFF \
  -DAGENTIX_SANITIZE=thread -DPython_EXECUTABLE="$ENVIRONMENT/bin/python" >"$BUILD.log" 2>&1 || { cat "$BUILD.log"; exit 1; }
cmake --build "$BUILD" --target _core --parallel "${JOBS:-2}" -- --quiet

rm -rf "$SITE"
mkdir -p "$SITE"
cp -r python/agentix "$SITE/"
cp "$BUILD"/_core*.so "$SITE/agentix/_core.abi3.so"

# Python is not built for it: what it does to memory is not looked at, but its locks are.
AGENTIX_TEST_WORKER_PATH=$(realpath "$SITE")
AGENTIX_TEST_WORKER_PRELOAD=$(realpath "$(gcc -print-file-name=libtsan.so)")
export AGENTIX_TEST_WORKER_PATH AGENTIX_TEST_WORKER_PRELOAD
export TSAN_OPTIONS="halt_on_error=1 report_signal_unsafe=0 history_size=4"
# Left out: what measures time or memory, of which this takes more.
exec python -m pytest -q tests/python/test_worker.py tests/python/test_worker_cancel.py tests/python/test_worker_load.py \
  --deselect tests/python/test_worker.py::test_calls_run_at_the_same_time \
  --deselect tests/python/test_worker.py::test_memory_does_not_grow_with_calls "$@"
