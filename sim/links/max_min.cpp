// Progressive filling over the part of the network that a change can affect.
#include "sim/links/max_min.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/ensure.h"

namespace orrery::sim {

namespace {
// Tolerances for rounding: a resource that its flows could overfill by less is not full, and levels that differ by less
// are equal.
constexpr double kSlack = 1e-9;
constexpr double kSameLevel = 1e-12;
}  // namespace

double steady_rate(double rate) {
  constexpr int kDropped = 52 - 44;
  constexpr std::uint64_t kUnit = std::uint64_t{1} << kDropped;
  if (!std::isfinite(rate)) return rate;
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(rate) + kUnit / 2) & ~(kUnit - 1));
}

int MaxMin::add_resource(double capacity) {
  ENSURE(capacity > 0, "a resource of {} bytes/s", capacity);
  resources_.emplace_back().capacity = capacity;
  return resources() - 1;
}

int MaxMin::add_path(const std::vector<clusters::Load>& loads, double most) {
  Path path;
  path.bound = most;
  for (const clusters::Load& load : loads) {
    ENSURE(load.link >= 0 && load.link < resources() && load.share > 0, "share {} of resource {} of {}", load.share,
           load.link, resources());
    path.crossings.push_back({load.link, load.share, -1});
    path.bound = std::min(path.bound, resources_[at(load.link)].capacity / load.share);
  }
  paths_.push_back(std::move(path));
  return static_cast<int>(paths_.size()) - 1;
}

void MaxMin::list(Path& path, int index) {
  for (std::size_t c = 0; c < path.crossings.size(); ++c) {
    auto& active = resources_[at(path.crossings[c].resource)].active;
    path.crossings[c].place = static_cast<int>(active.size());
    active.emplace_back(index, static_cast<int>(c));
  }
}

void MaxMin::unlist(Path& path) {
  for (Crossing& crossing : path.crossings) {
    auto& active = resources_[at(crossing.resource)].active;
    const auto last = active.back();
    active[at(crossing.place)] = last;
    paths_[at(last.first)].crossings[at(last.second)].place = crossing.place;
    active.pop_back();
    crossing.place = -1;
  }
}

void MaxMin::change(int index, int delta) {
  Path& path = paths_[at(index)];
  const int before = path.count;
  path.count += delta;
  ENSURE(path.count >= 0, "path {} has {} flows", index, path.count);
  if (before == 0 && path.count > 0) list(path, index);
  if (before > 0 && path.count == 0) {
    unlist(path);
    path.rate = 0;
  }
  for (const Crossing& crossing : path.crossings) {
    Resource& resource = resources_[at(crossing.resource)];
    resource.potential += delta * crossing.share * path.bound;
    if (resource.active.empty()) resource.potential = 0;  // removes rounding errors
    if (resource.dirty) continue;
    resource.dirty = true;
    dirty_resources_.push_back(crossing.resource);
  }
  if (path.dirty) return;
  path.dirty = true;
  dirty_paths_.push_back(index);
}

void MaxMin::reach(int index) {
  Path& path = paths_[at(index)];
  if (path.seen == stamp_ || path.count == 0) return;
  path.seen = stamp_;
  path.stopped = false;
  reached_paths_.push_back(index);
  for (const Crossing& crossing : path.crossings) {
    Resource& resource = resources_[at(crossing.resource)];
    if (!resource.binding || resource.seen == stamp_) continue;
    resource.seen = stamp_;
    reached_resources_.push_back(crossing.resource);
  }
}

void MaxMin::reach_all() {
  ++stamp_;
  reached_resources_.clear();
  reached_paths_.clear();
  for (const int r : dirty_resources_) {
    Resource& resource = resources_[at(r)];
    const bool was_binding = resource.binding;
    resource.binding = resource.potential > resource.capacity * (1 + kSlack);
    resource.dirty = false;
    if (!was_binding && !resource.binding) continue;
    resource.seen = stamp_;
    reached_resources_.push_back(r);
  }
  dirty_resources_.clear();
  for (const int p : dirty_paths_) {
    paths_[at(p)].dirty = false;
    reach(p);
  }
  dirty_paths_.clear();
  for (std::size_t i = 0; i < reached_resources_.size(); ++i) {  // grows during the loop
    for (const auto& [p, crossing] : resources_[at(reached_resources_[i])].active) reach(p);
  }
}

void MaxMin::open(Resource& resource) {
  resource.open = static_cast<int>(resource.active.size());
  resource.open_share = resource.used = resource.level = resource.level_share = 0;
  for (const auto& [p, crossing] : resource.active) {
    resource.open_share += paths_[at(p)].count * paths_[at(p)].crossings[at(crossing)].share;
  }
}

/// Shares that stop at one level are summed and multiplied once, so that many equal flows and one flow that represents
/// them leave the same remainder.
void MaxMin::stop(int index, double level) {
  Path& path = paths_[at(index)];
  path.stopped = true;
  path.found = level;
  for (const Crossing& crossing : path.crossings) {
    Resource& resource = resources_[at(crossing.resource)];
    if (!resource.binding || resource.seen != stamp_) continue;
    const double share = path.count * crossing.share;
    --resource.open;
    resource.open_share -= share;
    if (resource.level != level) {
      resource.used += resource.level * resource.level_share;
      resource.level = level;
      resource.level_share = 0;
    }
    resource.level_share += share;
  }
}

/// The resource that fills first as the open flows' rates rise, and its level. A resource's level only rises as flows
/// stop below it, so an entry that has grown goes back on the heap.
std::pair<double, int> MaxMin::lowest_resource() {
  while (!levels_.empty()) {
    const auto [level, r] = levels_.front();
    const Resource& resource = resources_[at(r)];
    if (resource.open > 0) {
      const double left = resource.capacity - resource.used - resource.level * resource.level_share;
      const double now = std::max(0.0, left) / resource.open_share;
      if (now <= level * (1 + kSameLevel)) return {level, r};
      std::pop_heap(levels_.begin(), levels_.end(), std::greater<>());
      levels_.back().first = now;
      std::push_heap(levels_.begin(), levels_.end(), std::greater<>());
      continue;
    }
    std::pop_heap(levels_.begin(), levels_.end(), std::greater<>());
    levels_.pop_back();
  }
  return {std::numeric_limits<double>::infinity(), -1};
}

void MaxMin::fill() {
  bounds_.clear();
  levels_.clear();
  for (const int p : reached_paths_) bounds_.emplace_back(paths_[at(p)].bound, p);
  std::sort(bounds_.begin(), bounds_.end());
  for (const int r : reached_resources_) {
    Resource& resource = resources_[at(r)];
    if (!resource.binding) continue;
    open(resource);
    levels_.emplace_back(resource.capacity / resource.open_share, r);
  }
  std::make_heap(levels_.begin(), levels_.end(), std::greater<>());
  double level = 0;
  const auto rise = [&level](double to) { return level = to <= level * (1 + kSameLevel) ? level : to; };
  for (const auto& [bound, p] : bounds_) {
    while (!paths_[at(p)].stopped) {
      const auto [full_at, r] = lowest_resource();
      if (bound <= full_at) {
        stop(p, rise(bound));
        break;
      }
      rise(full_at);
      for (const auto& [other, crossing] : resources_[at(r)].active) {
        if (!paths_[at(other)].stopped) stop(other, level);
      }
    }
  }
}

const std::vector<int>& MaxMin::solve() {
  changed_.clear();
  if (settled()) return changed_;
  reach_all();
  fill();
  solved_paths_ += static_cast<std::int64_t>(reached_paths_.size());
  for (const int p : reached_paths_) {
    Path& path = paths_[at(p)];
    path.found = steady_rate(path.found);
    if (path.rate == path.found) continue;
    path.rate = path.found;
    changed_.push_back(p);
  }
  return changed_;
}

}  // namespace orrery::sim
