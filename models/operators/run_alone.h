#pragma once
/// Which kinds of operators not every backend runs, as their rows say (RunBy): backends make their cases of them.
#include "models/operators/op.h"

/// The kinds that CPU ranks alone run so far, as their rows say (RunBy): both backends make their cases of them.
#define ORRERY_CPU_ALONE(EACH) \
  EACH(causal_conv)            \
  EACH(causal_conv_grad)       \
  EACH(state_scan)             \
  EACH(state_scan_grad)        \
  EACH(gated_norm)             \
  EACH(gated_norm_grad)        \
  EACH(xielu)                  \
  EACH(xielu_grad)             \
  EACH(delta_rule)             \
  EACH(delta_rule_grad)        \
  EACH(output_gate)            \
  EACH(output_gate_grad)       \
  EACH(gated_conv)             \
  EACH(gated_conv_grad)        \
  EACH(decayed_attention)      \
  EACH(decayed_attention_grad) \
  EACH(selective_scan)         \
  EACH(selective_scan_grad)    \
  EACH(scale_choices)          \
  EACH(scale_choices_grad)     \
  EACH(scale_columns)

/// The kinds that are predicted, and that nothing runs: both backends refuse them.
#define ORRERY_PREDICTED_ALONE(EACH) \
  EACH(choose_tokens)                \
  EACH(choose_tokens_grad)           \
  EACH(layer_input)                  \
  EACH(mix_streams)                  \
  EACH(mix_streams_grad)             \
  EACH(add_streams)                  \
  EACH(add_streams_grad)             \
  EACH(pool_runs)                    \
  EACH(pool_runs_grad)               \
  EACH(run_attention)                \
  EACH(run_attention_grad)
