// The reports of ranks to mccl status, and the health of a job, which is derived from the reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::sight {

/// A call that a rank has made in a group, and that has not ended.
struct PendingCall {
  std::string call;                 ///< Text such as "all_reduce #12 (sum of 1000 f32)".
  double waited_s = 0;              ///< Time since the call last made progress, in seconds.
  std::vector<int> waits_for = {};  ///< Ranks of the group that the call waits for.
  std::string why = {};             ///< The reason for the wait, as a clause; may be empty.
};

struct GroupReport {
  std::string name;
  std::string id;
  int rank = 0;                   ///< The reporting rank's number in the group.
  std::vector<int> members = {};  ///< The members' ranks in the job, indexed by rank in the group.
  /// The first collective and the oldest message that have not ended, if any.
  std::vector<PendingCall> pending = {};
  std::string last = {};     ///< The last collective that started; empty if there was none.
  std::string failure = {};  ///< Why the group failed; empty while it is healthy.
};

/// Another rank, as seen by the reporting rank.
struct PeerReport {
  int rank = 0;
  std::string state;   ///< "connected", "silent", "left" or "lost".
  std::string reason;  ///< The reason why the peer is lost; empty otherwise.
};

struct RankReport {
  std::string job;
  std::string host;
  int rank = 0;
  int size = 1;
  int pid = 0;
  long long calls = 0;
  long long errors = 0;
  /// Why the rank did not answer, or makes no progress, as a clause after the rank's name.
  std::string trouble = {};
  bool is_truncated = false;  ///< True if groups or peers were left out of a long report.
  std::vector<GroupReport> groups = {};
  std::vector<PeerReport> peers = {};
  nlohmann::json raw = {};  ///< The status as the rank sent it, with `job` as above.
};

/// Throws InvalidArgument if the text is invalid; the message begins with `who`.
RankReport parse_status(std::string_view text, std::string_view who);

enum class Health { healthy, stuck, failed };

/// The ranks of one job, ordered by rank. Ranks that have left or are lost may be missing.
struct JobReport {
  std::vector<RankReport> ranks;
  Health health = Health::healthy;
  std::vector<std::string> findings = {};  ///< One message for each fault.
};

/// Groups the ranks by job. Finds calls without progress for `stuck_after_s` seconds, failed
/// groups, and lost or silent ranks.
std::vector<JobReport> assess(std::vector<RankReport> ranks, double stuck_after_s);

std::string_view name_of(Health health);

/// A table of the job's ranks, followed by the findings.
std::string to_text(const JobReport& job);

}  // namespace mccl::cli::sight
