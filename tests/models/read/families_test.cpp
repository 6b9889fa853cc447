// Families: their public configurations make the features and the parameters that their papers have, and come back.
#include "models/read/families.h"
#include "models/read/original.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "models/layers/counts.h"
#include "models/layers/expand.h"
#include "models/read/hugging_face.h"
#include "models/read/original.h"
#include "models/read/read.h"

namespace orrery::models {
namespace families_test {

Model read(const std::string& text, const std::string& file = "config.json") {
  const auto model = parse_model(text, file);
  EXPECT_TRUE(model.has_value()) << text << base::render(model.error(), false);
  return model.value_or(Model{});
}

std::string refused(const std::string& text) {
  const auto model = parse_model(text, "config.json");
  return model ? "(accepted)" : base::render(model.error(), false);
}

Model catalogue(const std::string& name) {
  const std::string path = std::string(ORRERY_SOURCE_DIR) + "/models/catalog/" + name + ".yaml";
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return read(text.str(), path);
}

struct Published {
  const char* name;    ///< in the catalogue; empty: not there
  std::int64_t count;  ///< of parameters, a tied table once
  const char* config;  ///< config.json without what concerns no shape
  /// The class computes something that a Model does not.
  bool differs = false;
};

const std::vector<Published>& published() {
  static const std::vector<Published> kAll = {
      {"qwen2.5-7b", 7'615'616'512,
       R"({"model_type": "qwen2", "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
           "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
           "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
           "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
           "use_sliding_window": false, "vocab_size": 152064, "attention_dropout": 0.0})"},
      {"qwen2.5-72b", 72'706'203'648,
       R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 8192,
           "intermediate_size": 29568, "max_position_embeddings": 131072, "num_attention_heads": 64,
           "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
           "tie_word_embeddings": false, "vocab_size": 152064})"},
      {"", 494'032'768,  // Qwen2.5-0.5B, whose head is the token table
       R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768,
           "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rope_theta": 1000000.0,
           "tie_word_embeddings": true, "vocab_size": 151936})"},
      {"qwen3-8b", 8'190'735'360,
       R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960,
           "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
           "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
           "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})"},
      {"qwen3-32b", 32'762'123'264,
       R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_size": 5120, "intermediate_size": 25600,
           "max_position_embeddings": 40960, "num_attention_heads": 64, "num_hidden_layers": 64,
           "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": false,
           "vocab_size": 151936})"},
      {"gemma-7b", 8'537'680'896,
       R"({"model_type": "gemma", "head_dim": 256, "hidden_act": "gelu", "hidden_size": 3072,
           "intermediate_size": 24576, "max_position_embeddings": 8192, "num_attention_heads": 16,
           "num_hidden_layers": 28, "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
           "vocab_size": 256000})"},
      {"", 2'506'172'416,  // Gemma 2B: one key/value head
       R"({"model_type": "gemma", "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2048,
           "intermediate_size": 16384, "max_position_embeddings": 8192, "num_attention_heads": 8,
           "num_hidden_layers": 18, "num_key_value_heads": 1, "vocab_size": 256000})"},
      {"gemma2-9b", 9'241'705'984,
       R"({"model_type": "gemma2", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim": 256,
           "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "intermediate_size": 14336,
           "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42,
           "num_key_value_heads": 8, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
           "sliding_window": 4096, "vocab_size": 256000})"},
      {"gemma2-27b", 27'227'128'320,
       R"({"model_type": "gemma2", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim": 128,
           "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608, "intermediate_size": 36864,
           "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 46,
           "num_key_value_heads": 16, "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06, "sliding_window": 4096,
           "vocab_size": 256000})"},
      {"pythia-6.9b", 6'857'302'016,
       R"({"architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu", "hidden_size": 4096,
           "initializer_range": 0.02, "intermediate_size": 16384, "layer_norm_eps": 1e-05,
           "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 32,
           "num_hidden_layers": 32, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
           "use_parallel_residual": true, "vocab_size": 50432})"},
      {"", 70'426'624,  // Pythia 70M
       R"({"model_type": "gpt_neox", "hidden_size": 512, "intermediate_size": 2048, "max_position_embeddings": 2048,
           "num_attention_heads": 8, "num_hidden_layers": 6, "rotary_pct": 0.25, "vocab_size": 50304})"},
      {"phi3-mini-4k", 3'821'079'552,
       R"({"model_type": "phi3", "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
           "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
           "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": false,
           "attention_dropout": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "vocab_size": 32064})"},
      {"", 13'960'238'080,  // Phi-3 medium: grouped queries
       R"({"model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920, "max_position_embeddings": 4096,
           "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10, "vocab_size": 32064})"},
      {"", 125'239'296,  // OPT 125M
       R"({"model_type": "opt", "activation_function": "relu", "attention_dropout": 0.0, "dropout": 0.1,
           "do_layer_norm_before": true, "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02,
           "max_position_embeddings": 2048, "num_attention_heads": 12, "num_hidden_layers": 12, "vocab_size": 50272,
           "word_embed_proj_dim": 768})"},
      {"", 6'658'473'984,  // OPT 6.7B
       R"({"model_type": "opt", "ffn_dim": 16384, "hidden_size": 4096, "max_position_embeddings": 2048,
           "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 50272})"},
      {"opt-175b", 174'604'468'224,
       R"({"model_type": "opt", "ffn_dim": 49152, "hidden_size": 12288, "init_std": 0.006,
           "max_position_embeddings": 2048, "num_attention_heads": 96, "num_hidden_layers": 96, "vocab_size": 50272})"},
      {"falcon-7b", 6'921'720'704,
       R"({"model_type": "falcon", "alibi": false, "apply_residual_connection_post_layernorm": false, "bias": false,
           "hidden_size": 4544, "multi_query": true, "new_decoder_architecture": false, "num_attention_heads": 71,
           "num_hidden_layers": 32, "parallel_attn": true, "layer_norm_epsilon": 1e-05, "vocab_size": 65024})"},
      {"falcon-40b", 41'303'293'952,
       R"({"model_type": "RefinedWeb", "alibi": false, "bias": false, "hidden_size": 8192, "n_head": 128,
           "n_head_kv": 8, "n_layer": 60, "parallel_attn": true, "new_decoder_architecture": true,
           "vocab_size": 65024})"},
      {"falcon-180b", 178'557'088'768,
       R"({"model_type": "falcon", "alibi": false, "bias": false, "hidden_size": 14848, "num_attention_heads": 232,
           "num_kv_heads": 8, "num_hidden_layers": 80, "parallel_attn": true, "new_decoder_architecture": true,
           "multi_query": true, "vocab_size": 65024})"},
      {"bloom-176b", 176'247'271'424,
       R"({"model_type": "bloom", "apply_residual_connection_post_layernorm": false, "hidden_dropout": 0.0,
           "attention_dropout": 0.0, "layer_norm_epsilon": 1e-05, "n_embed": 14336, "n_layer": 70,
           "num_attention_heads": 112, "seq_length": 2048, "vocab_size": 250880})"},
      {"", 559'214'592,  // BLOOM 560M
       R"({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "seq_length": 2048,
           "vocab_size": 250880})"},
      {"nemotron4-340b", 341'029'195'776,
       R"({"model_type": "nemotron", "hidden_act": "relu2", "hidden_size": 18432, "initializer_range": 0.0063,
           "intermediate_size": 73728, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
           "num_attention_heads": 96, "num_hidden_layers": 96, "num_key_value_heads": 8,
           "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 256000})"},
      {"gemma3-1b", 999'885'952,
       R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "attention_bias": false,
           "attn_logit_softcapping": null, "final_logit_softcapping": null, "head_dim": 256,
           "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
           "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26,
           "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
           "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
           "sliding_window_pattern": 6, "vocab_size": 262144})"},
      {"gemma3-27b", 27'009'346'304,  // the language model's part of the file of text and images
       R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": {
           "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "model_type": "gemma3_text",
           "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
           "query_pre_attn_scalar": 168, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
           "sliding_window": 1024}, "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}})"},
      {"", 3'030'371'328,  // StarCoder2 3B
       R"({"model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072,
           "intermediate_size": 12288, "max_position_embeddings": 16384, "num_attention_heads": 24,
           "num_hidden_layers": 30, "num_key_value_heads": 2, "norm_epsilon": 1e-05, "rope_theta": 999999.4420358813,
           "sliding_window": 4096, "use_bias": true, "vocab_size": 49152})"},
      {"", 15'957'889'024,  // StarCoder2 15B
       R"({"model_type": "starcoder2", "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 48,
           "num_hidden_layers": 40, "num_key_value_heads": 4, "max_position_embeddings": 16384,
           "tie_word_embeddings": false, "rope_theta": 100000, "sliding_window": 4096, "vocab_size": 49152})"},
      {"", 2'795'443'200,  // StableLM 3B 4E1T
       R"({"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912, "layer_norm_eps": 1e-05,
           "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 32, "partial_rotary_factor": 0.25, "use_qkv_bias": false, "vocab_size": 50304})"},
      {"", 7'737'708'544,  // InternLM2 7B
       R"({"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": false, "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
           "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
           "rope_scaling": {"factor": 2.0, "type": "dynamic"}, "rope_theta": 1000000, "vocab_size": 92544})"},
      {"", 9'399'951'360,  // GLM-4 9B
       R"({"model_type": "glm", "attention_bias": true, "head_dim": 128, "hidden_size": 4096,
           "intermediate_size": 13696, "max_position_embeddings": 131072, "num_attention_heads": 32,
           "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-07,
           "rope_theta": 10000.0, "vocab_size": 151552})"},
      {"", 9'400'279'040,  // GLM-4 9B of April 2025
       R"({"model_type": "glm4", "attention_bias": true, "head_dim": 128, "hidden_size": 4096,
           "intermediate_size": 13696, "max_position_embeddings": 32768, "num_attention_heads": 32,
           "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
           "rope_theta": 10000.0, "vocab_size": 151552})"},
      {"", 360'748'032,  // ERNIE 4.5 0.3B
       R"({"model_type": "ernie4_5", "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
           "max_position_embeddings": 131072, "num_attention_heads": 16, "num_hidden_layers": 18,
           "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true,
           "use_bias": false, "vocab_size": 103424})"},
      {"", 36'151'104'512,  // Seed-OSS 36B
       R"({"model_type": "seed_oss", "attention_bias": true, "attention_dropout": 0.1, "attention_out_bias": false,
           "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27648, "max_position_embeddings": 524288,
           "mlp_bias": false, "num_attention_heads": 80, "num_hidden_layers": 64, "num_key_value_heads": 8,
           "residual_dropout": 0.1, "rms_norm_eps": 1e-06, "rope_theta": 10000000.0, "vocab_size": 155136})"},
      {"smollm3-3b", 3'075'098'624,
       R"({"model_type": "smollm3", "attention_bias": false, "hidden_act": "silu", "hidden_size": 2048,
           "intermediate_size": 11008, "max_position_embeddings": 65536, "no_rope_layer_interval": 4,
           "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0,
                              1, 1, 1, 0, 1, 1, 1, 0],
           "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
           "rope_theta": 5000000.0, "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 128256})"},
      {"", 8'170'848'256,  // Granite 3.0 8B
       R"({"model_type": "granite", "attention_bias": false, "attention_dropout": 0.1,
           "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0, "hidden_size": 4096,
           "intermediate_size": 12800, "logits_scaling": 16.0, "max_position_embeddings": 4096, "mlp_bias": false,
           "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "residual_multiplier": 0.22,
           "rms_norm_eps": 1e-05, "rope_theta": 10000, "tie_word_embeddings": true, "vocab_size": 49155})"},
      {"", 124'697'433,  // RoBERTa base
       R"({"architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "hidden_act": "gelu",
           "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "hidden_size": 768,
           "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
           "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 1, "vocab_size": 50265})"},
      {"", 7'000'559'616,  // Baichuan 7B
       R"({"architectures": ["BaiChuanForCausalLM"], "model_type": "baichuan", "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
           "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
           "vocab_size": 64000})"},
      {"", 13'264'901'120,  // Baichuan 13B, with slopes
       R"({"model_type": "baichuan", "hidden_size": 5120, "intermediate_size": 13696, "model_max_length": 4096,
           "num_attention_heads": 40, "num_hidden_layers": 40, "rms_norm_eps": 1e-06, "vocab_size": 64000})"},
      {"", 8'804'241'408,  // InternLM3 8B
       R"({"architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3", "bias": false, "qkv_bias": false,
           "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 10240,
           "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 48,
           "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 50000000, "vocab_size": 128512})"},
      {"", 34'980'831'232,  // Command R
       R"({"architectures": ["CohereForCausalLM"], "model_type": "cohere", "attention_bias": false,
           "hidden_act": "silu", "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05,
           "logit_scale": 0.0625, "max_position_embeddings": 131072, "num_attention_heads": 64,
           "num_hidden_layers": 40, "num_key_value_heads": 64, "rope_theta": 8000000.0, "use_qk_norm": false,
           "vocab_size": 256000})"},
      {"", 8'028'033'024,  // Command R7B
       R"({"architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "attention_bias": false,
           "hidden_size": 4096, "intermediate_size": 14336, "layer_norm_eps": 1e-05, "logit_scale": 0.25,
           "max_position_embeddings": 132096, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 8, "rope_theta": 50000, "sliding_window": 4096, "sliding_window_pattern": 4,
           "vocab_size": 256000})"},
      {"", 15'517'456'384,  // StarCoder
       R"({"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "activation_function": "gelu",
           "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-05,
           "multi_query": true, "n_embd": 6144, "n_head": 48, "n_inner": 24576, "n_layer": 40, "n_positions": 8192,
           "vocab_size": 49152})"},
      {"", 6'649'286'656,  // MPT 7B
       R"({"architectures": ["MPTForCausalLM"], "model_type": "mpt", "attn_config": {"alibi": true,
           "alibi_bias_max": 8, "attn_pdrop": 0, "attn_type": "multihead_attention", "clip_qkv": null,
           "qk_ln": false}, "d_model": 4096, "emb_pdrop": 0, "expansion_ratio": 4, "max_seq_len": 2048, "n_heads": 32,
           "n_layers": 32, "no_bias": true, "resid_pdrop": 0, "vocab_size": 50432})"},
      {"", 7'721'324'544,  // Qwen 7B
       R"({"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "attn_dropout_prob": 0.0,
           "emb_dropout_prob": 0.0, "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128,
           "layer_norm_epsilon": 1e-06, "max_position_embeddings": 32768, "no_bias": true, "num_attention_heads": 32,
           "num_hidden_layers": 32, "rotary_emb_base": 10000, "rotary_pct": 1.0, "seq_length": 8192,
           "vocab_size": 151936})"},
      {"gptj-6b", 6'050'882'784,
       R"({"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "activation_function": "gelu_new",
           "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-05, "n_embd": 4096,
           "n_head": 16, "n_inner": null, "n_layer": 28, "n_positions": 2048, "rotary": true, "rotary_dim": 64,
           "tie_word_embeddings": false, "vocab_size": 50400})"},
      {"", 125'198'592,  // GPT-Neo 125M
       R"({"architectures": ["GPTNeoForCausalLM"], "model_type": "gpt_neo", "activation_function": "gelu_new",
           "attention_dropout": 0, "attention_layers": ["global", "local", "global", "local", "global", "local",
           "global", "local", "global", "local", "global", "local"], "attention_types": [[["global", "local"], 6]],
           "embed_dropout": 0, "hidden_size": 768, "intermediate_size": null, "layer_norm_epsilon": 1e-05,
           "max_position_embeddings": 2048, "num_heads": 12, "num_layers": 12, "resid_dropout": 0,
           "vocab_size": 50257, "window_size": 256})"},
      {"", 2'651'307'520,  // GPT-Neo 2.7B
       R"({"model_type": "gpt_neo", "attention_types": [[["global", "local"], 16]], "hidden_size": 2560,
           "max_position_embeddings": 2048, "num_heads": 20, "num_layers": 32, "vocab_size": 50257,
           "window_size": 256})"},
      {"", 356'712'448,  // CodeGen 350M
       R"({"architectures": ["CodeGenForCausalLM"], "model_type": "codegen", "activation_function": "gelu_new",
           "attn_pdrop": 0.0, "embd_pdrop": 0.0, "layer_norm_epsilon": 1e-05, "n_ctx": 2048, "n_embd": 1024,
           "n_head": 16, "n_inner": null, "n_layer": 20, "n_positions": 2048, "resid_pdrop": 0.0, "rotary_dim": 32,
           "tie_word_embeddings": false, "vocab_size": 51200})"},
      {"", 7'833'409'536,  // MiMo 7B, with its module
       R"({"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "attention_bias": true,
           "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
           "intermediate_size": 11008, "max_position_embeddings": 32768, "max_window_layers": 36,
           "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
           "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 640000,
           "sliding_window": 32768, "tie_word_embeddings": false, "use_sliding_window": false,
           "vocab_size": 151680})"},
      // HunYuan 7B, by hand: 32 layers of (10 x 4096 x 1024 + 3 x 4096 x 14336, norms 2 x 4096 + 2 x 128), a table of
      // 128,167 rows and a norm.
      {"", 7'504'568'320,
       R"({"architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense", "attention_bias": false,
           "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
           "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
           "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}, "rope_theta": 10000.0,
           "tie_word_embeddings": true, "use_qk_norm": true, "vocab_size": 128167})"},
      {"", 2'172'643'840,  // Helium 1 preview 2B
       R"({"architectures": ["HeliumForCausalLM"], "model_type": "helium", "attention_bias": false,
           "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
           "intermediate_size": 7040, "max_position_embeddings": 4096, "mlp_bias": false,
           "num_attention_heads": 20, "num_hidden_layers": 24, "num_key_value_heads": 20, "rms_norm_eps": 1e-08,
           "rope_theta": 100000.0, "tie_word_embeddings": false, "vocab_size": 48000})"},
      {"", 1'879'048'192,  // nanochat d32
       R"({"architectures": ["NanoChatForCausalLM"], "model_type": "nanochat", "attention_bias": false,
           "final_logit_softcapping": 15.0, "hidden_act": "relu2", "hidden_size": 2048, "intermediate_size": 8192,
           "max_position_embeddings": 2048, "num_attention_heads": 16, "num_hidden_layers": 32,
           "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": false,
           "vocab_size": 65536})"},
      // Apertus 8B, by hand: 32 layers of (4096 x (4096 + 2 x 1024) + 4096 x 4096 + 2 x 4096 x 21504, norms 2 x 4096
      // and 2 x 128, two shapes of the activation), two tables of 131,072 rows and a norm.
      {"", 8'053'338'176,
       R"({"architectures": ["ApertusForCausalLM"], "model_type": "apertus", "attention_bias": false,
           "attention_dropout": 0.0, "hidden_act": "xielu", "hidden_size": 4096, "intermediate_size": 21504,
           "max_position_embeddings": 65536, "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 8, "post_norm": false, "qk_norm": true, "rms_norm_eps": 1e-05,
           "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
           "rope_theta": 12000000, "tie_word_embeddings": false, "vocab_size": 131072})"},
      {"phi-2", 2'779'683'840,
       R"({"architectures": ["PhiForCausalLM"], "model_type": "phi", "attention_dropout": 0.0, "embd_pdrop": 0.0,
           "hidden_act": "gelu_new", "hidden_size": 2560, "intermediate_size": 10240, "layer_norm_eps": 1e-05,
           "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 32, "partial_rotary_factor": 0.4, "qk_layernorm": false, "resid_pdrop": 0.1,
           "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 51200})"},
      {"", 1'418'270'720,  // Phi-1.5
       R"({"model_type": "phi", "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 2048,
           "num_attention_heads": 32, "num_hidden_layers": 24, "num_key_value_heads": null,
           "partial_rotary_factor": 0.5, "vocab_size": 51200})"},
      {"", 6'243'584'000,  // ChatGLM3 6B, whose file has the vocabulary's size under another name
       R"({"architectures": ["ChatGLMModel"], "model_type": "chatglm", "add_bias_linear": false, "add_qkv_bias": true,
           "apply_residual_connection_post_layernorm": false, "attention_dropout": 0.0, "ffn_hidden_size": 13696,
           "hidden_dropout": 0.0, "hidden_size": 4096, "kv_channels": 128, "layernorm_epsilon": 1e-05,
           "multi_query_attention": true, "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28,
           "padded_vocab_size": 65024, "post_layer_norm": true, "rmsnorm": true, "seq_length": 8192,
           "tie_word_embeddings": false})"},
      {"", 9'399'951'360,  // GLM-4 9B in its first form
       R"({"model_type": "chatglm", "add_qkv_bias": true, "ffn_hidden_size": 13696, "hidden_size": 4096,
           "kv_channels": 128, "layernorm_epsilon": 1.5625e-07, "multi_query_attention": true,
           "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 40, "padded_vocab_size": 151552,
           "rope_ratio": 500, "seq_length": 131072, "vocab_size": 151552})"},
      {"", 7'818'448'896,  // EXAONE 3.0 7.8B
       R"({"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "activation_function": "silu",
           "attention_dropout": 0.0, "embed_dropout": 0.0, "head_dim": 128, "hidden_size": 4096,
           "intermediate_size": 14336, "layer_norm_epsilon": 1e-05, "max_position_embeddings": 4096,
           "num_attention_heads": 32, "num_key_value_heads": 8, "num_layers": 32, "rope_theta": 500000.0,
           "tie_word_embeddings": false, "vocab_size": 102400})"},
      {"", 32'003'216'384,  // EXAONE 4.0 32B
       R"({"architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "head_dim": 128, "hidden_act": "silu",
           "hidden_size": 5120, "intermediate_size": 27392, "max_position_embeddings": 131072,
           "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
           "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
           "rope_theta": 1000000, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
           "tie_word_embeddings": false, "vocab_size": 102400})"},
      {"", 1'279'391'488,  // EXAONE 4.0 1.2B, which has no windows
       R"({"model_type": "exaone4", "head_dim": 64, "hidden_size": 2048, "intermediate_size": 4096,
           "max_position_embeddings": 65536, "num_attention_heads": 32, "num_hidden_layers": 30,
           "num_key_value_heads": 8, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
           "vocab_size": 102400})"},
      {"", 1'176'764'416,  // OLMo 1B
       R"({"architectures": ["OlmoForCausalLM"], "model_type": "olmo", "attention_bias": false,
           "attention_dropout": 0.0, "clip_qkv": null, "hidden_act": "silu", "hidden_size": 2048,
           "intermediate_size": 8192, "max_position_embeddings": 2048, "num_attention_heads": 16,
           "num_hidden_layers": 16, "num_key_value_heads": 16, "rope_scaling": null, "rope_theta": 10000.0,
           "tie_word_embeddings": true, "vocab_size": 50304})"},
      {"", 6'888'095'744,  // OLMo 7B, with the limit that later ones have
       R"({"model_type": "olmo", "clip_qkv": 8.0, "hidden_size": 4096, "intermediate_size": 11008,
           "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 32, "tie_word_embeddings": false, "vocab_size": 50304})",
       true},
      {"olmo2-7b", 7'298'617'344,
       R"({"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "attention_bias": false,
           "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
           "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
           "tie_word_embeddings": false, "vocab_size": 100352})"},
      {"olmo2-32b", 32'234'279'936,
       R"({"model_type": "olmo2", "hidden_size": 5120, "intermediate_size": 27648, "max_position_embeddings": 4096,
           "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
           "rope_theta": 500000, "vocab_size": 100352})"},
      {"", 7'298'011'136,  // OLMo 3 7B
       R"({"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "hidden_size": 4096,
           "intermediate_size": 11008, "max_position_embeddings": 65536, "num_attention_heads": 32,
           "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
           "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
                            "original_max_position_embeddings": 8192, "rope_type": "yarn"},
           "rope_theta": 500000, "sliding_window": 4096, "vocab_size": 100278})"},
  };
  return kAll;
}

Model without_names(Model m) {
  m.name.clear();
  m.sources.clear();
  m.dropout = {};
  return m;
}

TEST(Families, SayWhereTheyComputeSomethingElse) {
  const auto baichuan = [](const char* more) {
    return differences(read(std::string(R"({"model_type": "baichuan", "hidden_size": 64, "intermediate_size": 128,
        "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 96)") +
                            more + "}"));
  };
  ASSERT_EQ(baichuan(R"(, "z_loss_weight": 0)").size(), 1U);
  EXPECT_NE(baichuan(R"(, "z_loss_weight": 0)").front().find("length 1"), std::string::npos);
  EXPECT_TRUE(baichuan("").empty());
  for (const Published& one : published()) EXPECT_EQ(!differences(read(one.config)).empty(), one.differs) << one.config;
}

TEST(Families, HaveThePublishedParameterCounts) {
  for (const Published& one : published()) {
    const Model model = read(one.config);
    EXPECT_EQ(parameters(model), one.count) << one.config;
    if (*one.name == '\0') continue;
    EXPECT_EQ(parameters(catalogue(one.name)), one.count) << one.name;
    EXPECT_EQ(without_names(model), without_names(catalogue(one.name))) << write_model(model) << "against\n"
                                                                        << write_model(catalogue(one.name));
  }
}

// Read, written for weights that others read, and read again.
TEST(Families, ComeBackFromTheConfigurationThatIsWritten) {
  for (const Published& one : published()) {
    const Model model = read(one.config);
    const auto text = write_hugging_face(model);
    ASSERT_TRUE(text) << one.config << base::render(text.error(), false);
    Model again = read(*text);
    again.sources = model.sources, again.name = model.name;
    EXPECT_EQ(again, model) << *text;
    EXPECT_EQ(read(write_model(model), "model.yaml"), model) << write_model(model);
  }
}

TEST(Families, AllHaveOneEntryWithAName) {
  std::set<std::string> names, types;
  for (const FamilyTraits& one : families()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    for (const char* type : one.model_types) EXPECT_TRUE(types.insert(type).second) << type;
    EXPECT_STREQ(name_of(one.family), one.name);
  }
  EXPECT_EQ(families().size(), static_cast<std::size_t>(Family::dlrm));
}

TEST(Families, GraniteScalesWhatItAddsAndCommandRItsLogits) {
  const Model m = read(R"({"model_type": "granite", "hidden_size": 64, "intermediate_size": 128,
      "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 96,
      "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 16.0})");
  EXPECT_EQ(std::tuple(m.embedding_scale, m.residual_scale, m.logit_scale), std::tuple(12.0, 0.22, 0.0625));
  EXPECT_TRUE(differences(m).empty());
  const auto scaled = [](const std::vector<Part>& parts, double scale) {
    std::int64_t found = 0;
    for (const Part& part : parts)
      for (const Op& op : part.ops) found += op.kind == OpKind::matmul && op.scale == scale ? 1 : 0;
    return found;
  };
  const LayerProgram one = expand(m, LayerKind::block, 0, {}), head = expand(m, LayerKind::head, 0, {});
  EXPECT_EQ(scaled(one.forward, 0.22), 2) << "the products that lead back to the residual";
  EXPECT_EQ(scaled(one.backward, 0.22), 4);
  EXPECT_EQ(scaled(head.forward, 0.0625) + scaled(head.backward, 0.0625), 3);
  EXPECT_EQ(read(R"({"model_type": "cohere", "hidden_size": 64, "intermediate_size": 128, "logit_scale": 0.25,
      "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 96})")
                .logit_scale,
            0.25);
}

// -- features, as operators -------------------------------------------------------------------------------------------

std::vector<Op> ops_of(const std::vector<Part>& parts) {
  std::vector<Op> out;
  for (const Part& part : parts) out.insert(out.end(), part.ops.begin(), part.ops.end());
  return out;
}

Op only_op(const std::vector<Part>& parts, OpKind kind) {
  Op found;
  int times = 0;
  for (const Op& op : ops_of(parts))
    if (op.kind == kind) found = op, ++times;
  EXPECT_EQ(times, 1) << name_of(kind);
  return found;
}

LayerProgram block(const Model& model, std::int64_t layer = 0, std::int64_t sequence = 16, std::int64_t tensor = 1) {
  ExpandOptions options;
  options.sequence = sequence;
  options.tensor = tensor;
  return expand(model, LayerKind::block, layer, options);
}

TEST(Families, GemmaTwoAlternatesWindowsUnderCaps) {
  const Model m = catalogue("gemma2-27b");
  for (const std::int64_t layer : {0, 1, 2, 45}) {
    const Op attention = only_op(block(m, layer, 8192).forward, OpKind::attention);
    EXPECT_EQ(attention.window, layer % 2 == 0 ? 4096 : 0) << layer;
    EXPECT_EQ(attention.cap, 50);
    EXPECT_DOUBLE_EQ(attention.score_scale, 1.0 / 12);
  }
  EXPECT_EQ(only_op(block(m, 0, 4096).forward, OpKind::attention).window, 0) << "all of the sequence is within it";
  EXPECT_EQ(only_op(block(m, 0, 8192).backward, OpKind::attention_grad).window, 4096);
  const LayerProgram head = expand(m, LayerKind::head, 0, {});
  EXPECT_EQ(only_op(head.forward, OpKind::soft_cap).cap, 30);
  EXPECT_EQ(only_op(head.backward, OpKind::cross_entropy_grad).cap, 30);
  EXPECT_DOUBLE_EQ(only_op(expand(m, LayerKind::embedding, 0, {}).forward, OpKind::embedding).scale, std::sqrt(4608.0));
  // Half of the layers' full matrices are rows of a window.
  Model whole = m;
  whole.window = whole.window_period = 0;
  const double scores = 4.0 * 32 * 128, layers = 46;  // FLOPs of a key, of a query, twice
  EXPECT_DOUBLE_EQ(flops_per_token_forward(whole, 8192) - flops_per_token_forward(m, 8192),
                   scores * (8192 - 4096) * layers / 2);
}

TEST(Families, GemmaThreeRotatesItsWindowsAtTheirOwnRates) {
  const Model m = catalogue("gemma3-27b");
  for (const std::int64_t layer : {0, 4, 5, 6, 11, 61}) {
    const bool all = layer % 6 == 5;
    const LayerProgram program = block(m, layer, 8192);
    EXPECT_EQ(only_op(program.forward, OpKind::attention).window, all ? 0 : 1024) << layer;
    for (const Op& rope : {only_op(program.forward, OpKind::rope), only_op(program.backward, OpKind::rope_grad)}) {
      EXPECT_EQ(rope.epsilon, all ? 1e6 : 1e4) << layer;
      EXPECT_EQ(rope.rope_scaling.factor, all ? 8 : 1) << layer;
    }
  }
  EXPECT_EQ(read(R"({"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                     "num_hidden_layers": 34, "sliding_window": 1024, "rope_parameters": {
                       "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0},
                       "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}})")
                .rope_theta,
            500000)
      << "transformers 5";
}

TEST(Families, SmolLmThreeDoesNotRotateEveryFourthLayer) {
  const Model m = catalogue("smollm3-3b");
  for (const std::int64_t layer : {0, 2, 3, 4, 35}) {
    const std::vector<Op> ops = ops_of(block(m, layer).forward), grads = ops_of(block(m, layer).backward);
    const auto rotates = [](OpKind kind) { return [kind](const Op& op) { return op.kind == kind; }; };
    EXPECT_EQ(std::any_of(ops.begin(), ops.end(), rotates(OpKind::rope)), layer % 4 != 3) << layer;
    EXPECT_EQ(std::any_of(grads.begin(), grads.end(), rotates(OpKind::rope_grad)), layer % 4 != 3) << layer;
  }
  const char* kSmall = R"({"model_type": "smollm3", "hidden_size": 64, "intermediate_size": 128,
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 6, "vocab_size": 99,
      "no_rope_layers": )";
  EXPECT_EQ(read(kSmall + std::string("[1, 0, 1, 0, 1, 0]}")).unrotated_period, 2);
  EXPECT_EQ(read(kSmall + std::string("[1, 1, 1, 1, 1, 1]}")).unrotated_period, 0);
  EXPECT_NE(refused(kSmall + std::string("[1, 0, 0, 1, 1, 1]}")).find("follow no period"), std::string::npos);
}

TEST(Families, AWindowsOwnRatesNeedAWindowAndUnrotatedLayersNeedOthersThatRotate) {
  const std::string base =
      "family: llama\nname: x\nlayers: 4\nhidden: 64\nheads: 4\nffn_hidden: 128\nvocab: 99\nmax_sequence: 64\n";
  for (const char* key : {"window_theta: 1000", "unrotated_period: 1", "positions: learned\nunrotated_period: 2"}) {
    const auto model = parse_model(base + key + "\n", "model.yaml");
    ASSERT_FALSE(model) << key;
    EXPECT_EQ(model.error().front().code, "E0112") << key;
  }
  EXPECT_TRUE(parse_model(base + "window: 16\nwindow_theta: 1000\nunrotated_period: 2\n", "model.yaml"));
}

TEST(Families, AWindowCountsTheKeysThatItLeaves) {
  Op op;
  op.kind = OpKind::attention;
  op.batch = 1, op.sequence = 8, op.heads = op.kv_heads = 1, op.head_dim = 4;
  op.causal = op.flash = true;
  op.window = 3;  // 1 + 2 + 3 + 5 x 3 = 21 keys
  EXPECT_DOUBLE_EQ(flops_of(op), 2 * 2.0 * 21 * 4);
  EXPECT_DOUBLE_EQ(flops_of(op, true), 2 * 2.0 * 8 * 3 * 4);
  op.window = 8;
  EXPECT_DOUBLE_EQ(flops_of(op), 2 * 2.0 * 36 * 4);
}

TEST(Families, NormsWithoutParametersHaveNone) {
  const Model m = read(R"({"model_type": "olmo", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 99,
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2})");
  EXPECT_EQ(parameters(m), 2 * (4 * 64 * 64 + 3 * 64 * 128) + 2 * 99 * 64);
  for (const Op& op : ops_of(block(m).forward))
    EXPECT_TRUE(op.kind != OpKind::layer_norm || (op.in[1] < 0 && op.in[2] < 0));
  for (const Op& op : ops_of(block(m).backward))
    EXPECT_TRUE(op.kind != OpKind::layer_norm_grad || (op.in[2] < 0 && op.out[1] < 0 && op.out[2] < 0));
}

TEST(Families, HeadsNormsAreSummedOverTheTensorGroup) {
  const Model m = catalogue("qwen3-8b");
  const LayerProgram alone = block(m), split = block(m, 0, 16, 4);
  int seen = 0;
  for (std::size_t i = 0; i < split.tensors.size(); ++i) {
    const bool norm = split.tensors[i].name.find("_norm.weight") != std::string::npos;
    if (norm) {
      EXPECT_EQ(split.tensors[i].shape, std::vector<std::int64_t>{128});
    }
    EXPECT_EQ(split.tensors[i].partial_gradient, norm) << split.tensors[i].name;
    EXPECT_FALSE(alone.tensors[i].partial_gradient);
    seen += norm ? 1 : 0;
  }
  EXPECT_EQ(seen, 4) << "two weights with their gradients";
  EXPECT_EQ(only_op(split.forward, OpKind::head_norm).heads, 8);
}

TEST(Families, NeoXTurnsAQuarterOfAHeadAndAddsUpInParallel) {
  const Model m = catalogue("pythia-6.9b");
  const LayerProgram p = block(m);
  EXPECT_EQ(only_op(p.forward, OpKind::rope).rotary, 32);
  EXPECT_EQ(only_op(p.backward, OpKind::rope_grad).rotary, 32);
  for (const Op& op : ops_of(p.forward))
    if (op.kind == OpKind::layer_norm) {
      EXPECT_EQ(tensor_of(op.in[0]), p.x) << "both norms read the layer's input";
    }
  const auto shared = ops_of(block(catalogue("falcon-7b")).forward);
  EXPECT_EQ(std::count_if(shared.begin(), shared.end(), [](const Op& op) { return op.kind == OpKind::layer_norm; }), 1);
}

TEST(Families, BloomHasSlopesAndANormBehindItsEmbedding) {
  const Model m = catalogue("bloom-176b");
  const Op attention = only_op(block(m, 0, 16, 8).forward, OpKind::attention);
  EXPECT_EQ(attention.heads, 14);
  EXPECT_EQ(attention.alibi_heads, 112) << "slopes are those of all heads";
  EXPECT_EQ(only_op(expand(m, LayerKind::embedding, 0, {}).forward, OpKind::layer_norm).m, 14336);
}

TEST(Families, OptsPositionsBeginAtTheThirdRow) {
  const LayerProgram p = expand(catalogue("opt-175b"), LayerKind::embedding, 0, {});
  EXPECT_EQ(only_op(p.forward, OpKind::position_add).k, 2);
  EXPECT_EQ(only_op(p.backward, OpKind::position_grad).k, 2);
  EXPECT_TRUE(std::any_of(p.tensors.begin(), p.tensors.end(), [](const Tensor& t) {
    return t.name == "wpe.weight" && t.shape == std::vector<std::int64_t>{2050, 12288};
  }));
}

TEST(Families, GptNeoSeesAllInItsFirstLayerAndEverySecondOne) {
  const std::string begin = R"({"model_type": "gpt_neo", "hidden_size": 64, "num_heads": 4, "num_layers": 4,
      "max_position_embeddings": 64, "vocab_size": 99, "window_size": 8, "attention_types": )";
  const Model m = read(begin + R"([[["global", "local"], 2]]})");
  for (const std::int64_t layer : {0, 1, 2, 3}) {
    const Op attention = only_op(block(m, layer).forward, OpKind::attention);
    EXPECT_EQ(attention.window, layer % 2 == 1 ? 8 : 0) << layer;
    EXPECT_EQ(attention.score_scale, 1);
  }
  // q, k and v without biases: attention's last product, the MLP's two, and two norms.
  EXPECT_EQ(parameters_of_block(m, 0), 4 * 64 * 64 + 64 + 8 * 64 * 64 + 5 * 64 + 4 * 64);
  EXPECT_EQ(read(begin + R"([[["local"], 4]]})").window_period, 0);
  EXPECT_EQ(read(begin + R"([[["global"], 4]]})").window, 0);
  EXPECT_EQ(read(begin + R"([[["local", "global"], 2]]})").full_first, false);
  EXPECT_NE(refused(begin + R"([[["global", "global", "local", "local"], 1]]})").find("follow no period"),
            std::string::npos);
  EXPECT_EQ(read(begin + R"([[["global", "local", "local"], 1], [["global"], 1]]})").window_period, 3);
  EXPECT_NE(refused(begin + R"([[["global", "local"], 3]]})").find("attention of 6 layers for a model of 4"),
            std::string::npos);
}

TEST(Families, HunYuanNormsHeadsBehindTheirRotationWithALargerBase) {
  const Model m = read(R"({"model_type": "hunyuan_v1_dense", "hidden_size": 64, "intermediate_size": 128,
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99,
      "rope_scaling": {"type": "dynamic", "alpha": 2.0}})");
  EXPECT_DOUBLE_EQ(m.rope_theta, 10000 * std::pow(2.0, 16.0 / 14));
  const auto place = [](const std::vector<Op>& ops, OpKind kind) {
    return std::find_if(ops.begin(), ops.end(), [kind](const Op& op) { return op.kind == kind; }) - ops.begin();
  };
  const std::vector<Op> forward = ops_of(block(m).forward), backward = ops_of(block(m).backward);
  EXPECT_LT(place(forward, OpKind::rope), place(forward, OpKind::head_norm));
  EXPECT_LT(place(backward, OpKind::head_norm_grad), place(backward, OpKind::rope_grad));
  const std::vector<Op> qwen = ops_of(block(catalogue("qwen3-8b")).forward);
  EXPECT_LT(place(qwen, OpKind::head_norm), place(qwen, OpKind::rope));
  EXPECT_NE(refused(R"({"model_type": "hunyuan_v1_moe", "hidden_size": 64, "intermediate_size": 128,
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99,
      "num_experts": 4, "moe_topk": [1, 2]})")
                .find("layers with different numbers"),
            std::string::npos);
}

TEST(Families, ActivationsComeFromTheTable) {
  EXPECT_EQ(only_op(block(catalogue("nemotron4-340b")).forward, OpKind::activate).function, Function::squared_relu);
  EXPECT_EQ(only_op(block(catalogue("gemma-7b")).forward, OpKind::gate).function, Function::gelu);
  EXPECT_EQ(only_op(block(catalogue("gemma-7b")).backward, OpKind::gate_grad).m, 24576);
}

// -- what is refused --------------------------------------------------------------------------------------------------

TEST(Families, RefuseVariantsThatAModelCannotSay) {
  const auto config = [](const std::string& type, const std::string& more) {
    return R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 99,
               "intermediate_size": 128, "ffn_dim": 128, "max_position_embeddings": 64, "model_type": ")" +
           type + "\", " + more + "}";
  };
  EXPECT_EQ(refused(config("qwen2", "\"rope_theta\": 1000000.0")), "(accepted)");
  for (const auto& [type, more] : std::vector<std::pair<const char*, const char*>>{
           {"qwen2", R"("use_sliding_window": true, "sliding_window": 16, "max_window_layers": 2)"},
           {"qwen3", R"("attention_bias": true)"},
           {"gemma", R"("hidden_activation": "relu")"},
           {"gpt_neox", R"("attention_bias": false)"},
           {"codegen", R"("n_embd": 66, "n_head": 6, "n_layer": 2, "n_positions": 32, "rotary_dim": 4)"},
           {"opt", R"("word_embed_proj_dim": 32)"},
           {"opt", R"("do_layer_norm_before": false)"},
           {"falcon", R"("alibi": true)"},
           {"nemotron", R"("hidden_act": "silu")"},
           {"gemma2", R"("layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"],
                         "sliding_window": 16)"}})
    EXPECT_NE(refused(config(type, more)).find("E0111"), std::string::npos) << type << more;
  const Model third = read(config("gemma2", R"("sliding_window": 16, "layer_types":
                   ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"])"));
  EXPECT_EQ(third.window_period, 3);
  EXPECT_FALSE(write_hugging_face(third)) << "the class's own layers alternate";
}

TEST(Families, RefuseFeaturesThatDoNotFitEachOther) {
  const std::string begin = "layers: 2\nhidden: 64\nheads: 4\nvocab: 99\nmax_sequence: 32\nffn_hidden: 64\n";
  for (const char* more :
       {"family: gpt\nshared_norm: true\n", "family: bert\nparallel: true\n", "family: gpt\noutput_norm: true\n",
        "family: bert\nwindow: 8\n", "family: llama\nwindow: 8\nwindow_period: 1\n", "family: bert\npositions: alibi\n",
        "family: llama\nposition_offset: 2\n", "family: gpt_neox\nrotary_share: 0.2\n",
        "family: llama\ninput_norm: false\n", "family: llama\njoint_qk_norm: true\n",
        "family: bert\nattention_bias: false\n", "family: bert\nhead_bias: true\n"})
    EXPECT_NE(refused(begin + more).find("E0112"), std::string::npos) << more;
}

}  // namespace families_test
}  // namespace orrery::models
