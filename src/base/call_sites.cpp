#include "base/call_sites.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/fork.h"

namespace mccl {
namespace {

struct KeptSite {
  explicit KeptSite(std::uint16_t number, std::string_view name) : text(name), site{number, text} {}

  const std::string text;
  const CallSite site;
};

/// Guards Table::kept and the addition of places to Table::sites. Readers take no lock.
std::mutex& mutex_of_call_sites() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

struct Table {
  Table() { hold_while_forking<mutex_of_call_sites>(); }

  std::uint16_t kept = 0;  // guarded by mutex_of_call_sites()
  /// Indexed by CallSite::number. An entry is written once, and its place is never freed.
  std::array<std::atomic<const KeptSite*>, kMostCallSites + 1> sites{};
};

Table& table() {
  static Table* const kept = new Table;  // never freed: calls may end while the process exits
  return *kept;
}

}  // namespace

const CallSite* call_site(std::string_view text) noexcept {
  try {
    Table& all = table();
    const std::lock_guard lock(mutex_of_call_sites());
    for (std::uint16_t number = 1; number <= all.kept; ++number) {
      const KeptSite* const found = all.sites[number].load(std::memory_order_relaxed);
      if (found->text == text) return &found->site;
    }
    if (all.kept == kMostCallSites) return nullptr;
    const auto number = static_cast<std::uint16_t>(all.kept + 1);
    auto made = std::make_unique<const KeptSite>(number, text);
    all.sites[number].store(made.get(), std::memory_order_release);
    all.kept = number;
    return &made.release()->site;
  } catch (const std::exception&) {
    return nullptr;
  }
}

std::string_view text_of_call_site(std::uint16_t number) noexcept {
  if (number == 0 || number > kMostCallSites) return {};
  const KeptSite* const found = table().sites[number].load(std::memory_order_acquire);
  return found ? std::string_view(found->text) : std::string_view();
}

}  // namespace mccl
