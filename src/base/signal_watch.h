// Notices signals by which a user or a launcher asks this process to end.
#pragma once

namespace mccl {

/// While it exists, counts SIGINT and SIGTERM, and then calls the program's own handler as before.
/// A signal without a handler keeps its effect: it ends the process, or is ignored. Thread-safe.
class SignalWatch {
 public:
  SignalWatch() noexcept;
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// True if a handler has received one of the signals since this object was made.
  bool has_arrived() const noexcept;

 private:
  const unsigned before_;
};

}  // namespace mccl
