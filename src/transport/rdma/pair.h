// A queue pair with its slots: it sends messages as far as credit goes, takes those that arrive in
// their order, checks each, and looks at how every request has ended.
//
// Before it carries data the two ends greet each other through it, so that a path on which nothing
// arrives is found out while there is another: the end that dialled says hello until it hears
// hello, and then ready. An end is open when it has heard that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "transport/rdma/credits.h"
#include "transport/rdma/device.h"
#include "transport/rdma/message.h"
#include "transport/rdma/shape.h"
#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

/// What an end must know of the other, beside the way to it.
struct FarEnd {
  std::uint64_t token = 0;
  Shape shape;
};

class Pair {
 public:
  /// By then a peer that lives has answered. A process that has nothing to do looks at its pairs at
  /// each beat of the engine's.
  static constexpr std::chrono::seconds kAnswerPatience{15};

  /// Posts its receives. `channel` is told of completions, and may be null. `peer` names the other
  /// end: "rank 3". Throws VerbsError, Error.
  Pair(std::shared_ptr<Device> device, Channel* channel, Service service, int port,
       std::string peer);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  std::uint32_t number() const { return queue_pair_->number(); }
  std::uint32_t first_packet() const { return first_packet_; }
  std::uint64_t token() const { return token_; }
  Service service() const { return service_; }
  const std::string& peer() const { return peer_; }
  const Device& device() const { return *device_; }

  /// Throws VerbsError.
  void connect(const Route& route, const FarEnd& far, bool dialled);
  bool is_open() const { return phase_ == Phase::open; }
  /// How long the peer may leave a question whether data have arrived without an answer, on uc.
  void answer_within(Clock::duration patience) { answer_patience_ = patience; }

  /// Looks at what has ended and arrived, and sends what it owes. Throws nothing: see ended().
  void poll();
  /// Does what only time calls for, and what it owes; next_tending() says when to call it again.
  void tend(Clock::time_point now);
  Clock::time_point next_tending() const { return next_tending_; }
  /// The channel is told of the next completion.
  void notify();

  /// Memory for the next data message, of which `send` sends the first bytes; empty while there is
  /// no slot or no credit.
  std::span<std::byte> free_slot();
  void send(std::size_t bytes) { send(bytes, {}, 0); }
  /// The same, and behind it memory of somebody else's region, which must stay as it is until the
  /// device has said that it is sent; together no more than the slot has room for.
  void send(std::size_t bytes, std::span<const std::byte> lent, std::uint32_t key);
  /// Of data that the device has not said to have sent.
  std::size_t unsent() const { return unsent_; }
  /// Of these, what lies in memory of others.
  std::size_t lent() const { return lent_; }

  /// Messages that the device has not said to have sent.
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(send_end_ - send_begin_); }

  /// The oldest message that has arrived, what is left of it; empty when none is here.
  std::span<const std::byte> front() const;
  /// Drops bytes of the oldest; its slot is posted again when nothing is left.
  void take(std::size_t bytes);
  /// Bytes that have arrived and were not taken.
  std::size_t arrived() const { return arrived_bytes_; }

  /// Says that no more comes.
  void close();
  /// Nothing that matters to the peer is on its way any more.
  bool departed() const;
  /// The other end has said that no more comes.
  bool closed_by_peer() const { return close_heard_; }
  /// Why it carries nothing any more; empty while it does. What has arrived is here still.
  const std::string& ended() const { return ended_; }
  /// Whether it ended while data of its own may not have arrived.
  bool lost_data() const { return lost_data_; }
  /// Whether the other end may take it for open: it did not dial, and has said hello.
  bool may_be_open_there() const { return !dialled_ && said_hello_; }
  /// Gives it up, as `why` says.
  void give_up(std::string why) { end(std::move(why)); }
  /// Messages that the device has handed out a second time, and that were dropped. Some devices
  /// do so when they send packets again (docs/rdma.md).
  std::uint64_t repeats() const { return repeats_; }
  /// What ended it came from the peer and is none of what an honest one sends.
  bool corrupted() const { return corrupted_; }

 private:
  enum class Phase { made, greeting, open };
  struct Arrived {
    std::uint32_t slot = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  std::span<std::byte> receive_slot(std::uint32_t slot) const;
  std::span<std::byte> send_slot(std::uint64_t number) const;
  const Arrived& arrived_at(std::uint32_t place) const {
    return arrived_[(first_arrived_ + place) % kReceiveSlots];
  }

  void end(std::string why, bool corrupted = false);
  void post_receive(std::uint32_t slot);
  void give_back(std::uint32_t slot);
  void post(MessageKind kind, std::uint32_t bytes, const Piece& lent = {});
  bool post_control(MessageKind kind, bool credit);
  void settle(const Completion& completion);
  void sent(std::uint64_t number);
  void received(std::uint32_t slot, std::uint32_t bytes);
  bool is_repeat(const MessageHeader& header) const;
  void drop_repeat(std::uint32_t slot);
  bool in_order(const MessageHeader& header);
  void hear(const MessageHeader& header, std::uint32_t slot);
  void flush();
  bool owes() const;
  bool is_unproved() const;
  bool has_no_credit() const;
  void remind(Clock::time_point now);
  void ask(Clock::time_point now);

  const std::shared_ptr<Device> device_;
  const Service service_;
  const std::string peer_;
  const std::uint64_t token_;
  const std::uint32_t first_packet_;
  Berth berth_;
  std::unique_ptr<CompletionQueue> completions_;
  std::unique_ptr<QueuePair> queue_pair_;

  Phase phase_ = Phase::made;
  bool dialled_ = false;
  FarEnd far_;
  Credits credits_{0};
  std::uint32_t expected_ = 0;  ///< Number of the next message.
  std::uint64_t repeats_ = 0;
  std::uint64_t send_begin_ = 0, send_end_ = 0;
  /// By slot.
  struct Sending {
    std::uint32_t bytes = 0;
    std::uint32_t lent = 0;
  };
  std::array<Sending, kSendSlots> sending_{};
  std::size_t unsent_ = 0, lent_ = 0;

  std::array<Arrived, kReceiveSlots> arrived_{};  ///< A ring.
  std::uint32_t first_arrived_ = 0, arrived_count_ = 0;
  std::size_t arrived_bytes_ = 0;

  bool hello_owed_ = false, ready_owed_ = false, probe_owed_ = false, answer_owed_ = false;
  bool close_owed_ = false, close_heard_ = false, said_hello_ = false, lost_data_ = false;
  /// Of its data messages, on uc: how many there were, how many have surely arrived, and how many
  /// there were when the peer was asked first, of questions that wait for their answer.
  std::uint64_t data_sent_ = 0, data_proved_ = 0, data_asked_ = 0;
  std::uint64_t seen_at_ = 0;  ///< How many of them there were when it was looked at last.
  Clock::time_point asked_since_ = Clock::time_point::max();
  Clock::duration ask_again_{}, ask_after_{}, answer_patience_ = kAnswerPatience;
  Clock::time_point next_question_{};
  std::uint16_t question_ = 0, question_heard_ = 0;  ///< The latest of its own, and of the peer's.
  Clock::time_point next_tending_ = Clock::time_point::max();
  std::string ended_;
  bool corrupted_ = false;
};

}  // namespace mccl::transport::rdma
