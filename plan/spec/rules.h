#pragma once
/// The rules that a plan obeys, one row each: code, what breaks it, and what helps. make_plan's messages say what it
/// found, with the numbers of the plan; the search counts by `broken_by`; docs/errors.md has `meaning` and `remedy`,
/// written from here by test_plan (ORRERY_WRITE_DOCS=1). A code without a row here does not compile.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/result.h"

namespace orrery::plan {

struct Rule {
  std::string_view code;
  std::string_view broken_by;  ///< a few words
  std::string_view meaning;    ///< more exact, as Markdown; empty: these words are enough
  std::string_view remedy;     ///< what helps, as Markdown; empty: the meaning says it
};

inline constexpr auto kRules = std::to_array<Rule>({
    {"P01", "a degree or size below 1", "A degree, the micro-batch, the batch or the sequence is below 1", ""},
    {"P02", "the mesh does not fill the cluster",
     "data × context × tensor × pipeline is not the cluster's number of devices",
     "Change a degree, or resize the cluster (`--gpus`)"},
    {"P03", "tensor does not divide the attention heads", "", ""},
    {"P04", "tensor does not divide the key/value heads", "", ""},
    {"P05", "tensor does not divide the MLP's width", "tensor does not divide the width of the MLP", ""},
    {"P06", "more stages than layers",
     "A pipeline stage has neither a layer nor, at the ends, the embedding or the head to itself",
     "Use fewer stages; `ends_as_layers: true` gives the ends stages of their own"},
    {"P07", "layers_per_stage lists another number of stages", "`layers_per_stage` lists another number of stages",
     "Give one entry per stage; with virtual stages, one per chunk in the model's order"},
    {"P08", "layers_per_stage does not add up to the model's layers",
     "`layers_per_stage` does not add up to the model's layers", ""},
    {"P09", "data x micro-batch does not divide the batch", "data × micro-batch does not divide the batch", ""},
    {"P10", "the sequence exceeds the position table", "The sequence is longer than the model's position table",
     "Shorten it; the table's length is the model's `max_sequence`"},
    {"P11", "no such ZeRO stage", "", "0, 1, 2 or 3"},
    {"P12", "ZeRO without data parallelism", "ZeRO without data parallelism has nothing to partition",
     "`zero_stage: 0`; a job that leaves one replica gets that, with a warning"},
    {"P13", "more than 65,536 micro-batches per rank", "",
     "Use a larger micro-batch, more data parallelism or a smaller batch"},
    {"P14", "sequence parallelism without a tensor group",
     "Sequence parallelism with tensor 1, which leaves nothing to split", "`sequence_parallel: false`"},
    {"P15", "tensor does not divide the sequence",
     "tensor does not divide the sequence, which sequence parallelism splits over its ranks",
     "Choose a tensor degree that divides the sequence"},
    {"P16", "recompute_layers without recomputation",
     "`recompute_layers` gives a number of blocks, but `recompute` is none", "`recompute: full` or `selective`"},
    {"P17", "virtual stages without a 1F1B pipeline", "Virtual stages without a 1F1B pipeline of at least two stages",
     "`virtual_stages: 1`, or more pipeline stages and `schedule: 1f1b`"},
    {"P18", "pipeline does not divide the micro-batches of interleaved stages",
     "The pipeline does not divide the micro-batches, which interleaved stages take in rounds",
     "Use a number of micro-batches that the pipeline divides, or `virtual_stages: 1`"},
    {"P20", "2 x context chunks do not divide the sequence", "2 × context chunks do not divide the sequence",
     "Choose a context degree such that twice its value divides the sequence"},
    {"P21", "expert parallelism in a model without experts", "Expert parallelism for a model without experts",
     "`expert: 1`"},
    {"P22", "context parallelism without flash attention",
     "Context parallelism with unfused attention, which keeps its scores", "`flash: true`, or `context: 1`"},
    {"P23", "a zero-bubble order with the wrong stages or chunks",
     "A zero-bubble order with one stage, or zb-v, dualpipe-v or dualpipe without its two chunks per stage",
     "`schedule: 1f1b`, or `virtual_stages: 2`"},
    {"P24", "a zero-bubble order with ZeRO 2 or 3",
     "A zero-bubble order with ZeRO 2 or 3, which release a layer's gradients before the weight-gradient pass",
     "`zero_stage: 1`"},
    {"P30", "an asynchronous order with one stage", "", "More pipeline stages, or `schedule: 1f1b`"},
    {"P31", "an asynchronous order with too many or too few micro-batches per step",
     "pipedream or pipedream-vertical with several micro-batches per step; pipedream-2bw with fewer micro-batches than "
     "stages",
     "`micro_batch: batch / data`; a smaller `micro_batch`"},
    {"P32", "an asynchronous order with ZeRO 2 or 3",
     "An asynchronous order with ZeRO 2 or 3, which partition what the order keeps in whole versions",
     "`zero_stage: 1`"},
    {"P35", "an asynchronous order in fp16",
     "An asynchronous order in fp16, whose loss scale all stages would have to agree on in every step",
     "`precision: bf16`"},
    {"P40", "zero_group does not divide the replicas", "`zero_group` does not divide the replicas, data × context",
     "Choose a `zero_group` that divides data x context"},
    {"P41", "zero_group without anything to partition",
     "`zero_group` where nothing is partitioned: with ZeRO 0, or among one rank",
     "`zero_stage: 1`, 2 or 3, or no `zero_group`"},
    {"P42", "DualPipe with an odd number of stages", "dualpipe with an odd number of stages: one would have no partner",
     "Use an even number of pipeline stages, or `schedule: dualpipe-v`"},
    {"P43", "DualPipe with an odd number of micro-batches",
     "dualpipe with an odd number of micro-batches, half of which enter at either end",
     "Use an even number of micro-batches, or `schedule: dualpipe-v`"},
    {"P50", "stochastic rounding of anything but bf16", "Stochastic rounding for parameters that are not bf16",
     "`precision: bf16`, or `rounding: nearest`"},
    {"P51", "activations offloaded to NVMe", "Activations cannot be offloaded to NVMe",
     "`offload: {activations: host}`"},
    {"P52", "a zero-bubble order with offload of what it reads twice",
     "A zero-bubble or asynchronous order that offloads something it needs twice, or in several versions",
     "`schedule: 1f1b`"},
    {"P53", "offloaded parameters with ZeRO 1 or 2",
     "Offloaded parameters with ZeRO 1 or 2, which keep them whole on every device",
     "`zero_stage: 3`, or `offload: {parameters: none}`"},
    {"P54", "no NVMe drives to offload to", "The cluster's nodes have no NVMe drives to offload to",
     "Add `nvme` to the cluster's `node`, or offload to the host"},
    {"P55", "an offloaded optimizer other than AdamW", "", "`offload: {optimizer: none}`, or the optimizer adamw"},
    {"P56", "an offloaded optimizer with stochastic rounding",
     "An offloaded optimizer with stochastic rounding, which is for parameters without masters",
     "`rounding: nearest`, or `offload: {optimizer: none}`"},
    {"P60", "context parallelism for a masked-language model",
     "Context parallelism for a masked-language model (BERT): ranks with parts of a sequence would predict different "
     "numbers of tokens",
     "`context: 1`"},
    {"P61", "a sequence too short for two segments", "A sequence too short for [CLS], two segments and their [SEP]",
     "8 tokens or more"},
    {"P70", "compressed gradients without data parallelism",
     "Compressed gradients without data (or context) parallelism, so that no gradients are exchanged",
     "`compression: {gradients: none}`, or more data parallelism"},
    {"P71", "bf16 gradients in fp16 training",
     "bf16 gradients in fp16 training, whose small values bf16 would round away", "`compression: {gradients: fp16}`"},
    {"P72", "PowerSGD with ZeRO 2 or 3",
     "PowerSGD with ZeRO 2 or 3, which have released the gradients from which its error is computed",
     "`zero_stage: 1`, or `compression: {gradients: bf16}`"},
    {"P73", "PowerSGD in fp16",
     "PowerSGD in fp16, whose loss scale changes between the steps over which an error is carried",
     "`precision: bf16`, or `compression: {gradients: fp16}`"},
    {"P74", "compressed gradients with an offloaded optimizer",
     "Compressed gradients with an offloaded optimizer, which sums them on the host",
     "`offload: {optimizer: none}`, or `compression: {gradients: none}`"},
    {"P75", "16-bit activations encoded in 16 bits", "Activations encoded in 16 bits in 16-bit training",
     "`compression: {activations: fp10}` or `fp8`"},
    {"P76", "activations both encoded and offloaded", "",
     "`offload: {activations: none}`, or `compression: {activations: none}`"},
    {"P77", "encoded activations that two passes read",
     "Encoded activations with a zero-bubble or asynchronous order, which would keep them decoded",
     "`schedule: 1f1b`, or `compression: {activations: none}`"},
    {"P79", "compressed gradients with sub-groups or in DualPipe",
     "Compressed gradients with ZeRO's sub-groups, or in the bidirectional DualPipe",
     "Use `zero_group: 0` and another schedule, or `compression: {gradients: none}`"},
    {"P80", "a parameter server without workers", "A parameter server (`staleness`) with data 1, which has no workers",
     "`data: 2` or more, or no staleness"},
    {"P81", "a parameter server with pipeline or context parallelism",
     "A parameter server with pipeline stages or context parallelism: each worker must compute a whole gradient",
     "`pipeline: 1` and `context: 1`, with data and tensor parallelism"},
    {"P82", "a parameter server with ZeRO 2 or 3",
     "A parameter server with ZeRO 2 or 3, although its workers hold whole weights; or with sub-groups, each of which "
     "would be a server",
     "`zero_stage: 1`, `zero_group: 0`"},
    {"P83", "a parameter server with offload",
     "A parameter server with offload, with compression, or with embedding tables outside the devices' memory",
     "Use neither; `tiers: device`"},
    {"P84", "a parameter server in fp16, or with an optimizer that needs whole tensors",
     "A parameter server in fp16, or with LAMB, Adafactor or Muon, which look at whole tensors",
     "bf16 or fp32; AdamW, 8-bit Adam, Lion or SGD, of recommendation models any"},
    {"P85", "loss_chunks does not divide the head's rows",
     "`loss_chunks` does not divide the rows of a micro-batch for which the head computes logits",
     "Use a divisor of these rows, or `loss_chunks: 1`"},
    {"P86", "a zero-bubble order with the loss in chunks",
     "`loss_chunks` with a zero-bubble order, whose weight-gradient pass would need all chunks' logits",
     "`schedule: 1f1b`, or `loss_chunks: 1`"},
    {"P95", "lossless activations in a model without ReLU",
     "`activations: lossless` for a model without ReLU, whose activations have no zeros to leave out",
     "Use a model with `activation: relu`, or `compression: {activations: fp8}`"},
    {"P96", "lossless activations that could not be recomputed",
     "`activations: lossless` with ZeRO 3, offloaded parameters or sequence parallelism: what does not fit is "
     "recomputed from weights and inputs that are gone by then",
     "Use `zero_stage: 2`, no `offload: {parameters}` and `sequence_parallel: false`; or `compression: {activations: "
     "none}`"},
    {"P97", "a compression group that does not divide the replicas",
     "`compression: {group}` that does not divide the replicas into several groups of at least two, or with PowerSGD "
     "or fp16",
     "`compression: {group: 0}`"},
    {"P99", "lossless activations in fp8 or fp4",
     "`activations: lossless` with `precision: fp8` or fp4: what does not fit is recomputed, and the product's rounded "
     "operands are gone by then",
     "`precision: bf16`, or `compression: {activations: none}`"},
    {"P101", "gradients exchanged by node with ZeRO 3",
     "`compression: {group}` with ZeRO 3, which would have to gather its parameters by node too, in every pass",
     "`zero_stage: 2`, or `compression: {group: 0}`"},
    {"P102", "compression.start without PowerSGD", "`compression: {start}` without PowerSGD: nothing starts",
     "`compression: {gradients: powersgd}`, or no start"},
    {"P104", "context parallelism with windows, ALiBi or chosen tokens",
     "Context parallelism for a model whose attention depends on distances or a choice: a sliding window shorter than "
     "the sequence, ALiBi's slopes, or tokens that an `indexer` chooses",
     "`context: 1`; tensor and sequence parallelism split such models"},
    {"P111", "a custom order without passes, or passes without a custom order",
     "`schedule: custom` without `passes`, or `passes` beside another order",
     "The name of the order's file in a job; in a plan file both keys"},
    {"P112", "a custom order for another number of stages",
     "An order of passes for another number of ranks or chunks than the plan has",
     "`pipeline` and `virtual_stages` as the message says"},
    {"P113", "a custom order for another number of micro-batches",
     "An order of passes for another number of micro-batches than batch / (data × micro_batch)",
     "Use another `micro_batch` or batch, or an order for as many"},
    {"P118", "room for less than a token in an expert",
     "`capacity_factor` gives an expert room for less than one token of the job's sequence",
     "A longer sequence, or a larger `capacity_factor`; the message has the numbers"},
    {"P119", "expert_tensor does not divide the ranks",
     "`expert_tensor` does not divide the ranks of a stage: data × context × tensor", "A divisor of them, or none"},
    {"P120", "experts over other ranks than the tensor group without sequence parallelism",
     "`expert_tensor` other than the tensor degree without sequence parallelism: all ranks of a tensor group would "
     "send the same rows",
     "`sequence_parallel: true`, or no `expert_tensor`"},
    {"P121", "expert does not divide the experts", "`expert` does not divide the model's experts",
     "Use a divisor of the number of experts"},
    {"P122", "expert does not divide the replicas",
     "`expert` does not divide the groups of ranks that may share experts: data × context, or with `expert_tensor` "
     "data × context × tensor / `expert_tensor`",
     "A divisor of them"},
    {"P123", "tensor does not divide the experts' width",
     "`expert_tensor`, or else the tensor degree, does not divide an expert's width, or the tensor degree that of the "
     "shared ones",
     "Another degree"},
    {"P124", "a balancing loss with backward passes before the last forward pass",
     "A balancing loss over the whole step, as Orrery's own executors take it, in an order that begins backward passes "
     "before the last forward pass; for other software, which takes it of each micro-batch, this is predicted",
     "`schedule: gpipe`, one micro-batch a step, or a model with `aux_coefficient: 0`"},
    {"P125", "an expert's token limit where earlier tokens are on other ranks",
     "A token limit for experts although other ranks have the sequence's earlier tokens",
     "`context: 1`, and experts split over the tensor group: no `expert_tensor`, or that of `tensor`"},
    {"P126", "groups of replicas that cut across experts' ranks",
     "`zero_group`, or `group` of compressed gradients, whose ranks and those among which a layer's experts are "
     "divided "
     "do not divide one another",
     "A group that a layer's experts fill a whole number of times, or that is a part of their ranks"},
    {"P128", "a mixture of experts with an asynchronous order",
     "A mixture of experts with an asynchronous order or a parameter server", "Use a synchronous schedule"},
    {"P129", "more experts than tokens of a micro-batch",
     "More experts than a micro-batch has tokens for them, counting those of all ranks that share the experts",
     "A larger `micro_batch`, or a longer sequence"},
    {"P130", "a recommendation model split other than by data", "A recommendation model split over more than data",
     "Leave tensor, pipeline, context and expert out"},
    {"P131", "a recommendation model with several micro-batches",
     "A recommendation model with micro-batches smaller than a rank's samples, or with sequences",
     "Leave `micro_batch` and `sequence` out"},
    {"P132", "a recommendation model with a feature of transformers",
     "ZeRO, recomputation, offload, compressed gradients or a pipeline order for a recommendation model",
     "Leave them out; `embedding` says how tables are placed, and in what their vectors travel"},
    {"P133", "a recommendation model in fp8 or fp4", "",
     "`precision: fp32`, which runs; `tf32`, `bf16` and `fp16` are predicted"},
    {"P134", "a recommendation model with momentum or an unsupported optimizer",
     "A recommendation model with momentum, or another optimizer than SGD, row-wise Adagrad and Adam",
     "`optimizer: {name: sgd, momentum: 0}`, `rowwise_adagrad` or `adam`"},
    {"P135", "a placement that does not match the tables or ranks",
     "A placement of another number of tables, on ranks that are not there or twice, of parts that do not divide the "
     "columns, or of more parts than rows",
     "The message names the table"},
    {"P136", "table placements for a model without tables", "`embedding` of a model without tables",
     "Leave `embedding` out"},
    {"P137", "row-wise Adagrad for a model without tables", "`rowwise_adagrad` of a model without tables",
     "Another optimizer"},
    {"P138", "table memories that do not fit the model, or caches that are too small or not needed",
     "Memories of another number of tables than the model has; a table that stands on every rank outside the device; a "
     "cache without room for the rows of a step, or as large as the table",
     "The message says how much is needed"},
    {"P139", "tables on NVMe in a cluster without NVMe", "A table on NVMe on a cluster without",
     "Add `nvme` to the cluster's `node`, or use the host"},
    {"P142", "a token codec for a model without experts", "`tokens: {dispatch, combine}` of a model without experts",
     "Leave `tokens` out"},
    {"P160", "an optimizer that needs whole matrices, with an asynchronous order",
     "Muon in an asynchronous order, whose stages never stop to gather whole matrices",
     "`schedule: 1f1b`, or the optimizer adamw or lion"},
    {"P161", "an optimizer that needs whole matrices, with gradients exchanged by node",
     "Muon with gradients exchanged by node, whose shards do not follow one another",
     "`compression: {group: 0}`, or the optimizer adamw or lion"},
    {"P165", "adapters of products that the model has not, or beside what treats all parameters alike",
     "Adapters (`lora`) of products that the model has not (`targets: [qkv]` with latent attention, an MLP's where all "
     "are experts), or with an asynchronous order, DualPipe, a parameter server, compression, or offloaded weights or "
     "states",
     "As the message says: `targets: [proj]`"},
    {"P166", "partitioned checkpoints of what is not recomputed, or not the same on all ranks of a tensor group",
     "`partition_checkpoints` without full recomputation, without a tensor group, with sequence parallelism (which has "
     "divided the rows already), or of inputs that tensor does not divide",
     "`recompute: full` and `tensor` of at least 2; or `partition_checkpoints: false`"},
    {"P167", "partitioned checkpoints stored in fewer bits, or of an asynchronous order",
     "`partition_checkpoints` beside `compression: {activations}`, which would encode a part of a block's input, or in "
     "an asynchronous order, whose passes keep what several versions of the weights need",
     "One of the two"},
    {"P168", "recomputed modules without selective recomputation, or that the model has not",
     "`recompute_modules` with `recompute: none` or `full`, or with modules that the model has not: `up_projections` "
     "without latent attention, `experts` without experts",
     "`recompute: selective`, and modules that the model has"},
    {"P169", "tensor parallelism with a norm over all heads",
     "`tensor` above 1 for a model with `joint_qk_norm`, whose norm sees all heads of a token",
     "`tensor: 1`; ZeRO, pipeline and context parallelism split such models"},
    {"P170", "tensor does not divide a mixer",
     "`tensor` does not divide the heads of a mixer that keeps a state (`state_space`), their groups, or the runs of "
     "columns that its norm takes by themselves; the columns of short convolutions (`conv_taps`) or of selective state "
     "spaces; or lightning attention, whose norm takes all heads together",
     "a degree that divides all of them; ZeRO and pipeline stages split such models too"},
    {"P171", "context parallelism of mixers that read in order",
     "`context` above 1 for a model with mixers that read the tokens of a sequence one after another, such as state "
     "spaces, gated delta networks and short convolutions",
     "`context: 1`, with tensor and sequence parallelism, ZeRO or pipeline stages"},
});

/// The rule of a code; nullptr if no rule of a plan has it.
[[nodiscard]] constexpr const Rule* find_rule(std::string_view code) {
  const auto* const found = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& r) { return r.code == code; });
  return found == kRules.end() ? nullptr : found;
}

/// A remedy as a message has it: without Markdown, and beginning in lower case.
[[nodiscard]] inline std::string help_of(const Rule& rule) {
  std::string text(rule.remedy);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  std::erase(text, '`');
  return text;
}

/// A code that has a rule.
class RuleCode {
 public:
  consteval RuleCode(const char* code) : code_(code) {  // NOLINT(google-explicit-constructor): it is written as a text
    if (find_rule(code) == nullptr) throw "a code without a row in plan/spec/rules.h";
  }
  /// An error, with the rule's remedy, as plain text, unless `help` says something that fits the plan better.
  [[nodiscard]] base::Diagnostic broken(const std::string& message, const std::string& help = {},
                                        const base::Location& where = {}) const {
    return {base::Severity::error, code_, where, message, help.empty() ? help_of(*find_rule(code_)) : help, {}};
  }

 private:
  const char* code_;
};

}  // namespace orrery::plan
