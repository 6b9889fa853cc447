#pragma once
/// Pipelines of passes that take a time, without layers.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "cost/estimate/least_end.h"
#include "cost/estimate/pipeline.h"

namespace orrery::cost::testing {

/// `prelude`: seconds that run before the pass reads what another stage sends. `splits`: only its end frees what the
/// stage has sent.
inline PassProgram pass_of(double length, double prelude, bool splits) {
  PassProgram pass;
  if (prelude > 0) pass.steps.push_back({.time = ticks(prelude)});
  pass.input = pass.steps.size();
  pass.steps.push_back({.reads_input = true, .time = ticks(length - prelude)});
  if (splits) {
    pass.freed = pass.steps.size();
    pass.steps.push_back({});
  }
  return pass;
}

struct PassTimes {
  double forward = 0, backward = 0, weights = 0, prelude = 0;
  double update = 0;  ///< of an asynchronous order
};
inline ChunkPrograms chunk_of(const PassTimes& t, bool splits) {
  ChunkPrograms chunk;
  chunk.forward = pass_of(t.forward, 0, false);
  chunk.backward = pass_of(t.backward, t.prelude, splits);
  chunk.weights = pass_of(t.weights, 0, splits);
  return chunk;
}

/// By stage, as many equal chunks as there are virtual stages.
struct PlainPipeline {
  std::vector<PassTimes> stages;
  double hop = 0;
  int chunks = 1;
  bool overlaps = false;  ///< receives move while a rank computes
  plan::Order order = plan::Order::one_f_one_b;
  bool tied = false;  ///< the ends wait for each other before they update

  [[nodiscard]] plan::PlanSpec spec() const {
    plan::PlanSpec spec;
    spec.stages.order = order;
    spec.mesh.pipeline = static_cast<int>(stages.size());
    spec.stages.virtual_stages = chunks;
    return spec;
  }
  [[nodiscard]] PipelineTimes times() const {
    PipelineTimes times;
    times.overlaps.fill(overlaps);
    for (const PassTimes& one : stages) {
      const auto chunk = std::make_shared<const ChunkPrograms>(chunk_of(one, spec().stages.splits_backward()));
      times.stages.push_back({std::vector(static_cast<std::size_t>(chunks), chunk), {}, one.update});
    }
    times.tied = tied;
    times.hop.assign(stages.size(), hop);
    return times;
  }
  [[nodiscard]] PipelineResult run(std::int64_t micro_batches) const {
    MovesMemo moves;
    return pipeline(times(), spec(), micro_batches, moves);
  }
  /// Seconds until all stages have ended, and a lower bound of that.
  [[nodiscard]] double makespan(std::int64_t micro_batches) const { return last(run(micro_batches).end); }
  [[nodiscard]] double least(std::int64_t micro_batches) const {
    return last(least_end(times(), spec(), micro_batches));
  }

 private:
  static double last(const std::vector<double>& ends) { return *std::max_element(ends.begin(), ends.end()); }
};

inline std::vector<PassTimes> equal_stages(int stages, const PassTimes& each) {
  return std::vector<PassTimes>(static_cast<std::size_t>(stages), each);
}

}  // namespace orrery::cost::testing
