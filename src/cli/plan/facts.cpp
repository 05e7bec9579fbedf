#include "cli/plan/facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/first_line.h"
#include "base/json_text.h"
#include "base/nearest.h"
#include "base/value_text.h"
#include "cli/bench/routine.h"
#include "cli/command.h"
#include "cli/kit/fields.h"
#include "cli/kit/file.h"
#include "cli/kit/quantity.h"
#include "cluster/text.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl::cli::plan {
namespace {

using bench::Routine;
using nlohmann::json;

std::string text_of(const schedule::FactInfo& info, double value) {
  if (info.unit == "s") return text_of_seconds(value);
  if (info.unit == "B/s") return text_of_rate(value);
  if (info.unit == "B") return text_of_size(static_cast<std::size_t>(value));
  return fmt::format("{:.3g}", value);
}

double parse_value(std::string_view flag, const schedule::FactInfo& info, std::string_view text) {
  if (const auto number = parse_number(text)) return *number;
  if (info.unit == "s") return parse_seconds(flag, text);
  if (info.unit == "B/s") return parse_rate(flag, text);
  if (info.unit == "B") {
    if (const auto bytes = parse_bytes(text)) return static_cast<double>(*bytes);
  }
  const std::string_view wanted =
      info.unit == "B" ? "bytes, as an integer or with a unit of 1024 such as 256K or 4M"
                       : "a number";
  throw InvalidArgument(fmt::format("{}: expected {}; found {}", flag, wanted, in_quotes(text)));
}

constexpr std::string_view kCables =
    R"(a list of cables such as {"between": [0, 1], "rate": "10Gbit", "latency": "20us"})";

/// `place` names the cable that is invalid.
[[noreturn]] void refuse_links(std::string_view place) {
  throw InvalidArgument(fmt::format("{}: expected {}", place, kCables));
}

bool is_rank(const json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= INT_MAX;
}

Cable cable_of(const json& item, std::string_view origin, std::string_view place) {
  if (!item.is_object()) refuse_links(place);
  Cable cable;
  bool has_ends = false;
  for (const auto& [name, value] : item.items()) {
    if (name == "between" && value.is_array() && value.size() == 2 &&
        std::ranges::all_of(value, is_rank)) {
      cable.a = value[0].get<int>();
      cable.b = value[1].get<int>();
      has_ends = true;
    } else if (name == "rate" && value.is_string()) {
      cable.bytes_per_s = parse_rate(fmt::format("{}: rate", origin), value.get<std::string>());
    } else if (name == "latency" && value.is_string()) {
      cable.latency_s = parse_seconds(fmt::format("{}: latency", origin), value.get<std::string>());
    } else {
      refuse_links(place);
    }
  }
  if (!has_ends) refuse_links(place);
  return cable;
}

constexpr long long kLargestSize = 1LL << 40;

MeasuredRow row_of(const json& object, int ranks, const std::string& where) {
  const Fields fields(object, where);
  const std::string name = fields.text("collective");
  const std::string_view names[] = {name};
  MeasuredRow row;
  row.time_us = fields.number("time_us", 0);
  row.p50_us = fields.number("p50_us", 0);
  Question& question = row.question;
  const std::vector<Routine> routines = bench::parse_routines(names);
  if (routines.size() != 1) fields.refuse("collective");
  question.routine = routines[0];
  question.ranks = ranks;
  const bench::RoutineInfo& info = bench::info_of(question.routine);
  if (info.rooted) question.root = static_cast<int>(fields.integer("root", 0, ranks - 1));
  if (question.routine == Routine::barrier) return row;
  question.in_place = fields.flag("in_place");
  question.dtype = kind_of<DType>(where, fields.text("dtype"), kDTypeCount);
  if (info.reduces) question.op = kind_of<ReduceKind>(where, fields.text("op"), kReduceKindCount);
  const auto bytes = static_cast<std::size_t>(fields.integer("bytes", 0, kLargestSize));
  question.shape = bench::shape_of(question.routine, bytes, question.dtype, ranks);
  return row;
}

}  // namespace

std::vector<int> nodes_of(int ranks, int per_node) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks && per_node > 1; ++rank) nodes.push_back(rank / per_node);
  return nodes;
}

int node_count(const schedule::Facts& facts, int ranks) {
  if (facts.nodes.empty()) return ranks;
  return static_cast<int>(std::set<int>(facts.nodes.begin(), facts.nodes.end()).size());
}

int fullest_node(const schedule::Facts& facts) {
  std::map<int, int> members;
  int most = 1;
  for (const int node : facts.nodes) most = std::max(most, ++members[node]);
  return most;
}

void set_fact(schedule::Facts& facts, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string_view name = assignment.substr(0, equals);
  const schedule::FactInfo* info = schedule::find_fact(name);
  if (!info || equals == std::string_view::npos) {
    std::vector<std::string_view> names;
    for (const schedule::FactInfo& known : schedule::fact_table()) names.push_back(known.name);
    throw InvalidArgument(fmt::format("--fact: expected NAME=VALUE of a fact; found {}; {}",
                                      in_quotes(assignment), choices_near(name, names)));
  }
  set_fact(facts, fmt::format("--fact {}", name), name, assignment.substr(equals + 1));
}

void set_fact(schedule::Facts& facts, std::string_view flag, std::string_view name,
              std::string_view text) {
  const schedule::FactInfo& info = *schedule::find_fact(name);
  const double value = parse_value(flag, info, text);
  if (!schedule::is_possible(info, value)) {
    throw InvalidArgument(
        fmt::format("{}: {} is impossible ({})", flag, in_quotes(text), info.meaning));
  }
  schedule::assign(facts, info, value);
}

std::string facts_text(const schedule::Facts& facts, std::string_view origin) {
  std::string text = fmt::format("# facts, {}:\n", origin);
  for (const schedule::FactInfo& info : schedule::fact_table()) {
    fmt::format_to(std::back_inserter(text), "#   {:<21} {:>12}  {}\n", info.name,
                   text_of(info, schedule::value_of(facts, info)), info.meaning);
  }
  return text;
}

nlohmann::ordered_json facts_json(const schedule::Facts& facts) {
  auto json = nlohmann::ordered_json::object();
  for (const schedule::FactInfo& info : schedule::fact_table())
    json[std::string(info.name)] = schedule::value_of(facts, info);
  json["nodes"] = facts.nodes;
  return json;
}

schedule::Facts facts_of_json(const nlohmann::json& costs, int ranks) {
  schedule::Facts facts;
  for (const schedule::FactInfo& info : schedule::fact_table()) {
    const auto found = costs.find(info.name);
    if (found == costs.end() || !found->is_number() ||
        !schedule::is_possible(info, found->get<double>())) {
      throw InvalidArgument(
          fmt::format("costs: {} is missing or impossible; measure again with this version's "
                      "mccl bench",
                      info.name));
    }
    schedule::assign(facts, info, found->get<double>());
  }
  const auto nodes = costs.find("nodes");
  const bool right = nodes != costs.end() && nodes->is_array() &&
                     (nodes->empty() || nodes->size() == static_cast<std::size_t>(ranks)) &&
                     std::ranges::all_of(*nodes, [&](const nlohmann::json& node) {
                       return node.is_number_integer() && node.get<std::int64_t>() >= 0 &&
                              node.get<std::int64_t>() < ranks;
                     });
  if (!right)
    throw InvalidArgument(fmt::format(
        "costs: nodes must be an empty list, or a list of {0} node numbers (one for each rank) "
        "from 0 to {1}",
        ranks, ranks - 1));
  facts.nodes = nodes->get<std::vector<int>>();
  return facts;
}

std::optional<schedule::Facts> measure(int ranks) {
  if (!Config::from_environment().calibrate) {
    throw InvalidArgument(
        "--measure: MCCL_CALIBRATE disables measurements; unset it, or leave out "
        "--measure");
  }
  const TemporaryFolder folder("mccl-plan");
  const std::string file = folder.path() + "/bench.json";
  // A job measures its costs when it starts, and its ranks agree on them in the first collective,
  // so one barrier is enough.
  const int status =
      bench::run_here(ranks, "mccl plan",
                      {"bench", "--one-host", "--quiet", "barrier", "--iterations", "1", "--warmup",
                       "0", "--algorithm", "auto", "--no-bounds", "--json", file});
  if (status != kGood) return {};
  return facts_of_json(nlohmann::json::parse(contents_of(file)).at("costs"), ranks);
}

Cabling parse_links(std::string_view text, std::string_view origin, int ranks) {
  const json document = parse_json(text, origin, kCables);
  if (!document.is_array()) refuse_links(origin);
  std::vector<Cable> cables;
  for (const json& item : document)
    cables.push_back(cable_of(item, origin, fmt::format("{}: cable {}", origin, cables.size())));
  Cabling cabling(ranks, std::move(cables));
  const std::vector<std::vector<int>> parts = cabling.parts();
  if (parts.size() > 1) {
    std::string text;
    for (const auto& part : parts)
      text += fmt::format("{}{{{}}}", text.empty() ? "" : " and ", fmt::join(part, ", "));
    throw InvalidArgument(
        fmt::format("{}: the cables do not join all {} ranks: no cable joins {}; add a cable",
                    origin, ranks, text));
  }
  return cabling;
}

std::string links_text(const Cabling& cabling, const schedule::CableMap* map) {
  std::string text = fmt::format("# {} cables", cabling.cables().size());
  if (map == nullptr) return text + ": every rank is connected to every other rank\n";
  const auto out = std::back_inserter(text);
  const std::vector<int>& ring = map->ring();
  if (ring.empty()) {
    fmt::format_to(out, "\n#   ring: none\n");
  } else {
    fmt::format_to(out, "\n#   ring: {} - {}\n", fmt::join(ring, " - "), ring.front());
  }
  const std::vector<int>& tree = map->tree();
  std::vector<std::string> branches;
  for (std::size_t rank = 0; rank < tree.size(); ++rank)
    if (tree[rank] >= 0) branches.push_back(fmt::format("{} - {}", tree[rank], rank));
  fmt::format_to(out, "#   tree: {}\n", fmt::join(branches, ", "));
  return text;
}

MeasuredRun parse_run(const std::string& content, const std::string& origin) {
  const std::string where = "--check: " + in_quotes(origin);
  const json whole = parse_json(content, where, "the JSON that \"mccl bench --json\" writes");
  const Fields fields(whole, where);
  MeasuredRun run;
  run.ranks = static_cast<int>(fields.integer("ranks", 1, kMostRanks));
  run.transport = fields.text("transport");
  run.facts = facts_of_json(fields.at("costs"), run.ranks);
  if (const std::string name = fields.text("algorithm"); name != "auto")
    run.facts.forced =
        kind_of<schedule::Algorithm>(where + ": algorithm", name, schedule::kAlgorithmCount);
  const json& rows = fields.list("rows");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    MeasuredRow row = row_of(rows[i], run.ranks, fmt::format("{}: row {}", where, i));
    if (has_schedule(row.question.routine)) run.rows.push_back(row);
  }
  if (run.rows.empty())
    throw InvalidArgument(
        where + ": rows: expected a row of a collective; mccl plan does not predict sendrecv");
  return run;
}

double Comparison::deviation() const {
  return (choice.predicted_s * 1e6 / std::max(row.time_us, 1e-6) - 1) * 100;
}

std::vector<Comparison> compare(const MeasuredRun& run) {
  std::vector<Comparison> comparisons;
  for (const MeasuredRow& row : run.rows)
    comparisons.push_back({row, choose(row.question, run.facts)});
  return comparisons;
}

std::size_t count_outside(const std::vector<Comparison>& comparisons, double tolerance) {
  return static_cast<std::size_t>(std::ranges::count_if(
      comparisons, [&](const Comparison& c) { return std::abs(c.deviation()) > tolerance; }));
}

std::string comparison_text(const MeasuredRun& run, const std::vector<Comparison>& comparisons,
                            double tolerance) {
  cluster::TableRows rows = {{"# collective", "size (B)", "in place", "algorithm", "chunk (B)",
                              "predicted (us)", "time (us)", "p50 (us)", "deviation (%)"}};
  for (const Comparison& c : comparisons) {
    const Question& question = c.row.question;
    const auto chunk =
        static_cast<double>(c.choice.chunk) * static_cast<double>(element_bytes(question));
    rows.push_back({std::string(bench::info_of(question.routine).name),
                    std::to_string(question.shape.bytes), question.in_place ? "yes" : "no",
                    std::string(schedule::name_of(c.choice.algorithm)), bytes_text(chunk),
                    number_text(c.choice.predicted_s * 1e6), number_text(c.row.time_us),
                    number_text(c.row.p50_us), fmt::format("{:+.0f}", c.deviation())});
  }
  const std::size_t outside = count_outside(comparisons, tolerance);
  return fmt::format(
      "# {} ranks, transport {}\n{}# {} of {} predictions are within {:g} % of the measured time\n",
      run.ranks, run.transport, cluster::table_text(rows), comparisons.size() - outside,
      comparisons.size(), tolerance);
}

std::string comparison_json(const MeasuredRun& run, const std::vector<Comparison>& comparisons) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const Comparison& c : comparisons) {
    const Question& question = c.row.question;
    rows.push_back({{"collective", bench::info_of(question.routine).name},
                    {"bytes", question.shape.bytes},
                    {"in_place", question.in_place},
                    {"algorithm", schedule::name_of(c.choice.algorithm)},
                    {"chunk_bytes", c.choice.chunk * element_bytes(question)},
                    {"predicted_us", c.choice.predicted_s * 1e6},
                    {"time_us", c.row.time_us},
                    {"p50_us", c.row.p50_us},
                    {"deviation_percent", c.deviation()}});
  }
  const Json whole = {{"version", MCCL_VERSION},
                      {"ranks", run.ranks},
                      {"transport", run.transport},
                      {"costs", facts_json(run.facts)},
                      {"rows", rows}};
  return whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mccl::cli::plan
