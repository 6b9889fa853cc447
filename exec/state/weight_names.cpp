// Names in the families' files (models/read/families.h), and models in several files.
#include "exec/state/weight_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/json.h"
#include "exec/failure.h"
#include "exec/files/files.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostIndex = 64U << 20;
constexpr std::size_t kMostParts = 10'000;  // files of one model; the largest published ones have some hundred

using Pairs = models::WeightNames::Pairs;

const char* find(const Pairs& pairs, const std::string& logical) {
  for (const auto& [name, file] : pairs)
    if (logical == name) return file;
  return nullptr;
}

/// If several logical tensors share one name in the file: whether this is one of them, and where it is.
void place_among(FilePlace& place, const models::WeightNames& names, const models::Tensor& tensor,
                 const std::string& stem) {
  const bool of_mixer = stem.rfind("attn.", 0) != 0;
  if (names.deltas_apart && (stem == "delta.z" || stem == "delta.a" || stem == "delta.b")) return;
  if (names.deltas_apart && (stem == "delta.q" || stem == "delta.k" || stem == "delta.v")) {
    // Of a group's rows, z has as many as v, and q as k.
    const std::int64_t groups = tensor.logical_shape[0] / tensor.group_rows;
    const std::int64_t of_z = stem == "delta.v" ? tensor.group_rows : (tensor.group_stride - 2 * tensor.group_rows) / 2;
    place.shape[0] = groups * (tensor.group_stride - of_z);
    place.first = groups * tensor.group_first;
    return;
  }
  if (tensor.group_rows > 0 && (of_mixer || names.qkv != models::WeightNames::Qkv::apart)) {
    const std::int64_t groups = tensor.logical_shape[0] / tensor.group_rows;
    place.shape[0] = groups * tensor.group_stride;
    place.first = tensor.group_first;
    if (!of_mixer && names.qkv == models::WeightNames::Qkv::by_core) {
      constexpr std::int64_t kCores = 4;
      place.run = tensor.logical_shape[0] / kCores, place.stride = 3 * place.run;
      place.first = stem == "attn.q" ? 0 : stem == "attn.v" ? place.run : 2 * place.run;
      return;
    }
    if (of_mixer || names.qkv == models::WeightNames::Qkv::by_head)
      place.run = tensor.group_rows, place.stride = tensor.group_stride;
    else
      place.first *= groups;
    return;
  }
  // Head by head of q, its rows and those of its gate.
  if (const char* const gate = find(names.parts, "attn.gate"), * const q = find(names.parts, "attn.q");
      gate != nullptr && std::string_view(gate) == q && (stem == "attn.q" || stem == "attn.gate")) {
    const std::int64_t width = (tensor.group_stride - tensor.group_rows) / 2;
    place.shape[0] *= 2;
    place.first = stem == "attn.gate" ? width : 0;
    place.run = width, place.stride = 2 * width;
    return;
  }
  for (const std::string mlp : {"mlp.", "mlp.shared."}) {
    if (stem != mlp + "gate" && stem != mlp + "up") continue;
    const char *const gate = find(names.parts, mlp + "gate"), *const up = find(names.parts, mlp + "up");
    if (gate == nullptr || up == nullptr || std::string_view(gate) != up) return;
    place.first = stem == mlp + "up" ? place.shape[0] : 0;
    place.shape[0] *= 2;
  }
}

/// Biases and norms of heads rotate with their products.
models::WeightNames::Rotated rotated_rows(const models::WeightNames& names, const std::string& stem) {
  for (const char* one : {"attn.q", "attn.k", "attn.q_norm", "attn.k_norm"})
    if (stem == one) return names.rotated;
  return {};
}

/// The two halves of the product that joins the inputs of a module that predicts further are one matrix in the file,
/// with the token's columns first or the hidden state's.
void place_half(FilePlace& place, const std::string& stem, bool hidden_first) {
  if (stem != "eh_proj.token" && stem != "eh_proj.hidden") return;
  place.base = (stem == "eh_proj.hidden") != hidden_first ? place.shape[1] : 0;
  place.width = place.shape[1] *= 2;
}

bool is_norm(const std::string& stem) {
  for (const char* one : {"ln_1", "ln_2", "ln_1_out", "ln_2_out", "ln_f", "ln_e", "attn.q_norm", "attn.k_norm",
                          "attn.q_a_norm", "attn.kv_a_norm", "attn.index.q_norm", "attn.index.k_norm"})
    if (stem == one) return true;
  return false;
}

/// In a tensor of all experts: (experts, in, out) or, by rows, (experts, out, in); for biases (experts, out). Gate and
/// up are in one.
void place_in_stack(FilePlace& place, const models::WeightNames& names, std::int64_t expert, bool up, bool both) {
  const std::int64_t out = place.shape.front(), all = (both ? 2 : 1) * out;
  const bool matrix = place.shape.size() == 2;
  const std::int64_t size = matrix ? all * place.shape.back() : all;
  const std::int64_t in = place.shape.back();
  place.transposed = matrix && !names.stacked_by_rows;
  place.shape = !matrix            ? std::vector<std::int64_t>{names.stacked, all}
                : place.transposed ? std::vector<std::int64_t>{names.stacked, in, all}
                                   : std::vector<std::int64_t>{names.stacked, all, in};
  place.base = expert * size;
  if (!both) return;
  place.first = !up ? 0 : names.interleaved ? 1 : out;
  if (names.interleaved) place.run = 1, place.stride = 2;
}

/// "mlp.experts.7.up", with `kind` ".weight" or ".bias", as the file's layer has it. False if it is not an expert's
/// that the file names.
bool place_expert(FilePlace& place, const models::WeightNames& names, const std::string& of_layer,
                  const std::string& stem, const std::string& kind) {
  constexpr std::string_view kExperts = "mlp.experts.";
  if (names.experts == nullptr || stem.rfind(kExperts, 0) != 0) return false;
  const std::size_t dot = stem.find('.', kExperts.size());
  if (dot == std::string::npos) return false;
  const std::string number = stem.substr(kExperts.size(), dot - kExperts.size()), logical = stem.substr(dot + 1);
  const char* const part = find(names.expert_parts, logical);
  if (part == nullptr) return false;
  place.prefix = names.prefix;
  if (names.stacked == 0) {
    place.name = fmt::format("{}{}.{}.{}{}", of_layer, names.experts, number, part, kind);
    return true;
  }
  const char* const gate = find(names.expert_parts, "gate");
  place.name = fmt::format("{}{}.{}{}", of_layer, names.experts, part, kind == ".bias" ? "_bias" : "");
  place_in_stack(place, names, std::stoll(number), logical == "up", gate != nullptr && std::string_view(gate) == part);
  return true;
}

/// The files that `weight_map` names, each once.
std::set<std::string> files_of_index(base::JsonReader& in) {
  std::set<std::string> names;
  bool mapped = false;
  in.open_object();
  for (std::string key; in.key(key);) {
    if (key != "weight_map") {
      in.skip();
      continue;
    }
    mapped = true;
    in.open_object();
    for (std::string tensor; in.key(tensor);) {
      names.insert(in.text());
      if (names.size() > kMostParts) in.error(fmt::format("more than {} files", kMostParts));
    }
  }
  in.finish();
  if (!mapped) in.error("it has no `weight_map`");
  return names;
}

}  // namespace

std::int64_t row_elements(const std::vector<std::int64_t>& shape) {
  std::int64_t all = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) all *= shape[i];
  return all;
}

FilePlace place_in_file(const models::WeightNames& names, const models::Tensor& tensor) {
  const std::string& logical_name = tensor.name;
  FilePlace place{.name = logical_name, .prefix = "", .shape = tensor.logical_shape};
  if (const char* head = find(names.heads, logical_name)) {
    place.name = head;
    return place;
  }
  const std::size_t dot = logical_name.rfind('.');
  if (dot == std::string::npos) return place;
  const std::string kind = logical_name.substr(dot);  // ".weight", ".bias"
  std::string stem = logical_name.substr(0, dot);
  if (is_norm(stem) && kind == ".weight") place.offset = names.norm_offset;
  if (const char* whole = find(names.whole, stem)) {
    place.prefix = names.prefix;
    place.name = place.prefix + whole + kind;
    return place;
  }
  const std::size_t number = stem.find('.', 2);
  if (stem.rfind("h.", 0) != 0 || number == std::string::npos) return place;
  const std::string layer = stem.substr(2, number - 2);
  stem = stem.substr(number + 1);
  const std::int64_t behind = names.further == nullptr ? -1 : std::stoll(layer) - names.layers;
  const std::string of_layer = behind < 0 ? fmt::format("{}{}{}.", names.prefix, names.layer, layer)
                                          : fmt::format("{}{}{}.", names.prefix, names.further, behind);
  if (place_expert(place, names, of_layer, stem, kind)) return place;
  if (const char* const other = find(names.parts, stem + kind)) {  // neither a weight nor a bias
    place.prefix = names.prefix;
    place.name = of_layer + other;
    return place;
  }
  const char* const part = find(names.parts, stem);
  if (part == nullptr) return place;
  if (is_norm(stem) && kind == ".weight") place.offset = names.norm_offset;
  place.prefix = names.prefix;
  place.name = of_layer + part + kind;
  place_among(place, names, tensor, stem);
  place_half(place, stem, names.hidden_first);
  place.rotated = rotated_rows(names, stem);
  place.transposed = names.transposed && place.shape.size() == 2;
  if (place.transposed) std::reverse(place.shape.begin(), place.shape.end());
  return place;
}

FilePlace place_in_file(models::Family family, const std::string& logical_name,
                        const std::vector<std::int64_t>& logical_shape) {
  models::Tensor tensor{.name = logical_name, .logical_shape = logical_shape};
  constexpr const char* kParts[] = {".attn.q.", ".attn.k.", ".attn.v."};
  for (std::int64_t i = 0; i < 3; ++i)
    if (logical_name.find(kParts[i]) != std::string::npos)
      tensor.group_rows = logical_shape[0], tensor.group_first = i * logical_shape[0],
      tensor.group_stride = 3 * logical_shape[0];
  return place_in_file(models::traits_of(family).weights, tensor);
}

base::Result<std::vector<SafetensorsFile>> open_weights(const fs::path& path) {
  constexpr const char* kCode = "E0603";
  const auto fault = [](const fs::path& file, const std::string& message) {
    return base::fail(
        {base::Diagnostic{base::Severity::error,
                          kCode,
                          {file.string(), 0, 0, 1},
                          message,
                          "give a .safetensors file, a model.safetensors.index.json, or the folder of one",
                          {}}});
  };
  std::error_code error;
  fs::path at = path;
  if (fs::is_directory(path, error)) {
    at = path / "model.safetensors";
    if (!fs::exists(at, error)) at = path / "model.safetensors.index.json";
    if (!fs::exists(at, error))
      return fault(path, fmt::format("{} holds neither model.safetensors nor its index", path.string()));
  }
  std::vector<SafetensorsFile> files;
  if (at.extension() != ".json") {
    auto file = SafetensorsFile::open(at);
    if (!file) return base::fail(file.error());
    files.push_back(std::move(*file));
    return files;
  }
  try {
    const std::string text = read_file(at, kMostIndex);
    base::JsonReader in(text, at.string());
    const std::set<std::string> names = files_of_index(in);
    if (in.failed()) {
      const base::Diagnostic& wrong = in.errors().front();
      return fault(at, fmt::format("{}:{}:{}: not an index of weights: {}", at.string(), wrong.where.line,
                                   wrong.where.column, wrong.message));
    }
    for (const std::string& name : names) {
      if (name.find('/') != std::string::npos)
        return fault(at, fmt::format("{} leads out of its folder", base::quoted(name)));
      auto file = SafetensorsFile::open(at.parent_path() / name);
      if (!file) return base::fail(file.error());
      files.push_back(std::move(*file));
    }
  } catch (const Failure& failure) {
    return fault(at, failure.what());
  }
  return files;
}

}  // namespace orrery::exec
