// Fills parameters and states before the first step.
#include "exec/state/initialise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include "base/ensure.h"
#include "base/random.h"
#include "exec/engine/half.h"
#include "exec/state/compression_states.h"
#include "exec/state/table_shards.h"
#include "plan/lower/experts.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kChunk = 1 << 16;     // elements on the host at a time, per thread that makes them
constexpr std::size_t kLeastPart = 1 << 12;  // values per thread: 40 ns each, against some 20 us to start a thread

void fill_zero(const plan::RankClass& rank_class, plan::BufferId buffer, Arena& arena, Backend& backend) {
  const std::int64_t bytes = rank_class.buffers[buffer].bytes();
  const std::vector<std::byte> zeros(static_cast<std::size_t>(std::min(bytes, kChunk * 4)));
  for (int version = 0; version < rank_class.buffers[buffer].versions; ++version)
    for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(zeros.size()))
      backend.copy_to_device(arena.data(buffer, {-1, version}) + at,
                             {zeros.data(), static_cast<std::size_t>(std::min<std::int64_t>(
                                                bytes - at, static_cast<std::int64_t>(zeros.size())))});
}

/// A state space's decay or step width, from a uniform number (Dao and Gu 2024; the values of Mamba-2's code).
double drawn(models::Initial initial, double uniform) {
  constexpr double kMostDecay = 16, kLeastWidth = 0.001, kMostWidth = 0.1;
  if (initial == models::Initial::decay_log) return std::log(1 + (kMostDecay - 1) * uniform);
  const double width = kLeastWidth * std::pow(kMostWidth / kLeastWidth, uniform);
  return width + std::log(-std::expm1(-width));  // softplus of it is the width
}

}  // namespace

LogicalSource seeded_source(std::uint64_t seed, int threads) {
  return [seed, threads](const plan::ParameterRange& range, std::int64_t first, std::span<float> out) {
    const models::Tensor& tensor = range.tensor;
    if (tensor.initial == models::Initial::place_log) {
      const std::int64_t columns = tensor.logical_shape.back();
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = std::log(static_cast<float>(1 + (first + static_cast<std::int64_t>(i)) % columns));
      return;
    }
    if (tensor.initial != models::Initial::normal) {
      const std::uint64_t stream = base::stream_of(range.name);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>(
            drawn(tensor.initial, base::uniform(seed, stream, static_cast<std::uint64_t>(first) + i)));
      return;
    }
    if (tensor.initial_stddev == 0) {
      std::fill(out.begin(), out.end(), static_cast<float>(tensor.initial_value));
      return;
    }
    const std::uint64_t stream = base::stream_of(range.name);
    const auto draw = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        out[i] = static_cast<float>(base::normal(seed, stream, static_cast<std::uint64_t>(first) + i) *
                                    tensor.initial_stddev);
    };
    const std::size_t parts = std::clamp<std::size_t>(out.size() / kLeastPart, 1, static_cast<std::size_t>(threads));
    const auto bound = [&](std::size_t part) { return out.size() * part / parts; };
    std::vector<std::jthread> others;
    for (std::size_t part = 1; part < parts; ++part) others.emplace_back(draw, bound(part), bound(part + 1));
    draw(0, bound(1));
  };
}

void transfer(std::byte* buffer, models::DType dtype, const std::vector<Holding>& holdings, int tensor_rank,
              Backend& backend, StateTransfer direction, const Visit& visit, int threads) {
  std::vector<float> host;
  std::vector<std::byte> stored;
  const std::int64_t size = models::size_of(dtype), chunk = kChunk * threads;
  for (const Holding& holding : holdings)
    for (const Run& whole : runs_of(holding.range->tensor, tensor_rank, holding.local_begin, holding.local_end))
      for (std::int64_t done = 0; done < whole.elements; done += chunk) {
        const Run run{whole.local + done, whole.logical + done, std::min(chunk, whole.elements - done)};
        host.resize(static_cast<std::size_t>(run.elements));
        stored.resize(static_cast<std::size_t>(run.elements * size));
        std::byte* device = buffer + size * (holding.buffer_offset + run.local - holding.local_begin);
        if (direction == StateTransfer::from_device) {
          backend.copy_to_host(stored, device);
          widen(dtype, stored.data(), host);
        }
        visit(holding, run, host);
        if (direction == StateTransfer::to_device) {
          narrow(dtype, host, stored.data());
          backend.copy_to_device(device, stored);
        }
      }
}

void initialise(const plan::Schedule& schedule, int rank, Arena& arena, Backend& backend, const LogicalSource& source,
                double loss_scale, int threads) {
  const plan::RankClass& rank_class = schedule.class_of(rank);
  for (const plan::BufferId i : rank_class.buffers.keys())
    if (rank_class.buffers[i].persistent) fill_zero(rank_class, i, arena, backend);
  for (const plan::Bucket& bucket : rank_class.buckets) {
    const plan::Holders holders = schedule.spec.holders(bucket.experts);
    for (const plan::BufferId buffer : {bucket.parameters, bucket.shard, bucket.master, bucket.stashed}) {
      if (!buffer || !rank_class.buffers[buffer].persistent) continue;
      for (int version = 0; version < rank_class.buffers[buffer].versions; ++version)
        transfer(
            arena.data(buffer, {-1, version}), rank_class.buffers[buffer].dtype,
            holdings(rank_class, bucket, buffer, holders.shard(rank)), holders.part(rank), backend,
            StateTransfer::to_device,
            [&](const Holding& holding, const Run& run, std::span<float> values) {
              source(*holding.range, run.logical, values);
            },
            threads);
    }
  }
  for (const plan::ParameterRange& range : plan::expert_bias_ranges(rank_class)) {
    std::vector<float> values(static_cast<std::size_t>(range.elements));
    source(range, 0, values);
    backend.copy_to_device(
        arena.data(rank_class.expert_biases, -1) + range.offset * models::size_of(models::DType::fp32),
        std::as_bytes(std::span(values)));
  }
  for (const HeldShard& shard : held_shards(schedule, rank))
    if (shard.state == State::weight)
      transfer(
          arena.data(shard.buffer, {-1, 0}), models::DType::fp32, {shard.holding()}, shard.tensor_rank, backend,
          StateTransfer::to_device,
          [&](const Holding& holding, const Run& run, std::span<float> values) {
            source(*holding.range, run.logical, values);
          },
          threads);
  if (rank_class.scaling.exists()) {
    const std::array<float, 4> scaling = {static_cast<float>(loss_scale), 0, 0, 0};
    backend.copy_to_device(arena.data(rank_class.scaling, -1), std::as_bytes(std::span(scaling)));
  }
  begin_low_rank(schedule, rank, arena, backend);
  backend.synchronise();
}

}  // namespace orrery::exec
