#pragma once
/// GPT-2 124M on one A100 of as much memory as a test says: what the search does where little fits.
#include <memory>

#include "sim/search/search.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim::testing {

inline std::shared_ptr<clusters::Cluster> one_a100(double memory = 0) {
  auto one = std::make_shared<clusters::Cluster>(*cluster("dgx-a100", 1));
  if (memory > 0) one->devices[0].memory = base::Bytes{memory};
  return one;
}

inline plan::Job gpt2_job(int micro_batch) {
  plan::Job job;
  job.batch = 32, job.sequence = 1024;
  job.precision = models::DType::bf16;
  job.bounds.shape.micro_batch = {micro_batch};
  return job;
}

inline cost::SearchResult search_gpt2(const plan::Job& job, double memory) {
  const auto one = one_a100(memory);
  const cost::Pricing pricing(one, stack("orrery-cuda"));
  return search(model("gpt2-124m"), one, job, pricing);
}

}  // namespace orrery::sim::testing
