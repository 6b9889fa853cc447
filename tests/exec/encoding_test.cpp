// Saved activations in Gist's formats against a serial program that does the same: it keeps all in full, and rounds
// what each operator of a block's backward pass reads of the forward pass.
#include <gtest/gtest.h>

#include <cmath>

#include "models/encoding.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace encoding_test {

using models::OpKind;
using plan::ActivationEncoding;
using testing::Outcome;
using testing::Trial;

/// Passes every operator on, those of backward with rounded inputs. What the head reads, whose operators come first
/// behind the loss, is as it was.
class Rounding : public Backend {
 public:
  explicit Rounding(std::int64_t bits) : bits_(bits), inner_(make_cpu_backend(1)) {}
  std::string name() const override { return inner_->name(); }
  std::string device_name() const override { return inner_->device_name(); }
  std::byte* allocate_arena(std::int64_t bytes) override { return inner_->allocate_arena(bytes); }
  void copy_to_device(std::byte* device, std::span<const std::byte> host) override {
    inner_->copy_to_device(device, host);
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* device) override { inner_->copy_to_host(host, device); }
  void synchronise() override { inner_->synchronise(); }
  Mark mark() override { return inner_->mark(); }
  double seconds_between(Mark from, Mark to) override { return inner_->seconds_between(from, to); }
  void run(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out,
           std::span<const ElementRange> ranges, const StepContext& context) override {
    if (op.kind == OpKind::cross_entropy_grad) head_norm_ = head_product_ = true;
    std::vector<Operand> operands(in.begin(), in.end());
    std::vector<std::vector<float>> kept;
    const auto round = [&](std::size_t i) {
      const auto* values = reinterpret_cast<const float*>(operands[i].data);
      std::vector<float>& own = kept.emplace_back(values, values + operands[i].elements);
      const models::Format f = models::format_of(bits_);
      for (float& value : own) value = models::decoded(models::encoded(value, f), f);
      operands[i].data = reinterpret_cast<std::byte*>(own.data());
    };
    if (op.kind == OpKind::gelu_grad) round(1);
    if (op.kind == OpKind::attention_grad) round(1), round(2);
    if (op.kind == OpKind::layer_norm_grad && !std::exchange(head_norm_, false)) round(1);
    if (op.kind == OpKind::matmul && op.trans_a && !std::exchange(head_product_, false)) round(1);
    inner_->run(op, operands, out, ranges, context);
  }

 private:
  std::int64_t bits_;
  std::unique_ptr<Backend> inner_;
  bool head_norm_ = false, head_product_ = false;
};

const Outcome& serial_in(std::int64_t bits) {
  static std::map<std::int64_t, Outcome> known;
  const auto found = known.find(bits);
  if (found != known.end()) return found->second;
  Trial trial = testing::golden_trial("cosine_clipped");
  if (bits > 0)
    trial.devices = [bits](Transport&) { return testing::Devices{std::make_unique<Rounding>(bits), nullptr}; };
  return known.emplace(bits, testing::train(trial)).first->second;
}

struct Case {
  const char* name;
  double bound;  ///< of loss and weights, from the serial program
  void (*set)(plan::PlanSpec&);
};

const Case kCases[] = {
    {"serial", 0, [](plan::PlanSpec&) {}},
    {"data_2", 1e-4, [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"zero_3_data_4", 1e-4, [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
    // What a stage receives waits as it is.
    {"pipeline_2", 5e-3, [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
    {"pipeline_2_gpipe_overlapped", 5e-3,
     [](plan::PlanSpec& s) {
       s.mesh.pipeline = 2, s.mesh.data = 2, s.stages.order = plan::Order::gpipe, s.states.overlap_gradients = true;
     }},
    // Partial sums in another order fall to the other side of a rounding now and then.
    {"tensor_2_sequence", 2e-3, [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
    {"context_2", 2e-3, [](plan::PlanSpec& s) { s.mesh.context = 2; }},
};

class EncodedSerial : public ::testing::TestWithParam<std::tuple<ActivationEncoding, Case>> {};

TEST_P(EncodedSerial, IsEqualToASerialProgramThatRoundsAlike) {
  const auto& [how, one] = GetParam();
  const std::int64_t bits = how == ActivationEncoding::fp16 ? 16 : how == ActivationEncoding::fp10 ? 10 : 8;
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.compression.activations = how;
  one.set(trial.spec);
  const Outcome split = testing::train(trial);
  const Outcome& serial = serial_in(bits);
  const double loss = testing::loss_distance(split, serial);
  const double gradient = testing::relative_distance(split.gradients.at(0), serial.gradients.at(0));
  std::printf("[ errors   ] %s %-28s loss %.1e  gradient at step 1 %.1e\n", plan::name_of(how), one.name, loss,
              gradient);
  EXPECT_LE(loss, one.bound);
  EXPECT_LE(gradient, one.bound > 1e-3 ? 2e-2 : std::min(one.bound, 1e-6));
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    EXPECT_EQ(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EncodedSerial,
                         ::testing::Combine(::testing::Values(ActivationEncoding::fp16, ActivationEncoding::fp10,
                                                              ActivationEncoding::fp8),
                                            ::testing::ValuesIn(kCases)),
                         [](const auto& tested) {
                           return std::string(plan::name_of(std::get<0>(tested.param))) + "_" +
                                  std::get<1>(tested.param).name;
                         });

TEST(EncodedActivations, FewerBitsAreFurtherFromFullPrecisionAndForwardIsUntouched) {
  double before = 0;
  for (const std::int64_t bits : {16, 10, 8}) {
    const double apart = testing::relative_distance(serial_in(bits).gradients.at(0), serial_in(0).gradients.at(0));
    std::printf("[ errors   ] %lld bits: gradient at step 1 %.1e from fp32\n", static_cast<long long>(bits), apart);
    EXPECT_GT(apart, before);
    before = apart;
    EXPECT_EQ(serial_in(bits).steps.front().loss, serial_in(0).steps.front().loss);
  }
  EXPECT_LT(before, 0.1);
}

TEST(EncodedActivations, RecomputedBlocksKeepTheirInputsInFewerBits) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.recomputation.what = plan::Recompute::full;
  const Outcome plain = testing::train(trial);
  trial.spec.compression.activations = ActivationEncoding::fp8;
  const Outcome narrow = testing::train(trial);
  EXPECT_LE(testing::loss_distance(narrow, plain), 2e-2);
  EXPECT_GT(testing::loss_distance(narrow, plain), 0);
  EXPECT_EQ(narrow.memory[0].peak_extent, narrow.placements[0].arena_bytes);
}

}  // namespace encoding_test
}  // namespace orrery::exec
