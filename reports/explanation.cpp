/// Variations, sensitivities, operators and the waterfall, as tables and as JSON.
#include "reports/explanation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.h"
#include "reports/json.h"
#include "reports/tables/tables.h"

namespace orrery::reports {
namespace {

using nlohmann::json;

constexpr const char* kNoFigure = "—";

std::string rate_text(double flops_per_s) {
  return flops_per_s > 0 ? base::human(base::FlopsPerSecond{flops_per_s}) : "—";
}

std::string share_text(double x, double of) {
  return of > 0 ? percent(x / of) : "—";
}

/// Where a waterfall puts the time of an operator above its FLOPs at the peak.
enum class Kind { product, attention, memory };
Kind kind_of(const std::string& op) {
  if (op.find("attention") != op.npos) return Kind::attention;
  return op == "matmul" || op.rfind("grouped_", 0) == 0 ? Kind::product : Kind::memory;
}

std::string signed_time(double seconds) {
  return (seconds < 0 ? "−" : "+") + time_text(std::abs(seconds));
}

}  // namespace

std::string verdict(const cost::Variation& one, const cost::Prediction& own) {
  if (!one.prediction) return one.code.empty() ? one.refusal : fmt::format("breaks {}: {}", one.code, one.refusal);
  const cost::Prediction& p = *one.prediction;
  const double over = p.memory_peak_bytes - p.memory_capacity_bytes;
  const double slower = p.step_time_s - own.step_time_s;
  const std::string time = std::abs(slower) < 1e-9 * own.step_time_s
                               ? "as fast"
                               : fmt::format("{} {}", time_text(std::abs(slower)), slower > 0 ? "slower" : "faster");
  if (slower >= 0 && !one.refusal.empty()) return fmt::format("no gain: {}", one.refusal);
  if (over > 0) return fmt::format("{} too much memory, and {}", base::human(base::Bytes{over}), time);
  if (one.fits_probability && *one.fits_probability < one.least_probability)
    return fmt::format("fits with probability {:.2f}, and {}", *one.fits_probability, time);
  return time;
}

Table variations_table(const std::string& title, const std::vector<cost::Variation>& variations,
                       const cost::Prediction& own, const PlanHeading& heading, std::size_t width) {
  constexpr std::size_t kLeast = 24;
  Table table;
  table.title = title;
  table.columns = {{"change", Align::left}, {"step"}};
  const auto interval_of = [&](const cost::Variation& one) {
    return one.prediction ? figures_of(*one.prediction, heading).step_time_s : std::nullopt;
  };
  const bool intervals = std::any_of(variations.begin(), variations.end(),
                                     [&](const cost::Variation& one) { return interval_of(one).has_value(); });
  if (intervals) table.columns.push_back({"4 of 5 runs", Align::right, 0, 2});
  table.columns.insert(table.columns.end(), {{"memory", Align::right, 0, 1}, {"against this plan", Align::left}});
  for (const cost::Variation& one : variations) {
    const auto& p = one.prediction;
    auto& row = table.rows.emplace_back();
    row = {one.change, p ? time_text(p->step_time_s) : kNoFigure};
    if (intervals) {
      const auto interval = interval_of(one);
      row.push_back(interval ? interval_text(*interval) : kNoFigure);
    }
    row.push_back(p ? base::human(base::Bytes{p->memory_peak_bytes}) : kNoFigure);
  }
  std::size_t before = 0;  // columns of the terminal
  for (std::size_t i = 0; i + 1 < table.columns.size(); ++i) {
    std::size_t widest = display_width(table.columns[i].head);
    for (const auto& row : table.rows) widest = std::max(widest, display_width(row[i]));
    before += widest + 2;
  }
  const std::size_t limit = width == 0 ? 0 : std::max(kLeast, width - std::min(width, before));
  std::set<const Evidence*> told = {&heading.evidence_of(own.spec)};
  for (std::size_t i = 0; i < variations.size(); ++i) {
    const cost::Variation& one = variations[i];
    std::string said = verdict(one, own);
    if (limit > 0 && said.size() > limit) {
      table.notes.push_back(fmt::format("{}: {}", one.change, said));
      said = said.substr(0, said.find_first_of(",:"));  // in full below
    }
    table.rows[i].push_back(std::move(said));
    if (!one.prediction) continue;
    const plan::PlanSpec& spec = one.prediction->spec;
    if (spec.mesh.ranks() != own.spec.mesh.ranks())
      table.notes.push_back(fmt::format("{}: {}", one.change, plan::describe(spec)));
    const Evidence& evidence = heading.evidence_of(spec);
    if (told.insert(&evidence).second)
      table.notes.push_back(fmt::format("{}: by {}; {}", one.change, evidence.stack, evidence.text));
  }
  return table;
}

json variations_json(const std::vector<cost::Variation>& variations, const cost::Prediction& own,
                     const PlanHeading& heading) {
  json out = json::array();
  for (const cost::Variation& one : variations) {
    json row = {{"change", one.change},         {"verdict", verdict(one, own)},    {"code", one.code},
                {"step_time_s", nullptr},       {"step_time_change_s", nullptr},   {"fits", nullptr},
                {"memory_peak_bytes", nullptr}, {"memory_over_bytes", nullptr},    {"split", nullptr},
                {"fits_probability", nullptr},  {"step_time_interval_s", nullptr}, {"evidence", nullptr}};
    if (one.fits_probability) row["fits_probability"] = *one.fits_probability;
    if (const auto& p = one.prediction) {
      const double over = p->memory_peak_bytes - p->memory_capacity_bytes;
      row["step_time_s"] = p->step_time_s;
      row["step_time_change_s"] = p->step_time_s - own.step_time_s;
      row["memory_peak_bytes"] = whole(p->memory_peak_bytes);
      row["memory_over_bytes"] = whole(std::max(0.0, over));
      row["fits"] = over <= 0;
      row["split"] = spec_json(p->spec);
      row["evidence"] = heading.evidence_of(p->spec).word;
      if (const auto interval = figures_of(*p, heading).step_time_s)
        row["step_time_interval_s"] = {interval->low, interval->high};
    }
    out.push_back(std::move(row));
  }
  return out;
}

Table sensitivities_table(const std::vector<cost::Sensitivity>& all, const cost::Prediction& own) {
  Table table{"Numbers that the step time depends on",
              {{"number", Align::left},
               {"value"},
               {fmt::format("÷ {:g}", cost::kSensitivityFactor)},
               {fmt::format("× {:g}", cost::kSensitivityFactor)},
               {"is", Align::left},
               {"source", Align::left}},
              {},
              {}};
  for (const cost::Sensitivity& one : all)
    table.rows.push_back({one.what, coefficient_text(one.value, one.unit), signed_time(one.less_s - own.step_time_s),
                          signed_time(one.more_s - own.step_time_s), one.meaning, one.source});
  return table;
}

json sensitivities_json(const std::vector<cost::Sensitivity>& all) {
  json out = json::array();
  for (const cost::Sensitivity& one : all)
    out.push_back({{"number", one.what},
                   {"value", coefficient_text(one.value, one.unit)},
                   {"source", one.source},
                   {"factor", cost::kSensitivityFactor},
                   {"step_time_less_s", one.less_s},
                   {"step_time_more_s", one.more_s}});
  return out;
}

Table operators_table(const cost::Operators& operators) {
  Table table{"Operators of a step, mean rank",
              {{"operator", Align::left},
               {"pass", Align::left},
               {"count"},
               {"time"},
               {"rate"},
               {"of peak"},
               {"bytes"},
               {"FLOP/byte"}},
              {},
              {}};
  for (const cost::OperatorRow& row : operators.rows) {
    const double rate = row.seconds > 0 ? row.flops / row.seconds : 0;
    table.rows.push_back({row.name, row.phase, number(row.count), time_text(row.seconds), rate_text(rate),
                          share_text(rate, operators.peak_flops), base::human(base::Bytes{row.bytes}),
                          row.bytes > 0 ? number(row.flops / row.bytes) : "—"});
  }
  table.notes.push_back("Bytes are what a single kernel would read and write, each once.");
  return table;
}

json operators_json(const cost::Operators& operators) {
  json out = json::array();
  for (const cost::OperatorRow& row : operators.rows)
    out.push_back({{"operator", row.name},
                   {"pass", row.phase},
                   {"count", row.count},
                   {"time_s", row.seconds},
                   {"flops", row.flops},
                   {"bytes", row.bytes}});
  return out;
}

std::vector<WaterfallPart> waterfall_of(const cost::Prediction& p, const cost::Operators& operators) {
  if (!(p.mfu > 0) || !(operators.peak_flops > 0)) return {};
  const cost::Breakdown& b = p.breakdown;
  const double ideal = p.mfu * p.step_time_s;
  const double masked = operators.masked_flops / operators.peak_flops;
  double below[3] = {0, 0, 0};
  for (const cost::OperatorRow& row : operators.rows)
    if (row.phase == "forward" || row.phase == "backward")
      below[static_cast<int>(kind_of(row.name))] += row.seconds - row.flops / operators.peak_flops;
  const double rest = b.forward + b.backward - ideal + masked - below[0] - below[1] - below[2];
  std::vector<WaterfallPart> out = {
      {"model FLOPs at peak", ideal},           {"attention under the mask", -masked},
      {"matrix products below peak", below[0]}, {"attention below peak", below[1]},
      {"operators bound by memory", below[2]},  {"issuing, jitter, and FLOPs beyond the model's", rest},
      {"recomputation", b.recompute},           {"optimizer", b.optimizer}};
  static const std::set<std::string> kSaid = {"forward", "backward", "recompute", "optimizer"};
  for (const Part& part : parts_of(b))
    if (kSaid.count(part.name) == 0) out.push_back({part.name, part.seconds});
  std::erase_if(out, [](const WaterfallPart& part) { return part.seconds == 0; });
  return out;
}

Table waterfall_table(const std::vector<WaterfallPart>& parts) {
  Table table{"", {{"part", Align::left}, {"time"}, {"so far"}, {"of the step"}}, {}, {}};
  double step = 0, at = 0;
  for (const WaterfallPart& part : parts) step += part.seconds;
  for (const WaterfallPart& part : parts) {
    const bool first = &part == &parts.front();
    at += part.seconds;
    table.rows.push_back({part.name, first ? time_text(part.seconds) : signed_time(part.seconds), time_text(at),
                          share_text(part.seconds, step)});
  }
  table.rows.push_back({"step", time_text(step), time_text(step), percent(1)});
  return table;
}

json waterfall_json(const std::vector<WaterfallPart>& parts) {
  json out = json::array();
  for (const WaterfallPart& part : parts) out.push_back({{"part", part.name}, {"seconds", part.seconds}});
  return out;
}

}  // namespace orrery::reports
