#include "cli/hosts/consent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "cli/launch/watch.h"
#include "mccl/error.h"

namespace mccl::cli::hosts {
namespace {

/// A line of standard input without its end; nothing where there is none.
std::optional<std::string> line_of_person(launch::Signals& signals) {
  std::string line;
  for (bool ended = false, more = true; more;) {
    launch::Watch watch;
    watch.on(STDIN_FILENO, POLLIN, [&] {
      char next = '\n';
      ended = ::read(STDIN_FILENO, &next, 1) != 1;
      more = !ended && next != '\n';
      if (more) line += next;
    });
    watch.on(signals.descriptor(), POLLIN, [&] {
      for (const int number : signals.take())
        if (number != SIGCHLD && number != SIGWINCH)
          throw Error(fmt::format("signal {} ({}) ended it; nothing was changed", number,
                                  ::strsignal(number)));
    });
    watch.wait();
    if (ended && line.empty()) return {};
  }
  return line;
}

}  // namespace

bool person_agrees(const std::string& question, const std::string& flag, launch::Signals& signals) {
  fmt::print(stderr, "{} [y/N] ", question);
  std::fflush(stderr);
  const auto answer = line_of_person(signals);
  if (!answer)
    throw Error(fmt::format(
        "nothing was changed: standard input ends, so nobody can agree; {} agrees in advance",
        flag));
  return *answer == "y" || *answer == "Y" || *answer == "yes";
}

}  // namespace mccl::cli::hosts
