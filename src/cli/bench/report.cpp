#include "cli/bench/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

/// Keeps the keys in the order in which they are written here.
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
          {"algorithm", measured.algorithm}};
}

Json rows_json(const Result& result) {
  Json rows = Json::array();
  for (const Row& row : result.rows) {
    if (row.out_of_place) rows.push_back(half_json(row, *row.out_of_place, false));
    if (row.in_place) rows.push_back(half_json(row, *row.in_place, true));
  }
  return rows;
}

}  // namespace

std::uint64_t wrong_elements(const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  for (const Row& row : rows) {
    for (const auto& half : {row.out_of_place, row.in_place})
      if (half) wrong += half->wrong.value_or(0);
  }
  return wrong;
}

std::string costs_json(const Costs& costs) { return json_of(costs).dump(); }

std::string to_json(const Result& result) {
  const Json json = {{"version", result.setup.version},
                     {"cpu", result.setup.cpu},
                     {"cores", result.setup.cores},
                     {"ranks", result.setup.ranks},
                     {"one_host", result.setup.one_host},
                     {"transport", result.setup.transport},
                     {"algorithm", result.setup.algorithm},
                     {"compression", result.setup.compression},
                     {"bounds", result.bounds ? bounds_json(*result.bounds) : Json(nullptr)},
                     {"costs", json_of(result.costs)},
                     {"rows", rows_json(result)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_csv(const Result& result) {
  std::string text =
      "collective,bytes,count,dtype,op,root,in_place,time_us,p50_us,p99_us,algbw,busbw,wrong,"
      "iterations,error,sent_bytes,sent_bytes_exact,algorithm\n";
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

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  errno = 0;
  file << text << std::flush;
  if (!file) throw Error(fmt::format("cannot write {}: {}", in_quotes(path), std::strerror(errno)));
}

void check_writable(const std::string& flag, const std::string& path) {
  if (path.empty()) return;
  const bool existed = std::filesystem::exists(path);
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) {
    throw InvalidArgument(fmt::format("{} {}: {}; give a file that can be written", flag,
                                      in_quotes(path), std::strerror(errno)));
  }
  if (!existed) std::remove(path.c_str());
}

}  // namespace mccl::cli::bench
