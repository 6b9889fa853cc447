#pragma once
/// Shared by the writers of all frameworks: findings about a plan, and what none can express. Private to reports/.
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "plan/frameworks/settings.h"
#include "reports/exports/frameworks.h"

namespace orrery::reports {

/// Something that a plan file's key ("model.window") says, and that the framework can do or not.
struct Ability {
  const char* key;
  bool can;
  const char* what;  ///< in the plural: "windows"
};

struct Handover {
  const plan::PlanFile& file;
  const plan::Plan& plan;
  const std::string& path;
  const char* framework;  ///< as its users write it
  std::span<const plan::Setting> table;
  const Placing& placed;
  base::Diagnostics errors = {}, warnings = {};

  [[nodiscard]] const plan::PlanSpec& spec() const { return plan.spec(); }
  [[nodiscard]] const models::Model& model() const { return file.model; }
  [[nodiscard]] const plan::Training& training() const { return file.job.training; }
  /// The run's dropout: the job's, else the model's.
  [[nodiscard]] models::Dropout dropout() const;
  /// An error unless `can`: the framework cannot express `what`, which the plan file's key ("plan.schedule") says.
  void needs(const char* key, bool can, const std::string& what, const std::string& help);
  /// The same of several: one error that names those which it cannot express, at the key of the first of them.
  void needs(std::initializer_list<Ability> parts, const std::string& help);
  /// A warning if the framework `differs` in what the key says.
  void note(const std::string& key, bool differs, const std::string& what, const std::string& help = {});
  /// What no framework supports: asynchrony, splits of the backward pass, encodings, drives. `optimizer`: its name
  /// in the framework's settings, if it has one.
  void check_common(std::string_view optimizer);
  /// The key of the run's dropout, as `dropout`.
  [[nodiscard]] const char* key_of_dropout() const;
  /// The text, or the errors.
  [[nodiscard]] base::Result<Settings> give(std::string text);

 private:
  [[nodiscard]] base::Diagnostic at(const std::string& key, base::Severity severity, const char* code,
                                    std::string message, const std::string& help) const;
};

[[nodiscard]] base::Result<Settings> megatron_settings(Handover handover);
[[nodiscard]] base::Result<Settings> deepspeed_settings(Handover handover);
[[nodiscard]] base::Result<Settings> torchtitan_settings(Handover handover);

}  // namespace orrery::reports
