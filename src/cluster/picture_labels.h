// What is written in a picture, at places where nothing else is.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/picture_layout.h"

namespace mccl::cluster {

struct Box {
  Point middle;
  double width = 0;
  double height = 0;

  bool overlaps(const Box& other) const;
};

inline constexpr double kLabelHeight = 16;
/// About what a browser needs for it, in the small letters of labels.
double label_width(const std::string& text);

struct Label {
  Box box;
  std::string text;
  bool strong = false;
};

class Labels {
 public:
  /// Where nothing may be written.
  void keep_free(const Box& box) { taken_.push_back(box); }

  /// At the first of the places, the best first, where it overlaps nothing; else nowhere.
  void write(const std::string& text, bool strong, std::span<const Point> places);

  const std::vector<Label>& all() const { return labels_; }
  /// How many found no place.
  int left_out() const { return left_out_; }

 private:
  std::vector<Box> taken_;
  std::vector<Label> labels_;
  int left_out_ = 0;
};

}  // namespace mccl::cluster
