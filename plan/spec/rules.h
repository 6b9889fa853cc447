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
    {"P13", "more than 65,536 micro-batches a rank"},
    {"P14", "sequence parallelism without a tensor group"},
    {"P15", "tensor does not divide the sequence"},
    {"P16", "recompute_layers without recomputation"},
    {"P17", "virtual stages without a 1F1B pipeline"},
    {"P18", "pipeline does not divide the micro-batches of interleaved stages"},
    {"P20", "2 x context chunks do not divide the sequence"},
    {"P21", "expert parallelism of a model without experts"},
    {"P22", "context parallelism without row statistics"},
    {"P23", "a zero-bubble order without its stages or chunks"},
    {"P24", "a zero-bubble order with ZeRO 2 or 3"},
    {"P30", "an asynchronous order of one stage"},
    {"P31", "an asynchronous order with too many or too few micro-batches a step"},
    {"P32", "an asynchronous order with ZeRO 2 or 3"},
    {"P35", "an asynchronous order in fp16"},
    {"P40", "zero_group does not divide the replicas"},
    {"P41", "zero_group without anything to partition"},
    {"P42", "DualPipe of an odd number of stages"},
    {"P43", "DualPipe of an odd number of micro-batches"},
    {"P50", "stochastic rounding of other than bf16"},
    {"P51", "activations have no place on NVMe"},
    {"P52", "a zero-bubble order with what it needs twice offloaded"},
    {"P53", "offloaded parameters with ZeRO 1 or 2"},
    {"P54", "no NVMe drives to offload to"},
    {"P55", "an offloaded optimizer other than AdamW"},
    {"P56", "an offloaded optimizer with stochastic rounding"},
    {"P60", "context parallelism of a masked-language model"},
    {"P61", "a sequence too short for two segments"},
    {"P70", "compressed gradients without data parallelism"},
    {"P71", "bf16 gradients of fp16 training"},
    {"P72", "PowerSGD with ZeRO 2 or 3"},
    {"P73", "PowerSGD in fp16"},
    {"P74", "compressed gradients with an offloaded optimizer"},
    {"P75", "activations in 16 bits encoded in 16 bits"},
    {"P76", "activations both encoded and offloaded"},
    {"P77", "encoded activations that are read in two passes"},
    {"P79", "compressed gradients with sub-groups or in DualPipe"},
    {"P80", "a parameter server without workers"},
    {"P81", "a parameter server with pipeline stages or parts of sequences"},
    {"P82", "a parameter server with ZeRO 2 or 3"},
    {"P83", "a parameter server with offload"},
    {"P84", "a parameter server in fp16, or with an optimizer of whole tensors"},
    {"P85", "loss_chunks does not divide the head's rows"},
    {"P86", "a zero-bubble order with the loss in chunks"},
    {"P95", "activations without zeros of a model without ReLU"},
    {"P96", "activations without zeros whose operands are gone"},
    {"P97", "groups of gradients that do not divide the replicas"},
    {"P99", "activations without zeros in fp8"},
    {"P101", "gradients exchanged by node with ZeRO 3"},
    {"P102", "a start of PowerSGD without PowerSGD"},
    {"P104", "context parallelism of windows or of ALiBi's slopes"},
    {"P111", "a custom order without passes, or passes of none"},
    {"P112", "a custom order of other stages"},
    {"P113", "a custom order of another number of micro-batches"},
    {"P121", "expert does not divide the experts"},
    {"P122", "expert does not divide the replicas"},
    {"P123", "tensor does not divide the experts' width"},
    {"P124", "a balancing loss with backward passes before the last forward pass"},
    {"P125", "a limit of tokens for an expert where other ranks have the tokens before"},
    {"P126", "expert parallelism with what does not know its groups"},
    {"P127", "balancing losses in fp16"},
    {"P128", "a mixture of experts with an asynchronous order, or one whose model stands twice"},
    {"P119", "experts split over other ranks than the tensor group"},
    {"P120", "whole experts without rows over the tensor group"},
    {"P130", "a recommendation model split over more than data"},
    {"P131", "a part of a rank's samples at a time"},
    {"P132", "what only transformers have, of a recommendation model"},
    {"P133", "a recommendation model in fp8"},
    {"P134", "a recommendation model with momentum, or another optimizer than SGD and row-wise Adagrad"},
    {"P135", "a placement of other tables, or on other ranks"},
    {"P136", "places of tables of a model without"},
    {"P137", "row-wise Adagrad of a model without tables"},
    {"P138", "memories of tables that do not suit the model, or caches that have no room, or need none"},
    {"P139", "tables on NVMe where the cluster has none"},
    {"P142", "a codec of tokens' rows of a model without experts"},
    {"P160", "an optimizer of whole matrices with an asynchronous order"},
    {"P161", "an optimizer of whole matrices with gradients exchanged by node"},
    {"P162", "an optimizer of whole matrices of a mixture of experts"},
    {"P165", "adapters with what treats all parameters alike"},
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
