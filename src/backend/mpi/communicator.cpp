#include "backend/mpi/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "backend/direct/agreement.h"
#include "backend/mpi/process.h"
#include "backend/mpi/worker.h"
#include "base/clock.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

/// Time limit for the creation of a communicator after a member has died. MPI may still succeed,
/// and can then be used further.
constexpr std::chrono::milliseconds kAfterADeath{300};
/// Interval at which a rank that waits for its communicator looks for deaths.
constexpr std::chrono::milliseconds kLookInterval{10};

/// Compares the MPI library and thread level of all ranks of the group. Throws MismatchError on
/// every rank if they differ, and TimeoutError if some ranks do not arrive within `patience`.
void check_libraries(Group& group, const MpiProcess& process, std::chrono::milliseconds patience) {
  struct MpiLibrary {
    char text[128];
  };
  MpiLibrary own{};
  fmt::format("{}, {}", process.library().identity().version, name_of(process.level()))
      .copy(own.text, sizeof(own.text) - 1);
  std::vector<MpiLibrary> all;
  try {
    all = direct::gather(group, own, patience);
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format(
        "group '{}': not all of its ranks created the group in time (MCCL_CONNECT_TIMEOUT): {}",
        group.name(), error.what()));
  }
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string_view theirs = all[static_cast<std::size_t>(rank)].text;
    if (theirs == all.front().text) continue;
    throw MismatchError(
        fmt::format("group '{}': rank {} uses {}, but rank 0 uses {}; use the same MPI library and "
                    "thread level on all ranks",
                    group.name(), rank, theirs, all.front().text));
  }
}

}  // namespace

CallCommunicator make_communicator(Group& group, MpiProcess& process,
                                   const std::vector<int>& members,
                                   std::chrono::milliseconds patience) {
  check_libraries(group, process, patience);
  const auto made = std::make_shared<CallCommunicator>();
  const auto make = [made, members, &process, name = group.name()] {
    const MpiLibrary& library = process.library();
    made->library = &library;
    const auto hash = std::hash<std::string>()(name);
    const auto tag = static_cast<int>(
        hash % static_cast<std::size_t>(half_of_tags(library.largest_tag(process.control()))));
    made->comm = library.create_group(process.control(), members.data(),
                                      static_cast<int>(members.size()), tag);
    library.return_errors(made->comm);
    made->comparisons = library.duplicate(made->comm);
    library.return_errors(made->comparisons);
    made->rank = library.rank(made->comm);
    made->size = library.size(made->comm);
    made->largest_tag = library.largest_tag(made->comm);
  };
  if (process.level() != ThreadLevel::multiple) {
    process.call(make);
    return *made;
  }
  Worker worker("mccl-mpi-comm");
  std::future<void> done = worker.take(make);
  Clock::time_point limit = Clock::now() + patience;
  for (std::string lost; done.wait_for(kLookInterval) != std::future_status::ready;) {
    if (process.is_over()) throw PeerError(process.failure());
    if (lost.empty() && !(lost = group.failure()).empty())
      limit = std::min(limit, Clock::now() + kAfterADeath);
    if (Clock::now() < limit) continue;
    const std::string what =
        fmt::format("rank {} cannot create group '{}' with MPI: ", group.rank(), group.name());
    process.end_for_good(what + (lost.empty() ? "a member has not answered in time" : lost));
    if (!lost.empty()) throw PeerError(what + lost);
    throw TimeoutError(
        fmt::format("{}MPI has not made its communicator after {:.3g} s "
                    "(MCCL_CONNECT_TIMEOUT); look at the output of the other ranks",
                    what, std::chrono::duration<double>(patience).count()));
  }
  done.get();
  return *made;
}

}  // namespace mccl::mpi
