#include "backend/mpi/notice.h"

namespace mccl::mpi {
namespace {

constexpr int kTag = 1;
constexpr int kBytes = static_cast<int>(sizeof(Notice));

}  // namespace

void Notices::open() {
  if (open_) return;
  receiving_ = library_.irecv(&incoming_, kBytes, library_.constants().byte,
                              library_.constants().any_source, kTag, comm_);
  open_ = true;
}

void Notices::close() {
  settle();
  if (!open_) return;
  library_.cancel(receiving_);
  while (!library_.test(receiving_, nullptr)) {
  }
  open_ = false;
}

void Notices::send(const Notice& notice, int peer) {
  Outgoing& sent = outgoing_.emplace_back(Outgoing{notice, 0});
  sent.request = library_.isend(&sent.notice, kBytes, library_.constants().byte, peer, kTag, comm_);
  settle();
}

bool Notices::receive(Notice& notice) {
  if (!open_) return false;
  if (!library_.test(receiving_, nullptr)) return false;
  notice = incoming_;
  open_ = false;
  open();
  return true;
}

void Notices::settle() {
  std::erase_if(outgoing_, [this](Outgoing& sent) { return library_.test(sent.request, nullptr); });
}

}  // namespace mccl::mpi
