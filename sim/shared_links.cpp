// Prices of messages beside their equals, from the links that all of them cross.
#include "sim/shared_links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cost/network/messages.h"
#include "sim/links/equal_groups.h"
#include "sim/links/loads.h"

namespace orrery::sim {
namespace {

using base::at;
using base::Bytes;
using base::Seconds;
using plan::CollectiveKind;
using Talk = EqualGroups::Talk;

Wiring wiring_of(CollectiveKind kind, const cost::Alone& alone) {
  return kind == CollectiveKind::all_to_all ? Wiring::pairs : alone.tree ? Wiring::trees : Wiring::rings;
}

Talk talk_of(CollectiveKind kind) {
  return kind == CollectiveKind::ring_shift ? Talk::ring : Talk::all;
}

/// What the group takes that is linked worst.
template <class Price>
Seconds slowest(const GroupForm& form, const Price& price) {
  Seconds most = price(form.span);
  for (const clusters::GroupSpan& span : form.others) most = std::max(most, price(span));
  return most;
}

std::int64_t bits_of(Bytes bytes) {
  return std::llround(bytes.value);
}

class Links final : public cost::SharedLinks {
 public:
  explicit Links(const cost::Pricing& pricing) : pricing_(pricing), cluster_(pricing.cluster()), groups_(pricing) {}

  void place(const plan::MeshAxes& axes) override { groups_.place(axes); }

  Seconds collective(CollectiveKind kind, Bytes message, std::span<const int> members, plan::Stream stream, int ranks,
                     std::span<const double> by_stage) override {
    const std::optional<int> form = EqualGroups::mirrors(members, ranks, by_stage)
                                        ? groups_.mirrored_form_of(members, ranks, by_stage)
                                        : groups_.form_of(members, ranks, talk_of(kind));
    if (!form) return pricing_.collective_time(kind, message, groups_.devices_of(members), stream);
    return known({{*form, bits_of(message), static_cast<std::int64_t>(kind), static_cast<std::int64_t>(stream), 0, 0}},
                 [&] {
                   const int n = static_cast<int>(members.size());
                   return slowest(groups_.form(*form), [&](const clusters::GroupSpan& span) {
                     const cost::Alone alone = pricing_.collective_alone(kind, message, span, n, stream);
                     return together(*form, wiring_of(kind, alone), kind, n, message, alone, 1);
                   });
                 });
  }

  Seconds exchange(Bytes message, std::span<const int> members, const cost::TokenChoice& choice, int ranks) override {
    const std::optional<int> form = groups_.form_of(members, ranks, Talk::all);
    if (!form) return pricing_.exchange_time(message, groups_.devices_of(members), choice);
    const std::int64_t chosen = choice.chosen << 32 | choice.experts;
    return known({{*form, bits_of(message), -1, chosen, choice.groups, choice.groups_chosen}}, [&] {
      const int n = static_cast<int>(members.size());
      return slowest(groups_.form(*form), [&](const clusters::GroupSpan& span) {
        const cost::ExchangeAlone rows = cost::exchange_alone(pricing_, span, n, message, choice);
        return together(*form, Wiring::pairs, CollectiveKind::all_to_all, n, message, rows.price, rows.far);
      });
    });
  }

  Seconds send(Bytes message, int from, int to, int ranks) override {
    const std::array<int, 2> members = {from, to};
    const std::optional<int> form = groups_.form_of(members, ranks, Talk::pair);
    if (!form) {
      const std::vector<int> ends = groups_.devices_of(members);
      return pricing_.send_time(message, ends.front(), ends.back());
    }
    return known({{*form, bits_of(message), -2, 0, 0, 0}}, [&] {
      return slowest(groups_.form(*form), [&](const clusters::GroupSpan& span) {
        return together(*form, Wiring::rings, std::nullopt, 2, message, pricing_.send_alone(message, span), 1);
      });
    });
  }

  Seconds copy(plan::Stream stream, Bytes bytes, bool accumulate, int ranks) override {
    const int form = groups_.copies_of(stream, ranks);
    return known({{form, bits_of(bytes), -3, accumulate, 0, 0}}, [&] {
      return together(form, Wiring::rings, std::nullopt, 1, bytes, pricing_.copy_alone(stream, bytes, accumulate), 1,
                      heavier(stream));
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
                          groups_.placement()};
    const auto [known, fresh] = crossings_.try_emplace(key);
    if (fresh) known->second = crossings_of(message, ranks);
    return known->second;
  }

 private:
  using CrossingKey =
      std::tuple<plan::Stream, std::optional<CollectiveKind>, double, int, int, int, int, bool, int, int>;

  cost::Crossings crossings_of(const cost::StreamMessage& message, int ranks) const {
    const std::span<const int> members = message.members;
    if (!message.collective) {
      const cost::Alone alone = pricing_.copy_alone(message.stream, message.bytes, message.accumulate);
      return crossings_of(groups_.copies_alone(message.stream, members.front(), ranks), Wiring::rings, message, alone);
    }
    const std::optional<GroupForm> form = groups_.form_alone(members, ranks, talk_of(*message.collective));
    if (!form) return {};
    const cost::Alone alone = pricing_.collective_alone(*message.collective, message.bytes, form->span,
                                                        static_cast<int>(members.size()), message.stream);
    return crossings_of(*form, wiring_of(*message.collective, alone), message, alone);
  }

  /// As together() adds up, but link by link.
  cost::Crossings crossings_of(const GroupForm& form, Wiring wiring, const cost::StreamMessage& message,
                               const cost::Alone& alone) const {
    if (alone.transfer.value <= 0) return {};
    std::map<int, double> loads;  // by direction
    double most = 0;              // bytes/s of a connection by itself
    const double heavy = heavier(message.stream);
    groups_.each_group(
        form, wiring,
        [&](const std::vector<int>& devices, const Wired& wired, const Traffic& traffic, std::span<const Use> uses) {
          if (most == 0)
            most = alone.stretch * message.bytes.value *
                   sent_share(wiring, message.collective, static_cast<int>(devices.size())) /
                   std::max(1, wired.connections) / alone.transfer.value;
          Scales scales(alone.in_switch ? inside_switch(*message.collective, form.span) : 1, 1);
          for (const Use& use : uses) {
            const Direction& d = groups_.fabric().direction(traffic.links[at(use.link)]);
            scales.fit(EqualGroups::own(d), use.count, groups_.capacity(d), most);
          }
          scales.fill(wiring);
          for (const Use& use : uses) {
            const int direction = traffic.links[at(use.link)];
            const bool inside = EqualGroups::own(groups_.fabric().direction(direction));
            loads[direction] += use.count * scales.of(inside) * (inside ? 1 : heavy);
          }
        });
    const auto room_of = [&](int direction) { return groups_.capacity(groups_.fabric().direction(direction)); };
    double longer = 1;
    for (const auto& [direction, load] : loads)
      if (const double room = room_of(direction); room > 0) longer = std::max(longer, load * most / room);
    cost::Crossings out{.rate = most / longer, .latency = alone.latency.value};
    for (const auto& [direction, load] : loads)
      if (const double room = room_of(direction); room > 0) out.shares.emplace_back(direction, load * out.rate / room);
    return out;
  }

  /// A link to drives has the rate of the drives' faster direction.
  [[nodiscard]] double heavier(plan::Stream stream) const {
    const clusters::Storage& drives = cluster_.nvme;
    if (stream == plan::Stream::to_nvme && drives.write.value > 0) return std::max(1.0, drives.read / drives.write);
    if (stream == plan::Stream::from_nvme && drives.read.value > 0) return std::max(1.0, drives.write / drives.read);
    return 1;
  }

  template <class Price>
  Seconds known(const Numbers& key, const Price& price) {
    if (const auto found = prices_.find(key); found != prices_.end()) return Seconds{found->second};
    const Seconds time = price();
    prices_.emplace(key, time.value);
    return time;
  }

  /// As a flow of sim/links/transfers.h beside its equals.
  Seconds together(int form, Wiring wiring, std::optional<CollectiveKind> kind, int ranks, Bytes message,
                   const cost::Alone& alone, double far, double heavier = 1) {
    if (wiring != Wiring::rings && alone.transfer <= alone.latency && kind != CollectiveKind::all_to_all)
      wiring = Wiring::rings;
    if (alone.transfer.value <= 0) return alone.total();
    const Wires& wires = groups_.wires(form, wiring);
    const double bytes = alone.stretch * message.value * sent_share(wiring, kind, ranks) / wires.connections;
    const double most = bytes / alone.transfer.value;
    std::vector<Scales> scales;
    for (const std::vector<Crossing>& kind_of_group : wires.kinds) {
      Scales& one = scales.emplace_back(alone.in_switch ? inside_switch(*kind, groups_.form(form).span) : 1, far);
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

  const cost::Pricing& pricing_;
  const clusters::Cluster& cluster_;
  EqualGroups groups_;
  std::map<CrossingKey, cost::Crossings> crossings_;
  std::unordered_map<Numbers, double, NumbersHash> prices_;
};

}  // namespace

std::unique_ptr<cost::SharedLinks> shared_links(const cost::Pricing& pricing) {
  const clusters::Cluster& cluster = pricing.cluster();
  if (cluster.device().kind == clusters::DeviceKind::cpu || cluster.device_vertices.empty()) return nullptr;
  return std::make_unique<Links>(pricing);
}

}  // namespace orrery::sim
