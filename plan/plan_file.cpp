// plan.yaml: four parts, each in the form that its own room reads and writes.
#include "plan/plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "clusters/read.h"
#include "models/read.h"
#include "plan/job_compression.h"
#include "plan/words.h"

namespace orrery::plan {
namespace {

using base::Cursor;

constexpr const char* kPlanVersion = "1.0";

// Readers of 1.x read every 1.y that has no keys they do not know.
void read_version(const Cursor& at) {
  const std::string found = at.text(kPlanVersion);
  if (found.rfind("1.", 0) != 0) {
    at.error("E0123", fmt::format("format_version {} is not read by this version", base::quoted(found)), "1.0 is");
  }
}

// The job says the same three: a file in which they differ would train something else than one of its halves says.
template <class T>
void same_as_job(const Cursor& at, const char* key, const T& here, const T& in_job) {
  if (here != in_job && !at.findings().failed()) {
    at.error("E0123", fmt::format("`plan.{}` and `job.{}` differ", key, key),
             "give both the same value, or leave it out of `plan`");
  }
}

Offload read_offload(const Cursor& at) {
  Offload o;
  o.activations = choose(at.optional("activations"), kSpaceWords, o.activations);
  o.optimizer = choose(at.optional("optimizer"), kSpaceWords, o.optimizer);
  o.parameters = choose(at.optional("parameters"), kSpaceWords, o.parameters);
  o.prefetch = small(at.optional("prefetch"), 1, kMostPrefetch, o.prefetch);
  return o;
}

PlanSpec read_spec(const Cursor& at, const Job& job) {
  PlanSpec s;
  s.data = small(at.optional("data"), 1, kMostRanks, s.data);
  s.tensor = small(at.optional("tensor"), 1, kMostRanks, s.tensor);
  s.pipeline = small(at.optional("pipeline"), 1, kMostRanks, s.pipeline);
  s.context = small(at.optional("context"), 1, kMostRanks, s.context);
  s.expert = small(at.optional("expert"), 1, kMostRanks, s.expert);
  std::int64_t ranks = 1;
  for (const int degree : {s.data, s.tensor, s.pipeline, s.context, s.expert}) {
    ranks *= degree;  // below 2^48: the product before was within bounds
    if (ranks <= kMostRanks) continue;
    at.error("E0121", fmt::format("the degrees multiply to more than {} ranks", kMostRanks));
    break;
  }
  s.virtual_stages = small(at.optional("virtual_stages"), 1, kMostLayers, s.virtual_stages);
  for (const Cursor& item : at.optional("layers_per_stage").items()) {
    s.layers_per_stage.push_back(item.integer(0, kMostLayers, 1));
  }
  s.ends_as_layers = at.optional("ends_as_layers").boolean(s.ends_as_layers);
  s.overlap_gradients = at.optional("overlap_gradients").boolean(s.overlap_gradients);
  s.micro_batch = at.optional("micro_batch").integer(1, kMostBatch, s.micro_batch);
  s.order = choose(at.optional("schedule"), kOrderWords, s.order);
  s.zero_stage = small(at.optional("zero_stage"), 0, 3, s.zero_stage);
  s.zero_group = small(at.optional("zero_group"), 0, kMostRanks, s.zero_group);
  s.recompute = choose(at.optional("recompute"), kRecomputeWords, s.recompute);
  if (const Cursor layers = at.optional("recompute_layers"); layers.exists())
    s.recompute_layers = layers.integer(0, kMostLayers, 0);
  s.sequence_parallel = at.optional("sequence_parallel").boolean(s.sequence_parallel);
  s.flash = at.optional("flash").boolean(s.flash);
  if (const Cursor old = at.optional("staleness"); old.exists()) s.staleness = small(old, 0, kMostStaleness, 0);
  s.offload = read_offload(at.optional("offload"));
  s.compression = read_compression(at.optional("compression"));
  s.loss_chunks = at.optional("loss_chunks").integer(1, kMostLossChunks, s.loss_chunks);
  s.vocab_multiple = at.optional("vocab_multiple").integer(1, 1 << 16, s.vocab_multiple);
  const Cursor batch = at.optional("batch");
  s.batch = batch.integer(1, kMostBatch, job.batch);
  same_as_job(batch, "batch", s.batch, job.batch);
  const Cursor sequence = job.sequence > 0 ? at.optional("sequence") : at.at("sequence");
  s.sequence = sequence.integer(1, kMostSequence, job.sequence > 0 ? job.sequence : 1);
  if (job.sequence > 0) same_as_job(sequence, "sequence", s.sequence, job.sequence);
  check_tokens(at, s.batch, s.sequence);
  const Cursor precision = at.optional("precision");
  s.precision = choose_precision(precision, job.precision);
  same_as_job(precision, "precision", s.precision, job.precision);
  s.rounding = job.rounding;
  take_optimizer(s, job.training);
  return s;
}

PlanFile read_plan_file(const Cursor& root) {
  PlanFile file;
  read_version(root.at("format_version"));
  file.job = read_job(root.at("job"));
  file.spec = read_spec(root.at("plan"), file.job);
  const Cursor model = root.at("model");
  if (model.exists()) file.model = models::read_model(model);
  if (file.job.training.dropout) file.model.dropout = *file.job.training.dropout;
  const Cursor cluster = root.at("cluster");
  // Self-contained: nothing in it is looked up in a catalogue.
  if (cluster.exists()) file.cluster = clusters::read_cluster(cluster, [](const std::string&) { return std::nullopt; });
  return file;
}

std::string write_spec(const PlanSpec& s) {
  std::string out;
  const auto line = [&](const char* key, const auto& value) { out += fmt::format("  {}: {}\n", key, value); };
  line("data", s.data);
  line("tensor", s.tensor);
  line("pipeline", s.pipeline);
  line("context", s.context);
  line("expert", s.expert);
  line("virtual_stages", s.virtual_stages);
  if (!s.layers_per_stage.empty()) line("layers_per_stage", fmt::format("[{}]", fmt::join(s.layers_per_stage, ", ")));
  if (s.ends_as_layers) line("ends_as_layers", s.ends_as_layers);
  if (s.overlap_gradients) line("overlap_gradients", s.overlap_gradients);
  line("micro_batch", s.micro_batch);
  line("schedule", name_of(s.order));
  line("zero_stage", s.zero_stage);
  if (s.zero_group > 0) line("zero_group", s.zero_group);
  line("recompute", name_of(s.recompute));
  if (s.recompute_layers >= 0) line("recompute_layers", s.recompute_layers);
  line("sequence_parallel", s.sequence_parallel);
  line("flash", s.flash);
  if (s.has_server()) line("staleness", s.staleness);
  const auto place = [](Space space) { return kSpaceWords[static_cast<std::size_t>(space)]; };
  if (s.offload != Offload{})
    line("offload",
         fmt::format("{{activations: {}, optimizer: {}, parameters: {}, prefetch: {}}}", place(s.offload.activations),
                     place(s.offload.optimizer), place(s.offload.parameters), s.offload.prefetch));
  if (s.compression != Compression{}) line("compression", compression_text(s.compression));
  if (s.loss_chunks > 1) line("loss_chunks", s.loss_chunks);
  line("vocab_multiple", s.vocab_multiple);
  line("batch", s.batch);
  line("sequence", s.sequence);
  line("precision", models::name_of(s.precision));
  return out;
}

}  // namespace

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

}  // namespace orrery::plan
