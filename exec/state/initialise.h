#pragma once
/// Initial values of parameters and optimizer states: drawn from counter-based random numbers by logical name and
/// global index, so that any sharding draws the same, or read from safetensors files with Hugging Face's names.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

#include "base/result.h"
#include "exec/engine/arena.h"
#include "exec/engine/backend.h"
#include "exec/engine/logical.h"
#include "exec/files/safetensors.h"
#include "models/model.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Gives elements [first, first + out.size()), in C order, of the logical tensor of `range`.
using LogicalSource = std::function<void(const plan::ParameterRange& range, std::int64_t first, std::span<float> out)>;

/// normal(seed, stream_of(name), index) * stddev, or the constant initial value; drawn by at most `threads` threads.
[[nodiscard]] LogicalSource seeded_source(std::uint64_t seed, int threads = 1);

/// Reads files with the names and orientations of Hugging Face's class of the model's family
/// (exec/state/weight_names.h), with or without its prefix, or with our own logical names and orientations; without a
/// model, those of GPT-2, Llama or BERT. Checks that every parameter of every class is there with its shape. Adapters
/// (models/lora.h) that are missing come from `adapters`. The files must outlive the source.
[[nodiscard]] base::Result<LogicalSource> file_source(const std::vector<SafetensorsFile>& files,
                                                      const plan::Schedule& schedule,
                                                      const models::Model* model = nullptr,
                                                      const LogicalSource& adapters = {});
[[nodiscard]] base::Result<LogicalSource> file_source(const SafetensorsFile& file, const plan::Schedule& schedule,
                                                      const models::Model* model = nullptr,
                                                      const LogicalSource& adapters = {});

/// Writes initial values into parameters (or shards), all their versions and masters, and zeros into moments and every
/// other persistent buffer. Goes through a small host buffer, larger if `threads` share the work. `loss_scale`: fp16's
/// initial scale.
void initialise(const plan::Schedule& schedule, int rank, Arena& arena, Backend& backend, const LogicalSource& source,
                double loss_scale = 65536, int threads = 1);

/// Walks holdings of a buffer in runs of consecutive logical elements, a small host buffer at a time. `visit` fills
/// `values` (to_device) or reads them (from_device), always in fp32. Leaves padding alone.
enum class StateTransfer { to_device, from_device };
using Visit = std::function<void(const Holding& holding, const Run& run, std::span<float> values)>;
void transfer(std::byte* buffer, models::DType dtype, const std::vector<Holding>& holdings, int tensor_rank,
              Backend& backend, StateTransfer direction, const Visit& visit, int threads = 1);

}  // namespace orrery::exec
