// Output that may block, written by a thread so that nothing else waits for it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/launch/process.h"

namespace mccl::cli::launch {

/// Thread-safe. Keeps the order of its calls.
class Writer {
 public:
  Writer();
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void write(int descriptor, std::string text);
  /// Waits until all is written, or nothing more can be. What comes later is dropped.
  void finish();
  /// Whether so much waits that whoever can should stop giving more; room() tells when not.
  bool full() const;
  /// Becomes readable when full() may have changed, or lost_output() has; read it empty.
  int room() const { return room_.reader.get(); }
  /// Output that could not be written, which ended the writing: what follows is dropped too.
  struct LostOutput {
    int descriptor = -1;
    int error = 0;  ///< EPIPE: somebody has closed the other end.
  };
  std::optional<LostOutput> lost_output() const;

 private:
  struct Piece {
    int descriptor = -1;
    std::string text;
  };

  void run();
  /// Returns an errno, or 0.
  static int write_all(const Piece& piece);

  Pipe room_ = make_pipe();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> waiting_;  // guarded by mutex_, as are all below
  std::size_t waiting_bytes_ = 0;
  std::optional<LostOutput> lost_output_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace mccl::cli::launch
