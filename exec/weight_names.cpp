// The three families' names, and files in parts.
#include "exec/weight_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"
#include "exec/failure.h"
#include "exec/files.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostIndex = 64U << 20;
constexpr std::size_t kMostParts = 10'000;  // files of one model; the largest that are published have some hundred

struct Words {
  const char* prefix;                        ///< of everything but the head
  const char* layer;                         ///< before a layer's number
  std::map<std::string, std::string> whole;  ///< logical names outside the layers
  std::map<std::string, std::string> parts;  ///< of a layer, without ".weight" and ".bias"
};

const Words& words_of(models::Family family) {
  static const Words kGpt{"transformer.",
                          "h.",
                          {{"wte", "wte"}, {"wpe", "wpe"}, {"ln_f", "ln_f"}},
                          {{"ln_1", "ln_1"},
                           {"ln_2", "ln_2"},
                           {"attn.q", "attn.c_attn"},
                           {"attn.k", "attn.c_attn"},
                           {"attn.v", "attn.c_attn"},
                           {"attn.proj", "attn.c_proj"},
                           {"mlp.fc", "mlp.c_fc"},
                           {"mlp.proj", "mlp.c_proj"}}};
  static const Words kLlama{"model.",
                            "layers.",
                            {{"wte", "embed_tokens"}, {"ln_f", "norm"}},
                            {{"ln_1", "input_layernorm"},
                             {"ln_2", "post_attention_layernorm"},
                             {"attn.q", "self_attn.q_proj"},
                             {"attn.k", "self_attn.k_proj"},
                             {"attn.v", "self_attn.v_proj"},
                             {"attn.proj", "self_attn.o_proj"},
                             {"mlp.gate", "mlp.gate_proj"},
                             {"mlp.up", "mlp.up_proj"},
                             {"mlp.proj", "mlp.down_proj"}}};
  static const Words kBert{"bert.",
                           "encoder.layer.",
                           {{"wte", "embeddings.word_embeddings"},
                            {"wpe", "embeddings.position_embeddings"},
                            {"wtt", "embeddings.token_type_embeddings"},
                            {"ln_e", "embeddings.LayerNorm"},
                            {"pooler", "pooler.dense"}},
                           {{"attn.q", "attention.self.query"},
                            {"attn.k", "attention.self.key"},
                            {"attn.v", "attention.self.value"},
                            {"attn.proj", "attention.output.dense"},
                            {"ln_1", "attention.output.LayerNorm"},
                            {"mlp.fc", "intermediate.dense"},
                            {"mlp.proj", "output.dense"},
                            {"ln_2", "output.LayerNorm"}}};
  switch (family) {
    case models::Family::gpt: return kGpt;
    case models::Family::llama: return kLlama;
    case models::Family::bert: return kBert;
  }
  return kGpt;
}

/// BERT's heads have names of their own, without the prefix.
const std::map<std::string, std::string>& bert_head() {
  static const std::map<std::string, std::string> kNames = {
      {"head.dense.weight", "cls.predictions.transform.dense.weight"},
      {"head.dense.bias", "cls.predictions.transform.dense.bias"},
      {"ln_f.weight", "cls.predictions.transform.LayerNorm.weight"},
      {"ln_f.bias", "cls.predictions.transform.LayerNorm.bias"},
      {"head.bias", "cls.predictions.bias"},
      {"lm_head.weight", "cls.predictions.decoder.weight"},  // not tied
      {"next_sentence.weight", "cls.seq_relationship.weight"},
      {"next_sentence.bias", "cls.seq_relationship.bias"}};
  return kNames;
}

/// What `weight_map` names, each file once.
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

FilePlace place_in_file(models::Family family, const std::string& logical_name,
                        const std::vector<std::int64_t>& logical_shape) {
  FilePlace place{logical_name, "", logical_shape, false, 0};
  if (family == models::Family::bert)
    if (const auto head = bert_head().find(logical_name); head != bert_head().end()) {
      place.name = head->second;
      return place;
    }
  const Words& words = words_of(family);
  const std::size_t dot = logical_name.rfind('.');
  if (dot == std::string::npos) return place;
  const std::string kind = logical_name.substr(dot);  // ".weight", ".bias"
  std::string stem = logical_name.substr(0, dot);
  if (const auto whole = words.whole.find(stem); whole != words.whole.end()) {
    place.prefix = words.prefix;
    place.name = place.prefix + whole->second + kind;
    return place;
  }
  const std::size_t number = stem.find('.', 2);
  if (stem.rfind("h.", 0) != 0 || number == std::string::npos) return place;
  const std::string layer = stem.substr(2, number - 2);
  stem = stem.substr(number + 1);
  const auto part = words.parts.find(stem);
  if (part == words.parts.end()) return place;
  place.prefix = words.prefix;
  place.name = fmt::format("{}{}{}.{}{}", words.prefix, words.layer, layer, part->second, kind);
  if (family != models::Family::gpt) return place;
  if (part->second == "attn.c_attn") {
    const std::int64_t third = stem == "attn.q" ? 0 : stem == "attn.k" ? 1 : 2;
    place.first = third * logical_shape[0];
    place.shape[0] *= 3;
  }
  place.transposed = place.shape.size() == 2;
  if (place.transposed) std::reverse(place.shape.begin(), place.shape.end());
  return place;
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
