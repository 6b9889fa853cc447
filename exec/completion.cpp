// completed.json, written and read.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "exec/failure.h"
#include "exec/files.h"
#include "exec/supervise.h"

namespace orrery::exec {
namespace {

constexpr const char* kFormat = "1.0";
constexpr std::size_t kMostRecord = 1 << 20;

}  // namespace

std::string write_completion(const Completion& c) {
  nlohmann::ordered_json json;
  json["format_version"] = kFormat;
  json["run_id"] = c.run_id;
  json["completed"] = c.completed;
  json["steps"] = c.steps;
  json["resumed_from"] = c.resumed_from;
  json["first_loss"] = c.first_loss;
  json["final_loss"] = c.final_loss;
  json["step_time_s"] = c.step_time_s;
  json["tokens_per_s"] = c.tokens_per_s;
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
  return json.dump(1) + "\n";
}

std::optional<Completion> read_completion(const std::filesystem::path& run) {
  try {
    const nlohmann::json json = nlohmann::json::parse(read_file(run / "completed.json", kMostRecord));
    if (json.at("format_version") != kFormat) return std::nullopt;
    Completion c;
    json.at("run_id").get_to(c.run_id);
    json.at("completed").get_to(c.completed);
    json.at("steps").get_to(c.steps);
    json.at("resumed_from").get_to(c.resumed_from);
    json.at("first_loss").get_to(c.first_loss);
    json.at("final_loss").get_to(c.final_loss);
    json.at("step_time_s").get_to(c.step_time_s);
    json.at("tokens_per_s").get_to(c.tokens_per_s);
    json.at("memory_peak_bytes").get_to(c.memory_peak_bytes);
    json.at("backend").get_to(c.backend);
    json.at("device").get_to(c.device);
    json.at("ranks").get_to(c.ranks);
    json.at("threads").get_to(c.threads);
    json.at("oversubscribed").get_to(c.oversubscribed);
    if (const auto lossless = json.find("lossless"); lossless != json.end()) {
      lossless->at("tensors").get_to(c.lossless_tensors);
      lossless->at("computed_again").get_to(c.lossless_again);
      lossless->at("densest").get_to(c.lossless_densest);
    }
    c.spikes = json.value("spikes", std::int64_t{0});
    c.skipped = json.value("skipped", std::int64_t{0});
    if (const auto looks = json.find("looks"); looks != json.end()) {
      looks->at("count").get_to(c.looks);
      looks->at("seconds").get_to(c.looks_s);
    }
    return c;
  } catch (const Failure&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace orrery::exec
