#include "backend/mpi/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/check.h"
#include "backend/mpi/group.h"
#include "backend/mpi/meeting.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

Log log_of(const ContextOptions& options) {
  return {options.rank, log_level_of(options.config.log_level)};
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

void check_place(const ContextOptions& options, Process& process) {
  const std::string library = process.library().identity().describe();
  if (options.size >= 0 && options.size != process.size()) {
    throw InvalidArgument(fmt::format(
        "this job has {} ranks, but MPI's has {} ({}): start the ranks with that MPI's mpirun, as "
        "mccl launch --backend mpi does",
        options.size, process.size(), library));
  }
  if (options.rank >= 0 && options.rank != process.rank()) {
    throw InvalidArgument(fmt::format(
        "rank {} of this job is rank {} of MPI's ({}): take the ranks that mpirun gives",
        options.rank, process.rank(), library));
  }
}

void check_members(const std::string& name, const std::vector<int>& members, int rank, int size) {
  for (const int member : members) {
    if (member < 0 || member >= size || std::ranges::count(members, member) != 1) {
      throw InvalidArgument(
          fmt::format("group '{}': rank {} is listed, but members are distinct ranks from 0 to {}",
                      name, member, size - 1));
    }
  }
  if (std::ranges::find(members, rank) == members.end()) {
    throw InvalidArgument(
        fmt::format("group '{}': this rank, {}, is not among its members", name, rank));
  }
}

}  // namespace

MpiBackend::MpiBackend(const ContextOptions& options, std::size_t most)
    : process_(Process::get(std::chrono::microseconds(options.config.spin_us),
                            milliseconds_of(options.config.connect_timeout), log_of(options))),
      job_(std::make_shared<Job>()) {
  check_place(options, process_);
  job_->engine = process_.engine();
  if (compression_named(options.config.compression).codec != Codec::none) {
    log_of(options).warn("MCCL_COMPRESSION={} changes nothing here: MPI's sums are exact",
                         options.config.compression);
  }
  job_->process = &process_;
  job_->config = options.config;
  job_->metrics = options.metrics;
  for (int i = 0; i < kCollectiveCount; ++i)
    options.metrics->record_algorithm(static_cast<Collective>(i), "mpi");
  job_->most = most;
  process_.enter();
}

MpiBackend::~MpiBackend() {
  if (process_.abandoned()) return;
  shutdown();
  process_.leave();
}

std::shared_ptr<Group> MpiBackend::make_group(const std::string& name,
                                              const std::vector<int>& members,
                                              std::chrono::milliseconds timeout,
                                              const std::optional<Compression>& compression) {
  refuse_codec(compression);
  return make(job_, name, members, timeout);
}

std::shared_ptr<Group> MpiBackend::make(const std::shared_ptr<Job>& job, const std::string& name,
                                        const std::vector<int>& members,
                                        std::chrono::milliseconds timeout) {
  Process& process = *job->process;
  check_members(name, members, process.rank(), process.size());
  {
    const std::lock_guard lock(job->mutex);
    if (job->over) {
      throw AbortedError(fmt::format("group '{}': rank {} has shut down", name, process.rank()));
    }
  }
  if (job->engine->is_over()) throw Error(job->engine->over());
  const Invitation invitation = {
      name, members,
      fmt::format("MPI={}\nthreads={}\n{}", process.library().identity().version,
                  name_of(process.level()), agreement_of(job->config))};
  auto state = meet(process, invitation, milliseconds_of(job->config.connect_timeout));
  state->place.most = job->most;
  state->timeout = timeout;
  state->metrics = job->metrics;
  state->tally = job->metrics->tally();
  {
    const std::lock_guard lock(job->mutex);
    std::erase_if(job->groups, [](const auto& each) { return each.expired(); });
    job->groups.push_back(state);
  }
  return std::make_shared<MpiGroup>(
      job->engine, std::move(state),
      [job](const std::string& its_name, const std::vector<int>& its_members,
            std::chrono::milliseconds its_timeout) {
        return make(job, its_name, its_members, its_timeout);
      });
}

void MpiBackend::Job::shutdown(int rank) {
  std::vector<std::weak_ptr<GroupState>> ended;
  {
    const std::lock_guard lock(mutex);
    over = true;
    ended.swap(groups);
  }
  for (const auto& weak : ended) {
    if (const auto group = weak.lock()) {
      engine->close(group, fmt::format("rank {} has shut down", rank));
    }
  }
}

void MpiBackend::abandon_after_fork() noexcept {
  process_.engine()->abandon();
  process_.abandon();
}

}  // namespace mccl::mpi
