// Saving and loading: every rank its own file, rank 0 the manifest and the rename.
#include "exec/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/ensure.h"
#include "exec/checkpoint_parts.h"
#include "exec/checksum.h"
#include "exec/failure.h"
#include "exec/files.h"
#include "exec/safetensors.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kChunk = 1 << 16;           // elements on the host at a time
constexpr std::size_t kMostManifest = 256U << 20;  // bytes

CheckpointFile write_own_file(const CheckpointContext& context, const fs::path& folder,
                              const std::vector<OwnedPart>& owned) {
  if (owned.empty()) return {};
  std::vector<TensorEntry> entries;
  for (const OwnedPart& one : owned) entries.push_back({one.part.key, "F32", {one.part.end - one.part.begin}, 0, 0});
  SafetensorsWriter writer(folder / owned.front().part.file, std::move(entries), {{"format", "orrery checkpoint 1.0"}});
  std::vector<float> host;
  for (const OwnedPart& one : owned)
    for (std::int64_t done = 0, all = one.part.end - one.part.begin; done < all; done += kChunk) {
      host.resize(static_cast<std::size_t>(std::min(kChunk, all - done)));
      context.arena.read(one.buffer, 4 * (one.buffer_offset + done), std::as_writable_bytes(std::span(host)));
      writer.append(host);
    }
  const std::uint32_t crc = writer.finish();
  return {owned.front().part.file, writer.bytes(), crc};
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

std::uint32_t checksum_of(const fs::path& path, std::int64_t expected) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw Failure(fmt::format("{}: {}", path.string(), error.message()));
  if (static_cast<std::int64_t>(size) != expected)
    throw Failure(fmt::format("{}: {} bytes, the manifest says {}", path.string(), size, expected));
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) throw Failure(fmt::format("{}: cannot be opened", path.string()));
  std::vector<std::byte> chunk(1 << 20);
  std::uint32_t crc = 0;
  for (std::size_t n = 0; (n = std::fread(chunk.data(), 1, chunk.size(), file.get())) > 0;)
    crc = crc32({chunk.data(), n}, crc);
  return crc;
}

/// The parts that can serve each (state, logical tensor).
using Index = std::map<std::pair<State, std::string>, std::vector<const CheckpointPart*>>;

struct Files {
  fs::path folder;
  std::map<std::string, SafetensorsFile> open;
  const SafetensorsFile& at(const std::string& name) {
    auto found = open.find(name);
    if (found == open.end()) {
      auto file = SafetensorsFile::open(folder / name);
      if (!file) throw Failure(base::render(file.error(), false));
      found = open.emplace(name, std::move(*file)).first;
    }
    return found->second;
  }
};

/// Fills one holding from whatever parts overlap it. Returns how many of its logical elements were filled.
std::int64_t fill_holding(const CheckpointContext& context, Files& files,
                          const std::vector<const CheckpointPart*>& parts, const Holding& holding, int buffer,
                          int tensor_rank) {
  const std::vector<Run> mine = runs_of(holding.range->tensor, tensor_rank, holding.local_begin, holding.local_end);
  const std::int64_t base = 4 * (holding.buffer_offset - holding.local_begin);
  std::int64_t filled = 0;
  std::vector<float> host;
  for (const CheckpointPart* part : parts) {
    if (part->tensor.logical_shape != holding.range->tensor.logical_shape)
      throw Failure(fmt::format("checkpoint tensor {} has another shape than the plan's", part->tensor.name));
    const std::vector<Run> theirs = runs_of(part->tensor, part->tensor_rank, part->begin, part->end);
    for (std::size_t i = 0, j = 0; i < mine.size() && j < theirs.size();) {
      const std::int64_t low = std::max(mine[i].logical, theirs[j].logical);
      const std::int64_t high = std::min(mine[i].logical + mine[i].elements, theirs[j].logical + theirs[j].elements);
      for (std::int64_t at = low; at < high; at += kChunk) {
        host.resize(static_cast<std::size_t>(std::min(kChunk, high - at)));
        const SafetensorsFile& file = files.at(part->file);
        const TensorEntry* entry = file.header().find(part->key);
        if (!entry || entry->elements() != part->end - part->begin)
          throw Failure(fmt::format("{}: no tensor \"{}\" as the manifest says", file.name(), part->key));
        file.read(*entry, theirs[j].local - part->begin + at - theirs[j].logical, host);
        context.arena.write(buffer, base + 4 * (mine[i].local + at - mine[i].logical), std::as_bytes(std::span(host)));
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

void fill_bucket(const CheckpointContext& context, Files& files, const Index& index, const plan::Bucket& bucket,
                 State state, int buffer) {
  const int rank = context.transport.rank();
  const plan::RankClass& rank_class = context.schedule.class_of(rank);
  const int tensor_rank = rank % context.schedule.spec.tensor;
  const int data_rank = rank / context.schedule.spec.tensor % context.schedule.spec.replicas();
  for (const Holding& holding : holdings(rank_class, bucket, buffer, data_rank)) {
    const auto found = index.find({state, holding.range->name});
    const std::int64_t missing =
        found == index.end() ? -1 : fill_holding(context, files, found->second, holding, buffer, tensor_rank);
    if (missing != 0)
      throw Failure(fmt::format("the checkpoint {} of {} of {}",
                                missing < 0   ? "has nothing"
                                : missing > 0 ? "has only a part"
                                              : "has too much",
                                name_of(state), holding.range->name));
  }
}

}  // namespace

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  const std::vector<fs::path> all = checkpoints_below(folder);
  if (all.empty()) return std::nullopt;
  return all.back();
}

void save_checkpoint(const CheckpointContext& context, const fs::path& folder, std::int64_t step, int keep) {
  const fs::path final_name = folder / fmt::format("step-{:06}", step);
  const fs::path temporary = final_name.string() + ".tmp";
  if (context.transport.rank() == 0) {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
  }
  context.transport.barrier();
  const std::vector<OwnedPart> owned = owned_parts(context.schedule, context.transport.rank());
  const CheckpointFile file = write_own_file(context, temporary, owned);
  std::vector<CheckpointPart> parts;
  for (const OwnedPart& one : owned) parts.push_back(one.part);
  const std::vector<std::string> shares = context.transport.gather_text(write_share(file, parts));
  if (context.transport.rank() == 0) {
    write_atomically(temporary / "manifest.json", join_shares(step, shares));
    fs::remove_all(final_name);  // only a rerun of the same step finds one
    fs::rename(temporary, final_name);
    sync_folder(folder);
    const std::vector<fs::path> all = checkpoints_below(folder);
    for (std::size_t i = 0; i + static_cast<std::size_t>(std::max(1, keep)) < all.size(); ++i) fs::remove_all(all[i]);
  }
  context.transport.barrier();
}

std::int64_t load_checkpoint(const CheckpointContext& context, const fs::path& checkpoint) {
  const fs::path name = checkpoint / "manifest.json";
  const Manifest manifest = parse_manifest(read_file(name, kMostManifest), name.string());
  const auto ranks = static_cast<std::size_t>(context.transport.size());
  for (std::size_t i = static_cast<std::size_t>(context.transport.rank()); i < manifest.files.size(); i += ranks) {
    const CheckpointFile& file = manifest.files[i];
    if (file.name.find('/') != std::string::npos || checksum_of(checkpoint / file.name, file.bytes) != file.crc)
      throw Failure(fmt::format("{}: damaged: its checksum is not the manifest's", (checkpoint / file.name).string()));
  }
  context.transport.barrier();  // no rank goes on before all files are known to be whole
  Index index;
  for (const CheckpointPart& part : manifest.parts) index[{part.state, part.tensor.name}].push_back(&part);
  Files files{checkpoint, {}};
  for (const plan::Bucket& bucket : context.schedule.class_of(context.transport.rank()).buckets) {
    for (const State state : kStates)
      if (const int buffer = buffer_of(bucket, state); buffer >= 0)
        fill_bucket(context, files, index, bucket, state, buffer);
    if (bucket.parameters >= 0 && bucket.parameters != weight_buffer(bucket) &&
        context.schedule.class_of(context.transport.rank())
            .buffers[static_cast<std::size_t>(bucket.parameters)]
            .persistent)
      fill_bucket(context, files, index, bucket, State::weight, bucket.parameters);
  }
  context.backend.synchronise();
  return manifest.step;
}

}  // namespace orrery::exec
