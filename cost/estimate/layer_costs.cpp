/// Prices and lifetimes of one layer.
#include "cost/estimate/layer_costs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "cost/estimate/encoding.h"
#include "cost/estimate/framework_lives.h"
#include "cost/prices/exchange.h"
#include "models/operators/operators.h"
#include "plan/lower/buckets.h"
#include "plan/lower/lower.h"
#include "plan/lower/recomputed.h"
#include "plan/lower/repeated_modules.h"
#include "plan/outline/layer_pass.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

using models::TensorId;

namespace {

/// Seconds of a layer's compute, and what its messages' depend on.
struct LayerPrices {
  const Pricing& pricing;
  const LayerGroups& groups;

  [[nodiscard]] double compute(std::span<const models::Op> ops) const { return pricing.compute_time(ops).value; }
  [[nodiscard]] double host(std::span<const models::Op> ops) const { return pricing.host_time(ops).value; }
};

/// The messages of one pass over a layer.
class Messages {
 public:
  Messages(const models::LayerProgram& program, const LayerPrices& prices)
      : program_(program),
        pricing_(prices.pricing),
        rows_(prices.pricing, choice_of(program),
              prices.groups.expert_tensor == prices.groups.tensor ? static_cast<int>(prices.groups.tensor.size()) : 1,
              static_cast<int>(prices.groups.experts.size())) {}
  /// Bytes of the whole message, as many whole ones as Step::message_bytes.
  [[nodiscard]] double bytes_of(const models::Part& part) const {
    return std::round(static_cast<double>(whole(part).bytes()) * part.expected);
  }
  LayerMessage of(const models::Part& part) {
    const base::Bytes bytes{bytes_of(part)};
    LayerMessage message{.kind = plan::kind_of(part.collective), .stream = plan::Stream::tensor};
    if (part.collective == models::GroupCollective::all_to_all) {
      TokenExchange::Way way{bytes, base::Seconds{0}};
      if (std::exchange(again_, part.recomputed) != part.recomputed) next_ = Leg::there;
      if (part.sent) {  // rows, not counts
        way = rows_.way(next_, way.across, models::size_of(whole(part).dtype));
        next_ = next_ == Leg::there ? Leg::back : Leg::there;
      }
      message.stream = plan::Stream::exchange;
      message.bytes = way.across.value;
      message.beside = way.within.value;
      return message;
    }
    if (part.collective == models::GroupCollective::ring_shift) message.stream = plan::Stream::context;
    message.of_experts = part.experts;
    message.bytes = pricing_.as_sent(bytes, part.for_fp8).value;
    return message;
  }

 private:
  [[nodiscard]] const models::Tensor& whole(const models::Part& part) const {
    return program_.tensors[part.collective == models::GroupCollective::reduce_scatter ? part.source : part.tensor];
  }
  const models::LayerProgram& program_;
  const Pricing& pricing_;
  TokenExchange rows_;
  Leg next_ = Leg::there;
  bool again_ = false;  ///< whether the last one was recomputed
};

LayerBucket bucket_of(const models::Tensor& parameter) {
  return parameter.shared ? LayerBucket::shared : parameter.expert >= 0 ? LayerBucket::experts : LayerBucket::own;
}

/// The parts of the layer's surroundings that a compute step reads and writes. `input`: the tensor that comes from
/// outside.
void note_surroundings(Segment& segment, std::span<const models::Op> ops, const models::LayerProgram& program,
                       TensorId input) {
  for (const models::Op& op : ops) {
    for (const int operand : op.in) {
      if (operand < 0) continue;
      const TensorId t = models::tensor_of(operand);
      segment.reads_input = segment.reads_input || (input.exists() && models::owner_of(program, t) == input);
      const models::Tensor& tensor = program.tensors[t];
      if (tensor.role != models::TensorRole::parameter) continue;
      const auto number = static_cast<std::int32_t>(t.index());
      segment.reads_parameters.at(static_cast<std::size_t>(bucket_of(tensor))).add({number, number, tensor.elements()});
    }
    for (const int operand : op.out) {
      if (operand < 0) continue;
      const models::Tensor& tensor = program.tensors[models::tensor_of(operand)];
      if (tensor.role == models::TensorRole::gradient)
        segment.writes_gradients.at(static_cast<std::size_t>(bucket_of(program.tensors[tensor.of]))) = true;
    }
  }
}

/// What operators save by writing gradients that are not yet in `added`, by bucket: seconds.
std::array<double, 3> saved_by_writing(std::span<const models::Op> ops, const models::LayerProgram& program,
                                       const LayerPrices& prices, std::set<TensorId>& added) {
  std::array<double, 3> saved = {};
  for (const models::Op& op : ops) {
    std::optional<LayerBucket> first;
    for (const std::size_t sum : models::writable_sums(op)) {
      const TensorId out = sum < op.out.size() ? models::tensor_of(op.out[sum]) : TensorId();
      if (!out || program.tensors[out].role != models::TensorRole::gradient) continue;
      if (added.insert(out).second) first = bucket_of(program.tensors[program.tensors[out].of]);
    }
    if (!first) continue;
    models::Op writing = op;
    writing.accumulate = false;
    saved.at(static_cast<std::size_t>(*first)) +=
        prices.pricing.op_time(op).value - prices.pricing.op_time(writing).value;
  }
  return saved;
}

/// Walks the parts of a pass as lowering does: each run of ops is a step, each message is a step. `added`: the
/// gradients to which passes over the layer have added so far; none where this one adds to none.
template <class Touch>
Pass walk(const std::vector<models::Part>& parts, const models::LayerProgram& program, TensorId input,
          const LayerPrices& prices, const Touch& touch, std::set<TensorId>* added = nullptr) {
  Pass pass;
  plan::Ring<TensorId> ring;
  Messages messages(program, prices);
  for (const models::Part& part : parts) {
    if (part.is_communication()) {
      const LayerMessage message = messages.of(part);
      const bool shifts = message.stream == plan::Stream::context;
      const bool exchanges = message.stream == plan::Stream::exchange;
      const bool meets = !shifts && !exchanges;  // a message of the tensor group
      if (shifts) ring.shift(part.source, part.tensor);
      pass.segments.push_back({.kind = shifts      ? Segment::Kind::shift
                                       : exchanges ? Segment::Kind::exchange
                                                   : Segment::Kind::tensor,
                               .reads_input = input.exists() && (part.tensor == input || part.source == input),
                               .message = message});
      pass.tensor_messages += meets ? 1 : 0;
      touch(part.sent, pass.steps);
      touch(part.received, pass.steps);
      pass.message_bytes += messages.bytes_of(part);
      ++pass.message_count;
      touch(part.source, pass.steps);
      touch(part.tensor, pass.steps++);
      continue;
    }
    if (part.ops.empty()) {
      if (!pass.computes.any() && pass.empty_part < 0) pass.empty_part = pass.steps;
      continue;
    }
    Segment segment{.seconds = prices.compute(part.ops), .host = prices.host(part.ops)};
    (part.recomputed ? pass.recomputed : pass.compute) += segment.seconds;
    pass.host += segment.host;
    if (added != nullptr) segment.saved = saved_by_writing(part.ops, program, prices, *added);
    note_surroundings(segment, part.ops, program, input);
    for (const models::Op& op : part.ops) {
      for (const int t : op.in) touch(models::tensor_of(t), pass.steps);
      for (const int t : op.out) touch(models::tensor_of(t), pass.steps);
      for (const int t : op.in)
        if (const auto arrival = ring.first_read(models::tensor_of(t))) {
          touch(arrival->sent, pass.steps);
          segment.shifts = std::max(segment.shifts, arrival->shift);
        }
    }
    pass.segments.push_back(segment);
    pass.computes.add(pass.steps++);
  }
  return pass;
}

/// Bytes of the inputs and output gradients that the products of the weights' gradients read.
double weight_inputs(const models::LayerProgram& program) {
  std::set<TensorId> read;
  for (const models::Part& part : program.backward)
    for (const models::Op& op : part.ops)
      if (op.kind == models::OpKind::matmul && op.trans_a && op.accumulate)
        for (const std::size_t i : {0, 1}) read.insert(models::owner_of(program, models::tensor_of(op.in[i])));
  double bytes = 0;
  for (const TensorId tensor : read) bytes += static_cast<double>(program.tensors[tensor].bytes());
  return bytes;
}

/// Whether the first operator on each gradient could write it.
void find_first_writes(const std::vector<models::Part>& parts, const models::LayerProgram& program,
                       std::set<TensorId>& touched, LayerCosts& out) {
  for (const models::Part& part : parts)
    for (const models::Op& op : part.ops) {
      const std::vector<std::size_t> sums = models::writable_sums(op);
      for (std::size_t i = 0; i < op.out.size(); ++i) {
        if (op.out[i] < 0) continue;
        const TensorId id = models::tensor_of(op.out[i]);
        const models::Tensor& t = program.tensors[id];
        if (t.role != models::TensorRole::gradient || !touched.insert(id).second) continue;
        const models::Tensor& parameter = program.tensors[t.of];
        bool& written = out.in(bucket_of(parameter)).written;
        written = written && std::find(sums.begin(), sums.end(), i) != sums.end();
      }
    }
}

/// Where a bucket holds its parameters: the gaps between them, and the matrices that are updated as a whole.
void lay_out(LayerBucket of, const models::LayerProgram& program, plan::OptimizerKind optimizer, BucketCosts& out) {
  std::int64_t end = 0;
  for (const TensorId i : plan::parameter_order(program, optimizer)) {
    const models::Tensor& t = program.tensors[i];
    if (t.role != models::TensorRole::parameter || t.frozen || bucket_of(t) != of) continue;
    const std::int64_t begin = plan::round_up(end, plan::parameter_alignment(optimizer));
    if (begin > end) out.gaps.push_back(begin - end);
    end = begin + t.elements();
    plan::add_parameter(out.whole, optimizer, program.kind, t, begin);
  }
}

void count_tensors(const models::Tensor& t, BucketCosts& out) {
  const auto count = [&](const models::Tensor& piece) {
    out.matrices.push_back(plan::matrix_of(piece));
    const plan::FactorCount one = plan::factor_count(piece);
    ++out.tensors;
    out.factors.elements += one.elements;
    out.factors.met += one.met;
  };
  if (t.pieces.empty()) count(t);
  for (const models::Tensor& piece : t.pieces) count(piece);
}

}  // namespace

std::int64_t LayerCosts::zeroed_by_pass(LayerBucket of, std::int64_t elements) const {
  const BucketCosts& bucket = in(of);
  const std::int64_t padding = elements - bucket.elements;
  const std::size_t gaps = bucket.gaps.size() + (padding > 0 ? 1 : 0);
  if (!bucket.written || gaps > 1) return elements;
  return bucket.gaps.empty() ? padding : bucket.gaps.front();
}

LayerCosts layer_costs(const models::LayerProgram& expanded, const LayerChoices& choices, const Pricing& pricing,
                       const LayerGroups& groups) {
  models::LayerProgram with_kept;
  if (choices.repeats.operators) plan::keep_columns(with_kept = expanded);
  const models::LayerProgram& program = choices.repeats.operators ? with_kept : expanded;
  const LayerPrices prices{pricing, groups};
  const bool split = choices.split_backward;
  const std::int64_t alignment = plan::parameter_alignment(choices.optimizer);
  LayerCosts out;
  out.recomputation = choices.repeats.what();
  out.reduced_beside = pricing.calibration().get("stack.reduce_beside", 0) != 0;
  out.kind = program.kind;
  out.choice = choice_of(program);
  base::ById<TensorId, LifeId> life_of(program.tensors.size());
  for (const TensorId i : program.tensors.keys()) {
    const models::Tensor& t = program.tensors[i];
    if (t.role == models::TensorRole::parameter) {
      BucketCosts& bucket = out.in(bucket_of(t));
      const auto add_to = [&](std::int64_t& elements) {
        elements = plan::round_up(elements, alignment) + t.elements();
      };
      add_to(t.frozen ? bucket.frozen : bucket.elements);
      if (t.frozen) continue;
      count_tensors(t, bucket);
      if (t.partial_gradient) add_to(bucket.partial);
    } else if (!t.part_of && t.role != models::TensorRole::gradient && t.role != models::TensorRole::loss &&
               t.role != models::TensorRole::tally && t.role != models::TensorRole::load) {
      // Counts of rows and operands in fewer bits, which include weights, do not grow with the micro-batch.
      const bool fixed =
          t.dtype == models::DType::int32 || t.dtype == models::DType::uint8 || t.role == models::TensorRole::balance;
      life_of[i] = out.lives.append({static_cast<double>(plan::round_up(t.bytes(), plan::kAlignment)), t.role});
      out.lives.back().by_rows = !fixed;
    }
  }
  for (const TensorId i : plan::parameter_order(program, choices.optimizer)) {
    const models::Tensor& t = program.tensors[i];
    const LayerCosts::Listed bucket{bucket_of(t), t.frozen};
    if (t.role == models::TensorRole::parameter && std::ranges::find(out.listed, bucket) == out.listed.end())
      out.listed.push_back(bucket);
  }
  const auto toucher = [&](StepRange Life::*pass) {
    return [&, pass](TensorId used, int step) {
      const TensorId tensor = models::owner_of(program, used);
      if (!tensor) return;
      const models::Tensor& t = program.tensors[tensor];
      const LifeId known = life_of[tensor];
      if (!known && t.role != models::TensorRole::parameter) return;
      BucketCosts& bucket = out.in(bucket_of(t));
      Life& life = known ? out.lives[known] : t.frozen ? bucket.frozen_uses : bucket.parameter_uses;
      (life.*pass).add(step);
    };
  };
  out.forward = walk(program.forward, program, program.x, prices, toucher(&Life::forward));
  out.recompute = walk(plan::recomputed_parts(program, pricing.stack().recompute_whole_layer), program, {}, prices,
                       toucher(&Life::recompute));
  const bool whole = pricing.stack().recompute_whole_layer;
  const std::vector<models::Part> both = plan::backward_parts(program, choices.repeats, whole);
  std::vector<models::Part> backward = both;
  std::vector<models::Part> weights;
  if (split) {
    plan::SplitBackward parts = plan::split_backward(program, backward);
    backward = std::move(parts.inputs);
    weights = std::move(parts.weights);
  }
  std::set<TensorId> touched;
  find_first_writes(backward, program, touched, out);
  if (split) find_first_writes(weights, program, touched, out);
  for (const LayerBucket of : {LayerBucket::own, LayerBucket::experts})
    lay_out(of, program, choices.optimizer, out.in(of));
  std::set<TensorId> added;
  out.backward = walk(backward, program, program.dy, prices, toucher(&Life::backward), &added);
  if (split) {
    std::set<TensorId> added_before = added;
    out.weights = walk(weights, program, {}, prices, toucher(&Life::weights), &added);
    const auto untouched = [](TensorId, int) {};
    out.weights_last_alone = walk(plan::with_last_alone(weights), program, {}, prices, untouched, &added_before);
  }
  for (Life& life : out.lives)  // input data is loaded before forward, even if only backward reads it
    if (models::is_token_ids(life.role) && !life.forward.any() && life.backward.any()) life.forward.add(0);
  for (const TensorId again : plan::made_again(program, choices.repeats, whole))
    if (life_of[again]) out.lives[life_of[again]].dropped = true;
  if (pricing.stack().memory.stated) add_framework_lives(out, program, life_of, both, pricing.stack().memory);
  const auto place = [&](TensorId tensor) { return tensor ? life_of[tensor] : LifeId(); };
  out.x = place(program.x);
  out.y = place(program.y);
  out.dy = place(program.dy);
  out.dx = place(program.dx);
  add_encoding(out, program, life_of, choices.compression, pricing);
  if (choices.partition_checkpoints) add_partition(out, program, groups, pricing);
  out.weight_inputs = weight_inputs(program);
  out.backward_reads_parameters = plan::backward_reads_parameters(program);
  return out;
}

LayerCosts with_messages(LayerCosts costs, const Pricing& pricing, const LayerGroups& groups) {
  const Lockstep lockstep = groups.lockstep.at(pricing);
  for (Pass* pass : {&costs.forward, &costs.recompute, &costs.backward, &costs.weights, &costs.weights_last_alone}) {
    pass->messages = pass->exchanges = 0;
    for (Segment& segment : pass->segments) {
      if (segment.kind == Segment::Kind::compute) continue;
      const LayerMessage& m = segment.message;
      const base::Bytes bytes{m.bytes};
      const bool exchange = segment.kind == Segment::Kind::exchange, shift = segment.kind == Segment::Kind::shift;
      const std::vector<int>& members = shift ? groups.context : m.of_experts ? groups.expert_tensor : groups.tensor;
      segment.seconds = exchange ? lockstep.exchange_time(bytes, groups.experts, costs.choice).value + m.beside
                                 : lockstep.collective_time(m.kind, bytes, members, m.stream).value;
      if (exchange) pass->exchanges += segment.seconds;
      if (!shift) pass->messages += segment.seconds;
    }
  }
  return costs;
}

}  // namespace orrery::cost
