// Ring attention step by step, one rank after the other in one thread, against attention over the whole sequence.
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_ring_attention_test {

struct Case {
  std::int64_t context, batch, sequence, heads, kv_heads, dim;  // sequence: of a rank
  bool causal;
  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  [[nodiscard]] std::int64_t out_width() const { return heads * dim; }
  [[nodiscard]] Op op(OpKind kind, std::int64_t step = 0) const {
    Op op;
    op.kind = kind;
    op.batch = batch;
    op.sequence = sequence;
    op.context = context;
    op.n = batch * sequence;
    op.heads = heads;
    op.kv_heads = kv_heads;
    op.head_dim = dim;
    op.causal = causal;
    op.flash = true;
    op.ring_step = step;
    op.accumulate = step > 0;
    return op;
  }
  [[nodiscard]] Op whole(OpKind kind) const {
    Op op = this->op(kind);
    op.sequence *= context;
    op.n *= context;
    op.context = 1;
    return op;
  }
};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Rows of whole sequences that a rank has, or back.
Numbers rows_of(const Case& c, const Numbers& all, std::int64_t width, int part) {
  const Op op = c.op(OpKind::ring_attention);
  Numbers own(at(op.n * width));
  for (std::int64_t row = 0; row < op.n; ++row) {
    const std::int64_t from = row / c.sequence * c.sequence * c.context + position_of(op, part, row);
    std::copy_n(all.begin() + from * width, width, own.begin() + row * width);
  }
  return own;
}
void put_rows(const Case& c, Numbers& all, const Numbers& own, std::int64_t width, int part) {
  const Op op = c.op(OpKind::ring_attention);
  for (std::int64_t row = 0; row < op.n; ++row) {
    const std::int64_t to = row / c.sequence * c.sequence * c.context + position_of(op, part, row);
    std::copy_n(own.begin() + row * width, width, all.begin() + to * width);
  }
}

void compare(const Case& c) {
  const std::int64_t tokens = c.batch * c.sequence * c.context;
  Numbers qkv = random_numbers(tokens * c.width(), "qkv"), dy = random_numbers(tokens * c.out_width(), "dy");
  on_every_backend([&](Backend& backend) {
    Numbers y(at(tokens * c.out_width())), lse(at(tokens * c.heads)), dqkv(qkv.size());
    run(backend, c.whole(OpKind::attention), {of(qkv)}, {of(y), of(lse)});
    run(backend, c.whole(OpKind::attention_grad), {of(dy), of(qkv), of(y), of(lse)}, {of(dqkv)});
    const auto ranks = static_cast<int>(c.context);
    const std::int64_t n = c.batch * c.sequence, kv_width = 2 * c.kv_heads * c.dim;
    std::vector<Numbers> own(at(ranks)), kv(at(ranks)), dkv(at(ranks)), douts(at(ranks)), d(at(ranks)), ys(at(ranks));
    for (int r = 0; r < ranks; ++r) {
      own[at(r)] = rows_of(c, qkv, c.width(), r);
      douts[at(r)] = rows_of(c, dy, c.out_width(), r);
      kv[at(r)].resize(at(n * kv_width));
      dkv[at(r)].resize(at(n * kv_width));
      d[at(r)].resize(at(n * c.width()));
      ys[at(r)].resize(at(n * c.out_width()));
      run(backend, c.op(OpKind::split_kv), {of(own[at(r)])}, {of(kv[at(r)])});
    }
    Numbers out(y.size()), gradient(dqkv.size());
    for (int r = 0; r < ranks; ++r) {
      StepContext context;
      context.part = r;
      Numbers sums(at(n * c.heads)), part(at(n * kv_width));
      for (int step = 0; step < ranks; ++step)
        run(backend, c.op(OpKind::ring_attention, step), {of(own[at(r)]), of(kv[at((r + ranks - step) % ranks)])},
            {of(ys[at(r)]), of(sums)}, context);
      for (int step = 0; step < ranks; ++step) {
        const int owner = (r + ranks - step) % ranks;
        run(backend, c.op(OpKind::ring_attention_grad, step),
            {of(douts[at(r)]), of(own[at(r)]), of(ys[at(r)]), of(sums), of(kv[at(owner)])}, {of(d[at(r)]), of(part)},
            context);
        for (std::size_t i = 0; i < part.size(); ++i) dkv[at(owner)][i] += part[i];
      }
      put_rows(c, out, ys[at(r)], c.out_width(), r);
    }
    for (int r = 0; r < ranks; ++r) {
      run(backend, c.op(OpKind::merge_kv), {of(dkv[at(r)])}, {of(d[at(r)])});
      put_rows(c, gradient, d[at(r)], c.width(), r);
    }
    EXPECT_LT(error_of(out, exact(y)), 2e-6);
    EXPECT_LT(error_of(gradient, exact(dqkv)), 4e-6);
    return std::vector<Numbers>{out, gradient};
  });
}

TEST(RingAttention, EqualsAttentionOverTheWholeSequence) {
  for (const bool causal : {true, false})
    for (const std::int64_t context : {2, 3, 4}) {
      SCOPED_TRACE(context);
      compare({context, 2, 14, 4, 2, 8, causal});
      compare({context, 1, 38, 3, 3, 5, causal});
    }
}

TEST(RingAttention, EveryStepIsTheSameWorkOnEveryRank) {
  const Case c{4, 1, 64, 2, 2, 8, true};
  const double own = models::flops_of(c.op(OpKind::ring_attention, 0));
  double sum = own;
  for (int step = 1; step < 4; ++step) sum += models::flops_of(c.op(OpKind::ring_attention, step));
  EXPECT_DOUBLE_EQ(sum, own + 3 * own * 64 / 65);  // without the diagonal
  // All ranks together as one: the triangle of the whole sequence.
  EXPECT_NEAR(4 * sum, models::flops_of(c.whole(OpKind::attention)), 1e-9 * sum);
  EXPECT_DOUBLE_EQ(models::flops_of(c.op(OpKind::ring_attention, 1), true),
                   models::flops_of(c.op(OpKind::ring_attention), true));
}

}  // namespace cpu_ring_attention_test
}  // namespace orrery::exec::testing
