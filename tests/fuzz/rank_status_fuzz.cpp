// The status of a rank, and what a rank passes on about others, is either refused, or can be
// assessed and shown.
#include "cli/sight/report.h"
#include "cli/sight/survey.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::cli::sight;
  const std::string text(mccl::fuzz::Input(data, size).text());
  try {
    std::vector<RankReport> reports = read_others(text, "the fuzzer", {});
    for (const RankReport& each : reports)
      mccl::fuzz::require(each.raw.is_object(), "an answer without its text");
    for (const JobReport& job : assess(std::move(reports), 0)) to_text(job);
  } catch (const mccl::InvalidArgument&) {
  }
  try {
    const RankReport rank = parse_status(text, "the fuzzer");
    RankReport other = rank;
    other.rank = rank.rank + 1;
    const std::vector<JobReport> jobs = assess({rank, other}, 0);
    mccl::fuzz::require(jobs.size() == 1, "two jobs");
    mccl::fuzz::require(!to_text(jobs.front()).empty(), "a report of nothing");
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
