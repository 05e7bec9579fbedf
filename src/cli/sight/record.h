// Flight records of several ranks, as mccl trace reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::sight {

struct RecordedGroup {
  long long index = 0;  ///< Number by which calls in the record refer to the group.
  std::string name;
  std::string id;            ///< Identity of the group, the same on all members.
  int rank = 0;              ///< Group rank of the process that wrote the record.
  std::vector<int> members;  ///< The members' ranks in the job, indexed by rank in the group.
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
  std::string site = {};  ///< The place in the program that made the call; empty if unknown.
  long long sequence = 0;
  long long bytes = 0;
  /// Ranks in the group, or -1. `peer` is the other rank of a message.
  int peer = -1;
  int root = -1;
  int waits_for = -1;
  /// Nanoseconds since 1970; 0 if unknown. align() makes the times of all ranks comparable.
  std::int64_t submitted = 0;
  std::int64_t started = 0;
  std::int64_t ended = 0;

  bool is_message() const { return call == "send" || call == "recv"; }
  bool has_ended() const { return state == "done" || state == "failed"; }
  /// True if a GPU executes the call. The time at which such a call ends is unknown.
  bool is_on_device() const { return state == "enqueued"; }
  /// Time at which the rank submitted or, if that is unknown, started the call; 0 if unknown.
  std::int64_t arrived() const { return submitted != 0 ? submitted : started; }
};

struct FlightRecord {
  std::string origin;  ///< Name of the file, used in messages.
  std::string job;
  std::string host;
  int rank = 0;
  int size = 1;
  int pid = 0;
  std::int64_t written = 0;  ///< Time at which the record was written, in nanoseconds since 1970.
  std::vector<RecordedGroup> groups;
  std::vector<RecordedCall> calls;  ///< The rank's calls, the oldest first.
};

/// Leaves out calls of groups that the record does not list. Throws InvalidArgument if the text is
/// not a valid record; the message begins with `origin`.
FlightRecord parse_record(std::string_view text, const std::string& origin);

/// Refuses records of several jobs, and two of the same rank.
void check_one_job(const std::vector<FlightRecord>& records);

/// Corrects the times of each host, if necessary, so that no collective ends on one rank before
/// another rank has begun it. Returns a sentence for each host whose times were corrected.
std::vector<std::string> align(std::vector<FlightRecord>& records);

/// Sentences about calls that differ between ranks, calls that some ranks did not make, and ranks
/// that made calls late. align() must have corrected the times of `records`.
std::vector<std::string> findings(const std::vector<FlightRecord>& records);

/// The calls of all ranks in the format of Chrome's trace viewer, which Perfetto reads.
std::string chrome_trace(const std::vector<FlightRecord>& records);

/// The record in the format that torch's analyser reads
/// (`python -m torch.distributed.flight_recorder.fr_trace`): a pickle.
std::string torch_dump(const FlightRecord& record);

}  // namespace mccl::cli::sight
