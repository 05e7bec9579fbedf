// A Link over one TCP connection.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/link.h"
#include "transport/tcp/retained.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

class TcpLink;

/// Makes a new connection for a link whose connection broke. Implemented by
/// rendezvous/meeting/repairs.h.
class Repairer {
 public:
  virtual ~Repairer() = default;
  /// Called when the connection of the link has broken with the error `why`. Returns false if the
  /// connection cannot be replaced; the link then ends. Otherwise calls resume() or give_up() of
  /// the link later.
  virtual bool begin(TcpLink& link, const std::string& why) noexcept = 0;
  /// Called if the network may have dropped the connection of the link without an error.
  virtual void suspect(TcpLink& link) noexcept = 0;
  /// Called when the link ends or is destroyed.
  virtual void forget(const TcpLink& link) noexcept = 0;
};

struct TcpLinkOptions {
  /// Delay between the end of the connection and the LinkClosed that reports it. If the connection
  /// is relayed, the real cause of its end arrives over another connection during this delay.
  Clock::duration report_end_after{};
  /// Receives warnings for the user about this connection, one sentence each.
  std::function<void(const std::string& text)> warn;
  /// Replaces broken connections of the link. If null, the link ends when its connection breaks.
  std::shared_ptr<Repairer> repairer = nullptr;
  /// True if both ends are on one host. A byte that the system has sent is then in the buffer of
  /// the receiving end, from which it can be read even after the connection has broken. So only
  /// bytes that the system has not sent are kept, which saves copies.
  bool is_inside_host = false;
  /// True if other ranks relay the connection. The bytes that a relay holds are acknowledged by its
  /// host, and lost if its connection to the next rank breaks. So bytes are kept until the peer
  /// has told, by received_by_peer(), that it has received them.
  bool is_relayed = false;
  /// Name of the peer's host for messages; may be empty.
  std::string peer_host = {};
  /// System call for sending, which tests replace. Not used on an encrypted connection.
  ssize_t (*send)(int socket, const msghdr* message, int flags) = ::sendmsg;
};

class TcpLink final : public Link {
 public:
  /// Takes over a connected, non-blocking socket. `peer` is the name of the other end in messages:
  /// "rank 3".
  TcpLink(Socket socket, std::string peer, TcpLinkOptions options = {});
  ~TcpLink() override;
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  std::size_t write(std::span<const std::byte> first,
                    std::span<const std::byte> second = {}) override;
  std::span<const std::byte> peek(std::size_t at_least) override;
  void consume(std::size_t n) override;
  std::size_t peek_capacity() const override;
  std::size_t read(std::span<std::byte> destination) override;
  void release() noexcept override;
  bool is_broken() const override { return is_paused_; }
  void suspect() noexcept override;
  int descriptor() const override;
  Clock::time_point retry_at() const override { return shortage_.retry_at(); }
  std::size_t unsent() const override;
  std::optional<Clock::duration> unacknowledged_for() const override;
  bool depart() noexcept override;
  std::size_t buffer_bytes() const override;
  void lose_peer(Loss loss) override;
  std::string description() const override { return description_; }

  // The steps by which the Repairer replaces the connection.

  /// Stops writing to the present connection. All bytes are kept that the system has not yet
  /// reported as acknowledged.
  void pause() noexcept { is_paused_ = true; }
  /// Undoes pause(), if the present connection is still open. Returns false otherwise. The peer
  /// must not have closed its end for this repair.
  bool unpause() noexcept {
    if (socket_) is_paused_ = false;
    return !is_paused_;
  }
  /// Takes the bytes that have arrived over the present connection, closes it, and returns the
  /// number of bytes received through the link. Requires pause(), at both ends. Throws
  /// std::bad_alloc if memory runs out.
  StreamOffset close_connection();
  /// Continues over a new connection. The peer has received `peer_has` bytes through the link; the
  /// later bytes are sent again. Returns their number. Throws CorruptionError if they are not kept.
  StreamOffset resume(Socket socket, StreamOffset peer_has);
  /// Ends the link for the reason `why`. `has_died`: the peer's process has ended.
  void give_up(std::string why, bool has_died);
  /// Sends bytes again that the peer has not received. Returns true once all are sent.
  bool send_again();
  /// Number of bytes received through the link.
  StreamOffset received() const { return received_; }
  /// Called for a relayed link once the peer has received `bytes` bytes through the link. Throws
  /// CorruptionError if that is more than this rank has written.
  void received_by_peer(StreamOffset bytes);
  /// Number of bytes that send_again() has still to send.
  StreamOffset to_send_again() const { return retained_.end() - again_from_; }

 private:
  std::string describe_connection() const;
  /// Returns the text for an error of a system call that sends or receives.
  static std::string explain(int error);
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
  /// Handles an error of the connection. Returns true if the connection will be replaced.
  bool breaks(int error);
  void failed_to_write(int error);
  /// Makes repairs impossible: from now on, the link ends when its present connection ends.
  void stop_repairs();
  /// Number of bytes before the end of the stream that may have to be sent again.
  StreamOffset needed() const;
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
  /// Time since which depart() has found nothing unsent, if the kernel encrypts.
  Clock::time_point all_sent_since_ = Clock::time_point::max();
  TcpLinkOptions options_;
  Shortage shortage_;
  Clock::time_point
      report_end_at_{};  ///< Time at which to report the end; set once a direction has ended.
  /// The buffered bytes are buffer_[begin_, end_).
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  // Used only if there is a Repairer.
  Retained retained_;             ///< The bytes written to the link that may have to be sent again.
  StreamOffset peer_has_ = 0;     ///< See received_by_peer().
  StreamOffset again_from_ = 0;   ///< Position of the first byte that send_again() has to send.
  StreamOffset received_ = 0;     ///< Number of bytes received over all connections of the link.
  std::vector<std::byte> taken_;  ///< Bytes that close_connection() has received.
  std::size_t taken_from_ = 0;    ///< Number of bytes of taken_ that receive() has returned.
  /// True from pause() to resume(). The connection, if it is still open, is only read.
  bool is_paused_ = false;
  /// Time since which the peer's host has acknowledged nothing, if suspect() was called for that
  /// reason, and the position up to which the host had then acknowledged the stream.
  std::optional<Clock::time_point> stalled_since_;
  StreamOffset stalled_at_ = 0;
};

}  // namespace mccl::transport::tcp
