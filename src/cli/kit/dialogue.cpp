#include "cli/kit/dialogue.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace mccl::cli {
namespace {

constexpr std::size_t kLeastSpace = std::size_t{64} << 10;
constexpr std::size_t kUsualSpace = std::size_t{256} << 10;
constexpr std::size_t kLongestCharacter = 4;
constexpr std::size_t kMostComplaint = 8192;

/// Returns the number of bytes in the UTF-8 character that begins with `c`. Returns 0 if no
/// character begins with it.
std::size_t character_length(unsigned char c) {
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c < 0xe0) return 2;
  if (c >= 0xe0 && c < 0xf0) return 3;
  if (c >= 0xf0 && c < 0xf5) return 4;
  return 0;
}

}  // namespace

std::size_t whole_characters(std::string_view text) {
  const std::size_t most = std::min(text.size(), kLongestCharacter - 1);
  for (std::size_t back = 1; back <= most; ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xc0) == 0x80) continue;
    return character_length(c) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::span<char> Lines::space() {
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() - end_ < kLeastSpace) bytes_.resize(std::max(2 * end_, kUsualSpace));
  return std::span(bytes_).subspan(end_);
}

std::string_view Lines::take(std::size_t bytes) {
  const std::string_view taken = rest().substr(0, bytes);
  begin_ += taken.size();
  searched_ = 0;
  return taken;
}

std::string_view Lines::take_lines() {
  const std::string_view unsearched = rest().substr(searched_);
  const std::size_t last = unsearched.rfind('\n');
  if (last != std::string_view::npos) {
    const std::string_view taken = take(searched_ + last + 1);
    searched_ = rest().size();
    return taken;
  }
  searched_ = rest().size();
  return searched_ < kLongest ? std::string_view() : take_characters();
}

std::string_view Lines::take_characters() { return take(whole_characters(rest())); }

std::string_view Lines::take_rest() { return take(rest().size()); }

void append_with_prefix(std::string& to, std::string_view prefix, std::string_view lines) {
  while (!lines.empty()) {
    const void* end = std::memchr(lines.data(), '\n', lines.size());
    const std::size_t length =
        end == nullptr ? lines.size()
                       : static_cast<std::size_t>(static_cast<const char*>(end) - lines.data()) + 1;
    to += prefix;
    to += lines.substr(0, length);
    lines.remove_prefix(length);
  }
}

void Dialogue::begin(Process process) {
  process_ = std::move(process);
  said_ = {};
  complaint_.clear();
  unsent_.clear();
}

void Dialogue::watch(Watch& watch) {
  if (!output_ended()) watch.on(process_.output.get(), POLLIN, [this] { read(); });
  if (process_.error) watch.on(process_.error.get(), POLLIN, [this] { read_error(); });
  if (has_unsent() && process_.input) watch.on(process_.input.get(), POLLOUT, [this] { send(); });
}

void Dialogue::tell(std::string_view text) {
  unsent_ += text;
  send();
}

void Dialogue::tell_no_more() {
  no_more_ = true;
  send();
}

void Dialogue::send() {
  if (!process_.input) return;
  if (!unsent_.empty()) {
    const ssize_t n = ::write(process_.input.get(), unsent_.data(), unsent_.size());
    if (n > 0) unsent_.erase(0, static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) unsent_.clear();
  }
  if (no_more_ && unsent_.empty()) process_.input.close();
}

bool Dialogue::read() {
  const std::span<char> space = said_.space();
  const ssize_t n = read_some(process_.output.get(), space.data(), space.size());
  if (n < 0) return false;
  said_.filled(static_cast<std::size_t>(n));
  if (n == 0) process_.output.close();
  each_line(n == 0 ? said_.take_rest() : said_.take_lines(), hear_);
  if (n == 0 && end_) end_();
  return n > 0;
}

void Dialogue::read_error() {
  std::array<char, 4096> bytes;
  const ssize_t n = read_some(process_.error.get(), bytes.data(), bytes.size());
  if (n == 0) process_.error.close();
  if (n > 0 && complaint_.size() < kMostComplaint)
    complaint_.append(bytes.data(), static_cast<std::size_t>(n));
}

void Dialogue::read_complaint() {
  for (std::size_t before = 0; process_.error; before = complaint_.size()) {
    read_error();
    if (complaint_.size() == before) break;
  }
}

std::optional<Exit> Dialogue::reap() {
  const std::optional<Exit> exit = process_.id < 0 ? std::nullopt : cli::reap(process_.id);
  if (!exit) return {};
  read_complaint();
  while (read()) {
  }
  process_ = {};
  return exit;
}

void Dialogue::end(int signal) const {
  if (process_.id >= 0) ::kill(process_.id, signal);
}

}  // namespace mccl::cli
