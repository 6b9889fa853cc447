// torchtitan's job configuration as TOML: v0.2.2 (73a0e697, 2026-02-20; torchtitan/config/job_config.py), its last
// version that reads TOML.
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

constexpr double kTitanHuge = 1e30;

template <class T>
Json titan_if(bool on, const T& value) {
  return on ? Json(value) : Json(nullptr);
}

/// How its pipelines divide layers: embedding and head count as so many layers, and early stages take what is left
/// (torchtitan/distributed/pipeline_parallel.py). Empty: it refuses.
std::vector<std::int64_t> titan_split(std::int64_t layers, std::int64_t stages, std::int64_t first, std::int64_t last) {
  const std::int64_t weight = layers + first + last;
  if (stages < 1 || weight / stages == 0 || first > weight / stages || last > weight / stages) return {};
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < stages; ++i) {
    std::int64_t here = weight / stages + (i < weight % stages ? 1 : 0);
    if (i == 0)
      here -= first;
    else if (i == stages - 1)
      here -= last;
    out.push_back(here);
  }
  return out;
}

const char* schedule_word(const PlanSpec& s) {
  if (s.stages.order == Order::gpipe) return "GPipe";
  return s.stages.virtual_stages > 1 ? "Interleaved1F1B" : "1F1B";
}

/// Whether embedding and head as a layer each, or as none, give this plan's stages.
int ends_that_split(const Writing& w) {
  if (w.s().stages.virtual_stages > 1) return -1;
  for (const int ends : {1, 0})
    if (titan_split(w.m().layers, w.s().mesh.pipeline, ends, ends) == w.s().stages.layers_per_stage) return ends;
  return -1;
}

Json parts_of(const Writing& w) {
  if (w.s().mesh.pipeline == 1 || ends_that_split(w) >= 0) return nullptr;
  Json out = Json::array();
  std::int64_t layer = 0;
  const std::vector<std::int64_t>& stages = w.s().stages.layers_per_stage;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Json part = Json::array();
    if (i == 0) part.push_back("tok_embeddings");
    for (std::int64_t k = 0; k < stages[i]; ++k) part.push_back(fmt::format("layers.{}", layer++));
    if (i + 1 == stages.size()) part.push_back("norm"), part.push_back("output");
    out.push_back(std::move(part));
  }
  return out;
}

/// Ranks of the data dimension that shard, and those that only replicate.
int sharding_ranks(const PlanSpec& s) {
  if (!partitions(s)) return 1;
  return std::max(1, s.mesh.data / s.sub_groups());
}

// clang-format off
#define WRITE []([[maybe_unused]] const Writing& w) -> Json
#define READ []([[maybe_unused]] Reading& r, [[maybe_unused]] const Given& g, [[maybe_unused]] Draft& d)
#define COUNT(member, most) READ { d.member = static_cast<int>(r.integer(g, 1, most)); }
#define WHOLE(low, high) READ { d.open[g.key] = static_cast<double>(r.integer(g, low, high)); }
#define OPEN READ { d.open[g.key] = r.number(g, -kTitanHuge, kTitanHuge); }
#define MARK READ { d.open[g.key] = r.boolean(g) ? 1 : 0; }
#define WORD READ { d.words[g.key] = r.text(g); }
const Setting kTitan[] = {
    {"model", "model.name",
     WRITE { const TorchtitanModel* const one = torchtitan_model(w.m()); return titan_if(one != nullptr, one ?
       one->name : ""); },
     WORD},
    {"model", "model.flavor",
     WRITE { const TorchtitanModel* const one = torchtitan_model(w.m()); return titan_if(one != nullptr, one ?
       one->flavor : ""); },
     WORD},
    {"model", "model.converters",
     WRITE {
       if (w.s().numerics.precision != DType::fp8) return nullptr;
       Json out = {"quantize.linear.float8"};
       if (w.m().experts.any()) out.push_back("quantize.grouped_mm.float8");
       return out;
     },
     READ {
       for (const GivenValue& one : g.values)
         if (one.text.find("float8") != std::string::npos)
           d.spec.numerics.precision = DType::fp8;
         else if (one.text.find(".mx") != std::string::npos)
           d.spec.numerics.precision = DType::fp8, d.software.fp8_recipe = Fp8Recipe::mxfp8;
         else
           r.leave(g, fmt::format("{} has no counterpart", base::quoted(one.text)));
     }},
    {"optimizer", "optimizer.name", WRITE { return w.t().optimizer.kind == OptimizerKind::adam ? "Adam" : "AdamW"; },
     READ { d.words[g.key] = r.word(g, {"AdamW", "Adam"}); }},
    {"optimizer", "optimizer.lr", WRITE { return w.t().optimizer.learning_rate; }, OPEN},
    {"optimizer", "optimizer.beta1", WRITE { return w.t().optimizer.beta1; }, OPEN},
    {"optimizer", "optimizer.beta2", WRITE { return w.t().optimizer.beta2; }, OPEN},
    {"optimizer", "optimizer.eps", WRITE { return w.t().optimizer.epsilon; }, OPEN},
    {"optimizer", "optimizer.weight_decay", WRITE { return w.t().optimizer.weight_decay; }, OPEN},
    {"lr_scheduler", "lr_scheduler.warmup_steps", WRITE { return w.t().schedule.warmup_steps; },
     READ { d.training.schedule.warmup_steps = r.integer(g, 0, kMostSteps); }},
    {"lr_scheduler", "lr_scheduler.decay_type",
     WRITE { return w.t().schedule.decay == Decay::cosine ? "cosine" : "linear"; },
     READ { d.words[g.key] = r.word(g, {"linear", "sqrt", "cosine"}); }},
    {"lr_scheduler", "lr_scheduler.decay_ratio",
     WRITE {
       const LearningRateSchedule& s = w.t().schedule;
       const auto steps = static_cast<double>(w.t().steps);
       return titan_if(s.decay == Decay::wsd, s.decay_steps > 0 ? static_cast<double>(s.decay_steps) / steps : 0.1);
     }, READ { d.open[g.key] = r.number(g, 0, 1); }},
    // A rate that decays to its whole is constant.
    {"lr_scheduler", "lr_scheduler.min_lr_factor",
     WRITE {
       if (w.t().schedule.decay == Decay::none) return 1.0;
       const double peak = w.t().optimizer.learning_rate;
       return peak > 0 ? w.t().schedule.minimum / peak : 0.0;
     }, READ { d.open[g.key] = r.number(g, 0, 1); }},
    {"training", "training.local_batch_size",
     WRITE { return w.s().mesh.pipeline > 1 ? w.s().shape.batch / w.s().mesh.data : w.s().shape.micro_batch; },
     WHOLE(1, kMostBatch)},
    {"training", "training.global_batch_size", WRITE { return w.s().shape.batch; }, WHOLE(-1, kMostBatch)},
    {"training", "training.seq_len", WRITE { return w.s().shape.sequence; },
     READ { d.spec.shape.sequence = r.integer(g, 1, kMostSequence); d.open[g.key] = 1; }},
    {"training", "training.max_norm", WRITE { return titan_if(w.t().clip_norm.has_value(),
       w.t().clip_norm.value_or(0)); },
     READ { d.training.clip_norm = r.number(g, 1e-30, kTitanHuge); }},
    {"training", "training.steps", WRITE { return w.t().steps; },
     READ { d.training.steps = r.integer(g, 1, kMostSteps); d.open[g.key] = 1; }},
    {"training", "training.enable_cpu_offload", WRITE { return w.s().offload.states(); },
     READ { if (r.boolean(g)) d.spec.offload.optimizer = d.spec.offload.parameters = Space::host; }},
    {"training", "training.mixed_precision_param",
     WRITE { return w.s().numerics.precision == DType::fp32 ? "float32" : "bfloat16"; },
     READ { if (r.word(g, {"bfloat16", "float32"}) == "float32" && d.spec.numerics.precision == DType::bf16)
              d.spec.numerics.precision = DType::fp32; }},
    {"training", "training.mixed_precision_reduce",
     WRITE {
       return w.file.job.software.reduce_dtype.value_or(ReduceType::fp32) == ReduceType::bf16 ? "bfloat16" : "float32";
     },
     READ { if (r.word(g, {"float32", "bfloat16"}) == "bfloat16") d.software.reduce_dtype = ReduceType::bf16; }},
    {"training", "training.dtype",
     WRITE { return titan_if(!w.file.job.software.master_weights.value_or(true), "bfloat16"); },
     READ {
       constexpr std::int64_t kHalf = 16;
       if (r.word(g, {"float32", "bfloat16"}) == "bfloat16")
         d.software.master_weights = false, d.software.moment_bits = kHalf;
     }},
    {"", "quantize.linear.mx.recipe_name", nullptr,
     READ {
       if (r.text(g).rfind("mxfp8", 0) != 0) r.leave(g, "products in fewer than 8 bits are not known here");
     }},
    {"parallelism", "parallelism.data_parallel_replicate_degree",
     WRITE { return w.s().mesh.data / sharding_ranks(w.s()); }, WHOLE(1, kMostRanks)},
    {"parallelism", "parallelism.data_parallel_shard_degree", WRITE { return sharding_ranks(w.s()); },
     WHOLE(-1, kMostRanks)},
    {"parallelism", "parallelism.fsdp_reshard_after_forward",
     WRITE { return titan_if(partitions(w.s()), w.s().states.zero_stage == 3 ? "always" : "never"); },
     READ { d.words[g.key] = r.word(g, {"default", "always", "never"}); }},
    {"parallelism", "parallelism.tensor_parallel_degree", WRITE { return w.s().mesh.tensor; },
     COUNT(spec.mesh.tensor, kMostRanks)},
    {"parallelism", "parallelism.context_parallel_degree", WRITE { return w.s().mesh.context; },
     COUNT(spec.mesh.context, kMostRanks)},
    {"parallelism", "parallelism.pipeline_parallel_degree", WRITE { return w.s().mesh.pipeline; },
     COUNT(spec.mesh.pipeline, kMostRanks)},
    {"parallelism", "parallelism.pipeline_parallel_schedule",
     WRITE { return titan_if(w.s().mesh.pipeline > 1, schedule_word(w.s())); },
     READ { d.words[g.key] = r.word(g, {"1F1B", "GPipe", "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV"}); }},
    {"parallelism", "parallelism.pipeline_parallel_microbatch_size",
     WRITE { return titan_if(w.s().mesh.pipeline > 1, w.s().shape.micro_batch); }, WHOLE(1, kMostBatch)},
    {"parallelism", "parallelism.pipeline_parallel_first_stage_less_layers",
     WRITE { return titan_if(w.s().mesh.pipeline > 1 && ends_that_split(w) >= 0, ends_that_split(w)); },
     WHOLE(0, kMostLayers)},
    {"parallelism", "parallelism.pipeline_parallel_last_stage_less_layers",
     WRITE { return titan_if(w.s().mesh.pipeline > 1 && ends_that_split(w) >= 0, ends_that_split(w)); },
     WHOLE(0, kMostLayers)},
    {"parallelism", "parallelism.pipeline_parallel_layers_per_stage", nullptr, WHOLE(1, kMostLayers)},
    {"parallelism", "parallelism.module_fqns_per_model_part", WRITE { return parts_of(w); },
     READ {
       std::vector<std::int64_t> stages;
       for (const GivenValue& one : g.values) {
         std::int64_t layers = 0;
         for (std::size_t at = one.text.find("layers."); at != std::string::npos; at = one.text.find("layers.", at + 1))
           ++layers;
         stages.push_back(layers);
       }
       d.spec.stages.layers_per_stage = stages;
     }},
    {"parallelism", "parallelism.expert_parallel_degree",
     WRITE { return titan_if(w.m().experts.any(), w.s().mesh.expert); }, COUNT(spec.mesh.expert, kMostRanks)},
    {"parallelism", "parallelism.expert_tensor_parallel_degree",
     WRITE { return titan_if(w.m().experts.any(), w.s().mesh.expert_ways()); }, WHOLE(1, kMostRanks)},
    {"activation_checkpoint", "activation_checkpoint.mode",
     WRITE {
       switch (w.s().recomputation.what) {
         case Recompute::none: return "none";
         case Recompute::selective: return "selective";
         case Recompute::full: return "full";
       }
       return nullptr;
     },
     READ { d.words[g.key] = r.word(g, {"selective", "full", "none"}); }},
    {"activation_checkpoint", "activation_checkpoint.selective_ac_option",
     WRITE { return titan_if(w.s().recomputation.what == Recompute::selective, "op"); }, WORD},
    {"quantize.linear.float8", "quantize.linear.float8.recipe_name",
     WRITE {
       const bool rows = w.file.job.software.fp8_recipe == Fp8Recipe::rowwise;
       return titan_if(w.s().numerics.precision == DType::fp8, rows ? "rowwise" : "tensorwise");
     },
     READ {
       d.software.fp8_recipe = r.word(g, {"tensorwise", "rowwise", "rowwise_with_gw_hp"}) == "tensorwise"
                                   ? Fp8Recipe::tensorwise : Fp8Recipe::rowwise;
     }},
    {"quantize.linear.float8", "quantize.linear.float8.filter_fqns",
     WRITE { return titan_if(w.s().numerics.precision == DType::fp8, Json::array({"output"})); }, READ {}},
    {"quantize.grouped_mm.float8", "quantize.grouped_mm.float8.fqns",
     WRITE { return titan_if(w.s().numerics.precision == DType::fp8 && w.m().experts.any(),
       Json::array({"experts"})); },
     READ {}},
    // The stack is of compiled blocks.
    {"compile", "compile.enable", WRITE { return w.file.job.software.compiled.value_or(true); },
     READ { d.open[g.key] = 1; d.software.compiled = r.boolean(g); }},
    {"compile", "compile.components",
     WRITE {
       const Software& said = w.file.job.software;
       const bool loss = said.cross_entropy.value_or(LossKernel::compiled) == LossKernel::compiled;
       return titan_if(said.compiled.value_or(true), loss ? Json::array({"model", "loss"}) : Json::array({"model"}));
     },
     READ {
       const auto has = [&](const char* what) {
         return std::any_of(g.values.begin(), g.values.end(), [&](const GivenValue& one) { return one.text == what; });
       };
       d.open[g.key] = has("loss") ? 1 : 0;
       d.words[g.key] = has("model") ? "model" : "no model";
     }},
    {"debug", "debug.seed", WRITE { return w.t().seed; },
     READ { d.training.seed = static_cast<std::uint64_t>(r.integer(g, 0, std::int64_t{1} << 52)); }},
};
#undef WRITE
#undef READ
#undef COUNT
#undef WHOLE
#undef OPEN
#undef MARK
#undef WORD

struct TitanPassed { const char* because; bool matters; std::vector<const char*> keys; };
const std::vector<TitanPassed>& titan_passed() {
  static const std::vector<TitanPassed> all = {
      {"data and tokenizers are a job's own (training.data)", false,
       {"training.dataset", "training.dataset_path", "model.hf_assets_path", "model.tokenizer_path",
        "training.dataloader.num_workers", "training.dataloader.persistent_workers", "training.dataloader.pin_memory",
        "training.dataloader.prefetch_factor"}},
      {"it logs, measures or names the run", false,
       {"job.dump_folder", "job.description", "job.print_config", "job.config_file", "job.save_config_file",
        "job.custom_config_module", "job.use_for_integration_test", "profiling.enable_profiling",
        "profiling.save_traces_folder", "profiling.profile_freq", "profiling.profiler_active",
        "profiling.profiler_warmup", "profiling.enable_memory_snapshot", "profiling.save_memory_snapshot_folder",
        "metrics.log_freq", "metrics.enable_tensorboard", "metrics.disable_color_printing", "metrics.save_tb_folder",
        "metrics.save_for_all_ranks", "metrics.enable_wandb", "model.print_after_conversion",
        "activation_checkpoint.debug", "activation_checkpoint.determinism_check",
        "activation_checkpoint.preserve_rng_state", "memory_estimation.enable", "memory_estimation.disable_fake_mode"}},
      {"checkpoints and evaluations are Orrery's own", false,
       {"checkpoint.enable", "checkpoint.enable_checkpoint", "checkpoint.folder", "checkpoint.interval",
        "checkpoint.initial_load_path", "checkpoint.initial_load_model_only", "checkpoint.initial_load_in_hf",
        "checkpoint.last_save_model_only", "checkpoint.last_save_in_hf", "checkpoint.export_dtype",
        "checkpoint.async_mode", "checkpoint.keep_latest_k", "checkpoint.load_step", "checkpoint.exclude_from_loading",
        "checkpoint.enable_first_step_checkpoint", "checkpoint.create_seed_checkpoint", "checkpoint.load_only",
        "checkpoint.enable_ft_dataloader_checkpoints", "checkpoint.initial_load_in_hf_quantized", "validation.enable",
        "validation.dataset", "validation.dataset_path", "validation.local_batch_size", "validation.seq_len",
        "validation.freq", "validation.steps", "fault_tolerance.enable", "fault_tolerance.replica_id",
        "fault_tolerance.group_size", "fault_tolerance.min_replica_size", "fault_tolerance.semi_sync_method",
        "fault_tolerance.process_group", "fault_tolerance.process_group_timeout_ms"}},
      {"how processes find each other is not modelled", false,
       {"comm.init_timeout_seconds", "comm.train_timeout_seconds", "comm.trace_buf_size", "comm.save_traces_folder",
        "comm.save_traces_file_prefix", "comm.mode", "training.gc_freq", "training.gc_debug", "debug.deterministic",
        "debug.deterministic_warn_only", "debug.moe_force_load_balance", "activation_checkpoint.early_stop"}},
      {"the stack says which kernels are fused", false,
       {"optimizer.implementation", "compile.backend", "compile.fullgraph",
        "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "parallelism.disable_loss_parallel",
        "quantize.linear.float8.emulate"}},
      {"the stack says what overlaps", true,
       {"parallelism.enable_async_tensor_parallel", "parallelism.pipeline_parallel_expert_parallel_overlap",
        "parallelism.expert_parallel_comm_backend", "parallelism.context_parallel_load_balancer",
        "parallelism.context_parallel_rotate_method", "parallelism.enable_compiled_autograd",
        "quantize.linear.float8.enable_fsdp_float8_all_gather",
        "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"}},
      {"there is no word for it", true,
       {"optimizer.early_step_in_backward", "activation_checkpoint.memory_budget",
        "activation_checkpoint.visualize_memory_budget_pareto", "parallelism.pipeline_parallel_schedule_csv",
        "lr_scheduler.total_steps", "experimental.custom_import", "experimental.custom_args_module",
        "quantize.linear.mx.filter_fqns",
       "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice",
        "quantize.grouped_mm.mx.recipe_name", "quantize.grouped_mm.mx.fqns"}},
  };
  return all;
}
  // clang-format on

  double titan_open(const Draft& d, const char* key, double otherwise) {
    const auto at = d.open.find(key);
    return at == d.open.end() ? otherwise : at->second;
  }
  std::string titan_word(const Draft& d, const char* key, const char* otherwise) {
    const auto at = d.words.find(key);
    return at == d.words.end() ? otherwise : at->second;
  }

  void titan_mesh(Reading& r, Draft& d, const base::Location& where) {
    PlanSpec& s = d.spec;
    const auto replicate =
        static_cast<int>(std::max(1.0, titan_open(d, "parallelism.data_parallel_replicate_degree", 1)));
    auto shard = static_cast<int>(titan_open(d, "parallelism.data_parallel_shard_degree", -1));
    const auto ways = static_cast<int>(titan_open(d, "parallelism.expert_tensor_parallel_degree", 1));
    const auto degrees = product_up_to(kMostRanks, {s.mesh.tensor, s.mesh.pipeline, s.mesh.context, replicate});
    if (!degrees || !product_up_to(kMostRanks, {*degrees, shard}) ||
        !product_up_to(kMostRanks, {s.mesh.expert, ways, s.mesh.pipeline}))
      return r.error("E0653", where, "the degrees of `parallelism` multiply to more ranks than any run has", "");
    const std::int64_t inner = *degrees;
    if (shard < 1) {
      if (d.ranks == 0) d.ranks = static_cast<int>(inner);
      if (d.ranks % inner != 0)
        return r.error("E0654", where,
                       fmt::format("{} ranks do not divide by the degrees of `parallelism`, {}", d.ranks, inner),
                       "--ranks gives how many the run has");
      shard = static_cast<int>(d.ranks / inner);
    } else if (d.ranks > 0 && d.ranks != inner * shard) {
      return r.error(
          "E0654", where,
          fmt::format("{} ranks are asked for, but the degrees of `parallelism` are of {}", d.ranks, inner * shard),
          "leave out --ranks, or `data_parallel_shard_degree = -1`");
    }
    d.ranks = static_cast<int>(inner * shard);
    s.mesh.data = replicate * shard;
    s.mesh.sequence_parallel = s.mesh.tensor > 1;  // every norm of its plans is sequence-parallel
    const bool sharded = shard * s.mesh.context > 1;
    const std::string reshard = titan_word(d, "parallelism.fsdp_reshard_after_forward", "default");
    // In a pipeline parameters stay gathered, and gradients are reduced behind the last micro-batch alone
    // (models/llama3/infra/parallelize.py, apply_fsdp; PyTorch, pipelining/stage.py, backward_maybe_with_nosync).
    s.states.zero_stage = !sharded ? 0 : s.mesh.pipeline > 1 ? 1 : reshard == "never" ? 2 : 3;
    if (sharded && s.mesh.pipeline > 1 && reshard == "always")
      r.assume("parameters are gathered once a step, not for each micro-batch (fsdp_reshard_after_forward)");
    if (sharded && replicate > 1) s.states.zero_group = shard * s.mesh.context;
    s.states.overlap_gradients = s.mesh.replicas() > 1 && (s.states.zero_stage < 2 || s.sub_groups() > 1);
    s.mesh.expert_tensor = ways == s.mesh.tensor || !d.model.experts.any() ? 0 : ways;
  }

  void titan_pipeline(Reading& r, Draft& d, const base::Location& where) {
    PlanSpec& s = d.spec;
    const auto local = static_cast<std::int64_t>(titan_open(d, "training.local_batch_size", 8));
    s.shape.micro_batch = local;
    const auto global = static_cast<std::int64_t>(titan_open(d, "training.global_batch_size", -1));
    s.shape.batch = global > 0 ? global : local * s.mesh.data;
    s.stages.order = Order::one_f_one_b;
    if (s.mesh.pipeline == 1) {
      s.stages.layers_per_stage.clear();
      return;
    }
    s.shape.micro_batch = static_cast<std::int64_t>(titan_open(d, "parallelism.pipeline_parallel_microbatch_size", 1));
    if (s.shape.batch > local * s.mesh.data)
      r.assume("all micro-batches of a step pass the pipeline at once; torchtitan drains it after each local batch");
    const std::string word = titan_word(d, "parallelism.pipeline_parallel_schedule", "1F1B");
    const bool folds = word == "ZBVZeroBubble" || word == "DualPipeV";
    s.stages.order = word == "GPipe"           ? Order::gpipe
                     : word == "ZBVZeroBubble" ? Order::zb_v
                     : word == "DualPipeV"     ? Order::dualpipe_v
                                               : Order::one_f_one_b;
    std::int64_t chunks = word == "Interleaved1F1B" || folds ? 2 : 1;
    const std::int64_t layers = d.model.layers;
    const auto first =
        static_cast<std::int64_t>(titan_open(d, "parallelism.pipeline_parallel_first_stage_less_layers", 1));
    const auto last =
        static_cast<std::int64_t>(titan_open(d, "parallelism.pipeline_parallel_last_stage_less_layers", 1));
    if (const double each = titan_open(d, "parallelism.pipeline_parallel_layers_per_stage", 0); each >= 1) {
      const auto stages = static_cast<std::int64_t>(std::ceil(static_cast<double>(layers + first + last) / each));
      if (stages % s.mesh.pipeline != 0)
        return r.error("E0653", where,
                       fmt::format("{} layers a stage make {} stages, which {} ranks do not divide", each, stages,
                                   s.mesh.pipeline),
                       "parallelism.pipeline_parallel_layers_per_stage");
      chunks = stages / s.mesh.pipeline;
    }
    if (!s.stages.layers_per_stage.empty()) {
      if (static_cast<std::int64_t>(s.stages.layers_per_stage.size()) % s.mesh.pipeline != 0)
        return r.error("E0653", where,
                       fmt::format("{} parts of a model do not divide into {} stages", s.stages.layers_per_stage.size(),
                                   s.mesh.pipeline),
                       "parallelism.module_fqns_per_model_part");
      chunks = static_cast<std::int64_t>(s.stages.layers_per_stage.size()) / s.mesh.pipeline;
    } else {
      s.stages.layers_per_stage = titan_split(layers, chunks * s.mesh.pipeline, first, last);
      if (s.stages.layers_per_stage.empty())
        return r.error("E0653", where,
                       fmt::format("{} layers are too few for {} stages", layers, chunks * s.mesh.pipeline), "");
    }
    s.stages.virtual_stages = static_cast<int>(std::clamp<std::int64_t>(chunks, 1, kMostLayers));
  }

  void titan_training(Reading& r, Draft& d) {
    Training& t = d.training;
    const bool adam = titan_word(d, "optimizer.name", "AdamW") == "Adam";
    t.optimizer = usual(adam ? OptimizerKind::adam : OptimizerKind::adamw);
    t.optimizer.learning_rate = titan_open(d, "optimizer.lr", 8e-4);
    t.optimizer.beta1 = titan_open(d, "optimizer.beta1", 0.9);
    t.optimizer.beta2 = titan_open(d, "optimizer.beta2", 0.95);
    t.optimizer.epsilon = titan_open(d, "optimizer.eps", 1e-8);
    t.optimizer.weight_decay = adam ? 0 : titan_open(d, "optimizer.weight_decay", 0.1);
    const double factor = titan_open(d, "lr_scheduler.min_lr_factor", 0);
    const std::string decay = titan_word(d, "lr_scheduler.decay_type", "linear");
    t.schedule.minimum = factor < 1 ? factor * t.optimizer.learning_rate : 0;
    const double ratio = titan_open(d, "lr_scheduler.decay_ratio", 0);
    if (factor == 1) {
      t.schedule.decay = Decay::none;
    } else if (ratio > 0) {
      t.schedule.decay = Decay::wsd;
      t.schedule.decay_steps = std::max<std::int64_t>(1, std::llround(ratio * static_cast<double>(t.steps)));
      if (decay != "linear") r.assume("the last steps' learning rate decays linearly");
    } else {
      t.schedule.decay = decay == "cosine" ? Decay::cosine : Decay::linear;
      if (decay == "sqrt") r.assume("the learning rate decays linearly, not by a square root");
    }
  }

  void titan_recomputation(Reading& r, Draft& d, const base::Location& where) {
    Recomputation& c = d.spec.recomputation;
    const std::string mode = titan_word(d, "activation_checkpoint.mode", "selective");
    c.what = mode == "none" ? Recompute::none : mode == "full" ? Recompute::full : Recompute::selective;
    if (mode != "selective") return;
    const std::string option = titan_word(d, "activation_checkpoint.selective_ac_option", "2");
    if (option == "op") return;
    double every = 0;
    if (!read_number(option, every) || every < 1 || every > kMostLayers || every != std::floor(every))
      return r.error("E0653", where,
                     fmt::format("`selective_ac_option` is \"op\" or a number, found {}", base::quoted(option)),
                     "\"op\" saves products and attention");
    c.what = Recompute::full;
    if (every == 1) return;
    c.layers = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(d.model.layers) / every) / d.spec.places());
    r.assume(fmt::format("every {}th layer is recomputed: as many of each stage's first ones, {}", every, *c.layers));
  }

  /// Blocks and loss are compiled where the file says so; torchtitan's default is eager.
  void titan_software(Reading& r, Draft& d) {
    if (!d.software.compiled) {
      d.software.compiled = false;
      r.assume("compile.enable = false, torchtitan's default");
    }
    if (*d.software.compiled && titan_open(d, "compile.components", 1) != 0)
      d.software.cross_entropy = LossKernel::compiled;
    if (const auto at = d.words.find("compile.components"); at != d.words.end() && at->second == "no model")
      d.software.compiled = false;  // the loss alone is
  }

  /// What the file leaves to torchtitan's defaults, and moves time or memory or the run's length.
  void titan_filled(Reading& r, const Draft& d) {
    const auto said = [&](const char* key, const auto& value) {
      if (!d.open.contains(key)) r.assume(fmt::format("{} {}, torchtitan's default", key, value));
    };
    said("training.local_batch_size", titan_open(d, "training.local_batch_size", 8));
    said("training.seq_len", d.spec.shape.sequence);
    said("training.steps", d.training.steps);
    said("optimizer.lr", d.training.optimizer.learning_rate);
  }

  }  // namespace

  std::span<const TorchtitanModel> torchtitan_models() {
    // name, flavor, catalogue; layers, hidden, heads, key/value heads, width of the MLP, experts, vocabulary
    static constexpr TorchtitanModel kAll[] = {
        {"llama3", "8B", "llama3-8b", 32, 4096, 32, 8, 14336, 0, 128256},
        {"llama3", "70B", "llama3-70b", 80, 8192, 64, 8, 28672, 0, 128256},
        {"llama3", "405B", "llama3-405b", 126, 16384, 128, 8, 53248, 0, 128256},
        {"qwen3", "8B", "qwen3-8b", 36, 4096, 32, 8, 12288, 0, 151936},
        {"qwen3", "32B", "qwen3-32b", 64, 5120, 64, 8, 25600, 0, 151936},
        {"qwen3", "30B-A3B", "qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 128, 151936},
        {"qwen3", "235B-A22B", "qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 128, 151936},
        {"deepseek_v3", "671B", "deepseek-v3", 61, 7168, 128, 128, 18432, 256, 129280},
    };
    return kAll;
  }

  const TorchtitanModel* torchtitan_model(const models::Model& m) {
    for (const TorchtitanModel& one : torchtitan_models())
      if (m.layers == one.layers && m.hidden == one.hidden && m.heads == one.heads && m.kv_heads == one.kv_heads &&
          m.ffn_hidden == one.ffn && m.experts.count == one.experts && m.vocab == one.vocab && !m.further.any() &&
          m.activation == models::Activation::swiglu && m.normalisation == models::Normalisation::rms_norm)
        return &one;
    return nullptr;
  }

  std::span<const Setting> torchtitan_settings_table() {
    static const std::vector<Setting> all = [] {
      std::vector<Setting> out(std::begin(kTitan), std::end(kTitan));
      for (const TitanPassed& reason : titan_passed())
        for (const char* const name : reason.keys)
          out.push_back({"", name, nullptr, nullptr, reason.because, reason.matters});
      return out;
    }();
    return all;
  }

  Draft torchtitan_defaults() {
    Draft d;
    d.stack = "torchtitan-2024";
    d.spec.numerics.precision = DType::bf16;
    d.spec.numerics.vocab_multiple = 1;
    d.spec.shape.sequence = 2048;
    d.training.steps = 10000;
    d.training.clip_norm = 1.0;
    d.training.schedule.warmup_steps = 200;
    return d;
  }

  void finish_torchtitan(Reading& r, Draft& d, const base::Location& where) {
    titan_mesh(r, d, where);
    if (r.failed()) return;
    titan_pipeline(r, d, where);
    titan_training(r, d);
    titan_recomputation(r, d, where);
    titan_software(r, d);
    titan_filled(r, d);
  }

  }  // namespace orrery::plan
