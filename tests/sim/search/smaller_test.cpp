/// What is known of memory from plans with smaller micro-batches is true of those with larger ones.
#include "sim/search/smaller.h"

#include <gtest/gtest.h>

#include "cost/estimate/estimate.h"
#include "sim/search/space.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace smaller_test {

struct Asked {
  const char* model;
  const char* cluster;
  int devices;
  const char* stack;
  std::int64_t layers, batch, sequence;
};

plan::Job job_of(const Asked& asked) {
  plan::Job job;
  job.batch = asked.batch;
  job.sequence = asked.sequence;
  job.precision = models::DType::bf16;
  return job;
}

TEST(SmallerMicroBatches, SayWhatLargerOnesNeedAtLeast) {
  for (const Asked& asked : {Asked{"llama2-7b", "dgx-a100", 16, "megatron-core", 8, 64, 2048},
                             Asked{"gpt2-1558m", "dgx-a100", 8, "deepspeed", 8, 512, 1024},
                             Asked{"mixtral-8x7b", "hgx-h100-1024", 16, "megatron-core", 4, 64, 2048},
                             Asked{"llama2-7b", "localhost-8", 0, "orrery-cpu", 8, 64, 256}}) {
    auto model = std::make_shared<models::Model>(*testing::model(asked.model));
    model->layers = asked.layers;
    const auto cluster = testing::cluster(asked.cluster, asked.devices);
    const cost::Pricing pricing(cluster, testing::stack(asked.stack));
    const std::vector<plan::PlanSpec> space = space_of(*cluster, *model, job_of(asked), cost::Prices(pricing).stacks());
    SmallerMicroBatches smaller(space);
    cost::Estimator estimator(model, pricing);
    int compared = 0;
    for (std::size_t i = 0; i < space.size(); ++i) {
      const auto made = plan::make_plan(model, cluster, space[i]);
      if (!made) continue;
      const double memory = estimator.memory_peak(*made);
      EXPECT_LE(smaller.least(i), memory) << asked.model << ": " << plan::describe(made->spec());
      compared += smaller.least(i) > 0 ? 1 : 0;
      smaller.needs(i, memory);
    }
    EXPECT_GT(compared, 20) << asked.model;
  }
}

TEST(SmallerMicroBatches, KnowNothingWhereMoreOfThemAreInFlightTheSmallerTheyAre) {
  plan::PlanSpec spec;
  spec.mesh.pipeline = 4;
  spec.shape.batch = 32;
  const auto two = [&](std::int64_t micro_batch) {
    plan::PlanSpec larger = spec;
    larger.shape.micro_batch = micro_batch;
    SmallerMicroBatches smaller({spec, larger});
    smaller.needs(0, 1e9);
    return smaller.least(1);
  };
  EXPECT_EQ(two(2), 1e9);
  EXPECT_EQ(two(16), 0) << "two micro-batches do not fill four stages";
  spec.stages.order = plan::Order::gpipe;
  EXPECT_EQ(two(2), 0) << "all of them are in flight";
}

}  // namespace smaller_test
}  // namespace orrery::sim
