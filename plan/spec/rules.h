#pragma once
/// The rules that a plan obeys, one row each: its code and, in a few words, what breaks it. make_plan's messages add
/// what it found; the search counts by these words; docs/errors.md says what to do. A code without a row here does not
/// compile.
#include <algorithm>
#include <array>
#include <string_view>

namespace orrery::plan {

struct Rule {
  std::string_view code;
  std::string_view broken_by;
};

inline constexpr auto kRules = std::to_array<Rule>({
    {"P01", "a degree or size below 1"},
    {"P02", "the mesh does not fill the cluster"},
    {"P03", "tensor does not divide the attention heads"},
    {"P04", "tensor does not divide the key/value heads"},
    {"P05", "tensor does not divide the MLP's width"},
    {"P06", "more stages than layers"},
    {"P07", "layers_per_stage lists another number of stages"},
    {"P08", "layers_per_stage does not add up to the model's layers"},
    {"P09", "data x micro-batch does not divide the batch"},
    {"P10", "the sequence exceeds the position table"},
    {"P11", "no such ZeRO stage"},
    {"P12", "ZeRO without data parallelism"},
    {"P13", "more than 65,536 micro-batches per rank"},
    {"P14", "sequence parallelism without a tensor group"},
    {"P15", "tensor does not divide the sequence"},
    {"P16", "recompute_layers without recomputation"},
    {"P17", "virtual stages without a 1F1B pipeline"},
    {"P18", "pipeline does not divide the micro-batches of interleaved stages"},
    {"P20", "2 x context chunks do not divide the sequence"},
    {"P21", "expert parallelism in a model without experts"},
    {"P22", "context parallelism without flash attention"},
    {"P23", "a zero-bubble order with the wrong stages or chunks"},
    {"P24", "a zero-bubble order with ZeRO 2 or 3"},
    {"P30", "an asynchronous order with one stage"},
    {"P31", "an asynchronous order with too many or too few micro-batches per step"},
    {"P32", "an asynchronous order with ZeRO 2 or 3"},
    {"P35", "an asynchronous order in fp16"},
    {"P40", "zero_group does not divide the replicas"},
    {"P41", "zero_group without anything to partition"},
    {"P42", "DualPipe with an odd number of stages"},
    {"P43", "DualPipe with an odd number of micro-batches"},
    {"P50", "stochastic rounding of anything but bf16"},
    {"P51", "activations offloaded to NVMe"},
    {"P52", "a zero-bubble order with offload of what it reads twice"},
    {"P53", "offloaded parameters with ZeRO 1 or 2"},
    {"P54", "no NVMe drives to offload to"},
    {"P55", "an offloaded optimizer other than AdamW"},
    {"P56", "an offloaded optimizer with stochastic rounding"},
    {"P60", "context parallelism for a masked-language model"},
    {"P61", "a sequence too short for two segments"},
    {"P70", "compressed gradients without data parallelism"},
    {"P71", "bf16 gradients in fp16 training"},
    {"P72", "PowerSGD with ZeRO 2 or 3"},
    {"P73", "PowerSGD in fp16"},
    {"P74", "compressed gradients with an offloaded optimizer"},
    {"P75", "16-bit activations encoded in 16 bits"},
    {"P76", "activations both encoded and offloaded"},
    {"P77", "encoded activations that two passes read"},
    {"P79", "compressed gradients with sub-groups or in DualPipe"},
    {"P80", "a parameter server without workers"},
    {"P81", "a parameter server with pipeline or context parallelism"},
    {"P82", "a parameter server with ZeRO 2 or 3"},
    {"P83", "a parameter server with offload"},
    {"P84", "a parameter server in fp16, or with an optimizer that needs whole tensors"},
    {"P85", "loss_chunks does not divide the head's rows"},
    {"P86", "a zero-bubble order with the loss in chunks"},
    {"P95", "lossless activations in a model without ReLU"},
    {"P96", "lossless activations that could not be recomputed"},
    {"P97", "a compression group that does not divide the replicas"},
    {"P99", "lossless activations in fp8 or fp4"},
    {"P101", "gradients exchanged by node with ZeRO 3"},
    {"P102", "compression.start without PowerSGD"},
    {"P104", "context parallelism with windows or ALiBi"},
    {"P111", "a custom order without passes, or passes without a custom order"},
    {"P112", "a custom order for another number of stages"},
    {"P113", "a custom order for another number of micro-batches"},
    {"P121", "expert does not divide the experts"},
    {"P122", "expert does not divide the replicas"},
    {"P123", "tensor does not divide the experts' width"},
    {"P124", "a balancing loss with backward passes before the last forward pass"},
    {"P125", "an expert's token limit where earlier tokens are on other ranks"},
    {"P126", "expert parallelism with a feature that does not support it"},
    {"P127", "balancing losses in fp16"},
    {"P128", "a mixture of experts with an asynchronous order or DualPipe"},
    {"P119", "experts split over ranks other than the tensor group"},
    {"P120", "whole experts without sequence parallelism"},
    {"P130", "a recommendation model split other than by data"},
    {"P131", "a recommendation model with several micro-batches"},
    {"P132", "a recommendation model with a feature of transformers"},
    {"P133", "a recommendation model in fp8 or fp4"},
    {"P134", "a recommendation model with momentum or an unsupported optimizer"},
    {"P135", "a placement that does not match the tables or ranks"},
    {"P136", "table placements for a model without tables"},
    {"P137", "row-wise Adagrad for a model without tables"},
    {"P138", "table memories that do not fit the model, or caches that are too small or not needed"},
    {"P139", "tables on NVMe in a cluster without NVMe"},
    {"P142", "a token codec for a model without experts"},
    {"P160", "an optimizer that needs whole matrices, with an asynchronous order"},
    {"P161", "an optimizer that needs whole matrices, with gradients exchanged by node"},
    {"P162", "an optimizer that needs whole matrices, with a mixture of experts"},
    {"P165", "adapters of products that the model has not, or beside what treats all parameters alike"},
});

/// The rule of a code; nullptr if no rule of a plan has it.
[[nodiscard]] constexpr const Rule* find_rule(std::string_view code) {
  const auto* const found = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& r) { return r.code == code; });
  return found == kRules.end() ? nullptr : found;
}

/// A code that has a rule.
class RuleCode {
 public:
  consteval RuleCode(const char* code) : code_(code) {  // NOLINT(google-explicit-constructor): it is written as a text
    if (find_rule(code) == nullptr) throw "a code without a row in plan/spec/rules.h";
  }
  [[nodiscard]] const char* text() const { return code_; }

 private:
  const char* code_;
};

}  // namespace orrery::plan
