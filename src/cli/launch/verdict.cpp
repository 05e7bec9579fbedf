#include "cli/launch/verdict.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>

#include "base/value_text.h"

namespace mccl::cli::launch {
namespace {

constexpr int kLargestSignal = 64;

/// True if a signal ended the process. That is an outside event or a fault, not an orderly exit.
bool killed(const Exit& exit) {
  const int number = exit.status - kSignalBase;
  return number > 0 && number <= kLargestSignal;
}

}  // namespace

const Failure& first_cause(const std::vector<Failure>& failures) {
  for (const Failure& failure : failures)
    if (failure.exit.connection_lost) return failure;
  for (const Failure& failure : failures)
    if (killed(failure.exit)) return failure;
  return failures.front();
}

std::string text_of(const Exit& exit) {
  if (exit.connection_lost) return "was lost with the connection to its host";
  if (!killed(exit)) return fmt::format("exited with status {}", exit.status);
  const int number = exit.status - kSignalBase;
  return fmt::format("was killed by signal {} ({})", number, ::strsignal(number));
}

std::string text_of(const Failure& failure, int ranks) {
  return fmt::format("rank {} of {} on {} {}{}\n", failure.rank, ranks, printable(failure.host),
                     text_of(failure.exit),
                     ranks > 1 ? "; it failed first and the job was ended" : "");
}

}  // namespace mccl::cli::launch
