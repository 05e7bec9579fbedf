#include "rendezvous/roll_call.h"

#include <fmt/format.h>

#include <cstddef>

namespace mccl::rendezvous {
namespace {

/// Minimum number of consecutive ranks that are written as a range: "5 to 7".
constexpr std::size_t kLongRun = 3;

struct Ranks {
  std::string text;  ///< Text such as "0, 2 and 5 to 7".
  std::size_t count = 0;
};

Ranks those_who(const std::vector<bool>& present, bool wanted) {
  Ranks ranks;
  std::vector<std::string> words;
  for (std::size_t first = 0; first < present.size();) {
    if (present[first] != wanted) {
      ++first;
      continue;
    }
    std::size_t end = first;
    while (end < present.size() && present[end] == wanted) ++end;
    ranks.count += end - first;
    if (end - first >= kLongRun) {
      words.push_back(fmt::format("{} to {}", first, end - 1));
    } else {
      for (std::size_t rank = first; rank < end; ++rank) words.push_back(std::to_string(rank));
    }
    first = end;
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    ranks.text += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    ranks.text += words[i];
  }
  return ranks;
}

}  // namespace

std::string roll_call(const std::vector<bool>& present, std::string_view done) {
  const auto have = [](const Ranks& ranks) { return ranks.count == 1 ? "has" : "have"; };
  const Ranks absent = those_who(present, false);
  const Ranks here = those_who(present, true);
  const std::string others = here.count == 0 ? "" : fmt::format("; {} {}", here.text, have(here));
  return fmt::format("rank{} {} {} not {}{}", absent.count == 1 ? "" : "s", absent.text,
                     have(absent), done, others);
}

}  // namespace mccl::rendezvous
