// A call whose host's side is over, and of which a device has yet to tell that its own is.
#pragma once

#include "backend/staged/patience.h"

namespace mccl::staged {

class Returning {
 public:
  virtual ~Returning() = default;

  /// Ends the call if the device's side is over; whether it has ended.
  virtual bool try_finish() = 0;
  /// The same, where nobody else looks any more.
  void finish_alone() {
    for (const Patience patience; !try_finish();) patience.pause();
  }
};

}  // namespace mccl::staged
