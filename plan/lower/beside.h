#pragma once
/// Two passes beside each other: a pass over a lowered class. Private to plan/.
#include <cstddef>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Divides the blocks of passes that stand beside one of the other direction (Move::beside), and their variants, before
/// each step that waits for a message of a layer, and lets the parts of both passes of a pair take turns. Each message
/// then stands before a part of the other pass, which computes while it travels, by the rules that hold anyway. An
/// entry stays one block of one micro-batch. `pairs`: entries of the program; each is a forward pass, and the next
/// entry its partner.
void run_beside(RankClass& rank_class, const std::vector<std::size_t>& pairs);

}  // namespace orrery::plan
