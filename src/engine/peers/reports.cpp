#include "engine/peers/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "mccl/error.h"

namespace mccl::engine {

Reports::Reports(Peers& peers, std::function<std::string()> describe)
    : peers_(peers), describe_(std::move(describe)) {}

std::future<void> Reports::request() {
  ++round_;
  answers_.clear();
  complete_ = std::promise<void>();
  for (WorldRank peer(0); peer.number() < peers_.size(); ++peer) {
    if (!peers_.connected(peer)) continue;
    answers_[peer];
    ControlMessage message{.kind = ControlKind::describe};
    message.call.sequence = round_;
    peers_.send(peer, message);
  }
  missing_ = answers_.size();
  if (missing_ == 0) complete_.set_value();
  return complete_.get_future();
}

std::map<WorldRank, std::string> Reports::take() {
  std::map<WorldRank, std::string> texts;
  for (auto& [peer, answer] : std::exchange(answers_, {}))
    texts[peer] = answer.is_complete ? std::move(answer.text) : std::string();
  return texts;
}

void Reports::forget(WorldRank peer) {
  askers_.erase(peer);
  const auto found = answers_.find(peer);
  if (found == answers_.end() || found->second.is_complete) return;
  answers_.erase(found);
  if (--missing_ == 0) complete_.set_value();
}

void Reports::hear(WorldRank peer, const ControlMessage& message, Clock::time_point now) {
  if (message.kind == ControlKind::describe) {
    Asker& asker = askers_[peer];
    asker.waits = message.call.sequence;
    next_answer_ = std::min(next_answer_, asker.not_before);
    return answer_late(now);
  }
  const auto found = answers_.find(peer);
  // A report that arrives after take(), or for an earlier request, is dropped.
  if (found == answers_.end() || message.call.sequence != round_ || found->second.is_complete)
    return;
  Answer& answer = found->second;
  if (answer.text.size() + message.blob.size() > kMostBytes) {
    throw CorruptionError(
        fmt::format("its status report is longer than the {} bytes allowed", kMostBytes));
  }
  answer.text.append(reinterpret_cast<const char*>(message.blob.data()), message.blob.size());
  if (message.blob.size() == transport::kMostBlobBytes) return;  // more pieces follow
  answer.is_complete = true;
  if (--missing_ == 0) complete_.set_value();
}

void Reports::answer_late(Clock::time_point now) {
  if (now < next_answer_) return;
  next_answer_ = Clock::time_point::max();
  for (auto& [peer, asker] : askers_) {
    if (!asker.waits) continue;
    if (now >= asker.not_before) {
      answer(peer, *asker.waits, now);
      asker = {.not_before = now + kFresh, .waits = {}};
    } else {
      next_answer_ = std::min(next_answer_, asker.not_before);
    }
  }
}

/// Sends the report in pieces of kMostBlobBytes. The last piece is shorter, and may be empty.
void Reports::answer(WorldRank peer, std::uint64_t round, Clock::time_point now) {
  if (own_.empty() || now >= made_ + kFresh) {
    own_ = describe_();
    made_ = now;
  }
  std::span<const std::byte> rest = std::as_bytes(std::span(own_));
  bool is_last = false;
  while (!is_last) {
    const auto piece = rest.first(std::min(rest.size(), transport::kMostBlobBytes));
    ControlMessage message{.kind = ControlKind::description};
    message.call.sequence = round;
    message.blob.assign(piece.begin(), piece.end());
    peers_.send(peer, message);
    rest = rest.subspan(piece.size());
    is_last = piece.size() < transport::kMostBlobBytes;
  }
}

}  // namespace mccl::engine
