// What attention's heads, their gates, windows and rotations need of each other.
#include "models/read/check_heads.h"

#include <algorithm>

namespace orrery::models {

void check_heads(const Needs& needs, const Model& m) {
  const std::int64_t of_windows = m.window_kv_heads > 0 ? m.window_kv_heads : m.kv_heads;
  needs("window_heads",
        m.window_heads == 0 || (m.window > 0 && m.pattern.empty() && m.pre_norm && !m.latent.any() &&
                                m.positions != Positions::alibi && m.window_heads % of_windows == 0),
        "heads of layers with a window have a number of their own where all layers attend, and their key/value heads "
        "divide it",
        "give a window, without latent_attention and pattern; or leave window_heads out");
  needs("window_rotary_share", m.window_rotary_share == 0 || (m.window > 0 && m.positions == Positions::rope),
        "layers with a window can only rotate a share of their own if there are such layers, and they rotate",
        "give a window and positions: rope, or leave window_rotary_share out");
  needs(
      "streams",
      !m.streams.any() || (m.pre_norm && m.input_norm && !m.parallel && !m.output_norm && !m.bias && !m.normed_skip &&
                           !m.further.any() && !m.layer_inputs.any() && !m.lora.any() && m.residual_scale == 1),
      "several residual streams need blocks of two halves whose norms come first, and nothing between a half and them",
      "leave streams out");
  const bool read = m.blocks_with(m.layers, [](const BlockParts& one) {
    return one.mixer == Mixer::local || one.mixer == Mixer::compressed || one.mixer == Mixer::condensed;
  }) > 0;
  needs("compressed_attention", read == m.compressed.any(), "sizes of compressed attention go with layers that have it",
        "compressed_attention with a pattern of local, compressed and condensed layers");
  needs("head_gate", !m.head_gate || (!m.attention_gate && !m.latent.any() && m.value_dim == 0 && m.pre_norm),
        "heads are gated as a whole where no gate is wider, and attention is plain", "head_gate: false");
  needs(
      "window_head_dim",
      m.window_head_dim == 0 ||
          (m.window > 0 && m.value_dim == 0 && !m.latent.any() && m.pattern.empty() && m.pre_norm),
      "heads of layers with a window have a width of their own where all layers attend, and values are as wide as keys",
      "give a window, without value_dim, latent_attention and pattern; or leave window_head_dim out");
  needs("value_norm",
        !m.value_norm || (m.qk_norm && !m.joint_qk_norm && !m.late_qk_norm && m.value_dim == 0 && !m.latent.any()),
        "heads of v are normed with those of q and k, each by itself", "qk_norm: true, or value_norm: false");
  needs("keys_as_values",
        !m.keys_as_values || (m.value_norm && !m.bias && !m.qkv_bias && !m.attention_gate && m.value_dim == 0),
        "keys stand in for values where these are normed, and made without biases and a gate",
        "value_norm: true, or keys_as_values: false");
  needs("layer_inputs", !m.layer_inputs.any() || (m.pre_norm && !m.parallel && traits_of(m.activation).gated),
        "inputs of each layer come in by a gate, behind blocks whose norms come first", "leave layer_inputs out");
  bool lent = true;  // each layer that borrows keys finds one before them that sees as much
  for (std::int64_t i = std::max<std::int64_t>(0, m.layers - m.shared_keys.layers); lent && i < m.layers; ++i) {
    lent = false;
    for (std::int64_t j = 0; j < m.layers - m.shared_keys.layers; ++j) lent = lent || m.windowed(j) == m.windowed(i);
  }
  needs("shared_keys",
        !m.shared_keys.any() || (m.shared_keys.layers < m.layers && lent && !m.latent.any() && m.pattern.empty() &&
                                 m.pre_norm && !m.attention_gate && !m.joint_qk_norm && !m.qkv_bias && !m.bias),
        "the last layers read keys and values of layers before them, of which there is one, and whose products have "
        "neither biases nor a gate",
        "fewer layers, or leave shared_keys out");
}

}  // namespace orrery::models
