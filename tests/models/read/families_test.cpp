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
#include "tests/models/read/published.h"

namespace orrery::models {
namespace families_test {

using testing::Published;
using testing::published;

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

// Apertus' class scales rotation where a file says nothing of it; null says that nothing scales it. GPT-Neo's has 24
// layers, every second one with a window.
TEST(Families, TakeTheClasssOwnWhereAFileLeavesItOut) {
  const auto apertus = [](const std::string& more) {
    return read(R"({"model_type": "apertus", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 96,
        "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2)" +
                more + "}");
  };
  const RopeScaling own{.kind = RopeKind::llama3, .factor = 8, .original = 8192, .low = 1, .high = 4};
  EXPECT_EQ(apertus("").rope_scaling, own);
  EXPECT_EQ(apertus(R"(, "rope_scaling": null)").rope_scaling, RopeScaling{});
  EXPECT_EQ(apertus(R"(, "rope_scaling": {"rope_type": "linear", "factor": 2})").rope_scaling.kind, RopeKind::linear);
  for (const char* scaling : {"", R"(, "rope_scaling": null)"}) {
    const auto text = write_hugging_face(apertus(scaling));
    ASSERT_TRUE(text) << base::render(text.error(), false);
    EXPECT_EQ(read(*text).rope_scaling, apertus(scaling).rope_scaling) << *text;
  }
  const auto neo = [](const char* layers) {
    return std::string(R"({"model_type": "gpt_neo", "hidden_size": 64, "max_position_embeddings": 512, "num_heads": 4,
        "vocab_size": 96, "num_layers": )") +
           layers + "}";
  };
  const Model m = read(neo("24"));
  EXPECT_EQ(m.window, 256);
  EXPECT_FALSE(m.windowed(0));
  EXPECT_TRUE(m.windowed(1));
  EXPECT_NE(refused(neo("12")).find("attention of 24 layers for a model of 12"), std::string::npos);
}

TEST(Families, MistralsLayersAreAsTheirListSays) {
  const std::string both = R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 128,
      "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
      "sliding_window": 16, "vocab_size": 96)";
  const Model all = read(both + "}");
  EXPECT_TRUE(all.windowed(0) && all.windowed(1));
  const Model some = read(both + R"(, "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                                      "full_attention"]})");
  EXPECT_EQ(some.window, 16);
  EXPECT_TRUE(!some.windowed(0) && some.windowed(1) && some.windowed(2) && !some.windowed(3));
  const auto text = write_hugging_face(some);
  ASSERT_TRUE(text);
  EXPECT_TRUE(!read(*text).windowed(3) && read(*text).windowed(2)) << *text;
}

TEST(Families, MiMosModuleIsCountedByItself) {
  std::int64_t seen = 0;
  for (const Published& one : published())
    if (const Model model = read(one.config); model.family == Family::mimo) seen = parameters_further(model);
  // A block, the product of two widths, and norms of the two inputs and behind.
  const std::int64_t c = 4096, block = c * (c + 2 * 1024) + c + 2 * 1024 + c * c + 3 * c * 11008 + 2 * c;
  EXPECT_EQ(seen, block + 2 * c * c + 3 * c);
}

// Read, written for weights that others read, and read again.
TEST(Families, ComeBackFromTheConfigurationThatIsWritten) {
  for (const Published& one : published()) {
    const Model model = read(one.config);
    EXPECT_EQ(read(write_model(model), "model.yaml"), model) << write_model(model);
    if (model.family == Family::minicpm3) continue;  // never written
    const auto text = write_hugging_face(model);
    ASSERT_TRUE(text) << one.config << base::render(text.error(), false);
    Model again = read(*text);
    again.sources = model.sources, again.name = model.name;
    EXPECT_EQ(again, model) << *text;
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
  EXPECT_EQ(read(begin + R"([[["global", "global", "local", "local"], 1]]})").full_layers,
            (std::vector<std::int64_t>{0, 1}));
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
           {"qwen3", R"("attention_bias": true)"},
           {"gemma", R"("hidden_activation": "relu")"},
           {"gpt_neox", R"("attention_bias": false)"},
           {"codegen", R"("n_embd": 66, "n_head": 6, "n_layer": 2, "n_positions": 32, "rotary_dim": 4)"},
           {"opt", R"("word_embed_proj_dim": 32)"},
           {"opt", R"("do_layer_norm_before": false)"},
           {"falcon", R"("alibi": true)"},
           {"nemotron", R"("hidden_act": "silu")"},
           {"gemma2", R"("layer_types": ["full_attention", "sliding_attention"], "sliding_window": 16)"},
           {"cohere2", R"("layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"],
                          "sliding_window": 16)"}})
    EXPECT_NE(refused(config(type, more)).find("E0111"), std::string::npos) << type << more;
  const Model third = read(config("gemma2", R"("sliding_window": 16, "layer_types":
                   ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"])"));
  EXPECT_EQ(third.window_period, 3);
  const auto text = write_hugging_face(third);
  ASSERT_TRUE(text);
  EXPECT_EQ(read(*text).window_period, 3) << "although the class's own layers alternate";
}

/// A list of four layers' attention, of which F sees all.
std::string typed(const std::string& letters) {
  std::string all;
  for (const char one : letters)
    all += (all.empty() ? "\"" : ", \"") + std::string(one == 'F' ? "full" : "sliding") + "_attention\"";
  return "\"layer_types\": [" + all + "]";
}
std::string windowed_config(const std::string& type, const std::string& more) {
  return R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
             "vocab_size": 99, "intermediate_size": 128, "max_position_embeddings": 64, "num_local_experts": 4,
             "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 24,
             "v_head_dim": 16, "model_type": ")" +
         type + "\", " + more + "}";
}

TEST(Families, AreWrittenWithAnyLayersThatHaveAWindow) {
  for (const char* type : {"gemma2", "gemma3_text", "gpt_oss", "olmo3", "qwen2", "mimo_v2_flash"})
    for (const char* letters : {"FSFS", "FSSF", "SFFS", "SSSF", "SSSS", "FSSS", "FFFF"}) {
      const Model m =
          read(windowed_config(type, R"("sliding_window": 16, "use_sliding_window": true, )" + typed(letters)));
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(m.windowed(i), letters[i] == 'S') << type << letters << i;
      const auto text = write_hugging_face(m);
      ASSERT_TRUE(text) << type << letters << base::render(text.error(), false);
      EXPECT_EQ(without_names(read(*text)), without_names(m)) << type << letters << *text;
      EXPECT_EQ(without_names(read(write_model(m), "model.yaml")), without_names(m)) << type << letters;
    }
  const Model qwen =
      read(windowed_config("qwen2", R"("sliding_window": 16, "use_sliding_window": true, "max_window_layers": 1)"));
  EXPECT_TRUE(qwen.full_first && qwen.window_period == 4) << "one mask has one form";
  const auto text = write_hugging_face(qwen);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("\"max_window_layers\": 1"), std::string::npos) << *text;
  // A list in a model file says the same as a period.
  Model listed = qwen;
  listed.full_first = false, listed.window_period = 0, listed.full_layers = {0};
  EXPECT_TRUE(write_hugging_face(listed));
}

TEST(Families, AWindowAsLongAsTheLongestSequenceStillSaysWhichLayersDiffer) {
  const Model m = read(windowed_config("mimo_v2_flash", R"("sliding_window": 64, )" + typed("FSSF")));
  EXPECT_EQ(std::pair(m.kv_heads_of(0), m.kv_heads_of(1)), (std::pair<std::int64_t, std::int64_t>(2, 4)));
  const auto text = write_hugging_face(m);
  ASSERT_TRUE(text) << base::render(text.error(), false);
  EXPECT_EQ(without_names(read(*text)), without_names(m)) << *text;
  EXPECT_EQ(read(windowed_config("gemma2", R"("sliding_window": 64)")).window, 0) << "the mask alone";
  EXPECT_EQ(read(windowed_config("gemma3_text", R"("sliding_window": 64)")).window_theta, 10000);
}

TEST(Families, RefuseLayersOfAKindTheyDoNotKnow) {
  for (const char* type : {"qwen2", "gemma2", "mimo_v2_flash"})
    for (const char* word : {"linear_attention", "foo", ""})
      EXPECT_NE(refused(windowed_config(type, R"("sliding_window": 16, "layer_types": ["sliding_attention", ")" +
                                                  std::string(word) + R"(", "full_attention", "full_attention"])"))
                    .find("E0111"),
                std::string::npos)
          << type << word;
}

TEST(Families, WhereAllLayersSeeAllNoneRotatesIfTheClassRotatesThoseWithAWindowAlone) {
  for (const char* type : {"cohere2", "exaone4", "afmoe"}) {
    const std::string more = R"("sliding_window": 16, "num_experts": 4, )";
    const Model m = read(windowed_config(type, more + typed("FFFF")));
    EXPECT_EQ(m.window, 0) << type;
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_FALSE(m.rotates(i)) << type;
    const auto text = write_hugging_face(m);
    ASSERT_TRUE(text) << type << base::render(text.error(), false);
    EXPECT_EQ(without_names(read(*text)), without_names(m)) << type << *text;
    EXPECT_TRUE(read(windowed_config(type, more + typed("SSSS"))).rotates(3)) << type;
    EXPECT_EQ(read(windowed_config(type, more + typed("SSSF"))).unrotated_period, 4) << type;
  }
  EXPECT_TRUE(read(windowed_config("exaone4", R"("sliding_window": null, )" + typed("FFFF"))).rotates(0));
  EXPECT_FALSE(read(windowed_config("cohere2", R"("sliding_window": 16, "sliding_window_pattern": 1)")).rotates(0));
  EXPECT_TRUE(read(windowed_config("cohere2", R"("sliding_window_pattern": 1, )" + typed("SSSS"))).rotates(0));
}

TEST(Families, LayersWithAWindowFollowAPeriodOrAList) {
  const auto config = [](const std::string& more) {
    return R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 99,
               "intermediate_size": 128, "max_position_embeddings": 64, "sliding_window": 16, )" +
           more + "}";
  };
  const Model first = read(config(R"("model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 2)"));
  EXPECT_EQ(first.full_layers, (std::vector<std::int64_t>{0, 1}));
  EXPECT_FALSE(first.windowed(1));
  EXPECT_TRUE(first.windowed(2));
  const Model listed = read(config(R"("model_type": "gemma2", "layer_types": ["full_attention", "full_attention",
                                      "sliding_attention", "full_attention"])"));
  EXPECT_EQ(listed.full_layers, (std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(read(write_model(listed), "model.yaml"), listed);
  const auto written = write_hugging_face(listed);
  ASSERT_TRUE(written);
  EXPECT_EQ(read(*written).full_layers, listed.full_layers);
}

TEST(Families, MiMoV2sLayersWithAWindowHaveHeadsAndSinksOfTheirOwn) {
  const std::string begin =
      R"({"model_type": "mimo_v2_flash", "hidden_size": 64, "num_hidden_layers": 8, "head_dim": 12,
      "num_attention_heads": 8, "num_key_value_heads": 2, "v_head_dim": 6, "vocab_size": 99, "intermediate_size": 128,
      "max_position_embeddings": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32)";
  const Model m = read(begin + "}");
  EXPECT_TRUE(m.full_first && m.window_period == 5) << "the class's own";
  EXPECT_EQ(std::pair(m.kv_heads_of(0), m.kv_heads_of(1)), (std::pair<std::int64_t, std::int64_t>(2, 4)));
  EXPECT_TRUE(!m.has_sinks(5) && m.has_sinks(6));
  EXPECT_EQ(only_op(block(m).forward, OpKind::attention).value_dim, 6);
  const Model other = read(begin + R"(, "swa_num_key_value_heads": 2, "add_full_attention_sink_bias": true,
      "hybrid_layer_pattern": [1, 0, 1, 0, 1, 0, 1, 0], "attention_value_scale": null})");
  EXPECT_EQ(std::pair(other.window_period, other.full_layers.size()), (std::pair<std::int64_t, std::size_t>(2, 0)));
  EXPECT_EQ(std::pair(other.kv_heads_of(0), other.value_scale), (std::pair<std::int64_t, double>(2, 1)));
  EXPECT_TRUE(other.has_sinks(1));
  EXPECT_FALSE(write_hugging_face(other)) << "the class doubles the heads, and has sinks in windows alone";
  for (const char* more :
       {R"("swa_num_attention_heads": 4)", R"("swa_head_dim": 16)", R"("swa_v_head_dim": 12)",
        R"("n_shared_experts": 1)", R"("add_swa_attention_sink_bias": false, "add_full_attention_sink_bias": true)",
        R"("scoring_func": "softmax")", R"("topk_method": "greedy")", R"("hybrid_layer_pattern": [0, 1])",
        R"("moe_layer_freq": [2, 1, 1, 1, 1, 1, 1, 1])",
        R"("rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5},
                               "sliding_attention": {"partial_rotary_factor": 1.0}})",
        R"("rope_parameters": {"sliding_attention": {"rope_type": "yarn"}})", R"("moe_layer_freq": 2)",
        R"("attention_value_scale": 0)", R"("sliding_window": null)",
        R"("hybrid_layer_pattern": [0, 1, 1, 1, 1, 1, 1, 1], "layer_types": ["sliding_attention", "full_attention",
            "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
            "full_attention"])",
        R"("moe_layer_freq": [0, 1, 1, 1, 1, 1, 1, 1], "mlp_layer_types": ["sparse", "sparse", "sparse", "sparse",
            "sparse", "sparse", "sparse", "sparse"])"})
    EXPECT_NE(refused(begin + ", " + more + "}").find("E0111"), std::string::npos) << more;
  EXPECT_EQ(read(begin + R"(, "rope_parameters": {"rope_theta": 1000000}})").rope_theta, 1e6);
  EXPECT_EQ(read(begin + R"(, "num_nextn_predict_layers": 0})").sources.size(), m.sources.size());
  EXPECT_EQ(read(begin + R"(, "num_nextn_predict_layers": 1})").sources.size(), m.sources.size() + 1);
}

TEST(Families, MiMoV2WithoutWindowsHasNothingOfTheirs) {
  const Model m = read(windowed_config("mimo_v2_flash", R"("hybrid_layer_pattern": [0, 0, 0, 0])"));
  EXPECT_EQ(std::pair(m.window, m.window_kv_heads), (std::pair<std::int64_t, std::int64_t>(0, 0)));
  EXPECT_FALSE(m.has_sinks(0));
  EXPECT_TRUE(read(windowed_config("mimo_v2_flash", R"("hybrid_layer_pattern": [0, 0, 0, 0], "sliding_window": null,
                   "add_full_attention_sink_bias": true)"))
                  .has_sinks(0));
}

TEST(Families, RefuseFeaturesThatDoNotFitEachOther) {
  const std::string begin = "layers: 2\nhidden: 64\nheads: 4\nvocab: 99\nmax_sequence: 32\nffn_hidden: 64\n";
  for (const char* more : {"family: gpt\nshared_norm: true\n",
                           "family: bert\nparallel: true\n",
                           "family: gpt\noutput_norm: true\n",
                           "family: bert\nwindow: 8\n",
                           "family: llama\nwindow: 8\nwindow_period: 1\n",
                           "family: bert\npositions: alibi\n",
                           "family: llama\nposition_offset: 2\n",
                           "family: gpt_neox\nrotary_share: 0.2\n",
                           "family: llama\ninput_norm: false\n",
                           "family: llama\njoint_qk_norm: true\n",
                           "family: bert\nattention_bias: false\n",
                           "family: bert\nhead_bias: true\n",
                           "family: llama\nfull_layers: [0]\n",
                           "family: llama\nwindow: 8\nfull_layers: [1, 0]\n",
                           "family: llama\nwindow: 8\nfull_layers: [2]\n",
                           "family: llama\nwindow: 8\nwindow_kv_heads: 3\n",
                           "family: llama\nwindow_kv_heads: 2\n",
                           "family: gpt\nvalue_dim: 8\n",
                           "family: gpt\nvalue_scale: 0.5\n",
                           "family: llama\nsinks_in_windows: true\n"})
    EXPECT_NE(refused(begin + more).find("E0112"), std::string::npos) << more;
}

}  // namespace families_test
}  // namespace orrery::models
