#pragma once
/// What lives outside the device's memory: passes over a lowered class that move its buffers out of the device's arena
/// and bring them back, as copies on streams of their own. Private to plan/.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// What blocks of the model save for their backward passes is copied to the host after its last use in forward, dies on
/// the device behind the layer after that (so that the copy hides behind it), and is fetched `prefetch` layers ahead of
/// its first use in backward. Where the backward pass of a micro-batch follows its forward pass at once, what would be
/// fetched at the very start stays: it would leave only to come back. Needs births, deaths and the program.
void offload_activations(RankClass& rank_class, int prefetch);

/// Optimizer states, summed gradients and parameters go to the memories that `offload` names, and every step that
/// reaches for them is given a copy in its own memory:
///  - the optimizer's operators over states and gradients run on the host's cores (ZeRO-Offload, Ren et al. 2021);
///  - a layer's gradients are made in a buffer of their own on the device and added on the host as soon as the layer
///  has
///    run (its section 4.1); with ZeRO 2 and 3 what is reduced is. Sums that ZeRO 0 and 1 reduce at the end of the step
///    come back for it;
///  - parameters come `prefetch` layers ahead of a layer's pass, or of their gathering, and go when it has run
///    (ZeRO-Infinity, Rajbhandari et al. 2021, section 5.1);
///  - what lies on NVMe passes through buffers of the host, one bucket ahead of its use.
/// Needs births and deaths.
void offload_states(RankClass& rank_class, const Offload& offload);

}  // namespace orrery::plan
