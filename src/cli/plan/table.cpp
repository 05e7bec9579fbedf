#include "cli/plan/table.h"

#include <fmt/format.h>

#include "cli/kit/quantity.h"

namespace mccl::cli::plan {
namespace {

constexpr const char* kNone = "-";
/// An alternative counts as cheaper only if its cost is below this fraction of the choice's cost.
constexpr double kCheaper = 0.999;

std::string columns(std::string_view size, std::string_view count, std::string_view algorithm,
                    std::string_view chunk, std::string_view steps, std::string_view sent,
                    std::string_view received, std::string_view published, std::string_view read,
                    std::string_view time, std::string_view algbw, std::string_view busbw) {
  return fmt::format("{:>11} {:>11}  {:<18} {:>6} {:>7} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>7}",
                     size, count, algorithm, chunk, steps, sent, received, published, read, time,
                     algbw, busbw) +
         "\n";
}

/// Returns how an alternative compares with the choice: it is the choice, was left out although it
/// is cheaper, or neither.
std::string_view standing_of(const schedule::Choice& other, const schedule::Choice& chosen) {
  if (other.algorithm == chosen.algorithm) return "chosen";
  return other.predicted_s < kCheaper * chosen.predicted_s ? "left out" : "";
}

}  // namespace

std::string bytes_text(double bytes) {
  if (bytes < 1e18) return text_of_size(static_cast<std::size_t>(bytes));
  return fmt::format("{:.2g}", bytes);
}

std::string heading(bench::Routine routine) {
  std::string names = columns("size", "count", "algorithm", "chunk", "steps", "sent", "received",
                              "published", "read", "time", "algbw", "busbw");
  std::string units =
      columns("B", "elements", "", "B", "", "B", "B", "B", "B", "us", "GB/s", "GB/s");
  names.front() = units.front() = '#';
  return fmt::format("#\n# {}\n{}{}", bench::info_of(routine).name, names, units);
}

std::string row_text(const Answer& answer) {
  const Question& question = answer.question;
  const auto& traffic = answer.traffic;
  const bool moves_bytes = question.shape.bytes > 0;
  const auto bytes = [&](std::size_t Traffic::*field) {
    return traffic ? bytes_text(static_cast<double>((*traffic).*field)) : kNone;
  };
  return columns(
      fmt::format("{}", question.shape.bytes), fmt::format("{}", question.shape.part),
      schedule::name_of(answer.choice.algorithm), bytes_text(answer.chunk_bytes()),
      traffic ? fmt::format("{}", traffic->steps) : fmt::format("~{:.0f}", answer.estimated_steps),
      bytes(&Traffic::sent), bytes(&Traffic::received), bytes(&Traffic::published),
      bytes(&Traffic::read), number_text(answer.choice.predicted_s * 1e6),
      moves_bytes ? rate_text(answer.algbw_gbs()) : kNone,
      moves_bytes ? rate_text(answer.busbw_gbs()) : kNone);
}

std::string alternatives_text(const Answer& answer, std::span<const schedule::Choice> others) {
  std::string text;
  const auto element = static_cast<double>(element_bytes(answer.question));
  for (const schedule::Choice& other : others) {
    text += columns("", standing_of(other, answer.choice), schedule::name_of(other.algorithm),
                    bytes_text(static_cast<double>(other.chunk) * element), "", "", "", "", "",
                    number_text(other.predicted_s * 1e6), "", "");
    text.erase(text.find_last_not_of(" \n") + 1);
    text += "\n";
  }
  return text;
}

}  // namespace mccl::cli::plan
