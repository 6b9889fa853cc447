// The mapping between sharded, padded, flat storage and logical tensors.
#include "exec/engine/logical.h"

#include <algorithm>

#include "base/ensure.h"

namespace orrery::exec {

std::int64_t logical_elements(const models::Tensor& tensor) {
  std::int64_t n = 1;
  for (const std::int64_t extent : tensor.logical_shape) n *= extent;
  return n;
}

std::vector<Run> runs_of(const models::Tensor& tensor, int tensor_rank, std::int64_t begin, std::int64_t end) {
  // The tensor as (outer, axis, inner): only `axis` is cut or padded. A replicated tensor counts as cut into one part.
  const bool split = tensor.split_axis >= 0;
  const auto axis = static_cast<std::size_t>(split ? tensor.split_axis : 0);
  ENSURE(axis < tensor.shape.size() && tensor.shape.size() == tensor.logical_shape.size(),
         "tensor {} has {} and {} dimensions", tensor.name, tensor.shape.size(), tensor.logical_shape.size());
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < tensor.shape.size(); ++i) inner *= tensor.shape[i];
  const std::int64_t local_rows = tensor.shape[axis];
  const std::int64_t logical_rows = tensor.logical_shape[axis];
  const std::int64_t first_row = split ? tensor_rank * local_rows : 0;
  const std::int64_t valid_rows = std::clamp<std::int64_t>(logical_rows - first_row, 0, local_rows);
  const std::int64_t local_block = local_rows * inner;
  const std::int64_t valid_block = valid_rows * inner;

  std::vector<Run> out;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t block = at / local_block;
    const std::int64_t within = at % local_block;
    const std::int64_t block_end = std::min(end, (block + 1) * local_block);
    const std::int64_t valid_end = std::min(block_end, block * local_block + valid_block);
    if (at < valid_end) {
      const Run run{at, block * logical_rows * inner + first_row * inner + within, valid_end - at};
      Run* last = out.empty() ? nullptr : &out.back();
      if (last && last->local + last->elements == run.local && last->logical + last->elements == run.logical)
        last->elements += run.elements;
      else
        out.push_back(run);
    }
    at = block_end;
  }
  return out;
}

bool is_sharded(const plan::RankClass& rank_class, const plan::Bucket& bucket, plan::BufferId buffer) {
  // That may end before the matrices that have none (plan/outline/whole_matrices.h).
  if (buffer == bucket.second_moment) buffer = bucket.first_moment;
  const std::int64_t elements = rank_class.buffers[buffer].elements;
  ENSURE(elements == bucket.elements || elements == bucket.shard_elements(),
         "buffer {} holds {} of bucket {}'s {} elements", rank_class.buffers[buffer].name, elements, bucket.name,
         bucket.elements);
  return elements != bucket.elements;
}

std::vector<Holding> holdings_between(const plan::Bucket& bucket, std::int64_t begin, std::int64_t end,
                                      std::int64_t origin) {
  std::vector<Holding> out;
  for (const plan::ParameterRange& range : bucket.ranges) {
    const std::int64_t low = std::max(begin, range.offset);
    const std::int64_t high = std::min(end, range.offset + range.elements);
    if (low < high) out.push_back({&range, low - origin, low - range.offset, high - range.offset});
  }
  return out;
}

std::vector<Holding> holdings(const plan::RankClass& rank_class, const plan::Bucket& bucket, plan::BufferId buffer,
                              int data_rank) {
  const std::int64_t begin = is_sharded(rank_class, bucket, buffer) ? data_rank * bucket.shard_elements() : 0;
  const std::int64_t elements = rank_class.buffers[buffer].elements;
  std::vector<Holding> out = holdings_between(bucket, begin, begin + elements, begin);
  if (buffer == bucket.second_moment) std::erase_if(out, [](const Holding& h) { return h.range->orthogonal; });
  return out;
}

std::vector<Holding> gradient_holdings(const plan::RankClass& rank_class, const plan::Bucket& bucket, int data_rank,
                                       plan::BufferId& buffer) {
  buffer = bucket.gradient_shard.exists() ? bucket.gradient_shard : bucket.gradients;
  if (!bucket.partitioned || is_sharded(rank_class, bucket, buffer))
    return holdings(rank_class, bucket, buffer, data_rank);
  const std::int64_t begin = data_rank * bucket.shard_elements();  // the reduced part of a full buffer (ZeRO-1)
  return holdings_between(bucket, begin, begin + bucket.shard_elements(), 0);
}

plan::BufferId weight_buffer(const plan::Bucket& bucket) {
  return bucket.master.exists() ? bucket.master : bucket.shard.exists() ? bucket.shard : bucket.parameters;
}

}  // namespace orrery::exec
