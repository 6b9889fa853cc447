/// Reads headlines, simulates their runs, and computes their quantities.
#include "sim/validate/headlines.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/ensure.h"
#include "base/yaml.h"
#include "cost/estimate/estimate.h"
#include "models/layers/counts.h"
#include "sim/search/recommend.h"
#include "sim/simulate.h"
#include "sim/validate/fit.h"

namespace orrery::sim {

namespace {

constexpr std::pair<const char*, Quantity> kQuantities[] = {{"state_ratio", Quantity::state_ratio},
                                                            {"activation_ratio", Quantity::activation_ratio},
                                                            {"memory_share", Quantity::memory_share},
                                                            {"rate_ratio", Quantity::rate_ratio},
                                                            {"speedup", Quantity::speedup},
                                                            {"teraflops", Quantity::teraflops},
                                                            {"petaflops", Quantity::petaflops},
                                                            {"minutes", Quantity::minutes},
                                                            {"largest_model", Quantity::largest_model},
                                                            {"bubble", Quantity::bubble},
                                                            {"million_a_second", Quantity::million_a_second},
                                                            {"exchange_share", Quantity::exchange_share},
                                                            {"exchange_ratio", Quantity::exchange_ratio},
                                                            {"device_hours", Quantity::device_hours},
                                                            {"device_gigabytes", Quantity::device_gigabytes},
                                                            {"host_gigabytes", Quantity::host_gigabytes},
                                                            {"nvme_gigabytes", Quantity::nvme_gigabytes},
                                                            {"states", Quantity::states}};

bool of_two(Quantity quantity) {
  return quantity == Quantity::state_ratio || quantity == Quantity::activation_ratio ||
         quantity == Quantity::rate_ratio || quantity == Quantity::speedup || quantity == Quantity::exchange_ratio;
}

/// Whether it is read off a step time, which is all that stacks are fitted to.
bool is_timed(Quantity quantity) {
  switch (quantity) {
    case Quantity::rate_ratio:
    case Quantity::speedup:
    case Quantity::teraflops:
    case Quantity::petaflops:
    case Quantity::minutes:
    case Quantity::bubble:
    case Quantity::million_a_second:
    case Quantity::exchange_share:
    case Quantity::exchange_ratio:
    case Quantity::device_hours: return true;
    case Quantity::state_ratio:
    case Quantity::activation_ratio:
    case Quantity::memory_share:
    case Quantity::largest_model:
    case Quantity::states:
    case Quantity::device_gigabytes:
    case Quantity::host_gigabytes:
    case Quantity::nvme_gigabytes: return false;
  }
  return false;
}

bool measures_memory(Quantity quantity) {
  return quantity == Quantity::memory_share || quantity == Quantity::device_gigabytes ||
         quantity == Quantity::host_gigabytes || quantity == Quantity::nvme_gigabytes;
}

void read_quantity(const base::Cursor& item, Headline& out) {
  const std::string name = item.at("quantity").text();
  const auto* found = std::find_if(std::begin(kQuantities), std::end(kQuantities),
                                   [&](const auto& known) { return name == known.first; });
  if (found == std::end(kQuantities))
    item.at("quantity").error("E0105", fmt::format("no quantity is called '{}'", name));
  else
    out.quantity = found->second;
  constexpr double kLargest = 1e12;
  if (item.has("published")) out.published = item.at("published").number(0, kLargest);
  out.unit = item.at("unit").text();
  for (const base::Cursor& run : item.at("runs").items()) out.runs.push_back(run.text());
  constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
  if (item.has("steps"))
    for (const base::Cursor& steps : item.at("steps").items()) out.steps.push_back(steps.integer(1, kMostSteps));
  if (item.has("order")) {
    const std::string order = item.at("order").text();
    for (const plan::Order one : {plan::Order::gpipe, plan::Order::one_f_one_b, plan::Order::pipedream,
                                  plan::Order::pipedream_vertical, plan::Order::pipedream_2bw})
      if (order == plan::name_of(one)) out.order = one;
    if (!out.order) item.at("order").error("E0105", fmt::format("no order is called '{}'", order));
  }
  const bool of_steps = out.quantity == Quantity::minutes || out.quantity == Quantity::device_hours;
  const std::size_t runs = of_two(out.quantity) ? 2 : of_steps ? out.steps.size() : 1;
  if (out.runs.size() != runs || runs == 0)
    item.at("runs").error("E0105", fmt::format("{} takes {} runs, here are {}", name, runs, out.runs.size()));
}

/// A run with all data that quantities need.
struct Simulated {
  plan::PlanSpec spec;
  cost::Prediction prediction;
  double states = 0, activations = 0;  // bytes of the first stage
  double flops = 0;                    // per step, including recomputation
  double largest = 0;                  // billions of parameters, if a headline asks for them
  double ranks_per_node = 1;
  std::string stack;  ///< whose prices it took
  bool fits = true;   ///< its devices, and what is beside them

  [[nodiscard]] double devices() const {
    return static_cast<double>(spec.mesh.data) * spec.mesh.tensor * spec.mesh.pipeline * spec.mesh.context;
  }
  [[nodiscard]] double rate() const { return static_cast<double>(spec.shape.batch) / prediction.step_time_s; }
};

double all_to_alls(const cost::Prediction& p) {
  double sum = 0;
  for (const cost::CommunicationRow& row : p.communication)
    if (row.operation == plan::name_of(plan::CollectiveKind::all_to_all)) sum += row.time_s;
  return sum;
}

/// A recommendation model's step by replay. Memory is checked separately: a plan that does not fit has no valid time.
base::Result<Simulated> simulated_tables(const Subject& subject, bool only_memory) {
  Simulated out;
  const clusters::Cluster& cluster = subject.pricing->cluster();
  out.ranks_per_node = std::min(cluster.devices_per_node, cluster.size());
  out.spec = subject.plan.spec();
  SimulateOptions options;
  options.spans = false;
  out.prediction = simulate(subject.plan, *subject.pricing, options).prediction;
  const cost::Prediction& p = out.prediction;
  out.stack = subject.pricing->stack().name;
  out.fits = p.memory_peak_bytes <= p.memory_capacity_bytes && too_much_beside(p, cluster).empty();
  if (!only_memory && p.memory_peak_bytes > p.memory_capacity_bytes) {
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    return base::fail("V01", fmt::format("it needs {:.1f} GiB of a device's {:.1f}", p.memory_peak_bytes / kGiB,
                                         p.memory_capacity_bytes / kGiB));
  }
  if (const std::string full = too_much_beside(p, cluster); !only_memory && !full.empty())
    return base::fail("V01", full);
  const auto purpose = [&](plan::Purpose of) {
    const auto& bytes = p.memory.front().by_purpose;
    const auto found = bytes.find(plan::name_of(of));
    return found == bytes.end() ? 0.0 : found->second;
  };
  out.states =
      purpose(plan::Purpose::parameters) + purpose(plan::Purpose::gradients) + purpose(plan::Purpose::optimizer_states);
  out.activations = purpose(plan::Purpose::activations);
  constexpr double kBillion = 1e9;
  out.largest = static_cast<double>(models::parameters(*subject.model)) / kBillion;
  out.flops =
      3 * models::flops_per_sample_forward(*subject.model->recommender) * static_cast<double>(out.spec.shape.batch);
  return out;
}

base::Result<Simulated> simulated(Translator& translator, const Setup& setup, const Headline& headline) {
  auto subject = translator.translate(setup);
  if (!subject) return base::fail(subject.error());
  const std::optional<plan::Order>& order = headline.order;
  if (subject->model->recommender) return simulated_tables(*subject, measures_memory(headline.quantity));
  plan::Plan plan = subject->plan;
  if (order) {
    plan::PlanSpec spec = plan.spec();
    spec.stages.order = *order;
    // Orders that update after every micro-batch treat the run's batch as one micro-batch.
    if (spec.stages.asynchronous() && spec.stages.order != plan::Order::pipedream_2bw)
      spec.shape.micro_batch = spec.shape.batch / spec.mesh.data;
    auto other = plan::make_plan(subject->model, subject->pricing->shared_cluster(), spec);
    if (!other) return base::fail(other.error());
    plan = std::move(*other);
  }
  cost::Estimator estimator(subject->model, *subject->pricing);
  Simulated out;
  out.spec = plan.spec();
  out.prediction = estimator.predict(plan);
  out.stack = subject->pricing->stack().name;
  out.fits = out.prediction.memory_peak_bytes <= out.prediction.memory_capacity_bytes && estimator.fits_beside(plan);
  const cost::StageMemory memory = estimator.memory(plan, plan::kFirstStage);
  out.states = memory.parameters + memory.gradients + memory.optimizer_states;
  out.activations = memory.activations;
  constexpr double kBillion = 1e9;
  out.largest = static_cast<double>(models::parameters(*subject->model)) / kBillion;
  const double forward = models::flops_per_token_forward(*subject->model, out.spec.shape.sequence) *
                         static_cast<double>(out.spec.shape.sequence * out.spec.shape.batch);
  // Backward is twice forward; full recomputation is forward once more.
  out.flops = forward * (out.spec.recomputation.what == plan::Recompute::full ? 4 : 3);
  return out;
}

/// Whether a run fits in all memories that it uses.
base::Result<bool> fits(Translator& translator, const Setup& setup) {
  auto subject = translator.translate(setup);
  if (!subject) return base::fail(subject.error());
  cost::Estimator estimator(subject->model, *subject->pricing);
  return estimator.memory_peak(subject->plan) <= subject->pricing->cluster().device().memory.value &&
         estimator.fits_beside(subject->plan);
}

/// The run with as many layers as fit, by doubling and bisection; the run's own number if not even one fits.
base::Result<Setup> deepest(Translator& translator, Setup setup) {
  constexpr std::int64_t kMostLayers = 10'000;
  const Setup given = setup;
  std::int64_t low = 0, high = 1;
  const auto holds = [&](std::int64_t layers) {
    setup.layers = layers;
    return fits(translator, setup);
  };
  while (high <= kMostLayers) {
    auto held = holds(high);
    if (!held) return base::fail(held.error());
    if (!*held) break;
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    auto held = holds(middle);
    if (!held) return base::fail(held.error());
    (*held ? low : high) = middle;
  }
  if (low == 0) return given;
  setup.layers = low;
  return setup;
}

double most_of(const cost::Prediction& prediction, double cost::MemoryRow::*bytes) {
  double most = 0;
  for (const cost::MemoryRow& row : prediction.memory) most = std::max(most, row.*bytes);
  return most;
}

double value_of(const Headline& headline, const std::vector<Simulated>& runs) {
  constexpr double kMillion = 1e6, kGiga = 1e9, kTera = 1e12, kPeta = 1e15, kMinute = 60, kMillionHours = 3600e6;
  const Simulated& a = runs.front();
  const Simulated& b = runs.back();
  switch (headline.quantity) {
    case Quantity::state_ratio: return a.states / b.states;
    case Quantity::activation_ratio: return a.activations / b.activations;
    case Quantity::memory_share: return a.prediction.memory_peak_bytes / a.prediction.memory_capacity_bytes;
    case Quantity::rate_ratio: return a.rate() / a.devices() / (b.rate() / b.devices());
    case Quantity::speedup: return a.rate() / b.rate();
    case Quantity::teraflops: return a.flops / a.prediction.step_time_s / a.devices() / kTera;
    case Quantity::petaflops: return a.flops / a.prediction.step_time_s / kPeta;
    case Quantity::bubble: return a.prediction.bubble_fraction;
    case Quantity::million_a_second: return a.rate() / kMillion;
    case Quantity::exchange_share: return a.prediction.breakdown.exchange_communication / a.prediction.step_time_s;
    case Quantity::exchange_ratio: return all_to_alls(a.prediction) / all_to_alls(b.prediction);
    case Quantity::largest_model: return a.largest;
    case Quantity::states: return a.states / kGiga;
    case Quantity::device_gigabytes: return a.ranks_per_node * a.prediction.memory_peak_bytes / kGiga;
    case Quantity::host_gigabytes: return a.ranks_per_node * most_of(a.prediction, &cost::MemoryRow::host) / kGiga;
    case Quantity::nvme_gigabytes: return a.ranks_per_node * most_of(a.prediction, &cost::MemoryRow::nvme) / kGiga;
    case Quantity::minutes:
    case Quantity::device_hours: {
      double sum = 0;
      const bool minutes = headline.quantity == Quantity::minutes;
      for (std::size_t i = 0; i < runs.size(); ++i)
        sum += static_cast<double>(headline.steps[i]) * runs[i].prediction.step_time_s *
               (minutes ? 1 / kMinute : runs[i].devices() / kMillionHours);
      return sum;
    }
  }
  return 0;
}

}  // namespace

namespace {

/// What must be known of the figure: whether the source's own rows chose it, and whether its runs fit.
void tell_apart(const Headline& headline, const std::vector<Simulated>& runs, const std::vector<cost::Stack>& stacks,
                cost::HeadlineResult& result) {
  result.memory_share = 0;
  for (const Simulated& run : runs) {
    result.in_sample =
        result.in_sample || (is_timed(headline.quantity) && was_fitted_to(stacks, run.stack, headline.source));
    result.memory_share =
        std::max(*result.memory_share, run.prediction.memory_peak_bytes / run.prediction.memory_capacity_bytes);
    result.fits = result.fits && run.fits;
  }
}

}  // namespace

base::Result<Headlines> parse_headlines(std::string_view text, const std::string& file) {
  auto rows = parse_rows(text, file);
  if (!rows) return base::fail(rows.error());
  return base::read_document<Headlines>(text, file, [&](const base::Cursor& root) {
    Headlines out{{}, std::move(*rows)};
    for (const base::Cursor& item : root.at("headlines").items()) {
      Headline headline;
      headline.what = item.at("what").text();
      headline.source = item.at("source").text();
      headline.said = item.at("said").text();
      if (item.has("reason"))
        headline.reason = item.at("reason").text();
      else
        read_quantity(item, headline);
      for (const std::string& run : headline.runs)
        if (std::none_of(out.runs.begin(), out.runs.end(), [&](const Row& row) { return row.setup.id == run; }))
          item.at("runs").error("E0105", fmt::format("no result is called '{}'", run));
      out.headlines.push_back(std::move(headline));
    }
    root.at("results").ignore();
    return out;
  });
}

std::vector<cost::HeadlineResult> predict_headlines(const Headlines& headlines, Library library) {
  const std::vector<cost::Stack> stacks = library.stacks;
  Translator translator(std::move(library));
  std::vector<cost::HeadlineResult> out;
  std::map<std::pair<std::string, bool>, Simulated> replays;
  for (const Headline& headline : headlines.headlines) {
    cost::HeadlineResult result;
    result.what = headline.what;
    result.source = headline.source;
    result.said = headline.said;
    result.unit = headline.unit;
    result.reason = headline.reason;
    if (result.reason.empty()) result.published = headline.published;
    std::vector<Simulated> runs;
    for (const std::string& id : headline.runs) {
      const auto row = std::find_if(headlines.runs.begin(), headlines.runs.end(),
                                    [&](const Row& one) { return one.setup.id == id; });
      ENSURE(row != headlines.runs.end(), "no run {}", id);  // parse_headlines has checked this
      Setup setup = row->setup;
      if (headline.quantity == Quantity::largest_model) {
        auto deep = deepest(translator, setup);
        if (deep) setup = std::move(*deep);
      }
      // For a model with tables, several quantities are read off one replay.
      const auto seen = replays.find({id, measures_memory(headline.quantity)});
      auto run = seen != replays.end() ? base::Result<Simulated>(seen->second) : simulated(translator, setup, headline);
      if (run && !setup.tables.model.empty()) replays.try_emplace({id, measures_memory(headline.quantity)}, *run);
      if (!run) {
        result.reason = run.error().front().message;
        break;
      }
      result.runs.push_back(plan::describe(run->spec));
      runs.push_back(std::move(*run));
    }
    if (result.reason.empty()) {
      result.predicted = value_of(headline, runs);
      tell_apart(headline, runs, stacks, result);
    }
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace orrery::sim
