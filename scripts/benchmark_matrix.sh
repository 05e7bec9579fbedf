#!/usr/bin/env bash
# Measures training throughput over a matrix of model sizes, backends and numbers of ranks, each
# beside a single process on the same global batch. Stats, arrays and plots go into one folder.
#
#   scripts/benchmark_matrix.sh [FOLDER]      (default build/matrix)
#
# Environment: BACKENDS="mccl gloo", RANKS="2", SIZES="small full", STEPS=20, WARMUP=3, BATCH=8,
# PYTHON=.venv/bin/python. Every process gets its equal share of the cores, the single process all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/matrix}
python=${PYTHON:-.venv/bin/python}
cores=$(getconf _NPROCESSORS_ONLN)
mkdir -p "$folder"

shape_of() {
  case "$1" in
    tiny) echo "--dim 64 --depth 2 --heads 4" ;;
    small) echo "--dim 256 --depth 6 --heads 8" ;;
    full) echo "" ;;
    *) echo "benchmark_matrix.sh: SIZES holds '$1'; it may hold tiny, small, full" >&2; return 1 ;;
  esac
}

for size in ${SIZES:-small full}; do
  shape=$(shape_of "$size")
  # shellcheck disable=SC2206  # a list of words is what it is
  common=($shape --steps "${STEPS:-20}" --warmup "${WARMUP:-3}" --global-batch "${BATCH:-8}")
  baseline=$folder/$size-baseline.json
  echo "== $size, one process"
  "$python" examples/ddp_dummy_train.py --baseline "${common[@]}" --threads "$cores" \
    --save-stats "$baseline" | tail -n 2
  for ranks in ${RANKS:-2}; do
    threads=$((cores / ranks > 0 ? cores / ranks : 1))
    for backend in ${BACKENDS:-mccl gloo}; do
      name=$size-$backend-$ranks
      echo "== $size, $ranks ranks on $backend"
      OMP_NUM_THREADS=$threads "$python" -m torch.distributed.run --standalone \
        --nproc_per_node="$ranks" examples/ddp_dummy_train.py --backend "$backend" \
        "${common[@]}" --threads "$threads" --save-stats "$folder/$name.json" | tail -n 2
      "$python" examples/benchmark_throughput.py --baseline "$baseline" \
        --ddp "$folder/$name.json" -o "$folder/$name" | tail -n 2
    done
  done
done
