// Closed forms of collective algorithms over routes of a graph.
#include "cost/network/algorithms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>

#include "base/ensure.h"
#include "base/index.h"
#include "cost/network/fluid.h"

namespace orrery::cost {

using base::Bytes;
using base::Seconds;
using clusters::Paths;
using plan::Algorithm;
using plan::Goal;
using plan::GroupShape;

namespace {

using base::at;

struct MemberMessage {
  int from = 0, to = 0;  ///< members; the number of members stands for the switch
  double bytes = 0;
};

class RoutedGroup {
 public:
  RoutedGroup(Paths& paths, const Places& places) : paths_(paths), places_(places) {}

  [[nodiscard]] const Paths::Path& path(int from, int to) const { return paths_.route(vertex(from), vertex(to)); }
  [[nodiscard]] const std::vector<double>& bandwidths() const { return paths_.bandwidths(); }

  /// P: seconds until the last of several messages that begin together has arrived.
  [[nodiscard]] double step(const std::vector<MemberMessage>& messages) const {
    double end = 0;
    std::vector<std::tuple<int, double, double>> queue;  // (link, latency, bytes)
    for (const MemberMessage& m : messages) {
      const Paths::Path& p = path(m.from, m.to);
      end = std::max(end, p.latency.value);
      for (const int link : p.links) queue.emplace_back(link, p.latency.value, m.bytes);
    }
    std::sort(queue.begin(), queue.end());
    double behind = 0;  // bytes of this and later messages on the link
    for (std::size_t i = queue.size(); i-- > 0;) {
      const auto& [link, latency, bytes] = queue[i];
      if (i + 1 == queue.size() || std::get<0>(queue[i + 1]) != link) behind = 0;
      behind += bytes;
      end = std::max(end, latency + behind / paths_.bandwidths()[at(link)]);
    }
    return end;
  }

  /// Each message's own time if all share their links evenly throughout.
  [[nodiscard]] std::vector<double> each(const std::vector<MemberMessage>& messages) const {
    std::map<int, int> crowd;
    for (const MemberMessage& m : messages) {
      for (const int link : path(m.from, m.to).links) ++crowd[link];
    }
    std::vector<double> times;
    for (const MemberMessage& m : messages) {
      const Paths::Path& p = path(m.from, m.to);
      double slowness = 0;
      for (const int link : p.links) slowness = std::max(slowness, crowd[link] / paths_.bandwidths()[at(link)]);
      times.push_back(p.latency.value + m.bytes * slowness);
    }
    return times;
  }

  /// Each message begins when both its ends are ready, and makes them ready again when it ends.
  void follow(std::vector<double>& ready, const std::vector<MemberMessage>& messages) const {
    const std::vector<double> times = each(messages);
    std::vector<double> after = ready;
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const std::size_t from = at(messages[m].from), to = at(messages[m].to);
      const double end = std::max(ready[from], ready[to]) + times[m];
      after[from] = std::max(after[from], end);
      after[to] = std::max(after[to], end);
    }
    ready = std::move(after);
  }

 private:
  [[nodiscard]] int vertex(int member) const {
    return member == static_cast<int>(places_.members.size()) ? places_.switch_vertex : places_.members[at(member)];
  }
  Paths& paths_;
  const Places& places_;
};

/// Rounds of messages. If no link can be full, or all messages of a round take equally long, the algorithm's formula
/// applies; otherwise their fluid, up to a number of messages.
class Rounds {
 public:
  Rounds(const RoutedGroup& group, int ends) : group_(group), ends_(ends), ready_(at(ends), 0) {}

  void add(const std::vector<MemberMessage>& messages, int repeat = 1) {
    if (messages.empty() || repeat == 0) return;
    FluidRound& round = rounds_.emplace_back();
    round.repeat = repeat;
    for (const MemberMessage& m : messages) {
      const Paths::Path& path = group_.path(m.from, m.to);
      round.messages.push_back({m.from, m.to, m.bytes, path.latency.value, &path.links});
    }
    count_ += messages.size() * static_cast<std::size_t>(repeat);
  }
  /// Adds a round that takes as long as its last message.
  void add_in_step(const std::vector<MemberMessage>& messages) {
    add(messages);
    in_step_ += group_.step(messages);
    group_.follow(ready_, messages);
  }

  [[nodiscard]] double time(double formula) const {
    const std::vector<double>& bandwidths = group_.bandwidths();
    constexpr std::size_t kMostFluid = 10'000;  // messages; takes some seconds
    if (count_ > kMostFluid || !crowded(rounds_, bandwidths) || in_step(rounds_, ends_, bandwidths)) return formula;
    return fluid_time(rounds_, ends_, bandwidths);
  }
  /// Two formulas for consecutive steps: in step, where messages share links by queue; and member by member, where each
  /// message has an even share of the links. Both are too short only if two bottlenecks delay one message, so the
  /// smaller counts.
  [[nodiscard]] double time() const {
    return time(std::min(in_step_, *std::max_element(ready_.begin(), ready_.end())));
  }

 private:
  const RoutedGroup& group_;
  int ends_;
  std::vector<FluidRound> rounds_;
  std::size_t count_ = 0;
  double in_step_ = 0;
  std::vector<double> ready_;
};

double ring(const RoutedGroup& group, Goal goal, const GroupShape& shape, double bytes) {
  const int n = shape.members;
  std::vector<MemberMessage> hops;
  if (goal == Goal::broadcast || goal == Goal::reduce) {
    for (int i = 0; i + 1 < n; ++i) {
      hops.push_back({i, i + 1, bytes / shape.pieces});
      if (goal == Goal::reduce) std::swap(hops.back().from, hops.back().to);
    }
    if (goal == Goal::reduce) std::reverse(hops.begin(), hops.end());
    double sum = 0, slowest = 0;
    for (const double time : group.each(hops)) {
      sum += time;
      slowest = std::max(slowest, time);
    }
    Rounds rounds(group, n);
    for (int r = 0; r < n - 2 + shape.pieces; ++r) {  // hops are one piece apart
      const int first = std::max(0, r - shape.pieces + 1), last = std::min(r, n - 2);
      rounds.add({hops.begin() + first, hops.begin() + last + 1});
    }
    return rounds.time(sum + (shape.pieces - 1) * slowest);
  }
  for (int i = 0; i < n; ++i) hops.push_back({i, (i + 1) % n, bytes / n});
  const int times = (goal == Goal::all_reduce ? 2 : 1) * (n - 1);
  Rounds rounds(group, n);
  rounds.add(hops, times);
  return rounds.time(times * group.step(hops));
}

double halving(const RoutedGroup& group, Goal goal, int n, double bytes) {
  const int parts = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const int folded = n - parts;
  const auto member = [folded](int part) { return part < folded ? 2 * part : part + folded; };
  const auto exchange = [&](int distance) {
    std::vector<MemberMessage> messages;
    for (int i = 0; i < parts; ++i) messages.push_back({member(i), member(i ^ distance), bytes * distance / parts});
    return messages;
  };
  std::vector<MemberMessage> fold;
  for (int i = 0; i < folded; ++i) fold.push_back({2 * i + 1, 2 * i, bytes});
  Rounds rounds(group, n);
  rounds.add_in_step(fold);
  if (goal != Goal::all_gather) {
    for (int distance = parts / 2; distance >= 1; distance /= 2) rounds.add_in_step(exchange(distance));
  }
  if (goal != Goal::reduce_scatter) {
    for (int distance = 1; distance < parts; distance *= 2) rounds.add_in_step(exchange(distance));
  }
  for (MemberMessage& m : fold) std::swap(m.from, m.to);
  rounds.add_in_step(fold);
  return rounds.time();
}

double pat(const RoutedGroup& group, Goal goal, int n, double bytes) {
  std::vector<int> distances;
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) / 2; distance >= 1; distance /= 2) {
    distances.push_back(distance);
  }
  const bool gather = goal == Goal::all_gather;
  if (!gather) std::reverse(distances.begin(), distances.end());
  Rounds rounds(group, n);
  for (const int distance : distances) {
    const double blocks = std::ceil((n - distance) / (2.0 * distance));
    std::vector<MemberMessage> messages;
    for (int i = 0; i < n; ++i) {
      const int other = (i + distance) % n;
      messages.push_back({gather ? i : other, gather ? other : i, bytes * blocks / n});
    }
    rounds.add_in_step(messages);
  }
  return rounds.time();
}

/// A reduction is the same run in reverse, and takes as long.
double binomial(const RoutedGroup& group, Goal goal, int n, double bytes) {
  Rounds rounds(group, n);
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) / 2; distance >= 1; distance /= 2) {
    std::vector<MemberMessage> messages;
    for (int i = 0; i + distance < n; i += 2 * distance) {
      messages.push_back({i, i + distance, bytes});
      if (goal == Goal::reduce) std::swap(messages.back().from, messages.back().to);
    }
    rounds.add_in_step(messages);
  }
  return rounds.time();
}

/// A hop (v to its parent, or back) that carries piece p in round p + when.
struct TreeHop {
  int from = 0, to = 0, when = 0;
};

std::vector<TreeHop> tree_hops(const plan::Tree& tree) {
  const int n = static_cast<int>(tree.size());
  std::vector<int> depth(tree.size(), 0), height(tree.size(), 0);
  int root = 0;
  for (int v = 0; v < n; ++v) {
    int above = 0;
    for (int up = v; tree[at(up)] >= 0; up = tree[at(up)]) {
      ++above;
      height[at(tree[at(up)])] = std::max(height[at(tree[at(up)])], above);
    }
    depth[at(v)] = above;
    if (above == 0) root = v;
  }
  std::vector<TreeHop> hops;
  for (int v = 0; v < n; ++v) {
    if (v == root) continue;
    hops.push_back({v, tree[at(v)], height[at(v)]});
    hops.push_back({tree[at(v)], v, height[at(root)] - 1 + depth[at(v)]});
  }
  return hops;
}

/// Pieces follow each other up and down both trees.
double tree(const RoutedGroup& group, const GroupShape& shape, double bytes) {
  std::vector<TreeHop> hops;
  int last = 0;
  for (const plan::Tree& t : plan::double_binary_tree(shape.members / shape.per_node, shape.per_node)) {
    for (const TreeHop& hop : tree_hops(t)) {
      hops.push_back(hop);
      last = std::max(last, hop.when + shape.pieces);
    }
  }
  Rounds rounds(group, shape.members);
  for (int round = 0; round < last; ++round) {
    std::map<std::pair<int, int>, double> active;  // the trees may share hops
    for (const TreeHop& hop : hops) {
      if (hop.when <= round && round < hop.when + shape.pieces) active[{hop.from, hop.to}] += bytes / 2 / shape.pieces;
    }
    std::vector<MemberMessage> messages;
    for (const auto& [pair, size] : active) messages.push_back({pair.first, pair.second, size});
    rounds.add_in_step(messages);
  }
  return rounds.time();
}

double nvls(const RoutedGroup& group, Goal goal, const GroupShape& shape, double bytes) {
  const int n = shape.members, k = shape.pieces;
  const double whole = bytes / k, own = whole / n;
  const bool gather = goal == Goal::all_gather;
  const int stages = goal == Goal::all_reduce ? 4 : 2;
  const auto runs = [k](int round, int stage) { return round >= stage && round < stage + k; };
  double sum = 0;
  Rounds rounds(group, n + 1);
  for (int round = 0; n > 1 && round < k + stages - 1; ++round) {
    // Stages: all up, own down, own up, all down; a reduce-scatter is the first half, an all-gather the second.
    double up = 0, down = 0;
    if (!gather && runs(round, 0)) up += whole;
    if (!gather && runs(round, 1)) down += own;
    if (goal != Goal::reduce_scatter && runs(round, stages - 2)) up += own;
    if (goal != Goal::reduce_scatter && runs(round, stages - 1)) down += whole;
    std::vector<MemberMessage> messages;
    for (int i = 0; i < n; ++i) {
      if (up > 0) messages.push_back({i, n, up});
      if (down > 0) messages.push_back({n, i, down});
    }
    sum += group.step(messages);
    rounds.add(messages);
  }
  return rounds.time(sum);
}

double hierarchical(const RoutedGroup& group, Goal goal, const GroupShape& shape, double bytes) {
  const int n = shape.members, g = shape.per_node;
  std::vector<MemberMessage> within, across;
  for (int i = 0; i < n; ++i) {
    if (g > 1) within.push_back({i, i / g * g + (i + 1) % g, bytes / g});
    if (n > g) across.push_back({i, (i + g) % n, bytes / n});
  }
  Rounds rounds(group, n);
  if (goal != Goal::all_gather) rounds.add(within, g - 1);
  rounds.add(across, (goal == Goal::all_reduce ? 2 : 1) * (n / g - 1));
  if (goal != Goal::reduce_scatter) rounds.add(within, g - 1);
  const double once = (g - 1) * group.step(within) + (n / g - 1) * group.step(across);
  return rounds.time((goal == Goal::all_reduce ? 2 : 1) * once);
}

double all_to_all(const RoutedGroup& group, Algorithm algorithm, int n, double part) {
  Rounds rounds(group, n);
  std::vector<MemberMessage> all;
  for (int r = 1; r < n; ++r) {
    std::vector<MemberMessage> round;
    for (int i = 0; i < n; ++i) round.push_back({i, (i + r) % n, part});
    if (algorithm == Algorithm::pairwise)
      rounds.add_in_step(round);
    else
      all.insert(all.end(), round.begin(), round.end());
  }
  if (algorithm == Algorithm::pairwise) return rounds.time();
  rounds.add(all);
  return rounds.time(group.step(all));
}

}  // namespace

Places places_of(const Paths& paths, const std::vector<int>& devices, int switch_vertex) {
  Places places;
  for (const int device : devices) places.members.push_back(paths.vertex_of(device));
  places.switch_vertex = switch_vertex;
  return places;
}

Seconds time_alone(Algorithm algorithm, Goal goal, const GroupShape& shape, Paths& paths, const Places& places,
                   Bytes message) {
  ENSURE(at(shape.members) == places.members.size(), "{} places for {} members", places.members.size(), shape.members);
  ENSURE(plan::can(algorithm, goal, shape), "{} by {}", plan::name_of(goal), plan::name_of(algorithm));
  const int n = shape.members;
  if (n < 2) return Seconds{0};
  const RoutedGroup group(paths, places);
  const double bytes = message.value;
  switch (algorithm) {
    case Algorithm::ring: return Seconds{ring(group, goal, shape, bytes)};
    case Algorithm::tree: return Seconds{tree(group, shape, bytes)};
    case Algorithm::binomial: return Seconds{binomial(group, goal, n, bytes)};
    case Algorithm::halving_doubling: return Seconds{halving(group, goal, n, bytes)};
    case Algorithm::pat: return Seconds{pat(group, goal, n, bytes)};
    case Algorithm::nvls: return Seconds{nvls(group, goal, shape, bytes)};
    case Algorithm::hierarchical: return Seconds{hierarchical(group, goal, shape, bytes)};
    case Algorithm::direct:
    case Algorithm::pairwise: return Seconds{all_to_all(group, algorithm, n, bytes / n)};
  }
  return {};
}

FluidActivity activity_of(const plan::CollectiveSteps& steps, Paths& paths, const Places& places, Bytes message) {
  const RoutedGroup group(paths, places);
  FluidActivity activity;
  std::map<int, double> by_link;
  std::map<std::pair<int, int>, double> by_pair;
  for (const plan::Round& round : steps.rounds) {
    double farthest = 0;
    for (const plan::Transfer& t : round.transfers) {
      const double bytes = steps.share_of(t) * message.value * round.repeat;
      const Paths::Path& path = group.path(t.from, t.to);
      farthest = std::max(farthest, path.latency.value);
      double& pair = by_pair[{t.from, t.to}];
      pair += bytes;
      activity.bytes = std::max(activity.bytes, pair);
      for (const int link : path.links) by_link[link] += bytes;
    }
    activity.latency.value += farthest * round.repeat;
  }
  for (const auto& [link, bytes] : by_link) {
    if (bytes > 0) activity.loads.push_back({link, bytes / activity.bytes});
  }
  return activity;
}

}  // namespace orrery::cost
