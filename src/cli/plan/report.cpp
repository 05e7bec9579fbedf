#include "cli/plan/report.h"

#include <cmath>

#include "cli/plan/facts.h"

namespace mccl::cli::plan {

using Json = nlohmann::ordered_json;

namespace {

Json choice_json(const schedule::Choice& choice, std::size_t element_bytes) {
  return {{"algorithm", schedule::name_of(choice.algorithm)},
          {"chunk_bytes", choice.chunk * element_bytes},
          {"time_us", choice.predicted_s * 1e6}};
}

}  // namespace

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
