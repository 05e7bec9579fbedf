// A Pair is one end's queue pair with its slots. It sends messages as far as credit allows,
// receives messages in order, validates each message, and checks the result of every request.
//
// Before the pair carries data, the two ends greet each other through it. A path on which nothing
// arrives is thus detected while another transport can still be tried. The dialing end sends hello,
// and the other end answers with its own hello. On uc (unreliable connection), both repeat their
// hello, which may be lost. When the answer arrives, the dialing end sends ready and is open. The
// other end is open when it receives ready.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "transport/rdma/device/device.h"
#include "transport/rdma/pair/message.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

/// Values that one end of a link must know about the other end, in addition to the route to it.
struct FarEnd {
  std::uint64_t token = 0;
  SlotShape shape;
};

class Pair {
 public:
  /// Maximum time in which a live peer answers a probe. An idle process answers slowly, because it
  /// polls its pairs only when the engine sends heartbeats.
  static constexpr std::chrono::seconds kAnswerPatience{15};

  /// Makes the queue pair and posts its receives. `channel` is notified of completions and may be
  /// null. `peer` is the name of the other end in messages: "rank 3". Throws an Error if the device
  /// refuses any of this.
  Pair(std::shared_ptr<VerbsDevice> device, CompletionChannel* channel, Service service, int port,
       std::string peer);
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  std::uint32_t number() const { return queue_pair_->number(); }
  std::uint32_t first_packet() const { return first_packet_; }
  std::uint64_t token() const { return token_; }
  Service service() const { return service_; }
  const std::string& peer() const { return peer_; }
  const VerbsDevice& device() const { return *device_; }

  /// Connects the queue pair to the peer's queue pair, and starts the greeting. `dialled`: true at
  /// the dialing end. Throws VerbsError if the driver refuses the route.
  void connect(const PairRoute& route, const FarEnd& far, bool dialled);
  bool is_open() const { return phase_ == Phase::open; }
  /// uc only: sets how long the peer may leave a probe unanswered before the pair ends.
  void answer_within(Clock::duration patience) { answer_patience_ = patience; }

  /// Processes completions and arrived messages, and sends the control messages that are due. Never
  /// throws; ended() reports errors.
  void poll();
  /// Repeats greetings, checks time limits, and sends the control messages that are due. Must be
  /// called again at next_tending().
  void tend(Clock::time_point now);
  Clock::time_point next_tending() const { return next_tending_; }
  /// Requests one notification on the channel, for the next completion.
  void notify();

  /// Returns memory for the payload of the next data message; send() sends its first bytes. Empty
  /// if no slot is free or no credit is left.
  std::span<std::byte> free_slot();
  void send(std::size_t bytes) { send(bytes, {}, 0); }
  /// Sends the first `bytes` of the free slot, followed by `lent`, which is memory registered with
  /// key `key`. That memory must stay unchanged until the device has completed the send. Both parts
  /// together must not exceed the slot.
  void send(std::size_t bytes, std::span<const std::byte> lent, std::uint32_t key);
  /// Number of data bytes posted whose completion has not been seen.
  std::size_t unsent() const { return unsent_; }
  /// The part of unsent() that lies in lent memory.
  std::size_t lent() const { return lent_; }

  /// Number of messages posted whose completion has not been seen.
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(send_end_ - send_begin_); }

  /// Returns the unread rest of the oldest arrived message; empty if there is none.
  std::span<const std::byte> front() const;
  /// Drops bytes of the oldest message. Posts its slot again once all its bytes are dropped.
  void take(std::size_t bytes);
  /// Number of bytes that have arrived and that take() has not dropped.
  std::size_t arrived() const { return arrived_bytes_; }

  /// Sends the message close, after which this end sends no more messages.
  void close();
  /// True if all messages, including close, have been sent, or if the peer will receive nothing
  /// more.
  bool departed() const;
  /// True if the other end has sent close.
  bool closed_by_peer() const { return close_heard_; }
  /// The reason why the pair no longer carries messages; empty while it carries messages. Bytes
  /// that have arrived remain readable.
  const std::string& ended() const { return ended_; }
  /// True if the pair ended while data sent by this end may not have arrived.
  bool lost_data() const { return lost_data_; }
  /// True if the other end may consider the pair open: that end dialed, and this end has sent its
  /// hello.
  bool may_be_open_there() const { return !dialled_ && said_hello_; }
  void give_up(std::string why) { end(std::move(why)); }
  /// Number of messages that were dropped because the device had delivered them before. Some
  /// devices repeat messages when they retransmit packets (docs/rdma.md).
  std::uint64_t repeats() const { return repeats_; }
  /// True if the pair ended because of a message that no correct peer sends.
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
  void blame_device(const char* does, int error);
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

  const std::shared_ptr<VerbsDevice> device_;
  const Service service_;
  const std::string peer_;
  const std::uint64_t token_;
  const std::uint32_t first_packet_;
  Berth berth_;
  std::unique_ptr<QueuePair> queue_pair_;

  Phase phase_ = Phase::made;
  bool dialled_ = false;
  FarEnd far_;
  Credits credits_{0};
  std::uint32_t expected_ = 0;  ///< Sequence number that the next received message must have.
  std::uint64_t repeats_ = 0;
  std::uint64_t send_begin_ = 0, send_end_ = 0;
  /// Sizes, in bytes, of the message posted in one send slot: its whole payload, and the part of
  /// the payload that lies in lent memory.
  struct Sending {
    std::uint32_t bytes = 0;
    std::uint32_t lent = 0;
  };
  std::array<Sending, kSendSlots> sending_{};
  std::size_t unsent_ = 0, lent_ = 0;

  /// Ring buffer of arrived messages of which take() has not dropped all bytes.
  std::array<Arrived, kReceiveSlots> arrived_{};
  std::uint32_t first_arrived_ = 0, arrived_count_ = 0;
  std::size_t arrived_bytes_ = 0;

  bool hello_owed_ = false, ready_owed_ = false, probe_owed_ = false, answer_owed_ = false;
  bool close_owed_ = false, close_heard_ = false, said_hello_ = false, lost_data_ = false;
  /// Counters of this end's data messages, used on uc: messages sent, messages known to have
  /// arrived, and messages that had been sent when the pending probe was first sent.
  std::uint64_t data_sent_ = 0, data_proved_ = 0, data_asked_ = 0;
  std::uint64_t seen_at_ = 0;  ///< Value of data_sent_ at the last check by remind().
  Clock::time_point asked_since_ = Clock::time_point::max();
  Clock::duration ask_again_{}, ask_after_{}, answer_patience_ = kAnswerPatience;
  Clock::time_point next_question_{};
  /// Number of the latest probe that this end sent, and of the latest probe that the peer sent.
  std::uint16_t question_ = 0, question_heard_ = 0;
  Clock::time_point next_tending_ = Clock::time_point::max();
  std::string ended_;
  bool corrupted_ = false;
};

}  // namespace mccl::transport::rdma
