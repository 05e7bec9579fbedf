#include "node/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
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
constexpr int kReserve = 0;
constexpr int kDiscard = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#else
constexpr int kNoReserve = 0;
constexpr int kReserve = 0, kDiscard = 0;
#endif

/// On Linux, allocates the memory for a part of the file now, so that no later access can fail
/// (kReserve), or returns this memory to the system (kDiscard). No process may access the part
/// during the call. Returns false if the system refused. No-op on other systems, which allocate
/// pages on first use and keep them.
bool change_memory([[maybe_unused]] const Descriptor& file, [[maybe_unused]] int mode,
                   [[maybe_unused]] std::size_t offset,
                   [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef __linux__
  while (::fallocate(file.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
    if (errno != EINTR) return false;
#endif
  return true;
}

/// Returns the size in bytes of a file received from a peer. On Linux, throws Error if the file can
/// shrink; make_memory_file() makes files that cannot.
std::size_t size_of_memory_file(const Descriptor& file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail("inspect the memory of a peer");
#ifdef __linux__
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error("shared memory: a peer's memory is not sealed against shrinking");
  }
#endif
  return static_cast<std::size_t>(status.st_size);
}

/// Number of readers that have not released a range. Stored in the range's first cache line.
using Readers = std::atomic<std::uint32_t>;

Readers& readers_of(const Mapping& mapping) { return *reinterpret_cast<Readers*>(mapping.data()); }

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

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
  if (data == MAP_FAILED) fail("map the memory");
  return {static_cast<std::byte*>(data), bytes};
}

Mapping Mapping::twice(const Descriptor& file, std::size_t offset, std::size_t bytes) {
  void* room =
      ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | kNoReserve, -1, 0);
  if (room == MAP_FAILED) fail("find address space to map the memory twice");
  Mapping both(static_cast<std::byte*>(room), 2 * bytes);
  for (const std::size_t at : {std::size_t{0}, bytes}) {
    void* half = ::mmap(both.data() + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        file.get(), static_cast<off_t>(offset));
    if (half == MAP_FAILED) fail("map the memory twice");
  }
  return both;
}

Descriptor make_memory_file(std::size_t bytes) {
  // The limit is checked first, because ftruncate() would raise SIGXFSZ instead of failing.
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    throw Error(
        fmt::format("shared memory: a file of {} bytes is needed, but files are limited to {} "
                    "bytes; raise the limit (ulimit -f)",
                    bytes, limit.rlim_cur));
  }
#ifdef __linux__
  Descriptor file(::memfd_create("mccl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) fail("create a memory file");
#else
  std::random_device random;
  const std::string name = fmt::format("/mccl-{:08x}{:08x}", random(), random());
  Descriptor file(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!file) fail("create a memory file");
  ::shm_unlink(name.c_str());
  ::fcntl(file.get(), F_SETFD, FD_CLOEXEC);
#endif
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    fail("set the size of the memory file");
#ifdef __linux__
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) fail("seal the memory file");
#endif
  return file;
}

Range::~Range() {
  if (arena_) arena_->retired_.push_back({place_, std::move(mapping_)});
}

Range& Range::operator=(Range&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(place_, other.place_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

std::span<std::byte> Range::memory() const {
  return {mapping_.data() + kLine, mapping_.size() - kLine};
}

std::shared_ptr<Arena> Arena::make(std::size_t capacity) {
  return std::shared_ptr<Arena>(new Arena(std::max(whole_pages(capacity), page_bytes())));
}

Arena::Arena(std::size_t capacity) : capacity_(capacity), file_(make_memory_file(capacity)) {
  if (!change_memory(file_, kReserve, 0, page_bytes())) {
    throw Error(
        "shared memory: the system has no free page left; free memory, or raise the "
        "memory limit of the container");
  }
  first_page_ = Mapping::of(file_, 0, page_bytes());
  auto& header = *new (first_page_.data()) ArenaHeader;
  header.address = reinterpret_cast<std::uintptr_t>(&header);
  std::random_device random;
  header.token = std::uint64_t{random()} << 32 | random();
  if (capacity_ > page_bytes()) free_.push_back({page_bytes(), capacity_ - page_bytes()});
}

void Arena::collect() noexcept {
  std::erase_if(retired_, [this](Retired& retired) {
    if (readers_of(retired.mapping).load(std::memory_order_acquire) != 0) return false;
    const RangePlace place = retired.place;
    if (spare_bytes_ + place.bytes <= kSpareBytes) {
      spare_bytes_ += place.bytes;
      spare_.push_back(std::move(retired));
    } else if (!discard(place)) {
      return false;
    }
    taken_ -= place.bytes;
    return true;
  });
}

/// Gives the memory of a range back to the system. Returns false if the system refuses.
bool Arena::discard(const RangePlace& place) noexcept {
  if (!change_memory(file_, kDiscard, place.offset, place.bytes)) return false;
  give_back(place);
  return true;
}

/// Gives spare ranges back to the system. Returns true if at least one was given back.
bool Arena::release_spares() noexcept {
  const std::size_t before = spare_.size();
  std::erase_if(spare_, [this](const Retired& spare) {
    if (!discard(spare.place)) return false;
    spare_bytes_ -= spare.place.bytes;
    return true;
  });
  return spare_.size() < before;
}

/// Adds the place to free_, merged with adjacent free places.
void Arena::give_back(RangePlace place) noexcept {
  --ranges_;
  auto after = std::lower_bound(
      free_.begin(), free_.end(), place.offset,
      [](const RangePlace& free, std::uint64_t offset) { return free.offset < offset; });
  if (after != free_.end() && place.offset + place.bytes == after->offset) {
    place.bytes += after->bytes;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    RangePlace& before = *std::prev(after);
    if (before.offset + before.bytes == place.offset) {
      before.bytes += place.bytes;
      return;
    }
  }
  free_.insert(after, place);
}

/// Takes the smallest free place that is large enough, so that small ranges fill the gaps. Among
/// places of the same size, takes the first.
bool Arena::find_place(std::size_t bytes, RangePlace& place) {
  const auto better = [bytes](const RangePlace& one, const RangePlace& other) {
    if (one.bytes < bytes || other.bytes < bytes) return one.bytes >= bytes;
    return one.bytes < other.bytes;
  };
  const auto best = std::min_element(free_.begin(), free_.end(), better);
  if (best == free_.end() || best->bytes < bytes) return false;
  if (!change_memory(file_, kReserve, best->offset, bytes)) return false;
  place = {best->offset, bytes};
  best->offset += bytes;
  best->bytes -= bytes;
  if (best->bytes == 0) free_.erase(best);
  ++ranges_;
  return true;
}

bool Arena::take_new(std::size_t bytes, Range& range) {
  if (!find_place(bytes, range.place_)) return false;
  try {
    range.mapping_ = Mapping::of(file_, range.place_.offset, bytes);
  } catch (const std::exception&) {
    give_back(range.place_);
    return false;
  }
  return true;
}

bool Arena::take_spare(std::size_t bytes, Range& range) {
  const auto found = std::find_if(spare_.begin(), spare_.end(), [bytes](const Retired& spare) {
    return spare.place.bytes == bytes;
  });
  if (found == spare_.end()) return false;
  range.place_ = found->place;
  range.mapping_ = std::move(found->mapping);
  spare_.erase(found);
  spare_bytes_ -= bytes;
  return true;
}

Range Arena::allocate(std::size_t bytes, std::uint32_t readers, std::size_t cleared) {
  collect();
  // Reserves the heap memory that a later release needs. At most one free place precedes each
  // range, and one follows the last range.
  free_.reserve(ranges_ + 2);
  retired_.reserve(ranges_ + 1);
  spare_.reserve(ranges_ + 1);
  const std::size_t whole = whole_pages(bytes + kLine);
  Range range;
  const bool taken = take_spare(whole, range) || take_new(whole, range) ||
                     (release_spares() && take_new(whole, range));
  if (!taken) return {};
  taken_ += whole;
  range.arena_ = shared_from_this();
  std::memset(range.memory().data(), 0, std::min(cleared, range.memory().size()));
  new (range.mapping_.data()) Readers(readers);
  return range;
}

PeerRange::~PeerRange() {
  if (mapping_.data()) readers_of(mapping_).fetch_sub(1, std::memory_order_release);
}

std::span<std::byte> PeerRange::memory() const {
  return {mapping_.data() + kLine, mapping_.size() - kLine};
}

PeerArena::PeerArena(Descriptor file) : file_(std::move(file)), size_(size_of_memory_file(file_)) {
  if (size_ < page_bytes()) throw Error("shared memory: a peer's memory is smaller than a page");
  first_page_ = Mapping::of(file_, 0, page_bytes());
  if (header().magic != ArenaHeader::kMagic) {
    throw Error(
        "shared memory: a peer's memory was not made by this version of MCCL; "
        "install the same version for all processes of this host");
  }
}

void PeerArena::check(const RangePlace& place) const {
  // The first page belongs to the arena itself.
  if (place.offset % page_bytes() != 0 || place.bytes % page_bytes() != 0 || place.bytes == 0 ||
      place.offset == 0 || place.bytes > size_ || place.offset > size_ - place.bytes) {
    throw CorruptionError(
        fmt::format("shared memory: a peer sent an invalid range: {} bytes at offset {} of its "
                    "memory of {} bytes",
                    place.bytes, place.offset, size_));
  }
}

PeerRange PeerArena::map(const RangePlace& place) const {
  check(place);
  PeerRange range;
  range.mapping_ = Mapping::of(file_, place.offset, place.bytes);
  range.place_ = place;
  return range;
}

void PeerArena::let_go_of(const RangePlace& place) const {
  if (place.bytes == 0) return;
  try {
    static_cast<void>(map(place));
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception&) {
    // This process cannot map the range, so the range stays in use.
  }
}

}  // namespace mccl::node
