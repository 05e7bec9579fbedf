#!/bin/bash -eu
# Builds every fuzz target into $OUT, with its seeds. ClusterFuzzLite sets SANITIZER, the compilers,
# their options and the folders WORK and OUT.
scripts/build_libraries.sh "$WORK/libraries" "$(nproc)"
cmake -S . -B "$WORK/mccl" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_PREFIX_PATH="$WORK/libraries" \
  -DMCCL_FUZZ=ON -DMCCL_TESTS=ON -DMCCL_PYTHON=OFF -DMCCL_PRECOMPILED=OFF -DMCCL_HARDENED=OFF
cmake --build "$WORK/mccl" --parallel "$(nproc)" --target mccl_fuzz
for seeds in tests/fuzz/corpus/*/; do
  target=mccl_$(basename "$seeds")_fuzz
  cp "$WORK/mccl/tests/fuzz/$target" "$OUT/"
  zip --quiet --junk-paths --recurse-paths "$OUT/${target}_seed_corpus.zip" "$seeds"
done
