#!/usr/bin/env bash
# Compiles MCCL for Macs with Apple's chips and packs a wheel. Checks the result statically, because
# this machine cannot run it.
#   build.sh FOLDER JOBS [PYTHON] [core | newest]
# core: only the library and the program. newest: also for the newest torch. Exits with 3 and prints
# the reason if the cross compiler, or torch or MLX for Macs, is unavailable.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:?usage: build.sh FOLDER JOBS [PYTHON] [core | newest]}
jobs=${2:?usage: build.sh FOLDER JOBS [PYTHON] [core | newest]}
python=${3:-python3}
extent=${4:-all}
torch=2.11.0

# All builds share one folder, so that another torch recompiles only torch's extension.
build=$folder/release

configure() {
  mkdir -p "$build"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_TOOLCHAIN_FILE=cmake/macos/toolchain.cmake -DMCCL_MACOS_TOOLS="$PWD/$folder" "$@" \
    >"$build/configure.log" 2>&1 || {
    cat "$build/configure.log" >&2
    exit 1
  }
  minimum=$(sed -n 's/^CMAKE_OSX_DEPLOYMENT_TARGET:[^=]*=//p' "$build/CMakeCache.txt")
}

compile() {
  "$python" scripts/show_progress.py macos "$build/build.log" \
    cmake --build "$build" --parallel "$jobs" --target "$@"
}

# check FILE...
check() {
  local stubs=()
  for list in cmake/macos/*.symbols; do stubs+=(--stub "$list"); done
  PYTHONPATH=scripts "$python" -m macos.check --minimum "$minimum" "${stubs[@]}" "$@"
}

scripts/macos/tools.sh "$folder" "$python"
configure -DMCCL_PYTHON=OFF
compile mccl mccl_program
check "$build/src/libmccl.0.dylib" "$build/src/cli/mccl"
[ "$extent" = core ] && exit

# --- Extensions for torch, MLX and NumPy ---------------------------------------------------------

versions=$torch
if [ "$extent" = newest ]; then versions+=" $(scripts/newest_torch.sh "$python")"; fi
# shellcheck disable=SC2086  # words
scripts/macos/frameworks.sh "$folder" $versions
frameworks=$PWD/$folder/frameworks
mlx=$frameworks/mlx/mlx
for version in $versions; do
  echo "macos: extensions for torch $version and MLX"
  configure -DMCCL_PYTHON=ON -DMCCL_MLX_FOLDER="$mlx" \
    -DMCCL_TORCH_FOLDER="$frameworks/torch-$version/torch"
  compile mccl_package
  wheel=$("$folder/venv/bin/python" scripts/macos/pack.py --build "$build" --minimum "$minimum" \
    --torch "$frameworks/torch-$version/torch" --mlx "$mlx" --into "$folder/dist" | tail -1)
  # Checks the files as unpacked from the wheel, because a Mac gets those.
  rm -rf "$build/unpacked"
  "$python" -m zipfile -e "$wheel" "$build/unpacked"
  beside=()
  for library in "$frameworks/torch-$version"/torch/lib/*.dylib "$mlx"/lib/*.dylib; do
    beside+=(--beside "$library")
  done
  check "${beside[@]}" "$build"/unpacked/mccl/*.so "$build"/unpacked/mccl/*.dylib \
    "$build"/unpacked/*.data/scripts/mccl
  echo "macos: $wheel"
done
