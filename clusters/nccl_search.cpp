/// The search, function by function after NCCL's search.cc. Steps (calls of go()) are counted against NCCL's budget, so
/// that it ends at the same solution.
#include "clusters/nccl_search.h"

#include <algorithm>
#include <array>
#include <boost/container/small_vector.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "base/index.h"

namespace orrery::clusters::nccl {
namespace {

using base::at;

constexpr std::int64_t kGlobalSteps = 1 << 19;
constexpr int kSteps = 1 << 14, kSameSteps = 1 << 8, kFirstSteps = 1 << 10;
constexpr int kMostHeads = 32;  // NCCL_MAX_NVLS_ARITY

constexpr std::array<float, 13> kIntra = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr std::array<float, 19> kInter = {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4F, 1.2F, .24F, .12F};
constexpr std::array<float, 11> kIntra90 = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr std::array<float, 17> kInter90 = {48, 45, 42, 40, 30,   24,   22,   20,  17.5F,
                                            15, 12, 6,  3,  2.4F, 1.2F, .24F, .12F};
constexpr std::array<float, 11> kIntra100 = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr std::array<float, 18> kInter100 = {96,    48, 45.1F, 42, 40, 30,   24,   22,   20,
                                             17.5F, 15, 12,    6,  3,  2.4F, 1.2F, .24F, .12F};

std::span<const float> speeds_of(const System& s) {
  if (s.capability >= 100) return s.inter ? std::span<const float>(kInter100) : std::span<const float>(kIntra100);
  if (s.capability >= 90) return s.inter ? std::span<const float>(kInter90) : std::span<const float>(kIntra90);
  return s.inter ? std::span<const float>(kInter) : std::span<const float>(kIntra);
}

enum class Order { free, pci, replay };

int count_of(const System& s) {
  return static_cast<int>(s.gpus.size());
}

/// GPUs, without an allocation in nodes of the usual sizes: the search makes such a list at each step.
using Gpus = boost::container::small_vector<int, 16>;

struct Score {
  int gpu = 0, start = 0, intra_hops = 0, intra = 0, inter_hops = 0, pci = 0, inter = 0;
};

float pci_bandwidth(const System& s, int gpu) {
  for (const int l : s.nodes[at(s.gpus[at(gpu)])].links) {
    if (s.links[at(l)].type == kPix)
      return std::min(s.links[at(l)].bandwidth, s.links[at(s.links[at(l)].reverse)].bandwidth);
  }
  return -1;
}
/// With switches, only neighbours are tried.
void neighbours_only(const System& s, Pattern pattern, int gpu, Gpus& next) {
  const int before = (gpu - 1 + count_of(s)) % count_of(s), after = (gpu + 1) % count_of(s);
  Gpus first = {after};
  if (pattern == Pattern::ring) first = {after, before};
  if (pattern == Pattern::balanced_tree) first = {before, after};
  if (before == after) first = {after};
  std::size_t kept = 0;
  for (const int wanted : first) {
    const auto found = std::find(next.begin(), next.end(), wanted);
    if (found == next.end()) continue;
    std::rotate(next.begin(), found, found + 1);
    ++kept;
  }
  next.resize(kept);
}

/// ncclTopoSearchNextGpuSort: the GPUs that this channel has not `used`, most promising first. `sort_net`: 1 where the
/// next one leads to the net, -1 where a later one does; 0: none does.
Gpus promising_gpus(const System& s, const Found& f, const std::vector<std::uint64_t>& used, int gpu, int sort_net) {
  const std::uint64_t flag = std::uint64_t{1} << f.channels;
  boost::container::small_vector<Score, 16> scores;
  for (int i = 1; i < count_of(s); ++i) {
    const int other = (gpu + i) % count_of(s);
    const Path& path = s.path(s.gpus[at(gpu)], s.gpus[at(other)]);
    if (path.links.empty() || (used[at(other)] & flag)) continue;
    Score score{other, i, static_cast<int>(path.links.size()), static_cast<int>(path.bandwidth), 0, 0, 0};
    if (sort_net != 0) {
      const Path& from_net = s.path(s.nets[at(f.nets[at(2 * f.channels)])], s.gpus[at(other)]);
      score.inter_hops = static_cast<int>(from_net.links.size());
      score.pci = static_cast<int>(pci_bandwidth(s, other));
      score.inter = static_cast<int>(from_net.bandwidth);
    }
    scores.push_back(score);
  }
  std::sort(scores.begin(), scores.end(), [](const Score& a, const Score& b) {
    if (a.inter != b.inter) return a.inter > b.inter;
    if (a.pci != b.pci) return a.pci > b.pci;
    if (a.inter_hops != b.inter_hops) return a.inter_hops < b.inter_hops;
    if (a.intra != b.intra) return a.intra > b.intra;
    if (a.intra_hops != b.intra_hops) return a.intra_hops < b.intra_hops;
    return a.start < b.start;
  });
  const bool equal = std::all_of(scores.begin(), scores.end(), [&](const Score& one) {
    return one.intra == scores.front().intra && one.intra_hops == scores.front().intra_hops;
  });
  Gpus next;
  for (const Score& one : scores) next.push_back(one.gpu);
  if (sort_net == -1 && equal) std::reverse(next.begin(), next.end());
  if (!s.switches.empty()) neighbours_only(s, f.pattern, gpu, next);
  return next;
}

/// ncclTopoSelectNets: the preferred nets, then others that such paths or better ones lead to. `gpu` -1: of all GPUs.
std::vector<int> select_nets(const System& s, int type_inter, int gpu) {
  std::vector<int> nets;
  const auto add = [&](int n) {
    if (std::find(nets.begin(), nets.end(), n) == nets.end()) nets.push_back(n);
  };
  for (int g = 0; g < count_of(s); ++g) {
    if (gpu != -1 && gpu != g) continue;
    for (const int n : local_nets(s, g)) add(n);
  }
  for (int type = 0; type <= type_inter; ++type) {
    for (int g = 0; g < count_of(s); ++g) {
      if (gpu != -1 && gpu != g) continue;
      for (int n = 0; n < static_cast<int>(s.nets.size()); ++n) {
        if (s.path(s.gpus[at(g)], s.nets[at(n)]).type == type) add(n);
      }
    }
  }
  return nets;
}

/// Such lists: a search asks for the same ones at each step, and what it takes from links does not change them.
class SelectedNets {
 public:
  explicit SelectedNets(const System& s) : s_(s), known_((s.gpus.size() + 1) * (kNone + 1)) {}

  /// Stays where it is.
  [[nodiscard]] const std::vector<int>& of(int type_inter, int gpu) {
    std::optional<std::vector<int>>& nets = known_[at((gpu + 1) * (kNone + 1) + type_inter)];
    if (!nets) nets = select_nets(s_, type_inter, gpu);
    return *nets;
  }

 private:
  const System& s_;
  std::vector<std::optional<std::vector<int>>> known_;  ///< by GPU, from -1 on, and type
};

/// Whether no GPU is nearer to this net than the path's.
bool near(const System& s, int node, const Path& path) {
  return std::all_of(s.gpus.begin(), s.gpus.end(), [&](int gpu) {
    const Path& other = s.path(node, gpu);
    return other.bandwidth < path.bandwidth || (other.bandwidth == path.bandwidth && other.type >= path.type);
  });
}

class ChannelSearch {
 public:
  ChannelSearch(System& s, SelectedNets& nets, Found& saved)
      : s_(s), nets_(nets), saved_(saved), used_(s.gpus.size(), 0) {}

  /// ncclTopoSearchRec from no channels; returns what is left of `time`, -1 when no better solution can exist.
  int run(const Found& from, int time) {
    f_ = from;
    f_.channels = f_.hops = 0;
    const std::size_t gpus = s_.gpus.size(), most = at(f_.most) + 1;
    f_.order.assign(gpus * most, 0);
    f_.nets.assign(2 * most, -1);
    time_ = time;
    to_net_ = !s_.inter ? -1 : f_.pattern == Pattern::ring ? count() - 1 : 0;
    to_first_ = !s_.inter && f_.pattern == Pattern::ring ? count() - 1 : -1;
    channel();
    return time_;
  }

 private:
  [[nodiscard]] int count() const { return count_of(s_); }
  int& placed(int step) { return f_.order[at(f_.channels * count() + step)]; }
  int& net(int end) { return f_.nets[at(2 * f_.channels + end)]; }

  static void take(float& left, float bandwidth) { left = std::round((left - bandwidth) * 1000) / 1000; }

  /// followPath: takes `bandwidth` from each link while the link has it; returns the number of links taken.
  std::size_t follow(const Path& path, int start, std::size_t most, float bandwidth) {
    float pci = bandwidth;
    const bool from_gpu = s_.nodes[at(start)].kind == NodeKind::gpu;
    if (path.type == kPhb && from_gpu && s_.vendor == CpuVendor::intel) pci = bandwidth * 6 / 5;  // INTEL_P2P_OVERHEAD
    for (std::size_t step = 0; step < most; ++step) {
      Link& link = s_.links[at(path.links[step])];
      Link& back = s_.links[at(link.reverse)];
      const float forth = link.type == kPix ? pci : bandwidth;
      // On GPUs before Ampere, incoming writes cost some bandwidth of the other direction.
      const bool old = s_.nodes[at(link.to)].kind == NodeKind::gpu && s_.capability < 80 && !from_gpu;
      const float reverse = old ? forth / 8 : 0;
      if (link.bandwidth < forth || (old && back.bandwidth < reverse)) return step;
      take(link.bandwidth, forth);
      if (old) take(back.bandwidth, reverse);
    }
    return most;
  }

  /// ncclTopoFollowPath: whether the path's bandwidth could be taken (or, with a negative factor, given back).
  bool go_along(int from, int to, float factor) {
    const auto inside = [&](int n) {
      const NodeKind kind = s_.nodes[at(n)].kind;
      return kind == NodeKind::gpu || kind == NodeKind::nvswitch;
    };
    const bool intra = inside(from) && inside(to);
    const Path& path = s_.path(from, to);
    const int allowed = intra ? f_.type_intra : f_.type_inter;
    if (path.type >= kNone) return false;
    if (factor > 0) {
      if (path.type > allowed) return false;
      if ((f_.pattern == Pattern::balanced_tree || f_.pattern == Pattern::tree) && s_.path(to, from).type > allowed)
        return false;
    }
    const float bandwidth = factor * (intra ? f_.intra : f_.inter);
    const std::size_t step = follow(path, from, path.links.size(), bandwidth);
    if (step < path.links.size()) {
      follow(path, from, step, -bandwidth);
      return false;
    }
    f_.hops += (factor > 0 ? 1 : -1) * static_cast<int>(path.links.size());
    return true;
  }

  /// ncclTopoSearchTryGpu.
  void try_gpu(int from, int gpu, int step, int to_net, int to_first, Order order) {
    if (from >= 0 && !go_along(from, s_.gpus[at(gpu)], 1)) return;
    const std::uint64_t flag = std::uint64_t{1} << f_.channels;
    used_[at(gpu)] ^= flag;
    go(gpu, step, to_net, to_first, order);
    used_[at(gpu)] ^= flag;
    if (from >= 0) go_along(from, s_.gpus[at(gpu)], -1);
  }

  /// ncclTopoCompareGraphs: whether f_ is better than the best so far.
  [[nodiscard]] bool better() const {
    if (f_.channels < f_.least) return false;
    const float mine = static_cast<float>(f_.channels), best = static_cast<float>(saved_.channels);
    if (f_.pattern == Pattern::nvls) {
      return (f_.channels > saved_.channels && f_.channels <= count()) || mine * f_.inter > best * saved_.inter;
    }
    if (mine * f_.intra != best * saved_.intra) return mine * f_.intra > best * saved_.intra;
    return f_.pattern == saved_.pattern && f_.cross_nic == saved_.cross_nic && f_.hops < saved_.hops;
  }

  void complete() {
    ++f_.channels;
    if (better()) {
      saved_ = f_;
      if (f_.channels == f_.most) time_ = -1;
    }
    if (f_.channels < f_.most) channel();
    --f_.channels;
  }

  /// ncclTopoSearchRecGpu: places `gpu` as the step-th of this channel; -1: NVLS, which has no order.
  void go(int gpu, int step, int to_net, int to_first, Order order) {
    if (time_ <= 0) return;
    --time_;
    if (step == count()) {
      complete();
      return;
    }
    placed(step) = gpu;
    if (step == to_net) {
      back_to_net(gpu, step, to_first, order);
    } else if (f_.pattern == Pattern::nvls) {
      try_heads(gpu);
    } else if (step < count() - 1) {
      for (const int next : next_gpus(gpu, step, to_net, order))
        try_gpu(s_.gpus[at(gpu)], next, step + 1, to_net, to_first, order);
    } else if (step == to_first) {
      const int first = placed(0);
      if (!go_along(s_.gpus[at(gpu)], s_.gpus[at(first)], 1)) return;
      go(first, step + 1, to_net, -1, order);
      go_along(s_.gpus[at(gpu)], s_.gpus[at(first)], -1);
    } else {
      go(gpu, count(), -1, -1, order);
    }
  }

  /// The GPUs to try next.
  Gpus next_gpus(int gpu, int step, int to_net, Order order) const {
    if (order == Order::pci) return {step + 1};
    if (order == Order::replay) return {f_.order[at((f_.channels - 1) * count() + step + 1)]};
    return promising_gpus(s_, f_, used_, gpu, to_net == -1 ? 0 : to_net == step + 1 ? 1 : -1);
  }

  void back_to_net(int gpu, int step, int to_first, Order order) {
    const int start = net(0);
    for (const int n : nets_.of(f_.type_inter, gpu)) {
      if (f_.pattern == Pattern::tree && n != start) continue;
      if (f_.pattern == Pattern::ring && f_.cross_nic == 2) {
        if ((f_.channels & 1) && n != f_.nets[at(2 * (f_.channels - 1))]) continue;
      } else if (f_.cross_nic == 0 && n != start) {
        continue;
      }
      const bool balanced = f_.pattern == Pattern::balanced_tree;
      // A balanced tree takes half the bandwidth at each of the first two GPUs.
      if (balanced && step != 0 && n != net(1)) continue;
      const int to_net = balanced && step == 0 ? 1 : -1;
      const float whole = f_.inter;
      if (balanced) f_.inter /= 2;
      const bool went = go_along(s_.gpus[at(gpu)], s_.nets[at(n)], 1);
      f_.inter = whole;
      if (!went) continue;
      net(1) = n;
      go(gpu, step, to_net, to_first, order);
      if (balanced) f_.inter /= 2;
      go_along(s_.gpus[at(gpu)], s_.nets[at(n)], -1);
      f_.inter = whole;
    }
  }

  /// ncclTopoSearchTryNvls: every GPU sends to the switches and receives from them; the head does twice as much.
  void try_heads(int head) {
    const int nvs = s_.switches.front();
    int down = 0, up = 0;
    const auto factor = [&](int gpu) { return gpu == head ? 2.0F : 1.0F; };
    while (down < count() && go_along(nvs, s_.gpus[at(down)], factor(down))) ++down;
    if (down == count()) {
      while (up < count() && go_along(s_.gpus[at(up)], nvs, factor(up))) ++up;
      if (up == count()) go(-1, count(), -1, -1, Order::free);
      while (up > 0) --up, go_along(s_.gpus[at(up)], nvs, -factor(up));
    }
    while (down > 0) --down, go_along(nvs, s_.gpus[at(down)], -factor(down));
  }

  /// Starts the next channel (ncclTopoSearchRec).
  void channel() {
    if (s_.inter) {
      from_nets();
      return;
    }
    if (f_.pattern == Pattern::nvls) {
      try_gpu(-1, f_.channels, 0, to_net_, to_first_, Order::free);
      return;
    }
    if (f_.channels == 0) {
      try_gpu(-1, 0, 0, to_net_, to_first_, Order::pci);
    } else {
      try_gpu(-1, f_.order[at((f_.channels - 1) * count())], 0, to_net_, to_first_, Order::replay);
    }
    if (f_.same && f_.channels > 0) return;
    for (int g = 0; g < count(); ++g) try_gpu(-1, g, 0, to_net_, to_first_, Order::free);
  }

  /// ncclTopoSearchRecNet.
  void from_nets() {
    const auto bandwidth = std::floor(f_.inter);  // NCCL uses an int here
    const std::vector<int>& nets = nets_.of(f_.type_inter, -1);
    bool found = false;
    for (std::size_t i = 0; i < nets.size(); ++i) {
      if (f_.pattern == Pattern::nvls && found) break;
      const int n = nets[(at(f_.channels) + i) % nets.size()];
      if (s_.net_bandwidth[at(n)] < bandwidth) continue;
      if (f_.pattern == Pattern::ring && f_.cross_nic == 2 && (f_.channels & 1) &&
          n != f_.nets[at(2 * (f_.channels - 1) + 1)]) {
        continue;
      }
      net(0) = n;
      s_.net_bandwidth[at(n)] -= bandwidth;
      if (f_.pattern == Pattern::nvls) {
        found = head_of(n, static_cast<int>(nets.size())) || found;
      } else {
        from_net(n);
      }
      s_.net_bandwidth[at(n)] += bandwidth;
    }
  }

  bool head_of(int n, int nets) {
    const int gpu = s_.local_gpu[at(n)];
    if (f_.channels >= nets || gpu == -1) return false;
    for (int c = 0; c < f_.channels; ++c) {
      if (f_.order[at(c * count())] == gpu) return false;
    }
    try_gpu(s_.nets[at(n)], gpu, 0, to_net_, to_first_, Order::free);
    return true;
  }

  void from_net(int n) {
    const int node = s_.nets[at(n)];
    if (f_.channels > 0 && f_.same) {
      try_gpu(node, f_.order[at((f_.channels - 1) * count())], 0, to_net_, to_first_, Order::replay);
      return;
    }
    if (f_.channels == 0 && s_.switches.empty()) {
      const int kept = time_;
      time_ = kFirstSteps;
      try_gpu(node, 0, 0, to_net_, to_first_, Order::pci);
      time_ = time_ == -1 ? -1 : kept;
    }
    const int local = s_.local_gpu[at(n)];
    if (local != -1) try_gpu(node, local, 0, to_net_, to_first_, Order::free);
    for (int g = 0; g < count(); ++g) {
      const Path& path = s_.path(node, s_.gpus[at(g)]);
      if (g != local && path.type < kNone && near(s_, node, path)) {
        try_gpu(node, g, 0, to_net_, to_first_, Order::free);
      }
    }
  }

  System& s_;
  SelectedNets& nets_;
  Found& saved_;
  Found f_;
  std::vector<std::uint64_t> used_;
  int time_ = 0, to_net_ = -1, to_first_ = -1;
};

/// Least and greatest path type among GPUs, or between GPUs and nets (ncclTopoGetGpuMinPath, MaxPath).
std::pair<int, int> types_to(const System& s, const std::vector<int>& targets) {
  std::pair<int, int> range{kNone, kLocal};
  for (const int gpu : s.gpus) {
    for (const int to : targets) {
      if (to == gpu) continue;
      range.first = std::min(range.first, s.path(gpu, to).type);
      range.second = std::max(range.second, s.path(gpu, to).type);
    }
  }
  return range;
}

/// Whether a node has two NVLink islands (ncclTopoSplitNvLink): the trees then need two channels.
bool split(const System& s) {
  std::vector<int> island(s.gpus.size());
  for (std::size_t g = 0; g < island.size(); ++g) {
    island[g] = static_cast<int>(g);
    for (std::size_t other = 0; other < g; ++other) {
      if (s.path(s.gpus[g], s.gpus[other]).type == kNvlink) {
        island[g] = island[other];
        break;
      }
    }
  }
  int islands = 0;
  for (std::size_t g = 0; g < island.size(); ++g) {
    if (std::count(island.begin(), island.end(), static_cast<int>(g)) > 1) ++islands;
  }
  return islands == 2;
}

/// ncclTopoDupChannels: splits wide channels into two of half the bandwidth, so that more GPU blocks work on them.
void duplicate(Found& f, int capability, std::size_t gpus) {
  if (f.channels == 0 || f.pattern == Pattern::nvls || f.intra < 25) return;
  if (capability > 80 && f.intra < 50 && f.channels > 4) return;
  const int twice = std::min(2 * f.channels, f.most);
  const std::size_t had = at(f.channels);
  f.order.resize(std::max(f.order.size(), at(twice) * gpus));
  f.nets.resize(std::max(f.nets.size(), 2 * at(twice)));
  for (std::size_t i = 0; i < (at(twice) - had) * gpus; ++i) f.order[had * gpus + i] = f.order[i];
  for (std::size_t i = 0; i < 2 * (at(twice) - had); ++i) f.nets[2 * had + i] = f.nets[i];
  const float share = std::ceil(static_cast<float>(twice) / static_cast<float>(f.channels));
  f.intra /= share;
  f.inter /= share;
  f.channels = twice;
}

/// ncclTopoCompute without its fallback.
class Compute {
 public:
  Compute(System& s, const Found& wanted) : s_(s), nets_(s), best_(wanted), speeds_(speeds_of(s)) {
    const bool ring = wanted.pattern == Pattern::ring;
    cross_ = s.nets.size() > 1 && (ring || wanted.pattern == Pattern::balanced_tree) ? 2 : 0;
    std::tie(least_intra_, most_intra_) = s.gpus.size() > 1 ? types_to(s, s.gpus) : std::pair{kLocal, kSys};
    if (s.inter) {
      std::tie(least_inter_, most_inter_) = types_to(s, s.nets);
      most_intra_ = most_inter_;
    }
    if (s.capability < 90) most_inter_ = kSys;
    best_.type_intra = least_intra_;
    best_.type_inter = least_inter_;
    best_.same = try_same_ = wanted.pattern != Pattern::nvls;
    const int gpus = static_cast<int>(s.gpus.size());
    if (wanted.pattern == Pattern::nvls) best_.most = std::min(kMostHeads, gpus);
    if (gpus == 1 && !ring) best_.pattern = Pattern::tree;
    if (!s.inter && wanted.pattern == Pattern::nvls) best_.least = best_.most;
    if (ring && split(s) && best_.most >= 2 && best_.least == 1) best_.least = 2;
    total_ = s.total;
    if (gpus > 1 && !ring) total_ *= static_cast<float>(gpus) / static_cast<float>(gpus - 1);
  }

  Found run() {
    current_ = best_;
    while ((speeds_[speed_] > s_.most || speeds_[speed_] * static_cast<float>(best_.least) > total_) && more())
      ++speed_;
    set_speed();
    first_pass();
    duplicate(best_, s_.capability, s_.gpus.size());
    second_pass();
    return best_;
  }

 private:
  [[nodiscard]] bool more() const { return speed_ + 1 < speeds_.size(); }
  void set_speed() { current_.intra = current_.inter = speeds_[speed_]; }
  int attempt() {
    const int time = current_.same ? kSameSteps : kSteps;
    budget_ -= time;
    return ChannelSearch(s_, nets_, best_).run(current_, time);
  }
  [[nodiscard]] bool used_up() const { return static_cast<float>(best_.channels) * best_.inter >= s_.total; }

  void first_pass() {
    for (;;) {
      const int time = attempt();
      if (time == -1 || used_up()) return;
      if (current_.same && !(s_.vendor == CpuVendor::amd && current_.type_intra == kSys)) {
        current_.same = false;
        continue;
      }
      current_.same = try_same_;
      budget_ += time;
      if (budget_ < 0 && best_.channels > 0) return;
      if (s_.capability >= 90 && current_.pattern == Pattern::balanced_tree) {
        current_.pattern = Pattern::tree;
        continue;
      }
      current_.pattern = best_.pattern;
      if (!relax()) return;
    }
  }

  /// Relaxes one more limit: worse paths, crossing NICs, less speed; false when none is left.
  bool relax() {
    const int most_intra = s_.inter ? current_.type_inter : most_intra_;
    if (current_.type_intra < most_intra && (best_.channels == 0 || current_.type_intra < best_.type_intra)) {
      ++current_.type_intra;
      return true;
    }
    current_.type_intra = least_intra_;
    if (s_.inter && current_.type_inter < most_inter_ &&
        (best_.channels == 0 || current_.type_inter < best_.type_inter || current_.type_inter < kPxn)) {
      ++current_.type_inter;
      return true;
    }
    current_.type_inter = least_inter_;
    if (cross_ == 2 && current_.cross_nic == 0) {
      current_.cross_nic = 2;
      return true;
    }
    current_.cross_nic = 0;
    if (more() && (best_.channels == 0 || speeds_[speed_ + 1] / best_.inter > .49F)) {
      ++speed_;
      set_speed();
      return true;
    }
    return false;
  }

  /// Tries faster channels if those found leave bandwidth.
  void second_pass() {
    if (best_.channels == 0) return;
    current_ = best_;
    speed_ = 0;
    while (speeds_[speed_] > best_.inter && more()) ++speed_;
    set_speed();
    current_.least = best_.channels;
    int time = -1;
    while (time != 0 && speed_ > 0) {
      if (best_.pattern == Pattern::ring) {
        --speed_;
        set_speed();
      } else if (best_.pattern == Pattern::nvls && current_.inter == best_.inter &&
                 current_.inter < current_.intra * 2) {
        current_.least = current_.most = best_.channels;
        current_.inter = speeds_[--speed_];
      } else if (current_.intra == best_.intra && current_.intra < current_.inter * 2) {
        current_.intra = speeds_[--speed_];
      } else {
        return;
      }
      time = attempt();
    }
  }

  System& s_;
  SelectedNets nets_;
  Found best_, current_;
  std::span<const float> speeds_;
  std::size_t speed_ = 0;
  std::int64_t budget_ = kGlobalSteps;
  float total_ = 0;
  int cross_ = 0;
  int least_intra_ = kLocal, most_intra_ = kSys, least_inter_ = kPix, most_inter_ = kSys;
  bool try_same_ = true;
};

}  // namespace

Found search(System& system, const Found& wanted) {
  if (wanted.pattern == Pattern::nvls && (system.switches.empty() || system.capability < 90)) return wanted;
  return Compute(system, wanted).run();
}

}  // namespace orrery::clusters::nccl
