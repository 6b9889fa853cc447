#pragma once
/// Compression in job and plan files. Private to plan/.
#include <string>

#include "base/yaml.h"
#include "plan/job.h"

namespace orrery::plan {

[[nodiscard]] GradientCompression read_gradient_compression(const base::Cursor& at);
[[nodiscard]] ActivationEncoding read_activation_encoding(const base::Cursor& at);
[[nodiscard]] int read_rank(const base::Cursor& at);
[[nodiscard]] double read_minimum_rate(const base::Cursor& at);
[[nodiscard]] int read_exchange_group(const base::Cursor& at);
[[nodiscard]] double read_capacity(const base::Cursor& at);
[[nodiscard]] std::int64_t read_start(const base::Cursor& at);
/// All of a plan's; and as it is written, in one line.
[[nodiscard]] Compression read_compression(const base::Cursor& at);
[[nodiscard]] std::string compression_text(const Compression& compression);

}  // namespace orrery::plan
