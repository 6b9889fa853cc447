// Lowers tables outside the device's memory, and the copies of their rows.
#include "plan/lower/cached_tables.h"

#include <array>
#include <string>

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

constexpr std::array<Space, 2> kFar = {Space::host, Space::nvme};

/// Copies rows from and to one memory.
class Fetching {
 public:
  Fetching(ClassBuilder& build, const TableLayout& layout, const PlanSpec& spec, Space space,
           std::vector<BufferId>& until)
      : build_(build),
        class_(build.result()),
        spec_(spec),
        far_(layout.far[static_cast<std::size_t>(space)]),
        space_(space),
        until_(until) {}

  /// Lists of rows to fetch and to write back: two words per row, after their number.
  std::array<int, 2> lists() {
    const std::string name = name_of(space_);
    const std::int64_t words = 1 + 2 * far_.moved_rows;
    fetched_ = keep(build_.buffer(name + ".fetched", Purpose::communication, DType::int32, words));
    written_ = keep(build_.buffer(name + ".written", Purpose::communication, DType::int32, words));
    return {view(fetched_), view(written_)};
  }
  void copies() {
    for (const bool states : {false, true}) move(written_, false, states);
    for (const bool states : {false, true}) move(fetched_, true, states);
  }

 private:
  BufferId keep(BufferId buffer) {
    until_.push_back(buffer);
    return buffer;
  }
  int view(BufferId buffer) { return build_.view(build_.whole(buffer)); }

  void move(BufferId list, bool to_device, bool states) {
    const RankClass::FarTables& far = class_.far[static_cast<std::size_t>(space_)];
    const BufferId there = states ? far.states : far.values, here = states ? class_.table_states : class_.tables;
    if (!there) return;
    const std::int64_t elements =
        states ? traits_of(spec_.states.optimizer).table_states.of(far_.moved_rows, far_.moved_elements)
               : far_.moved_elements;
    const DType type = class_.buffers[there].dtype;
    RowMove rows{view(list), RowsAt::far, RowsAt::cache, space_, states, far_.expected};
    const auto part = [&](BufferId buffer) { return View{buffer, 0, elements}; };
    const auto copy = [&](Stream stream, RowsAt from, RowsAt to, BufferId source, BufferId target, double more) {
      RowMove one = rows;
      one.from = from, one.to = to;
      one.expected *= more;
      build_.copy_rows(Phase::forward, stream, part(source), part(target), one);
    };
    if (space_ == Space::host)
      return to_device ? copy(Stream::from_host, RowsAt::far, RowsAt::cache, there, here, 1)
                       : copy(Stream::to_host, RowsAt::cache, RowsAt::far, here, there, 1);
    Buffer waiting{.name = std::string(to_device ? "nvme.in" : "nvme.out") + (states ? ".states" : "")};
    waiting.purpose = Purpose::communication;
    waiting.dtype = type;
    waiting.elements = elements;
    waiting.space = Space::host;
    const BufferId between = keep(class_.buffers.append(std::move(waiting)));
    const double pages = page_share(elements * models::size_of(type));
    if (to_device) {
      copy(Stream::from_nvme, RowsAt::far, RowsAt::packed, there, between, pages);
      copy(Stream::from_host, RowsAt::packed, RowsAt::cache, between, here, 1);
    } else {
      copy(Stream::to_host, RowsAt::cache, RowsAt::packed, here, between, 1);
      copy(Stream::to_nvme, RowsAt::packed, RowsAt::far, between, there, pages);
    }
  }
  // Drives read and write whole 4 KiB blocks: the factor by which a step moves more bytes than its rows have.
  [[nodiscard]] double page_share(std::int64_t bytes) const {
    constexpr double kPage = 4096;
    const double row = static_cast<double>(bytes) / static_cast<double>(far_.moved_rows);
    return row < kPage ? kPage / row : 1;
  }

  ClassBuilder& build_;
  RankClass& class_;
  const PlanSpec& spec_;
  const TableLayout::Far& far_;
  Space space_;
  std::vector<BufferId>& until_;
  BufferId fetched_, written_;
};

}  // namespace

void declare_far_tables(ClassBuilder& build, const TableLayout& layout, const PlanSpec& spec) {
  RankClass& c = build.result();
  const TableStates& kept = traits_of(spec.states.optimizer).table_states;
  const bool states = c.table_states.exists();
  const auto buffer = [&](std::string name, Purpose purpose, DType type, std::int64_t elements, Space space) {
    const BufferId made = build.buffer(std::move(name), purpose, type, elements, true);
    c.buffers[made].space = space;
    return made;
  };
  for (const Space space : kFar) {
    const TableLayout::Far& far = layout.far[static_cast<std::size_t>(space)];
    if (far.elements == 0) continue;
    const std::string name = std::string("tables.") + name_of(space);
    RankClass::FarTables& mine = c.far[static_cast<std::size_t>(space)];
    mine.values = buffer(name, Purpose::parameters, dtype_of(spec.embedding.stored), far.elements, space);
    if (states)
      mine.states =
          buffer(name + ".states", Purpose::optimizer_states, DType::fp32, kept.of(far.rows, far.elements), space);
  }
  c.cache = build.buffer("tables.books", Purpose::scalars, DType::int32, layout.most_book, true);
}

BufferId fetch_rows(ClassBuilder& build, const TableLayout& layout, const PlanSpec& spec, const LookedUp& looked_up,
                    std::vector<BufferId>& until) {
  const auto view = [&](BufferId buffer) { return build.view(build.whole(buffer)); };
  const std::int64_t room = build.whole(looked_up.bags).elements;
  const BufferId places = build.buffer("places", Purpose::communication, DType::int32, room);
  std::vector<Fetching> fetching;
  std::vector<int> out = {view(build.result().cache), view(places)};
  for (const Space space : kFar) {
    if (layout.far[static_cast<std::size_t>(space)].elements == 0) {
      out.insert(out.end(), {-1, -1});
      continue;
    }
    fetching.emplace_back(build, layout, spec, space, until);
    const auto lists = fetching.back().lists();
    out.insert(out.end(), lists.begin(), lists.end());
  }
  Op op = ClassBuilder::flat(OpKind::cache_rows, DType::fp32, layout.heaviest().width,
                             {view(looked_up.lengths), view(looked_up.bags)}, std::move(out));
  op.n = layout.heaviest().count;
  op.accumulate = looked_up.changes;
  build.compute(Phase::forward, "cache", {std::move(op)});
  for (Fetching& one : fetching) one.copies();
  return places;
}

}  // namespace orrery::plan
