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

check "links and streams" 900 "$build/tests/mccl_transport_test" --gtest_brief=1 \
  --gtest_filter='KernelTls/*:SecureStream.TheKernel*:ByKernel/*:SecureStream/Closing*'
check "calls, 2 ranks" 600 job 2 "$build/tests/mccl_group_conformance" --gtest_brief=1 \
  '--gtest_filter=Collectives.*:Messages.*'
check "a link heals" 300 "$build/tests/mccl_rendezvous_test" --gtest_brief=1 \
  '--gtest_filter=Repairs.AStreamThatTheKernelEncryptsContinues'
exit $failed
