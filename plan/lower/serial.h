#pragma once
/// The serial program of a plan: one rank, the whole model, no messages, and the plan's own mathematics, so that a
/// split run can be held to it (`orrery train --verify-serial`). It leaves out what does not change a training step's
/// mathematics: tensor, context and pipeline parallelism, ZeRO, recomputation, offload, overlap. It keeps what does:
///  - Asynchronous pipelines (plan/schedule/asynchronous.h): layers read weights as old as those of their stage, from
///    rings of versions, and the layers of a stage clip by the norm of their own gradients.
///  - Gradients in fewer bits (plan/lower/compress.h): replicas take turns. Each one's gradients are made apart, then
///    rounded or multiplied by Q; sums are taken in the replicas' order. Replicas of a node that sum before they
///    exchange take one turn together. With ZeRO 2 and 3 they take turns in every micro-batch. If the two gradients
///    of a tied table travel apart, they are apart here too.
///  - A parameter server (plan/lower/parameter_server.h): workers take turns with weights of one version, each clips
///    by its own norm, and the optimizer makes a step for each worker's gradient.
/// No pass runs ahead: all passes of a training step belong to it.
#include "base/result.h"
#include "plan/lower/lower.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

struct SerialProgram {
  Plan plan;          ///< of one rank
  Schedule schedule;  ///< lower(plan), unless `own`
  bool own = false;   ///< the mathematics is not that of a serial step, so the schedule is not lower(plan)
};

/// P94 if a plan's mathematics depends on the split: PowerSGD on parts of a matrix, compressed gradients on ranks that
/// each have part of a sequence, and fp8 products of parts of matrices. Also of compressed gradients with a balancing
/// loss, which needs all replicas' tokens before any replica's gradients. `one`: a cluster with a single one of the
/// plan's devices (clusters::resized).
[[nodiscard]] base::Result<SerialProgram> serial_program(const Plan& split, clusters::Cluster one,
                                                         const LowerOptions& options = {});

}  // namespace orrery::plan
