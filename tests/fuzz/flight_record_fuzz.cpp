// A flight record is either refused, or can be compared with itself on another host and written in
// all formats.
#include "cli/sight/record.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::cli::sight;
  try {
    const FlightRecord record = parse_record(mccl::fuzz::Input(data, size).text(), "the fuzzer");
    std::vector<FlightRecord> records = {record, record};
    records.back().host += "2";
    records.back().rank = record.rank + 1;
    check_one_job(records);
    static_cast<void>(align(records));
    static_cast<void>(findings(records));
    mccl::fuzz::require(!chrome_trace(records).empty(), "a trace of nothing");
    mccl::fuzz::require(torch_dump(record).ends_with('.'), "a pickle without an end");
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
