// Interface of a backend, which creates the groups of a context. The library has one backend,
// native/, which can pass calls to an installed CUDA, NCCL or MPI library. Tests define others.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mccl/context.h"
#include "mccl/group.h"

namespace mccl {

/// Thread-safe. A group may outlive its backend; all its later calls fail.
class Backend {
 public:
  virtual ~Backend() = default;

  /// This process's rank in the job.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Same as Context::group. Throws InvalidArgument.
  virtual std::shared_ptr<Group> make_group(const std::string& name,
                                            const std::vector<int>& members,
                                            std::chrono::milliseconds timeout,
                                            const std::optional<Compression>& compression = {}) = 0;
  /// These behave as the functions of the same name in Context.
  virtual Costs costs() const = 0;
  virtual void shutdown() = 0;
  virtual void before_fork() noexcept = 0;
  virtual void after_fork_in_parent() noexcept = 0;
  virtual void abandon_after_fork() noexcept = 0;
};

/// Creates the backend that the settings select, and blocks until all ranks have connected.
/// `options.metrics` must be set. Throws the same errors as Context::create.
std::unique_ptr<Backend> make_backend(const ContextOptions& options);

/// Returns the ranks of `parent` that passed this color, ordered by key and then by rank; none for
/// a negative color. All ranks of `parent` must call it. Implements Group::split for every backend.
std::vector<int> ranks_of_color(Group& parent, int color, int key);

}  // namespace mccl
