#include "cli/plan/facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "base/nearest.h"
#include "base/value_text.h"
#include "cli/bench/agree.h"
#include "cli/bench/local_job.h"
#include "cli/bench/report.h"
#include "cli/bench/sizes.h"
#include "cli/command.h"
#include "cli/kit/pipe.h"
#include "mccl/context.h"
#include "mccl/error.h"
#include "schedule/facts.h"

namespace mccl::cli::plan {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kRates[] = {{"kbit", 1e3 / 8},  {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8},
                           {"Tbit", 1e12 / 8}, {"kB", 1e3},       {"MB", 1e6},
                           {"GB", 1e9},        {"TB", 1e12}};
constexpr double kLongest = 60;
constexpr double kShortest = 1e-9;
constexpr double kSlowest = 100;
constexpr double kFastest = 1e15;

std::optional<double> parse(std::string_view text, std::span<const Unit> units) {
  const std::size_t split = text.find_first_not_of("0123456789.");
  if (split == std::string_view::npos) return {};
  const std::optional<double> number = parse_number(text.substr(0, split));
  std::string_view name = text.substr(split);
  while (name.starts_with(' ')) name.remove_prefix(1);
  for (const Unit& unit : units)
    if (equal_ignoring_case(name, unit.name) && name.back() == unit.name.back() && number)
      return *number * unit.factor;
  return {};
}

std::string text_of(const schedule::FactInfo& info, double value) {
  if (info.unit == "s") return text_of_seconds(value);
  if (info.unit == "B/s") return text_of_rate(value);
  if (info.unit == "B") return bench::text_of_size(static_cast<std::size_t>(value));
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

/// Maximum size of the facts as text, in bytes. It fits into a pipe that is not read yet.
constexpr std::size_t kLongestTold = 16384;

void tell(const Costs& costs, int descriptor) {
  const std::string text = bench::costs_json(costs);
  const ssize_t n = ::write(descriptor, text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size())) throw Error("cannot report the measured facts");
}

}  // namespace

double parse_seconds(std::string_view flag, std::string_view text) {
  const std::optional<double> seconds = parse(text, kTimes);
  if (seconds && *seconds >= kShortest && *seconds <= kLongest) return *seconds;
  throw InvalidArgument(fmt::format(
      "{}: {} is not a time; expected one from 1ns to 60s with its unit, such as 15us or 0.2ms",
      flag, in_quotes(text)));
}

double parse_rate(std::string_view flag, std::string_view text) {
  std::string_view rate = text;
  if (rate.ends_with("/s")) rate.remove_suffix(2);
  const std::optional<double> bytes = parse(rate, kRates);
  if (bytes && *bytes >= kSlowest && *bytes <= kFastest) return *bytes;
  throw InvalidArgument(
      fmt::format("{}: {} is not a rate; expected one with its unit, such as 10Gbit or 1.25GB/s",
                  flag, in_quotes(text)));
}

std::string text_of_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

std::string text_of_rate(double bytes_per_s) {
  return fmt::format("{:.4g} GB/s", bytes_per_s / 1e9);
}

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
    throw InvalidArgument(
        fmt::format("costs: nodes is neither a list of {} nodes nor empty", ranks));
  facts.nodes = nodes->get<std::vector<int>>();
  return facts;
}

std::optional<schedule::Facts> measure(int ranks) {
  const Config config = Config::from_environment();
  if (!config.calibrate) {
    throw InvalidArgument(
        "--measure: MCCL_CALIBRATE disables measurements; unset it, or leave out "
        "--measure");
  }
  Pipe pipe = make_pipe();
  const int status = bench::run_local_job(ranks, "mccl plan", config, [&](Context& context) {
    bench::meet(*context.world());  // The ranks have agreed on the facts after this.
    if (context.rank() == 0) tell(context.costs(), pipe.writer.get());
  });
  pipe.writer.close();
  if (status != kGood) return {};
  std::string text(kLongestTold, '\0');
  const ssize_t n = read_some(pipe.reader.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return facts_of_json(nlohmann::json::parse(text), ranks);
}

}  // namespace mccl::cli::plan
