#!/usr/bin/env bash
# Builds the libraries that MCCL needs, for wheels and fuzzers, whose systems have them in unsuitable
# versions or not at all. They are static, so that what is linked contains them. Needs a compiler,
# cmake, curl, make, patch and perl.
#   build_libraries.sh PREFIX [JOBS]
# Sources are those of Debian 12.15, from an archive that keeps every version. Existing files in
# PREFIX/sources are used if their hashes match.
set -euo pipefail
mkdir -p "${1:?usage: build_libraries.sh PREFIX [JOBS]}"
prefix=$(cd "$1" && pwd)
jobs=${2:-2}
check=sha256sum
command -v sha256sum >/dev/null || check="shasum --algorithm 256"
archive=https://snapshot.debian.org/archive/debian/20261120T000000Z/pool/main

# fetch FILE SHA256: puts a file of the archive into $prefix/sources.
fetch() {
  file=$prefix/sources/${1##*/}
  mkdir -p "$prefix/sources"
  [ -e "$file" ] || curl --fail --silent --show-error --location --output "$file" "$archive/$1"
  echo "$2  $file" | $check --check --status || {
    echo "build_libraries: $file does not have the hash $2" >&2
    exit 1
  }
}

# unpack FILE SHA256: puts a source into its own folder, and goes there.
unpack() {
  fetch "$@"
  cd "$prefix"
  rm -rf "work/${1##*/}"
  mkdir -p "work/${1##*/}"
  cd "work/${1##*/}"
  tar -xf "$file" --strip-components=1
}

# compile OPTION...: builds the unpacked source with CMake.
compile() {
  cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_POLICY_VERSION_MINIMUM=3.5 "$@"
  cmake --build build --parallel "$jobs"
  cmake --install build
}

unpack c/cli11/cli11_2.1.2+ds.orig.tar.xz 8143d20b688e98ccce8e24562d3b68e5f47c12e896c42c7ca8553dbde5bed55d
compile -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF -DCLI11_BUILD_DOCS=OFF
unpack f/fmtlib/fmtlib_9.1.0+ds1.orig.tar.gz 84ce1c2d0be3a9863935137969dcec6970125caac032f82474640bfc81463583
compile -DFMT_TEST=OFF -DFMT_DOC=OFF
unpack s/spdlog/spdlog_1.10.0+ds.orig.tar.xz 620ca6842b5c21014470bd42eb4716024674214fb973b5ffa3aaea33310ad327
compile -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF -DCMAKE_PREFIX_PATH="$prefix"
unpack n/nlohmann-json3/nlohmann-json3_3.11.2.orig.tar.gz d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273
compile -DJSON_BuildTests=OFF
unpack h/highway/highway_1.0.3.orig.tar.gz 566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e
compile -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF -DBUILD_TESTING=OFF
unpack p/prometheus-cpp/prometheus-cpp_1.0.1.orig.tar.gz 593e028d401d3298eada804d252bc38d8cab3ea1c9e88bcd72095281f85e6d16
compile -DENABLE_PUSH=OFF -DENABLE_PULL=OFF -DENABLE_TESTING=OFF -DENABLE_COMPRESSION=OFF
unpack o/openssl/openssl_3.0.20.orig.tar.gz c80a01dfc70ece4dc21168932c37739042d404d46ccc81a5986dd75314ecda6f
# Debian's patches contain the fixes of security faults since the release.
fetch o/openssl/openssl_3.0.20-1~deb12u2.debian.tar.xz 7279efe85c359500c95aa88347e3395dd303d7566e2bb818d80d96e0c3bb9629
tar -xf "$file" debian/patches
while IFS= read -r name; do patch --strip=1 --quiet --input="debian/patches/$name"; done <debian/patches/series
# OpenSSL's symbols are hidden, so that libmccl does not export them.
./config --prefix="$prefix" --libdir=lib -fPIC -fvisibility=hidden \
  no-shared no-tests no-module no-legacy no-engine
make --jobs="$jobs" build_libs
make install_dev
