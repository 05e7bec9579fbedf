#!/usr/bin/env bash
# Installs the MPI libraries that MCCL is compared with. Compiles the programs that time them, and
# the distance between two cores.
#   install_peers.sh FOLDER
# Reports and skips a library that is unavailable here; bench/compare.py reports it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:?usage: install_peers.sh FOLDER}
source=bench/peers/mpi_bench.cpp
mkdir -p "$folder"

scripts/install_packages.sh apt-packages-bench.txt || echo "peers: cannot install MPI packages" >&2

for mpi in openmpi mpich; do
  program=$folder/mpi_bench.$mpi
  if ! command -v "mpicxx.$mpi" >/dev/null; then
    echo "peers: mpicxx.$mpi is not installed, so this MPI is skipped" >&2
  elif [ ! -x "$program" ] || [ "$source" -nt "$program" ]; then
    echo "peers: $program"
    "mpicxx.$mpi" -std=c++20 -O3 -Wall -Wextra -Wno-cast-function-type "$source" -o "$program" ||
      echo "peers: $source does not compile with mpicxx.$mpi, so it is skipped" >&2
  fi
done

distance=$folder/core_distance
source=bench/peers/core_distance.cpp
if [ ! -x "$distance" ] || [ "$source" -nt "$distance" ]; then
  echo "peers: $distance"
  "${CXX:-c++}" -std=c++20 -O2 -Wall -Wextra -pthread "$source" -o "$distance" ||
    echo "peers: $source does not compile, so the distance between cores is not checked" >&2
fi
