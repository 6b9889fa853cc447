// Reads a checkpoint's folder.
#include "exec/state/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "exec/failure.h"
#include "exec/files/checksum.h"
#include "exec/files/files.h"
#include "exec/state/state_hash.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostManifest = 256U << 20;  // bytes
constexpr std::int64_t kReadAtOnce = 1 << 20;      // bytes

using Stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// The checksum of the next bytes of a file. Throws if it ends before them.
std::uint32_t checksum_of(const Stream& file, std::int64_t bytes, const fs::path& path) {
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(bytes, kReadAtOnce)));
  std::uint32_t crc = 0;
  while (bytes > 0) {
    const auto wanted = static_cast<std::size_t>(std::min(bytes, kReadAtOnce));
    if (std::fread(chunk.data(), 1, wanted, file.get()) != wanted)
      throw DamagedCheckpoint(fmt::format("{}: cannot be read as far as the manifest says", path.string()));
    crc = crc32(std::span(chunk).first(wanted), crc);
    bytes -= static_cast<std::int64_t>(wanted);
  }
  return crc;
}

/// How the file's length differs from the manifest's; empty if it does not. Throws if there is no such file.
std::string other_length(const fs::path& path, const CheckpointFile& file) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw DamagedCheckpoint(fmt::format("{}: the file is missing", path.string()));
  if (status.type() != fs::file_type::regular)
    throw DamagedCheckpoint(
        fmt::format("{}: {}", path.string(), error ? error.message() : std::string("not a regular file")));
  const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error) throw DamagedCheckpoint(fmt::format("{}: {}", path.string(), error.message()));
  if (size == file.bytes) return {};
  const std::int64_t from = std::min(size, file.bytes), to = std::max(size, file.bytes) - 1;
  return fmt::format("{}: damaged: {} bytes, but the manifest says {}: bytes {} to {} are {}", path.string(), size,
                     file.bytes, from, to, size < file.bytes ? "missing" : "too many");
}

/// Where a tensor's runs leave a hole or overlap; empty: they cover it exactly once.
std::string uncovered(std::vector<Run> runs, std::int64_t elements) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.logical < b.logical; });
  std::int64_t at = 0;
  for (const Run& run : runs) {
    if (run.logical > at) return fmt::format("elements {} to {} are in no part", at, run.logical - 1);
    if (run.logical < at) return fmt::format("elements {} to {} are in two parts", run.logical, at - 1);
    at += run.elements;
  }
  if (at > elements) return fmt::format("elements {} to {} are beyond its end", elements, at - 1);
  if (at < elements) return fmt::format("elements {} to {} are in no part", at, elements - 1);
  return {};
}

}  // namespace

std::optional<std::int64_t> step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  constexpr std::size_t kMostDigits = 15;
  if (name.rfind("step-", 0) != 0 || name.size() < 6 || name.size() > 5 + kMostDigits ||
      !std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  const std::int64_t step = std::stoll(name.substr(5));
  return name == fmt::format("step-{:06}", step) ? std::optional(step) : std::nullopt;
}

CheckpointReader::CheckpointReader(fs::path folder) : folder_(std::move(folder)) {
  const fs::path name = folder_ / "manifest.json";
  std::string text;
  try {
    text = read_file(name, kMostManifest);
  } catch (const Failure& failure) {
    throw DamagedCheckpoint(failure.what());
  }
  manifest_ = parse_manifest(text, name.string());
  if (const auto named = step_of(folder_); named && *named != manifest_.step)
    throw DamagedCheckpoint(
        fmt::format("{}: it is of step {}, but its folder's name says {}", name.string(), manifest_.step, *named));
  for (const CheckpointPart& part : manifest_.parts) {
    index_[{part.state, part.version, part.tensor.name}].push_back(&part);
    by_file_[part.file].push_back(&part);
  }
}

void CheckpointReader::check_files(int first, int ways) const {
  for (auto i = static_cast<std::size_t>(first); i < manifest_.files.size(); i += static_cast<std::size_t>(ways))
    check_file(manifest_.files[i]);
  if (first == 0) check_coverage();
}

void CheckpointReader::check_file(const CheckpointFile& file) const {
  const fs::path path = folder_ / file.name;
  const std::string length = other_length(path, file);
  const auto opened = SafetensorsFile::open(path);
  if (!length.empty()) {
    const std::string whose_it_is = opened && manifest_.sealed ? whose(file, opened->header()) : std::string();
    throw DamagedCheckpoint(length + (whose_it_is.empty() ? "" : ": " + whose_it_is));
  }
  const std::vector<const CheckpointPart*>& parts = by_file_.at(file.name);
  const Stream stream(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!stream) throw DamagedCheckpoint(fmt::format("{}: cannot be opened", path.string()));
  const bool header_whole = !manifest_.sealed || checksum_of(stream, file.header_bytes, path) == file.header_crc;
  if (!header_whole) {
    const std::string whose_it_is = opened ? whose(file, opened->header()) : "it no longer is a safetensors header";
    throw DamagedCheckpoint(fmt::format("{}: damaged in bytes 0 to {}, its header: {}", path.string(),
                                        file.header_bytes - 1,
                                        whose_it_is.empty() ? "its checksum is not the manifest's" : whose_it_is));
  }
  if (!opened) throw DamagedCheckpoint(fmt::format("{}: damaged: {}", path.string(), opened.error().front().message));
  check_header(file, *opened, parts);
  if (!manifest_.sealed) {
    if (checksum_of(stream, file.bytes, path) != file.crc)
      throw DamagedCheckpoint(fmt::format("{}: damaged: its checksum is not the manifest's", path.string()));
    return;
  }
  std::string where;
  std::size_t bad = 0;
  std::int64_t at = file.header_bytes;
  for (const CheckpointPart* part : parts) {
    const std::int64_t bytes = (part->end - part->begin) * static_cast<std::int64_t>(sizeof(float));
    if (checksum_of(stream, bytes, path) != part->crc && bad++ == 0)
      where = fmt::format("bytes {} to {}, tensor {}", at, at + bytes - 1, part->key);
    at += bytes;
  }
  if (bad == 0) return;
  if (bad == parts.size() && bad > 1)
    where += fmt::format(", and its {} others: the file belongs to another run or another save", bad - 1);
  else if (bad > 1)
    where += fmt::format(", and in {} other tensors of {}", bad - 1, parts.size());
  throw DamagedCheckpoint(fmt::format("{}: damaged in {}: the checksum is not the manifest's", path.string(), where));
}

/// What a header says about itself if it belongs to another checkpoint, when that is the fault.
std::string CheckpointReader::whose(const CheckpointFile& file, const SafetensorsHeader& header) const {
  const auto said = [&](const char* key) {
    const auto found = header.metadata.find(key);
    return found == header.metadata.end() ? std::string() : found->second;
  };
  if (said("job") != manifest_.job) return "it is a file of another run's plan";
  if (said("step") != std::to_string(manifest_.step)) return fmt::format("it is a file of step {}", said("step"));
  if (said("file") != file.name) return fmt::format("it is the file of {}", said("file"));
  return {};
}

/// The header must have the tensors of the manifest's parts, in their order, and nothing else.
void CheckpointReader::check_header(const CheckpointFile& file, const SafetensorsFile& opened,
                                    const std::vector<const CheckpointPart*>& parts) const {
  const SafetensorsHeader& header = opened.header();
  const auto bad = [&](const std::string& what) {
    throw DamagedCheckpoint(fmt::format("{}: damaged: {}", opened.name(), what));
  };
  if (manifest_.sealed && header.data_start != file.header_bytes)
    bad(fmt::format("its header ends at byte {}, but the manifest says {}", header.data_start, file.header_bytes));
  for (std::size_t i = 0; i < std::max(parts.size(), header.tensors.size()); ++i) {
    if (i >= parts.size())
      bad(fmt::format("it has a tensor {} that the manifest does not list", header.tensors[i].name));
    const CheckpointPart& part = *parts[i];
    if (i >= header.tensors.size() || header.tensors[i].name != part.key || header.tensors[i].dtype != "F32" ||
        header.tensors[i].shape != std::vector<std::int64_t>{part.end - part.begin})
      bad(fmt::format("it has no tensor {} of {} elements where the manifest says", part.key, part.end - part.begin));
  }
}

void CheckpointReader::check_coverage() const {
  for (const auto& [key, parts] : index_) {
    const auto& [state, version, name] = key;
    std::vector<Run> runs;
    for (const CheckpointPart* part : parts) {
      if (part->tensor.logical_shape != parts.front()->tensor.logical_shape)
        throw DamagedCheckpoint(fmt::format("{}: two parts of {} have different shapes of the whole",
                                            (folder_ / "manifest.json").string(), name));
      for (const Run& run : runs_of(part->tensor, part->tensor_rank, part->begin, part->end)) runs.push_back(run);
    }
    if (const std::string why = uncovered(std::move(runs), logical_elements(parts.front()->tensor)); !why.empty())
      throw DamagedCheckpoint(
          fmt::format("{}: {} of {}: {}", (folder_ / "manifest.json").string(), name_of(state), name, why));
  }
}

const std::vector<const CheckpointPart*>& CheckpointReader::parts(State state, const std::string& tensor,
                                                                  int version) const {
  static const std::vector<const CheckpointPart*> kNone;
  const auto found = index_.find({state, version, tensor});
  return found == index_.end() ? kNone : found->second;
}

int CheckpointReader::versions(const std::string& tensor) const {
  int count = 0;
  while (index_.count({State::stashed, count, tensor}) > 0) ++count;
  return count;
}

void CheckpointReader::read(const CheckpointPart& part, std::int64_t first, std::span<float> out) const {
  auto found = open_.find(part.file);
  if (found == open_.end()) {
    auto file = SafetensorsFile::open(folder_ / part.file);
    if (!file) throw Failure(base::render(file.error(), false));
    found = open_.emplace(part.file, std::move(*file)).first;
  }
  const TensorEntry* entry = found->second.header().find(part.key);
  if (!entry || entry->elements() != part.end - part.begin)
    throw Failure(fmt::format("{}: no tensor \"{}\" as the manifest says", found->second.name(), part.key));
  found->second.read(*entry, first, out);
  require_finite(out, found->second.name(), part.key, first);
}

std::vector<float> CheckpointReader::tensor(State state, const std::string& name,
                                            const std::vector<std::int64_t>& shape) const {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  std::vector<float> out(static_cast<std::size_t>(elements));
  std::vector<bool> filled(out.size());
  std::int64_t count = 0;
  for (const CheckpointPart* part : parts(state, name)) {
    if (part->tensor.logical_shape != shape)
      throw Failure(fmt::format("checkpoint tensor {} has another shape than the plan's", name));
    for (const Run& run : runs_of(part->tensor, part->tensor_rank, part->begin, part->end)) {
      const auto at = static_cast<std::size_t>(run.logical), length = static_cast<std::size_t>(run.elements);
      if (at + length > out.size()) throw Failure(fmt::format("checkpoint tensor {} has a part beyond its end", name));
      read(*part, run.local - part->begin, std::span(out).subspan(at, length));
      for (std::size_t i = at; i < at + length; ++i) {
        count += filled[i] ? 0 : 1;
        filled[i] = true;
      }
    }
  }
  if (count != elements)
    throw Failure(
        fmt::format("the checkpoint has {} of {} of {}", count == 0 ? "nothing" : "only a part", name_of(state), name));
  return out;
}

}  // namespace orrery::exec
