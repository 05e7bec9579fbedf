// Writes output on a separate thread, so that a write that blocks delays nothing else.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/launch/process.h"

namespace mccl::cli::launch {

/// A queue of output and the thread that writes it, in the order of the calls. Thread-safe.
class Writer {
 public:
  Writer();
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void write(int descriptor, std::string text);
  /// Blocks until everything is written or writing has failed. Later calls of write() have no
  /// effect.
  void finish();
  /// True if producers should pause. room() reports when that may have changed.
  bool full() const;
  /// Descriptor that becomes readable when full() or lost_output() may have changed. The caller
  /// must read it until it is empty.
  int room() const { return room_.reader.get(); }
  /// A failed write. It ends all writing: later output is dropped.
  struct LostOutput {
    int descriptor = -1;
    int error = 0;  ///< errno; EPIPE if the reader has closed its end.
  };
  std::optional<LostOutput> lost_output() const;

 private:
  struct Piece {
    int descriptor = -1;
    std::string text;
  };

  void run();
  /// Returns 0, or an errno.
  static int write_all(const Piece& piece);

  Pipe room_ = make_pipe();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> waiting_;  // Guarded by mutex_, as are the next three members.
  std::size_t waiting_bytes_ = 0;
  std::optional<LostOutput> lost_output_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace mccl::cli::launch
