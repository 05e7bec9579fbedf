// Threads that encrypt and decrypt the records of a transport beside the thread that drives it.
//
// The driving thread hands over a batch of records, works on the batch too, and meanwhile makes
// system calls. All threads have finished with the batch before the call that began it returns, so
// no memory is borrowed for longer than a call.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace mccl::transport::tcp {

/// Used by one thread at a time. The threads start with the first batch and sleep when there has
/// been none for a moment.
class CipherThreads {
 public:
  static constexpr std::size_t kMostThreads = 3;
  /// A chunk of 512 KiB, which is the size that TCP links prefer, and its header.
  static constexpr std::size_t kMostRecords = 33;

  /// Returns the number of threads for a process that has 1 / `processes_per_core` cores: the cores
  /// that its driving thread leaves, but at most kMostThreads.
  static std::size_t count_for(double processes_per_core);

  explicit CipherThreads(std::size_t count = 0) : count_(count) {}
  /// Ends the threads. In the child of a fork, which has none, forgets them.
  ~CipherThreads();
  CipherThreads(const CipherThreads&) = delete;
  CipherThreads& operator=(const CipherThreads&) = delete;

  /// Number of lanes: one for each thread, and lane 0 for the driving thread.
  std::size_t lanes() const { return count_ + 1; }

  /// Processes the record `index` of a batch. Calls at the same time have different lanes. Throws
  /// nothing.
  using Job = std::function<void(std::size_t lane, std::size_t index)>;

  /// A batch in progress. At most one exists at a time.
  class Batch {
   public:
    /// `threads`: null if only this thread processes the records. `count`: number of records, at
    /// most kMostRecords.
    Batch(CipherThreads* threads, std::size_t count, Job job);
    /// Returns once all records are processed.
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    /// Number of records that are processed, together with all records before them.
    std::size_t processed();
    /// Processes one record on this thread, or waits a moment if other threads have all the rest.
    void help();

   private:
    friend class CipherThreads;
    /// Processes a record that no thread has taken. Returns false if there is none.
    bool process_one(std::size_t lane);

    CipherThreads* threads_;
    const std::size_t count_;
    const Job job_;
    std::size_t processed_ = 0;
    std::atomic<std::size_t> next_ = 0;  ///< The first record that no thread has taken.
    std::array<std::atomic<bool>, kMostRecords> is_done_{};
  };

 private:
  void start();
  void run(std::size_t lane);

  const std::size_t count_;
  bool is_started_ = false;
  pid_t process_ = 0;                                  ///< The process that has the threads.
  std::unique_ptr<std::vector<std::thread>> running_;  ///< Null before the first batch.
  /// Increases with each batch, and at the end. Threads wait for a change.
  std::atomic<std::uint32_t> generation_ = 0;
  std::atomic<bool> is_ending_ = false;
  std::atomic<Batch*> batch_ = nullptr;  ///< The batch in progress; null if there is none.
  /// Number of threads that may use *batch_. A batch ends only when there are none.
  std::atomic<std::size_t> inside_ = 0;
};

}  // namespace mccl::transport::tcp
