#include "base/environment.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "base/secret.h"

#ifdef __APPLE__
#include <crt_externs.h>
#else
extern char** environ;
#endif

namespace mccl {
namespace {

char** entries_of_process() {
#ifdef __APPLE__
  return *_NSGetEnviron();
#else
  return environ;
#endif
}

}  // namespace

ProcessEnvironment::~ProcessEnvironment() {
  const auto key = find(kKeyVariable);
  if (key != end()) mccl::erase(std::as_writable_bytes(std::span(key->second)));
}

ProcessEnvironment process_environment() {
  ProcessEnvironment result;
  for (char** entry = entries_of_process(); entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::uint64_t environment_fingerprint(std::span<const std::string_view> prefixes) {
  constexpr std::uint64_t kPrime = 1099511628211U;  // FNV-1a
  std::uint64_t hash = 14695981039346656037U;
  for (char** entry = entries_of_process(); entry != nullptr && *entry != nullptr; ++entry) {
    // Values may be long, so variables without a matching prefix are not read to their end.
    const auto begins = [&](std::string_view prefix) {
      return **entry == prefix.front() && std::strncmp(*entry, prefix.data(), prefix.size()) == 0;
    };
    if (std::ranges::none_of(prefixes, begins)) continue;
    for (const char* c = *entry; *c != '\0'; ++c)
      hash = (hash ^ static_cast<unsigned char>(*c)) * kPrime;
    hash *= kPrime;  // separates entries, so that text moved between two of them changes the hash
  }
  return hash;
}

}  // namespace mccl
