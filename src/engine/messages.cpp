#include "engine/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mccl/error.h"

namespace mccl::engine {

Messages::Messages(Channels& channels, std::size_t piece_bytes)
    : channels_(channels),
      piece_bytes_(piece_bytes),
      peers_(static_cast<std::size_t>(channels.size())) {}

void Messages::queue(int rank, Outgoing outgoing) {
  peers_[static_cast<std::size_t>(rank)].outgoing.push_back(std::move(outgoing));
}

void Messages::finish(std::shared_ptr<Operation> operation, Finished& finished) {
  --active_;
  finished.push_back(std::move(operation));
}

void Messages::post_send(std::shared_ptr<Operation> operation) {
  ++active_;
  const int rank = operation->call.peer;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const std::size_t bytes = operation->input.bytes();
  Outgoing outgoing;
  outgoing.frame.call = operation->call;
  outgoing.frame.call.sequence = peer.next_message++;
  if (bytes <= kEagerBytes && peer.eager_in_flight + bytes <= kEagerCredit) {
    peer.eager_in_flight += bytes;
    outgoing.frame.kind = FrameKind::eager;
    outgoing.payload = {static_cast<const std::byte*>(operation->input.data), bytes};
    operation->frames_left = 1;
    outgoing.operation = std::move(operation);
  } else {
    outgoing.frame.kind = FrameKind::request;
    peer.awaiting_grant.emplace(outgoing.frame.call.sequence, std::move(operation));
  }
  queue(rank, std::move(outgoing));
}

void Messages::post_receive(std::shared_ptr<Operation> operation) {
  ++active_;
  const auto found =
      std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& message) {
        return (operation->call.peer < 0 || operation->call.peer == message.source) &&
               operation->call.tag == message.frame.call.tag;
      });
  if (found == unexpected_.end()) {
    posted_.push_back(std::move(operation));
    return;
  }
  Unexpected message = std::move(*found);
  unexpected_.erase(found);
  check(*operation, message.source, message.frame);
  if (message.frame.kind == FrameKind::request) {
    grant(message.source, message.frame, std::move(operation));
  } else {
    deliver(message, *operation);
    delivered_.push_back(std::move(operation));
  }
}

bool Messages::advance(Finished& finished) {
  bool moved = !delivered_.empty();
  for (std::shared_ptr<Operation>& operation : delivered_) finish(std::move(operation), finished);
  delivered_.clear();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    Peer& peer = peers_[i];
    if (!peer.outgoing.empty() || !peer.writing.empty()) moved |= write_to(rank, peer, finished);
    if (wants_to_read(rank, peer)) moved |= read_from(rank, peer, finished);
  }
  return moved;
}

std::shared_ptr<Operation> Messages::match(int source, const Frame& frame) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const auto& receive) {
    return (receive->call.peer < 0 || receive->call.peer == source) &&
           receive->call.tag == frame.call.tag;
  });
  if (found == posted_.end()) return nullptr;
  check(**found, source, frame);
  std::shared_ptr<Operation> receive = std::move(*found);
  posted_.erase(found);
  return receive;
}

void Messages::check(const Operation& receive, int source, const Frame& frame) const {
  if (receive.call.count == frame.call.count && receive.call.dtype == frame.call.dtype) return;
  throw MismatchError(
      fmt::format("{} met a message of {} {} from rank {}: sizes and types must agree",
                  describe(receive.call), frame.call.count, name_of(frame.call.dtype), source));
}

void Messages::grant(int source, const Frame& request, std::shared_ptr<Operation> receive) {
  Outgoing outgoing;
  outgoing.frame.kind = FrameKind::grant;
  outgoing.frame.call.sequence = request.call.sequence;
  queue(source, std::move(outgoing));
  receive->received_from(source);
  const std::size_t bytes = receive->output.bytes();
  peers_[static_cast<std::size_t>(source)].incoming.emplace(request.call.sequence,
                                                            Incoming{std::move(receive), bytes});
}

void Messages::deliver(const Unexpected& message, Operation& receive) {
  if (!message.payload.empty()) {
    std::memcpy(receive.output.data, message.payload.data(), message.payload.size());
  }
  receive.traffic.bytes_received += message.payload.size();
  receive.received_from(message.source);
  return_credit(message.source, message.payload.size());
}

void Messages::return_credit(int source, std::size_t bytes) {
  Peer& peer = peers_[static_cast<std::size_t>(source)];
  peer.credit_owed += bytes;
  if (peer.credit_owed < kEagerCredit / 4) return;
  Outgoing outgoing;
  outgoing.frame.kind = FrameKind::credit;
  outgoing.frame.call.count = std::exchange(peer.credit_owed, 0);
  queue(source, std::move(outgoing));
}

void Messages::granted(int rank, Peer& peer, const Frame& frame) {
  const auto found = peer.awaiting_grant.find(frame.call.sequence);
  if (found == peer.awaiting_grant.end()) {
    throw CorruptionError(fmt::format("rank {} granted a message that was not announced", rank));
  }
  const std::shared_ptr<Operation> operation = std::move(found->second);
  peer.awaiting_grant.erase(found);
  const auto* data = static_cast<const std::byte*>(operation->input.data);
  const std::size_t bytes = operation->input.bytes();
  operation->frames_left = (bytes + piece_bytes_ - 1) / piece_bytes_;
  for (std::size_t piece = 0; piece < operation->frames_left; ++piece) {
    Outgoing outgoing;
    outgoing.frame.kind = FrameKind::data;
    outgoing.frame.call = operation->call;
    outgoing.frame.call.sequence = frame.call.sequence;
    outgoing.frame.message = static_cast<std::uint32_t>(piece);
    outgoing.payload = {data + piece * piece_bytes_,
                        std::min(piece_bytes_, bytes - piece * piece_bytes_)};
    outgoing.operation = operation;
    queue(rank, std::move(outgoing));
  }
}

bool Messages::cancel(const Operation& operation) {
  const auto is_it = [&operation](const auto& pending) { return pending.get() == &operation; };
  if (const auto found = std::find_if(posted_.begin(), posted_.end(), is_it);
      found != posted_.end()) {
    posted_.erase(found);
    --active_;
    return true;
  }
  return false;
}

Messages::Finished Messages::pending() const {
  Finished all(posted_.begin(), posted_.end());
  for (const Peer& peer : peers_) {
    for (const auto& [id, operation] : peer.awaiting_grant) all.push_back(operation);
    for (const auto& [id, incoming] : peer.incoming) all.push_back(incoming.operation);
    const auto add = [&all](const Outgoing& outgoing) {
      // The pieces of one message follow one another.
      const bool listed = !all.empty() && all.back() == outgoing.operation;
      if (outgoing.operation && !listed) all.push_back(outgoing.operation);
    };
    std::for_each(peer.outgoing.begin(), peer.outgoing.end(), add);
    std::for_each(peer.writing.begin(), peer.writing.end(), add);
  }
  return all;
}

Messages::Finished Messages::drop_all() {
  Finished all = pending();
  all.insert(all.end(), delivered_.begin(), delivered_.end());
  posted_.clear();
  unexpected_.clear();
  delivered_.clear();
  for (Peer& peer : peers_) peer = Peer{};
  active_ = 0;
  return all;
}

}  // namespace mccl::engine
