// The messages by which two ranks continue a link over a new connection. Each message is a number
// of 8 bytes:
//
//   dialer                                              acceptor
//   ready: no longer writes to the old connection ->
//                                                   <-  number of bytes received through the link
//   number of bytes received through the link     ->
//
// A rank stops writing to the old connection before the other rank closes that connection and
// counts the bytes that have arrived. From then on, a rank keeps every byte that the system has not
// reported as acknowledged. So each byte has either been received or is still kept. Afterwards,
// each rank sends the bytes that the other rank has not received. If the exchange fails, the ranks
// repeat it over another connection.
#pragma once

#include <poll.h>

#include <cstdint>

#include "rendezvous/connections/conversation.h"
#include "transport/tcp/link.h"

namespace mccl::rendezvous {

/// This rank's side of an exchange. Not thread-safe. No call blocks.
class RepairExchange {
 public:
  enum class Role : std::uint8_t { dialer, acceptor };
  enum class State : std::uint8_t {
    waiting,
    done,     ///< The link can continue over take_socket().
    unknown,  ///< The other rank does not have the link, or learned that this rank does not.
    broken,   ///< The connection has ended, or the other rank has sent an invalid message.
  };

  /// `link`: null if this rank, the acceptor, does not have the link that the dialer wants to
  /// continue. It must outlive this object. `socket`: a connection whose handshake has succeeded.
  RepairExchange(Socket socket, Role role, transport::tcp::TcpLink* link);

  /// Does all work that is possible without blocking. Throws std::bad_alloc if memory runs out.
  State advance();
  Role role() const { return role_; }
  pollfd watched() const { return stream_.watched(); }

  /// Number of bytes of the link that the other rank has received. Requires State::done.
  transport::tcp::StreamOffset peer_has() const { return peer_has_; }
  /// Releases the connection. Requires State::done.
  Socket take_socket() { return stream_.take_socket(); }

 private:
  State take(std::uint64_t number);
  void send(std::uint64_t number);

  ByteStream stream_;
  const Role role_;
  transport::tcp::TcpLink* const link_;
  Bytes input_;
  bool is_ready_ = false;          ///< True once the acceptor has received `ready`.
  State result_ = State::waiting;  ///< advance() returns it once all output is sent.
  transport::tcp::StreamOffset peer_has_ = 0;
};

}  // namespace mccl::rendezvous
