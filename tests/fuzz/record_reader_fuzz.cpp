// TLS records as a peer with the right key may send them: the input is a script of script.h. The
// bytes received must be the data of all valid records in order, however the records arrive and
// whatever follows them, and nothing may be received after an error.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/no_signal.h"
#include "input.h"
#include "script.h"
#include "transport/tcp/record_reader.h"

using namespace mccl::transport::tcp;
using mccl::Descriptor;
using mccl::fuzz::Input;
using mccl::fuzz::RecordStep;
using mccl::fuzz::require;

namespace {

using Bytes = std::vector<std::byte>;

/// Bounds the time of a run.
constexpr std::size_t kMostWritten = std::size_t{256} << 10;
constexpr int kMostEmptyRecords = 32;

/// The sender, and a model of what a receiver must make of its records.
class Peer {
 public:
  Peer() : keys_(RecordKeys::Use::seal, {}) {}

  /// Performs a step. Returns false if the step is not one of the peer's.
  bool perform(RecordStep step, Input& input) {
    switch (step) {
      case RecordStep::data: {
        const Bytes content = data(input.number<std::uint16_t>());
        seal(ContentType::application_data, content, input.byte());
        return true;
      }
      case RecordStep::other: {
        const auto type = static_cast<ContentType>(input.byte());
        const std::size_t padding = input.byte();
        const auto content = input.take(input.byte());
        seal(type, Bytes(content.begin(), content.end()), padding);
        return true;
      }
      case RecordStep::altered: {
        const Bytes content = data(input.number<std::uint16_t>());
        const std::size_t start = wire.size();
        const bool before = is_over_;
        is_over_ = true;  // Nothing in or after the altered record is valid.
        seal(ContentType::application_data, content, 0);
        const std::size_t place = input.number<std::uint16_t>() % (wire.size() - start);
        const auto change = static_cast<std::byte>(input.byte());
        wire[start + place] ^= change == std::byte{0} ? std::byte{1} : change;
        has_failed |= !before;
        return true;
      }
      case RecordStep::raw: {
        const auto bytes = input.take(input.byte());
        wire.insert(wire.end(), bytes.begin(), bytes.end());
        if (!bytes.empty()) fail();
        return true;
      }
      case RecordStep::update: {
        Bytes message(kKeyUpdate.begin(), kKeyUpdate.end());
        message.back() = static_cast<std::byte>(input.byte() % 2);
        seal(ContentType::handshake, message, 0);
        return true;
      }
      case RecordStep::alert: {
        const Bytes message = {static_cast<std::byte>(input.byte()),
                               static_cast<std::byte>(input.byte())};
        seal(ContentType::alert, message, 0);
        return true;
      }
      default:
        return false;
    }
  }

  Bytes wire;                 ///< Bytes that the peer has written and that are not delivered yet.
  Bytes expected;             ///< The data of all valid records.
  bool has_failed = false;    ///< True if an error must end the stream.
  bool has_closed = false;    ///< True if close_notify must end the stream.
  bool requests_key = false;  ///< True if a valid key update requests another.

 private:
  /// Returns bytes that differ from those of other calls.
  Bytes data(std::size_t count) {
    Bytes content(count % (kRecordPayloadBytes + 1));
    for (std::byte& each : content) each = static_cast<std::byte>(++next_ % 251);
    return content;
  }

  void fail() {
    has_failed |= !is_over_;
    is_over_ = true;
  }

  void seal(ContentType type, Bytes content, std::size_t padding) {
    // The type is the last byte that is not zero. seal() appends only the last byte of all.
    content.push_back(static_cast<std::byte>(type));
    content.resize(std::min(content.size() + padding, kRecordPayloadBytes + 1));
    const auto last = static_cast<ContentType>(content.back());
    const RecordKeys::Payload payload = {std::span(content).first(content.size() - 1), {}};
    const std::size_t start = wire.size();
    wire.resize(start + content.size() - 1 + kRecordOverhead);
    require(keys_.seal(0, number_++, last, payload, wire.data() + start), "OpenSSL fails");
    while (content.size() > 1 && content.back() == std::byte{0}) content.pop_back();
    const auto found = static_cast<ContentType>(content.back());
    content.pop_back();
    understand(found, content);
  }

  /// Does what a receiver must do with a record that it can open.
  void understand(ContentType type, const Bytes& content) {
    const bool is_data = type == ContentType::application_data;
    const bool is_update = type == ContentType::handshake && content.size() == kKeyUpdate.size() &&
                           std::equal(content.begin(), content.end() - 1, kKeyUpdate.begin()) &&
                           content.back() <= kUpdateRequested;
    if (is_update) {
      require(keys_.replace(), "OpenSSL fails");
      number_ = 0;
    }
    if (is_over_) return;
    if (is_data) {
      expected.insert(expected.end(), content.begin(), content.end());
    } else if (type == ContentType::alert && content.size() == kAlertBytes) {
      has_closed = content[1] == kCloseNotify;
      has_failed = !has_closed;
      is_over_ = true;
    } else if (is_update) {
      requests_key |= content.back() == kUpdateRequested;
    } else {
      fail();
    }
    empty_ = is_data && !content.empty() ? 0 : empty_ + 1;
    if (empty_ > kMostEmptyRecords && !is_over_) fail();
  }

  RecordKeys keys_;
  std::uint64_t number_ = 0;
  unsigned next_ = 0;
  int empty_ = 0;
  bool is_over_ = false;  ///< True if no later record counts.
};

/// The receiving end.
class Receiver {
 public:
  explicit Receiver(std::size_t flags) : reader_(TrafficSecret{}, make_sockets(ends_)) {
    if (flags & mccl::fuzz::kWithThreads) {
      // All inputs share the thread, because making it would dominate the run time.
      static CipherThreads threads(1);
      reader_.widen(1);
      threads_ = &threads;
    }
    reader_.read_single_records(flags & mccl::fuzz::kSingleRecords);
  }

  /// Delivers up to `most` bytes of `wire`. Returns false if none were delivered.
  bool deliver(Bytes& wire, std::size_t most) {
    const auto sent = ::send(ends_[1].get(), wire.data(), std::min(most, wire.size()),
                             MSG_DONTWAIT | mccl::kNoSignal);
    if (sent > 0) wire.erase(wire.begin(), wire.begin() + sent);
    return sent > 0;
  }
  void close() { ::shutdown(ends_[1].get(), SHUT_WR); }

  /// Receives once. Returns false if nothing was received.
  bool receive(std::size_t most) {
    Bytes to(most);
    const TransferResult result = reader_.receive(to, threads_);
    require(result.bytes <= most, "more was received than there is room for");
    require(!ended_ || (result.bytes == 0 && result.error == *ended_), "an end is not the end");
    require(result.bytes == 0 || result.error == 0, "bytes and an error");
    if (result.bytes == 0 && result.error != EAGAIN) ended_ = result.error;
    received.insert(received.end(), to.begin(),
                    to.begin() + static_cast<std::ptrdiff_t>(result.bytes));
    return result.bytes > 0;
  }

  RecordReader& reader() { return reader_; }
  /// How the stream has ended: an errno, or 0 for an end in good order.
  const std::optional<int>& ended() const { return ended_; }

  Bytes received;

 private:
  static int make_sockets(Descriptor (&ends)[2]) {
    int made[2] = {-1, -1};
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, made) == 0, "no sockets");
    for (const int i : {0, 1}) ends[i] = Descriptor(made[i]);
    require(::fcntl(made[0], F_SETFL, O_NONBLOCK) == 0, "no sockets");
    return made[0];
  }

  Descriptor ends_[2];
  RecordReader reader_;
  CipherThreads* threads_ = nullptr;
  std::optional<int> ended_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::size_t flags = input.byte();
  Peer peer;
  Receiver receiver(flags);
  std::size_t written = 0;
  while (!input.empty() && written < kMostWritten) {
    const auto step = static_cast<RecordStep>(input.byte() % mccl::fuzz::kRecordSteps);
    const std::size_t before = peer.wire.size();
    if (peer.perform(step, input)) {
      written += peer.wire.size() - before;
      continue;
    }
    const std::size_t bytes = input.number<std::uint16_t>();
    if (step == RecordStep::deliver) (void)receiver.deliver(peer.wire, bytes);
    if (step == RecordStep::receive) (void)receiver.receive(bytes + 1);
  }
  while (receiver.deliver(peer.wire, peer.wire.size()) || receiver.receive(20'000)) {
  }
  receiver.close();
  while (receiver.receive(20'000)) {
  }
  require(receiver.received == peer.expected, "other bytes than those of the valid records");
  require(receiver.ended().has_value(), "the connection has ended, and the stream has not");
  require(*receiver.ended() == 0 ? peer.has_closed : !peer.has_closed, "an end of another kind");
  if (!peer.has_failed && !peer.has_closed)
    require(*receiver.ended() == ECONNRESET, "a connection that was cut has ended well");
  require(receiver.reader().take_request_for_key() == peer.requests_key, "a request was missed");
  (void)receiver.receive(1);
  return 0;
}
