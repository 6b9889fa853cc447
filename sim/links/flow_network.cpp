// The clock around sim/max_min: flows wait for their latency, move at their path's rate, and end. All flows of a path
// have the same rate, so a path keeps one progress (bytes that a flow has moved since the path was last idle); a flow
// ends when that reaches its value at the flow's start plus the flow's own bytes.
#include "sim/links/flow_network.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <tuple>
#include <unordered_map>

#include "base/ensure.h"
#include "base/index.h"
#include "sim/links/max_min.h"

namespace orrery::sim {

namespace {

using base::at;

constexpr double kTick = 1e-12;  ///< s
/// A longer flow (104 days) is a bug of the caller; larger sums would overflow the clock's integers.
constexpr double kLongest = 9e18;

struct Ending {  // the end of a moving flow
  double progress = 0;
  std::int64_t order = 0;
  int flow = -1;
  bool operator>(const Ending& o) const { return std::tie(progress, order) > std::tie(o.progress, o.order); }
};

struct Join {  // the end of a flow's latency
  Picoseconds time = 0;
  std::int64_t order = 0;
  int flow = -1;
  bool operator>(const Join& o) const { return std::tie(time, order) > std::tie(o.time, o.order); }
};

template <class T>
void push(std::vector<T>& heap, T value) {
  heap.push_back(value);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}
template <class T>
T pop(std::vector<T>& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const T value = heap.back();
  heap.pop_back();
  return value;
}

struct Path {
  std::vector<Load> loads;
  double most = 0;
  bool instant = false;  // no loads, no limit
  double rate = 0;
  double progress = 0;  // at `since`
  Picoseconds since = 0;
  std::vector<Ending> endings;  // heap
  Picoseconds finish = 0;       // of the first ending
  int place = -1;               // in the heap of finishes
  bool touched = false;
};

enum class State : std::uint8_t { ended, waiting, moving, cancelled };

struct Flow {
  State state = State::ended;
  int path = -1;
  int count = 1;
  double bytes = 0;
  double ends_at = 0;  // in units of progress
  std::int64_t order = 0;
};

/// Paths by (finish, number): a binary heap that tracks each path's position, since a finish changes with every solve.
class Finishes {
 public:
  explicit Finishes(std::vector<Path>& paths) : paths_(paths) {}
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] int front() const { return heap_.front(); }
  [[nodiscard]] const std::vector<int>& paths() const { return heap_; }
  void set(int path, Picoseconds finish) {
    Path& p = paths_[at(path)];
    p.finish = finish;
    if (p.place < 0) {
      p.place = static_cast<int>(heap_.size());
      heap_.push_back(path);
    }
    sink(rise(p.place));
  }
  void remove(int path) {
    const int place = paths_[at(path)].place;
    if (place < 0) return;
    const int last = heap_.back();
    heap_.pop_back();
    paths_[at(path)].place = -1;
    if (last == path) return;
    put(last, place);
    sink(rise(place));
  }

 private:
  void put(int path, int place) {
    heap_[at(place)] = path;
    paths_[at(path)].place = place;
  }
  [[nodiscard]] bool before(int a, int b) const {
    return std::tie(paths_[at(a)].finish, a) < std::tie(paths_[at(b)].finish, b);
  }
  int rise(int place) {
    const int path = heap_[at(place)];
    for (; place > 0 && before(path, heap_[at((place - 1) / 2)]); place = (place - 1) / 2) {
      put(heap_[at((place - 1) / 2)], place);
    }
    put(path, place);
    return place;
  }
  void sink(int place) {
    const int path = heap_[at(place)];
    const int size = static_cast<int>(heap_.size());
    for (int child = 2 * place + 1; child < size; child = 2 * place + 1) {
      if (child + 1 < size && before(heap_[at(child + 1)], heap_[at(child)])) ++child;
      if (!before(heap_[at(child)], path)) break;
      put(heap_[at(child)], place);
      place = child;
    }
    put(path, place);
  }

  std::vector<Path>& paths_;
  std::vector<int> heap_;
};

std::uint64_t hash_of(const std::vector<Load>& loads, double most) {
  std::uint64_t hash = std::hash<double>()(most);
  for (const Load& load : loads) {
    hash = (hash ^ static_cast<std::uint64_t>(load.link)) * 0x9e3779b97f4a7c15ULL;  // Fibonacci hashing
    hash = (hash ^ (hash >> 29) ^ std::hash<double>()(load.share)) * 0x9e3779b97f4a7c15ULL;
  }
  return hash;
}

}  // namespace

class FlowNetwork::Engine {
 public:
  int path(std::vector<Load> loads, double most) {
    std::sort(loads.begin(), loads.end(),
              [](const Load& a, const Load& b) { return std::tie(a.link, a.share) < std::tie(b.link, b.share); });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      if (kept > 0 && loads[kept - 1].link == loads[i].link) {
        loads[kept - 1].share += loads[i].share;
      } else {
        loads[kept++] = loads[i];
      }
    }
    loads.resize(kept);
    const std::uint64_t hash = hash_of(loads, most);
    const auto [first, last] = known_.equal_range(hash);
    for (auto k = first; k != last; ++k) {
      if (paths_[at(k->second)].loads == loads && paths_[at(k->second)].most == most) return k->second;
    }
    ENSURE(most > 0, "a path limited to {} bytes/s", most);
    const int index = solver_.add_path(loads, most);
    Path p;
    p.instant = loads.empty() && std::isinf(most);
    p.loads = std::move(loads);
    p.most = most;
    paths_.push_back(std::move(p));
    known_.emplace(hash, index);
    return index;
  }

  int start(Picoseconds now, int path, double bytes, Picoseconds latency, int count) {
    ENSURE(path >= 0 && at(path) < paths_.size(), "path {} of {}", path, paths_.size());
    ENSURE(bytes >= 0 && latency >= 0 && count > 0, "{} flows of {} bytes after {} ps", count, bytes, latency);
    move_to(now);
    int index = static_cast<int>(flows_.size());
    if (free_.empty()) {
      flows_.emplace_back();
    } else {
      index = pop(free_);
    }
    flows_[at(index)] = {State::waiting, path, count, bytes, 0, order_++};
    ++active_;
    // Empty flows end in step(), like all others.
    if (latency > 0 || bytes == 0 || paths_[at(path)].instant) {
      push(joins_, Join{now + latency, flows_[at(index)].order, index});
    } else {
      join(index);
    }
    return index;
  }

  void cancel(Picoseconds now, int index) {
    move_to(now);
    Flow& flow = flows_[at(index)];
    ENSURE(flow.state == State::waiting || flow.state == State::moving, "flow {} is not under way", index);
    --active_;
    if (flow.state == State::waiting) {
      flow.state = State::cancelled;  // its number becomes free when its latency ends
      return;
    }
    Path& path = paths_[at(flow.path)];
    carry(flow, std::clamp(flow.bytes - (flow.ends_at - progress_at(path, now)), 0.0, flow.bytes));
    std::erase_if(path.endings, [&](const Ending& e) { return e.flow == index; });
    std::make_heap(path.endings.begin(), path.endings.end(), std::greater<>());
    leave(index);
    flow.state = State::ended;
    push(free_, index);
  }

  std::optional<Picoseconds> next() {
    solve();
    std::optional<Picoseconds> time;
    if (!joins_.empty()) time = joins_.front().time;
    if (!finishes_.empty()) {
      const Picoseconds finish = paths_[at(finishes_.front())].finish;
      time = time ? std::min(*time, finish) : finish;
    }
    return time;
  }

  const std::vector<Completion>& advance(Picoseconds to) {
    ENSURE(to >= clock_, "the clock stands at {} ps, after {}", clock_, to);
    completions_.clear();
    for (auto time = next(); time && *time <= to; time = next()) step(*time);
    clock_ = to;
    return completions_;
  }

  double rate(int index) {
    solve();
    const Flow& flow = flows_[at(index)];
    return flow.state == State::moving ? paths_[at(flow.path)].rate : 0;
  }

  void state(const std::function<std::int64_t(int)>& name, std::vector<std::int64_t>& out) const {
    const auto bits = [](double value) { return std::bit_cast<std::int64_t>(value); };
    std::vector<Join> joins = joins_;
    std::sort(joins.begin(), joins.end(), [](const Join& a, const Join& b) { return b > a; });
    for (const Join& join : joins) {
      const Flow& flow = flows_[at(join.flow)];
      out.insert(out.end(), {join.time - clock_, static_cast<std::int64_t>(flow.state), flow.path, flow.count,
                             bits(flow.bytes), flow.state == State::cancelled ? -1 : name(join.flow)});
    }
    std::vector<int> moving = finishes_.paths();
    std::sort(moving.begin(), moving.end());
    for (const int index : moving) {
      const Path& path = paths_[at(index)];
      out.insert(out.end(), {index, path.finish - clock_, path.since - clock_, bits(path.progress), bits(path.rate)});
      std::vector<Ending> endings = path.endings;
      std::sort(endings.begin(), endings.end(), [](const Ending& a, const Ending& b) { return b > a; });
      for (const Ending& ending : endings)
        out.insert(out.end(), {bits(ending.progress), flows_[at(ending.flow)].count, name(ending.flow)});
    }
  }

  void leap(Picoseconds by) {
    clock_ += by;
    for (Join& join : joins_) join.time += by;
    for (const int index : finishes_.paths()) {
      paths_[at(index)].finish += by;
      paths_[at(index)].since += by;
    }
  }

  MaxMin solver_;
  std::vector<double> carried_;
  Picoseconds clock_ = 0;
  int active_ = 0;

 private:
  void move_to(Picoseconds now) {
    ENSURE(now >= clock_, "the clock stands at {} ps, after {}", clock_, now);
    if (now == clock_) return;
    const auto event = next();
    ENSURE(!event || *event >= now, "something ends at {} ps, before {}: advance() first", *event, now);
    clock_ = now;
  }

  static double progress_at(const Path& path, Picoseconds t) {
    return path.progress + path.rate * (static_cast<double>(t - path.since) * kTick);
  }

  [[nodiscard]] Picoseconds finish_of(const Path& path, const Ending& ending) const {
    const double ticks = std::max(0.0, ending.progress - path.progress) / path.rate / kTick;
    ENSURE(ticks < kLongest, "a flow of {} bytes at {} bytes/s never ends", ending.progress, path.rate);
    return std::max(clock_, path.since + static_cast<Picoseconds>(std::llround(ticks)));
  }

  void touch(int index) {
    if (paths_[at(index)].touched) return;
    paths_[at(index)].touched = true;
    touched_.push_back(index);
  }

  void join(int index) {
    Flow& flow = flows_[at(index)];
    Path& path = paths_[at(flow.path)];
    if (path.endings.empty()) {
      path.progress = path.rate = 0;
      path.since = clock_;
    }
    flow.state = State::moving;
    flow.ends_at = progress_at(path, clock_) + flow.bytes;
    push(path.endings, Ending{flow.ends_at, flow.order, index});
    solver_.change(flow.path, flow.count);
    touch(flow.path);
  }

  void leave(int index) {
    solver_.change(flows_[at(index)].path, -flows_[at(index)].count);
    touch(flows_[at(index)].path);
  }

  void carry(const Flow& flow, double bytes) {
    for (const Load& load : paths_[at(flow.path)].loads) carried_[at(load.link)] += load.share * bytes * flow.count;
  }

  void end(int index) {
    Flow& flow = flows_[at(index)];
    carry(flow, flow.bytes);
    flow.state = State::ended;
    --active_;
    ended_.emplace_back(flow.order, index);
  }

  void step(Picoseconds time) {
    clock_ = time;
    ended_.clear();
    while (!finishes_.empty() && paths_[at(finishes_.front())].finish <= time) {
      const int index = finishes_.front();
      Path& path = paths_[at(index)];
      while (!path.endings.empty() && finish_of(path, path.endings.front()) <= time) {
        const int flow = pop(path.endings).flow;
        leave(flow);
        end(flow);
      }
      finishes_.remove(index);  // solve() puts it back
    }
    while (!joins_.empty() && joins_.front().time <= time) {
      const int index = pop(joins_).flow;
      Flow& flow = flows_[at(index)];
      if (flow.state == State::cancelled) {
        flow.state = State::ended;
        push(free_, index);
      } else if (flow.bytes == 0 || paths_[at(flow.path)].instant) {
        end(index);
      } else {
        join(index);
      }
    }
    std::sort(ended_.begin(), ended_.end());
    for (const auto& [order, flow] : ended_) {
      completions_.push_back({time, flow});
      push(free_, flow);
    }
  }

  void solve() {
    if (solver_.settled()) return;
    for (const int index : solver_.solve()) {
      Path& path = paths_[at(index)];
      path.progress = progress_at(path, clock_);
      path.since = clock_;
      path.rate = solver_.rate(index);
      touch(index);
    }
    for (const int index : touched_) {
      Path& path = paths_[at(index)];
      path.touched = false;
      if (path.endings.empty()) {
        finishes_.remove(index);
      } else {
        finishes_.set(index, finish_of(path, path.endings.front()));
      }
    }
    touched_.clear();
  }

  std::int64_t order_ = 0;
  std::vector<Path> paths_;
  std::unordered_multimap<std::uint64_t, int> known_;  // lookups only, never iterated
  std::vector<Flow> flows_;
  std::vector<int> free_;    // heap
  std::vector<Join> joins_;  // heap
  Finishes finishes_{paths_};
  std::vector<int> touched_;
  std::vector<std::pair<std::int64_t, int>> ended_;
  std::vector<Completion> completions_;
};

FlowNetwork::FlowNetwork(const std::vector<double>& capacities) : engine_(std::make_unique<Engine>()) {
  for (const double capacity : capacities) add_resource(capacity);
}
FlowNetwork::~FlowNetwork() = default;
FlowNetwork::FlowNetwork(FlowNetwork&&) noexcept = default;
FlowNetwork& FlowNetwork::operator=(FlowNetwork&&) noexcept = default;

int FlowNetwork::add_resource(double bytes_per_second) {
  engine_->carried_.push_back(0);
  return engine_->solver_.add_resource(bytes_per_second);
}
int FlowNetwork::path(std::vector<Load> loads, double most) {
  return engine_->path(std::move(loads), most);
}
int FlowNetwork::start(Picoseconds now, int path, double bytes, Picoseconds latency, int count) {
  return engine_->start(now, path, bytes, latency, count);
}
void FlowNetwork::cancel(Picoseconds now, int flow) {
  engine_->cancel(now, flow);
}
std::optional<Picoseconds> FlowNetwork::next() {
  return engine_->next();
}
const std::vector<FlowNetwork::Completion>& FlowNetwork::advance(Picoseconds to) {
  return engine_->advance(to);
}
void FlowNetwork::state(const std::function<std::int64_t(int)>& name, std::vector<std::int64_t>& out) const {
  engine_->state(name, out);
}
void FlowNetwork::leap(Picoseconds by) {
  engine_->leap(by);
}
Picoseconds FlowNetwork::now() const {
  return engine_->clock_;
}
int FlowNetwork::active() const {
  return engine_->active_;
}
int FlowNetwork::resources() const {
  return engine_->solver_.resources();
}
double FlowNetwork::capacity(int resource) const {
  return engine_->solver_.capacity(resource);
}
double FlowNetwork::rate(int flow) {
  return engine_->rate(flow);
}
double FlowNetwork::carried(int resource) const {
  return engine_->carried_[at(resource)];
}
std::int64_t FlowNetwork::solved_paths() const {
  return engine_->solver_.solved_paths();
}

}  // namespace orrery::sim
