#!/usr/bin/env bash
# Sets up everything the project needs on a Debian 12 machine, as root or with sudo, and says what
# it does. Idempotent: a second run finds everything in place and takes about a second.
#
#   tools/setup.sh          packages, uv, .venv with agentix and its plugins
#   tools/setup.sh --check  only say whether something is missing
#
# Afterwards: .venv/bin holds Python, agentix-runtime and the tools; `make` builds the C tests.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PYTHON_RANGE='>=3.11,<3.14'
readonly UV_AT_LEAST=0.6.0
readonly APT_PACKAGES=(
  ca-certificates curl git make gcc clang clang-format-14 clang-tidy-14 libclang-rt-14-dev
  libc6-dev ninja-build pkg-config
  libuv1-dev libmsgpack-dev nettle-dev libcmocka-dev
  libarchive-dev libzstd-dev busybox-static nix-bin
  docker.io podman uidmap slirp4netns runc containernetworking-plugins iproute2 iptables mount mmdebstrap
)

check_only=no
[[ ${1:-} == --check ]] && check_only=yes

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "need root or sudo for: $*"
  fi
}

# Installs what is missing of the packages named.
need_packages() {
  local missing=() package have
  have=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qxF "installed $package" <<<"$have" || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  [[ $check_only == yes ]] && die "missing packages: ${missing[*]}"
  command -v apt-get >/dev/null || die "not a Debian machine; install the equivalents of: ${missing[*]}"
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

version_at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1) == "$2" ]]; }

# Prints a uv that runs and is new enough, or nothing.
find_uv() {
  local candidate version
  for candidate in uv .tools/bin/uv; do
    version=$("$candidate" --version 2>/dev/null | cut -d' ' -f2) || continue
    [[ -n $version ]] && version_at_least "$version" "$UV_AT_LEAST" && command -v "$candidate" && return 0
  done
  return 0
}

need_uv() {
  UV=$(find_uv)
  [[ -n $UV ]] && return 0
  [[ $check_only == yes ]] && die "uv $UV_AT_LEAST or newer is missing"
  command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages python3 python3-venv
  say "installing uv into .tools"
  python3 -m venv .tools
  .tools/bin/python -m pip install --quiet --upgrade "uv>=$UV_AT_LEAST"
  UV=$(find_uv)
  [[ -n $UV ]] || die "uv could not be installed into .tools"
}

# The interpreter is one that the machine has; none is ever downloaded when one fits.
need_python() {
  PYTHON=$("$UV" python find --no-python-downloads --system "$PYTHON_RANGE" 2>/dev/null) || PYTHON=
  if [[ -z $PYTHON ]]; then
    need_packages python3 python3-dev
    PYTHON=$("$UV" python find --no-python-downloads --system "$PYTHON_RANGE" 2>/dev/null) ||
      die "no Python $PYTHON_RANGE on this machine; install one and run again"
  fi
  local headers
  headers=$("$PYTHON" -c 'import os, sysconfig; print(os.path.join(sysconfig.get_path("include"), "Python.h"))')
  [[ -f $headers ]] || need_packages python3-dev
}

sync_environment() {
  local log=build/setup-sync.log
  mkdir -p build
  if ! "$UV" sync --no-editable --all-packages --no-python-downloads --python "$PYTHON" >"$log" 2>&1; then
    cat "$log" >&2
    die "uv sync failed (above)"
  fi
  local changed
  changed=$(sed -nE 's/^ *[+~] ([^ =]+)(==([^ ]+))?.*/\1 \3/p' "$log" | paste -sd, | sed 's/,/, /g')
  if [[ -n $changed ]]; then say "installed in .venv: $changed"; fi
}

# Other people's Socket.IO, for tests to talk to.
install_peers() { .venv/bin/python tests/interop/stock_peers.py || die "the packages of tests/interop/node could not be installed"; }

need_packages "${APT_PACKAGES[@]}"
need_uv
need_python
[[ $check_only == yes ]] && { say "nothing is missing"; exit 0; }
sync_environment
install_peers
say "ready: $(.venv/bin/python --version), .venv/bin/agentix-runtime $([[ -x .venv/bin/agentix-runtime ]] && echo installed || echo 'not built')"
