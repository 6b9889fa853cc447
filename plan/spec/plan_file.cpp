// plan.yaml: four parts, each read and written by its own room.
#include "plan/spec/plan_file.h"

#include <fmt/format.h>

#include <map>
#include <utility>

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
  // A recommender attends to nothing, whatever its plan says of it.
  const std::optional<bool> flash =
      file.model.recommender ? std::nullopt : std::optional<bool>(file.spec.numerics.flash);
  if (!root.findings().failed())
    check_software(root.at("job").optional("software"), file.job.software, flash, {file.spec.compression.gradients});
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

}  // namespace orrery::plan
