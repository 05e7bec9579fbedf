#!/usr/bin/env bash
# Tests the engine built for ARM under qemu: all tests of kernels, and a job over TCP in which half
# of the ranks are native programs of this machine.
#   engine.sh FOLDER NATIVE_FOLDER [JOBS] [short]
# NATIVE_FOLDER is a native build with tests. short: tests only some kernels and calls. Exits with 3
# and prints the reason if the compiler, the emulator or the libraries are unavailable.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:?usage: engine.sh FOLDER NATIVE_FOLDER [JOBS]}
native=${2:?usage: engine.sh FOLDER NATIVE_FOLDER [JOBS]}
jobs=${3:-2}
kernels='*' calls='*' processors='cortex-a72 max'
if [ "${4:-}" = short ]; then
  kernels='*ReduceMatchesTheReference*:*Codec*' calls='*all_reduce*' processors=max
fi
emulator=qemu-aarch64-static
for needed in aarch64-linux-gnu-g++ "$emulator"; do
  command -v "$needed" >/dev/null || {
    echo "aarch64: skipped, because $needed is missing (g++-aarch64-linux-gnu, qemu-user-static)" >&2
    exit 3
  }
done
scripts/aarch64/root.sh "$folder"
folder=$(cd "$folder" && pwd)
build=$folder/engine
mkdir -p "$build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMCCL_TESTS=ON -DMCCL_PYTHON=OFF \
  -DMCCL_CLI=OFF -DMCCL_CUDA_KERNELS=OFF -DMCCL_AARCH64_ROOT="$folder/root" \
  -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64/toolchain.cmake >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log" >&2
  exit 1
}
python3 scripts/show_progress.py aarch64 "$build/build.log" \
  cmake --build "$build" --parallel "$jobs" --target mccl_kernels_test mccl_group_conformance

libraries=$build/src:$folder/root/usr/lib/aarch64-linux-gnu
# as_arm PROCESSOR PROGRAM ARGUMENTS...
as_arm() {
  local processor=$1
  shift
  "$emulator" -cpu "$processor" -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries" "$@"
}

# One processor lacks the instructions for 16-bit floats, the other has them.
for processor in $processors; do
  echo "aarch64: kernels on $processor"
  as_arm "$processor" "$build/tests/mccl_kernels_test" --gtest_brief=1 \
    --gtest_filter="$kernels"
done

echo "aarch64: 2 ranks on ARM and 2 on $(uname -m), over TCP"
cmake --build "$native" --parallel "$jobs" --target mccl_group_conformance >/dev/null
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MCCL_ROOT=127.0.0.1:$port MCCL_WORLD_SIZE=4 MCCL_TRANSPORT=tcp MCCL_PORT_BASE=0
export MCCL_JOB_KEY=0123456789abcdef0123456789abcdef MCCL_TIMEOUT=300 MCCL_CONNECT_TIMEOUT=120
pids=()
for rank in 1 2 3; do
  if [ $((rank % 2)) = 1 ]; then
    MCCL_RANK=$rank as_arm max "$build/tests/mccl_group_conformance" --gtest_brief=1 \
      --gtest_filter="$calls" &
  else
    MCCL_RANK=$rank "$native/tests/mccl_group_conformance" --gtest_brief=1 \
      --gtest_filter="$calls" &
  fi
  pids+=($!)
done
status=0
MCCL_RANK=0 "$native/tests/mccl_group_conformance" --gtest_brief=1 --gtest_filter="$calls" ||
  status=$?
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit "$status"
