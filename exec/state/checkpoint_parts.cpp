// Which rank writes which part.
#include "exec/state/checkpoint_parts.h"

#include <fmt/format.h>

#include "exec/state/compression_states.h"
#include "exec/state/table_shards.h"
#include "plan/lower/experts.h"

namespace orrery::exec {
bool has_versions(State state) {
  return state == State::stashed || state == State::error || state == State::low_rank_q;
}

const char* name_of(State state) {
  switch (state) {
    case State::weight: return "weight";
    case State::first_moment: return "first_moment";
    case State::second_moment: return "second_moment";
    case State::stashed: return "stashed";
    case State::factor_sum: return "factor_sum";
    case State::factor_rows: return "factor_rows";
    case State::factor_columns: return "factor_columns";
    case State::scaling: return "loss_scaling";
    case State::error: return "compression_error";
    case State::low_rank_q: return "low_rank_q";
  }
  return "?";
}

plan::BufferId buffer_of(const plan::Bucket& bucket, State state) {
  switch (state) {
    case State::weight: return weight_buffer(bucket);
    case State::first_moment: return bucket.first_moment;
    case State::second_moment: return bucket.second_moment;
    case State::stashed: return bucket.stashed;
    case State::factor_sum:
    case State::factor_rows:
    case State::factor_columns:
    case State::error:
    case State::low_rank_q:
    case State::scaling: break;
  }
  return {};
}

std::vector<OwnState> own_states(const plan::RankClass& rank_class) {
  std::vector<OwnState> out;
  const auto add = [&](State state, const plan::Bucket& bucket, const plan::ParameterRange& of, std::int64_t offset,
                       int axis) {
    if (offset < 0) return;
    OwnState own{state, of, rank_class.factors, offset, &bucket};
    models::Tensor& t = own.range.tensor;
    if (axis >= 0) {  // sums along one axis of a matrix
      const bool split = t.split_axis == axis;
      t.shape = {t.shape[static_cast<std::size_t>(axis)]};
      t.logical_shape = {t.logical_shape[static_cast<std::size_t>(axis)]};
      t.split_axis = split ? 0 : -1;
    } else if (of.factor_rows >= 0) {  // the matrix's sum
      t.shape = t.logical_shape = {1};
      t.split_axis = -1;
    }
    own.range.replicated = t.split_axis < 0;
    out.push_back(std::move(own));
  };
  if (rank_class.factors.exists())
    for (const plan::Bucket& bucket : rank_class.buckets)
      for (const plan::ParameterRange& range : bucket.ranges) {
        add(State::factor_sum, bucket, range, range.factor_sum, -1);
        add(State::factor_rows, bucket, range, range.factor_rows, 0);
        add(State::factor_columns, bucket, range, range.factor_columns, 1);
      }
  for (plan::ParameterRange& range : plan::expert_bias_ranges(rank_class)) {
    const std::int64_t offset = range.offset;
    out.push_back({State::weight, std::move(range), rank_class.expert_biases, offset});
  }
  if (rank_class.scaling.exists()) {
    plan::ParameterRange all;
    all.name = name_of(State::scaling);
    all.tensor.shape = all.tensor.logical_shape = {4};
    all.replicated = true;
    all.counts_in_norm = rank_class.stage == plan::kFirstStage;
    out.push_back({State::scaling, std::move(all), rank_class.scaling, 0});
  }
  return out;
}

std::vector<SavedState> saved_states(const plan::RankClass& rank_class, const plan::Bucket& bucket) {
  std::vector<SavedState> out;
  for (const State state : kStates)
    if (buffer_of(bucket, state)) out.push_back({state, 0});
  if (bucket.stashed.exists())
    for (int v = 0; v < rank_class.buffers[bucket.stashed].versions; ++v) out.push_back({State::stashed, v});
  return out;
}

std::vector<OwnedPart> owned_parts(const plan::Schedule& schedule, int rank) {
  const plan::RankClass& rank_class = schedule.class_of(rank);
  const plan::PlanSpec& spec = schedule.spec;
  std::vector<OwnedPart> out;
  const auto write = [&](const SavedState& saved, const plan::ParameterRange& range, int place, std::int64_t begin,
                         std::int64_t end, plan::BufferId buffer, std::int64_t offset) {
    if ((range.replicated && place != 0) || !range.counts_in_norm) return;
    CheckpointPart part;
    part.file = fmt::format("rank-{:05}.safetensors", rank);
    const std::string version = saved.state == State::stashed ? fmt::format("-{}", saved.version) : "";
    part.key = fmt::format("{}{}/{}/{}/{}-{}", name_of(saved.state), version, range.name, place, begin, end);
    part.state = saved.state;
    part.version = saved.version;
    part.tensor = range.tensor;
    part.tensor.name = range.name;
    part.tensor_rank = place;
    part.begin = begin;
    part.end = end;
    out.push_back({std::move(part), buffer, offset});
  };
  for (std::size_t b = 0; b < rank_class.buckets.size(); ++b)
    for (const auto& [state, version] : saved_states(rank_class, rank_class.buckets[b])) {
      const plan::Bucket& bucket = rank_class.buckets[b];
      const plan::BufferId buffer = buffer_of(bucket, state);
      // What all replicas or sub-groups have, they write in turns.
      const bool sharded = is_sharded(rank_class, bucket, buffer);
      const plan::Holders holders = spec.holders(bucket.experts);
      const int ways = sharded ? holders.sub_groups() : holders.count;
      const int turn = sharded ? holders.sub_group(rank) : holders.replica(rank);
      if (turn != static_cast<int>(b) % ways) continue;
      for (const Holding& holding : holdings(rank_class, bucket, buffer, holders.shard(rank)))
        write({state, version}, *holding.range, holders.part(rank), holding.local_begin, holding.local_end, buffer,
              holding.buffer_offset);
    }
  for (const OwnState& own : own_states(rank_class)) {  // every replica has the same
    const plan::Holders holders = spec.holders(own.of_experts());
    if (holders.replica(rank) == 0)
      write({own.state, 0}, own.range, holders.part(rank), 0, own.range.tensor.elements(), own.buffer, own.offset);
  }
  for (OwnedPart& part : compression_parts(schedule, rank)) out.push_back(std::move(part));
  for (const HeldShard& shard : held_shards(schedule, rank)) {
    if (!shard.writes) continue;
    CheckpointPart part;
    part.file = fmt::format("rank-{:05}.safetensors", rank);
    part.key = fmt::format("{}/{}/{}/{}-{}", name_of(shard.state), shard.range.name, shard.tensor_rank, shard.begin,
                           shard.end);
    part.state = shard.state;
    part.tensor = shard.range.tensor;
    part.tensor_rank = shard.tensor_rank;
    part.begin = shard.begin;
    part.end = shard.end;
    out.push_back({std::move(part), shard.buffer, shard.offset});
  }
  return out;
}

}  // namespace orrery::exec
