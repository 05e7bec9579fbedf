#include "backend/cuda/area.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "device/cuda/gpu.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl::cuda {
namespace {

using device::cuda::Address;
using device::cuda::Current;
using device::cuda::IpcHandle;

constexpr unsigned kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/// What each rank tells the others of its GPU.
struct Card {
  char boot[64];  ///< Of the kernel that runs: the host.
  char bus[16];   ///< Where the GPU is plugged in.
  std::int64_t process;
  IpcHandle memory;
};

std::string name_of_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  return name;
}

template <typename T>
std::vector<T> gather(Group& group, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group
      .all_gather({&own, sizeof(T), DType::u8}, {all.data(), sizeof(T) * all.size(), DType::u8},
                  {.caller_waits = true})
      .wait();
  return all;
}

}  // namespace

Area::Area(Group& group, Device device, std::chrono::milliseconds patience)
    : device_(device), cu_(device::cuda::driver()) {
  const Current current(cu_, device::cuda::context_of(device_.index));
  alarm_ = device::depot_of(device_)->block(sizeof(kernels::cuda::Alarm));
  std::memset(alarm_.data(), 0, sizeof(kernels::cuda::Alarm));
  fabric_.rank = group.rank();
  fabric_.ranks = group.size();
  fabric_.layout = kernels::cuda::layout_of(group.size());
  fabric_.alarm = &alarm();
  fabric_.patience_ns = patience.count() > 0
                            ? static_cast<std::uint64_t>(patience.count()) * 1'000'000
                            : ~std::uint64_t{0};
  std::string own = allocate();
  agree(group, own);
  if (objection_.empty()) agree(group, open(group));
}

/// Why this rank has no memory that others could reach; empty when it has.
std::string Area::allocate() {
  try {
    cu_.check(cu_.MemAlloc(&memory_, fabric_.layout.bytes), "cuMemAlloc");
    cu_.check(cu_.MemAlloc(&counters_, sizeof(kernels::cuda::Counters)), "cuMemAlloc");
    cu_.check(cu_.MemsetD8Async(memory_, 0, fabric_.layout.received, nullptr), "cuMemsetD8");
    cu_.check(cu_.MemsetD8Async(counters_, 0, sizeof(kernels::cuda::Counters), nullptr),
              "cuMemsetD8");
    cu_.check(cu_.StreamSynchronize(nullptr), "cuStreamSynchronize");
  } catch (const Error& error) {
    return error.what();
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
  fabric_.counters = reinterpret_cast<kernels::cuda::Counters*>(counters_);
  return {};
}

/// Why this rank does not reach all others; empty when it does.
std::string Area::open(Group& group) {
  Card own{};
  std::string objection;
  int device = 0;
  try {
    name_of_boot().copy(own.boot, sizeof(own.boot) - 1);
    own.process = ::getpid();
    cu_.check(cu_.DeviceGet(&device, device_.index), "cuDeviceGet");
    cu_.check(cu_.DeviceGetPCIBusId(own.bus, sizeof(own.bus), device), "cuDeviceGetPCIBusId");
    cu_.check(cu_.IpcGetMemHandle(&own.memory, memory_), "cuIpcGetMemHandle");
  } catch (const Error& error) {
    objection = error.what();
  }
  const std::vector<Card> cards = gather(group, own);
  for (int peer = 0; peer < group.size() && objection.empty(); ++peer) {
    const Card& card = cards[static_cast<std::size_t>(peer)];
    if (peer == group.rank()) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): as above
      fabric_.areas[peer] = reinterpret_cast<std::byte*>(memory_);
    } else if (std::strncmp(card.boot, own.boot, sizeof(own.boot)) != 0) {
      objection = fmt::format("rank {} is on another host", peer);
    } else if (card.process == own.process) {
      objection = fmt::format("rank {} is a thread of the same process", peer);
    } else if (std::strncmp(card.bus, own.bus, sizeof(own.bus)) == 0) {
      objection = fmt::format("rank {} has the same GPU, {}", peer, own.bus);
    } else {
      Address there = 0;
      try {
        cu_.check(cu_.IpcOpenMemHandle(&there, card.memory, kLazyPeerAccess), "cuIpcOpenMemHandle");
      } catch (const Error& error) {
        objection = fmt::format("the memory of rank {} ({}) cannot be reached: {}", peer, card.bus,
                                error.what());
      }
      // NOLINTNEXTLINE(performance-no-int-to-ptr): as above
      fabric_.areas[peer] = reinterpret_cast<std::byte*>(there);
    }
  }
  return objection;
}

/// All take the first objection that any rank has.
void Area::agree(Group& group, const std::string& own) {
  struct Said {
    char text[256];
  };
  Said said{};
  own.copy(said.text, sizeof(said.text) - 1);
  const std::vector<Said> all = gather(group, said);
  for (int rank = 0; rank < group.size() && objection_.empty(); ++rank) {
    const char* const text = all[static_cast<std::size_t>(rank)].text;
    if (*text) objection_ = fmt::format("rank {}: {}", rank, text);
  }
}

}  // namespace mccl::cuda
