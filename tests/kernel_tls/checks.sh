#!/usr/bin/env bash
# Checks that need a kernel that can encrypt (Linux 6.14 or later, with the module tls).
# scripts/guest.sh runs this script in a guest that has one. Each check prints one line. The exit
# status is 0 if none failed. Usage: checks.sh BUILD_FOLDER
set -uo pipefail

build=${1:?the folder of the C++ build}
work=$(mktemp -d)
here=$(cd "$(dirname "$0")" && pwd)

# The guest's cores are emulated, so everything takes long.
export MCCL_CONNECT_TIMEOUT=120 MCCL_LIVENESS_INTERVAL=30 MCCL_TIMEOUT=300 MCCL_CALIBRATE=0
export MCCL_TRANSPORT=tcp MCCL_ENCRYPTION=on MCCL_KERNEL_TLS=on MCCL_LOG_LEVEL=DEBUG
# shellcheck source=../rdma/ranks.sh
. "$here/../rdma/ranks.sh"

# job SIZE COMMAND...: runs a job, and fails unless all its connections are encrypted by the kernel.
job() {
  local size=$1
  shift
  "$build/src/cli/mccl" launch -n "$size" -- "$@" >"$work/job" 2>&1 || { cat "$work/job"; return 1; }
  grep -q 'connection .*: kernel-encrypted tcp' "$work/job" || { echo "no link uses the kernel"; return 1; }
  ! grep 'connection .*: encrypted tcp' "$work/job"
}
export -f job
export build work

# tests MINIMUM PROGRAM FILTER: runs tests, of which at least MINIMUM must run, and all must pass.
tests() {
  "$build/tests/$2" --gtest_brief=1 "--gtest_filter=$3" >"$work/tests" 2>&1 || { cat "$work/tests"; return 1; }
  ! grep SKIPPED "$work/tests" || return 1
  [[ $(sed -n 's/.*PASSED.* \([0-9]*\) tests*\..*/\1/p' "$work/tests") -ge $1 ]]
}
export -f tests

check "links and streams" 900 tests 90 mccl_transport_test \
  'KernelTls/*:SecureStream.*Kernel*:SecureStream/*by_kernel:-*TwoThreads*'
check "calls, 2 ranks" 600 job 2 "$build/tests/mccl_group_conformance" --gtest_brief=1 \
  '--gtest_filter=Collectives.*:Messages.*'
check "a link heals" 300 tests 1 mccl_rendezvous_test Repairs.AStreamThatTheKernelEncryptsContinues
exit $failed
