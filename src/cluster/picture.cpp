#include "cluster/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "base/value_text.h"
#include "cluster/picture_labels.h"
#include "cluster/picture_layout.h"
#include "cluster/table.h"

namespace mccl::cluster {
namespace {

constexpr double kMargin = 24;
constexpr double kHubWidth = 148;
constexpr double kHubHeight = 44;
constexpr double kBetweenHubs = 60;
/// A name of more letters loses some of its middle; one of more than fit as they are is squeezed.
constexpr std::size_t kMostLetters = 18;
constexpr std::size_t kMostWideLetters = 14;
/// Of more cables nobody could read what is written at them.
constexpr std::size_t kMostLabelled = 600;
constexpr std::array kStretches = {1.0, 1.25, 1.6, 2.0, 2.5};

/// In double quotes of DOT.
std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c;
  }
  return fmt::format("\"{}\"", safe);
}

/// Where the characters of a text begin.
std::vector<std::size_t> characters_of(const std::string& text) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80) begins.push_back(i);
  return begins;
}

/// To what a box holds; names of one lab often differ in their last letters only.
std::string shortened(const std::string& name) {
  constexpr std::size_t kLast = 8;
  const std::vector<std::size_t> begins = characters_of(name);
  if (begins.size() <= kMostLetters) return name;
  return name.substr(0, begins[kMostLetters - kLast - 1]) + "\u2026" +
         name.substr(begins[begins.size() - kLast]);
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

/// A line from one box to another, bent towards `bend`.
struct Curve {
  Point from;
  Point bend;
  Point to;

  Point at(double part) const {
    return between(between(from, bend, part), between(bend, to, part), part);
  }
};

std::vector<Point> places_on(const Curve& curve, std::initializer_list<double> parts) {
  std::vector<Point> places;
  for (const double part : parts) places.push_back(curve.at(part));
  return places;
}

/// What all that is drawn fits into.
class Bounds {
 public:
  void add(const Box& box) {
    left_ = std::min(left_, box.middle.x - box.width / 2);
    right_ = std::max(right_, box.middle.x + box.width / 2);
    top_ = std::min(top_, box.middle.y - box.height / 2);
    bottom_ = std::max(bottom_, box.middle.y + box.height / 2);
  }
  double left() const { return left_ - kMargin; }
  double top() const { return top_ - kMargin; }
  double width() const { return right_ - left_ + 2 * kMargin; }
  double height() const { return bottom_ - top_ + 2 * kMargin; }
  Point below() const { return {(left_ + right_) / 2, bottom_ + kMargin}; }

 private:
  double left_ = 0;
  double right_ = 0;
  double top_ = 0;
  double bottom_ = 0;
};

class Svg {
 public:
  Svg(std::span<const HostFacts> hosts, Layout layout, const Joined& joined)
      : hosts_(hosts),
        layout_(std::move(layout)),
        labelled_(joined.links.size() <= kMostLabelled),
        has_networks_(!joined.networks.empty()) {
    for (const Point& host : layout_.hosts) keep_free({host, kHostWidth, kHostHeight});
    for (std::size_t i = 0; i < joined.networks.size(); ++i)
      keep_free({hub(i, joined.networks.size()), kHubWidth, kHubHeight});
  }

  /// The `nth` of `count` cables of a pair: they lie side by side.
  void draw(const Link& link, int nth, int count) {
    const Curve curve = curve_of(link, nth, count);
    lines_ += fmt::format(
        "  <path d=\"M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"2.5\"/>\n",
        curve.from.x, curve.from.y, curve.bend.x, curve.bend.y, curve.to.x, curve.to.y,
        colour_of(link.medium));
    bounds_.add({curve.at(0.5), 0, 0});
    if (!labelled_) return;
    write(link.a.interface, false, places_on(curve, {.2, .16, .12, .25, .3, .35, .4}));
    write(link.b.interface, false, places_on(curve, {.8, .84, .88, .75, .7, .65, .6}));
    if (link.mbit_per_s > 0)
      write(rate_text(link.mbit_per_s), true,
            places_on(curve, {.5, .46, .54, .42, .58, .37, .63, .32, .68}));
  }

  void draw(const Wire& wire, std::size_t nth, std::size_t count) {
    const Point at = hub(nth, count);
    for (const End& end : wire.ends) {
      const Point from = edge_of_box(place(end.host), at);
      lines_ += fmt::format(
          "  <line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-width=\"2.5\"/>\n",
          from.x, from.y, at.x, at.y, colour_of(wire.medium));
      if (labelled_)
        write(end.interface, false,
              places_on({from, between(from, at, 0.5), at}, {.3, .25, .2, .15, .36, .42, .5, .6}));
    }
    hubs_ += fmt::format(
        "  <ellipse cx=\"{0:.1f}\" cy=\"{1:.1f}\" rx=\"{2}\" ry=\"{3}\" fill=\"#eef3f8\" "
        "stroke=\"#1f5fa8\"/>\n  <text x=\"{0:.1f}\" y=\"{4:.1f}\">network{5}</text>\n",
        at.x, at.y, kHubWidth / 2, kHubHeight / 2, at.y + 4,
        wire.mbit_per_s == 0 ? "" : " " + escaped(rate_text(wire.mbit_per_s)));
  }

  bool is_whole() const { return labels_.left_out() == 0; }

  std::string text() {
    const std::string caption = caption_text();
    const Point below = bounds_.below();
    if (!caption.empty()) bounds_.add({below, label_width(caption), kLabelHeight});
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{0:.0f} {1:.0f} {2:.0f} {3:.0f}\" "
        "width=\"{2:.0f}\" height=\"{3:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"13\" text-anchor=\"middle\">\n"
        "  <rect x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"100%\" height=\"100%\" "
        "fill=\"#ffffff\"/>\n",
        std::floor(bounds_.left()), std::floor(bounds_.top()), std::ceil(bounds_.width() + 1),
        std::ceil(bounds_.height() + 1));
    text += lines_ + hubs_ + boxes_text() + labels_text();
    if (!caption.empty())
      text += fmt::format("  <text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#555555\">{}</text>\n", below.x,
                          below.y + 4, caption);
    return text + "</svg>\n";
  }

 private:
  const Point& place(int host) const { return layout_.hosts[static_cast<std::size_t>(host)]; }

  void keep_free(const Box& box) {
    labels_.keep_free(box);
    bounds_.add(box);
  }

  /// Below two hosts, whose cables lie between them; else in the midst of all.
  Point hub(std::size_t nth, std::size_t count) const {
    const auto number = static_cast<double>(nth);
    if (hosts_.size() < 3)
      return {layout_.middle.x, layout_.middle.y + 2 * kBetweenHubs * (number + 1)};
    const double first = (1 - static_cast<double>(count)) / 2;
    return {layout_.middle.x, layout_.middle.y + (first + number) * kBetweenHubs};
  }

  Curve curve_of(const Link& link, int nth, int count) const {
    const Point& a = place(link.a.host);
    const Point& b = place(link.b.host);
    const double length = std::max(1.0, std::hypot(b.x - a.x, b.y - a.y));
    const Point along{(b.x - a.x) / length, (b.y - a.y) / length};
    // What is written at cables that lie beside each other is wide, and not high.
    const double apart = std::max(34.0, std::abs(along.y) * 96);
    double aside = apart * (nth - (count - 1) / 2.0);
    // Past the hubs, and the lines that lead to them.
    const Point half = between(a, b, 0.5);
    const bool through = std::hypot(half.x - layout_.middle.x, half.y - layout_.middle.y) < 1;
    if (has_networks_ && hosts_.size() > 2 && through) aside += 90;
    const Point bend{half.x - 2 * along.y * aside, half.y + 2 * along.x * aside};
    return {edge_of_box(a, bend), bend, edge_of_box(b, bend)};
  }

  void write(const std::string& text, bool strong, const std::vector<Point>& places) {
    const std::size_t before = labels_.all().size();
    labels_.write(text, strong, places);
    if (labels_.all().size() > before) bounds_.add(labels_.all().back().box);
  }

  std::string caption_text() const {
    if (!labelled_) return "what is written at cables is left out: mccl config lists them";
    if (labels_.left_out() == 0) return {};
    return fmt::format("{} labels found no place: mccl config lists all", labels_.left_out());
  }

  std::string boxes_text() const {
    std::string text;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      const Point& at = layout_.hosts[host];
      const std::string name = shortened(hosts_[host].host);
      const bool wide = characters_of(name).size() > kMostWideLetters;
      text += fmt::format(
          "  <rect class=\"host\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"8\" "
          "fill=\"#ffffff\" stroke=\"#333333\" stroke-width=\"1.5\"/>\n"
          "  <text x=\"{:.1f}\" y=\"{:.1f}\" font-weight=\"bold\"{}>{}</text>\n",
          at.x - kHostWidth / 2, at.y - kHostHeight / 2, kHostWidth, kHostHeight, at.x, at.y + 4.5,
          wide
              ? fmt::format(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", kHostWidth - 16)
              : "",
          escaped(name));
    }
    return text;
  }

  std::string labels_text() const {
    std::string text;
    for (const Label& label : labels_.all()) {
      const Box& box = label.box;
      text += fmt::format(
          "  <rect class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" "
          "fill=\"#ffffff\" fill-opacity=\"0.9\"/>\n  <text x=\"{:.1f}\" y=\"{:.1f}\" "
          "font-size=\"{}\" fill=\"{}\">{}</text>\n",
          box.middle.x - box.width / 2, box.middle.y - box.height / 2, box.width, box.height,
          box.middle.x, box.middle.y + 4, label.strong ? 12 : 11,
          label.strong ? "#111111" : "#555555", escaped(label.text));
    }
    return text;
  }

  std::span<const HostFacts> hosts_;
  const Layout layout_;
  const bool labelled_;
  const bool has_networks_;
  Labels labels_;
  Bounds bounds_;
  std::string lines_;
  std::string hubs_;
};

/// The widest of what is to be written.
Writing writing_of(const Joined& joined) {
  Writing writing;
  for (const Link& link : joined.links) {
    for (const End* end : {&link.a, &link.b})
      writing.end_width = std::max(writing.end_width, label_width(end->interface));
    writing.middle_width = std::max(writing.middle_width, label_width(rate_text(link.mbit_per_s)));
  }
  return writing;
}

Svg drawn(const Joined& joined, std::span<const HostFacts> hosts, Layout layout) {
  Svg svg(hosts, std::move(layout), joined);
  std::map<Pair, int> counts;
  std::map<Pair, int> drawn;
  for (const Link& link : joined.links) ++counts[{link.a.host, link.b.host}];
  for (const Link& link : joined.links) {
    const Pair pair{link.a.host, link.b.host};
    svg.draw(link, drawn[pair]++, counts[pair]);
  }
  for (std::size_t i = 0; i < joined.networks.size(); ++i)
    svg.draw(joined.networks[i], i, joined.networks.size());
  return svg;
}

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
  const Writing writing = writing_of(joined);
  std::string text;
  for (const double stretch : kStretches) {
    Svg svg = drawn(joined, hosts, lay_out(joined, order, writing, stretch));
    text = svg.text();
    if (svg.is_whole()) break;
  }
  return text;
}

}  // namespace mccl::cluster
