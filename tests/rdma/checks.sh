#!/usr/bin/env bash
# Checks that need a machine with RDMA devices. scripts/guest.sh runs this script in a guest
# that can make such devices. Each check prints one line. The exit status is 0 if none failed.
# Usage: checks.sh BUILD_FOLDER [PYTHON] [SECTION...]
# Sections: link, calls, bench, failure, network, frameworks. By default all run, frameworks only if
# PYTHON is given. `short` is a quick selection from link, calls and failure.
set -uo pipefail

build=${1:?the folder of the C++ build}
python=${2:-}
[[ $python != - ]] || python=
shift $(($# < 2 ? $# : 2))
sections=${*:-link calls bench failure network ${python:+frameworks}}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
hosts=8
[[ $sections != short ]] || hosts=2

# The guest's cores are emulated, so everything takes long.
export MCCL_CONNECT_TIMEOUT=120 MCCL_LIVENESS_INTERVAL=30 MCCL_TIMEOUT=300 MCCL_CALIBRATE=0
export MCCL_JOB_KEY=checks-of-rdma-in-a-guest MCCL_LOG_LEVEL=DEBUG
# shellcheck source=hosts.sh
. "$here/hosts.sh"
# shellcheck source=ranks.sh
. "$here/ranks.sh"

conformance=$build/tests/mccl_group_conformance
bench=("$build/src/cli/mccl" bench --no-bounds --iterations 3 --warmup 1)
each=all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,sendrecv

# section_link [FILTER]: runs the link tests that the filter selects.
section_link() {
  local service
  for service in uc rc; do
    check "link conformance, $service" 600 \
      "$build/tests/mccl_transport_test" --gtest_brief=1 --gtest_filter="RdmaDevice/*/$service${1:-}"
  done
}

# Only jobs of two ranks test all types and reductions. More ranks would not change the results, and
# they share the cores.
section_calls() {
  local service shape size
  check "all calls, 2 ranks, rc" 400 with rc ranks mesh 2 "$conformance" --gtest_brief=1
  for service in rc uc; do
    for shape in mesh ring; do
      for size in 2 4 8; do
        [[ $size == 2 && ($shape == ring || $service == rc) ]] && continue
        check "calls, $size ranks, $service, $shape" 500 with "$service" \
          ranks "$shape" "$size" "$conformance" --gtest_brief=1 "--gtest_filter=$(calls_of "$size")"
      done
    done
  done
}

# calls_of SIZE: prints the tests to run. With 8 ranks, only those that depend on the number of
# ranks.
calls_of() {
  if (($1 < 8)); then
    echo "-*EveryType*"
  else
    echo "Collectives.*:Messages.EverySize*:Messages.TagsMatch*:Groups.Split*:Groups.AnAbort*"
  fi
}

with() {
  export MCCL_RDMA_SERVICE=$1
  shift
  "$@"
}
export -f with

section_bench() {
  local size
  for size in 2 4 8; do
    check "mccl bench, $size ranks" 300 ranks mesh "$size" "${bench[@]}" "$each" -s 8,64K,1M
    grep -vE '^#|(DEBUG|INFO|WARN) ' "$work/rank0" | head -n 40 | sed 's/^/        /'
  done
}

section_failure() {
  local service
  for service in rc uc; do
    check "a rank of 2 is killed, $service" 200 with "$service" lose_a_rank KILL 2
    check "a rank of 2 is stopped, $service" 200 with "$service" lose_a_rank STOP 2
  done
  check "a rank of 4 is killed" 200 lose_a_rank KILL 4
  check "a rank of 4 is stopped" 200 lose_a_rank STOP 4
  check "a device that is not there is named" 60 device_is_missing
}

device_is_missing() {
  echo '[[null, "mlx5_7"], ["roce1", null]]' >"$work/wrong-2.json"
  ! ranks wrong 2 env MCCL_TRANSPORT=rdma "$build/src/cli/mccl" bench -s 8 --no-bounds &&
    grep -q 'mlx5_7.*there are .*roce0' "$work/rank0" && grep -q 'mlx5_7' "$work/rank1"
}
export -f device_is_missing

# Disturbs the network with loss, delay and reordering. rc retransmits, so its results must be
# right. uc must either fail with an error that names a rank, or give the right result.
section_network() {
  local trouble
  while read -r trouble; do
    check "rc: $trouble" 300 disturbed rc 2 "$trouble" ranks mesh 2
    check "uc: $trouble" 300 disturbed uc 2 "$trouble" right_or_told mesh 2
  done <<<"loss 1%
delay 5ms
delay 2ms reorder 2% 50%
loss 0.5% delay 2ms reorder 1% duplicate 1%"
  check "rc, 4 ranks: loss 1% delay 2ms" 400 disturbed rc 4 "loss 1% delay 2ms" ranks mesh 4
}

# disturbed SERVICE SIZE NETEM COMMAND...: runs the command while the network is disturbed. calm()
# prints the packet counts, since a check without traffic would prove nothing.
disturbed() {
  local service=$1 size=$2 trouble=$3 status=0
  shift 3
  # shellcheck disable=SC2086
  disturb "$size" $trouble || return 1
  with "$service" "$@" "$build/src/cli/mccl" bench --no-bounds --iterations 3 --warmup 1 \
    all_reduce,all_to_all,sendrecv -s 8,256K || status=1
  calm "$size"
  return $status
}
export -f disturbed

section_frameworks() {
  local jobs=(rc:mesh:2 uc:mesh:2 rc:ring:4 uc:mesh:4 rc:mesh:8 uc:ring:8)
  # Eight ranks share the cores, and a thread pool does not survive a fork.
  export OMP_NUM_THREADS=1
  forked "$here/mlx_sums.py" 600 "${jobs[@]}"
  forked "$here/torch_digits.py" 900 "${jobs[@]}"
}

forked() {
  "$python" "$here/forked_ranks.py" "$work" "$@" || failed=1
}

# Leaves out what takes longest in emulation: large data and many ranks.
section_short() {
  section_link "-*SixtyFour*:*PushesBack*"
  check "calls, 2 ranks, uc" 600 with uc ranks mesh 2 "$conformance" --gtest_brief=1 \
    "--gtest_filter=Collectives.*:Messages.*"
  check "a rank of 2 is killed" 200 lose_a_rank KILL 2
}

for shape in mesh ring; do
  for size in 2 4 8; do device_table $shape $size >"$work/$shape-$size.json"; done
done
make_hosts "$hosts" || { echo "FAILED  hosts with devices cannot be made"; exit 1; }
for section in $sections; do "section_$section"; done
exit $failed
