/// Boxes of a torus and the assignment of a mesh's axes to its dimensions.
#include "clusters/torus.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <tuple>

#include "base/ensure.h"
#include "base/index.h"

namespace orrery::clusters {

using base::at;

namespace {

int devices_of(const std::vector<int>& extents) {
  return std::accumulate(extents.begin(), extents.end(), 1, std::multiplies<>());
}

}  // namespace

double TorusGroup::links(bool shared) const {
  double sum = 0;
  for (const TorusSide& side : sides) sum += 1.0 * side.links() / (shared ? side.stride : 1);
  return sum;
}

int TorusGroup::hops() const {
  int sum = 0;
  for (const TorusSide& side : sides) sum += (side.wraps() ? side.size / 2 : side.size - 1) * side.stride;
  return sum;
}

double TorusGroup::exchange_links(bool shared) const {
  constexpr double kOfRing = 8, kOfLine = 4;
  double members = 1, least = links(false);
  for (const TorusSide& side : sides) members *= side.size;
  for (const TorusSide& side : sides) {
    const double middle = side.size % 2 == 0 ? 0 : 1.0 / side.size;  // of an odd number no link lies halfway
    const double passing = (side.size - middle) / (side.wraps() ? kOfRing : kOfLine) * (shared ? side.stride : 1);
    least = std::min(least, (members - 1) / members / passing);
  }
  return least;
}

std::optional<TorusGroup> torus_group(const Torus& torus, std::span<const int> members) {
  std::vector<std::set<int>> places(torus.dims.size());
  for (const int member : members) {
    const std::vector<int> place = torus.place(member);
    for (std::size_t d = 0; d < place.size(); ++d) places[d].insert(place[d]);
  }
  TorusGroup group;
  std::size_t product = 1;
  for (std::size_t d = 0; d < places.size(); ++d) {
    const std::set<int>& taken = places[d];
    product *= taken.size();
    if (taken.size() == 1) continue;
    const int stride = *std::next(taken.begin()) - *taken.begin();
    int expected = *taken.begin();
    for (const int place : taken) {
      if (place != expected) return std::nullopt;
      expected += stride;
    }
    group.sides.push_back({static_cast<int>(d), torus.dims[d], *taken.begin(), static_cast<int>(taken.size()), stride});
  }
  if (product != members.size()) return std::nullopt;
  return group;
}

int torus_distance(const Torus& torus, int a, int b) {
  const std::vector<int> from = torus.place(a), to = torus.place(b);
  int hops = 0;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const int apart = std::abs(from[d] - to[d]);
    hops += std::min(apart, torus.dims[d] - apart);
  }
  return hops;
}

namespace {

using Parts = std::vector<int>;  // by dimension

/// Axis by axis, each in as many whole dimensions as multiply to its size, the most first. None if an axis finds none.
std::optional<std::vector<Parts>> in_whole_dimensions(const std::vector<int>& dims, std::span<const int> axes) {
  std::vector<bool> taken(dims.size(), false);
  std::vector<Parts> out;
  for (const int size : axes) {
    Parts parts(dims.size(), 1);
    // Of subsets with equally many dimensions, the first in lexicographic order.
    std::vector<std::size_t> best, chosen;
    const std::function<void(std::size_t, int)> choose = [&](std::size_t d, int product) {
      if (product == size && !chosen.empty() && chosen.size() > best.size()) best = chosen;
      for (; d < dims.size(); ++d) {
        if (taken[d] || size % (product * dims[d]) != 0) continue;
        chosen.push_back(d);
        choose(d + 1, product * dims[d]);
        chosen.pop_back();
      }
    };
    choose(0, 1);
    if (best.empty() && size > 1) return std::nullopt;
    for (const std::size_t d : best) parts[d] = dims[d], taken[d] = true;
    out.push_back(std::move(parts));
  }
  return out;
}

/// Calls `found` with every way to take `size` devices of what `left` of each dimension's others leave.
void each_division(const Parts& left, int size, std::size_t d, Parts& parts,
                   const std::function<void(const Parts&)>& found) {
  if (d == left.size()) {
    if (size == 1) found(parts);
    return;
  }
  for (int part = 1; part <= size; ++part) {
    if (size % part != 0 || left[d] % part != 0) continue;
    parts[d] = part;
    each_division(left, size / part, d + 1, parts, found);
  }
  parts[d] = 1;
}

std::vector<Parts> in_divided_dimensions(const std::vector<int>& dims, std::span<const int> axes) {
  Parts left = dims;
  std::vector<Parts> out;
  for (const int size : axes) {
    const auto rank = [&](const Parts& parts) {
      int in_whole = 1, whole = 0, beside = 1;
      for (std::size_t d = 0; d < parts.size(); ++d) {
        if (parts[d] == dims[d]) in_whole *= parts[d], whole += parts[d] > 1 ? 1 : 0;
        if (left[d] < dims[d]) beside *= parts[d];
      }
      return std::make_tuple(in_whole, whole, beside, parts);
    };
    Parts best, parts(dims.size(), 1);
    each_division(left, size, 0, parts, [&](const Parts& one) {
      if (best.empty() || rank(one) > rank(best)) best = one;
    });
    ENSURE(!best.empty(), "an axis of {} does not divide what is left of a torus", size);
    for (std::size_t d = 0; d < dims.size(); ++d) left[d] /= best[d];
    out.push_back(std::move(best));
  }
  return out;
}

}  // namespace

TorusPlaces place_on_torus(const Torus& torus, std::span<const int> axes) {
  int ranks = 1;
  for (const int size : axes) ranks *= size;
  ENSURE(ranks == devices_of(torus.dims), "a mesh of {} ranks on a torus of {}", ranks, devices_of(torus.dims));
  if (auto whole = in_whole_dimensions(torus.dims, axes)) return {std::move(*whole)};
  return {in_divided_dimensions(torus.dims, axes)};
}

std::vector<int> TorusPlaces::devices(const Torus& torus) const {
  std::vector<int> out(at(devices_of(torus.dims)));
  Parts place(torus.dims.size());
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    // Of a dimension, axes that communicate more have the neighbours. Within an axis the last dimension runs fastest.
    std::fill(place.begin(), place.end(), 0);
    Parts stride(torus.dims.size(), 1);
    auto rest = static_cast<int>(rank);
    for (const Parts& axis : parts) {
      for (std::size_t d = axis.size(); d-- > 0;) {
        place[d] += rest % axis[d] * stride[d];
        rest /= axis[d];
        stride[d] *= axis[d];
      }
    }
    out[rank] = torus.device(place);
  }
  return out;
}

}  // namespace orrery::clusters
