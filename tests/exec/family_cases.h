#pragma once
/// The families of family_models_test.cpp, each with its reference and the number of tensors in its file.
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"
#include "tests/exec/delta_reference.h"
#include "tests/exec/family_reference.h"
#include "tests/exec/family_reference_gpt.h"
#include "tests/exec/family_reference_parts.h"
#include "tests/exec/recurrent_reference.h"

namespace orrery::exec::family_models_test {

namespace ref = testing::reference;
using models::Family;

struct FamilyCase {
  const char* name;
  Family family;
  std::function<void(models::Model&)> set;  ///< beyond testing::make_family
  std::function<ref::Matrix(const ref::File&, const std::vector<int>&)> logits;
  std::size_t tensors;  ///< in the file
};

inline ref::Sizes sizes(std::size_t dim, double query_scalar = 0) {
  ref::Sizes s;
  s.dim = dim;
  s.query_scalar = query_scalar;
  return s;
}

inline FamilyCase llama_like(const char* name, Family family, std::size_t dim, const ref::LlamaLike& how,
                             std::size_t tensors, double query_scalar = 0) {
  return {name, family, nullptr,
          [=](const ref::File& f, const std::vector<int>& ids) {
            return ref::llama_like(f, sizes(dim, query_scalar), how, ids);
          },
          tensors};
}

inline std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> all;
  all.push_back(llama_like("mistral", Family::mistral, 8, {.window = 6}, 21));
  all.push_back(llama_like("qwen2", Family::qwen2, 8, {}, 27));
  all.push_back(llama_like("mimo", Family::mimo, 8, {}, 27));
  all.push_back(llama_like("internlm", Family::internlm, 8, {}, 29));
  all.push_back(llama_like("orion", Family::orion, 8, {.layer_norms = true}, 26));
  all.push_back(llama_like("qwen3", Family::qwen3, 16, {.head_norms = true}, 25));
  all.push_back(llama_like("gemma", Family::gemma, 16,
                           {.one = 1, .activation = ref::gelu_tanh, .scaled = true, .tied = true, .epsilon = 1e-6},
                           20));
  all.push_back(llama_like("gemma2", Family::gemma2, 16,
                           {.one = 1,
                            .activation = ref::gelu_tanh,
                            .sandwich = true,
                            .scaled = true,
                            .tied = true,
                            .cap = 0.7,
                            .logit_cap = 1.3,
                            .epsilon = 1e-6,
                            .window = 4,
                            .alternates = true},
                           24, 20));
  all.push_back(llama_like("phi3", Family::phi3, 8, {.fused = true, .window = 6}, 15));
  // Phi-4 mini's rotation: three quarters of a head turn. 16 tokens are more than 8, and not more than 16.
  const std::vector<double> divisors = {1.5, 4, 9}, near = {1, 1.25, 1.5};
  for (const bool is_long : {true, false}) {
    all.push_back(llama_like(is_long ? "phi3_longrope" : "phi3_longrope_short", Family::phi3, 8,
                             {.fused = true,
                              .turned = 6,
                              .window = 6,
                              .divisors = is_long ? divisors : near,
                              .turned_by = is_long ? 1.3 : 1.2},
                             15));
    all.back().set = [=](models::Model& m) {
      m.rotary_share = 0.75;
      m.rope_scaling = {.kind = models::RopeKind::longrope,
                        .original = is_long ? 8 : 16,
                        .attention = 1.2,
                        .divisors = near,
                        .long_divisors = divisors,
                        .long_attention = 1.3};
    };
  }
  all.push_back(
      llama_like("minicpm", Family::minicpm, 8, {.tied = true, .embeddings = 3, .residuals = 0.4, .logits = 0.5}, 20));
  all.push_back(llama_like("nemotron", Family::nemotron, 8,
                           {.one = 1,
                            .layer_norms = true,
                            .gated = false,
                            .turned = 4,
                            .activation = [](double x) { return x > 0 ? x * x : 0; }},
                           24));
  all.push_back(llama_like("gemma3", Family::gemma3, 16,
                           {.head_norms = true,
                            .one = 1,
                            .activation = ref::gelu_tanh,
                            .sandwich = true,
                            .scaled = true,
                            .tied = true,
                            .cap = 0.7,
                            .logit_cap = 1.3,
                            .epsilon = 1e-6,
                            .window = 4,
                            .alternates = true,
                            .theta = 1e6,
                            .window_theta = 100},
                           28, 20));
  // Dense, and with experts beside the MLP; the second layer sees all, with wider heads and k for v.
  ref::LlamaLike gemma4 = {.head_norms = true,
                           .activation = ref::gelu_tanh,
                           .sandwich = true,
                           .scaled = true,
                           .tied = true,
                           .logit_cap = 1.3,
                           .window = 4,
                           .alternates = true,
                           .theta = 1e6,
                           .window_theta = 100,
                           .full_dim = 16,
                           .full_pairs = 2,
                           .value_norms = true};
  all.push_back(llama_like("gemma4", Family::gemma4, 8, gemma4, 27, 1));
  gemma4.beside = ref::gemma4_moe;
  all.push_back(llama_like("gemma4_moe", Family::gemma4, 8, gemma4, 43, 1));
  all.back().set = [](models::Model& m) { m.experts.count = 4, m.experts.chosen = 2, m.experts.hidden = 24; };
  all.push_back(llama_like("glm", Family::glm, 8, {.fused_mlp = true, .turned = 4, .adjacent = true}, 25));
  all.push_back(llama_like("glm4", Family::glm4, 8,
                           {.fused_mlp = true,
                            .turned = 4,
                            .sandwich = true,
                            .adjacent = true,
                            .after_attention = "post_self_attn_layernorm",
                            .before_mlp = "post_attention_layernorm",
                            .after_mlp = "post_mlp_layernorm"},
                           29));
  all.push_back(llama_like("ernie", Family::ernie, 8, {.tied = true, .theta = 500000, .adjacent = true}, 20));
  all.push_back(llama_like("helium", Family::helium, 8, {.adjacent = true}, 21));
  all.push_back(llama_like("seed_oss", Family::seed_oss, 8, {}, 27));
  all.push_back(llama_like("smollm3", Family::smollm3, 8, {.tied = true, .theta = 2e6, .unrotated = 2}, 20));
  all.push_back(llama_like("arcee", Family::arcee, 8,
                           {.gated = false, .activation = [](double x) { return x > 0 ? x * x : 0; }}, 19));
  all.push_back(llama_like("stablelm", Family::stablelm, 8, {.layer_norms = true, .turned = 2}, 26));
  all.push_back(llama_like("starcoder2", Family::starcoder2, 8,
                           {.layer_norms = true,
                            .gated = false,
                            .activation = ref::gelu_tanh,
                            .tied = true,
                            .up = "mlp.c_fc",
                            .down = "mlp.c_proj"},
                           35));
  all.push_back({"internlm2", Family::internlm2, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) { return ref::internlm2(f, sizes(8), 2, ids); },
                 17});
  all.push_back({"gpt_neox", Family::gpt_neox, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) { return ref::neox(f, sizes(8), 2, ids); }, 28});
  all.push_back({"opt", Family::opt, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) { return ref::opt(f, sizes(8), ids); }, 36});
  all.push_back({"falcon", Family::falcon, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) { return ref::falcon(f, sizes(8), 2, true, ids); },
                 19});
  all.push_back(
      {"falcon_shared_norm", Family::falcon, [](models::Model& m) { m.kv_heads = 1, m.shared_norm = true; },
       [](const ref::File& f, const std::vector<int>& ids) { return ref::falcon(f, sizes(8), 1, false, ids); }, 15});
  all.push_back({"bloom", Family::bloom, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) { return ref::bloom(f, sizes(8), ids); }, 29});
  all.push_back(llama_like("baichuan", Family::baichuan, 8, {.packed = "self_attn.W_pack"}, 17));
  all.push_back(llama_like("internlm3", Family::internlm3, 8, {}, 21));
  const ref::LlamaLike command_r = {.layer_norms = true, .tied = true, .adjacent = true, .parallel = true};
  ref::LlamaLike scaled_command_r = command_r;
  scaled_command_r.logits = 0.25;
  all.push_back(llama_like("cohere", Family::cohere, 8, scaled_command_r, 18));
  all.push_back(llama_like("granite", Family::granite, 8, {.embeddings = 3, .residuals = 0.4, .logits = 0.5}, 21));
  const ref::LlamaLike granite_moe = {.embeddings = 3, .residuals = 0.4, .logits = 0.5, .feed = ref::granite_moe};
  all.push_back(llama_like("granite_moe", Family::granite_moe, 8, granite_moe, 21));
  all.push_back(llama_like("granite_moe_shared", Family::granite_moe_shared, 8, granite_moe, 25));
  ref::LlamaLike command_r7b = command_r;
  command_r7b.window = 4, command_r7b.alternates = true, command_r7b.unrotated = 2;
  all.push_back(llama_like("cohere2", Family::cohere2, 8, command_r7b, 18));
  const auto in_turn = [&](const char* name, Family family, const ref::InTurn& how, std::size_t tensors) {
    all.push_back(
        {name, family, nullptr,
         [how](const ref::File& f, const std::vector<int>& ids) { return ref::in_turn(f, sizes(8), how, ids); },
         tensors});
  };
  in_turn("starcoder", Family::gpt_bigcode, {.positions = true, .groups = 1, .activation = ref::gelu_tanh}, 28);
  in_turn("mpt", Family::mpt,
          {.layer = "transformer.blocks.",
           .norm_1 = "norm_1",
           .norm_2 = "norm_2",
           .last = "transformer.norm_f",
           .qkv = "attn.Wqkv",
           .out = "attn.out_proj",
           .up = "ffn.up_proj",
           .down = "ffn.down_proj",
           .alibi = true},
          14);
  in_turn("qwen", Family::qwen, {.qwen = true}, 19);
  const auto behind_one = [&](const char* name, Family family, const ref::BehindOne& how, std::size_t tensors) {
    all.push_back(
        {name, family, nullptr,
         [how](const ref::File& f, const std::vector<int>& ids) { return ref::behind_one(f, sizes(8), how, ids); },
         tensors});
  };
  behind_one("gptj", Family::gptj,
             {"transformer.wte", "transformer.h.", "ln_1", "attn.", "out_proj", "mlp.fc_in", "mlp.fc_out",
              "transformer.ln_f", 4, true},
             25);
  behind_one("codegen", Family::codegen,
             {"transformer.wte", "transformer.h.", "ln_1", "attn.", "out_proj", "mlp.fc_in", "mlp.fc_out",
              "transformer.ln_f", 4, true, "qkv_proj"},
             21);
  behind_one("phi", Family::phi,
             {"model.embed_tokens", "model.layers.", "input_layernorm", "self_attn.", "dense", "mlp.fc1", "mlp.fc2",
              "model.final_layernorm", 4},
             33);
  all.push_back({"gpt_neo", Family::gpt_neo, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) {
                   ref::Sizes s = sizes(8);
                   s.window = 4;
                   return ref::gpt_neo(f, s, ids);
                 },
                 4 + 2 * 13});
  ref::LlamaLike hunyuan;
  hunyuan.late_norms[0] = "self_attn.query_layernorm", hunyuan.late_norms[1] = "self_attn.key_layernorm";
  all.push_back(llama_like("hunyuan", Family::hunyuan, 8, hunyuan, 25));
  hunyuan.feed = ref::hunyuan_moe;
  all.push_back(llama_like("hunyuan_moe", Family::hunyuan_moe, 8, hunyuan, 3 + 2 * (8 + 1 + 3 + 4 * 3)));
  all.push_back({"nanochat", Family::nanochat, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) { return ref::nanochat(f, sizes(8), 15, ids); },
                 2 + 12});
  ref::LlamaLike apertus = {.head_norms = true, .theta = 12e6, .feed = ref::xielu_mlp};
  apertus.norm_1 = "attention_layernorm", apertus.norm_2 = "feedforward_layernorm";
  all.push_back(llama_like("apertus", Family::apertus, 8, apertus, 3 + 2 * (2 + 4 + 2 + 2 + 2)));
  all.push_back(llama_like("olmo", Family::olmo, 8, {.layer_norms = true}, 2 + 14));
  const ref::LlamaLike olmo2 = {.head_norms = true, .sandwich = true, .after_alone = true};
  all.push_back(llama_like("olmo2", Family::olmo2, 8, olmo2, 25));
  ref::LlamaLike exaone4 = olmo2;
  exaone4.window = 4, exaone4.alternates = true;
  all.push_back(llama_like("olmo3", Family::olmo3, 8, exaone4, 25));
  exaone4.unrotated = 2;
  all.push_back(llama_like("exaone4", Family::exaone4, 8, exaone4, 25));
  const auto llama_named = [&](const char* name, Family family, const ref::LlamaLike& how, std::size_t tensors,
                               const std::vector<std::pair<std::string, std::string>>& names) {
    all.push_back({name, family, nullptr,
                   [=](const ref::File& f, const std::vector<int>& ids) {
                     return ref::llama_like(ref::renamed(f, names), sizes(8), how, ids);
                   },
                   tensors});
  };
  llama_named("exaone", Family::exaone, {}, 21,
              {{"transformer.h.", "model.layers."},
               {"transformer.wte", "model.embed_tokens"},
               {"transformer.ln_f", "model.norm"},
               {"ln_1", "input_layernorm"},
               {"ln_2", "post_attention_layernorm"},
               {"attn.attention.out_proj", "self_attn.o_proj"},
               {"attn.attention.", "self_attn."},
               {"mlp.c_fc_0", "mlp.gate_proj"},
               {"mlp.c_fc_1", "mlp.up_proj"},
               {"mlp.c_proj", "mlp.down_proj"}});
  llama_named("chatglm", Family::chatglm, {.fused = true, .turned = 4, .adjacent = true}, 17,
              {{"transformer.encoder.layers.", "model.layers."},
               {"transformer.embedding.word_embeddings", "model.embed_tokens"},
               {"transformer.encoder.final_layernorm", "model.norm"},
               {"transformer.output_layer", "lm_head"},
               {"self_attention.query_key_value", "self_attn.qkv_proj"},
               {"self_attention.dense", "self_attn.o_proj"},
               {"mlp.dense_h_to_4h", "mlp.gate_up_proj"},
               {"mlp.dense_4h_to_h", "mlp.down_proj"}});
  llama_named("bailing_moe", Family::bailing_moe, {.fused = true, .feed = ref::bailing_moe},
              3 + 2 * (2 + 2 + 1 + 3 + 4 * 3),
              {{"model.word_embeddings", "model.embed_tokens"},
               {"attention.query_key_value", "self_attn.qkv_proj"},
               {"attention.dense", "self_attn.o_proj"}});
  // Their balancing biases are no parameters: a file without them has none.
  const auto routed = [&](const char* name, Family family, ref::LlamaLike how, const char* router, std::size_t tensors,
                          bool scaled) {
    how.feed = [=](const ref::File& f, const std::string& at, const ref::Matrix& x) {
      return ref::sigmoid_moe(f, at, x, router, 2.5);
    };
    all.push_back(llama_like(name, family, 8, how, tensors));
    all.back().set = [=](models::Model& m) {
      m.experts.balance_bias = false;
      m.experts.bias_rate = 0;
      m.experts.weight_scale = 2.5;
      m.scaled_embedding = scaled;
    };
  };
  routed("solar_open", Family::solar_open, {.theta = 1e6}, "gate", 3 + 2 * (2 + 4 + 1 + 3 + 4 * 3), false);
  ref::LlamaLike k_exaone = {.head_norms = true, .window = 4, .alternates = true, .unrotated = 2};
  routed("exaone_moe", Family::exaone_moe, k_exaone, "gate", 3 + 2 * (2 + 6 + 1 + 3 + 4 * 3), false);
  ref::LlamaLike trinity = k_exaone;
  trinity.sandwich = trinity.scaled = trinity.gated_attention = true;
  trinity.before_mlp = "pre_mlp_layernorm", trinity.after_mlp = "post_mlp_layernorm";
  routed("afmoe", Family::afmoe, trinity, "router.gate", 3 + 2 * (4 + 7 + 1 + 3 + 4 * 3), true);
  // Both have an MLP in their first layer; in the second form no layer has a window, and both have sinks.
  const ref::LlamaLike mimo_v2 = {.turned = 2,
                                  .window = 4,
                                  .alternates = true,
                                  .later = true,
                                  .theta = 5e6,
                                  .window_theta = 10000,
                                  .values = 0.707};
  ref::LlamaLike whole_mimo_v2 = mimo_v2;
  whole_mimo_v2.window = 0, whole_mimo_v2.window_theta = 0;
  for (const bool whole : {false, true}) {
    const std::size_t tensors = 3 + (2 + 4 + 3) + (2 + 5 + 1 + 4 * 3);
    routed(whole ? "mimo_v2_without_windows" : "mimo_v2", Family::mimo_v2, whole ? whole_mimo_v2 : mimo_v2, "gate",
           tensors + (whole ? 1 : 0), false);
    all.back().set = [=, routing = all.back().set](models::Model& m) {
      routing(m);
      m.experts.first_dense = 1;
      if (!whole) return;
      m.drop_window();
      m.window_kv_heads = 0, m.sinks_in_windows = false;
    };
  }
  // The first layer has an MLP, a window, twice as many heads, and turns all of a head.
  const ref::LlamaLike step3p5 = {.head_norms = true,
                                  .one = 1,
                                  .turned = 4,
                                  .window = 4,
                                  .alternates = true,
                                  .window_theta = 100,
                                  .window_turned = 8,
                                  .feed = [](const ref::File& f, const std::string& at, const ref::Matrix& x) {
                                    return ref::stacked_sigmoid_moe(f, at, x, 2.5);
                                  }};
  all.push_back(llama_like("step3p5", Family::step3p5, 8, step3p5, 3 + (2 + 7 + 3) + (2 + 7 + 1 + 2 + 3)));
  all.back().set = [](models::Model& m) {
    m.experts.first_dense = 1;
    m.experts.balance_bias = false, m.experts.bias_rate = 0, m.experts.weight_scale = 2.5;
  };
  const auto letters = [&](const char* name, Family family, const std::string& pattern, std::size_t tensors) {
    all.push_back({name, family, nullptr,
                   [=](const ref::File& f, const std::vector<int>& ids) {
                     return ref::of_letters(f, sizes(8), pattern, {}, ids);
                   },
                   tensors});
  };
  letters("nemotron_h", Family::nemotron_h, "M-*-", 3 + 9 + 3 + 5 + 3);
  // Experts of two tensors each, the shared one, a router, both products of the copies, and a norm.
  letters("nemotron_h_narrow", Family::nemotron_h, "ME*E", 3 + 9 + 5 + 2 * (2 * 4 + 2 + 1 + 2 + 1));
  all.back().set = [](models::Model& m) {
    for (const std::size_t i : {1U, 3U}) m.pattern[i].feed = models::Feed::experts;
    m.experts.count = 4, m.experts.chosen = 2, m.experts.hidden = 24, m.experts.narrow = 12, m.experts.shared = 40;
    m.experts.balance_bias = false, m.experts.bias_rate = 0;
    m.experts.weight_scale = 5;
  };
  letters("mamba2", Family::mamba2, "MM", 3 + 9 + 9);
  const auto bamba = [&](const char* name, Family family, const ref::Bamba& how, std::size_t tensors) {
    all.push_back({name, family, [](models::Model& m) { m.ssm.norm_groups = 1; },
                   [=](const ref::File& f, const std::vector<int>& ids) {
                     return ref::bamba(f, sizes(8), how, {.normed = 1}, ids);
                   },
                   tensors});
  };
  bamba("bamba", Family::bamba, {.turned = 4}, 3 + 13 + 9);
  const ref::Bamba granite = {.last = "model.norm",
                              .before_mlp = "post_attention_layernorm",
                              .granite = true,
                              .embeddings = 3,
                              .residuals = 0.4,
                              .logits = 0.5};
  bamba("granite_hybrid", Family::granite_hybrid, granite, 2 + 12 + 8);
  bamba("granite_hybrid_experts", Family::granite_hybrid, granite, 2 + 15 + 11);
  all.back().set = [](models::Model& m) {
    m.ssm.norm_groups = 1;
    for (models::BlockParts& parts : m.pattern) parts.feed = models::Feed::experts;
    m.experts = {.count = 4, .chosen = 2, .hidden = 24, .shared = 24, .normalised = true};
  };
  // Both norms, 4 tensors of attention, 7 or 8 of a state space, 3 of an MLP.
  for (const bool normed : {false, true})
    all.push_back({normed ? "falcon_h1_normed" : "falcon_h1", Family::falcon_h1,
                   [=](models::Model& m) { m.ssm.normed = normed; },
                   [=](const ref::File& f, const std::vector<int>& ids) {
                     return ref::falcon_h1(f, sizes(8), normed ? 2 : 0, ids);
                   },
                   3 + 2 * (2U + 4 + (normed ? 8 : 7) + 3)});
  for (const Family family : {Family::lfm2, Family::lfm2_moe}) {
    const bool experts = family == Family::lfm2_moe;
    all.push_back({experts ? "lfm2_moe" : "lfm2", family, [](models::Model& m) { m.experts.balance_bias = false; },
                   [](const ref::File& f, const std::vector<int>& ids) { return ref::lfm2(f, sizes(8), ids); },
                   2U + (2 + 3 + 3) + (2 + 6 + (experts ? 1 + 4 * 3 : 3))});
  }
  // A block: both norms, 4 tensors of attention or of lightning attention, a router and 4 experts.
  all.push_back({"minimax", Family::minimax, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) {
                   ref::Sizes s = sizes(8);
                   s.layers = 4;
                   return ref::minimax(f, s, 8, ids);
                 },
                 3 + 4 * (2U + 4 + 1 + 4 * 3)});
  // Both norms, 12 tensors of a selective state space and 3 of an MLP; 4 of attention, a router and 4 experts.
  all.push_back({"jamba", Family::jamba, nullptr,
                 [](const ref::File& f, const std::vector<int>& ids) { return ref::jamba(f, sizes(8), 6, ids); },
                 3 + (2U + 12 + 3) + (2 + 4 + 1 + 4 * 3)});
  // A norm and 9 tensors of a selective state space; Mamba's head is its token table.
  for (const bool falcon : {false, true})
    all.push_back(
        {falcon ? "falcon_mamba" : "mamba", falcon ? Family::falcon_mamba : Family::mamba, nullptr,
         [falcon](const ref::File& f, const std::vector<int>& ids) { return ref::mamba(f, sizes(8), 6, falcon, ids); },
         2 + 2 * (1U + 9)});
  const auto delta = [&](const char* name, Family family, std::size_t tensors) {
    all.push_back(
        {name, family, nullptr,
         [](const ref::File& f, const std::vector<int>& ids) { return ref::qwen3_next(f, sizes(8), {}, 2, 2, ids); },
         tensors});
  };
  // A block: both norms, 7 tensors of a gated delta network or 6 of attention; a router, 4 experts, a shared one and
  // its gate. Qwen3.5's has two tensors more, and an MLP or experts in two tensors.
  delta("qwen3_next", Family::qwen3_next, 3 + 2 * (2 + 1 + 12 + 4) + 7 + 6);
  delta("qwen3_5", Family::qwen3_5, 3 + 2 * (2 + 3) + 9 + 6);
  delta("qwen3_5_moe", Family::qwen3_5_moe, 3 + 2 * (2 + 1 + 2 + 4) + 9 + 6);
  return all;
}

}  // namespace orrery::exec::family_models_test
