// Two ends of a link over simulated devices. After each test, checks that no object is open and
// that no message was sent without room for it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "support/rdma_ends.h"
#include "support/verbs_double.h"
#include "transport/rdma/link.h"

namespace mccl::transport::rdma {

class LinkedEnds : public ::testing::Test {
 protected:
  LinkedEnds() {
    verbs_->add("here0", 1);
    verbs_->add("there0", 2);
  }
  ~LinkedEnds() override {
    fabric_.judge = {};
    fabric_.gate = {};
    disconnect();
    ends_ = {};
    EXPECT_TRUE(fabric_.all_closed());
    EXPECT_EQ(fabric_.starved, 0u);
    EXPECT_EQ(fabric_.overflowed, 0u);
    EXPECT_EQ(fabric_.strayed, 0u);
  }

  /// Connects the ends, after closing existing links.
  void connect(Service service) {
    disconnect();
    ends_ = mccl::testing::RdmaEnds::connect(verbs_, "here0", "there0", service);
    ends_.greet();
    a_ = ends_.link(0);
    b_ = ends_.link(1);
  }
  void disconnect() {
    b_.reset();
    a_.reset();
  }
  mccl::testing::DoubleQueuePair& second_end() { return *fabric_.pairs.rbegin()->second; }

  const std::shared_ptr<mccl::testing::VerbsDouble> verbs_ =
      std::make_shared<mccl::testing::VerbsDouble>();
  mccl::testing::Fabric& fabric_ = *verbs_->fabric;
  mccl::testing::RdmaEnds ends_;
  std::unique_ptr<RdmaLink> a_, b_;
};

}  // namespace mccl::transport::rdma
