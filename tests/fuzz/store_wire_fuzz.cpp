// Handles a sequence of requests like the store's server and decodes each answer. Then decodes the
// same bytes as an answer.
#include <algorithm>
#include <optional>

#include "input.h"
#include "mccl/error.h"
#include "rendezvous/store/memory_store.h"

using namespace mccl::rendezvous;

namespace {

/// Applies the request to the table and returns the encoded answer.
Bytes answer_to(MemoryStore& table, const StoreHeader& header, const std::string& key,
                std::string_view value) {
  try {
    if (header.kind == StoreKind::add)
      return encode(StoreKind::ok, {}, {}, table.add(key, header.number));
    if (header.kind == StoreKind::set) {
      table.set(key, value);
      return encode(StoreKind::ok, {}, {}, 0);
    }
    const std::optional<std::string> found = table.find(key);
    return encode(found ? StoreKind::ok : StoreKind::missing, {}, found.value_or(""), 0);
  } catch (const mccl::InvalidArgument& error) {
    return encode(StoreKind::invalid, {}, error.what(), 0);
  }
}

/// Handles the request at the front. Returns false if it is missing or incomplete.
bool take_request(mccl::fuzz::Input& input, MemoryStore& table) {
  if (input.rest().size() < kStoreHeaderBytes) return false;
  const auto header = decode_store_header(input.take(kStoreHeaderBytes));
  if (!header || header->is_answer() ||
      input.rest().size() < header->key_bytes + header->value_bytes) {
    return false;
  }
  const std::string key(text_of(input.take(header->key_bytes)));
  const std::string_view value = text_of(input.take(header->value_bytes));
  const Bytes answer = answer_to(table, *header, key, value);
  const auto told = decode_store_header(answer);
  mccl::fuzz::require(told && told->is_answer() && answer.size() == told->total_bytes(),
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
  Bytes header(kStoreHeaderBytes);
  answer.fill(header);
  if (const auto told = decode_store_header(header)) {
    mccl::fuzz::require(told->value_bytes <= kMaxValueBytes, "an answer longer than a value");
  }
  return 0;
}
