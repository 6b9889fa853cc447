// Expands layers into operators. Reading order: models/layers/layer_notes.h (how tensors and operators are noted down),
// models/layers/linear_notes.h (norms and products), models/layers/block_notes.h (a block), its parts
// (models/layers/mixers.h with attention_notes.h and the other mixers, mlp_notes.h, mixture_notes.h), then the input
// (models/layers/embedding_notes.h) and the heads with their losses (models/layers/head_notes.h). Each part is a
// class: its constructor notes down tensors, forward() and backward() operators.
//
// Tensor parallelism is Megatron-LM's (Shoeybi et al. 2019, section 3): the first product of attention and of the MLP
// is split by columns, the second by rows, with one all-reduce after each in forward and one before each in backward;
// the vocabulary is split by rows, and the loss is computed on shards with two small all-reduces. With sequence
// parallelism (Korthikanti et al. 2022, section 4.2.2) each all-reduce becomes a reduce-scatter after the block and an
// all-gather before it; everything in between works on a rank's own rows. As in their scheme, a product's gathered
// input is not kept, but gathered again for the weight's gradient.
#include "models/layers/expand.h"

#include "base/ensure.h"
#include "models/layers/fp8_gathers.h"
#include "models/layers/head_notes.h"
#include "models/layers/streams_notes.h"

namespace orrery::models {

LayerProgram expand(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options) {
  ENSURE(!model.experts.any() ||
             (model.experts.count % options.expert == 0 && model.pre_norm &&
              model.experts.hidden % (options.expert_ways > 0 ? options.expert_ways : options.tensor) == 0 &&
              model.experts.shared % options.tensor == 0),
         "{} experts of width {} (shared {}) over {} ranks, tensor {}", model.experts.count, model.experts.hidden,
         model.experts.shared, options.expert, options.tensor);
  ENSURE(options.tensor >= 1 && model.heads % options.tensor == 0 && model.window_heads % options.tensor == 0 &&
             model.kv_heads % options.tensor == 0 && model.window_kv_heads % options.tensor == 0 &&
             model.ffn_hidden % options.tensor == 0,
         "tensor {} does not divide heads {}, key/value heads {} or width {}", options.tensor, model.heads,
         model.kv_heads, model.ffn_hidden);
  if (kind == LayerKind::block)
    for (const Mixer one : members_of(model.parts(layer).mixer)) {
      const MixerTraits& mixer = traits_of(one);
      ENSURE((options.context == 1 || !mixer.in_order) &&
                 (mixer.undivided == nullptr || mixer.undivided(model, options.tensor).empty()),
             "a {} over tensor {} and context {}", mixer.title, options.tensor, options.context);
    }
  ENSURE(!model.latent.any() ||
             (model.pre_norm && model.kv_heads == model.heads &&
              model.head_dim == model.latent.nope + model.latent.rope && model.latent.value <= model.head_dim),
         "latent attention of {} heads of {}, {} keys, values of {}", model.heads, model.head_dim, model.kv_heads,
         model.latent.value);
  ENSURE(!model.indexer.any() ||
             ((model.latent.q_rank > 0 || model.indexer.block > 0 || model.compressed.any()) && options.context == 1),
         "an indexer beside queries of rank {}, context {}", model.latent.q_rank, options.context);
  ENSURE(options.context == 1 || options.flash, "context parallelism merges row statistics");
  ENSURE(!options.sequence_parallel || options.batch * options.sequence % options.tensor == 0,
         "tensor {} does not divide {} x {} rows", options.tensor, options.batch, options.sequence);
  ENSURE(options.context == 1 || model.positions != Positions::alibi, "a ring has no slopes");
  LinearNotes notes(model, kind, layer, options);
  switch (kind) {
    case LayerKind::embedding: embedding(notes); break;
    case LayerKind::block:
      model.streams.any() ? streams_block(notes) : model.pre_norm ? pre_norm_block(notes) : post_norm_block(notes);
      break;
    case LayerKind::head: head(notes); break;
  }
  mark_gathers_for_fp8(notes.program);
  return std::move(notes.program);
}

}  // namespace orrery::models
