// Filling parameters and states before the first step.
#include "exec/initialise.h"

#include <algorithm>
#include <vector>

#include "base/ensure.h"
#include "base/random.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements on the host at a time

void fill_zero(const plan::RankClass& rank_class, int buffer, Arena& arena) {
  const std::int64_t bytes = rank_class.buffers[static_cast<std::size_t>(buffer)].bytes();
  const std::vector<std::byte> zeros(static_cast<std::size_t>(std::min(bytes, kChunk * 4)));
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(zeros.size()))
    arena.write(buffer, at,
                {zeros.data(), static_cast<std::size_t>(
                                   std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(zeros.size())))});
}

}  // namespace

LogicalSource seeded_source(std::uint64_t seed) {
  return [seed](const plan::ParameterRange& range, std::int64_t first, std::span<float> out) {
    const models::Tensor& tensor = range.tensor;
    if (tensor.initial_stddev == 0) {
      std::fill(out.begin(), out.end(), static_cast<float>(tensor.initial_value));
      return;
    }
    const std::uint64_t stream = base::stream_of(range.name);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] =
          static_cast<float>(base::normal(seed, stream, static_cast<std::uint64_t>(first) + i) * tensor.initial_stddev);
  };
}

void transfer(Arena& arena, int buffer, const std::vector<Holding>& holdings, int tensor_rank, Transfer direction,
              const Visit& visit) {
  std::vector<float> host;
  for (const Holding& holding : holdings)
    for (const Run& whole : runs_of(holding.range->tensor, tensor_rank, holding.local_begin, holding.local_end))
      for (std::int64_t done = 0; done < whole.elements; done += kChunk) {
        const Run run{whole.local + done, whole.logical + done, std::min(kChunk, whole.elements - done)};
        host.resize(static_cast<std::size_t>(run.elements));
        const std::int64_t at = 4 * (holding.buffer_offset + run.local - holding.local_begin);
        if (direction == Transfer::from_device) arena.read(buffer, at, std::as_writable_bytes(std::span(host)));
        visit(holding, run, host);
        if (direction == Transfer::to_device) arena.write(buffer, at, std::as_bytes(std::span(host)));
      }
}

void initialise(const plan::Schedule& schedule, int rank, Arena& arena, Backend& backend, const LogicalSource& source) {
  const plan::RankClass& rank_class = schedule.class_of(rank);
  const int tensor_rank = rank % schedule.spec.tensor;
  const int data_rank = rank / schedule.spec.tensor % schedule.spec.replicas();
  for (std::size_t i = 0; i < rank_class.buffers.size(); ++i)
    if (rank_class.buffers[i].persistent) fill_zero(rank_class, static_cast<int>(i), arena);
  for (const plan::Bucket& bucket : rank_class.buckets)
    for (const int buffer : {bucket.parameters, bucket.shard, bucket.master}) {
      if (buffer < 0 || !rank_class.buffers[static_cast<std::size_t>(buffer)].persistent) continue;
      ENSURE(rank_class.buffers[static_cast<std::size_t>(buffer)].dtype == models::DType::fp32, "buffer {} is not fp32",
             rank_class.buffers[static_cast<std::size_t>(buffer)].name);
      transfer(arena, buffer, holdings(rank_class, bucket, buffer, data_rank), tensor_rank, Transfer::to_device,
               [&](const Holding& holding, const Run& run, std::span<float> values) {
                 source(*holding.range, run.logical, values);
               });
    }
  backend.synchronise();
}

}  // namespace orrery::exec
