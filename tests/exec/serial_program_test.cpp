// Plans whose mathematics is not a serial step's, against their serial programs, as `train --verify-serial` holds them
// together: 20 steps in loss, gradients and weights. The programs themselves are held to those that tests write by
// hand.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/lower/serial.h"
#include "tests/exec/compressed.h"
#include "tests/exec/serial.h"
#include "tests/exec/stale.h"

namespace orrery::exec {
namespace serial_program_test {

using plan::GradientCompression;
using plan::Order;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  Trial (*make)();
  double gradient = 1e-5;  ///< bound
  double loss = 1e-5;
};

class SerialProgramOf : public ::testing::TestWithParam<Case> {};

TEST_P(SerialProgramOf, ThePlanIsEqualInLossAndGradients) {
  const Trial trial = GetParam().make();
  const Outcome serial = testing::train_serially(trial), split = testing::train(trial);
  ASSERT_EQ(split.steps.size(), 20U);
  EXPECT_LT(split.steps.back().loss, split.steps.front().loss) << "nothing was learnt";
  const double loss = testing::loss_distance(split, serial);
  const double first = testing::relative_distance(split.gradients.at(0), serial.gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial.gradients.at(19));
  const double weights = testing::relative_distance(split.weights, serial.weights);
  std::printf("[ errors   ] %-36s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e  weights %.1e\n", GetParam().name,
              loss, first, last, weights);
  EXPECT_LE(loss, GetParam().loss);
  EXPECT_LE(first, GetParam().gradient);
  EXPECT_LE(last, GetParam().gradient);
  EXPECT_LE(weights, GetParam().gradient);
  for (std::size_t i = 0; i < serial.steps.size(); ++i)
    EXPECT_NEAR(split.steps[i].gradient_norm, serial.steps[i].gradient_norm,
                GetParam().gradient * serial.steps[i].gradient_norm);
}

Trial pipelined(Order order, int stages, int data = 1) {
  Trial trial = testing::asynchronous_trial(order, stages);
  trial.spec.mesh.data = data;
  trial.spec.shape.micro_batch /= data;
  return trial;
}
Trial clipped(Trial trial) {
  trial.training.clip_norm = 0.3;
  return trial;
}
Trial further(Trial trial) {
  trial.model.further = {.modules = 1, .weight = 0.3};
  trial.training.initial_weights.clear();  // which have no such module
  return trial;
}
Trial untied(Trial trial) {
  trial.model.tied_embeddings = false;
  return trial;
}
Trial served(int workers, int staleness) {
  Trial trial = testing::golden_trial("constant");
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.spec.mesh.data = workers;
  trial.spec.shape.micro_batch = 1;
  trial.spec.states.staleness = staleness;
  return trial;
}
Trial compressed(GradientCompression how, int data = 2) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.compression.gradients = how;
  trial.spec.compression.rank = 2;
  trial.spec.compression.minimum_rate = 1.5;
  trial.spec.mesh.data = data;
  return trial;
}
Trial with(Trial trial, void (*change)(Trial&)) {
  change(trial);
  return trial;
}

constexpr double kBf16 = 1.0 / 512, kFp16 = 1.0 / 4096, kLowRank = 1e-3, kHalf = 2e-2;

INSTANTIATE_TEST_SUITE_P(
    Plans, SerialProgramOf,
    ::testing::Values(
        Case{"pipedream_2", [] { return pipelined(Order::pipedream, 2); }},
        Case{"pipedream_4_clipped", [] { return clipped(pipelined(Order::pipedream, 4)); }},
        Case{"pipedream_3_untied_clipped",
             [] {
               return with(clipped(pipelined(Order::pipedream, 3)),
                           [](Trial& one) { one.model.tied_embeddings = false; });
             }},
        Case{"pipedream_2_data_2_zero_1_tensor_2",
             [] {
               return with(pipelined(Order::pipedream, 2, 2), [](Trial& one) {
                 one.spec.states.zero_stage = 1, one.spec.mesh.tensor = 2, one.spec.mesh.sequence_parallel = true;
               });
             }},
        Case{"pipedream_vertical_3", [] { return clipped(pipelined(Order::pipedream_vertical, 3)); }},
        Case{"pipedream_2bw_4_data_2", [] { return clipped(pipelined(Order::pipedream_2bw, 4, 2)); }},
        Case{"pipedream_3_lamb",
             [] {
               return with(pipelined(Order::pipedream, 3), [](Trial& one) {
                 one.training.optimizer = {plan::OptimizerKind::lamb, 2e-3, 0.9, 0.999, 1e-6, 0.01};
               });
             }},
        Case{"pipedream_2_further", [] { return further(pipelined(Order::pipedream, 2)); }},
        Case{"pipedream_3_further_untied_clipped",
             [] { return untied(clipped(further(pipelined(Order::pipedream, 3)))); }},
        Case{"pipedream_vertical_3_further_untied",
             [] { return untied(further(pipelined(Order::pipedream_vertical, 3))); }},
        Case{"pipedream_2bw_4_data_2_further_untied",
             [] { return untied(further(pipelined(Order::pipedream_2bw, 4, 2))); }},
        Case{"pipedream_2bw_4_data_2_further", [] { return further(pipelined(Order::pipedream_2bw, 4, 2)); }},
        Case{"server_2_stale_1_further", [] { return further(served(2, 1)); }},
        Case{"server_4_stale_3_further_untied_clipped", [] { return untied(clipped(further(served(4, 3)))); }},
        Case{"server_2_fresh", [] { return served(2, 0); }},
        Case{"server_2_stale_1_clipped", [] { return clipped(served(2, 1)); }},
        Case{"server_4_stale_3", [] { return served(4, 3); }},
        Case{"server_2_stale_1_tensor_2_sgd",
             [] {
               return with(served(2, 1), [](Trial& one) {
                 one.spec.mesh.tensor = 2;
                 one.training.optimizer.kind = plan::OptimizerKind::sgd;
                 one.training.optimizer.learning_rate = 0.01;
               });
             }},
        Case{"bf16_data_2", [] { return compressed(GradientCompression::bf16); }, kBf16},
        Case{"bf16_data_4_zero_1_overlapped",
             [] {
               return with(compressed(GradientCompression::bf16, 4), [](Trial& one) {
                 one.spec.states.zero_stage = 1, one.spec.states.overlap_gradients = true;
               });
             },
             kBf16},
        Case{"bf16_data_4_by_nodes_of_2",
             [] {
               return with(compressed(GradientCompression::bf16, 4),
                           [](Trial& one) { one.spec.compression.group = 2; });
             },
             kBf16},
        Case{"bf16_data_4_by_nodes_of_2_zero_1",
             [] {
               return with(compressed(GradientCompression::bf16, 4),
                           [](Trial& one) { one.spec.compression.group = 2, one.spec.states.zero_stage = 1; });
             },
             kBf16},
        Case{"fp16_data_4_by_nodes_of_2_zero_2_pipeline_2",
             [] {
               return with(compressed(GradientCompression::fp16, 4), [](Trial& one) {
                 one.spec.compression.group = 2, one.spec.states.zero_stage = 2, one.spec.mesh.pipeline = 2,
                 one.spec.shape.micro_batch = 1;
               });
             },
             kFp16},
        Case{"bf16_data_2_dropout",
             [] {
               return with(compressed(GradientCompression::bf16), [](Trial& one) {
                 one.model.dropout = {0.1, 0.1, 0.1};
               });
             },
             kBf16},
        Case{"server_2_stale_1_dropout",
             [] { return with(served(2, 1), [](Trial& one) {
                    one.model.dropout = {0.1, 0.1, 0.1};
                  }); }},
        Case{"fp16_data_2_zero_2",
             [] {
               return with(compressed(GradientCompression::fp16), [](Trial& one) { one.spec.states.zero_stage = 2; });
             },
             kFp16},
        Case{"bf16_data_2_zero_3_pipeline_2",
             [] {
               return with(compressed(GradientCompression::bf16),
                           [](Trial& one) { one.spec.states.zero_stage = 3, one.spec.mesh.pipeline = 2; });
             },
             kBf16},
        Case{"fp16_data_2_tensor_2",
             [] { return with(compressed(GradientCompression::fp16), [](Trial& one) { one.spec.mesh.tensor = 2; }); },
             kFp16},
        Case{"bf16_data_2_pipeline_2",
             [] { return with(compressed(GradientCompression::bf16), [](Trial& one) { one.spec.mesh.pipeline = 2; }); },
             kBf16},
        Case{"bf16_data_2_pipeline_2_further",
             [] {
               return further(
                   with(compressed(GradientCompression::bf16), [](Trial& one) { one.spec.mesh.pipeline = 2; }));
             },
             kBf16},
        Case{"powersgd_data_2_pipeline_2_further",
             [] {
               return further(
                   with(compressed(GradientCompression::powersgd), [](Trial& one) { one.spec.mesh.pipeline = 2; }));
             },
             kLowRank},
        Case{"bf16_pipedream_2bw_2_data_2",
             [] {
               return with(pipelined(Order::pipedream_2bw, 2, 2),
                           [](Trial& one) { one.spec.compression.gradients = GradientCompression::bf16; });
             },
             kBf16},
        Case{"powersgd_data_2", [] { return compressed(GradientCompression::powersgd); }, kLowRank},
        Case{"powersgd_data_4_zero_1_overlapped",
             [] {
               return with(compressed(GradientCompression::powersgd, 4), [](Trial& one) {
                 one.spec.states.zero_stage = 1, one.spec.states.overlap_gradients = true;
               });
             },
             kLowRank},
        Case{"powersgd_data_2_from_step_6",
             [] {
               return with(compressed(GradientCompression::powersgd),
                           [](Trial& one) { one.spec.compression.start = 5; });
             },
             kLowRank},
        Case{"powersgd_data_2_pipeline_2_overlapped_from_step_6",
             [] {
               return with(compressed(GradientCompression::powersgd), [](Trial& one) {
                 one.spec.mesh.pipeline = 2, one.spec.states.overlap_gradients = true, one.spec.compression.start = 5;
               });
             },
             kLowRank},
        Case{"powersgd_data_2_pipeline_2",
             [] {
               return with(compressed(GradientCompression::powersgd), [](Trial& one) { one.spec.mesh.pipeline = 2; });
             },
             kLowRank},
        Case{"fp16_of_fp16_training",
             [] {
               return with(compressed(GradientCompression::fp16), [](Trial& one) {
                 one.spec.numerics.precision = models::DType::fp16;
                 one.training.loss_scaling.initial = 1024;
               });
             },
             kHalf, 1e-3},
        Case{"bf16_training_on_a_server",
             [] { return with(served(2, 1), [](Trial& one) { one.spec.numerics.precision = models::DType::bf16; }); },
             kHalf, 1e-3},
        Case{"adamw_8bit_in_bf16",
             [] {
               return with(compressed(GradientCompression::none), [](Trial& one) {
                 one.training.optimizer.kind = plan::OptimizerKind::adamw_8bit;
                 one.spec.numerics.precision = models::DType::bf16, one.spec.mesh.pipeline = 2;
               });
             },
             kHalf, 1e-3}),
    [](const auto& which) { return std::string(which.param.name); });

TEST(SerialPrograms, AreThoseThatAreWrittenByHand) {
  for (const Order order : {Order::pipedream, Order::pipedream_vertical, Order::pipedream_2bw}) {
    SCOPED_TRACE(name_of(order));
    const Trial trial = clipped(testing::asynchronous_trial(order, 3));
    const Outcome program = testing::train_serially(trial), by_hand = testing::train_stale(trial);
    EXPECT_LE(testing::loss_distance(program, by_hand), 1e-6);
    EXPECT_LE(testing::relative_distance(program.gradients.at(19), by_hand.gradients.at(19)), 1e-5);
    EXPECT_LE(testing::relative_distance(program.weights, by_hand.weights), 1e-5);
  }
  for (const GradientCompression how : {GradientCompression::bf16, GradientCompression::powersgd}) {
    SCOPED_TRACE(name_of(how));
    Trial trial = compressed(how);
    trial.training.clip_norm.reset();  // by hand, the norm has been taken when gradients are put in
    const Outcome program = testing::train_serially(trial), by_hand = testing::train_compressed(trial).outcome;
    EXPECT_LE(testing::relative_distance(program.gradients.at(0), by_hand.gradients.at(0)), 1e-5);
    EXPECT_LE(testing::loss_distance(program, by_hand), 1e-5);
  }
}

// What the comparison would miss, it would not be worth: another delay, another staleness, another rounding.
TEST(SerialPrograms, OfOtherPlansAreFarAway) {
  const auto apart = [](const Trial& one, const Trial& other) {
    return testing::loss_distance(testing::train_serially(one), testing::train_serially(other));
  };
  EXPECT_GT(apart(pipelined(Order::pipedream, 3), pipelined(Order::pipedream_vertical, 3)), 1e-4);
  EXPECT_GT(apart(served(2, 1), served(2, 0)), 1e-3);
  EXPECT_GT(apart(served(2, 1), served(4, 1)), 1e-3);
  EXPECT_GT(apart(compressed(GradientCompression::bf16), compressed(GradientCompression::none)), 1e-5);
  EXPECT_GT(apart(compressed(GradientCompression::powersgd), compressed(GradientCompression::none)), 1e-3);
}

}  // namespace serial_program_test
}  // namespace orrery::exec
