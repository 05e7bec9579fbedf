#include "transport/tcp/record_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/would_block.h"

namespace mccl::transport::tcp {
namespace {

/// Maximum number of consecutive records without data. Beyond it, receive() fails with EBADMSG.
constexpr int kMostEmptyRecords = 32;

}  // namespace

RecordReader::RecordReader(CipherSuite suite, const TrafficSecret& secret, int descriptor)
    : keys_(RecordKeys::Use::open, suite, secret),
      descriptor_(descriptor),
      in_(kNarrowBytes),
      rest_(kMostCiphertextBytes) {}

void RecordReader::widen(std::size_t helpers) {
  in_.grow(kWideBytes);
  keys_.add_lanes(helpers);
}

TransferResult RecordReader::receive(std::span<std::byte> to, CipherThreads* threads) {
  threads_ = threads;
  std::size_t got = take_rest(to);
  // Stops when all records that one system call received are decrypted.
  while (got < to.size() && !has_ended() && (got == 0 || has_input())) {
    if (!has_input() && !fill()) break;
    got += open(to.subspan(got));
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
  if (input_end_ == kEndOfInput) {
    broken_ = ECONNRESET;
    is_cut_short_ = has_ended_in_order_;
  } else {
    broken_ = input_end_;
  }
  return false;
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
    input_end_ = got == 0 ? kEndOfInput : errno;
    has_ended_in_order_ = got == 0 && !has_failed_to_send_;
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
  if (!is_key_update || !keys_.replace()) {
    broken_ = EBADMSG;
    return;
  }
  received_ = 0;
  is_key_requested_ |= message[4] == kUpdateRequested;
}

bool RecordReader::has_input() const {
  if (!rest_.empty()) return true;
  if (has_ended()) return false;
  const std::optional<std::size_t> size = record_size(in_.bytes());
  return !size || (*size > 0 && *size <= in_.size());
}

}  // namespace mccl::transport::tcp
