#include "transport/tcp/retained.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace mccl::transport::tcp {

void Retained::append(std::span<const std::byte> first, std::span<const std::byte> second,
                      std::size_t count) noexcept {
  for (const std::span<const std::byte> each : {first, second}) {
    const auto bytes = each.first(std::min(count, each.size()));
    if (bytes.empty()) continue;
    count -= bytes.size();
    std::span<const std::byte>* const last = pieces_ == 0 ? nullptr : &in_place_[pieces_ - 1];
    if (last && last->data() + last->size() == bytes.data()) {
      *last = {last->data(), last->size() + bytes.size()};
    } else {
      if (pieces_ == in_place_.size()) copy_last(end_ - begin_);
      in_place_[pieces_++] = bytes;
    }
    end_ += bytes.size();
  }
}

void Retained::copy_last(StreamOffset keep) noexcept {
  begin_ = std::max(begin_, end_ - std::min(keep, end_));
  const StreamOffset first = std::max(begin_, copied_);
  StreamOffset skipped = first - copied_;
  copied_ = first;
  const bool has_room = make_room(end_ - copied_);
  for (const std::span<const std::byte> piece : std::span(in_place_).first(pieces_)) {
    const std::size_t dropped = std::min<StreamOffset>(skipped, piece.size());
    skipped -= dropped;
    if (has_room) copy(piece.subspan(dropped));
  }
  pieces_ = 0;
  if (!has_room) drop();
}

/// Copies bytes to the position copied_ of the stream. Requires room for them.
void Retained::copy(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const std::size_t index = copied_ & (capacity_ - 1);
    const std::size_t count = std::min(bytes.size(), capacity_ - index);
    std::memcpy(ring_.get() + index, bytes.data(), count);
    bytes = bytes.subspan(count);
    copied_ += count;
  }
}

/// Makes the ring large enough for all kept bytes and `bytes` more. Returns false if there is no
/// memory.
bool Retained::make_room(std::size_t bytes) noexcept {
  const std::size_t kept = copied_ - begin_;
  if (kept + bytes <= capacity_) return true;
  const std::size_t capacity = std::bit_ceil(std::max(kept + bytes, kSmallBytes));
  std::unique_ptr<std::byte[]> ring(new (std::nothrow) std::byte[capacity]);
  if (!ring) return false;
  for (StreamOffset at = copied_ - kept; at < copied_;) {
    const std::size_t from = at & (capacity_ - 1);
    const std::size_t to = at & (capacity - 1);
    const std::size_t count =
        std::min({static_cast<std::size_t>(copied_ - at), capacity_ - from, capacity - to});
    std::memcpy(ring.get() + to, ring_.get() + from, count);
    at += count;
  }
  ring_ = std::move(ring);
  capacity_ = capacity;
  return true;
}

std::span<const std::byte> Retained::from(StreamOffset at) const {
  if (at < copied_) {
    const std::size_t index = at & (capacity_ - 1);
    return {ring_.get() + index, std::min<std::size_t>(copied_ - at, capacity_ - index)};
  }
  StreamOffset piece_at = copied_;
  for (std::size_t i = 0; i < pieces_; ++i) {
    if (at - piece_at < in_place_[i].size()) return in_place_[i].subspan(at - piece_at);
    piece_at += in_place_[i].size();
  }
  return {};
}

}  // namespace mccl::transport::tcp
