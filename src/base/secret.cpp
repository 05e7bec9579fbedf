#include "base/secret.h"

#include <fcntl.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/environment.h"
#include "base/machine.h"
#include "mccl/config.h"

namespace mccl {
namespace {

/// Returns `size` bytes in pages of their own, which core dumps leave out if the system allows it.
std::shared_ptr<char> protected_memory(std::size_t size) {
  const std::size_t length = (size + page_bytes() - 1) / page_bytes() * page_bytes();
  void* const pages =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  leave_out_of_dumps(pages, length);
  return {static_cast<char*>(pages), [length](char* begin) {
            erase(std::as_writable_bytes(std::span(begin, length)));
            ::munmap(begin, length);
          }};
}

#ifdef __GLIBC__

/// Replaces text by asterisks: zeros would look like the end of the environment to programs that
/// read /proc/PID/environ. The program may have given a string literal to putenv(). The system
/// cannot write to such read-only memory, but unlike a write by this process, its attempt does no
/// harm.
void overwrite(std::span<char> text) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  const Descriptor source(ends[0]);
  const Descriptor sink(ends[1]);
  constexpr std::string_view kAsterisks = "****************************************************";
  while (!text.empty()) {
    const std::size_t count = std::min(text.size(), kAsterisks.size());
    if (::write(sink.get(), kAsterisks.data(), count) != static_cast<ssize_t>(count) ||
        ::read(source.get(), text.data(), count) != static_cast<ssize_t>(count)) {
      return;
    }
    text = text.subspan(count);
  }
}

#endif

}  // namespace

void leave_out_of_dumps([[maybe_unused]] const void* begin,
                        [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_DONTDUMP
  const auto* const data = static_cast<const std::byte*>(begin);
  const std::size_t before = reinterpret_cast<std::uintptr_t>(begin) % page_bytes();
  // The system refuses this only if it was built without core dumps. Where pages are missing, it
  // reports an error after it has done its work for the others.
  (void)::madvise(const_cast<std::byte*>(data - before), before + bytes, MADV_DONTDUMP);
#endif
}

void forbid_core_dumps() noexcept {
#ifdef __linux__
  (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

SecretBytes SecretBytes::copy_of(std::string_view bytes) {
  SecretBytes secret;
  if (bytes.empty()) return secret;
  const std::shared_ptr<char> memory = protected_memory(bytes.size() + 1);
  std::copy(bytes.begin(), bytes.end(), memory.get());
  secret.bytes_ = memory;
  secret.size_ = bytes.size();
  return secret;
}

void protect_job_key() {
// Other C libraries may free an entry that putenv() replaces, so its text could not be erased.
#ifdef __GLIBC__
  static std::mutex mutex;
  // The environment refers to these entries until the process ends, so they are never freed.
  static std::vector<SecretBytes>& entries = *new std::vector<SecretBytes>;
  const std::lock_guard lock(mutex);
  char* const value = std::getenv(kKeyVariable);
  if (value == nullptr || *value == '\0') return;
  const std::size_t prefix = std::strlen(kKeyVariable) + 1;
  const std::string_view entry(value - prefix);
  const auto is_entry = [&](const SecretBytes& each) { return each.view().data() == entry.data(); };
  if (std::ranges::any_of(entries, is_entry)) return;
  entries.reserve(entries.size() + 1);
  SecretBytes moved(entry);
  // putenv() keeps the pointer, and never writes through it. It replaces one pointer under the lock
  // of setenv(), so a getenv() in another thread finds either the old or the new entry.
  if (::putenv(const_cast<char*>(moved.view().data())) != 0) return;
  entries.push_back(std::move(moved));
  overwrite(std::span(value, entry.size() - prefix));
#endif
}

}  // namespace mccl
