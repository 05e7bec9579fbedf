#include "cli/sight/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/value_text.h"
#include "cli/kit/fields.h"
#include "mccl/error.h"
#include "mccl/types.h"

namespace mccl::cli::sight {
namespace {

using nlohmann::json;

/// In nanoseconds since 1970, in 2043. Differences between accepted times do not overflow.
constexpr std::int64_t kLatest = INT64_MAX / 4;
constexpr std::string_view kStates[] = {"queued", "running", "done", "failed", "enqueued"};

RecordedGroup read_recorded_group(const json& object, std::string_view origin) {
  const Fields fields(object, origin);
  RecordedGroup group;
  group.index = fields.integer("index", 0, UINT32_MAX);
  group.name = fields.text("name");
  group.id = fields.text("id");
  group.members = fields.integers("members", Fields::kMostRanks);
  if (group.members.empty() || group.members.size() > Fields::kMostRanks) fields.refuse("members");
  group.rank =
      static_cast<int>(fields.integer("rank", 0, static_cast<long long>(group.members.size()) - 1));
  return group;
}

RecordedCall read_call(const json& object, std::string_view origin, int members) {
  const Fields fields(object, origin);
  const auto optional_rank = [&](const char* name) {
    return fields.has(name) ? static_cast<int>(fields.integer(name, -1, members - 1)) : -1;
  };
  const auto optional_text = [&](const char* name) {
    return fields.has(name) ? fields.text(name) : std::string();
  };
  const auto optional_time = [&](const char* name) -> std::int64_t {
    return fields.has(name) ? fields.integer(name, 0, kLatest) : 0;
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

using Json = nlohmann::ordered_json;

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// Times since 1970 would have too many digits for the viewer.
std::int64_t beginning_of(const std::vector<FlightRecord>& records) {
  std::int64_t first = INT64_MAX;
  for (const FlightRecord& record : records) {
    first = std::min(first, record.written);
    for (const RecordedCall& call : record.calls)
      if (call.arrived() != 0) first = std::min(first, call.arrived());
  }
  return first;
}

Json details_of(const RecordedCall& call, const RecordedGroup& group) {
  Json details = {{"group", group.name},        {"number", call.sequence},
                  {"bytes", call.bytes},        {"dtype", call.dtype},
                  {"state", call.state},        {"algorithm", call.algorithm},
                  {"transport", call.transport}};
  if (call.peer >= 0) details["peer"] = group.members[static_cast<std::size_t>(call.peer)];
  if (call.root >= 0) details["root"] = group.members[static_cast<std::size_t>(call.root)];
  if (call.waits_for >= 0)
    details["waits for rank"] = group.members[static_cast<std::size_t>(call.waits_for)];
  if (!call.site.empty()) details["called at"] = call.site;
  return details;
}

/// A group has the same number on all ranks, because viewers show the number.
std::map<std::string, int> rows_of(const std::vector<FlightRecord>& records) {
  std::map<std::string, int> rows;
  for (const FlightRecord& record : records)
    for (const RecordedGroup& group : record.groups)
      rows.try_emplace(group.id, static_cast<int>(rows.size()) + 1);
  return rows;
}

/// A collective is a bar in its group's row, because a group runs one at a time. Messages and times
/// in the queue may overlap, so they are asynchronous events, which viewers show in further rows.
void add_events(Json& events, const FlightRecord& record, const RecordedCall& call, int row,
                std::int64_t beginning) {
  if (call.arrived() == 0) return;
  const RecordedGroup& group = record.groups[call.group];
  const std::int64_t end = call.ended == 0 ? record.written : call.ended;
  const auto at = [&](std::int64_t time) { return microseconds(time - beginning); };
  const Json common = {{"pid", record.rank}, {"tid", row}, {"args", details_of(call, group)}};
  const auto add = [&](const std::string& name, const char* phase, std::int64_t time) -> Json& {
    Json event = {{"name", name}, {"cat", call.call}, {"ph", phase}, {"ts", at(time)}};
    event.update(common);
    events.push_back(std::move(event));
    return events.back();
  };
  const auto add_async = [&](const std::string& name, std::int64_t from, std::int64_t to) {
    // If the id were global, the viewer would not show the events among those of their rank.
    const Json id = {{"local", std::to_string(call.number)}};
    add(name, "b", from)["id2"] = id;
    add(name, "e", to)["id2"] = id;
  };
  if (call.is_on_device()) {
    add(call.call, "i", call.arrived())["s"] = "t";
    return;
  }
  if (call.is_message()) return add_async(call.call, call.arrived(), end);
  const std::int64_t start = call.started == 0 ? end : call.started;
  if (call.submitted != 0 && start > call.submitted)
    add_async("queued " + call.call, call.submitted, start);
  if (call.started != 0)
    add(call.call, "X", start)["dur"] = microseconds(std::max<std::int64_t>(end - start, 0));
}

/// Writes JSON values as a pickle of protocol 2 that names no function, so that also readers that
/// allow none accept it.
class Pickle {
 public:
  explicit Pickle(const Json& value) {
    text_ = "\x80\x02";
    add(value);
    text_ += '.';
  }
  const std::string& text() const { return text_; }

 private:
  void add_word(char code, std::uint32_t value) {
    text_ += code;
    for (int byte = 0; byte < 4; ++byte) text_ += static_cast<char>(value >> (8 * byte) & 0xff);
  }
  void add_text(const std::string& text) {
    add_word('X', static_cast<std::uint32_t>(text.size()));
    text_ += text;
  }
  void add(const Json& value) {
    switch (value.type()) {
      case Json::value_t::object:
        text_ += '}';
        for (const auto& [key, each] : value.items()) {
          add_text(key);
          add(each);
          text_ += 's';
        }
        break;
      case Json::value_t::array:
        text_ += ']';
        for (const Json& each : value) {
          add(each);
          text_ += 'a';
        }
        break;
      case Json::value_t::string:
        add_text(value.get<std::string>());
        break;
      case Json::value_t::boolean:
        text_ += value.get<bool>() ? '\x88' : '\x89';
        break;
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned:
        text_ += fmt::format("L{}L\n", value.get<std::int64_t>());
        break;
      default:
        text_ += 'N';
    }
  }

  std::string text_;
};

std::size_t element_bytes(const std::string& dtype) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name_of(static_cast<DType>(i)) == dtype) return size_of(static_cast<DType>(i));
  return 1;
}

std::string torch_dtype(const std::string& dtype) {
  static const std::map<std::string, std::string> kNames = {
      {"boolean", "Bool"}, {"u8", "Byte"},    {"i8", "Char"},          {"i16", "Short"},
      {"i32", "Int"},      {"i64", "Long"},   {"f16", "Half"},         {"bf16", "BFloat16"},
      {"f32", "Float"},    {"f64", "Double"}, {"c64", "ComplexFloat"}, {"c128", "ComplexDouble"}};
  const auto found = kNames.find(dtype);
  return found == kNames.end() ? dtype : found->second;
}

/// The analyser knows only the backends nccl and xccl, and expects both ranks in the name of a
/// message.
std::string torch_name(const RecordedCall& call, const RecordedGroup& group) {
  if (call.call == "barrier") return "nccl:all_reduce_barrier";
  if (call.call == "send") return fmt::format("nccl:send {}->{}", group.rank, call.peer);
  if (call.call == "recv") return fmt::format("nccl:recv {}<-{}", group.rank, call.peer);
  return "nccl:" + call.call;
}

/// At most one frame: the place in the program that made the call.
Json frames_of(const RecordedCall& call) {
  if (call.site.empty()) return Json::array();
  const std::size_t colon = call.site.rfind(':');
  const std::string line = colon == std::string::npos ? "" : call.site.substr(colon + 1);
  return Json::array({{{"name", call.call},
                       {"filename", call.site.substr(0, colon)},
                       {"line", parse_integer(line).value_or(0)}}});
}

Json torch_entry(const RecordedCall& call, const RecordedGroup& group) {
  const auto ranks = static_cast<long long>(group.members.size());
  const long long count = call.bytes / static_cast<long long>(element_bytes(call.dtype));
  const bool gathers = call.call == "all_gather" || call.call == "gather";
  const bool scatters = call.call == "reduce_scatter" || call.call == "scatter";
  const Json dtypes = Json::array({torch_dtype(call.dtype)});
  const auto sizes = [](long long n) { return Json::array({Json::array({n})}); };
  const auto time = [](std::int64_t ns) { return ns == 0 ? Json(nullptr) : Json(ns); };
  return {{"record_id", call.number},
          {"pg_id", group.index},
          {"process_group", Json::array({group.id, group.name})},
          {"collective_seq_id", call.is_message() ? 0 : call.sequence},
          {"p2p_seq_id", call.is_message() ? call.sequence : 0},
          {"op_id", call.number},
          {"profiling_name", torch_name(call, group)},
          {"time_created_ns", call.arrived()},
          {"duration_ms", nullptr},
          {"input_sizes", sizes(gathers ? count / ranks : count)},
          {"input_dtypes", dtypes},
          {"output_sizes", sizes(scatters ? count / ranks : count)},
          {"output_dtypes", dtypes},
          {"state", call.state == "done"                            ? "completed"
                    : call.state == "queued" || call.is_on_device() ? "scheduled"
                                                                    : "started"},
          {"time_discovered_started_ns", time(call.started)},
          {"time_discovered_completed_ns", time(call.ended)},
          {"retired", call.has_ended()},
          {"timeout_ms", 0},
          {"is_p2p", call.is_message()},
          {"frames", frames_of(call)}};
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
  record.size = static_cast<int>(fields.integer("size", 1, Fields::kMostRanks));
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

std::string chrome_trace(const std::vector<FlightRecord>& records) {
  const std::int64_t beginning = beginning_of(records);
  Json events = Json::array();
  const std::map<std::string, int> rows = rows_of(records);
  const auto name = [&](const char* what, int pid, int tid, const std::string& text) {
    events.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{"name", text}}}});
  };
  for (const FlightRecord& record : records) {
    name("process_name", record.rank, 0,
         fmt::format("rank {} ({}, process {})", record.rank, record.host, record.pid));
    events.push_back({{"name", "process_sort_index"},
                      {"ph", "M"},
                      {"pid", record.rank},
                      {"args", {{"sort_index", record.rank}}}});
    for (const RecordedGroup& group : record.groups)
      name("thread_name", record.rank, rows.at(group.id), fmt::format("group {}", group.name));
    for (const RecordedCall& call : record.calls)
      add_events(events, record, call, rows.at(record.groups[call.group].id), beginning);
  }
  const Json trace = {{"displayTimeUnit", "ns"},
                      {"otherData", {{"beginning_unix_ns", beginning}}},
                      {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string torch_dump(const FlightRecord& record) {
  Json groups = Json::object();
  for (const RecordedGroup& group : record.groups) {
    groups[group.id] = {{"name", group.id},
                        {"desc", group.name},
                        {"ranks", fmt::format("[{}]", fmt::join(group.members, ", "))}};
  }
  Json entries = Json::array();
  for (const RecordedCall& call : record.calls)
    entries.push_back(torch_entry(call, record.groups[call.group]));
  return Pickle({{"version", "2.10"},
                 {"pg_config", std::move(groups)},
                 {"pg_status", Json::object()},
                 {"entries", std::move(entries)}})
      .text();
}

}  // namespace mccl::cli::sight
