// What one pre-allocated arena saves (ZeRO, Rajbhandari et al. 2020, section 6.3: memory defragmentation): the births
// and deaths of a training step, where checkpoints that wait for backward lie between buffers that live for a moment,
// through the placement that lowering makes and through a model of PyTorch's caching allocator.
#include <fmt/core.h>

#include "plan/lower/lower.h"
#include "tests/plan/fragmentation.h"
#include "tests/plan/samples.h"

namespace {

using namespace orrery;

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

constexpr Case kCases[] = {
    {"nothing recomputed", [](plan::PlanSpec&) {}},
    {"every block recomputed", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
    {"12 of 24 blocks recomputed",
     [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full, s.recomputation.layers = 12; }},
    {"unfused attention, recomputed alone",
     [](plan::PlanSpec& s) { s.numerics.flash = false, s.recomputation.what = plan::Recompute::selective; }},
    {"ZeRO 2 over 4", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 2; }},
    {"ZeRO 3 over 4", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
    {"ZeRO 3 over 4, every block recomputed",
     [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3, s.recomputation.what = plan::Recompute::full; }},
    {"4 stages, 1F1B, every block recomputed",
     [](plan::PlanSpec& s) { s.mesh.pipeline = 4, s.recomputation.what = plan::Recompute::full; }},
    {"4 stages of 2 chunks, interleaved", [](plan::PlanSpec& s) { s.mesh.pipeline = 4, s.stages.virtual_stages = 2; }},
    {"activations on the host", [](plan::PlanSpec& s) { s.offload.activations = plan::Space::host; }},
    {"optimizer on the host", [](plan::PlanSpec& s) { s.offload.optimizer = plan::Space::host; }},
};

}  // namespace

int main() {
  fmt::print("| plan | alive at once | arena | over it | caching allocator | over it |\n|---|---|---|---|---|---|\n");
  for (const Case& one : kCases) {
    models::Model model = samples::tiny_gpt(24, 1024, 50304);
    model.heads = model.kv_heads = 16;
    model.head_dim = 64;
    model.max_sequence = 1024;
    plan::PlanSpec spec;
    spec.shape.sequence = 1024;
    spec.shape.micro_batch = 2;
    spec.shape.batch = 64;
    spec.numerics.precision = models::DType::bf16;
    one.set(spec);
    const plan::Schedule schedule = plan::lower(samples::make(spec, model));
    const testing::Fragmentation f = testing::fragmentation_of(schedule.classes.front());
    constexpr double kMiB = 1024.0 * 1024;
    const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / kMiB; };
    const auto over = [&](std::int64_t bytes) { return 100 * (mib(bytes) / mib(f.live) - 1); };
    fmt::print("| {} | {:.0f} MiB | {:.0f} MiB | {:.1f} % | {:.0f} MiB | {:.1f} % |\n", one.name, mib(f.live),
               mib(f.arena), over(f.arena), mib(f.reserved), over(f.reserved));
  }
}
