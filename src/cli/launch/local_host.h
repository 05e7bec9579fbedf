// This machine. Its ranks are children, started without a shell.
#pragma once

#include <map>
#include <set>

#include "cli/launch/guardian.h"
#include "cli/launch/running_host.h"

namespace mccl::cli::launch {

class LocalHost final : public RunningHost {
 public:
  /// `ranks` are those that will run here. `inherited` is the environment to which each rank's
  /// variables are added. Variables that give this process a place in an MLX job are removed from
  /// it.
  LocalHost(const std::vector<const Rank*>& ranks, const Variables& inherited, Guardian& guardian,
            BindTo bind_to);

  void watch(Watch&) override {}
  void collect() override {}
  bool checked() const override { return true; }
  std::string fault() const override { return fault_; }
  Reached reached() const override { return {"127.0.0.1", guardian_.folder()}; }
  std::optional<Process> start_mccl(const std::vector<std::string>& words) override;
  std::optional<Process> request_forward(const std::string&, const std::string&) override {
    return {};
  }
  void prepare(const Files& files, const std::vector<const Rank*>& ranks,
               const std::vector<Variables>& variables) override;
  bool prepared() const override { return true; }
  const Binding& binding_of(const Rank& rank) const override { return bindings_.at(rank.rank); }
  Process start(const Rank& rank, const std::optional<TerminalPlan>& terminal) override;
  Exit ended(const Process& process, Exit exit, bool told) override;
  std::optional<Trouble> trouble() const override { return {}; }
  void signal(int number) override;
  /// Only checks whether the file kOnMccl exists; see had_mlx_on_mccl(). The guardian ends leftover
  /// processes and removes the folder.
  void finish() override;
  bool finished() const override { return true; }
  bool had_mlx_on_mccl() const override { return had_mlx_on_mccl_; }

 private:
  Variables inherited_;
  Guardian& guardian_;
  std::string fault_;
  const BindTo bind_to_;
  std::map<int, Variables> variables_;  ///< Keyed by rank.
  std::map<int, Binding> bindings_;     ///< Keyed by rank.
  std::set<pid_t> running_;
  bool had_mlx_on_mccl_ = false;
};

}  // namespace mccl::cli::launch
