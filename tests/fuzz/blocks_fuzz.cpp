// Blocks of a codec as a peer may send them. The first byte selects the codec, the second how much
// of the last block is missing, and the third how many elements topk keeps. Decoding the bytes and
// folding them as the only operand of a sum must agree on their validity and values.
#include <cmath>
#include <vector>

#include "base/coding.h"
#include "input.h"
#include "kernels/codec/codec.h"

using namespace mccl;

namespace {

Coding coding_from(fuzz::Input& input, std::size_t& missing) {
  Coding coding;
  coding.codec = static_cast<Codec>(1 + input.byte() % (kCodecCount - 1));
  missing = input.byte();
  const std::size_t kept = 1 + input.byte();
  if (coding.codec == Codec::topk)
    coding.kept = coding.kept_of_sum = static_cast<std::uint16_t>(kept);
  return coding;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  std::size_t missing = 0;
  const Coding coding = coding_from(input, missing);
  const std::size_t blocks = input.rest().size() / coding.block_bytes(Coded::contribution);
  if (blocks == 0) return 0;
  const std::size_t count = blocks * coding.block() - missing % coding.block();
  const auto bytes = input.take(coding.bytes(count, Coded::contribution));
  const std::vector<std::byte> given(bytes.begin(), bytes.end());

  std::vector<float> read(count), summed(count);
  const bool good =
      kernels::decode(coding, Coded::contribution, DType::f32, given.data(), count, read.data());
  const std::byte* const operand = given.data();
  const int wrong =
      kernels::fold_to_elements(coding, {&operand, 1}, count, 1, DType::f32, summed.data());
  fuzz::require(good == (wrong < 0), "blocks are good to a reader but not to a sum");
  if (!good) return 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool same = read[i] == summed[i] || (std::isnan(read[i]) && std::isnan(summed[i]));
    fuzz::require(same, "a sum of one operand is not that operand");
  }
  std::vector<std::byte> sum(coding.bytes(count, Coded::sum));
  std::vector<float> left(count);
  fuzz::require(kernels::fold_to_sum(coding, {&operand, 1}, count, 1, sum.data(), DType::f32,
                                     left.data()) < 0,
                "what was good is not");
  fuzz::require(kernels::decode(coding, Coded::sum, DType::f32, sum.data(), count, read.data()),
                "a sum that this rank has encoded cannot be decoded");
  for (const float each : left)
    fuzz::require(std::isfinite(each), "what is left out is not finite");
  return 0;
}
