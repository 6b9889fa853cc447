#pragma once
/// Passes over a lowered class that move buffers out of the device's arena and bring them back, as copies on streams of
/// their own. Private to plan/.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// What blocks of the model save for backward is copied to the host after its last use in forward, dies on the device
/// after the following layer (which hides the copy), and is fetched `prefetch` layers before its first use in backward.
/// If a micro-batch's backward pass follows its forward pass at once, buffers that would be fetched at its very start
/// stay, because they would leave only to come back. Needs births, deaths and the program.
void offload_activations(RankClass& rank_class, int prefetch);

/// Optimizer states, summed gradients and parameters move to the memories that `offload` names. Every step that uses
/// them gets a copy in the memory that it runs in:
///  - the optimizer's operators on states and gradients run on the host's cores (ZeRO-Offload, Ren et al. 2021);
///  - a layer's gradients are made in a device buffer of their own and added on the host as soon as the layer has run
///    (its section 4.1); ZeRO 2 and 3 add the reduced gradients. Sums that ZeRO 0 and 1 reduce at the end of the step
///    come back to the device for that;
///  - parameters arrive `prefetch` layers before a layer's pass, or before they are gathered, and leave once it has
///    run (ZeRO-Infinity, Rajbhandari et al. 2021, section 5.1);
///  - what is on NVMe passes through buffers of the host, one bucket before its use.
/// Needs births and deaths.
void offload_states(RankClass& rank_class, const Offload& offload);

}  // namespace orrery::plan
