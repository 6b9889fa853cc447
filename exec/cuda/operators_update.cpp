// Norms, loss scaling and updates: operands as models/operators/op.h fixes them.
#include <cmath>

#include "exec/cuda/backend.h"
#include "exec/cuda/call.h"
#include "exec/cuda/dropout.h"
#include "exec/engine/quantised.h"

namespace orrery::exec::cuda {
namespace {

using models::OpKind;

UpdateStep update_step(const Call& call, std::size_t scaling, const StepValues* now) {
  const StepContext& c = call.context;
  UpdateStep step;
  step.now = now;
  step.turn = call.op.turn;
  step.turns = call.op.turns;
  step.beta1 = c.beta1;
  step.beta2 = c.beta2;
  step.epsilon = c.epsilon;
  step.decay = c.weight_decay;
  step.momentum = c.momentum;
  step.nesterov = c.nesterov;
  step.rule = call.op.rule;
  step.adaptive = c.adaptive;
  step.clip_update = c.clip_update;
  step.decay_power = c.decay_power;
  step.matrix_decay = c.matrix_decay;
  step.coefficient =
      call.op.kind == OpKind::lamb || call.op.kind == OpKind::factor_moments ? nullptr : call.optional(1, 1);
  step.scaling = call.optional(scaling, 4);
  step.stochastic = call.op.stochastic;
  step.seed = c.seed;
  return step;
}

Target target_of(const Call& call, std::size_t copy) {
  const Target target{call.output_floats(0, call.op.m), call.optional_output_floats(copy, call.op.m)};
  if (call.op.stochastic && target.parameter.type != Stored::bf16)
    throw Failure("the CUDA backend rounds at random to bf16 only");
  return target;
}

DeviceBook device_book(const CodeBook& book) {
  DeviceBook out{};
  for (std::size_t i = 0; i < book.values.size(); ++i) out.values[i] = book.values[i];
  for (std::size_t i = 0; i < book.bounds.size(); ++i) out.bounds[i] = book.bounds[i];
  out.bounds[kCodes - 1] = INFINITY;
  out.zero = book.zero;
  return out;
}

}  // namespace

// Both books on the device, copied at the first use.
const DeviceBook* CudaBackend::code_books() {
  if (!books_.data()) {
    const DeviceBook both[2] = {device_book(signed_codes()), device_book(unsigned_codes())};
    books_ = DeviceMemory(sizeof(both), "allocating code books");
    check(cudaMemcpyAsync(books_.data(), both, sizeof(both), cudaMemcpyHostToDevice, stream_.get()),
          "copying code books");
    check(cudaStreamSynchronize(stream_.get()), "copying code books");
  }
  return static_cast<const DeviceBook*>(books_.data());
}

void CudaBackend::put_step_values(const StepValues& values) {
  if (step_known_ && step_is_ == values) return;
  if (capturing_) throw Failure("CUDA: a graph's operator is of another step than the one that runs");
  step_is_ = values;
  step_known_ = true;
  set_step_values(stream_.get(), static_cast<StepValues*>(step_values_.data()), step_is_);
}

void CudaBackend::begin_step(const StepContext& context) {
  release();
  put_step_values({context.step, context.learning_rate, context.matrix_rate});
}

// In an update that takes turns, each turn counts as a step in the context; kernels need the training step, so it is
// computed back.
const StepValues* CudaBackend::step_values(const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t training = op.turns > 1 ? (call.context.step - op.turn) / op.turns : call.context.step;
  put_step_values({training, call.context.learning_rate, call.context.matrix_rate});
  return static_cast<const StepValues*>(step_values_.data());
}

DropoutDraw CudaBackend::dropout_draw(const models::Op& op, const StepContext& context) {
  if (!step_known_) begin_step(context);
  return draw_of(op, context, &static_cast<const StepValues*>(step_values_.data())->step, step_is_.step);
}

void CudaBackend::update(const Call& call, std::span<const ElementRange> ranges) {
  const models::Op& op = call.op;
  const std::int64_t m = op.m;
  const auto tables = [&](Cut cut) -> const Tables& { return ranges_.find(ranges, m, cut, stream_.get()); };
  const auto step_of = [&](const Call& of, std::size_t scaling) { return update_step(of, scaling, step_values(of)); };
  std::int64_t norms = 2;  // elements: two for each parameter that a range names
  for (const ElementRange& range : ranges) norms = std::max(norms, 2 * (range.norms + 1));
  if (op.kind == OpKind::norm_squared)
    return norm_squared(call.stream, call.input_floats(0, m), tables(Cut::tiles), call.output(0, 1));
  if (op.kind == OpKind::clip_coefficient)
    return clip_coefficient(call.stream, call.input(0, 1), call.optional(1, 4), call.output(0, 1), call.output(1, 1),
                            static_cast<float>(call.context.clip_norm));
  if (op.kind == OpKind::overflow) return overflow(call.stream, call.input(0, 1), call.output(0, 1));
  if (op.kind == OpKind::loss_scale)
    return loss_scale(call.stream, call.output(0, 4), static_cast<float>(call.context.scale_factor),
                      static_cast<float>(call.context.scale_interval));
  if (op.kind == OpKind::adamw)
    return adamw(call.stream, call.input_floats(0, m), target_of(call, 3), call.output_floats(1, m),
                 call.output_floats(2, m), tables(Cut::tiles), step_of(call, 2));
  if (op.kind == OpKind::momentum_update)
    return momentum_update(call.stream, call.input_floats(0, m), target_of(call, 2), call.optional_output(1, m),
                           tables(Cut::tiles), step_of(call, 2));
  if (op.kind == OpKind::lamb_moments)
    return lamb_moments(call.stream, call.input_floats(0, m), call.input_floats(2, m), call.output(0, m),
                        call.output(1, m), call.output(2, norms), tables(Cut::tiles), step_of(call, 3));
  if (op.kind == OpKind::lamb)
    return lamb(call.stream, call.input(0, m), call.input(1, m), call.input(2, norms), target_of(call, 1),
                tables(Cut::tiles), step_of(call, 3));
  if (op.kind == OpKind::factor_sums)
    return factor_sums(call.stream, call.input_floats(0, m), call.output(0, op.k), tables(Cut::rows),
                       step_of(call, call.in.size()));
  if (op.kind == OpKind::factor_moments)
    return factor_moments(call.stream, call.input(0, m), call.output(0, m), m, step_of(call, 1));
  if (op.kind == OpKind::factor_norms)
    return factor_norms(call.stream, call.input_floats(0, m), call.input_floats(2, m), call.input(3, op.k),
                        call.output(0, norms), tables(Cut::rows), step_of(call, call.in.size()));
  if (op.kind == OpKind::adafactor)
    return adafactor(call.stream, call.input_floats(0, m), call.input(2, op.k), call.input(3, norms),
                     target_of(call, 1), tables(Cut::rows), step_of(call, 4));
  if (op.kind == OpKind::adamw_8bit) {
    const std::int64_t blocks = m / models::kQuantisedBlock;
    const Moments8 moments{reinterpret_cast<std::uint8_t*>(call.checked(false, 1, m).data),
                           reinterpret_cast<std::uint8_t*>(call.checked(false, 2, m).data), call.output(3, blocks),
                           call.output(4, blocks)};
    const DeviceBook* books = code_books();
    const Tables of_blocks = tables(Cut::blocks);
    return adamw_8bit(call.stream, call.input_floats(0, m), target_of(call, 5), moments, books, books + 1, of_blocks,
                      tables(Cut::tiles), step_of(call, 2));
  }
  if (op.kind == OpKind::muon_moments)
    return muon_moments(call.stream, call.input_floats(0, m), call.output(0, m), call.output(1, m), m,
                        tables(Cut::tiles), step_of(call, 2));
  if (op.kind == OpKind::muon)
    return muon(call.stream, call.input_floats(0, m), call.input(2, m), target_of(call, 3), call.output(1, m),
                op.k > 0 ? call.output(2, op.k) : nullptr, tables(Cut::tiles), step_of(call, 3));
  throw Failure(fmt::format("the CUDA backend has no {} yet", models::name_of(op.kind)));
}

}  // namespace orrery::exec::cuda
