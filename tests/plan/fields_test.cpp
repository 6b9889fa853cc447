// Every field of a plan goes through every form that a plan is written in, and stands on docs/plan-fields.md.
#include "plan/spec/fields.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "models/read/read.h"
#include "plan/schedule/timeline.h"
#include "plan/spec/plan_file.h"
#include "tests/clusters/support.h"

namespace orrery::plan {
namespace fields_test {

TEST(Words, AreOneForEachEnumerator) {
  const auto count = [](auto last) { return static_cast<std::size_t>(last) + 1; };
  EXPECT_EQ(kOrderWords.size(), count(Order::custom));
  EXPECT_EQ(kRecomputeWords.size(), count(Recompute::full));
  EXPECT_EQ(kSpaceWords.size(), count(Space::nvme));
  EXPECT_EQ(kGradientWords.size(), count(GradientCompression::powersgd));
  EXPECT_EQ(kActivationWords.size(), count(ActivationEncoding::lossless));
  EXPECT_EQ(kObjectiveWords.size(), count(Objective::memory));
  EXPECT_EQ(kRoundingWords.size(), count(Rounding::stochastic));
}

// A value that a field may have and that is not `value`.
template <class T>
T another(const FieldInfo& field, const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return !value;
  else if constexpr (std::is_same_v<T, models::DType>)
    return value == models::DType::bf16 ? models::DType::fp16 : models::DType::bf16;
  else if constexpr (std::is_enum_v<T>)
    return static_cast<T>((static_cast<std::size_t>(value) + 1) % field.words->size());
  else if constexpr (std::is_same_v<T, PassOrder>)
    return *PassOrder::parse_csv("F0,F1,B0,B1\nF0,B0,F1,B1\n", "order.csv");
  else if constexpr (std::is_same_v<T, TableTiers>)
    return *TableTiers::parse_rows({{"host 64 MiB", {}}, {"device", {}}, {"nvme", {}}});
  else if constexpr (std::is_same_v<T, Modules>)
    return Modules().with(Module::norms).with(Module::mlp);
  else if constexpr (std::is_same_v<T, TablePlacement>)
    return *TablePlacement::parse_rows({{"grid 2x2 0-3", {}}, {"replicated", {}}, {"row 4 2", {}}});
  else if constexpr (kIsList<T>)
    return {3, 1};
  else if constexpr (std::is_same_v<T, double>)
    return value == 0 ? field.high / 2 : value / 2 >= field.low ? value / 2 : value * 2;
  else
    return static_cast<T>(value < 2 ? 3 : value - 1);
}

template <class T>
std::optional<T> another(const FieldInfo& field, const std::optional<T>& value) {
  return another(field, value.value_or(0));
}

PlanFile sample() {
  PlanFile file;
  file.job.model = "tiny";
  file.job.cluster = "localhost-2";
  file.job.batch = 8;
  file.job.sequence = 64;
  file.spec.shape.batch = 8;
  file.spec.shape.sequence = 64;
  file.model = *models::parse_model("family: gpt\nlayers: 4\nhidden: 128\nheads: 4\nvocab: 256\nmax_sequence: 128\n",
                                    "tiny.yaml");
  file.cluster = clusters::testing::catalog("localhost-2");
  return file;
}

PlanSpec through_timeline(const PlanSpec& spec) {
  Timeline timeline;
  timeline.spec = spec;
  const auto again = parse_timeline(write_timeline(timeline, Schedule{}), "timeline.json");
  EXPECT_TRUE(again.has_value()) << base::render(again.error(), false);
  return again ? again->spec : PlanSpec{};
}

TEST(PlanFields, EachComesBackFromATimeline) {
  for_each_field(kFields, [](const auto& field) {
    PlanSpec spec;
    field.of(spec) = another(field, field.of(spec));
    EXPECT_NE(spec, PlanSpec{}) << field.key;
    EXPECT_EQ(through_timeline(spec), spec) << field.group << "." << field.key;
  });
}

TEST(PlanFields, EachComesBackFromAPlanFile) {
  for_each_field(std::tuple_cat(kChosenFields, kFixedFields), [](const auto& field) {
    PlanFile file = sample();
    field.of(file.spec) = another(field, field.of(file.spec));
    file.job.batch = file.spec.shape.batch;
    file.job.sequence = file.spec.shape.sequence;
    file.job.precision = file.spec.numerics.precision;
    const std::string text = write_plan_file(file);
    const auto again = parse_plan_file(text, "plan.yaml");
    ASSERT_TRUE(again.has_value()) << base::render(again.error(), false) << text;
    EXPECT_EQ(again->spec, file.spec) << field.group << "." << field.key << "\n" << text;
  });
}

template <class T>
void fill(std::vector<T>& bound, const T& value) {
  bound = {value};
}
template <class T>
void fill(std::optional<T>& bound, const T& value) {
  bound = value;
}

TEST(PlanFields, EachMayBeBoundByAJob) {
  for_each_field(kChosenFields, [](const auto& field) {
    using Bound = std::remove_cvref_t<decltype(field.of(std::declval<Bounds&>()))>;
    Job job = sample().job;
    const PlanSpec defaults;
    if constexpr (std::is_same_v<Bound, PassOrder>)
      field.of(job.bounds) = another(field, PassOrder()), job.bounds.stages.order = {Order::custom};
    else if constexpr (kIsRows<Bound>)
      field.of(job.bounds) = another(field, Bound());
    else if constexpr (kIsList<typename std::remove_cvref_t<decltype(field)>::Value>)
      field.of(job.bounds) = {3, 1};
    else
      fill(field.of(job.bounds), static_cast<typename Bound::value_type>(present(another(field, field.of(defaults)))));
    const std::string text = write_job(job);
    const auto again = parse_job(text, "job.yaml");
    ASSERT_TRUE(again.has_value()) << base::render(again.error(), false) << text;
    EXPECT_EQ(again->bounds, job.bounds) << field.group << "." << field.key << "\n" << text;
  });
}

TEST(PlanFields, RefuseWhatIsOutOfBounds) {
  for_each_field(kChosenFields, [](const auto& field) {
    using Value = typename std::remove_cvref_t<decltype(field)>::Value;
    if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
      const std::string group = field.group;
      const auto refused = [&](double value) {
        const std::string line = fmt::format("{}: {}", field.key, value);
        const auto job = parse_job(fmt::format("model: a\ncluster: b\nbatch: 1\nplan: {{{}}}\n",
                                               group.empty() ? line : group + ": {" + line + "}"),
                                   "job.yaml");
        return !job && job.error().front().code == "E0105";
      };
      EXPECT_TRUE(refused(field.low - 1)) << field.key;
      EXPECT_TRUE(refused(field.high + 1)) << field.key;
    }
  });
}

template <class T>
std::string values_of(const FieldInfo& field) {
  if constexpr (std::is_same_v<T, bool>)
    return "false, true";
  else if constexpr (std::is_enum_v<T>)
    return fmt::format("{}", fmt::join(*field.words, ", "));
  else if constexpr (std::is_same_v<T, PassOrder>)
    return "a list of texts, one per rank";
  else if constexpr (std::is_same_v<T, TablePlacement> || std::is_same_v<T, TableTiers>)
    return "a list of texts, one per table";
  else if constexpr (std::is_same_v<T, Modules>)
    return "a list of modules";
  else if constexpr (kIsList<T>)
    return fmt::format("a list of {} to {}", field.low, field.high);
  else
    return fmt::format("{} to {}", field.low, field.high);
}

std::string page() {
  std::string out =
      "# Fields of a plan\n\n"
      "Made from `plan/spec/fields.h` by `test_plan` (`ORRERY_WRITE_DOCS=1`), which fails if the two differ. A job's "
      "`plan:`\nbounds the fields of the first table; a plan file has those of the first two, `timeline.json` and "
      "`--json` all.\n"
      "[formats.md](formats.md) explains them.\n";
  const auto table = [&](const char* title, const auto& fields) {
    out += fmt::format("\n## {}\n\n| field | values | default | what it says |\n|---|---|---|---|\n", title);
    const PlanSpec defaults;
    for_each_field(fields, [&](const auto& field) {
      using Value = typename std::remove_cvref_t<decltype(field)>::Value;
      const auto& value = field.of(defaults);
      out += fmt::format("| `{}{}{}` | {} | {} | {} |\n", field.group, *field.group == '\0' ? "" : ".", field.key,
                         values_of<Value>(field), value_text(field, value), field.says);
    });
  };
  table("What the search may choose", kChosenFields);
  table("What the job and the model fix", kFixedFields);
  table("What only a run's records have", kJobFields);
  return out;
}

TEST(PlanFields, StandOnTheirPage) {
  const std::string path = ORRERY_SOURCE_DIR "/docs/plan-fields.md";
  if (std::getenv("ORRERY_WRITE_DOCS") != nullptr) std::ofstream(path) << page();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), page());
}

}  // namespace fields_test
}  // namespace orrery::plan
