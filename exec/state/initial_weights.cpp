// Initial weights from safetensors files, with Hugging Face's names and orientations or our own.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "exec/state/initialise.h"
#include "exec/state/state_hash.h"
#include "exec/state/table_shards.h"
#include "exec/state/weight_names.h"
#include "models/read/original.h"
#include "plan/lower/experts.h"

namespace orrery::exec {
namespace {

constexpr const char* kCode = "E0602";

/// Where a logical tensor is: logical (o, i) is the file's element (i, row(o)) if transposed, else (row(o), i).
struct Place {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
  FilePlace in_file;
  std::int64_t inner = 1;  ///< columns of the logical tensor
};

using Files = std::vector<const SafetensorsFile*>;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::pair<const SafetensorsFile*, const TensorEntry*> find(const Files& files, const std::string& name) {
  for (const SafetensorsFile* file : files)
    if (const TensorEntry* entry = file->header().find(name)) return {file, entry};
  // BERT's first files use TensorFlow's names for the parts of a norm.
  constexpr std::pair<std::string_view, std::string_view> kOlder[] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                                                      {"LayerNorm.bias", "LayerNorm.beta"}};
  for (const auto& [now, then] : kOlder)
    if (name.ends_with(now)) return find(files, name.substr(0, name.size() - now.size()).append(then));
  return {nullptr, nullptr};
}

/// With the family's prefix, without it, or within a model of text and images, as transformers 5 and 4 write it.
std::pair<const SafetensorsFile*, const TensorEntry*> find(const Files& files, const FilePlace& place) {
  const std::string rest = place.name.substr(place.prefix.size());
  for (const std::string& name : {place.name, rest, "model.language_model." + rest, "language_model." + place.name})
    if (const auto found = find(files, name); found.second != nullptr) return found;
  return {nullptr, nullptr};
}

// Tries our own name first, then each family's, with and without its prefix. No two families use the same names.
std::optional<Place> find_place(const Files& files, const plan::ParameterRange& range,
                                const std::vector<models::WeightNames>& families, std::string& problem) {
  const std::vector<std::int64_t>& shape = range.tensor.logical_shape;
  const std::int64_t inner = row_elements(shape);
  if (const auto [file, own] = find(files, range.name); own && own->shape == shape) return Place{file, own, {}, inner};
  if (families.empty()) {
    const auto entry = find(files, range.name).second;
    problem = entry ? fmt::format("tensor \"{}\" has shape {}, expected {}", range.name, shape_text(entry->shape),
                                  shape_text(shape))
                    : fmt::format("no tensor \"{}\"", range.name);
    return std::nullopt;
  }
  std::string looked_for;
  for (const models::WeightNames& family : families) {
    const FilePlace place = place_in_file(family, range.tensor);
    const auto [file, entry] = find(files, place);
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
    return Place{file, entry, place, inner};
  }
  problem = fmt::format("no tensor {} (for {})", looked_for, range.name);
  return std::nullopt;
}

/// A file's matrix (in a tensor of all experts, one expert's) is read once and kept while its rows are asked for,
/// because a transposed run touches all of it.
struct Transposed {
  const TensorEntry* entry = nullptr;
  std::int64_t base = 0;
  std::vector<float> values;
};

void copy_from(const Place& place, Transposed& cache, std::int64_t first, std::span<float> out) {
  const FilePlace& at = place.in_file;
  if (!at.transposed) {
    const std::int64_t rows = at.rotated.head > 0 || at.width > 0 ? 1 : at.run;  // that stand together in the file
    const std::int64_t run = rows > 0 ? rows * place.inner : std::numeric_limits<std::int64_t>::max();
    const auto size = static_cast<std::int64_t>(out.size());
    for (std::int64_t done = 0; done < size;) {
      const std::int64_t within = (first + done) % run, count = std::min(run - within, size - done);
      const std::int64_t row = (first + done) / place.inner, column = (first + done) % place.inner;
      const std::int64_t element = at.element(row, column, place.inner);
      const auto part = out.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
      place.file->read(*place.entry, element, part);
      require_finite(part, place.file->name(), place.entry->name, element);
      done += count;
    }
    for (float& value : out) value = static_cast<float>(value + at.offset);
    return;
  }
  if (cache.entry != place.entry || cache.base != at.base) {
    cache.values.resize(static_cast<std::size_t>(place.inner * at.shape.back()));
    place.file->read(*place.entry, at.base, cache.values);
    require_finite(cache.values, place.file->name(), place.entry->name, at.base);
    cache.entry = place.entry;
    cache.base = at.base;
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    const std::int64_t o = (first + static_cast<std::int64_t>(j)) / place.inner;
    const std::int64_t i = (first + static_cast<std::int64_t>(j)) % place.inner;
    out[j] = cache.values[static_cast<std::size_t>(at.element(o, i, place.inner) - at.base)];
  }
}

/// The model's family, if its names are its own; otherwise, or without a model, any of these.
std::vector<models::WeightNames> names_to_try(const models::Model* model) {
  using models::Family;
  std::vector<models::WeightNames> out;
  constexpr Family kAnyOf[] = {Family::gpt, Family::llama, Family::bert};
  if (model && model->recommender) return out;  // our own names equal the public DLRM's
  if (model) out.push_back(models::weight_names(*model));
  if (!model || model->family == Family::mistral ||
      std::find(std::begin(kAnyOf), std::end(kAnyOf), model->family) != std::end(kAnyOf))
    for (const Family family : kAnyOf) out.push_back(models::traits_of(family).weights);
  return out;
}

/// E0605 for weights of an original that the model here differs from. What this project has exported was trained so.
base::Diagnostics of_another_original(const Files& files, const models::Model* model) {
  const std::vector<std::string> differences = model ? models::differences(*model) : std::vector<std::string>();
  const auto ours = [](const SafetensorsFile* file) {
    const auto& metadata = file->header().metadata;
    const auto found = metadata.find("written_by");
    return found != metadata.end() && found->second == "orrery export";
  };
  if (differences.empty() || std::all_of(files.begin(), files.end(), ours)) return {};
  return {{base::Severity::error,
           "E0605",
           {files.front()->name(), 0, 0, 1},
           fmt::format("these weights compute something else here: of {}'s model, {}", model->name,
                       fmt::join(differences, "; ")),
           "train from seeded weights; predictions of time and memory hold",
           {}}};
}

/// "; these weights have 16 experts, not 8" if the weights' first router is another number's; else empty.
std::string other_experts(const Files& files, const plan::Schedule& schedule,
                          const std::vector<models::WeightNames>& families) {
  for (const plan::RankClass& rank_class : schedule.classes)
    for (const plan::Bucket& bucket : rank_class.buckets)
      for (const plan::ParameterRange& range : bucket.ranges) {
        if (!range.name.ends_with(".router.weight")) continue;
        const TensorEntry* entry = find(files, range.name).second;
        for (std::size_t i = 0; entry == nullptr && i < families.size(); ++i) {
          const FilePlace place = place_in_file(families[i], range.tensor);
          entry = find(files, place).second;
        }
        if (entry == nullptr || entry->shape.size() != 2) continue;
        const std::int64_t here = range.tensor.logical_shape.front();
        const std::int64_t there = entry->shape[entry->shape.front() == range.tensor.logical_shape.back() ? 1 : 0];
        return here == there ? "" : fmt::format("; these weights have {} experts, not {}", there, here);
      }
  return {};
}

base::Result<LogicalSource> source_of(const Files& files, const plan::Schedule& schedule, const models::Model* model,
                                      const LogicalSource& adapters) {
  if (base::Diagnostics other = of_another_original(files, model); !other.empty()) return base::fail(std::move(other));
  const std::vector<models::WeightNames> families = names_to_try(model);
  auto places = std::make_shared<std::map<std::string, Place>>();
  base::Diagnostics wrong;
  const auto look_up = [&](const plan::ParameterRange& range, bool adapter = false) {
    if (places->count(range.name)) return;
    std::string problem;
    const std::optional<Place> place = find_place(files, range, families, problem);
    if (place) {
      (*places)[range.name] = *place;
      return;
    }
    if (adapter && adapters && find(files, range.name).second == nullptr) return;
    base::Diagnostic finding;
    finding.code = kCode;
    finding.where.file = files.front()->name();
    finding.message = problem;
    finding.help = families.empty()
                       ? "initial_weights uses the names of the public DLRM's PyTorch state dict"
                       : "initial_weights uses Hugging Face's names and orientations for the model's family";
    wrong.push_back(finding);
  };
  for (const plan::RankClass& rank_class : schedule.classes) {
    const bool adapts = std::any_of(rank_class.buckets.begin(), rank_class.buckets.end(),
                                    [](const plan::Bucket& bucket) { return bucket.frozen; });
    for (const plan::Bucket& bucket : rank_class.buckets)
      for (const plan::ParameterRange& range : bucket.ranges) look_up(range, adapts && !bucket.frozen);
    for (const plan::ParameterRange& range : plan::expert_bias_ranges(rank_class)) look_up(range);
  }
  for (const plan::ParameterRange& range : sharded_tables(schedule)) look_up(range);
  if (!wrong.empty()) {
    wrong.front().message += other_experts(files, schedule, families);
    return base::fail(std::move(wrong));
  }
  auto cache = std::make_shared<Transposed>();
  return LogicalSource(
      [places, cache, adapters](const plan::ParameterRange& range, std::int64_t first, std::span<float> out) {
        const auto place = places->find(range.name);
        if (place == places->end()) return adapters(range, first, out);
        copy_from(place->second, *cache, first, out);
      });
}

}  // namespace

base::Result<LogicalSource> file_source(const std::vector<SafetensorsFile>& files, const plan::Schedule& schedule,
                                        const models::Model* model, const LogicalSource& adapters) {
  Files pointers;
  for (const SafetensorsFile& file : files) pointers.push_back(&file);
  return source_of(pointers, schedule, model, adapters);
}

base::Result<LogicalSource> file_source(const SafetensorsFile& file, const plan::Schedule& schedule,
                                        const models::Model* model, const LogicalSource& adapters) {
  return source_of({&file}, schedule, model, adapters);
}

}  // namespace orrery::exec
