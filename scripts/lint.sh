#!/usr/bin/env bash
# Checks style: clang-format and ruff everywhere, clang-tidy over the library.
#   lint.sh BUILD_FOLDER JOBS   checks; the folder holds compile_commands.json
#   lint.sh --fix               lets clang-format and ruff rewrite what they can
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH

folders=(include src bindings tests bench examples)
mapfile -t cxx < <(find "${folders[@]}" -name '*.cpp' -o -name '*.h' | sort)

if [ "${1:-}" = --fix ]; then
  clang-format -i "${cxx[@]}"
  ruff check --fix --quiet .
  ruff format .
  exit 0
fi

build=${1:?usage: lint.sh BUILD_FOLDER JOBS}
jobs=${2:-1}
failed=0

echo "lint: clang-format, ${#cxx[@]} files"
clang-format --dry-run --Werror "${cxx[@]}" || failed=1

echo "lint: ruff"
ruff check . || failed=1
ruff format --check . || failed=1

# Only what the compilation database knows: sources of another platform are not built here.
mapfile -t sources < <(python3 - "$build/compile_commands.json" <<'PY'
import json, os, sys
root = os.getcwd() + "/src/"
files = {entry["file"] for entry in json.load(open(sys.argv[1]))}
print("\n".join(sorted(f for f in files if f.startswith(root))))
PY
)
echo "lint: clang-tidy, ${#sources[@]} files"
# clang does not know every flag that g++ wrote into the database.
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$jobs" \
  clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option 2> >(grep -vE \
    'warnings? generated|warnings? treated as' >&2) || failed=1

[ "$failed" -eq 0 ] && echo "lint: clean"
exit "$failed"
