#include "rendezvous/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "rendezvous/job_key.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

namespace {

using File = transport::tcp::Socket;

constexpr std::string_view kName = "mccl-key-";
constexpr std::size_t kLongestPath = 4096;
constexpr mode_t kPrivate = S_IRUSR | S_IWUSR;

bool write_all(const File& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(file.descriptor(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

/// True if the file belongs to this user, has a single hard link and the size of a key, and no
/// other user may open it.
bool is_key_file(const File& file) {
  struct stat facts = {};
  if (::fstat(file.descriptor(), &facts) != 0) return false;
  return S_ISREG(facts.st_mode) && (facts.st_mode & 07777) == kPrivate &&
         facts.st_uid == ::geteuid() && facts.st_nlink == 1 &&
         facts.st_size == static_cast<off_t>(kJobKeyLetters);
}

bool is_named_like_one(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return path.starts_with('/') && path.size() <= kLongestPath &&
         path.substr(slash + 1).starts_with(kName) && path.find('\0') == path.npos;
}

}  // namespace

KeyFile::KeyFile(std::span<const std::string> folders, const std::string& key) {
  for (const std::string& folder : folders) {
    // The name cannot be guessed, so no other process can create the file first.
    const std::string path = folder + "/" + std::string(kName) + make_job_key().substr(0, 32);
    const File file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kPrivate));
    if (!file) continue;
    // The umask may have removed the owner's permissions.
    if (::fchmod(file.descriptor(), kPrivate) == 0 && write_all(file, key)) {
      path_ = path;
      return;
    }
    ::unlink(path.c_str());
  }
}

KeyFile::~KeyFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

std::optional<std::string> read_key_file(const std::string& path) {
  if (!is_named_like_one(path)) return {};
  // If the path is a pipe or a terminal, open must neither block nor have side effects.
  const File file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file || !is_key_file(file)) return {};
  std::string key(kJobKeyLetters, '\0');
  const ssize_t got = ::read(file.descriptor(), key.data(), key.size());
  if (got != static_cast<ssize_t>(key.size())) return {};
  return key;
}

}  // namespace mccl::rendezvous
