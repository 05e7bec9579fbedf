// State of MPI in this process. All contexts share one MpiProcess, which lives until the process
// ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "backend/mpi/library.h"
#include "backend/mpi/worker.h"
#include "mccl/context.h"
#include "mccl/store.h"

namespace mccl::mpi {

class MpiProcess {
 public:
  /// Returns the process's instance. The first call loads the MPI library, and initialises MPI if
  /// the program has not. Rank 0 then broadcasts the address of the store and, unless
  /// all ranks have MCCL_JOB_KEY, its key. Throws InvalidArgument if there is no suitable library,
  /// if MPI's thread level is too low, if MPI can no longer be used, if a key is required, or in a
  /// child of fork(). Throws TimeoutError if MPI does not initialise
  /// within Config::connect_timeout, because other ranks are missing.
  static MpiProcess& get(const ContextOptions& options);

  const MpiLibrary& library() const { return *library_; }
  /// Communicator of all ranks of MPI_COMM_WORLD. Its messages cannot match those of the program,
  /// because it is a duplicate of MPI_COMM_WORLD.
  Handle control() const { return control_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  ThreadLevel level() const { return level_; }

  /// The store through which the engines of all ranks find each other, and the key with which they
  /// authenticate each other. The store is new for each run of the job. If there is only one rank,
  /// the store is null and the key is empty.
  const std::shared_ptr<Store>& store() const { return store_; }
  const SecretBytes& key() const { return key_; }

  /// Runs `body`, which calls MPI. If MPI's thread level is below MPI_THREAD_SERIALIZED, `body`
  /// runs on the thread that initialised MPI. Otherwise it runs on this thread; at
  /// MPI_THREAD_SERIALIZED, a lock is held meanwhile.
  template <typename Body>
  void call(const Body& body) {
    if (level_ == ThreadLevel::multiple) return body();
    call_in_turn(body);
  }
  /// True if call() runs its body on another thread.
  bool hands_over() const { return level_ < ThreadLevel::serialized && !thread_.is_this_thread(); }

  /// True if MPI must not be called any more.
  bool is_over() const {
    return over_.load(std::memory_order_acquire) || (joined_ && library_->finalized());
  }
  /// The reason why MPI must not be called any more; empty if it may be called.
  std::string failure() const;
  /// Forbids all further MPI calls. Needed if a call never ends, and if MPI still has pointers to
  /// memory that the program is about to reuse, because any MPI call may write to that memory.
  void end_for_good(const std::string& reason);
  /// Records a failure, after which another rank may never reach MPI_Finalize. When this process
  /// ends, it therefore waits for the other ranks only for a limited time.
  void note_trouble() { trouble_ = true; }

 private:
  MpiProcess();

  void start(const ContextOptions& options);
  void initialise(const Config& config);
  void set_up(const Config& config);
  void find_meeting_place(const Config& config);
  void end_use(const std::string& reason);
  void call_in_turn(const std::function<void()>& body);
  void end();
  void depart();
  static void at_exit();

  std::unique_ptr<MpiLibrary> library_;
  Worker thread_;  ///< Thread that initialises and finalises MPI.
  Handle control_ = 0;
  int rank_ = 0;
  int size_ = 1;
  ThreadLevel level_ = ThreadLevel::single;
  bool joined_ = false;
  pid_t process_ = 0;
  std::shared_ptr<Store> store_;
  SecretBytes key_;
  std::mutex calling_;  ///< Serialises MPI calls at MPI_THREAD_SERIALIZED.
  mutable std::mutex mutex_;
  std::string reason_over_;  // guarded by mutex_
  std::atomic<bool> over_{false};
  std::atomic<bool> trouble_{false};
};

/// Initialises MPI. Returns `options` with the rank, size, store and job key from MpiProcess.
/// Throws the errors of MpiProcess::get(). Also throws InvalidArgument if `options` set a rank or
/// size that differs from MPI's.
ContextOptions placed(const ContextOptions& options);

}  // namespace mccl::mpi
