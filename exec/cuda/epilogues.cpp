// Times a product with its epilogue against the product and separate kernels; then the backend's three pairs.
#include "exec/cuda/epilogues.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/ensure.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/call.h"
#include "exec/cuda/cold_timer.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kRounds = 8;  // alternating; each way's best counts
constexpr int kHopper = 90;
constexpr std::uintptr_t kMostAlignment = 256;

const char* operators_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return "matmul";
    case Epilogue::bias: return "matmul + bias";
    case Epilogue::gelu_aux: return "matmul + gelu";
    case Epilogue::bias_gelu: return "matmul + bias + gelu";
    case Epilogue::gelu_grad: return "matmul + gelu_grad";
    case Epilogue::bias_grad: return "matmul + bias_grad";
  }
  return "?";
}

std::string text_of(const ProductShape& s) {
  const char* type = s.tf32 ? "tf32" : models::name_of(s.in);
  return fmt::format("{} x {} x {} in {}", s.m, s.n, s.k, type);
}

std::string text_of(const ProductShape& s, const StoredChoice& choice) {
  return fmt::format("{}: {:.1f} us as one, {:.1f} us apart", text_of(s), choice.one_seconds * 1e6,
                     choice.apart_seconds * 1e6);
}

}  // namespace

bool Epilogues::by_rule(Epilogue epilogue) const {
  if (epilogue == Epilogue::bias_grad) return false;
  return epilogue == Epilogue::bias || capability_ >= kHopper;
}

bool Epilogues::chosen(const ProductShape& shape, bool as_one, const std::string& reason) {
  choices_.insert({operators_of(shape.epilogue), as_one ? "one kernel of cuBLASLt's" : "kernels apart", reason});
  return as_one;
}

bool Epilogues::as_one(const ProductShape& shape, bool alone, const std::function<Ways()>& rehearsal,
                       cudaStream_t stream) {
  const std::pair key(shape, alone);
  if (const auto found = decided_.find(key); found != decided_.end()) return found->second;
  return decided_[key] = decide(shape, alone, rehearsal, stream);
}

bool Epilogues::decide(const ProductShape& shape, bool alone, const std::function<Ways()>& rehearsal,
                       cudaStream_t stream) {
  const EpilogueUse use = products_.options().epilogues;
  if (use != EpilogueUse::timed)
    return chosen(shape, use == EpilogueUse::always, "not timed: epilogues are switched on or off");
  const bool rule = by_rule(shape.epilogue);
  if (!alone) return chosen(shape, rule, "by rule: the ranks of a tensor group must choose alike");
  if (!products_.worth_timing(shape)) return chosen(shape, rule, "by rule: too small to be timed");
  if (const auto kept = products_.plans().find_choice(shape)) return chosen(shape, kept->as_one, text_of(shape, *kept));
  Products::may_be_timed(stream);
  std::optional<Ways> ways;
  try {
    ways = rehearsal();
  } catch (const Failure& failure) {  // no memory to write elsewhere
    static_cast<void>(cudaGetLastError());
    return chosen(shape, rule, fmt::format("by rule: could not be timed: {}", failure.what()));
  }
  if (!ways->as_one()) return chosen(shape, false, fmt::format("cuBLASLt has none for {}", text_of(shape)));
  ways->apart();  // both are warm now, and their products tuned
  const ColdTimer timer;
  StoredChoice choice{false, ColdTimer::kNever, ColdTimer::kNever};
  for (int round = 0; round < kRounds; ++round) {
    choice.one_seconds = std::min(choice.one_seconds, timer.seconds(stream, ways->as_one));
    choice.apart_seconds = std::min(choice.apart_seconds, timer.seconds(stream, [&] { return ways->apart(), true; }));
  }
  choice.as_one = choice.one_seconds <= choice.apart_seconds;
  products_.plans().keep(shape, choice);
  return chosen(shape, choice.as_one, text_of(shape, choice));
}

// -- the backend's
void CudaBackend::one_or_apart(const Product& product, const StepContext& context, const Ways& ways,
                               const std::function<Ways()>& rehearsal) {
  const bool alone = context.tensor_ways == 1;
  if (epilogues_.as_one(key_of(product), alone, rehearsal, stream_.get()) && ways.as_one()) return;
  ways.apart();
}

void CudaBackend::one_or_apart(const Product& product, const StepContext& context, const Ways& ways) {
  one_or_apart(product, context, ways, [&] { return ways; });
}

// GELU's output replaces the product's, and `aux` gets what the product alone would have written; the gradient of GELU
// replaces the product's result. In both cases nothing is read that is written, so the real operands can be timed.
void CudaBackend::product_and_gelu(const Call& call, const OpCall& one, const OpCall& next) {
  Product product = product_of(call);
  const Call after{*next.op, next.in, next.out, call.context, call.stream, {}};
  const std::int64_t size = call.op.m * call.op.n;
  const Ways ways{[&] { return products_.run(product, stream_.get()); },
                  [&] {
                    run_one(one, call.context, nullptr);
                    run_one(next, call.context, nullptr);
                  }};
  if (next.op->kind == models::OpKind::gelu) {
    if (product.bias && call.in[2].dtype != product.shape.in) return ways.apart();
    product.shape.epilogue = product.bias ? Epilogue::bias_gelu : Epilogue::gelu_aux;
    product.aux = product.c;
    product.c = after.checked(false, 0, size).data;
  } else {
    product.aux = after.checked(true, 1, size).data;
    if (next.in[1].dtype != product.shape.in) return ways.apart();
    product.shape.epilogue = Epilogue::gelu_grad;
  }
  one_or_apart(product, call.context, ways);
}

// The epilogue writes the sums of these rows: either the gradient itself, or a part that is then added to the sums of
// other micro-batches. For timing, both gradients are written elsewhere, at addresses with the same alignment.
void CudaBackend::product_and_bias_grad(const OpCall& sums, const OpCall& one, const StepContext& context) {
  const Call call{*one.op, one.in, one.out, context, stream_.get(), products_.scratch()};
  const Call bias{*sums.op, sums.in, sums.out, context, stream_.get(), products_.scratch()};
  Product product = product_of(call);
  product.shape.epilogue = Epilogue::bias_grad;
  static_cast<void>(bias.checked(true, 0, sums.op->n * sums.op->m));
  const Operand& target = bias.checked(false, 0, sums.op->m);
  const bool adds = sums.op->accumulate;
  product.bias_grad = adds ? bias_sums_.data() : target.data;
  const std::int64_t bytes = sums.op->m * models::size_of(target.dtype);
  const auto to = [&, this](Operand weight, Operand gradient) {
    Product there = product;
    there.c = weight.data;
    if (!adds) there.bias_grad = gradient.data;
    return Ways{[this, there, gradient, adds, columns = sums.op->m] {
                  if (!products_.run(there, stream_.get())) return false;
                  if (!adds) return true;
                  by_type(gradient.dtype, "bias_grad", [&]<class G>(std::type_identity<G>) {
                    G* const into = reinterpret_cast<G*>(gradient.data);
                    add(stream_.get(), into, static_cast<const G*>(bias_sums_.data()), into, columns);
                  });
                  return true;
                },
                [this, &sums, &one, &context, weight, gradient] {
                  run_one({sums.op, sums.in, {&gradient, 1}, {}}, context, nullptr);
                  run_one({one.op, one.in, {&weight, 1}, {}}, context, nullptr);
                }};
  };
  const Ways ways = to(one.out[0], target);
  if (adds && static_cast<std::size_t>(bytes) > bias_sums_.bytes()) return ways.apart();
  one_or_apart(product, context, ways, [&] {
    const auto room = [](const Operand& operand) {
      return static_cast<std::size_t>(operand.elements * models::size_of(operand.dtype)) + kMostAlignment;
    };
    const auto elsewhere =
        std::make_shared<DeviceMemory>(room(one.out[0]) + room(target) + kMostAlignment, "tuning a bias gradient");
    const auto moved = [&](Operand operand, std::size_t after) {
      const auto base = reinterpret_cast<std::uintptr_t>(elsewhere->data()) + after;
      const std::uintptr_t aligned = (base + kMostAlignment - 1) / kMostAlignment * kMostAlignment;
      operand.data =
          reinterpret_cast<std::byte*>(aligned + reinterpret_cast<std::uintptr_t>(operand.data) % kMostAlignment);
      return operand;
    };
    Ways there = to(moved(one.out[0], 0), moved(target, room(one.out[0])));
    there.apart = [elsewhere, way = std::move(there.apart)] { way(); };  // keeps the memory for as long as the ways
    return there;
  });
}

}  // namespace orrery::exec::cuda
