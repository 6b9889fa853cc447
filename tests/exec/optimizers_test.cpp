// Optimizers in training: a straightforward program in double precision, fed with the same gradients, arrives at the
// same weights; PyTorch's SGD at the same losses; and every split of the model trains as one rank does.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/engine/logical.h"
#include "exec/engine/quantised.h"
#include "exec/files/safetensors.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace optimizers_test {

using plan::OptimizerKind;
using testing::optimizer_of;
using testing::Outcome;
using testing::Trial;

Trial trial_of(OptimizerKind kind) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.training.optimizer = optimizer_of(kind);
  return trial;
}

/// A parameter and its states, in double precision.
struct Parameter {
  std::vector<std::int64_t> shape;
  bool decays = false;
  std::vector<double> values, first, second, rows, columns;
};
using Parameters = std::map<std::string, Parameter>;

Parameters initial_parameters(const Trial& trial) {
  const auto file = SafetensorsFile::open(trial.training.initial_weights);
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  const auto source = file_source(*file, schedule);
  EXPECT_TRUE(source);
  Parameters out;
  for (const plan::Bucket& bucket : schedule.classes.front().buckets)
    for (const plan::ParameterRange& range : bucket.ranges) {
      const auto n = static_cast<std::size_t>(logical_elements(range.tensor));
      std::vector<float> values(n);
      (*source)(range, 0, values);
      Parameter& p = out[range.name];
      p.shape = range.tensor.logical_shape;
      p.decays = range.decay;
      p.values.assign(values.begin(), values.end());
      p.first.assign(n, 0);
      p.second.assign(n, 0);
      if (p.shape.size() == 2) {
        p.rows.assign(static_cast<std::size_t>(p.shape[0]), 0);
        p.columns.assign(static_cast<std::size_t>(p.shape[1]), 0);
      }
    }
  return out;
}

double length(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

void sgd(Parameter& p, const std::vector<double>& g, const plan::Optimizer& o, double rate, int) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double d = g[i] + (p.decays ? o.weight_decay * p.values[i] : 0);
    p.first[i] = o.momentum * p.first[i] + d;
    p.values[i] -= rate * (o.nesterov ? d + o.momentum * p.first[i] : p.first[i]);
  }
}

void lion(Parameter& p, const std::vector<double>& g, const plan::Optimizer& o, double rate, int) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double c = o.beta1 * p.first[i] + (1 - o.beta1) * g[i];
    p.values[i] -= rate * ((c > 0 ? 1 : c < 0 ? -1 : 0) + (p.decays ? o.weight_decay * p.values[i] : 0));
    p.first[i] = o.beta2 * p.first[i] + (1 - o.beta2) * g[i];
  }
}

void lamb(Parameter& p, const std::vector<double>& g, const plan::Optimizer& o, double rate, int t) {
  std::vector<double> r(g.size());
  for (std::size_t i = 0; i < g.size(); ++i) {
    p.first[i] = o.beta1 * p.first[i] + (1 - o.beta1) * g[i];
    p.second[i] = o.beta2 * p.second[i] + (1 - o.beta2) * g[i] * g[i];
    const double m = p.first[i] / (1 - std::pow(o.beta1, t)), v = p.second[i] / (1 - std::pow(o.beta2, t));
    r[i] = m / (std::sqrt(v) + o.epsilon) + (p.decays ? o.weight_decay * p.values[i] : 0);
  }
  const double weights = length(p.values), direction = length(r);
  const double ratio = p.decays && weights > 0 && direction > 0 ? weights / direction : 1;
  for (std::size_t i = 0; i < g.size(); ++i) p.values[i] -= rate * ratio * r[i];
}

void adafactor(Parameter& p, const std::vector<double>& g, const plan::Optimizer& o, double rate, int t) {
  constexpr double kEpsilon1 = 1e-30, kEpsilon2 = 1e-3;
  const double beta = 1 - std::pow(t, -o.decay_power);
  std::vector<double> u(g.size());
  if (p.rows.empty()) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      p.second[i] = beta * p.second[i] + (1 - beta) * (g[i] * g[i] + kEpsilon1);
      u[i] = g[i] / std::sqrt(p.second[i]);
    }
  } else {
    const std::size_t n = p.rows.size(), m = p.columns.size();
    std::vector<double> rows(n), columns(m);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j) {
        const double square = g[i * m + j] * g[i * m + j] + kEpsilon1;
        rows[i] += square;
        columns[j] += square;
      }
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) total += p.rows[i] = beta * p.rows[i] + (1 - beta) * rows[i];
    for (std::size_t j = 0; j < m; ++j) p.columns[j] = beta * p.columns[j] + (1 - beta) * columns[j];
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j) u[i * m + j] = g[i * m + j] / std::sqrt(p.rows[i] * p.columns[j] / total);
  }
  const double root = std::sqrt(static_cast<double>(g.size()));
  const double size = o.adaptive ? std::max(kEpsilon2, length(p.values) / root) : 1;
  const double clip = std::max(1.0, length(u) / root / o.clip_update);
  for (std::size_t i = 0; i < g.size(); ++i)
    p.values[i] -= rate * size * (u[i] / clip + (p.decays ? o.weight_decay * p.values[i] : 0));
}

using Reference = void (*)(Parameter&, const std::vector<double>&, const plan::Optimizer&, double, int);

/// How far weights after five steps are from those of `reference`, given the run's own gradients.
double distance_from(const Trial& trial, Reference reference) {
  const Outcome ours = testing::train(trial);
  Parameters parameters = initial_parameters(trial);
  for (std::size_t step = 0; step < ours.steps.size(); ++step) {
    const double norm = ours.steps[step].gradient_norm;
    const double clip = trial.training.clip_norm ? std::min(1.0, *trial.training.clip_norm / (norm + 1e-6)) : 1.0;
    for (auto& [name, p] : parameters) {
      const LogicalTensor& gradient = ours.gradients.at(static_cast<std::int64_t>(step)).at(name);
      std::vector<double> g(gradient.values.begin(), gradient.values.end());
      for (double& v : g) v *= clip;
      reference(p, g, trial.training.optimizer, plan::learning_rate_at(trial.training, static_cast<std::int64_t>(step)),
                static_cast<int>(step) + 1);
    }
  }
  double difference = 0, whole = 0;
  for (const auto& [name, p] : parameters)
    for (std::size_t i = 0; i < p.values.size(); ++i) {
      const double d = static_cast<double>(ours.weights.at(name).values[i]) - p.values[i];
      difference += d * d;
      whole += p.values[i] * p.values[i];
    }
  return std::sqrt(difference / whole);
}

Trial five_steps(OptimizerKind kind) {
  Trial trial = trial_of(kind);
  trial.steps = 5;
  trial.gradients_at = {0, 1, 2, 3, 4};
  return trial;
}

TEST(Optimizers, SgdFollowsAStraightforwardProgram) {
  Trial trial = five_steps(OptimizerKind::sgd);
  EXPECT_LT(distance_from(trial, sgd), 1e-6);
  trial.training.optimizer.nesterov = true;
  EXPECT_LT(distance_from(trial, sgd), 1e-6);
}

TEST(Optimizers, LionFollowsAStraightforwardProgram) {
  EXPECT_LT(distance_from(five_steps(OptimizerKind::lion), lion), 1e-6);
}

TEST(Optimizers, LambFollowsAStraightforwardProgram) {
  EXPECT_LT(distance_from(five_steps(OptimizerKind::lamb), lamb), 1e-6);
}

TEST(Optimizers, AdafactorFollowsAStraightforwardProgram) {
  Trial trial = five_steps(OptimizerKind::adafactor);
  EXPECT_LT(distance_from(trial, adafactor), 1e-6);
  trial.training.optimizer.adaptive = false;
  trial.training.optimizer.learning_rate = 1e-3;
  EXPECT_LT(distance_from(trial, adafactor), 1e-6);
}

TEST(Optimizers, TheComparisonSeesAnotherTrustRatio) {
  const auto without_decay = [](Parameter& p, const std::vector<double>& g, const plan::Optimizer& o, double rate,
                                int t) {
    p.decays = false;
    lamb(p, g, o, rate, t);
  };
  EXPECT_GT(distance_from(five_steps(OptimizerKind::lamb), without_decay), 1e-3);
}

class AgainstPyTorch : public ::testing::TestWithParam<const char*> {};

TEST_P(AgainstPyTorch, SgdHasItsLosses) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/golden_sgd.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  const nlohmann::json run = golden["runs"][GetParam()];
  Trial trial = testing::golden_trial("constant");
  plan::Optimizer& o = trial.training.optimizer;
  o.kind = OptimizerKind::sgd;
  o.learning_rate = run["learning_rate"];
  o.momentum = run["momentum"];
  o.nesterov = run["nesterov"];
  o.weight_decay = golden["weight_decay"];
  const Outcome ours = testing::train(trial);
  ASSERT_EQ(ours.steps.size(), run["losses"].size());
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    const double loss = run["losses"][i];
    EXPECT_NEAR(ours.steps[i].loss, loss, 1e-5 * loss) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, AgainstPyTorch, ::testing::Values("plain", "momentum", "nesterov"));

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

const Case kCases[] = {
    {"data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
    {"pipeline_2", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
    {"zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
    {"zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
    {"zero_3_data_4", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
    {"tensor_2_sequence", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
    {"context_2_zero_2", [](plan::PlanSpec& s) { s.mesh.context = 2, s.states.zero_stage = 2; }},
    {"zero_1_tensor_2_pipeline_2",
     [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.states.zero_stage = 1; }},
    {"zero_3_tensor_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 3; }},
};

class EqualToSerialWith : public ::testing::TestWithParam<std::tuple<OptimizerKind, Case>> {};

const Outcome& serial_with(OptimizerKind kind) {
  static std::map<OptimizerKind, Outcome> outcomes;
  const auto found = outcomes.find(kind);
  return found != outcomes.end() ? found->second : outcomes.emplace(kind, testing::train(trial_of(kind))).first->second;
}

TEST_P(EqualToSerialWith, InLossWeightsAndMemory) {
  const auto& [kind, one] = GetParam();
  Trial trial = trial_of(kind);
  one.set(trial.spec);
  const Outcome split = testing::train(trial);
  const Outcome& serial = serial_with(kind);
  const double loss = testing::loss_distance(split, serial);
  const double weights =
      testing::relative_distance(testing::determined(split.weights), testing::determined(serial.weights));
  // Eight bits are another computation where a matrix is cut: its blocks are. And everywhere a moment beside a bound
  // between two codes falls to the other side of it for the last bit of a sum.
  // So does one in 16 bits, whose neighbours are nearer.
  const bool eight = kind == OptimizerKind::adamw_8bit, sixteen = kind == OptimizerKind::adamw_bf16;
  EXPECT_LE(loss, eight ? 2e-3 : 1e-5);
  EXPECT_LE(weights, eight ? 2e-2 : sixteen ? 1e-4 : 1e-5);
  std::printf("[ errors   ] %s %-28s loss %.1e  weights after step 20 %.1e\n", plan::name_of(kind), one.name, loss,
              weights);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    const auto predicted = static_cast<double>(split.placements[rank].arena_bytes);
    EXPECT_NEAR(static_cast<double>(split.memory[rank].peak_extent), predicted, 0.02 * predicted) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EqualToSerialWith,
                         ::testing::Combine(::testing::Values(OptimizerKind::sgd, OptimizerKind::lamb,
                                                              OptimizerKind::adafactor, OptimizerKind::adamw_8bit,
                                                              OptimizerKind::lion, OptimizerKind::muon,
                                                              OptimizerKind::adamw_bf16),
                                            ::testing::ValuesIn(kCases)),
                         [](const auto& tested) {
                           std::string name = plan::name_of(std::get<0>(tested.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::get<1>(tested.param).name;
                         });

TEST(Optimizers, FewerBitsTrainAsThirtyTwoDo) {
  for (const OptimizerKind kind : {OptimizerKind::adamw_8bit, OptimizerKind::adamw_bf16}) {
    Trial trial = trial_of(kind);
    const Outcome fewer = testing::train(trial);
    trial.training.optimizer.kind = trial.spec.states.optimizer = OptimizerKind::adamw;
    const Outcome full = testing::train(trial);
    const double distance = testing::loss_distance(fewer, full);
    std::printf("[ errors   ] %s against adamw: loss %.1e\n", plan::name_of(kind), distance);
    EXPECT_LE(distance, 1e-2);
    EXPECT_GT(distance, 0) << plan::name_of(kind) << " is in 32 bits";
  }
}

/// Bytes of optimizer states of a serial run, a parameter.
double state_bytes(OptimizerKind kind, double momentum = 0.9) {
  Trial trial = trial_of(kind);
  trial.model.hidden = 256;
  trial.model.head_dim = 64;
  trial.model.ffn_hidden = 1024;
  trial.model.vocab = 4096;
  trial.spec.numerics.vocab_multiple = 128;
  trial.training.optimizer.momentum = momentum;
  const plan::RankClass rank_class = plan::lower(testing::plan_of(trial)).classes.front();
  double states = 0, parameters = 0;
  for (const plan::Buffer& buffer : rank_class.buffers)
    if (buffer.purpose == plan::Purpose::optimizer_states) states += static_cast<double>(buffer.bytes());
  for (const plan::Bucket& bucket : rank_class.buckets) parameters += static_cast<double>(bucket.elements);
  return states / parameters;
}

TEST(Optimizers, HaveTheBytesOfStatesThatTheyAreKnownFor) {
  EXPECT_DOUBLE_EQ(state_bytes(OptimizerKind::adamw), 8);
  EXPECT_DOUBLE_EQ(state_bytes(OptimizerKind::lamb), 8);
  EXPECT_DOUBLE_EQ(state_bytes(OptimizerKind::sgd), 4);
  EXPECT_DOUBLE_EQ(state_bytes(OptimizerKind::lion), 4);
  EXPECT_DOUBLE_EQ(state_bytes(OptimizerKind::adamw_bf16), 4);
  EXPECT_DOUBLE_EQ(state_bytes(OptimizerKind::sgd, 0), 0);
  EXPECT_LT(state_bytes(OptimizerKind::adafactor), 0.05);
  EXPECT_GT(state_bytes(OptimizerKind::adafactor), 0.01);
  // Two bytes and two scales of a block for what is no embedding, eight for what is.
  const double share = (4096.0 + 32) * 256 / (4096.0 * 256 + 32 * 256 + 2 * 12 * 256 * 256);
  EXPECT_NEAR(state_bytes(OptimizerKind::muon), 4 + 4 * share, 0.02) << "one momentum of a block's matrix";
  EXPECT_NEAR(state_bytes(OptimizerKind::adamw_8bit), 8 * share + (2 + 8.0 / 256) * (1 - share), 0.1);
}

TEST(CodeBooks, AscendWithoutRepetitionAndReachTheirEnds) {
  for (const CodeBook* book : {&signed_codes(), &unsigned_codes()}) {
    for (std::size_t i = 1; i < book->values.size(); ++i) EXPECT_LT(book->values[i - 1], book->values[i]);
    EXPECT_EQ(book->values.back(), 1);
    EXPECT_EQ(book->values[book->zero], 0);
  }
  EXPECT_EQ(signed_codes().values.front(), -1);
  EXPECT_EQ(unsigned_codes().values.front(), 0);
}

TEST(CodeBooks, GiveTheNearestOfAllValues) {
  for (const CodeBook* book : {&signed_codes(), &unsigned_codes()})
    for (int i = 0; i <= 10'000; ++i) {
      const float value =
          (book == &signed_codes() ? -1.0F : 0.0F) + static_cast<float>(i) * (book == &signed_codes() ? 2e-4F : 1e-4F);
      const float found = book->values[book->code_of(value)];
      float nearest = INFINITY;
      for (const float v : book->values) nearest = std::min(nearest, std::abs(v - value));
      EXPECT_NEAR(std::abs(found - value), nearest, 1e-7F) << value;
    }
}

TEST(Quantise, ReturnsWhatItMadeWhenAskedAgain) {
  std::vector<float> values(256), back(256), again(256);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(static_cast<double>(i)) * std::exp(-0.03 * static_cast<double>(i)) * -0.37);
  std::vector<std::uint8_t> codes(256), codes_again(256);
  const float scale = quantise(signed_codes(), values, codes.data());
  dequantise(signed_codes(), codes, scale, back.data());
  EXPECT_EQ(quantise(signed_codes(), back, codes_again.data()), scale);
  EXPECT_EQ(codes, codes_again);
}

}  // namespace optimizers_test
}  // namespace orrery::exec
