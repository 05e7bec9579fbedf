#!/usr/bin/env bash
# Runs fuzzers one after another. Each starts from its seeds in tests/fuzz/corpus and the inputs
# found in earlier runs. Keeps inputs that make a fuzzer fail, and prints their folder at the end.
#   fuzz.sh BUILD_FOLDER SECONDS [TARGET...]   (default: all; seconds for each)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:?usage: fuzz.sh BUILD_FOLDER SECONDS [TARGET...]}
seconds=${2:?usage: fuzz.sh BUILD_FOLDER SECONDS [TARGET...]}
shift 2
targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then
  for seeds in tests/fuzz/corpus/*/; do targets+=("$(basename "$seeds")"); done
fi

failed=()
for target in "${targets[@]}"; do
  echo "fuzz: $target, $seconds s"
  mkdir -p "$build/found/$target" "$build/failures"
  log=$build/$target.log
  if "$build/tests/fuzz/mccl_${target}_fuzz" -max_total_time="$seconds" -timeout=20 -max_len=4096 \
    -artifact_prefix="$build/failures/$target-" "$build/found/$target" "tests/fuzz/corpus/$target" \
    >"$log" 2>&1; then
    tail -n 1 "$log"
  else
    failed+=("$target")
    tail -n 40 "$log" >&2
  fi
done

if [ "${#failed[@]}" -gt 0 ]; then
  echo "fuzz: these failed: ${failed[*]}; the inputs are in $build/failures. Run one again with" >&2
  echo "fuzz:   $build/tests/fuzz/mccl_${failed[0]}_fuzz CASE" >&2
  exit 1
fi
