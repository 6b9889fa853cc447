// Initial weights from a safetensors file: Hugging Face's GPT-2 names and orientations, or our own.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "exec/initialise.h"

namespace orrery::exec {
namespace {

constexpr const char* kCode = "E0602";

/// Where a logical tensor stands in the file: logical (o, i) is file element i * stride + column + o when transposed,
/// else the file's elements from `first` in order.
struct Place {
  const TensorEntry* entry = nullptr;
  bool transposed = false;
  std::int64_t first = 0;   ///< first element (not transposed) or first column (transposed)
  std::int64_t stride = 0;  ///< columns of the file's matrix
  std::int64_t inner = 0;   ///< columns of the logical matrix
};

struct Name {
  std::string hugging_face;
  bool conv1d = false;
  int third = -1;  ///< 0, 1, 2: q, k, v of c_attn
};

/// "h.3.attn.q.weight" -> h.3.attn.c_attn.weight, first third, Conv1D.
Name gpt2_name(const std::string& logical) {
  const std::size_t dot = logical.find('.', 2);
  if (logical.rfind("h.", 0) != 0 || dot == std::string::npos) return {logical, false, -1};
  const std::string head = logical.substr(0, dot + 1);
  const std::string tail = logical.substr(dot + 1);
  const bool weight = tail.size() > 7 && tail.substr(tail.size() - 7) == ".weight";
  const std::string kind = weight ? ".weight" : ".bias";
  static const std::map<std::string, std::pair<std::string, int>> kNames = {
      {"attn.q", {"attn.c_attn", 0}},     {"attn.k", {"attn.c_attn", 1}}, {"attn.v", {"attn.c_attn", 2}},
      {"attn.proj", {"attn.c_proj", -1}}, {"mlp.fc", {"mlp.c_fc", -1}},   {"mlp.proj", {"mlp.c_proj", -1}}};
  const auto found = kNames.find(tail.substr(0, tail.size() - kind.size()));
  if (found == kNames.end()) return {logical, false, -1};
  return {head + found->second.first + kind, weight, found->second.second};
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::optional<Place> find_place(const SafetensorsFile& file, const plan::ParameterRange& range, std::string& problem) {
  const std::vector<std::int64_t>& shape = range.tensor.logical_shape;
  if (const TensorEntry* own = file.header().find(range.name); own && own->shape == shape)
    return Place{own, false, 0, 0, 0};
  const Name name = gpt2_name(range.name);
  const TensorEntry* entry = file.header().find(name.hugging_face);
  if (!entry) entry = file.header().find("transformer." + name.hugging_face);
  if (!entry) {
    problem = fmt::format("no tensor \"{}\" (for {})", name.hugging_face, range.name);
    return std::nullopt;
  }
  std::vector<std::int64_t> expected = shape;
  if (name.third >= 0) expected[0] *= 3;
  if (name.conv1d) std::reverse(expected.begin(), expected.end());
  if (entry->shape != expected) {
    problem = fmt::format("tensor \"{}\" has shape {}, expected {}", entry->name, shape_text(entry->shape),
                          shape_text(expected));
    return std::nullopt;
  }
  const std::int64_t third = std::max(name.third, 0) * shape[0];
  if (name.conv1d) return Place{entry, true, third, expected[1], shape[1]};
  return Place{entry, false, third, 0, 0};
}

/// The file's matrix is read once per tensor and kept while its rows are asked for: a transposed run touches all of it.
struct Transposed {
  const TensorEntry* entry = nullptr;
  std::vector<float> values;
};

void copy_from(const SafetensorsFile& file, const Place& place, Transposed& cache, std::int64_t first,
               std::span<float> out) {
  if (!place.transposed) return file.read(*place.entry, place.first + first, out);
  if (cache.entry != place.entry) {
    cache.values.resize(static_cast<std::size_t>(place.entry->elements()));
    file.read(*place.entry, 0, cache.values);
    cache.entry = place.entry;
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    const std::int64_t o = (first + static_cast<std::int64_t>(j)) / place.inner;
    const std::int64_t i = (first + static_cast<std::int64_t>(j)) % place.inner;
    out[j] = cache.values[static_cast<std::size_t>(i * place.stride + place.first + o)];
  }
}

}  // namespace

base::Result<LogicalSource> file_source(const SafetensorsFile& file, const plan::Schedule& schedule) {
  auto places = std::make_shared<std::map<std::string, Place>>();
  base::Diagnostics wrong;
  for (const plan::RankClass& rank_class : schedule.classes)
    for (const plan::Bucket& bucket : rank_class.buckets)
      for (const plan::ParameterRange& range : bucket.ranges) {
        if (places->count(range.name)) continue;
        std::string problem;
        const std::optional<Place> place = find_place(file, range, problem);
        if (place) {
          (*places)[range.name] = *place;
          continue;
        }
        base::Diagnostic finding;
        finding.code = kCode;
        finding.where.file = file.name();
        finding.message = problem;
        finding.help = "initial_weights takes Hugging Face's GPT-2 names and orientations";
        wrong.push_back(finding);
      }
  if (!wrong.empty()) return base::fail(std::move(wrong));
  auto cache = std::make_shared<Transposed>();
  return LogicalSource(
      [&file, places, cache](const plan::ParameterRange& range, std::int64_t first, std::span<float> out) {
        copy_from(file, places->at(range.name), *cache, first, out);
      });
}

}  // namespace orrery::exec
