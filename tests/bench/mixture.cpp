// Seconds of a mixture of experts, forward and backward, beside those of the dense MLP that a token meets as many
// parameters of: the operators between one layer's norm and its residual, on one rank. scripts/bench-mixture builds and
// runs it beside PyTorch.
//
//   bench_mixture THREADS ROUNDS SEQUENCES TOKENS WIDTH EXPERT_WIDTH EXPERTS CHOSEN
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "exec/cpu/backend.h"
#include "models/layers/expand.h"

namespace {

using namespace orrery;
using models::Op;
using models::OpKind;

class Layer {
 public:
  Layer(const models::Model& model, std::int64_t sequences, std::int64_t tokens)
      : program_(models::expand(model, models::LayerKind::block, 0,
                                {.batch = sequences, .sequence = tokens, .global_tokens = sequences * tokens})) {
    for (const models::Tensor& t : program_.tensors) memory_.push_back(values_of(t));
    bool inside = false;
    for (const models::Part& part : program_.forward)
      for (const Op& op : part.ops) {
        if (inside) ops_.push_back(op);
        if (makes(op, "ln_2")) inside = true;
        if (makes(op, "mlp.h")) inside = false;
      }
    for (const models::Part& part : program_.backward)
      for (const Op& op : part.ops) {
        if (op.kind == OpKind::rms_norm_grad) return;
        ops_.push_back(op);
      }
  }

  /// Seconds of all its operators, and of each kind.
  double run(exec::Backend& backend, std::map<std::string, double>& kinds) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (const Op& op : ops_) {
      std::vector<exec::Operand> in, out;
      for (const int t : op.in) in.push_back(operand(t));
      for (const int t : op.out) out.push_back(operand(t));
      const auto before = Clock::now();
      backend.run(op, in, out, {}, {});
      kinds[models::name_of(op.kind)] += std::chrono::duration<double>(Clock::now() - before).count();
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  [[nodiscard]] bool makes(const Op& op, const char* name) const {
    return !op.out.empty() && op.out[0] >= 0 && program_.tensors[models::tensor_of(op.out[0])].name == name;
  }
  static std::vector<std::byte> values_of(const models::Tensor& t) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(std::max<std::int64_t>(1, t.bytes())));
    if (t.dtype != models::DType::fp32 || t.role == models::TensorRole::gradient) return bytes;
    auto* const values = reinterpret_cast<float*>(bytes.data());
    const double spread = t.role == models::TensorRole::parameter ? 0.02 : 1;
    for (std::int64_t i = 0; i < t.elements(); ++i)
      values[i] = static_cast<float>(spread * base::normal(1, base::stream_of(t.name), static_cast<std::uint64_t>(i)));
    return bytes;
  }
  exec::Operand operand(int tensor) {
    if (tensor < 0) return {};
    const models::Tensor& t = program_.tensors[models::tensor_of(tensor)];
    return {memory_[static_cast<std::size_t>(tensor)].data(), t.elements(), t.dtype};
  }

  models::LayerProgram program_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Op> ops_;
};

std::string kinds_text(const std::map<std::string, double>& kinds, int rounds) {
  std::string out;
  for (const auto& [kind, seconds] : kinds)
    out += fmt::format("{}\"{}\":{:.6g}", out.empty() ? "" : ",", kind, seconds / rounds);
  return "{" + out + "}";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) {
    fmt::print(stderr, "bench_mixture THREADS ROUNDS SEQUENCES TOKENS WIDTH EXPERT_WIDTH EXPERTS CHOSEN\n");
    return 2;
  }
  std::vector<std::int64_t> given;
  for (int i = 1; i < argc; ++i) given.push_back(std::atoll(argv[i]));
  const auto rounds = static_cast<int>(given[1]);
  models::Model model;
  model.layers = 1;
  model.hidden = given[4];
  model.heads = model.kv_heads = 1;
  model.head_dim = 64;
  model.ffn_hidden = given[5] * given[7];
  model.vocab = 256;
  model.max_sequence = given[3];
  model.normalisation = models::Normalisation::rms_norm;
  model.activation = models::Activation::swiglu;
  model.bias = false;
  models::Model dense = model;
  model.experts = {.count = given[6], .chosen = given[7], .hidden = given[5], .normalised = true};
  Layer of_experts(model, given[2], given[3]), of_one(dense, given[2], given[3]);
  const auto backend = exec::make_cpu_backend(static_cast<int>(given[0]));
  std::vector<double> seconds[2];
  std::map<std::string, double> kinds[2], warm;
  for (int round = -2; round < rounds; ++round)
    for (int i = 0; i < 2; ++i) {
      const double s = (i == 0 ? of_experts : of_one).run(*backend, round < 0 ? warm : kinds[i]);
      if (round >= 0) seconds[i].push_back(s);
    }
  fmt::print("{{\"mixture_s\":[{}],\"dense_s\":[{}],\"mixture_by_operator_s\":{},\"dense_by_operator_s\":{}}}\n",
             fmt::join(seconds[0], ","), fmt::join(seconds[1], ","), kinds_text(kinds[0], rounds),
             kinds_text(kinds[1], rounds));
}
