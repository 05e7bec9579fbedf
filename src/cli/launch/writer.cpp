#include "cli/launch/writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/thread.h"

namespace mccl::cli::launch {
namespace {

constexpr std::size_t kMostWaiting = std::size_t{4} << 20;

}  // namespace

Writer::Writer() {
  for (const int end : {room_.reader.get(), room_.writer.get()}) ::fcntl(end, F_SETFL, O_NONBLOCK);
  thread_ = start_thread("mccl writer", [this] { run(); });
}

Writer::~Writer() { finish(); }

void Writer::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Writer::write(int descriptor, std::string text) {
  if (text.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (lost_output_) return;
    waiting_bytes_ += text.size();
    waiting_.push_back({descriptor, std::move(text)});
  }
  changed_.notify_one();
}

bool Writer::full() const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_ >= kMostWaiting;
}

std::optional<Writer::LostOutput> Writer::lost_output() const {
  const std::lock_guard lock(mutex_);
  return lost_output_;
}

void Writer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::vector<Piece> pieces = std::exchange(waiting_, {});
    for (const Piece& piece : pieces) {
      if (!lost_output_) {
        lock.unlock();
        const int error = write_all(piece);
        lock.lock();
        if (error != 0) lost_output_ = LostOutput{piece.descriptor, error};
      }
      waiting_bytes_ -= piece.text.size();
    }
    [[maybe_unused]] const ssize_t n = ::write(room_.writer.get(), "", 1);
  }
}

int Writer::write_all(const Piece& piece) {
  std::string_view left = piece.text;
  while (!left.empty()) {
    const ssize_t n = ::write(piece.descriptor, left.data(), left.size());
    if (n > 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd entry = {piece.descriptor, POLLOUT, 0};
      ::poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace mccl::cli::launch
