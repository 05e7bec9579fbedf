#!/usr/bin/env bash
# What is checked on a machine that has an RDMA device: scripts/rdma_guest.sh runs it in a guest that
# has one. Each check is one line of the result; the exit status is 0 when none has failed.
# Usage: checks.sh BUILD_FOLDER [PYTHON] [SECTION...]
# Sections: link, calls, bench, failure, frameworks; default: all, frameworks where PYTHON is given.
set -uo pipefail

build=${1:?the folder of the C++ build}
python=${2:-}
[[ $python != - ]] || python=
shift $(($# < 2 ? $# : 2))
sections=${*:-link calls bench failure ${python:+frameworks}}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
failed=0
port=31000

export MCCL_TRANSPORT=rdma MCCL_JOB_KEY=checks-of-rdma-in-a-guest MCCL_LOG_LEVEL=WARN
# The guest's cores are emulated: what takes a moment elsewhere takes long.
export MCCL_CONNECT_TIMEOUT=120 MCCL_LIVENESS_INTERVAL=20 MCCL_CALIBRATE=0

# check NAME SECONDS COMMAND...: with a limit, so that nothing waits for ever.
check() {
  local name=$1 limit=$2 begun=$SECONDS
  shift 2
  if timeout "$limit" "$@" >"$work/log" 2>&1; then
    echo "ok      $name ($((SECONDS - begun)) s)"
  else
    echo "FAILED  $name (status $?, $((SECONDS - begun)) s)"
    tail -n 25 "$work/log" | sed 's/^/        /'
    failed=1
  fi
}

# ranks N COMMAND...: as many processes, which meet at a port of their own; fails when one does.
ranks() {
  local size=$1 rank status=0
  shift
  port=$((port + 64))
  local processes=()
  for ((rank = 0; rank < size; ++rank)); do
    MCCL_RANK=$rank MCCL_WORLD_SIZE=$size MCCL_ROOT=127.0.0.1:$port MCCL_PORT_BASE=0 \
      "$@" >"$work/rank$rank" 2>&1 &
    processes+=($!)
  done
  for rank in "${!processes[@]}"; do
    wait "${processes[$rank]}" || { status=1; echo "rank $rank:"; tail -n 20 "$work/rank$rank"; }
  done
  return $status
}
export -f ranks
export work port

section_link() {
  local service
  for service in uc rc; do
    check "link conformance, $service" 400 \
      "$build/tests/mccl_transport_test" --gtest_brief=1 --gtest_filter="RdmaDevice/*/$service"
  done
}

# All types and kinds at two ranks; more ranks do not change them, and take the emulated cores long.
section_calls() {
  local size service
  for service in rc uc; do
    for size in 2 4; do
      export MCCL_RDMA_SERVICE=$service
      check "all calls, $size ranks, $service" 400 bash -c \
        'ranks "$@" && grep -q PASSED "$work/rank0"' - "$size" "$build/tests/mccl_group_conformance" \
        "--gtest_filter=*$([[ $service$size == rc2 ]] || echo -*EveryType*)"
    done
  done
  unset MCCL_RDMA_SERVICE
}

section_bench() {
  local size
  for size in 2 4 8; do
    check "mccl bench, $size ranks" 300 "$build/src/cli/mccl" bench \
      all_reduce,all_gather,all_to_all,broadcast,sendrecv -n "$size" -s 8,64K,1M \
      --transport rdma --iterations 3 --warmup 1 --no-bounds
    grep -v '^#' "$work/log" | head -n 40 | sed 's/^/        /'
  done
}

# One rank is killed, or stopped, while the others wait for it: they end, with its name.
lose_a_rank() {
  local signal=$1 seconds=$2 rank status
  port=$((port + 64))
  local processes=()
  for rank in 0 1; do
    MCCL_RANK=$rank MCCL_WORLD_SIZE=2 MCCL_ROOT=127.0.0.1:$port MCCL_PORT_BASE=0 \
      MCCL_LIVENESS_INTERVAL=$seconds MCCL_LOG_LEVEL=DEBUG "$build/src/cli/mccl" bench all_reduce -s 1M --no-bounds \
      --seconds 60 --transport rdma >"$work/rank$rank" 2>&1 &
    processes+=($!)
  done
  # Until they have a link, and so are in the middle of it.
  grep -qm1 'link 1, .* rdma' <(tail -n +1 --pid="${processes[0]}" -f "$work/rank0")
  local begun=$SECONDS
  kill "-$signal" "${processes[1]}"
  wait "${processes[0]}"
  status=$?
  echo "rank 0 ended with $status after $((SECONDS - begun)) s"
  kill -KILL "${processes[1]}" 2>/dev/null
  tail -n 5 "$work/rank0"
  [[ $status -ne 0 ]] && grep -q 'rank 1' "$work/rank0" && ((SECONDS - begun <= seconds * 3 + 10))
}
export -f lose_a_rank
export build

section_failure() {
  check "a rank is killed" 200 bash -c 'lose_a_rank KILL 5'
  check "a rank is stopped" 200 bash -c 'lose_a_rank STOP 5'
  check "a device that is not there is named" 60 bash -c '
    MCCL_RDMA_DEVICE=mlx5_7 ranks 2 "$build/src/cli/mccl" bench -s 8 --no-bounds --transport rdma
    grep -q "mlx5_7.*there are rxe0" "$work/rank0"'
}

section_frameworks() {
  check "torch, two ranks train the digits" 600 bash -c 'ranks "$@"' - 2 "$python" \
    "$root/tests/rdma/torch_digits.py"
  check "MLX, two ranks" 300 bash -c 'ranks "$@"' - 2 "$python" "$root/tests/rdma/mlx_sums.py"
}

for section in $sections; do "section_$section"; done
exit $failed
