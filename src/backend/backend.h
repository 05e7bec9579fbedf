// Interface of the backends, which make the groups of a context. The library has one, native/, with
// paths to libraries that are installed on the machine; tests have others.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mccl/context.h"
#include "mccl/group.h"

namespace mccl {

/// Thread-safe. Groups may outlive their backend; their calls fail from then on.
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

/// Makes the backend that the settings name, and blocks until it has met all other ranks.
/// `options.metrics` must be set. Throws the same errors as Context::create.
std::unique_ptr<Backend> make_backend(const ContextOptions& options);

/// Used by Group::split in every backend; a collective of `parent`. Returns the ranks of `parent`
/// with this color, ordered by key and then by rank. Empty for a negative color.
std::vector<int> ranks_of_color(Group& parent, int color, int key);

}  // namespace mccl
