// Packs a rank's runs into bytes, and assembles all ranks' runs.
#include "exec/state/gather_logical.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/ensure.h"
#include "exec/engine/logical.h"
#include "exec/engine/row_moves.h"
#include "exec/files/safetensors.h"
#include "exec/state/initialise.h"
#include "exec/state/table_shards.h"
#include "plan/lower/experts.h"

namespace orrery::exec {
namespace {

void put(std::string& out, const void* data, std::size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}

/// A run: class, bucket and range numbers (bucket -1: sharded tables), first logical element, count, values. The text's
/// `rank` gives the class.
struct RunHeader {
  std::int32_t bucket = 0, range = 0;
  std::int64_t logical = 0, elements = 0;
};

/// With a parameter server: the mean of the workers' gradients for this rank's shard.
struct Place {
  int tensor_rank = 0, data_rank = 0;
};
void pack_received(std::string& out, const plan::RankClass& rank_class, int b, Arena& arena, Backend& backend,
                   const Place& place) {
  const plan::Bucket& bucket = rank_class.buckets[static_cast<std::size_t>(b)];
  const std::int64_t shard = bucket.shard_elements(), begin = place.data_rank * shard;
  const std::vector<Holding> mine = holdings_between(bucket, begin, begin + shard, begin);
  const plan::Buffer& received = rank_class.buffers[bucket.received];
  const models::DType dtype = received.dtype;
  const auto workers = static_cast<int>(received.elements / shard);
  std::vector<std::pair<RunHeader, std::vector<float>>> runs;
  for (int worker = 0; worker < workers; ++worker) {
    std::size_t next = 0;
    transfer(arena.data(bucket.received, -1) + worker * shard * models::size_of(dtype), dtype, mine, place.tensor_rank,
             backend, StateTransfer::from_device, [&](const Holding& holding, const Run& run, std::span<float> values) {
               if (worker == 0)
                 runs.push_back(
                     {{b, static_cast<std::int32_t>(holding.range - bucket.ranges.data()), run.logical, run.elements},
                      std::vector<float>(values.size())});
               std::vector<float>& sum = runs[next++].second;
               for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i] / static_cast<float>(workers);
             });
  }
  for (const auto& [header, values] : runs) {
    put(out, &header, sizeof header);
    put(out, values.data(), values.size() * sizeof(float));
  }
}

std::string pack(const plan::Schedule& schedule, Gathered what, Arena& arena, Backend& backend, int rank) {
  const plan::RankClass& rank_class = schedule.class_of(rank);
  std::string out;
  for (std::size_t b = 0; b < rank_class.buckets.size(); ++b) {
    const plan::Bucket& bucket = rank_class.buckets[b];
    // Gradients of tables exist only where every rank has all tables. Gathers none, so that placements can be compared.
    if (what == Gathered::gradients && ((schedule.tables && bucket.embedding) || bucket.frozen)) continue;
    if (what == Gathered::gradients && bucket.received.exists()) {
      pack_received(out, rank_class, static_cast<int>(b), arena, backend,
                    {rank % schedule.spec.mesh.tensor, schedule.spec.shard_index(rank)});
      continue;
    }
    const plan::Holders holders = schedule.spec.holders(bucket.experts);
    const int data_rank = holders.shard(rank);
    plan::BufferId buffer = weight_buffer(bucket);
    const std::vector<Holding> mine = what == Gathered::gradients
                                          ? gradient_holdings(rank_class, bucket, data_rank, buffer)
                                          : holdings(rank_class, bucket, buffer, data_rank);
    transfer(arena.data(buffer, -1), rank_class.buffers[buffer].dtype, mine, holders.part(rank), backend,
             StateTransfer::from_device, [&](const Holding& holding, const Run& run, std::span<float> values) {
               const RunHeader header{static_cast<std::int32_t>(b),
                                      static_cast<std::int32_t>(holding.range - bucket.ranges.data()), run.logical,
                                      run.elements};
               put(out, &header, sizeof header);
               put(out, values.data(), values.size_bytes());
             });
  }
  if (what == Gathered::gradients) return out;  // gradients of tables are applied where they are summed
  const std::vector<plan::ParameterRange> biases = plan::expert_bias_ranges(rank_class);
  for (std::size_t i = 0; i < biases.size(); ++i) {
    std::vector<float> values(static_cast<std::size_t>(biases[i].elements));
    const std::byte* const all = arena.data(rank_class.expert_biases, -1);
    backend.copy_to_host(std::as_writable_bytes(std::span(values)),
                         all + biases[i].offset * models::size_of(models::DType::fp32));
    const RunHeader header{static_cast<std::int32_t>(rank_class.buckets.size()), static_cast<std::int32_t>(i), 0,
                           biases[i].elements};
    put(out, &header, sizeof header);
    put(out, values.data(), values.size() * sizeof(float));
  }
  settle_tables(schedule, rank, arena);
  const std::vector<plan::ParameterRange> tables = sharded_tables(schedule);
  for (const HeldShard& shard : held_shards(schedule, rank)) {
    if (shard.state != State::weight) continue;
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [&](const plan::ParameterRange& one) { return one.name == shard.range.name; });
    transfer(arena.data(shard.buffer, -1), models::DType::fp32, {shard.holding()}, shard.tensor_rank, backend,
             StateTransfer::from_device, [&](const Holding&, const Run& run, std::span<float> values) {
               const RunHeader header{-1, static_cast<std::int32_t>(table - tables.begin()), run.logical, run.elements};
               put(out, &header, sizeof header);
               put(out, values.data(), values.size_bytes());
             });
  }
  return out;
}

}  // namespace

LogicalTensors gather_logical(const plan::Schedule& schedule, Gathered what, Arena& arena, Backend& backend,
                              Transport& transport) {
  const std::vector<std::string> texts = transport.gather_text(pack(schedule, what, arena, backend, transport.rank()));
  LogicalTensors out;
  std::map<std::string, std::vector<bool>> filled;
  const std::vector<plan::ParameterRange> tables = sharded_tables(schedule);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const plan::RankClass& rank_class = schedule.class_of(static_cast<int>(rank));
    const char* at = texts[rank].data();
    const char* const end = at + texts[rank].size();
    while (at < end) {
      RunHeader header;
      std::memcpy(&header, at, sizeof header);
      at += sizeof header;
      const auto r = static_cast<std::size_t>(header.range);
      const std::size_t b = header.bucket < 0 ? 0 : static_cast<std::size_t>(header.bucket);
      const bool table = header.bucket < 0, bias = !table && b == rank_class.buckets.size();
      const plan::ParameterRange range = table  ? tables[r]
                                         : bias ? plan::expert_bias_ranges(rank_class)[r]
                                                : rank_class.buckets[b].ranges[r];
      const std::string name =
          table || bias ? range.name
                        : plan::name_on_rank(range, rank_class.buckets[b], schedule.spec, static_cast<int>(rank));
      LogicalTensor& tensor = out[name];
      std::vector<bool>& seen = filled[name];
      if (tensor.values.empty()) {
        tensor.shape = range.tensor.logical_shape;
        tensor.values.resize(static_cast<std::size_t>(logical_elements(range.tensor)));
        seen.resize(tensor.values.size());
      }
      std::memcpy(tensor.values.data() + header.logical, at, static_cast<std::size_t>(header.elements) * sizeof(float));
      for (std::int64_t i = 0; i < header.elements; ++i) seen[static_cast<std::size_t>(header.logical + i)] = true;
      at += header.elements * static_cast<std::int64_t>(sizeof(float));
    }
  }
  for (const auto& [name, seen] : filled)
    for (const bool one : seen) ENSURE(one, "no rank holds a part of {}", name);
  return out;
}

void write_tensors(const std::string& path, const LogicalTensors& tensors) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, "F32", tensor.shape, 0, 0});
  const std::string temporary = path + ".tmp";
  SafetensorsWriter writer(temporary, entries, {});
  for (const auto& [name, tensor] : tensors) writer.append(tensor.values);
  (void)writer.finish();
  std::filesystem::rename(temporary, path);
}

}  // namespace orrery::exec
