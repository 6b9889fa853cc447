// gpu_bench: times operators of the CUDA backend on a GPU. Prints JSON, one object a line, each as soon as it is known:
// the device, then operators. Times are medians over repeats, taken from marks on the compute stream; work and bytes
// are those of models/operators/op.h. Of an operator that fails the reason is printed. Exit code 1 then, 6 without a
// GPU. Usage: gpu_bench [--peak]     --peak: large bf16 products alone, what the card can do at most
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/engine/cuda_loader.h"
#include "exec/engine/half.h"
#include "exec/failure.h"
#include "models/operators/op.h"

namespace orrery::exec {
namespace {

using models::DType;
using models::Op;
using models::OpKind;

constexpr std::int64_t kArena = std::int64_t{6} << 30;
constexpr int kWarmUps = 3;
constexpr int kRepeats = 11;
constexpr int kMissing = 6;

void print_row(const nlohmann::ordered_json& row) {
  fmt::print("{}\n", row.dump());
  std::fflush(stdout);
}

struct Bench {
  Backend& backend;
  std::byte* arena;
  std::int64_t used = 0;
  DType type = DType::fp32;  ///< of activations and weights
  int failed = 0;            ///< operators

  [[nodiscard]] DType gradient_type() const { return type == DType::fp16 ? DType::fp16 : DType::fp32; }
  [[nodiscard]] std::string named(const std::string& name) const {
    return type == DType::fp32 ? name : name + ", " + models::name_of(type);
  }

  Operand take(std::int64_t elements, DType dtype) {
    const std::int64_t bytes = (elements * models::size_of(dtype) + 255) / 256 * 256;
    if (used + bytes > kArena) throw Failure("the benchmark's arena is too small");
    const Operand operand{arena + used, elements, dtype};
    used += bytes;
    return operand;
  }
  Operand take(std::int64_t elements) { return take(elements, type); }

  /// Uniform in [-1, 1), the same million over and over: products of zeros would be faster than products of numbers.
  Operand floats(std::int64_t elements, DType dtype) {
    const Operand operand = take(elements, dtype);
    std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(elements, 1 << 20)));
    std::uint32_t state = 12345;
    for (float& v : values) {
      state = state * 1664525U + 1013904223U;
      v = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    }
    const auto size = static_cast<std::size_t>(models::size_of(dtype));
    std::vector<std::byte> stored(values.size() * size);
    narrow(dtype, values, stored.data());
    for (std::int64_t at = 0; at < elements; at += static_cast<std::int64_t>(values.size())) {
      const std::int64_t count = std::min(static_cast<std::int64_t>(values.size()), elements - at);
      backend.copy_to_device(operand.data + at * models::size_of(dtype),
                             std::span(stored).first(static_cast<std::size_t>(count) * size));
    }
    return operand;
  }
  Operand floats(std::int64_t elements) { return floats(elements, type); }
  Operand full(std::int64_t elements) { return floats(elements, DType::fp32); }
  Operand gradient(std::int64_t elements) { return floats(elements, gradient_type()); }

  Operand ids(std::int64_t elements, std::uint32_t bound) {
    const Operand operand = take(elements, DType::int32);
    std::vector<std::int32_t> values(static_cast<std::size_t>(elements));
    std::uint32_t state = 54321;
    for (std::int32_t& v : values) {
      state = state * 1664525U + 1013904223U;
      v = static_cast<std::int32_t>((state >> 8) % bound);
    }
    backend.copy_to_device(operand.data, std::as_bytes(std::span(values)));
    return operand;
  }

  /// Operators of one step, as one row: flops and bytes are their sums.
  struct Link {
    Op op;
    std::vector<Operand> in, out;
  };
  void time(const std::string& name, const std::vector<Link>& links) {
    try {
      print_row(row_of(name, links));
    } catch (const Failure& failure) {
      ++failed;
      print_row({{"name", named(name)}, {"error", failure.what()}});
    }
    used = 0;
  }
  nlohmann::ordered_json row_of(const std::string& name, const std::vector<Link>& links) {
    const StepContext context{.learning_rate = 1e-4};
    std::vector<OpCall> calls;
    double flops = 0, bytes = 0;
    for (const Link& link : links) {
      calls.push_back({&link.op, link.in, link.out, {}});
      flops += models::flops_of(link.op);
      bytes += models::bytes_of(link.op);
    }
    const auto run = [&] { backend.run_all(calls, context); };
    for (int i = 0; i < kWarmUps; ++i) run();
    std::vector<double> seconds;
    for (int i = 0; i < kRepeats; ++i) {
      const Backend::Mark from = backend.mark();
      run();
      const Backend::Mark to = backend.mark();
      seconds.push_back(backend.seconds_between(from, to));
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    return {{"name", named(name)},
            {"time_s", median},
            {"fastest_s", seconds.front()},
            {"flops_per_s", flops / median},
            {"bytes_per_s", bytes / median}};
  }
  void time(const std::string& name, const Op& op, std::vector<Operand> in, std::vector<Operand> out) {
    time(name, {Link{op, std::move(in), std::move(out)}});
  }

  [[nodiscard]] Op product(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b) const {
    Op op = rows_op(OpKind::matmul, n, m);
    op.k = k;
    op.trans_a = trans_a;
    op.trans_b = trans_b;
    return op;
  }
  void matmul(const std::string& name, std::int64_t m, std::int64_t n, std::int64_t k) {
    time(name, product(m, n, k, false, true), {floats(m * k), floats(n * k)}, {take(m * n)});
  }
  /// GPT-2 small's MLP: forward with its GELU, the gradient through it, and a weight's gradient that accumulates.
  void mlp(std::int64_t n, std::int64_t c) {
    const std::int64_t f = 4 * c;
    const Operand x = floats(n * c), w = floats(f * c), b = floats(f), before = take(n * f), after = take(n * f);
    time("fc + bias + gelu 8192x3072x768", {Link{product(n, f, c, false, true), {x, w, b}, {before}},
                                            Link{rows_op(OpKind::gelu, n, f), {before}, {after}}});
    const Operand dy = floats(n * c), down = floats(c * f), saved = floats(n * f), dx = take(n * f);
    time("d_down + gelu_grad 8192x3072x768", {Link{product(n, f, c, false, false), {dy, down}, {dx}},
                                              Link{rows_op(OpKind::gelu_grad, n, f), {dx, saved}, {dx}}});
    Op weight = product(f, c, n, true, false);
    weight.accumulate = true;
    time("d_fc weight 3072x768x8192", weight, {floats(n * f), floats(n * c)}, {gradient(f * c)});
  }

  void attention(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d, double dropout = 0) {
    const std::string with = dropout > 0 ? " dropped" : "";
    Op op = rows_op(OpKind::attention, b * t, 0);
    op.batch = b;
    op.sequence = t;
    op.heads = op.kv_heads = h;
    op.head_dim = d;
    op.causal = op.flash = true;
    op.dropout = dropout;
    const std::int64_t n = b * t;
    const Operand qkv = floats(n * 3 * h * d), y = take(n * h * d), lse = take(n * h, DType::fp32);
    const std::int64_t kept = used;
    time("attention 8x1024, 12 heads of 64" + with, op, {qkv}, {y, lse});
    used = kept;
    op.kind = OpKind::attention_grad;
    time("attention_grad 8x1024, 12 heads of 64" + with, op, {floats(n * h * d), qkv, y, lse}, {take(n * 3 * h * d)});
  }

  /// What a Llama has and a GPT has not, at TinyLlama's widths: 4 sequences of 2,048 tokens.
  void llama() {
    const std::int64_t b = 4, t = 2048, n = b * t, c = 2048, f = 5632;
    Op turn = rows_op(OpKind::rope, n, 0);
    turn.batch = b;
    turn.sequence = t;
    turn.heads = 32;
    turn.kv_heads = 4;
    turn.head_dim = 64;
    turn.epsilon = 10000;
    const Operand qkv = floats(n * (turn.heads + 2 * turn.kv_heads) * turn.head_dim);
    time("rope 4x2048, 32 and 4 heads of 64", turn, {qkv}, {qkv});
    time("rms_norm 8192x2048", rows_op(OpKind::rms_norm, n, c), {floats(n * c), floats(c)},
         {take(n * c), take(n, DType::fp32)});
    time("swiglu 8192x5632", rows_op(OpKind::swiglu, n, f), {floats(2 * n * f)}, {take(n * f)});
    time("swiglu_grad 8192x5632", rows_op(OpKind::swiglu_grad, n, f), {floats(n * f), floats(2 * n * f)},
         {take(2 * n * f)});
  }

  [[nodiscard]] Op rows_op(OpKind kind, std::int64_t n, std::int64_t m) const {
    Op op;
    op.kind = kind;
    op.dtype = type;
    op.n = n;
    op.m = m;
    op.epsilon = 1e-5;
    return op;
  }

  void memory_bound() {
    const std::int64_t n = 8192, c = 768, v = 50304;
    const auto statistics = [&] { return take(n, DType::fp32); };
    time("add, 67M each", rows_op(OpKind::add, 1 << 16, 1024), {floats(1 << 26), floats(1 << 26)}, {take(1 << 26)});
    time("layer_norm 8192x768", rows_op(OpKind::layer_norm, n, c), {floats(n * c), floats(c), floats(c)},
         {take(n * c), statistics(), statistics()});
    const Operand sum = take(n * c);
    time("add_bias + layer_norm 8192x768",
         {Link{rows_op(OpKind::add_bias, n, c), {floats(n * c), floats(n * c), floats(c)}, {sum}},
          Link{rows_op(OpKind::layer_norm, n, c),
               {sum, floats(c), floats(c)},
               {take(n * c), statistics(), statistics()}}});
    const Operand dropped_sum = take(n * c);
    Op dropped = rows_op(OpKind::add_bias, n, c);
    dropped.sequence = 1024;
    dropped.dropout = 0.1;
    time("add_bias dropped + layer_norm 8192x768",
         {Link{dropped, {floats(n * c), floats(n * c), floats(c)}, {dropped_sum}},
          Link{rows_op(OpKind::layer_norm, n, c),
               {dropped_sum, floats(c), floats(c)},
               {take(n * c), statistics(), statistics()}}});
    time("layer_norm_grad 8192x768", rows_op(OpKind::layer_norm_grad, n, c),
         {floats(n * c), floats(n * c), floats(c), full(n), full(n)}, {take(n * c), gradient(c), gradient(c)});
    time("gelu 8192x3072", rows_op(OpKind::gelu, n, 4 * c), {floats(4 * n * c)}, {take(4 * n * c)});
    time("bias_grad 8192x3072", rows_op(OpKind::bias_grad, n, 4 * c), {floats(4 * n * c)}, {gradient(4 * c)});
    Op grad = rows_op(OpKind::embedding_grad, n, v);
    grad.k = c;
    grad.vocab = v;
    time("embedding_grad 8192 of 50304", grad, {ids(n, 50257), floats(n * c)}, {gradient(v * c)});
    Op max = rows_op(OpKind::softmax_max, n, v), sums = rows_op(OpKind::softmax_sum, n, v);
    Op loss = rows_op(OpKind::cross_entropy_grad, n, v);
    max.vocab = sums.vocab = loss.vocab = 50257;
    const Operand logits = floats(n * v), top = statistics();
    time("softmax_max + softmax_sum 8192x50304",
         {Link{max, {logits}, {top}}, Link{sums, {logits, top, ids(n, 50257)}, {take(2 * n, DType::fp32)}}});
    Op total = rows_op(OpKind::cross_entropy, n, v);
    const Operand all = floats(n * v), tops = statistics(), both = take(2 * n, DType::fp32), wanted = ids(n, 50257);
    time("softmax and cross_entropy, gradient in place 8192x50304",
         {Link{max, {all}, {tops}}, Link{sums, {all, tops, wanted}, {both}}, Link{total, {tops, both}, {full(1)}},
          Link{loss, {all, tops, both, wanted}, {all}}});
    time("cross_entropy_grad 8192x50304", loss, {floats(n * v), full(n), full(2 * n), ids(n, 50257)}, {take(n * v)});
  }

  void updates() {
    const std::int64_t m = 124439808;
    const DType g = gradient_type();
    time("norm_squared 124M", rows_op(OpKind::norm_squared, 0, m), {floats(m, g)}, {full(1)});
    std::vector<Operand> out = {full(m), full(m), take(m, DType::fp32)};
    const auto in = [&] { return std::vector<Operand>{floats(m, g), full(1)}; };
    if (type != DType::fp32) out.push_back(take(m));
    time("adamw 124M", rows_op(OpKind::adamw, 0, m), in(), out);
    out = {full(m), full(m)};
    if (type != DType::fp32) out.push_back(take(m));
    time("sgd 124M", rows_op(OpKind::momentum_update, 0, m), in(), out);
  }

  /// All that a step of GPT-2 small is made of, in one type.
  void all(DType in) {
    type = in;
    matmul("matmul 4096x4096x4096", 4096, 4096, 4096);
    matmul("matmul 8192x8192x8192", 8192, 8192, 8192);
    matmul("matmul qkv 8192x2304x768", 8192, 2304, 768);
    matmul("matmul head 8192x50304x768", 8192, 50304, 768);
    mlp(8192, 768);
    attention(8, 1024, 12, 64);
    attention(8, 1024, 12, 64, 0.1);
    llama();
    memory_bound();
    updates();
  }

  /// Products as large as those of tests/gpu/torch_training.py, against which a step's use of the card is measured.
  void peak() {
    type = DType::bf16;
    matmul("matmul 8192x8192x8192", 8192, 8192, 8192);
    matmul("matmul 16384x8192x8192", 16384, 8192, 8192);
    matmul("matmul 16384x16384x8192", 16384, 16384, 8192);
  }

  /// Host and device time of an operator that does next to nothing: what each operator of a schedule costs at least.
  void overhead() {
    const Op op = rows_op(OpKind::add, 1, 32);
    const std::vector<Operand> in = {floats(32), floats(32)}, out = {take(32)};
    constexpr int kOps = 2000;
    backend.synchronise();
    const auto begun = std::chrono::steady_clock::now();
    const Backend::Mark from = backend.mark();
    for (int i = 0; i < kOps; ++i) backend.run(op, in, out, {}, {});
    const double host = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    const double device = backend.seconds_between(from, backend.mark());
    print_row({{"name", "overhead of one operator"}, {"time_s", device / kOps}, {"host_s", host / kOps}});
    used = 0;
  }
};

int bench(const std::string& folder, bool peak_alone) {
  const CudaLoad load = load_cuda({folder});
  if (!load.module) {
    fmt::print(stderr, "gpu_bench: {}\n", load.reason);
    return kMissing;
  }
  const auto backend = load.module->make_backend(0, nullptr, {});
  print_row({{"device", backend->device_name()}, {"versions", load.module->versions()}});
  Bench b{*backend, backend->allocate_arena(kArena)};
  if (peak_alone) {
    b.peak();
  } else {
    b.overhead();
    for (const DType type : {DType::bf16, DType::fp16, DType::fp32}) b.all(type);
  }
  return b.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace orrery::exec

int main(int count, char** arguments) {
  const bool peak_alone = count == 2 && std::string(arguments[1]) == "--peak";
  if (count > 1 && !peak_alone) {
    fmt::print(stderr, "usage: gpu_bench [--peak]\n");
    return 2;
  }
  try {
    return orrery::exec::bench(std::filesystem::read_symlink("/proc/self/exe").parent_path().string(), peak_alone);
  } catch (const orrery::exec::Failure& failure) {
    fmt::print(stderr, "gpu_bench: {}\n", failure.what());
    return 1;
  }
}
