// The program walk: births, operands, operators, communication, deaths.
#include "exec/engine/execute.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "base/ensure.h"
#include "exec/engine/lookups.h"
#include "exec/engine/row_cache.h"
#include "exec/failure.h"
#include "models/operators/operators.h"
#include "plan/schedule/waits.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostOperands = 8;  // of any operator in models/operators/op.h, either side
enum Later : std::size_t { kLoss, kNorm, kScaleBefore, kScaleAfter };  // Backend::read_later

Communication::Who who(const plan::Step& step) {
  return step.on_host ? Communication::Who::host : Communication::Who::device;
}

bool updates_parameters(const plan::Step& step) {
  return std::any_of(step.ops.begin(), step.ops.end(),
                     [](const models::Op& op) { return models::updates_parameters(op.kind); });
}

}  // namespace

Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Executor::Executor(const plan::Schedule& schedule, const plan::Placement& placement, Backend& backend,
                   Transport& transport, const Waiter& waiter, const Options& options)
    : schedule_(schedule),
      class_(schedule.class_of(transport.rank())),
      backend_(backend),
      transport_(transport),
      options_(options),
      steady_from_(schedule.steady_from()),
      arena_(backend, class_, placement, options.check, options.arena, options.state_file),
      loss_(kNone),
      norm_(kNone),
      waiter_(waiter),
      recorder_(waiter.recorder()),
      communication_(waiter, options.progress, [&backend](const Point& point) { backend.order_behind(point); }) {
  make_groups();
  connect_peers();
  if (recorder_ != nullptr) messages_ = names_.number(*recorder_);
  find_optimizer();
  find_counts();
  host_shares_ = host_shares();
  prepare_graphs();
  if (may_graph_) batches_.keep_slots();
}

void Executor::make_groups() {
  // Members of a communicator must call in one order. Streams advance independently, so each has its own communicator.
  for (const plan::RankClass& rank_class : schedule_.classes)
    for (const plan::Block& block : rank_class.blocks)
      for (const plan::Step& step : block.steps) {
        if (step.kind != plan::StepKind::collective) continue;
        const auto key = std::make_pair(step.group, step.stream);
        if (groups_.count(key) == 0) groups_[key] = transport_.make_group(schedule_.groups[step.group]);
      }
}

void Executor::connect_peers() {
  const int stage = schedule_.spec.mesh.ranks_per_stage();
  std::set<int> send_to, receive_from;
  for (const plan::Block& block : class_.blocks)
    for (const plan::Step& step : block.steps) {
      const int peer = transport_.rank() + step.peer * stage;
      if (step.kind == plan::StepKind::send) send_to.insert(peer);
      if (step.kind == plan::StepKind::recv) receive_from.insert(peer);
      if (step.kind != plan::StepKind::collective || step.collective != plan::CollectiveKind::ring_shift) continue;
      const Ring ring = ring_of(step);
      send_to.insert(ring.next);
      receive_from.insert(ring.previous);
    }
  transport_.connect({send_to.begin(), send_to.end()}, {receive_from.begin(), receive_from.end()});
}

void Executor::find_optimizer() {
  optimizer_.entry = -1;
  bool clipped = false;  // a rank that updates nothing is where others update behind the clipping
  for (std::size_t e = 0; e < class_.program.size(); ++e) {
    const plan::Block& block = class_.blocks[static_cast<std::size_t>(class_.program[e].block)];
    for (std::size_t s = 0; s < block.steps.size(); ++s) {
      const plan::Step& step = block.steps[s];
      const plan::StepRef at{static_cast<std::int32_t>(e), static_cast<std::int32_t>(s)};
      if (updates_parameters(step)) {
        optimizer_ = at;
        return;
      }
      if (clipped && optimizer_.entry < 0) optimizer_ = at;
      clipped = clipped || std::any_of(step.ops.begin(), step.ops.end(), [](const models::Op& op) {
                  return op.kind == models::OpKind::clip_coefficient;
                });
    }
  }
}

// True with checks, steps on the host, copies of files, sums on the host, and scalars that the host itself reads or
// fills.
bool Executor::host_shares() const {
  if (options_.check == Arena::Check::overlaps_and_poison) return true;
  for (const plan::BufferId scalar : {class_.loss, class_.gradient_norm, class_.scaling})
    if (scalar && arena_.space_of(scalar) != plan::Space::device) return true;
  for (const plan::Block& block : class_.blocks)
    for (const plan::Step& step : block.steps)
      if (step.on_host || (step.kind == plan::StepKind::copy && !queued(step))) return true;
  return false;
}

// This training step's entries, step by step.
std::vector<Executor::Place> Executor::places(const StepInput& input) const {
  std::vector<Place> out;
  for (std::size_t e = 0; e < class_.program.size(); ++e) {
    const plan::Entry& entry = class_.program[e];
    const Instance of(entry.micro_batch, input.iteration + entry.ahead);
    if (!plan::runs(entry, input.iteration, input.end, !opened_)) continue;
    const std::vector<plan::Step>& steps = class_.blocks[static_cast<std::size_t>(entry.block)].steps;
    for (std::size_t s = 0; s < steps.size(); ++s)
      if (steps[s].runs_in(of.step)) out.push_back({{static_cast<std::int32_t>(e), static_cast<std::int32_t>(s)}, of});
  }
  return out;
}

const plan::Step& Executor::step_at(const Place& place) const {
  const plan::Entry& entry = class_.program[static_cast<std::size_t>(place.at.entry)];
  return class_.blocks[static_cast<std::size_t>(entry.block)].steps[static_cast<std::size_t>(place.at.step)];
}

std::chrono::nanoseconds Executor::run_step(const StepInput& input) {
  current_iteration_ = static_cast<std::int32_t>(input.iteration);
  recording_ = options_.record && iterations_.size() < options_.most_iterations &&
               input.iteration % options_.sample_every == 0 &&
               (input.iteration >= steady_from_ || input.end <= steady_from_);
  if (recording_ && iterations_.size() == 1) operators_.clear();
  const Nanoseconds begin = now();
  const Backend::Mark origin = backend_.asynchronous() ? backend_.mark() : Backend::Mark{};
  arena_.begin_step();
  fetched_ = {};
  lossless_ = {};
  saw_optimizer_ = false;
  backend_.begin_step(input.context);
  transport_.mark_operations(recording_);
  if (class_.scaling.exists()) backend_.read_later(kScaleBefore, arena_.data(class_.scaling, -1), 4);
  const std::vector<Place> all = places(input);
  if (may_graph_ && !input.before_optimizer && !input.before_each)
    walk_by_graphs(all, input);
  else
    walk(all, input);
  see_gradients(input);  // a rank whose program ends before
  opened_ = true;
  communication_.wait_for_all();
  for (const plan::BufferId scalar : {class_.loss, class_.gradient_norm})
    if (scalar && arena_.alive(scalar, -1)) fetch(scalar);
  if (class_.scaling.exists()) backend_.read_later(kScaleAfter, arena_.data(class_.scaling, -1), 4);
  backend_.synchronise();  // the only wait of a step whose messages are queued
  if (fetched_[kLoss]) loss_ = static_cast<double>(backend_.later(kLoss).front());
  if (fetched_[kNorm]) norm_ = static_cast<double>(backend_.later(kNorm).front());
  if (class_.balance.exists()) read_expert_use();
  if (class_.scaling.exists())
    loss_scale_ = {static_cast<double>(backend_.later(kScaleBefore)[0]), backend_.later(kScaleAfter)[3] != 0};
  for (const Marked& m : marked_) {
    spans_[m.span].ready = begin + static_cast<Nanoseconds>(1e9 * backend_.seconds_between(origin, m.from));
    spans_[m.span].end = begin + static_cast<Nanoseconds>(1e9 * backend_.seconds_between(origin, m.to));
  }
  marked_.clear();
  const Nanoseconds end = now();
  if (recording_) iterations_.push_back({current_iteration_, begin, end});
  return std::chrono::nanoseconds(end - begin);
}

void Executor::walk(std::span<const Place> places, const StepInput& input) {
  for (const Place& place : places) run_one(step_at(place), place, input);
}

void Executor::see_gradients(const StepInput& input) {
  if (!input.before_optimizer || saw_optimizer_) return;
  saw_optimizer_ = true;
  communication_.wait_for_all();
  backend_.synchronise();
  input.before_optimizer();
}

void Executor::run_one(const plan::Step& step, const Place& place, const StepInput& input) {
  if (input.before_each) input.before_each(place.at);
  if (place.at == optimizer_) see_gradients(input);
  arrive(step, place);
  execute(step, place, input);
  leave(step, place, true);
}

void Executor::execute(const plan::Step& step, const Place& place, const StepInput& input) {
  counts_.forget(step);
  if (step.kind == plan::StepKind::compute)
    compute(step, place, input);
  else
    communicate(step, place);
}

void Executor::arrive(const plan::Step& step, const Place& place) {
  give_birth(step, place);
  if (step.kind != plan::StepKind::compute || communication_.idle()) return;
  communication_.progress();
  communication_.wait_for_freeing();
  communication_.wait_for(operands_.touches(step, place.of), who(step));
}

// `queues`: also on the device, unless a graph has done it.
void Executor::leave(const plan::Step& step, const Place& place, bool queues) {
  for (const plan::BufferId buffer : step.deaths) {
    if (buffer == class_.loss || buffer == class_.gradient_norm) {
      if (queues || arena_.space_of(buffer) != plan::Space::device)
        fetch(buffer);
      else
        fetched_[buffer == class_.loss ? kLoss : kNorm] = true;
    }
    arena_.death(buffer, place.of);
  }
}

void Executor::fetch(plan::BufferId buffer) {
  const bool on_device = arena_.space_of(buffer) == plan::Space::device;
  communication_.wait_for({operands_.touch(buffer, -1, true)},
                          on_device ? Communication::Who::device : Communication::Who::host);
  const std::size_t slot = buffer == class_.loss ? kLoss : kNorm;
  backend_.read_later(slot, arena_.data(buffer, -1), 1);
  fetched_[slot] = true;
}

void Executor::give_birth(const plan::Step& step, const Place& place) {
  for (const plan::BufferId buffer : step.births) {
    bool in_flight = false;
    if (!communication_.idle()) {
      const std::vector<Touch> newborn{{arena_.birthplace(place.at, buffer, place.of), arena_.bytes(buffer), true}};
      if (step.kind == plan::StepKind::compute) communication_.wait_for(newborn, who(step));
      in_flight = communication_.conflicts(newborn);
    }
    arena_.birth(place.at, buffer, place.of, !in_flight);  // a message may still leave from that memory
  }
}

void Executor::compute(const plan::Step& step, const Place& place, const StepInput& input) {
  const bool marks = recording_ && backend_.asynchronous();
  const Nanoseconds begin = now();
  const Backend::Mark from = marks ? backend_.mark() : Backend::Mark{};
  if (recording_ && !marks)
    run_timed(step, place, input);
  else
    run_ops(step, place.of, input);
  if (!recording_) return;
  if (marks) marked_.push_back({spans_.size(), from, backend_.mark()});
  spans_.push_back({current_iteration_, place.at, place.of.micro_batch, begin, now()});
}

void Executor::run_timed(const plan::Step& step, const Place& place, const StepInput& input) {
  const std::int32_t block = class_.program[static_cast<std::size_t>(place.at.entry)].block;
  std::vector<std::vector<float>>& samples = operators_[{block, place.at.step}];
  samples.resize(step.ops.size());
  Nanoseconds from = now();
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    run_op(step.ops[i], step, place.of, input);
    const Nanoseconds to = now();
    samples[i].push_back(static_cast<float>(to - from) * 1e-9F);
    from = to;
  }
}

std::vector<OperatorRecord> Executor::operators() const {
  std::vector<OperatorRecord> out;
  for (const auto& [at, samples] : operators_)
    for (std::size_t i = 0; i < samples.size(); ++i) {
      std::vector<float> sorted = samples[i];
      std::sort(sorted.begin(), sorted.end());
      const std::size_t cut = sorted.size() / 4;
      double sum = 0;
      for (std::size_t s = cut; s < sorted.size() - cut; ++s) sum += static_cast<double>(sorted[s]);
      if (sorted.empty()) continue;
      out.push_back({at.first, at.second, static_cast<std::int32_t>(i), static_cast<std::int64_t>(sorted.size()),
                     sum / static_cast<double>(sorted.size() - 2 * cut)});
    }
  return out;
}

void Executor::run_op(const models::Op& op, const plan::Step& step, const Instance& of, const StepInput& input) {
  if (op.kind == models::OpKind::load_tokens) return batches_.load_tokens(op, of, input);
  if (op.kind == models::OpKind::load_clicks) return batches_.load_clicks(op, of, input);
  std::array<Operand, kMostOperands> in, out;
  ENSURE(op.in.size() <= kMostOperands && op.out.size() <= kMostOperands, "{} has too many operands",
         models::name_of(op.kind));
  for (std::size_t i = 0; i < op.in.size(); ++i) in[i] = operands_.at(op.in[i], of);
  for (std::size_t i = 0; i < op.out.size(); ++i) out[i] = operands_.at(op.out[i], of);
  const std::span<const ElementRange> ranged = operands_.ranges(op);
  StepContext context = context_of(step, of, input);
  if (op.turns > 1) context.step = context.step * op.turns + op.turn;  // a step of the optimizer for each turn
  backend_.run(op, {in.data(), op.in.size()}, {out.data(), op.out.size()}, ranged, context);
  if (op.kind == models::OpKind::click_loss && input.see_clicks) {
    std::vector<float> logits(static_cast<std::size_t>(op.n)), labels(logits.size());
    backend_.copy_to_host(std::as_writable_bytes(std::span(logits)), in[0].data);
    backend_.copy_to_host(std::as_writable_bytes(std::span(labels)), in[1].data);
    input.see_clicks(logits, labels);
  }
  if (op.kind == models::OpKind::sparse_encode && !backend_.asynchronous()) count_lossless(op, out[0]);
}

std::map<int, Executor::CacheUse> Executor::cache_use() const {
  std::map<int, CacheUse> out;
  if (!class_.cache) return out;
  const plan::TableLayout& layout = *schedule_.tables;
  const int rank = transport_.rank();
  const std::span<std::int32_t> books(reinterpret_cast<std::int32_t*>(arena_.data(class_.cache, -1)),
                                      static_cast<std::size_t>(arena_.bytes(class_.cache)) / sizeof(std::int32_t));
  for (std::size_t i = layout.begin(rank); i < layout.end(rank); ++i) {
    const plan::TableShard& shard = layout.shards[i];
    if (!shard.cached()) continue;
    const RowCache::Counts counts = RowCache(books, shard).counts();
    CacheUse& use = out[shard.table];
    use.lookups += counts.lookups;
    use.hits += counts.hits;
    use.fetched_bytes += counts.fetched * shard.row_bytes;
    use.written_bytes += counts.written * shard.row_bytes;
  }
  return out;
}

void Executor::read_expert_use() {
  std::array<float, 2> losses{};
  backend_.copy_to_host(std::as_writable_bytes(std::span(losses)), arena_.data(class_.balance, -1));
  expert_use_.aux_loss = static_cast<double>(losses[0]);
  expert_use_.z_loss = static_cast<double>(losses[1]);
  const std::size_t layers = class_.expert_layers.size();
  if (layers == 0) return;
  std::vector<float> all(static_cast<std::size_t>(class_.buffers[class_.tally].elements));
  backend_.copy_to_host(std::as_writable_bytes(std::span(all)), arena_.data(class_.tally, -1));
  const std::size_t values = all.size() / layers, experts = values / 2;  // each layer has 2E+1
  expert_use_.loads.resize(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * values);
    expert_use_.loads[i] = {class_.expert_layers[i], {first, first + static_cast<std::ptrdiff_t>(experts)}};
  }
}

// The sparse bytes begin with the number of nonzero values.
void Executor::count_lossless(const models::Op& op, const Operand& bytes) {
  std::int64_t kept = 0;
  backend_.copy_to_host(std::as_writable_bytes(std::span(&kept, 1)), bytes.data);
  ++lossless_.tensors;
  lossless_.again += kept > op.capacity ? 1 : 0;
  lossless_.densest = std::max(lossless_.densest, static_cast<double>(kept) / static_cast<double>(op.n * op.m));
}

// Numbers the micro-batch's sequences within the whole step.
StepContext Executor::context_of(const plan::Step& step, const Instance& of, const StepInput& input) const {
  const plan::PlanSpec& spec = schedule_.spec;
  StepContext context = input.context;
  const int replica = transport_.rank() / (spec.mesh.context * spec.mesh.tensor) % spec.mesh.data;
  context.sample_step = of.step;
  context.layer = step.layer;
  context.rank = transport_.rank();
  const plan::DealtOver dealt = step.bucket ? class_.buckets[step.bucket].dealt() : plan::DealtOver::states;
  context.shard = operands_.place_among(dealt);
  if (dealt == plan::DealtOver::experts) {  // whole matrices of experts, which other ranks may split
    const plan::Holders holders = spec.holders(true);
    context.tensor_rank = holders.part(context.rank), context.tensor_ways = holders.ways;
  }
  context.tables = schedule_.tables.get();
  context.first_sequence =
      replica * (spec.shape.batch / spec.mesh.data) + std::max(0, of.micro_batch) * spec.shape.micro_batch;
  return context;
}

// Passes all operators of a step, so that a backend that only queues sees neighbours and may compute them together.
void Executor::run_ops(const plan::Step& step, const Instance& of, const StepInput& input) {
  const std::vector<models::Op>& ops = step.ops;
  // Operators that involve more than the backend: the batch, and updates that have steps of their own.
  const bool apart = std::any_of(ops.begin(), ops.end(), [&](const models::Op& op) {
    return models::reads_data(op) || op.turns > 1 || (op.kind == models::OpKind::click_loss && input.see_clicks);
  });
  if (!backend_.asynchronous() || apart) {
    for (const models::Op& op : ops) run_op(op, step, of, input);
    return;
  }
  std::vector<Operand> operands;
  std::size_t count = 0;
  for (const models::Op& op : ops) count += op.in.size() + op.out.size();
  operands.reserve(count);  // keeps spans into it valid
  const auto operands_of = [&](const std::vector<int>& views) -> std::span<const Operand> {
    const std::size_t first = operands.size();
    for (const int view : views) operands.push_back(operands_.at(view, of));
    return {operands.data() + first, views.size()};
  };
  std::vector<OpCall> calls;
  for (const models::Op& op : ops) {
    const std::span<const ElementRange> ranged = operands_.ranges(op);
    const std::span<const Operand> in = operands_of(op.in);
    calls.push_back({&op, in, operands_of(op.out), ranged});
  }
  backend_.run_all(calls, context_of(step, of, input));
}

}  // namespace orrery::exec
