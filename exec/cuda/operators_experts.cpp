// Operators of mixtures of experts: sizes and operands as models/operators/op.h fixes them.
#include <algorithm>

#include "base/ensure.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/call.h"
#include "exec/cuda/kernels/experts.h"
#include "exec/engine/routing.h"

namespace orrery::exec::cuda {
namespace {

using models::DType;
using models::Op;
using models::OpKind;
using models::TokenCodec;

/// `counts`: which input says how many rows there are.
RowSlots slots_of(const Call& call, std::size_t counts) {
  const Op& op = call.op;
  return {call.ids(counts, op.slots * op.experts), op.slots, op.experts, op.capacity};
}

TokenPlaces places_of(const Call& call, std::size_t place) {
  const Op& op = call.op;
  return {call.ids(place, op.n * op.chosen), op.n, op.chosen, op.m};
}

std::int32_t* ids_output(const Call& call, std::size_t index, std::int64_t elements) {
  return reinterpret_cast<std::int32_t*>(call.checked(false, index, elements).data);
}

RouterShape router_of(const Call& call) {
  const Op& op = call.op;
  ENSURE(op.chosen >= 1 && op.chosen <= op.m && op.m % op.routing.groups == 0, "{} of {} experts in {} groups",
         op.chosen, op.m, op.routing.groups);
  ENSURE(op.chosen <= op.routing.groups_chosen * (op.m / op.routing.groups), "{} experts of {} groups of {}", op.chosen,
         op.routing.groups_chosen, op.m / op.routing.groups);
  return {op.n, op.m, op.chosen, op.routing, call.context.layer.written()};
}

// op.scale is 1/N over the tokens and layers of the step: as exec/cpu/operators_route.cpp.
void run_route_grad(const Call& call) {
  const Op& op = call.op;
  RouteGradient g;
  g.dweights = call.input(0, op.n * op.chosen);
  g.logits = call.input(1, op.n * op.m);
  g.scores = call.input(2, op.n * op.m);
  g.choice = call.ids(3, op.n * op.chosen);
  g.weights = call.input(4, op.n * op.chosen);
  g.load = call.optional(5, op.m);
  g.scaling = call.optional(6, 1);
  ENSURE(g.load != nullptr || op.routing.aux == 0, "a load-balancing loss without the load");
  g.dlogits = call.output(0, op.n * op.m);
  g.aux = static_cast<float>(op.routing.aux * static_cast<double>(op.m) * op.scale * op.scale);
  g.z = static_cast<float>(2 * op.routing.z * op.scale);
  route_grad(call.stream, router_of(call), g);
}

void run_place_rows(const Call& call, ExpertFaults* faults) {
  const Op& op = call.op;
  const std::int64_t limit = op.routing.token_limit, count = op.n * op.chosen;
  ENSURE(limit == 0 || op.n == op.batch * op.sequence, "{} tokens are not {} sequences of {}", op.n, op.batch,
         op.sequence);
  RowPlaces places{call.ids(0, count), count, limit > 0 ? op.sequence * op.chosen : count, limit,
                   call.context.layer.written()};
  places.place = ids_output(call, 0, count);
  places.counts = ids_output(call, 1, op.slots * op.experts);
  place_rows(call.stream, places, {places.counts, op.slots, op.experts, op.capacity}, faults, call.scratch);
}

template <class T>
void run_way(const Call& call) {
  const Op& op = call.op;
  const std::int64_t tokens = op.n * op.m, rows = op.slots * op.capacity * op.m, choices = op.n * op.chosen;
  if (op.kind == OpKind::dispatch)
    dispatch(call.stream, places_of(call, 1), call.input<T>(0, tokens), call.optional(2, choices),
             call.output<T>(0, rows));
  else if (op.kind == OpKind::combine)
    combine(call.stream, places_of(call, 1), call.input<T>(0, rows), call.optional(2, choices),
            call.output<T>(0, tokens));
  else
    combine_weight_grad(call.stream, places_of(call, 2), call.input<T>(0, tokens), call.input<T>(1, rows),
                        call.output(0, choices));
}

// Codes in 8 bits want a scale for each expert's rows.
void refuse_fp8(const Op& op, DType rows) {
  if (op.rounded && rows != DType::fp32)
    throw Failure("experts' products in fp8 are planned and priced, and no backend computes them yet: precision bf16",
                  FailureKind::environment);
}

template <class T>
void run_grouped(const Call& call) {
  const Op& op = call.op;
  const std::int64_t rows = op.slots * op.capacity, size = op.experts * op.n * op.k;
  GroupedProduct<T> p;
  p.n = op.n, p.k = op.k;
  p.first = call.input<T>(1, size);
  p.second = call.optional<T>(3, size);
  p.transposed = op.trans_b, p.tf32 = op.rounded;
  const std::int64_t products = p.second ? 2 : 1;
  p.a = call.input<T>(0, rows * (p.transposed ? p.k : products * p.k));
  p.c = call.output<T>(0, rows * (p.transposed ? products * p.n : p.n));
  grouped_matmul(call.stream, slots_of(call, 2), p, call.scratch);
}

template <class T>
void run_grouped_gradient(const Call& call) {
  using G = GradientOf<T>;
  const Op& op = call.op;
  const std::int64_t rows = op.slots * op.capacity, size = op.experts * op.m * op.n;
  GroupedWeightGradient<T> g;
  g.m = op.m, g.n = op.n;
  g.first = call.output<G>(0, size);
  g.second = call.optional_output<G>(1, size);
  g.adds = op.accumulate, g.tf32 = op.rounded;
  g.dy = call.input<T>(0, rows * (g.second ? 2 : 1) * g.m);
  g.x = call.input<T>(1, rows * g.n);
  grouped_weight_grad(call.stream, slots_of(call, 2), g);
}

template <class T>
void run_bias(const Call& call) {
  const Op& op = call.op;
  const std::int64_t rows = op.slots * op.capacity * op.m, size = op.experts * op.m;
  if (op.kind == OpKind::expert_bias) {
    const T* const second = call.optional<T>(3, size);
    const std::int64_t all = (second ? 2 : 1) * rows;
    return expert_bias(call.stream, slots_of(call, 2), call.input<T>(0, all), call.input<T>(1, size), second,
                       call.output<T>(0, all), op.m, static_cast<float>(op.scale), call.scratch);
  }
  using G = GradientOf<T>;
  G* const second = call.optional_output<G>(1, size);
  expert_bias_grad<T>(call.stream, slots_of(call, 1), call.input<T>(0, (second ? 2 : 1) * rows),
                      call.output<G>(0, size), second, op.m);
}

template <class T>
void run_codec(const Call& call) {
  const Op& op = call.op;
  const bool encodes = op.kind == OpKind::encode_rows;
  const std::int64_t rows = op.slots * op.capacity;
  const Operand& coded = call.checked(!encodes, 0, rows * op.k);
  ENSURE(coded.dtype == models::dtype_of(op.codec), "rows in {}", models::name_of(coded.dtype));
  if (encodes)
    encode_rows(call.stream, slots_of(call, 1), op.codec, call.input<T>(0, rows * op.m), coded.data, op.m, op.k,
                call.scratch);
  else
    decode_rows(call.stream, slots_of(call, 1), op.codec, coded.data, call.output<T>(0, rows * op.m), op.m, op.k,
                call.scratch);
}

template <class T>
void run_gate(const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  if (call.op.kind == OpKind::row_gate)
    row_gate(call.stream, call.input<T>(0, n * m), call.input(1, n), call.output<T>(0, n * m), n, m);
  else
    row_gate_grad(call.stream, call.input<T>(0, n * m), call.input<T>(1, n * m), call.input(2, n),
                  call.output<T>(0, n * m), call.output(1, n), n, m);
}

template <class T>
void run_in_slots(const Call& call) {
  const Op& op = call.op;
  const OpKind kind = op.kind;
  SlotActivation one;
  one.function = models::function_of(op);
  one.rectifies = kind == OpKind::relu || kind == OpKind::relu_grad;
  one.gates =
      kind == OpKind::swiglu || kind == OpKind::gate || kind == OpKind::swiglu_grad || kind == OpKind::gate_grad;
  one.columns = op.m;
  ENSURE(op.n == op.slots * op.capacity, "{} rows in {} slots of {}", op.n, op.slots, op.capacity);
  const RowSlots slots = slots_of(call, call.in.size() - 1);
  const std::int64_t size = op.n * op.m, wide = one.gates ? 2 * size : size;
  const bool backward = call.in.size() == 3;
  if (backward)
    activate_slots_grad(call.stream, slots, one, call.input<T>(0, size), call.input<T>(1, wide),
                        call.output<T>(0, wide), call.scratch);
  else
    activate_slots(call.stream, slots, one, call.input<T>(0, wide), call.output<T>(0, size), call.scratch);
}

template <class A, class B, class C>
void run_mixed(const Call& call) {
  const Op& op = call.op;
  mixed_product(call.stream, MixedProduct<A, B, C>{call.input<A>(0, op.m * op.k), call.input<B>(1, op.k * op.n),
                                                   call.output<C>(0, op.m * op.n), op.m, op.n, op.k, op.trans_a,
                                                   op.trans_b, op.accumulate, static_cast<float>(op.scale)});
}

}  // namespace

bool runs_in_slots(const Op& op) {
  constexpr OpKind kinds[] = {OpKind::gate,     OpKind::gate_grad,    OpKind::swiglu, OpKind::swiglu_grad,
                              OpKind::gelu,     OpKind::gelu_grad,    OpKind::relu,   OpKind::relu_grad,
                              OpKind::activate, OpKind::activate_grad};
  return op.slots > 0 && std::find(std::begin(kinds), std::end(kinds), op.kind) != std::end(kinds);
}

bool run_mixed_product(const Call& call) {
  const DType a = call.checked(true, 0, 0).dtype, b = call.checked(true, 1, 0).dtype;
  if (a == b) return false;
  const DType c = call.checked(false, 0, 0).dtype, narrow = a == DType::fp32 ? b : a;
  ENSURE(!Call::has(call.in, 2) && !call.op.rounded, "a product of {} and {} with a bias, or rounded",
         models::name_of(a), models::name_of(b));
  if (a != DType::fp32 && b != DType::fp32) return false;
  by_type(narrow, "matmul", [&]<class T>(std::type_identity<T>) {
    if constexpr (!std::is_same_v<T, float>) {
      if (b == DType::fp32) return run_mixed<T, float, T>(call);
      if (c == DType::fp32) return run_mixed<float, T, float>(call);
      run_mixed<float, T, T>(call);
    }
  });
  return true;
}

void CudaBackend::run_experts(const Call& call) {
  const Op& op = call.op;
  if (!expert_faults_.data()) {
    if (capturing_) throw Failure("CUDA: memory cannot be taken within a graph");
    expert_faults_ = DeviceMemory(sizeof(ExpertFaults), "allocating what is wrong with experts");
    expert_faults_read_ = PinnedMemory(sizeof(ExpertFaults));
    check(cudaMemsetAsync(expert_faults_.data(), 0, sizeof(ExpertFaults), call.stream), "clearing faults");
  }
  auto* const faults = static_cast<ExpertFaults*>(expert_faults_.data());
  const std::int64_t tally = 2 * op.m + 1;
  const auto typed = [&](const Operand& of, const auto& body) { by_type(of.dtype, models::name_of(op.kind), body); };
  const auto first = [&]() -> const Operand& { return call.checked(true, 0, 0); };
  if (op.kind == OpKind::route)
    return route(call.stream, router_of(call), call.input(0, op.n * op.m), call.optional(1, op.m),
                 call.output(0, op.n * op.m), ids_output(call, 1, op.n * op.chosen), call.output(2, op.n * op.chosen),
                 faults);
  if (op.kind == OpKind::route_grad) return run_route_grad(call);
  if (op.kind == OpKind::count_choices)
    return count_choices(call.stream, router_of(call), call.input(0, op.n * op.m), call.ids(1, op.n * op.chosen),
                         call.output(0, tally), call.scratch);
  if (op.kind == OpKind::place_rows) return run_place_rows(call, faults);
  if (op.kind == OpKind::balance_losses)
    return balance_losses(call.stream, call.input(0, tally), op.m, static_cast<double>(op.n), call.output(0, 2));
  if (op.kind == OpKind::balance_bias)
    return balance_bias(call.stream, call.input(0, tally), op.m, op.scale, call.output(0, op.m));
  if (op.kind == OpKind::dispatch || op.kind == OpKind::combine || op.kind == OpKind::combine_weight_grad)
    return typed(first(), [&]<class T>(std::type_identity<T>) { run_way<T>(call); });
  if (op.kind == OpKind::grouped_matmul || op.kind == OpKind::grouped_weight_grad) {
    refuse_fp8(op, first().dtype);
    return typed(first(), [&]<class T>(std::type_identity<T>) {
      op.kind == OpKind::grouped_matmul ? run_grouped<T>(call) : run_grouped_gradient<T>(call);
    });
  }
  if (op.kind == OpKind::expert_bias || op.kind == OpKind::expert_bias_grad)
    return typed(first(), [&]<class T>(std::type_identity<T>) { run_bias<T>(call); });
  if (op.kind == OpKind::encode_rows || op.kind == OpKind::decode_rows)
    return typed(op.kind == OpKind::encode_rows ? first() : call.checked(false, 0, 0),
                 [&]<class T>(std::type_identity<T>) { run_codec<T>(call); });
  if (op.kind == OpKind::row_gate || op.kind == OpKind::row_gate_grad)
    return typed(first(), [&]<class T>(std::type_identity<T>) { run_gate<T>(call); });
  typed(first(), [&]<class T>(std::type_identity<T>) { run_in_slots<T>(call); });
}

void CudaBackend::read_expert_faults() {
  if (!expert_faults_.data()) return;
  check(cudaMemcpyAsync(expert_faults_read_.data(), expert_faults_.data(), sizeof(ExpertFaults), cudaMemcpyDeviceToHost,
                        stream_.get()),
        "reading what is wrong with experts");
}

void CudaBackend::throw_expert_faults() {
  if (!expert_faults_.data()) return;
  const auto wrong = *reinterpret_cast<const ExpertFaults*>(expert_faults_read_.data());
  if (wrong.token == 0 && wrong.rows == 0) return;
  check(cudaMemsetAsync(expert_faults_.data(), 0, sizeof(ExpertFaults), stream_.get()), "clearing faults");
  if (wrong.token != 0) {
    const unsigned long long first = ~wrong.token;
    throw Failure(scores_not_finite({plan::LayerId::read(static_cast<std::int64_t>(first >> 32) - 1), step_is_.step},
                                    static_cast<std::int64_t>(first & 0xFFFFFFFFULL)));
  }
  throw Failure(slot_overflow({plan::LayerId::read(wrong.layer), step_is_.step}, wrong.slot, wrong.experts, wrong.rows,
                              wrong.capacity));
}

}  // namespace orrery::exec::cuda
