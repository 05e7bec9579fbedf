#!/usr/bin/env bash
# Checks that need two machines with a network between them. one_of_two.sh runs on both in step,
# since the ranks of each check wait for each other.
# Usage: one_of_two.sh MACHINE BUILD_FOLDER [PYTHON]      MACHINE is 0 or 1
set -uo pipefail

machine=$1 build=$2 python=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
export MCCL_CONNECT_TIMEOUT=240 MCCL_LIVENESS_INTERVAL=30 MCCL_TIMEOUT=300 MCCL_CALIBRATE=0
export MCCL_JOB_KEY=checks-of-rdma-on-two-machines MCCL_LOG_LEVEL=DEBUG
export MCCL_RDMA_DEVICE=rxe0 MCCL_PORT_BASE=0
# shellcheck source=ranks.sh
. "$here/ranks.sh"

mccl=$build/src/cli/mccl
conformance=("$build/tests/mccl_group_conformance" --gtest_brief=1 '--gtest_filter=-*EveryType*')
each=all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,sendrecv
bench=("$mccl" bench --no-bounds --iterations 3 --warmup 1 "$each" -s 8,64K,1M)

# rank_here NAME=VALUE... COMMAND...: runs this machine's rank of a job of two.
rank_here() {
  env MCCL_RANK="$machine" MCCL_WORLD_SIZE=2 MCCL_ROOT="10.9.0.1:$port" "$@" \
    >"$work/rank$machine" 2>&1
}

by_rdma() {
  rank_here MCCL_TRANSPORT=rdma "$@" && grep -q 'link 1, .*: rdma' "$work/rank$machine" && return
  tail -n 20 "$work/rank$machine"
  return 1
}

# Runs two ranks on each machine without settings. Neighbours must use shared memory, and ranks on
# different machines the device.
two_on_each() {
  local rank status=0
  local processes=()
  for rank in $((machine * 2)) $((machine * 2 + 1)); do
    env MCCL_TRANSPORT=auto MCCL_RANK=$rank MCCL_WORLD_SIZE=4 MCCL_ROOT="10.9.0.1:$port" "$@" \
      >"$work/rank$rank" 2>&1 &
    processes+=($!)
  done
  for rank in "${processes[@]}"; do wait "$rank" || status=1; done
  grep -hq ': rdma' "$work"/rank* || { echo "no link by rdma"; status=1; }
  ! grep -h 'link [0-9]*, .*: tcp' "$work"/rank* || status=1
  [[ $status == 0 ]] || tail -n 10 "$work"/rank*
  return $status
}

disturbed() {
  # shellcheck disable=SC2086
  tc qdisc replace dev eth0 root netem $1 || return 1
  shift
  local status=0
  "$@" || status=1
  tc -s qdisc show dev eth0
  tc qdisc del dev eth0 root
  return $status
}

# lose SIGNAL: rank 1 is lost in the middle of a call; with POWER its whole machine is. Rank 0 must
# end with an error that names it.
lose() {
  local signal=$1 process
  rank_here MCCL_TRANSPORT=rdma MCCL_LIVENESS_INTERVAL=5 \
    "$mccl" bench all_reduce -s 1M --no-bounds --seconds 600 &
  process=$!
  until_said "$work/rank$machine" 'link 1, .*rdma' $process
  if [[ $machine == 0 ]]; then
    wait $process && return 1
    tail -n 3 "$work/rank0"
    grep -q 'rank 1' "$work/rank0"
    return
  fi
  [[ $signal != POWER ]] || power_off
  kill "-$signal" "$(pgrep -P $process)"
  # A stopped rank stays alive until the other machine has had time to miss it.
  [[ $signal != STOP ]] || { sleep 30; kill -KILL "$(pgrep -P $process)"; }
  wait $process
  return 0
}

# Prints the result of the checks here first, since nothing can be printed afterwards.
power_off() {
  echo "guest-exit $failed" >/dev/console
  stty -F /dev/console sane  # drains the output before the reset
  echo b >/proc/sysrq-trigger
}

export -f rank_here by_rdma two_on_each disturbed lose power_off
export machine mccl failed

for service in rc uc; do
  export MCCL_RDMA_SERVICE=$service
  check "two machines: calls, $service" 600 by_rdma "${conformance[@]}"
  check "two machines: bench, $service" 300 by_rdma "${bench[@]}"
done
export MCCL_RDMA_SERVICE=auto
check "two machines: two ranks on each" 300 two_on_each "${bench[@]}"
check "two machines: rc, loss 1% delay 2ms" 300 disturbed "loss 1% delay 2ms" \
  by_rdma "${bench[@]}"
if [[ -n $python ]]; then
  check "two machines: torch trains the digits" 900 by_rdma "$python" "$here/torch_digits.py"
fi
check "two machines: a rank is killed" 200 lose KILL
check "two machines: a rank is stopped" 200 lose STOP
check "two machines: a machine loses its power" 200 lose POWER
exit $failed
