// Llamas with biases: of attention's products (InternLM), or of LayerNorms in place of RMSNorms (Orion). Keys and their
// defaults are those of the classes beside the published weights (configuration_internlm.py, configuration_orion.py).
#include "models/read/family_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

// InternLM Team 2023.
void as_internlm(Model& m) {
  as_llama(m);
  m.qkv_bias = m.out_bias = true;
}

void internlm_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.real({"rope_theta", "rotary.base"}, m.rope_theta, 1, 1e12, 10000);
  k.rope_scaling(m);
  silu(k, m, "internlm");
  k.flag({"bias"}, m.qkv_bias, true);
  if (k.reads()) m.out_bias = m.qkv_bias;
}

// OrionStar 2024, "Orion-14B".
void as_orion(Model& m) {
  as_llama(m);
  m.normalisation = Normalisation::layer_norm;
}

void orion_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 0);
  silu(k, m, "orion");
  k.unused({"max_sequence_length"});  // max_position_embeddings, again
}

}  // namespace

std::vector<FamilyTraits> biased_families() {
  return {entry(Family::internlm, "internlm", "InternLM", "InternLMForCausalLM", "InternLMFor", as_internlm,
                internlm_config, llama_names()),
          entry(Family::orion, "orion", "Orion", "OrionForCausalLM", "Orion", as_orion, orion_config, llama_names())};
}

}  // namespace orrery::models
