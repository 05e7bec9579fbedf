// This machine: ranks are children, started without a shell.
#pragma once

#include <chrono>
#include <map>
#include <set>

#include "cli/launch/guardian.h"
#include "cli/launch/running_host.h"

namespace mccl::cli::launch {

class LocalHost final : public RunningHost {
 public:
  /// `ranks` are those that will run here; `inherited` is the environment that they add to. Make it
  /// while this process has one thread.
  LocalHost(const std::vector<const Rank*>& ranks, const Variables& inherited,
            std::chrono::milliseconds grace);

  void watch(Watch&) override {}
  void collect() override {}
  bool checked() const override { return true; }
  std::string fault() const override { return fault_; }
  Reached reached() const override { return {"127.0.0.1", guardian_->folder()}; }
  void prepare(const Files& files, const std::vector<const Rank*>& ranks,
               const std::vector<Variables>& variables) override;
  bool prepared() const override { return true; }
  Process start(const Rank& rank, const std::optional<TerminalPlan>& terminal) override;
  Exit ended(const Process& process, Exit exit) override;
  bool lost() const override { return false; }
  void signal(int number) override;
  void finish() override { guardian_.reset(); }
  bool finished() const override { return guardian_ == nullptr; }

 private:
  const Variables inherited_;
  std::unique_ptr<Guardian> guardian_;
  std::string fault_;
  std::map<int, Variables> variables_;  ///< By rank.
  std::set<pid_t> running_;
};

}  // namespace mccl::cli::launch
