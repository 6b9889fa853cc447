#pragma once
/// Hugging Face's config.json to Model, for the families gpt2, bert, llama and mistral, which is a llama. Field names
/// of transformers 4 and 5.
#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

/// True when the keys of this map are those of a Hugging Face configuration.
[[nodiscard]] bool is_hugging_face(const base::Cursor& root);

/// Reads such a configuration. Errors: E0110 for a family that is not known, E0111 for a variant of a known family
/// that the Model cannot say (a sliding window, relative positions …). `name` is the fallback for `_name_or_path`.
[[nodiscard]] Model read_hugging_face(const base::Cursor& root, const std::string& name);

/// The config.json of the class that has the model with a language-modelling head: GPT2LMHeadModel, LlamaForCausalLM,
/// BertForPreTraining. Read again it is the same model. E0604 for a variant that the class cannot say.
[[nodiscard]] base::Result<std::string> write_hugging_face(const Model& model);

}  // namespace orrery::models
