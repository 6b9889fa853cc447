/// Words of a run's software, each with the stacks that know it and with what it changes there.
#include "cost/parameters/as_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cost/parameters/habits.h"

namespace orrery::cost {

namespace {

using plan::Software;

/// A stack while words change it.
struct Changing {
  Stack& own;
  const Stack& named;  ///< as its file has it
  const Software& said;
  const FindStack& find;
  const char* key = "";  ///< the word

  void set(const char* number, double value) const {
    erase(number);
    own.parameters.push_back({number, value, unit_of(number), fmt::format("the run's software: {}", key)});
  }
  void erase(const std::string& number) const {
    std::erase_if(own.parameters, [&](const Parameter& known) { return known.name == number; });
  }
};

/// What stands against a word: nothing, or why the stack does not know it and what to do.
struct Against {
  std::string why, help;
};
using Answer = std::optional<Against>;

bool composes(const MemoryRecipe& r) {
  return r.composes_gates || r.composes_norms || r.repeats_keys;
}

/// Numbers that are facts of a model's code, which hold on other engines too.
constexpr const char* kOfModelCode[] = {"stack.norm_passes", "stack.loss_passes", "stack.rotary_passes",
                                        "stack.adapter_bytes", "stack.adapter_calls"};

/// Whether a stack says nothing of a model's own code, so that this may be anyone's.
bool runs_any_code(const Stack& stack) {
  return stack.generic || stack.software().rfind("deepspeed", 0) == 0;
}

const char* code_of(plan::OperatorCode operators) {
  return operators == plan::OperatorCode::transformers ? kTransformers : kGenericEager;
}

/// Of those numbers and of what autograd keeps of it, the code's own.
void take_code(const Changing& c, const Stack& code) {
  for (const char* number : kOfModelCode) {
    const auto at = std::find_if(code.parameters.begin(), code.parameters.end(),
                                 [&](const Parameter& p) { return p.name == number; });
    if (at != code.parameters.end()) c.set(number, at->value);
    if (at == code.parameters.end() && c.said.operators == plan::OperatorCode::fused) c.erase(number);
  }
  take_model_code(code.memory, c.own.memory);
}

Answer against_operators(const Stack& stack, const Software& s, const FindStack& find) {
  if (!runs_any_code(stack))
    return Against{fmt::format("{} runs models of its own, whose kernels its file says", stack.name),
                   "leave `operators` out, or name a generic stack: huggingface, generic-eager"};
  if (find(code_of(*s.operators)) == nullptr)
    return Against{fmt::format("there is no stack `{}` to take them from", code_of(*s.operators)),
                   "add its file to the catalogue"};
  return std::nullopt;
}

Answer against_compiled(const Stack& stack, const Software& s, const FindStack&) {
  if (*s.compiled && !composes(stack.memory))
    return Against{fmt::format("{} composes nothing that a compiler would fuse, by its file", stack.name),
                   "leave it out where the stack is of compiled code; else name one that is: pytorch-fsdp-compiled, "
                   "generic-compiled"};
  if (!*s.compiled && stack.eager.empty())
    return Against{fmt::format("{} has no other numbers for eager code (`eager:` of its file)", stack.name),
                   "leave it out where the stack is of eager code; else name one that is: pytorch-fsdp, "
                   "generic-eager"};
  return std::nullopt;
}

/// Numbers that a compiler decides wherever it runs.
constexpr const char* kOfCompiler[] = {"stack.elementwise_passes", "stack.norm_passes",       "stack.rotary_passes",
                                       "stack.op_overhead",        "stack.dispatch_overhead", "stack.host_op_time"};

void fuse_memory(MemoryRecipe& r) {
  r.composes_gates = r.composes_norms = r.repeats_keys = false;
}

void take_compiled(const Changing& c) {
  if (!*c.said.compiled) {
    for (const Parameter& p : c.named.eager) {
      c.erase(p.name);
      c.own.parameters.push_back(p);
    }
    return;
  }
  fuse_memory(c.own.memory);
  const Stack* const compiled = c.named.generic ? c.find(kGenericCompiled) : nullptr;
  if (compiled == nullptr) return;
  for (const char* number : kOfCompiler) {
    const auto at = std::ranges::find(compiled->parameters, std::string(number), &Parameter::name);
    if (at != compiled->parameters.end())
      c.set(number, at->value);
    else
      c.erase(number);
  }
}

void take_attention(const Changing& c) {
  using plan::AttentionKernel;
  constexpr double kFirst = 1, kSecond = 2, kBest = 3, kXlaKernels = 3;
  c.own.flash = plan::attends_fused(c.said);
  if (c.own.flash) {  // FlashAttention 2 and cuDNN's attention run from sm_80 on, FlashAttention 3 from sm_90
    const bool third = *c.said.attention_kernel == AttentionKernel::flash_3;
    const auto from = third ? clusters::Architecture::hopper : clusters::Architecture::ampere;
    c.own.can.flash_from = std::max(c.own.can.flash_from, from);
  }
  switch (*c.said.attention_kernel) {
    case AttentionKernel::flash_1: return c.set("stack.attention_generation", kFirst);
    case AttentionKernel::flash_2: return c.set("stack.attention_generation", kSecond);
    case AttentionKernel::flash_3:
    case AttentionKernel::cudnn: return c.set("stack.attention_generation", kBest);
    case AttentionKernel::math:  // a product, a mask, a softmax and a dropout, each a kernel, at any length
      c.set("stack.softmax_longest", 1);
      return;
    case AttentionKernel::xla:  // maximum; sum; quotient, with scaling and mask in each (before openxla/xla's
                                // softmax_rewriter_triton.cc of 2023)
      c.set("stack.softmax_longest", 1);
      c.set("stack.softmax_kernels", kXlaKernels);
      return;
  }
}

/// With a mask PyTorch's scaled_dot_product_attention runs its memory-efficient kernel instead of FlashAttention's,
/// over all scores (Transformers, modeling_attn_mask_utils.py, _ignore_causal_mask_sdpa; ATen, sdp_utils.cpp).
void take_mask(const Changing& c) {
  if (!*c.said.padding_mask) return;
  c.set("stack.attention_share", number_of(c.own, "stack.attention_share", 1) / 2);
  c.set("stack.attention_generation", 1);
}

/// torch.nn.RMSNorm before PyTorch 2.9 (pytorch/pytorch #153666) moves as many bytes as Transformers' LlamaRMSNorm.
void take_norms(const Changing& c) {
  constexpr double kComposed = 9;
  if (*c.said.rms_norm == plan::NormKernel::composed) return c.set("stack.norm_passes", kComposed);
  c.own.memory.composes_norms = false;
  c.erase("stack.norm_passes");
}

void take_loss(const Changing& c) {
  MemoryRecipe& r = c.own.memory;
  constexpr int kNative = 2, kUpcast = 3;
  switch (*c.said.cross_entropy) {
    case plan::LossKernel::native: r.loss_copies = kNative; break;
    case plan::LossKernel::upcast: r.loss_copies = kUpcast; break;
    case plan::LossKernel::compiled: r.loss_copies = 0, r.loss_apart = true; break;
    case plan::LossKernel::fused: r.loss_copies = 0, r.loss_apart = false; break;
  }
}

/// In 16 bits PyTorch's AdamW, which updates lists of tensors at once, makes a value per parameter for the roots of the
/// second moments (torch/optim/adamw.py, _multi_tensor_adamw: exp_avg_sq_sqrt).
void take_masters(const Changing& c) {
  constexpr double kRoot = 2;
  c.set("stack.one_copy", *c.said.master_weights ? 0 : 1);
  if (*c.said.master_weights) return;
  c.own.memory.update_bf16 = std::max(c.own.memory.update_bf16, kRoot);
  c.own.memory.update_fp16 = std::max(c.own.memory.update_fp16, kRoot);
}

void take_gradients(const Changing& c) {
  constexpr double kHalf = 2, kSingle = 4;  // bytes
  const bool half = *c.said.gradient_dtype != plan::ReduceType::fp32;
  c.own.memory.gradient_bytes = half ? kHalf : kSingle;
  if (!half) return;
  c.own.memory.gradients_beside = false;
  c.set("stack.reduces_half", 1);  // what adds up in 16 bits travels so
}

/// PyTorch's loops on the host read and write each value once per operation of the update (`stack.host_share`);
/// fused=True (torch/optim/adamw.py, _fused_adamw) and DeepSpeed's CPU-Adam do so once.
Answer against_fused_update(const Stack& stack, const Software&, const FindStack&) {
  if (number_of(stack, "stack.host_share", 1) < 1) return std::nullopt;
  return Against{fmt::format("{} has one optimizer for the host, by its file", stack.name),
                 "leave `fused_optimizer` out"};
}

Answer against_scatter(const Stack& stack, const Software&, const FindStack&) {
  if (number_of(stack, "stack.pipeline_scatter", 0) != 0) return std::nullopt;
  return Against{fmt::format("{} scatters nothing between stages, by its file", stack.name),
                 "leave `scatter_gather` out"};
}

/// nanotron 8B (2024), runs on a slow network: a stage's layer takes 14, 23 and 50 ms with 4, 8 and 16 tensor ranks
/// however few rows it has; one digit.
void take_network(const Changing& c) {
  constexpr double kWait = 200e-6;
  if (*c.said.slow_network) c.set("stack.pipeline_message_time", kWait);
}

Answer against_norms(const Stack& stack, const Software& s, const FindStack&) {
  if (composes(stack.memory) || s.operators == plan::OperatorCode::transformers) return std::nullopt;
  return Against{fmt::format("{} has RMS norms of one kind alone, by its file", stack.name), "leave `rms_norm` out"};
}

Answer against_network(const Stack& stack, const Software&, const FindStack&) {
  if (stack.generic) return std::nullopt;
  return Against{fmt::format("{} has numbers of its own runs' networks", stack.name),
                 "describe the network in the cluster's file"};
}

Answer against_rate(const Stack&, const Software& s, const FindStack& find) {
  if (find(*s.gemm_rate_of) != nullptr) return std::nullopt;
  return Against{fmt::format("no stack is called `{}`", *s.gemm_rate_of),
                 "name one of the catalogue's: generic-eager, generic-compiled"};
}

void take_rate(const Changing& c) {
  constexpr const char* kRate = "stack.matmul_share";
  const double rate = number_of(*c.find(*c.said.gemm_rate_of), kRate, 1);
  if (rate < number_of(c.own, kRate, 1)) c.set(kRate, rate);
}

void take_recipe(const Changing& c) {
  using plan::Fp8Recipe;
  const Fp8Recipe recipe = *c.said.fp8_recipe;
  c.own.memory.scales_blocks =
      recipe == Fp8Recipe::blockwise || recipe == Fp8Recipe::mxfp8 || recipe == Fp8Recipe::nvfp4;
}

/// A word of Software's table.
struct SoftwareWord {
  const char* key;
  bool (*says)(const Software& s);
  /// Null: every stack knows it.
  Answer (*against)(const Stack& stack, const Software& s, const FindStack& find);
  void (*take)(const Changing& c);
  void (*forget)(Software& s);
};

template <auto Member>
constexpr SoftwareWord word_of(const char* key, decltype(SoftwareWord::against) against,
                               decltype(SoftwareWord::take) take) {
  return {key, [](const Software& s) { return (s.*Member).has_value(); }, against, take,
          [](Software& s) { (s.*Member).reset(); }};
}

/// In the order in which they are taken: what a model's code is comes before what replaces a part of it.
constexpr SoftwareWord kWords[] = {
    word_of<&Software::compiled>("compiled", against_compiled, take_compiled),
    word_of<&Software::operators>("operators", against_operators,
                                  [](const Changing& c) { take_code(c, *c.find(code_of(*c.said.operators))); }),
    word_of<&Software::rms_norm>("rms_norm", against_norms, take_norms),
    word_of<&Software::attention_kernel>("attention_kernel", nullptr, take_attention),
    word_of<&Software::padding_mask>("padding_mask", nullptr, take_mask),
    word_of<&Software::cross_entropy>("cross_entropy", nullptr, take_loss),
    word_of<&Software::autocast>("autocast", nullptr,
                                 [](const Changing& c) { c.own.memory.wide_sums = *c.said.autocast; }),
    word_of<&Software::tuned_gemms>("tuned_gemms", nullptr,
                                    [](const Changing& c) { c.set("stack.untuned", *c.said.tuned_gemms ? 0 : 1); }),
    word_of<&Software::fp8_recipe>("fp8_recipe", nullptr, take_recipe),
    word_of<&Software::fp8_param_gather>("fp8_param_gather", nullptr,
                                         [](const Changing& c) {
                                           c.own.memory.rounded_weights = *c.said.fp8_param_gather
                                                                              ? RoundedWeights::instead
                                                                              : RoundedWeights::beside;
                                         }),
    word_of<&Software::moment_bits>("moment_bits", nullptr,
                                    [](const Changing& c) {
                                      constexpr double kBits = 8, kMoments = 2;
                                      c.own.memory.moment_bytes =
                                          kMoments * static_cast<double>(*c.said.moment_bits) / kBits;
                                    }),
    word_of<&Software::master_weights>("master_weights", nullptr, take_masters),
    word_of<&Software::gradient_dtype>("gradient_dtype", nullptr, take_gradients),
    word_of<&Software::reduce_dtype>(
        "reduce_dtype", nullptr,
        [](const Changing& c) { c.set("stack.reduces_half", *c.said.reduce_dtype == plan::ReduceType::fp32 ? 0 : 1); }),
    word_of<&Software::expandable_segments>("expandable_segments", nullptr,
                                            [](const Changing& c) {
                                              if (*c.said.expandable_segments)
                                                c.own.memory.fragmentation = c.own.memory.stuck = 0;
                                            }),
    word_of<&Software::fused_optimizer>("fused_optimizer", against_fused_update,
                                        [](const Changing& c) {
                                          if (*c.said.fused_optimizer) c.set("stack.host_share", 1);
                                        }),
    word_of<&Software::cpu_offloading_layers>(
        "cpu_offloading_layers", nullptr,
        [](const Changing& c) { c.own.memory.blocks_on_host = *c.said.cpu_offloading_layers; }),
    word_of<&Software::scatter_gather>("scatter_gather", against_scatter,
                                       [](const Changing& c) {
                                         if (!*c.said.scatter_gather) c.erase("stack.pipeline_scatter");
                                       }),
    word_of<&Software::token_dispatcher>("token_dispatcher", nullptr,
                                         [](const Changing& c) {
                                           c.set("stack.exchange_two_hop",
                                                 *c.said.token_dispatcher == plan::TokenDispatcher::alltoall ? 0 : 1);
                                         }),
    word_of<&Software::overlap_exchange>(
        "overlap_exchange", nullptr,
        [](const Changing& c) {
          c.set("stack.exchange_hidden", *c.said.overlap_exchange ? 1 : 0);
          c.own.overlap_exchange = *c.said.overlap_exchange;  // of passes beside each other (plan::runs_beside)
        }),
    word_of<&Software::cuda_graphs>("cuda_graphs", nullptr,
                                    [](const Changing& c) { c.set("stack.graphed", *c.said.cuda_graphs ? 1 : 0); }),
    word_of<&Software::router_fusion>(
        "router_fusion", nullptr,
        [](const Changing& c) { c.set("stack.groups_unfused", *c.said.router_fusion ? 0 : 1); }),
    word_of<&Software::slow_network>("slow_network", against_network, take_network),
    word_of<&Software::gemm_rate_of>("gemm_rate_of", against_rate, take_rate),
};

Answer against(const SoftwareWord& word, const Stack& stack, const Software& software, const FindStack& find) {
  if (stack.own)
    return Against{fmt::format("{} is Orrery's own software, whose file says all of it", stack.name),
                   "leave `software` out"};
  return word.against == nullptr ? std::nullopt : word.against(stack, software, find);
}

}  // namespace

std::vector<RefusedWord> refused_words(const Stack& stack, const Software& software, const FindStack& find) {
  std::vector<RefusedWord> out;
  for (const SoftwareWord& word : kWords)
    if (word.says(software))
      if (auto no = against(word, stack, software, find))
        out.push_back({word.key, std::move(no->why), std::move(no->help)});
  return out;
}

plan::Software known_words(const Stack& stack, Software software, const FindStack& find) {
  const Software all = software;
  for (const SoftwareWord& word : kWords)
    if (word.says(all) && against(word, stack, all, find)) word.forget(software);
  return software;
}

Stack as_run(const Stack& stack, const Software& software, const FindStack& find) {
  Stack own = stack;
  if (!software.compiled && !stack.eager.empty()) fuse_memory(own.memory);  // its numbers are of compiled code
  if (software == Software()) return own;
  for (const SoftwareWord& word : kWords)
    if (word.says(software) && !against(word, stack, software, find)) word.take({own, stack, software, find, word.key});
  // Without a copy of the logits in fp32 the loss is one kernel.
  if (!own.own && own.memory.loss_copies == 0 && number_of(own, "stack.loss_passes", 1) != 1)
    Changing{own, stack, software, find, "no copy of the logits in fp32"}.set("stack.loss_passes", 1);
  return own;
}

}  // namespace orrery::cost
