// The part of GroupState that watches collectives which GPUs carry out without the host.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/groups/group_state.h"

namespace mccl::engine {
namespace {

/// Interval at which the last collective is announced again while some members have not announced
/// it. A member that has not made the group yet ignores the announcement.
constexpr std::chrono::seconds kAnnounceAgain{1};

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
    Task task;
    static_cast<Request&>(task) = request;
    task.flight.group = *device_flight_group_;
    task.flight.algorithm = recorder.index_of(algorithm);
    FlightEntry entry = task.flight_entry(FlightEntry::enqueued);
    entry.submitted = nanoseconds_of(Clock::now());
    recorder.write(entry);
  } catch (const std::bad_alloc&) {
    // Memory has run out, so the call is not recorded.
  }
}

void GroupState::announce_enqueued() {
  next_announcement_ = Clock::now() + kAnnounceAgain;
  ControlMessage message = about_group(ControlKind::enqueued);
  message.call = enqueued_.announce();
  membership_.for_each_other([&](WorldRank peer) { around_.peers.send(peer, message); });
}

/// A member that announces a collective may wait for this rank, so it learns at once what this rank
/// has enqueued since its own last announcement.
void GroupState::hear_enqueued(WorldRank peer, const Call& last) {
  if (failed()) return;
  if (const std::optional<Call> mine = enqueued_.hear(membership_.rank_of(peer), last)) {
    return fail(
        {FailureKind::mismatch,
         fmt::format("{} calls {} on GPU memory{}", membership_.name_of(membership_.rank_of(peer)),
                     describe_unlike(last, *mine), instead_of(*mine)),
         *mine, membership_.rank});
  }
  if (enqueued_.has_news()) announce_enqueued();
}

void GroupState::watch_enqueued(Clock::time_point now, const Heartbeats& heart) {
  if (failed()) return;
  const std::optional<EnqueuedCalls::Missed> missed = enqueued_.missed();
  if (enqueued_.has_news() || (missed && now >= next_announcement_)) announce_enqueued();
  if (!missed) return;
  const bool is_late = now >= missed->deadline;
  const bool warns = warn_after_ != Clock::duration::zero() &&
                     enqueued_wait_.is_due(now, missed->since, warn_after_);
  if (!is_late && !warns) return;
  const std::string why = late_for(missed->call.sequence, &heart);
  if (why.empty()) return;
  const double seconds = seconds_between(missed->since, now);
  if (is_late) {
    return fail({FailureKind::timeout, fmt::format("it timed out after {:.3g} s{}", seconds, why),
                 missed->call, membership_.rank});
  }
  around_.log.about(membership_.name)
      .warn("{} of group '{}' cannot end on the GPU since {:.3g} s{}", describe(missed->call),
            membership_.name, seconds, why);
}

std::string GroupState::late_for(std::uint64_t number, const Heartbeats* heart) const {
  std::string text;
  for (const GroupRank member : enqueued_.late_for(number)) {
    text += (text.empty() ? ", waiting for " : ", ") + membership_.name_of(member);
    const Call last = enqueued_.last_of(member);
    if (heart && heart->has_fallen_silent(membership_.members[member])) {
      text += " (which is silent: its process is stopped, or its host cannot be reached)";
    } else if (last.sequence == 0) {
      text += " (which has called no collective of this group on GPU memory yet)";
    } else {
      text += fmt::format(" (which has called no collective of this group on GPU memory since {})",
                          describe(last));
    }
  }
  return text;
}

}  // namespace mccl::engine
