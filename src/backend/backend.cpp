#include "backend/backend.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/mpi/path.h"
#include "backend/native/backend.h"
#include "mccl/meeting.h"

namespace mccl {

std::unique_ptr<Backend> make_backend(const ContextOptions& options) {
  return std::make_unique<native::NativeBackend>(meets_by_mpi(options.config) ? mpi::placed(options)
                                                                              : options);
}

std::vector<int> ranks_of_color(Group& parent, int color, int key) {
  struct Choice {
    std::int32_t color;
    std::int32_t key;
  };
  const Choice mine = {color, key};
  std::vector<Choice> all(static_cast<std::size_t>(parent.size()));
  parent
      .all_gather({&mine, 2, DType::i32}, {all.data(), 2 * all.size(), DType::i32},
                  {.caller_waits = true})
      .wait();
  std::vector<int> chosen;
  for (int rank = 0; rank < parent.size() && color >= 0; ++rank) {
    if (all[static_cast<std::size_t>(rank)].color == color) chosen.push_back(rank);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&all](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  return chosen;
}

}  // namespace mccl
