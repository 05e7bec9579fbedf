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
mlx=0.32.4

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
frameworks=$PWD/$folder/frameworks
platforms="macosx_14_0_arm64 macosx_13_0_arm64 macosx_12_0_arm64 macosx_11_0_arm64"
# shellcheck disable=SC2046,SC2086  # words
scripts/fetch_frameworks.sh "$folder/venv/bin/python" "$frameworks" "$platforms" \
  "mlx==$mlx" $(printf "torch==%s " $versions)
torches=()
for version in $versions; do torches+=("$frameworks/torch-$version/torch"); done
mlx=$frameworks/mlx-$mlx/mlx

echo "macos: extensions for MLX and torch $versions"
configure -DMCCL_PYTHON=ON -DMCCL_MLX_FOLDERS="$mlx" \
  -DMCCL_TORCH_FOLDERS="$(IFS=';' && echo "${torches[*]}")"
compile mccl_package
wheel=$("$folder/venv/bin/python" scripts/macos/pack.py --build "$build" --minimum "$minimum" \
  --torch "${torches[@]}" --mlx "$mlx" --into "$folder/dist" | tail -1)

# Checks the files as unpacked from the wheel, because a Mac gets those. Each extension for torch is
# checked against its own torch.
rm -rf "$build/unpacked"
"$python" -m zipfile -e "$wheel" "$build/unpacked"
beside=()
for library in "$mlx"/lib/*.dylib; do beside+=(--beside "$library"); done
check "${beside[@]}" "$build"/unpacked/mccl/_[!t]*.so "$build"/unpacked/mccl/*.dylib \
  "$build"/unpacked/*.data/scripts/mccl
for version in $versions; do
  beside=()
  for library in "$frameworks/torch-$version"/torch/lib/*.dylib; do
    beside+=(--beside "$library")
  done
  minor=${version%.*}
  check "${beside[@]}" "$build/unpacked/mccl/_torch_${minor/./_}".*.so \
    "$build"/unpacked/mccl/*.dylib
done
echo "macos: $wheel"
