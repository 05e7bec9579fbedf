#include "cli/launch/verdict.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>

#include "base/value_text.h"

namespace mccl::cli::launch {
namespace {

constexpr std::size_t kMostLines = 10;
constexpr std::size_t kLongestLine = 400;
constexpr int kSignalBase = 128;
constexpr int kLargestSignal = 64;

/// Signals that come from outside or from a fault, and not from a program that ends itself in
/// order.
bool killed(const Exit& exit) {
  const int number = exit.status - kSignalBase;
  return number > 0 && number <= kLargestSignal;
}

}  // namespace

void LastLines::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!open_) lines_.emplace_back();
    std::string& last = lines_.back();
    last += line.substr(0, kLongestLine - std::min(kLongestLine, last.size()));
    open_ = end == std::string_view::npos;
    if (lines_.size() > kMostLines) lines_.pop_front();
    text.remove_prefix(open_ ? text.size() : end + 1);
  }
}

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

std::string text_of(const Failure& failure, int ranks, const LastLines& said) {
  std::string text = fmt::format("rank {} of {} on {} {}", failure.rank, ranks,
                                 printable(failure.host), text_of(failure.exit));
  if (ranks > 1) text += "; it failed first and the job was ended";
  if (said.lines().empty()) return text + "\n";
  text +=
      fmt::format("\nmccl launch: the last that rank {} wrote to standard error:\n", failure.rank);
  for (const std::string& line : said.lines()) text += fmt::format("  {}\n", printable(line));
  return text;
}

}  // namespace mccl::cli::launch
