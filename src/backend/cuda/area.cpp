#include "backend/cuda/area.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "backend/direct/agreement.h"
#include "base/keep.h"
#include "device/cuda/gpu.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl::cuda {
namespace {

using device::cuda::Address;
using device::cuda::Current;
using device::cuda::IpcHandle;
using kernels::cuda::kMostRanks;
using kernels::cuda::kMostWindows;

constexpr unsigned kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
constexpr int kMultiprocessors = 16;     // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kNativeAtomics = 3;        // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED

/// Description of a rank's GPU. Each rank sends its own description to all other ranks.
struct GpuOffer {
  direct::DeviceIdentity card;
  IpcHandle memory;
  int processors;
};

/// Returns the number of multiprocessors that each rank may use: the smallest number over all
/// ranks. Ranks that share a GPU divide its multiprocessors equally.
unsigned processors_for_each(const std::vector<GpuOffer>& offers) {
  unsigned fewest = ~0U;
  for (const GpuOffer& offer : offers) {
    const auto others = std::ranges::count_if(offers, [&](const GpuOffer& other) {
      return &other != &offer && direct::is_one_device(offer.card, other.card);
    });
    fewest = std::min(fewest, static_cast<unsigned>(offer.processors / (1 + others)));
  }
  return std::max(1U, fewest);
}

}  // namespace

/// Description of a window (a block of device::Pool). Its rank sends it to all other ranks.
struct PoolWindowOffer {
  IpcHandle memory;
  /// 1, or 0 if the window has been freed. Freed windows stay in the list of offers, because a
  /// window's position in the list determines its number.
  std::uint8_t is_there;
};

Area::Area(Group& group, Device device, std::chrono::milliseconds patience, SharedGpu shared)
    : device_(device),
      shared_(shared),
      cu_(device::cuda::driver()),
      pool_(device::pool_of(device)),
      windows_(kMostRanks * kMostWindows),
      known_(kMostRanks) {
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
  objection_ = direct::first_objection(group, own);
  if (objection_.empty()) objection_ = direct::first_objection(group, open(group));
}

Area::~Area() {
  if (__atomic_load_n(&alarm().stop, __ATOMIC_RELAXED) != 0) keep_for_ever(std::move(alarm_));
}

/// Allocates this rank's device memory: the memory that the other ranks access, the counters and
/// the table of windows. Returns an error message, or an empty string on success.
std::string Area::allocate() {
  try {
    cu_.check(cu_.MemAlloc(&memory_, fabric_.layout.bytes), "cuMemAlloc");
    cu_.check(cu_.MemAlloc(&counters_, sizeof(kernels::cuda::Counters)), "cuMemAlloc");
    cu_.check(cu_.MemAlloc(&table_, windows_.size() * sizeof(windows_[0])), "cuMemAlloc");
    cu_.check(cu_.MemsetD8Async(memory_, 0, fabric_.layout.received, nullptr), "cuMemsetD8");
    cu_.check(cu_.MemsetD8Async(counters_, 0, sizeof(kernels::cuda::Counters), nullptr),
              "cuMemsetD8");
    cu_.check(cu_.StreamSynchronize(nullptr), "cuStreamSynchronize");
  } catch (const Error& error) {
    return error.what();
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
  fabric_.counters = reinterpret_cast<kernels::cuda::Counters*>(counters_);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is an integer
  fabric_.windows = reinterpret_cast<std::byte* const*>(table_);
  return {};
}

/// Opens the device memory of all other ranks. Returns the reason if this rank cannot access the
/// memory of one of these ranks; otherwise returns an empty string.
std::string Area::open(Group& group) {
  GpuOffer own{};
  std::string objection;
  try {
    own.card = direct::card_of(device::depot_of(device_)->accelerator().bus());
    cu_.check(cu_.IpcGetMemHandle(&own.memory, memory_), "cuIpcGetMemHandle");
    int gpu = 0;
    cu_.check(cu_.DeviceGet(&gpu, device_.index), "cuDeviceGet");
    cu_.check(cu_.DeviceGetAttribute(&own.processors, kMultiprocessors, gpu),
              "cuDeviceGetAttribute");
  } catch (const Error& error) {
    objection = error.what();
  }
  const std::vector<GpuOffer> offers = direct::gather(group, own);
  processors_ = processors_for_each(offers);
  std::uint8_t by_nvlink = 1;
  for (int peer = 0; peer < group.size() && objection.empty(); ++peer) {
    const direct::DeviceIdentity& card = offers[static_cast<std::size_t>(peer)].card;
    if (peer == group.rank()) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is an integer
      fabric_.areas[peer] = reinterpret_cast<std::byte*>(memory_);
    } else if (!direct::on_one_host(card, own.card)) {
      objection = fmt::format("rank {} is on another host", peer);
    } else if (card.process == own.card.process) {
      objection = fmt::format("rank {} runs in the same process", peer);
    } else if (shared_ == SharedGpu::refused && direct::is_one_device(card, own.card)) {
      objection = fmt::format("rank {} uses the same GPU, {}", peer, own.card.bus);
    } else {
      Address there = 0;
      try {
        cu_.check(cu_.IpcOpenMemHandle(&there, offers[static_cast<std::size_t>(peer)].memory,
                                       kLazyPeerAccess),
                  "cuIpcOpenMemHandle");
      } catch (const Error& error) {
        objection =
            fmt::format("cannot open the memory of rank {} ({}): {}", peer, card.bus, error.what());
      }
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is an integer
      fabric_.areas[peer] = reinterpret_cast<std::byte*>(there);
      if (!is_by_nvlink(own.card, card)) by_nvlink = 0;
    }
  }
  const auto all = direct::gather(group, by_nvlink);
  all_by_nvlink_ = std::ranges::all_of(all, [](std::uint8_t one) { return one == 1; });
  return objection;
}

std::string Area::exchange_windows(Group& group) {
  const Current current(cu_, device::cuda::context_of(device_.index));
  const std::vector<device::Pool::PoolWindow> own = pool_->pin_from(shared_windows_);
  std::vector<PoolWindowOffer> offers(own.size());
  std::string objection;
  try {
    if (shared_windows_ + own.size() > kMostWindows) {
      throw Error(fmt::format("rank {} shares {} blocks of memory; the limit is {}", group.rank(),
                              shared_windows_ + own.size(), kMostWindows));
    }
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (!own[i].memory) continue;
      offers[i].is_there = 1;
      cu_.check(cu_.IpcGetMemHandle(&offers[i].memory, reinterpret_cast<Address>(own[i].memory)),
                "cuIpcGetMemHandle");
    }
  } catch (const Error& error) {
    objection = error.what();
  }
  objection = direct::first_objection(group, objection);
  if (!objection.empty()) return objection;
  std::vector<std::size_t> bytes = direct::gather(group, offers.size() * sizeof(PoolWindowOffer));
  const std::size_t total = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  if (total == 0) return {};
  std::vector<PoolWindowOffer> all(total / sizeof(PoolWindowOffer));
  group
      .all_gatherv({offers.data(), offers.size() * sizeof(PoolWindowOffer), DType::u8},
                   {all.data(), total, DType::u8}, bytes, {.caller_waits = true})
      .wait();
  std::span<const PoolWindowOffer> left(all);
  for (int peer = 0; peer < group.size(); ++peer) {
    const std::size_t count = bytes[static_cast<std::size_t>(peer)] / sizeof(PoolWindowOffer);
    if (objection.empty()) objection = open_windows(peer, left.first(count));
    left = left.subspan(count);
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    windows_[static_cast<std::size_t>(group.rank()) * kMostWindows + shared_windows_ + i] =
        static_cast<std::byte*>(own[i].memory);
  }
  objection = direct::first_objection(group, objection.empty() ? write_table() : objection);
  if (!objection.empty()) return objection;
  for (int peer = 0; peer < group.size(); ++peer) {
    known_[peer] += bytes[static_cast<std::size_t>(peer)] / sizeof(PoolWindowOffer);
  }
  shared_windows_ += own.size();
  has_windows_ = true;
  return {};
}

/// Opens the windows of `peer`. Returns the reason if this fails, and an empty string on success.
std::string Area::open_windows(int peer, std::span<const PoolWindowOffer> offers) {
  if (peer == fabric_.rank) return {};
  std::byte** const row = &windows_[static_cast<std::size_t>(peer) * kMostWindows + known_[peer]];
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].is_there == 0) continue;
    Address there = 0;
    try {
      cu_.check(cu_.IpcOpenMemHandle(&there, offers[i].memory, kLazyPeerAccess),
                "cuIpcOpenMemHandle");
    } catch (const Error& error) {
      return fmt::format("cannot open memory of rank {}: {}", peer, error.what());
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is an integer
    row[i] = reinterpret_cast<std::byte*>(there);
  }
  return {};
}

/// Copies the table of windows to the device. Uses a separate stream, so that earlier work of the
/// caller does not delay this copy, for which the other ranks wait.
std::string Area::write_table() {
  try {
    const auto queue = device::depot_of(device_)->accelerator().make_queue();
    auto* const stream = static_cast<device::cuda::Stream>(queue->handle());
    cu_.check(
        cu_.MemcpyHtoDAsync(table_, windows_.data(), windows_.size() * sizeof(windows_[0]), stream),
        "cuMemcpyHtoDAsync");
    cu_.check(cu_.StreamSynchronize(stream), "cuStreamSynchronize");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::uint64_t Area::place_of(const void* memory, std::size_t bytes) const {
  const auto found = pool_->find(memory, bytes);
  const bool is_reached = found && found->window < shared_windows_ &&
                          reinterpret_cast<std::uintptr_t>(memory) % 16 == 0;
  return is_reached ? kernels::cuda::place_in(found->window, found->offset)
                    : kernels::cuda::kNowhere;
}

/// True if NVLink joins the two GPUs. Detects NVLink by its native atomic operations, which PCIe
/// does not support. False for a GPU that this process cannot see.
bool Area::is_by_nvlink(const direct::DeviceIdentity& own_card,
                        const direct::DeviceIdentity& peer_card) const {
  if (direct::is_one_device(own_card, peer_card)) return shared_ == SharedGpu::nvlink;
  int own = 0, peer = 0, atomics = 0;
  return cu_.DeviceGet(&own, device_.index) == 0 &&
         cu_.DeviceGetByPCIBusId(&peer, peer_card.bus) == 0 &&
         cu_.DeviceGetP2PAttribute(&atomics, kNativeAtomics, own, peer) == 0 && atomics == 1;
}

}  // namespace mccl::cuda
