// The comparison of two ranks' settings that must agree.
#pragma once

#include <string>
#include <string_view>

namespace mccl::rendezvous {

/// One rank's settings, as "name=value" lines.
struct Settings {
  int rank = 0;
  std::string_view text;
};

/// Empty when the texts are equal; otherwise each setting that differs, with both ranks and both
/// values. Printable, whatever the other rank sent.
std::string difference(const Settings& here, const Settings& there);

}  // namespace mccl::rendezvous
