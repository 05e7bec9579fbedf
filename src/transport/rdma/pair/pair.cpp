#include "transport/rdma/pair/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace mccl::transport::rdma {
namespace {

/// Bit that marks a request id as a receive. The other bits are the slot of a receive, or the
/// message number of a send.
constexpr std::uint64_t kIsReceive = std::uint64_t{1} << 63;
constexpr std::uint32_t kPacketMask = 0xffffff;
/// Requested maximum size of inline messages in bytes: a small message with its header.
constexpr std::uint32_t kInlineBytes = 256;
constexpr std::chrono::milliseconds kHelloAgain{100};
/// uc only: data that is still outstanding after this time may be lost, so this end sends a probe.
/// The interval between probes grows by the factor kAskLaterBy. A probe is sent only while credit
/// is left (Credits::may_send_probe).
constexpr std::chrono::milliseconds kAskAfter{200};
constexpr int kAskLaterBy = 3;
constexpr Clock::duration kLongestAskAfter = std::chrono::seconds(2);

std::uint64_t random_number() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

QueuePairOptions options_of(Service service, int port, bool lends) {
  return {.service = service,
          .port = port,
          .sends = kSendSlots,
          .receives = kReceiveSlots,
          .inline_bytes = kInlineBytes,
          .pieces = lends ? 2U : 1U};
}

}  // namespace

Pair::Pair(std::shared_ptr<VerbsDevice> device, CompletionChannel* channel, Service service,
           int port, std::string peer)
    : device_(std::move(device)),
      service_(service),
      peer_(std::move(peer)),
      token_(random_number()),
      first_packet_(static_cast<std::uint32_t>(random_number()) & kPacketMask),
      berth_(device_->slots().take()),
      queue_pair_(device_->context().make_queue_pair(
          options_of(service, port, device_->limits().lends), channel)) {
  device_->forget_pair(number());
  for (std::uint32_t slot = 0; slot < kReceiveSlots; ++slot) post_receive(slot);
  if (!ended_.empty()) throw Error(ended_);
}

std::span<std::byte> Pair::receive_slot(std::uint32_t slot) const {
  return berth_.memory().subspan(std::size_t{slot} * kSlotBytes, kSlotBytes);
}

std::span<std::byte> Pair::send_slot(std::uint64_t number) const {
  const std::size_t slot = kReceiveSlots + number % kSendSlots;
  return berth_.memory().subspan(slot * kSlotBytes, std::min(kSlotBytes, far_.shape.slot_bytes));
}

void Pair::connect(const PairRoute& route, const FarEnd& far, bool dialled) {
  far_ = far;
  credits_ = Credits(far.shape.depth);
  dialled_ = dialled;
  queue_pair_->connect(route);
  phase_ = Phase::greeting;
  hello_owed_ = dialled;
  next_tending_ = Clock::now() + kHelloAgain;
  poll();
}

void Pair::end(std::string why, bool corrupted) {
  if (!ended_.empty()) return;
  lost_data_ = is_open() && !close_heard_ && (unsent_ != 0 || is_unproved());
  ended_ = std::move(why);
  corrupted_ = corrupted;
}

void Pair::post_receive(std::uint32_t slot) {
  const std::span<std::byte> memory = receive_slot(slot);
  const int error = queue_pair_->post_receive(
      kIsReceive | slot, {memory.data(), static_cast<std::uint32_t>(memory.size()), berth_.key()});
  if (error != 0) blame_device("rejects a receive", error);
}

/// Ends the pair because its device failed. `does` is a verb phrase: "rejects a send".
void Pair::blame_device(const char* does, int error) {
  end(fmt::format("device {} {}: {}", device_->name(), does, describe_code(error)));
}

/// Posts a slot again after its message has been processed. No-op if the pair has ended or the peer
/// has closed.
void Pair::give_back(std::uint32_t slot) {
  if (!ended_.empty() || close_heard_) return;
  if (device_->failed()) return end(device_->trouble());
  post_receive(slot);
  credits_.return_one();
}

void Pair::post(MessageKind kind, std::uint32_t bytes, const Piece& lent) {
  MessageHeader header;
  header.token = far_.token;
  header.bytes = bytes + lent.bytes;
  header.returned = credits_.returned();
  header.sequence = credits_.send();
  header.kind = static_cast<std::uint16_t>(kind);
  if (kind == MessageKind::probe) header.question = question_;
  if (kind == MessageKind::answer) header.question = question_heard_;
  const std::span<std::byte> memory = send_slot(send_end_);
  encode(header, memory);
  const auto total = static_cast<std::uint32_t>(kHeaderBytes + bytes);
  const std::array<Piece, 2> pieces = {Piece{memory.data(), total, berth_.key()}, lent};
  const std::size_t count = lent.bytes == 0 ? 1 : 2;
  const bool is_inline = count == 1 && total <= queue_pair_->inline_bytes();
  const int error = queue_pair_->post_send(send_end_, std::span(pieces).first(count), is_inline);
  if (error != 0) return blame_device("rejects a send", error);
  sending_[send_end_ % kSendSlots] = {header.bytes, lent.bytes};
  unsent_ += header.bytes;
  lent_ += lent.bytes;
  ++send_end_;
}

std::span<std::byte> Pair::free_slot() {
  const bool has_slot = in_flight() < kSendSlots - kSendReserved;
  if (!is_open() || !ended_.empty() || close_heard_ || !has_slot || !credits_.may_send_data())
    return {};
  return send_slot(send_end_).subspan(kHeaderBytes);
}

void Pair::send(std::size_t bytes, std::span<const std::byte> lent, std::uint32_t key) {
  if (device_->failed()) return end(device_->trouble());
  post(MessageKind::data, static_cast<std::uint32_t>(bytes),
       {lent.data(), static_cast<std::uint32_t>(lent.size()), key});
  ++data_sent_;
  if (service_ == Service::uc && next_tending_ == Clock::time_point::max())
    next_tending_ = Clock::now() + kAskAfter;
}

bool Pair::post_control(MessageKind kind, bool credit) {
  if (!credit || !ended_.empty() || in_flight() >= kSendSlots) return false;
  post(kind, 0);
  return ended_.empty();
}

/// Sends the control messages that are due, as far as slots and credit allow. Each control message
/// also carries the count of receives that this end has posted again.
void Pair::flush() {
  if (phase_ == Phase::made || close_heard_ || !ended_.empty()) return;
  if (hello_owed_ && post_control(MessageKind::hello, credits_.may_send_credit())) {
    hello_owed_ = false;
    said_hello_ = true;
  }
  if (ready_owed_ && post_control(MessageKind::ready, credits_.may_send_credit())) {
    ready_owed_ = false;
    phase_ = Phase::open;
  }
  if (answer_owed_) answer_owed_ = !post_control(MessageKind::answer, credits_.may_send_credit());
  if (credits_.owes_credit()) post_control(MessageKind::credit, credits_.may_send_credit());
  if (probe_owed_) probe_owed_ = !post_control(MessageKind::probe, credits_.may_send_probe());
  if (close_owed_) close_owed_ = !post_control(MessageKind::close, credits_.may_close());
}

void Pair::poll() {
  if (!ended_.empty()) return;
  if (device_->failed()) return end(device_->trouble());
  std::array<Completion, 16> ended;
  for (int count = static_cast<int>(ended.size()); count == static_cast<int>(ended.size());) {
    count = queue_pair_->poll(ended);
    if (count < 0) return blame_device("reports no completions", -count);
    for (int i = 0; i < count && ended_.empty(); ++i) settle(ended[static_cast<std::size_t>(i)]);
  }
  std::string trouble = device_->trouble_of_pair(number());
  if (!trouble.empty() && !close_heard_) return end(std::move(trouble));
  flush();
}

void Pair::settle(const Completion& completion) {
  const bool is_receive = (completion.id & kIsReceive) != 0;
  if (completion.status != 0) {
    if (close_heard_) return;  // Errors are expected after the other end has closed.
    return end(fmt::format("{} a message failed: {} (device {})",
                           is_receive ? "receiving" : "sending", describe_status(completion.status),
                           device_->name()));
  }
  if (!is_receive) return sent(completion.id);
  const std::uint64_t slot = completion.id & ~kIsReceive;
  if (slot >= kReceiveSlots) {
    return end(fmt::format("device {} reports a receive that was not posted", device_->name()));
  }
  received(static_cast<std::uint32_t>(slot), completion.bytes);
}

void Pair::sent(std::uint64_t number) {
  if (number != send_begin_ || send_begin_ == send_end_) {
    return end(fmt::format(
        "device {} reports that message {} was sent, but message {} is the next to complete",
        device_->name(), number, send_begin_));
  }
  unsent_ -= sending_[send_begin_ % kSendSlots].bytes;
  lent_ -= sending_[send_begin_ % kSendSlots].lent;
  ++send_begin_;
}

void Pair::received(std::uint32_t slot, std::uint32_t bytes) {
  const std::span<std::byte> memory = receive_slot(slot);
  if (bytes > memory.size()) {
    return end(fmt::format("device {} reports a message of {} bytes in a slot of {} bytes",
                           device_->name(), bytes, memory.size()));
  }
  const Decoded found = decode(memory.first(bytes), token_, kSlotBytes - kHeaderBytes);
  if (!found.fault.empty()) return end(found.fault, true);
  if (is_repeat(found.header)) return drop_repeat(slot);
  if (!in_order(found.header)) return;
  if (!credits_.hear(found.header.returned)) {
    return end(fmt::format("it acknowledges message {}, which was not sent", found.header.returned),
               true);
  }
  hear(found.header, slot);
}

/// True if the device has delivered this message before. All messages before `expected_` have
/// arrived already.
bool Pair::is_repeat(const MessageHeader& header) const {
  return static_cast<std::int32_t>(header.sequence - expected_) < 0;
}

/// Drops a message that the device has delivered again. The peer sent it only once and counts no
/// receive for the repetition, so returned_ must not change. The header is ignored because later
/// messages carry newer values.
void Pair::drop_repeat(std::uint32_t slot) {
  ++repeats_;
  if (close_heard_) return;
  if (device_->failed()) return end(device_->trouble());
  post_receive(slot);
}

/// Returns false and ends the pair if messages were lost before this one. Lost greetings are
/// tolerated on uc, where a message that is damaged or cannot be routed is dropped silently.
bool Pair::in_order(const MessageHeader& header) {
  const std::uint32_t lost = header.sequence - expected_;
  if (lost != 0 && (is_open() || service_ == Service::rc || lost >= kReceiveSlots)) {
    end(fmt::format(
        "message {} arrived instead of message {}: the messages between them were lost in "
        "transit, or arrived out of order{}",
        header.sequence, expected_,
        service_ == Service::uc
            ? ", and a uc queue pair retransmits nothing; use MCCL_RDMA_SERVICE=rc if "
              "the devices have it, or a lossless network"
            : ""));
    return false;
  }
  credits_.skip(lost);
  expected_ = header.sequence + 1;
  return true;
}

void Pair::hear(const MessageHeader& header, std::uint32_t slot) {
  switch (static_cast<MessageKind>(header.kind)) {
    case MessageKind::hello:
      if (dialled_) {
        // A repeated hello means that this end's ready was lost. Data sent after that ready may be
        // lost too. A second ready would hide the loss, so it is sent only if no data was sent.
        ready_owed_ = data_sent_ == 0;
      } else if (!is_open()) {
        hello_owed_ = true;
      }
      break;
    case MessageKind::ready:
      if (dialled_)
        return end("it sent the message ready, which only the dialing end may send", true);
      phase_ = Phase::open;
      break;
    case MessageKind::data: {
      if (!is_open()) {
        // The peer considers the pair open, so the two ends may no longer try another transport.
        // This end must therefore treat the pair as open too.
        phase_ = Phase::open;
        return end("it sends data, but the messages before the data were lost in transit");
      }
      Arrived& last = arrived_[(first_arrived_ + arrived_count_++) % kReceiveSlots];
      last = {slot, kHeaderBytes, static_cast<std::uint32_t>(kHeaderBytes + header.bytes)};
      arrived_bytes_ += header.bytes;
      return;
    }
    case MessageKind::credit:
      break;
    case MessageKind::probe:
      answer_owed_ = is_open();
      question_heard_ = header.question;
      hello_owed_ |= may_be_open_there() && !is_open();
      break;
    case MessageKind::answer:
      if (header.question != question_) break;  // The peer answers an earlier probe.
      data_proved_ = data_asked_;
      asked_since_ = Clock::time_point::max();
      break;
    case MessageKind::close:
      close_heard_ = true;
      return;
  }
  give_back(slot);
}

std::span<const std::byte> Pair::front() const {
  if (arrived_count_ == 0) return {};
  const Arrived& first = arrived_at(0);
  return receive_slot(first.slot).subspan(first.begin, first.end - first.begin);
}

void Pair::take(std::size_t bytes) {
  Arrived& first = arrived_[first_arrived_];
  first.begin += static_cast<std::uint32_t>(bytes);
  arrived_bytes_ -= bytes;
  if (first.begin != first.end) return;
  const std::uint32_t slot = first.slot;
  first_arrived_ = (first_arrived_ + 1) % kReceiveSlots;
  --arrived_count_;
  give_back(slot);
  if (credits_.owes_credit()) flush();
}

void Pair::tend(Clock::time_point now) {
  if (now >= next_tending_) remind(now);
  if (phase_ == Phase::greeting || owes()) poll();
}

bool Pair::owes() const {
  return hello_owed_ || ready_owed_ || probe_owed_ || answer_owed_ || close_owed_ ||
         credits_.owes_credit();
}

/// True if the service is uc and data that this end sent may have been lost without any report.
bool Pair::is_unproved() const {
  return service_ == Service::uc && is_open() && data_sent_ != data_proved_ &&
         credits_.outstanding() != 0;
}

/// Repeats greetings and sends probes on uc, where nothing is retransmitted.
void Pair::remind(Clock::time_point now) {
  next_tending_ = Clock::time_point::max();
  if (service_ == Service::rc || !ended_.empty() || close_heard_) return;
  if (phase_ == Phase::greeting) {
    hello_owed_ |= dialled_ || said_hello_;
    next_tending_ = now + kHelloAgain;
  } else if (asked_since_ != Clock::time_point::max()) {
    if (now - asked_since_ >= answer_patience_) {
      return end("it does not answer, though its process is alive: the path to it carries nothing");
    }
    probe_owed_ = true;
    ask_again_ *= kAskLaterBy;
    next_tending_ = std::min(now + ask_again_, asked_since_ + answer_patience_);
  } else if (is_unproved() || has_no_credit()) {
    // Data sent since the last check is not overdue yet. The interval between probes increases,
    // because the peer may only be slow to process the data.
    if (std::exchange(seen_at_, data_sent_) != data_sent_) {
      ask_after_ = kAskAfter;
    } else if (now >= next_question_) {
      ask(now);
      next_question_ = now + ask_after_;
      ask_after_ = std::min(kAskLaterBy * ask_after_, kLongestAskAfter);
    }
    next_tending_ = now + kAskAfter;
  }
}

/// True if this end lacks the credit to send data. It then sends probes, because the message that
/// returned credit may be lost.
bool Pair::has_no_credit() const { return is_open() && !credits_.may_send_data(); }

void Pair::ask(Clock::time_point now) {
  probe_owed_ = true;
  ++question_;
  data_asked_ = data_sent_;
  asked_since_ = now;
  ask_again_ = kAskAfter;
}

void Pair::notify() {
  if (!ended_.empty() || device_->failed()) return;
  const int error = queue_pair_->notify();
  if (error != 0) blame_device("cannot announce completions", error);
}

void Pair::close() {
  if (close_owed_ || phase_ == Phase::made) return;
  close_owed_ = true;
  poll();
}

bool Pair::departed() const {
  if (phase_ == Phase::made || !ended_.empty() || close_heard_) return true;
  return !close_owed_ && send_begin_ == send_end_;
}

}  // namespace mccl::transport::rdma
