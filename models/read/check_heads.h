#pragma once
/// What has to hold of heads that differ from layer to layer, of where their keys and values are from, and of inputs
/// that layers have of their own.
#include "models/layers/mixers.h"
#include "models/model.h"

namespace orrery::models {

void check_heads(const Needs& needs, const Model& m);

}  // namespace orrery::models
