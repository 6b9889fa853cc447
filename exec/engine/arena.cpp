// Hands out instances of buffers, takes them back, and keeps the books.
#include "exec/engine/arena.h"

#include <algorithm>
#include <cstring>

#include "base/ensure.h"
#include "plan/schedule/asynchronous.h"

namespace orrery::exec {

Arena::Arena(Backend& backend, const plan::RankClass& rank_class, const plan::Placement& placement, Check check,
             const Arena* beside, const std::string& state_file)
    : backend_(backend), class_(rank_class), placement_(placement), check_(check) {
  micro_batches_ = plan::micro_batches_of(class_);
  steps_in_flight_ = plan::steps_in_flight(class_);
  std::size_t slots = 0;
  for (const plan::Buffer& buffer : class_.buffers) {
    first_slot_.push_back(slots);
    slots += static_cast<std::size_t>(buffer.per_micro_batch ? micro_batches_ * steps_in_flight_ : buffer.versions);
  }
  instances_.resize(slots);
  if (beside != nullptr) {
    bases_ = beside->bases_;
    files_ = beside->files_;
  } else {
    bases_[index(plan::Space::device)] = backend_.allocate_arena(placement_.arena_bytes);
    if (placement_.host.arena_bytes > 0)
      bases_[index(plan::Space::host)] = backend_.allocate_host(placement_.host.arena_bytes);
    if (placement_.nvme.arena_bytes > 0) {
      own_files_ = std::make_unique<StateFile>(state_file, placement_.nvme.arena_bytes);
      files_ = own_files_.get();
      bases_[index(plan::Space::nvme)] = files_->address();
    }
  }
  for (const plan::BufferId buffer : class_.buffers.keys()) {
    if (!class_.buffers[buffer].persistent) continue;
    const std::int64_t rounded =
        (class_.buffers[buffer].bytes() + plan::kAlignment - 1) / plan::kAlignment * plan::kAlignment;
    for (int version = 0; version < class_.buffers[buffer].versions; ++version)
      hand_out(slot(buffer, {-1, version}), buffer, placement_.persistent.at(buffer.index()) + version * rounded,
               rounded, beside == nullptr);
  }
}

void Arena::begin_step() {
  cursor_ = 0;
  if (check_ == Check::none || steps_in_flight_ > 1) return;
  for (std::size_t i = 0; i < class_.buffers.size(); ++i)
    for (std::size_t s = first_slot_[i]; s < (i + 1 < first_slot_.size() ? first_slot_[i + 1] : instances_.size()); ++s)
      ENSURE(class_.buffers[i].persistent || instances_[s].offset < 0, "buffer {} outlived the training step",
             class_.buffers[i].name);
}

std::size_t Arena::slot(plan::BufferId buffer, const Instance& of) const {
  const std::size_t i = buffer.index();
  ENSURE(i < class_.buffers.size(), "buffer {} of {}", buffer, class_.buffers.size());
  if (!class_.buffers[i].per_micro_batch)
    return first_slot_[i] + static_cast<std::size_t>(of.step % class_.buffers[i].versions);
  ENSURE(of.micro_batch >= 0 && of.micro_batch < micro_batches_, "micro-batch {} of {} for buffer {}", of.micro_batch,
         micro_batches_, class_.buffers[i].name);
  return first_slot_[i] + static_cast<std::size_t>(of.step % steps_in_flight_ * micro_batches_ + of.micro_batch);
}

plan::Placed Arena::placed(plan::StepRef at, plan::BufferId buffer) {
  const auto& births = placement_.births;
  while (cursor_ < births.size() && births[cursor_].at < at) ++cursor_;
  for (std::size_t i = cursor_; i < births.size(); ++i)
    if (const plan::Placed place = births[i]; !(place.at == at))
      break;
    else if (place.buffer == buffer)
      return place;
  ENSURE(false, "no place for buffer {} at entry {} step {}", class_.buffers[buffer].name, at.entry, at.step);
}

std::int64_t Arena::offset_of(const plan::Placed& place, const Instance& of) const {
  return place.ring == 1 ? place.offset
                         : place.offset + (of.step * micro_batches_ + of.micro_batch) % place.ring * place.stride;
}

std::byte* Arena::birthplace(plan::StepRef at, plan::BufferId buffer, const Instance& of) {
  return base(space_of(buffer)) + offset_of(placed(at, buffer), of);
}

void Arena::birth(plan::StepRef at, plan::BufferId buffer, const Instance& of, bool may_poison) {
  const plan::Placed place = placed(at, buffer);
  hand_out(slot(buffer, of), buffer, offset_of(place, of), place.bytes, may_poison);
}

void Arena::hand_out(std::size_t slot, plan::BufferId buffer, std::int64_t offset, std::int64_t bytes,
                     bool may_poison) {
  Held& instance = instances_[slot];
  const std::string& name = class_.buffers[buffer].name;
  ENSURE(instance.offset < 0, "buffer {} is born twice", name);
  const plan::Space space = space_of(buffer);
  ENSURE(offset >= 0 && offset + bytes <= placement_.arena_bytes_of(space) && bytes >= class_.buffers[buffer].bytes(),
         "buffer {} at {} + {} leaves the arena of {}", name, offset, bytes, placement_.arena_bytes_of(space));
  if (check_ != Check::none) check_overlap(buffer, offset, bytes);
  instance = {offset, bytes};
  ArenaUse& use = uses_[index(space)];
  use.current += bytes;
  use.peak_live = std::max(use.peak_live, use.current);
  use.peak_extent = std::max(use.peak_extent, offset + bytes);
  ++use.births;
  if (check_ == Check::overlaps_and_poison && may_poison && bytes > 0) poison(space, offset, bytes);
}

void Arena::check_overlap(plan::BufferId buffer, std::int64_t offset, std::int64_t bytes) const {
  for (std::size_t i = 0; i < class_.buffers.size(); ++i) {
    if (class_.buffers[i].space != space_of(buffer)) continue;
    for (std::size_t s = first_slot_[i]; s < (i + 1 < first_slot_.size() ? first_slot_[i + 1] : instances_.size()); ++s)
      ENSURE(instances_[s].offset < 0 || instances_[s].offset >= offset + bytes ||
                 instances_[s].offset + instances_[s].bytes <= offset,
             "buffer {} would overlap living buffer {}", class_.buffers[buffer].name, class_.buffers[i].name);
  }
}

void Arena::poison(plan::Space space, std::int64_t offset, std::int64_t bytes) {
  if (space == plan::Space::nvme) return;
  if (space == plan::Space::host) {
    std::memset(base(space) + offset, 0xff, static_cast<std::size_t>(bytes));
    return;
  }
  const std::vector<std::byte> chunk(static_cast<std::size_t>(std::min<std::int64_t>(bytes, 1 << 16)), std::byte{0xff});
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(chunk.size())) {
    const auto part =
        static_cast<std::size_t>(std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(chunk.size())));
    backend_.copy_to_device(base() + offset + at, {chunk.data(), part});
  }
}

void Arena::death(plan::BufferId buffer, const Instance& of) {
  Held& instance = instances_[slot(buffer, of)];
  ENSURE(instance.offset >= 0, "buffer {} dies unborn", class_.buffers[buffer].name);
  uses_[index(space_of(buffer))].current -= instance.bytes;
  instance = {};
}

std::byte* Arena::data(plan::BufferId buffer, const Instance& of) const {
  const Held& instance = instances_[slot(buffer, of)];
  ENSURE(instance.offset >= 0, "buffer {} is used while it does not live", class_.buffers[buffer].name);
  return base(space_of(buffer)) + instance.offset;
}

bool Arena::alive(plan::BufferId buffer, const Instance& of) const {
  return instances_[slot(buffer, of)].offset >= 0;
}

std::int64_t Arena::bytes(plan::BufferId buffer) const {
  return class_.buffers[buffer].bytes();
}

std::vector<std::int64_t> Arena::rings() const {
  std::vector<std::int64_t> out;
  placement_.births.each_kind([&](const plan::Placed& place, std::int64_t, const auto&) { out.push_back(place.ring); });
  return out;
}

bool Arena::resting() const {
  for (std::size_t i = 0; i < class_.buffers.size(); ++i)
    for (std::size_t s = first_slot_[i]; s < (i + 1 < first_slot_.size() ? first_slot_[i + 1] : instances_.size()); ++s)
      if (!class_.buffers[i].persistent && instances_[s].offset >= 0) return false;
  return true;
}

}  // namespace orrery::exec
