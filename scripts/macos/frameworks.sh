#!/usr/bin/env bash
# Fetches and unpacks torch and MLX for Macs, so that extensions can be linked against them.
#   frameworks.sh FOLDER TORCH_VERSION...
# Existing files are kept. Exits with 3 and prints the reason if a wheel is unavailable.
set -euo pipefail
folder=$(cd "${1:?usage: frameworks.sh FOLDER TORCH_VERSION...}" && pwd)
shift
mlx=0.32.4
python=$folder/venv/bin/python

# fetch NAME VERSION FOLDER: fetches the wheel for the Python for which extensions are built.
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
