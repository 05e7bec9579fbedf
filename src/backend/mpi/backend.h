// The mpi backend: groups whose calls are an MPI library's.
#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/mpi/process.h"

namespace mccl::mpi {

class MpiBackend final : public Backend {
 public:
  /// `most`: elements that MPI is asked to count in one call; fewer make calls in pieces testable.
  explicit MpiBackend(const ContextOptions& options,
                      std::size_t most = std::numeric_limits<int>::max());
  ~MpiBackend() override;

  int rank() const override { return process_.rank(); }
  int size() const override { return process_.size(); }
  std::shared_ptr<Group> make_group(const std::string& name, const std::vector<int>& members,
                                    std::chrono::milliseconds timeout,
                                    const std::optional<Compression>& compression) override;
  /// Nothing: MPI chooses its algorithms by itself.
  Costs costs() const override { return {}; }
  void shutdown() override { job_->shutdown(process_.rank()); }
  void before_fork() noexcept override { process_.engine()->before_fork(); }
  void after_fork_in_parent() noexcept override { process_.engine()->after_fork(); }
  void abandon_after_fork() noexcept override;

 private:
  /// What groups keep of the backend, which may be gone before them.
  struct Job {
    std::shared_ptr<Engine> engine;
    Process* process = nullptr;
    Config config;
    std::shared_ptr<Metrics> metrics;
    std::size_t most = 0;
    std::mutex mutex;
    std::vector<std::weak_ptr<GroupState>> groups;  // guarded by mutex
    bool over = false;                              // guarded by mutex

    void shutdown(int rank);
  };

  static std::shared_ptr<Group> make(const std::shared_ptr<Job>& job, const std::string& name,
                                     const std::vector<int>& members,
                                     std::chrono::milliseconds timeout);

  Process& process_;
  const std::shared_ptr<Job> job_;
};

}  // namespace mccl::mpi
