// Point-to-point messages with a peer that breaks the protocol. A script holds the peer's writes
// and this rank's calls. No byte may land outside posted memory. Every call must end, or be
// returned as pending when all calls are dropped.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/messages/messages.h"
#include "input.h"
#include "kernels/checksum.h"
#include "mccl/error.h"
#include "script.h"
#include "support/members.h"
#include "support/memory_link.h"

using namespace mccl::engine;
using mccl::fuzz::Input;
using mccl::fuzz::require;
using mccl::fuzz::Script;
using mccl::transport::Purpose;

namespace {

/// Small, so that small messages are split into pieces too.
constexpr std::size_t kPayloadLimit = 4096;
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

struct Posted {
  std::shared_ptr<Operation> operation;
  std::vector<std::byte> memory;
  bool ended = false;

  bool whole() const {
    return std::all_of(memory.end() - kGuardBytes, memory.end(),
                       [](std::byte each) { return each == kGuard; });
  }
};

class Scene {
 public:
  Scene(bool crc, std::size_t rails)
      : group_(mccl::testing::membership(0, 2)),
        channels_(
            group_, kPayloadLimit, crc, [](Purpose, mccl::GroupRank) {}, [] {}),
        messages_(channels_, kPayloadLimit),
        crc_(crc) {
    for (std::size_t rail = 0; rail < rails; ++rail) {
      auto [near, far] = mccl::testing::MemoryLink::make();
      channels_.attach(Purpose::point_to_point, mccl::GroupRank(1), static_cast<std::uint8_t>(rail),
                       static_cast<std::uint8_t>(rails), std::move(near), bytes_);
      ends_.push_back(std::move(far));
    }
  }

  void run(Input& input) {
    try {
      while (!input.empty()) {
        step(input);
        advance();
        finish();
      }
      const auto ended = [](const Posted& posted) { return posted.ended; };
      require(!messages_.idle() || std::ranges::all_of(posted_, ended), "idle, with calls left");
    } catch (const mccl::CorruptionError&) {
    } catch (const mccl::MismatchError&) {
    } catch (const mccl::PeerError&) {
    }
    finish();
    end(messages_.drop_all());
    for (const Posted& posted : posted_) {
      require(posted.ended, "a call was lost");
      require(posted.whole(), "a byte lies outside of its memory");
    }
  }

 private:
  /// Advances until nothing moves. A peer that is gone ends only the calls that wait for it.
  void advance() {
    for (bool moved = true; moved;) {
      try {
        moved = messages_.advance();
      } catch (const MemberGone& gone) {
        const auto ended = messages_.give_up(gone.member(), gone.whole());
        require(ended.has_value(), "no link borrows memory");
        end(*ended);
      }
    }
  }

  void step(Input& input) {
    const auto kind = static_cast<Script>(input.byte() % mccl::fuzz::kScriptKinds);
    auto& far = ends_[input.byte() % ends_.size()];
    switch (kind) {
      case Script::bytes:
        if (far) far->write(input.take(input.byte()));
        break;
      case Script::frame:
        if (far) write_frame(*far, input);
        break;
      case Script::receive:
        receive(input);
        break;
      case Script::send:
        send(input);
        break;
      case Script::cancel:
        cancel();
        break;
      case Script::drain:
        while (far && !far->peek(1).empty()) far->consume(far->peek(1).size());
        break;
      case Script::leave:
        far.reset();
        break;
      case Script::ask:
        messages_.take_in(mccl::GroupRank(1), input.byte());
        break;
    }
  }

  void write_frame(mccl::testing::MemoryLink& far, Input& input) {
    const mccl::fuzz::ScriptFrame script = input.number<mccl::fuzz::ScriptFrame>();
    Frame frame;
    frame.kind = static_cast<FrameKind>(script.kind % kFrameKindCount);
    frame.call.collective = mccl::Collective::send;
    frame.call.dtype = static_cast<mccl::DType>(script.dtype % mccl::kDTypeCount);
    frame.call.tag = script.tag % 4;
    frame.call.sequence = script.sequence;
    frame.call.count = script.count;
    frame.message = script.message;
    frame.payload_bytes = script.payload_bytes;
    const std::vector<std::byte> payload(script.sent_bytes);
    frame.has_crc = crc_;
    if (crc_) frame.crc = mccl::kernels::crc32c(0, payload);
    far.write(encode(frame), payload);
  }

  Operation& post(mccl::Collective collective, Input& input) {
    const mccl::fuzz::ScriptCall script = input.number<mccl::fuzz::ScriptCall>();
    Task task;
    task.call.collective = collective;
    task.call.dtype = static_cast<mccl::DType>(script.dtype % mccl::kDTypeCount);
    task.call.peer = script.from_any != 0 && collective == mccl::Collective::recv ? -1 : 1;
    task.call.tag = script.tag % 4;
    task.call.count = script.count;
    const std::size_t bytes = task.call.count * mccl::size_of(task.call.dtype);
    Posted posted{nullptr, std::vector<std::byte>(bytes + kGuardBytes, kGuard)};
    task.out = {posted.memory.data(), task.call.count, task.call.dtype};
    task.in = task.out;
    posted.operation = std::make_shared<Operation>(std::move(task));
    posted_.push_back(std::move(posted));
    return *posted_.back().operation;
  }

  void receive(Input& input) {
    Operation& operation = post(mccl::Collective::recv, input);
    try {
      messages_.post_receive(posted_.back().operation);
    } catch (const mccl::MismatchError&) {
      mccl::engine::OperationList refused;
      refused.push_back(std::static_pointer_cast<Operation>(operation.shared_from_this()));
      end(refused);  // the caller is notified
      throw;
    }
  }

  void send(Input& input) {
    post(mccl::Collective::send, input);
    messages_.post_send(posted_.back().operation);
  }

  /// Cancels the oldest open receive.
  void cancel() {
    for (Posted& posted : posted_) {
      if (posted.ended || posted.operation->call.collective != mccl::Collective::recv) continue;
      posted.ended = messages_.cancel(*posted.operation) != nullptr;
      return;
    }
  }

  /// Takes the calls that completed, even in a pass that threw.
  void finish() {
    const OperationList finished = messages_.take_finished();
    for (const Operation& operation : finished) {
      require(operation.traffic.bytes_received >= operation.out.bytes() ||
                  operation.call.collective == mccl::Collective::send,
              "a receive has ended before its bytes came");
    }
    end(finished);
  }

  void end(const OperationList& operations) {
    for (const Operation& operation : operations) {
      const auto found = std::ranges::find_if(
          posted_, [&](const Posted& posted) { return posted.operation.get() == &operation; });
      require(found != posted_.end(), "what nobody asked for has ended");
      found->ended = true;
    }
  }

  const Membership group_;
  mccl::engine::LinkBytes bytes_;
  Channels channels_;
  std::vector<std::unique_ptr<mccl::testing::MemoryLink>> ends_;  // peer's ends; null once it left
  std::vector<Posted> posted_;
  Messages messages_;
  const bool crc_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const bool crc = input.byte() % 2 != 0;
  const std::size_t rails = 1 + input.byte() % 2;
  Scene(crc, rails).run(input);
  return 0;
}
