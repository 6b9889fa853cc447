#pragma once
/// How rows of tokens travel to the ranks that have their experts, and back. Private to models/; see mixture_notes.h.
///
/// Rows are sent in slots, one per rank of the expert group (models/operators/op.h): first an all-to-all of counts,
/// then one of rows, which may be encoded on their way. If experts are split over other ranks than the tensor group,
/// those that split an expert gather rows of one another before they send them, and scatter the sums.
#include <string>
#include <utility>

#include "models/layers/linear_notes.h"
#include "models/layers/mixture_sizes.h"

namespace orrery::models {

class TokenTravel {
 public:
  TokenTravel(LinearNotes& to, const MixtureSizes& sizes) : to_(to), sizes_(sizes) {}

  [[nodiscard]] bool apart() const { return to_.options.expert > 1; }
  // Whether rows are rounded on their way. Independent of where experts are, so that placement does not change results.
  [[nodiscard]] bool rounds_rows(TokenCodec codec) const {
    return codec != TokenCodec::none && dtype_of(codec) != to_.options.dtype;
  }
  [[nodiscard]] bool moves(TokenCodec codec) const { return apart() || rounds_rows(codec); }

  // Of a row.
  [[nodiscard]] std::int64_t columns() const { return to_.model.experts.columns(to_.model.hidden); }
  // Of all slots.
  [[nodiscard]] std::int64_t rows() const { return to_.options.expert * sizes_.capacity; }

  TensorId slots(const std::string& name, std::int64_t columns) {
    return to_.activation(name, {rows(), columns}, to_.options.dtype);
  }

  void among_experts(GroupCollective collective, TensorId source, TensorId target) {
    to_.communicate(collective, source, target);
    (*to_.current)[to_.current->size() - 2].experts = true;
  }
  // The rows `own` of all ranks that split an expert, under the name `name`, if they route different rows; else `own`.
  TensorId of_all(TensorId own, const std::string& name) {
    if (!sizes_.gathers()) return own;
    const TensorId all = to_.activation(name, {sizes_.tokens, to_.columns_of(own)}, to_.program.tensors[own].dtype);
    among_experts(GroupCollective::all_gather, own, all);
    return all;
  }
  // Where sums of such rows are put before they are scattered into `own`.
  TensorId sums_of_all(TensorId own, const std::string& name) {
    return sizes_.gathers() ? to_.activation(name, {sizes_.tokens, to_.columns_of(own)}, to_.program.tensors[own].dtype)
                            : own;
  }
  void scatter(TensorId sums, TensorId own) {
    if (sizes_.gathers()) among_experts(GroupCollective::reduce_scatter, sums, own);
  }

  // An operator between tokens and slots works on n rows of tokens.
  Op row_op(OpKind kind, Tensors in, const Tensors& out) const {
    while (!in.back().exists()) in.pop_back();
    Op o = to_.op(kind, in, out, columns());
    o.n = sizes_.tokens;
    o.chosen = to_.model.experts.chosen;
    return slot_op(std::move(o));
  }
  Op slot_op(Op o) const {
    o.slots = to_.options.expert;
    o.experts = sizes_.local;
    o.capacity = sizes_.capacity;
    return o;
  }
  Op in_slots(Op o) const {
    o.n = rows();
    o.expected = sizes_.expected;
    return o;
  }

  void exchange_counts(TensorId sent, TensorId received) {
    if (!apart()) return;
    to_.communicate(GroupCollective::all_to_all, sent, received);
  }
  void exchange_rows(TensorId source, TensorId target, TensorId sent, TensorId received, TokenCodec codec) {
    if (!rounds_rows(codec)) return send_rows(source, target, sent, received);
    const std::int64_t width = elements_of_row(codec, columns());
    const std::string name = to_.program.tensors[source].name;
    const TensorId encoded = to_.activation(name + ".encoded", {rows(), width}, dtype_of(codec));
    const TensorId came =
        apart() ? to_.activation(name + ".encoded.received", {rows(), width}, dtype_of(codec)) : encoded;
    to_.emit(codec_op(OpKind::encode_rows, {source, sent}, encoded, codec));
    send_rows(encoded, came, sent, received);
    to_.emit(codec_op(OpKind::decode_rows, {came, received}, target, codec));
  }

 private:
  Op codec_op(OpKind kind, const Tensors& in, TensorId out, TokenCodec codec) const {
    Op o = in_slots(slot_op(to_.op(kind, in, {out}, columns())));
    o.k = elements_of_row(codec, columns());
    o.codec = codec;
    return o;
  }
  void send_rows(TensorId source, TensorId target, TensorId sent, TensorId received) {
    if (!apart()) return;
    to_.communicate(GroupCollective::all_to_all, source, target);
    Part& part = (*to_.current)[to_.current->size() - 2];
    part.sent = sent;
    part.received = received;
    part.expected = sizes_.expected;
  }

  LinearNotes& to_;
  MixtureSizes sizes_;
};

}  // namespace orrery::models
