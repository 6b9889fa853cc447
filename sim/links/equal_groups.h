#pragma once
/// Groups of equal form that send at the same time, and the links that they cross: each form is wired and counted once.
/// Private to sim/.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/index.h"
#include "clusters/routes.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/schedule.h"
#include "sim/links/fabric.h"
#include "sim/links/traffic.h"

namespace orrery::sim {

/// A key of six numbers.
struct Numbers {
  std::array<std::int64_t, 6> values;
  bool operator==(const Numbers&) const = default;
};
struct NumbersHash {
  std::size_t operator()(const Numbers& key) const;
};

/// A link as one group crosses it.
struct Crossing {
  bool own = false;  ///< of the devices themselves
  double capacity = 0;
  int count = 0;  ///< connections
  auto operator<=>(const Crossing&) const = default;
};

/// One wiring of groups of equal form. Groups that cross equal links are of one kind.
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

/// Groups of one form.
struct GroupForm {
  std::vector<std::vector<int>> groups;  ///< devices
  /// By group: the share of the first group's time in which it sends, too. Empty: all of it.
  std::vector<double> beside;
  clusters::GroupSpan span;                 ///< of the first
  std::vector<clusters::GroupSpan> others;  ///< of those that another slowest hop links
  bool ring = false, pair = false;
  std::optional<plan::Stream> copies = {};  ///< between each device's memories
  std::array<Wires, kWirings> wires;
};

class EqualGroups {
 public:
  /// How the members of a group talk: as any collective does, each to the next one only, or one to one other.
  enum class Talk : std::uint8_t { all, ring, pair };

  /// `pricing` must outlive this. Of a cluster with devices on links.
  explicit EqualGroups(const cost::Pricing& pricing) : pricing_(pricing), cluster_(pricing.cluster()) {}

  /// From now on ranks run on these devices.
  void place(const plan::MeshAxes& axes);
  /// A number of the placement; 0: in the order of devices.
  [[nodiscard]] int placement() const { return placement_; }
  [[nodiscard]] std::vector<int> devices_of(std::span<const int> members) const {
    return pricing_.devices_of(axes_, members);
  }

  /// The number of the form that a group of a stage of `ranks` ranks has, with its equals among them; nothing for a
  /// group without one stride.
  [[nodiscard]] std::optional<int> form_of(std::span<const int> members, int ranks, Talk talk);
  /// The same with the groups of all stages and their mirror images, in an order that mirrors. `by_stage`: what each
  /// stage has to reduce. Only where mirrors() holds.
  [[nodiscard]] int mirrored_form_of(std::span<const int> members, int ranks, std::span<const double> by_stage);
  /// Whether the group is one of a stage with its mirror image, in few enough ranks to count all such groups.
  [[nodiscard]] static bool mirrors(std::span<const int> members, int ranks, std::span<const double> by_stage);
  /// Copies of the ranks of a node at once.
  [[nodiscard]] int copies_of(plan::Stream stream, int ranks);

  [[nodiscard]] const GroupForm& form(int number) const { return forms_[base::at(number)]; }
  /// Counted when they are first wanted.
  [[nodiscard]] const Wires& wires(int number, Wiring wiring);

  /// The form of one group, or of copies of `ranks` devices in a row, which is not kept; nothing where form_of() has
  /// none.
  [[nodiscard]] std::optional<GroupForm> form_alone(std::span<const int> members, int ranks, Talk talk) const;
  [[nodiscard]] GroupForm copies_alone(plan::Stream stream, int first, int ranks) const;

  /// Made when it is first wanted.
  [[nodiscard]] const Fabric& fabric() const;
  [[nodiscard]] static bool own(const Direction& d) { return d.kind == clusters::LinkKind::nvlink; }
  [[nodiscard]] double capacity(const Direction& d) const;
  /// Calls body(devices, wired, traffic, uses) for each group of the form: its connections, and the links that they
  /// use.
  using Body = std::function<void(const std::vector<int>& devices, const Wired& wired, const Traffic& traffic,
                                  std::span<const Use> uses)>;
  void each_group(const GroupForm& form, Wiring wiring, const Body& body) const;

 private:
  [[nodiscard]] int keep(const Numbers& key, GroupForm form);
  [[nodiscard]] int beside_of(std::span<const int> members, int ranks, Talk talk) const;
  [[nodiscard]] std::vector<std::vector<int>> equals_of(std::span<const int> members, int ranks, Talk talk) const;
  void prepare(GroupForm& form) const;
  [[nodiscard]] clusters::GroupSpan span_of(const GroupForm& form, const std::vector<int>& devices) const;
  [[nodiscard]] bool alike_within_nodes() const;
  void add_others(GroupForm& form) const;
  double count(GroupForm& form, Wiring wiring) const;
  [[nodiscard]] double on_cables(const Traffic& traffic, std::span<const Use> uses) const;
  void add(Wires& wires, const Traffic& traffic, std::span<const Use> uses, double beside) const;

  const cost::Pricing& pricing_;
  const clusters::Cluster& cluster_;
  mutable std::unique_ptr<const Fabric> fabric_;
  plan::MeshAxes axes_;
  int placement_ = 0;  ///< number of axes_
  std::map<plan::MeshAxes, int> placements_;
  std::vector<GroupForm> forms_;
  std::unordered_map<Numbers, int, NumbersHash> numbers_;
};

}  // namespace orrery::sim
