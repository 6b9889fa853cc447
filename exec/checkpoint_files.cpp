// Reading a checkpoint's folder.
#include "exec/checkpoint_files.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "exec/checksum.h"
#include "exec/failure.h"
#include "exec/files.h"
#include "exec/state_hash.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostManifest = 256U << 20;  // bytes

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

}  // namespace

CheckpointReader::CheckpointReader(fs::path folder) : folder_(std::move(folder)) {
  const fs::path name = folder_ / "manifest.json";
  manifest_ = parse_manifest(read_file(name, kMostManifest), name.string());
  for (const CheckpointPart& part : manifest_.parts)
    index_[{part.state, part.version, part.tensor.name}].push_back(&part);
}

void CheckpointReader::check_files(int first, int ways) const {
  for (auto i = static_cast<std::size_t>(first); i < manifest_.files.size(); i += static_cast<std::size_t>(ways)) {
    const CheckpointFile& file = manifest_.files[i];
    if (file.name.find('/') != std::string::npos || checksum_of(folder_ / file.name, file.bytes) != file.crc)
      throw Failure(fmt::format("{}: damaged: its checksum is not the manifest's", (folder_ / file.name).string()));
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
