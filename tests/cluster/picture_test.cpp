// Pictures: what is written lies on nothing else, and nothing is missing unless that is told.
#include "cluster/picture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <regex>
#include <string>
#include <vector>

namespace mccl::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Rect {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;

  bool overlaps(const Rect& other) const {
    return left < other.left + other.width && other.left < left + width &&
           top < other.top + other.height && other.top < top + height;
  }
  bool holds(const Rect& other) const {
    return left <= other.left && other.left + other.width <= left + width && top <= other.top &&
           other.top + other.height <= top + height;
  }
};

std::string text_of(const Rect& rect) {
  return fmt::format("{} {} {}x{}", rect.left, rect.top, rect.width, rect.height);
}

struct Drawing {
  std::vector<Rect> hosts;
  std::vector<Rect> labels;
  Rect page;
};

Drawing read(const std::string& svg) {
  const std::regex rect(
      R"re(<rect class="(host|label)" x="([-0-9.]+)" y="([-0-9.]+)" width="([0-9.]+)" height="([0-9.]+)")re");
  const std::regex page(R"re(viewBox="([-0-9.]+) ([-0-9.]+) ([0-9.]+) ([0-9.]+)")re");
  const auto rect_of = [](const std::smatch& match, std::size_t first) {
    return Rect{std::stod(match[first]), std::stod(match[first + 1]), std::stod(match[first + 2]),
                std::stod(match[first + 3])};
  };
  Drawing drawing;
  for (std::sregex_iterator at(svg.begin(), svg.end(), rect), end; at != end; ++at)
    ((*at)[1] == "host" ? drawing.hosts : drawing.labels).push_back(rect_of(*at, 2));
  std::smatch match;
  if (std::regex_search(svg, match, page)) drawing.page = rect_of(match, 1);
  return drawing;
}

std::vector<HostFacts> hosts_of(int count) {
  std::vector<HostFacts> hosts(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    hosts[static_cast<std::size_t>(i)].host = fmt::format("studio-{}.local", i);
  return hosts;
}

std::vector<int> in_order(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Link cable(int a, int b, int number) {
  Link link;
  link.a = {std::min(a, b), fmt::format("en{}", 2 + number)};
  link.b = {std::max(a, b), "thunderbolt0"};
  link.mbit_per_s = 80'000;
  return link;
}

/// So many cables between each host and the next in this order.
Joined ring_of(const std::vector<int>& order, int cables) {
  Joined joined;
  for (std::size_t i = 0; i < order.size(); ++i)
    for (int k = 0; k < cables; ++k)
      joined.links.push_back(cable(order[i], order[(i + 1) % order.size()], k));
  return joined;
}

Joined mesh_of(int size) {
  Joined joined;
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b) joined.links.push_back(cable(a, b, b));
  return joined;
}

/// Whatever it shows: hosts apart, labels on nothing, all of it on the page.
Drawing expect_readable(const std::string& svg, std::size_t hosts) {
  Drawing drawing = read(svg);
  EXPECT_EQ(drawing.hosts.size(), hosts);
  std::vector<Rect> all = drawing.hosts;
  all.insert(all.end(), drawing.labels.begin(), drawing.labels.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(drawing.page.holds(all[i])) << text_of(all[i]);
    for (std::size_t k = i + 1; k < all.size(); ++k)
      EXPECT_FALSE(all[i].overlaps(all[k])) << text_of(all[i]) << " and " << text_of(all[k]);
  }
  return drawing;
}

/// And every cable has its speed and both its interfaces.
void expect_whole(const Joined& joined, const std::vector<int>& order) {
  const std::string svg = svg_of(joined, hosts_of(static_cast<int>(order.size())), order);
  const Drawing drawing = expect_readable(svg, order.size());
  std::size_t labels = 3 * joined.links.size();
  for (const Wire& wire : joined.networks) labels += wire.ends.size();
  EXPECT_EQ(drawing.labels.size(), labels);
  EXPECT_THAT(svg, Not(HasSubstr("mccl config lists")));
}

TEST(Pictures, OfRingsAreReadable) {
  std::mt19937 random(1);
  for (const int size : {2, 3, 4, 5, 8, 12, 13, 14, 15, 31, 64, 128}) {
    for (const int cables : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} hosts, {} cables of a pair", size, cables));
      std::vector<int> order = in_order(size);
      std::shuffle(order.begin(), order.end(), random);
      Joined joined = ring_of(order, cables);
      if (size == 2) joined.links.resize(static_cast<std::size_t>(cables));
      expect_whole(joined, order);
    }
  }
}

/// A page, not a ribbon or a wheel of several metres.
TEST(Pictures, OfALargeRingFitAPage) {
  const std::vector<int> order = in_order(64);
  const Rect page = read(svg_of(ring_of(order, 1), hosts_of(64), order)).page;
  EXPECT_LT(page.width, 3000) << text_of(page);
  EXPECT_LT(page.height, 1800) << text_of(page);
}

TEST(Pictures, OfLinesStarsAndMeshesAreReadable) {
  Joined line = ring_of(in_order(40), 1);
  line.links.pop_back();
  expect_whole(line, in_order(40));
  Joined star;
  for (int i = 1; i < 17; ++i) star.links.push_back(cable(0, i, i));
  expect_whole(star, in_order(17));
  for (const int size : {3, 4, 5, 6, 8}) {
    SCOPED_TRACE(fmt::format("a mesh of {}", size));
    expect_whole(mesh_of(size), in_order(size));
  }
}

TEST(Pictures, OfNetworksAreReadable) {
  for (const int size : {2, 3, 8, 64}) {
    for (const int networks : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} hosts in {} networks", size, networks));
      Joined joined = size > 2 ? ring_of(in_order(size), 1) : ring_of({0}, 0);
      joined.networks.resize(static_cast<std::size_t>(networks));
      for (int n = 0; n < networks; ++n) {
        Wire& wire = joined.networks[static_cast<std::size_t>(n)];
        wire.mbit_per_s = 10'000;
        for (int host = 0; host < size; ++host)
          wire.ends.push_back({host, fmt::format("eth{}", n)});
      }
      expect_whole(joined, in_order(size));
    }
  }
}

TEST(Pictures, OfMoreThanCanBeReadSayWhatTheyLeaveOut) {
  std::mt19937 random(2);
  Joined joined;
  for (int i = 0; i < 200; ++i) {
    const int a = static_cast<int>(random() % 24);
    const int b = static_cast<int>(random() % 24);
    if (a != b) joined.links.push_back(cable(a, b, i));
  }
  for (const Joined& each : {joined, mesh_of(40)}) {
    const std::string svg = svg_of(each, hosts_of(40), in_order(40));
    const Drawing drawing = expect_readable(svg, 40);
    if (drawing.labels.size() < 3 * each.links.size()) {
      EXPECT_THAT(svg, HasSubstr("mccl config lists"));
    }
  }
}

TEST(Pictures, QuoteWhatHostsAreCalled) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].host = "a\"<&\\";
  hosts[1].host = "b";
  Joined joined;
  joined.links = {cable(0, 1, 0)};
  EXPECT_THAT(dot_of(joined, hosts), HasSubstr("\"a\\\"<&\\\\\" -- \"b\""));
  EXPECT_THAT(svg_of(joined, hosts, std::vector{0, 1}), HasSubstr(">a&quot;&lt;&amp;"));
}

TEST(Pictures, ShortenLongNamesInTheirMiddle) {
  std::vector<HostFacts> hosts = hosts_of(2);
  const auto svg = [&](const std::string& name) {
    hosts[0].host = name;
    return svg_of({}, hosts, std::vector{0, 1});
  };
  EXPECT_THAT(svg("abcdefghijklmnopq\xc3\xa9"), HasSubstr(">abcdefghijklmnopq\xc3\xa9</text>"));
  // Names of one lab differ in their last letters.
  EXPECT_THAT(svg("machine-of-the-laboratory-17"), HasSubstr(">machine-o\xe2\x80\xa6"
                                                             "atory-17</text>"));
  EXPECT_THAT(svg("abcdefgh\xc3\xa9jklmnopqrstu"),
              HasSubstr(">abcdefgh\xc3\xa9\xe2\x80\xa6nopqrstu</text>"));
}

}  // namespace
}  // namespace mccl::cluster
