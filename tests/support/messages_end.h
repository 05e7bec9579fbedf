// The messages of one rank over in-memory links, which a test drives pass by pass. The other end is
// another MessagesEnd, or a HostilePeer that writes arbitrary bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/calls/operation.h"
#include "engine/links/channel.h"
#include "engine/messages/messages.h"
#include "support/members.h"
#include "support/memory_link.h"

namespace mccl::testing {

class MessagesEnd {
 public:
  using Call = std::shared_ptr<engine::Operation>;

  MessagesEnd(int rank, int size, std::size_t payload_limit, bool crc = false)
      : group_(membership(rank, size)),
        channels_(
            group_, payload_limit, crc, [](transport::Purpose, GroupRank) {}, [] {}),
        messages_(channels_, payload_limit) {}

  void attach(int peer, std::uint8_t rail, std::uint8_t rails, std::unique_ptr<MemoryLink> link) {
    channels_.attach(transport::Purpose::point_to_point, GroupRank(peer), rail, rails,
                     std::move(link), bytes_);
  }

  /// Posts a send of u8 elements, which must stay alive until the call is done.
  Call send(std::span<const std::byte> elements, int peer, std::uint32_t tag) {
    engine::Task task = task_of(Collective::send, peer, tag, elements.size());
    task.in = {elements.data(), elements.size(), DType::u8};
    const auto call = std::make_shared<engine::Operation>(std::move(task));
    messages_.post_send(call);
    return call;
  }
  Call receive(std::span<std::byte> elements, int peer, std::uint32_t tag,
               Clock::time_point deadline = Clock::time_point::max()) {
    engine::Task task = task_of(Collective::recv, peer, tag, elements.size());
    task.out = {elements.data(), elements.size(), DType::u8};
    const auto call = std::make_shared<engine::Operation>(std::move(task));
    call->deadline = deadline;
    messages_.post_receive(call);
    return call;
  }

  /// Sends the message immediately if possible; otherwise posts it. Returns null if the whole
  /// message was sent immediately.
  Call send_at_once(std::span<const std::byte> elements, int peer, std::uint32_t tag) {
    engine::Task task = task_of(Collective::send, peer, tag, elements.size());
    task.in = {elements.data(), elements.size(), DType::u8};
    const auto result = messages_.send_at_once(task);
    if (result == engine::AtOnce::no) return send(elements, peer, tag);
    if (result == engine::AtOnce::whole) return nullptr;
    const auto call = std::make_shared<engine::Operation>(std::move(task));
    messages_.go_on_with(call);
    return call;
  }
  /// Looks once for the message, without posting a receive. Returns true if the message was
  /// received.
  bool receive_at_once(std::span<std::byte> elements, int peer, std::uint32_t tag) {
    engine::Task task = task_of(Collective::recv, peer, tag, elements.size());
    task.out = {elements.data(), elements.size(), DType::u8};
    return messages_.may_receive_at_once(task) &&
           messages_.receive_at_once(task) == engine::AtOnce::whole;
  }

  /// Makes one pass. Returns false if there was no progress.
  bool advance() { return messages_.advance(); }
  /// True if the call has finished, even in a pass that threw.
  bool done(const Call& call) {
    for (engine::OperationList all = messages_.take_finished(); !all.empty();) {
      finished_.push_back(all.pop_front());
    }
    return std::find(finished_.begin(), finished_.end(), call) != finished_.end();
  }

  engine::Messages& messages() { return messages_; }

 private:
  static engine::Task task_of(Collective collective, int peer, std::uint32_t tag,
                              std::size_t count) {
    engine::Task task;
    task.call.collective = collective;
    task.call.peer = peer;
    task.call.tag = tag;
    task.call.count = count;
    return task;
  }

  const engine::Membership group_;
  engine::LinkBytes bytes_;
  engine::Channels channels_;
  engine::Messages messages_;
  std::vector<Call> finished_;
};

/// Ranks 0 and 1 of a group of two.
struct MessagesPair {
  explicit MessagesPair(std::size_t link_capacity = MemoryLink::kUsualCapacity, int rails = 1,
                        std::size_t payload_limit = std::size_t{4} << 20, bool crc = false)
      : first(0, 2, payload_limit, crc), second(1, 2, payload_limit, crc) {
    for (int rail = 0; rail < rails; ++rail) {
      auto [near, far] = MemoryLink::make(link_capacity);
      near_links.push_back(near.get());
      far_links.push_back(far.get());
      const auto index = static_cast<std::uint8_t>(rail);
      first.attach(1, index, static_cast<std::uint8_t>(rails), std::move(near));
      second.attach(0, index, static_cast<std::uint8_t>(rails), std::move(far));
    }
  }

  /// Advances both ends until neither makes progress.
  void settle() {
    bool moved = true;
    while (moved) {
      moved = first.advance();
      moved |= second.advance();
    }
  }

  /// The links of each end, by rail. Valid as long as that end has them.
  std::vector<MemoryLink*> near_links, far_links;
  MessagesEnd first;
  MessagesEnd second;
};

/// Rank 1 as rank 0 sees it. It has been authenticated and then sends arbitrary frames or bytes.
class HostilePeer {
 public:
  explicit HostilePeer(MessagesEnd& victim, int rails = 1,
                       std::size_t link_capacity = std::size_t{1} << 20) {
    for (int rail = 0; rail < rails; ++rail) {
      auto [near, far] = MemoryLink::make(link_capacity);
      victim.attach(1, static_cast<std::uint8_t>(rail), static_cast<std::uint8_t>(rails),
                    std::move(near));
      links_.push_back(std::move(far));
    }
  }

  /// Writes a frame. The payload may be longer or shorter than the frame says.
  void send(const engine::Frame& frame, std::span<const std::byte> payload = {}, int rail = 0) {
    link(rail).write(engine::encode(frame), payload);
  }
  MemoryLink& link(int rail = 0) { return *links_[static_cast<std::size_t>(rail)]; }
  void leave() { links_.clear(); }
  void end_link(int rail) { links_[static_cast<std::size_t>(rail)].reset(); }

 private:
  std::vector<std::unique_ptr<MemoryLink>> links_;
};

}  // namespace mccl::testing
