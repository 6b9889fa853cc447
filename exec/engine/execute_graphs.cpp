// The executor's graphs: which steps form one, when they are captured, and what the host still does when they are
// replayed.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "exec/engine/execute.h"
#include "exec/failure.h"
#include "plan/schedule/waits.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kMostPhases = 16;     // of rings; each has its own graphs
constexpr std::size_t kMostPatterns = 32;    // graphs take device memory
constexpr std::int64_t kLeastOperators = 2;  // a graph of one operator saves nothing

}  // namespace

std::int64_t Executor::period() const {
  std::int64_t steps = 1;
  const std::int64_t micro_batches = plan::micro_batches_of(class_);
  for (const plan::Buffer& buffer : class_.buffers) steps = std::lcm(steps, std::int64_t{buffer.versions});
  for (const std::int64_t ring : arena_.rings()) steps = std::lcm(steps, ring / std::gcd(ring, micro_batches));
  return steps;
}

void Executor::prepare_graphs() {
  graph_counts_.reason = why_no_graphs();
  may_graph_ = graph_counts_.reason.empty();
  if (!may_graph_) return;
  period_ = period();
  class_.program.each_kind([&](const plan::Entry& entry, std::int64_t, std::int32_t) {
    for (const plan::Step& step : class_.blocks[static_cast<std::size_t>(entry.block)].steps)
      for (const std::int64_t turn : {step.from_step, step.until_step})
        if (turn > 0 && turn < plan::kLateStep) turns_.push_back(turn - entry.ahead);
  });
  std::sort(turns_.begin(), turns_.end());
  turns_.erase(std::unique(turns_.begin(), turns_.end()), turns_.end());
}

std::string Executor::why_no_graphs() const {
  if (!options_.graphs) return "switched off";
  if (!backend_.captures()) return "the " + backend_.name() + " backend has none";
  if (options_.check == Arena::Check::overlaps_and_poison) return "newborn buffers are filled by the host";
  const std::int64_t steps = period();
  if (steps > kMostPhases) return fmt::format("addresses repeat only after {} training steps", steps);
  return {};
}

Executor::Pattern Executor::pattern_of(const StepInput& input) const {
  Pattern pattern;
  pattern.phase = input.iteration % period_;
  pattern.turn =
      static_cast<std::size_t>(std::upper_bound(turns_.begin(), turns_.end(), input.iteration) - turns_.begin());
  for (std::size_t e = 0; e < class_.program.size(); ++e) {
    const plan::Entry& entry = class_.program[e];
    if (!plan::runs(entry, input.iteration, input.end, !opened_)) continue;
    pattern.entries.push_back(static_cast<std::int32_t>(e));
  }
  const StepContext& c = input.context;
  pattern.constants = {c.beta1,
                       c.beta2,
                       c.epsilon,
                       c.weight_decay,
                       c.matrix_decay,
                       c.clip_norm,
                       c.momentum,
                       c.nesterov ? 1.0 : 0.0,
                       c.adaptive ? 1.0 : 0.0,
                       c.clip_update,
                       c.decay_power,
                       c.scale_factor,
                       static_cast<double>(c.scale_interval),
                       static_cast<double>(c.seed >> 32),
                       static_cast<double>(c.seed & 0xffffffffU),
                       static_cast<double>(c.tensor_rank),
                       static_cast<double>(c.tensor_ways),
                       static_cast<double>(c.part)};
  return pattern;
}

// The first training step of a pattern runs without graphs and is traced. Whatever the backend makes at first use (a
// product's choice of kernel, tables, a communicator's connections) is thus made outside any capture. From the second
// step on, its runs are graphs.
void Executor::walk_by_graphs(std::span<const Place> places, const StepInput& input) {
  const Pattern pattern = pattern_of(input);
  const auto found = patterns_.find(pattern);
  if (found == patterns_.end()) {
    if (patterns_.size() >= kMostPatterns) {
      graph_counts_.reason = fmt::format("more than {} kinds of training steps", kMostPatterns);
      return walk(places, input);
    }
    PatternGraphs made = traced_walk(places, input);
    patterns_.emplace(pattern, std::move(made));
    return;
  }
  PatternGraphs& graphs = found->second;
  std::size_t next = 0;
  for (std::size_t run = 0; run < graphs.runs.size(); ++run) {
    const auto [first, last] = graphs.runs[run];
    walk(places.subspan(next, first - next), input);
    graph_counts_.plain_steps += static_cast<std::int64_t>(first - next);
    run_graph(graphs, run, places.subspan(first, last - first), input, last == places.size());
    next = last;
  }
  walk(places.subspan(next), input);
  graph_counts_.plain_steps += static_cast<std::int64_t>(places.size() - next);
}

Executor::PatternGraphs Executor::traced_walk(std::span<const Place> places, const StepInput& input) {
  std::vector<TracedStep> steps;
  std::vector<Touch> of_host;  // of host-driven messages, which a later step may have to wait for
  bool frees = false;          // one of them frees memory
  for (const Place& place : places) steps.push_back(traced(place, input, of_host, frees));
  PatternGraphs out;
  out.runs = graph_runs(steps, kLeastOperators);
  for (const GraphRun& run : out.runs) {
    const auto message = [](const TracedStep& step) { return step.message >= 0; };
    const auto begin = steps.begin();
    out.messages.push_back(std::any_of(begin + static_cast<std::ptrdiff_t>(run.first),
                                       begin + static_cast<std::ptrdiff_t>(run.last), message));
  }
  for (std::vector<KeptGraph>& kept : out.graphs) kept.resize(out.runs.size());
  return out;
}

// Samples come from the host's own memory, and copies of the logits go there.
bool Executor::host_takes_part(const plan::Step& step, const StepInput& input) {
  return std::any_of(step.ops.begin(), step.ops.end(), [&](const models::Op& op) {
    return op.kind == models::OpKind::load_clicks || (op.kind == models::OpKind::click_loss && input.see_clicks);
  });
}

TracedStep Executor::traced(const Place& place, const StepInput& input, std::vector<Touch>& of_host, bool& frees) {
  const plan::Step& step = step_at(place);
  Communication::Trace trace;
  communication_.trace_into(&trace);
  arrive(step, place);
  const std::vector<Touch> touched = operands_.touches(step, place.of);
  execute(step, place, input);
  leave(step, place, true);
  communication_.trace_into(nullptr);
  TracedStep out;
  out.ordered = std::move(trace.ordered);
  out.behind = std::move(trace.behind);
  if (step.kind == plan::StepKind::compute) {
    out.capturable = !step.on_host && !host_takes_part(step, input);
    out.operators = static_cast<std::int64_t>(step.ops.size());
    // Whether the host had to wait this time is chance; whether it may have to is not.
    const bool waits = plan::compute_waits(touched, of_host, frees);
    out.begins = waits;
    if (waits) of_host.clear();  // all of them are waited for at the start of a graph
    frees = frees && !waits;
    return out;
  }
  out.message = trace.submitted.at(0);
  out.operators = 1;
  // The host may have to know when a copy ends.
  const bool asked = step.kind == plan::StepKind::copy && host_shares_;
  // The host reads the counts of a counted message before it starts: a graph ends there.
  out.capturable =
      queued(step) && !asked && !trace.host && !step.counted.any() && !plan::conflict_between(touched, of_host);
  if (!queued(step) || trace.host) {
    of_host.insert(of_host.end(), touched.begin(), touched.end());
    frees = frees || !step.deaths.empty();
  }
  return out;
}

void Executor::run_graph(PatternGraphs& pattern, std::size_t run, std::span<const Place> places, const StepInput& input,
                         bool ends_step) {
  KeptGraph& kept = pattern.graphs[recording_ ? 1 : 0][run];
  if (!kept.graph && !kept.failed) {
    if (capture(kept, places, input, ends_step))
      ++graph_counts_.captured;
    else
      ++graph_counts_.failed, kept.failed = true;
  } else if (kept.graph) {
    keep_books(places);
    fill_slots(places, input);
  }
  if (!kept.graph) {
    graph_counts_.plain_steps += static_cast<std::int64_t>(places.size());
    return walk(places, input);
  }
  if (pattern.messages[run]) transport_.check_health();
  const auto begin = pattern.messages[run] ? backend_.point() : nullptr;
  backend_.replay(*kept.graph);
  ++graph_counts_.replayed;
  graph_counts_.steps += static_cast<std::int64_t>(places.size());
  if (pattern.messages[run])
    transport_.watch(fmt::format("a graph of training step {} with messages, from {} on", current_iteration_,
                                 summary_of_place(places.front())),
                     begin, backend_.point());
  for (const GraphSpan& span : kept.spans) {
    marked_.push_back({spans_.size(), span.from, span.to});
    spans_.push_back({current_iteration_, span.at, span.micro_batch, 0, 0});
  }
  read_ahead(places, input);
}

// The device has the graph to compute. That hides the host's work on the next training step's batches (reading them,
// choosing and replacing words).
void Executor::read_ahead(std::span<const Place> places, const StepInput& input) {
  for (const Place& place : places)
    for (const models::Op& op : step_at(place).ops)
      if (op.kind == models::OpKind::load_tokens) batches_.read_ahead(op, place.of, input);
}

// What the host does in a walk besides queueing: it hands out memory and takes it back. The waits of the first step
// happen outside the graph; those of the other steps are inside it.
void Executor::keep_books(std::span<const Place> places) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const plan::Step& step = step_at(places[i]);
    if (i == 0)
      arrive(step, places[i]);
    else
      for (const plan::BufferId buffer : step.births) arena_.birth(places[i].at, buffer, places[i].of, false);
    counts_.forget(step);
    leave(step, places[i], false);
  }
}

void Executor::fill_slots(std::span<const Place> places, const StepInput& input) {
  for (const Place& place : places)
    for (const models::Op& op : step_at(place).ops)
      if (op.kind == models::OpKind::load_tokens) (void)batches_.filled_slot(op, place.of, input);
}

// True: the graph is kept, and the books are as after the walk, although none of it has run yet. False: nothing has
// changed.
bool Executor::capture(KeptGraph& kept, std::span<const Place> places, const StepInput& input, bool ends_step) {
  const Arena::Books books = arena_.books();
  const std::int64_t number = communication_.next_number();
  const std::size_t spans = spans_.size(), marked = marked_.size();
  const std::array<bool, 2> fetched = fetched_;
  const plan::Step& first = step_at(places.front());
  arrive(first, places.front());
  bool captured = true;
  try {
    backend_.begin_capture();
    execute(first, places.front(), input);
    leave(first, places.front(), true);
    walk(places.subspan(1), input);
    if (ends_step) communication_.order_behind_from(number);
    kept.graph = backend_.end_capture();
  } catch (const Failure& failure) {
    backend_.abandon_capture();
    graph_counts_.reason = failure.what();
    communication_.forget_from(number);
    arena_.reopen(books);
    fetched_ = fetched;
    kept.graph.reset();
    captured = false;
  }
  if (captured)
    for (std::size_t i = marked; i < marked_.size(); ++i) {
      const RawSpan& span = spans_[marked_[i].span];
      kept.spans.push_back({span.at, span.micro_batch, marked_[i].from, marked_[i].to});
    }
  marked_.resize(marked);
  spans_.resize(spans);
  return captured;
}

std::string Executor::summary_of_place(const Place& place) const {
  const plan::Entry& entry = class_.program[static_cast<std::size_t>(place.at.entry)];
  return fmt::format("entry {} ({}), step {}, micro-batch {}", place.at.entry,
                     class_.blocks[static_cast<std::size_t>(entry.block)].name, place.at.step, place.of.micro_batch);
}

}  // namespace orrery::exec
