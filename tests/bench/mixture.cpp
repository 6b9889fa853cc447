// Seconds of a mixture of experts, forward and backward, beside those of the dense MLP that a token meets as many
// parameters of: the operators between one layer's norm and its residual, on one rank. scripts/bench-mixture builds and
// runs it beside PyTorch.
//
//   bench_mixture THREADS ROUNDS SEQUENCES TOKENS WIDTH EXPERT_WIDTH EXPERTS CHOSEN
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
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

/// Of the clock, and of the process on processors: what another program takes from a busy machine is only in the first.
struct Times {
  double clock = 0, processor = 0;
};
Times now() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec)};
}
Times operator-(const Times& a, const Times& b) {
  return {a.clock - b.clock, a.processor - b.processor};
}

class Layer {
 public:
  Layer(const models::Model& model, std::int64_t sequences, std::int64_t tokens, exec::Backend& backend)
      : backend_(backend),
        program_(models::expand(model, models::LayerKind::block, 0,
                                {.batch = sequences, .sequence = tokens, .global_tokens = sequences * tokens})) {
    place_tensors();
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

  /// Seconds of all its operators; those of each kind on processors.
  Times run(std::map<std::string, double>& kinds) {
    const Times begin = now();
    for (const Op& op : ops_) {
      std::vector<exec::Operand> in, out;
      for (const int t : op.in) in.push_back(operand(t));
      for (const int t : op.out) out.push_back(operand(t));
      const Times before = now();
      backend_.run(op, in, out, {}, {});
      kinds[models::name_of(op.kind)] += (now() - before).processor;
    }
    return now() - begin;
  }

 private:
  [[nodiscard]] bool makes(const Op& op, const char* name) const {
    return !op.out.empty() && op.out[0] >= 0 && program_.tensors[models::tensor_of(op.out[0])].name == name;
  }
  // As the executor has them: one arena, in large pages where the system gives them.
  void place_tensors() {
    constexpr std::int64_t kLine = 64;
    std::int64_t all = 0;
    for (const models::Tensor& t : program_.tensors) {
      places_.push_back(all);
      all += (t.bytes() + kLine - 1) / kLine * kLine;
    }
    arena_ = backend_.allocate_arena(all);
    std::memset(arena_, 0, static_cast<std::size_t>(all));
    for (std::size_t i = 0; i < places_.size(); ++i) fill(program_.tensors[i], arena_ + places_[i]);
  }
  static void fill(const models::Tensor& t, std::byte* at) {
    if (t.dtype != models::DType::fp32 || t.role == models::TensorRole::gradient) return;
    auto* const values = reinterpret_cast<float*>(at);
    const double spread = t.role == models::TensorRole::parameter ? 0.02 : 1;
    for (std::int64_t i = 0; i < t.elements(); ++i)
      values[i] = static_cast<float>(spread * base::normal(1, base::stream_of(t.name), static_cast<std::uint64_t>(i)));
  }
  exec::Operand operand(int tensor) {
    if (tensor < 0) return {};
    const models::Tensor& t = program_.tensors[models::tensor_of(tensor)];
    return {arena_ + places_[static_cast<std::size_t>(tensor)], t.elements(), t.dtype};
  }

  exec::Backend& backend_;
  models::LayerProgram program_;
  std::byte* arena_ = nullptr;
  std::vector<std::int64_t> places_;
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
  const auto backend = exec::make_cpu_backend(static_cast<int>(given[0]));
  Layer of_experts(model, given[2], given[3], *backend), of_one(dense, given[2], given[3], *backend);
  std::vector<double> seconds[2], processor[2];
  std::map<std::string, double> kinds[2], warm;
  for (int round = -2; round < rounds; ++round)
    for (int i = 0; i < 2; ++i) {
      const Times s = (i == 0 ? of_experts : of_one).run(round < 0 ? warm : kinds[i]);
      if (round < 0) continue;
      seconds[i].push_back(s.clock);
      processor[i].push_back(s.processor);
    }
  fmt::print(
      "{{\"mixture_s\":[{}],\"dense_s\":[{}],\"mixture_processor_s\":[{}],\"dense_processor_s\":[{}],"
      "\"mixture_by_operator_s\":{},\"dense_by_operator_s\":{}}}\n",
      fmt::join(seconds[0], ","), fmt::join(seconds[1], ","), fmt::join(processor[0], ","),
      fmt::join(processor[1], ","), kinds_text(kinds[0], rounds), kinds_text(kinds[1], rounds));
}
