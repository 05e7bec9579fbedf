// The part of GroupState that watches collectives which GPUs carry out without the host.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/groups/group_state.h"

namespace mccl::engine {
namespace {

/// Time without a message about collectives from a late member after which this rank asks it.
constexpr std::chrono::seconds kAskLateAfter{1};

}  // namespace

/// The flight record lists these collectives under a separate group, because they are numbered
/// separately.
void GroupState::record_enqueued(const Request& request, std::string_view algorithm) noexcept {
  FlightRecorder& recorder = around_.completions.recorder();
  try {
    if (!device_flight_group_) {
      FlightGroup group{membership_.name + " on GPUs", ~membership_.id, membership_.rank.number()};
      for (const WorldRank member : membership_.members) group.members.push_back(member.number());
      device_flight_group_ = recorder.add_group(std::move(group));
    }
    Task task(request);
    task.flight.group = *device_flight_group_;
    task.flight.algorithm = recorder.index_of(algorithm);
    FlightEntry entry = task.flight_entry(FlightEntry::enqueued);
    entry.submitted = nanoseconds_of(Clock::now());
    recorder.write(entry);
  } catch (const std::bad_alloc&) {
    // Memory has run out, so the call is not recorded.
  }
}

ControlMessage GroupState::about_enqueued(const EnqueuedCalls::News& news, bool asks) const {
  ControlMessage message = about_group(ControlKind::enqueued);
  message.call = news.call;
  message.blob = encode(Announcement{asks, enqueued_.stopped(), news.digest});
  return message;
}

void GroupState::announce_enqueued() noexcept {
  try {
    for (const EnqueuedCalls::News& news : enqueued_.take_news()) {
      const ControlMessage message = about_enqueued(news, false);
      membership_.for_each_other([&](WorldRank peer) { around_.peers.send(peer, message); });
    }
  } catch (const std::bad_alloc&) {
    // Memory has run out. The others ask if they miss the news.
  }
}

void GroupState::hear_enqueued(WorldRank peer, const ControlMessage& message) {
  const Announcement announcement = decode_announcement(message.blob);
  if (failed()) return;
  if (announcement.stopped) enqueued_.stop();
  const EnqueuedCalls::News news{message.call, announcement.digest};
  const GroupRank member = membership_.rank_of(peer);
  if (const auto difference = enqueued_.hear(member, news, Clock::now())) {
    const Call& own = difference->own;
    return fail({FailureKind::mismatch,
                 difference->is_earlier
                     ? fmt::format("{} made a different call than rank {} at some point before {}",
                                   membership_.name_of(member), membership_.rank, describe(own))
                     : fmt::format("{} calls {}{}", membership_.name_of(member),
                                   describe_unlike(news.call, own), instead_of(own)),
                 own, membership_.rank});
  }
  if (announcement.asks) around_.peers.send(peer, about_enqueued(enqueued_.last(), false));
}

/// A member is late only if it has said so after the warning or the timeout was due.
void GroupState::watch_enqueued(Clock::time_point now, const Heartbeats& heart) {
  if (failed()) return;
  announce_enqueued();
  const std::optional<EnqueuedCalls::Missed> missed = enqueued_.missed();
  if (!missed) return;
  const Call& call = missed->call;
  Clock::time_point due = missed->deadline;
  if (warn_after_ != Clock::duration::zero())
    due = std::min(due, enqueued_wait_.next(missed->since, warn_after_));
  bool is_known = now >= due;
  for (const GroupRank member : missed->members) {
    if (endings_[member]) {
      return fail(
          {FailureKind::peer, gone_text(member, endings_[member]->reason), call, membership_.rank});
    }
    const WorldRank peer = membership_.members[member];
    const Clock::time_point heard = enqueued_.reached(member).heard;
    is_known &= heard >= due || heart.has_fallen_silent(peer);
    if (heard < (now >= due ? due : now - kAskLateAfter))
      around_.peers.send(peer, about_enqueued(enqueued_.last(), true));
  }
  if (!is_known) return;
  const std::string why = late_text(missed->members, &heart);
  const double seconds = seconds_between(missed->since, now);
  if (now >= missed->deadline) {
    return fail({FailureKind::timeout, fmt::format("it timed out after {:.3g} s{}", seconds, why),
                 call, membership_.rank});
  }
  if (!enqueued_wait_.is_due(now, missed->since, warn_after_)) return;
  around_.log.about(membership_.name)
      .warn("{} of group '{}' has not ended on the GPU for {:.3g} s{}", describe(call),
            membership_.name, seconds, why);
}

std::string GroupState::late_text(const std::vector<GroupRank>& members,
                                  const Heartbeats* heart) const {
  std::string text;
  for (const GroupRank member : members) {
    text += (text.empty() ? ", waiting for " : ", ") + membership_.name_of(member);
    Call last = enqueued_.reached(member).last;
    last.enqueued = false;
    if (heart && heart->has_fallen_silent(membership_.members[member])) {
      text += " (which is silent: its process is stopped, or its host cannot be reached)";
    } else if (last.sequence == 0) {
      text += " (which has called no collective of this group on GPU memory yet)";
    } else {
      text += fmt::format(" (whose last collective on GPU memory is {})", describe(last));
    }
  }
  return text;
}

std::string GroupState::why_unfinished(std::uint64_t number) const {
  const std::optional<std::vector<GroupRank>> members = enqueued_.late_for(number);
  if (!members) return ": a rank has not made the call, or made it with data outside GPU memory";
  return members->empty() ? ": all ranks have made the call, but their GPUs have not finished it"
                          : late_text(*members);
}

}  // namespace mccl::engine
