#!/usr/bin/env bash
# Fetches torch and MLX as Macs get them, unpacked, for extensions to be linked against.
#   frameworks.sh FOLDER TORCH_VERSION...
# What is there already is kept. Exits with 3, and says why, where a wheel cannot be had.
set -euo pipefail
folder=$(cd "${1:?usage: frameworks.sh FOLDER TORCH_VERSION...}" && pwd)
shift
mlx=0.32.4
python=$folder/venv/bin/python

# fetch NAME VERSION FOLDER: the wheel for the Python that extensions are built for.
fetch() {
  local target=$folder/frameworks/$3
  [ -e "$target/.$1-$2" ] && return
  local wheels=$folder/wheels/$1-$2
  mkdir -p "$wheels" "$target"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform macosx_14_0_arm64 --platform macosx_13_0_arm64 --platform macosx_12_0_arm64 \
    --platform macosx_11_0_arm64 --dest "$wheels" "$1==$2" || {
    echo "macos: pip cannot get $1 $2 for Macs" >&2
    exit 3
  }
  "$python" -m zipfile -e "$wheels"/*.whl "$target"
  touch "$target/.$1-$2"
}

for version in "$@"; do fetch torch "$version" "torch-$version"; done
fetch mlx "$mlx" mlx
fetch mlx-metal "$mlx" mlx
