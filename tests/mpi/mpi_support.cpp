// Folders, files and commands of MPI tests.
#include "tests/mpi/mpi_support.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "exec/files/safetensors.h"

namespace orrery::exec::testing {

namespace fs = std::filesystem;

Folder::Folder() {
  std::string name = (fs::temp_directory_path() / "orrery-test-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

Folder::~Folder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::vector<Line> read_metrics(const fs::path& run) {
  std::vector<Line> out;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string text; std::getline(in, text);) {
    const nlohmann::json json = nlohmann::json::parse(text);
    Line line;
    line.step = json["step"];
    line.loss = json["loss"];
    line.gradient_norm = json["gradient_norm"];
    line.memory_peak = json["memory_peak_bytes"];
    line.arena_peak = json["arena_peak_bytes_by_rank"].get<std::vector<std::int64_t>>();
    line.resident_growth = json["resident_growth_bytes_by_rank"].get<std::vector<std::int64_t>>();
    line.outside_peak = json["outside_arena_peak_bytes_by_rank"].get<std::vector<std::int64_t>>();
    const std::size_t at = text.find("\"loss\":") + 7;
    line.loss_text = text.substr(at, text.find(',', at) - at);
    out.push_back(std::move(line));
  }
  return out;
}

LogicalTensors read_tensors(const fs::path& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) throw std::runtime_error(base::render(file.error(), false));
  LogicalTensors out;
  for (const TensorEntry& entry : file->header().tensors) {
    LogicalTensor& tensor = out[entry.name];
    tensor.shape = entry.shape;
    tensor.values.resize(static_cast<std::size_t>(entry.elements()));
    file->read(entry, 0, tensor.values);
  }
  return out;
}

TrainCommand command_for(const Trial& trial, const Folder& folder) {
  TrainCommand command;
  command.worker = ORRERY_WORKER;
  command.ranks = trial.spec.mesh.ranks();
  command.plan = folder.path() / "plan.yaml";
  command.run = folder.path() / "run";
  command.threads = 1;
  command.start_timeout = std::chrono::seconds(120);
  command.step_timeout = std::chrono::seconds(120);
  std::ofstream(command.plan) << plan_text(trial);
  return command;
}

}  // namespace orrery::exec::testing
