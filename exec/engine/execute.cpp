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

// By plan::DealtOver.
std::array<int, plan::kDealtOver> places_of(const plan::PlanSpec& spec, int rank) {
  std::array<int, plan::kDealtOver> places{};
  for (std::size_t i = 0; i < places.size(); ++i)
    places.at(i) = plan::place_in(static_cast<plan::DealtOver>(i), spec, rank);
  return places;
}

// Operators that treat a bucket's elements by parameter, and how finely.
std::optional<RangeGrain> grain_of(const models::Op& op) {
  if (op.stochastic) return RangeGrain::run;
  switch (models::traits_of(op).ranges) {
    case models::Ranges::none: return std::nullopt;
    case models::Ranges::treatment: return RangeGrain::treatment;
    case models::Ranges::parameter: return RangeGrain::parameter;
  }
  return std::nullopt;
}

// For every backend alike: a device reports no bad ids, and to a loss -1 means that a row predicts nothing.
void check_ids(std::span<const std::int32_t> ids, const char* of, std::int64_t vocab) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab)
      throw Failure(
          fmt::format("{} id {} at position {} of the batch, but the vocabulary has {}", of, ids[i], i, vocab));
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
      places_(places_of(schedule.spec, transport.rank())),
      steady_from_(schedule.steady_from()),
      arena_(backend, class_, placement, options.check, options.arena, options.state_file),
      loss_(kNone),
      norm_(kNone),
      waiter_(waiter),
      recorder_(waiter.recorder()),
      communication_(waiter, options.progress, [&backend](const Point& point) { backend.order_behind(point); }) {
  make_groups();
  connect_peers();
  name_messages();
  find_optimizer();
  find_counts();
  host_shares_ = host_shares();
  prepare_graphs();
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
  for (std::size_t e = 0; e < class_.program.size(); ++e) {
    const plan::Block& block = class_.blocks[static_cast<std::size_t>(class_.program[e].block)];
    for (std::size_t s = 0; s < block.steps.size(); ++s)
      if (updates_parameters(block.steps[s])) {
        optimizer_ = {static_cast<std::int32_t>(e), static_cast<std::int32_t>(s)};
        return;
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

std::int64_t Executor::shard_offset(const plan::Bucket& bucket) const {
  return places_[static_cast<std::size_t>(bucket.dealt())] * bucket.shard_elements();
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
  backend_.begin_step(input.context);
  transport_.mark_operations(recording_);
  if (class_.scaling.exists()) backend_.read_later(kScaleBefore, arena_.data(class_.scaling, -1), 4);
  const std::vector<Place> all = places(input);
  if (may_graph_ && !input.before_optimizer && !input.before_each)
    walk_by_graphs(all, input);
  else
    walk(all, input);
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

void Executor::run_one(const plan::Step& step, const Place& place, const StepInput& input) {
  if (input.before_each) input.before_each(place.at);
  if (place.at == optimizer_ && input.before_optimizer) {
    communication_.wait_for_all();
    backend_.synchronise();
    input.before_optimizer();
  }
  arrive(step, place);
  execute(step, place, input);
  leave(step, place, true);
}

void Executor::execute(const plan::Step& step, const Place& place, const StepInput& input) {
  forget_counts(step);
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
  communication_.wait_for(touches(step, place.of), who(step));
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
  communication_.wait_for({touch(buffer, -1, true)}, on_device ? Communication::Who::device : Communication::Who::host);
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

Touch Executor::touch(plan::BufferId buffer, const Instance& of, bool writes) const {
  return {arena_.data(buffer, of), arena_.bytes(buffer), writes};
}

std::vector<Touch> Executor::touches(const plan::Step& step, const Instance& of) const {
  return plan::uses_of(step, [&](plan::BufferId buffer, bool writes) { return touch(buffer, of, writes); });
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

std::int64_t Executor::element_offset(const plan::View& view) const {
  return view.offset + places_[static_cast<std::size_t>(view.dealt)] * view.elements;
}

std::byte* Executor::address(const plan::View& view, const Instance& of) const {
  const plan::Buffer& buffer = class_.buffers[view.buffer];
  return arena_.data(view.buffer, of) + element_offset(view) * models::size_of(buffer.dtype);
}

Operand Executor::operand(int view, const Instance& of) const {
  if (view < 0) return {};
  const plan::View& v = class_.views[static_cast<std::size_t>(view)];
  return {address(v, of), v.elements, class_.buffers[v.buffer].dtype};
}

void Executor::run_op(const models::Op& op, const plan::Step& step, const Instance& of, const StepInput& input) {
  if (op.kind == models::OpKind::load_tokens) return load_tokens(op, of, input);
  if (op.kind == models::OpKind::load_clicks) return load_clicks(op, of, input);
  std::array<Operand, kMostOperands> in, out;
  ENSURE(op.in.size() <= kMostOperands && op.out.size() <= kMostOperands, "{} has too many operands",
         models::name_of(op.kind));
  for (std::size_t i = 0; i < op.in.size(); ++i) in[i] = operand(op.in[i], of);
  for (std::size_t i = 0; i < op.out.size(); ++i) out[i] = operand(op.out[i], of);
  std::span<const ElementRange> ranged;
  if (const auto grain = grain_of(op)) ranged = ranges(op, *grain);
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
  context.shard = places_[static_cast<std::size_t>(dealt)];
  if (dealt == plan::DealtOver::experts) {  // whole matrices of experts, which other ranks may split
    const plan::Holders holders = spec.holders(true);
    context.tensor_rank = holders.part(context.rank), context.tensor_ways = holders.ways;
  }
  context.tables = schedule_.tables.get();
  context.first_sequence =
      replica * (spec.shape.batch / spec.mesh.data) + std::max(0, of.micro_batch) * spec.shape.micro_batch;
  return context;
}

std::array<const std::vector<std::int32_t>*, 6> Executor::read_batch(const models::Op& op, const Instance& of,
                                                                     const StepInput& input) {
  const auto n = static_cast<std::size_t>(op.batch * op.sequence * op.context);
  const bool masked = op.k > 0;
  tokens_.resize(n);
  targets_.resize(masked ? static_cast<std::size_t>(op.batch * op.k) : n);
  if (op.out.size() > 2) token_types_.assign(n, 0);
  if (masked) {
    ENSURE(input.load_masked, "a masked-language model is given no masked data");
    masked_rows_.resize(targets_.size());
    next_sentence_.resize(static_cast<std::size_t>(op.batch));
    input.load_masked(of, {tokens_, targets_, token_types_, masked_rows_, next_sentence_});
  } else {
    input.load(of, tokens_, targets_);
  }
  check_ids(tokens_, "token", op.vocab);
  check_ids(targets_, "target", op.vocab);
  if (!masked) {
    if (op.out.size() > 5) {  // of a sequence's last target the next token is not there
      const auto sequence = static_cast<std::size_t>(op.sequence * op.context);
      further_targets_.assign(n, -1);
      for (std::size_t i = 0; i + 1 < n; ++i)
        if ((i + 1) % sequence != 0) further_targets_[i] = targets_[i + 1];
    } else {
      further_targets_.clear();
    }
    keep_part(op, input.context.part);
  }
  return {&tokens_, &targets_, &token_types_, &masked_rows_, &next_sentence_, &further_targets_};
}

// Bytes of ids in a view of load_tokens, even if its buffer is not alive.
std::size_t Executor::bytes_of_ids(int view) const {
  return static_cast<std::size_t>(class_.views[static_cast<std::size_t>(view)].elements) * sizeof(std::int32_t);
}

// If steps may be graphs, the batch waits in a slot of its own, whose address the graph has.
void Executor::load_tokens(const models::Op& op, const Instance& of, const StepInput& input) {
  if (!may_graph_) {
    const auto sources = read_batch(op, of, input);
    for (std::size_t i = 0; i < op.out.size() && i < sources.size(); ++i)
      if (op.out[i] >= 0)
        backend_.copy_to_device(operand(op.out[i], of).data,
                                std::as_bytes(std::span(*sources[i])).first(bytes_of_ids(op.out[i])));
    return;
  }
  std::span<std::byte> slot = slot_of(op, of, input);
  fill_slot(slot, op, of, input);
  for (const int view : op.out) {
    if (view < 0) continue;
    backend_.queue_to_device(operand(view, of).data, slot.first(bytes_of_ids(view)));
    slot = slot.subspan(bytes_of_ids(view));
  }
}

void Executor::load_clicks(const models::Op& op, const Instance& of, const StepInput& input) {
  ENSURE(input.load_clicks, "a recommendation model is given no samples");
  dense_.resize(static_cast<std::size_t>(op.n * op.m));
  labels_.resize(static_cast<std::size_t>(op.n));
  tokens_.resize(static_cast<std::size_t>(op.n * op.k));
  input.load_clicks(of, {dense_, labels_, tokens_});
  if (backend_.asynchronous()) check_lookups(*schedule_.tables, tokens_);  // a device cannot report bad ones
  backend_.copy_to_device(operand(op.out[0], of).data, std::as_bytes(std::span(dense_)));
  backend_.copy_to_device(operand(op.out[1], of).data, std::as_bytes(std::span(labels_)));
  backend_.copy_to_device(operand(op.out[2], of).data, std::as_bytes(std::span(tokens_)));
}

std::span<std::byte> Executor::slot_of(const models::Op& op, const Instance& of, const StepInput& input) {
  std::span<std::byte>& slot = slots_[{&op, of.micro_batch, of.step - input.iteration}];
  if (!slot.empty()) return slot;
  std::size_t bytes = 0;
  for (const int view : op.out) bytes += view < 0 ? 0 : bytes_of_ids(view);
  return slot = backend_.allocate_slot(bytes);
}

void Executor::fill_slot(std::span<std::byte> slot, const models::Op& op, const Instance& of, const StepInput& input) {
  ReadAhead& ahead = ahead_[{&op, of.micro_batch, of.step - input.iteration}];
  if (ahead.step != of.step) ahead.bytes = batch_bytes(op, of, input);
  ahead.step = -1;
  ENSURE(ahead.bytes.size() == slot.size(), "{} bytes for a slot of {}", ahead.bytes.size(), slot.size());
  std::memcpy(slot.data(), ahead.bytes.data(), slot.size());
}

std::vector<std::byte> Executor::batch_bytes(const models::Op& op, const Instance& of, const StepInput& input) {
  const auto sources = read_batch(op, of, input);
  ENSURE(op.out.size() <= sources.size(), "a batch of {} parts", op.out.size());
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < op.out.size(); ++i) {
    if (op.out[i] < 0) continue;
    const auto part = std::as_bytes(std::span(*sources[i])).first(bytes_of_ids(op.out[i]));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

// Keeps this rank's rows of whole sequences.
void Executor::keep_part(const models::Op& op, int part) {
  if (op.context == 1) return;
  const std::int64_t rows = op.batch * op.sequence;
  for (std::vector<std::int32_t>* ids : {&tokens_, &targets_, &further_targets_}) {
    if (ids->empty()) continue;
    std::vector<std::int32_t> kept(static_cast<std::size_t>(rows));
    for (std::int64_t row = 0; row < rows; ++row)
      kept[static_cast<std::size_t>(row)] =
          (*ids)[static_cast<std::size_t>(row / op.sequence * op.sequence * op.context + position_of(op, part, row))];
    *ids = std::move(kept);
  }
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
    for (const int view : views) operands.push_back(operand(view, of));
    return {operands.data() + first, views.size()};
  };
  std::vector<OpCall> calls;
  for (const models::Op& op : ops) {
    std::span<const ElementRange> ranged;
    if (const auto grain = grain_of(op)) ranged = ranges(op, *grain);
    const std::span<const Operand> in = operands_of(op.in);
    calls.push_back({&op, in, operands_of(op.out), ranged});
  }
  backend_.run_all(calls, context_of(step, of, input));
}

const std::vector<ElementRange>& Executor::ranges(const models::Op& op, RangeGrain grain) {
  const int operand = op.in.front();  // a view of its own: the gradient, or LAMB's first moment
  const auto found = ranges_.find(operand);
  if (found != ranges_.end()) return found->second;
  const plan::View& view = class_.views[static_cast<std::size_t>(operand)];
  for (const plan::Bucket& bucket : class_.buckets) {
    const plan::Holders holders = schedule_.spec.holders(bucket.experts);
    const int ways = holders.ways, part = holders.part(transport_.rank());
    if (view.buffer == bucket.received)
      return ranges_[operand] = element_ranges(bucket, shard_offset(bucket), view.elements, ways, part, grain);
    if (view.buffer != bucket.gradients && view.buffer != bucket.gradient_shard && view.buffer != bucket.first_moment)
      continue;
    const bool of_shard = class_.buffers[view.buffer].elements != bucket.elements;
    const std::int64_t begin = element_offset(view) + (of_shard ? shard_offset(bucket) : 0);
    return ranges_[operand] = element_ranges(bucket, begin, view.elements, ways, part, grain);
  }
  ENSURE(false, "{} works on no bucket's gradients", models::name_of(op.kind));
}

}  // namespace orrery::exec
