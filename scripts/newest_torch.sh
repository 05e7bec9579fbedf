#!/usr/bin/env bash
# Prints the version of the newest PyTorch that pip finds. $1: a Python that can make environments.
set -euo pipefail
python=${1:?usage: newest_torch.sh PYTHON}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder" >&2
version=$("$folder/bin/python" -m pip index versions torch 2>/dev/null |
  sed -n '1s/^torch (\(.*\))$/\1/p')
if [ -z "$version" ]; then
  echo "newest_torch.sh: pip could not list the versions of torch; is the network up?" >&2
  exit 1
fi
echo "$version"
