/// Bytes and seconds of a checkpoint.
#include "cost/run/checkpoint.h"

#include <algorithm>
#include <cmath>

#include "plan/outline/low_rank.h"
#include "plan/spec/optimizers.h"
#include "plan/spec/table_layout.h"

namespace orrery::cost {

namespace {

constexpr double kBytesOfElement = 4;  // all states are saved in fp32

/// Elements that one rank writes: the counterpart of exec::owned_parts. A test checks that both agree.
class Owned {
 public:
  Owned(const plan::Schedule& schedule, int rank)
      : schedule_(schedule),
        spec_(schedule.spec),
        class_(schedule.class_of(rank)),
        rank_(rank),
        tensor_rank_(rank % spec_.mesh.tensor),
        replica_(rank / spec_.mesh.tensor % spec_.mesh.replicas()) {}

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t sum = 0;
    for (std::size_t b = 0; b < class_.buckets.size(); ++b) {
      const plan::Bucket& bucket = class_.buckets[b];
      const plan::BufferId weights = bucket.master.exists()  ? bucket.master
                                     : bucket.shard.exists() ? bucket.shard
                                                             : bucket.parameters;
      for (const plan::BufferId buffer : {weights, bucket.first_moment, bucket.second_moment})
        if (buffer) sum += of_buffer(bucket, buffer, b);
      if (bucket.stashed.exists()) sum += at(bucket.stashed).versions * of_buffer(bucket, bucket.stashed, b);
      sum += of_compression(bucket);
      if (class_.factors.exists() && first(bucket)) sum += of_factors(bucket);
    }
    if (class_.expert_biases.exists() && replica_ == 0 && tensor_rank_ == 0) sum += at(class_.expert_biases).elements;
    if (class_.scaling.exists() && replica_ == 0 && tensor_rank_ == 0 && class_.stage == plan::kFirstStage) sum += 4;
    return sum + of_tables();
  }

 private:
  [[nodiscard]] const plan::Buffer& at(plan::BufferId buffer) const { return class_.buffers[buffer]; }
  [[nodiscard]] bool first(const plan::Bucket& bucket) const {
    return spec_.holders(bucket.experts).replica(rank_) == 0;
  }
  /// Whether this rank is the first of those that split the bucket's matrices, who writes what they all have.
  [[nodiscard]] bool leads(const plan::Bucket& bucket) const { return spec_.holders(bucket.experts).part(rank_) == 0; }
  [[nodiscard]] bool writes(const plan::Bucket& bucket, const plan::ParameterRange& range) const {
    return range.counts_in_norm && (!range.replicated || leads(bucket));
  }

  /// A shard is written by its rank, or by one of the sub-groups that hold it; replicas take turns for common parts.
  [[nodiscard]] std::int64_t of_buffer(const plan::Bucket& bucket, plan::BufferId buffer, std::size_t place) const {
    const bool second = buffer == bucket.second_moment;
    const bool sharded = at(second ? bucket.first_moment : buffer).elements != bucket.elements;
    const plan::Holders holders = spec_.holders(bucket.experts);
    const int ways = sharded ? holders.sub_groups() : holders.count;
    const int turn = sharded ? holders.sub_group(rank_) : holders.replica(rank_);
    if (turn != static_cast<int>(place) % ways) return 0;
    const std::int64_t begin = sharded ? holders.shard(rank_) * bucket.shard_elements() : 0;
    const std::int64_t end = begin + at(buffer).elements;
    std::int64_t sum = 0;
    for (const plan::ParameterRange& range : bucket.ranges)
      if (writes(bucket, range) && !(second && range.orthogonal))
        sum += std::max<std::int64_t>(0, std::min(end, range.offset + range.elements) - std::max(begin, range.offset));
    return sum;
  }

  /// PowerSGD: each replica's error, and Q, which all replicas hold.
  [[nodiscard]] std::int64_t of_compression(const plan::Bucket& bucket) const {
    std::int64_t sum = 0;
    for (const plan::ParameterRange& range : bucket.ranges) {
      if (range.error < 0 || (range.replicated && !leads(bucket))) continue;
      sum += range.elements;
      const plan::MatrixShape matrix = plan::matrix_of(range.tensor);
      if (first(bucket)) sum += matrix.columns * plan::rank_of(matrix, spec_.compression);
    }
    return sum;
  }

  /// Adafactor: a matrix's sum, rows and columns, from each tensor rank if they are sharded.
  [[nodiscard]] std::int64_t of_factors(const plan::Bucket& bucket) const {
    std::int64_t sum = 0;
    const auto add = [&](const plan::ParameterRange& range, std::int64_t offset, std::int64_t elements, bool split) {
      if (offset >= 0 && range.counts_in_norm && (split || leads(bucket))) sum += elements;
    };
    for (const plan::ParameterRange& range : bucket.ranges) {
      const models::Tensor& t = range.tensor;
      const bool matrix = range.factor_rows >= 0;
      add(range, range.factor_sum, matrix ? 1 : t.elements(), !matrix && t.split_axis >= 0);
      if (matrix) add(range, range.factor_rows, t.shape[0], t.split_axis == 0);
      if (matrix) add(range, range.factor_columns, t.shape[1], t.split_axis == 1);
    }
    return sum;
  }

  /// Embedding tables: the rank's parts with their states, wherever their memory is; and of the tables that all ranks
  /// have, whose values are in a bucket, the states. The counterpart of exec::held_shards.
  [[nodiscard]] std::int64_t of_tables() const {
    if (!schedule_.tables) return 0;
    const plan::TableLayout& layout = *schedule_.tables;
    std::int64_t sum = 0;
    for (std::size_t i = layout.begin(rank_); i < layout.end(rank_); ++i) {
      const plan::TableShard& shard = layout.shards[i];
      sum += shard.elements();
      if (class_.table_states) sum += states_of(shard.rows(), shard.columns(), shard.first_columns);
    }
    if (!class_.replicated_states) return sum;
    std::int64_t first = 0, last = layout.replicated_rows;
    bool alone = false;
    for (const plan::Bucket& bucket : class_.buckets)
      if (bucket.embedding && bucket.received.exists()) {  // a parameter server's shard
        const std::int64_t rows = bucket.shard_elements() / layout.embedding_dim;
        first = spec_.shard_index(rank_) * rows;
        last = first + rows;
        alone = true;
      }
    for (const plan::TableShard& shard : layout.replicated) {
      const std::int64_t rows = std::min(shard.state + shard.rows(), last) - std::max(shard.state, first);
      if (rows > 0 && (alone || shard.table % layout.ranks == rank_))
        sum += states_of(rows, layout.embedding_dim, shard.first_columns);
    }
    return sum;
  }
  /// Of rows the rank with the first columns writes the states, of values each rank its own.
  [[nodiscard]] std::int64_t states_of(std::int64_t rows, std::int64_t columns, bool first_columns) const {
    return plan::traits_of(spec_.states.optimizer).table_states.of(first_columns ? rows : 0, rows * columns);
  }

  const plan::Schedule& schedule_;
  const plan::PlanSpec& spec_;
  const plan::RankClass& class_;
  int rank_, tensor_rank_, replica_;
};

}  // namespace

std::vector<double> checkpoint_bytes_by_rank(const plan::Schedule& schedule) {
  std::vector<double> out;
  for (int rank = 0; rank < schedule.spec.mesh.ranks(); ++rank)
    out.push_back(kBytesOfElement * static_cast<double>(Owned(schedule, rank).elements()));
  return out;
}

CheckpointSize checkpoint_size(const std::vector<double>& bytes_by_rank, int ranks_per_node) {
  CheckpointSize size;
  double node = 0;
  for (std::size_t rank = 0; rank < bytes_by_rank.size(); ++rank) {
    if (rank % static_cast<std::size_t>(std::max(1, ranks_per_node)) == 0) node = 0;
    node += bytes_by_rank[rank];
    size.bytes += bytes_by_rank[rank];
    size.largest_rank = std::max(size.largest_rank, bytes_by_rank[rank]);
    size.largest_node = std::max(size.largest_node, node);
  }
  return size;
}

CheckpointPrice checkpoint_price(const CheckpointSize& size, const Pricing& pricing) {
  const Calibration& c = pricing.calibration();
  CheckpointPrice price;
  price.copy = size.largest_rank / c.at("device.checkpoint.copy_bandwidth");
  if (pricing.cluster().device().kind != clusters::DeviceKind::cpu)
    price.copy += pricing.copy_time(plan::Stream::to_host, base::Bytes{size.largest_rank}).value;
  price.write = c.at("network.storage.write_latency") + size.largest_node / c.at("network.storage.write_bandwidth");
  price.commit = c.at("network.storage.commit_time");
  return price;
}

double persist_time(double write, double step) {
  return step > 0 && std::isfinite(write / step) && std::isfinite(step) ? std::ceil(write / step) * step : write;
}

}  // namespace orrery::cost
