// The status of a rank is either refused, or can be assessed and shown.
#include "cli/sight/report.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::cli::sight;
  try {
    const RankReport rank = parse_status(mccl::fuzz::Input(data, size).text(), "the fuzzer");
    RankReport other = rank;
    other.rank = rank.rank + 1;
    const std::vector<JobReport> jobs = assess({rank, other}, 0);
    mccl::fuzz::require(jobs.size() == 1, "two jobs");
    mccl::fuzz::require(!to_text(jobs.front()).empty(), "a report of nothing");
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
