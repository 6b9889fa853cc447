// Predictions as JSON, both ways: tables of keys, which writer and reader share.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/json.h"
#include "reports/saved.h"

namespace orrery::reports {
namespace {

using base::Cursor;
using nlohmann::json;

/// A number of a record and its key. Sizes in bytes are written as whole numbers.
template <class Record>
struct Key {
  const char* name;
  double Record::*number;
  bool whole = false;
};

constexpr Key<cost::Breakdown> kBreakdown[] = {{"forward", &cost::Breakdown::forward},
                                               {"backward", &cost::Breakdown::backward},
                                               {"recompute", &cost::Breakdown::recompute},
                                               {"optimizer", &cost::Breakdown::optimizer},
                                               {"tensor_communication", &cost::Breakdown::tensor_communication},
                                               {"exchange_communication", &cost::Breakdown::exchange_communication},
                                               {"data_communication", &cost::Breakdown::data_communication},
                                               {"pipeline_communication", &cost::Breakdown::pipeline_communication},
                                               {"copies", &cost::Breakdown::copies},
                                               {"contention", &cost::Breakdown::contention},
                                               {"bubble", &cost::Breakdown::bubble},
                                               {"imbalance", &cost::Breakdown::imbalance},
                                               {"overhead", &cost::Breakdown::overhead}};
constexpr Key<cost::Energy> kEnergy[] = {{"devices", &cost::Energy::devices},
                                         {"hosts", &cost::Energy::hosts},
                                         {"network", &cost::Energy::network},
                                         {"facility", &cost::Energy::facility}};
constexpr Key<cost::Prediction> kFigures[] = {{"step_time_s", &cost::Prediction::step_time_s},
                                              {"memory_peak_bytes", &cost::Prediction::memory_peak_bytes, true},
                                              {"memory_capacity_bytes", &cost::Prediction::memory_capacity_bytes, true},
                                              {"mfu", &cost::Prediction::mfu},
                                              {"bubble_fraction", &cost::Prediction::bubble_fraction},
                                              {"exposed_communication_s", &cost::Prediction::exposed_communication_s},
                                              {"tokens_per_s", &cost::Prediction::tokens_per_s},
                                              {"cost_per_step_usd", &cost::Prediction::cost_per_step_usd},
                                              {"energy_per_step_j", &cost::Prediction::energy_per_step_j}};
constexpr Key<cost::TableRow> kTables[] = {
    {"compute_s", &cost::TableRow::compute_s}, {"communication_s", &cost::TableRow::communication_s},
    {"bytes", &cost::TableRow::bytes, true},   {"cache_bytes", &cost::TableRow::cache_bytes, true},
    {"hit_rate", &cost::TableRow::hit_rate},   {"fetched_bytes", &cost::TableRow::fetched_bytes, true}};
constexpr Key<cost::CommunicationRow> kCommunication[] = {
    {"bytes", &cost::CommunicationRow::bytes, true},
    {"time_s", &cost::CommunicationRow::time_s},
    {"exposed_s", &cost::CommunicationRow::exposed_s},
    {"contention_s", &cost::CommunicationRow::contention_s},
    {"bus_bandwidth_bytes_per_s", &cost::CommunicationRow::bus_bandwidth}};
constexpr Key<cost::LinkRow> kLinks[] = {{"bytes", &cost::LinkRow::bytes, true},
                                         {"mean_utilisation", &cost::LinkRow::mean_utilisation},
                                         {"peak_utilisation", &cost::LinkRow::peak_utilisation}};
/// Sizes of a stage, each a list of its own.
constexpr Key<cost::MemoryRow> kMemory[] = {{"memory_by_stage_bytes", &cost::MemoryRow::total, true},
                                            {"host_memory_by_stage_bytes", &cost::MemoryRow::host, true},
                                            {"nvme_by_stage_bytes", &cost::MemoryRow::nvme, true}};

template <class Record, std::size_t kCount>
json written(const Record& record, const Key<Record> (&keys)[kCount]) {
  json out = json::object();
  for (const Key<Record>& key : keys) out[key.name] = key.whole ? whole(record.*key.number) : json(record.*key.number);
  return out;
}

/// Common to plan and simulate.
json prediction_figures(const cost::Prediction& p) {
  json out = written(p, kFigures);
  out["energy_j"] = written(p.energy, kEnergy);
  out["breakdown_s"] = written(p.breakdown, kBreakdown);
  if (!p.on_torus.empty()) out["on_torus"] = p.on_torus;
  if (p.tables.empty()) return out;
  out["tables"] = json::array();
  for (const cost::TableRow& row : p.tables) {
    out["tables"].push_back(written(row, kTables));
    out["tables"].back().update({{"table", row.table},
                                 {"rows", row.rows},
                                 {"sharding", row.sharding},
                                 {"place", row.place},
                                 {"tier", row.tier}});
  }
  double device = 0, host = 0, nvme = 0;
  for (const cost::MemoryRow& row : p.memory) {
    device = std::max(device, row.total);
    host = std::max(host, row.host);
    nvme = std::max(nvme, row.nvme);
  }
  out["memory_by_tier_bytes"] = {{"device", whole(device)}, {"host", whole(host)}, {"nvme", whole(nvme)}};
  if (p.placement_gap) out["placement_gap"] = *p.placement_gap;
  return out;
}

}  // namespace

json plan_json(const cost::SearchResult& result, const WholePlan& whole_plan) {
  json plans = json::array();
  for (const cost::Prediction& p : result.plans) {
    json entry = prediction_figures(p);
    const json spec = spec_json(p.spec);
    entry["plan"] = whole_plan ? whole_plan(p.spec) : spec;
    for (const char* key :
         {"data", "tensor", "pipeline", "context", "expert", "virtual_stages", "zero_stage", "zero_group",
          "micro_batch", "schedule", "recompute", "sequence_parallel", "layers_per_stage"})
      entry[key] = spec.at(key);
    plans.push_back(std::move(entry));
  }
  json search = {{"candidates", result.candidates}, {"feasible", result.feasible}, {"evaluated", result.evaluated},
                 {"simulated", result.simulated},   {"seconds", result.seconds},   {"optimality_gap", nullptr},
                 {"rejected", json::object()},      {"nearest", result.nearest}};
  if (result.optimality_gap) search["optimality_gap"] = *result.optimality_gap;
  search["fits_probability"] = result.fits_probability;
  search["interrupted"] = result.interrupted;
  for (const auto& [reason, count] : result.rejected) search["rejected"][reason] = count;
  return {{"plans", std::move(plans)}, {"search", std::move(search)}};
}

json simulate_json(const cost::Prediction& p) {
  json out = prediction_figures(p);
  out["plan"] = spec_json(p.spec);
  out["simulation_seconds"] = p.simulation_seconds;
  for (const Key<cost::MemoryRow>& key : kMemory) {
    out[key.name] = json::array();
    for (const cost::MemoryRow& row : p.memory) out[key.name].push_back(whole(row.*key.number));
  }
  out["memory_by_purpose_bytes"] = json::array();
  for (const cost::MemoryRow& row : p.memory) {
    json purposes = json::object();
    for (const auto& [purpose, size] : row.by_purpose) purposes[purpose] = whole(size);
    out["memory_by_purpose_bytes"].push_back(std::move(purposes));
  }
  out["communication"] = json::array();
  for (const cost::CommunicationRow& row : p.communication) {
    out["communication"].push_back(written(row, kCommunication));
    out["communication"].back().update(
        {{"dimension", row.dimension}, {"operation", row.operation}, {"count", row.count}});
  }
  out["links"] = json::array();
  for (const cost::LinkRow& row : p.links) {
    out["links"].push_back(written(row, kLinks));
    out["links"].back()["class"] = row.name;
  }
  return out;
}

// ---- And back

namespace {

constexpr double kMost = 1e300;
constexpr std::int64_t kMostCount = std::int64_t{1} << 53;

/// Numbers that are not there (null is written for what is not finite) stay as they are.
template <class Record, std::size_t kCount>
void read(const Cursor& at, Record& into, const Key<Record> (&keys)[kCount]) {
  if (!at.exists()) return;
  for (const Key<Record>& key : keys) into.*key.number = at.optional(key.name).number(-kMost, kMost, into.*key.number);
}

std::vector<Cursor> items_of(const Cursor& at) {
  return at.exists() ? at.items() : std::vector<Cursor>();
}

cost::TableRow read_table(const Cursor& at) {
  cost::TableRow row;
  row.table = at.at("table").text();
  row.rows = at.optional("rows").integer(0, kMostCount);
  row.sharding = at.optional("sharding").text();
  row.place = at.optional("place").text();
  row.tier = at.optional("tier").text(row.tier);
  read(at, row, kTables);
  return row;
}

std::optional<cost::Interval> read_pair(const Cursor& at) {
  if (!at.exists()) return std::nullopt;
  const std::vector<Cursor> ends = at.items();
  if (ends.size() == 2) return cost::Interval{ends[0].number(0, kMost), ends[1].number(0, kMost)};
  at.error("E0105", "an interval has two ends");
  return std::nullopt;
}

}  // namespace

SavedPrediction read_prediction(const Cursor& at) {
  at.ignore();  // newer versions add keys
  SavedPrediction out;
  cost::Prediction& p = out.prediction;
  p.step_time_s = at.at("step_time_s").number(0, kMost);
  read(at, p, kFigures);
  read(at.optional("energy_j"), p.energy, kEnergy);
  read(at.optional("breakdown_s"), p.breakdown, kBreakdown);
  p.simulation_seconds = at.optional("simulation_seconds").number(0, kMost);
  for (const Key<cost::MemoryRow>& key : kMemory) {
    std::size_t stage = 0;
    for (const Cursor& one : items_of(at.optional(key.name))) {
      if (stage == p.memory.size()) p.memory.push_back({plan::StageId(stage), 0, 0, 0, {}});
      p.memory[stage++].*key.number = one.number(0, kMost);
    }
  }
  std::size_t stage = 0;
  for (const Cursor& one : items_of(at.optional("memory_by_purpose_bytes"))) {
    if (stage == p.memory.size()) break;
    for (const std::string& purpose : one.keys())
      p.memory[stage].by_purpose[purpose] = one.at(purpose).number(0, kMost);
    ++stage;
  }
  for (const Cursor& one : items_of(at.optional("communication"))) {
    cost::CommunicationRow row;
    row.dimension = one.at("dimension").text();
    row.operation = one.at("operation").text();
    row.count = one.optional("count").integer(0, kMostCount);
    read(one, row, kCommunication);
    p.communication.push_back(std::move(row));
  }
  for (const Cursor& one : items_of(at.optional("links"))) {
    cost::LinkRow row;
    row.name = one.at("class").text();
    read(one, row, kLinks);
    p.links.push_back(std::move(row));
  }
  for (const Cursor& one : items_of(at.optional("tables"))) p.tables.push_back(read_table(one));
  if (const Cursor gap = at.optional("placement_gap"); gap.exists()) p.placement_gap = gap.number(-kMost, kMost);
  if (const Cursor places = at.optional("on_torus"); places.exists()) p.on_torus = places.text();
  out.evidence.stack = at.optional("stack").text();
  out.evidence.word = at.optional("evidence").text();
  out.evidence.text = at.optional("evidence_text").text();
  const auto time = read_pair(at.optional("step_time_interval_s"));
  const auto memory = read_pair(at.optional("memory_interval_bytes"));
  if (time && memory && p.step_time_s > 0 && p.memory_peak_bytes > 0)
    out.evidence.one_node = out.evidence.several_nodes =
        cost::Spread{out.evidence.stack,
                     false,
                     {time->low / p.step_time_s, time->high / p.step_time_s},
                     {memory->low / p.memory_peak_bytes, memory->high / p.memory_peak_bytes},
                     0};
  return out;
}

cost::SearchResult read_search(const Cursor& at) {
  at.ignore();
  cost::SearchResult out;
  out.candidates = at.optional("candidates").integer(0, kMostCount);
  out.feasible = at.optional("feasible").integer(0, kMostCount);
  out.evaluated = at.optional("evaluated").integer(0, kMostCount);
  out.simulated = at.optional("simulated").integer(0, kMostCount);
  out.seconds = at.optional("seconds").number(0, kMost);
  out.fits_probability = at.optional("fits_probability").number(0, 1);
  if (const Cursor gap = at.optional("optimality_gap"); gap.exists()) out.optimality_gap = gap.number(-kMost, kMost);
  out.interrupted = at.optional("interrupted").boolean();
  const Cursor rejected = at.optional("rejected");
  for (const std::string& reason : rejected.keys()) out.rejected[reason] = rejected.at(reason).integer(0, kMostCount);
  return out;
}

}  // namespace orrery::reports
