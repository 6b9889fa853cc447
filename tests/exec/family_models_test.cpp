// Families as their files have them: weights under the names of Hugging Face's classes give the loss of a reference in
// double precision (tests/exec/family_reference.h, delta_reference.h) and the slopes of its loss, and every split gives
// the serial run's numbers.
#include "tests/exec/family_reference.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/random.h"
#include "exec/data/data.h"
#include "exec/files/safetensors.h"
#include "exec/state/weight_names.h"
#include "models/layers/mixers.h"
#include "tests/exec/families.h"
#include "tests/exec/family_cases.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace family_models_test {

namespace ref = testing::reference;
using models::Family;
using testing::Outcome;
using testing::Trial;

Trial trial_of(const FamilyCase& one) {
  Trial trial = testing::golden_trial("constant");
  testing::make_family(trial.model, one.family);
  if (one.set) one.set(trial.model);
  if (trial.model.normalisation == models::Normalisation::layer_norm ||
      (one.family != Family::gemma && one.family != Family::gemma2 && one.family != Family::gemma3))
    trial.model.norm_epsilon = 1e-5;
  trial.steps = 3;
  trial.gradients_at = {0, 2};
  return trial;
}

/// Every parameter with where it stands in the file.
std::map<std::string, FilePlace> places_of(const models::Model& model) {
  std::map<std::string, FilePlace> out;
  const models::WeightNames names = models::weight_names(model);
  const auto layer = [&](models::LayerKind kind, std::int64_t index) {
    for (const models::Tensor& tensor : models::expand(model, kind, index, {}).tensors) {
      if (tensor.role != models::TensorRole::parameter) continue;
      if (tensor.pieces.empty()) out.emplace(tensor.name, place_in_file(names, tensor));
      for (const models::Tensor& piece : tensor.pieces) out.emplace(piece.name, place_in_file(names, piece));
    }
  };
  layer(models::LayerKind::embedding, -1);
  for (std::int64_t i = 0; i < model.layers; ++i) layer(models::LayerKind::block, i);
  layer(models::LayerKind::head, -1);
  return out;
}

TEST(FamilyNames, MiMosModuleIsNumberedByItselfAndJoinsTheHiddenStateFirst) {
  Trial trial = testing::golden_trial("constant");
  testing::make_family(trial.model, Family::mimo);
  trial.model.further.modules = 1;
  const auto places = places_of(trial.model);
  EXPECT_EQ(places.at("h.1.attn.q.weight").name, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(places.at("h.2.attn.q.weight").name, "model.mtp_layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(places.at("h.2.ln_f.weight").name, "model.mtp_layers.0.final_layernorm.weight");
  EXPECT_EQ(places.at("h.2.enorm.weight").name, "model.mtp_layers.0.token_layernorm.weight");
  const std::int64_t c = trial.model.hidden;
  for (const bool token : {false, true}) {
    const FilePlace& half = places.at(token ? "h.2.eh_proj.token.weight" : "h.2.eh_proj.hidden.weight");
    EXPECT_EQ(half.name, "model.mtp_layers.0.input_proj.weight");
    EXPECT_EQ(half.shape, (std::vector<std::int64_t>{c, 2 * c}));
    EXPECT_EQ(half.element(1, 0, c), 2 * c + (token ? c : 0));
  }
}

/// A file of random values that no default hides: norms and biases differ from one and zero.
ref::File random_file(const models::Model& model) {
  ref::File file;
  for (const auto& [logical, place] : places_of(model)) {
    ref::Weights& w = file[place.name];
    w.shape.assign(place.shape.begin(), place.shape.end());
    std::size_t count = 1;
    for (const std::size_t extent : w.shape) count *= extent;
    w.v.resize(count);
    const bool vector = w.shape.size() == 1, weight = logical.ends_with(".weight");
    const double mean = vector && weight ? 1 - place.offset : 0, spread = vector ? 0.2 : 0.25;
    for (std::size_t i = 0; i < count; ++i)
      w.v[i] = static_cast<double>(static_cast<float>(mean + spread * base::normal(3, base::stream_of(place.name), i)));
  }
  return file;
}

std::string written(const ref::File& file, const std::string& name) {
  std::string path = ::testing::TempDir() + "family-" + name + "-" + std::to_string(::getpid()) + ".safetensors";
  std::vector<TensorEntry> entries;
  for (const auto& [tensor, w] : file) entries.push_back({tensor, "F32", {w.shape.begin(), w.shape.end()}, 0, 0});
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (const auto& [tensor, w] : file) writer.append(std::vector<float>(w.v.begin(), w.v.end()));
  (void)writer.finish();
  return path;
}

/// Over the first step's batch.
double reference_loss(const FamilyCase& one, const Trial& trial, const ref::File& file) {
  const plan::PlanSpec& s = trial.spec;
  auto stream = TokenStream::open(trial.training.data);
  const Batches batches(std::move(*stream), trial.training.order, trial.training.seed, s.shape.batch, s.shape.sequence,
                        trial.model.vocab);
  const auto length = static_cast<std::size_t>(s.shape.sequence);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(s.shape.batch) * length), targets(tokens.size());
  batches.load(0, 0, s.shape.batch, tokens, targets);
  double total = 0;
  for (std::size_t first = 0; first < tokens.size(); first += length) {
    const auto part = [&](const std::vector<std::int32_t>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
      return std::vector<int>(begin, begin + static_cast<std::ptrdiff_t>(length));
    };
    total += ref::loss_of(one.logits(file, part(tokens)), part(targets));
  }
  return total / static_cast<double>(s.shape.batch);
}

// As transformers 5 and 4 name the language model within one of text and images.
TEST(FamilyNames, OfALanguageModelWithinALargerOneAreFound) {
  FamilyCase one = llama_like("qwen3", Family::qwen3, 16, {.head_norms = true}, 25);
  Trial trial = trial_of(one);
  trial.steps = 1;
  trial.gradients_at = {};
  const ref::File file = random_file(trial.model);
  std::vector<double> losses;
  for (const auto& [model, head] : std::vector<std::pair<std::string, std::string>>{
           {"model.", ""}, {"model.language_model.", ""}, {"language_model.model.", "language_model."}}) {
    ref::File named;
    for (const auto& [name, weights] : file)
      named[name.starts_with("model.") ? model + name.substr(6) : head + name] = weights;
    trial.training.initial_weights = written(named, "within");
    losses.push_back(testing::train(trial).steps.at(0).loss);
    ::unlink(trial.training.initial_weights.c_str());
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
}

class FamilyModel : public ::testing::TestWithParam<FamilyCase> {
 protected:
  FamilyModel() : trial_(trial_of(GetParam())), file_(random_file(trial_.model)) {
    trial_.training.initial_weights = written(file_, GetParam().name);
  }
  ~FamilyModel() override { ::unlink(trial_.training.initial_weights.c_str()); }
  Trial trial_;
  ref::File file_;
};

TEST_P(FamilyModel, HasTheLossAndTheGradientsOfItsReference) {
  EXPECT_EQ(file_.size(), GetParam().tensors);
  trial_.steps = 1;
  trial_.gradients_at = {0};
  const Outcome ours = testing::train(trial_);
  ASSERT_EQ(ours.steps.size(), 1U);
  const double expected = reference_loss(GetParam(), trial_, file_);
  EXPECT_NEAR(ours.steps[0].loss, expected, 2e-6 * expected);
  double all = 0;
  for (const auto& [name, gradient] : ours.gradients.at(0))
    for (const float g : gradient.values) all += static_cast<double>(g) * static_cast<double>(g);
  const auto places = places_of(trial_.model);
  for (const auto& [name, gradient] : ours.gradients.at(0)) {
    // The slope of the reference's loss along a random direction of this tensor, as far as its gradient says.
    const FilePlace& place = places.at(name);
    const auto inner = static_cast<std::size_t>(row_elements(gradient.shape));
    std::vector<double> direction(gradient.values.size());
    double told = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      direction[i] = base::normal(11, base::stream_of(name), i);
      told += direction[i] * static_cast<double>(gradient.values[i]);
    }
    const auto loss_at = [&](double step) {
      ref::File moved = file_;
      ref::Weights& w = moved.at(place.name);
      for (std::size_t i = 0; i < direction.size(); ++i) {
        const std::int64_t at = place.element(static_cast<std::int64_t>(i / inner),
                                              static_cast<std::int64_t>(i % inner), static_cast<std::int64_t>(inner));
        w.v.at(static_cast<std::size_t>(at)) += step * direction[i];
      }
      return reference_loss(GetParam(), trial_, moved);
    };
    constexpr double kStep = 3e-8;  // so small that hardly a ReLU turns within it
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(told, slope, 2e-5 * std::sqrt(all)) << name;
  }
}

/// Whether tensor ranks divide all mixers.
bool is_divided_by(const models::Model& model, std::int64_t ways) {
  const auto all = models::mixers_of(model);
  return std::all_of(all.begin(), all.end(), [&](const models::MixerTraits* one) {
    return one->undivided == nullptr || one->undivided(model, ways).empty();
  });
}

struct Split {
  const char* name;
  bool tensor;
  void (*set)(plan::PlanSpec&);
};
const Split kSplits[] = {
    {"data", false, [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"zero_2", false, [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
    {"zero_3", false, [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
    {"pipeline", false, [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
    {"recomputed", false, [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
    {"unfused", false, [](plan::PlanSpec& s) { s.numerics.flash = false; }},
    {"selective", false,
     [](plan::PlanSpec& s) { s.numerics.flash = false, s.recomputation.what = plan::Recompute::selective; }},
    {"loss_chunks", false, [](plan::PlanSpec& s) { s.numerics.loss_chunks = 4; }},
    {"tensor", true, [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
    {"sequence_parallel", true, [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
    {"all", true,
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.tensor = s.mesh.pipeline = 2, s.states.zero_stage = 1, s.mesh.sequence_parallel = true;
     }},
};

TEST_P(FamilyModel, TrainsAlikeUnderEverySplit) {
  const Outcome alone = testing::train(trial_);
  const models::Model& m = trial_.model;
  const auto expect_same = [&](const char* name, const std::function<void(plan::PlanSpec&)>& set) {
    SCOPED_TRACE(name);
    Trial split = trial_;
    set(split.spec);
    const Outcome other = testing::train(split);
    ASSERT_EQ(other.steps.size(), alone.steps.size());
    EXPECT_LE(testing::loss_distance(other, alone), 1e-5);
    // Routers weigh what rounding has changed, and carry it further from step to step.
    for (const auto& [step, bound] : {std::pair{0, 2e-5}, {2, m.experts.any() ? 1e-4 : 2e-5}})
      EXPECT_LE(testing::relative_distance(other.gradients.at(step), alone.gradients.at(step)), bound) << step;
    for (std::size_t rank = 0; rank < other.memory.size(); ++rank)
      EXPECT_EQ(other.memory[rank].peak_live, other.placements[rank].peak_live_bytes) << "rank " << rank;
  };
  for (const Split& one : kSplits)
    if (!one.tensor || (m.kv_heads > 1 && !m.joint_qk_norm && is_divided_by(m, 2))) expect_same(one.name, one.set);
  if (m.positions != models::Positions::alibi && m.window == 0 && !m.reads_in_order())
    expect_same("context", [](plan::PlanSpec& s) { s.mesh.context = 2; });
}

// What a ring cannot do is refused, with a hint.
TEST_P(FamilyModel, IsRefusedARingThatKnowsNoDistances) {
  const models::Model& m = trial_.model;
  if (m.positions != models::Positions::alibi && m.window == 0) return;
  Trial split = trial_;
  split.spec.mesh.context = 2;
  try {
    (void)testing::plan_of(split);
    FAIL() << "a plan was made";
  } catch (const std::runtime_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("error[P104]"), std::string::npos) << refused.what();
  }
}

TEST_P(FamilyModel, IsRefusedATensorGroupThatSeesNotAllHeads) {
  if (!trial_.model.joint_qk_norm) return;
  Trial split = trial_;
  split.spec.mesh.tensor = 2;
  try {
    (void)testing::plan_of(split);
    FAIL() << "a plan was made";
  } catch (const std::runtime_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("error[P169]"), std::string::npos) << refused.what();
  }
}

// A state space's heads go with their groups and the norm's runs; no rank has a part of its tokens.
TEST_P(FamilyModel, IsRefusedWhatAStateSpaceCannotDivide) {
  if (!trial_.model.reads_in_order()) return;
  const auto code_of = [&](const std::function<void(plan::PlanSpec&)>& set) -> std::string {
    Trial split = trial_;
    set(split.spec);
    try {
      (void)testing::plan_of(split);
    } catch (const std::runtime_error& refused) {
      return refused.what();
    }
    return "a plan was made";
  };
  const std::string context = code_of([](plan::PlanSpec& s) { s.mesh.context = 2; });
  EXPECT_NE(context.find("error[P171]"), std::string::npos) << context;
  if (!trial_.model.ssm.any()) return;
  if (is_divided_by(trial_.model, 4)) return;
  const bool whole = !is_divided_by(trial_.model, 2);
  const std::string tensor = code_of([&](plan::PlanSpec& s) { s.mesh.tensor = whole ? 2 : 4; });
  EXPECT_NE(tensor.find("error[P170]"), std::string::npos) << tensor;
}

INSTANTIATE_TEST_SUITE_P(All, FamilyModel, ::testing::ValuesIn(family_cases()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace family_models_test
}  // namespace orrery::exec
