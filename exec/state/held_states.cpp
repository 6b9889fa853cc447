// A class's buffers as parts with keys: two ranks hold equal values under equal keys.
#include "exec/state/held_states.h"

#include <fmt/format.h>

#include <utility>

#include "exec/engine/logical.h"
#include "exec/state/table_shards.h"

namespace orrery::exec {
namespace {

class Collector {
 public:
  Collector(const plan::Schedule& schedule, int rank)
      : class_(schedule.class_of(rank)), spec_(schedule.spec), rank_(rank) {}

  /// A buffer laid out like the bucket's parameters: all of them, or this rank's shard.
  void by_tensor(const char* state, const plan::Bucket& bucket, plan::BufferId buffer) {
    if (!held(buffer)) return;
    for (int version = 0; version < class_.buffers[buffer].versions; ++version)
      for (const Holding& holding : holdings(class_, bucket, buffer, spec_.shard_index_of(bucket.experts, rank_))) {
        const plan::ParameterRange& range = *holding.range;
        HeldPart part{
            state, range.name, buffer, version, holding.buffer_offset, holding.local_end - holding.local_begin, {}};
        part.key = fmt::format("{}/{}/{}/{}/{}-{}", state, version, range.name, range.replicated ? -1 : part_of(bucket),
                               holding.local_begin, holding.local_end);
        out_.push_back(std::move(part));
      }
  }

  /// A buffer as a whole. `shared`: a text that is equal for ranks with the same values; empty: no other rank has them.
  void whole(const char* state, const std::string& of, plan::BufferId buffer, const std::string& shared) {
    if (!held(buffer)) return;
    const plan::Buffer& b = class_.buffers[buffer];
    for (int version = 0; version < b.versions; ++version)
      out_.push_back({state, of, buffer, version, 0, b.elements,
                      shared.empty() ? "" : fmt::format("{}/{}/{}/{}", state, version, of, shared)});
  }

  void bucket(const plan::Bucket& b) {
    by_tensor("weight", b, b.parameters);
    by_tensor("weight", b, b.shard);
    by_tensor("master", b, b.master);
    by_tensor("stashed", b, b.stashed);
    by_tensor("first_moment", b, b.first_moment);
    by_tensor("second_moment", b, b.second_moment);
    const std::string place = fmt::format("{}.{}{}", class_.stage, part_of(b),
                                          b.experts ? fmt::format(".{}", spec_.mesh.expert_index(rank_)) : "");
    const bool sharded = b.first_moment.exists() && is_sharded(class_, b, b.first_moment);
    const std::string scales = sharded ? fmt::format("{}.{}", place, spec_.shard_index_of(b.experts, rank_)) : place;
    whole("first_scale", b.name, b.first_scale, scales);
    whole("second_scale", b.name, b.second_scale, scales);
    whole("compression_error", b.name, b.error, "");
    whole("low_rank_q", b.name, b.low_rank_q, place);
  }

  /// Adafactor's, parameter by parameter: ranks that share the rest may have other experts.
  void factors(const plan::Bucket& bucket, const plan::ParameterRange& range) {
    const models::Tensor& t = range.tensor;
    const bool factored = range.factor_rows >= 0;
    const auto one = [&](const char* which, std::int64_t first, std::int64_t elements) {
      if (first < 0) return;
      out_.push_back({"factors", range.name, class_.factors, 0, first, elements,
                      fmt::format("factors/{}/{}/{}.{}", range.name, which, class_.stage, part_of(bucket))});
    };
    one("sum", range.factor_sum, factored ? 1 : t.elements());
    one("rows", range.factor_rows, factored ? t.shape[0] : 0);
    one("columns", range.factor_columns, factored ? t.shape[1] : 0);
  }

  std::vector<HeldPart> all() {
    for (const plan::Bucket& b : class_.buckets) bucket(b);
    if (held(class_.factors))
      for (const plan::Bucket& b : class_.buckets)
        for (const plan::ParameterRange& range : b.ranges) factors(b, range);
    whole("loss_scaling", "loss_scaling", class_.scaling, "all");
    return std::move(out_);
  }

 private:
  /// Which part of a bucket's matrices this rank has.
  [[nodiscard]] int part_of(const plan::Bucket& bucket) const { return spec_.holders(bucket.experts).part(rank_); }
  [[nodiscard]] bool held(plan::BufferId buffer) const { return buffer && class_.buffers[buffer].persistent; }
  const plan::RankClass& class_;
  const plan::PlanSpec& spec_;
  int rank_;
  std::vector<HeldPart> out_;
};

}  // namespace

std::vector<HeldPart> held_parts(const plan::Schedule& schedule, int rank) {
  std::vector<HeldPart> out = Collector(schedule, rank).all();
  for (const HeldShard& shard : held_shards(schedule, rank))
    out.push_back({name_of(shard.state), shard.range.name, shard.buffer, 0, shard.offset, shard.end - shard.begin,
                   shard.writes && shard.state == State::weight
                       ? ""
                       : fmt::format("{}/{}/{}/{}-{}", name_of(shard.state), shard.range.name, shard.tensor_rank,
                                     shard.begin, shard.end)});
  return out;
}

}  // namespace orrery::exec
