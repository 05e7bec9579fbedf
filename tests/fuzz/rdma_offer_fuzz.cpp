// Bytes that decode as an offer of a queue pair must encode to the same bytes. The same holds for
// the header of a message in a slot.
#include <algorithm>
#include <vector>

#include "input.h"
#include "mccl/error.h"
#include "transport/rdma/pair/message.h"
#include "transport/rdma/transport.h"

namespace rdma = mccl::transport::rdma;

namespace {

constexpr std::uint64_t kToken = 0x0123456789abcdef;

void check_message(std::span<const std::byte> bytes) {
  const rdma::Decoded found = rdma::decode(bytes, kToken, rdma::kSlotBytes - rdma::kHeaderBytes);
  if (!found.fault.empty()) return;
  mccl::fuzz::require(found.header.bytes == bytes.size() - rdma::kHeaderBytes,
                      "a message is taken for another length than it has");
  std::vector<std::byte> again(rdma::kHeaderBytes);
  rdma::encode(found.header, again);
  mccl::fuzz::require(std::equal(again.begin(), again.end(), bytes.begin()),
                      "a message's head loses something");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input input(data, size);
  if (input.byte() == 0) {
    check_message(input.rest());
    return 0;
  }
  try {
    const rdma::Offer offer = rdma::decode_offer(mccl::WorldRank(3), input.rest());
    mccl::fuzz::require(!offer.gids.empty(), "an offer without an address");
    (void)rdma::choose_gids(offer.gids, offer.gids);
    const mccl::transport::Blob again = rdma::encode(offer);
    mccl::fuzz::require(std::equal(again.begin(), again.end(), input.rest().begin()),
                        "an offer loses something of what it says");
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
