#pragma once
/// The serial program of a plan: one rank, the whole model, no message, and the plan's own mathematics, so that what a
/// split run computes can be held to it (`orrery train --verify-serial`). What leaves a training step's mathematics as
/// it is, is not in it: tensor, context and pipeline parallelism, ZeRO, recomputation, offload, overlap. What changes
/// it, is:
///  - Asynchronous pipelines (plan/schedule/asynchronous.h): layers read weights as old as those of their stage, from
///  rings of
///    versions, and what was a stage clips by the norm of its own gradients.
///  - Gradients in fewer bits (plan/lower/compress.h): replicas take turns. The gradients of each are made by
///  themselves and
///    rounded, or multiplied by Q, one after the other; what is summed is summed in their order. Replicas of a node
///    that add up before they exchange take one turn together. With ZeRO 2 and 3 they take turns with every
///    micro-batch. A tied table whose two gradients travel apart has them apart.
///  - A parameter server (plan/lower/parameter_server.h): workers take turns with weights of one version, each clips by
///  its
///    own norm, and each one's update is a step of the optimizer's own.
/// No pass runs ahead: all of a training step's passes are its own.
#include "base/result.h"
#include "plan/lower/lower.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

struct SerialProgram {
  Plan plan;          ///< of one rank
  Schedule schedule;  ///< lower(plan), unless `own`
  bool own = false;   ///< the plan's mathematics is not a serial step's: the schedule is no lowered plan's
};

/// P94 where a plan's mathematics is that of a split: PowerSGD of a matrix's parts, gradients that are compressed on
/// ranks which have a part of a sequence each, and products in fp8 of parts of matrices.
/// `one`: a cluster of one of the plan's devices (clusters::resized).
[[nodiscard]] base::Result<SerialProgram> serial_program(const Plan& split, clusters::Cluster one,
                                                         const LowerOptions& options = {});

}  // namespace orrery::plan
