#pragma once
/// A row's words as plan::Software: how its software was set up.
#include <string>
#include <vector>

#include "cost/parameters/stack.h"
#include "plan/spec/plan.h"
#include "plan/spec/software.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// How the software of a row was set up, by its words and what they mean there: nothing else of a row reaches the
/// numbers of its stack (cost/parameters/as_run.h). `stack`: the one that prices it; `stands_in`: it is only like the
/// row's software; `spec`: the row's plan. What is assumed is noted.
[[nodiscard]] plan::Software software_said(const Setup& setup, const cost::Stack& stack, const plan::PlanSpec& spec,
                                           bool stands_in, std::vector<std::string>& notes);

}  // namespace orrery::sim
