// The `software:` part of a job, read and written from one table.
#include "plan/spec/software.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

namespace orrery::plan {
namespace {

using base::Cursor;

template <class Of, class T>
void read_said(const Cursor& at, const SoftwareField<Of>& field, std::optional<T>& value) {
  if (!at.exists()) return;
  if constexpr (std::is_same_v<T, bool>) {
    value = at.boolean();
  } else if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(at.choice(*field.words));
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = at.text();
  } else if (field.words == nullptr) {
    value = at.integer(0, field.high);
  } else {
    const std::string text = at.is_scalar() ? at.scalar_text() : std::string();
    if (std::find(field.words->begin(), field.words->end(), text) == field.words->end())
      (void)at.choice(*field.words);  // says which there are
    else
      value = at.integer(0, std::numeric_limits<std::int64_t>::max());
  }
}

template <class Of, class T>
std::string said_text(const SoftwareField<Of>& field, const T& value) {
  if constexpr (std::is_enum_v<T>)
    return field.words->at(static_cast<std::size_t>(value));
  else if constexpr (std::is_same_v<T, std::string>)
    return base::yaml_text(value);
  else
    return fmt::format("{}", value);
}

void check_said(const Cursor& at, const Software& s, models::DType precision) {
  const auto refuse = [&](const char* key, const char* message, const char* help) {
    at.optional(key).error("E0121", message, help);
  };
  const bool eight = precision == models::DType::fp8 || precision == models::DType::fp4;
  if (s.fp8_recipe && !eight)
    refuse("fp8_recipe", "`fp8_recipe` says what shares a scale, but nothing is computed in fp8 or fp4",
           "precision: fp8, or leave it out");
  if (s.fp8_param_gather && !eight)
    refuse("fp8_param_gather", "`fp8_param_gather` is of weights in fp8, but nothing is computed in fp8 or fp4",
           "precision: fp8, or leave it out");
  if (s.padding_mask.value_or(false) && s.attention_kernel)
    refuse("padding_mask", "a mask of padding decides which kernel attention runs: PyTorch's memory-efficient one",
           "leave out `attention_kernel`, or `padding_mask`");
  if (s.compiled.value_or(false) && s.rms_norm == NormKernel::composed)
    refuse("rms_norm", "a compiler fuses RMS norms, but they are said to be composed of operators",
           "compiled: false, or rms_norm: fused");
  if (s.compiled.value_or(false) && s.operators == OperatorCode::transformers)
    refuse("operators", "a compiler fuses operators, but they are said to be composed as Transformers composes them",
           "compiled: false, or leave `operators` out");
}

}  // namespace

Software read_software(const Cursor& at, models::DType precision) {
  Software out;
  for_each_software_field([&](const auto& field) { read_said(at.optional(field.key), field, field.of(out)); });
  if (at.exists() && !at.findings().failed()) check_said(at, out, precision);
  return out;
}

void check_software(const Cursor& at, const Software& s, const std::optional<bool>& flash,
                    const std::vector<GradientCompression>& sent) {
  const bool keeps = s.attention_kernel && !attends_fused(s);
  const Cursor kernel = at.optional("attention_kernel");
  if (keeps && flash.value_or(false))
    kernel.error("E0121", "it keeps its scores, but the plan has `flash: true`",
                 "plan: {flash: false}, or another `attention_kernel`");
  if (attends_fused(s) && !flash.value_or(true))
    kernel.error("E0121", "it keeps no scores, but the plan has `flash: false`",
                 "attention_kernel: math, or leave it out");
  const auto fits = [&](GradientCompression one) {
    return one == GradientCompression::none || one == GradientCompression::powersgd ||
           (one == GradientCompression::bf16 && s.reduce_dtype == ReduceType::bf16) ||
           (one == GradientCompression::fp16 && s.reduce_dtype == ReduceType::fp16);
  };
  if (s.reduce_dtype && !std::ranges::all_of(sent, fits))
    at.optional("reduce_dtype")
        .error("E0121", "gradients travel in another type by the plan's `compression: {gradients}`",
               "leave one of the two out");
}

bool attends_fused(const Software& software) {
  const auto& kernel = software.attention_kernel;
  return kernel && *kernel != AttentionKernel::math && *kernel != AttentionKernel::xla;
}

std::vector<std::pair<std::string, std::string>> software_lines(const Software& software) {
  std::vector<std::pair<std::string, std::string>> out;
  for_each_software_field([&](const auto& field) {
    if (const auto& value = field.of(software)) out.emplace_back(field.key, said_text(field, *value));
  });
  return out;
}

std::string software_text(const Software& software) {
  std::string out;
  for (const auto& [key, value] : software_lines(software))
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", key, value);
  return out;
}

}  // namespace orrery::plan
