// DeepSpeed's configuration as JSON: keys of DeepSpeed 0.17 (deepspeed.ai, "DeepSpeed Configuration JSON").
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "plan/frameworks/settings.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

using Json = nlohmann::json;
using models::DType;

constexpr double kSpeedHuge = 1e30;

template <class T>
Json speed_if(bool on, const T& value) {
  return on ? Json(value) : Json(nullptr);
}

Json reduce_word(const std::optional<ReduceType>& type) {
  return type ? Json(kReduceWords.at(static_cast<std::size_t>(*type))) : Json(nullptr);
}

bool says_autocast(const Writing& w) {
  return w.file.job.software.autocast.value_or(false);
}

int stage_of(const Writing& w) {
  return w.s().mesh.replicas() > 1 ? w.s().states.zero_stage : 0;
}
Json device_word(Space space) {
  return space == Space::device ? Json(nullptr) : Json(space == Space::host ? "cpu" : "nvme");
}
const OptimizerTraits& optimizer_traits(const Writing& w) {
  return traits_of(w.t().optimizer.kind);
}
bool checkpoints(const Writing& w) {
  return w.s().recomputation.what == Recompute::full;
}

/// The scheduler's name; null: there is none, or it cannot be said.
Json scheduler_word(const Writing& w) {
  switch (w.t().schedule.decay) {
    case Decay::none: return speed_if(w.t().schedule.warmup_steps > 0, "WarmupLR");
    case Decay::linear: return "WarmupDecayLR";
    case Decay::cosine: return "WarmupCosineLR";
    case Decay::inverse_square_root:
    case Decay::wsd: break;
  }
  return nullptr;
}
bool warms_to_rates(const Writing& w) {
  return !scheduler_word(w).is_null() && w.t().schedule.decay != Decay::cosine;
}
bool decays(const Writing& w) {
  return !scheduler_word(w).is_null() && w.t().schedule.decay != Decay::none;
}
bool decays_by_cosine(const Writing& w) {
  return w.t().schedule.decay == Decay::cosine;
}

Space space_in(Reading& r, const Given& g) {
  const std::string word = r.word(g, {"none", "cpu", "nvme"});
  return word == "cpu" ? Space::host : word == "nvme" ? Space::nvme : Space::device;
}

/// Whether the Trainer's arguments decide a value that moves no time and no memory: it keeps its default.
bool is_automatic(Reading& r, const Given& g) {
  if (g.values.size() != 1 || g.values.front().text != "auto") return false;
  r.pass_over(g, "\"auto\" leaves it to the Trainer's arguments, and a step takes the same time whatever they say");
  return true;
}

// clang-format off
#define WRITE []([[maybe_unused]] const Writing& w) -> Json
#define READ []([[maybe_unused]] Reading& r, [[maybe_unused]] const Given& g, [[maybe_unused]] Draft& d)
#define WHOLE(low, high) READ { d.open[g.key] = static_cast<double>(r.integer(g, low, high)); }
#define OPEN READ { d.open[g.key] = r.number(g, -kSpeedHuge, kSpeedHuge); }
#define MARK READ { d.open[g.key] = r.boolean(g) ? 1 : 0; }
#define NOTHING READ {}
#define SHOWN READ { if (!is_automatic(r, g)) d.open[g.key] = r.number(g, -kSpeedHuge, kSpeedHuge); }
#define SILENT READ { (void)is_automatic(r, g); }
const Setting kSpeed[] = {
    {"", "train_batch_size", WRITE { return w.s().shape.batch; }, WHOLE(1, kMostBatch)},
    {"", "train_micro_batch_size_per_gpu", WRITE { return w.s().shape.micro_batch; },
     READ { d.spec.shape.micro_batch = r.integer(g, 1, kMostBatch); }},
    {"", "gradient_accumulation_steps", WRITE { return w.plan.micro_batches(); }, WHOLE(1, kMostBatch)},
    {"", "gradient_clipping", WRITE { return speed_if(w.t().clip_norm.has_value(), w.t().clip_norm.value_or(0)); },
     READ { const double norm = r.number(g, 0, kSpeedHuge); if (norm > 0) d.training.clip_norm = norm; }},
    {"", "bf16.enabled",
     WRITE { return speed_if(w.s().numerics.precision == DType::bf16 && !says_autocast(w), true); },
     READ { if (r.boolean(g)) d.spec.numerics.precision = DType::bf16; }},
    {"", "fp16.enabled",
     WRITE { return speed_if(w.s().numerics.precision == DType::fp16 && !says_autocast(w), true); },
     READ { if (r.boolean(g)) d.spec.numerics.precision = DType::fp16; }},
    {"", "fp16.loss_scale", WRITE { return speed_if(w.s().numerics.precision == DType::fp16, 0); },
     READ { if (r.number(g, 0, kSpeedHuge) != 0) r.pass_over(g, "loss scales are dynamic here"); }},
    {"", "fp16.initial_scale_power",
     WRITE { return speed_if(w.s().numerics.precision == DType::fp16,
       std::llround(std::log2(w.t().loss_scaling.initial))); },
     READ { d.training.loss_scaling.initial = std::ldexp(1.0, static_cast<int>(r.integer(g, 0, 60))); }},
    {"", "fp16.loss_scale_window",
     WRITE { return speed_if(w.s().numerics.precision == DType::fp16, w.t().loss_scaling.interval); },
     READ { d.training.loss_scaling.interval = r.integer(g, 1, kMostSteps); }},
    {"", "fp16.hysteresis", WRITE { return speed_if(w.s().numerics.precision == DType::fp16, 1); },
     READ { if (r.integer(g, 1, 1 << 20) > 1) r.pass_over(g, "a loss scale shrinks at the first overflow here"); }},
    {"", "communication_data_type",
     WRITE {
       if (w.s().compresses()) return w.s().compression.gradients == GradientCompression::bf16 ? "bf16" : "fp16";
       return reduce_word(w.file.job.software.reduce_dtype);
     },
     READ {
       const std::string word = r.word(g, {"fp32", "bf16", "bfloat16", "fp16"});
       d.software.reduce_dtype = word == "fp32" ? ReduceType::fp32
                                 : word == "fp16" ? ReduceType::fp16 : ReduceType::bf16;
     }},
    {"", "data_types.grad_accum_dtype",
     WRITE {  // ZeRO's optimizers alone take another type than the parameters'
       return stage_of(w) > 0 ? reduce_word(w.file.job.software.gradient_dtype) : Json(nullptr);
     },
     READ {
       const std::string word = r.word(g, {"fp32", "bf16", "fp16"});
       d.software.gradient_dtype = word == "fp32" ? ReduceType::fp32
                                   : word == "bf16" ? ReduceType::bf16 : ReduceType::fp16;
     }},
    {"", "torch_autocast.dtype",
     WRITE { return speed_if(says_autocast(w), w.s().numerics.precision == DType::fp16 ? "float16" : "bfloat16"); },
     READ {
       if (r.word(g, {"bfloat16", "float16"}) == "float16") d.spec.numerics.precision = DType::fp16;
       else d.spec.numerics.precision = DType::bf16;
     }},
    {"", "torch_autocast.enabled", WRITE { return speed_if(says_autocast(w), true); },
     READ { if (r.boolean(g)) d.software.autocast = true; }},
    {"", "zero_optimization.stage", WRITE { return stage_of(w); },
     READ { d.spec.states.zero_stage = static_cast<int>(r.integer(g, 0, 3)); }},
    {"", "zero_optimization.contiguous_gradients", WRITE { return true; }, NOTHING},
    {"", "zero_optimization.reduce_scatter", WRITE { return true; }, NOTHING},
    {"", "zero_optimization.allgather_partitions", nullptr,  // true, as it usually is, gathers; false broadcasts
     READ { if (!r.boolean(g)) r.leave(g, "updated parameters are gathered here, not broadcast"); }},
    {"", "zero_optimization.overlap_comm", WRITE { return stage_of(w) >= 2 || w.s().reduces_early(); }, MARK},
    {"", "zero_optimization.offload_optimizer.device", WRITE { return device_word(w.s().offload.optimizer); },
     READ { d.spec.offload.optimizer = space_in(r, g); }},
    {"", "zero_optimization.offload_optimizer.nvme_path",
     WRITE { return speed_if(w.s().offload.optimizer == Space::nvme, "/local_nvme"); }, NOTHING},
    {"", "zero_optimization.offload_optimizer.pin_memory",
     WRITE { return speed_if(w.s().offload.optimizer != Space::device, true); }, NOTHING},
    {"", "zero_optimization.offload_param.device", WRITE { return device_word(w.s().offload.parameters); },
     READ { d.spec.offload.parameters = space_in(r, g); }},
    {"", "zero_optimization.offload_param.nvme_path",
     WRITE { return speed_if(w.s().offload.parameters == Space::nvme, "/local_nvme"); }, NOTHING},
    {"", "zero_optimization.offload_param.pin_memory",
     WRITE { return speed_if(w.s().offload.parameters != Space::device, true); }, NOTHING},
    {"", "zero_optimization.mics_shard_size",
     WRITE { return speed_if(stage_of(w) >= 1 && w.s().sub_groups() > 1, w.s().shards()); },
     READ { d.spec.states.zero_group = static_cast<int>(std::max<std::int64_t>(0, r.integer(g, -1, kMostRanks))); }},
    {"", "zero_optimization.mics_hierarchical_params_gather",
     WRITE { return speed_if(stage_of(w) >= 1 && w.s().sub_groups() > 1, false); },
     READ { if (r.boolean(g)) r.leave(g, "parameters are gathered at once here"); }},
    {"", "optimizer.type", WRITE { return std::string(optimizer_traits(w).deepspeed); },
     READ { d.words[g.key] = r.word(g, {"AdamW", "Adam", "SGD", "Lamb", "Lion", "Muon", "FusedAdam",
       "DeepSpeedCPUAdam"}); }},
    {"", "optimizer.params.lr", WRITE { return w.t().optimizer.learning_rate; }, SHOWN},
    {"", "optimizer.params.momentum",
     WRITE { return speed_if(optimizer_traits(w).keys.momentum, w.t().optimizer.momentum); }, OPEN},
    {"", "optimizer.params.betas",
     WRITE { return optimizer_traits(w).keys.betas ? Json({w.t().optimizer.beta1, w.t().optimizer.beta2}) :
       Json(nullptr); },
     READ {
       if (is_automatic(r, g)) return;
       double first = 0, second = 0;
       if (g.values.size() == 2 && read_number(g.values[0].text, first) && read_number(g.values[1].text, second))
         d.open["beta1"] = first, d.open["beta2"] = second;
       else
         r.error("E0653", g.where, "`optimizer.params.betas` is two numbers", "[0.9, 0.95]");
     }},
    {"", "optimizer.params.eps", WRITE { return speed_if(optimizer_traits(w).keys.epsilon, w.t().optimizer.epsilon); },
     SHOWN},
    {"", "optimizer.params.weight_decay", WRITE { return w.t().optimizer.weight_decay; }, SHOWN},
    {"", "scheduler.type", WRITE { return scheduler_word(w); },
     READ { d.words[g.key] = r.word(g, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}); }},
    {"", "scheduler.params.warmup_num_steps",
     WRITE { return speed_if(!scheduler_word(w).is_null(), w.t().schedule.warmup_steps); }, SHOWN},
    {"", "scheduler.params.total_num_steps", WRITE { return speed_if(decays(w), w.t().steps); }, OPEN},
    {"", "scheduler.params.warmup_min_lr", WRITE { return speed_if(warms_to_rates(w), 0); }, SILENT},
    {"", "scheduler.params.warmup_max_lr", WRITE { return speed_if(warms_to_rates(w), w.t().optimizer.learning_rate); },
     SHOWN},
    {"", "scheduler.params.warmup_min_ratio", WRITE { return speed_if(decays_by_cosine(w), 0); }, SILENT},
    {"", "scheduler.params.cos_min_ratio",
     WRITE {
       const double peak = w.t().optimizer.learning_rate;
       return speed_if(decays_by_cosine(w), peak > 0 ? w.t().schedule.minimum / peak : 0);
     }, OPEN},
    {"", "scheduler.params.warmup_type", WRITE { return speed_if(!scheduler_word(w).is_null(), "linear"); }, SILENT},
    {"", "activation_checkpointing.partition_activations",
     WRITE { return speed_if(checkpoints(w), w.s().recomputation.partition_checkpoints); },
     READ {
       d.open["checkpoints"] = 1;
       if (r.boolean(g)) r.pass_over(g, "tensor-parallel ranks divide checkpoints among them, and here is one");
     }},
    {"", "activation_checkpointing.cpu_checkpointing",
     WRITE { return speed_if(checkpoints(w), w.s().offload.activations == Space::host); },
     READ { d.open["checkpoints"] = 1; if (r.boolean(g)) d.spec.offload.activations = Space::host; }},
    {"", "activation_checkpointing.contiguous_memory_optimization", WRITE { return speed_if(checkpoints(w), false); },
     READ { d.open["checkpoints"] = 1; }},
    {"", "wall_clock_breakdown", WRITE { return false; }, NOTHING},
    {"", "bfloat16.enabled", nullptr, READ { if (r.boolean(g)) d.spec.numerics.precision = DType::bf16; }},
    {"", "sequence_length", nullptr, READ { d.spec.shape.sequence = r.integer(g, 1, kMostSequence); }},
    {"", "zero_optimization.cpu_offload", nullptr, READ { if (r.boolean(g)) d.spec.offload.optimizer = Space::host; }},
    {"", "activation_checkpointing.profile", nullptr, READ { d.open["checkpoints"] = 1; }},
    {"", "activation_checkpointing.number_checkpoints", nullptr, READ { d.open["checkpoints"] = 1; }},
    {"", "activation_checkpointing.synchronize_checkpoint_boundary", nullptr, READ { d.open["checkpoints"] = 1; }},
    {"", "bf16.loss_scale", nullptr, NOTHING},
    {"", "zero_optimization.offload_optimizer.ratio", nullptr,
     READ { if (r.number(g, 0, 1) < 1) r.leave(g, "states are offloaded whole here"); }},
};
#undef WRITE
#undef READ
#undef WHOLE
#undef OPEN
#undef MARK
#undef NOTHING
#undef SHOWN
#undef SILENT

struct SpeedPassed { const char* because; bool matters; std::vector<const char*> keys; };
const std::vector<SpeedPassed>& speed_passed() {
  static const std::vector<SpeedPassed> all = {
      {"it logs or measures", false,
       {"steps_per_print", "prescale_gradients", "dump_state", "flops_profiler.enabled", "flops_profiler.profile_step",
        "flops_profiler.module_depth", "flops_profiler.top_modules", "flops_profiler.detailed",
        "flops_profiler.output_file", "tensorboard.enabled", "tensorboard.output_path", "tensorboard.job_name",
        "wandb.enabled", "wandb.project", "memory_breakdown", "csv_monitor.enabled", "comms_logger.enabled",
        "comms_logger.verbose", "comms_logger.prof_all", "comms_logger.debug", "checkpoint.tag_validation",
        "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "elasticity.enabled"}},
      {"it changes no time or memory of a step", false,
       {"fp16.min_loss_scale", "fp16.auto_cast", "fp16.consecutive_hysteresis", "fp16.fp16_master_weights_and_grads",
        "bf16.auto_cast", "gradient_predivide_factor", "optimizer.params.bias_correction",
        "optimizer.params.adam_w_mode", "optimizer.params.torch_adam", "scheduler.params.last_batch_iteration",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save",
        "zero_optimization.stage3_gather_fp16_weights_on_model_save", "zero_optimization.load_from_fp32_weights",
        "zero_optimization.elastic_checkpoint", "zero_optimization.legacy_stage1",
        "zero_optimization.ignore_unused_parameters", "zero_optimization.round_robin_gradients",
        "optimizer.params.freeze_step", "sparse_gradients", "zero_optimization.log_trace_cache_warnings"}},
      {"the stack says how large its buckets are, and how far ahead it gathers", true,
       {"zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size",
        "zero_optimization.sub_group_size",
        "zero_optimization.stage3_max_live_parameters", "zero_optimization.stage3_max_reuse_distance",
        "zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.offload_optimizer.buffer_count", "zero_optimization.offload_optimizer.pipeline_read",
        "zero_optimization.offload_optimizer.pipeline_write", "zero_optimization.offload_optimizer.fast_init",
        "zero_optimization.offload_param.buffer_count", "zero_optimization.offload_param.buffer_size",
        "zero_optimization.offload_param.max_in_cpu", "zero_optimization.model_persistence_threshold", "aio.block_size",
        "aio.queue_depth", "aio.thread_count", "aio.single_submit", "aio.overlap_events"}},
      {"there is no word for it", true,
       {"zero_optimization.zero_quantized_weights", "zero_optimization.zero_quantized_gradients",
        "zero_optimization.zero_hpz_partition_size", "zero_optimization.zero_quantized_nontrainable_weights",
        "curriculum_learning.enabled", "data_efficiency.enabled", "compression_training.enabled",
        "progressive_layer_drop.enabled", "pipeline.stages", "pipeline.partition", "amp.enabled", "amp.opt_level",
        "sparse_attention.mode", "tensor_parallel.autotp_size", 
        "hybrid_engine.enabled", "disable_allgather", "fp32_allreduce", "sequence_parallel_size"}},
  };
  return all;
}
// clang-format on

double speed_open(const Draft& d, const char* key, double otherwise) {
  const auto at = d.open.find(key);
  return at == d.open.end() ? otherwise : at->second;
}

void speed_training(Reading& r, Draft& d) {
  Training& t = d.training;
  const auto named = d.words.find("optimizer.type");
  const std::string word = named == d.words.end() ? "AdamW" : named->second;
  const double decay = speed_open(d, "optimizer.params.weight_decay", word == "SGD" ? 0 : 0.01);
  t.optimizer = usual(word == "SGD"    ? OptimizerKind::sgd
                      : word == "Lamb" ? OptimizerKind::lamb
                      : word == "Lion" ? OptimizerKind::lion
                      : word == "Muon" ? OptimizerKind::muon
                      : decay == 0     ? OptimizerKind::adam
                                       : OptimizerKind::adamw);
  Optimizer& o = t.optimizer;
  o.weight_decay = decay;
  o.learning_rate = speed_open(d, "optimizer.params.lr", speed_open(d, "scheduler.params.warmup_max_lr", 1e-3));
  if (traits_of(o.kind).keys.betas) {
    o.beta1 = speed_open(d, "beta1", 0.9);
    o.beta2 = speed_open(d, "beta2", 0.999);
  }
  if (traits_of(o.kind).keys.epsilon) o.epsilon = speed_open(d, "optimizer.params.eps", 1e-8);
  if (traits_of(o.kind).keys.momentum) o.momentum = speed_open(d, "optimizer.params.momentum", o.momentum);
  if (!d.open.contains("optimizer.params.lr") && !d.open.contains("scheduler.params.warmup_max_lr"))
    r.assume(fmt::format("a learning rate of {}: --set optimizer.params.lr gives another", o.learning_rate));
  if (!d.open.contains("scheduler.params.total_num_steps"))
    r.assume(fmt::format("{} steps: --set scheduler.params.total_num_steps gives others", t.steps));
  const auto scheduler = d.words.find("scheduler.type");
  t.schedule.warmup_steps =
      static_cast<std::int64_t>(std::clamp(speed_open(d, "scheduler.params.warmup_num_steps", 0), 0.0, 1e12));
  if (const double total = speed_open(d, "scheduler.params.total_num_steps", 0); total >= 1 && total < 1e12)
    t.steps = static_cast<std::int64_t>(total);
  if (scheduler == d.words.end()) return;
  if (scheduler->second == "WarmupDecayLR") t.schedule.decay = Decay::linear;
  if (scheduler->second == "WarmupCosineLR") {
    t.schedule.decay = Decay::cosine;
    t.schedule.minimum = std::clamp(speed_open(d, "scheduler.params.cos_min_ratio", 1e-4), 0.0, 1.0) * o.learning_rate;
  }
}

}  // namespace

std::span<const Setting> deepspeed_settings_table() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> out(std::begin(kSpeed), std::end(kSpeed));
    for (const SpeedPassed& reason : speed_passed())
      for (const char* const name : reason.keys)
        out.push_back({"", name, nullptr, nullptr, reason.because, reason.matters});
    return out;
  }();
  return all;
}

Draft deepspeed_defaults() {
  Draft d;
  d.stack = "deepspeed";
  d.spec.shape.sequence = 0;
  d.spec.shape.micro_batch = 0;
  d.training.loss_scaling = {65536, 1000, 2};
  return d;
}

void finish_deepspeed(Reading& r, Draft& d, const base::Location& where) {
  if (r.failed()) return;
  PlanSpec& s = d.spec;
  const auto whole = [&](const char* key) {
    return static_cast<std::int64_t>(std::clamp(speed_open(d, key, 0), 0.0, 1e12));
  };
  std::int64_t batch = whole("train_batch_size"), steps = whole("gradient_accumulation_steps");
  std::int64_t& micro = s.shape.micro_batch;
  std::int64_t ranks = d.ranks;
  // Any two of the three, and the ranks, give the last (runtime/config.py, _set_batch_related_parameters).
  if (ranks == 0 && batch > 0 && micro > 0 && steps > 0) ranks = std::max<std::int64_t>(1, batch / micro / steps);
  if (!product_up_to(kMostBatch, {micro, std::max<std::int64_t>(steps, 1), ranks}) || ranks > kMostRanks)
    return r.error("E0653", where, "more GPUs or sequences than any run has", "");
  if (ranks < 1) return r.error("E0654", where, "how many GPUs there are is not given", "--ranks 8");
  if (batch > 0 && micro > 0 && steps == 0) steps = batch / (micro * ranks);
  if (batch > 0 && steps > 0 && micro == 0) micro = batch / (steps * ranks);
  if (batch > 0 && micro == 0) {
    steps = 1, micro = batch / ranks;
    r.assume(fmt::format("micro-batches of {}, a step's share of each GPU", micro));
  }
  if (micro > 0 && batch == 0) batch = micro * std::max<std::int64_t>(steps, 1) * ranks;
  if (batch < 1 || micro < 1)
    return r.error("E0654", where, "no batch is given", "--set train_micro_batch_size_per_gpu=4, or train_batch_size");
  if (batch % (micro * ranks) != 0 || (steps > 0 && batch != micro * steps * ranks))
    return r.error("E0653", where,
                   fmt::format("the batches do not multiply up: {} is not {} x {} x {} GPUs", batch, micro,
                               std::max<std::int64_t>(steps, 1), ranks),
                   "train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x GPUs, which "
                   "--ranks gives");
  s.shape.batch = batch;
  s.mesh.data = static_cast<int>(ranks);
  d.ranks = s.mesh.data;
  if (s.mesh.data == 1) s.states = {}, s.compression.gradients = GradientCompression::none;
  if (s.states.zero_group >= s.mesh.data) s.states.zero_group = 0;
  s.states.overlap_gradients = s.mesh.data > 1 && speed_open(d, "zero_optimization.overlap_comm", 0) != 0 &&
                               (s.states.zero_stage < 2 || s.sub_groups() > 1);
  if (d.open.contains("checkpoints")) {
    s.recomputation.what = Recompute::full;
    r.assume("every block is recomputed, as there is a section `activation_checkpointing`; the model's code decides");
  }
  speed_training(r, d);
}

}  // namespace orrery::plan
