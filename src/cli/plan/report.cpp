#include "cli/plan/report.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/bench/report.h"
#include "cli/kit/quantity.h"
#include "cli/plan/facts.h"

namespace mccl::cli::plan {
namespace {

using Json = nlohmann::ordered_json;

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

Json choice_json(const schedule::Choice& choice, std::size_t element_bytes) {
  return {{"algorithm", schedule::name_of(choice.algorithm)},
          {"chunk_bytes", choice.chunk * element_bytes},
          {"time_us", choice.predicted_s * 1e6}};
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

Json row_json(const Answer& answer, std::span<const schedule::Choice> alternatives) {
  const Question& question = answer.question;
  const bench::RoutineInfo& info = bench::info_of(question.routine);
  const bool moves_bytes = question.shape.bytes > 0;
  const auto& traffic = answer.traffic;
  Json row = {{"collective", info.name},
              {"bytes", question.shape.bytes},
              {"count", question.shape.part},
              {"dtype", moves_bytes ? Json(name_of(question.dtype)) : Json(nullptr)},
              {"op", info.reduces ? Json(name_of(question.op)) : Json(nullptr)},
              {"root", info.rooted ? Json(question.root) : Json(nullptr)},
              {"in_place", problem_of(question, question.root).in_place}};
  row.update(choice_json(answer.choice, element_bytes(question)));
  row["algbw"] = moves_bytes ? Json(answer.algbw_gbs()) : Json(nullptr);
  row["busbw"] = moves_bytes ? Json(answer.busbw_gbs()) : Json(nullptr);
  row["steps"] = traffic ? Json(traffic->steps) : Json(std::round(answer.estimated_steps));
  row["steps_are_estimated"] = !traffic;
  const auto bytes = [&](std::size_t Traffic::*field) {
    return traffic ? Json((*traffic).*field) : Json(nullptr);
  };
  row["sent_bytes"] = bytes(&Traffic::sent);
  row["received_bytes"] = bytes(&Traffic::received);
  row["published_bytes"] = bytes(&Traffic::published);
  row["read_bytes"] = bytes(&Traffic::read);
  if (alternatives.empty()) return row;
  row["alternatives"] = Json::array();
  for (const schedule::Choice& other : alternatives)
    row["alternatives"].push_back(choice_json(other, element_bytes(question)));
  return row;
}

std::string to_json(const schedule::Facts& facts, int ranks, Json rows) {
  const Json json = {{"version", MCCL_VERSION},
                     {"ranks", ranks},
                     {"costs", facts_json(facts)},
                     {"rows", std::move(rows)}};
  return json.dump(1) + "\n";
}

}  // namespace mccl::cli::plan
