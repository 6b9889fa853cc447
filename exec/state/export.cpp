// Assembles a checkpoint's logical tensors one by one, and writes them under other names.
#include "exec/state/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/weight_names.h"
#include "models/layers/expand.h"
#include "models/read/hugging_face.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

/// A tensor of the file, and the logical tensors that it consists of.
struct FileTensor {
  std::vector<std::int64_t> shape;
  struct Piece {
    std::string name;
    std::vector<std::int64_t> shape;  ///< logical
    FilePlace place;
    std::string lora_a, lora_b;  ///< of an adapter to add to it; empty: none
  };
  std::vector<Piece> pieces;
};

/// Every parameter of the model, by its name in the file.
std::map<std::string, FileTensor> file_tensors(const models::Model& model) {
  std::map<std::string, FileTensor> out;
  std::set<std::string> seen;
  const models::WeightNames names = models::weight_names(model);
  const auto note = [&](const models::Tensor& tensor, const std::string& adapter = "") {
    if (!seen.insert(tensor.name).second) return;  // the tied table, which both embedding and head have
    const auto put = [&](const FilePlace& place) {
      FileTensor& into = out[place.name];
      into.shape = place.shape;
      into.pieces.push_back(
          {tensor.name, tensor.logical_shape, place, adapter, adapter.empty() ? "" : tensor.name + ".lora_b"});
    };
    FilePlace place = place_in_file(names, tensor);
    put(place);
    if (!model.further.any()) return;
    for (const auto& [logical, copy] : names.further_copies)
      if (tensor.name == logical) {
        place.name = names.prefix + std::string(names.layer) + std::to_string(model.layers) + "." + copy;
        put(place);
      }
  };
  const auto layer = [&](models::LayerKind kind, std::int64_t index) {
    const models::LayerProgram program = models::expand(model, kind, index, {});
    const auto adapter_of = [&](const models::Tensor& weight) {
      const std::string name = weight.name + ".lora_a";
      return std::any_of(program.tensors.begin(), program.tensors.end(),
                         [&](const models::Tensor& t) { return t.name == name; })
                 ? name
                 : "";
    };
    for (const models::Tensor& tensor : program.tensors) {
      if (tensor.role == models::TensorRole::balance) {
        models::Tensor bias = tensor;
        const std::int64_t block = kind == models::LayerKind::head ? model.layers : index;
        bias.name = "h." + std::to_string(block) + ".mlp." + tensor.name;
        bias.logical_shape = bias.shape;
        note(bias);
      }
      if (tensor.role != models::TensorRole::parameter || (model.lora.any() && !tensor.frozen)) continue;
      const std::string adapter = adapter_of(tensor);
      if (tensor.pieces.empty()) note(tensor, adapter);
      for (const models::Tensor& piece : tensor.pieces) note(piece, adapter);
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

/// W += scale B A
void add_adapter(std::vector<float>& weight, const FileTensor::Piece& piece, const models::Lora& lora,
                 const CheckpointReader& checkpoint) {
  const std::int64_t out = piece.shape[0], in = piece.shape[1];
  const std::vector<float> a = checkpoint.tensor(State::weight, piece.lora_a, {lora.rank, in});
  const std::vector<float> b = checkpoint.tensor(State::weight, piece.lora_b, {out, lora.rank});
  std::vector<double> row(static_cast<std::size_t>(in));
  for (std::int64_t o = 0; o < out; ++o) {
    std::fill(row.begin(), row.end(), 0);
    for (std::int64_t r = 0; r < lora.rank; ++r) {
      const double factor = lora.scale() * static_cast<double>(b[static_cast<std::size_t>(o * lora.rank + r)]);
      for (std::int64_t i = 0; i < in; ++i)
        row[static_cast<std::size_t>(i)] += factor * static_cast<double>(a[static_cast<std::size_t>(r * in + i)]);
    }
    for (std::int64_t i = 0; i < in; ++i) {
      float& value = weight[static_cast<std::size_t>(o * in + i)];
      value = static_cast<float>(static_cast<double>(value) + row[static_cast<std::size_t>(i)]);
    }
  }
}

std::vector<float> assembled(const FileTensor& tensor, const models::Lora& lora, const CheckpointReader& checkpoint) {
  std::vector<float> out(static_cast<std::size_t>(product(tensor.shape)));
  for (const FileTensor::Piece& piece : tensor.pieces) {
    std::vector<float> values = checkpoint.tensor(State::weight, piece.name, piece.shape);
    if (!piece.lora_a.empty()) add_adapter(values, piece, lora, checkpoint);
    const std::int64_t inner = row_elements(piece.shape);
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
  models::Model merged = model;  // adapters are added to the weights
  merged.lora = {};
  const auto config = models::write_hugging_face(merged);
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
      const std::vector<float> values = assembled(tensor, model.lora, reader);
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
