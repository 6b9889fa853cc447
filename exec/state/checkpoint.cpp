// Saves and loads: each rank writes its own file, rank 0 the manifest, and renames the folder.
#include "exec/state/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/ensure.h"
#include "exec/engine/row_moves.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/files/safetensors.h"
#include "exec/state/agreement.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/compression_states.h"
#include "exec/state/generations.h"
#include "exec/state/stored_values.h"
#include "exec/state/table_shards.h"
#include "plan/lower/experts.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements on the host at a time

CheckpointFile write_own_file(const fs::path& folder, std::vector<CheckpointPart>& parts,
                              std::vector<std::vector<float>>& values,
                              const std::map<std::string, std::string>& metadata) {
  if (parts.empty()) return {};
  std::vector<TensorEntry> entries;
  for (const CheckpointPart& part : parts) entries.push_back({part.key, "F32", {part.end - part.begin}, 0, 0});
  SafetensorsWriter writer(folder / parts.front().file, std::move(entries), metadata);
  for (std::vector<float>& one : values) {
    writer.append(one);
    std::vector<float>().swap(one);  // frees each copy as it is written
  }
  const std::uint32_t crc = writer.finish();
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].crc = writer.tensor_crcs()[i];
  return {parts.front().file, writer.bytes(), crc, writer.header_bytes(), writer.header_crc()};
}

/// Fills one holding from all parts that overlap it. Returns how many of its logical elements it filled.
std::int64_t fill_holding(const CheckpointReader& reader, const SavedState& saved, const Holding& holding,
                          StoredValues& values, int tensor_rank) {
  const std::vector<Run> mine = runs_of(holding.range->tensor, tensor_rank, holding.local_begin, holding.local_end);
  const std::int64_t base = holding.buffer_offset - holding.local_begin;
  std::int64_t filled = 0;
  std::vector<float> host;
  for (const CheckpointPart* part : reader.parts(saved.state, holding.range->name, saved.version)) {
    if (part->tensor.logical_shape != holding.range->tensor.logical_shape)
      throw Failure(fmt::format("checkpoint tensor {} has another shape than the plan's", part->tensor.name));
    const std::vector<Run> theirs = runs_of(part->tensor, part->tensor_rank, part->begin, part->end);
    for (std::size_t i = 0, j = 0; i < mine.size() && j < theirs.size();) {
      const std::int64_t low = std::max(mine[i].logical, theirs[j].logical);
      const std::int64_t high = std::min(mine[i].logical + mine[i].elements, theirs[j].logical + theirs[j].elements);
      for (std::int64_t at = low; at < high; at += kChunk) {
        host.resize(static_cast<std::size_t>(std::min(kChunk, high - at)));
        reader.read(*part, theirs[j].local - part->begin + at - theirs[j].logical, host);
        values.write(base + mine[i].local + at - mine[i].logical, host);
        filled += static_cast<std::int64_t>(host.size());
      }
      if (mine[i].logical + mine[i].elements <= theirs[j].logical + theirs[j].elements)
        ++i;
      else
        ++j;
    }
  }
  std::int64_t wanted = 0;
  for (const Run& run : mine) wanted += run.elements;
  return wanted - filled;
}

/// Fills one holding of any state; the checkpoint must have all of it.
void fill(const CheckpointReader& reader, const SavedState& saved, const Holding& holding, StoredValues& values,
          int tensor_rank) {
  const bool none = reader.parts(saved.state, holding.range->name, saved.version).empty();
  const std::int64_t missing = none ? -1 : fill_holding(reader, saved, holding, values, tensor_rank);
  if (missing != 0)
    throw Failure(fmt::format("the checkpoint {} of {} of {}",
                              missing < 0   ? "has nothing"
                              : missing > 0 ? "has only a part"
                                            : "has too much",
                              name_of(saved.state), holding.range->name));
}

void fill_bucket(const CheckpointContext& context, const CheckpointReader& reader, const plan::Bucket& bucket,
                 const SavedState& saved, plan::BufferId buffer) {
  const int rank = context.transport.rank();
  const plan::RankClass& rank_class = context.schedule.class_of(rank);
  const plan::Holders holders = context.schedule.spec.holders(bucket.experts);
  StoredValues values(rank_class, context.arena, context.backend, buffer, saved.version);
  for (const Holding& holding : holdings(rank_class, bucket, buffer, holders.shard(rank))) {
    // A run with another pipeline kept other versions, or none: then this one starts over from the weights.
    const bool same =
        saved.state != State::stashed || reader.versions(holding.range->name) == rank_class.buffers[buffer].versions;
    fill(reader, same ? saved : SavedState{State::weight, 0}, holding, values, holders.part(rank));
  }
  values.finish();
}

}  // namespace

CheckpointSaver::CheckpointSaver(const CheckpointContext& context, fs::path folder, int keep)
    : context_(context), folder_(std::move(folder)), keep_(keep) {}

CheckpointSaver::~CheckpointSaver() {
  if (writer_.joinable()) writer_.join();
}

/// If one rank fails, the save fails on all: the temporary folder is removed, and all throw the same Failure.
void CheckpointSaver::together_or_none(const std::function<void()>& body) {
  try {
    together(context_.transport, body);
  } catch (const Failure& failure) {
    if (context_.transport.rank() == 0) remove_quietly(temporary_name());
    throw Failure(
        fmt::format("the checkpoint of step {} was not saved; earlier ones remain: {}", step_, failure.what()),
        failure.kind());
  }
}

std::vector<std::vector<float>> CheckpointSaver::copied() {
  std::vector<std::vector<float>> values;
  settle_tables(context_.schedule, context_.transport.rank(), context_.arena);
  const plan::RankClass& rank_class = context_.schedule.class_of(context_.transport.rank());
  for (const OwnedPart& one : owned_parts(context_.schedule, context_.transport.rank())) {
    parts_.push_back(one.part);
    values.emplace_back(static_cast<std::size_t>(one.part.end - one.part.begin));
    StoredValues(rank_class, context_.arena, context_.backend, one.buffer, one.part.version)
        .read(one.buffer_offset, values.back());
    if (look_) look_(one.part, values.back());
  }
  return values;
}

void CheckpointSaver::begin(std::int64_t step, std::optional<std::int64_t> sequences) {
  ENSURE(!pending(), "a checkpoint is being written");
  step_ = step;
  sequences_ = sequences.value_or(step * context_.schedule.spec.shape.batch);
  const fs::path temporary = temporary_name();
  together_or_none([&] {
    if (context_.transport.rank() != 0) return;
    remove_tree(temporary);
    make_folders(temporary);
  });
  parts_.clear();
  failure_ = nullptr;
  file_ = {};
  written_ = false;
  std::vector<std::vector<float>> values;
  try {
    values = copied();
  } catch (...) {
    failure_ = std::current_exception();  // commit() tells the others
  }
  writer_ = std::thread([this, temporary, held = std::move(values)]() mutable {
    try {
      if (!failure_ && !parts_.empty())
        file_ = write_own_file(temporary, parts_, held,
                               {{"format", "orrery checkpoint 1.1"},
                                {"file", parts_.front().file},
                                {"step", std::to_string(step_)},
                                {"job", notes_.job}});
    } catch (...) {
      failure_ = std::current_exception();
    }
    written_at_ = std::chrono::steady_clock::now();
    written_ = true;
  });
}

std::int64_t CheckpointSaver::commit() {
  ENSURE(pending(), "no checkpoint is being written");
  writer_.join();
  together_or_none([&] {
    if (failure_) std::rethrow_exception(failure_);
  });
  const std::vector<std::string> shares = context_.transport.gather_text(write_share(file_, parts_));
  together_or_none([&] {
    if (context_.transport.rank() == 0) give_name(shares);
  });
  if (context_.transport.rank() == 0) tidy();
  return step_;
}

/// Rank 0: writes the manifest and renames the folder, which makes it a checkpoint.
void CheckpointSaver::give_name(const std::vector<std::string>& shares) {
  if (notes_.before) notes_.before();
  Manifest head;
  head.step = step_;
  head.sequences = sequences_;
  head.optimizer = plan::name_of(context_.schedule.spec.states.optimizer);
  head.run_id = notes_.run_id;
  head.job = notes_.job;
  head.data = notes_.data;
  const fs::path temporary = temporary_name(), final_name = folder_ / fmt::format("step-{:06}", step_);
  write_atomically(temporary / "manifest.json", join_shares(head, shares));
  std::error_code error;
  if (fs::exists(final_name, error)) {  // from an earlier run of the same step
    const fs::path earlier = final_name.string() + ".earlier.tmp";
    remove_tree(earlier);
    rename_path(final_name, earlier);
  }
  rename_path(temporary, final_name);
  sync_folder(folder_);
}

/// Rank 0: marks that there are checkpoints, and removes all but the newest; each first loses its name. The new
/// checkpoint stays whatever happens here.
void CheckpointSaver::tidy() {
  try {
    std::error_code error;
    if (!notes_.marker.empty() && !fs::exists(notes_.marker, error))
      write_atomically(notes_.marker, fmt::format("{{\"format_version\": \"1.0\", \"first_step\": {}}}\n", step_));
    remove_tree(folder_ / fmt::format("step-{:06}.earlier.tmp", step_));
    const std::vector<fs::path> all = generations(folder_);
    for (std::size_t i = static_cast<std::size_t>(std::max(1, keep_)); i < all.size(); ++i) {
      const fs::path unnamed = all[i].string() + ".tmp";
      remove_tree(unnamed);
      rename_path(all[i], unnamed);
      try {
        remove_tree(unnamed);
      } catch (const Failure&) {
        remove_quietly(unnamed);
        throw;
      }
    }
  } catch (const Failure& failure) {
    if (notes_.warn) notes_.warn(failure.what());
  }
}

fs::path CheckpointSaver::temporary_name() const {
  return folder_ / fmt::format("step-{:06}.tmp", step_);
}

void save_checkpoint(const CheckpointContext& context, const fs::path& folder, std::int64_t step, int keep) {
  CheckpointSaver saver(context, folder, keep);
  saver.begin(step);
  (void)saver.commit();
}

namespace {

using Named = std::map<std::pair<State, std::string>, std::vector<std::int64_t>>;  // state, tensor: logical shape

/// The weights and their optimizer states, over all ranks of the plan.
Named named_by(const plan::Schedule& schedule) {
  Named out;
  for (const plan::RankClass& rank_class : schedule.classes) {
    for (const plan::Bucket& bucket : rank_class.buckets)
      for (const SavedState& saved : saved_states(rank_class, bucket))
        if (saved.state != State::stashed)
          for (const plan::ParameterRange& range : bucket.ranges)
            for (const std::string& name : plan::names_on_ranks(range, bucket, schedule.spec))
              out[{saved.state, name}] = range.tensor.logical_shape;
    for (const OwnState& own : own_states(rank_class))
      if (own.state != State::scaling)
        for (const std::string& name : own.bucket == nullptr
                                           ? std::vector{own.range.name}
                                           : plan::names_on_ranks(own.range, *own.bucket, schedule.spec))
          out[{own.state, name}] = own.range.tensor.logical_shape;
  }
  for (int rank = 0; schedule.tables && rank < schedule.spec.mesh.ranks(); ++rank)
    for (const HeldShard& shard : held_shards(schedule, rank))
      out[{shard.state, shard.range.name}] = shard.range.tensor.logical_shape;
  return out;
}

/// Refuses tensors that the plan does not have: the checkpoint is then of another model, or of another kind of plan.
void check_nothing_more(const CheckpointContext& context, const CheckpointReader& reader, const std::string& name) {
  const Named wanted = named_by(context.schedule);
  for (const CheckpointPart& part : reader.manifest().parts) {
    if (has_versions(part.state) || part.state == State::scaling) continue;
    if (wanted.count({part.state, part.tensor.name}) == 0)
      throw Failure(
          fmt::format("{}: has {} of {}, which the plan does not have", name, name_of(part.state), part.tensor.name));
  }
}

void fill_all(const CheckpointContext& context, const CheckpointReader& reader) {
  const plan::RankClass& rank_class = context.schedule.class_of(context.transport.rank());
  for (const plan::Bucket& bucket : rank_class.buckets) {
    for (const SavedState& saved : saved_states(rank_class, bucket))
      fill_bucket(context, reader, bucket, saved, buffer_of(bucket, saved.state));
    for (const plan::BufferId copy : {bucket.parameters, bucket.shard})  // what compute reads, apart from the master
      if (copy && copy != weight_buffer(bucket) && rank_class.buffers[copy].persistent)
        fill_bucket(context, reader, bucket, {State::weight, 0}, copy);
  }
  for (const OwnState& own : own_states(rank_class)) {
    StoredValues values(rank_class, context.arena, context.backend, own.buffer);
    fill(reader, {own.state, 0}, {&own.range, own.offset, 0, own.range.tensor.elements()}, values,
         context.schedule.spec.holders(own.of_experts()).part(context.transport.rank()));
  }
  for (const HeldShard& shard : held_shards(context.schedule, context.transport.rank())) {
    StoredValues values(rank_class, context.arena, context.backend, shard.buffer);
    fill(reader, {shard.state, 0}, shard.holding(), values, shard.tensor_rank);
  }
  forget_cached_rows(context.schedule, context.transport.rank(), context.arena);
  load_compression(context, reader);
  context.backend.synchronise();
}

}  // namespace

std::int64_t load_checkpoint(const CheckpointContext& context, const fs::path& checkpoint, Manifest* head) {
  std::optional<CheckpointReader> reader;
  together(context.transport, [&] {  // no rank continues before all files are known to be whole
    reader.emplace(checkpoint);
    reader->check_files(context.transport.rank(), context.transport.size());
  });
  together(context.transport, [&] {
    const std::string name = (checkpoint / "manifest.json").string();
    if (const std::string ours = plan::name_of(context.schedule.spec.states.optimizer); reader->optimizer() != ours)
      throw Failure(fmt::format("{}: the run was trained with {}, and {} cannot continue from its states", name,
                                reader->optimizer(), ours));
    if (context.transport.rank() == 0) check_nothing_more(context, *reader, name);
    fill_all(context, *reader);
  });
  if (head) {
    *head = reader->manifest();
    head->files.clear();
    head->parts.clear();
  }
  return reader->step();
}

}  // namespace orrery::exec
