#!/bin/bash
# Runs the tests of lock-free code (rings, windows, bells) as an ARM program under qemu. ARM's
# memory order is weaker than that of x86.
# Usage: test_aarch64.sh BUILD_FOLDER [JOBS]
set -euo pipefail

build=${1:?the folder to build in}
jobs=${2:-2}
root=$(cd "$(dirname "$0")/.." && pwd)
compiler=aarch64-linux-gnu-g++
emulator=qemu-aarch64-static
gtest=/usr/src/googletest/googletest

missing=
command -v "$compiler" >/dev/null || missing+=" g++-aarch64-linux-gnu"
command -v "$emulator" >/dev/null || missing+=" qemu-user-static"
[ -d "$gtest" ] || missing+=" googletest"
[ -d /usr/include/fmt ] || missing+=" libfmt-dev"
if [ -n "$missing" ]; then
  echo "test-aarch64: skipped, because these packages are missing:$missing"
  exit 0
fi

# Links fmt's headers, which do not depend on the architecture. The compiler must not find other
# headers of this machine.
mkdir -p "$build/include"
ln -sfn /usr/include/fmt "$build/include/fmt"

cat >"$build/build.ninja.new" <<NINJA
builddir = $build
flags = -std=c++20 -O2 -Wall -Wextra -DFMT_HEADER_ONLY=1 -I$root/src -I$root/include -I$root/tests \$
  -I$build/include -I$gtest/include -I$gtest
rule compile
  command = $compiler \$flags -MMD -MF \$out.d -c \$in -o \$out
  depfile = \$out.d
  deps = gcc
rule link
  command = $compiler -static -pthread \$in -o \$out
NINJA
objects=
for source in "$gtest"/src/{gtest-all,gtest_main}.cc \
  "$root"/src/base/{machine,open_files}.cpp \
  "$root"/src/node/*.cpp \
  "$root"/src/transport/shm/*.cpp \
  "$root"/tests/node/*_test.cpp \
  "$root"/tests/transport/{link_conformance,shm_*}_test.cpp; do
  object=$build/$(basename "$source").o
  objects+=" $object"
  echo "build $object: compile $source" >>"$build/build.ninja.new"
done
echo "build $build/shm_test: link$objects" >>"$build/build.ninja.new"
mv "$build/build.ninja.new" "$build/build.ninja"

ninja --quiet -f "$build/build.ninja" -j "$jobs" "$build/shm_test"
echo "test-aarch64: $("$compiler" -dumpmachine) under $("$emulator" --version | head -1)"
# qemu does not emulate resource limits.
"$emulator" "$build/shm_test" --gtest_brief=1 \
  --gtest_filter='-MemoryFile.TheLimitOfFileSizes*:LocalSocket.ExhaustedDescriptors*'
