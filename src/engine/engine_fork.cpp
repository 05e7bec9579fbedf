// The part of Engine that keeps its state consistent when the process forks.
#include <unistd.h>

#include <thread>
#include <utility>

#include "base/keep.h"
#include "engine/engine.h"
#include "mccl/error.h"
#include "rendezvous/cabling/wiring.h"

namespace mccl::engine {

void Engine::refuse_in_child() const {
  if (!abandoned_) return;
  throw InvalidArgument(
      "this process is the child of a fork: it cannot use its parent's groups; make its own");
}

void Engine::before_fork() noexcept {
  if (abandoned_ || driver_.stopping()) return;
  driver_.make_way();
  inbox_.mutex().lock();
  if (options_.wiring) options_.wiring->before_fork();
  forker_ = std::this_thread::get_id();
}

void Engine::after_fork_in_parent() noexcept {
  if (forker_.load() != std::this_thread::get_id()) return;
  forker_ = std::thread::id();
  if (options_.wiring) options_.wiring->after_fork_in_parent();
  inbox_.mutex().unlock();
  driver_.go_on();
}

void Engine::abandon_after_fork() noexcept {
  abandoned_ = true;
  if (forker_.load() != std::this_thread::get_id())
    return;  // the state in which the parent's threads left this copy is unknown
  try {
    links_.abandon();
    Sleep beside;
    peers_.watch(beside);
    std::vector<pollfd> open = std::move(beside.watched);
    groups_.for_each([&open](GroupState& group) {
      group.channels().for_each_lane([&open](Lane& lane) {
        open.push_back({lane.link().descriptor(), 0, 0});
      });
    });
    groups_.departing().watch(open);
    for (const pollfd& descriptor : open) ::close(descriptor.fd);
    driver_.abandon();
    if (options_.wiring) options_.wiring->abandon_after_fork();
    // Nothing of the engine may be destroyed here: its thread belongs to the parent.
    keep_for_ever(shared_from_this());
  } catch (...) {
    // The child is out of memory. Its descriptors close when it ends.
  }
  forker_ = std::thread::id();
  inbox_.mutex().unlock();
  driver_.mutex().unlock();
}

}  // namespace mccl::engine
