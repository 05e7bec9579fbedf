// The MPI of this process: there is one, for as long as the process lives, whoever uses it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "backend/mpi/engine.h"
#include "backend/mpi/library.h"
#include "backend/mpi/operations.h"
#include "base/log.h"

namespace mccl::mpi {

class Process {
 public:
  /// Loads the library and initialises MPI the first time, or joins what the program has
  /// initialised. Throws InvalidArgument where there is no library, a wrong one, MPI has been
  /// finalised, or grants too little to threads; TimeoutError where the other ranks do not come.
  static Process& get(std::chrono::microseconds spin, std::chrono::milliseconds patience,
                      const Log& log);

  Library& library() { return *library_; }
  const Operations& operations() const { return *operations_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  /// All ranks of MPI_COMM_WORLD, apart from the program's own messages.
  Handle control() const { return control_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  ThreadLevel level() const { return level_; }
  bool joined() const { return joined_; }
  int largest_tag() const { return largest_tag_; }
  /// No two on this rank are the same.
  std::uint64_t next_number() { return ++numbers_; }

  /// Contexts come and go; what other ranks say is listened to while there is one.
  void enter();
  void leave();
  /// In a child of fork(): MPI is the parent's.
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }

 private:
  explicit Process(std::chrono::microseconds spin);

  void start(std::chrono::milliseconds patience, const Log& log);
  void initialise();
  void set_up();
  void end();
  void depart();
  static void at_exit();

  std::unique_ptr<Library> library_;
  std::unique_ptr<Operations> operations_;
  std::shared_ptr<Engine> engine_;
  Handle control_ = 0;
  int rank_ = 0;
  int size_ = 1;
  int largest_tag_ = 0;
  ThreadLevel level_ = ThreadLevel::single;
  bool joined_ = false;
  pid_t process_ = 0;
  std::atomic<std::uint64_t> numbers_{0};
  std::atomic<bool> abandoned_{false};
  int contexts_ = 0;  // of whoever drives
};

}  // namespace mccl::mpi
