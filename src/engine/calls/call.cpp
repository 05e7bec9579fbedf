#include "engine/calls/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/call_sites.h"

namespace mccl::engine {

bool Call::matches(const Call& other) const {
  return collective == other.collective && dtype == other.dtype && root == other.root &&
         count == other.count && counts_hash == other.counts_hash &&
         coding.codec == other.coding.codec && coding.kept == other.coding.kept &&
         (!reduces(*this) || kind == other.kind);
}

std::uint64_t hash_of(std::span<const std::size_t> counts) {
  const auto differs = [&counts](std::size_t count) { return count != counts.front(); };
  if (std::none_of(counts.begin(), counts.end(), differs)) return 0;
  std::uint64_t hash = counts.size();
  for (const std::size_t count : counts) {
    hash = (hash ^ count) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return std::max(hash, kOwnCounts + 1);
}

std::string describe(const Call& call) { return describe(call, call.sequence); }

std::string describe(const Call& call, std::uint64_t sequence) {
  const std::string_view name = name_of(call.collective);
  std::string numbered =
      fmt::format("{} #{}{}", name, sequence, call.enqueued ? " on GPU memory" : "");
  switch (call.collective) {
    case Collective::send:
    case Collective::recv:
      return fmt::format("{} {} {} ({}tag {}, {} {})", name,
                         call.collective == Collective::send ? "to" : "from",
                         call.peer < 0 ? "any rank" : fmt::format("rank {}", call.peer),
                         sequence == 0 ? "" : fmt::format("message {}, ", sequence), call.tag,
                         call.count, name_of(call.dtype));
    case Collective::barrier:
      return numbered;
    case Collective::all_to_all:
      if (call.counts_hash != kOwnCounts) break;
      return fmt::format("{} ({}, counts per rank)", numbered, name_of(call.dtype));
    default:
      break;
  }
  const std::string what = reduces(call) ? fmt::format("{} of {} {}", name_of(call.kind),
                                                       call.count, name_of(call.dtype))
                                         : fmt::format("{} {}", call.count, name_of(call.dtype));
  const std::string how =
      call.coding ? fmt::format(", in {}", describe(call.coding)) : std::string();
  const std::string root = call.root >= 0 ? fmt::format(", root {}", call.root) : "";
  return fmt::format("{} ({}{}{})", numbered, what, how, root);
}

std::string describe_unlike(const Call& call, const Call& expected) {
  const std::string text = describe(call);
  return text == describe(expected) ? text + " with different counts per rank" : text;
}

std::string instead_of(const Call& call) {
  const std::string_view site = text_of_call_site(call.site);
  return site.empty() ? " instead" : fmt::format(" instead of the call at {}", site);
}

std::string called_at(const Call& call) {
  const std::string_view site = text_of_call_site(call.site);
  return site.empty() ? "" : fmt::format(" (called at {})", site);
}

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

CallCode encode(const Call& call) { return std::bit_cast<CallCode>(words_of(call)); }

std::optional<Call> decode(const CallCode& code) {
  const std::uint8_t collective = code.collective & ~kEnqueuedCode;
  if (code.codec >= kCodecCount || collective >= kCollectiveCount || code.dtype >= kDTypeCount ||
      code.kind >= kReduceKindCount) {
    return std::nullopt;
  }
  Call call;
  call.collective = static_cast<Collective>(collective);
  call.enqueued = collective != code.collective;
  call.dtype = static_cast<DType>(code.dtype);
  call.kind = static_cast<ReduceKind>(code.kind);
  call.root = code.root;
  if (code.codec != 0) {
    if (code.root < 0 || code.root > UINT16_MAX) return std::nullopt;
    call.root = -1;
    call.coding.codec = static_cast<Codec>(code.codec);
    call.coding.kept = static_cast<std::uint16_t>(code.root);
  }
  call.count = code.count;
  call.counts_hash = code.counts_hash;
  call.sequence = code.sequence;
  return call;
}

std::uint64_t fingerprint_of(const Call& call) {
  const CallWords words = words_of(call);
  // Odd factors are invertible modulo 2^64, so a change in one of the words always changes the sum.
  return words[0] * 0x9e3779b97f4a7c15ULL + words[1] * 0xc2b2ae3d27d4eb4fULL +
         words[2] * 0x27d4eb2f165667c5ULL + words[3] * 0x165667b19e3779f9ULL;
}

}  // namespace mccl::engine
