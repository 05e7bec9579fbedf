// The MPI of this process: there is one, for as long as the process lives, whoever uses it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "backend/mpi/library.h"
#include "backend/mpi/operations.h"
#include "backend/mpi/worker.h"
#include "mccl/context.h"
#include "mccl/store.h"

namespace mccl::mpi {

class Process {
 public:
  /// Loads the library and initialises MPI the first time, or joins what the program has
  /// initialised; then rank 0 tells the others where they meet. Throws InvalidArgument where there
  /// is no library, a wrong one, MPI has been finalised, or grants too little to threads;
  /// TimeoutError where the other ranks do not come.
  static Process& get(const ContextOptions& options);

  Library& library() { return *library_; }
  const Operations& operations() const { return *operations_; }
  /// All ranks of MPI_COMM_WORLD, apart from the program's own messages.
  Handle control() const { return control_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  ThreadLevel level() const { return level_; }

  /// Where the engines of all ranks meet, and the key that they prove to each other: of this start
  /// of the job, and known to its ranks alone.
  const std::shared_ptr<Store>& store() const { return store_; }
  const std::string& key() const { return key_; }

  /// Runs something that calls MPI: here, or on the thread that initialised MPI where no other may
  /// call it.
  template <typename Body>
  void call(const Body& body) {
    if (level_ == ThreadLevel::multiple) return body();
    call_in_turn(body);
  }
  /// Whether another thread makes this thread's calls.
  bool hands_over() const { return level_ < ThreadLevel::serialized && !thread_.is_this_thread(); }

  /// MPI is not called any more.
  bool is_over() const {
    return over_.load(std::memory_order_acquire) || (joined_ && library_->finalized());
  }
  /// Why not; empty while it is called.
  std::string failure() const;
  /// MPI keeps memory that the program is about to use again, and writes into it when anything of
  /// MPI is called. So nothing is, from now on.
  void end_for_good(const std::string& reason);
  /// A group has failed by something else than a wish: some rank may never end MPI.
  void note_trouble() { trouble_ = true; }

 private:
  Process();

  void start(const ContextOptions& options);
  void initialise(const Config& config);
  void set_up(const Config& config);
  void find_meeting_place(const Config& config);
  void end_use(const std::string& reason);
  void call_in_turn(const std::function<void()>& body);
  void end();
  void depart();
  static void at_exit();

  std::unique_ptr<Library> library_;
  std::unique_ptr<Operations> operations_;
  Worker thread_;  ///< Initialises MPI and finalises it.
  Handle control_ = 0;
  int rank_ = 0;
  int size_ = 1;
  ThreadLevel level_ = ThreadLevel::single;
  bool joined_ = false;
  pid_t process_ = 0;
  std::shared_ptr<Store> store_;
  std::string key_;
  std::mutex calling_;  ///< Where MPI wants one call at a time.
  mutable std::mutex mutex_;
  std::string reason_over_;  // guarded by mutex_
  std::atomic<bool> over_{false};
  std::atomic<bool> trouble_{false};
};

}  // namespace mccl::mpi
