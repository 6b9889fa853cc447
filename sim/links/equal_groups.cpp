// Finds the groups of a form, wires them and counts their connections by link.
#include "sim/links/equal_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cost/network/messages.h"
#include "sim/links/connections.h"

namespace orrery::sim {
namespace {

using base::at;
using Talk = EqualGroups::Talk;

/// With more ranks of a stage than this, the load of a link that a group sees changes by no more than their own groups.
constexpr int kNeighbourhood = 1024;

bool has_one_stride(std::span<const int> members) {
  const int n = static_cast<int>(members.size()), stride = n > 1 ? members[1] - members.front() : 0;
  return stride > 0 && members.back() - members.front() == stride * (n - 1);
}

void connect(const GroupForm& form, Wiring wiring, const std::vector<int>& devices, Connections& connections,
             Communicator& c) {
  if (form.copies) return connections.add_copies(devices[0], *form.copies, c);
  if (form.pair) return connections.add_pair(devices[0], devices[1], c);
  if (form.ring) return connections.add_shift(devices, c);
  connections.add_rings(devices, c);
  if (wiring == Wiring::trees) connections.add_trees(devices, c);
  if (wiring == Wiring::pairs) connections.add_exchange(devices, c);
}

}  // namespace

std::size_t NumbersHash::operator()(const Numbers& key) const {
  std::uint64_t h = 0;
  for (const std::int64_t v : key.values) h = (h ^ static_cast<std::uint64_t>(v)) * 0x9E3779B97F4A7C15ULL + (h >> 29);
  return h;
}

const Fabric& EqualGroups::fabric() const {
  if (!fabric_) fabric_ = std::make_unique<const Fabric>(cluster_);
  return *fabric_;
}

void EqualGroups::place(const plan::MeshAxes& axes) {
  if (axes == axes_) return;
  axes_ = axes;
  placement_ = axes.placed() ? placements_.emplace(axes, static_cast<int>(placements_.size()) + 1).first->second : 0;
}

double EqualGroups::capacity(const Direction& d) const {
  return cost::shared_capacity(pricing_.calibration(), d.kind, base::BytesPerSecond{d.bandwidth}).value;
}

int EqualGroups::keep(const Numbers& key, GroupForm form) {
  forms_.push_back(std::move(form));
  const int number = static_cast<int>(forms_.size()) - 1;
  numbers_.emplace(key, number);
  return number;
}

std::optional<int> EqualGroups::form_of(std::span<const int> members, int ranks, Talk talk) {
  const bool pair = talk == Talk::pair;
  if (!pair && !has_one_stride(members)) return std::nullopt;
  const int per_node = std::max(1, cluster_.devices_per_node);
  const int first = members.front(), stride = members[1] - first, n = static_cast<int>(members.size());
  const Numbers key{
      {first % per_node, stride, n, beside_of(members, ranks, talk), talk == Talk::ring, pair + 2 * placement_}};
  if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
  std::optional<GroupForm> form = form_alone(members, ranks, talk);
  if (!form) return std::nullopt;
  return keep(key, std::move(*form));
}

std::optional<GroupForm> EqualGroups::form_alone(std::span<const int> members, int ranks, Talk talk) const {
  if (talk != Talk::pair && !has_one_stride(members)) return std::nullopt;
  GroupForm form;
  form.ring = talk == Talk::ring, form.pair = talk == Talk::pair;
  form.groups = equals_of(members, ranks, talk);
  if (form.groups.empty()) return std::nullopt;
  prepare(form);
  return form;
}

int EqualGroups::copies_of(plan::Stream stream, int ranks) {
  const int beside = std::min(ranks, std::max(1, cluster_.devices_per_node));
  const Numbers key{{-1, static_cast<std::int64_t>(stream), beside, 0, 0, 0}};
  if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
  return keep(key, copies_alone(stream, 0, beside));
}

GroupForm EqualGroups::copies_alone(plan::Stream stream, int first, int ranks) const {
  GroupForm form;
  form.copies = stream;
  for (int device = first; device < first + std::min(ranks, kNeighbourhood); ++device) form.groups.push_back({device});
  prepare(form);
  return form;
}

/// How many of a stage's ranks, from a group's first on, matter to it.
int EqualGroups::beside_of(std::span<const int> members, int ranks, Talk talk) const {
  const bool pair = talk == Talk::pair;
  const int first = members.front(), extent = pair ? 1 : (members[1] - first) * static_cast<int>(members.size());
  const bool within = placement_ == 0 && cluster_.node_of(first) == cluster_.node_of(members.back());
  return std::max(extent, std::min(ranks, within && !pair ? std::max(1, cluster_.devices_per_node) : kNeighbourhood));
}

/// Devices of a group and of its equals among these ranks: from the first one's block on, as a group of a stage is one
/// of its first.
std::vector<std::vector<int>> EqualGroups::equals_of(std::span<const int> members, int ranks, Talk talk) const {
  const bool pair = talk == Talk::pair;
  const int first = members.front(), stride = members[1] - first, n = static_cast<int>(members.size());
  const int extent = pair ? 1 : stride * n, beside = beside_of(members, ranks, talk);
  std::vector<std::vector<int>> out;
  for (int block = 0; block + extent <= beside; block += extent)
    for (int k = 0; k < (pair ? 1 : std::min({stride, ranks, kNeighbourhood})); ++k) {
      std::vector<int> devices;
      for (int i = 0; i < n; ++i) devices.push_back(first + block + k + i * stride);
      if (*std::ranges::max_element(devices) < cluster_.size()) out.push_back(devices_of(devices));
    }
  return out;
}

bool EqualGroups::mirrors(std::span<const int> members, int ranks, std::span<const double> by_stage) {
  return !by_stage.empty() && std::ssize(by_stage) * ranks <= kNeighbourhood &&
         members.front() / ranks != members.back() / ranks;
}

/// The given group first, then its equals of each stage. One that has less to reduce is beside it for so much less of
/// its time.
int EqualGroups::mirrored_form_of(std::span<const int> members, int ranks, std::span<const double> by_stage) {
  const int n = static_cast<int>(members.size()) / 2, stride = n > 1 ? members[1] - members[0] : 1;
  const int stages = static_cast<int>(by_stage.size()), own = members.front() / ranks;
  std::int64_t sizes = stages * 31 + placement_;
  for (const double values : by_stage) sizes = sizes * 31 + std::llround(values);
  const Numbers key{{-2, members.front(), stride, n, ranks, sizes}};
  if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
  GroupForm form;
  form.groups.push_back(devices_of(members));
  form.beside.push_back(1);
  for (int stage = 0; stage < stages / 2; ++stage)
    for (int block = 0; block + stride * n <= ranks; block += stride * n)
      for (int k = 0; k < stride; ++k) {
        std::vector<int> devices;
        for (const int of : {stage, stages - 1 - stage})
          for (int i = 0; i < n; ++i) devices.push_back(of * ranks + block + k + i * stride);
        if (std::ranges::is_permutation(devices, members)) continue;
        form.groups.push_back(devices_of(devices));
        form.beside.push_back(std::min(1.0, by_stage[at(stage)] / by_stage[at(own)]));
      }
  prepare(form);
  return keep(key, std::move(form));
}

/// Counts rings, and sets what the price of one group needs.
void EqualGroups::prepare(GroupForm& form) const {
  if (!form.copies) {
    form.span = span_of(form, form.groups.front());
    if (form.span.within_node && !alike_within_nodes()) add_others(form);
  }
  const double alone = count(form, Wiring::rings);
  if (form.copies || form.span.within_node) return;
  form.span.bandwidth = std::max(form.span.bandwidth, base::BytesPerSecond{alone});
}

clusters::GroupSpan EqualGroups::span_of(const GroupForm& form, const std::vector<int>& devices) const {
  return clusters::span_of(cluster_, form.ring ? cost::slowest_hop(cluster_, devices) : devices);
}

/// Whether any two devices of a node are linked as any other two.
bool EqualGroups::alike_within_nodes() const {
  using enum clusters::NodeFabric;
  const clusters::NodeFabric fabric = cluster_.shape ? cluster_.shape->node.fabric : nvswitch;
  return fabric == nvswitch || fabric == shared_memory;
}

void EqualGroups::add_others(GroupForm& form) const {
  const auto alike = [](const clusters::GroupSpan& a, const clusters::GroupSpan& b) {
    return a.within_node == b.within_node && a.bandwidth.value == b.bandwidth.value &&
           a.latency.value == b.latency.value && a.hops == b.hops && a.exchange.value == b.exchange.value;
  };
  for (const std::vector<int>& devices : form.groups) {
    const clusters::GroupSpan span = span_of(form, devices);
    if (alike(span, form.span)) continue;
    if (std::ranges::none_of(form.others, [&](const clusters::GroupSpan& other) { return alike(span, other); }))
      form.others.push_back(span);
  }
}

void EqualGroups::each_group(const GroupForm& form, Wiring wiring, const Body& body) const {
  Traffic traffic;
  Connections connections(fabric(), cluster_, traffic);
  for (const std::vector<int>& devices : form.groups) {
    Communicator c;
    connect(form, wiring, devices, connections, c);
    const Wired& wired = c.wired(wiring);
    body(devices, wired, traffic, {traffic.uses.data() + wired.first, wired.last - wired.first});
  }
}

const Wires& EqualGroups::wires(int number, Wiring wiring) {
  GroupForm& form = forms_[at(number)];
  Wires& wires = form.wires[static_cast<std::size_t>(wiring)];
  if (wires.connections == 0) (void)count(form, wiring);
  return wires;
}

/// Counts the connections of all groups; returns a member's bandwidth on the network's cables, bytes/s.
double EqualGroups::count(GroupForm& form, Wiring wiring) const {
  Wires& wires = form.wires[static_cast<std::size_t>(wiring)];
  double alone = 0;
  std::size_t group = 0;
  each_group(form, wiring, [&](const auto&, const Wired& wired, const Traffic& traffic, std::span<const Use> uses) {
    if (wires.connections == 0) wires.connections = std::max(1, wired.connections);
    if (alone == 0) alone = on_cables(traffic, uses) * wires.connections / form.span.per_node;
    add(wires, traffic, uses, form.beside.empty() ? 1 : form.beside[group]);
    ++group;
  });
  std::ranges::sort(wires.links);
  wires.links.erase(std::unique(wires.links.begin(), wires.links.end()), wires.links.end());
  return alone;
}

/// Bytes/s of one connection on the network's cables.
double EqualGroups::on_cables(const Traffic& traffic, std::span<const Use> uses) const {
  double connection = std::numeric_limits<double>::infinity();
  for (const Use& use : uses) {
    const Direction& d = fabric().direction(traffic.links[at(use.link)]);
    if (d.kind == clusters::LinkKind::network) connection = std::min(connection, d.bandwidth / use.count);
  }
  return std::isfinite(connection) ? connection : 0;
}

void EqualGroups::add(Wires& wires, const Traffic& traffic, std::span<const Use> uses, double beside) const {
  std::vector<Crossing> crossings;
  for (const Use& use : uses) {
    const Direction& d = fabric().direction(traffic.links[at(use.link)]);
    crossings.push_back({own(d), capacity(d), use.count});
  }
  const std::vector<Crossing> in_order = crossings;
  std::ranges::sort(crossings);
  crossings.erase(std::unique(crossings.begin(), crossings.end()), crossings.end());
  auto kind = std::ranges::find(wires.kinds, crossings);
  if (kind == wires.kinds.end()) kind = wires.kinds.insert(kind, std::move(crossings));
  const auto number = static_cast<std::size_t>(kind - wires.kinds.begin());
  for (std::size_t u = 0; u < uses.size(); ++u) {
    if (wires.links.size() <= at(uses[u].link)) wires.links.resize(at(uses[u].link) + 1);
    Wires::Link& link = wires.links[at(uses[u].link)];
    link.own = in_order[u].own, link.capacity = in_order[u].capacity;
    if (link.all.size() <= number) link.all.resize(number + 1, 0);
    link.all[number] += beside * uses[u].count;
  }
}

}  // namespace orrery::sim
