#include "cli/bench/report.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/kit/quantity.h"

namespace mccl::cli::bench {
namespace {

/// Keeps keys in the order of their insertion; nlohmann::json would sort them.
using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json bounds_json(const Bounds& bounds) {
  Json json = {{"buffer_bytes", bounds.buffer_bytes},
               {"copy_one_gbs", bounds.copy_one_gbs},
               {"copy_all_gbs", bounds.copy_all_gbs},
               {"pass_all_gbs", bounds.pass_all_gbs}};
  const auto& loopback = bounds.loopback;
  json["tcp_one_way_gbs"] = loopback ? Json(loopback->one_way_gbs) : Json(nullptr);
  json["tcp_both_ways_gbs"] = loopback ? Json(loopback->both_ways_gbs) : Json(nullptr);
  json["tcp_round_trip_us"] = loopback ? Json(loopback->round_trip_us) : Json(nullptr);
  return json;
}

Json json_of(const Costs& costs) {
  Json json = Json::object();
  for (const auto& [name, value] : costs.numbers) json[name] = value;
  json["nodes"] = costs.nodes;
  return json;
}

Json half_json(const Row& row, const Measurement& measured, bool in_place) {
  const bool moves_bytes = row.shape.bytes > 0;
  return {{"collective", info_of(row.routine).name},
          {"bytes", row.shape.bytes},
          {"count", row.shape.part},
          {"dtype", moves_bytes ? Json(name_of(row.dtype)) : Json(nullptr)},
          {"op", row.op ? Json(name_of(*row.op)) : Json(nullptr)},
          {"root", or_null(row.root)},
          {"in_place", in_place},
          {"time_us", measured.timing.time_us},
          {"p50_us", measured.timing.p50_us},
          {"p99_us", measured.timing.p99_us},
          {"algbw", moves_bytes ? Json(measured.algbw_gbs) : Json(nullptr)},
          {"busbw", moves_bytes ? Json(measured.busbw_gbs) : Json(nullptr)},
          {"wrong", or_null(measured.wrong)},
          {"iterations", measured.timing.iterations},
          {"error", or_null(measured.error)},
          {"sent_bytes", row.sent ? Json(row.sent->rounded) : Json(nullptr)},
          {"sent_bytes_exact", row.sent ? Json(row.sent->exact) : Json(nullptr)},
          {"algorithm", measured.algorithm},
          {"overlap_us", measured.overlap ? Json(measured.overlap->both_us) : Json(nullptr)},
          {"hidden", measured.overlap ? Json(measured.overlap->hidden()) : Json(nullptr)}};
}

Json rows_json(const Result& result) {
  Json rows = Json::array();
  for (const Row& row : result.rows) {
    if (row.out_of_place) rows.push_back(half_json(row, *row.out_of_place, false));
    if (row.in_place) rows.push_back(half_json(row, *row.in_place, true));
  }
  return rows;
}

constexpr const char* kNone = "-";
constexpr const char* kAlgorithmColumn = "  {:>18}";

constexpr const char* kLeftHalf = "{:>11} {:>11} {:>5} {:>10} {:>4}";
constexpr const char* kHalf = "  {:>9} {:>9} {:>9} {:>7} {:>7} {:>7}";

std::string half_of(const std::optional<Measurement>& measured, bool moves_bytes) {
  if (!measured) return fmt::format(kHalf, kNone, kNone, kNone, kNone, kNone, kNone);
  const Timing& timing = measured->timing;
  const auto rate = [&](double gbs) { return moves_bytes ? rate_text(gbs) : kNone; };
  return fmt::format(kHalf, number_text(timing.time_us), number_text(timing.p50_us),
                     number_text(timing.p99_us), rate(measured->algbw_gbs),
                     rate(measured->busbw_gbs),
                     measured->error   ? fmt::format("{:.1e}", *measured->error)
                     : measured->wrong ? fmt::format("{}", *measured->wrong)
                                       : kNone);
}

std::string algorithm_text(const Row& row) {
  if (!row.out_of_place || !row.in_place)
    return (row.in_place ? row.in_place : row.out_of_place)->algorithm;
  const std::string& first = row.out_of_place->algorithm;
  return first == row.in_place->algorithm ? first : first + "/" + row.in_place->algorithm;
}

}  // namespace

std::string setup_text(const Setup& setup) {
  const std::string ranks = fmt::format("{} rank{}", setup.ranks, setup.ranks == 1 ? "" : "s");
  return fmt::format("# mccl {}: {}, {} ({} cores), transport {}, algorithm {}{}{}\n",
                     setup.version,
                     setup.one_host ? ranks + " on this machine" : "a job of " + ranks, setup.cpu,
                     setup.cores, setup.transport, setup.algorithm,
                     setup.compression == "none" ? "" : ", compression " + setup.compression,
                     setup.shared_buffers ? ", shared buffers" : "");
}

std::string bounds_text(const Bounds& bounds, int ranks) {
  std::string text =
      fmt::format("# measured bounds of this machine, with a buffer of {} per process:\n",
                  text_of_size(bounds.buffer_bytes));
  const auto line = [&](const std::string& what, double value, std::string_view unit) {
    fmt::format_to(std::back_inserter(text), "#   {:<52} {:>8.2f} {}\n", what, value, unit);
  };
  line("copy, one process", bounds.copy_one_gbs, "GB/s");
  line(fmt::format("copy, {} processes", ranks), bounds.copy_all_gbs, "GB/s each");
  line(fmt::format("copy to a 256K buffer and back, {} processes", ranks), bounds.pass_all_gbs,
       "GB/s each");
  if (!bounds.loopback) return text;
  line("TCP on loopback, one way", bounds.loopback->one_way_gbs, "GB/s");
  line("TCP on loopback, both ways at once", bounds.loopback->both_ways_gbs, "GB/s each way");
  line("TCP on loopback, round trip of 8 bytes", bounds.loopback->round_trip_us, "us");
  return text;
}

std::string heading(Routine routine, bool may_be_rounded) {
  const auto names = fmt::format(kHalf, "time", "p50", "p99", "algbw", "busbw",
                                 may_be_rounded ? "error" : "wrong");
  const auto units = fmt::format(kHalf, "us", "us", "us", "GB/s", "GB/s", "");
  const std::string blank = fmt::format(kLeftHalf, "", "", "", "", "");
  const std::string title = fmt::format("# {}", info_of(routine).name);
  std::string text = fmt::format("#\n{:<{}}  {:^{}}  {:^{}}\n", title, blank.size(), "out of place",
                                 names.size() - 2, "in place", names.size() - 2);
  std::string columns = fmt::format(kLeftHalf, "size", "count", "type", "op", "root") + names +
                        names + fmt::format(kAlgorithmColumn, "algorithm");
  std::string below = fmt::format(kLeftHalf, "B", "elements", "", "", "") + units + units;
  columns.front() = below.front() = '#';
  below.erase(below.find_last_not_of(' ') + 1);
  while (text.size() > 1 && text[text.size() - 2] == ' ') text.erase(text.size() - 2, 1);
  return text + columns + "\n" + below + "\n";
}

std::string row_text(const Row& row) {
  const bool moves_bytes = row.shape.bytes > 0;
  if (!row.out_of_place && !row.in_place)
    return fmt::format("# {:>10} B: not measured; the call would use algorithm {}\n",
                       row.shape.bytes, row.instead);
  return fmt::format(kLeftHalf, row.shape.bytes, row.shape.part,
                     moves_bytes ? name_of(row.dtype) : kNone, row.op ? name_of(*row.op) : kNone,
                     row.root ? fmt::format("{}", *row.root) : kNone) +
         half_of(row.out_of_place, moves_bytes) + half_of(row.in_place, moves_bytes) +
         fmt::format(kAlgorithmColumn, algorithm_text(row)) + "\n";
}

std::string calls_refused(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    if (row.instead.empty()) continue;
    if (!text.empty()) text += ", ";
    text += info_of(row.routine).name;
    if (row.shape.bytes > 0) text += " of " + text_of_size(row.shape.bytes);
    if (row.out_of_place) text += " in place";
  }
  return text;
}

std::string sent_text(const std::vector<Row>& rows, std::string_view codec) {
  std::string text;
  for (const Row& row : rows) {
    if (!row.sent) continue;
    const auto rounded = static_cast<double>(row.sent->rounded);
    const auto exact = static_cast<double>(row.sent->exact);
    if (text.empty()) {
      text = fmt::format("# bytes that a rank sends per call, with {} and without compression:\n",
                         codec);
    }
    fmt::format_to(std::back_inserter(text), "#   {} {:>6}: {:>12} {:>12}  {:.2f} times fewer\n",
                   info_of(row.routine).name, text_of_size(row.shape.bytes), row.sent->rounded,
                   row.sent->exact, rounded > 0 ? exact / rounded : 1.0);
  }
  return text;
}

std::string overlap_text(const std::vector<Row>& rows) {
  constexpr const char* kLine = "#   {:<14} {:>5} {:<12} {:>10} {:>10} {:>10} {:>9}\n";
  std::string text;
  const auto add = [&](const Row& row, const std::optional<Measurement>& half, bool in_place) {
    if (!half || !half->overlap) return;
    if (text.empty()) {
      text = "# a call while the caller computes for as long as the call takes:\n" +
             fmt::format(kLine, "", "size", "", "call us", "compute us", "both us", "hidden");
    }
    const Overlap& overlap = *half->overlap;
    text += fmt::format(kLine, info_of(row.routine).name, text_of_size(row.shape.bytes),
                        in_place ? "in place" : "out of place", number_text(overlap.call_us),
                        number_text(overlap.compute_us), number_text(overlap.both_us),
                        fmt::format("{:.0f} %", 100 * overlap.hidden()));
  };
  for (const Row& row : rows) {
    add(row, row.out_of_place, false);
    add(row, row.in_place, true);
  }
  return text;
}

std::uint64_t wrong_elements(const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  for (const Row& row : rows) {
    for (const auto& half : {row.out_of_place, row.in_place})
      if (half) wrong += half->wrong.value_or(0);
  }
  return wrong;
}

std::string to_json(const Result& result) {
  const Json json = {{"version", result.setup.version},
                     {"cpu", result.setup.cpu},
                     {"cores", result.setup.cores},
                     {"ranks", result.setup.ranks},
                     {"one_host", result.setup.one_host},
                     {"transport", result.setup.transport},
                     {"algorithm", result.setup.algorithm},
                     {"compression", result.setup.compression},
                     {"shared_buffers", result.setup.shared_buffers},
                     {"bounds", result.bounds ? bounds_json(*result.bounds) : Json(nullptr)},
                     {"costs", json_of(result.costs)},
                     {"rows", rows_json(result)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_csv(const Result& result) {
  std::string text =
      "collective,bytes,count,dtype,op,root,in_place,time_us,p50_us,p99_us,algbw,busbw,wrong,"
      "iterations,error,sent_bytes,sent_bytes_exact,algorithm,overlap_us,hidden\n";
  for (const Json& row : rows_json(result)) {
    std::string separator;
    for (const Json& value : row) {
      text += separator;
      if (value.is_string()) {
        text += value.get<std::string>();
      } else if (!value.is_null()) {
        text += value.dump();
      }
      separator = ",";
    }
    text += "\n";
  }
  return text;
}

}  // namespace mccl::cli::bench
