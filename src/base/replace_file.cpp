#include "base/replace_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/descriptor.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {
namespace {

/// Throws Error if `good` is false.
void require(bool good, const std::string& path) {
  if (good) return;
  throw Error(
      fmt::format("cannot write {}: {}; check the free space and the permissions of its folder",
                  printable(path), std::strerror(errno)));
}

}  // namespace

void replace_file(const std::string& path, std::string_view text, mode_t mode,
                  const std::function<void()>& before) {
  std::string beside = path + ".XXXXXX";
  const Descriptor file(::mkstemp(beside.data()));
  require(static_cast<bool>(file), path);
  try {
    ::fchmod(file.get(), mode);
    require(write_all(file, text), path);
    require(::fsync(file.get()) == 0, path);
    if (before) before();
    require(::rename(beside.c_str(), path.c_str()) == 0, path);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
}

}  // namespace mccl
