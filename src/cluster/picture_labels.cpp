#include "cluster/picture_labels.h"

#include <algorithm>
#include <cmath>

namespace mccl::cluster {
namespace {

constexpr double kLetterWidth = 7.2;
constexpr double kPadding = 6;
constexpr double kApart = 1;  ///< At least, between two of them.

}  // namespace

bool Box::overlaps(const Box& other) const {
  return std::abs(middle.x - other.middle.x) < (width + other.width) / 2 + kApart &&
         std::abs(middle.y - other.middle.y) < (height + other.height) / 2 + kApart;
}

double label_width(const std::string& text) {
  return kLetterWidth * static_cast<double>(text.size()) + kPadding;
}

void Labels::write(const std::string& text, bool strong, std::span<const Point> places) {
  for (const Point& place : places) {
    const Box box{place, label_width(text), kLabelHeight};
    if (std::ranges::any_of(taken_, [&](const Box& other) { return box.overlaps(other); }))
      continue;
    taken_.push_back(box);
    labels_.push_back({box, text, strong});
    return;
  }
  ++left_out_;
}

}  // namespace mccl::cluster
