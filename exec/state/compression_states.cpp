// PowerSGD's errors and factors.
#include "exec/state/compression_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "exec/failure.h"
#include "exec/state/stored_values.h"
#include "plan/outline/low_rank.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements on the host at a time

/// The stages that hold a compressed parameter: two for the ends of a tied table. `copy`: which of them `of` is.
struct Copies {
  int count = 0, copy = 0;
};
Copies copies_of(const plan::Schedule& schedule, const plan::RankClass& of, const std::string& name) {
  Copies copies;
  for (const plan::RankClass& one : schedule.classes)
    for (const plan::Bucket& bucket : one.buckets)
      for (const plan::ParameterRange& range : bucket.ranges)
        if (range.name == name && range.error >= 0) {
          if (&one == &of) copies.copy = copies.count;
          ++copies.count;
        }
  return copies;
}

/// One compressed parameter on a rank.
struct Compressed {
  const plan::Bucket* bucket = nullptr;
  const plan::ParameterRange* range = nullptr;
  std::int64_t q_elements = 0;
  int holders = 1, holder = 0;      ///< of errors
  int q_holders = 1, q_holder = 0;  ///< of Q: the same on all replicas
  int place = 0, part = 0;          ///< among the ranks that split it; of the matrix
  bool writes_error = false, writes_q = false;
};

std::vector<Compressed> compressed(const plan::Schedule& schedule, int rank) {
  const plan::RankClass& rank_class = schedule.class_of(rank);
  std::vector<Compressed> out;
  for (const plan::Bucket& bucket : rank_class.buckets) {
    const plan::Holders holders = schedule.spec.holders(bucket.experts);
    const int replicas = holders.count, data_rank = holders.replica(rank);
    for (const plan::ParameterRange& range : bucket.ranges) {
      if (range.error < 0) continue;
      const auto [count, copy] = copies_of(schedule, rank_class, range.name);
      const plan::MatrixShape matrix = plan::matrix_of(range.tensor);
      Compressed one{&bucket, &range, matrix.columns * plan::rank_of(matrix, schedule.spec.compression)};
      const int parts = range.replicated ? 1 : holders.ways;
      one.place = holders.part(rank);
      one.part = range.replicated ? 0 : one.place;
      one.holders = count * replicas;
      one.holder = copy * replicas + data_rank;
      one.q_holders = count * parts;
      one.q_holder = copy * parts + one.part;
      one.writes_error = !range.replicated || one.place == 0;
      one.writes_q = one.writes_error && data_rank == 0;
      out.push_back(one);
    }
  }
  return out;
}

CheckpointPart part_of(State state, const Compressed& one, int rank, int version) {
  CheckpointPart part;
  part.file = fmt::format("rank-{:05}.safetensors", rank);
  part.state = state;
  part.version = version;
  part.tensor = one.range->tensor;
  part.tensor.name = one.range->name;
  part.tensor_rank = one.place;
  part.end = one.range->elements;
  if (state == State::low_rank_q) {
    part.tensor.shape = part.tensor.logical_shape = {one.q_elements};
    part.tensor.split_axis = -1;
    part.end = one.q_elements;
  }
  part.key = fmt::format("{}-{}/{}/{}/{}-{}", name_of(state), version, one.range->name, one.place, 0, part.end);
  return part;
}

int holders_in(const CheckpointReader& reader, State state, const std::string& name) {
  int count = 0;
  while (!reader.parts(state, name, count).empty()) ++count;
  return count;
}

/// Adds a holder's error to `values`, which begin at local element `begin` of this rank's part.
void add_error(const CheckpointReader& reader, const Compressed& one, int holder, std::int64_t begin,
               std::span<float> values) {
  const auto end = begin + static_cast<std::int64_t>(values.size());
  std::vector<float> host;
  for (const CheckpointPart* part : reader.parts(State::error, one.range->name, holder)) {
    if (part->tensor.logical_shape != one.range->tensor.logical_shape)
      throw Failure(fmt::format("checkpoint tensor {} has another shape than the plan's", part->tensor.name));
    for (const Run& mine : runs_of(one.range->tensor, one.place, begin, end))
      for (const Run& theirs : runs_of(part->tensor, part->tensor_rank, part->begin, part->end)) {
        const std::int64_t low = std::max(mine.logical, theirs.logical);
        const std::int64_t high = std::min(mine.logical + mine.elements, theirs.logical + theirs.elements);
        if (low >= high) continue;
        host.resize(static_cast<std::size_t>(high - low));
        reader.read(*part, theirs.local - part->begin + low - theirs.logical, host);
        const auto at = static_cast<std::size_t>(mine.local - begin + low - mine.logical);
        for (std::size_t i = 0; i < host.size(); ++i) values[at + i] += host[i];
      }
  }
}

void load_error(const CheckpointContext& context, const CheckpointReader& reader, const Compressed& one) {
  const int saved = holders_in(reader, State::error, one.range->name);
  const plan::RankClass& rank_class = context.schedule.class_of(context.transport.rank());
  StoredValues values(rank_class, context.arena, context.backend, one.bucket->error);
  std::vector<float> host;
  for (std::int64_t at = 0; at < one.range->elements; at += kChunk) {
    host.assign(static_cast<std::size_t>(std::min(kChunk, one.range->elements - at)), 0.0F);
    if (saved == one.holders) {
      add_error(reader, one, one.holder, at, host);
    } else if (saved > 0) {
      for (int holder = 0; holder < saved; ++holder) add_error(reader, one, holder, at, host);
      for (float& value : host) value /= static_cast<float>(one.holders);
    }
    values.write(one.range->error + at, host);
  }
  values.finish();
}

void load_q(const CheckpointContext& context, const CheckpointReader& reader, const Compressed& one) {
  if (holders_in(reader, State::low_rank_q, one.range->name) != one.q_holders) return;
  const auto& parts = reader.parts(State::low_rank_q, one.range->name, one.q_holder);
  if (parts.size() != 1 || parts.front()->begin != 0 || parts.front()->end != one.q_elements) return;
  const plan::RankClass& rank_class = context.schedule.class_of(context.transport.rank());
  StoredValues values(rank_class, context.arena, context.backend, one.bucket->low_rank_q);
  std::vector<float> host(static_cast<std::size_t>(one.q_elements));
  reader.read(*parts.front(), 0, host);
  values.write(one.range->low_rank_q, host);
  values.finish();
}

}  // namespace

void begin_low_rank(const plan::Schedule& schedule, int rank, Arena& arena, Backend& backend) {
  constexpr std::uint64_t kSeed = 0;
  for (const Compressed& one : compressed(schedule, rank)) {
    StoredValues values(schedule.class_of(rank), arena, backend, one.bucket->low_rank_q);
    const std::uint64_t stream = base::stream_of(one.range->name + ".low_rank_q");
    // Tensor ranks take consecutive draws: for a matrix cut along its columns they have the whole matrix's Q.
    std::vector<float> host(static_cast<std::size_t>(one.q_elements));
    for (std::size_t i = 0; i < host.size(); ++i)
      host[i] =
          static_cast<float>(base::normal(kSeed, stream, static_cast<std::uint64_t>(one.part * one.q_elements) + i));
    values.write(one.range->low_rank_q, host);
    values.finish();
  }
}

std::vector<OwnedPart> compression_parts(const plan::Schedule& schedule, int rank) {
  std::vector<OwnedPart> out;
  for (const Compressed& one : compressed(schedule, rank)) {
    if (one.writes_error)
      out.push_back({part_of(State::error, one, rank, one.holder), one.bucket->error, one.range->error});
    if (one.writes_q)
      out.push_back(
          {part_of(State::low_rank_q, one, rank, one.q_holder), one.bucket->low_rank_q, one.range->low_rank_q});
  }
  return out;
}

void load_compression(const CheckpointContext& context, const CheckpointReader& reader) {
  const int rank = context.transport.rank();
  begin_low_rank(context.schedule, rank, context.arena, context.backend);
  for (const Compressed& one : compressed(context.schedule, rank)) {
    load_error(context, reader, one);
    load_q(context, reader, one);
  }
}

}  // namespace orrery::exec
