// Handles a sequence of requests like the store's server and decodes each answer. Then decodes the
// same bytes as an answer.
#include <algorithm>
#include <optional>

#include "input.h"
#include "mccl/error.h"
#include "rendezvous/store_wire.h"

using namespace mccl::rendezvous;

namespace {

/// Applies the request to the table and returns the encoded answer.
Bytes answer_to(MemoryStore& table, const RequestHeader& header, std::string_view key,
                std::string_view value) {
  try {
    switch (header.call) {
      case StoreCall::set:
        table.set(std::string(key), value);
        return encode_answer(StoreAnswer::ok, {}, 0);
      case StoreCall::add:
        return encode_answer(StoreAnswer::ok, {}, table.add(std::string(key), header.number));
      case StoreCall::get:
      case StoreCall::leave:
        break;
    }
    const std::optional<std::string> found = table.find(std::string(key));
    return encode_answer(found ? StoreAnswer::ok : StoreAnswer::missing, found.value_or(""), 0);
  } catch (const mccl::InvalidArgument& error) {
    return encode_answer(StoreAnswer::invalid, error.what(), 0);
  }
}

/// Handles the request at the front. Returns false if it is missing or incomplete.
bool take_request(mccl::fuzz::Input& input, MemoryStore& table) {
  if (input.rest().size() < kRequestHeaderBytes) return false;
  const auto header = decode_request(input.take(kRequestHeaderBytes));
  if (!header || input.rest().size() < header->key_bytes + header->value_bytes) return false;
  const std::string_view key = text_of(input.take(header->key_bytes));
  const std::string_view value = text_of(input.take(header->value_bytes));
  const Bytes answer = answer_to(table, *header, key, value);
  const auto told = decode_answer(std::span(answer).first(kAnswerHeaderBytes));
  mccl::fuzz::require(told && answer.size() == kAnswerHeaderBytes + told->value_bytes,
                      "the server answers what no client takes");
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input requests(data, size);
  MemoryStore table;
  while (take_request(requests, table)) {
  }
  mccl::fuzz::Input answer(data, size);
  Bytes header(kAnswerHeaderBytes);
  answer.fill(header);
  if (const auto told = decode_answer(header)) {
    mccl::fuzz::require(told->value_bytes <= kMaxValueBytes, "an answer longer than a value");
  }
  return 0;
}
