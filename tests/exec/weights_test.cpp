// Weights under Hugging Face's names: read, trained, exported and read again; orientations against PyTorch's numbers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "exec/engine/thread_transport.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/state/checkpoint.h"
#include "exec/state/export.h"
#include "exec/state/initialise.h"
#include "exec/state/weight_names.h"
#include "models/layers/expand.h"
#include "models/read/original.h"
#include "models/read/read.h"
#include "plan/lower/experts.h"
#include "plan/lower/lower.h"
#include "tests/exec/families.h"
#include "tests/exec/mixtures.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace weights_test {

namespace fs = std::filesystem;
using models::Family;
using testing::Outcome;
using testing::Trial;

const std::string kGolden = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";

/// The model of tests/golden/pytorch/generate_llama.py.
Trial golden_llama() {
  Trial trial = testing::golden_trial("cosine_clipped");
  models::Model& m = trial.model;
  m.name = "golden-llama";
  testing::make_llama(m);
  trial.training.initial_weights = kGolden + "llama_initial.safetensors";
  return trial;
}

/// Losses, norms and the first gradient of a golden run, by one rank and by four.
void expect_golden(const std::function<Trial()>& golden_trial, Family family, const std::string& prefix) {
  const auto golden = nlohmann::json::parse(read_file(kGolden + prefix + "golden.json", 1 << 20)).at("steps");
  for (const int ways : {1, 2}) {
    Trial trial = golden_trial();
    trial.spec.mesh.tensor = trial.spec.mesh.data = ways;
    trial.gradients_at = {0};
    const Outcome outcome = testing::train(trial);
    ASSERT_EQ(outcome.steps.size(), golden.size());
    for (std::size_t i = 0; i < golden.size(); ++i) {
      EXPECT_NEAR(outcome.steps[i].loss, golden[i].at("loss").get<double>(), 1e-5 * golden[i].at("loss").get<double>());
      EXPECT_NEAR(outcome.steps[i].gradient_norm, golden[i].at("gradient_norm").get<double>(),
                  1e-4 * golden[i].at("gradient_norm").get<double>());
    }
    const auto file = SafetensorsFile::open(kGolden + prefix + "gradient_step_1.safetensors");
    double difference = 0, norm = 0;
    for (const auto& [name, gradient] : outcome.gradients.at(0)) {
      const TensorEntry* entry = file->header().find(place_in_file(family, name, gradient.shape).name);
      ASSERT_TRUE(entry && entry->shape == gradient.shape) << name;
      std::vector<float> expected(gradient.values.size());
      file->read(*entry, 0, expected);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(static_cast<double>(gradient.values[i]) - static_cast<double>(expected[i]), 2);
        norm += std::pow(static_cast<double>(expected[i]), 2);
      }
    }
    EXPECT_LT(std::sqrt(difference / norm), 1e-5);
  }
}

TEST(GoldenLlama, TrainsAsPyTorchDoesFromWeightsUnderItsNames) {
  expect_golden(golden_llama, Family::llama, "llama_");
}

TEST(GoldenBert, TrainsAsPyTorchDoesFromWeightsUnderItsNames) {
  expect_golden(testing::golden_bert, Family::bert, "bert_");
}

TEST(WeightNames, AreThoseOfTransformers) {
  const auto name = [](Family family, const char* logical) { return place_in_file(family, logical, {6, 4}).name; };
  EXPECT_EQ(name(Family::gpt, "wte.weight"), "transformer.wte.weight");
  EXPECT_EQ(name(Family::gpt, "h.11.mlp.fc.weight"), "transformer.h.11.mlp.c_fc.weight");
  EXPECT_EQ(name(Family::gpt, "lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(name(Family::llama, "wte.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(name(Family::llama, "h.3.attn.proj.weight"), "model.layers.3.self_attn.o_proj.weight");
  EXPECT_EQ(name(Family::llama, "h.3.ln_2.weight"), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(name(Family::llama, "ln_f.weight"), "model.norm.weight");
  EXPECT_EQ(name(Family::bert, "ln_e.bias"), "bert.embeddings.LayerNorm.bias");
  EXPECT_EQ(name(Family::bert, "h.0.attn.proj.weight"), "bert.encoder.layer.0.attention.output.dense.weight");
  EXPECT_EQ(name(Family::bert, "h.0.ln_2.weight"), "bert.encoder.layer.0.output.LayerNorm.weight");
  EXPECT_EQ(name(Family::bert, "ln_f.weight"), "cls.predictions.transform.LayerNorm.weight");
  EXPECT_EQ(name(Family::bert, "wtt.weight"), "bert.embeddings.token_type_embeddings.weight");
  EXPECT_EQ(name(Family::bert, "pooler.weight"), "bert.pooler.dense.weight");
  EXPECT_EQ(name(Family::bert, "next_sentence.bias"), "cls.seq_relationship.bias");

  const FilePlace k = place_in_file(Family::gpt, "h.0.attn.k.weight", {4, 4});
  EXPECT_TRUE(k.transposed);
  EXPECT_EQ(k.shape, (std::vector<std::int64_t>{4, 12}));
  EXPECT_EQ(k.first, 4);
  const FilePlace bias = place_in_file(Family::gpt, "h.0.attn.v.bias", {4});
  EXPECT_FALSE(bias.transposed);
  EXPECT_EQ(bias.shape, std::vector<std::int64_t>{12});
  EXPECT_EQ(bias.first, 8);
  EXPECT_FALSE(place_in_file(Family::llama, "h.0.attn.k.weight", {4, 8}).transposed);
}

TEST(WeightNames, OfExpertsAreThoseOfTransformers) {
  const auto name = [](Family family, const char* logical) { return place_in_file(family, logical, {6, 4}).name; };
  const std::string layer = "model.layers.3.";
  EXPECT_EQ(name(Family::mixtral, "h.3.mlp.router.weight"), layer + "block_sparse_moe.gate.weight");
  EXPECT_EQ(name(Family::mixtral, "h.3.mlp.experts.7.gate.weight"), layer + "block_sparse_moe.experts.7.w1.weight");
  EXPECT_EQ(name(Family::mixtral, "h.3.mlp.experts.0.up.weight"), layer + "block_sparse_moe.experts.0.w3.weight");
  EXPECT_EQ(name(Family::mixtral, "h.3.mlp.experts.12.proj.weight"), layer + "block_sparse_moe.experts.12.w2.weight");
  for (const Family family : {Family::qwen2_moe, Family::qwen3_moe, Family::deepseek_v2, Family::deepseek_v3}) {
    EXPECT_EQ(name(family, "h.3.mlp.router.weight"), layer + "mlp.gate.weight");
    EXPECT_EQ(name(family, "h.3.mlp.experts.127.gate.weight"), layer + "mlp.experts.127.gate_proj.weight");
    EXPECT_EQ(name(family, "h.3.mlp.experts.0.up.weight"), layer + "mlp.experts.0.up_proj.weight");
    EXPECT_EQ(name(family, "h.3.mlp.experts.0.proj.weight"), layer + "mlp.experts.0.down_proj.weight");
    EXPECT_EQ(name(family, "h.3.mlp.gate.weight"), layer + "mlp.gate_proj.weight") << "of a layer without experts";
    EXPECT_EQ(name(family, "h.3.attn.proj.weight"), layer + "self_attn.o_proj.weight");
  }
  EXPECT_EQ(name(Family::qwen2_moe, "h.3.mlp.shared.up.weight"), layer + "mlp.shared_expert.up_proj.weight");
  EXPECT_EQ(name(Family::qwen2_moe, "h.3.mlp.shared_gate.weight"), layer + "mlp.shared_expert_gate.weight");
  EXPECT_EQ(name(Family::deepseek_v3, "h.3.mlp.shared.proj.weight"), layer + "mlp.shared_experts.down_proj.weight");
  EXPECT_EQ(name(Family::deepseek_v3, "h.3.mlp.router.balance"), layer + "mlp.gate.e_score_correction_bias");
  for (const auto& [logical, theirs] : {std::pair{"q_a", "q_a_proj"},
                                        {"q_a_norm", "q_a_layernorm"},
                                        {"q_b", "q_b_proj"},
                                        {"q", "q_proj"},
                                        {"kv_a", "kv_a_proj_with_mqa"},
                                        {"kv_a_norm", "kv_a_layernorm"},
                                        {"kv_b", "kv_b_proj"}})
    EXPECT_EQ(name(Family::deepseek_v2, ("h.3.attn." + std::string(logical) + ".weight").c_str()),
              layer + "self_attn." + theirs + ".weight");
  EXPECT_EQ(name(Family::llama, "h.3.mlp.experts.7.gate.weight"), "h.3.mlp.experts.7.gate.weight") << "it has none";
  EXPECT_EQ(name(Family::gpt_oss, "h.3.attn.sinks"), layer + "self_attn.sinks");
  EXPECT_EQ(name(Family::gpt_oss, "h.3.mlp.router.bias"), layer + "mlp.router.bias");
}

// transformers: (experts, in, out), gate and up in one; gpt-oss's take turns, Llama 4's stand one behind the other.
TEST(WeightNames, OfExpertsInOneTensorSayWhereEachStands) {
  const auto place = [](Family family, const char* logical, std::vector<std::int64_t> shape) {
    models::Model model;
    model.family = family;
    model.experts.count = 5;
    return place_in_file(models::weight_names(model), {.name = logical, .logical_shape = std::move(shape)});
  };
  const std::string layer = "model.layers.3.";
  for (const auto& [family, experts, up, step] : {std::tuple{Family::gpt_oss, layer + "mlp.experts.", 1, 2},
                                                  std::tuple{Family::llama4, layer + "feed_forward.experts.", 6, 1}}) {
    const FilePlace gate = place(family, "h.3.mlp.experts.2.gate.weight", {6, 4});  // 4 columns in, 6 rows out
    EXPECT_EQ(gate.name, experts + "gate_up_proj");
    EXPECT_EQ(gate.shape, (std::vector<std::int64_t>{5, 4, 12}));
    EXPECT_EQ(gate.element(0, 0, 4), 2 * 4 * 12);
    EXPECT_EQ(gate.element(3, 1, 4), 2 * 4 * 12 + 12 + 3 * step);
    const FilePlace of_up = place(family, "h.3.mlp.experts.2.up.weight", {6, 4});
    EXPECT_EQ(of_up.name, gate.name);
    EXPECT_EQ(of_up.element(3, 1, 4), 2 * 4 * 12 + 12 + 3 * step + up);
    const FilePlace down = place(family, "h.3.mlp.experts.2.proj.weight", {4, 6});
    EXPECT_EQ(down.name, experts + "down_proj");
    EXPECT_EQ(down.shape, (std::vector<std::int64_t>{5, 6, 4}));
    EXPECT_EQ(down.element(3, 1, 6), 2 * 6 * 4 + 4 + 3);
    const FilePlace bias = place(family, "h.3.mlp.experts.2.up.bias", {6});
    EXPECT_EQ(bias.name, experts + "gate_up_proj_bias");
    EXPECT_EQ(bias.shape, (std::vector<std::int64_t>{5, 12}));
    EXPECT_EQ(bias.element(3, 0, 1), 2 * 12 + 3 * step + up);
  }
}

// transformers, modeling_glm4.py: columns 2i and 2i + 1 rotate together; here i and i + R/2 do.
TEST(WeightNames, OfRotatedRowsSayWhereTheirPairsStand) {
  const auto rows = [](const models::Model& model, const char* logical, std::int64_t count) {
    const FilePlace place = place_in_file(models::weight_names(model), {.name = logical, .logical_shape = {count, 4}});
    std::vector<std::int64_t> out;
    for (std::int64_t row = 0; row < count; ++row) out.push_back(place.row(row));
    return out;
  };
  using Rows = std::vector<std::int64_t>;
  models::Model glm;
  glm.family = Family::glm4;
  glm.positions = models::Positions::rope;
  glm.head_dim = 8, glm.rotary_share = 0.5;
  EXPECT_EQ(rows(glm, "h.0.attn.k.bias", 8), (Rows{0, 2, 1, 3, 4, 5, 6, 7}));
  EXPECT_EQ(rows(glm, "h.0.attn.v.weight", 8), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  glm.family = Family::glm4_moe;  // transformers, modeling_glm4_moe.py: half of the columns apart
  EXPECT_EQ(rows(glm, "h.0.attn.k.weight", 8), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  glm.family = Family::llama4;  // modeling_llama4.py: neighbours as complex numbers
  glm.rotary_share = 1;
  EXPECT_EQ(rows(glm, "h.0.attn.q.weight", 8), (Rows{0, 2, 4, 6, 1, 3, 5, 7}));
}

/// A model of each family through a checkpoint of an odd plan into a folder, and back.
class Exported : public ::testing::TestWithParam<Family> {
 protected:
  Exported() : folder_(fs::temp_directory_path() / ("orrery-export-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~Exported() override { fs::remove_all(folder_); }

  static Trial trial() {
    if (GetParam() == Family::llama) return golden_llama();
    if (GetParam() == Family::bert) return testing::golden_bert();
    Trial trial = testing::golden_trial("constant");
    if (GetParam() == Family::gpt) return trial;
    if (GetParam() == Family::gpt_oss) {
      testing::make_gpt_oss(trial.model);
      trial.training.initial_weights = kGolden + "gpt_oss_initial.safetensors";
      return trial;
    }
    if (GetParam() == Family::deepseek_v3) {
      trial = testing::golden_latent("further");
      trial.model.experts.shared = trial.model.experts.hidden;
      trial.model.experts.bias_rate = 1e-3;
    } else {
      testing::make_family(trial.model, GetParam());
    }
    trial.training.initial_weights.clear();
    return trial;
  }
  /// Seeded, but that B of an adapter, which begins at zero, has moved.
  static LogicalSource trained_adapters() {
    return [seeded = seeded_source(5)](const plan::ParameterRange& range, std::int64_t first, std::span<float> out) {
      seeded(range, first, out);
      if (!range.name.ends_with(".lora_b")) return;
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = 0.01F * static_cast<float>((first + static_cast<std::int64_t>(i)) % 7 - 3);
    };
  }
  static void with(const Trial& trial, const std::function<void(const CheckpointContext&)>& body) {
    const plan::Schedule lowered = plan::lower(testing::plan_of(trial));
    ThreadWorld world(trial.spec.mesh.ranks());
    testing::in_threads(
        trial.spec.mesh.ranks(),
        [&](int rank) {
          plan::Schedule schedule = lowered;
          plan::name_experts(schedule, rank);
          const auto transport = world.transport(rank);
          const auto backend = make_cpu_backend(1);
          const plan::Placement placement = plan::place(schedule.class_of(rank));
          Arena arena(*backend, schedule.class_of(rank), placement, Arena::Check::overlaps);
          if (trial.training.initial_weights.empty()) {
            initialise(schedule, rank, arena, *backend, trained_adapters());
          } else {
            const auto files = open_weights(trial.training.initial_weights);
            if (!files) throw std::runtime_error(base::render(files.error(), false));
            const auto source = file_source(*files, schedule, &trial.model, trained_adapters());
            if (!source) throw std::runtime_error(base::render(source.error(), false));
            initialise(schedule, rank, arena, *backend, *source);
          }
          body({schedule, arena, *backend, *transport});
        },
        [&](const std::string& why) { world.abort(why); });
  }
  static LogicalTensors weights(const Trial& trial) {
    LogicalTensors out;
    with(trial, [&](const CheckpointContext& c) {
      LogicalTensors all = gather_logical(c.schedule, Gathered::weights, c.arena, c.backend, c.transport);
      if (c.transport.rank() == 0) out = std::move(all);
    });
    return out;
  }
  /// By a plan that cuts everything.
  Trial saved(const models::Lora& lora = {}) const {
    Trial split = trial();
    split.model.lora = lora;
    split.spec.mesh.data = split.spec.mesh.tensor = split.spec.mesh.pipeline = 2, split.spec.states.zero_stage = 1;
    if (split.model.experts.any()) split.spec.mesh.expert = 2;
    with(split, [&](const CheckpointContext& c) { save_checkpoint(c, folder_ / "checkpoints", 7); });
    return split;
  }
  fs::path folder_;
};

TEST_P(Exported, WeightsComeBackBitByBit) {
  const Trial split = saved();
  const auto done = export_checkpoint(split.model, folder_ / "checkpoints/step-000007", folder_ / "out");
  ASSERT_TRUE(done) << base::render(done.error(), false);
  EXPECT_EQ(done->step, 7);
  const LogicalTensors before = weights(trial());
  Trial again = trial();
  again.training.initial_weights = (folder_ / "out").string();
  again.spec.mesh.tensor = 2;
  const LogicalTensors after = weights(again);
  ASSERT_EQ(after.size(), before.size());
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : before) {
    EXPECT_EQ(after.at(name).values, tensor.values) << name;
    elements += static_cast<std::int64_t>(tensor.values.size());
  }
  if (split.model.further.any()) {  // DeepSeek's file has copies of what the module shares
    const auto file = SafetensorsFile::open(folder_ / "out/model.safetensors");
    for (const auto& [copy, of] : {std::pair{"embed_tokens", "wte"}, std::pair{"shared_head.head", "lm_head"}}) {
      const std::vector<float>& shared = before.at(std::string(of) + ".weight").values;
      const TensorEntry* entry = file->header().find("model.layers.3." + std::string(copy) + ".weight");
      ASSERT_NE(entry, nullptr) << copy;
      std::vector<float> values(shared.size());
      file->read(*entry, 0, values);
      EXPECT_EQ(values, shared) << copy;
      elements += static_cast<std::int64_t>(shared.size());
    }
  }
  EXPECT_EQ(done->parameters, elements);
  const auto model = models::parse_model(read_file(folder_ / "out/config.json", 1 << 20), "config.json");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  models::Model expected = split.model;
  expected.sources = model->sources;
  if (GetParam() == Family::qwen3_next) expected.ssm.chunk = model->ssm.chunk;  // no key of the class has it
  EXPECT_EQ(*model, expected);
}

// What is exported is the model without adapters that computes the same.
TEST_P(Exported, WeightsHaveTheirAdaptersAdded) {
  constexpr std::int64_t kRank = 4;
  if (trial().model.further.any()) GTEST_SKIP() << "refused: E0112";
  const Trial split = saved({.rank = kRank, .alpha = 2 * kRank});
  ASSERT_TRUE(export_checkpoint(split.model, folder_ / "checkpoints/step-000007", folder_ / "out"));
  Trial adapted = trial();
  adapted.model.lora = split.model.lora;
  const LogicalTensors apart = weights(adapted);
  Trial again = trial();
  again.training.initial_weights = (folder_ / "out").string();
  int added = 0;
  for (const auto& [name, tensor] : weights(again)) {
    std::vector<float> expected = apart.at(name).values;
    if (const auto b = apart.find(name + ".lora_b"); b != apart.end()) {
      std::string shared = name;  // q, k and v share an A, and so do gate and up
      for (const auto& [part, whole] :
           {std::pair{".attn.gate.", ".attn.qkv."}, std::pair{".q.", ".qkv."}, std::pair{".k.", ".qkv."},
            std::pair{".v.", ".qkv."}, std::pair{".gate.", ".gate_up."}, std::pair{".up.", ".gate_up."}})
        if (const std::size_t at = shared.rfind(part); at != std::string::npos && !apart.contains(shared + ".lora_a"))
          shared.replace(at, std::string(part).size(), whole);
      const std::vector<float>& a = apart.at(shared + ".lora_a").values;
      const auto in = static_cast<std::size_t>(tensor.shape[1]);
      for (std::size_t i = 0; i < expected.size(); ++i)
        for (std::size_t r = 0; r < kRank; ++r)
          expected[i] += 2 * b->second.values[i / in * kRank + r] * a[r * in + i % in];
      ++added;
    }
    ASSERT_EQ(expected.size(), tensor.values.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(tensor.values[i], expected[i], 1e-6F) << name;
  }
  EXPECT_GE(added, split.model.layers) << "each block has some";
}

// The files PyTorch trained from, tensor for tensor: names and orientations are theirs.
TEST_P(Exported, FileIsTheOneThatWasRead) {
  const Trial split = saved();
  if (split.training.initial_weights.empty()) GTEST_SKIP() << "seeded";
  ASSERT_TRUE(export_checkpoint(split.model, folder_ / "checkpoints/step-000007", folder_ / "out"));
  const auto ours = SafetensorsFile::open(folder_ / "out/model.safetensors");
  const auto theirs = SafetensorsFile::open(split.training.initial_weights);
  ASSERT_EQ(ours->header().tensors.size(), theirs->header().tensors.size());
  for (const TensorEntry& entry : theirs->header().tensors) {
    const TensorEntry* mine = ours->header().find(entry.name);
    ASSERT_TRUE(mine && mine->shape == entry.shape) << entry.name;
    std::vector<float> a(static_cast<std::size_t>(entry.elements())), b(a.size());
    ours->read(*mine, 0, a);
    theirs->read(entry, 0, b);
    EXPECT_EQ(a, b) << entry.name;
  }
}

TEST_P(Exported, IsRefusedFromADamagedCheckpoint) {
  const Trial split = saved();
  const fs::path file = folder_ / "checkpoints/step-000007/rank-00000.safetensors";
  std::string bytes = read_file(file, 1 << 26);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_atomically(file, bytes);
  EXPECT_THROW((void)export_checkpoint(split.model, folder_ / "checkpoints/step-000007", folder_ / "out"), Failure);
  EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Families, Exported,
                         ::testing::Values(Family::gpt, Family::llama, Family::bert, Family::mistral, Family::qwen2,
                                           Family::qwen3, Family::gemma, Family::gemma2, Family::gpt_neox, Family::phi3,
                                           Family::opt, Family::falcon, Family::bloom, Family::nemotron,
                                           Family::mixtral, Family::qwen3_moe, Family::gpt_oss, Family::llama4,
                                           Family::gemma3, Family::glm4, Family::smollm3, Family::internlm2,
                                           Family::glm4_moe, Family::cohere, Family::mpt, Family::dots1,
                                           Family::ernie_moe, Family::deepseek_v3, Family::granite_moe_shared,
                                           Family::codegen, Family::gpt_neo, Family::hunyuan_moe, Family::nanochat,
                                           Family::bailing_moe_v2, Family::apertus, Family::qwen3_next, Family::minicpm,
                                           Family::afmoe),
                         [](const auto& one) { return std::string(models::name_of(one.param)); });

TEST(Exporting, RefusesWhatTheFamilysClassCannotSay) {
  models::Model model = golden_llama().model;
  model.bias = true;
  const auto refused = export_checkpoint(model, "nowhere", "nowhere");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().front().code, "E0604");
}

TEST(WeightFiles, OfAnOriginalThatComputesSomethingElseAreRefused) {
  Trial trial = golden_llama();
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  const auto file = SafetensorsFile::open(trial.training.initial_weights);
  ASSERT_TRUE(file);
  models::Model model = plan.model();
  EXPECT_TRUE(file_source(*file, schedule, &model));
  model.sources = {"a paper", std::string(models::kDiffers) + "it has no residual_multiplier"};
  const auto refused = file_source(*file, schedule, &model);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().front().code, "E0605");
  EXPECT_NE(refused.error().front().message.find("it has no residual_multiplier"), std::string::npos);
}

TEST(WeightFiles, OfBertsFirstDaysCallANormsParametersGammaAndBeta) {
  const fs::path path = fs::temp_directory_path() / ("orrery-gamma-" + std::to_string(getpid()) + ".safetensors");
  const auto whole = SafetensorsFile::open(kGolden + "bert_initial.safetensors");
  LogicalTensors renamed;
  for (const TensorEntry& entry : whole->header().tensors) {
    std::string name = entry.name;
    const std::size_t norm = name.find("LayerNorm.");
    if (norm != std::string::npos) name = name.substr(0, norm + 10) + (name.ends_with("weight") ? "gamma" : "beta");
    LogicalTensor& tensor = renamed[name];
    tensor.shape = entry.shape;
    tensor.values.resize(static_cast<std::size_t>(entry.elements()));
    whole->read(entry, 0, tensor.values);
  }
  EXPECT_TRUE(renamed.count("bert.embeddings.LayerNorm.gamma"));
  write_tensors(path.string(), renamed);
  Trial trial = testing::golden_bert();
  trial.steps = 1;
  const Outcome now = testing::train(trial);
  trial.training.initial_weights = path.string();
  EXPECT_EQ(testing::train(trial).steps.front().loss, now.steps.front().loss);
  fs::remove(path);
}

TEST(WeightFiles, InPartsAreFoundByTheirIndex) {
  const fs::path folder = fs::temp_directory_path() / ("orrery-parts-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto whole = SafetensorsFile::open(kGolden + "llama_initial.safetensors");
  nlohmann::json index;
  LogicalTensors parts[2];
  for (const TensorEntry& entry : whole->header().tensors) {
    const std::size_t part = entry.name.find("layers.1") == std::string::npos ? 0 : 1;
    LogicalTensor& tensor = parts[part][entry.name];
    tensor.shape = entry.shape;
    tensor.values.resize(static_cast<std::size_t>(entry.elements()));
    whole->read(entry, 0, tensor.values);
    index["weight_map"][entry.name] = part == 0 ? "a.safetensors" : "b.safetensors";
  }
  write_tensors((folder / "a.safetensors").string(), parts[0]);
  write_tensors((folder / "b.safetensors").string(), parts[1]);
  write_atomically(folder / "model.safetensors.index.json", index.dump());
  const plan::Schedule schedule = plan::lower(testing::plan_of(golden_llama()));
  {
    const auto files = open_weights(folder);
    ASSERT_TRUE(files);
    EXPECT_TRUE(file_source(*files, schedule));
  }
  fs::remove(folder / "b.safetensors");
  EXPECT_FALSE(open_weights(folder)) << "a part is missing";
  write_atomically(folder / "model.safetensors.index.json", R"({"weight_map": {"a": "a.safetensors"}})");
  const auto some = open_weights(folder / "model.safetensors.index.json");
  ASSERT_TRUE(some);
  const auto source = file_source(*some, schedule);
  ASSERT_FALSE(source);
  EXPECT_NE(base::render(source.error(), false).find("layers.1"), std::string::npos);
  for (const char* bad : {"[]", "{", R"({"weight_map": {"a": "../a.safetensors"}})"}) {
    write_atomically(folder / "model.safetensors.index.json", bad);
    const auto refused = open_weights(folder);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().front().code, "E0603");
  }
  fs::remove_all(folder);
}

}  // namespace weights_test
}  // namespace orrery::exec
