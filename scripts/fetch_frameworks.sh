#!/usr/bin/env bash
# Fetches and unpacks versions of torch and MLX, so that extensions can be linked against them.
#   fetch_frameworks.sh PYTHON FOLDER PLATFORMS NAME==VERSION...
# Puts torch 2.11.0 into FOLDER/torch-2.11.0, and removes other versions from FOLDER. PYTHON is the
# one for which extensions are built. PLATFORMS are words such as macosx_14_0_arm64 that wheels may
# be for; empty: this machine. Exits with 3 and prints the reason if a wheel is unavailable.
set -euo pipefail
python=${1:?usage: fetch_frameworks.sh PYTHON FOLDER PLATFORMS NAME==VERSION...}
mkdir -p "${2:?usage: fetch_frameworks.sh PYTHON FOLDER PLATFORMS NAME==VERSION...}"
folder=$(cd "$2" && pwd)
platforms=$3
shift 3

tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
download=("$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all:)
for platform in $platforms; do download+=(--platform "$platform"); done

# fetch TARGET NAME==VERSION...: unpacks the wheels into a folder.
fetch() {
  local target=$1 wheels wheel
  shift
  [ -e "$target/.for-$tag" ] && return
  rm -rf "$target"
  mkdir -p "$target"
  wheels=$(mktemp -d)
  if ! "${download[@]}" --dest "$wheels" "$@"; then
    rm -rf "$wheels"
    echo "fetch_frameworks: pip cannot get $*${platforms:+ for $platforms}" >&2
    exit 3
  fi
  for wheel in "$wheels"/*.whl; do "$python" -m zipfile -e "$wheel" "$target"; done
  rm -rf "$wheels"
  touch "$target/.for-$tag"
}

for existing in "$folder"/*-*; do
  name=${existing##*/}
  case " $* " in *" ${name/-/==} "*) ;; *) rm -rf "$existing" ;; esac
done
# MLX for a processor, or for Macs, is in two wheels.
case "$platforms $(uname)" in
  macosx* | " Darwin") second=mlx-metal ;;
  *) second=mlx-cpu ;;
esac
for wanted; do
  target=$folder/${wanted/==/-}
  case $wanted in
    mlx==*) fetch "$target" "$wanted" "$second==${wanted#*==}" ;;
    *) fetch "$target" "$wanted" ;;
  esac
done
