#include "cli/kit/file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/first_line.h"
#include "base/replace_file.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

constexpr std::size_t kLargest = std::size_t{64} << 20;

/// The file also stays at `path` until the new file replaces it.
void keep_old(const std::string& path) {
  const std::string backup = path + ".bak";
  std::error_code error;
  std::filesystem::remove(backup, error);
  std::filesystem::create_hard_link(path, backup, error);
  if (error) std::filesystem::copy_file(path, backup, error);
  if (!error) return;
  throw Error(fmt::format("cannot back up {} to {}: {}; the file was not changed", printable(path),
                          printable(backup), error.message()));
}

}  // namespace

std::string read_file(std::string_view where, const std::string& path, std::string_view expected) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> block;
  while (file && text.size() <= kLargest) {
    file.read(block.data(), block.size());
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.eof() && text.size() <= kLargest) return text;
  const char* why = text.size() > kLargest ? "larger than 64 MiB"
                    : errno == 0           ? "cannot be read"
                                           : std::strerror(errno);
  throw InvalidArgument(fmt::format("{}: {}; expected {}", where, why, expected));
}

void check_writable(const std::string& flag, const std::string& path) {
  if (path.empty()) return;
  const bool existed = std::filesystem::exists(path);
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) {
    throw InvalidArgument(fmt::format("{} {}: {}; give a file that can be written", flag,
                                      in_quotes(path), std::strerror(errno)));
  }
  if (!existed) std::remove(path.c_str());
}

void write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw Error(fmt::format("cannot write {}: {}", in_quotes(path), std::strerror(errno)));
}

void write_keeping_old(const std::string& path, const std::string& text) {
  struct stat about = {};
  const bool there = ::stat(path.c_str(), &about) == 0;
  if (there && !S_ISREG(about.st_mode)) return write_file(path, text);
  // If `path` is a link, its target is replaced, and not the link.
  std::error_code unknown;
  const std::string real = there ? std::filesystem::canonical(path, unknown).string() : path;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  replace_file(real, text, there ? about.st_mode & 07777 : 0666 & ~mask, [&] {
    if (there && contents_of(real) != text) keep_old(real);
  });
}

std::string make_temporary_folder(const std::string& name) {
  std::error_code none;
  std::filesystem::path place = std::filesystem::temp_directory_path(none);
  if (none) place = "/tmp";
  std::string folder = (place / (name + ".XXXXXX")).string();
  if (::mkdtemp(folder.data()) == nullptr) {
    throw Error(fmt::format("cannot create a folder in {}: {}; set TMPDIR to a writable folder",
                            place.string(), std::strerror(errno)));
  }
  return folder;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace mccl::cli
