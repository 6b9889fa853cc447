// The table of operators, and what is read off it. Matrix products and attention count multiply-adds as two;
// elementwise operators count a small whole number per element, which only matters where bytes do not dominate.
#include "models/operators/operators.h"

#include <fmt/format.h>

#include "base/ensure.h"
#include "models/operators/operator_counts.h"
#include "models/operators/run_alone.h"

namespace orrery::models {

namespace {

using namespace counts;
using S = const CountedOp&;
using F = PriceFamily;
using P = PriceForm;

consteval Operands in(std::string_view text) {
  return {Use::reads, text};
}
consteval Operands out(std::string_view text) {
  return {Use::writes, text};
}

}  // namespace

// clang-format off
#define KIND(one) .kind = OpKind::one, .name = #one

constexpr std::array<OperatorTraits, kOpKinds> kOperators = {{
    // -- input and embedding
    {KIND(load_tokens), .out = out("tokens? targets? types? rows? elsewhere? further?"), .flops = none,
     .bytes = [](S s) { return 8 * tokens(s) + (s.k > 0 ? 4 * static_cast<double>(s.op.batch) * (2 * s.k + 1) : 0); },
     .family = F::embedding, .issued = Issued::batched, .run_by = RunBy::executor},
    {KIND(embedding), .in = in("tokens table"), .out = out("x"), .flops = none,
     .bytes = [](S s) { return s.bytes * 2 * s.n * s.k + 4 * s.n; }, .family = F::embedding,
     .gradient = OpKind::embedding_grad},
    {KIND(position_add), .in = in("x table"), .out = out("y"), .flops = each<2>, .bytes = moved<2>,
     .family = F::embedding, .gradient = OpKind::position_grad},
    {KIND(embedding_grad), .in = in("tokens dx"), .out = out("dtable+"), .flops = each<2>,
     .bytes = [](S s) { return s.bytes * 3 * s.n * s.k + 4 * s.n; }, .family = F::embedding,
     .issued = Issued::autograd},
    {KIND(position_grad), .in = in("dx"), .out = out("dtable+"), .flops = each<2>, .bytes = moved<1>,
     .family = F::embedding, .issued = Issued::autograd},
    // -- normalisation
    {KIND(layer_norm), .in = in("x weight? bias?"), .out = out("y mean# rstd#"), .flops = each<8>, .bytes = moved<2, 8>,
     .family = F::normalisation, .gradient = OpKind::layer_norm_grad},
    {KIND(layer_norm_grad), .in = in("dy x weight? mean rstd addend?"), .out = out("dx dweight^? dbias^?"),
     .flops = each<14>, .bytes = norm_grad_bytes, .family = F::normalisation_grad, .issued = Issued::autograd},
    {KIND(rms_norm), .in = in("x weight?"), .out = out("y rstd#"), .flops = each<8>, .bytes = moved<2, 8>,
     .family = F::normalisation, .gradient = OpKind::rms_norm_grad},
    {KIND(rms_norm_grad), .in = in("dy x weight? rstd addend?"), .out = out("dx dweight^?"), .flops = each<14>,
     .bytes = norm_grad_bytes, .family = F::normalisation_grad, .issued = Issued::autograd},
    // -- matrix product
    {KIND(matmul), .in = in("a b bias? kept?"), .out = out("c^ bytes? kept?"),
     .flops = [](S s) { return 2.0 * s.m * s.n * s.k; },
     .bytes = [](S s) { return s.bytes * (s.m * s.k + s.k * s.n + (s.op.accumulate ? 2 : 1) * s.m * s.n); },
     .form = P::product, .gradient = OpKind::matmul},
    {KIND(bias_grad), .in = in("dy"), .out = out("dbias^"), .flops = each<2>, .bytes = moved<1>,
     .family = F::reduction, .issued = Issued::autograd},
    // -- attention over packed heads
    {KIND(rope), .in = in("qkv"), .out = out("qkv*"), .flops = rope_flops, .bytes = rope_bytes,
     .gradient = OpKind::rope_grad},
    {KIND(rope_grad), .in = in("dqkv"), .out = out("dqkv*"), .flops = rope_flops, .bytes = rope_bytes,
     .issued = Issued::autograd},
    {KIND(attention), .in = in("qkv sinks? choice?"), .out = out("y saved#"), .flops = attention_flops,
     .bytes = attention_bytes, .form = P::attention, .gradient = OpKind::attention_grad},
    {KIND(attention_grad), .in = in("dy qkv y saved sinks? choice?"), .out = out("dqkv dsinks?+"),
     .flops = attention_grad_flops, .bytes = attention_grad_bytes, .form = P::attention, .issued = Issued::autograd},
    {KIND(ring_attention), .in = in("qkv kv sinks?"), .out = out("y~ lse~#"), .flops = attention_flops,
     .bytes = ring_attention_bytes, .form = P::attention, .gradient = OpKind::ring_attention_grad},
    {KIND(ring_attention_grad), .in = in("dy qkv y lse kv sinks?"), .out = out("dqkv* dkv dsinks?+"),
     .flops = attention_grad_flops, .bytes = ring_attention_bytes, .form = P::attention, .issued = Issued::autograd},
    {KIND(split_kv), .in = in("qkv"), .out = out("kv"), .flops = none, .bytes = key_value_bytes,
     .gradient = OpKind::merge_kv},
    {KIND(merge_kv), .in = in("dkv"), .out = out("dqkv*"), .flops = none, .bytes = key_value_bytes,
     .issued = Issued::autograd},
    // -- elementwise
    {KIND(gelu), .in = in("x"), .out = out("y"), .flops = forward<Activation::gelu>, .bytes = moved<2>,
     .family = F::activation, .gradient = OpKind::gelu_grad, .activation = true, .function = Function::gelu,
     .in_slots = InSlots::may},
    {KIND(gelu_grad), .in = in("dy x"), .out = out("dx"), .flops = backward<Activation::gelu>, .bytes = moved<3>,
     .family = F::activation_grad, .issued = Issued::autograd, .activation = true, .function = Function::gelu,
     .in_slots = InSlots::may},
    {KIND(swiglu), .in = in("x"), .out = out("y"), .flops = forward<Activation::swiglu>, .bytes = moved<3>,
     .family = F::activation, .gradient = OpKind::swiglu_grad, .activation = true, .function = Function::silu,
     .in_slots = InSlots::may},
    {KIND(swiglu_grad), .in = in("dy x"), .out = out("dx"), .flops = backward<Activation::swiglu>, .bytes = moved<5>,
     .family = F::activation_grad, .issued = Issued::autograd, .activation = true, .function = Function::silu,
     .in_slots = InSlots::may},
    {KIND(add_bias), .in = in("residual x bias?"), .out = out("y"),
     .flops = [](S s) { return (2 + (s.op.dropout > 0 ? kDrawFlops : 0)) * elements(s); }, .bytes = moved<3>,
     .form = P::drawn, .gradient = OpKind::bias_grad},
    {KIND(add), .in = in("a b"), .out = out("c"), .flops = each<2>, .bytes = moved<3>},
    // -- loss over vocabulary shards
    {KIND(softmax_max), .in = in("logits"), .out = out("max"), .flops = each<1>, .bytes = moved<1, 4>,
     .family = F::reduction},
    {KIND(softmax_sum), .in = in("logits max targets"), .out = out("sums"), .flops = each<4>, .bytes = moved<1, 12>,
     .family = F::softmax},
    {KIND(cross_entropy), .in = in("max sums"), .out = out("loss+"), .flops = [](S s) { return 4 * s.n; },
     .bytes = [](S s) { return 12 * s.n; }, .family = F::softmax, .gradient = OpKind::cross_entropy_grad},
    {KIND(cross_entropy_grad), .in = in("logits max sums targets scaling?"), .out = out("dlogits"), .flops = each<4>,
     .bytes = moved<2, 16>, .family = F::softmax, .issued = Issued::autograd, .loss_gradient = true},
    // -- optimizer, over flat ranges
    {KIND(fill_zero), .out = out("x"), .flops = none, .bytes = moved_flat<1>, .issued = Issued::batched,
     .types = Types::moves},
    {KIND(copy), .in = in("x"), .out = out("y"), .flops = none, .bytes = moved_flat<2>, .issued = Issued::batched,
     .types = Types::moves},
    {KIND(accumulate_into), .in = in("x"), .out = out("y+"), .flops = flat<1>, .bytes = moved_flat<3>,
     .issued = Issued::batched},
    {KIND(norm_squared), .in = in("grad"), .out = out("total+"), .flops = flat<2>, .bytes = moved_flat<1>,
     .family = F::norm_squared, .issued = Issued::batched, .ranges = Ranges::treatment},
    {KIND(clip_coefficient), .in = in("norm_squared scaling?"), .out = out("norm coefficient"), .flops = none,
     .bytes = [](S) { return 12.0; }, .issued = Issued::batched},
    {KIND(overflow), .in = in("norm_squared"), .out = out("flag"), .flops = none, .bytes = [](S) { return 8.0; },
     .issued = Issued::batched},
    {KIND(loss_scale), .out = out("scaling*"), .flops = none, .bytes = [](S) { return 32.0; },
     .issued = Issued::batched},
    // Gradient read; parameter and both moments read and written; a compute copy written.
    {KIND(adamw), .in = in("grad coefficient scaling?"), .out = out("param* first* second* copy?"), .flops = flat<14>,
     .bytes = [](S s) { return (s.bytes + (s.op.half_moments ? 8 : 16) + parameter_bytes(s, 3)) * s.m; },
     .family = F::optimizer, .issued = Issued::batched, .updates = true, .ranges = Ranges::treatment},
    {KIND(momentum_update), .in = in("grad coefficient scaling?"), .out = out("param* state?* copy*?"),
     .flops = flat<6>,
     .bytes = [](S s) {
       const bool state = s.op.out.size() > 1 && s.op.out[1] >= 0;
       return (s.bytes + (state ? 8 : 0) + parameter_bytes(s, 2)) * s.m;
     },
     .family = F::optimizer, .issued = Issued::batched, .updates = true, .ranges = Ranges::treatment},
    {KIND(lamb_moments), .in = in("grad coefficient param scaling?"), .out = out("first* second* norms+"),
     .flops = flat<20>, .bytes = [](S s) { return (s.bytes + 16 + (s.op.stochastic ? 2 : 4)) * s.m; },
     .family = F::optimizer, .issued = Issued::batched, .ranges = Ranges::parameter},
    {KIND(lamb), .in = in("first second norms scaling?"), .out = out("param* copy*?"), .flops = flat<10>,
     .bytes = [](S s) { return (8 + parameter_bytes(s, 1)) * s.m; }, .family = F::optimizer,
     .issued = Issued::batched, .updates = true, .ranges = Ranges::parameter},
    {KIND(factor_sums), .in = in("grad coefficient"), .out = out("sums+"), .flops = flat<4>, .bytes = moved_flat<1>,
     .family = F::factored, .issued = Issued::batched, .ranges = Ranges::parameter},
    {KIND(factor_moments), .in = in("sums scaling?"), .out = out("factors*"), .flops = flat<3>,
     .bytes = [](S s) { return 12 * s.m; }, .issued = Issued::batched},
    {KIND(factor_norms), .in = in("grad coefficient param factors"), .out = out("norms+"), .flops = flat<9>,
     .bytes = [](S s) { return (s.bytes + 4) * s.m; }, .family = F::factored, .issued = Issued::batched,
     .ranges = Ranges::parameter},
    {KIND(adafactor), .in = in("grad coefficient factors norms scaling?"), .out = out("param* copy*?"),
     .flops = flat<9>, .bytes = [](S s) { return (s.bytes + parameter_bytes(s, 1)) * s.m; }, .family = F::factored,
     .issued = Issued::batched, .updates = true, .ranges = Ranges::parameter},
    // Eight steps of a search for each code, beside AdamW's arithmetic.
    {KIND(adamw_8bit), .in = in("grad coefficient scaling?"),
     .out = out("param* first* second* first_scales* second_scales* copy*?"), .flops = flat<40>,
     .bytes = [](S s) { return (s.bytes + 4 + 16.0 / kQuantisedBlock + parameter_bytes(s, 5)) * s.m; },
     .family = F::quantised, .issued = Issued::batched, .updates = true, .ranges = Ranges::treatment},
    // -- BERT: token types, chosen rows, and its second head
    {KIND(type_add), .in = in("x table types"), .out = out("y"), .flops = each<2>, .bytes = moved<2, 4>,
     .family = F::embedding, .gradient = OpKind::type_grad},
    {KIND(type_grad), .in = in("dx types"), .out = out("dtable+"), .flops = each<2>, .bytes = moved<1, 4>,
     .family = F::embedding, .issued = Issued::autograd},
    {KIND(gather_rows), .in = in("x rows?"), .out = out("y"), .flops = none, .bytes = moved<2, 4>,
     .family = F::embedding, .gradient = OpKind::scatter_rows},
    {KIND(scatter_rows), .in = in("dy rows?"), .out = out("dx~"), .flops = none,
     .bytes = [](S s) {
       return s.bytes * (s.op.accumulate ? 3 * elements(s) : elements(s) + s.m * s.k) + 4 * s.n;
     },
     .family = F::embedding, .issued = Issued::autograd},
    {KIND(tanh), .in = in("x"), .out = out("y"), .flops = each<12>, .bytes = moved<2>, .family = F::activation,
     .gradient = OpKind::tanh_grad},
    {KIND(tanh_grad), .in = in("dy y"), .out = out("dx"), .flops = each<3>, .bytes = moved<3>,
     .family = F::activation_grad, .issued = Issued::autograd},
    {KIND(gelu_erf), .in = in("x"), .out = out("y"), .flops = forward<Activation::gelu>, .bytes = moved<2>,
     .family = F::activation, .gradient = OpKind::gelu_erf_grad, .activation = true, .in_slots = InSlots::may},
    {KIND(gelu_erf_grad), .in = in("dy x"), .out = out("dx"), .flops = backward<Activation::gelu>, .bytes = moved<3>,
     .family = F::activation_grad, .issued = Issued::autograd, .activation = true, .in_slots = InSlots::may},
    {KIND(class_loss), .in = in("logits classes"), .out = out("loss+"), .flops = each<4>, .bytes = moved<1, 4>,
     .family = F::softmax, .gradient = OpKind::class_loss_grad},
    {KIND(class_loss_grad), .in = in("logits classes scaling?"), .out = out("dlogits"), .flops = each<4>,
     .bytes = moved<2, 4>, .family = F::softmax, .issued = Issued::autograd, .loss_gradient = true},
    // -- compression
    {KIND(convert), .in = in("x"), .out = out("y"), .flops = flat<1>, .bytes = [](S s) { return (4 + s.bytes) * s.m; },
     .types = Types::converts},
    {KIND(sum_pieces), .in = in("pieces"), .out = out("y~"), .flops = [](S s) { return s.m * s.n; },
     .bytes = [](S s) { return (s.n * s.bytes + (s.op.accumulate ? 8 : 4)) * s.m; }, .types = Types::converts},
    // Twice: each column loses its part along the columns before it, and is divided by its length.
    {KIND(orthogonalise), .out = out("x*"),
     .flops = [](S s) { return s.m * static_cast<double>(4 * s.op.n * s.op.n + 6 * s.op.n); }, .bytes = moved<2>},
    {KIND(add_scaled), .in = in("x"), .out = out("y+"), .flops = flat<2>, .bytes = moved_flat<3>},
    {KIND(encode), .in = in("x"), .out = out("values"), .flops = flat<8>, .bytes = encoded_bytes_of,
     .types = Types::converts},
    {KIND(decode), .in = in("values"), .out = out("x"), .flops = flat<4>, .bytes = encoded_bytes_of,
     .types = Types::converts},
    {KIND(dropout), .in = in("x"), .out = out("y"), .flops = [](S s) { return kDrawFlops * elements(s); },
     .bytes = moved<2>, .family = F::activation,  // drawing costs arithmetic as activations do
     .gradient = OpKind::dropout},
    {KIND(relu), .in = in("x"), .out = out("y"), .flops = forward<Activation::relu>, .bytes = moved<2>,
     .gradient = OpKind::relu_grad, .activation = true, .in_slots = InSlots::may},
    {KIND(relu_grad), .in = in("dy y"), .out = out("dx"), .flops = backward<Activation::relu>, .bytes = moved<3>,
     .issued = Issued::autograd, .activation = true, .in_slots = InSlots::may},
    {KIND(sparse_encode), .in = in("x"), .out = out("bytes*"), .flops = each<4>, .bytes = sparse_bytes_of,
     .types = Types::converts},
    {KIND(sparse_decode), .in = in("bytes a weight bias?"), .out = out("x"), .flops = each<4>,
     .bytes = sparse_bytes_of, .types = Types::converts},
    {KIND(activate), .in = in("x"), .out = out("y"), .flops = function_flops, .bytes = moved<2>,
     .family = F::activation, .gradient = OpKind::activate_grad, .activation = true, .in_slots = InSlots::may},
    {KIND(activate_grad), .in = in("dy x"), .out = out("dx"), .flops = function_grad_flops, .bytes = moved<3>,
     .family = F::activation_grad, .issued = Issued::autograd, .activation = true, .in_slots = InSlots::may},
    {KIND(gate), .in = in("x"), .out = out("y"), .flops = function_flops, .bytes = moved<3>, .family = F::activation,
     .gradient = OpKind::gate_grad, .activation = true, .in_slots = InSlots::may},
    {KIND(gate_grad), .in = in("dy x"), .out = out("dx"), .flops = function_grad_flops, .bytes = moved<5>,
     .family = F::activation_grad, .issued = Issued::autograd, .activation = true, .in_slots = InSlots::may},
    {KIND(head_norm), .in = in("qkv q_weight? k_weight?"), .out = out("y rstd#"),
     .flops = [](S s) { return 8 * head_norm_elements(s); },
     .bytes = [](S s) { return s.bytes * 2 * tokens(s) * qkv_columns(s) + 4 * head_norm_rows(s); },
     .family = F::normalisation, .gradient = OpKind::head_norm_grad},
    {KIND(head_norm_grad), .in = in("dy qkv q_weight? k_weight? rstd"), .out = out("dqkv* dq_weight?+ dk_weight?+"),
     .flops = [](S s) { return 14 * head_norm_elements(s); },
     .bytes = [](S s) { return s.bytes * 3 * head_norm_elements(s) + 4 * head_norm_rows(s); },
     .family = F::normalisation_grad, .issued = Issued::autograd},
    {KIND(soft_cap), .in = in("x"), .out = out("y"), .flops = each<14>, .bytes = moved<2>, .family = F::activation,
     .gradient = OpKind::cross_entropy_grad},
    // -- mixtures of experts. Logits and scores are in fp32 whatever the model's type.
    {KIND(route), .in = in("logits bias?"), .out = out("scores choice weights"), .flops = each<16>,
     .bytes = [](S s) { return 8 * elements(s) + 8 * chosen_values(s); }, .family = F::softmax,
     .gradient = OpKind::route_grad},
    {KIND(route_grad), .in = in("dweights logits scores choice weights load? scaling?"), .out = out("dlogits"),
     .flops = each<16>, .bytes = [](S s) { return 12 * elements(s) + 12 * chosen_values(s); }, .family = F::softmax},
    {KIND(count_choices), .in = in("logits choice"), .out = out("tally+"), .flops = each<8>,
     .bytes = [](S s) { return 4 * elements(s) + 4 * chosen_values(s); }, .family = F::softmax},
    {KIND(place_rows), .in = in("choice"), .out = out("place counts"), .flops = each<1>,
     .bytes = [](S s) { return 8 * chosen_values(s); }, .family = F::embedding, .in_slots = InSlots::always},
    {KIND(dispatch), .in = in("x place weights?"), .out = out("rows"), .flops = each<1>,
     .bytes = [](S s) { return exchanged_bytes(s, 4); }, .family = F::embedding, .form = P::permuted,
     .gradient = OpKind::combine, .in_slots = InSlots::always, .types = Types::converts},
    {KIND(combine), .in = in("rows place weights?"), .out = out("y"), .flops = combined_flops,
     .bytes = [](S s) { return exchanged_bytes(s, 8); }, .family = F::embedding, .form = P::permuted,
     .gradient = OpKind::dispatch, .in_slots = InSlots::always, .types = Types::converts},
    {KIND(combine_weight_grad), .in = in("dy rows place"), .out = out("dweights"), .flops = combined_flops,
     .bytes = [](S s) { return exchanged_bytes(s, 8); }, .family = F::embedding, .form = P::permuted,
     .in_slots = InSlots::always, .types = Types::converts},
    {KIND(grouped_matmul), .in = in("a w counts second_w?"), .out = out("c"), .flops = grouped_flops,
     .bytes = grouped_bytes, .form = P::grouped, .gradient = OpKind::grouped_weight_grad,
     .in_slots = InSlots::always, .types = Types::converts},
    {KIND(grouped_weight_grad), .in = in("dy x counts"), .out = out("dw^ second_dw?^"), .flops = grouped_flops,
     .bytes = grouped_grad_bytes, .form = P::grouped, .in_slots = InSlots::always, .types = Types::converts},
    {KIND(expert_bias), .in = in("x bias counts second_bias?"), .out = out("y"),
     .flops = [](S s) { return elements(s) * biases_of(s); },
     .bytes = [](S s) { return s.bytes * 2 * elements(s) * biases_of(s); }, .family = F::activation,
     .gradient = OpKind::expert_bias_grad, .in_slots = InSlots::always, .types = Types::converts},
    {KIND(expert_bias_grad), .in = in("dy counts"), .out = out("dbias+ second_dbias?+"),
     .flops = [](S s) { return elements(s) * biases_of(s); },
     .bytes = [](S s) { return s.bytes * elements(s) * biases_of(s); }, .family = F::reduction,
     .issued = Issued::autograd, .in_slots = InSlots::always, .types = Types::converts},
    {KIND(encode_rows), .in = in("x counts"), .out = out("rows"), .flops = each<8>, .bytes = travelling_bytes,
     .in_slots = InSlots::always, .types = Types::converts},
    {KIND(decode_rows), .in = in("rows counts"), .out = out("x"), .flops = each<2>, .bytes = travelling_bytes,
     .in_slots = InSlots::always, .types = Types::converts},
    {KIND(row_gate), .in = in("x g"), .out = out("y"), .flops = each<2>, .bytes = moved<2, 4>,
     .family = F::activation, .gradient = OpKind::row_gate_grad},
    {KIND(row_gate_grad), .in = in("dy x g"), .out = out("dx dg"), .flops = each<4>, .bytes = moved<3, 8>,
     .family = F::activation_grad},
    {KIND(balance_losses), .in = in("tally"), .out = out("losses"), .flops = flat<4>,
     .bytes = [](S s) { return 8 * s.m; }, .family = F::reduction},
    {KIND(balance_bias), .in = in("tally"), .out = out("bias*"), .flops = flat<4>,
     .bytes = [](S s) { return 12 * s.m; }, .family = F::reduction},
    // -- recommendation models
    {KIND(load_clicks), .out = out("dense labels indices"), .flops = none,
     .bytes = [](S s) { return 4 * s.n * (s.m + 1 + s.k); }, .family = F::embedding, .run_by = RunBy::executor},
    {KIND(bucketise_indices), .in = in("indices"),
     .out = out("lengths indices* forward_sent forward_received backward_sent backward_received node_counts?"),
     .flops = none, .bytes = [](S s) { return 8 * s.n * s.k; }, .family = F::embedding, .form = P::indexed},
    // Read, found, moved to the front of its list (two neighbours), written.
    {KIND(cache_rows), .in = in("lengths indices"),
     .out = out("books* places* host_fetch?* host_write?* nvme_fetch?* nvme_write?*"), .flops = none,
     .bytes = [](S s) { return 32 * s.n; }, .family = F::embedding, .form = P::indexed, .run_by = RunBy::cpu},
    {KIND(embedding_bag), .in = in("lengths indices tables rows?"), .out = out("sums*"), .flops = each<1>,
     .bytes = lookup_bytes, .family = F::embedding, .form = P::lookup, .gradient = OpKind::embedding_bag_update},
    {KIND(embedding_bag_squares), .in = in("lengths indices gradients"), .out = out("squares*"), .flops = each<2>,
     .bytes = moved<1, 16>, .family = F::embedding, .form = P::lookup},
    {KIND(embedding_bag_update), .in = in("lengths indices gradients squares? books?"),
     .out = out("tables* states?* total+"), .flops = [](S s) { return (by_adam(s) ? 16 : 6) * elements(s); },
     .bytes = bag_update_bytes, .family = F::embedding, .form = P::lookup},
    {KIND(embedding_lookup), .in = in("indices tables"), .out = out("sums"), .flops = each<1>, .bytes = lookup_bytes,
     .family = F::embedding, .form = P::lookup, .gradient = OpKind::embedding_lookup_grad},
    {KIND(embedding_lookup_grad), .in = in("indices dy"), .out = out("gradients lookups?"), .flops = each<1>,
     .bytes = [](S s) { return s.bytes * (2 * elements(s) + 2 * s.k) + 4 * s.n; }, .family = F::embedding,
     .form = P::lookup},
    {KIND(table_update), .in = in("gradients lookups?"), .out = out("tables* states?*"),
     .flops = [](S s) { return (by_adam(s) ? 14 : 4) * s.m; },
     .bytes = [](S s) { return s.bytes * (by_adam(s) ? 7 : 3) * s.m; }, .family = F::optimizer,
     .issued = Issued::batched},
    {KIND(pooled_join), .in = in("pooled? bottom local?"), .out = out("vectors"), .flops = each<1>, .bytes = moved<2>,
     .gradient = OpKind::pooled_split},
    {KIND(pooled_split), .in = in("dvectors"), .out = out("gradients?* dbottom dlocal?"), .flops = each<1>,
     .bytes = moved<2>},
    {KIND(interaction_dot), .in = in("x"), .out = out("y"), .flops = [](S s) { return pairs(s) * 2 * s.m; },
     .bytes = [](S s) { return s.bytes * (s.m * s.n * (s.k + 1) + pairs(s)); }, .form = P::interaction,
     .gradient = OpKind::interaction_dot_grad},
    {KIND(interaction_dot_grad), .in = in("dy x"), .out = out("dx"), .flops = [](S s) { return pairs(s) * 4 * s.m; },
     .bytes = [](S s) { return s.bytes * (s.m * s.n * (2 * s.k + 1) + pairs(s)); }, .form = P::interaction},
    {KIND(cross), .in = in("x0 u x"), .out = out("y"), .flops = each<2>, .bytes = moved<4>,
     .gradient = OpKind::cross_grad},
    {KIND(cross_grad), .in = in("dy x0 u"), .out = out("du dx0+"), .flops = each<3>, .bytes = moved<6>},
    {KIND(click_loss), .in = in("logits labels"), .out = out("loss+"), .flops = [](S s) { return 8 * s.n; },
     .bytes = [](S s) { return 8 * s.n; }, .family = F::softmax, .gradient = OpKind::click_loss_grad},
    {KIND(click_loss_grad), .in = in("logits labels"), .out = out("dlogits"), .flops = [](S s) { return 8 * s.n; },
     .bytes = [](S s) { return 12 * s.n; }, .family = F::softmax, .loss_gradient = true},
    {KIND(encode_pooled), .in = in("pooled"), .out = out("encoded*"), .flops = flat<2>,
     .bytes = [](S s) { return (4 + s.k) * s.m; }, .types = Types::converts},
    {KIND(decode_pooled), .in = in("encoded"), .out = out("pooled*"), .flops = flat<2>,
     .bytes = [](S s) { return (4 + s.k) * s.m; }, .types = Types::converts},
    // -- latent attention
    {KIND(split_columns), .in = in("x"), .out = out("first others"), .flops = none, .bytes = columns_bytes,
     .gradient = OpKind::join_columns},
    {KIND(join_columns), .in = in("first others"), .out = out("x"), .flops = none, .bytes = columns_bytes,
     .gradient = OpKind::split_columns},
    {KIND(latent_pack), .in = in("q kv key"), .out = out("qkv"), .flops = none, .bytes = latent_bytes,
     .gradient = OpKind::latent_pack_grad},
    {KIND(latent_pack_grad), .in = in("dqkv"), .out = out("dq dkv dkey"),
     .flops = [](S s) { return all_heads(s) * static_cast<double>(s.op.rotary); }, .bytes = latent_bytes},
    {KIND(head_values), .in = in("y"), .out = out("values"), .flops = none,
     .bytes = [](S s) { return s.bytes * 2 * all_heads(s) * s.k; }, .gradient = OpKind::head_values_grad},
    {KIND(head_values_grad), .in = in("dvalues"), .out = out("dy"), .flops = none,
     .bytes = [](S s) { return s.bytes * all_heads(s) * (s.k + static_cast<double>(s.op.head_dim)); }},
    // -- Muon. What is no matrix moves as by AdamW.
    {KIND(muon_moments), .in = in("grad coefficient scaling?"), .out = out("momentum* direction"), .flops = flat<6>,
     .bytes = [](S s) { return (s.bytes + 12) * s.m; }, .family = F::optimizer, .issued = Issued::batched,
     .ranges = Ranges::treatment},
    {KIND(newton_schulz), .in = in("directions"), .out = out("direction* workspace"), .flops = newton_schulz_flops,
     .bytes = newton_schulz_bytes, .family = F::optimizer, .form = P::orthogonal, .issued = Issued::batched},
    {KIND(muon), .in = in("grad coefficient direction scaling?"), .out = out("param* momentum* second*? copy*?"),
     .flops = [](S s) { return 5 * s.m + 9 * s.k; },
     .bytes = [](S s) { return (4 + parameter_bytes(s, 3)) * s.m + (s.bytes + 16) * s.k; }, .family = F::optimizer,
     .issued = Issued::batched, .updates = true, .ranges = Ranges::treatment},
    // -- state spaces
    {KIND(causal_conv), .in = in("projected weight bias?"), .out = out("convolved"), .flops = conv_flops,
     .bytes = [](S s) { return s.bytes * 2 * convolved(s); }, .family = F::activation,
     .gradient = OpKind::causal_conv_grad, .run_by = RunBy::cpu},
    {KIND(causal_conv_grad), .in = in("dconvolved projected weight bias?"), .out = out("dprojected* dweight+ dbias?+"),
     .flops = conv_grad_flops, .bytes = [](S s) { return s.bytes * 3 * convolved(s); },
     .family = F::activation_grad, .issued = Issued::autograd, .run_by = RunBy::cpu},
    {KIND(state_scan), .in = in("convolved projected dt_bias a_log d"), .out = out("y"), .flops = scan_flops,
     .bytes = scan_bytes, .family = F::activation, .form = P::scanned, .gradient = OpKind::state_scan_grad,
     .run_by = RunBy::cpu},
    {KIND(state_scan_grad), .in = in("dy convolved projected dt_bias a_log d"),
     .out = out("dconvolved dprojected* ddt_bias+ da_log+ dd+ states"), .flops = scan_grad_flops,
     .bytes = scan_grad_bytes, .family = F::activation_grad, .form = P::scanned, .issued = Issued::autograd,
     .run_by = RunBy::cpu},
    {KIND(gated_norm), .in = in("y projected weight?"), .out = out("out rstd#?"),
     .flops = [](S s) { return 14 * inner(s); },
     .bytes = [](S s) { return s.bytes * 3 * inner(s) + 4 * s.n * static_cast<double>(s.op.ssm.norm_groups); },
     .family = F::normalisation, .gradient = OpKind::gated_norm_grad, .run_by = RunBy::cpu},
    {KIND(gated_norm_grad), .in = in("dout y projected weight? rstd?"), .out = out("dy dprojected* dweight+?"),
     .flops = [](S s) { return 24 * inner(s); },
     .bytes = [](S s) { return s.bytes * 5 * inner(s) + 4 * s.n * static_cast<double>(s.op.ssm.norm_groups); },
     .family = F::normalisation_grad, .issued = Issued::autograd, .run_by = RunBy::cpu},
    // -- an activation with parameters
    {KIND(xielu), .in = in("x positive negative"), .out = out("y"), .flops = forward<Activation::xielu>,
     .bytes = moved<2>, .family = F::activation, .gradient = OpKind::xielu_grad, .activation = true,
     .run_by = RunBy::cpu},
    {KIND(xielu_grad), .in = in("dy x positive negative"), .out = out("dx dpositive+ dnegative+"),
     .flops = backward<Activation::xielu>, .bytes = moved<3>, .family = F::activation_grad,
     .issued = Issued::autograd, .activation = true, .run_by = RunBy::cpu},
    // -- gated delta networks, and gates of attention
    {KIND(delta_rule), .in = in("convolved projected dt_bias a_log"), .out = out("y"), .flops = delta_flops,
     .bytes = delta_bytes, .family = F::activation, .form = P::scanned, .gradient = OpKind::delta_rule_grad,
     .run_by = RunBy::cpu},
    {KIND(delta_rule_grad), .in = in("dy convolved projected dt_bias a_log"),
     .out = out("dconvolved dprojected* ddt_bias+ da_log+ states"), .flops = delta_grad_flops,
     .bytes = delta_grad_bytes, .family = F::activation_grad, .form = P::scanned, .issued = Issued::autograd,
     .run_by = RunBy::cpu},
    {KIND(output_gate), .in = in("x g"), .out = out("y"), .flops = each<4>, .bytes = moved<3>,
     .family = F::activation, .gradient = OpKind::output_gate_grad, .run_by = RunBy::cpu},
    {KIND(output_gate_grad), .in = in("dy x g"), .out = out("dx dg"), .flops = each<8>, .bytes = moved<5>,
     .family = F::activation_grad, .issued = Issued::autograd, .run_by = RunBy::cpu},
    // -- attention that reads chosen tokens alone
    {KIND(choose_tokens), .in = in("queries keys weights?"), .out = out("choice"), .flops = choose_flops,
     .bytes = choose_bytes, .family = F::activation, .form = P::scanned, .gradient = OpKind::choose_tokens_grad,
     .run_by = RunBy::nothing},
    {KIND(choose_tokens_grad), .in = in("qkv saved choice queries keys weights?"),
     .out = out("dqueries dkeys dweights?"), .flops = choose_grad_flops, .bytes = choose_grad_bytes,
     .family = F::activation_grad, .form = P::scanned, .issued = Issued::autograd, .run_by = RunBy::nothing},
    // -- a gated short convolution
    {KIND(gated_conv), .in = in("projected weight"), .out = out("y"), .flops = gated_conv_flops, .bytes = moved<4>,
     .family = F::activation, .gradient = OpKind::gated_conv_grad, .run_by = RunBy::cpu},
    {KIND(gated_conv_grad), .in = in("dy projected weight"), .out = out("dprojected dweight+"),
     .flops = gated_conv_grad_flops, .bytes = moved<7>, .family = F::activation_grad, .issued = Issued::autograd,
     .run_by = RunBy::cpu},
    // -- lightning attention: three columns in and one out for each of a head
    {KIND(decayed_attention), .in = in("qkv"), .out = out("y"), .flops = scan_flops, .bytes = scan_bytes,
     .family = F::activation, .form = P::scanned, .gradient = OpKind::decayed_attention_grad, .run_by = RunBy::cpu},
    {KIND(decayed_attention_grad), .in = in("dy qkv"), .out = out("dqkv states"), .flops = scan_grad_flops,
     .bytes = scan_grad_bytes, .family = F::activation_grad, .form = P::scanned, .issued = Issued::autograd,
     .run_by = RunBy::cpu},
    // -- Mamba's first form: no products, so that bytes decide
    {KIND(selective_scan), .in = in("x dt b c dt_bias a_log d"), .out = out("y"), .flops = selective_flops,
     .bytes = [](S s) { return s.bytes * (3 * inner(s) + 2 * s.n * static_cast<double>(s.op.ssm.state)); },
     .family = F::activation, .form = P::scanned, .gradient = OpKind::selective_scan_grad, .run_by = RunBy::cpu},
    {KIND(selective_scan_grad), .in = in("dy x dt b c dt_bias a_log d"),
     .out = out("dx ddt db dc ddt_bias+ da_log+ dd+ workspace"), .flops = selective_grad_flops,
     .bytes = [](S s) {
       return s.bytes * (5 * inner(s) + 4 * s.n * static_cast<double>(s.op.ssm.state)) +
              8 * static_cast<double>(selective_workspace(s.op));
     },
     .family = F::activation_grad, .form = P::scanned, .issued = Issued::autograd, .run_by = RunBy::cpu},
    // -- a router's trained numbers
    {KIND(scale_choices), .in = in("weights choice scales"), .out = out("y"), .flops = chosen_values,
     .bytes = [](S s) { return 12 * chosen_values(s); }, .family = F::softmax,
     .gradient = OpKind::scale_choices_grad, .run_by = RunBy::cpu},
    {KIND(scale_choices_grad), .in = in("dy weights choice scales"), .out = out("dweights dscales+"),
     .flops = [](S s) { return 3 * chosen_values(s); }, .bytes = [](S s) { return 16 * chosen_values(s); },
     .family = F::softmax, .issued = Issued::autograd, .run_by = RunBy::cpu},
    // -- each layer's own input
    {KIND(layer_input), .out = out("x"), .flops = none, .bytes = moved<2>, .run_by = RunBy::nothing},
    {KIND(mix_streams), .in = in("x logits? bias? scales?"), .out = out("y weights?"), .flops = mix_flops,
     .bytes = [](S s) { return s.bytes * (s.k + 1) * elements(s); }, .family = F::activation,
     .gradient = OpKind::mix_streams_grad, .run_by = RunBy::nothing},
    {KIND(mix_streams_grad), .in = in("dy x logits bias scales dweights?"), .out = out("dx dlogits dbias+ dscales+"),
     .flops = [](S s) { return 2 * mix_flops(s); }, .bytes = [](S s) { return s.bytes * (2 * s.k + 1) * elements(s); },
     .family = F::activation_grad, .issued = Issued::autograd, .run_by = RunBy::nothing},
    {KIND(add_streams), .in = in("x? h weights?"), .out = out("y"),
     .flops = [](S s) { return 2 * (s.k + 1) * s.k * elements(s); },
     .bytes = [](S s) { return s.bytes * (2 * s.k + 1) * elements(s); }, .family = F::activation,
     .gradient = OpKind::add_streams_grad, .run_by = RunBy::nothing},
    {KIND(add_streams_grad), .in = in("dy x h weights"), .out = out("dx dh dweights"),
     .flops = [](S s) { return 4 * (s.k + 1) * s.k * elements(s); },
     .bytes = [](S s) { return s.bytes * (3 * s.k + 2) * elements(s); }, .family = F::activation_grad,
     .issued = Issued::autograd, .run_by = RunBy::nothing},
    {KIND(run_attention), .in = in("q key sinks runs? choice?"), .out = out("y saved#"), .flops = attention_flops,
     .bytes = attention_bytes, .form = P::attention, .gradient = OpKind::run_attention_grad,
     .run_by = RunBy::nothing},
    {KIND(run_attention_grad), .in = in("dy y saved q key sinks runs? choice?"), .out = out("dq dkey dsinks+ druns?"),
     .flops = attention_grad_flops, .bytes = attention_grad_bytes, .form = P::attention, .issued = Issued::autograd,
     .run_by = RunBy::nothing},
    {KIND(pool_runs), .in = in("x gates bias"), .out = out("y"), .flops = [](S s) { return 6 * s.k * elements(s); },
     .bytes = [](S s) { return s.bytes * (2 * s.k + 1.0 / static_cast<double>(s.op.run)) * elements(s); },
     .family = F::activation, .gradient = OpKind::pool_runs_grad, .run_by = RunBy::nothing},
    {KIND(pool_runs_grad), .in = in("dy x gates bias"), .out = out("dx dgates dbias+"),
     .flops = [](S s) { return 12 * s.k * elements(s); },
     .bytes = [](S s) { return s.bytes * (4 * s.k + 1.0 / static_cast<double>(s.op.run)) * elements(s); },
     .family = F::activation_grad, .issued = Issued::autograd, .run_by = RunBy::nothing},
    {KIND(scale_columns), .in = in("x"), .out = out("y*"), .flops = each<1>, .bytes = moved<2>,
     .gradient = OpKind::scale_columns, .run_by = RunBy::cpu},
}};

#undef KIND
// clang-format on

namespace {

// A kind without a row, a row twice or in another place: none compiles.
consteval bool complete() {
  for (std::size_t i = 0; i < kOpKinds; ++i)
    if (static_cast<std::size_t>(kOperators[i].kind) != i || !kOperators[i].flops || !kOperators[i].bytes) return false;
  return true;
}
static_assert(complete(), "each kind of operator has its row, in the order of OpKind");

consteval bool alone_as_listed() {
#define ORRERY_KIND(kind) OpKind::kind,
  constexpr OpKind kListed[] = {ORRERY_CPU_ALONE(ORRERY_KIND)};
#undef ORRERY_KIND
  for (const OpKind kind : kListed)
    if (kOperators[static_cast<std::size_t>(kind)].run_by != RunBy::cpu) return false;
  return true;
}
static_assert(alone_as_listed(), "the rows of what ORRERY_CPU_ALONE lists say so, too");

consteval bool predicted_as_listed() {
#define ORRERY_KIND(kind) OpKind::kind,
  constexpr OpKind kListed[] = {ORRERY_PREDICTED_ALONE(ORRERY_KIND)};
#undef ORRERY_KIND
  for (const OpKind kind : kListed)
    if (kOperators[static_cast<std::size_t>(kind)].run_by != RunBy::nothing) return false;
  return true;
}
static_assert(predicted_as_listed(), "the rows of what ORRERY_PREDICTED_ALONE lists say so, too");

}  // namespace

double flops_of(const Op& op, bool full_attention_matrix) {
  return traits_of(op).flops(CountedOp(op, full_attention_matrix));
}

double bytes_of(const Op& op) {
  return traits_of(op).bytes(CountedOp(op));
}

const char* name_of(OpKind kind) {
  return traits_of(kind).name;
}

bool updates_parameters(OpKind kind) {
  return traits_of(kind).updates;
}

Function function_of(const Op& op) {
  const Function own = traits_of(op).function;
  return own != Function::none ? own : op.function;
}

std::vector<std::size_t> writable_sums(const Op& op) {
  std::vector<std::size_t> sums;
  if (!op.accumulate) return sums;
  const Operands& out = traits_of(op).out;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].use == Use::sums && (!out[i].optional || i < op.out.size())) sums.push_back(i);
  return sums;
}

bool only_writes(const Op& op, std::size_t output) {
  const Operands& out = traits_of(op).out;
  if (output >= out.size()) return false;
  const Use use = out[output].use;
  return use == Use::writes || ((use == Use::adds_if || use == Use::sums) && !op.accumulate);
}

bool is_statistic(const Op& op, std::size_t output) {
  const Operands& out = traits_of(op).out;
  return output < out.size() && out[output].statistic && (!attends(op) || op.flash);
}

namespace {

std::string side_fault(const Op& op, const std::vector<int>& given, const Operands& row, std::size_t more,
                       const char* side) {
  if (given.size() > row.size() + more)
    return fmt::format("{} has {} {}s where its row has {}", name_of(op.kind), given.size(), side, row.size() + more);
  for (std::size_t i = 0; i < row.size(); ++i)
    if (!row[i].optional && (i >= given.size() || given[i] < 0))
      return fmt::format("{} has no {} {}", name_of(op.kind), side, row[i].name);
  return {};
}

}  // namespace

std::string operand_fault(const Op& op) {
  const OperatorTraits& traits = traits_of(op);
  const bool slots = op.slots > 0;
  if (slots ? traits.in_slots == InSlots::never : traits.in_slots == InSlots::always)
    return fmt::format("{} stands in {} slots", name_of(op.kind), op.slots);
  const std::size_t counts = slots && traits.in_slots == InSlots::may ? 1 : 0;
  std::string fault = side_fault(op, op.in, traits.in, counts, "input");
  return fault.empty() ? side_fault(op, op.out, traits.out, 0, "output") : fault;
}

std::optional<std::size_t> loss_scale_operand(const Op& op) {
  const bool balances = op.kind == OpKind::route_grad && (op.routing.aux > 0 || op.routing.z > 0);
  if (!traits_of(op).loss_gradient && !balances) return std::nullopt;
  const Operands& in = traits_of(op).in;
  for (std::size_t i = 0; i < in.size(); ++i)
    if (in[i].name == "scaling") return i;
  return std::nullopt;
}

OpKind gradient_of(OpKind kind) {
  const std::optional<OpKind>& gradient = traits_of(kind).gradient;
  ENSURE(gradient.has_value(), "{} has no gradient", name_of(kind));
  return *gradient;
}

std::optional<OpKind> op_kind(std::string_view name) {
  for (const OperatorTraits& one : kOperators)
    if (one.name == name) return one.kind;
  return std::nullopt;
}

}  // namespace orrery::models
