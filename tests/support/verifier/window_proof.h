// The windows of a symbolic run, and the memories that ranks publish without a copy in a window.
// Proves that a read finds neither unpublished nor replaced data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"
#include "support/verifier/run_map.h"
#include "support/verifier/value.h"

namespace mccl::schedule {

/// How ranks read what their peers publish: in the window, or, where the schedule allows it, in the
/// memory of the peer.
enum class Reading : std::uint8_t { in_window, in_place };

/// Each rank has a vector clock: for every rank, how many of that rank's window steps are known to
/// have ended. Arrivals carry the clock, and waits merge it. The clock of a reader must include the
/// publication that it reads. The clock of a publisher must include every read of the data that it
/// replaces.
class WindowProof {
 public:
  /// `layouts`: the memories of each rank; must outlive this object.
  WindowProof(std::span<const Problem> problems, std::span<const Schedule> schedules,
              const std::vector<Layout>& layouts, Reading reading);

  // Called for all steps in an order that the Exchange allows. Throw a Defect at a wrong step.
  void begin_step(int rank, std::size_t step);
  void publish(int rank, const Step& step, const Runs& runs);
  /// The rank writes to `region` of its memory.
  void write(int rank, const Region& region);
  void arrive(int rank) { arrivals_[rank].push_back(clocks_[rank]); }
  void await(int rank, const Step& step);
  void await_readers(int rank, const Step& step);
  /// Reads what `owner` has published at step.window, from `region` of its memory. Replaces `runs`
  /// with the elements read.
  void read(int rank, int owner, const Step& step, const Region& region, Runs& runs);
  /// Called after the last step.
  void end();

 private:
  using Clock = std::vector<std::uint32_t>;  // one count per rank

  struct Reader {
    int rank;
    std::uint32_t time;  // in steps of the reader
  };
  /// The content of a run of a window, or of a memory.
  struct Published {
    Value value;
    std::uint32_t time = 0;  // in steps of the owner
    std::vector<Reader> readers;
    Published advanced(std::size_t n) const { return {value.advanced(n), time, readers}; }
  };
  using Store = RunMap<Published>;

  bool is_in_place(int owner, Space space) const;
  std::pair<Store*, std::size_t> place_of(int owner, std::size_t window, const Region& region);
  void require_read(int rank, const Published& published, const char* what) const;

  [[noreturn]] void fail_at(int rank, const std::string& what) const;

  std::span<const Problem> problems_;
  std::span<const Schedule> schedules_;
  std::vector<Clock> clocks_;                 // one per rank
  std::vector<std::vector<Clock>> arrivals_;  // one list per rank, in order
  const std::vector<Layout>& layouts_;
  const Reading reading_;
  std::vector<Store> windows_;
  std::vector<Store> memories_;  // the data that ranks have published in place, by address
  std::vector<std::size_t> at_;  // the current step of each rank
};

}  // namespace mccl::schedule
