// Flight records of several ranks, as mccl trace reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::sight {

struct RecordedGroup {
  long long index = 0;  ///< In the record.
  std::string name;
  std::string id;  ///< The same on all members.
  int rank = 0;
  std::vector<int> members;  ///< Ranks of the job.
};

struct RecordedCall {
  long long number = 0;
  std::size_t group = 0;  ///< Index into FlightRecord::groups.
  std::string call;
  std::string op = {};  ///< Empty for a call that reduces nothing.
  std::string dtype;
  std::string algorithm = {};
  std::string transport = {};
  std::string state;
  long long sequence = 0;
  long long bytes = 0;
  int peer = -1;  ///< The other rank of a message.
  int root = -1;
  int waits_for = -1;
  /// Nanoseconds since 1970; 0 if unknown. align() makes the times of all ranks comparable.
  std::int64_t submitted = 0;
  std::int64_t started = 0;
  std::int64_t ended = 0;

  bool is_message() const { return call == "send" || call == "recv"; }
  bool has_ended() const { return state == "done" || state == "failed"; }
  /// When the rank came to the call; 0 if unknown.
  std::int64_t arrived() const { return submitted != 0 ? submitted : started; }
};

/// The record of one rank.
struct FlightRecord {
  std::string origin;  ///< The file, for messages.
  std::string job;
  std::string host;
  int rank = 0;
  int size = 1;
  int pid = 0;
  std::int64_t written = 0;  ///< Nanoseconds since 1970.
  std::vector<RecordedGroup> groups;
  std::vector<RecordedCall> calls;  ///< Oldest first.
};

/// Reads a record. Calls of groups that the record no longer lists are left out. Throws
/// InvalidArgument for text that no rank writes; the message begins with `origin`.
FlightRecord parse_record(std::string_view text, const std::string& origin);

/// Throws InvalidArgument unless the records are of different ranks of one job.
void check_one_job(const std::vector<FlightRecord>& records);

/// Shifts the times of each host, if necessary, such that no collective ends on one rank before
/// another rank has begun it. Returns a sentence for each host that was shifted.
std::vector<std::string> align(std::vector<FlightRecord>& records);

/// Sentences about calls that differ between ranks, that ranks did not make, and about ranks that
/// were late. `records` must be aligned.
std::vector<std::string> findings(const std::vector<FlightRecord>& records);

/// The calls of all ranks in the format of Chrome's trace viewer, which Perfetto reads.
std::string chrome_trace(const std::vector<FlightRecord>& records);

/// The record in the format that torch's analyser reads
/// (`python -m torch.distributed.flight_recorder.fr_trace`): a pickle.
std::string torch_dump(const FlightRecord& record);

}  // namespace mccl::cli::sight
