// Saving and loading: every rank its own file, rank 0 the manifest and the rename.
#include "exec/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/ensure.h"
#include "exec/checkpoint_files.h"
#include "exec/compression_states.h"
#include "exec/failure.h"
#include "exec/files.h"
#include "exec/safetensors.h"
#include "exec/stored_values.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements on the host at a time

CheckpointFile write_own_file(const fs::path& folder, const std::vector<CheckpointPart>& parts,
                              std::vector<std::vector<float>>& values) {
  if (parts.empty()) return {};
  std::vector<TensorEntry> entries;
  for (const CheckpointPart& part : parts) entries.push_back({part.key, "F32", {part.end - part.begin}, 0, 0});
  SafetensorsWriter writer(folder / parts.front().file, std::move(entries), {{"format", "orrery checkpoint 1.0"}});
  for (std::vector<float>& one : values) {
    writer.append(one);
    std::vector<float>().swap(one);  // the copy goes as it is written
  }
  const std::uint32_t crc = writer.finish();
  return {parts.front().file, writer.bytes(), crc};
}

std::optional<std::int64_t> step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (name.rfind("step-", 0) != 0 || name.size() < 6 ||
      !std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; }) || name.size() > 20)
    return std::nullopt;
  return std::stoll(name.substr(5));
}

std::vector<fs::path> checkpoints_below(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (const auto step = step_of(it->path()); step && fs::exists(it->path() / "manifest.json"))
      found.emplace_back(*step, it->path());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> out;
  for (auto& [step, path] : found) out.push_back(path);
  return out;
}

/// Fills one holding from whatever parts overlap it. Returns how many of its logical elements were filled.
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

/// Fills one holding, of whatever state; it must be there as a whole.
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
                 const SavedState& saved, int buffer) {
  const int rank = context.transport.rank();
  const plan::RankClass& rank_class = context.schedule.class_of(rank);
  const int tensor_rank = rank % context.schedule.spec.tensor;
  const int data_rank = context.schedule.spec.shard_index(rank);
  StoredValues values(rank_class, context.arena, context.backend, buffer, saved.version);
  for (const Holding& holding : holdings(rank_class, bucket, buffer, data_rank)) {
    // A run whose pipeline is another kept other versions, or none: then this one begins anew with the weights.
    const bool same =
        saved.state != State::stashed ||
        reader.versions(holding.range->name) == rank_class.buffers[static_cast<std::size_t>(buffer)].versions;
    fill(reader, same ? saved : SavedState{State::weight, 0}, holding, values, tensor_rank);
  }
  values.finish();
}

}  // namespace

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  const std::vector<fs::path> all = checkpoints_below(folder);
  if (all.empty()) return std::nullopt;
  return all.back();
}

CheckpointSaver::CheckpointSaver(const CheckpointContext& context, fs::path folder, int keep)
    : context_(context), folder_(std::move(folder)), keep_(keep) {}

CheckpointSaver::~CheckpointSaver() {
  if (writer_.joinable()) writer_.join();
}

void CheckpointSaver::begin(std::int64_t step, std::int64_t sequences) {
  ENSURE(!pending(), "a checkpoint is being written");
  step_ = step;
  sequences_ = sequences >= 0 ? sequences : step * context_.schedule.spec.batch;
  const fs::path temporary = temporary_name();
  if (context_.transport.rank() == 0) {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
  }
  context_.transport.barrier();
  parts_.clear();
  std::vector<std::vector<float>> values;
  const plan::RankClass& rank_class = context_.schedule.class_of(context_.transport.rank());
  for (const OwnedPart& one : owned_parts(context_.schedule, context_.transport.rank())) {
    parts_.push_back(one.part);
    values.emplace_back(static_cast<std::size_t>(one.part.end - one.part.begin));
    StoredValues(rank_class, context_.arena, context_.backend, one.buffer, one.part.version)
        .read(one.buffer_offset, values.back());
  }
  failure_ = nullptr;
  file_ = {};
  written_ = false;
  writer_ = std::thread([this, temporary, held = std::move(values)]() mutable {
    try {
      file_ = write_own_file(temporary, parts_, held);
    } catch (...) {
      failure_ = std::current_exception();
    }
    written_ = true;
  });
}

std::int64_t CheckpointSaver::commit() {
  ENSURE(pending(), "no checkpoint is being written");
  writer_.join();
  if (failure_) std::rethrow_exception(failure_);
  const std::vector<std::string> shares = context_.transport.gather_text(write_share(file_, parts_));
  if (context_.transport.rank() == 0) {
    const fs::path temporary = temporary_name(), final_name = folder_ / fmt::format("step-{:06}", step_);
    write_atomically(temporary / "manifest.json",
                     join_shares(step_, sequences_, plan::name_of(context_.schedule.spec.optimizer), shares));
    fs::remove_all(final_name);  // only a rerun of the same step finds one
    fs::rename(temporary, final_name);
    sync_folder(folder_);
    const std::vector<fs::path> all = checkpoints_below(folder_);
    for (std::size_t i = 0; i + static_cast<std::size_t>(std::max(1, keep_)) < all.size(); ++i) fs::remove_all(all[i]);
  }
  context_.transport.barrier();
  return step_;
}

fs::path CheckpointSaver::temporary_name() const {
  return folder_ / fmt::format("step-{:06}.tmp", step_);
}

void save_checkpoint(const CheckpointContext& context, const fs::path& folder, std::int64_t step, int keep) {
  CheckpointSaver saver(context, folder, keep);
  saver.begin(step);
  (void)saver.commit();
}

std::int64_t load_checkpoint(const CheckpointContext& context, const fs::path& checkpoint) {
  const CheckpointReader reader(checkpoint);
  if (const std::string ours = plan::name_of(context.schedule.spec.optimizer); reader.optimizer() != ours)
    throw Failure(fmt::format("{}: the run was trained with {}, whose states {} cannot go on from",
                              (checkpoint / "manifest.json").string(), reader.optimizer(), ours));
  reader.check_files(context.transport.rank(), context.transport.size());
  context.transport.barrier();  // no rank goes on before all files are known to be whole
  const plan::RankClass& rank_class = context.schedule.class_of(context.transport.rank());
  for (const plan::Bucket& bucket : rank_class.buckets) {
    for (const SavedState& saved : saved_states(rank_class, bucket))
      fill_bucket(context, reader, bucket, saved, buffer_of(bucket, saved.state));
    for (const int copy : {bucket.parameters, bucket.shard})  // what compute reads beside a master
      if (copy >= 0 && copy != weight_buffer(bucket) && rank_class.buffers[static_cast<std::size_t>(copy)].persistent)
        fill_bucket(context, reader, bucket, {State::weight, 0}, copy);
  }
  for (const OwnState& own : own_states(rank_class)) {
    StoredValues values(rank_class, context.arena, context.backend, own.buffer);
    fill(reader, {own.state, 0}, {&own.range, own.offset, 0, own.range.tensor.elements()}, values,
         context.transport.rank() % context.schedule.spec.tensor);
  }
  load_compression(context, reader);
  context.backend.synchronise();
  return reader.step();
}

}  // namespace orrery::exec
