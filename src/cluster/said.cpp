#include "cluster/said.h"

#include <algorithm>
#include <utility>

namespace mccl::cluster {
namespace {

/// Of the character of UTF-8 that `text` begins with; 0 where it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xF0 ? 4 : (first >= 0xE0 ? 3 : 2);
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80) return 0;
  return bytes;
}

void append_clean(std::string& to, std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) {
      to += '?';
    } else {
      to.append(text.substr(0, bytes));
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
}

}  // namespace

std::string_view Said::hear(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  bytes_ += line.size() + 1;
  if (line.starts_with(token_) && line.substr(token_.size()).starts_with(' ')) {
    const std::string_view rest = line.substr(token_.size() + 1);
    const std::vector<std::string_view> words = words_of(rest);
    if (words.size() == 2 && words[0] == "begin") {
      open_ = words[1];
      sections_[open_].clear();
    } else if (words.size() == 2 && words[0] == "end") {
      open_.clear();
    }
    return rest;
  }
  if (!open_.empty() && !too_much()) {
    append_clean(sections_[open_], line);
    sections_[open_] += '\n';
  }
  return {};
}

const std::string* Said::section(const std::string& name) const {
  const auto found = sections_.find(name);
  return found == sections_.end() ? nullptr : &found->second;
}

Said Said::of(std::map<std::string, std::string> sections) {
  Said said("");
  said.sections_ = std::move(sections);
  return said;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::string_view> words;
  for (std::size_t begin = line.find_first_not_of(kBlanks); begin < line.size();) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace mccl::cluster
