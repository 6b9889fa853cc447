/// How long it takes to say how long an all-reduce takes: 100 MB over 1,024 GPUs as steps and as one fluid activity,
/// and what the solver does under thousands of unequal flows. Prints a table; scripts/bench-network runs it.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/random.h"
#include "cost/network/algorithms.h"
#include "sim/collectives/replay_transfers.h"
#include "tests/clusters/support.h"

namespace {

using namespace orrery;
using plan::Algorithm;
using plan::Goal;
using sim::Picoseconds;

/// Least of several runs, in ms; `work` begins from nothing each time.
template <class Work>
double least_ms(const Work& work) {
  double least = 1e300;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    least =
        std::min(least, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

void all_reduce(const std::string& name, int gpus, double bytes) {
  const clusters::Cluster cluster = clusters::testing::catalog(name);
  std::vector<int> devices;
  for (int d = 0; d < gpus; ++d) devices.push_back(d);
  const plan::GroupShape shape{gpus, cluster.devices_per_node, 16};
  const auto line = [&](const char* how, double ms, double predicted, double closed, std::int64_t transfers) {
    fmt::print("{:<16} {:<18} {:<11} {:>9} {:>10.2f} {:>14.1f} {:>14.1f}\n", name, how,
               transfers > 0 ? "steps" : "fluid", transfers, ms, predicted * 1e6, closed * 1e6);
  };
  for (const Algorithm algorithm :
       {Algorithm::ring, Algorithm::halving_doubling, Algorithm::hierarchical, Algorithm::tree}) {
    sim::TransferReplay replay;
    // Everything but reading the cluster: its links, the routes, the algorithm's steps, the replay.
    const double ms = least_ms([&] {
      clusters::Paths paths(cluster);
      const plan::CollectiveSteps steps = plan::steps_of(algorithm, Goal::all_reduce, shape);
      replay = sim::replay_transfers({sim::placed(steps, paths, devices, base::Bytes{bytes})}, paths);
    });
    clusters::Paths paths(cluster);
    const double closed =
        cost::time_alone(algorithm, Goal::all_reduce, shape, paths, cost::places_of(paths, devices), base::Bytes{bytes})
            .value;
    line(plan::name_of(algorithm), ms, static_cast<double>(replay.ends[0]) * 1e-12, closed, replay.transfers);
  }
  Picoseconds end = 0;
  const double ms = least_ms([&] {
    clusters::Paths paths(cluster);
    const auto activity =
        cost::activity_of(plan::ring_all_reduce(gpus), paths, cost::places_of(paths, devices), base::Bytes{bytes});
    sim::FlowNetwork network(paths.bandwidths());
    network.start(0, network.path(activity.loads), activity.bytes, std::llround(activity.latency.value * 1e12));
    while (const auto next = network.next()) {
      if (!network.advance(*next).empty()) end = *next;
    }
  });
  clusters::Paths paths(cluster);
  const double closed = cost::time_alone(Algorithm::ring, Goal::all_reduce, shape, paths,
                                         cost::places_of(paths, devices), base::Bytes{bytes})
                            .value;
  line("ring", ms, static_cast<double>(end) * 1e-12, closed, 0);
}

/// Every GPU sends to a random other, again and again, unequal messages: all in one component of the network.
void random_traffic(const std::string& name, int flows_at_once, int messages) {
  const clusters::Cluster cluster = clusters::testing::catalog(name);
  clusters::Paths paths(cluster);
  const auto gpus = static_cast<std::uint64_t>(cluster.size());
  sim::FlowNetwork network(paths.bandwidths());
  std::uint64_t drawn = 0;
  const auto path = [&] {
    const auto a = base::below(gpus, 1, 1, drawn++), b = (a + 1 + base::below(gpus - 1, 1, 2, drawn++)) % gpus;
    std::vector<clusters::Load> loads;
    for (const int link : paths.between(static_cast<int>(a), static_cast<int>(b)).links) loads.push_back({link, 1});
    return network.path(std::move(loads));
  };
  std::vector<int> ways;  // found beforehand: the solver is timed
  for (int m = 0; m < messages; ++m) ways.push_back(path());
  int sent = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto send = [&](Picoseconds now) {
    network.start(now, ways[static_cast<std::size_t>(sent)],
                  1e6 * (1 + base::uniform(1, 3, static_cast<std::uint64_t>(sent))));
    ++sent;
  };
  while (sent < flows_at_once) send(0);
  int ended = 0;
  while (const auto next = network.next()) {
    const std::size_t done = network.advance(*next).size();
    ended += static_cast<int>(done);
    for (std::size_t i = 0; i < done && sent < messages; ++i) send(*next);
  }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: {} random messages, {} at once: {:.2f} s, {:.1f} us each, {:.0f} paths solved a message\n", name,
             ended, flows_at_once, s, s / ended * 1e6, static_cast<double>(network.solved_paths()) / ended);
}

}  // namespace

int main() {
  fmt::print("{:<16} {:<18} {:<11} {:>9} {:>10} {:>14} {:>14}\n", "cluster", "all-reduce, 100 MB", "replayed as",
             "transfers", "time, ms", "predicted, us", "closed form");
  all_reduce("hgx-h100-1024", 1024, 100e6);
  all_reduce("selene-1024", 1024, 100e6);
  random_traffic("hgx-h100-1024", 1000, 5'000);
  random_traffic("selene-1024", 1000, 5'000);
}
