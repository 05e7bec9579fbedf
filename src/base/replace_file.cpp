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

void write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    require(n > 0, path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

void replace_file(const std::string& path, std::string_view text, mode_t mode,
                  const std::function<void()>& before) {
  std::string beside = path + ".XXXXXX";
  const Descriptor file(::mkstemp(beside.data()));
  require(static_cast<bool>(file), path);
  try {
    ::fchmod(file.get(), mode);
    write_all(file.get(), text, path);
    require(::fsync(file.get()) == 0, path);
    if (before) before();
    require(::rename(beside.c_str(), path.c_str()) == 0, path);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
}

}  // namespace mccl
