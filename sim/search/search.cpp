/// The search: enumerate, check, price by the closed form, rank, replay the best.
#include "sim/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "base/ensure.h"
#include "cost/estimate/power.h"
#include "cost/prices/room.h"
#include "plan/spec/expert_rules.h"
#include "plan/spec/rules.h"
#include "sim/search/estimators.h"
#include "sim/search/loss_chunks.h"
#include "sim/search/nearest.h"
#include "sim/search/obstacle.h"
#include "sim/search/partial_recompute.h"
#include "sim/search/recommend.h"
#include "sim/search/share_out.h"
#include "sim/search/smaller.h"
#include "sim/search/space.h"
#include "sim/shared_links.h"
#include "sim/simulate.h"

namespace orrery::sim {

namespace {

constexpr const char* kMemory = "memory: does not fit the device";
constexpr const char* kUncertain = "memory: fits with too low a probability";
constexpr const char* kBeside = "memory: offloaded values do not fit the node's host memory or drives";
/// The most progress reports in one search.
constexpr std::size_t kReports = 200;
/// Points of the space that a thread takes at a time. Neighbours share layers: while these are made, more at a time.
constexpr std::size_t kPiece = 32, kPieceToCheck = 256;

struct Candidate {
  double objective = 0;
  std::size_t index = 0;  ///< into the space
  cost::Estimate estimate = {};
  bool operator<(const Candidate& o) const {
    return objective != o.objective ? objective < o.objective : index < o.index;
  }
};

double objective_of_estimate(const cost::Estimate& e, plan::Objective objective, const clusters::Cluster& cluster) {
  if (objective == plan::Objective::memory) return e.memory_peak;
  if (objective == plan::Objective::energy && cluster.device().power.value > 0)
    return cost::energy_of(e.breakdown, e.step_time, cluster).total();
  return e.step_time;  // on one cluster, dollars are proportional to seconds
}

/// A lower bound of that, for a plan that needs `memory` bytes and at least `seconds`.
double least_objective(double seconds, double memory, plan::Objective objective, const clusters::Cluster& cluster) {
  if (objective == plan::Objective::memory) return memory;
  cost::Estimate least;
  least.step_time = least.breakdown.bubble = seconds;  // waiting takes least power
  return objective_of_estimate(least, objective, cluster);
}

/// The k best candidates so far, of all threads: which these are at last does not depend on the order of offers.
class Best {
 public:
  explicit Best(std::size_t k) : k_(k) {}
  void offer(Candidate c) {
    const std::scoped_lock held(mutex_);
    if (heap_.size() == k_ && !(c < heap_.front())) return;
    if (heap_.size() == k_) {
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
    }
    heap_.push_back(std::move(c));
    std::push_heap(heap_.begin(), heap_.end());
  }
  /// Whether a candidate would be kept whose objective is no less than this.
  [[nodiscard]] bool may_take(double least) const {
    const std::scoped_lock held(mutex_);
    return heap_.size() < k_ || least <= heap_.front().objective;
  }
  [[nodiscard]] std::vector<Candidate> sorted() const {
    std::vector<Candidate> out = heap_;
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::size_t k_;
  std::vector<Candidate> heap_;
};

/// Candidates that broke a rule, and what the first of them broke it by: "a batch of 3 is not a multiple of …".
struct Broken {
  std::int64_t count = 0;
  std::size_t first = 0;  ///< in the space
  std::string message;
  void consider(std::size_t index, std::string by) {
    if (count++ == 0 || index < first) first = index, message = std::move(by);
  }
  void add(const Broken& other) {
    if (count == 0 || other.first < first) first = other.first, message = other.message;
    count += other.count;
  }
};

/// Whether the search itself may recompute only some blocks: if the job leaves it open, the software can, and time
/// counts.
bool may_recompute_some(const plan::Job& job, const cost::Stack& stack) {
  const std::vector<plan::Recompute>& named = job.bounds.recomputation.what;
  return stack.can.recompute_layers && !job.bounds.recomputation.layers && job.objective != plan::Objective::memory &&
         (named.empty() || std::find(named.begin(), named.end(), plan::Recompute::none) != named.end());
}

/// A point of the space that fits, or whose memory is bounded.
struct Fitting {
  double least = 0;  ///< lower bound of its objective; the objective, once that is known
  std::size_t index = 0;
  double memory = 0;                                   ///< bytes; 0: not known
  enum class By { rate, work, passes } by = By::rate;  ///< what bounds it
  bool operator<(const Fitting& o) const { return least != o.least ? least < o.least : index < o.index; }
};

/// Finds the points that are plans and fit, and bounds their times by their layers; then, in the order of these bounds,
/// those that may be among the best: by their own work, then by their passes, always the one with the least bound
/// next. One per thread, merged afterwards.
class Estimating {
 public:
  Estimating(const Model& model, const Cluster& cluster, const plan::Job& job, const cost::Prices& prices,
             const cost::Room& room, Best& best, std::vector<plan::PlanSpec>& space, SmallerMicroBatches& smaller,
             std::atomic<std::int64_t>& feasible, const Estimating* first)
      : model_(model),
        cluster_(cluster),
        job_(job),
        estimators_(model, prices, first != nullptr ? &first->estimators_ : nullptr),
        room_(room),
        best_(best),
        space_(space),
        smaller_(smaller),
        feasible_(feasible) {}
  Estimating(const Estimating&) = delete;
  Estimating& operator=(const Estimating&) = delete;

  void operator()(std::size_t i) { order_ ? estimate((*order_)[i]) : check(i); }
  /// From now on, numbers are places in this list, which is in order.
  void estimate_in(std::vector<Fitting>& order) { order_ = &order; }
  /// There are no more numbers: times what is left. `stop`: no more than one.
  void finish(const std::atomic<bool>* stop) {
    while (!bounded_.empty() && (fastest == 0 || stop == nullptr || !stop->load(std::memory_order_relaxed))) go_on();
  }

  /// Nothing fits: finds out whether what is too large by a bound exceeds the capacity by less than `miss`.
  void look_for_nearer() {
    std::sort(too_large.begin(), too_large.end(), [](const Fitting& a, const Fitting& b) {
      return std::tie(a.memory, a.index) < std::tie(b.memory, b.index);
    });
    for (const Fitting& one : too_large) {
      if (one.memory > misses.device.memory) return;
      plan::Plan made = plan::make_plan(model_, cluster_, space_[one.index]).value();
      const double memory = memory_of(one.index, made);
      (estimator(made.spec()).fits_beside(made) ? misses.device : misses.both).consider(memory, one.index, made.spec());
    }
  }

  [[nodiscard]] cost::Estimator& estimator(const plan::PlanSpec& spec) { return estimators_.of(spec); }

  std::vector<Fitting> fitting;
  std::map<std::string, std::int64_t> rejected;
  std::map<const plan::Rule*, Broken> broken;
  std::int64_t evaluated = 0;
  double fastest = 0;  ///< step time; 0: none yet
  NearMisses misses;
  std::vector<Fitting> too_large;  ///< by a bound, which `memory` is

 private:
  void check(std::size_t i) {
    auto made = plan::make_plan(model_, cluster_, space_[i]);
    base::Diagnostics faults = made ? base::Diagnostics() : made.error();
    if (made && estimators_.own()) faults = plan::refused_balancing(*model_, made->spec());
    if (!faults.empty()) {
      const plan::Rule* rule = plan::find_rule(faults.front().code);
      ENSURE(rule != nullptr, "what make_plan refuses breaks a rule");
      broken[rule].consider(i, std::move(faults.front().message));
      return;
    }
    cost::Estimator& estimator = estimators_.of(space_[i]);
    ++evaluated;
    const double room = room_.of(space_[i]);
    double least = smaller_.least(i);
    if (least <= room_.capacity()) least = std::max(least, estimator.least_states(*made));
    if (least <= room_.capacity() && space_[i].shape.micro_batch > 1)
      least = std::max(least, estimator.least_memory(*made));
    const bool refused = least > room;
    const double most = least > room_.capacity() ? least : estimator.most_memory(*made);
    if (refused && (least > room_.capacity() || most <= room_.capacity())) {
      ++rejected[least > room_.capacity() ? kMemory : kUncertain];
      smaller_.needs(i, least);
      too_large.push_back({.index = i, .memory = least});
      return;
    }
    // What a plan needs that fits in any case is found out once it is among the best.
    const bool fits = job_.objective != plan::Objective::memory && most <= room;
    const double memory = fits ? 0 : memory_of(i, made.value());
    if (memory > room) {
      ++rejected[memory > room_.capacity() ? kMemory : kUncertain];
      smaller_.needs(i, memory);
      (estimator.fits_beside(*made) ? misses.device : misses.both).consider(memory, i, made->spec());
      return;
    }
    if (!estimator.fits_beside(*made)) {
      ++rejected[kBeside];
      const cost::NodeMemory needed = estimator.beside(*made);
      const double host = cluster_->host_memory.capacity.value;
      if (host > 0 && needed.host > host)
        misses.host.consider(needed.host, i, made->spec());
      else
        misses.nvme.consider(needed.nvme, i, made->spec());
      return;
    }
    ++feasible_;
    fitting.push_back({least_objective(estimator.least_rate(*made), memory, job_.objective, *cluster_), i, memory});
  }

  /// Bytes of a device; computes the loss in as many chunks as it needs to fit.
  double memory_of(std::size_t i, plan::Plan& made) {
    cost::Estimator& estimator = estimators_.of(space_[i]);
    const double memory = estimator.memory_peak(made), room = room_.of(space_[i]);
    if (memory <= room || !may_chunk(job_, estimators_.stack(space_[i]))) return memory;
    space_[i].numerics.loss_chunks = loss_chunks_that_fit(estimator, made, model_, cluster_, memory, room);
    if (space_[i].numerics.loss_chunks <= 1) return memory;
    made = plan::make_plan(model_, cluster_, space_[i]).value();
    return estimator.memory_peak(made);
  }

  void estimate(Fitting& one) {
    while (!bounded_.empty() && bounded_.top()->least <= one.least) go_on();
    if (best_.may_take(one.least)) bounded_.push(&one);
  }
  /// Bounds the one with the least bound more tightly, or times it.
  void go_on() {
    Fitting& one = *bounded_.top();
    bounded_.pop();
    if (!best_.may_take(one.least)) return;
    auto made = plan::make_plan(model_, cluster_, space_[one.index]);
    cost::Estimator& estimator = estimators_.of(space_[one.index]);
    if (one.by == Fitting::By::passes) return time(one, *made, estimator);
    const bool rate = one.by == Fitting::By::rate;
    const double seconds = rate ? estimator.least_work(*made) : estimator.least_time(*made);
    one.by = rate ? Fitting::By::work : Fitting::By::passes;
    one.least = std::max(one.least, least_objective(seconds, one.memory, job_.objective, *cluster_));
    bounded_.push(&one);
  }
  void time(Fitting& one, plan::Plan& made, cost::Estimator& estimator) {
    cost::Estimate estimate = estimator.time(made);
    estimate.memory_peak = one.memory > 0 ? one.memory : memory_of(one.index, made);
    if (fastest == 0 || estimate.step_time < fastest) fastest = estimate.step_time;
    one.least = objective_of_estimate(estimate, job_.objective, *cluster_);
    best_.offer({one.least, one.index, std::move(estimate)});
  }

  const Model& model_;
  const Cluster& cluster_;
  const plan::Job& job_;
  Estimators estimators_;
  const cost::Room& room_;
  Best& best_;
  std::vector<plan::PlanSpec>& space_;
  SmallerMicroBatches& smaller_;
  std::atomic<std::int64_t>& feasible_;
  std::vector<Fitting>* order_ = nullptr;
  struct Later {
    bool operator()(const Fitting* a, const Fitting* b) const { return *b < *a; }
  };
  std::priority_queue<Fitting*, std::vector<Fitting*>, Later> bounded_;  ///< of the list, not timed yet; least first
};

/// Whether two plans differ in words alone: how they came to their equal split of the layers.
bool same_split(plan::PlanSpec a, const plan::PlanSpec& b) {
  a.stages.ends_as_layers = b.stages.ends_as_layers;
  return a == b;
}

/// Replays one plan after another on its own fabric.
class Replaying {
 public:
  /// `which`: indices into `plans`.
  Replaying(const Model& model, const Cluster& cluster, const cost::Prices& prices,
            const std::vector<cost::Prediction>& plans, std::vector<std::optional<cost::Prediction>>& replayed,
            const std::vector<std::size_t>& which)
      : model_(model), cluster_(cluster), prices_(prices), plans_(plans), replayed_(replayed), which_(which) {}

  void operator()(std::size_t place) {
    const std::size_t i = which_[place];
    if (!options_.fabric) options_.fabric = fabric_of(*cluster_);
    const auto made = plan::make_plan(model_, cluster_, plans_[i].spec);
    replayed_[i] = simulate(*made, prices_.of(made->spec()), options_).prediction;
  }

 private:
  const Model& model_;
  const Cluster& cluster_;
  const cost::Prices prices_;
  SimulateOptions options_{.spans = false};
  const std::vector<cost::Prediction>& plans_;
  std::vector<std::optional<cost::Prediction>>& replayed_;
  const std::vector<std::size_t>& which_;
};

std::size_t threads_for(const SearchOptions& options, std::size_t items) {
  return std::clamp<std::size_t>(items, 1, static_cast<std::size_t>(std::max(1, options.threads)));
}

/// The least value of the objective, by closed form, of a plan that was not replayed; infinite if all were. `plans`:
/// the best by closed form, in its order; `replayed`: how many of them, from the front, were replayed.
double least_beyond(const cost::SearchResult& result, std::size_t replayed, plan::Objective objective) {
  if (replayed < result.plans.size()) return objective_of(result.plans[replayed], objective);
  if (result.plans.empty() || result.feasible <= static_cast<std::int64_t>(replayed))
    return std::numeric_limits<double>::infinity();
  return objective_of(result.plans.back(), objective);
}

/// Replays the best plans of the closed form and ranks them again, ahead of those not replayed. A plan that turns out
/// not to fit is dropped; if none fits, the next ones are replayed. After an interruption only the best is replayed,
/// since the user still waits for it.
void replay_best(cost::SearchResult& result, const Model& model, const Cluster& cluster, const plan::Job& job,
                 const cost::Prices& prices, const SearchOptions& options, SearchProgress progress,
                 const cost::Room& room) {
  const auto wanted =
      static_cast<std::size_t>(std::max(0, result.interrupted ? std::min(1, options.replay) : options.replay));
  const auto fits = [&](const std::optional<cost::Prediction>& p) {
    return p && p->memory_peak_bytes <= room.of(p->spec);
  };
  std::vector<std::optional<cost::Prediction>> replayed(result.plans.size());
  std::size_t count = 0;
  progress.phase = "replaying";
  do {
    const std::size_t first = count;
    count = std::min(result.plans.size(), first + wanted);
    progress.total = static_cast<std::int64_t>(count);
    std::vector<std::size_t> which;
    std::vector<std::pair<std::size_t, std::size_t>> same;  // as an earlier one
    for (std::size_t i = first; i < count; ++i) {
      std::size_t j = 0;
      while (j < i && !same_split(result.plans[j].spec, result.plans[i].spec)) ++j;
      if (j < i)
        same.emplace_back(i, j);
      else
        which.push_back(i);
    }
    std::vector<std::unique_ptr<Replaying>> workers;
    for (std::size_t w = 0; w < threads_for(options, which.size()); ++w)
      workers.push_back(std::make_unique<Replaying>(model, cluster, prices, result.plans, replayed, which));
    share_out(workers, which.size(), 1, result.interrupted ? nullptr : options.stop, [&](std::size_t begun) {
      progress.done = static_cast<std::int64_t>(first + begun);
      if (options.progress) options.progress(progress);
    });
    for (const auto& [i, j] : same) {
      replayed[i] = replayed[j];
      if (replayed[i]) replayed[i]->spec = result.plans[i].spec;
    }
  } while (wanted > 0 && count < result.plans.size() && !result.interrupted &&
           !(options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) &&
           std::none_of(replayed.begin(), replayed.end(), fits));
  const double beyond = least_beyond(result, count, job.objective);
  std::vector<cost::Prediction> ranked, others;
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    if (i >= count || !replayed[i]) {
      others.push_back(std::move(result.plans[i]));
      continue;
    }
    ++result.simulated;
    if (fits(replayed[i])) {
      ranked.push_back(std::move(*replayed[i]));
    } else {
      ++result.rejected[replayed[i]->memory_peak_bytes > room.capacity() ? kMemory : kUncertain];
      --result.feasible;
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](const cost::Prediction& a, const cost::Prediction& b) {
    return sim::objective_of(a, job.objective) < sim::objective_of(b, job.objective);
  });
  if (!ranked.empty() && !result.interrupted)
    result.optimality_gap = std::max(0.0, objective_of(ranked.front(), job.objective) / beyond - 1);
  ranked.insert(ranked.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  result.plans = std::move(ranked);
}

}  // namespace

double objective_of(const cost::Prediction& p, plan::Objective objective) {
  switch (objective) {
    case plan::Objective::time: return p.step_time_s;
    case plan::Objective::cost: return p.cost_per_step_usd > 0 ? p.cost_per_step_usd : p.step_time_s;
    case plan::Objective::energy: return p.energy_per_step_j > 0 ? p.energy_per_step_j : p.step_time_s;
    case plan::Objective::memory: return p.memory_peak_bytes;
  }
  return p.step_time_s;
}

namespace {

/// The search among plans that have room.
cost::SearchResult search_within(const Model& model, const Cluster& cluster, const plan::Job& job,
                                 const cost::Prices& prices, const SearchOptions& options, const cost::Room& room) {
  const double began = options.now ? options.now() : 0;
  std::vector<plan::PlanSpec> space = space_of(*cluster, *model, job, prices.stacks());
  cost::SearchResult result;
  result.candidates = static_cast<std::int64_t>(space.size());
  // Keeps more than are shown: for some models the replay needs more memory than the closed form predicts.
  constexpr int kRounds = 16;
  const auto keep = static_cast<std::size_t>(std::max({1, options.top, kRounds * options.replay}));
  std::atomic<std::int64_t> feasible = 0;
  Best best(keep);
  SmallerMicroBatches smaller(space);
  std::vector<std::unique_ptr<Estimating>> workers;
  for (std::size_t w = 0; w < threads_for(options, space.size() / kPiece); ++w)
    workers.push_back(std::make_unique<Estimating>(model, cluster, job, prices, room, best, space, smaller, feasible,
                                                   w == 0 ? nullptr : workers.front().get()));
  SearchProgress progress{0, result.candidates, 0, 0, "checking"};
  const auto stopped = [&] { return options.stop != nullptr && options.stop->load(std::memory_order_relaxed); };
  const auto share = [&](std::size_t count, std::size_t most, const std::atomic<bool>* stop) {
    const std::size_t piece = std::clamp(count / (8 * workers.size()), kPiece, most);
    const std::size_t every = std::max(piece, count / kReports);
    std::size_t told = 0;
    progress.total = static_cast<std::int64_t>(count);
    share_out(workers, count, piece, stop, [&](std::size_t begun) {
      if (!options.progress || (begun > 0 && begun < told + every)) return;
      told = begun;
      progress.done = static_cast<std::int64_t>(begun);
      progress.feasible = feasible;
      progress.best_step_time_s = workers.front()->fastest;
      options.progress(progress);
    });
  };
  share(space.size(), kPieceToCheck, options.stop);
  std::vector<Fitting> fitting;
  for (const auto& worker : workers) fitting.insert(fitting.end(), worker->fitting.begin(), worker->fitting.end());
  std::sort(fitting.begin(), fitting.end());
  // Those of which fewer blocks may be recomputed, by bounds that no thread's progress changes.
  std::vector<Fitting> whole_blocks;
  if (may_recompute_some(job, prices.stacks().named()))
    std::ranges::copy_if(fitting, std::back_inserter(whole_blocks), [&](const Fitting& one) {
      return space[one.index].recomputation.what == plan::Recompute::full;
    });
  progress.phase = "estimating";
  for (const auto& worker : workers) worker->estimate_in(fitting);
  // A user who interrupts the search still gets its best plan.
  const bool early = stopped();
  share(early ? std::min(kPiece, fitting.size()) : fitting.size(), kPiece, early ? nullptr : options.stop);
  result.feasible = feasible;
  NearMisses misses;
  std::map<const plan::Rule*, Broken> broken;
  for (const auto& worker : workers) {
    result.evaluated += worker->evaluated;
    for (const auto& [reason, count] : worker->rejected) result.rejected[reason] += count;
    for (const auto& [rule, one] : worker->broken) broken[rule].add(one);
    if (feasible == 0 && !room.holds_back()) worker->look_for_nearer();
    misses.consider(worker->misses);
    if (worker->fastest > 0 && (progress.best_step_time_s == 0 || worker->fastest < progress.best_step_time_s))
      progress.best_step_time_s = worker->fastest;
  }
  std::map<std::string, std::string> said;  // by reason
  for (const auto& [rule, one] : broken) {
    const std::string reason = fmt::format("{} {}", rule->code, rule->broken_by);
    result.rejected[reason] += one.count;
    said[reason] = one.message;
  }
  for (const Fitting& one : whole_blocks) {
    if (!best.may_take(kLeastOfFull * one.least) || stopped()) break;
    cost::Estimator& estimator = workers.front()->estimator(space[one.index]);
    const auto whole = plan::make_plan(model, cluster, space[one.index]);
    const double least = least_objective(estimator.least_work(*whole), one.memory, job.objective, *cluster);
    if (!best.may_take(kLeastOfFull * least)) continue;
    const auto without = plan::make_plan(model, cluster, with_recomputed(space[one.index], 0));
    if (!without) continue;
    const auto may = [&](double seconds) {
      return best.may_take(least_objective(seconds, 0, job.objective, *cluster));
    };
    if (!may(estimator.least_work(*without)) || !may(estimator.least_time(*without))) continue;
    const auto some = fewest_recomputed(estimator, *whole, model, cluster, room.of(space[one.index]));
    if (!some || !estimator.fits_beside(*some)) continue;
    ++result.evaluated;
    if (!may(estimator.least_time(*some))) continue;
    cost::Estimate estimate = estimator.estimate(*some);
    const double objective = objective_of_estimate(estimate, job.objective, *cluster);
    if (!best.may_take(objective)) continue;
    space.push_back(some->spec());
    best.offer({objective, space.size() - 1, std::move(estimate)});
  }
  for (const Candidate& c : best.sorted()) {
    const auto made = plan::make_plan(model, cluster, space[c.index]);
    result.plans.push_back(workers.front()->estimator(space[c.index]).predict(*made, c.estimate));
  }
  result.interrupted = stopped();
  replay_best(result, model, cluster, job, prices, options, progress, room);
  if (stopped()) {
    result.interrupted = true;
    result.optimality_gap.reset();
  }
  if (result.plans.size() > static_cast<std::size_t>(options.top))
    result.plans.resize(static_cast<std::size_t>(options.top));
  if (result.candidates == 0) result.obstacle = mesh_obstacle(job.bounds, cluster->size());
  if (const auto most = most_frequent(result.rejected); result.obstacle.empty() && result.evaluated == 0 && most)
    result.obstacle = said.at(*most);
  if (result.feasible == 0 && !room.holds_back()) {
    const cost::Room asked(*cluster, *model, prices, options.memory_fraction, job.fits_probability);
    result.nearest = nearest(model, cluster, job, prices, room.capacity(), asked, misses, result.rejected);
  }
  if (options.now) result.seconds = options.now() - began;
  return result;
}

}  // namespace

cost::SearchResult search(Model model, Cluster cluster, const plan::Job& job, const cost::Prices& prices,
                          const SearchOptions& options) {
  const auto within = [&](double probability) {
    const cost::Room room(*cluster, *model, prices, options.memory_fraction, probability);
    auto found = model->recommender ? search_tables(model, cluster, job, prices.named(), options, room)
                                    : search_within(model, cluster, job, prices, options, room);
    found.fits_probability = room.holds_back() ? probability : 0;
    return found;
  };
  cost::SearchResult result = within(job.fits_probability);
  if (result.feasible > 0 || result.interrupted || result.fits_probability == 0) return result;
  // Better a plan that may not fit, and is said to, than none.
  cost::SearchResult predicted = within(0);
  predicted.seconds += result.seconds;
  predicted.evaluated += result.evaluated;
  predicted.simulated += result.simulated;
  return predicted;
}

}  // namespace orrery::sim
