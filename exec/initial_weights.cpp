// Initial weights from safetensors files: Hugging Face's names and orientations, or our own.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include "exec/initialise.h"
#include "exec/state_hash.h"
#include "exec/weight_names.h"

namespace orrery::exec {
namespace {

constexpr const char* kCode = "E0602";

/// Where a logical tensor stands: logical (o, i) is file element i * stride + column + o when transposed, else the
/// file's elements from `first` in order.
struct Place {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
  bool transposed = false;
  std::int64_t first = 0;   ///< first element (not transposed) or first column (transposed)
  std::int64_t stride = 0;  ///< columns of the file's matrix
  std::int64_t inner = 0;   ///< columns of the logical matrix
};

using Files = std::vector<const SafetensorsFile*>;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::pair<const SafetensorsFile*, const TensorEntry*> find(const Files& files, const std::string& name) {
  for (const SafetensorsFile* file : files)
    if (const TensorEntry* entry = file->header().find(name)) return {file, entry};
  // BERT's first files have TensorFlow's names of what a norm has.
  constexpr std::pair<std::string_view, std::string_view> kOlder[] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                                                      {"LayerNorm.bias", "LayerNorm.beta"}};
  for (const auto& [now, then] : kOlder)
    if (name.ends_with(now)) return find(files, name.substr(0, name.size() - now.size()).append(then));
  return {nullptr, nullptr};
}

// Our own name first, then each family's, as it is and without its prefix. The families' names differ.
std::optional<Place> find_place(const Files& files, const plan::ParameterRange& range, std::string& problem) {
  const std::vector<std::int64_t>& shape = range.tensor.logical_shape;
  if (const auto [file, own] = find(files, range.name); own && own->shape == shape)
    return Place{file, own, false, 0, 0, 0};
  std::string looked_for;
  for (const models::Family family : {models::Family::gpt, models::Family::llama, models::Family::bert}) {
    const FilePlace place = place_in_file(family, range.name, shape);
    auto [file, entry] = find(files, place.name);
    if (!entry) std::tie(file, entry) = find(files, place.name.substr(place.prefix.size()));
    if (!entry) {
      const std::string name = place.name.substr(place.prefix.size());
      if (looked_for.find("\"" + name + "\"") == std::string::npos)
        looked_for += (looked_for.empty() ? "\"" : ", \"") + name + "\"";
      continue;
    }
    if (entry->shape != place.shape) {
      problem = fmt::format("tensor \"{}\" has shape {}, expected {}", entry->name, shape_text(entry->shape),
                            shape_text(place.shape));
      return std::nullopt;
    }
    if (place.transposed) return Place{file, entry, true, place.first, place.shape[1], shape[1]};
    return Place{file, entry, false, place.first, 0, 0};
  }
  problem = fmt::format("no tensor {} (for {})", looked_for, range.name);
  return std::nullopt;
}

/// The file's matrix is read once per tensor and kept while its rows are asked for: a transposed run touches all of it.
struct Transposed {
  const TensorEntry* entry = nullptr;
  std::vector<float> values;
};

void copy_from(const Place& place, Transposed& cache, std::int64_t first, std::span<float> out) {
  if (!place.transposed) {
    place.file->read(*place.entry, place.first + first, out);
    return require_finite(out, place.file->name(), place.entry->name, place.first + first);
  }
  if (cache.entry != place.entry) {
    cache.values.resize(static_cast<std::size_t>(place.entry->elements()));
    place.file->read(*place.entry, 0, cache.values);
    require_finite(cache.values, place.file->name(), place.entry->name, 0);
    cache.entry = place.entry;
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    const std::int64_t o = (first + static_cast<std::int64_t>(j)) / place.inner;
    const std::int64_t i = (first + static_cast<std::int64_t>(j)) % place.inner;
    out[j] = cache.values[static_cast<std::size_t>(i * place.stride + place.first + o)];
  }
}

base::Result<LogicalSource> source_of(const Files& files, const plan::Schedule& schedule) {
  auto places = std::make_shared<std::map<std::string, Place>>();
  base::Diagnostics wrong;
  for (const plan::RankClass& rank_class : schedule.classes)
    for (const plan::Bucket& bucket : rank_class.buckets)
      for (const plan::ParameterRange& range : bucket.ranges) {
        if (places->count(range.name)) continue;
        std::string problem;
        const std::optional<Place> place = find_place(files, range, problem);
        if (place) {
          (*places)[range.name] = *place;
          continue;
        }
        base::Diagnostic finding;
        finding.code = kCode;
        finding.where.file = files.front()->name();
        finding.message = problem;
        finding.help = "initial_weights takes Hugging Face's names and orientations of GPT-2, Llama and BERT";
        wrong.push_back(finding);
      }
  if (!wrong.empty()) return base::fail(std::move(wrong));
  auto cache = std::make_shared<Transposed>();
  return LogicalSource([places, cache](const plan::ParameterRange& range, std::int64_t first, std::span<float> out) {
    copy_from(places->at(range.name), *cache, first, out);
  });
}

}  // namespace

base::Result<LogicalSource> file_source(const std::vector<SafetensorsFile>& files, const plan::Schedule& schedule) {
  Files pointers;
  for (const SafetensorsFile& file : files) pointers.push_back(&file);
  return source_of(pointers, schedule);
}

base::Result<LogicalSource> file_source(const SafetensorsFile& file, const plan::Schedule& schedule) {
  return source_of({&file}, schedule);
}

}  // namespace orrery::exec
