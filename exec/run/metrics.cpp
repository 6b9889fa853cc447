// Lines of metrics.jsonl.
#include "exec/run/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/ensure.h"
#include "base/json.h"
#include "exec/engine/allocation_hook.h"
#include "exec/failure.h"
#include "exec/files/file_system.h"
#include "exec/files/files.h"
#include "exec/run/trainer.h"
#include "models/recommender.h"
#include "plan/schedule/asynchronous.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 30;

/// JSON has no NaN, so null stands for it.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

template <class Of>
std::string by_rank(const std::vector<RankMetrics>& ranks, Of of) {
  std::vector<std::int64_t> values;
  for (const RankMetrics& rank : ranks) values.push_back(of(rank));
  return fmt::format("[{}]", fmt::join(values, ","));
}

/// What a resumed run reads from a line.
struct ReadLine {
  std::int64_t step = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double seconds = 0, memory_peak = 0;
};

/// Nothing if the line is not a step's.
std::optional<ReadLine> read_line(std::string_view line, const std::string& file) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  base::JsonReader reader(line, file);
  ReadLine out;
  bool has_step = false;
  const auto number = [&](double& into, const char* none) {  // null if not finite
    if (line.find(none) != std::string_view::npos)
      reader.skip();
    else
      into = reader.number(-kHuge, kHuge);
  };
  reader.open_object();
  for (std::string key; reader.key(key);) {
    if (key == "step") {
      out.step = reader.integer(1, std::numeric_limits<std::int64_t>::max());
      has_step = true;
    } else if (key == "loss") {
      number(out.loss, "\"loss\":null");
    } else if (key == "step_time_s") {
      number(out.seconds, "\"step_time_s\":null");
    } else if (key == "memory_peak_bytes") {
      out.memory_peak = reader.number(0, kHuge);
    } else {
      reader.skip();
    }
  }
  reader.finish();
  if (reader.failed() || !has_step) return std::nullopt;
  return out;
}

/// Passes each line that is not empty, and whether it has a line end.
void for_lines(std::string_view text, const std::function<void(std::string_view, bool)>& body) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) body(text.substr(begin, end - begin), end < text.size());
    begin = end + 1;
  }
}

}  // namespace

MemoryNow memory_now(const Arena* arena) {
  MemoryNow now;
  const HeapUse heap = heap_use();
  const Resident pages = resident();
  if (arena) {
    now.arena_peak = arena->use().peak_extent;
    now.arena_live_peak = arena->use().peak_live;
    now.host_peak = arena->use(plan::Space::host).peak_extent;
    now.host_live_peak = arena->use(plan::Space::host).peak_live;
    now.nvme_peak = arena->use(plan::Space::nvme).peak_extent;
    now.nvme_live_peak = arena->use(plan::Space::nvme).peak_live;
  }
  now.heap = heap.current;
  now.heap_peak = heap.peak;
  now.resident = pages.now;
  now.resident_peak = pages.peak;
  return now;
}

std::string pack_metrics(const RankMetrics& metrics) {
  static_assert(std::is_trivially_copyable_v<RankMetrics>);
  return {reinterpret_cast<const char*>(&metrics), sizeof metrics};
}

RankMetrics unpack_metrics(const std::string& bytes) {
  RankMetrics metrics;
  ENSURE(bytes.size() == sizeof metrics, "metrics of {} bytes", bytes.size());
  std::memcpy(&metrics, bytes.data(), sizeof metrics);
  return metrics;
}

void add_lossless(Executor::Lossless& all, const Executor::Lossless& more) {
  all.tensors += more.tensors;
  all.again += more.again;
  all.densest = std::max(all.densest, more.densest);
}

namespace {

// Each layer's loads, by its number; with many experts, only the fullest one over the mean.
std::string loads_json(const ExpertLoads& loads) {
  constexpr std::size_t kMostLogged = 4096;
  std::vector<std::string> layers;
  for (const auto& [layer, load] : loads) {
    const float most = load.empty() ? 0 : *std::max_element(load.begin(), load.end());
    const double sum = std::accumulate(load.begin(), load.end(), 0.0);
    std::string text = fmt::format("\"{}\":{{\"fullest\":{:.4g}", layer,
                                   sum > 0 ? static_cast<double>(most) * static_cast<double>(load.size()) / sum : 0.0);
    if (load.size() * loads.size() <= kMostLogged) text += fmt::format(",\"tokens\":[{}]", fmt::join(load, ","));
    layers.push_back(text + "}");
  }
  return fmt::format("{{{}}}", fmt::join(layers, ","));
}

// Each table's, by its name.
std::string caches_json(const CacheUses& caches) {
  std::vector<std::string> tables;
  for (const auto& [table, use] : caches)
    tables.push_back(fmt::format(
        "\"{}\":{{\"lookups\":{},\"hits\":{},\"hit_rate\":{:.6g},\"fetched_bytes\":{},\"written_bytes\":{}}}",
        models::table_name(table), use.lookups, use.hits,
        use.lookups > 0 ? static_cast<double>(use.hits) / static_cast<double>(use.lookups) : 0.0, use.fetched_bytes,
        use.written_bytes));
  return fmt::format("{{{}}}", fmt::join(tables, ","));
}

std::string pack_loads(const Executor::ExpertUse& use) {
  std::string out;
  for (const auto& [layer, load] : use.loads) {
    const std::int64_t head[2] = {layer.written(), static_cast<std::int64_t>(load.size())};
    out.append(reinterpret_cast<const char*>(head), sizeof head);
    out.append(reinterpret_cast<const char*>(load.data()), load.size() * sizeof(float));
  }
  return out;
}

void unpack_loads(const std::string& text, ExpertLoads& loads) {
  for (std::size_t at = 0; at < text.size();) {
    std::int64_t head[2];
    std::memcpy(head, text.data() + at, sizeof head);
    at += sizeof head;
    std::vector<float>& load = loads[plan::LayerId(head[0])];
    load.resize(static_cast<std::size_t>(head[1]));
    std::memcpy(load.data(), text.data() + at, load.size() * sizeof(float));
    at += load.size() * sizeof(float);
  }
}

}  // namespace

// Ranks of a stage have the same loads, so the first of them sends them.
ExpertLoads gather_loads(Transport& transport, const plan::Plan& plan, const Executor::ExpertUse& mine) {
  const bool speaks = transport.rank() % plan.spec().mesh.ranks_per_stage() == 0;
  ExpertLoads loads;
  for (const std::string& text : transport.gather_text(speaks ? pack_loads(mine) : std::string()))
    unpack_loads(text, loads);
  return loads;
}

void RankMetrics::take(const StepResult& step) {
  loss = step.loss;
  gradient_norm = step.gradient_norm;
  seconds = step.seconds;
  lossless = step.lossless;
  aux_loss = step.experts.aux_loss;
  z_loss = step.experts.z_loss;
}

std::vector<CacheUses> gather_caches(Transport& transport, const std::vector<StepResult>& mine) {
  struct Packed {
    std::int64_t step = 0, table = 0;
    Executor::CacheUse use;
  };
  std::string packed;
  for (std::size_t i = 0; i < mine.size(); ++i)
    for (const auto& [table, use] : mine[i].caches) {
      const Packed one{static_cast<std::int64_t>(i), table, use};
      packed.append(reinterpret_cast<const char*>(&one), sizeof one);
    }
  std::vector<CacheUses> out(mine.size());
  for (const std::string& text : transport.gather_text(packed))
    for (std::size_t at = 0; at < text.size(); at += sizeof(Packed)) {
      Packed one;
      std::memcpy(&one, text.data() + at, sizeof one);
      Executor::CacheUse& all = out.at(static_cast<std::size_t>(one.step))[static_cast<int>(one.table)];
      all.lookups += one.use.lookups;
      all.hits += one.use.hits;
      all.fetched_bytes += one.use.fetched_bytes;
      all.written_bytes += one.use.written_bytes;
    }
  return out;
}

StepMetrics join_metrics(const std::vector<RankMetrics>& ranks, const plan::Plan& plan) {
  StepMetrics step;
  step.loss = step.gradient_norm = std::numeric_limits<double>::quiet_NaN();
  for (const RankMetrics& rank : ranks) {
    if (std::isnan(step.loss)) step.loss = rank.loss;
    if (std::isnan(step.gradient_norm) || (plan.spec().states.has_server() && rank.gradient_norm > step.gradient_norm))
      step.gradient_norm = rank.gradient_norm;  // a parameter server's workers have one each: the largest
    step.seconds = std::max(step.seconds, rank.seconds);
    step.checkpoint_pause = std::max(step.checkpoint_pause, rank.checkpoint_pause);
    step.memory_peak = std::max(step.memory_peak, static_cast<double>(rank.memory.arena_peak));
    step.host_peak = std::max(step.host_peak, static_cast<double>(rank.memory.host_peak));
    step.nvme_peak = std::max(step.nvme_peak, static_cast<double>(rank.memory.nvme_peak));
    add_lossless(step.lossless, rank.lossless);
    if (std::isnan(step.aux_loss)) step.aux_loss = rank.aux_loss, step.z_loss = rank.z_loss;
  }
  if (plan.spec().stages.asynchronous()) {
    double squares = 0;
    for (const plan::StageId stage : plan::stages_with_norms(plan))
      squares += std::pow(ranks[static_cast<std::size_t>(plan.rank(stage, 0, 0))].gradient_norm, 2);
    step.gradient_norm = std::sqrt(squares);
  }
  return step;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t keep) : name_(path.string()) {
  std::string kept, odd;
  if (keep > 0 && std::filesystem::exists(path)) {
    const std::string text = read_file(path, kMostText);
    for_lines(text, [&](std::string_view line, bool whole) {
      const std::optional<ReadLine> read = read_line(line, name_);
      if (!read) {
        if (!whole) return;  // it was cut short while being written
        ++damaged_;
        odd += std::string(line) + "\n";
        return;
      }
      if (read->step > keep) return;
      kept += line;
      kept += '\n';
      if (read->step == 1) kept_.first_loss = read->loss;
      kept_.last_loss = read->loss;
      kept_.memory_peak = read->memory_peak;
      kept_.seconds.push_back(read->seconds);
    });
    if (!odd.empty()) write_atomically(name_ + ".damaged", odd);
  }
  write_atomically(path, kept);
  file_ = file_system().open(path, O_WRONLY | O_APPEND);
  if (file_ < 0) throw Failure(fmt::format("cannot write {}: {}", name_, std::strerror(errno)));
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) file_system().close(file_);
}

void MetricsFile::sync() const {
  sync_file(file_, name_);
}

std::int64_t steps_told(const std::filesystem::path& metrics) {
  std::error_code error;
  if (std::filesystem::symlink_status(metrics, error).type() == std::filesystem::file_type::not_found) return 0;
  std::int64_t lines = 0, steps = 0;
  for_lines(read_file(metrics, kMostText), [&](std::string_view line, bool) {
    const auto read = read_line(line, metrics.string());
    ++lines;
    if (read) steps = std::max(steps, read->step);
  });
  return std::max(lines, steps);  // counts lines that cannot be read too
}

void MetricsFile::append(const StepMetrics& step, const std::vector<RankMetrics>& ranks) {
  std::string line = fmt::format(
      "{{\"step\":{},\"loss\":{},\"gradient_norm\":{},\"learning_rate\":{},\"step_time_s\":{},\"tokens_per_s\":{},"
      "\"memory_peak_bytes\":{:.0f}",
      step.step, number(step.loss), number(step.gradient_norm), number(step.learning_rate), number(step.seconds),
      number(step.tokens_per_s), step.memory_peak);
  if (step.host_peak > 0) {
    line += fmt::format(",\"host_peak_bytes\":{:.0f}", step.host_peak);
    line += ",\"host_peak_bytes_by_rank\":" + by_rank(ranks, [](const RankMetrics& r) { return r.memory.host_peak; });
    line += ",\"host_live_peak_bytes_by_rank\":" +
            by_rank(ranks, [](const RankMetrics& r) { return r.memory.host_live_peak; });
  }
  if (step.nvme_peak > 0) {
    line += fmt::format(",\"nvme_peak_bytes\":{:.0f}", step.nvme_peak);
    line += ",\"nvme_peak_bytes_by_rank\":" + by_rank(ranks, [](const RankMetrics& r) { return r.memory.nvme_peak; });
    line += ",\"nvme_live_peak_bytes_by_rank\":" +
            by_rank(ranks, [](const RankMetrics& r) { return r.memory.nvme_live_peak; });
  }
  if (step.loss_scale > 0) line += fmt::format(",\"loss_scale\":{},\"skipped\":{}", step.loss_scale, step.skipped);
  if (step.lossless.tensors > 0)
    line += fmt::format(",\"lossless_tensors\":{},\"lossless_computed_again\":{},\"lossless_densest\":{:.6g}",
                        step.lossless.tensors, step.lossless.again, step.lossless.densest);
  if (!step.spikes.empty()) line += fmt::format(",\"spikes\":[\"{}\"]", fmt::join(step.spikes, "\",\""));
  if (!std::isnan(step.aux_loss))
    line += ",\"aux_loss\":" + number(step.aux_loss) + ",\"z_loss\":" + number(step.z_loss);
  if (!step.expert_loads.empty()) line += ",\"expert_load\":" + loads_json(step.expert_loads);
  if (!step.caches.empty()) line += ",\"table_cache\":" + caches_json(step.caches);
  if (step.checkpoint_pause > 0) line += ",\"checkpoint_pause_s\":" + number(step.checkpoint_pause);
  if (step.bad_lines) line += fmt::format(",\"bad_lines\":{}", *step.bad_lines);
  if (step.held_out_auc) line += ",\"held_out_auc\":" + number(*step.held_out_auc);
  if (step.held_out_loss) line += ",\"held_out_loss\":" + number(*step.held_out_loss);
  std::vector<std::string> waited;
  for (const RankMetrics& rank : ranks) waited.push_back(number(rank.waited_s));
  line += fmt::format(",\"waited_s_by_rank\":[{}]", fmt::join(waited, ","));
  line += ",\"arena_peak_bytes_by_rank\":" + by_rank(ranks, [](const RankMetrics& r) { return r.memory.arena_peak; });
  line += ",\"arena_live_peak_bytes_by_rank\":" +
          by_rank(ranks, [](const RankMetrics& r) { return r.memory.arena_live_peak; });
  line += ",\"outside_arena_bytes_by_rank\":" + by_rank(ranks, [](const RankMetrics& r) { return r.memory.heap; });
  line += ",\"outside_arena_peak_bytes_by_rank\":" +
          by_rank(ranks, [](const RankMetrics& r) { return r.memory.heap_peak; });
  line +=
      ",\"kernel_workspace_bytes_by_rank\":" + by_rank(ranks, [](const RankMetrics& r) { return r.memory.scratch; });
  line += ",\"resident_bytes_by_rank\":" + by_rank(ranks, [](const RankMetrics& r) { return r.memory.resident; });
  line += ",\"resident_growth_bytes_by_rank\":" +
          by_rank(ranks, [](const RankMetrics& r) { return r.memory.resident_peak - r.resident_before; });
  line += "}\n";
  exec::append(file_, name_, line);
}

}  // namespace orrery::exec
