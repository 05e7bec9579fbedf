// Encodes the largest elements of a block together with their indices (places). On the wire, a
// block has the indices in ascending order, followed by the elements. Unused entries come last,
// with index kNoPlace and element zero. Zeros are never sent. Among equal magnitudes, the first
// ones are sent. Infinities and NaN count as larger than all other values.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "kernels/codec/blocks.h"
#include "kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/codec/topk.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The bits of magnitudes, read as signed integers, have the same order as the magnitudes.
using I32 = hn::ScalableTag<std::int32_t>;

constexpr std::size_t kElements = 4096;

HWY_INLINE hn::Vec<I32> magnitudes_at(const float* from) {
  const I32 i32;
  const auto bits = hn::BitCast(i32, hn::LoadU(hn::ScalableTag<float>(), from));
  return hn::And(bits, hn::Set(i32, 0x7FFFFFFF));
}

/// most[g] = the bits of the largest magnitude among the g-th run of `length` elements.
void largest_of_groups(const float* block, std::size_t length, std::int32_t* most) {
  const I32 i32;
  for (std::size_t g = 0; g * length < kElements; ++g) {
    auto found = hn::Zero(i32);
    for (std::size_t i = 0; i < length; i += hn::Lanes(i32))
      found = hn::Max(found, magnitudes_at(block + g * length + i));
    most[g] = hn::GetLane(hn::MaxOfLanes(i32, found));
  }
}

/// Writes the indices of the elements whose magnitude is above `limit`, in ascending order. Returns
/// their number.
std::size_t places_of_large(const float* block, std::int32_t limit, std::uint16_t* places) {
  const I32 i32;
  const auto bound = hn::Set(i32, limit);
  std::size_t count = 0;
  for (std::size_t i = 0; i < kElements; i += hn::Lanes(i32)) {
    if (hn::AllFalse(i32, hn::Gt(magnitudes_at(block + i), bound))) continue;
    for (std::size_t lane = 0; lane < hn::Lanes(i32); ++lane) {
      places[count] = static_cast<std::uint16_t>(i + lane);
      const auto magnitude = std::bit_cast<std::int32_t>(block[i + lane]) & 0x7FFFFFFF;
      count += magnitude > limit ? 1 : 0;
    }
  }
  return count;
}

}  // namespace mccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mccl::kernels {
namespace {

constexpr std::size_t kElements = 4096;
constexpr std::size_t kShortestGroup = 16;

using Places = std::array<std::uint16_t, kElements + 16>;

std::uint32_t magnitude_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
}

}  // namespace

HWY_EXPORT(largest_of_groups);
HWY_EXPORT(places_of_large);

namespace {

/// Returns a magnitude that at least `kept` elements exceed. If fewer than `kept` elements are
/// nonzero, all nonzero elements exceed it. Divides the block into groups, and returns a limit just
/// below the kept-th largest of the groups' maxima. So at least `kept` groups have an element above
/// the limit, and usually few other elements exceed it. Returns 0 if there are fewer than `kept`
/// groups.
std::int32_t bound_of(const float* block, std::size_t kept) {
  std::size_t length = 64;
  while (length > kShortestGroup && kElements / length < 2 * kept) length /= 2;
  const std::size_t groups = kElements / length;
  if (groups < kept) return 0;
  std::array<std::int32_t, kElements / kShortestGroup> most;
  HWY_DYNAMIC_DISPATCH(largest_of_groups)(block, length, most.data());
  const auto place = most.begin() + static_cast<std::ptrdiff_t>(kept - 1);
  std::nth_element(most.begin(), place, most.begin() + static_cast<std::ptrdiff_t>(groups),
                   std::greater<>());
  return std::max(*place - 1, 0);
}

/// Keeps the indices of the `kept` largest magnitudes, in ascending order. Among equal magnitudes,
/// keeps the first ones. Returns the number of indices kept.
std::size_t select(const float* block, std::size_t kept, Places& places, std::size_t count) {
  if (count <= kept) return count;
  const auto before = [&](std::uint16_t a, std::uint16_t b) {
    const std::uint32_t of_a = magnitude_of(block[a]);
    const std::uint32_t of_b = magnitude_of(block[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  const auto end = places.begin() + static_cast<std::ptrdiff_t>(kept);
  std::nth_element(places.begin(), end, places.begin() + static_cast<std::ptrdiff_t>(count),
                   before);
  std::sort(places.begin(), end);
  return kept;
}

}  // namespace

void encode_topk(const float* src, std::size_t kept, std::byte* dst) {
  Places places;
  std::size_t count =
      HWY_DYNAMIC_DISPATCH(places_of_large)(src, bound_of(src, kept), places.data());
  count = select(src, kept, places, count);
  std::byte* const values = dst + kept * sizeof(std::uint16_t);
  for (std::size_t i = 0; i < kept; ++i) {
    const std::uint16_t place = i < count ? places[i] : kNoPlace;
    float value = i < count ? src[place] : 0;
    if (value != value) value = std::bit_cast<float>(0x7FC00000U);
    std::memcpy(dst + i * sizeof place, &place, sizeof place);
    std::memcpy(values + i * sizeof value, &value, sizeof value);
  }
}

bool add_topk(const std::byte* src, std::size_t kept, float* values, bool first) {
  if (first) std::fill(values, values + kElements, 0.0F);
  const std::byte* const elements = src + kept * sizeof(std::uint16_t);
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    std::uint16_t place = 0;
    std::memcpy(&place, src + i * sizeof place, sizeof place);
    if (place == kNoPlace) {
      next = kNoPlace;
      continue;
    }
    if (place >= kElements || place < next) return false;
    next = place + 1U;
    float value = 0;
    std::memcpy(&value, elements + i * sizeof value, sizeof value);
    values[place] += value;
  }
  return true;
}

}  // namespace mccl::kernels
#endif  // HWY_ONCE
