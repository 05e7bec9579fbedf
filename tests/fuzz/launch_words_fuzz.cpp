// Output of a host on which mccl launch starts ranks: the lines of a guard, and the output of a
// rank with the lines of its script. The first byte sets the length of the pieces in which the
// output arrives, which must make no difference.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/kit/dialogue.h"
#include "cli/launch/remote_script.h"
#include "input.h"
#include "rendezvous/connections/wire.h"

namespace mccl::fuzz::launch_words {
namespace {

using namespace mccl::cli;

constexpr const char* kToken = "mccl-0123";

struct Filtered {
  std::string text;
  std::optional<int> status;
  friend bool operator==(const Filtered&, const Filtered&) = default;
};

Filtered filter(std::string_view output, std::size_t piece, bool begins) {
  launch::RankWords words(kToken, begins);
  Filtered filtered;
  std::vector<char> space(piece + 1024);
  while (!output.empty()) {
    const std::size_t held = words.put_held(space);
    const std::string_view arrived = output.substr(0, piece);
    std::ranges::copy(arrived, space.begin() + static_cast<std::ptrdiff_t>(held));
    const std::size_t left = words.filter(std::span(space).first(held + arrived.size()));
    require(left <= held + arrived.size(), "a filter that adds");
    filtered.text.append(space.data(), left);
    output.remove_prefix(arrived.size());
  }
  filtered.text += words.rest();
  filtered.status = words.status();
  return filtered;
}

void split(std::string_view output, std::size_t piece) {
  Lines lines;
  std::string all;
  for (std::string_view rest = output; !rest.empty();) {
    const std::string_view arrived = rest.substr(0, piece);
    std::ranges::copy(arrived, lines.space().begin());
    lines.filled(arrived.size());
    rest.remove_prefix(arrived.size());
    const std::string_view taken = lines.take_lines();
    require(taken.empty() || taken.ends_with('\n'), "a line without its end");
    all += taken;
    if (piece % 2 == 0) all += lines.take_characters();
  }
  all += lines.take_rest();
  require(lines.empty() && all == output, "lines are lost");
}

void report(std::string_view output) {
  launch::RankPlan rank;
  rank.argv = {"/usr/bin/python3", "train.py"};
  launch::GuardReport guard;
  while (!output.empty()) {
    std::string_view rest = rendezvous::next_part(output, '\n');
    const std::string_view word = rendezvous::next_part(rest, ' ');
    guard.take(word, std::string(rest), {&rank});
  }
  (void)guard.fault_of_folder("mktemp: no space");
  for (const auto bind_to : {launch::BindTo::share, launch::BindTo::core})
    require(launch::bindings_of(bind_to, guard.processors, {{}, {}}).size() == 2,
            "a rank without a binding");
}

}  // namespace

void run(Input input) {
  const std::size_t piece = 1 + input.byte();
  const std::string_view output = input.text();
  for (const bool begins : {false, true})
    require(filter(output, piece, begins) == filter(output, output.size() + 1, begins),
            "the pieces make a difference");
  split(output, piece);
  report(output);
}

}  // namespace mccl::fuzz::launch_words

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::launch_words::run({data, size});
  return 0;
}
