// Gist's lossless storage of a ReLU's output: a bit per value, and the nonzero values (models/encoding.h). Values move
// as bits, so that all return unchanged. Work is cut into pieces that do not depend on the number of threads.
#include <bit>
#include <cstring>
#include <numeric>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "models/encoding.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kWord = 64;  ///< bits

/// The parts of the sparse bytes.
struct Sparse {
  std::int64_t* count;
  std::uint64_t* bits;
  std::byte* values;
  Sparse(const Call& call, const Operand& bytes) {
    const models::Op& op = call.op;
    const std::int64_t size = models::size_of(op.dtype);
    ENSURE(bytes.data != nullptr && bytes.elements >= models::sparse_bytes(op.n * op.m, op.capacity, size),
           "{} of {} bytes", models::name_of(op.kind), bytes.elements);
    count = reinterpret_cast<std::int64_t*>(bytes.data);
    bits = reinterpret_cast<std::uint64_t*>(bytes.data + models::kSparseHeader);
    values = bytes.data + models::kSparseHeader + models::sparse_bits_bytes(op.n * op.m);
  }
};

/// Calls body(piece, first element, last element) for pieces of whole words.
template <class Body>
void by_piece(Machine& machine, std::int64_t elements, const Body& body) {
  const std::int64_t pieces = (elements + stream_chunk - 1) / stream_chunk;
  machine.pool.each(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t piece = begin; piece < end; ++piece)
      body(static_cast<std::size_t>(piece), piece * stream_chunk, std::min(elements, (piece + 1) * stream_chunk));
  });
}

/// How many values come before each piece; the last entry is the total.
std::vector<std::int64_t> before(std::vector<std::int64_t> counts) {
  std::exclusive_scan(counts.begin(), counts.end(), counts.begin(), std::int64_t{0});
  return counts;
}
std::vector<std::int64_t> places(std::int64_t elements) {
  return std::vector<std::int64_t>(static_cast<std::size_t>((elements + stream_chunk - 1) / stream_chunk + 1));
}

template <class Value>
void encode(Machine& machine, const Call& call, const Value* x, const Sparse& out) {
  const std::int64_t elements = call.op.n * call.op.m;
  std::vector<std::int64_t> counts = places(elements);
  by_piece(machine, elements, [&](std::size_t piece, std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < last; at += kWord) {
      std::uint64_t word = 0;
      for (std::int64_t i = 0; i < std::min(kWord, last - at); ++i)
        word |= static_cast<std::uint64_t>(x[at + i] != 0) << static_cast<unsigned>(i);
      out.bits[at / kWord] = word;
      counts[piece] += std::popcount(word);
    }
  });
  const std::vector<std::int64_t> start = before(std::move(counts));
  *out.count = start.back();
  if (start.back() > call.op.capacity) return;
  auto* values = reinterpret_cast<Value*>(out.values);
  by_piece(machine, elements, [&](std::size_t piece, std::int64_t first, std::int64_t last) {
    Value* to = values + start[piece];
    for (std::int64_t at = first; at < last; at += kWord)
      for (std::uint64_t word = out.bits[at / kWord]; word != 0; word &= word - 1)
        *to++ = x[at + std::countr_zero(word)];
  });
}

template <class Value>
void decode(Machine& machine, const Call& call, const Sparse& in, Value* x) {
  const std::int64_t elements = call.op.n * call.op.m;
  std::vector<std::int64_t> counts = places(elements);
  by_piece(machine, elements, [&](std::size_t piece, std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < last; at += kWord) counts[piece] += std::popcount(in.bits[at / kWord]);
  });
  const std::vector<std::int64_t> start = before(std::move(counts));
  const auto* values = reinterpret_cast<const Value*>(in.values);
  by_piece(machine, elements, [&](std::size_t piece, std::int64_t first, std::int64_t last) {
    std::memset(x + first, 0, static_cast<std::size_t>(last - first) * sizeof(Value));
    const Value* from = values + start[piece];
    for (std::int64_t at = first; at < last; at += kWord)
      for (std::uint64_t word = in.bits[at / kWord]; word != 0; word &= word - 1)
        x[at + std::countr_zero(word)] = *from++;
  });
}

const Operand& held(const Call& call, std::span<const Operand> list) {
  ENSURE(!list.empty() && list[0].data != nullptr && list[0].elements >= call.op.n * call.op.m, "{} of {} x {} values",
         models::name_of(call.op.kind), call.op.n, call.op.m);
  return list[0];
}

/// For what was too dense: the same product of the same operands gives the same bits.
void compute_again(Machine& machine, const Call& call) {
  ENSURE(call.in.size() >= 3, "what did not fit is not computed again: its operands are absent");
  models::Op product;
  product.kind = models::OpKind::matmul;
  product.dtype = call.op.dtype;
  product.m = call.op.n, product.n = call.op.m, product.k = call.op.k;
  product.trans_b = true;
  product.rounded = call.op.rounded;
  const Call multiply{product, call.in.subspan(1), call.out, {}, call.context};
  const bool narrow = has_16_bit(multiply);
  narrow || product.rounded ? run_matmul_by_panels(machine, multiply) : run_matmul(machine, multiply);
  models::Op rectify;
  rectify.kind = models::OpKind::relu;
  rectify.dtype = call.op.dtype;
  rectify.n = call.op.n, rectify.m = call.op.m;
  const Call relu{rectify, call.out, call.out, {}, call.context};
  narrow ? run_widened(machine, relu, [&](const Call& wide) { run_relu(machine, wide); }) : run_relu(machine, relu);
}

}  // namespace

void run_sparse_encode(Machine& machine, const Call& call) {
  const Operand& x = held(call, call.in);
  ENSURE(!call.out.empty(), "sparse_encode has no output");
  const Sparse out(call, call.out[0]);
  if (models::size_of(call.op.dtype) == sizeof(std::uint16_t))
    encode(machine, call, reinterpret_cast<const std::uint16_t*>(x.data), out);
  else
    encode(machine, call, reinterpret_cast<const std::uint32_t*>(x.data), out);
}

void run_sparse_decode(Machine& machine, const Call& call) {
  const Operand& x = held(call, call.out);
  ENSURE(!call.in.empty(), "sparse_decode has no input");
  const Sparse in(call, call.in[0]);
  if (*in.count > call.op.capacity) return compute_again(machine, call);
  if (models::size_of(call.op.dtype) == sizeof(std::uint16_t))
    decode(machine, call, in, reinterpret_cast<std::uint16_t*>(x.data));
  else
    decode(machine, call, in, reinterpret_cast<std::uint32_t*>(x.data));
}

}  // namespace orrery::exec
