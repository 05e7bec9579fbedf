// Checks the result of every collective on each rank against its definition.
#include <numeric>

#include "backend/conformance/checks.h"

namespace mccl::conformance {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 7, 33, 1000, 100'003};

/// Small integers, so that sums are exact in every type and in any order.
float value_of(int rank, std::size_t index) {
  return static_cast<float>((rank * 7 + static_cast<int>(index % 13)) % 5);
}

std::vector<float> input_of(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value_of(rank, first + i);
  return data;
}

std::vector<float> sum_of_all(int size, std::size_t count) {
  std::vector<float> sum(count, 0);
  for (int rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += value_of(rank, i);
  }
  return sum;
}

Buffer buffer(std::vector<float>& data) { return {data.data(), data.size(), DType::f32}; }

void all_reduce_in_and_out_of_place(Context& context) {
  Group& group = *context.world();
  for (const std::size_t count : kCounts) {
    const std::vector<float> expected = sum_of_all(group.size(), count);
    std::vector<float> data = input_of(group.rank(), count);
    std::vector<float> out(count, -1);
    group.all_reduce(buffer(data), buffer(out), ReduceKind::sum).wait();
    ASSERT_EQ(out, expected) << count;
    ASSERT_EQ(data, input_of(group.rank(), count)) << "the input was written";
    group.all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
    ASSERT_EQ(data, expected) << count;
  }
}

void broadcast_from_every_root(Context& context) {
  Group& group = *context.world();
  for (int root = 0; root < group.size(); ++root) {
    for (const std::size_t count : kCounts) {
      std::vector<float> data = input_of(group.rank(), count);
      group.broadcast(buffer(data), root).wait();
      ASSERT_EQ(data, input_of(root, count));
    }
  }
}

void reduce_to_every_root(Context& context) {
  Group& group = *context.world();
  for (int root = 0; root < group.size(); ++root) {
    for (const std::size_t count : kCounts) {
      std::vector<float> data = input_of(group.rank(), count);
      std::vector<float> out(group.rank() == root ? count : 0, -1);
      group.reduce(buffer(data), buffer(out), ReduceKind::sum, root).wait();
      ASSERT_EQ(data, input_of(group.rank(), count));
      if (group.rank() == root) {
        ASSERT_EQ(out, sum_of_all(group.size(), count));
      }
      group.reduce(buffer(data), buffer(data), ReduceKind::sum, root).wait();
      ASSERT_EQ(data, group.rank() == root ? sum_of_all(group.size(), count)
                                           : input_of(group.rank(), count));
    }
  }
}

/// Returns counts in which rank i has i % 3 * count elements, and one more if i is odd. Some are
/// zero.
std::vector<std::size_t> uneven(int size, std::size_t count) {
  std::vector<std::size_t> counts;
  for (int i = 0; i < size; ++i) {
    counts.push_back(static_cast<std::size_t>(i % 3) * count + (i % 2 ? 1 : 0));
  }
  return counts;
}

std::vector<float> gathered(int size, const std::vector<std::size_t>& counts) {
  std::vector<float> all;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<float> part = input_of(rank, counts[static_cast<std::size_t>(rank)]);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void all_gather_even_and_uneven(Context& context) {
  Group& group = *context.world();
  const auto ranks = static_cast<std::size_t>(group.size());
  for (const std::size_t count : kCounts) {
    std::vector<float> part = input_of(group.rank(), count);
    std::vector<float> all(ranks * count, -1);
    group.all_gather(buffer(part), buffer(all)).wait();
    ASSERT_EQ(all, gathered(group.size(), std::vector<std::size_t>(ranks, count)));

    const std::vector<std::size_t> counts = uneven(group.size(), count);
    const std::size_t mine = counts[static_cast<std::size_t>(group.rank())];
    const std::size_t begin =
        std::accumulate(counts.begin(), counts.begin() + group.rank(), std::size_t{0});
    part = input_of(group.rank(), mine);
    all.assign(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), -1);
    std::copy(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin));
    group.all_gatherv({all.data() + begin, mine, DType::f32}, buffer(all), counts).wait();
    ASSERT_EQ(all, gathered(group.size(), counts)) << "in place";
  }
}

/// A rank that passes a list of equal counts makes the same call as one that passes no list.
void even_and_uneven_forms_of_equal_parts_are_one_call(Context& context) {
  Group& group = *context.world();
  const auto ranks = static_cast<std::size_t>(group.size());
  const bool lists = group.rank() % 2 == 1;
  for (const std::size_t count : {std::size_t{1}, std::size_t{500}, std::size_t{500}}) {
    const std::vector<std::size_t> counts(ranks, count);
    const std::vector<float> expected = gathered(group.size(), counts);
    std::vector<float> part = input_of(group.rank(), count);
    std::vector<float> all(ranks * count, -1);
    (lists ? group.all_gatherv(buffer(part), buffer(all), counts)
           : group.all_gather(buffer(part), buffer(all)))
        .wait();
    ASSERT_EQ(all, expected);

    std::vector<float> out(count, -1);
    (lists ? group.reduce_scatterv(buffer(all), buffer(out), counts, ReduceKind::max)
           : group.reduce_scatter(buffer(all), buffer(out), ReduceKind::max))
        .wait();
    ASSERT_EQ(out, part);

    std::vector<float> at_root(group.rank() == 0 ? ranks * count : 0, -1);
    (lists ? group.gatherv(buffer(part), buffer(at_root), counts, 0)
           : group.gather(buffer(part), buffer(at_root), 0))
        .wait();
    if (group.rank() == 0) {
      ASSERT_EQ(at_root, expected);
    }
    (lists ? group.scatterv(buffer(at_root), buffer(out), counts, 0)
           : group.scatter(buffer(at_root), buffer(out), 0))
        .wait();
    ASSERT_EQ(out, part);
  }
}

void gather_and_scatter_at_every_root(Context& context) {
  Group& group = *context.world();
  for (int root = 0; root < group.size(); ++root) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{20'001}}) {
      const std::vector<std::size_t> counts = uneven(group.size(), count);
      std::vector<float> part =
          input_of(group.rank(), counts[static_cast<std::size_t>(group.rank())]);
      std::vector<float> all;
      if (group.rank() == root) {
        all.assign(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), -1);
      }
      group.gatherv(buffer(part), buffer(all), counts, root).wait();
      if (group.rank() == root) {
        ASSERT_EQ(all, gathered(group.size(), counts));
      }
      std::vector<float> back(part.size(), -1);
      group.scatterv(buffer(all), buffer(back), counts, root).wait();
      ASSERT_EQ(back, part);
    }
  }
}

void reduce_scatter_even_and_uneven(Context& context) {
  Group& group = *context.world();
  const auto ranks = static_cast<std::size_t>(group.size());
  for (const std::size_t count : kCounts) {
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>(ranks, count), uneven(group.size(), count)}) {
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const std::size_t begin =
          std::accumulate(counts.begin(), counts.begin() + group.rank(), std::size_t{0});
      const std::size_t mine = counts[static_cast<std::size_t>(group.rank())];
      const std::vector<float> sum = sum_of_all(group.size(), total);
      const std::vector<float> expected(sum.begin() + static_cast<std::ptrdiff_t>(begin),
                                        sum.begin() + static_cast<std::ptrdiff_t>(begin + mine));
      std::vector<float> data = input_of(group.rank(), total);
      std::vector<float> out(mine, -1);
      group.reduce_scatterv(buffer(data), buffer(out), counts, ReduceKind::sum).wait();
      ASSERT_EQ(out, expected);
      ASSERT_EQ(data, input_of(group.rank(), total)) << "the input was written";
    }
  }
}

void all_to_all_with_uneven_splits(Context& context) {
  Group& group = *context.world();
  const int size = group.size();
  for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{9'001}}) {
    // Rank a sends (a + 2b) % 3 * count elements to rank b, starting with element 100 * b of a's
    // data.
    const auto between = [&](int a, int b) {
      return static_cast<std::size_t>((a + 2 * b) % 3) * count;
    };
    std::vector<std::size_t> in_counts;
    std::vector<std::size_t> out_counts;
    std::vector<float> in;
    std::vector<float> expected;
    for (int peer = 0; peer < size; ++peer) {
      in_counts.push_back(between(group.rank(), peer));
      out_counts.push_back(between(peer, group.rank()));
      const auto give =
          input_of(group.rank(), in_counts.back(), 100u * static_cast<unsigned>(peer));
      const auto take =
          input_of(peer, out_counts.back(), 100u * static_cast<unsigned>(group.rank()));
      in.insert(in.end(), give.begin(), give.end());
      expected.insert(expected.end(), take.begin(), take.end());
    }
    std::vector<float> out(expected.size(), -1);
    group.all_to_allv(buffer(in), in_counts, buffer(out), out_counts).wait();
    ASSERT_EQ(out, expected);
  }
}

/// One rank sends and receives a single element per peer, while the others exchange many.
void all_to_all_of_very_different_sizes(Context& context) {
  Group& group = *context.world();
  const int size = group.size();
  const auto between = [&](int a, int b) {
    return a == size - 1 || b == size - 1 ? std::size_t{1} : std::size_t{9'001};
  };
  std::vector<std::size_t> in_counts;
  std::vector<std::size_t> out_counts;
  std::vector<float> in;
  std::vector<float> expected;
  for (int peer = 0; peer < size; ++peer) {
    in_counts.push_back(between(group.rank(), peer));
    out_counts.push_back(between(peer, group.rank()));
    const auto give = input_of(group.rank(), in_counts.back());
    const auto take = input_of(peer, out_counts.back());
    in.insert(in.end(), give.begin(), give.end());
    expected.insert(expected.end(), take.begin(), take.end());
  }
  std::vector<float> out(expected.size(), -1);
  group.all_to_allv(buffer(in), in_counts, buffer(out), out_counts).wait();
  ASSERT_EQ(out, expected);
}

void barriers_and_many_calls_in_flight(Context& context) {
  Group& group = *context.world();
  std::vector<std::vector<float>> data;
  std::vector<Work> works;
  for (std::size_t i = 0; i < 50; ++i) data.push_back(input_of(group.rank(), i * 37));
  for (std::vector<float>& one : data) {
    works.push_back(group.all_reduce(buffer(one), buffer(one), ReduceKind::sum));
    works.push_back(group.barrier());
  }
  for (const Work& work : works) work.wait();
  for (std::size_t i = 0; i < 50; ++i) ASSERT_EQ(data[i], sum_of_all(group.size(), i * 37));
}

constexpr Check kChecks[] = {
    {"AllReduceInAndOutOfPlace", 1, all_reduce_in_and_out_of_place},
    {"BroadcastFromEveryRoot", 1, broadcast_from_every_root},
    {"ReduceToEveryRoot", 1, reduce_to_every_root},
    {"AllGatherEvenAndUneven", 1, all_gather_even_and_uneven},
    {"EvenAndUnevenFormsOfEqualPartsAreOneCall", 1,
     even_and_uneven_forms_of_equal_parts_are_one_call},
    {"GatherAndScatterAtEveryRoot", 1, gather_and_scatter_at_every_root},
    {"ReduceScatterEvenAndUneven", 1, reduce_scatter_even_and_uneven},
    {"AllToAllWithUnevenSplits", 1, all_to_all_with_uneven_splits},
    {"AllToAllOfVeryDifferentSizes", 2, all_to_all_of_very_different_sizes},
    {"BarriersAndManyCallsInFlight", 1, barriers_and_many_calls_in_flight},
};

}  // namespace

std::span<const Check> collective_checks() { return kChecks; }

}  // namespace mccl::conformance
