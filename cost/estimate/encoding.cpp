/// Encodings, a layer at a time.
#include "cost/estimate/encoding.h"

#include <map>

#include "cost/estimate/fold.h"
#include "cost/estimate/offload.h"
#include "cost/estimate/update.h"
#include "models/encoding.h"
#include "models/operators/operators.h"
#include "plan/lower/encode.h"

namespace orrery::cost {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

/// Adds a step to a pass; `ahead`: before all its steps, otherwise after them.
void add_step(Pass& pass, const Op& op, const Pricing& pricing, bool ahead = false) {
  const double seconds = pricing.compute_time({&op, 1}).value, host = pricing.host_time({&op, 1}).value;
  pass.compute += seconds;
  pass.host += host;
  pass.segments.insert(ahead ? pass.segments.begin() : pass.segments.end(), {.seconds = seconds, .host = host});
}

}  // namespace

void add_encoding(LayerCosts& costs, const models::LayerProgram& program,
                  const base::ById<models::TensorId, LifeId>& life_of, const plan::Compression& compression,
                  const Pricing& pricing) {
  const plan::ActivationEncoding encoding = compression.activations;
  if (encoding == plan::ActivationEncoding::none || costs.kind != models::LayerKind::block) return;
  const bool lossless = encoding == plan::ActivationEncoding::lossless;
  const std::int64_t bits = plan::bits_of(encoding);
  std::map<models::TensorId, const Op*> rectified;
  for (const models::Part& part : program.forward)
    for (const Op& op : part.ops)
      if (op.kind == OpKind::relu) rectified[models::tensor_of(op.out.front())] = &op;
  std::vector<bool> statistic(program.tensors.size(), false);
  for (const models::Part& part : program.forward)
    for (const Op& op : part.ops) {
      for (std::size_t i = 0; i < op.out.size(); ++i)
        if (op.out[i] >= 0 && models::is_statistic(op, i)) statistic[static_cast<std::size_t>(op.out[i])] = true;
    }
  for (const models::TensorId i : program.tensors.keys()) {
    const models::Tensor& t = program.tensors[i];
    if (!life_of[i] || life_of[i] == costs.y || statistic[i.index()] || !crosses(costs, life_of[i])) continue;
    if (models::is_token_ids(t.role)) continue;
    if (t.dtype == DType::int32) continue;  // counts of a message, or places of rows
    const auto sparse = rectified.find(i);
    if (lossless && sparse == rectified.end()) continue;
    Life& life = costs.lives[life_of[i]];
    Op op = flat(OpKind::encode, t.dtype, t.elements());
    op.k = bits;
    if (lossless) {
      op = flat(OpKind::sparse_encode, t.dtype, sparse->second->m, sparse->second->n);
      op.capacity = plan::kept_values(t.elements(), compression.capacity);
    }
    life.encoded = arena_bytes(lossless ? models::sparse_bytes(t.elements(), op.capacity, models::size_of(t.dtype))
                                        : models::encoded_bytes(t.elements(), bits),
                               DType::uint8);
    add_step(costs.forward, op, pricing);
    op.kind = lossless ? OpKind::sparse_decode : OpKind::decode;
    const bool again = costs.recomputation == plan::Recompute::full;
    add_step(again ? costs.recompute : costs.backward, op, pricing, true);
  }
}

void add_partition(LayerCosts& costs, const models::LayerProgram& program, const LayerGroups& groups,
                   const Pricing& pricing) {
  const auto ranks = static_cast<std::int64_t>(groups.tensor.size());
  if (costs.kind != models::LayerKind::block || costs.recomputation != plan::Recompute::full || ranks == 1 ||
      !crosses(costs, costs.x))
    return;
  const models::Tensor& input = program.tensors[program.x];
  const std::int64_t part = input.elements() / ranks;
  costs.lives[costs.x].encoded = arena_bytes(part * models::size_of(input.dtype), DType::uint8);
  add_step(costs.forward, flat(OpKind::copy, input.dtype, part), pricing);
  const auto bytes = static_cast<double>(input.bytes());
  Pass& again = costs.recompute;
  again.message_bytes += bytes;
  ++again.message_count;
  ++again.tensor_messages;
  again.segments.insert(again.segments.begin(),
                        {.kind = Segment::Kind::tensor,
                         .message = {.kind = plan::CollectiveKind::all_gather,
                                     .bytes = pricing.as_sent(base::Bytes{bytes}, false).value}});
}

}  // namespace orrery::cost
