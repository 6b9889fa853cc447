#pragma once
/// What a framework keeps beside a schedule's buffers, where its stack states it (cost/parameters/memory_recipe.h).
#include "cost/estimate/estimate.h"
#include "cost/parameters/memory_recipe.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Elements of a stage's parameters: all of them, those that this rank optimizes, and the largest matrix outside the
/// blocks.
struct Elements {
  double all = 0, optimized = 0, largest = 0;
};

/// Whether a figure of this kind counts what is not the run's own tensors: context, communicators.
[[nodiscard]] bool counts_software(MemoryKind kind);

/// Adds the framework's memory besides weights, optimizer states and activations, as `kind` counts it; bytes.
/// `in_flight`: micro-batches whose activations are kept.
void add_framework(StageMemory& m, const Elements& elements, const plan::PlanSpec& spec, const MemoryRecipe& recipe,
                   MemoryKind kind, double in_flight);

}  // namespace orrery::cost
