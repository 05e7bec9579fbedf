#include "cli/plan/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "cli/kit/quantity.h"
#include "cli/plan/facts.h"
#include "mccl/error.h"
#include "schedule/cable_map.h"

namespace mccl::cli::plan {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(std::string_view origin, const std::string& found) {
  throw InvalidArgument(fmt::format(
      R"({}: expected a list of cables such as {{"between": [0, 1], "rate": "10Gbit", "latency": "20us"}}; found {})",
      origin, found));
}

Cable cable_of(const json& item, std::string_view origin) {
  if (!item.is_object()) refuse(origin, item.dump());
  Cable cable;
  bool has_ends = false;
  for (const auto& [name, value] : item.items()) {
    if (name == "between" && value.is_array() && value.size() == 2 &&
        value[0].is_number_integer() && value[1].is_number_integer()) {
      cable.a = value[0].get<int>();
      cable.b = value[1].get<int>();
      has_ends = true;
    } else if (name == "rate" && value.is_string()) {
      cable.bytes_per_s = parse_rate(fmt::format("{}: rate", origin), value.get<std::string>());
    } else if (name == "latency" && value.is_string()) {
      cable.latency_s = parse_seconds(fmt::format("{}: latency", origin), value.get<std::string>());
    } else {
      refuse(origin, item.dump());
    }
  }
  if (!has_ends) refuse(origin, item.dump());
  return cable;
}

}  // namespace

Cabling parse_links(std::string_view text, std::string_view origin, int ranks) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_array())
    refuse(origin, document.is_discarded() ? "text that is not JSON" : document.dump());
  std::vector<Cable> cables;
  for (const json& item : document) cables.push_back(cable_of(item, origin));
  Cabling cabling(ranks, std::move(cables));
  const std::vector<std::vector<int>> parts = cabling.parts();
  if (parts.size() > 1) {
    std::string told;
    for (const auto& part : parts)
      told += fmt::format("{}{{{}}}", told.empty() ? "" : " and ", fmt::join(part, ", "));
    throw InvalidArgument(fmt::format(
        "{}: the cables do not join all {} ranks, only {}; add a cable", origin, ranks, told));
  }
  return cabling;
}

std::string links_text(const Cabling& cabling, double latency_s, double bytes_per_s) {
  std::vector<int> everyone(static_cast<std::size_t>(cabling.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const schedule::CableMap map(cabling, everyone, latency_s, bytes_per_s);
  std::string text = fmt::format("# {} cables", cabling.cables().size());
  if (cabling.is_one_network()) return text + ": every rank is connected to every other\n";
  const auto out = std::back_inserter(text);
  if (map.ring().empty()) {
    fmt::format_to(out, "\n#   ring: none\n");
  } else {
    fmt::format_to(out, "\n#   ring: {} - {}\n", fmt::join(map.ring(), " - "), map.ring().front());
  }
  std::vector<std::string> branches;
  for (std::size_t rank = 0; rank < map.tree().size(); ++rank) {
    if (map.tree()[rank] >= 0) branches.push_back(fmt::format("{} - {}", map.tree()[rank], rank));
  }
  fmt::format_to(out, "#   tree: {}\n", fmt::join(branches, ", "));
  return text;
}

}  // namespace mccl::cli::plan
