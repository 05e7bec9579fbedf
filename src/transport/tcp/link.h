// A Link over one TCP connection.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "transport/link.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

struct TcpLinkOptions {
  /// Delay between the end of the connection and the LinkClosed that reports it. If the connection
  /// is relayed, the real cause of its end arrives over another connection during this delay.
  Clock::duration report_end_after{};
  /// Receives warnings for the user about this connection, one sentence each.
  std::function<void(const std::string& text)> warn;
  /// System call for sending, which tests replace. Not used on an encrypted connection.
  ssize_t (*send)(int socket, const msghdr* message, int flags) = ::sendmsg;
};

class TcpLink final : public Link {
 public:
  /// Takes over a connected, non-blocking socket. `peer` is the name of the other end in messages:
  /// "rank 3".
  TcpLink(Socket socket, std::string peer, TcpLinkOptions options = {});

  std::size_t write(std::span<const std::byte> first,
                    std::span<const std::byte> second = {}) override;
  std::span<const std::byte> peek(std::size_t at_least) override;
  void consume(std::size_t n) override;
  std::size_t peek_capacity() const override;
  std::size_t read(std::span<std::byte> destination) override;
  int descriptor() const override;
  Clock::time_point retry_at() const override { return shortage_.retry_at(); }
  std::size_t unsent() const override;
  std::optional<Clock::duration> unacknowledged_for() const override;
  bool depart() noexcept override;
  std::size_t buffer_bytes() const override;
  void lose_peer(Loss loss) override;
  std::string description() const override { return description_; }

 private:
  /// Sends as much of `first` followed by `second` as the system accepts. Returns the number of
  /// bytes sent, and an errno or 0.
  TransferResult send(std::span<const std::byte> first, std::span<const std::byte> second) const;
  /// Receives up to `limit` bytes into `to`. Returns 0 if none have arrived. If the connection has
  /// ended, sets ended_ and returns 0.
  std::size_t receive(std::byte* to, std::size_t limit);
  /// Handles ENOBUFS, which means that the system has no memory for sending: pauses writes, and
  /// warns the user once.
  void run_short();
  void end(std::string why);
  /// True if no more bytes will be received and `report_end_at_` has passed.
  bool has_ended();
  [[noreturn]] void fail(const std::string& what) const;
  void make_room(std::size_t bytes);
  /// Number of bytes received and not yet consumed.
  std::size_t buffered() const { return end_ - begin_; }

  Socket socket_;
  std::string peer_;
  std::string description_;
  /// The reason why no more bytes will be received; empty while bytes may arrive.
  std::string ended_;
  /// The reason why no more bytes can be written; empty while bytes can be written. Bytes that the
  /// peer wrote are still received.
  std::string writing_ended_;
  /// True if the connection ended, but the peer did not close it: its host may be unreachable.
  bool cut_ = false;
  bool has_ended_sending_ = false;
  TcpLinkOptions options_;
  Shortage shortage_;
  Clock::time_point
      report_end_at_{};  ///< Time at which to report the end; set once a direction has ended.
  /// The buffered bytes are buffer_[begin_, end_).
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace mccl::transport::tcp
