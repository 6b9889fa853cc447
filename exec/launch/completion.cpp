// Writes and reads completed.json.
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/launch/supervise.h"

namespace orrery::exec {
namespace {

constexpr const char* kFormat = "1.0";
constexpr std::size_t kMostRecord = 1 << 20;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr double kHuge = std::numeric_limits<double>::max();

void read_lossless(base::JsonReader& reader, Completion& c) {
  reader.open_object();
  for (std::string key; reader.key(key);) {
    if (key == "tensors")
      c.lossless_tensors = reader.integer(0, kMost);
    else if (key == "computed_again")
      c.lossless_again = reader.integer(0, kMost);
    else if (key == "densest")
      c.lossless_densest = reader.number(0, kHuge);
    else
      reader.skip();
  }
}

void read_looks(base::JsonReader& reader, Completion& c) {
  reader.open_object();
  for (std::string key; reader.key(key);) {
    if (key == "count")
      c.looks = reader.integer(0, kMost);
    else if (key == "seconds")
      c.looks_s = reader.number(0, kHuge);
    else
      reader.skip();
  }
}

void read_checkpoints(base::JsonReader& reader, SavedTotals& saved) {
  const std::map<std::string, double*> seconds = {{"pause_s", &saved.pause_s},
                                                  {"copy_s", &saved.copy_s},
                                                  {"wait_s", &saved.wait_s},
                                                  {"commit_s", &saved.commit_s},
                                                  {"write_s", &saved.write_s}};
  reader.open_object();
  for (std::string key; reader.key(key);) {
    if (key == "count")
      saved.count = reader.integer(0, kMost);
    else if (key == "bytes")
      saved.bytes = reader.number(0, kHuge);
    else if (key == "largest_rank_bytes")
      saved.largest_rank_bytes = reader.number(0, kHuge);
    else if (const auto one = seconds.find(key); one != seconds.end())
      *one->second = reader.number(0, kHuge);
    else
      reader.skip();
  }
}

}  // namespace

std::string write_completion(const Completion& c) {
  nlohmann::ordered_json json;
  json["format_version"] = kFormat;
  json["run_id"] = c.run_id;
  json["completed"] = c.completed;
  json["steps"] = c.steps;
  json["resumed_from"] = c.resumed_from;
  if (std::isfinite(c.first_loss)) json["first_loss"] = c.first_loss;  // JSON has no NaN or infinity
  if (std::isfinite(c.final_loss)) json["final_loss"] = c.final_loss;
  const auto or_none = [](double value) { return std::isfinite(value) ? value : 0; };
  json["step_time_s"] = or_none(c.step_time_s);
  json["tokens_per_s"] = or_none(c.tokens_per_s);
  json["memory_peak_bytes"] = c.memory_peak_bytes;
  json["backend"] = c.backend;
  json["device"] = c.device;
  json["ranks"] = c.ranks;
  json["threads"] = c.threads;
  json["oversubscribed"] = c.oversubscribed;
  if (c.lossless_tensors > 0)
    json["lossless"] = {
        {"tensors", c.lossless_tensors}, {"computed_again", c.lossless_again}, {"densest", c.lossless_densest}};
  json["spikes"] = c.spikes;
  json["skipped"] = c.skipped;
  json["looks"] = {{"count", c.looks}, {"seconds", c.looks_s}};
  if (c.bad_lines) json["bad_lines"] = *c.bad_lines;
  if (c.held_out_auc) json["held_out_auc"] = *c.held_out_auc;
  if (c.best_auc) json["best_auc"] = *c.best_auc;
  if (const SavedTotals& saved = c.checkpoints; saved.count > 0)
    json["checkpoints"] = {{"count", saved.count},       {"pause_s", saved.pause_s},
                           {"copy_s", saved.copy_s},     {"wait_s", saved.wait_s},
                           {"commit_s", saved.commit_s}, {"write_s", saved.write_s},
                           {"bytes", saved.bytes},       {"largest_rank_bytes", saved.largest_rank_bytes}};
  return json.dump(1) + "\n";
}

std::optional<Completion> read_completion(const std::filesystem::path& run) {
  std::string text;
  try {
    text = read_file(run / "completed.json", kMostRecord);
  } catch (const Failure&) {
    return std::nullopt;
  }
  base::JsonReader reader(text, "completed.json");
  Completion c;
  c.first_loss = c.final_loss = std::numeric_limits<double>::quiet_NaN();
  std::set<std::string> missing = {"format_version", "run_id",         "completed",        "steps",  "resumed_from",
                                   "step_time_s",    "tokens_per_s",   "backend",          "device", "ranks",
                                   "threads",        "oversubscribed", "memory_peak_bytes"};
  reader.open_object();
  for (std::string key; reader.key(key); missing.erase(key)) {
    if (key == "format_version") {
      if (reader.text() != kFormat) return std::nullopt;
    } else if (key == "run_id")
      c.run_id = reader.text();
    else if (key == "completed")
      c.completed = reader.boolean();
    else if (key == "steps")
      c.steps = reader.integer(0, kMost);
    else if (key == "resumed_from")
      c.resumed_from = reader.integer(0, kMost);
    else if (key == "first_loss")
      c.first_loss = reader.number(-kHuge, kHuge);
    else if (key == "final_loss")
      c.final_loss = reader.number(-kHuge, kHuge);
    else if (key == "step_time_s")
      c.step_time_s = reader.number(0, kHuge);
    else if (key == "tokens_per_s")
      c.tokens_per_s = reader.number(0, kHuge);
    else if (key == "memory_peak_bytes")
      c.memory_peak_bytes = reader.number(0, kHuge);
    else if (key == "backend")
      c.backend = reader.text();
    else if (key == "device")
      c.device = reader.text();
    else if (key == "ranks")
      c.ranks = static_cast<int>(reader.integer(1, 1 << 30));
    else if (key == "threads")
      c.threads = static_cast<int>(reader.integer(1, 1 << 30));
    else if (key == "oversubscribed")
      c.oversubscribed = reader.boolean();
    else if (key == "lossless")
      read_lossless(reader, c);
    else if (key == "bad_lines")
      c.bad_lines = reader.integer(0, kMost);
    else if (key == "held_out_auc")
      c.held_out_auc = reader.number(0, 1);
    else if (key == "best_auc")
      c.best_auc = reader.number(0, 1);
    else if (key == "spikes")
      c.spikes = reader.integer(0, kMost);
    else if (key == "skipped")
      c.skipped = reader.integer(0, kMost);
    else if (key == "looks")
      read_looks(reader, c);
    else if (key == "checkpoints")
      read_checkpoints(reader, c.checkpoints);
    else
      reader.skip();
  }
  reader.finish();
  if (reader.failed() || !missing.empty()) return std::nullopt;
  return c;
}

}  // namespace orrery::exec
