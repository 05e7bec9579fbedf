#include "cli/sight/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/sight/fields.h"
#include "mccl/error.h"

namespace mccl::cli::sight {
namespace {

/// Latest accepted time, in nanoseconds since 1970; it lies in 2043. Differences between accepted
/// times do not overflow.
constexpr std::int64_t kLatest = INT64_MAX / 4;
constexpr std::string_view kStates[] = {"queued", "running", "done", "failed", "enqueued"};

RecordedGroup read_recorded_group(const json& object, std::string_view origin) {
  const Fields fields(object, origin);
  RecordedGroup group;
  group.index = fields.integer("index", 0, UINT32_MAX);
  group.name = fields.text("name");
  group.id = fields.text("id");
  group.members = fields.ranks("members");
  if (group.members.empty() || group.members.size() > kMostRanks) fields.refuse("members");
  group.rank =
      static_cast<int>(fields.integer("rank", 0, static_cast<long long>(group.members.size()) - 1));
  return group;
}

RecordedCall read_call(const json& object, std::string_view origin, int members) {
  const Fields fields(object, origin);
  const auto optional_rank = [&](const char* name) {
    return object.contains(name) ? static_cast<int>(fields.integer(name, -1, members - 1)) : -1;
  };
  const auto optional_text = [&](const char* name) {
    return object.contains(name) ? fields.text(name) : std::string();
  };
  const auto optional_time = [&](const char* name) -> std::int64_t {
    return object.contains(name) ? fields.integer(name, 0, kLatest) : 0;
  };
  RecordedCall call;
  call.number = fields.integer("number", 0, INT64_MAX);
  call.call = fields.text("call");
  call.dtype = fields.text("dtype");
  call.state = fields.text("state");
  call.sequence = fields.integer("sequence", 0, INT64_MAX);
  call.bytes = fields.integer("bytes", 0, INT64_MAX);
  call.op = optional_text("op");
  call.algorithm = optional_text("algorithm");
  call.transport = optional_text("transport");
  call.site = optional_text("site");
  call.peer = optional_rank("peer");
  call.root = optional_rank("root");
  call.waits_for = optional_rank("waits_for");
  call.submitted = optional_time("submitted_ns");
  call.started = optional_time("started_ns");
  call.ended = optional_time("ended_ns");
  if (std::ranges::find(kStates, call.state) == std::end(kStates)) fields.refuse("state");
  return call;
}

}  // namespace

FlightRecord parse_record(std::string_view text, const std::string& origin) {
  const json object = parse_json(text, origin, "a flight record of mccl");
  const Fields fields(object, origin);
  fields.require_format("mccl flight record");
  FlightRecord record;
  record.origin = origin;
  record.job = fields.text("job");
  record.host = fields.text("host");
  record.size = static_cast<int>(fields.integer("size", 1, kMostRanks));
  record.rank = static_cast<int>(fields.integer("rank", 0, record.size - 1));
  record.pid = static_cast<int>(fields.integer("pid", 0, INT32_MAX));
  record.written = fields.integer("unix_ns", 0, kLatest);
  std::map<long long, std::size_t> places;
  for (const json& each : fields.list("groups")) {
    record.groups.push_back(read_recorded_group(each, origin));
    places[record.groups.back().index] = record.groups.size() - 1;
  }
  for (const json& each : fields.list("calls")) {
    const auto place = places.find(Fields(each, origin).integer("group", 0, UINT32_MAX));
    if (place == places.end()) continue;
    const auto members = static_cast<int>(record.groups[place->second].members.size());
    record.calls.push_back(read_call(each, origin, members));
    record.calls.back().group = place->second;
  }
  return record;
}

void check_one_job(const std::vector<FlightRecord>& records) {
  std::map<int, std::string> seen;
  for (const FlightRecord& record : records) {
    const FlightRecord& first = records.front();
    if (record.job != first.job || record.size != first.size) {
      throw InvalidArgument(
          fmt::format("{} is of job {}, but {} is of job {}; give the records of one job",
                      first.origin, first.job, record.origin, record.job));
    }
    const auto [place, is_new] = seen.emplace(record.rank, record.origin);
    if (!is_new) {
      throw InvalidArgument(fmt::format("{} and {} are both of rank {}; omit one of them",
                                        place->second, record.origin, record.rank));
    }
  }
}

}  // namespace mccl::cli::sight
