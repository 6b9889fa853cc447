/// Makes the sample records.
#include "tests/reports/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "reports/html/chart_template.h"

namespace orrery::sample {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

plan::PlanSpec spec(int data, int tensor, int pipeline, std::int64_t micro_batch = 1) {
  plan::PlanSpec s;
  s.mesh.data = data;
  s.mesh.tensor = tensor;
  s.mesh.pipeline = pipeline;
  s.shape.micro_batch = micro_batch;
  s.shape.batch = 64;
  s.shape.sequence = 2048;
  s.stages.layers_per_stage.assign(static_cast<std::size_t>(pipeline), 24 / pipeline);
  s.numerics.precision = models::DType::bf16;
  return s;
}

cost::Prediction one(const plan::PlanSpec& s, double step_time, double memory) {
  cost::Prediction p;
  p.spec = s;
  p.step_time_s = step_time;
  p.memory_peak_bytes = memory * kGiB;
  p.memory_capacity_bytes = 80 * kGiB;
  p.mfu = 0.9 / step_time;
  p.bubble_fraction = s.mesh.pipeline > 1 ? 0.11 : 0;
  p.exposed_communication_s = 0.07 * step_time;
  p.tokens_per_s = 64 * 2048 / step_time;
  return p;
}

}  // namespace

cost::SearchResult search() {
  cost::SearchResult r;
  r.plans = {one(spec(4, 8, 4), 1.7321, 61.2), one(spec(8, 8, 2, 2), 1.8044, 71.9), one(spec(16, 8, 1), 2.25, 78.4)};
  r.plans[1].spec.recomputation.what = plan::Recompute::full;
  r.plans[2].spec.states.zero_stage = 1;
  r.candidates = 1536;
  r.feasible = 212;
  r.evaluated = 640;
  r.simulated = 5;
  r.seconds = 0.4321;
  r.rejected = {{"memory: the plan does not fit the device", 428},
                {"P03: heads do not divide by tensor", 512},
                {"P07: the batch does not divide into micro-batches", 384}};
  return r;
}

cost::Prediction prediction() {
  cost::Prediction p = one(spec(4, 8, 4), 1.7321, 61.2);
  p.cost_per_step_usd = 0.1105;
  p.energy_per_step_j = 88000;
  p.simulation_seconds = 0.0312;
  p.breakdown = {0.42, 0.84, 0.12, 0.015, 0.08, 0.03, 0.011, 0, 0, 0.19, 0.0261};
  for (int stage = 0; stage < 4; ++stage) {
    cost::MemoryRow row;
    row.stage = plan::StageId(stage);
    row.by_purpose = {{"parameters", 10.5 * kGiB},       {"gradients", 10.5 * kGiB},
                      {"optimizer_states", 21.0 * kGiB}, {"activations", (4 - stage) * 3.6 * kGiB},
                      {"workspace", 2.1 * kGiB},         {"software", 2.7 * kGiB}};
    for (const auto& [purpose, size] : row.by_purpose) row.total += size;
    p.memory.push_back(row);
  }
  p.communication = {{"tensor", "all_reduce", 768, 51.5e9, 0.19, 0.08, 232e9},
                     {"data", "all_reduce", 24, 11.2e9, 0.11, 0.03, 21.4e9},
                     {"pipeline", "send", 128, 4.3e9, 0.2, 0.011, 21.5e9}};
  p.links = {{"nvlink3", 6.1e12, 0.123, 0.31}, {"hdr200", 0.9e12, 0.071, 0.22}};
  return p;
}

cost::FitResult fit() {
  cost::FitResult f;
  f.parameters = {{"device.gemm.peak", 9.0e10, 7.42e10, "FLOP/s", "fit 2026-11-20: runs a, b, c"},
                  {"device.memory.bandwidth", 2.0e10, 1.31e10, "B/s", "fit 2026-11-20: runs a, b, c"},
                  {"network.latency", 1e-6, 3.25e-6, "s", "fit 2026-11-20: runs b, c"},
                  {"stack.dispatch_overhead", 0, 2.1e-6, "s", "fit 2026-11-20: runs a, b, c"}};
  f.error_before = 0.482;
  f.error_after = 0.071;
  f.held_out_error_after = 0.093;
  const char* kinds[] = {"matmul", "normalisation", "all_reduce", "send"};
  for (int i = 0; i < 160; ++i) {
    cost::Residual r;
    r.run = i % 3 == 0 ? "data 2" : "tensor 2";
    r.what = kinds[i % 4];
    r.measured_s = 2e-6 * std::pow(10.0, 3.5 * ((i * 37) % 160) / 160.0);
    r.predicted_before_s = r.measured_s * (0.35 + 0.5 * ((i * 53) % 97) / 97.0);
    r.predicted_after_s = r.measured_s * (0.88 + 0.24 * ((i * 71) % 101) / 101.0);
    r.held_out = i % 5 == 0;
    f.residuals.push_back(r);
  }
  f.operators = {{"data 2", "gelu 1024x512", 4e-4, 6e-4, 4.1e-4, false},
                 {"tensor 2", "gelu 1024x256", 2e-4, 3e-4, 1.9e-4, false},
                 {"data 2", "matmul 1024x512x128 Bt", 1.1e-3, 2.4e-3, 1.05e-3, true}};
  f.notes = {"run d was left out: more ranks than cores"};
  return f;
}

std::vector<cost::MeasuredRun> runs() {
  std::vector<cost::MeasuredRun> out;
  const auto add = [&](plan::PlanSpec s, double measured, double before, double after, bool fitted, bool crowded) {
    cost::MeasuredRun r;
    r.spec = std::move(s);
    r.directory = "runs/" + std::to_string(out.size() + 1);
    r.step_time_s = measured;
    r.step_time_spread = 0.012 * static_cast<double>(out.size() + 1);
    r.memory_peak_bytes = 0.31 * kGiB / r.spec.mesh.ranks();
    r.predicted_memory_bytes = 0.312 * kGiB / r.spec.mesh.ranks();
    r.tokens_per_s = 64 * 128 / measured;
    r.predicted_before_s = before;
    r.predicted_after_s = after;
    r.used_in_fit = fitted;
    r.oversubscribed = crowded;
    out.push_back(r);
  };
  add(spec(1, 1, 1), 0.212, 0.141, 0.209, true, false);
  add(spec(2, 1, 1), 0.118, 0.073, 0.114, true, false);
  add(spec(1, 2, 1), 0.131, 0.079, 0.138, false, false);
  add(spec(1, 1, 2), 0.127, 0.086, 0.121, false, false);
  add(spec(2, 2, 1), 0.271, 0.049, 0.081, false, true);
  return out;
}

cost::ScalingStudy scaling() {
  cost::ScalingStudy study;
  cost::ScalingSeries& series = study.series.emplace_back();
  series.model = "tiny-gpt";
  series.parameters = 1.2e6;
  series.cluster = "localhost-8";
  series.device = "CPU rank", series.kind = clusters::DeviceKind::cpu;
  series.precision = "fp32";
  series.memory_bytes = 1 * kGiB;
  series.sequence = 2048;
  series.batch = 64;
  series.pays_up_to = 4;
  series.stops_paying_at = 8;
  const std::tuple<int, double> sizes[] = {{1, 0.209}, {2, 0.114}, {4, 0.066}, {8, 0.052}};
  for (const auto& [devices, time] : sizes) {
    const bool first = series.points.empty();
    cost::ScalingPoint p;
    p.devices = devices;
    p.nodes = 1;
    p.batch = 64;
    p.best = one(spec(devices, 1, 1), time, 0.2);
    p.best->mfu = 0.084 / (time * devices);
    p.best->memory_capacity_bytes = kGiB;
    p.best->memory = {
        {plan::StageId(0), 0.2 * kGiB, 0, 0, {{"parameters", 0.15 * kGiB}, {"activations", 0.05 * kGiB}}}};
    p.stack = "orrery-cpu";
    p.evidence = "calibrated";
    p.evidence_text = "this machine's cores";
    p.factors = cost::Interval{0.9, 1.1};
    p.step_time_s = cost::Interval{0.9 * time, 1.1 * time};
    p.tokens_per_s_per_device = p.best->tokens_per_s / devices;
    p.tokens_per_s_per_device_interval =
        cost::Interval{p.tokens_per_s_per_device / 1.1, p.tokens_per_s_per_device / 0.9};
    p.efficiency = 0.209 / (time * devices);
    p.efficiency_interval = first ? cost::Interval{1, 1} : cost::Interval{p.efficiency * 0.88, p.efficiency * 1.12};
    const double compute = 1 / (64 * 2048 / 0.209);
    p.seconds_by_cause[static_cast<std::size_t>(cost::Cause::compute)] = compute;
    p.seconds_by_cause[static_cast<std::size_t>(cost::Cause::data)] = 1 / p.tokens_per_s_per_device - compute;
    if (!first) {
      const cost::ScalingPoint& before = series.points.back();
      p.before = series.points.size() - 1;
      p.efficiency_lost[static_cast<std::size_t>(cost::Cause::data)] = before.efficiency - p.efficiency;
      p.marginal = p.best->tokens_per_s / before.best->tokens_per_s - 1;
      p.grown = {{"data", before.devices, devices}};
    }
    p.run = cost::RunCost{1e9 / p.best->tokens_per_s, std::nullopt, 12.5, 3.6e9, 4.8e5};
    series.points.push_back(std::move(p));
  }
  cost::ScalingPoint& none = series.points.emplace_back();
  none.devices = 16;
  none.batch = 64;
  none.reason = "none of 12 plans is feasible: 12 memory: does not fit the device";
  series.measured = {{"runs/2", "data 2, micro-batch 1", 2, 64, 0.118, 0.114, false, true},
                     {"A paper (pub1)", "tensor 4, micro-batch 1", 4, 64, 0.071, 0.069, true, false}};
  study.tokens = 1e9;
  study.co2_grams_per_kwh = 480;
  study.co2_source = "a source";
  study.ways = {{"tiny-gpt", cost::Place{0, 0}, cost::Place{0, 0}, cost::Place{0, 3}, std::nullopt}};
  return study;
}

reports::ReportData report() {
  reports::ReportData d;
  d.title = "tiny-gpt on localhost-4";
  d.subtitle = "A sample: hand-made records, no measurement.";
  d.schedule = schedule();
  d.predicted = timeline(*d.schedule, plan::Origin::predicted);
  d.measured = timeline(*d.schedule, plan::Origin::measured);
  d.prediction = prediction();
  d.run = cost::MeasuredRun{};
  d.run->spec = d.prediction->spec;
  d.run->step_time_s = 1.81;
  d.run->tokens_per_s = 64 * 2048 / 1.81;
  d.run->memory_peak_bytes = 60.9 * kGiB;
  d.measured_breakdown = cost::Breakdown{0.45, 0.86, 0.13, 0.016, 0.09, 0.035, 0.012, 0, 0, 0.19, 0.027};
  d.measured_memory = {{plan::StageId(0), 60.9 * kGiB},
                       {plan::StageId(1), 57.1 * kGiB},
                       {plan::StageId(2), 54.3 * kGiB},
                       {plan::StageId(3), 50.2 * kGiB}};
  for (int i = 0; i < 60; ++i) d.losses.push_back(5.55 - 2.4 * (1 - std::exp(-i / 18.0)) + 0.04 * std::sin(1.7 * i));
  d.runs = runs();
  d.fit = fit();
  d.scaling = scaling();
  d.search = search();
  d.provenance = {{"plan.yaml", "sha256 9f2c0f6d1f6f0c1b", "examples/tiny.yaml"},
                  {"orrery", "0.1.0", ""},
                  {"machine", "2 cores, <unknown> & \"quoted\"", "reported by the worker"}};
  return d;
}

cost::Operators operators() {
  cost::Operators out;
  out.peak_flops = 312e12;
  out.bandwidth = 2e12;
  out.rows = {{"matmul", "backward", 400, 0.5, 0.36 * 312e12, 1e12},
              {"matmul", "forward", 200, 0.25, 0.18 * 312e12, 5e11},
              {"attention_grad", "backward", 20, 0.1, 0.04 * 312e12, 2e11},
              {"layer_norm", "forward", 80, 0.05, 1e9, 1e11},
              {"adamw", "optimizer", 1, 0.015, 2e9, 3e10}};
  out.masked_flops = 0.02 * 312e12;
  return out;
}

reports::PlanPage plan_page() {
  reports::PlanPage out;
  out.heading.model = "gpt3-22b";
  out.heading.cluster = "selene-128";
  out.heading.device = "A100";
  out.heading.devices = 128;
  out.heading.devices_per_node = 8;
  out.heading.peak_flops = 312e12;
  reports::Evidence& evidence = out.heading.evidence.front();
  evidence.stack = "megatron-core";
  evidence.word = "published";
  evidence.text = "from 38 published runs <of it>";
  evidence.several_nodes = cost::Spread{"megatron-core", true, {0.9, 1.11}, {0.95, 1.08}, 38};
  out.operators = operators();
  cost::Prediction other = prediction();
  other.step_time_s *= 1.1;
  other.memory_peak_bytes *= 2;
  out.neighbours = {{"micro-batch 2", other, "", ""}, {"VP 3", std::nullopt, "chunks are not whole", "P18"}};
  out.sensitivities = {{"bandwidth of NICs", 25e9, "B/s", "selene", "", 1.9, 1.6},
                       {"device.gemm.efficiency", 0.8, "number", "datasheet", "share of the peak", 2.1, 1.5}};
  out.topology.tiers = {{clusters::VertexKind::device, 128},
                        {clusters::VertexKind::nvswitch, 96},
                        {clusters::VertexKind::nic, 128},
                        {clusters::VertexKind::leaf, 8}};
  out.topology.links = {
      {clusters::VertexKind::device, clusters::VertexKind::nvswitch, "nvlink3", 128, 3e11, prediction().links[0]},
      {clusters::VertexKind::device, clusters::VertexKind::nic, "pcie", 128, 3e10, std::nullopt},
      {clusters::VertexKind::nic, clusters::VertexKind::leaf, "hdr200", 128, 2.5e10, prediction().links[1]}};
  out.coefficients = {
      "Coefficients", {{"name", reports::Align::left}, {"value"}, {"source", reports::Align::left}}, {}, {}};
  out.coefficients.rows = {{"device.gemm.efficiency", "0.8", "a <source>"}};
  return out;
}

reports::ReportData plan_report() {
  reports::ReportData data = report();
  data.measured.reset();
  data.measured_breakdown.reset();
  data.measured_memory.clear();
  data.run.reset();
  data.runs.clear();
  data.fit.reset();
  data.scaling.reset();
  data.losses.clear();
  data.search.reset();
  data.page = plan_page();
  return data;
}

std::vector<reports::Compared> compared() {
  reports::Compared a{"plans/a.yaml", prediction(), plan_page().heading, {}, {}, {}, {}};
  reports::Compared b{"plans/<b>.yaml", prediction(), plan_page().heading, {}, {}, {}, {}};
  b.prediction.spec.shape.micro_batch = 4;
  b.prediction.spec.recomputation.what = plan::Recompute::full;
  b.prediction.step_time_s *= 2;
  b.heading.cluster = "selene-256";
  return {a, b};
}

reports::WholeRun whole_run() {
  reports::WholeRun run;
  run.devices = 16;
  run.devices_per_node = 8;
  run.forecast.asked.failures.mtbf = {86400, "a fleet"};
  run.forecast.asked.restart = {600, "a source"};
  run.forecast.system = {86400, 600, 1, 20};
  run.forecast.now = cost::goodput(600, run.forecast.system);
  run.forecast.best = run.forecast.now;
  run.forecast.failures = 3;
  run.lengths = {{"given", "--tokens", 7e9, 140e9, 1000, 864000, 1234, 3.6e9, 2.1, true},
                 {"best model", "a law", 3e9, 60e9, 0, 0, 0, 0, 0, false}};
  for (const double interval : {60.0, 600.0, 6000.0})
    run.by_interval.emplace_back(interval, cost::goodput(interval, run.forecast.system).useful);
  return run;
}

nlohmann::json rows_of(const reports::html::Chart& chart, const std::string& data) {
  const auto spec = nlohmann::json::parse(chart.spec);
  for (const nlohmann::json& one : spec.at("data"))
    if (one.at("name") == data) return one.value("values", nlohmann::json());
  return {};
}

std::vector<std::string> chart_names() {
  const std::string end = ".vg.json";
  std::vector<std::string> out;
  for (const reports::html::ChartFile& file : reports::html::chart_files())
    if (const std::size_t at = file.name.rfind(end); at != file.name.npos) out.emplace_back(file.name.substr(0, at));
  return out;
}

reports::html::Chart chart_of_its_sample(const std::string& name) {
  nlohmann::json data = nlohmann::json::object(), signals = data;
  for (const reports::html::ChartFile& file : reports::html::chart_files()) {
    if (file.name != name + ".vg.json") continue;
    const auto text = nlohmann::json::parse(file.text);
    for (const nlohmann::json& one : text.at("data"))
      if (one.contains("values")) data[one.at("name").get<std::string>()] = one.at("values");
    for (const nlohmann::json& one : text.at("signals"))
      if (one.contains("value")) signals[one.at("name").get<std::string>()] = one.at("value");
  }
  reports::html::Chart chart;
  chart.title = name;
  chart.spec = reports::html::chart_spec(name, data, signals);
  return chart;
}

void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/reports/" + name;
  if (std::getenv("ORRERY_UPDATE_GOLDEN")) {
    std::ofstream out(path, std::ios::binary);
    out << actual;
    ASSERT_TRUE(out) << "cannot write " << path;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is missing; run with ORRERY_UPDATE_GOLDEN=1 to write it";
  std::ostringstream expected;
  expected << file.rdbuf();
  const std::string wanted = expected.str();
  if (actual == wanted) return;
  std::istringstream have(actual), want(wanted);
  std::string a, b;
  int line = 1;
  while (true) {
    const bool more = static_cast<bool>(std::getline(have, a)), other = static_cast<bool>(std::getline(want, b));
    if (!more || !other || a != b) break;
    ++line;
  }
  ADD_FAILURE() << name << ":" << line << " is\n  " << a << "\nand should be\n  " << b
                << "\nIf the change is meant, run with ORRERY_UPDATE_GOLDEN=1 and look at the diff.";
}

}  // namespace orrery::sample
