// Lines of metrics.jsonl.
#include "exec/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/ensure.h"
#include "exec/allocation_hook.h"
#include "exec/failure.h"
#include "exec/files.h"
#include "plan/asynchronous.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 30;

/// JSON has no NaN: null then.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

template <class Of>
std::string by_rank(const std::vector<RankMetrics>& ranks, Of of) {
  std::vector<std::int64_t> values;
  for (const RankMetrics& rank : ranks) values.push_back(of(rank));
  return fmt::format("[{}]", fmt::join(values, ","));
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

StepMetrics join_metrics(const std::vector<RankMetrics>& ranks, const plan::Plan& plan) {
  StepMetrics step;
  step.loss = step.gradient_norm = std::numeric_limits<double>::quiet_NaN();
  for (const RankMetrics& rank : ranks) {
    if (std::isnan(step.loss)) step.loss = rank.loss;
    if (std::isnan(step.gradient_norm) || (plan.spec().has_server() && rank.gradient_norm > step.gradient_norm))
      step.gradient_norm = rank.gradient_norm;  // of a parameter server's workers, which each have one, the largest
    step.seconds = std::max(step.seconds, rank.seconds);
    step.memory_peak = std::max(step.memory_peak, static_cast<double>(rank.memory.arena_peak));
    step.host_peak = std::max(step.host_peak, static_cast<double>(rank.memory.host_peak));
    step.nvme_peak = std::max(step.nvme_peak, static_cast<double>(rank.memory.nvme_peak));
    add_lossless(step.lossless, rank.lossless);
  }
  if (plan.spec().asynchronous()) {
    double squares = 0;
    for (int stage = 0; stage < plan::stages_with_norms(plan); ++stage)
      squares += std::pow(ranks[static_cast<std::size_t>(plan.rank(stage, 0, 0))].gradient_norm, 2);
    step.gradient_norm = std::sqrt(squares);
  }
  return step;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t keep) : name_(path.string()) {
  std::string kept;
  if (keep > 0 && std::filesystem::exists(path)) {
    const std::string text = read_file(path, kMostText);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const auto line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                              text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
      if (line.is_object() && line.contains("step") && line["step"].is_number_integer() &&
          line["step"].get<std::int64_t>() <= keep) {
        kept += text.substr(begin, end - begin) + "\n";
        if (line["step"] == 1 && line.contains("loss") && line["loss"].is_number()) first_loss_ = line["loss"];
      }
      begin = end + 1;
    }
  }
  write_atomically(path, kept);
  file_ = ::open(name_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) throw Failure(fmt::format("cannot write {}: {}", name_, std::strerror(errno)));
}

MetricsFile::~MetricsFile() {
  ::close(file_);
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
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = ::write(file_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure(fmt::format("cannot write {}: {}", name_, std::strerror(errno)));
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace orrery::exec
