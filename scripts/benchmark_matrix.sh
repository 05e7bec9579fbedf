#!/usr/bin/env bash
# Measures training throughput over a matrix of model sizes, backends and numbers of ranks. Each cell
# is compared with a single process on the same global batch. Stats, arrays, plots and a table of all
# results are written to one folder.
#
#   scripts/benchmark_matrix.sh [FOLDER]      (default build/matrix)
#
# Environment, with the defaults:
#   BACKENDS="mccl gloo"   backends of torch.distributed
#   RANKS="2"              numbers of processes
#   SIZES="small full"     models: tiny, small, full (96 M parameters)
#   STEPS=20 WARMUP=3      timed steps, and steps before them
#   BATCH=8                images per step, over all ranks
#   PYTHON=.venv/bin/python, or python3 if there is no .venv; it must have torch and mccl
# The processes share the cores equally; the single process gets all.
set -euo pipefail

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; }

case "${1:-}" in
  -h | --help | help) usage && exit 0 ;;
  -*) echo "benchmark_matrix.sh: unknown option $1; see --help" >&2 && exit 2 ;;
esac
if [ $# -gt 1 ]; then
  echo "benchmark_matrix.sh: expected one FOLDER; found $*; see --help" >&2
  exit 2
fi

folder=${1:-build/matrix}
case "$folder" in
  /*) ;;
  *) [ $# -eq 0 ] || folder=$PWD/$folder ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sizes=${SIZES:-small full}
backends=${BACKENDS:-mccl gloo}
python=${PYTHON:-}
if [ -z "$python" ]; then
  python=.venv/bin/python
  [ -x "$python" ] || python=python3
fi

shape_of() {
  case "$1" in
    tiny) echo "--dim 64 --depth 2 --heads 4" ;;
    small) echo "--dim 256 --depth 6 --heads 8" ;;
    full) echo "" ;;
    *) echo "benchmark_matrix.sh: SIZES contains '$1'; expected tiny small full" >&2; return 1 ;;
  esac
}

# Checks sizes and modules now, since these errors would otherwise appear only in a later cell.
for size in $sizes; do shape_of "$size" >/dev/null; done
modules="torch, numpy"
case " $backends " in *" mccl "*) modules="$modules, mccl" ;; esac
if ! "$python" -c "import $modules"; then
  echo "benchmark_matrix.sh: $python lacks one of: $modules. Run make setup, or name another:" >&2
  echo "benchmark_matrix.sh: PYTHON=/path/to/python scripts/benchmark_matrix.sh" >&2
  exit 1
fi
mkdir -p "$folder"
cores=$(getconf _NPROCESSORS_ONLN)
table=$folder/table.md
{
  echo "| model | global batch | ranks | backend | one process (samples/s) | ranks (samples/s) | ratio |"
  echo "|---|---|---|---|---|---|---|"
} >"$table"

for size in $sizes; do
  shape=$(shape_of "$size")
  # shellcheck disable=SC2206  # the words must be split
  common=($shape --steps "${STEPS:-20}" --warmup "${WARMUP:-3}" --global-batch "${BATCH:-8}")
  baseline=$folder/$size-baseline.json
  echo "== $size, one process"
  "$python" examples/ddp_dummy_train.py --baseline "${common[@]}" --threads "$cores" \
    --save-stats "$baseline" | tail -n 2
  for ranks in ${RANKS:-2}; do
    threads=$((cores / ranks > 0 ? cores / ranks : 1))
    for backend in $backends; do
      name=$size-$backend-$ranks
      echo "== $size, $ranks ranks on $backend"
      OMP_NUM_THREADS=$threads "$python" -m torch.distributed.run --standalone \
        --nproc_per_node="$ranks" examples/ddp_dummy_train.py --backend "$backend" \
        "${common[@]}" --threads "$threads" --save-stats "$folder/$name.json" | tail -n 2
      compared=$("$python" examples/benchmark_throughput.py --baseline "$baseline" \
        --ddp "$folder/$name.json" -o "$folder/$name")
      echo "$compared" | tail -n 2
      echo "$compared" | awk -v row="| $size | ${BATCH:-8} | $ranks | $backend |" '
        /samples\/s/ { row = row " " $(NF - 2) " |" }
        $1 == "ratio" { print row " " $2 " |" }' >>"$table"
    done
  done
done

echo
cat "$table"
