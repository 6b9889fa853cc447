// Words, bounds and defaults of compression.
#include "plan/job_compression.h"

#include <fmt/format.h>

#include "plan/words.h"

namespace orrery::plan {
namespace {

const std::vector<std::string> kGradientWords = {"none", "bf16", "fp16", "powersgd"};
const std::vector<std::string> kActivationWords = {"none", "fp16", "fp10", "fp8", "lossless"};
constexpr std::int64_t kMostRank = 1024;
constexpr double kMostRate = 1e6;
constexpr double kLeastCapacity = 0.001;

}  // namespace

GradientCompression read_gradient_compression(const base::Cursor& at) {
  return choose(at, kGradientWords, GradientCompression::none);
}
ActivationEncoding read_activation_encoding(const base::Cursor& at) {
  return choose(at, kActivationWords, ActivationEncoding::none);
}
int read_rank(const base::Cursor& at) {
  return small(at, 1, kMostRank, Compression{}.rank);
}
double read_minimum_rate(const base::Cursor& at) {
  return at.number(1, kMostRate, Compression{}.minimum_rate);
}
double read_capacity(const base::Cursor& at) {
  return at.number(kLeastCapacity, 1, Compression{}.capacity);
}
int read_exchange_group(const base::Cursor& at) {
  return small(at, 0, kMostRanks, 0);
}

std::int64_t read_start(const base::Cursor& at) {
  return at.integer(0, kMostSteps, 0);
}

Compression read_compression(const base::Cursor& at) {
  Compression c;
  c.gradients = read_gradient_compression(at.optional("gradients"));
  c.activations = read_activation_encoding(at.optional("activations"));
  c.rank = read_rank(at.optional("rank"));
  c.minimum_rate = read_minimum_rate(at.optional("minimum_rate"));
  c.capacity = read_capacity(at.optional("capacity"));
  c.group = read_exchange_group(at.optional("group"));
  c.start = read_start(at.optional("start"));
  return c;
}

std::string compression_text(const Compression& c) {
  std::string more;
  if (c.activations == ActivationEncoding::lossless) more += fmt::format(", capacity: {}", c.capacity);
  if (c.group > 0) more += fmt::format(", group: {}", c.group);
  if (c.start > 0) more += fmt::format(", start: {}", c.start);
  return fmt::format("{{gradients: {}, activations: {}, rank: {}, minimum_rate: {}{}}}", name_of(c.gradients),
                     name_of(c.activations), c.rank, c.minimum_rate, more);
}

const char* name_of(GradientCompression kind) {
  return kGradientWords[static_cast<std::size_t>(kind)].c_str();
}
const char* name_of(ActivationEncoding kind) {
  return kActivationWords[static_cast<std::size_t>(kind)].c_str();
}

}  // namespace orrery::plan
