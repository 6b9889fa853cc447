#pragma once
/// The table of families: what a model of one has unless a file says otherwise, the keys of its config.json, and the
/// names of its weights in safetensors files. To add a family: a name in models/family.h, an entry in
/// models/families_llama.cpp, families_experts.cpp or families_gpt.cpp.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/config_keys.h"
#include "models/model.h"

namespace orrery::models {

/// Names of a family's tensors in Hugging Face's files, beside the logical names of checkpoints.
struct WeightNames {
  using Pairs = std::vector<std::pair<const char*, const char*>>;  ///< logical, in the file
  /// How q, k and v stand: each by itself; one behind the other; head by head of k, with the q that share it.
  enum class Qkv : std::uint8_t { apart, in_turn, by_head };

  const char* prefix;  ///< of everything but what `heads` names; some files leave it out
  const char* layer;   ///< before a layer's number
  Pairs whole;         ///< outside the layers, without ".weight" and ".bias"
  Pairs parts;         ///< of a layer, likewise
  Pairs heads = {};    ///< whole names, without the prefix
  /// Experts of a layer: what stands before an expert's number, and the names behind it (logical: gate, up, proj).
  const char* experts = nullptr;
  Pairs expert_parts = {};
  /// All experts of a layer, so many, in one tensor (experts, in, out), their biases in (experts, out) with "_bias"
  /// behind the name; gate and up in one if they have one name. 0: each expert by itself.
  std::int64_t stacked = 0;
  bool interleaved = false;  ///< gate's and up's columns take turns there; else gate's come first
  Qkv qkv = Qkv::apart;      ///< where q, k and v have one name
  bool transposed = false;   ///< matrices are (in, out)
  double norm_offset = 0;    ///< the file's weights of norms are less by so much
};

struct FamilyTraits {
  Family family;
  const char* name;                      ///< in model files
  const char* title;                     ///< for people
  std::vector<const char*> model_types;  ///< in config.json; the first is written
  const char* architecture;              ///< the class with its head, as written
  const char* architectures;             ///< how the names of its classes begin
  void (*defaults)(Model&);
  void (*config)(ConfigKeys&, Model&);  ///< but for vocabulary, name and initialisation
  WeightNames weights;
  void (*names)(WeightNames&, const Model&) = nullptr;  ///< where features decide them
  bool mixture = false;                                 ///< its models have experts
};

/// The entries, by file; families() has all.
[[nodiscard]] std::vector<FamilyTraits> gpt_families();
[[nodiscard]] std::vector<FamilyTraits> llama_families();
[[nodiscard]] std::vector<FamilyTraits> expert_families();
[[nodiscard]] std::span<const FamilyTraits> families();
[[nodiscard]] const FamilyTraits& traits_of(Family family);
[[nodiscard]] const char* name_of(Family family);
/// "gpt2, bert, llama …", for messages.
[[nodiscard]] std::string known_model_types();
/// Those of the model's family, as its features have them.
[[nodiscard]] WeightNames weight_names(const Model& model);

}  // namespace orrery::models
