# Shortcuts for people and for .ci/run; the build itself is CMake (C) and uv (Python).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 30
PYTEST_ARGS ?=
BENCH_ARGS ?=
SIM_CALLS ?= 10000000
LOADER_STREAMS ?= 100000000
SIM_SEED ?= 1000000
SANITIZED_CALLS ?= 20000

export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/.tools/bin:$(PATH)
export CTEST_OUTPUT_ON_FAILURE := 1
export ASAN_OPTIONS ?= detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS ?= print_stacktrace=1
export TSAN_OPTIONS ?= halt_on_error=1

# $(call cmake_build,<directory under build/>,<cmake arguments>)
define cmake_build
	@echo "== build/$(1)"
	if [ ! -f build/$(1)/build.ninja ]; then
	  cmake -S . -B build/$(1) -G Ninja -DPython_EXECUTABLE="$(CURDIR)/.venv/bin/python" $(2) >build/$(1).log 2>&1 ||
	    { cat build/$(1).log; exit 1; }
	fi
	cmake --build build/$(1) --parallel $(JOBS) -- --quiet
endef

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: setup
setup: ## Install packages, uv and .venv (idempotent)
	@tools/setup.sh

.PHONY: demo
demo: setup ## Set everything up and run the hello-world example
	@python examples/hello-world/host.py

.PHONY: test
test: setup lint test-c asan test-python ## Set everything up and run every check and test

.PHONY: lint
lint: setup ## Check layers, banned names, formatting, lints and types
	@echo "== lint"
	python tools/check_layers.py
	python tools/check_text.py
	tools/c_files.sh | xargs -0 clang-format-14 --dry-run -Werror
	ruff format --check --quiet .
	ruff check --quiet .
	pyright --level error

.PHONY: fmt
fmt: setup ## Format C and Python in place
	@tools/c_files.sh | xargs -0 clang-format-14 -i
	ruff format --quiet .
	ruff check --quiet --fix .

.PHONY: tidy
tidy: setup ## Run clang-tidy over the C tree (slow)
	$(call cmake_build,tidy,-DCMAKE_C_COMPILER=clang -DAGENTIX_TESTS=ON -DAGENTIX_ANALYSE=clang-tidy-14)

.PHONY: test-c
test-c: setup ## C tests and fuzz corpora, gcc
	$(call cmake_build,test,-DCMAKE_C_COMPILER=gcc -DAGENTIX_TESTS=ON)
	ctest --test-dir build/test --parallel $(JOBS) --no-tests=error

.PHONY: asan
asan: setup ## C tests and fuzz corpora under ASan, UBSan and LSan, clang
	$(call cmake_build,asan,-DCMAKE_C_COMPILER=clang -DAGENTIX_TESTS=ON -DAGENTIX_SANITIZE="address$(comma)undefined$(comma)leak")
	ctest --test-dir build/asan --parallel $(JOBS) --no-tests=error

.PHONY: tsan
tsan: setup ## C tests under ThreadSanitizer, clang
	$(call cmake_build,tsan,-DCMAKE_C_COMPILER=clang -DAGENTIX_TESTS=ON -DAGENTIX_SANITIZE=thread)
	ctest --test-dir build/tsan --parallel $(JOBS) --no-tests=error

.PHONY: tsan-ext
tsan-ext: setup ## Tests of worker and host with an extension under ThreadSanitizer, gcc
	@echo "== worker and host under ThreadSanitizer"
	JOBS=$(JOBS) SANITIZED_CALLS=$(SANITIZED_CALLS) tools/sanitized_ext.sh thread $(PYTEST_ARGS)

.PHONY: asan-ext
asan-ext: setup ## The same under AddressSanitizer
	@echo "== worker and host under AddressSanitizer"
	JOBS=$(JOBS) SANITIZED_CALLS=$(SANITIZED_CALLS) tools/sanitized_ext.sh address $(PYTEST_ARGS)

.PHONY: sim
sim: setup ## SIM_CALLS simulated calls under trouble, from SIM_SEED on
	$(call cmake_build,test,-DCMAKE_C_COMPILER=gcc -DAGENTIX_TESTS=ON)
	nice build/test/sim --calls $(SIM_CALLS) --seed $(SIM_SEED) --progress

.PHONY: test-python
test-python: setup ## pytest: tests/python and tests/e2e
	@echo "== pytest"
	python -m pytest --durations 20 --durations-min 5 $(PYTEST_ARGS)

.PHONY: fuzz
fuzz: setup ## Fuzz every target for FUZZ_SECONDS each (libFuzzer)
	$(call cmake_build,fuzz,-DCMAKE_C_COMPILER=clang -DAGENTIX_FUZZ=ON -DAGENTIX_RUNTIME=OFF -DAGENTIX_SANITIZE="address$(comma)undefined")
	for target in build/fuzz/fuzz_*; do
	  [ -x "$$target" ] || continue
	  name=$${target##*/fuzz_}
	  echo "== fuzz $$name for $(FUZZ_SECONDS) s"
	  found=fuzz/found/$$name; corpus=fuzz/corpus/$$name
	  mkdir -p "$$found" "$$corpus"
	  "$$target" -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
	    -artifact_prefix="$$found/" "$$found" "$$corpus"
	done

.PHONY: fuzz-loader
fuzz-loader: setup ## LOADER_STREAMS streams of pickle opcodes through the restricted loader
	nice python fuzz/unpickle/run.py --executions $(LOADER_STREAMS)

.PHONY: autobahn
autobahn: setup ## The Autobahn test suite against both ends of our WebSocket (needs a Python 2.7)
	$(call cmake_build,test,-DCMAKE_C_COMPILER=gcc -DAGENTIX_TESTS=ON)
	python tests/interop/autobahn.py build/test/ws_echo_uv build/autobahn || { code=$$?; [ $$code -eq 3 ] || exit $$code; }

.PHONY: pythons
pythons: setup ## pytest under the other supported interpreters that this machine has
	@if command -v pyenv >/dev/null; then export PYENV_VERSION=$$(pyenv versions --bare | paste -sd:); fi # else its shims hide them
	for version in 3.12 3.13; do
	  if ! uv python find --no-python-downloads $$version >/dev/null 2>&1; then
	    echo "== Python $$version is not on this machine"
	    continue
	  fi
	  echo "== pytest on Python $$version"
	  export UV_PROJECT_ENVIRONMENT=build/python$$version
	  uv sync --quiet --no-editable --all-packages --no-python-downloads --python $$version
	  build/python$$version/bin/python -m pytest --durations 20 --durations-min 5 $(PYTEST_ARGS)
	done

.PHONY: long
long: test sim tsan tsan-ext asan-ext tidy fuzz fuzz-loader pythons autobahn ## Everything that is too slow for `make test`
	@echo "== long tests"
	python -m pytest -q -m long --timeout 7200 -o faulthandler_timeout=7300 $(PYTEST_ARGS) || [ $$? -eq 5 ]

.PHONY: bench
bench: setup ## Measure against the bare floor and the peers
	@python bench/run.py $(BENCH_ARGS)

.PHONY: clean
clean: ## Remove what was built (keeps .venv and the download cache)
	@rm -rf build dist fuzz/found

comma := ,
