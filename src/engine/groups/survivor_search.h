// The handle of a search for the members of a group that are left.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/calls/operation.h"

namespace mccl::engine {

/// Done once the members have agreed.
class SurvivorSearch final : public detail::WorkState {
 public:
  SurvivorSearch(std::shared_ptr<CallDriver> driver, std::string group)
      : driver_(std::move(driver)), group_(std::move(group)) {}
  std::string description() const override { return "shrink of group '" + group_ + "'"; }

 protected:
  void help(Clock::time_point deadline) override { driver_->help(*this, deadline); }

 private:
  const std::shared_ptr<CallDriver> driver_;
  const std::string group_;
};

}  // namespace mccl::engine
