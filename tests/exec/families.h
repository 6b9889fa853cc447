#pragma once
/// Other families of a golden model's size.
#include "models/model.h"

namespace orrery::exec::testing {

/// A Llama with grouped queries and an untied head.
inline void make_llama(models::Model& m) {
  m.family = models::Family::llama;
  m.kv_heads = 2;
  m.ffn_hidden = 96;
  m.normalisation = models::Normalisation::rms_norm;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = m.tied_embeddings = false;
}

/// An encoder as BERT's, that predicts the next token all the same.
inline void make_encoder(models::Model& m) {
  m.family = models::Family::bert;
  m.causal = m.pre_norm = false;
  m.token_types = 2;
}

}  // namespace orrery::exec::testing
