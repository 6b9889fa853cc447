#pragma once
/// Asynchronous data parallelism with a parameter server and bounded staleness, repeatable: which version of the
/// weights a worker reads, and in which order the server applies gradients, is written in the schedule.
///
/// W = `data` workers compute, in training step t, gradients g_w of their own parts of the batch (means over their own
/// tokens). The server is sharded over the workers themselves: every rank holds 1/W of the weights and of the
/// optimizer's states, in the shards of ZeRO 1. Dedicated server ranks would idle while gradients are computed. The
/// server applies the workers' gradients one by one, in the order of the workers: update u = t W + w applies worker w's
/// gradient of step t, and is a step of the optimizer,
///   theta^(u+1) = theta^(u) - update of g_w(theta^(max(0, t - s) W)),  s = staleness
/// which is stale synchronous parallelism (Ho et al. 2013, NIPS, section 3: a worker at clock t sees all updates of
/// clocks up to t - s - 1) at its bound. With s = 0 a worker reads the weights after all updates of the step before. A
/// gradient is s W + w updates old when it is applied, at most (s + 1) W - 1. Servers of real clusters (Dean et al.
/// 2012, DistBelief; Li et al. 2014) apply gradients as they arrive, so their runs do not repeat. Each worker clips its
/// own gradient by its own norm.
///
/// With s > 0 a worker is s steps ahead of the server. In step t, in this order: gradients of step t, made s steps ago,
/// are pushed (an all-to-all: shard j to rank j) while the forward pass of step t + s runs; the server updates; its
/// shards are pulled (an all-gather) while the backward passes of step t + s run. A worker keeps s + 1 versions of the
/// weights (s of them in the ring `Bucket::stashed`, see plan/schedule/asynchronous.h) and s of gradients.
#include "plan/lower/lower_finish.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Private to plan/: block "push" (norm and clipping; gradients are sent) and block "finish" (updates, pull, loss).
void lower_served(const StepEnd& end);
/// Private to plan/: with a staleness, reads from the ring of losses the loss of the step whose gradients are pushed,
/// before the forward pass that overwrites it there.
void report_pushed_loss(ClassBuilder& build, const PlanSpec& spec);
/// Private to plan/: completes a class that was lowered with these blocks: the versions of the weights, which pass
/// reads which version, and the program.
void serve(const Plan& plan, RankClass& rank_class);

}  // namespace orrery::plan
