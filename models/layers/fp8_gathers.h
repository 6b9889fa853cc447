#pragma once
/// Which gathers of rows may travel in fp8. Private to models/; see expand.cpp.
#include <vector>

#include "models/layers/expand.h"
#include "models/operators/fp8.h"

namespace orrery::models {

/// Transformer Engine rounds before it gathers where only products read the result; a bias's gradient can be summed
/// before, over this rank's rows (pytorch/module/base.py, grad_output_preprocess).
inline void mark_gathers_for_fp8(LayerProgram& program) {
  std::vector<bool> rounded(program.tensors.size(), false), as_is(program.tensors.size(), false);
  for (const std::vector<Part>* parts : {&program.forward, &program.backward})
    for (const Part& part : *parts) {
      if (part.source.exists()) as_is[part.source.index()] = true;
      for (const Op& op : part.ops)
        for (const int operand : op.in) {
          if (operand < 0) continue;
          const std::size_t t = tensor_of(operand).index();
          if (is_fp8_product(op))
            rounded[t] = true;
          else if (op.kind != OpKind::bias_grad)
            as_is[t] = true;
        }
    }
  for (std::vector<Part>* parts : {&program.forward, &program.backward})
    for (Part& part : *parts) {
      if (part.collective != GroupCollective::all_gather || !part.is_communication()) continue;
      const std::size_t t = part.tensor.index();
      part.for_fp8 = rounded[t] && !as_is[t];
    }
}

}  // namespace orrery::models
