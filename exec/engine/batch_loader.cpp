// Micro-batches: read, checked, cut to this rank's rows, copied to where operators want them.
#include "exec/engine/batch_loader.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "base/ensure.h"
#include "exec/engine/lookups.h"
#include "exec/failure.h"
#include "models/operators/operators.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {
namespace {

// For every backend alike: a device reports no bad ids, and to a loss -1 means that a row predicts nothing.
void check_ids(std::span<const std::int32_t> ids, const char* of, std::int64_t vocab) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab)
      throw Failure(
          fmt::format("{} id {} at position {} of the batch, but the vocabulary has {}", of, ids[i], i, vocab));
}

}  // namespace

std::array<const std::vector<std::int32_t>*, 6> BatchLoader::read(const models::Op& op, const Instance& of,
                                                                  const StepInput& input) {
  const auto n = static_cast<std::size_t>(op.batch * op.sequence * op.context);
  const bool masked = op.k > 0;
  tokens_.resize(n);
  targets_.resize(masked ? static_cast<std::size_t>(op.batch * op.k) : n);
  if (op.out.size() > 2) token_types_.assign(n, 0);
  if (masked) {
    ENSURE(input.load_masked, "a masked-language model is given no masked data");
    masked_rows_.resize(targets_.size());
    next_sentence_.resize(static_cast<std::size_t>(op.batch));
    input.load_masked(of, {tokens_, targets_, token_types_, masked_rows_, next_sentence_});
  } else {
    input.load(of, tokens_, targets_);
  }
  check_ids(tokens_, "token", op.vocab);
  check_ids(targets_, "target", op.vocab);
  if (!masked) {
    if (op.out.size() > 5) {  // of a sequence's last target the next token is not there
      const auto sequence = static_cast<std::size_t>(op.sequence * op.context);
      further_targets_.assign(n, -1);
      for (std::size_t i = 0; i + 1 < n; ++i)
        if ((i + 1) % sequence != 0) further_targets_[i] = targets_[i + 1];
    } else {
      further_targets_.clear();
    }
    keep_part(op, input.context.part);
  }
  return {&tokens_, &targets_, &token_types_, &masked_rows_, &next_sentence_, &further_targets_};
}

// Bytes of ids in a view of load_tokens, even if its buffer is not alive.
std::size_t BatchLoader::bytes_of_ids(int view) const {
  return static_cast<std::size_t>(operands_.view_at(view).elements) * sizeof(std::int32_t);
}

// If steps may be graphs, the batch waits in a slot of its own, whose address the graph has.
void BatchLoader::load_tokens(const models::Op& op, const Instance& of, const StepInput& input) {
  if (!slots_kept_) {
    const auto sources = read(op, of, input);
    for (std::size_t i = 0; i < op.out.size() && i < sources.size(); ++i)
      if (op.out[i] >= 0)
        backend_.copy_to_device(operands_.at(op.out[i], of).data,
                                std::as_bytes(std::span(*sources[i])).first(bytes_of_ids(op.out[i])));
    return;
  }
  std::span<std::byte> slot = filled_slot(op, of, input);
  for (const int view : op.out) {
    if (view < 0) continue;
    backend_.queue_to_device(operands_.at(view, of).data, slot.first(bytes_of_ids(view)));
    slot = slot.subspan(bytes_of_ids(view));
  }
}

void BatchLoader::load_clicks(const models::Op& op, const Instance& of, const StepInput& input) {
  ENSURE(input.load_clicks, "a recommendation model is given no samples");
  dense_.resize(static_cast<std::size_t>(op.n * op.m));
  labels_.resize(static_cast<std::size_t>(op.n));
  tokens_.resize(static_cast<std::size_t>(op.n * op.k));
  input.load_clicks(of, {dense_, labels_, tokens_});
  if (backend_.asynchronous()) check_lookups(*tables_, tokens_);  // a device cannot report bad ones
  backend_.copy_to_device(operands_.at(op.out[0], of).data, std::as_bytes(std::span(dense_)));
  backend_.copy_to_device(operands_.at(op.out[1], of).data, std::as_bytes(std::span(labels_)));
  backend_.copy_to_device(operands_.at(op.out[2], of).data, std::as_bytes(std::span(tokens_)));
}

std::span<std::byte> BatchLoader::filled_slot(const models::Op& op, const Instance& of, const StepInput& input) {
  const BatchPlace place{&op, of.micro_batch, of.step - input.iteration};
  std::span<std::byte>& slot = slots_[place];
  if (slot.empty()) {
    std::size_t bytes = 0;
    for (const int view : op.out) bytes += view < 0 ? 0 : bytes_of_ids(view);
    slot = backend_.allocate_slot(bytes);
  }
  ReadAhead& ahead = ahead_[place];
  if (ahead.step != of.step) ahead.bytes = batch_bytes(op, of, input);
  ahead.step = -1;
  ENSURE(ahead.bytes.size() == slot.size(), "{} bytes for a slot of {}", ahead.bytes.size(), slot.size());
  std::memcpy(slot.data(), ahead.bytes.data(), slot.size());
  return slot;
}

void BatchLoader::read_ahead(const models::Op& op, const Instance& of, const StepInput& input) {
  const Instance next(of.micro_batch, of.step + 1);
  if (next.step >= input.end) return;
  ReadAhead& ahead = ahead_[{&op, next.micro_batch, of.step - input.iteration}];
  try {
    ahead.bytes = batch_bytes(op, next, input);
    ahead.step = next.step;
  } catch (const Failure&) {
    ahead.step = -1;
  }
}

std::vector<std::byte> BatchLoader::batch_bytes(const models::Op& op, const Instance& of, const StepInput& input) {
  const auto sources = read(op, of, input);
  ENSURE(op.out.size() <= sources.size(), "a batch of {} parts", op.out.size());
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < op.out.size(); ++i) {
    if (op.out[i] < 0) continue;
    const auto part = std::as_bytes(std::span(*sources[i])).first(bytes_of_ids(op.out[i]));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

// Keeps this rank's rows of whole sequences.
void BatchLoader::keep_part(const models::Op& op, int part) {
  if (op.context == 1) return;
  const std::int64_t rows = op.batch * op.sequence;
  for (std::vector<std::int32_t>* ids : {&tokens_, &targets_, &further_targets_}) {
    if (ids->empty()) continue;
    std::vector<std::int32_t> kept(static_cast<std::size_t>(rows));
    for (std::int64_t row = 0; row < rows; ++row)
      kept[static_cast<std::size_t>(row)] =
          (*ids)[static_cast<std::size_t>(row / op.sequence * op.sequence * op.context + position_of(op, part, row))];
    *ids = std::move(kept);
  }
}

}  // namespace orrery::exec
