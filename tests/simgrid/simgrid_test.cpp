/// Completion times of random flows on 50 random platforms: ours and SimGrid's (Casanova, Giersch, Legrand, Quinson and
/// Suter 2014), an independent simulator whose CM02 model is the same max-min sharing once its corrections for TCP are
/// off. Half of the platforms are clusters with their own routes, half are links crossed at random.
///
/// SimGrid knows one engine a process, so all platforms are zones of one world and run at once; they share nothing. Its
/// CM02 weights flows by their routes' latencies, which cannot be turned off: on clusters the latency passes before the
/// flow begins, on random links all routes have the same latency.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <simgrid/s4u.hpp>

#include "clusters/paths.h"
#include "sim/links/flow_network.h"
#include "tests/sim/random_cluster.h"

namespace orrery::sim {
namespace {

namespace sg = simgrid::s4u;
using testing::Draw;
using testing::random_cluster;

struct RandomFlow {
  std::vector<int> links;
  double start = 0, latency = 0;  // s
  double bytes = 0;
};

struct Platform {
  std::vector<double> bandwidths;
  double link_latency = 0;  // s, in SimGrid's links; else flows wait before they begin
  std::vector<RandomFlow> flows;
};

Platform on_cluster(std::uint64_t seed) {
  Draw draw(seed);
  clusters::Cluster cluster = random_cluster(draw);
  while (cluster.size() < 2) cluster = random_cluster(draw);
  clusters::Paths paths(cluster);
  Platform platform;
  platform.bandwidths = paths.bandwidths();
  for (int f = 10 + draw(60); f > 0; --f) {
    const int a = draw(cluster.size()), b = (a + 1 + draw(cluster.size() - 1)) % cluster.size();
    const auto& path = paths.between(a, b);
    platform.flows.push_back(
        {path.links, draw.between(0, 0.05), path.latency.value, std::floor(draw.between(1e6, 1e9))});
  }
  return platform;
}

Platform on_random_links(std::uint64_t seed) {
  Draw draw(seed);
  Platform platform;
  platform.link_latency = draw.between(1e-6, 1e-3);
  const int links = 3 + draw(30), hops = 1 + draw(3);
  for (int l = 0; l < links; ++l) platform.bandwidths.push_back(draw.between(1e9, 100e9));
  for (int f = 10 + draw(60); f > 0; --f) {
    RandomFlow flow{{}, draw.between(0, 0.05), hops * platform.link_latency, std::floor(draw.between(1e6, 1e9))};
    while (static_cast<int>(flow.links.size()) < hops) {
      const int link = draw(links);
      if (std::find(flow.links.begin(), flow.links.end(), link) == flow.links.end()) flow.links.push_back(link);
    }
    platform.flows.push_back(flow);
  }
  return platform;
}

/// When each flow ends, in seconds.
std::vector<double> ours(const Platform& platform) {
  FlowNetwork network(platform.bandwidths);
  const auto ps = [](double s) { return static_cast<Picoseconds>(std::llround(s * 1e12)); };
  std::vector<std::size_t> order(platform.flows.size());
  for (std::size_t f = 0; f < order.size(); ++f) order[f] = f;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return platform.flows[a].start < platform.flows[b].start; });
  std::vector<double> ends(order.size(), 0);
  std::map<int, std::size_t> under_way;
  const auto advance = [&](Picoseconds to) {
    for (const auto& done : network.advance(to)) ends[under_way.at(done.flow)] = static_cast<double>(done.time) * 1e-12;
  };
  for (const std::size_t f : order) {
    const RandomFlow& flow = platform.flows[f];
    advance(ps(flow.start));
    std::vector<Load> loads;
    for (const int link : flow.links) loads.push_back({link, 1});
    under_way[network.start(ps(flow.start), network.path(loads), flow.bytes, ps(flow.latency))] = f;
  }
  while (const auto next = network.next()) advance(*next);
  return ends;
}

/// Adds a platform to SimGrid's world; `ends` is filled when that runs.
void add_to_simgrid(sg::NetZone* world, const Platform& platform, const std::string& name, std::vector<double>& ends) {
  sg::NetZone* zone = sg::create_full_zone(name);
  zone->set_parent(world);
  std::vector<const sg::Link*> links;
  for (std::size_t l = 0; l < platform.bandwidths.size(); ++l) {
    links.push_back(zone->create_link(name + "-link" + std::to_string(l), platform.bandwidths[l])
                        ->set_latency(platform.link_latency)
                        ->seal());
  }
  ends.assign(platform.flows.size(), 0);
  std::vector<std::pair<sg::Host*, sg::Host*>> hosts;
  for (std::size_t f = 0; f < platform.flows.size(); ++f) {
    sg::Host* from = zone->create_host(name + "-from" + std::to_string(f), 1e9)->seal();
    sg::Host* to = zone->create_host(name + "-to" + std::to_string(f), 1e9)->seal();
    std::vector<sg::LinkInRoute> route;
    for (const int link : platform.flows[f].links) route.emplace_back(links[static_cast<std::size_t>(link)]);
    zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
    hosts.emplace_back(from, to);
  }
  zone->seal();
  for (std::size_t f = 0; f < platform.flows.size(); ++f) {
    const RandomFlow& flow = platform.flows[f];
    const double begin = flow.start + (platform.link_latency > 0 ? 0 : flow.latency);
    const auto [from, to] = hosts[f];
    sg::Actor::create("flow", from, [begin, from = from, to = to, bytes = flow.bytes, &end = ends[f]] {
      sg::this_actor::sleep_until(begin);
      sg::Comm::sendto(from, to, static_cast<std::uint64_t>(bytes));
      end = sg::Engine::get_clock();
    });
  }
}

TEST(FlowNetwork, CompletionTimesAreThoseOfSimGridOnFiftyRandomPlatforms) {
  int argc = 1;
  std::string program = "simgrid_test";
  std::vector<char*> argv{program.data(), nullptr};
  sg::Engine engine(&argc, argv.data());
  sg::Engine::set_config("network/model:CM02");
  sg::Engine::set_config("network/TCP-gamma:0");
  sg::Engine::set_config("network/crosstraffic:0");
  sg::Engine::set_config("network/weight-S:0");
  sg::Engine::set_config("network/latency-factor:1");
  sg::Engine::set_config("network/bandwidth-factor:1");
  constexpr std::size_t kPlatforms = 50;
  std::vector<Platform> platforms;
  std::vector<std::vector<double>> theirs(kPlatforms);
  sg::NetZone* world = sg::create_full_zone("world");
  for (std::size_t p = 0; p < kPlatforms; ++p) {
    platforms.push_back(p % 2 == 0 ? on_cluster(1000 + p) : on_random_links(1000 + p));
    add_to_simgrid(world, platforms[p], "platform" + std::to_string(p), theirs[p]);
  }
  world->seal();
  engine.run();
  std::vector<double> errors;
  double stretched = 0;  // by how much flows were slowed by each other: a comparison without contention says nothing
  for (std::size_t p = 0; p < kPlatforms; ++p) {
    const std::vector<double> mine = ours(platforms[p]);
    for (std::size_t f = 0; f < mine.size(); ++f) {
      const RandomFlow& flow = platforms[p].flows[f];
      const double duration = theirs[p][f] - flow.start;
      errors.push_back(std::abs((mine[f] - flow.start) / duration - 1));
      EXPECT_LT(errors.back(), 0.01) << "flow " << f << " of platform " << p << ": " << mine[f] << " s, SimGrid "
                                     << theirs[p][f];
      double slowest = 1e300;
      for (const int link : flow.links)
        slowest = std::min(slowest, platforms[p].bandwidths[static_cast<std::size_t>(link)]);
      stretched += duration / (flow.latency + flow.bytes / slowest);
    }
  }
  std::sort(errors.begin(), errors.end());
  std::printf("%zu flows, median error %.1e, largest %.1e; each took %.1f times as long as alone\n", errors.size(),
              errors[errors.size() / 2], errors.back(), stretched / static_cast<double>(errors.size()));
  EXPECT_GT(stretched / static_cast<double>(errors.size()), 2);
}

}  // namespace
}  // namespace orrery::sim
