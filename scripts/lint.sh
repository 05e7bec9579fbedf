#!/usr/bin/env bash
# Checks style and wording: clang-format, ruff, codespell and prose.py everywhere, clang-tidy over the library.
#   lint.sh BUILD_FOLDER [JOBS [--all]]   checks; the folder holds compile_commands.json. clang-tidy
#                                         skips sources that were clean and are unchanged, unless
#                                         --all
#   lint.sh --fix                         lets clang-format and ruff rewrite what they can
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH

folders=(include src bindings tests bench examples)
# macOS has bash 3.2, which lacks mapfile.
cxx=()
while IFS= read -r file; do cxx+=("$file"); done < <(
  find "${folders[@]}" -name '*.cpp' -o -name '*.h' -o -name '*.c' | sort
)
[ "${#cxx[@]}" -gt 0 ] || { echo "lint: no C++ files found in $PWD" >&2; exit 1; }

if [ "${1:-}" = --fix ]; then
  clang-format -i "${cxx[@]}"
  ruff check --fix --quiet .
  ruff format .
  exit 0
fi

build=${1:?usage: lint.sh BUILD_FOLDER [JOBS [--all]]}
jobs=${2:-1}
shift "$(($# < 2 ? $# : 2))"
failed=0

echo "lint: clang-format, ${#cxx[@]} files"
clang-format --dry-run --Werror "${cxx[@]}" || failed=1

echo "lint: ruff"
ruff check . || failed=1
ruff format --check . || failed=1

echo "lint: codespell and the wording of comments and documents"
codespell "${folders[@]}" python scripts docs ./*.md || failed=1
scripts/prose.py || failed=1

scripts/clang_tidy.py "$build" "$jobs" "$@" || failed=1

[ "$failed" -eq 0 ] && echo "lint: clean"
exit "$failed"
