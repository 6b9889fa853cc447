// plan.yaml: four parts, each read and written by its own room. And a plan in a line, for people.
#include "plan/spec/plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/units.h"
#include "clusters/read.h"
#include "models/read/read.h"
#include "plan/spec/fields_yaml.h"

namespace orrery::plan {
namespace {

using base::Cursor;

constexpr const char* kPlanVersion = "1.0";

// A reader of 1.x accepts every 1.y whose keys it knows.
void read_version(const Cursor& at) {
  const std::string found = at.text(kPlanVersion);
  if (found.rfind("1.", 0) != 0) {
    at.error("E0123", fmt::format("this version does not read format_version {}", base::quoted(found)), "1.0 is");
  }
}

// The job gives the same three values; if they differed, the file would train something else than one half says.
template <class T>
void same_as_job(const Cursor& at, const char* key, const T& here, const T& in_job) {
  if (here != in_job && !at.findings().failed()) {
    at.error("E0123", fmt::format("`plan.{}` and `job.{}` differ", key, key),
             "give both the same value, or leave it out of `plan`");
  }
}

PlanSpec read_spec(const Cursor& at, const Job& job) {
  PlanSpec s;
  const auto read = [&](const auto& field) { field.of(s) = read_value(field_of(at, field), field, field.of(s)); };
  for_each_field(kChosenFields, read);
  std::int64_t ranks = 1;
  for (const int degree : {s.mesh.data, s.mesh.tensor, s.mesh.pipeline, s.mesh.context, s.mesh.expert}) {
    ranks *= degree;  // below 2^48, as the product before was within bounds
    if (ranks <= kMostRanks) continue;
    at.error("E0121", fmt::format("the degrees multiply to more than {} ranks", kMostRanks));
    break;
  }
  read(std::get<0>(kFixedFields));  // the job gives the others too
  const Cursor batch = at.optional("batch");
  s.shape.batch = batch.integer(1, kMostBatch, job.batch);
  same_as_job(batch, "batch", s.shape.batch, job.batch);
  const Cursor sequence = job.sequence > 0 ? at.optional("sequence") : at.at("sequence");
  s.shape.sequence = sequence.integer(1, kMostSequence, job.sequence > 0 ? job.sequence : 1);
  if (job.sequence > 0) same_as_job(sequence, "sequence", s.shape.sequence, job.sequence);
  check_tokens(at, s.shape.batch, s.shape.sequence);
  const Cursor precision = at.optional("precision");
  s.numerics.precision = choose_precision(precision, job.precision);
  same_as_job(precision, "precision", s.numerics.precision, job.precision);
  s.numerics.rounding = job.rounding;
  take_optimizer(s, job.training);
  return s;
}

// Writes a group on one line, and only if something in it is not the default.
std::string write_spec(const PlanSpec& s) {
  const PlanSpec defaults;
  std::map<std::string, bool> said;
  for_each_field(kFields, [&](const auto& field) { said[field.group] |= field.of(s) != field.of(defaults); });
  std::string out, open;
  const auto close = [&] { out += std::exchange(open, "").empty() ? "" : "}\n"; };
  for_each_field(std::tuple_cat(kChosenFields, kFixedFields), [&](const auto& field) {
    const std::string group = field.group;
    if (group != open) close();
    if (!field.always && field.of(s) == field.of(defaults)) return;
    if (!group.empty() && !said[group]) return;
    const std::string text = fmt::format("{}: {}", field.key, value_text(field, field.of(s)));
    if (group.empty())
      out += "  " + text + "\n";
    else
      out += (open.empty() ? "  " + group + ": {" : ", ") + text;
    open = group;
  });
  close();
  return out;
}

}  // namespace

PlanFile read_plan_file(const Cursor& root) {
  PlanFile file;
  read_version(root.at("format_version"));
  file.job = read_job(root.at("job"));
  file.spec = read_spec(root.at("plan"), file.job);
  const Cursor model = root.at("model");
  if (model.exists()) file.model = models::read_model(model);
  if (file.job.training.dropout) file.model.dropout = *file.job.training.dropout;
  if (file.job.training.lora) file.model.lora = *file.job.training.lora;
  const Cursor cluster = root.at("cluster");
  // Self-contained: nothing is looked up in a catalogue.
  if (cluster.exists()) file.cluster = clusters::read_cluster(cluster, [](const std::string&) { return std::nullopt; });
  return file;
}

std::string write_plan_file(const PlanFile& file) {
  return fmt::format(
      "# A plan made by orrery: model, cluster and job in full, and how the model is split.\n"
      "format_version: \"{}\"\nplan:\n{}job:\n{}model:\n{}cluster:\n{}",
      kPlanVersion, write_spec(file.spec), write_job(file.job, 2), models::write_model(file.model, 2),
      clusters::write_cluster(file.cluster, 2));
}

base::Result<PlanFile> parse_plan_file(std::string_view text, std::string name) {
  return base::read_document<PlanFile>(text, std::move(name), read_plan_file);
}

std::string describe(const PlanSpec& spec) {
  std::string text;
  const auto degree = [&](const char* name, int value) {
    if (value == 1) return;
    if (!text.empty()) text += " x ";
    text += fmt::format("{} {}", name, value);
  };
  degree("data", spec.mesh.data);
  degree("tensor", spec.mesh.tensor);
  degree("pipeline", spec.mesh.pipeline);
  degree("context", spec.mesh.context);
  degree("expert", spec.mesh.expert);
  if (text.empty()) text = "serial";
  if (spec.mesh.routes_own_rows())
    text += fmt::format(", each expert over {}", base::count_of(spec.mesh.expert_ways(), "rank"));
  if (spec.mesh.pipeline > 1) text += fmt::format(", {}", name_of(spec.stages.order));
  if (spec.stages.virtual_stages > 1 && !spec.stages.folds())
    text += fmt::format(" of {} chunks", spec.stages.virtual_stages);
  text += fmt::format(", micro-batch {}", spec.shape.micro_batch);
  if (spec.states.zero_stage > 0) text += fmt::format(", ZeRO {}", spec.states.zero_stage);
  if (spec.states.zero_group > 0) text += fmt::format(" over {}", spec.states.zero_group);
  if (spec.states.staleness) text += fmt::format(", parameter server of staleness {}", *spec.states.staleness);
  if (spec.mesh.sequence_parallel) text += ", sequence-parallel";
  if (spec.recomputation.what != Recompute::none)
    text += fmt::format(", recompute {}", name_of(spec.recomputation.what));
  if (!spec.recomputation.modules.empty())
    text += fmt::format(" ({})", fmt::join(spec.recomputation.modules.rows(), ", "));
  if (spec.recomputation.layers)
    text += fmt::format(" of {} layers a {}", *spec.recomputation.layers,
                        spec.stages.virtual_stages > 1 ? "chunk" : "stage");
  if (spec.recomputation.partition_checkpoints) text += ", checkpoints partitioned";
  if (spec.reduces_early()) text += ", gradients overlapped";
  const auto leaves = [&](const char* what, Space space) {
    if (space != Space::device) text += fmt::format(", {} on {}", what, name_of(space));
  };
  leaves("activations", spec.offload.activations);
  leaves("optimizer", spec.offload.optimizer);
  leaves("parameters", spec.offload.parameters);
  if (spec.low_rank())
    text += fmt::format(", PowerSGD of rank {}{}", spec.compression.rank,
                        spec.plain_steps() > 0 ? fmt::format(" from step {} on", spec.plain_steps() + 1) : "");
  else if (spec.compresses())
    text += fmt::format(", gradients in {}{}", name_of(spec.compression.gradients),
                        spec.compression.group > 0 ? fmt::format(" by groups of {}", spec.compression.group) : "");
  if (spec.compression.activations != ActivationEncoding::none)
    text += spec.compression.activations == ActivationEncoding::lossless
                ? ", activations without zeros"
                : fmt::format(", activations in {}", name_of(spec.compression.activations));
  const auto travels = [&](const char* what, PooledType type) {
    if (type != PooledType::fp32) text += fmt::format(", {} in {}", what, name_of(type));
  };
  if (spec.embedding.sharding != TableSharding::automatic)
    text += fmt::format(", tables {}", name_of(spec.embedding.sharding));
  travels("pooled vectors", spec.embedding.forward);
  travels("their gradients", spec.embedding.backward);
  if (spec.tokens.encoded())
    text += fmt::format(", tokens to experts in {}, back in {}", name_of(spec.tokens.dispatch),
                        name_of(spec.tokens.combine));
  if (spec.embedding.stored != PooledType::fp32) text += fmt::format(", tables in {}", name_of(spec.embedding.stored));
  for (const Space space : {Space::host, Space::nvme}) {
    const auto& tiers = spec.embedding.tiers.tiers();
    const auto there = std::count_if(tiers.begin(), tiers.end(), [&](const TableTier& t) { return t.space == space; });
    if (there > 0) text += fmt::format(", {} of {} tables on {}", there, tiers.size(), name_of(space));
  }
  if (spec.numerics.loss_chunks > 1) text += fmt::format(", loss in {} chunks", spec.numerics.loss_chunks);
  if (spec.states.optimizer != States{}.optimizer) text += fmt::format(", {}", name_of(spec.states.optimizer));
  if (spec.numerics.rounding != Rounding::nearest)
    text += fmt::format(", {} rounding", name_of(spec.numerics.rounding));
  return text;
}

}  // namespace orrery::plan
