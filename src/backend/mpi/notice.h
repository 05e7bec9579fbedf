// What ranks tell each other beside their calls: that a group has failed, or that a rank has left
// it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/mpi/library.h"

namespace mccl::mpi {

/// As it is sent. All ranks run one build on one kind of machine, as MPI's own handles require.
struct Notice {
  enum class What : std::uint32_t {
    failed,    ///< The group has failed; `kind` and `text` say how.
    left,      ///< The sender makes no further call in the group.
    departed,  ///< The sender's process ends without MPI_Finalize.
  };
  static constexpr std::size_t kLongestText = 480;

  What what = What::failed;
  std::uint32_t kind = 0;
  std::int32_t sender = 0;
  std::uint32_t length = 0;
  std::uint64_t group = 0;
  std::uint64_t made = 0;  ///< Collectives of the group that the sender takes part in to the end.
  std::array<char, kLongestText> text = {};

  void set_text(std::string_view said) {
    length = static_cast<std::uint32_t>(std::min(said.size(), text.size()));
    std::memcpy(text.data(), said.data(), length);
  }
  std::string said() const { return {text.data(), std::min<std::size_t>(length, text.size())}; }
};
static_assert(std::is_trivially_copyable_v<Notice>);

/// Sends and receives them on a communicator of their own. Used under the engine's lock.
class Notices {
 public:
  Notices(Library& library, Handle comm) : library_(library), comm_(comm) {}

  /// Posts the receive for what others say.
  void open();
  /// Takes the receive back, and waits for what is being sent no longer than MPI takes by itself.
  void close();
  void send(const Notice& notice, int peer);
  /// What has come, one at a time; false when there is nothing more.
  bool receive(Notice& notice);
  /// Lets go of what has been sent.
  void settle();
  bool sending() const { return !outgoing_.empty(); }

 private:
  struct Outgoing {
    Notice notice;
    Handle request;
  };

  Library& library_;
  const Handle comm_;
  std::list<Outgoing> outgoing_;
  Notice incoming_;
  Handle receiving_ = 0;
  bool open_ = false;
};

}  // namespace mccl::mpi
