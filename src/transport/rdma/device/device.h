// One device of this process: one context, shared by all users because
// devices support few of them. It is closed when its last user releases it. A failed device also
// stays open for its users, while new users open another instance.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "transport/rdma/device/memory.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

class Device {
 public:
  /// Maximum number of regions used, even if the device supports more.
  static constexpr std::size_t kMostRegions = 24;
  /// Number of these regions that are used for loans of callers' memory, if the device supports
  /// enough.
  static constexpr std::size_t kMostLoans = 8;

  /// Returns the device if the process has it open already, else opens it. Throws VerbsError.
  static std::shared_ptr<Device> open(const std::shared_ptr<Verbs>& verbs, const std::string& name);
  Device(std::shared_ptr<Verbs> verbs, std::string name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  VerbsContext& context() { return *context_; }
  SlotMemory& slots() { return *slots_; }
  Loans& loans() { return *loans_; }
  const Limits& limits() const { return limits_; }

  /// Marks a port as used: if it goes down, the device counts as failed.
  void use_port(int port) { ports_.fetch_or(bit_of(port)); }
  /// True if the device can no longer be used; its driver is then not called any more.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The reason why the device failed.
  std::string trouble() const;
  /// Processes the events that the device has reported since the last call.
  void look();
  /// Returns the error that the device reported for a queue pair; empty if there is none. Such a
  /// queue pair may have no failed completion.
  std::string trouble_of_pair(std::uint32_t number) const;
  /// Called for a new queue pair: discards errors reported for an earlier one with the same number.
  void forget_pair(std::uint32_t number);

  /// Called in the child of a fork, where the open context belongs to the parent.
  void abandon() noexcept {
    if (!abandoned_.exchange(true)) context_->abandon();
  }

 private:
  static std::uint64_t bit_of(int port) { return std::uint64_t{1} << (port & 63); }
  void fail(const std::string& why);

  const std::shared_ptr<Verbs> verbs_;
  const std::string name_;
  std::unique_ptr<VerbsContext> context_;
  Limits limits_;
  std::unique_ptr<SlotMemory> slots_;
  std::unique_ptr<Loans> loans_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<std::uint64_t> ports_{0};  ///< One bit per port in use.
  mutable std::mutex mutex_;
  std::string trouble_;                                // guarded by mutex_
  std::map<std::uint32_t, std::string> failed_pairs_;  // guarded by mutex_
  std::atomic<bool> any_pair_failed_{false};  ///< Lets pairs skip the lock while it is false.
};

}  // namespace mccl::transport::rdma
