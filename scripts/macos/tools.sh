#!/usr/bin/env bash
# Sets up cross compilation for macOS on Linux. clang and Darwin's C headers come from the ziglang
# wheel. Libraries that Debian has only for Linux are fetched as sources.
#   tools.sh FOLDER [PYTHON]
# Existing files are kept. Exits with 3 and prints the reason if the tools are unavailable.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
mkdir -p "${1:?usage: tools.sh FOLDER [PYTHON]}"
folder=$(cd "$1" && pwd)
python=${2:-python3}

zig_version=0.17.1
minimum=$(sed -n 's/^set(CMAKE_OSX_DEPLOYMENT_TARGET \([0-9.]*\).*/\1/p' cmake/macos/toolchain.cmake)

give_up() {
  echo "macos: $1" >&2
  exit 3
}

if [ ! -e "$folder/venv/.zig-$zig_version" ]; then
  rm -rf "$folder/venv"
  "$python" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "ziglang==$zig_version" nanobind==3.1.0 \
    scikit-build-core wheel || give_up "pip cannot get ziglang $zig_version"
  touch "$folder/venv/.zig-$zig_version"
fi
zig=$("$folder/venv/bin/python" -c 'import ziglang; print(ziglang.__path__[0])')

# --- Sources ----------------------------------------------------------------------------------

# Header-only libraries come from this machine.
mkdir -p "$folder/include"
for header in CLI fmt hwy nlohmann spdlog; do
  ln -sfn "/usr/include/$header" "$folder/include/$header"
done

# Copies this machine's Python headers, and changes the few lines of pyconfig.h that differ on Macs.
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
platform=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platinclude"))')
multiarch=/usr/include/$(uname -m)-linux-gnu/${include##*/}
for configuration in "$multiarch" "$platform"; do
  [ "$configuration" = "$multiarch" ] && [ "$include" != "/usr/include/${include##*/}" ] && continue
  if [ -e "$configuration/pyconfig.h" ]; then break; fi
done
[ -e "$configuration/pyconfig.h" ] || give_up "$python has no headers: install python3-dev"
taken="$include $(cksum <"$configuration/pyconfig.h")"
if [ "$(cat "$folder/include/python/.taken" 2>/dev/null)" != "$taken" ]; then
  rm -rf "$folder/include/python"
  cp -RL "$include" "$folder/include/python"
  sed -E -e '/define (_POSIX_C_SOURCE|_XOPEN_SOURCE|_XOPEN_SOURCE_EXTENDED|_GNU_SOURCE)/d' \
    -e '/define HAVE_GCC_ASM_FOR_X87/d' -e 's/(define SIZEOF_LONG_DOUBLE) 16/\1 8/' \
    "$configuration/pyconfig.h" >"$folder/include/python/pyconfig.h"
  echo '#define _DARWIN_C_SOURCE 1' >>"$folder/include/python/pyconfig.h"
  echo "$taken" >"$folder/include/python/.taken"
fi

# Unpacks one Debian source package into a folder of its name. Separate package lists leave those of
# the machine unchanged.
fetch_source() {
  [ -e "$folder/$1/.unpacked" ] && return
  local apt=$folder/apt
  rm -rf "${apt:?}/$1"  # left by a failed download
  mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/$1"
  : >"$apt/none"
  scripts/debian_sources.sh "$apt/parts" deb-src || give_up "there is no archive of sources"
  local options=(-qq -o Dir::Etc::SourceList="$apt/none" -o Dir::Etc::SourceParts="$apt/parts"
    -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update &&
    (cd "$apt/$1" && apt-get "${options[@]}" source --download-only "$1") ||
    give_up "apt-get cannot get the source of $1"
  rm -rf "${folder:?}/$1"
  mkdir "$folder/$1"
  tar -xf "$apt/$1"/*.orig.tar.?z -C "$folder/$1" --strip-components=1
  touch "$folder/$1/.unpacked"
}
fetch_source highway
fetch_source openssl

# --- Compilers --------------------------------------------------------------------------------

# Writes a program from standard input. Does not touch a file with the same text, because ccache
# detects changes of a compiler by the file's time.
write_program() {
  cat >"$1.new"
  chmod +x "$1.new"
  if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

mkdir -p "$folder/bin"
darwin="-isystem $zig/lib/include -isystem $zig/lib/libc/include/any-darwin-any"
clang="$zig/zig clang --target=arm64-apple-macosx$minimum -nostdlibinc -nobuiltininc"
write_program "$folder/bin/clang" <<END
#!/bin/bash
# clang of ziglang $zig_version for macOS $minimum; C only.
exec $clang $darwin "\$@"
END

# Links the system's C++ library, like Apple's compiler, so that exceptions and types are the same
# in MCCL, torch and MLX. LLVM leaves the configuration of its headers to the distributor. With
# availability annotations, the headers reject functions that the oldest supported system lacks.
config=$root/cmake/macos/libcxx.options
write_program "$folder/bin/clang++" <<END
#!/bin/bash
# clang++ of ziglang $zig_version for macOS $minimum, which links the system's own C++ library.
# Headers as configured by $(cksum <"$config").
case " \$* " in
  *" -c "* | *" -E "* | *" -S "* | *" -fsyntax-only "* | *" -x c++-header "*)
    exec $clang -nostdinc++ -isystem $zig/lib/libcxx/include -isystem $zig/lib/libcxxabi/include \\
      $darwin @$config "\$@" ;;
esac
exec $folder/bin/link "\$@"
END
write_program "$folder/bin/link" <<END
#!/bin/bash
# A program separate from clang++, whose text identifies the compiler to ccache.
arguments=()
is_bundle= output= last= before=
for argument; do
  [ "\$last" = -o ] && output=\$argument
  last=\$argument
  case \$argument in
    # This linker cannot read the list of symbols that the interpreter provides; check.py checks
    # them.
    -Wl,@*.sym) arguments+=(-Wl,-undefined,dynamic_lookup) ;;
    # This linker makes only dynamic libraries, which dlopen loads like bundles.
    -bundle) arguments+=(-dynamiclib) is_bundle=yes ;;
    # Our own lists of symbols replace the system's frameworks, since this linker would need the SDK
    # of Apple.
    -framework) ;;
    -lobjc) arguments+=($folder/lib/libobjc.tbd) ;;
    *)
      if [ "\$before" = -framework ]; then
        arguments+=("$folder/lib/\$argument.tbd")
      else
        arguments+=("\$argument")
      fi ;;
  esac
  before=\$argument
done
[ -n "\$is_bundle" ] && arguments+=(-install_name "@rpath/\${output##*/}")
export ZIG_GLOBAL_CACHE_DIR=$folder/zig-cache ZIG_LOCAL_CACHE_DIR=$folder/zig-cache
exec $zig/zig cc -target aarch64-macos.$minimum "\${arguments[@]}" $folder/lib/libc++.tbd
END
mkdir -p "$folder/lib"
for list in cmake/macos/*.symbols; do
  name=${list##*/}
  "$folder/venv/bin/python" scripts/macos/stub.py "$list" "$folder/lib/${name%.symbols}.tbd"
done

# --- OpenSSL ----------------------------------------------------------------------------------

# OpenSSL is linked into libmccl, because macOS has none. The options remove most parts that proofs
# of identity and TLS do not need. OpenSSL's symbols are hidden, so that libmccl does not export
# them.
if [ ! -e "$folder/openssl/libssl.a" ]; then
  echo "macos: OpenSSL"
  (
    cd "$folder/openssl"
    CC=$folder/bin/clang AR=llvm-ar RANLIB=llvm-ranlib ./Configure darwin64-arm64-cc --api=3.0 \
      -fvisibility=hidden \
      no-{shared,tests,engine,dso,legacy,module,ui-console,deprecated,comp,dtls,ssl3,srp,srtp} \
      no-{aria,bf,blake2,camellia,cast,cmp,cms,ct,des,dsa,ec2m,gost,idea,md4,mdc2,ocb,ocsp,rc2} \
      no-{rc4,rmd160,scrypt,seed,siphash,siv,sm2,sm3,sm4,ts,whirlpool}
    make build_generated
    make --jobs="$(nproc)" libcrypto.a libssl.a
  ) >"$folder/openssl.log" 2>&1 || {
    tail -20 "$folder/openssl.log" >&2
    exit 1
  }
fi
