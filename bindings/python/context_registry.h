// The contexts that an extension module has made. These contexts must be shut down before the
// process ends, and a forked child must not use them.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mccl/context.h"

namespace mccl::python {

/// List of a module's living contexts. One per module, never destroyed. Thread-safe, even without
/// the GIL.
class ContextRegistry {
 public:
  void add(const std::shared_ptr<Context>& context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(contexts_, [](const auto& entry) { return entry.expired(); });
    contexts_.push_back(context);
  }

  bool empty() {
    const std::lock_guard lock(mutex_);
    return living().empty();
  }

  /// Shuts down every context and notifies its peers. Must be called without the GIL, because it
  /// blocks.
  void shutdown_all() {
    std::vector<std::shared_ptr<Context>> contexts;
    {
      const std::lock_guard lock(mutex_);
      contexts = living();
    }
    for (const auto& context : contexts) context->shutdown();
  }

  // Must be called before and after fork(), on the forking thread. The child abandons the contexts
  // without notifying the peers.
  void before_fork() {
    mutex_.lock();
    forking_ = living();
    for (const auto& context : forking_) context->before_fork();
  }
  void after_fork_in_parent() {
    for (const auto& context : forking_) context->after_fork_in_parent();
    auto contexts = std::exchange(forking_, {});
    // Unlock before `contexts` is destroyed: it may own the last reference to a Context, whose
    // destructor blocks.
    mutex_.unlock();
  }
  void after_fork_in_child() {
    for (const auto& context : forking_) context->abandon_after_fork();
    for (auto& context : std::exchange(forking_, {})) abandoned_.push_back(std::move(context));
    contexts_.clear();
    mutex_.unlock();
  }

 private:
  std::vector<std::shared_ptr<Context>> living() const {
    std::vector<std::shared_ptr<Context>> found;
    for (const auto& context : contexts_) {
      if (auto alive = context.lock()) found.push_back(std::move(alive));
    }
    return found;
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<Context>> contexts_;  // guarded by mutex_
  /// Guarded by mutex_, which stays locked during fork().
  std::vector<std::shared_ptr<Context>> forking_;
  /// In a forked child, the contexts of the parent process, which the child must not destroy.
  std::vector<std::shared_ptr<Context>> abandoned_;
};

}  // namespace mccl::python
