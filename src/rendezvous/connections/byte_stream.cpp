#include "rendezvous/connections/byte_stream.h"

#include <algorithm>
#include <array>

#include "base/would_block.h"

namespace mccl::rendezvous {

void ByteStream::queue(std::span<const std::byte> bytes) {
  output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent_));
  sent_ = 0;
  append(output_, bytes);
}

bool ByteStream::flush() {
  while (sent_ < output_.size()) {
    const auto [bytes, error] = socket_.send(std::span(output_).subspan(sent_));
    sent_ += bytes;
    nap_if_memory_is_short(error);
    if (error != 0) return is_open_after(error);
  }
  output_ = {};
  sent_ = 0;
  const int error = socket_.flush();
  return error == 0 || is_open_after(error);
}

bool ByteStream::receive(Bytes& to, std::size_t most) {
  std::array<std::byte, 16384> piece;
  while (to.size() < most) {
    const std::size_t limit = std::min(piece.size(), most - to.size());
    const auto [bytes, error] = socket_.receive(std::span(piece).first(limit));
    if (bytes == 0) return is_open_after(error);
    append(to, std::span(piece).first(bytes));
  }
  return true;
}

bool ByteStream::is_open_after(int error) {
  if (would_block(error)) return true;
  ended_ = true;
  error_ = error;
  return false;
}

pollfd ByteStream::watched(bool reads) const {
  const int events = (reads ? POLLIN : 0) | (has_output() ? POLLOUT : 0);
  return {socket_.descriptor(), static_cast<short>(events), 0};
}

bool wait_for(int descriptor, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd entry = {descriptor, events, 0};
    if (::poll(&entry, 1, milliseconds_until(deadline)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace mccl::rendezvous
