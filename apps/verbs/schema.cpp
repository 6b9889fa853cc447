// schema: the keys of a kind of file as JSON Schema, derived from the readers themselves: they run over documents that
// record what is asked of them. A plan's keys come from the table that its reader uses (plan/spec/fields.h).
#include <nlohmann/json.hpp>

#include "apps/verbs/verb.h"
#include "clusters/read.h"
#include "cost/parameters/stack_read.h"
#include "models/read/read.h"
#include "plan/spec/fields.h"
#include "plan/spec/job.h"

namespace orrery::apps {
namespace {

struct SchemaOptions {
  std::string kind;  ///< of file: "job", "plan", "cluster", "model", "stack"
};

using nlohmann::ordered_json;
using Read = std::function<void(const base::Cursor&)>;

std::vector<ordered_json> ways_of(const ordered_json& schema) {
  if (schema.empty()) return {};
  if (schema.contains("anyOf")) return schema.at("anyOf").get<std::vector<ordered_json>>();
  return {schema};
}

bool is_kind(const ordered_json& schema, const char* type) {
  return schema.contains("type") && schema.at("type") == type;
}

ordered_json merged(const ordered_json& a, const ordered_json& b);

/// Union of the keys; required are those that both require.
void merge_maps(ordered_json& into, const ordered_json& more) {
  for (const auto& [key, value] : more.at("properties").items()) {
    ordered_json& mine = into["properties"][key];
    mine = mine.is_null() ? value : merged(mine, value);
  }
  ordered_json required = ordered_json::array();
  if (into.contains("required") && more.contains("required"))
    for (const ordered_json& key : into.at("required"))
      if (const auto& others = more.at("required"); std::find(others.begin(), others.end(), key) != others.end())
        required.push_back(key);
  into.erase("required");
  if (!required.empty()) into["required"] = std::move(required);
  if (!more.contains("additionalProperties")) into.erase("additionalProperties");
}

/// A schema that accepts what either accepts.
ordered_json merged(const ordered_json& a, const ordered_json& b) {
  std::vector<ordered_json> ways = ways_of(a);
  for (const ordered_json& more : ways_of(b)) {
    const auto same = std::find_if(ways.begin(), ways.end(), [&](const ordered_json& one) {
      return one == more || (is_kind(one, "object") && is_kind(more, "object")) ||
             (is_kind(one, "array") && is_kind(more, "array"));
    });
    if (same == ways.end())
      ways.push_back(more);
    else if (is_kind(more, "object"))
      merge_maps(*same, more);
    else if (is_kind(more, "array"))
      (*same)["items"] = merged(same->at("items"), more.at("items"));
  }
  if (ways.empty()) return ordered_json::object();
  return ways.size() == 1 ? ways.front() : ordered_json{{"anyOf", ways}};
}

/// Records what a reader asks of these texts.
ordered_json recorded(const std::vector<std::string>& texts, const Read& read) {
  ordered_json out = ordered_json::object();
  for (const std::string& text : texts) {
    const base::Document document = base::Document::recording(text, "schema");
    if (!document.root().exists()) continue;
    read(document.root());
    out = merged(out, ordered_json::parse(document.schema()));
  }
  return out;
}

/// An empty map, and every catalogue entry.
std::vector<std::string> texts_of(const Catalog& catalog, const char* folder) {
  std::vector<std::string> texts = {"{}"};
  for (const std::string& name : catalog.names(folder))
    if (const auto entry = catalog.find(folder, name)) texts.push_back(entry->text);
  return texts;
}

template <class T>
ordered_json schema_of_value(const plan::FieldInfo& field) {
  if constexpr (plan::kIsRows<T>)
    return {{"type", "array"}, {"items", {{"type", "string"}}}};
  else if constexpr (plan::kIsList<T>)
    return {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", field.low}}}};
  else if constexpr (std::is_same_v<T, bool>)
    return {{"type", "boolean"}};
  else if constexpr (std::is_enum_v<T>)
    return {{"enum", *field.words}};
  else
    return {{"type", std::is_integral_v<T> ? "integer" : "number"}, {"minimum", field.low}, {"maximum", field.high}};
}

/// A map of fields; where it bounds a search, each takes a list of choices too.
template <class Fields>
void add_fields(ordered_json& properties, const Fields& fields, bool bounds) {
  plan::for_each_field(fields, [&](const auto& field) {
    using T = typename std::remove_cvref_t<decltype(field)>::Value;
    ordered_json value = schema_of_value<T>(field);
    if (bounds && std::string(field.key) == "schedule")
      value = {{"anyOf", {value, {{"type", "string"}, {"pattern", "\\.csv$"}}}}};
    if constexpr (!plan::kIsRows<T> && !plan::kIsList<T>)
      if (bounds) value = {{"anyOf", {value, {{"type", "array"}, {"items", value}, {"minItems", 1}}}}};
    value["description"] = field.says;
    if (*field.group == '\0') {
      properties[field.key] = std::move(value);
    } else {
      ordered_json& group = properties[field.group];
      group["type"] = "object";
      group["properties"][field.key] = std::move(value);
      group["additionalProperties"] = false;
    }
  });
}

/// How a run's software was set up.
ordered_json software_schema() {
  ordered_json out = {{"type", "object"},
                      {"additionalProperties", false},
                      {"description", "How the stack was set up, where it leaves that open"}};
  plan::for_each_software_field([&](const auto& field) {
    using T = typename std::remove_cvref_t<decltype(field.of(std::declval<plan::Software&>()))>::value_type;
    ordered_json value;
    if constexpr (std::is_same_v<T, bool>)
      value = {{"type", "boolean"}};
    else if constexpr (std::is_enum_v<T>)
      value = {{"enum", *field.words}};
    else if constexpr (std::is_same_v<T, std::string>)
      value = {{"type", "string"}};
    else if (field.words == nullptr)
      value = {{"type", "integer"}, {"minimum", 0}};
    else
      for (const std::string& word : *field.words) value["enum"].push_back(std::stoll(word));
    if constexpr (std::is_same_v<T, std::int64_t>)
      if (field.high > 0) value["maximum"] = field.high;
    value["description"] = field.says;
    out["properties"][field.key] = std::move(value);
  });
  return out;
}

ordered_json job_schema() {
  std::vector<std::string> texts = {"{}",
                                    "training: {evaluation: {data: d}, lora: {rank: 1}, dropout: 0.1, clip_norm: 1, "
                                    "learning_rate_schedule: constant}",
                                    "training: {dropout: {embedding: 0.1}}",
                                    "training: {data: {generate: {samples: 1}}, evaluation: {every: 1}}"};
  for (const std::string& name : plan::kOptimizerWords) texts.push_back("training: {optimizer: {name: " + name + "}}");
  ordered_json out = recorded(texts, [](const base::Cursor& at) { (void)plan::read_job(at); });
  ordered_json bounds = {{"type", "object"}, {"additionalProperties", false}};
  add_fields(bounds["properties"], plan::kChosenFields, true);
  bounds["description"] = "What the search may choose: a value fixes a field, a list bounds it";
  out["properties"]["plan"] = std::move(bounds);
  out["properties"]["software"] = software_schema();
  out["required"] = {"model", "cluster", "batch"};
  return out;
}

ordered_json schema_of(const std::string& kind, const Catalog& catalog) {
  const clusters::Find find = [&](const std::string& name) -> std::optional<std::string> {
    if (auto entry = catalog.find(kClusters, name)) return std::move(entry->text);
    return std::nullopt;
  };
  if (kind == "job") return job_schema();
  if (kind == "model") {
    std::vector<std::string> texts = texts_of(catalog, kModels);
    texts.emplace_back("lora: {rank: 1}");
    return recorded(texts, [](const base::Cursor& at) { (void)models::read_model(at); });
  }
  if (kind == "stack") {
    // No catalogued stack is fitted to runs: those that `calibrate --rows` writes are.
    std::vector<std::string> texts = texts_of(catalog, kStacks);
    texts.emplace_back("fitted: {like: generic-eager, rows: 1, grounds: [{architecture: ampere}]}");
    return recorded(texts, [](const base::Cursor& at) { (void)cost::read_stack(at); });
  }
  if (kind == "cluster") {
    // Both as written by hand and as in plan files, which contain the device in full.
    std::vector<std::string> texts = texts_of(catalog, kClusters);
    texts.emplace_back("like: dgx-a100\ndevice: {like: a100-sxm4-80gb}");
    for (std::size_t i = 0, given = texts.size(); i < given; ++i)
      if (const auto cluster = clusters::parse_cluster(texts[i], "schema", find))
        texts.push_back(clusters::write_cluster(*cluster));
    return recorded(texts, [&](const base::Cursor& at) { (void)clusters::read_cluster(at, find); });
  }
  ordered_json split = {{"type", "object"}, {"additionalProperties", false}};
  add_fields(split["properties"], plan::kChosenFields, false);
  add_fields(split["properties"], plan::kFixedFields, false);
  ordered_json out = {{"type", "object"}, {"additionalProperties", false}};
  out["properties"] = {{"format_version", {{"type", {"string", "number"}}}},
                       {"plan", std::move(split)},
                       {"job", job_schema()},
                       {"model", schema_of("model", catalog)},
                       {"cluster", schema_of("cluster", catalog)}};
  out["required"] = {"format_version", "plan", "job", "model", "cluster"};
  return out;
}

Outcome run_schema(const SchemaOptions& options, const Context& context) {
  ordered_json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                         {"title", "A " + options.kind + " file of Orrery"}};
  schema.update(schema_of(options.kind, context.catalog));
  Outcome outcome;
  outcome.text = schema.dump(2) + "\n";
  outcome.json = ordered_json{{"kind", options.kind}, {"schema", std::move(schema)}}.dump();
  return outcome;
}

void add_schema_flags(Flags flags, SchemaOptions& o) {
  flags.option("KIND", o.kind, "job, plan, cluster, model or stack")
      .required()
      .one_of({"job", "plan", "cluster", "model", "stack"});
}

}  // namespace

Verb schema_verb() {
  return verb_of<SchemaOptions>({
      .name = "schema",
      .says = "Show the keys of a kind of file as JSON Schema, for editors",
      .examples =
          "  orrery schema job > job.schema.json                    for the editor; `orrery init` writes the line that "
          "names it",
      .flags = add_schema_flags,
      .run = run_schema,
  });
}

}  // namespace orrery::apps
