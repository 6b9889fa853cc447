#pragma once
/// The table of families: what a family's model has unless a file says otherwise, the keys of its config.json, and the
/// names of its weights in safetensors files. Adding a family takes a name in models/family.h and an entry in
/// one of models/read/families_*.cpp.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"
#include "models/read/config_keys.h"

namespace orrery::models {

/// A family's tensor names in Hugging Face's files, beside the logical names of checkpoints.
struct WeightNames {
  using Pairs = std::vector<std::pair<const char*, const char*>>;  ///< (logical, in the file)
  /// How q, k and v are stored: each by itself; one after another; head by head of k, with the q heads that share it;
  /// or in four parts, as CodeGen was trained on four cores, each with a quarter of q's rows, of v's and of k's.
  enum class Qkv : std::uint8_t { apart, in_turn, by_head, by_core };

  const char* prefix;  ///< of everything except what `heads` names; some files omit it
  const char* layer;   ///< what comes before a layer's number
  Pairs whole;         ///< outside the layers, without ".weight" and ".bias"
  Pairs parts;         ///< within a layer, likewise
  Pairs heads = {};    ///< full names, without the prefix
  /// A layer's experts: what comes before an expert's number, and the names after it (logical: gate, up, proj).
  const char* experts = nullptr;
  Pairs expert_parts = {};
  /// The number of experts if one tensor (experts, in, out) has all of a layer's, with their biases in (experts, out)
  /// under the name plus "_bias"; gate and up are one tensor if they have one name. 0: each expert has its own tensors.
  std::int64_t stacked = 0;
  bool stacked_by_rows = false;  ///< it is (experts, out, in)
  /// What comes before the number, from 0, of a module that predicts further; null: it is one more layer.
  const char* further = nullptr;
  std::int64_t layers = 0;  ///< the model's, for a file that numbers these modules by themselves
  /// Such a module's joining product has the hidden state's columns first, not the token's.
  bool hidden_first = false;
  /// Of what a module that predicts further shares, the file has copies in its layer: full logical names.
  Pairs further_copies = {};
  bool interleaved = false;  ///< in it, columns of gate and up alternate; else gate's come first
  Qkv qkv = Qkv::apart;      ///< if q, k and v share one name
  /// Of a gated delta network, z, a and b are by themselves, and q, k and v one after another (Qwen3.5); else each head
  /// of k has its rows of q, k, v and z, and of a and b.
  bool deltas_apart = false;
  bool transposed = false;  ///< matrices are (in, out)
  double norm_offset = 0;   ///< the file's norm weights are smaller by this
  /// Rotated pairs stand side by side (GPT-J's way), not half of the rotated columns apart.
  bool adjacent_pairs = false;
  /// The second rows of rotated pairs come before the first: the file's model rotates backwards (nanochat).
  bool swapped_pairs = false;
  /// Set for a model with adjacent or swapped pairs: the rotated columns of a head of q and of k. Latent attention,
  /// whose operators read such pairs, needs none.
  struct Rotated {
    std::int64_t head = 0, first = 0, columns = 0;
    bool swapped = false;  ///< the second half before the first, not side by side
  };
  Rotated rotated = {};
};

struct FamilyTraits {
  Family family;
  const char* name;                      ///< in model files
  const char* title;                     ///< for messages
  std::vector<const char*> model_types;  ///< in config.json; writing uses the first
  const char* architecture;              ///< the class with its head, as written
  const char* architectures;             ///< prefix of the names of its classes
  void (*defaults)(Model&);
  void (*config)(ConfigKeys&, Model&);  ///< all but vocabulary, name and initialisation
  WeightNames weights;
  void (*names)(WeightNames&, const Model&) = nullptr;  ///< if features decide them
  bool mixture = false;                                 ///< its models have experts
  std::int64_t vocab = 0;                               ///< of files that say none; 0: they have to
  /// Why the class would compute something else from a file of this model's weights; null: it would not.
  const char* (*computes_else)(const Model&) = nullptr;
};

/// The entries of each file; families() has all.
[[nodiscard]] std::vector<FamilyTraits> gpt_families();
[[nodiscard]] std::vector<FamilyTraits> gptj_families();
[[nodiscard]] std::vector<FamilyTraits> llama_families();
[[nodiscard]] std::vector<FamilyTraits> glm_families();
[[nodiscard]] std::vector<FamilyTraits> expert_families();
[[nodiscard]] std::vector<FamilyTraits> deepseek_families();
[[nodiscard]] std::vector<FamilyTraits> window_families();
[[nodiscard]] std::vector<FamilyTraits> hybrid_families();
[[nodiscard]] std::vector<FamilyTraits> recurrent_families();
[[nodiscard]] std::vector<FamilyTraits> gemma4_families();
[[nodiscard]] std::vector<FamilyTraits> sparse_families();
[[nodiscard]] std::vector<FamilyTraits> biased_families();
[[nodiscard]] std::span<const FamilyTraits> families();
[[nodiscard]] const FamilyTraits& traits_of(Family family);
[[nodiscard]] const char* name_of(Family family);
/// "gpt2, bert, llama …", for messages.
[[nodiscard]] std::string known_model_types();
/// The names for this model's family and features.
[[nodiscard]] WeightNames weight_names(const Model& model);

}  // namespace orrery::models
