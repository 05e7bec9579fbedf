#include "node/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "base/machine.h"
#include "base/open_files.h"
#include "mccl/error.h"

namespace mccl::node {
namespace {

#ifdef __linux__
constexpr int kNoReserve = MAP_NORESERVE;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#else
constexpr int kNoReserve = 0;
#endif

std::byte* map(const Descriptor& file, std::size_t offset, std::size_t bytes, int access) {
  void* data = ::mmap(nullptr, bytes, access, MAP_SHARED, file.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) fail_to("map the memory");
  return static_cast<std::byte*>(data);
}

}  // namespace

void fail_to(const char* what) {
  throw Error(fmt::format("shared memory: cannot {}: {}", what, describe_errno(errno)));
}

Mapping::~Mapping() {
  if (data_) ::munmap(data_, size_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping Mapping::of(const Descriptor& file, std::size_t offset, std::size_t bytes) {
  return {map(file, offset, bytes, PROT_READ | PROT_WRITE), bytes};
}

/// With mlockall(MCL_FUTURE), the system locks new mappings, and would allocate pages when they are
/// opened.
Mapping Mapping::closed(const Descriptor& file, std::size_t offset, std::size_t bytes) {
  Mapping mapping(map(file, offset, bytes, PROT_NONE), bytes);
  ::munlock(mapping.data(), bytes);
#ifdef __linux__
  ::madvise(mapping.data(), bytes, MADV_DONTDUMP);
#endif
  return mapping;
}

bool SparseMapping::open(std::size_t begin, std::size_t bytes) {
  if (bytes == 0) return true;
  std::size_t unit = begin / kUnit;
  const std::size_t last = (begin + bytes - 1) / kUnit;
  while (unit <= last && is_open_[unit]) ++unit;
  if (unit > last) return true;
  const std::size_t from = unit * kUnit, to = std::min((last + 1) * kUnit, size());
  const int allowed = access_ == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  if (::mprotect(data() + from, to - from, allowed) != 0) return false;
  for (; unit <= last; ++unit) is_open_[unit] = true;
  return true;
}

Mapping Mapping::twice(const Descriptor& file, std::size_t offset, std::size_t bytes) {
  void* room =
      ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | kNoReserve, -1, 0);
  if (room == MAP_FAILED) fail_to("find address space to map the memory twice");
  Mapping both(static_cast<std::byte*>(room), 2 * bytes);
  for (const std::size_t at : {std::size_t{0}, bytes}) {
    void* half = ::mmap(both.data() + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        file.get(), static_cast<off_t>(offset));
    if (half == MAP_FAILED) fail_to("map the memory twice");
  }
  return both;
}

std::size_t largest_file() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<off_t>::max();
  return static_cast<std::size_t>(limit.rlim_cur);
}

bool has_limited_address_space() {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

Descriptor make_memory_file(std::size_t bytes) {
  // The limit is checked first, because ftruncate() would raise SIGXFSZ instead of failing.
  if (const std::size_t limit = largest_file(); limit < bytes) {
    throw Error(
        fmt::format("shared memory: a file of {} bytes is needed, but files are limited to {} "
                    "bytes; raise the limit (ulimit -f)",
                    bytes, limit));
  }
#ifdef __linux__
  Descriptor file(::memfd_create("mccl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) fail_to("create a memory file");
#else
  std::random_device random;
  const std::string name = fmt::format("/mccl-{:08x}{:08x}", random(), random());
  Descriptor file(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!file) fail_to("create a memory file");
  ::shm_unlink(name.c_str());
  ::fcntl(file.get(), F_SETFD, FD_CLOEXEC);
#endif
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    fail_to("set the size of the memory file");
#ifdef __linux__
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) fail_to("seal the memory file");
#endif
  return file;
}

std::size_t size_of_memory_file(const Descriptor& file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail_to("inspect the memory of a peer");
#ifdef __linux__
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error("shared memory: a peer's memory is not sealed against shrinking");
  }
#endif
  return static_cast<std::size_t>(status.st_size);
}

bool change_memory([[maybe_unused]] const Descriptor& file, [[maybe_unused]] MemoryChange change,
                   [[maybe_unused]] std::size_t offset,
                   [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef __linux__
  const int mode = change == MemoryChange::reserve ? 0 : FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  // In steps, because some versions of Linux undo a reservation that a signal interrupts.
  constexpr std::size_t kStep = std::size_t{16} << 20;
  for (const std::size_t end = offset + bytes; offset < end; offset += kStep) {
    const std::size_t step = std::min(kStep, end - offset);
    while (::fallocate(file.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(step)) != 0)
      if (errno != EINTR) return false;
  }
#endif
  return true;
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace mccl::node
