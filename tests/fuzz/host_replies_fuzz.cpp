// The lines that a host sends to mccl doctor and mccl config: whether it has mccl, its facts, its
// ports, the calls that it has heard, and results of tests. After a line "===", the output of a
// trial of mccl doctor's self-test, which contains JSON of another host.
#include <algorithm>
#include <string>
#include <vector>

#include "cli/doctor/report.h"
#include "cli/hosts/link_tests.h"
#include "cli/hosts/replies.h"
#include "cluster/finding.h"
#include "input.h"
#include "rendezvous/connections/wire.h"

namespace mccl::fuzz::host_replies {
namespace {

using namespace mccl::cli;

constexpr std::size_t kHosts = 3;
constexpr std::size_t kHost = 1;
constexpr std::size_t kTests = 4;

bool is_printable(std::string_view text) {
  return std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

void read_lines(std::string_view text) {
  std::vector<hosts::Asked> asked(kHosts);
  hosts::Replies replies;
  replies.token = "TOKEN";
  while (!text.empty()) {
    const auto news = replies.take(rendezvous::next_part(text, '\n'), asked, kHost);
    if (news != hosts::Replies::News::facts) continue;
    require(asked[kHost].reached && replies.told, "facts of a host that was not reached");
    require(is_printable(hosts::summary_of(asked[kHost].facts)), "a summary is not printable");
  }
  require(is_printable(replies.program), "a path is not printable");
  require(is_printable(replies.busy), "the name of a program is not printable");
  require(asked[kHost].ports.size() <= 8, "too many ports");
  for (const std::uint16_t port : asked[kHost].ports) require(port > 0, "a port that cannot be");
  require(!asked[0].reached && asked[0].ports.empty(), "a host has spoken for another");
  for (const auto& list : {replies.calls.heard, replies.calls.unanswered})
    for (const cluster::Heard& each : list)
      require(
          each.at.host == kHost && each.from.host >= 0 && each.from.host < static_cast<int>(kHosts),
          "a call of a host that does not exist");

  std::vector<hosts::LinkResult> dialled(kTests);
  hosts::for_each_answer(replies.answers, "dialled", kTests,
                         [&](std::size_t i, const auto& answer) {
                           take_dialled(dialled.at(i), answer);
                           require(is_printable(dialled[i].why), "a reason is not printable");
                         });
  std::vector<hosts::LinkResult> timed(kTests);
  hosts::for_each_answer(replies.answers, "timed", kTests, [&](std::size_t i, const auto& answer) {
    take_timed(timed.at(i), answer);
    require(timed[i].good == (timed[i].bytes_per_s > 0), "a rate of a bad link");
  });
}

void read_trial(std::string output) {
  const std::size_t before = output.size();
  const nlohmann::json result = doctor::result_in(output);
  require(output.size() <= before, "a result makes an output longer");
  const doctor::SelftestCase trial{.name = "a trial", .argv = {}, .result_file = ""};
  for (const auto& row : doctor::figures_of(trial, result)) {
    require(row.size() == 7, "a row of another length");
    require(std::ranges::all_of(row, is_printable), "a figure is not printable");
  }
}

}  // namespace

void run(std::string_view all) {
  constexpr std::string_view kNext = "\n===\n";
  const std::size_t next = std::min(all.find(kNext), all.size());
  read_lines(all.substr(0, next));
  read_trial(std::string(all.substr(std::min(next + kNext.size(), all.size()))));
}

}  // namespace mccl::fuzz::host_replies

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::host_replies::run(mccl::fuzz::Input(data, size).text());
  return 0;
}
