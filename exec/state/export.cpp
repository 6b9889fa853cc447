// Logical tensors of a checkpoint, put together one by one and written under other names.
#include "exec/state/export.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/weight_names.h"
#include "models/expand.h"
#include "models/hugging_face.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

/// A tensor of the file and the logical ones that it is made of.
struct FileTensor {
  std::vector<std::int64_t> shape;
  struct Piece {
    std::string name;
    std::vector<std::int64_t> shape;  ///< logical
    FilePlace place;
  };
  std::vector<Piece> pieces;
};

/// Every parameter of the model, by the file's names.
std::map<std::string, FileTensor> file_tensors(const models::Model& model) {
  std::map<std::string, FileTensor> out;
  std::set<std::string> seen;
  const models::WeightNames names = models::weight_names(model);
  const auto note = [&](const models::Tensor& tensor) {
    if (!seen.insert(tensor.name).second) return;  // the tied table, which embedding and head have
    FilePlace place = place_in_file(names, tensor);
    FileTensor& into = out[place.name];
    into.shape = place.shape;
    into.pieces.push_back({tensor.name, tensor.logical_shape, std::move(place)});
  };
  const auto layer = [&](models::LayerKind kind, std::int64_t index) {
    for (const models::Tensor& tensor : models::expand(model, kind, index, {}).tensors) {
      if (tensor.role == models::TensorRole::balance) {
        models::Tensor bias = tensor;
        bias.name = "h." + std::to_string(index) + ".mlp." + tensor.name;
        bias.logical_shape = bias.shape;
        note(bias);
      }
      if (tensor.role != models::TensorRole::parameter) continue;
      if (tensor.pieces.empty()) note(tensor);
      for (const models::Tensor& piece : tensor.pieces) note(piece);
    }
  };
  layer(models::LayerKind::embedding, -1);
  for (std::int64_t i = 0; i < model.layers; ++i) layer(models::LayerKind::block, i);
  layer(models::LayerKind::head, -1);
  return out;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

std::vector<float> assembled(const FileTensor& tensor, const CheckpointReader& checkpoint) {
  std::vector<float> out(static_cast<std::size_t>(product(tensor.shape)));
  for (const FileTensor::Piece& piece : tensor.pieces) {
    const std::vector<float> values = checkpoint.tensor(State::weight, piece.name, piece.shape);
    const std::int64_t inner = piece.shape.size() == 2 ? piece.shape[1] : 1;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
      const std::int64_t at = piece.place.element(i / inner, i % inner, inner);
      out[static_cast<std::size_t>(at)] = static_cast<float>(values[static_cast<std::size_t>(i)] - piece.place.offset);
    }
  }
  return out;
}

}  // namespace

base::Result<Exported> export_checkpoint(const models::Model& model, const fs::path& checkpoint,
                                         const fs::path& folder) {
  const auto config = models::write_hugging_face(model);
  if (!config) return base::fail(config.error());
  const CheckpointReader reader(checkpoint);
  reader.check_files();
  const std::map<std::string, FileTensor> tensors = file_tensors(model);
  fs::create_directories(folder);
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, "F32", tensor.shape, 0, 0});
  const fs::path path = folder / "model.safetensors", temporary = folder / "model.safetensors.tmp";
  Exported out{reader.step(), static_cast<std::int64_t>(tensors.size()), 0, 0};
  {
    SafetensorsWriter writer(temporary, entries, {{"format", "pt"}, {"written_by", "orrery export"}});
    for (const auto& [name, tensor] : tensors) {
      const std::vector<float> values = assembled(tensor, reader);
      out.parameters += static_cast<std::int64_t>(values.size());
      writer.append(values);
    }
    (void)writer.finish();
    out.bytes = writer.bytes();
  }
  fs::rename(temporary, path);
  write_atomically(folder / "config.json", *config);
  return out;
}

}  // namespace orrery::exec
