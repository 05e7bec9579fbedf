// What makes the groups of a context. There is one, native/, with paths to libraries that the
// machine has; tests have others.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mccl/context.h"
#include "mccl/group.h"

namespace mccl {

/// Thread-safe. What it made may outlive it, and fails then.
class Backend {
 public:
  virtual ~Backend() = default;

  /// This process's place in the job.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// As Context::group. Throws InvalidArgument.
  virtual std::shared_ptr<Group> make_group(const std::string& name,
                                            const std::vector<int>& members,
                                            std::chrono::milliseconds timeout,
                                            const std::optional<Compression>& compression = {}) = 0;
  /// As Context.
  virtual Costs costs() const = 0;
  virtual void shutdown() = 0;
  virtual void before_fork() noexcept = 0;
  virtual void after_fork_in_parent() noexcept = 0;
  virtual void abandon_after_fork() noexcept = 0;
};

/// Meets all other ranks, by the backend that the settings name. `options` have metrics. Throws as
/// Context::create.
std::unique_ptr<Backend> make_backend(const ContextOptions& options);

/// For Group::split, by any backend: a collective of `parent`. The ranks of `color` there, in the
/// order of their keys and then of their ranks; none for a negative color.
std::vector<int> ranks_of_color(Group& parent, int color, int key);

}  // namespace mccl
