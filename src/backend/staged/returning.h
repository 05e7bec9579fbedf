// Interface of a call whose host side has ended while its device may still be working.
#pragma once

#include "backend/staged/patience.h"

namespace mccl::staged {

class Returning {
 public:
  virtual ~Returning() = default;

  /// Ends the call if the device has finished. Returns true if the call has ended.
  virtual bool try_finish() = 0;
  /// Polls until the call has ended. Used if no other thread polls it.
  void finish_alone() {
    for (const Patience patience; !try_finish();) patience.pause();
  }
};

}  // namespace mccl::staged
