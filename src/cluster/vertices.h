// Sets of the vertices of a graph.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace mccl::cluster {

inline constexpr std::size_t kMostVertices = 256;

/// What std::bitset is, and finds its members one after the other.
class Vertices {
 public:
  bool test(std::size_t v) const { return (words_[v / 64] >> (v % 64) & 1) != 0; }
  void set(std::size_t v, bool value = true) {
    const std::uint64_t bit = std::uint64_t{1} << (v % 64);
    words_[v / 64] = value ? words_[v / 64] | bit : words_[v / 64] & ~bit;
  }
  void reset(std::size_t v) { set(v, false); }
  void clear() { words_ = {}; }

  bool none() const { return words_ == decltype(words_){}; }
  bool any() const { return !none(); }
  std::size_t count() const {
    std::size_t count = 0;
    for (const std::uint64_t word : words_) count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }

  /// The lowest; kMostVertices when there is none.
  std::size_t first() const { return from(0); }
  /// The lowest above `v`.
  std::size_t next(std::size_t v) const { return from(v + 1); }

  Vertices& operator&=(const Vertices& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
  }
  Vertices& operator|=(const Vertices& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  Vertices operator~() const {
    Vertices all;
    for (std::size_t i = 0; i < words_.size(); ++i) all.words_[i] = ~words_[i];
    return all;
  }
  friend Vertices operator&(Vertices a, const Vertices& b) { return a &= b; }

 private:
  std::size_t from(std::size_t v) const {
    for (std::size_t word = v / 64; word < words_.size(); ++word) {
      const std::uint64_t rest =
          word == v / 64 ? words_[word] >> (v % 64) << (v % 64) : words_[word];
      if (rest != 0) return word * 64 + static_cast<std::size_t>(std::countr_zero(rest));
    }
    return kMostVertices;
  }

  std::array<std::uint64_t, kMostVertices / 64> words_ = {};
};

}  // namespace mccl::cluster
