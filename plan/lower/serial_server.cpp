// Workers of a parameter server in turn.
#include "plan/lower/serial_server.h"

#include <fmt/core.h>

#include <utility>

#include "models/operators/operators.h"
#include "plan/lower/serial_turns.h"
#include "plan/outline/outline.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

// Worker `w`'s gradients, as the server has them.
int received(SerialStep& to, BucketId bucket, int w) {
  const std::int64_t n = to.made.buckets[bucket].elements;
  return to.part(to.made.buckets[bucket].received, w * n, n);
}

void update_in_turns(SerialStep& to, int workers, BufferId norms, BufferId coefficients) {
  Op largest =
      to.build.flat(OpKind::softmax_max, DType::fp32, workers, {to.whole(norms)}, {to.whole(to.made.gradient_norm)});
  largest.n = 1;
  largest.vocab = workers;
  Step worst = to.step_of(Phase::reporting, "norm", {std::move(largest)});
  Block& finish = to.block("finish");
  std::erase_if(finish.steps, [](const Step& step) { return step.part == "norm" || step.part == "clip"; });
  finish.steps.insert(finish.steps.begin(), std::move(worst));
  for (Step& step : finish.steps) {
    if (!step.bucket) continue;
    std::vector<Op> all;
    for (const Op& op : step.ops)
      for (int w = 0; w < workers; ++w) {
        all.push_back(op);
        all.back().turn = w;
        all.back().turns = workers;
        all.back().in.at(0) = received(to, step.bucket, w);
        all.back().in.at(1) = to.part(coefficients, w, 1);
      }
    step.ops = std::move(all);
    to.settle(step);
  }
}

}  // namespace

void serve_in_turns(SerialStep& to, const Plan& split) {
  const int workers = split.spec().mesh.data;
  const DType gradient = gradient_dtype(split.spec().numerics.precision);
  for (const char* pass : {"forward", "backward"})
    for (Step& step : to.block(pass).steps)
      for (Op& op : step.ops)
        if (models::traits_of(op).loss_gradient) op.scale *= workers;
  ReplicaTurns turns(to, split, {}, false);
  const BufferId squared = to.persistent("worker_norm_squared", Purpose::scalars, DType::fp32, 1),
                 norms = to.persistent("worker_norms", Purpose::scalars, DType::fp32, workers),
                 coefficients = to.persistent("clip_coefficients", Purpose::scalars, DType::fp32, workers);
  for (const OwnGradients& one : turns.own()) {
    Bucket& bucket = to.made.buckets[one.bucket];
    bucket.received =
        to.persistent(bucket.name + ".received", Purpose::communication, gradient, bucket.elements * workers);
  }
  for (int w = 0; w < workers; ++w) {
    std::vector<Op> ops = {to.build.zero_of(squared)};
    for (const OwnGradients& one : turns.own()) {
      ops.push_back(to.build.flat(OpKind::copy, gradient, to.made.buckets[one.bucket].elements,
                                  {to.whole(one.gradients)}, {received(to, one.bucket, w)}));
      ops.push_back(to.build.flat(OpKind::norm_squared, gradient, to.made.buckets[one.bucket].elements,
                                  {received(to, one.bucket, w)}, {to.whole(squared)}));
      ops.back().accumulate = true;
    }
    ops.push_back(to.build.flat(OpKind::clip_coefficient, DType::fp32, 1, {to.whole(squared)},
                                {to.part(norms, w, 1), to.part(coefficients, w, 1)}));
    turns.turns().front().take.push_back(to.block_of(fmt::format("take.{}", w), Phase::optimizer, std::move(ops)));
  }
  update_in_turns(to, workers, norms, coefficients);
  to.made.program.clear();
  to.enter("begin");
  turns.run(0, split.micro_batches());
  to.enter("finish");
}

}  // namespace orrery::plan
