// The CPU backend: arena, clock, and dispatch from an operator's kind to its code.
#include "exec/cpu/backend.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "base/ensure.h"
#include "base/units.h"
#include "exec/cpu/blas_core.h"
#include "exec/cpu/dispatch.h"
#include "exec/cpu/onednn.h"
#include "exec/engine/half.h"
#include "exec/failure.h"
#include "models/operators/operators.h"
#include "models/operators/run_alone.h"

// Weak: only OpenBLAS has threads of its own that must be turned off.
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace orrery::exec {
namespace {

using models::OpKind;
using models::Types;

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

/// From this size on, arenas ask for large pages (2 MiB). For smaller ones, rounding up to a page would show in the
/// process's memory. A step with a 50 MiB arena ran 3 % faster with them.
constexpr std::size_t large_arena = std::size_t{4} << 20;

// Each slot's rows stand at its start, fewer than it has room for. `run` gets one slot at a time, as an operator of
// that number of rows.
void run_by_slots(const Call& call, const std::function<void(const Call&)>& run) {
  const models::Op& op = call.op;
  ENSURE(op.n == op.slots * op.capacity && !call.in.empty(), "{} rows in {} slots of {}", op.n, op.slots, op.capacity);
  const std::int32_t* counts = call.ids(call.in.size() - 1, op.slots * op.experts);
  models::Op part = op;
  part.slots = part.experts = part.capacity = 0;
  for (std::int64_t slot = 0; slot < op.slots; ++slot) {
    part.n = std::accumulate(counts + slot * op.experts, counts + (slot + 1) * op.experts, std::int64_t{0});
    ENSURE(part.n >= 0 && part.n <= op.capacity, "{} rows in a slot of {}", part.n, op.capacity);
    if (part.n == 0) continue;
    const auto of_slot = [&](Operand whole) {
      if (whole.data == nullptr) return whole;
      ENSURE(whole.elements % op.n == 0, "{} elements in {} rows", whole.elements, op.n);
      const std::int64_t width = whole.elements / op.n;
      return Operand{whole.data + slot * op.capacity * width * models::size_of(whole.dtype), part.n * width,
                     whole.dtype};
    };
    std::vector<Operand> in, out;
    std::transform(call.in.begin(), call.in.end() - 1, std::back_inserter(in), of_slot);
    std::transform(call.out.begin(), call.out.end(), std::back_inserter(out), of_slot);
    run({part, in, out, call.ranges, call.context});
  }
}

}  // namespace

CpuBackend::CpuBackend(int threads, const Kernels& kernels, std::int64_t device_memory)
    : machine_(threads, kernels), device_memory_(device_memory) {
  // The pool divides matrix products. OpenBLAS's own threads would keep spinning for tens of milliseconds after each,
  // on cores that other ranks need.
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

CpuBackend::~CpuBackend() {
  for (const Arena& arena : arenas_) munmap(arena.data, arena.bytes);
}

std::string CpuBackend::device_name() const {
  const std::string core = blas_core();
  const std::string onednn = onednn_version();
  return fmt::format("{}, {}, {} kernels, {}{}", processor_name(), base::count_of(machine_.pool.threads(), "thread"),
                     machine_.kernels.name, onednn.empty() ? std::string() : "oneDNN " + onednn + " and ",
                     core.empty() ? std::string("CBLAS") : "OpenBLAS " + core);
}

std::byte* CpuBackend::allocate_arena(std::int64_t bytes) {
  if (device_memory_ > 0 && bytes > device_memory_)
    throw Failure(fmt::format("the plan needs {} bytes of device memory, but the cluster's device has {}: recompute, "
                              "offload or split more of the model",
                              bytes, device_memory_),
                  FailureKind::environment);
  return map(bytes, "an arena");
}

std::byte* CpuBackend::allocate_host(std::int64_t bytes) {
  return map(bytes, "the host's arena");
}

std::byte* CpuBackend::map(std::int64_t bytes, const char* what) {
  const std::size_t size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw Failure(fmt::format("cannot allocate {} of {} bytes: {}", what, bytes, std::strerror(errno)),
                  FailureKind::environment);
  // Large pages, if the system has them: streams over whole parameters run up to twice as fast. Only advice.
  if (size >= large_arena) madvise(data, size, MADV_HUGEPAGE);
  arenas_.push_back({static_cast<std::byte*>(data), size});
  return arenas_.back().data;
}

void CpuBackend::copy_to_device(std::byte* device, std::span<const std::byte> host) {
  if (!host.empty()) std::memcpy(device, host.data(), host.size());
}
void CpuBackend::copy_to_host(std::span<std::byte> host, const std::byte* device) {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
}

Backend::Mark CpuBackend::mark() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}
double CpuBackend::seconds_between(Mark from, Mark to) {
  return static_cast<double>(to - from) * 1e-9;
}

std::int64_t CpuBackend::scratch_bytes() const {
  return machine_.scratch.bytes() + machine_.widened.bytes() + machine_.rope.bytes();
}

void CpuBackend::run(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out,
                     std::span<const ElementRange> ranges, const StepContext& context) {
  if (op.dtype != models::DType::fp32 && !is_16_bit(op.dtype) && models::traits_of(op).types != Types::moves)
    throw Failure(fmt::format("the CPU backend computes in fp32, bf16 and fp16, not {} in {}", models::name_of(op.kind),
                              models::name_of(op.dtype)));
  const Call call{op, in, out, ranges, context};
  if (op.slots > 0 && models::traits_of(op).in_slots == models::InSlots::may)
    return run_by_slots(call, [this](const Call& part) { run_in_its_type(part); });
  run_in_its_type(call);
}

void CpuBackend::run_in_its_type(const Call& call) {
  const models::Op& op = call.op;
  if (has_16_bit(call) && models::traits_of(op).types == Types::computes)
    return run_widened(machine_, call, [this](const Call& wide) { run_in_fp32(wide); });
  if (op.kind == OpKind::matmul && op.rounded) return run_matmul_by_panels(machine_, call);  // tf32
  run_in_fp32(call);
}

void CpuBackend::run_in_fp32(const Call& call) {
  const models::Op& op = call.op;
  switch (op.kind) {
    case OpKind::load_tokens: throw Failure("load_tokens is for the executor: it has no arithmetic");
    case OpKind::embedding: return run_embedding(machine_, call);
    case OpKind::position_add: return run_position_add(machine_, call);
    case OpKind::embedding_grad: return run_embedding_grad(machine_, call);
    case OpKind::position_grad: return run_position_grad(machine_, call);
    case OpKind::layer_norm:
    case OpKind::rms_norm: return run_norm(machine_, call);
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm_grad: return run_norm_grad(machine_, call);
    case OpKind::matmul: return run_matmul(machine_, call);
    case OpKind::bias_grad: return run_bias_grad(machine_, call);
    case OpKind::rope: return run_rope(machine_, call, false);
    case OpKind::rope_grad: return run_rope(machine_, call, true);
    case OpKind::attention: return run_attention(machine_, call);
    case OpKind::attention_grad: return run_attention_grad(machine_, call);
    case OpKind::ring_attention: return run_ring_attention(machine_, call);
    case OpKind::ring_attention_grad: return run_ring_attention_grad(machine_, call);
    case OpKind::split_kv: return run_split_kv(machine_, call);
    case OpKind::merge_kv: return run_merge_kv(machine_, call);
    case OpKind::add_bias: return op.dropout > 0 ? run_add_dropped(machine_, call) : run_add_bias(machine_, call);
    case OpKind::add: return run_add(machine_, call);
    case OpKind::softmax_max: return run_softmax_max(machine_, call);
    case OpKind::softmax_sum: return run_softmax_sum(machine_, call);
    case OpKind::cross_entropy: return run_cross_entropy(machine_, call);
    case OpKind::cross_entropy_grad: return run_cross_entropy_grad(machine_, call);
    case OpKind::fill_zero: return run_fill_zero(machine_, call);
    case OpKind::copy: return run_copy(machine_, call);
    case OpKind::accumulate_into: return run_accumulate(machine_, call);
    case OpKind::norm_squared: return run_norm_squared(machine_, call);
    case OpKind::clip_coefficient: return run_clip_coefficient(machine_, call);
    case OpKind::overflow: return run_overflow(machine_, call);
    case OpKind::loss_scale: return run_loss_scale(machine_, call);
    case OpKind::adamw: return run_adamw(machine_, call);
    case OpKind::momentum_update: return run_momentum_update(machine_, call);
    case OpKind::lamb_moments: return run_lamb_moments(machine_, call);
    case OpKind::lamb: return run_lamb(machine_, call);
    case OpKind::factor_sums: return run_factor_sums(machine_, call);
    case OpKind::factor_moments: return run_factor_moments(machine_, call);
    case OpKind::factor_norms: return run_factor_norms(machine_, call);
    case OpKind::adafactor: return run_adafactor(machine_, call);
    case OpKind::adamw_8bit: return run_adamw_8bit(machine_, call);
    case OpKind::muon_moments: return run_muon_moments(machine_, call);
    case OpKind::newton_schulz: return run_newton_schulz(machine_, call);
    case OpKind::muon: return run_muon(machine_, call);
    case OpKind::type_add: return run_type_add(machine_, call);
    case OpKind::type_grad: return run_type_grad(machine_, call);
    case OpKind::gather_rows: return run_gather_rows(machine_, call);
    case OpKind::scatter_rows: return run_scatter_rows(machine_, call);
    case OpKind::tanh: return run_tanh(machine_, call);
    case OpKind::tanh_grad: return run_tanh_grad(machine_, call);
    case OpKind::gelu_erf: return run_gelu_erf(machine_, call);
    case OpKind::gelu_erf_grad: return run_gelu_erf_grad(machine_, call);
    case OpKind::class_loss: return run_class_loss(machine_, call);
    case OpKind::class_loss_grad: return run_class_loss_grad(machine_, call);
    case OpKind::convert: return run_convert(machine_, call);
    case OpKind::sum_pieces: return run_sum_pieces(machine_, call);
    case OpKind::orthogonalise: return run_orthogonalise(machine_, call);
    case OpKind::add_scaled: return run_add_scaled(machine_, call);
    case OpKind::encode: return run_encode(machine_, call);
    case OpKind::decode: return run_decode(machine_, call);
    case OpKind::dropout: return run_dropout(machine_, call);
    case OpKind::relu: return run_relu(machine_, call);
    case OpKind::relu_grad: return run_relu_grad(machine_, call);
    case OpKind::sparse_encode: return run_sparse_encode(machine_, call);
    case OpKind::sparse_decode: return run_sparse_decode(machine_, call);
    case OpKind::gelu:
    case OpKind::activate: return run_activate(machine_, call);
    case OpKind::gelu_grad:
    case OpKind::activate_grad: return run_activate_grad(machine_, call);
    case OpKind::swiglu:
    case OpKind::gate: return run_gate(machine_, call);
    case OpKind::swiglu_grad:
    case OpKind::gate_grad: return run_gate_grad(machine_, call);
    case OpKind::head_norm: return run_head_norm(machine_, call);
    case OpKind::head_norm_grad: return run_head_norm_grad(machine_, call);
    case OpKind::soft_cap: return run_soft_cap(machine_, call);
    case OpKind::route: return run_route(machine_, call);
    case OpKind::route_grad: return run_route_grad(machine_, call);
    case OpKind::count_choices: return run_count_choices(machine_, call);
    case OpKind::place_rows: return run_place_rows(machine_, call);
    case OpKind::dispatch: return run_dispatch(machine_, call);
    case OpKind::combine: return run_combine(machine_, call);
    case OpKind::combine_weight_grad: return run_combine_weight_grad(machine_, call);
    case OpKind::grouped_matmul: return run_grouped_matmul(machine_, call);
    case OpKind::grouped_weight_grad: return run_grouped_weight_grad(machine_, call);
    case OpKind::expert_bias: return run_expert_bias(machine_, call);
    case OpKind::expert_bias_grad: return run_expert_bias_grad(machine_, call);
    case OpKind::encode_rows: return run_encode_rows(machine_, call);
    case OpKind::decode_rows: return run_decode_rows(machine_, call);
    case OpKind::row_gate: return run_row_gate(machine_, call);
    case OpKind::row_gate_grad: return run_row_gate_grad(machine_, call);
    case OpKind::balance_losses: return run_balance_losses(machine_, call);
    case OpKind::balance_bias: return run_balance_bias(machine_, call);
    case OpKind::load_clicks: throw Failure("load_clicks is for the executor: it has no arithmetic");
    case OpKind::bucketise_indices: return run_bucketise_indices(machine_, call);
    case OpKind::cache_rows: return run_cache_rows(machine_, call);
    case OpKind::embedding_bag: return run_embedding_bag(machine_, call);
    case OpKind::embedding_bag_squares: return run_embedding_bag_squares(machine_, call);
    case OpKind::embedding_bag_update: return run_embedding_bag_update(machine_, call);
    case OpKind::embedding_lookup: return run_embedding_lookup(machine_, call);
    case OpKind::embedding_lookup_grad: return run_embedding_lookup_grad(machine_, call);
    case OpKind::table_update: return run_table_update(machine_, call);
    case OpKind::pooled_join: return run_pooled_join(machine_, call);
    case OpKind::pooled_split: return run_pooled_split(machine_, call);
    case OpKind::interaction_dot: return run_interaction_dot(machine_, call);
    case OpKind::interaction_dot_grad: return run_interaction_dot_grad(machine_, call);
    case OpKind::cross: return run_cross(machine_, call);
    case OpKind::cross_grad: return run_cross_grad(machine_, call);
    case OpKind::click_loss: return run_click_loss(machine_, call);
    case OpKind::click_loss_grad: return run_click_loss_grad(machine_, call);
    case OpKind::encode_pooled: return run_encode_pooled(machine_, call);
    case OpKind::decode_pooled: return run_decode_pooled(machine_, call);
    case OpKind::split_columns: return run_split_columns(machine_, call);
    case OpKind::join_columns: return run_join_columns(machine_, call);
    case OpKind::latent_pack: return run_latent_pack(machine_, call);
    case OpKind::latent_pack_grad: return run_latent_pack_grad(machine_, call);
    case OpKind::head_values: return run_head_values(machine_, call);
    case OpKind::head_values_grad: return run_head_values_grad(machine_, call);
#define ORRERY_RUN(kind) \
  case OpKind::kind: return run_##kind(machine_, call);
      ORRERY_CPU_ALONE(ORRERY_RUN)
#undef ORRERY_RUN
#define ORRERY_CASE(kind) case OpKind::kind:
      ORRERY_PREDICTED_ALONE(ORRERY_CASE)
#undef ORRERY_CASE
      ENSURE(false, "{} is predicted, and not executed", models::name_of(call.op.kind));
  }
}

std::unique_ptr<Backend> make_cpu_backend(int threads, std::int64_t device_memory) {
  return std::make_unique<CpuBackend>(threads, best_kernels(), device_memory);
}

}  // namespace orrery::exec
