// Compares the settings of two ranks that must be equal.
#pragma once

#include <string>
#include <string_view>

namespace mccl::rendezvous {

/// One rank's settings, as "name=value" lines.
struct Settings {
  int rank = 0;
  std::string_view text;
};

/// Returns an empty string if the texts are equal; otherwise each setting that differs, with both
/// ranks and both values. The result is printable, whatever the other rank sent.
std::string difference(const Settings& here, const Settings& there);

}  // namespace mccl::rendezvous
