/// Ranked plans: which ones are shown, in which columns, under which heading.
#include "reports/tables/plan_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/units.h"
#include "plan/spec/fields.h"
#include "reports/tables/tables.h"

namespace orrery::reports {
namespace {

const std::string kNothing = "—";
constexpr double kMillion = 1e6;

std::string whole_number(std::int64_t n) {
  return fmt::format("{}", n);
}
std::string time_or_none(double s) {
  return std::isfinite(s) && s >= 0 ? time_text(s) : kNothing;
}
std::string size_text(double b) {
  return b > 0 && std::isfinite(b) ? base::human(base::Bytes{b}) : kNothing;
}

/// "activations, optimizer on nvme": what leaves the device; to the host unless said otherwise.
std::string offload_of(const plan::Offload& offload) {
  std::string text;
  const auto add = [&](const char* what, plan::Space space) {
    if (space == plan::Space::device) return;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", what, space == plan::Space::nvme ? " on nvme" : "");
  };
  add("activations", offload.activations);
  add("optimizer", offload.optimizer);
  add("parameters", offload.parameters);
  return text.empty() ? kNothing : text;
}

/// "full ×4": that many layers of each stage, or of each chunk.
std::string recompute_of(const plan::PlanSpec& spec) {
  const std::string kind =
      plan::name_of(spec.recomputation.what) + std::string(spec.recomputation.partition_checkpoints ? " in parts" : "");
  if (!spec.recomputation.layers) return kind;
  return fmt::format("{} ×{}", kind, *spec.recomputation.layers);
}

/// Types in which pooled vectors and their gradients travel.
std::string pooled_of(const plan::Embedding& e) {
  return fmt::format("{}, {}", plan::name_of(e.forward), plan::name_of(e.backward));
}

/// The types in which rows of tokens travel to experts and back.
std::string tokens_of(const plan::Tokens& t) {
  return fmt::format("{}, {}", plan::name_of(t.dispatch), plan::name_of(t.combine));
}

/// Added to the rank of a column that says the same of all plans: it goes first, into the line below the table.
constexpr int kCommon = 100;
/// The rank of a column without which two rows would look equal: it goes after every figure but step and memory.
constexpr int kTellsApart = 1;
constexpr std::size_t kLongestValue = 24;  // columns of a list or a placement

/// A plan with the figures that its heading allows.
struct Shown {
  const cost::Prediction& p;
  PlanFigures figures;
  const Evidence* evidence;
};

/// A column of the table of plans: its head, its cells, and whether it is worth showing for these plans.
struct PlanColumn {
  std::string head;
  int drop;  ///< Column::drop
  Align align;
  std::function<std::string(const Shown&)> cell;
  std::function<bool(const Shown&)> worth;  ///< shown if true for any plan
  std::size_t limit = 0;                    ///< Column::limit
};

/// Columns that say what a plan is. What tells plans apart, and whether one fits, stays longest in a narrow terminal.
std::vector<PlanColumn> columns_of_splits() {
  using S = const Shown&;
  const auto layered = [](S s) { return s.p.tables.empty(); };  // not a recommendation model
  const auto integer = [](auto value) {
    return [value](S s) { return whole_number(static_cast<std::int64_t>(value(s.p.spec))); };
  };
  using Spec = const plan::PlanSpec&;
  return {
      {"DP", 0, Align::right, integer([](Spec s) { return s.mesh.data; }), [](S) { return true; }},
      {"TP", 0, Align::right, integer([](Spec s) { return s.mesh.tensor; }), layered},
      {"PP", 0, Align::right, integer([](Spec s) { return s.mesh.pipeline; }), layered},
      {"CP", 0, Align::right, integer([](Spec s) { return s.mesh.context; }),
       [](S s) { return s.p.spec.mesh.context > 1; }},
      {"EP", 0, Align::right, integer([](Spec s) { return s.mesh.expert; }),
       [](S s) { return s.p.spec.mesh.expert > 1; }},
      {"ETP", 6, Align::right,
       [](S s) { return s.p.spec.mesh.expert_tensor > 0 ? whole_number(s.p.spec.mesh.expert_tensor) : kNothing; },
       [](S s) { return s.p.spec.mesh.routes_own_rows(); }},
      {"VP", 8, Align::right, integer([](Spec s) { return s.stages.virtual_stages; }),
       [](S s) { return s.p.spec.stages.virtual_stages > 1; }},
      {"MBS", 2, Align::right, integer([](Spec s) { return s.shape.micro_batch; }), [](S) { return true; }},
      {"GA", 10, Align::right, integer([](Spec s) { return s.micro_batches(); }), layered},
      {"ZeRO", 1, Align::right, integer([](Spec s) { return s.states.zero_stage; }), layered},
      {"over", 6, Align::right,
       [](S s) { return s.p.spec.states.zero_stage > 0 ? whole_number(s.p.spec.shards()) : kNothing; },
       [](S s) { return s.p.spec.states.zero_group > 0; }},
      {"recompute", 3, Align::left, [](S s) { return recompute_of(s.p.spec); }, layered},
      {"order", 14, Align::left,
       [](S s) { return s.p.spec.mesh.pipeline > 1 ? std::string(plan::name_of(s.p.spec.stages.order)) : kNothing; },
       [](S s) { return s.p.spec.mesh.pipeline > 1; }},
      {"SP", 16, Align::left, [](S s) { return s.p.spec.mesh.sequence_parallel ? std::string("yes") : kNothing; },
       [](S s) { return s.p.spec.mesh.sequence_parallel; }},
      {"tables", 1, Align::left, [](S s) { return std::string(plan::name_of(s.p.spec.embedding.sharding)); },
       [](S s) { return !s.p.tables.empty(); }},
      {"pooled in", 6, Align::left, [](S s) { return pooled_of(s.p.spec.embedding); },
       [](S s) { return pooled_of(s.p.spec.embedding) != pooled_of({}); }},
      {"tokens in", 6, Align::left, [](S s) { return tokens_of(s.p.spec.tokens); },
       [](S s) { return s.p.spec.tokens.encoded(); }},
      {"fullest", 6, Align::right, [](S s) { return fmt::format("{:.2f}", s.p.spec.tokens.imbalance); },
       [](S s) { return s.p.spec.tokens.imbalance > 1; }},
      {"offload", 2, Align::left, [](S s) { return offload_of(s.p.spec.offload); },
       [](S s) { return s.p.spec.offload.any(); }},
      {"gradients", 6, Align::left, [](S s) { return std::string(plan::name_of(s.p.spec.compression.gradients)); },
       [](S s) { return s.p.spec.compresses(); }},
      {"saved in", 7, Align::left, [](S s) { return std::string(plan::name_of(s.p.spec.compression.activations)); },
       [](S s) { return s.p.spec.compression.activations != plan::ActivationEncoding::none; }},
      {"loss chunks", 17, Align::right, integer([](Spec s) { return s.numerics.loss_chunks; }),
       [](S s) { return s.p.spec.numerics.loss_chunks > 1; }},
  };
}

/// Columns that say what it is predicted to do.
std::vector<PlanColumn> columns_of_figures(const PlanHeading& heading) {
  using S = const Shown&;
  const auto always = [](S) { return true; };
  const bool clicks = heading.samples;
  return {
      {"step", 0, Align::right, [](S s) { return time_or_none(s.p.step_time_s); }, always},
      {"4 of 5 runs", kTellsApart, Align::right,
       [](S s) { return s.figures.step_time_s ? interval_text(*s.figures.step_time_s) : kNothing; },
       [](S s) { return s.figures.step_time_s.has_value(); }},
      {fmt::format("{}/s/{}", clicks ? "samples" : "tok", clusters::word_for(heading.kind)), 4, Align::right,
       [](S s) { return number(s.figures.tokens_per_s_per_device); },
       [](S s) { return s.figures.tokens_per_s_per_device > 0; }},
      {"TFLOP/s", 11, Align::right, [](S s) { return estimate_text(s.figures.flops_per_s_per_device / 1e12); },
       [](S s) { return s.figures.flops_per_s_per_device > 0; }},
      {"MFU", 3, Align::right, [](S s) { return percent(s.p.mfu); }, [](S s) { return s.p.mfu > 0; }},
      {"memory", 0, Align::right, [](S s) { return size_text(s.p.memory_peak_bytes); }, always},
      {"of it", 12, Align::right,
       [](S s) { return fmt::format("{:.0f} %", 100 * s.p.memory_peak_bytes / s.p.memory_capacity_bytes); },
       [](S s) { return s.p.memory_capacity_bytes > 0; }},
      {"fits", 1, Align::right,
       [](S s) { return s.figures.fits_probability ? fmt::format("{:.2f}", *s.figures.fits_probability) : kNothing; },
       [](S s) { return s.figures.fits_probability.has_value(); }},
      {"bubble", 13, Align::right, [](S s) { return percent(s.p.bubble_fraction); },
       [](S s) { return s.p.bubble_fraction > 0; }},
      {"exposed", 15, Align::right, [](S s) { return time_or_none(s.p.exposed_communication_s); }, always},
      {clicks ? "$/Msample" : "$/Mtok", 10, Align::right,
       [](S s) { return estimate_text(s.figures.usd_per_million_tokens); },
       [](S s) { return s.figures.usd_per_million_tokens > 0; }},
  };
}

/// Shown plans in sets, each of those that look the same in the columns put so far.
class LookAlikes {
 public:
  explicit LookAlikes(const std::vector<Shown>& plans) : plans_(&plans), looks_(plans.size()) {}

  /// Adds a column; whether it tells plans apart that looked the same without it.
  template <class Cell>
  bool put(const Cell& cell) {
    const std::size_t before = sets();
    std::vector<std::string> looks = looks_;
    for (std::size_t i = 0; i < looks.size(); ++i) looks[i] += cell((*plans_)[i]) + '\n';
    looks_.swap(looks);
    const bool tells = sets() > before;
    if (!tells) looks_.swap(looks);
    return tells;
  }
  [[nodiscard]] bool all_apart() const { return sets() == looks_.size(); }

 private:
  [[nodiscard]] std::size_t sets() const { return std::set<std::string>(looks_.begin(), looks_.end()).size(); }
  const std::vector<Shown>* plans_;
  std::vector<std::string> looks_;  ///< cells of the columns that told some apart
};

/// Columns for fields that have none of their own, where nothing else tells two plans apart.
std::vector<PlanColumn> columns_of_fields(LookAlikes& alike) {
  std::vector<PlanColumn> out;
  plan::for_each_field(plan::kFields, [&](const auto& field) {
    if (alike.all_apart()) return;
    const auto cell = [field](const Shown& s) { return plan::value_text(field, field.of(s.p.spec)); };
    if (alike.put(cell))
      out.push_back({field.key, kTellsApart, Align::left, cell, [](const Shown&) { return true; }, kLongestValue});
  });
  return out;
}

/// In which order columns go, by what they say of these plans: first those that say the same of all, last those
/// without which two would look equal.
void rank_columns(std::vector<PlanColumn>& splits, std::vector<PlanColumn>& figures, const std::vector<Shown>& shown) {
  if (shown.size() < 2) return;
  const auto common = [&](const PlanColumn& column) {
    return std::none_of(shown.begin(), shown.end(),
                        [&](const Shown& one) { return column.cell(one) != column.cell(shown.front()); });
  };
  std::vector<std::size_t> order(splits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return splits[a].drop < splits[b].drop; });
  LookAlikes alike(shown);
  for (const std::size_t i : order)
    if (alike.put(splits[i].cell)) splits[i].drop = std::min(splits[i].drop, kTellsApart);
  for (PlanColumn& column : splits)
    if (common(column)) column.drop += kCommon;
  for (PlanColumn& column : figures)
    if (column.drop > 0 && common(column)) column.drop += kCommon;
  for (PlanColumn& more : columns_of_fields(alike)) splits.push_back(std::move(more));
}

/// Fields in which plans of one family may differ.
const std::set<std::string>& folded_fields() {
  static const std::set<std::string> keys = {"virtual_stages", "layers_per_stage", "ends_as_layers",
                                             "micro_batch",    "zero_group",       "recompute_layers",
                                             "loss_chunks",    "sequence_parallel"};
  return keys;
}

}  // namespace

std::string split_in_letters(const plan::PlanSpec& spec) {
  std::string out;
  const auto add = [&](const char* letters, std::int64_t value, std::int64_t least) {
    if (value >= least) out += fmt::format("{}{}{}", out.empty() ? "" : " ", letters, value);
  };
  add("DP", spec.mesh.data, 2);
  add("TP", spec.mesh.tensor, 2);
  add("PP", spec.mesh.pipeline, 2);
  add("CP", spec.mesh.context, 2);
  add("EP", spec.mesh.expert, 2);
  if (out.empty()) out = "DP1";
  add("VP", spec.stages.virtual_stages, 2);
  add("MBS", spec.shape.micro_batch, 1);
  add("ZeRO", spec.states.zero_stage, 1);
  return out;
}

const Evidence& PlanHeading::evidence_of(const plan::PlanSpec& spec) const {
  const auto stage =
      static_cast<std::size_t>(std::clamp<int>(spec.states.zero_stage, 0, static_cast<int>(by_zero.size()) - 1));
  return evidence[by_zero.at(stage)];
}

std::string interval_text(const cost::Interval& interval) {
  const std::string low = time_text(interval.low), high = time_text(interval.high);
  const std::size_t a = low.find(' '), b = high.find(' ');
  const bool same = a != low.npos && b != high.npos && low.substr(a) == high.substr(b);
  return (same ? low.substr(0, a) : low) + "–" + high;
}

PlanFigures figures_of(const cost::Prediction& p, const PlanHeading& heading) {
  PlanFigures out;
  const int ranks = p.spec.mesh.ranks();
  if (p.step_time_s <= 0 || ranks < 1) return out;
  out.tokens_per_s_per_device = p.tokens_per_s / ranks;
  out.flops_per_s_per_device = p.mfu * heading.peak_flops;
  const double tokens = p.tokens_per_s * p.step_time_s;
  if (tokens > 0) out.usd_per_million_tokens = p.cost_per_step_usd / tokens * kMillion;
  const Evidence& evidence = heading.evidence_of(p.spec);
  const auto& spread = ranks > heading.devices_per_node ? evidence.several_nodes : evidence.one_node;
  if (!spread) return out;
  out.step_time_s = cost::around(p.step_time_s, spread->time);
  if (p.memory_peak_bytes > 0) out.memory_bytes = cost::around(p.memory_peak_bytes, spread->memory);
  if (p.memory_capacity_bytes > 0 && p.memory_peak_bytes > 0)
    out.fits_probability = cost::fits_probability(p.memory_peak_bytes, p.memory_capacity_bytes, spread->memory);
  return out;
}

std::vector<std::size_t> families(const std::vector<cost::Prediction>& plans,
                                  const std::vector<std::string>& compared) {
  std::map<std::string, std::size_t> first;
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    std::string family;
    plan::for_each_field(plan::kFields, [&](const auto& field) {
      const bool asked = std::find(compared.begin(), compared.end(), field.key) != compared.end();
      if (asked || *field.group != '\0' || folded_fields().count(field.key) == 0)
        family += plan::value_text(field, field.of(plans[i].spec)) + ";";
    });
    out.push_back(first.emplace(family, i).first->second);
  }
  return out;
}

namespace {

std::string line_of_heading(const std::string& line, const TableStyle& style) {
  return wrapped(style.unicode ? line : to_ascii(line), style.width, 2) + "\n";
}

}  // namespace

std::string heading_text(const PlanHeading& h, const TableStyle& style) {
  std::string model = fmt::format("{}: {} parameters", h.model, base::human_count(h.parameters));
  if (h.parameters_active < h.parameters && !h.samples)
    model += fmt::format(", {} of them active", base::human_count(h.parameters_active));
  if (h.parameters_trained > 0 && h.parameters_trained < h.parameters)
    model += fmt::format(", {} of them train", base::human_count(h.parameters_trained));
  const std::string machine = fmt::format("on {}: {} x {}, {} each{}", h.cluster, count_text(h.devices), h.device,
                                          base::human(base::Bytes{h.memory_bytes}),
                                          h.nodes > 1 ? fmt::format(", {} nodes", count_text(h.nodes)) : "");
  const auto all = static_cast<double>(h.batch * h.sequence);
  const std::string batch =
      h.samples ? fmt::format("{} per step", count_text(h.batch, "sample"))
                : fmt::format("{} x {}{} = {} tokens per step", count_text(h.batch, "sequence"), count_text(h.sequence),
                              h.longest ? " (the model's longest)" : "", base::human_count(all));
  return line_of_heading(model + " " + machine, style) +
         line_of_heading(fmt::format("{}{}, {}, {}", h.stack(), h.software.empty() ? "" : " (" + h.software + ")",
                                     h.precision, batch),
                         style);
}

std::string evidence_text(const Evidence& evidence, const TableStyle& style) {
  return line_of_heading("Evidence: " + evidence.text, style);
}

nlohmann::json heading_json(const PlanHeading& h) {
  return {{"model", h.model},
          {"parameters", h.parameters},
          {"parameters_active", h.parameters_active},
          {"parameters_trained", h.parameters_trained},
          {"cluster", h.cluster},
          {"device", h.device},
          {"devices", h.devices},
          {"nodes", h.nodes},
          {"stack", h.stack()},
          {"software", h.software},
          {"precision", h.precision},
          {"batch", h.batch},
          {"sequence", h.sequence},
          {"evidence", h.evidence.front().word},
          {"evidence_text", h.evidence.front().text}};
}

nlohmann::json figures_json(const PlanFigures& f, const Evidence& evidence) {
  nlohmann::json out = {{"tokens_per_s_per_device", f.tokens_per_s_per_device},
                        {"flops_per_s_per_device", f.flops_per_s_per_device},
                        {"cost_per_million_tokens_usd", f.usd_per_million_tokens},
                        {"step_time_interval_s", nullptr},
                        {"memory_interval_bytes", nullptr},
                        {"fits_probability", nullptr},
                        {"stack", evidence.stack},
                        {"evidence", evidence.word},
                        {"evidence_text", evidence.text}};
  if (f.step_time_s) out["step_time_interval_s"] = {f.step_time_s->low, f.step_time_s->high};
  if (f.memory_bytes) out["memory_interval_bytes"] = {f.memory_bytes->low, f.memory_bytes->high};
  if (f.fits_probability) out["fits_probability"] = *f.fits_probability;
  return out;
}

Table plans_table(const std::vector<cost::Prediction>& plans, const std::vector<std::size_t>& rows,
                  const PlanHeading& heading, std::size_t folded) {
  std::vector<Shown> shown;
  for (const std::size_t i : rows)
    shown.push_back({plans[i], figures_of(plans[i], heading), &heading.evidence_of(plans[i].spec)});
  // Plans for several sizes of the cluster share one table (orrery plan --gpus 64,128).
  const int first = shown.empty() ? 0 : shown.front().p.spec.mesh.ranks();
  std::vector<PlanColumn> columns = {{"devices", 0, Align::right,
                                      [](const Shown& s) { return whole_number(s.p.spec.mesh.ranks()); },
                                      [=](const Shown& s) { return s.p.spec.mesh.ranks() != first; }}};
  std::vector<PlanColumn> splits = columns_of_splits(), figures = columns_of_figures(heading);
  rank_columns(splits, figures, shown);
  for (auto& more : {splits, figures}) columns.insert(columns.end(), more.begin(), more.end());
  const Evidence* of_first = shown.empty() ? nullptr : shown.front().evidence;
  columns.push_back({"by", 5, Align::left, [](const Shown& s) { return s.evidence->stack; },
                     [=](const Shown& s) { return s.evidence != of_first; }});
  std::erase_if(columns, [&](const PlanColumn& c) { return std::none_of(shown.begin(), shown.end(), c.worth); });

  Table table;
  table.title = "Plans, best first";
  table.columns.push_back({"#", Align::right});
  for (const PlanColumn& column : columns)
    table.columns.push_back({column.head, column.align, column.limit, column.drop});
  for (const Shown& one : shown) {
    auto& row = table.rows.emplace_back();
    row.push_back(whole_number(static_cast<std::int64_t>(table.rows.size())));
    for (const PlanColumn& column : columns) row.push_back(column.cell(one));
  }
  std::set<const Evidence*> said = {shown.empty() ? nullptr : shown.front().evidence};  // already in the heading
  for (const Shown& one : shown)
    if (said.insert(one.evidence).second)
      table.notes.push_back(fmt::format("Evidence for {}: {}.", one.evidence->stack, one.evidence->text));
  if (folded > 0)
    table.notes.push_back(
        fmt::format("Each row is the best of its family; {} more plans differ from these in micro-batch, virtual "
                    "stages and the like. --all shows them, --pick N keeps a row other than the first.",
                    folded));
  return table;
}

Table plans_table(const cost::SearchResult& result) {
  std::vector<std::size_t> rows(result.plans.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return plans_table(result.plans, rows, {});
}

}  // namespace orrery::reports
