#include "cli/hosts/consent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "cli/kit/watch.h"
#include "mccl/error.h"

namespace mccl::cli::hosts {
namespace {

/// Returns a line of standard input without its line end, or nothing at the end of input.
std::optional<std::string> line_of_person(Signals& signals) {
  std::string line;
  for (bool ended = false, more = true; more;) {
    Watch watch;
    watch.on(STDIN_FILENO, POLLIN, [&] {
      char next = '\n';
      ended = ::read(STDIN_FILENO, &next, 1) != 1;
      more = !ended && next != '\n';
      if (more) line += next;
    });
    watch.on(signals.descriptor(), POLLIN, [&] { signals.heed("; nothing was changed"); });
    watch.wait();
    if (ended && line.empty()) return {};
  }
  return line;
}

}  // namespace

bool person_agrees(const std::string& question, const std::string& flag, Signals& signals) {
  fmt::print(stderr, "{} [y/N] ", question);
  std::fflush(stderr);
  const auto answer = line_of_person(signals);
  if (!answer)
    throw Error(fmt::format(
        "nothing was changed: no answer could be read from standard input; pass {} to skip the "
        "question",
        flag));
  return *answer == "y" || *answer == "Y" || *answer == "yes";
}

}  // namespace mccl::cli::hosts
