#include "cluster/picture_layout.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mccl::cluster {
namespace {

/// A ring of more looks better in rows.
constexpr std::size_t kMostAround = 12;
constexpr double kLeastRadius = 210;
constexpr double kLeastGap = 40;  ///< Between two boxes on a circle.
constexpr double kRowGap = 96;    ///< Three lines of writing below each other.
/// Between what is written along a cable that lies flat.
constexpr double kBlank = 12;
constexpr double kPageShape = 1.6;  ///< Width over height.

/// Of two hosts side by side.
double column_gap(const Writing& writing) {
  return 2 * writing.end_width + writing.middle_width + 4 * kBlank;
}

bool is_only_a_ring(const Joined& joined, std::span<const int> order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = i;
  return joined.networks.empty() && std::ranges::all_of(joined.links, [&](const Link& link) {
           const std::size_t a = place[static_cast<std::size_t>(link.a.host)];
           const std::size_t b = place[static_cast<std::size_t>(link.b.host)];
           const std::size_t apart = a < b ? b - a : a - b;
           return apart == 1 || apart + 1 == order.size();
         });
}

/// Rows that are run through to and fro, and a column before them that leads back: each place is
/// next to the one before it, and the last to the first. In columns and rows; a column is so many
/// times as wide as a row is high.
std::vector<Point> round_trip(std::size_t count, double cell_shape) {
  const auto wanted = std::sqrt(static_cast<double>(count) * cell_shape / kPageShape);
  // An even number of rows, each with a place at least.
  const std::size_t pairs = std::clamp<std::size_t>(std::lround(wanted / 2), 1, count / 4);
  const std::size_t rows = 2 * pairs;
  const std::size_t in_rows = count - rows;
  std::vector<Point> places;
  for (std::size_t row = 0; row < rows; ++row) {
    // What does not go evenly into all makes the first rows longer.
    const std::size_t length = in_rows / rows + (row < in_rows % rows ? 1 : 0);
    for (std::size_t i = 0; i < length; ++i)
      places.push_back(
          {static_cast<double>(row % 2 == 0 ? i + 1 : length - i), static_cast<double>(row)});
  }
  for (std::size_t row = rows; row-- > 0;) places.push_back({0, static_cast<double>(row)});
  return places;
}

Layout in_rows(std::span<const int> order, const Writing& writing, double stretch) {
  const double across = kHostWidth + stretch * column_gap(writing);
  const double down = kHostHeight + stretch * kRowGap;
  Layout layout;
  layout.hosts.resize(order.size());
  const std::vector<Point> places = round_trip(order.size(), across / down);
  for (std::size_t i = 0; i < order.size(); ++i)
    layout.hosts[static_cast<std::size_t>(order[i])] = {places[i].x * across, places[i].y * down};
  return layout;
}

Layout around_a_circle(std::span<const int> order, const Writing& writing, double stretch) {
  const auto count = static_cast<double>(order.size());
  const bool pair = order.size() == 2;
  const double least = pair ? (kHostWidth + column_gap(writing)) / 2 : 0;
  const double around = count * (kHostWidth + kLeastGap) / (2 * std::numbers::pi);
  const double radius = stretch * std::max({kLeastRadius, least, around});
  Layout layout;
  layout.hosts.resize(order.size());
  const double start = pair ? -std::numbers::pi : -std::numbers::pi / 2;
  for (std::size_t i = 0; i < order.size() && order.size() > 1; ++i) {
    const double angle = start + 2 * std::numbers::pi * static_cast<double>(i) / count;
    layout.hosts[static_cast<std::size_t>(order[i])] = {radius * std::cos(angle),
                                                        radius * std::sin(angle)};
  }
  return layout;
}

}  // namespace

Layout lay_out(const Joined& joined, std::span<const int> order, const Writing& writing,
               double stretch) {
  return order.size() > kMostAround && is_only_a_ring(joined, order)
             ? in_rows(order, writing, stretch)
             : around_a_circle(order, writing, stretch);
}

}  // namespace mccl::cluster
