// Compares a split run with its serial program.
#include "apps/verbs/train/verify_serial.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "apps/files.h"
#include "apps/verbs/runs.h"
#include "clusters/read.h"
#include "exec/files/safetensors.h"
#include "plan/lower/serial.h"

namespace orrery::apps {
namespace fs = std::filesystem;

namespace {

constexpr double kFull = 1e-5, kHalf = 2e-2;  // 16-bit values have 8 or 11 bits

SerialBounds bounds_of_sums(const plan::PlanSpec& spec) {
  // Operands of 11 bits, some rounded the other way: by the 20th step gradients differ by some 2e-2.
  const bool quantised = plan::traits_of(spec.states.optimizer).moments_in != models::DType::fp32;
  if (spec.numerics.precision == models::DType::tf32 && !quantised) return {1e-3, 5e-2};
  if (spec.numerics.precision != models::DType::fp32 || quantised) return {kHalf, kHalf};
  if (!spec.compresses()) return {kFull, kFull};
  switch (spec.compression.gradients) {
    case plan::GradientCompression::bf16: return {kFull, 1.0 / 512};
    case plan::GradientCompression::fp16: return {kFull, 1.0 / 4096};
    case plan::GradientCompression::powersgd: return {kFull, 1e-3};
    case plan::GradientCompression::none: break;
  }
  return {kFull, kFull};
}

}  // namespace

SerialBounds serial_bounds(const plan::PlanSpec& spec) {
  SerialBounds bounds = bounds_of_sums(spec);
  if (!spec.tokens.encoded()) return bounds;
  if (spec.mesh.expert_ways() > 1) bounds.gradient = std::max(bounds.gradient, kHalf);
  return {std::max(bounds.loss, kHalf), bounds.gradient, 1.0};
}

std::string rounded_only_split(const plan::PlanSpec& spec) {
  std::string out;
  const auto add = [&](const char* field, plan::PooledType type) {
    if (type == plan::PooledType::fp32) return;
    out += fmt::format("{}embedding.{}: {}", out.empty() ? "" : ", ", field, plan::name_of(type));
  };
  add("forward", spec.embedding.forward);
  add("backward", spec.embedding.backward);
  return out;
}

namespace {

/// |a - b| / |b| over all tensors of two files.
base::Result<double> distance(const fs::path& split, const fs::path& serial) {
  const auto a = exec::SafetensorsFile::open(split), b = exec::SafetensorsFile::open(serial);
  if (!a) return base::fail(a.error());
  if (!b) return base::fail(b.error());
  double difference = 0, norm = 0;
  for (const exec::TensorEntry& tensor : b->header().tensors) {
    const exec::TensorEntry* other = a->header().find(tensor.name);
    if (!other || other->shape != tensor.shape)
      return base::fail("E0211",
                        fmt::format("{}: no gradient {} with the serial run's shape", split.string(), tensor.name), "");
    std::vector<float> mine(static_cast<std::size_t>(tensor.elements())), theirs(mine.size());
    a->read(*other, 0, mine);
    b->read(tensor, 0, theirs);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const double x = static_cast<double>(mine[i]), y = static_cast<double>(theirs[i]);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return std::sqrt(difference / norm);
}

base::Result<std::vector<Metric>> metrics_of(const fs::path& run) {
  const fs::path file = run / "metrics.jsonl";
  const auto text = read_file(file, kMostMeasured);
  if (!text) return base::fail(text.error());
  return parse_metrics(*text, file.string());
}

/// The loads of a run's experts, step by step; empty where a line has none.
base::Result<std::vector<std::vector<reports::ExpertLoad>>> loads_of(const fs::path& run) {
  const fs::path file = run / "metrics.jsonl";
  const auto text = read_file(file, kMostMeasured);
  if (!text) return base::fail(text.error());
  std::vector<std::vector<reports::ExpertLoad>> out;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size());
    auto line = parse_metrics(text->substr(at, end - at), file.string());  // a text's last line keeps its loads
    at = end + 1;
    if (!line) return base::fail(line.error());
    if (!line->empty()) out.push_back(std::move(line->back().expert_loads));
  }
  return out;
}

}  // namespace

std::optional<plan::PlanFile> serial_in_another_order(const LoadedPlan& loaded) {
  const models::DType precision = loaded.file.spec.numerics.precision;
  auto device = clusters::resized(loaded.file.cluster, 1);
  if (!device || loaded.file.model.recommender || precision == models::DType::fp8 || precision == models::DType::fp4)
    return std::nullopt;
  const auto program = plan::serial_program(loaded.plan, std::move(*device));
  if (!program || program->own) return std::nullopt;
  plan::PlanFile file = loaded.file;
  file.cluster = program->plan.cluster();
  file.spec = program->plan.spec();
  file.job.bounds = {};
  const std::int64_t given = file.spec.shape.micro_batch;
  // The next smaller one that divides it, which needs no more memory; of 1 the next larger one that divides the batch.
  std::int64_t other = given > 1 ? given - 1 : 2;
  while (given > 1 ? given % other != 0 : other <= file.spec.shape.batch && file.spec.shape.batch % other != 0)
    other += given > 1 ? -1 : 1;
  file.spec.shape.micro_batch = static_cast<decltype(file.spec.shape.micro_batch)>(other);
  const auto made = plan::make_plan(std::make_shared<const models::Model>(file.model),
                                    std::make_shared<const clusters::Cluster>(file.cluster), file.spec);
  return made ? std::optional(std::move(file)) : std::nullopt;
}

base::Result<reports::SerialComparison> compare_with_serial(const fs::path& split, const fs::path& serial,
                                                            std::int64_t steps, const SerialBounds& bounds) {
  const auto mine = metrics_of(split), theirs = metrics_of(serial);
  if (!mine) return base::fail(mine.error());
  if (!theirs) return base::fail(theirs.error());
  reports::SerialComparison out;
  out.run = serial.string();
  out.steps = steps;
  out.bound = bounds.loss;
  out.gradient_bound = bounds.gradient;
  for (std::size_t i = 0; i < std::min(mine->size(), theirs->size()); ++i)
    out.loss = std::max(out.loss, std::abs((*mine)[i].loss - (*theirs)[i].loss) / std::abs((*theirs)[i].loss));
  const auto gradients = [&](std::int64_t step) {
    const fs::path name = fs::path("gradients") / fmt::format("step-{:06}.safetensors", step);
    return distance(split / name, serial / name);
  };
  const auto first = gradients(1), last = gradients(steps);
  if (!first) return base::fail(first.error());
  if (!last) return base::fail(last.error());
  out.gradient_first = *first;
  out.gradient_last = *last;
  // Not "above the bound": NaN compares as not equal.
  out.equal = mine->size() == theirs->size() && out.loss <= bounds.loss && *first <= bounds.gradient &&
              *last <= bounds.last.value_or(bounds.gradient);
  if (out.equal) return out;
  const auto chosen = loads_of(split), serially = loads_of(serial);
  if (!chosen) return base::fail(chosen.error());
  if (!serially) return base::fail(serially.error());
  out.other_choices = reports::first_other_choice(*chosen, *serially);
  return out;
}

}  // namespace orrery::apps
