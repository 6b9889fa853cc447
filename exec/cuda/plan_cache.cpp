// The plan file: one line per shape's kernel, and one per choice of an epilogue; fields are separated by tabs.
#include "exec/cuda/plan_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace orrery::exec::cuda {
namespace {

constexpr const char *kPlan = "orrery-plan-2", *kChoice = "orrery-epilogue-2";  // 1: timed with warm caches
constexpr const char *kOne = "one", *kApart = "apart";
constexpr int kMostAlignment = 256;

constexpr Epilogue kEpilogues[] = {Epilogue::none,      Epilogue::bias,      Epilogue::gelu_aux,
                                   Epilogue::bias_gelu, Epilogue::gelu_grad, Epilogue::bias_grad};
constexpr models::DType kTypes[] = {models::DType::fp32, models::DType::bf16, models::DType::fp16, models::DType::fp8};

template <class T, std::size_t N>
std::optional<T> named(const T (&all)[N], const std::string& name) {
  for (const T one : all)
    if (name == name_of(one)) return one;
  return std::nullopt;
}

std::string spaceless(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n' || c == ' '; }, '_');
  return text;
}

std::string fields_of(const ProductShape& s) {
  const char kind = s.tf32 ? 't' : s.gradient ? 'g' : 'f';
  return fmt::format("{}\t{}\t{}\t{}{}{}{}\t{}\t{}\t{}\t{}", s.m, s.n, s.k, s.trans_a ? 't' : 'n',
                     s.trans_b ? 't' : 'n', s.accumulate ? '+' : '=', kind, name_of(s.in), name_of(s.out),
                     name_of(s.epilogue), s.alignment);
}

std::optional<ProductShape> read_shape(std::istream& in) {
  ProductShape s;
  std::string flags, from, to, epilogue;
  in >> s.m >> s.n >> s.k >> flags >> from >> to >> epilogue >> s.alignment;
  const auto type_in = named(kTypes, from), type_out = named(kTypes, to);
  const auto does = named(kEpilogues, epilogue);
  if (!in || flags.size() != 4 || !type_in || !type_out || !does) return std::nullopt;
  s.trans_a = flags[0] == 't';
  s.trans_b = flags[1] == 't';
  s.accumulate = flags[2] == '+';
  s.tf32 = flags[3] == 't';
  s.gradient = flags[3] == 'g';
  s.in = *type_in;
  s.out = *type_out;
  s.epilogue = *does;
  return s;
}

/// What follows `head` in a line that begins with it.
std::optional<std::istringstream> behind(const std::string& head, const std::string& line) {
  const std::string start = head + "\t";
  if (line.compare(0, start.size(), start) != 0) return std::nullopt;
  return std::istringstream(line.substr(start.size()));
}

/// Whether all was read without error.
bool ends(std::istream& in) {
  std::string rest;
  return in && !(in >> rest);
}

}  // namespace

const char* name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return "none";
    case Epilogue::bias: return "bias";
    case Epilogue::gelu_aux: return "gelu_aux";
    case Epilogue::bias_gelu: return "bias_gelu";
    case Epilogue::gelu_grad: return "gelu_grad";
    case Epilogue::bias_grad: return "bias_grad";
  }
  return "?";
}

int common_alignment(std::initializer_list<const void*> addresses) {
  std::uintptr_t bits = kMostAlignment;
  for (const void* address : addresses) bits |= reinterpret_cast<std::uintptr_t>(address);
  return static_cast<int>(bits & (~bits + 1));
}

PlanCache::PlanCache(std::string path, std::string device, std::uint64_t library_version)
    : path_(std::move(path)), device_(spaceless(std::move(device))), version_(library_version) {
  if (path_.empty()) return;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {  // the last one counts
    if (const auto entry = parse(line)) plans_[entry->first] = entry->second;
    if (const auto entry = parse_choice(line)) choices_[entry->first] = entry->second;
  }
}

std::string PlanCache::head(const char* format) const {
  return fmt::format("{}\t{}\t{}", format, device_, version_);
}

std::string PlanCache::line_of(const ProductShape& shape, const StoredPlan& plan) const {
  std::string line =
      fmt::format("{}\t{}\t{}\t{:.3e}", head(kPlan), fields_of(shape), plan.workspace_bytes, plan.seconds);
  for (const std::uint64_t word : plan.algorithm) line += fmt::format("\t{:016x}", word);
  return line;
}

std::optional<std::pair<ProductShape, StoredPlan>> PlanCache::parse(const std::string& line) const {
  auto in = behind(head(kPlan), line);
  if (!in) return std::nullopt;
  const auto shape = read_shape(*in);
  StoredPlan plan;
  *in >> plan.workspace_bytes >> plan.seconds >> std::hex;
  for (std::uint64_t& word : plan.algorithm) *in >> word;
  if (!shape || !ends(*in)) return std::nullopt;
  return std::pair(*shape, plan);
}

std::string PlanCache::line_of(const ProductShape& shape, const StoredChoice& choice) const {
  return fmt::format("{}\t{}\t{}\t{:.3e}\t{:.3e}", head(kChoice), fields_of(shape), choice.as_one ? kOne : kApart,
                     choice.one_seconds, choice.apart_seconds);
}

std::optional<std::pair<ProductShape, StoredChoice>> PlanCache::parse_choice(const std::string& line) const {
  auto in = behind(head(kChoice), line);
  if (!in) return std::nullopt;
  const auto shape = read_shape(*in);
  StoredChoice choice;
  std::string chosen;
  *in >> chosen >> choice.one_seconds >> choice.apart_seconds;
  if (!shape || !ends(*in) || (chosen != kOne && chosen != kApart)) return std::nullopt;
  choice.as_one = chosen == kOne;
  return std::pair(*shape, choice);
}

std::optional<StoredPlan> PlanCache::find(const ProductShape& shape) const {
  const auto found = plans_.find(shape);
  if (found == plans_.end()) return std::nullopt;
  return found->second;
}

std::optional<StoredChoice> PlanCache::find_choice(const ProductShape& shape) const {
  const auto found = choices_.find(shape);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

void PlanCache::keep(const ProductShape& shape, const StoredPlan& plan) {
  plans_[shape] = plan;
  append(line_of(shape, plan));
}

void PlanCache::keep(const ProductShape& shape, const StoredChoice& choice) {
  choices_[shape] = choice;
  append(line_of(shape, choice));
}

void PlanCache::append(const std::string& line) const {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const std::string whole = line + "\n";
  static_cast<void>(::write(file, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size()));
  ::close(file);
}

std::string default_plan_file() {
  constexpr const char* kName = "cublaslt-plans.txt";
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value ? std::string(value) : std::string();
  };
  if (const std::string folder = variable("ORRERY_CACHE_DIR"); !folder.empty()) return folder + "/" + kName;
  if (const std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder + "/orrery/" + kName;
  if (const std::string folder = variable("HOME"); !folder.empty()) return folder + "/.cache/orrery/" + kName;
  return {};
}

}  // namespace orrery::exec::cuda
