#include "cluster/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/value_text.h"
#include "cluster/table.h"

namespace mccl::cluster {
namespace {

constexpr double kHostWidth = 132;
constexpr double kHostHeight = 46;
constexpr double kMargin = 24;
constexpr std::size_t kMostLetters = 18;  ///< Bytes of a host's name.

struct Point {
  double x = 0;
  double y = 0;
};

/// In double quotes of DOT.
std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c;
  }
  return fmt::format("\"{}\"", safe);
}

/// To what a box holds, cut between characters.
std::string shortened(const std::string& name) {
  std::size_t end = std::min(name.size(), kMostLetters);
  while (end < name.size() && end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80)
    --end;
  return name.substr(0, end);
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += c;
    }
  }
  return safe;
}

const char* colour_of(Medium medium) {
  switch (medium) {
    case Medium::thunderbolt:
      return "#b4540a";
    case Medium::wireless:
      return "#9aa0a6";
    default:
      return "#1f5fa8";
  }
}

Point between(const Point& a, const Point& b, double part) {
  return {a.x + (b.x - a.x) * part, a.y + (b.y - a.y) * part};
}

/// Where the way from the middle of a host's box to `to` leaves the box.
Point edge_of_box(const Point& middle, const Point& to) {
  const double dx = to.x - middle.x;
  const double dy = to.y - middle.y;
  const double part = std::min(dx == 0 ? 1 : kHostWidth / 2 / std::abs(dx),
                               dy == 0 ? 1 : kHostHeight / 2 / std::abs(dy));
  return between(middle, to, std::min(1.0, part));
}

class Svg {
 public:
  Svg(std::span<const HostFacts> hosts, std::span<const int> order) : hosts_(hosts) {
    const auto count = static_cast<double>(hosts.size());
    radius_ = std::max(210.0, count * (kHostWidth + 40) / (2 * std::numbers::pi));
    middle_ = {radius_ + kHostWidth / 2 + kMargin, radius_ + kHostHeight / 2 + kMargin};
    if (hosts.size() < 3) middle_.y = kHostHeight / 2 + kMargin + 40;
    places_.resize(hosts.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double start = hosts.size() == 2 ? -std::numbers::pi : -std::numbers::pi / 2;
      const double angle = start + 2 * std::numbers::pi * static_cast<double>(i) / count;
      places_[static_cast<std::size_t>(order[i])] = {middle_.x + radius_ * std::cos(angle),
                                                     middle_.y + radius_ * std::sin(angle)};
    }
  }

  /// The `nth` of `count` cables of a pair: they lie side by side.
  void draw(const Link& link, int nth, int count) {
    const Point a = place(link.a.host);
    const Point b = place(link.b.host);
    const double length = std::max(1.0, std::hypot(b.x - a.x, b.y - a.y));
    const double aside = 34 * (nth - (count - 1) / 2.0);
    const Point shift{-(b.y - a.y) / length * aside, (b.x - a.x) / length * aside};
    const Point bend{(a.x + b.x) / 2 + 2 * shift.x, (a.y + b.y) / 2 + 2 * shift.y};
    const Point from = edge_of_box(a, bend);
    const Point to = edge_of_box(b, bend);
    lines_ += fmt::format(
        "  <path d=\"M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"2.5\"/>\n",
        from.x, from.y, bend.x, bend.y, to.x, to.y, colour_of(link.medium));
    const Point half{(from.x + 2 * bend.x + to.x) / 4, (from.y + 2 * bend.y + to.y) / 4};
    if (link.mbit_per_s > 0) label(half, rate_text(link.mbit_per_s), true);
    label(between(from, half, 0.42), link.a.interface, false);
    label(between(to, half, 0.42), link.b.interface, false);
  }

  void draw(const Wire& wire, int nth, int count) {
    const Point hub{middle_.x, middle_.y + (nth - (count - 1) / 2.0) * 60};
    for (const End& end : wire.ends) {
      const Point from = edge_of_box(place(end.host), hub);
      lines_ += fmt::format(
          "  <line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-width=\"2.5\"/>\n",
          from.x, from.y, hub.x, hub.y, colour_of(wire.medium));
      label(between(from, hub, 0.3), end.interface, false);
    }
    hubs_ += fmt::format(
        "  <ellipse cx=\"{0:.1f}\" cy=\"{1:.1f}\" rx=\"62\" ry=\"22\" fill=\"#eef3f8\" "
        "stroke=\"#1f5fa8\"/>\n  <text x=\"{0:.1f}\" y=\"{2:.1f}\">network{3}</text>\n",
        hub.x, hub.y, hub.y + 4,
        wire.mbit_per_s == 0 ? "" : " " + escaped(rate_text(wire.mbit_per_s)));
  }

  std::string text() const {
    std::string boxes;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      const Point& at = places_[host];
      boxes += fmt::format(
          "  <rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#ffffff\" "
          "stroke=\"#333333\" stroke-width=\"1.5\"/>\n"
          "  <text x=\"{:.1f}\" y=\"{:.1f}\" font-weight=\"bold\">{}</text>\n",
          at.x - kHostWidth / 2, at.y - kHostHeight / 2, kHostWidth, kHostHeight, at.x, at.y + 4.5,
          escaped(shortened(hosts_[host].host)));
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"13\" text-anchor=\"middle\">\n"
        "  <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}{3}{4}{5}</svg>\n",
        2 * middle_.x, 2 * middle_.y, lines_, hubs_, boxes, labels_);
  }

 private:
  const Point& place(int host) const { return places_[static_cast<std::size_t>(host)]; }

  void label(const Point& at, const std::string& text, bool strong) {
    const double width = 7.2 * static_cast<double>(text.size()) + 6;
    labels_ += fmt::format(
        "  <rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"16\" fill=\"#ffffff\" "
        "fill-opacity=\"0.9\"/>\n  <text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" "
        "fill=\"{}\">{}</text>\n",
        at.x - width / 2, at.y - 8, width, at.x, at.y + 4, strong ? 12 : 11,
        strong ? "#111111" : "#555555", escaped(text));
  }

  std::span<const HostFacts> hosts_;
  double radius_ = 0;
  Point middle_;
  std::vector<Point> places_;
  std::string lines_;
  std::string hubs_;
  std::string labels_;
};

}  // namespace

std::string dot_of(const Joined& joined, std::span<const HostFacts> hosts) {
  std::string text = "graph cluster {\n  node [shape=box];\n  overlap=false;\n";
  const auto name = [&](int host) { return quoted(hosts[static_cast<std::size_t>(host)].host); };
  for (std::size_t host = 0; host < hosts.size(); ++host)
    text += fmt::format("  {};\n", name(static_cast<int>(host)));
  for (const Link& link : joined.links) {
    text += fmt::format("  {} -- {} [label={}, taillabel={}, headlabel={}];\n", name(link.a.host),
                        name(link.b.host), quoted(rate_text(link.mbit_per_s)),
                        quoted(link.a.interface), quoted(link.b.interface));
  }
  for (std::size_t i = 0; i < joined.networks.size(); ++i) {
    const Wire& wire = joined.networks[i];
    const std::string hub = quoted(fmt::format("network {}", i + 1));
    text += fmt::format("  {} [shape=ellipse];\n", hub);
    for (const End& end : wire.ends)
      text += fmt::format("  {} -- {} [label={}, taillabel={}];\n", name(end.host), hub,
                          quoted(rate_text(wire.mbit_per_s)), quoted(end.interface));
  }
  return text + "}\n";
}

std::string svg_of(const Joined& joined, std::span<const HostFacts> hosts,
                   std::span<const int> order) {
  Svg svg(hosts, order);
  std::map<Pair, int> counts;
  std::map<Pair, int> drawn;
  for (const Link& link : joined.links) ++counts[{link.a.host, link.b.host}];
  for (const Link& link : joined.links) {
    const Pair pair{link.a.host, link.b.host};
    svg.draw(link, drawn[pair]++, counts[pair]);
  }
  for (std::size_t i = 0; i < joined.networks.size(); ++i)
    svg.draw(joined.networks[i], static_cast<int>(i), static_cast<int>(joined.networks.size()));
  return svg.text();
}

}  // namespace mccl::cluster
