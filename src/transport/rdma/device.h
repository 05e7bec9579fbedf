// One device of this process: one context and one protection domain, shared by all that use it,
// since devices have few of them. It closes with its last user. One that has failed does so too,
// and whoever comes after that opens it anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "transport/rdma/loans.h"
#include "transport/rdma/slots.h"
#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

class Device {
 public:
  /// At most so many regions of a device are used, whatever it could have.
  static constexpr std::size_t kMostRegions = 24;
  /// Of these, for memory of callers, where the device has so many.
  static constexpr std::size_t kMostLoans = 8;

  /// The device that the process has open already, or a new one. Throws VerbsError.
  static std::shared_ptr<Device> open(const std::shared_ptr<Verbs>& verbs, const std::string& name);
  Device(std::shared_ptr<Verbs> verbs, std::string name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  Context& context() { return *context_; }
  Domain& domain() { return *domain_; }
  SlotMemory& slots() { return *slots_; }
  Loans& loans() { return *loans_; }
  const Limits& limits() const { return limits_; }

  /// What befalls this port befalls the device.
  void use_port(int port) { ports_.fetch_or(bit_of(port)); }
  /// Whether it can still be used: a failed one is called no more.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Why not.
  std::string trouble() const;
  /// Takes what the device has reported since.
  void look();
  /// What it has reported of a queue pair, which need not have a completion to tell of it; empty
  /// when nothing.
  std::string trouble_of_pair(std::uint32_t number) const;
  /// A new queue pair has the number; what was reported is of another one that had it.
  void forget_pair(std::uint32_t number);

  /// In the child of a fork: what it has open is the parent's.
  void abandon() noexcept {
    if (!abandoned_.exchange(true)) context_->abandon();
  }

 private:
  static std::uint64_t bit_of(int port) { return std::uint64_t{1} << (port & 63); }
  void fail(const std::string& why);

  const std::shared_ptr<Verbs> verbs_;
  const std::string name_;
  std::unique_ptr<Context> context_;
  Limits limits_;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<SlotMemory> slots_;
  std::unique_ptr<Loans> loans_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<std::uint64_t> ports_{0};  ///< In use, a bit each.
  mutable std::mutex mutex_;
  std::string trouble_;                                // guarded by mutex_
  std::map<std::uint32_t, std::string> failed_pairs_;  // guarded by mutex_
  std::atomic<bool> any_pair_failed_{false};           ///< Spares its pairs the lock.
};

}  // namespace mccl::transport::rdma
