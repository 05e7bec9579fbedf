// Verifies every collective with every algorithm that supports it, over sizes, counts, chunks and
// roots.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cases.h"
#include "support/verifier/verify.h"

namespace mccl::schedule {
namespace {

#if defined(__has_feature)
constexpr bool kSlow = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

std::vector<int> sizes() {
  if (kSlow) return {1, 2, 3, 4, 5, 7, 8, 9, 16, 17};
  std::vector<int> sizes;
  for (int size = 1; size <= 33; ++size) sizes.push_back(size);
  sizes.push_back(64);
  return sizes;
}

std::vector<int> roots(Collective collective, int size) {
  if (!is_rooted(collective) || size == 1) return {0};
  if (size > 9) return {0, size / 2, size - 1};
  std::vector<int> roots;
  for (int root = 0; root < size; ++root) roots.push_back(root);
  return roots;
}

/// Returns a chunk that is small as long as the number of steps stays small.
std::size_t small_chunk(int size, std::size_t count) {
  if (count < 100) return 1;
  return size <= 4 ? 7 : size <= 9 ? 40 : size <= 17 ? 100 : 400;
}

void prove(Algorithm algorithm, const Case& c) {
  const std::vector<Problem> problems = problems_of(c);
  if (!can(algorithm, problems[0])) return;
  ASSERT_EQ(verify(problems, build_all(algorithm, problems)), "") << describe(algorithm, c);
}

void prove_placements(Algorithm algorithm, Case c) {
  for (const int root : roots(c.collective, c.size)) {
    c.root = root;
    for (int placement = 0; placement < 3; ++placement) {
      if (placement == 1 &&
          (c.collective == Collective::broadcast || c.collective == Collective::all_to_all)) {
        continue;
      }
      if (placement == 2 && (c.size > 9 || c.collective == Collective::broadcast)) continue;
      c.in_place = placement == 1;
      c.mixed = placement == 2;
      prove(algorithm, c);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void prove_counts(Algorithm algorithm, Case c) {
  const auto size = static_cast<std::size_t>(c.size);
  if (has_parts(c.collective)) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{53}}) {
      for (int shape = 0; shape < 3; ++shape) {
        c.counts = parts_of(c.size, count, shape);
        for (const std::size_t chunk : {std::size_t{1237}, std::size_t{c.size <= 9 ? 5u : 20u}}) {
          c.chunk = chunk;
          prove_placements(algorithm, c);
        }
      }
    }
    return;
  }
  const bool exchanges = c.collective == Collective::all_to_all;
  const std::vector<std::size_t> counts =
      exchanges ? std::vector<std::size_t>{0, 1, 53}
                : std::vector<std::size_t>{0, 1, size - 1, size, size + 1, 1237};
  for (const std::size_t count : counts) {
    c.count = count;
    for (const std::size_t chunk :
         {std::size_t{5000}, exchanges ? 20 : small_chunk(c.size, count)}) {
      c.chunk = chunk;
      prove_placements(algorithm, c);
    }
  }
}

class Matrix : public ::testing::TestWithParam<Algorithm> {};

/// Returns window sizes: the smallest possible, one for a few pieces, and one for everything.
std::vector<std::size_t> windows(Algorithm algorithm, int size) {
  if (placements(algorithm).front() == Placement::apart) return {0};
  const auto least = 2 * static_cast<std::size_t>(size);
  if (size > 17) return {least + 301};
  return {least, least + 301, 100000};
}

TEST_P(Matrix, EveryScheduleIsProved) {
  int proved = 0;
  for (const Collective collective : kCollectives) {
    for (const int size : sizes()) {
      for (const Placement placement : placements(GetParam())) {
        for (const std::size_t window : windows(GetParam(), size)) {
          Case c{.collective = collective, .size = size, .counts = {}};
          c.placement = placement;
          c.window = window;
          if (has_parts(collective)) c.counts.assign(size, 0);
          if (!can(GetParam(), problem_of(c, 0))) continue;
          if (collective == Collective::barrier) {
            prove(GetParam(), c);
          } else {
            prove_counts(GetParam(), c);
          }
          ASSERT_FALSE(HasFatalFailure());
          ++proved;
        }
      }
    }
  }
  EXPECT_GT(proved, 0);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Matrix, ::testing::ValuesIn(kAlgorithms),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// The chunks are multiples of the granule, so parts are split at granules and a buffer takes
/// several segments.
TEST(Segments, LargeBuffersVerify) {
  for (const int size : {2, 3, 4, 7}) {
    for (const std::size_t count : {std::size_t{40000}, std::size_t{262144}, std::size_t{262151}}) {
      for (const Algorithm algorithm : kAlgorithms) {
        Case c{.collective = Collective::all_reduce, .size = size, .count = count, .chunk = 2048};
        for (const bool in_place : {false, true}) {
          c.in_place = in_place;
          if (can(algorithm, problem_of(c, 0))) prove(algorithm, c);
        }
      }
    }
  }
}

TEST(Segments, LargePartsVerify) {
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    for (const int size : {2, 3, 8}) {
      for (int shape = 0; shape < 3; ++shape) {
        for (const Algorithm algorithm : kAlgorithms) {
          Case c{.collective = collective, .size = size, .counts = {}};
          c.counts = parts_of(size, 20011, shape);
          c.chunk = 512;
          for (const bool in_place : {false, true}) {
            c.in_place = in_place;
            if (can(algorithm, problem_of(c, 0))) prove(algorithm, c);
          }
        }
      }
    }
  }
}

/// Verifies the case for every placement of ranks.
void prove_on_nodes(Case c) {
  prove(Algorithm::direct, c);
  if (c.size > 8 || c.chunk == 1) return;  // a chunk of 1 is rounded up to a block
  for (const Placement placement : placements(Algorithm::hierarchical)) {
    c.placement = placement;
    c.window = placement == Placement::uneven ? 5000 : 100000;
    prove(Algorithm::hierarchical, c);
  }
}

TEST(Matrix, SumsInBlocks) {
  for (const Codec codec : {Codec::int8, Codec::topk}) {
    const std::size_t block = coding_of({codec, 0.01}, 1).block();
    for (const int size : {2, 3, 4, 5, 8, 9, 16}) {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, block, 5 * block + 3, 40 * block}) {
        for (const std::size_t chunk : {std::size_t{1}, 3 * block, 100 * block}) {
          for (int placement = 0; placement < 3; ++placement) {
            Case c{.size = size, .count = count, .chunk = chunk, .codec = codec};
            c.in_place = placement == 1;
            c.mixed = placement == 2;
            prove_on_nodes(c);
            c.collective = Collective::reduce_scatter;
            c.counts = parts_of(size, count / 7, placement);
            prove_on_nodes(c);
            ASSERT_FALSE(HasFatalFailure());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mccl::schedule
