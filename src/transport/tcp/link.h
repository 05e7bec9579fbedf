// A Link over one TCP connection.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "transport/link.h"
#include "transport/tcp/shortage.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

struct TcpLinkOptions {
  /// When the connection ends, that is told so much later: on a connection that others pass on,
  /// what has ended it is known better by then, from elsewhere.
  Clock::duration told_late{};
  /// Learns what a user should know of the connection, a sentence each.
  std::function<void(const std::string& text)> warn;
  ssize_t (*send)(int socket, const msghdr* message, int flags) = ::sendmsg;
};

class TcpLink final : public Link {
 public:
  /// Takes a connected, non-blocking socket. `peer` names the other end in messages: "rank 3".
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
  std::size_t buffer_bytes() const override { return peek_capacity(); }
  void lose_peer(Loss loss) override;
  std::string description() const override { return description_; }

 private:
  /// Receives up to `limit` bytes at `to`; 0 when none are there or the path ended, which
  /// ended_ then tells.
  std::size_t receive(std::byte* to, std::size_t limit);
  /// The system has no memory for what is sent.
  void run_short();
  void end(std::string why);
  /// Whether the end is to be told.
  bool has_ended();
  [[noreturn]] void fail(const std::string& what) const;
  void make_room(std::size_t bytes);
  /// Bytes received and not yet consumed.
  std::size_t buffered() const { return end_ - begin_; }

  Socket socket_;
  std::string peer_;
  std::string description_;
  /// Why no more bytes will come; empty while they may.
  std::string ended_;
  /// Why no more bytes can be written; empty while they can. What the peer wrote is still received.
  std::string writing_ended_;
  bool departing_ = false;
  TcpLinkOptions options_;
  Shortage shortage_;
  Clock::time_point told_at_{};  ///< Set once either way has ended.
  /// What is buffered is buffer_[begin_, end_).
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace mccl::transport::tcp
