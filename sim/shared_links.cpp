// Counts the connections of a group and of its neighbours, once for each shape of groups.
#include "sim/shared_links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/index.h"
#include "cost/network/messages.h"
#include "sim/links/connections.h"
#include "sim/links/fabric.h"
#include "sim/links/loads.h"
#include "sim/links/traffic.h"
#include "sim/simulate.h"

namespace orrery::sim {

namespace {

using base::at;
using base::Bytes;
using base::Seconds;
using plan::CollectiveKind;

/// With more ranks of a stage than this, the load of a link that a group sees changes by no more than their own groups.
constexpr int kNeighbourhood = 1024;

struct Numbers {
  std::array<std::int64_t, 6> values;
  bool operator==(const Numbers&) const = default;
};
struct NumbersHash {
  std::size_t operator()(const Numbers& key) const {
    std::uint64_t h = 0;
    for (const std::int64_t v : key.values) h = (h ^ static_cast<std::uint64_t>(v)) * 0x9E3779B97F4A7C15ULL + (h >> 29);
    return h;
  }
};

/// A link as one group crosses it.
struct Crossing {
  bool own = false;  ///< of the devices themselves
  double capacity = 0;
  int count = 0;  ///< connections
  auto operator<=>(const Crossing&) const = default;
};

/// One wiring of groups of equal shape. Groups that cross equal links are of one kind.
struct Wires {
  int connections = 0;                       ///< of a group; 0: not counted yet
  std::vector<std::vector<Crossing>> kinds;  ///< links of one group of each kind, without repetition
  /// A link, as far as it matters: whether it is a group's own, its capacity, and the connections of all groups by
  /// kind.
  struct Link {
    bool own = false;
    double capacity = 0;
    std::vector<double> all;
    auto operator<=>(const Link&) const = default;
  };
  std::vector<Link> links;
};

struct Shape {
  std::vector<std::vector<int>> groups;  ///< devices
  /// By group: the share of the first group's time in which it sends, too. Empty: all of it.
  std::vector<double> beside;
  clusters::GroupSpan span;                 ///< of the first
  std::vector<clusters::GroupSpan> others;  ///< of those that another slowest hop links
  bool ring = false, pair = false;
  std::optional<plan::Stream> copies = {};  ///< between each device's memories
  std::array<Wires, kWirings> wires;
};

class Links final : public cost::SharedLinks {
 public:
  explicit Links(const cost::Pricing& pricing) : pricing_(pricing), cluster_(pricing.cluster()) {}

  void place(const plan::MeshAxes& axes) override {
    if (axes == axes_) return;
    axes_ = axes;
    placement_ = axes.placed() ? placements_.emplace(axes, static_cast<int>(placements_.size()) + 1).first->second : 0;
  }

  Seconds collective(CollectiveKind kind, Bytes message, std::span<const int> members, plan::Stream stream, int ranks,
                     std::span<const double> by_stage) override {
    const bool ring = kind == CollectiveKind::ring_shift;
    const std::optional<int> shape =
        mirrored(members, ranks, by_stage) ? mirrored_shape(members, ranks, by_stage) : shape_of(members, ranks, ring);
    if (!shape) return pricing_.collective_time(kind, message, pricing_.devices_of(axes_, members), stream);
    return known({*shape, bits_of(message), static_cast<std::int64_t>(kind), static_cast<std::int64_t>(stream), 0, 0},
                 [&] {
                   Shape& s = shapes_[at(*shape)];
                   const int n = static_cast<int>(members.size());
                   return slowest(s, [&](const clusters::GroupSpan& span) {
                     const cost::Alone alone = pricing_.collective_alone(kind, message, span, n, stream);
                     return together(s, wiring_of(kind, alone), kind, n, message, alone, 1);
                   });
                 });
  }

  Seconds exchange(Bytes message, std::span<const int> members, const cost::TokenChoice& choice, int ranks) override {
    const std::optional<int> shape = shape_of(members, ranks, false);
    if (!shape) return pricing_.exchange_time(message, pricing_.devices_of(axes_, members), choice);
    const std::int64_t chosen = choice.chosen << 32 | choice.experts;
    return known({*shape, bits_of(message), -1, chosen, choice.groups, choice.groups_chosen}, [&] {
      Shape& s = shapes_[at(*shape)];
      const int n = static_cast<int>(members.size());
      return slowest(s, [&](const clusters::GroupSpan& span) {
        const cost::ExchangeAlone rows = cost::exchange_alone(pricing_, span, n, message, choice);
        return together(s, Wiring::pairs, CollectiveKind::all_to_all, n, message, rows.price, rows.far);
      });
    });
  }

  Seconds send(Bytes message, int from, int to, int ranks) override {
    const std::array<int, 2> members = {from, to};
    const std::optional<int> shape = shape_of(members, ranks, false, true);
    if (!shape) {
      const std::vector<int> ends = pricing_.devices_of(axes_, members);
      return pricing_.send_time(message, ends.front(), ends.back());
    }
    return known({*shape, bits_of(message), -2, 0, 0, 0}, [&] {
      Shape& s = shapes_[at(*shape)];
      return slowest(s, [&](const clusters::GroupSpan& span) {
        return together(s, Wiring::rings, std::nullopt, 2, message, pricing_.send_alone(message, span), 1);
      });
    });
  }

  Seconds copy(plan::Stream stream, Bytes bytes, bool accumulate, int ranks) override {
    const int beside = std::min(ranks, std::max(1, cluster_.devices_per_node));
    const Numbers key{{-1, static_cast<std::int64_t>(stream), beside, 0, 0, 0}};
    auto found = shape_numbers_.find(key);
    if (found == shape_numbers_.end()) {
      Shape shape;
      shape.copies = stream;
      for (int device = 0; device < beside; ++device) shape.groups.push_back({device});
      prepare(shape);
      shapes_.push_back(std::move(shape));
      found = shape_numbers_.emplace(key, static_cast<int>(shapes_.size()) - 1).first;
    }
    return known({{found->second, bits_of(bytes), -3, accumulate, 0, 0}}, [&] {
      return together(shapes_[at(found->second)], Wiring::rings, std::nullopt, 1, bytes,
                      pricing_.copy_alone(stream, bytes, accumulate), 1, heavier(stream));
    });
  }

  cost::Crossings crossings(const cost::StreamMessage& message, int ranks) override {
    const int first = message.members.front(), n = static_cast<int>(message.members.size());
    const CrossingKey key{message.stream,
                          message.collective,
                          message.bytes.value,
                          first,
                          n > 1 ? message.members[1] - first : 0,
                          message.members.back(),
                          n,
                          message.accumulate,
                          ranks,
                          placement_};
    const auto [known, fresh] = crossings_.try_emplace(key);
    if (fresh) known->second = crossings_of(message, ranks);
    return known->second;
  }

 private:
  using CrossingKey =
      std::tuple<plan::Stream, std::optional<CollectiveKind>, double, int, int, int, int, bool, int, int>;

  cost::Crossings crossings_of(const cost::StreamMessage& message, int ranks) {
    const int first = message.members.front(), n = static_cast<int>(message.members.size());
    Shape shape;
    cost::Alone alone;
    Wiring wiring = Wiring::rings;
    if (message.collective) {
      shape.ring = *message.collective == CollectiveKind::ring_shift;
      const int stride = n > 1 ? message.members[1] - first : 0;
      if (stride <= 0 || message.members.back() - first != stride * (n - 1)) return {};
      shape.groups = equal_groups(message.members, ranks, false);
      if (shape.groups.empty()) return {};
      prepare(shape);
      alone = pricing_.collective_alone(*message.collective, message.bytes, shape.span, n, message.stream);
      wiring = wiring_of(*message.collective, alone);
    } else {
      shape.copies = message.stream;
      const int beside = std::min(ranks, std::max(1, cluster_.devices_per_node));
      for (int device = first; device < first + beside; ++device) shape.groups.push_back({device});
      prepare(shape);
      alone = pricing_.copy_alone(message.stream, message.bytes, message.accumulate);
    }
    if (alone.transfer.value <= 0) return {};
    return crossings(shape, wiring, message, alone);
  }

  static Wiring wiring_of(CollectiveKind kind, const cost::Alone& alone) {
    return kind == CollectiveKind::all_to_all ? Wiring::pairs : alone.tree ? Wiring::trees : Wiring::rings;
  }

  /// As together() adds up, but link by link.
  cost::Crossings crossings(const Shape& shape, Wiring wiring, const cost::StreamMessage& message,
                            const cost::Alone& alone) {
    Traffic traffic;
    Connections connections(*fabric_, cluster_, traffic);
    std::map<int, double> loads;  // by direction
    double most = 0;              // bytes/s of a connection by itself
    const double heavy = heavier(message.stream);
    for (const std::vector<int>& devices : shape.groups) {
      Communicator c;
      connect(shape, wiring, devices, connections, c);
      const Wired& wired = c.wired(wiring);
      const std::span<const Use> uses(traffic.uses.data() + wired.first, wired.last - wired.first);
      if (most == 0)
        most = alone.stretch * message.bytes.value *
               sent_share(wiring, message.collective, static_cast<int>(devices.size())) /
               std::max(1, wired.connections) / alone.transfer.value;
      Scales scales(alone.in_switch ? inside_switch(*message.collective, shape.span) : 1, 1);
      for (const Use& use : uses) {
        const Direction& d = fabric_->direction(traffic.links[at(use.link)]);
        scales.fit(own(d), use.count, capacity(d), most);
      }
      scales.fill(wiring);
      for (const Use& use : uses) {
        const int direction = traffic.links[at(use.link)];
        const bool inside = own(fabric_->direction(direction));
        loads[direction] += use.count * scales.of(inside) * (inside ? 1 : heavy);
      }
    }
    double longer = 1;
    for (const auto& [direction, load] : loads)
      if (const double room = capacity(fabric_->direction(direction)); room > 0)
        longer = std::max(longer, load * most / room);
    cost::Crossings out{.rate = most / longer, .latency = alone.latency.value};
    for (const auto& [direction, load] : loads)
      if (const double room = capacity(fabric_->direction(direction)); room > 0)
        out.shares.emplace_back(direction, load * out.rate / room);
    return out;
  }
  static bool own(const Direction& d) { return d.kind == clusters::LinkKind::nvlink; }
  [[nodiscard]] double capacity(const Direction& d) const {
    return cost::shared_capacity(pricing_.calibration(), d.kind, base::BytesPerSecond{d.bandwidth}).value;
  }

  /// A link to drives has the rate of the drives' faster direction.
  [[nodiscard]] double heavier(plan::Stream stream) const {
    const clusters::Storage& drives = cluster_.nvme;
    if (stream == plan::Stream::to_nvme && drives.write.value > 0) return std::max(1.0, drives.read / drives.write);
    if (stream == plan::Stream::from_nvme && drives.read.value > 0) return std::max(1.0, drives.write / drives.read);
    return 1;
  }
  static std::int64_t bits_of(Bytes bytes) { return std::llround(bytes.value); }

  template <class Price>
  Seconds known(const Numbers& key, const Price& price) {
    if (const auto found = prices_.find(key); found != prices_.end()) return Seconds{found->second};
    const Seconds time = price();
    prices_.emplace(key, time.value);
    return time;
  }

  /// The groups of the same form among `ranks` neighbours; nothing for groups without one stride.
  std::optional<int> shape_of(std::span<const int> members, int ranks, bool ring, bool pair = false) {
    const int per_node = std::max(1, cluster_.devices_per_node);
    const int first = members.front(), stride = members[1] - first, n = static_cast<int>(members.size());
    if (!pair && (stride <= 0 || members.back() - first != stride * (n - 1))) return std::nullopt;
    const int beside = beside_of(members, ranks, pair);
    const Numbers key{{first % per_node, stride, n, beside, ring, pair + 2 * placement_}};
    if (const auto found = shape_numbers_.find(key); found != shape_numbers_.end()) return found->second;
    Shape shape;
    shape.ring = ring, shape.pair = pair;
    shape.groups = equal_groups(members, ranks, pair);
    if (shape.groups.empty()) return std::nullopt;
    prepare(shape);
    shapes_.push_back(std::move(shape));
    shape_numbers_.emplace(key, static_cast<int>(shapes_.size()) - 1);
    return static_cast<int>(shapes_.size()) - 1;
  }

  /// How many of a stage's ranks, from a group's first on, matter to it.
  [[nodiscard]] int beside_of(std::span<const int> members, int ranks, bool pair) const {
    const int first = members.front(), extent = pair ? 1 : (members[1] - first) * static_cast<int>(members.size());
    const bool within = placement_ == 0 && cluster_.node_of(first) == cluster_.node_of(members.back());
    return std::max(extent, std::min(ranks, within && !pair ? std::max(1, cluster_.devices_per_node) : kNeighbourhood));
  }
  /// Devices of a group and of its equals among these ranks: from the first one's block on, as a group of a stage is
  /// one of its first.
  [[nodiscard]] std::vector<std::vector<int>> equal_groups(std::span<const int> members, int ranks, bool pair) const {
    const int first = members.front(), stride = members[1] - first, n = static_cast<int>(members.size());
    const int extent = pair ? 1 : stride * n, beside = beside_of(members, ranks, pair);
    std::vector<std::vector<int>> out;
    for (int block = 0; block + extent <= beside; block += extent)
      for (int k = 0; k < (pair ? 1 : std::min({stride, ranks, kNeighbourhood})); ++k) {
        std::vector<int> devices;
        for (int i = 0; i < n; ++i) devices.push_back(first + block + k + i * stride);
        if (*std::ranges::max_element(devices) < cluster_.size()) out.push_back(pricing_.devices_of(axes_, devices));
      }
    return out;
  }

  /// Whether the group is one of a stage with its mirror image, in few enough ranks to count all such groups.
  static bool mirrored(std::span<const int> members, int ranks, std::span<const double> by_stage) {
    return !by_stage.empty() && std::ssize(by_stage) * ranks <= kNeighbourhood &&
           members.front() / ranks != members.back() / ranks;
  }
  /// The groups of all stages with their mirror images: the given one first, then its equals of each stage. One that
  /// has less to reduce is beside it for so much less of its time.
  std::optional<int> mirrored_shape(std::span<const int> members, int ranks, std::span<const double> by_stage) {
    const int n = static_cast<int>(members.size()) / 2, stride = n > 1 ? members[1] - members[0] : 1;
    const int stages = static_cast<int>(by_stage.size()), own = members.front() / ranks;
    std::int64_t sizes = stages * 31 + placement_;
    for (const double values : by_stage) sizes = sizes * 31 + std::llround(values);
    const Numbers key{{-2, members.front(), stride, n, ranks, sizes}};
    if (const auto found = shape_numbers_.find(key); found != shape_numbers_.end()) return found->second;
    Shape shape;
    shape.groups.push_back(pricing_.devices_of(axes_, members));
    shape.beside.push_back(1);
    for (int stage = 0; stage < stages / 2; ++stage)
      for (int block = 0; block + stride * n <= ranks; block += stride * n)
        for (int k = 0; k < stride; ++k) {
          std::vector<int> devices;
          for (const int of : {stage, stages - 1 - stage})
            for (int i = 0; i < n; ++i) devices.push_back(of * ranks + block + k + i * stride);
          if (std::ranges::is_permutation(devices, members)) continue;
          shape.groups.push_back(pricing_.devices_of(axes_, devices));
          shape.beside.push_back(std::min(1.0, by_stage[at(stage)] / by_stage[at(own)]));
        }
    prepare(shape);
    shapes_.push_back(std::move(shape));
    shape_numbers_.emplace(key, static_cast<int>(shapes_.size()) - 1);
    return static_cast<int>(shapes_.size()) - 1;
  }

  void prepare(Shape& shape) {
    if (!fabric_) fabric_ = fabric_of(cluster_);
    const std::vector<int>& devices = shape.groups.front();
    if (shape.copies) return count(shape, Wiring::rings);
    shape.span = span_of(shape, devices);
    if (shape.span.within_node && !alike_within_nodes()) add_others(shape);
    count(shape, Wiring::rings);
    if (shape.span.within_node) return;
    shape.span.bandwidth = std::max(shape.span.bandwidth, base::BytesPerSecond{alone_});
  }

  [[nodiscard]] clusters::GroupSpan span_of(const Shape& shape, const std::vector<int>& devices) const {
    return clusters::span_of(cluster_, shape.ring ? cost::slowest_hop(cluster_, devices) : devices);
  }
  /// Whether any two devices of a node are linked as any other two.
  [[nodiscard]] bool alike_within_nodes() const {
    using enum clusters::NodeFabric;
    const clusters::NodeFabric fabric = cluster_.shape ? cluster_.shape->node.fabric : nvswitch;
    return fabric == nvswitch || fabric == shared_memory;
  }
  void add_others(Shape& shape) const {
    const auto alike = [](const clusters::GroupSpan& a, const clusters::GroupSpan& b) {
      return a.within_node == b.within_node && a.bandwidth.value == b.bandwidth.value &&
             a.latency.value == b.latency.value;
    };
    for (const std::vector<int>& devices : shape.groups) {
      const clusters::GroupSpan span = span_of(shape, devices);
      if (alike(span, shape.span)) continue;
      if (std::ranges::none_of(shape.others, [&](const clusters::GroupSpan& other) { return alike(span, other); }))
        shape.others.push_back(span);
    }
  }
  /// What the group takes that is linked worst.
  template <class Price>
  static Seconds slowest(const Shape& shape, const Price& price) {
    Seconds most = price(shape.span);
    for (const clusters::GroupSpan& span : shape.others) most = std::max(most, price(span));
    return most;
  }

  /// Counts the connections of all groups; sets alone_, a member's bandwidth on the network's cables.
  void count(Shape& shape, Wiring wiring) {
    Traffic traffic;
    Connections connections(*fabric_, cluster_, traffic);
    Wires& wires = shape.wires[static_cast<std::size_t>(wiring)];
    alone_ = 0;
    for (std::size_t g = 0; g < shape.groups.size(); ++g) {
      const std::vector<int>& devices = shape.groups[g];
      Communicator c;
      connect(shape, wiring, devices, connections, c);
      const Wired& wired = c.wired(wiring);
      if (wires.connections == 0) wires.connections = std::max(1, wired.connections);
      const std::span<const Use> uses(traffic.uses.data() + wired.first, wired.last - wired.first);
      if (alone_ == 0) alone_ = on_cables(traffic, uses) * wires.connections / shape.span.per_node;
      add(wires, traffic, uses, shape.beside.empty() ? 1 : shape.beside[g]);
    }
    std::ranges::sort(wires.links);
    wires.links.erase(std::unique(wires.links.begin(), wires.links.end()), wires.links.end());
  }

  static void connect(const Shape& shape, Wiring wiring, const std::vector<int>& devices, Connections& connections,
                      Communicator& c) {
    if (shape.copies) return connections.add_copies(devices[0], *shape.copies, c);
    if (shape.pair) return connections.add_pair(devices[0], devices[1], c);
    if (shape.ring) return connections.add_shift(devices, c);
    connections.add_rings(devices, c);
    if (wiring == Wiring::trees) connections.add_trees(devices, c);
    if (wiring == Wiring::pairs) connections.add_exchange(devices, c);
  }

  /// Bytes/s of one connection on the network's cables.
  [[nodiscard]] double on_cables(const Traffic& traffic, std::span<const Use> uses) const {
    double connection = std::numeric_limits<double>::infinity();
    for (const Use& use : uses) {
      const Direction& d = fabric_->direction(traffic.links[at(use.link)]);
      if (d.kind == clusters::LinkKind::network) connection = std::min(connection, d.bandwidth / use.count);
    }
    return std::isfinite(connection) ? connection : 0;
  }

  void add(Wires& wires, const Traffic& traffic, std::span<const Use> uses, double beside) const {
    std::vector<Crossing> crossings;
    for (const Use& use : uses) {
      const Direction& d = fabric_->direction(traffic.links[at(use.link)]);
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

  /// As a flow of sim/links/transfers.h beside its equals.
  Seconds together(Shape& shape, Wiring wiring, std::optional<CollectiveKind> kind, int ranks, Bytes message,
                   const cost::Alone& alone, double far, double heavier = 1) {
    if (wiring != Wiring::rings && alone.transfer <= alone.latency && kind != CollectiveKind::all_to_all)
      wiring = Wiring::rings;
    if (alone.transfer.value <= 0) return alone.total();
    if (shape.wires[static_cast<std::size_t>(wiring)].connections == 0) count(shape, wiring);
    const Wires& wires = shape.wires[static_cast<std::size_t>(wiring)];
    const double bytes = alone.stretch * message.value * sent_share(wiring, kind, ranks) / wires.connections;
    const double most = bytes / alone.transfer.value;
    std::vector<Scales> scales;
    for (const std::vector<Crossing>& kind_of_group : wires.kinds) {
      Scales& one = scales.emplace_back(alone.in_switch ? inside_switch(*kind, shape.span) : 1, far);
      for (const Crossing& c : kind_of_group) one.fit(c.own, c.count, c.capacity, most);
      one.fill(wiring);
    }
    double longer = 1;
    for (const Wires::Link& link : wires.links) {
      double load = 0;
      for (std::size_t k = 0; k < link.all.size(); ++k)
        load += link.all[k] * (scales[k].of(link.own) * (link.own ? 1 : heavier));
      if (link.capacity > 0) longer = std::max(longer, load * most / link.capacity);
    }
    return alone.latency + longer * alone.transfer;
  }

  std::map<CrossingKey, cost::Crossings> crossings_;
  plan::MeshAxes axes_;
  int placement_ = 0;  ///< number of axes_; 0: in the order of devices
  std::map<plan::MeshAxes, int> placements_;
  const cost::Pricing& pricing_;
  const clusters::Cluster& cluster_;
  std::shared_ptr<const Fabric> fabric_;
  std::vector<Shape> shapes_;
  std::unordered_map<Numbers, int, NumbersHash> shape_numbers_;
  std::unordered_map<Numbers, double, NumbersHash> prices_;
  double alone_ = 0;
};

}  // namespace

std::unique_ptr<cost::SharedLinks> shared_links(const cost::Pricing& pricing) {
  const clusters::Cluster& cluster = pricing.cluster();
  if (cluster.device().kind == clusters::DeviceKind::cpu || cluster.device_vertices.empty()) return nullptr;
  return std::make_unique<Links>(pricing);
}

}  // namespace orrery::sim
