#!/usr/bin/env bash
# Compiles MCCL for Macs with Apple's chips and checks what came out, since nothing here runs it.
#   build.sh FOLDER JOBS [PYTHON]
# Exits with 3, and says why, where the cross compiler cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:?usage: build.sh FOLDER JOBS [PYTHON]}
jobs=${2:?usage: build.sh FOLDER JOBS [PYTHON]}
python=${3:-python3}

scripts/macos/tools.sh "$folder" "$python"
build=$folder/release
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMCCL_PYTHON=OFF \
  -DCMAKE_TOOLCHAIN_FILE=cmake/macos/toolchain.cmake -DMCCL_MACOS_TOOLS="$PWD/$folder" \
  >"$folder/configure.log" || {
  cat "$folder/configure.log" >&2
  exit 1
}
"$python" scripts/show_progress.py macos "$folder/build.log" \
  cmake --build "$build" --parallel "$jobs" --target mccl mccl_program

minimum=$(sed -n 's/^CMAKE_OSX_DEPLOYMENT_TARGET:[^=]*=//p' "$build/CMakeCache.txt")
PYTHONPATH=scripts "$python" -m macos.check --minimum "$minimum" \
  --stub cmake/macos/libc++.symbols "$build/src/libmccl.0.dylib" "$build/src/cli/mccl"
