/// Which numbers of which stacks may be fitted, and which follow others.
#include <fmt/format.h>

#include <algorithm>

#include "sim/validate/fit.h"

namespace orrery::sim {

namespace {

constexpr const char* kFollows = "as ";

bool begins(const std::string& text, const char* with) {
  return text.rfind(with, 0) == 0;
}

/// The NAME in "as NAME" or "as NAME: why"; empty if the source has another form.
std::string followed(const std::string& source) {
  if (!begins(source, kFollows)) return {};
  const std::string rest = source.substr(std::string(kFollows).size());
  return rest.substr(0, rest.find_first_of(":;, "));
}

const cost::Parameter* number_of(const std::vector<cost::Stack>& stacks, const NumberName& name) {
  for (const cost::Stack& stack : stacks)
    if (stack.name == name.first)
      for (const cost::Parameter& p : stack.parameters)
        if (p.name == name.second) return &p;
  return nullptr;
}

/// The number that this one finally follows; itself if free. Nothing if it is fixed.
std::optional<NumberName> root_of(const std::vector<cost::Stack>& stacks, NumberName name) {
  for (std::size_t hops = 0; hops <= stacks.size(); ++hops) {
    const cost::Parameter* p = number_of(stacks, name);
    if (!p) return std::nullopt;
    if (begins(p->source, kChosen)) return name;
    name.first = followed(p->source);
    if (name.first.empty()) return std::nullopt;
  }
  return std::nullopt;  // they follow each other in a circle
}

bool is_choice(const std::string& parameter) {
  return std::any_of(choices().begin(), choices().end(), [&](const Choice& c) { return c.parameter == parameter; });
}

/// Whether a list of names ("coarse grid over 60 published rows: A (2024), B") has one with which `source` begins.
/// Names may have commas in parentheses.
bool names(const std::string& list, std::string_view source) {
  const std::size_t colon = list.find(": ");
  std::size_t first = colon == std::string::npos ? list.size() : colon + 2;
  int depth = 0;
  for (std::size_t at = first; at <= list.size(); ++at) {
    const char c = at < list.size() ? list[at] : ',';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if ((c != ',' && c != ';') || depth > 0) continue;
    const std::string_view name = std::string_view(list).substr(first, at - first);
    if (!name.empty() && source.substr(0, name.size()) == name) return true;
    first = std::min(list.size(), at + 2);
  }
  return false;
}

void merge_into(StackFamily& family, const StackFamily& other) {
  family.stacks.insert(family.stacks.end(), other.stacks.begin(), other.stacks.end());
}

}  // namespace

const std::vector<Choice>& choices() {
  constexpr double kMicro = 1e6, kMilli = 1e3;  // per second; dividing makes 85 us the same number as reading "85 us"
  const auto in = [](double parts, std::vector<double> values) {
    for (double& v : values) v /= parts;
    return values;
  };
  static const std::vector<Choice> all{
      {"stack.attention_share", 0.8, 0, {0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1, 1.1}},
      {"stack.elementwise_passes", 1.5, 0, {1, 1.2, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6}},
      // 5 us: the time to issue a bare kernel; smaller differences mean nothing.
      {"stack.data_share", 0.8, 0, {0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}},
      {"stack.exchange_share", 0.8, 0, {0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7,
                                        0.8, 0.9,  1,   1.2,  1.5, 2,    3,   4,   5,   7}},
      {"stack.host_op_time", 50 / kMicro, 5 / kMicro,
       in(kMicro, {0, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 85, 100, 120, 150, 175, 200, 250})},
      {"stack.index_passes", 10, 0, {1, 2, 3, 5, 7, 10, 14, 20, 28, 40}},
      {"stack.interaction_passes", 2, 0, {1, 1.5, 2, 3, 4, 5, 7, 10, 14, 20}},
      {"stack.lookup_passes", 1.5, 0, {0.7, 0.85, 1, 1.2, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6}},
      {"stack.latency_share", 0.7, 0, {0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.85, 1, 1.2}},
      {"stack.matmul_share", 0.95, 0, {0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1, 1.05}},
      {"stack.mlp_passes", 1, 0, {0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1, 1.2, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5}},
      {"stack.op_overhead", 5 / kMicro, 0.5 / kMicro,
       in(kMicro, {0, 0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 40, 50})},
      {"stack.score_passes", 1.5, 0, {0.5, 0.75, 1, 1.2, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6}},
      {"stack.step_overhead", 20 / kMilli, 2 / kMilli,
       in(kMilli, {0, 1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300})},
      {"stack.tensor_hidden", 0.2, 0.1, {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}},
  };
  return all;
}

bool was_fitted_to(const std::vector<cost::Stack>& stacks, const std::string& stack, std::string_view source) {
  const auto one = std::find_if(stacks.begin(), stacks.end(), [&](const auto& known) { return known.name == stack; });
  if (one == stacks.end()) return false;
  return std::any_of(one->parameters.begin(), one->parameters.end(), [&](const cost::Parameter& own) {
    const cost::Parameter* p = &own;
    for (std::size_t hops = 0; p != nullptr && hops <= stacks.size(); ++hops) {
      if (p->source.find("coarse grid") != std::string::npos) return names(p->source, source);
      const std::string next = followed(p->source);
      p = next.empty() ? nullptr : number_of(stacks, {next, own.name});
    }
    return false;
  });
}

base::Result<std::vector<StackFamily>> stack_families(const std::vector<cost::Stack>& stacks) {
  std::map<std::string, std::size_t> family_of;  // by stack
  std::vector<StackFamily> families;
  base::Diagnostics found;
  for (const cost::Stack& stack : stacks) {
    family_of[stack.name] = families.size();
    families.push_back({{stack.name}, {}, {}});
  }
  std::map<NumberName, NumberName> roots;
  for (const cost::Stack& stack : stacks)
    for (const cost::Parameter& p : stack.parameters) {
      const auto root = root_of(stacks, {stack.name, p.name});
      if (!root) continue;
      if (!is_choice(p.name))
        found.push_back({base::Severity::error,
                         "V03",
                         {stack.name, 0, 0, 1},
                         fmt::format("{} was chosen over rows, but has no grid to choose from", p.name),
                         {},
                         {}});
      roots[{stack.name, p.name}] = *root;
      const std::size_t to = family_of[root->first], from = family_of[stack.name];
      if (to == from) continue;
      for (const std::string& name : families[from].stacks) family_of[name] = to;
      merge_into(families[to], families[from]);
      families[from].stacks.clear();
    }
  if (!found.empty()) return base::fail(std::move(found));
  for (const auto& [name, root] : roots)
    if (name == root) families[family_of[name.first]].free.push_back(name);
  for (const auto& [name, root] : roots) {
    StackFamily& family = families[family_of[root.first]];
    const auto at = std::find(family.free.begin(), family.free.end(), root);
    family.follows[name] = static_cast<std::size_t>(at - family.free.begin());
  }
  families.erase(
      std::remove_if(families.begin(), families.end(), [](const StackFamily& f) { return f.stacks.empty(); }),
      families.end());
  for (StackFamily& f : families) std::sort(f.stacks.begin(), f.stacks.end());
  std::sort(families.begin(), families.end(),
            [](const StackFamily& a, const StackFamily& b) { return a.stacks.front() < b.stacks.front(); });
  return families;
}

}  // namespace orrery::sim
