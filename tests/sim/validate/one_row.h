#pragma once
/// One published row as text, which tests change, and a small library to read it with.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim::one_row {

inline Library library() {
  Library out;
  out.clusters = {*testing::cluster("dgx-a100-80gb"), *testing::cluster("hgx-h100"), *testing::cluster("localhost-2")};
  out.stacks = {testing::stack("megatron-core"), testing::stack("megatron-2021"), testing::stack("orrery-cpu")};
  return out;
}

inline constexpr const char* kRow = R"(results:
- id: a
  source: somebody 2021
  kind: training
  verified: true
  family: gpt
  layers: 24
  hidden: 2048
  heads: 16
  seq_len: 2048
  gpus: 16
  gpus_per_node: 8
  tp: 2
  pp: 2
  dp: 4
  micro_batch: 4
  global_batch: 64
  gpu_type: A100-SXM4-80GB
  stack: megatron-2021
  recompute_kind: full
  precision_kind: fp16
  iter_time_s: 1.5
  peak_mem_gib: 30
  tflops_per_gpu: 140
  notes: anything
)";

inline std::string changed(const std::string& what, const std::string& with) {
  std::string text = kRow;
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

inline std::vector<Row> rows(const std::string& text) {
  auto parsed = parse_rows(text, "rows.yaml");
  if (!parsed) throw std::runtime_error(base::render(parsed.error(), false));
  return *parsed;
}

}  // namespace orrery::sim::one_row
