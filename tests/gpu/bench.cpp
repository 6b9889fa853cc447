// gpu_bench: times operators of the CUDA backend on a GPU and prints one JSON object. Times are medians over repeats,
// taken from marks on the compute stream; work and bytes are those of models/op.h. Exit code 6 without a GPU.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "exec/cuda_loader.h"
#include "exec/failure.h"
#include "models/op.h"

namespace orrery::exec {
namespace {

using models::Op;
using models::OpKind;

constexpr std::int64_t kArena = std::int64_t{6} << 30;
constexpr int kWarmUps = 3;
constexpr int kRepeats = 11;
constexpr int kMissing = 6;

struct Bench {
  Backend& backend;
  std::byte* arena;
  std::int64_t used = 0;
  std::vector<std::string> rows;

  Operand take(std::int64_t elements) {
    const std::int64_t bytes = (elements * 4 + 255) / 256 * 256;
    if (used + bytes > kArena) throw Failure("the benchmark's arena is too small");
    const Operand operand{arena + used, elements};
    used += bytes;
    return operand;
  }

  /// Uniform in [-1, 1): products of zeros would be faster than products of numbers.
  Operand floats(std::int64_t elements) {
    const Operand operand = take(elements);
    std::vector<float> values(static_cast<std::size_t>(elements));
    std::uint32_t state = 12345;
    for (float& v : values) {
      state = state * 1664525U + 1013904223U;
      v = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    }
    backend.copy_to_device(operand.data, std::as_bytes(std::span(values)));
    return operand;
  }

  Operand ids(std::int64_t elements, std::uint32_t bound) {
    const Operand operand = take(elements);
    std::vector<std::int32_t> values(static_cast<std::size_t>(elements));
    std::uint32_t state = 54321;
    for (std::int32_t& v : values) {
      state = state * 1664525U + 1013904223U;
      v = static_cast<std::int32_t>((state >> 8) % bound);
    }
    backend.copy_to_device(operand.data, std::as_bytes(std::span(values)));
    return operand;
  }

  void time(const std::string& name, const Op& op, std::vector<Operand> in, std::vector<Operand> out) {
    const StepContext context{.learning_rate = 1e-4};
    const auto run = [&] { backend.run(op, in, out, {}, context); };
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
    rows.push_back(
        fmt::format(R"({{"name":"{}","time_s":{:.4g},"fastest_s":{:.4g},"flops_per_s":{:.4g},"bytes_per_s":{:.4g}}})",
                    name, median, seconds.front(), models::flops_of(op) / median, models::bytes_of(op) / median));
    used = 0;
  }

  void matmul(const std::string& name, std::int64_t m, std::int64_t n, std::int64_t k) {
    Op op;
    op.kind = OpKind::matmul;
    op.m = m;
    op.n = n;
    op.k = k;
    op.trans_b = true;
    time(name, op, {floats(m * k), floats(n * k)}, {take(m * n)});
  }

  void attention(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) {
    Op op;
    op.kind = OpKind::attention;
    op.n = b * t;
    op.batch = b;
    op.sequence = t;
    op.heads = op.kv_heads = h;
    op.head_dim = d;
    op.causal = op.flash = true;
    const std::int64_t n = b * t;
    const Operand qkv = floats(n * 3 * h * d), y = take(n * h * d), lse = take(n * h);
    const std::int64_t kept = used;
    time("attention 8x1024, 12 heads of 64", op, {qkv}, {y, lse});
    used = kept;
    op.kind = OpKind::attention_grad;
    time("attention_grad 8x1024, 12 heads of 64", op, {floats(n * h * d), qkv, y, lse}, {take(n * 3 * h * d)});
  }

  Op rows_op(OpKind kind, std::int64_t n, std::int64_t m) const {
    Op op;
    op.kind = kind;
    op.n = n;
    op.m = m;
    op.epsilon = 1e-5;
    return op;
  }

  void memory_bound() {
    const std::int64_t n = 8192, c = 768, v = 50304, parameters = 124439808;
    time("add, 268 MB each", rows_op(OpKind::add, 1 << 16, 1024), {floats(1 << 26), floats(1 << 26)}, {take(1 << 26)});
    time("layer_norm 8192x768", rows_op(OpKind::layer_norm, n, c), {floats(n * c), floats(c), floats(c)},
         {take(n * c), take(n), take(n)});
    time("layer_norm_grad 8192x768", rows_op(OpKind::layer_norm_grad, n, c),
         {floats(n * c), floats(n * c), floats(c), floats(n), floats(n)}, {take(n * c), floats(c), floats(c)});
    time("gelu 8192x3072", rows_op(OpKind::gelu, n, 4 * c), {floats(4 * n * c)}, {take(4 * n * c)});
    time("bias_grad 8192x3072", rows_op(OpKind::bias_grad, n, 4 * c), {floats(4 * n * c)}, {floats(4 * c)});
    Op grad = rows_op(OpKind::embedding_grad, n, v);
    grad.k = c;
    grad.vocab = v;
    time("embedding_grad 8192 of 50304", grad, {ids(n, 50257), floats(n * c)}, {floats(v * c)});
    Op max = rows_op(OpKind::softmax_max, n, v);
    max.vocab = 50257;
    time("softmax_max 8192x50304", max, {floats(n * v)}, {take(n)});
    Op loss = max;
    loss.kind = OpKind::cross_entropy_grad;
    time("cross_entropy_grad 8192x50304", loss, {floats(n * v), floats(n), floats(2 * n), ids(n, 50257)},
         {take(n * v)});
    time("norm_squared 124M", rows_op(OpKind::norm_squared, 0, parameters), {floats(parameters)}, {floats(1)});
    const std::int64_t m = parameters;
    time("adamw 124M", rows_op(OpKind::adamw, 0, m), {floats(m), floats(1)}, {floats(m), floats(m), take(m)});
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
    rows.push_back(fmt::format(R"({{"name":"overhead of one operator","time_s":{:.4g},"host_s":{:.4g}}})",
                               device / kOps, host / kOps));
    used = 0;
  }
};

int bench(const std::string& folder) {
  const CudaLoad load = load_cuda({folder});
  if (!load.module) {
    fmt::print(stderr, "gpu_bench: {}\n", load.reason);
    return kMissing;
  }
  const auto backend = load.module->make_backend(0);
  Bench b{*backend, backend->allocate_arena(kArena), 0, {}};
  b.overhead();
  b.matmul("matmul 4096x4096x4096", 4096, 4096, 4096);
  b.matmul("matmul qkv 8192x2304x768", 8192, 2304, 768);
  b.matmul("matmul fc 8192x3072x768", 8192, 3072, 768);
  b.matmul("matmul head 8192x50304x768", 8192, 50304, 768);
  b.attention(8, 1024, 12, 64);
  b.memory_bound();
  std::string operators;
  for (const std::string& row : b.rows) operators += (operators.empty() ? "" : ",\n") + row;
  fmt::print("{{\"device\":\"{}\",\"versions\":\"{}\",\"operators\":[\n{}\n]}}\n", backend->device_name(),
             load.module->versions(), operators);
  return 0;
}

}  // namespace
}  // namespace orrery::exec

int main() {
  try {
    return orrery::exec::bench(std::filesystem::read_symlink("/proc/self/exe").parent_path().string());
  } catch (const orrery::exec::Failure& failure) {
    fmt::print(stderr, "gpu_bench: {}\n", failure.what());
    return 1;
  }
}
