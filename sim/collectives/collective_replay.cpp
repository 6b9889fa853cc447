// Places members, lays out steps, and replays them on the links.
#include "sim/collectives/collective_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/ensure.h"
#include "cost/network/algorithms.h"
#include "sim/collectives/replay_transfers.h"
#include "sim/links/link_rows.h"

namespace orrery::sim {

using plan::Algorithm;
using plan::Goal;

namespace {

/// Limit of messages from each member to each at once: takes a few seconds per size.
constexpr std::int64_t kMostMessages = std::int64_t{1} << 16;

bool has_root(Goal goal) {
  return goal == Goal::broadcast || goal == Goal::reduce;
}

int per_node(const clusters::Cluster& cluster, const Members& members) {
  const int node = cluster.node_of(members.front());
  return static_cast<int>(
      std::count_if(members.begin(), members.end(), [&](int device) { return cluster.node_of(device) == node; }));
}

plan::GroupShape shape_of(const clusters::Cluster& cluster, const CollectiveCase& what) {
  const Members& members = what.tasks.front();
  return {static_cast<int>(members.size()), per_node(cluster, members),
          plan::in_pieces(what.algorithm, what.goal) ? what.pieces : 1};
}

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// Rotates each node's members by the channel's number. On a ring every other node is reversed, so that the ring
/// connects corresponding members of neighbouring nodes, as NCCL's alternating rings do. A root moves to the front.
Members order_of(Members members, int in_node, int channel, const CollectiveCase& what) {
  if (what.channels == 1) return members;
  const int root = members.front();
  bool back = false;
  for (std::size_t node = 0; node < members.size(); node += index(in_node), back = !back) {
    const auto first = members.begin() + static_cast<std::ptrdiff_t>(node), last = first + in_node;
    std::rotate(first, first + channel % in_node, last);
    if (back && what.algorithm == Algorithm::ring) std::reverse(first, last);
  }
  if (has_root(what.goal)) {
    const auto place = std::find(members.begin(), members.end(), root);
    std::rotate(members.begin(), place, place + 1);
  }
  return members;
}

/// The one switch that connects all devices of the node and reduces; -1 if there is none, or several.
int reducing_switch(const clusters::Cluster& cluster, int node) {
  if (!cluster.shape || !cluster.shape->node.multicast) return -1;
  int found = -1;
  for (std::size_t v = 0; v < boost::num_vertices(*cluster.graph); ++v) {
    const clusters::Vertex& vertex = (*cluster.graph)[v];
    if (vertex.kind != clusters::VertexKind::nvswitch || vertex.node != node) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(v);
  }
  return found;
}

int switch_of(const clusters::Cluster& cluster, const CollectiveCase& what, const Members& members) {
  return what.algorithm == Algorithm::nvls ? reducing_switch(cluster, cluster.node_of(members.front())) : -1;
}

std::int64_t messages_of(const plan::CollectiveSteps& steps) {
  std::int64_t messages = 0;
  for (const plan::Round& round : steps.rounds)
    messages += static_cast<std::int64_t>(round.transfers.size()) * round.repeat;
  return messages;
}

}  // namespace

std::vector<Members> dealt_out(const clusters::Cluster& cluster, const Members& devices, int tasks) {
  const int in_node = per_node(cluster, devices), all = static_cast<int>(devices.size());
  if (tasks < 1 || all % tasks != 0 || (in_node % tasks != 0 && tasks % in_node != 0)) return {};
  std::vector<Members> groups(index(tasks));
  for (int i = 0; i < all; ++i) groups[index(i % tasks)].push_back(devices[index(i)]);
  return groups;
}

int pieces_of(base::Bytes message) {
  constexpr double kPiece = 512.0 * 1024, kMost = 64;
  return static_cast<int>(std::clamp(std::ceil(message.value / kPiece), 1.0, kMost));
}

std::string why_not(const clusters::Cluster& cluster, const CollectiveCase& what, const std::string& operation) {
  const std::string name = plan::name_of(what.algorithm);
  const plan::GroupShape shape = shape_of(cluster, what);
  if (!plan::can(what.algorithm, what.goal, {2, 1, 1})) return fmt::format("{} cannot do {}", name, operation);
  if (!plan::can(what.algorithm, what.goal, shape))
    return fmt::format("{} does {} among a power of two of ranks, not among {}", name, operation, shape.members);
  if (what.algorithm == Algorithm::nvls && shape.per_node < shape.members)
    return fmt::format("{} is replayed within a node, not over {}", name, shape.members / shape.per_node);
  if (what.algorithm == Algorithm::nvls && switch_of(cluster, what, what.tasks.front()) < 0)
    return fmt::format("{} needs nodes with one switch that reduces (`multicast`)", name);
  const auto n = static_cast<std::int64_t>(shape.members);
  const std::int64_t all = n * (n - 1) * static_cast<std::int64_t>(what.tasks.size()) * what.channels;
  if ((what.algorithm == Algorithm::direct || what.algorithm == Algorithm::pairwise) && all > kMostMessages)
    return fmt::format("{} sends {} messages, but at most {} are replayed", name, all, kMostMessages);
  return {};
}

std::string CollectiveReplay::binds() const {
  return links.empty() || latency.value > replay.value / 2 ? "latency" : links.front().name;
}

double CollectiveReplay::bound_share() const {
  return binds() == "latency" ? latency / replay : links.front().peak_utilisation;
}

CollectiveReplay replay_collective(const clusters::Cluster& cluster, clusters::Paths& paths, const Fabric& fabric,
                                   const CollectiveCase& what) {
  ENSURE(why_not(cluster, what, "it").empty(), "{}", why_not(cluster, what, "it"));
  const plan::GroupShape shape = shape_of(cluster, what);
  const plan::CollectiveSteps steps = plan::steps_of(what.algorithm, what.goal, shape);
  const base::Bytes part = what.message / what.channels;
  std::vector<Placed> full;
  std::map<int, double> carried;
  CollectiveReplay result;
  for (const Members& task : what.tasks) {
    ENSURE(task.size() == index(shape.members), "tasks of {} and {} members", task.size(), shape.members);
    const int vertex = switch_of(cluster, what, task);
    for (int channel = 0; channel < what.channels; ++channel) {
      const Members members = order_of(task, shape.per_node, channel, what);
      const cost::Places places = cost::places_of(paths, members, vertex);
      if (full.empty()) result.closed_form = cost::time_alone(what.algorithm, what.goal, shape, paths, places, part);
      const cost::FluidActivity activity = cost::activity_of(steps, paths, places, part);
      for (const clusters::Load& load : activity.loads) carried[load.link] += load.share * activity.bytes;
      full.push_back(
          placed(steps, paths, members, part, steps.switches > 0 ? std::vector<int>{vertex} : std::vector<int>{}));
      result.messages += messages_of(steps);
    }
  }
  std::vector<Placed> empty = full;
  for (Placed& one : empty) one.message = base::Bytes{0};
  const auto end_of = [&](const std::vector<Placed>& all) {
    const std::vector<Picoseconds> ends = replay_transfers(all, paths).ends;
    return base::Seconds{seconds(std::max<Picoseconds>(1, *std::max_element(ends.begin(), ends.end())))};
  };
  result.replay = end_of(full);
  result.latency = end_of(empty);
  std::vector<Carried> links;
  for (const auto& [link, bytes] : carried) links.push_back({link, bytes});
  result.links = link_rows(fabric, cluster, links, result.replay.value);
  std::stable_sort(result.links.begin(), result.links.end(), [](const cost::LinkRow& a, const cost::LinkRow& b) {
    return a.peak_utilisation > b.peak_utilisation;
  });
  return result;
}

}  // namespace orrery::sim
