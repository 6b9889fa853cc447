#pragma once
/// Catalogue models, clusters and stacks for tests that predict.
#include <memory>
#include <stdexcept>
#include <string>

#include "cost/prices/pricing.h"
#include "models/read/read.h"
#include "plan/spec/plan.h"
#include "tests/clusters/support.h"

namespace orrery::sim::testing {

inline std::string text_of(const std::string& path) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/" + path);
  if (!file) throw std::runtime_error("no " + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline std::shared_ptr<const models::Model> model(const std::string& name) {
  const auto read = models::parse_model(text_of("models/catalog/" + name + ".yaml"), name + ".yaml");
  if (!read) throw std::runtime_error(base::render(read.error(), false));
  return std::make_shared<models::Model>(*read);
}

inline std::shared_ptr<const clusters::Cluster> cluster(const std::string& name, int devices = 0) {
  clusters::Cluster read = clusters::testing::catalog(name);
  if (devices == 0) return std::make_shared<clusters::Cluster>(std::move(read));
  const auto other = clusters::resized(read, devices);
  if (!other) throw std::runtime_error(base::render(other.error(), false));
  return std::make_shared<clusters::Cluster>(*other);
}

inline cost::Stack stack(const std::string& name) {
  const auto read = cost::parse_stack(text_of("cost/stacks/" + name + ".yaml"), name + ".yaml");
  if (!read) throw std::runtime_error(base::render(read.error(), false));
  return *read;
}

}  // namespace orrery::sim::testing
