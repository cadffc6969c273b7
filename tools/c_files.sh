#!/usr/bin/env bash
# Prints the project's C files, NUL-separated: the ones git knows and new ones it does not ignore.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h' | while IFS= read -r -d '' path; do
  if [[ -f $path ]]; then printf '%s\0' "$path"; fi
done
