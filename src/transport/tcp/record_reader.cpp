#include "transport/tcp/record_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/would_block.h"
#include "transport/tcp/kernel_tls.h"

namespace mccl::transport::tcp {
namespace {

/// Maximum number of consecutive records without data. Beyond it, receive() fails with EBADMSG.
constexpr int kMostEmptyRecords = 32;
/// Maximum size in bytes of a message of TLS that receive_decrypted() accepts. Those that may
/// follow the handshake are smaller.
constexpr std::size_t kMostMessageBytes = 64;

}  // namespace

RecordReader::RecordReader(const TrafficSecret& secret, int descriptor)
    : keys_(RecordKeys::Use::open, secret),
      descriptor_(descriptor),
      in_(kNarrowBytes),
      rest_(kMostCiphertextBytes) {}

void RecordReader::widen(std::size_t helpers) {
  in_.grow(kWideBytes);
  keys_.add_lanes(helpers);
}

TransferResult RecordReader::receive(std::span<std::byte> to, CipherThreads* threads) {
  if (is_in_kernel_) return receive_decrypted(to);
  threads_ = threads;
  std::size_t got = take_rest(to);
  // Stops when all records that one system call received are decrypted.
  while (got < to.size() && !has_ended() && (got == 0 || has_input())) {
    if (!has_input() && !fill()) break;
    got += open(to.subspan(got));
  }
  return {got, got > 0 || is_over_ ? 0 : broken_ != 0 ? broken_ : EAGAIN};
}

bool RecordReader::move_to_kernel() {
  is_in_kernel_ = in_.empty() && rest_.empty() && keys_.give_to_kernel(descriptor_, received_) == 0;
  return is_in_kernel_;
}

/// Receives until the kernel has nothing more: after a call that has received something, poll(2) of
/// some kernels does not report the records that have already arrived.
TransferResult RecordReader::receive_decrypted(std::span<std::byte> to) {
  std::size_t got = take_rest(to);
  while (got < to.size() && !has_ended()) {
    if (input_end_ != 0) {
      if (got == 0) break_off();  // The bytes before the end are received first.
      break;
    }
    // The next record may be a message of TLS, which must not be received in parts.
    const std::span<std::byte> room = to.subspan(got);
    const bool is_small = room.size() < kMostMessageBytes;
    rest_.compact();
    const std::span<std::byte> into = is_small ? rest_.space().first(kMostMessageBytes) : room;
    const auto [type, bytes, error] = receive_from_kernel(descriptor_, into);
    if (error == EINTR) continue;
    has_drained_kernel_ = would_block(error);
    if (has_drained_kernel_) break;
    if (bytes == 0) {
      end_input(error);
    } else if (type != ContentType::application_data) {
      take_message(type, into.first(bytes));
      if (++empty_records_ > kMostEmptyRecords) broken_ = EBADMSG;
    } else {
      empty_records_ = 0;
      if (is_small) rest_.add(bytes);
      got += is_small ? take_rest(room) : bytes;
    }
  }
  return {got, got > 0 || is_over_ ? 0 : broken_ != 0 ? broken_ : EAGAIN};
}

std::size_t RecordReader::take_rest(std::span<std::byte> to) {
  const std::size_t bytes = std::min(to.size(), rest_.size());
  if (bytes > 0) std::memcpy(to.data(), rest_.bytes().data(), bytes);
  rest_.take(bytes);
  return bytes;
}

bool RecordReader::fill() {
  in_.compact();
  std::size_t most = kMostArrived * kFullRecordBytes;
  if (reads_single_records_) {
    const std::size_t record = record_size(in_.bytes()).value_or(0);
    most = (record == 0 ? kRecordHeaderBytes : record) - in_.size();
  }
  if (receive_more(most)) return true;
  break_off();
  return false;
}

void RecordReader::end_input(int error) {
  input_end_ = error != 0 ? error : has_failed_to_send_ ? ECONNRESET : kEndOfInput;
}

bool RecordReader::receive_more(std::size_t most) {
  const std::span<std::byte> space = in_.space();
  most = std::min(most, space.size());
  while (most > 0 && input_end_ == 0) {
    const ssize_t got = ::recv(descriptor_, space.data(), most, 0);
    if (got > 0) {
      in_.add(static_cast<std::size_t>(got));
      return true;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) return false;
    end_input(got == 0 ? 0 : errno);
  }
  return false;
}

std::span<const std::byte> RecordReader::record_at(std::size_t position) {
  const std::span<const std::byte> bytes = in_.bytes().subspan(position);
  const std::optional<std::size_t> size = record_size(bytes);
  // The valid records before an invalid one are received first.
  if (!size && position == 0) broken_ = EBADMSG;
  return size && *size > 0 && *size <= bytes.size() ? bytes.first(*size)
                                                    : std::span<const std::byte>();
}

std::size_t RecordReader::open(std::span<std::byte> to) {
  std::size_t count = 0;
  std::size_t placed = 0;
  std::size_t position = 0;
  while (count < kMostArrived) {
    const std::span<const std::byte> record = record_at(position);
    if (record.empty() || record.size() - kRecordOverhead > to.size() - placed) break;
    arrived_[count++] = {record, to.data() + placed};
    placed += record.size() - kRecordOverhead;
    position += record.size();
  }
  if (count > 0) return open(count);
  const std::span<const std::byte> record = record_at(0);
  if (record.empty()) return 0;
  rest_.compact();
  arrived_[0] = {record, rest_.space().data()};
  rest_.add(open(1));
  return take_rest(to);
}

std::size_t RecordReader::open(std::size_t count) {
  {
    const CipherThreads::Batch batch(threads_, count, [this](std::size_t lane, std::size_t index) {
      Arrived& each = arrived_[index];
      each.opened = keys_.open(lane, received_ + index, each.record, each.to);
    });
    // The next records are received while these are decrypted.
    if (threads_ != nullptr && count > 1) (void)receive_more(kMostArrived * kFullRecordBytes);
  }
  std::size_t got = 0;
  for (const auto& [record, to, opened] : std::span(arrived_).first(count)) {
    if (!opened || opened->bytes > kRecordPayloadBytes) {
      broken_ = EBADMSG;
      break;
    }
    in_.take(record.size());
    ++received_;
    const bool is_data = opened->type == ContentType::application_data;
    if (is_data) {
      got += opened->bytes;
    } else {
      take_message(opened->type, {to, opened->bytes});
    }
    // Without this limit, a peer that sends only key updates would occupy this thread forever.
    empty_records_ = is_data && opened->bytes > 0 ? 0 : empty_records_ + 1;
    if (empty_records_ > kMostEmptyRecords) broken_ = EBADMSG;
    // After a message or padding, the next records were written to the wrong place, or decrypted
    // with a key that has been replaced. They are decrypted again.
    if (has_ended() || !is_data || opened->bytes != record.size() - kRecordOverhead) break;
  }
  return got;
}

void RecordReader::take_message(ContentType type, std::span<const std::byte> message) {
  if (type == ContentType::alert && message.size() == kAlertBytes) {
    alert_ = message[1];
    is_over_ = alert_ == kCloseNotify;
    if (!is_over_) broken_ = EBADMSG;
    return;
  }
  const bool is_key_update = type == ContentType::handshake &&
                             message.size() == kKeyUpdate.size() &&
                             std::ranges::equal(message.first(4), std::span(kKeyUpdate).first(4)) &&
                             message[4] <= kUpdateRequested;
  if (!is_key_update || !keys_.replace() ||
      (is_in_kernel_ && keys_.give_to_kernel(descriptor_, 0) != 0)) {
    broken_ = EBADMSG;
    return;
  }
  received_ = 0;
  is_key_requested_ |= message[4] == kUpdateRequested;
}

bool RecordReader::has_input() const {
  if (!rest_.empty()) return true;
  if (has_ended()) return false;
  if (is_in_kernel_) return !has_drained_kernel_;
  const std::optional<std::size_t> size = record_size(in_.bytes());
  return !size || (*size > 0 && *size <= in_.size());
}

}  // namespace mccl::transport::tcp
