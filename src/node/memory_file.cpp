#include "node/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/open_files.h"
#include "mccl/error.h"

namespace mccl::node {
namespace {

[[noreturn]] void fail(const char* what) {
  const int error = errno;
  throw Error(fmt::format("shared memory: cannot {}: {}{}", what, std::strerror(error),
                          open_files_advice(error)));
}

#ifdef __linux__
constexpr int kNoReserve = MAP_NORESERVE;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#else
constexpr int kNoReserve = 0;
#endif

}  // namespace

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
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                      static_cast<off_t>(offset));
  if (data == MAP_FAILED) fail("map it");
  return {static_cast<std::byte*>(data), bytes};
}

Mapping Mapping::twice(const Descriptor& file, std::size_t offset, std::size_t bytes) {
  void* room =
      ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | kNoReserve, -1, 0);
  if (room == MAP_FAILED) fail("find room to map it twice");
  Mapping both(static_cast<std::byte*>(room), 2 * bytes);
  for (const std::size_t at : {std::size_t{0}, bytes}) {
    void* half = ::mmap(both.data() + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        file.get(), static_cast<off_t>(offset));
    if (half == MAP_FAILED) fail("map it twice");
  }
  return both;
}

Descriptor make_memory_file(std::size_t bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    throw Error(
        fmt::format("shared memory: {} bytes of it count as a file, and files are limited to {} "
                    "(see ulimit -f)",
                    bytes, limit.rlim_cur));  // ftruncate would raise SIGXFSZ
  }
#ifdef __linux__
  Descriptor file(::memfd_create("mccl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) fail("create it");
#else
  std::random_device random;
  const std::string name = fmt::format("/mccl-{:08x}{:08x}", random(), random());
  Descriptor file(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!file) fail("create it");
  ::shm_unlink(name.c_str());
  ::fcntl(file.get(), F_SETFD, FD_CLOEXEC);
#endif
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) fail("size it");
#ifdef __linux__
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) fail("seal it");
#endif
  return file;
}

bool reserve_memory(const Descriptor& file, std::size_t offset, std::size_t bytes) {
#ifdef __linux__
  const auto reserve = [&] {
    return ::fallocate(file.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  };
  int result = reserve();
  while (result != 0 && errno == EINTR) result = reserve();
  return result == 0;
#else
  static_cast<void>(file), static_cast<void>(offset), static_cast<void>(bytes);
  return true;  // pages are allocated on first use; otherwise mmap fails
#endif
}

bool discard_memory(const Descriptor& file, std::size_t offset, std::size_t bytes) noexcept {
#ifdef __linux__
  const auto punch = [&] {
    return ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(offset), static_cast<off_t>(bytes));
  };
  int result = punch();
  while (result != 0 && errno == EINTR) result = punch();
  return result == 0;
#else
  static_cast<void>(file), static_cast<void>(offset), static_cast<void>(bytes);
  return true;
#endif
}

std::size_t size_of_memory_file(const Descriptor& file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail("inspect a peer's");
#ifdef __linux__
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error("shared memory: a peer's memory is not sealed against shrinking");
  }
#endif
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace mccl::node
