#include "rendezvous/meeting/repair_exchange.h"

#include <limits>
#include <utility>

#include "rendezvous/connections/wire.h"

namespace mccl::rendezvous {

constexpr std::uint64_t kReady = 0x5245'4144'594c'494e;
/// Sent in place of the number of received bytes by a rank that does not have the link.
constexpr std::uint64_t kNoSuchLink = std::numeric_limits<std::uint64_t>::max();

RepairExchange::RepairExchange(Socket socket, Role role, transport::tcp::TcpLink* link)
    : stream_(std::move(socket)), role_(role), link_(link) {
  if (role != Role::dialer) return;
  link->pause();
  send(kReady);
}

RepairExchange::State RepairExchange::advance() {
  for (;;) {
    if (!stream_.flush()) return State::broken;
    if (stream_.has_output()) return State::waiting;
    if (result_ != State::waiting) return result_;
    const bool is_open = stream_.receive(input_, sizeof(std::uint64_t));
    if (input_.size() < sizeof(std::uint64_t)) return is_open ? State::waiting : State::broken;
    const Bytes message = std::exchange(input_, {});
    result_ = take(WireReader(message).number<std::uint64_t>());
  }
}

/// Handles a message. Returns State::waiting if another message from the other rank follows.
RepairExchange::State RepairExchange::take(std::uint64_t number) {
  if (role_ == Role::acceptor && !std::exchange(is_ready_, true)) {
    if (number != kReady) return State::broken;
    if (link_) link_->pause();
    send(link_ ? link_->close_connection() : kNoSuchLink);
    return link_ ? State::waiting : State::unknown;
  }
  if (number == kNoSuchLink) return State::unknown;
  peer_has_ = number;
  if (role_ == Role::dialer) send(link_->close_connection());
  return State::done;
}

void RepairExchange::send(std::uint64_t number) {
  Bytes message;
  append(message, number);
  stream_.queue(message);
}

}  // namespace mccl::rendezvous
