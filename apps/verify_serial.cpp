// The serial counterpart of a plan, and two runs compared.
#include "apps/verify_serial.h"

#include <fmt/core.h>

#include <cmath>

#include "apps/files.h"
#include "apps/runs.h"
#include "clusters/read.h"
#include "exec/safetensors.h"

namespace orrery::apps {
namespace fs = std::filesystem;

base::Result<plan::PlanFile> serial_of(const plan::PlanFile& file) {
  if (file.spec.has_server())
    return base::fail(
        "E0210",
        "a parameter server applies each worker's gradient by itself: a serial run's updates are of their "
        "mean",
        "compare a plan without `staleness`");
  if (file.spec.asynchronous())
    return base::fail("E0210",
                      "an asynchronous pipeline trains on older weights than a serial run: they cannot be equal",
                      "compare a synchronous schedule");
  if (file.spec.compresses())
    return base::fail(
        "E0210", "compressed gradients are what no single rank has: its training and a serial run's cannot be equal",
        "compression: {gradients: none}");
  auto cluster = clusters::resized(file.cluster, 1);
  if (!cluster) return base::fail(cluster.error());
  plan::PlanFile out = file;
  out.cluster = std::move(*cluster);
  out.spec = {};
  out.spec.micro_batch = file.spec.micro_batch;
  out.spec.vocab_multiple = file.spec.vocab_multiple;
  out.spec.batch = file.spec.batch;
  out.spec.sequence = file.spec.sequence;
  out.spec.precision = file.spec.precision;
  out.spec.flash = file.spec.flash;
  out.spec.optimizer = file.spec.optimizer;
  out.spec.momentum = file.spec.momentum;
  out.spec.rounding = file.spec.rounding;
  out.spec.compression.activations = file.spec.compression.activations;
  out.job.bounds = {};
  return out;
}

double serial_bound(const plan::PlanSpec& spec) {
  constexpr double kFull = 1e-5, kHalf = 2e-2;  // 16-bit values have 8 or 11 bits
  const bool full = spec.precision == models::DType::fp32 && spec.optimizer != plan::OptimizerKind::adamw_8bit;
  return full ? kFull : kHalf;
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
                        fmt::format("{}: no gradient {} of the serial run's shape", split.string(), tensor.name), "");
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
  const auto text = read_file(file);
  if (!text) return base::fail(text.error());
  return parse_metrics(*text, file.string());
}

}  // namespace

base::Result<reports::SerialComparison> compare_with_serial(const fs::path& split, const fs::path& serial,
                                                            std::int64_t steps, double bound) {
  const auto mine = metrics_of(split), theirs = metrics_of(serial);
  if (!mine) return base::fail(mine.error());
  if (!theirs) return base::fail(theirs.error());
  reports::SerialComparison out;
  out.run = serial.string();
  out.steps = steps;
  out.bound = bound;
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
  // Not "above the bound": what is no number is not equal.
  out.equal = mine->size() == theirs->size() && out.loss <= bound && *first <= bound && *last <= bound;
  return out;
}

}  // namespace orrery::apps
