#include "tf_rdmabatch/cc/engine/round_times.h"

#include <algorithm>

namespace rdmabatch {
namespace {

// The earliest that there is; 0 where there is none.
int64_t BeginOf(const Round& round) {
  int64_t earliest = 0;
  for (const int64_t begin :
       {round.pull_begin, round.push_begin, round.publish_begin, round.collect_begin}) {
    if (begin != 0 && (earliest == 0 || begin < earliest)) earliest = begin;
  }
  return earliest;
}

int64_t EndOf(const Round& round) {
  return std::max({round.pull_end, round.compute_end, round.push_end, round.publish_end,
                   round.collect_end, round.update_end});
}

// Without the wait in between; 0 where one of the two is not known.
int64_t Between(int64_t begin, int64_t end, int64_t wait = 0) {
  return begin == 0 || end == 0 ? 0 : std::max<int64_t>(0, end - begin - wait);
}

}  // namespace

RoundTimes::Op RoundTimes::Push(uint64_t step, int64_t micro_step, int64_t micro_steps) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t number = RoundOf(0, step);
  Round& round = At(number).round;
  if (micro_steps == 0 && round.micro_steps > 0) return {this, Kind::kNothing, number};
  const int64_t now = now_();
  if (micro_steps > 0) {
    round.micro_steps = micro_steps;
    if (static_cast<size_t>(micro_step) < Round::kMicroSteps) {
      round.micro_step_end[micro_step] = now;
    }
    round.compute_end = now;
  }
  if (micro_step + 1 >= micro_steps) {
    if (round.push_begin == 0) round.push_begin = now;
    // The worker was still computing: nobody waited.
    round.push_wait = 0;
  }
  return {this, Kind::kPush, number};
}

RoundTimes::Op RoundTimes::Begin(Kind kind, uint64_t version, uint64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t number = RoundOf(version, step);
  Entry& entry = At(number);
  const int64_t now = now_();
  int64_t& begin = kind == Kind::kPull      ? entry.round.pull_begin
                   : kind == Kind::kPublish ? entry.round.publish_begin
                                            : entry.round.collect_begin;
  if (begin == 0) begin = now;
  AddWait(&entry, kind, 1, 0, now);
  return {this, kind, number};
}

void RoundTimes::Change(const Op& op, int active, int blocked) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (IsOpen(op.round_)) AddWait(&At(op.round_), op.kind_, active, blocked, now_());
}

void RoundTimes::End(const Op& op) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!IsOpen(op.round_)) return;
  Entry& entry = At(op.round_);
  Round& round = entry.round;
  const int64_t now = now_();
  AddWait(&entry, op.kind_, -1, 0, now);
  switch (op.kind_) {
    case Kind::kPull:
      round.pull_end = now;
      break;
    case Kind::kPublish:
      round.publish_end = now;
      break;
    case Kind::kCollect:
      round.collect_end = now;
      break;
    case Kind::kNothing:
      break;
    case Kind::kPush:
      if (round.push_begin == 0) break;  // an earlier micro-step
      round.push_end = now;
      // Several connections may have waited at the same time.
      round.push_wait =
          std::min(round.push_wait, now - std::max(round.compute_end, round.push_begin));
  }
}

void RoundTimes::WaitedForRoom(int64_t nanoseconds) {
  if (nanoseconds == 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (begun_ > 0) At(begun_ - 1).round.push_wait += nanoseconds;
}

void RoundTimes::Updated(uint64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t number = Find(0, step);
  if (number < begun_) At(number).round.update_end = now_();
}

void RoundTimes::AddWait(Entry* entry, Kind kind, int active, int blocked, int64_t now) {
  if (kind != Kind::kPull && kind != Kind::kCollect) return;
  const bool pull = kind == Kind::kPull;
  Pending& pending = pull ? entry->pulls : entry->collections;
  int64_t& wait = pull ? entry->round.pull_wait : entry->round.collect_wait;
  if (pending.blocked > 0 && pending.active == 0) wait += now - pending.since;
  pending.active += active;
  pending.blocked += blocked;
  pending.since = now;
}

uint64_t RoundTimes::Find(uint64_t version, uint64_t step) const {
  for (uint64_t number = begun_; number > 0 && IsOpen(number - 1); --number) {
    const Round& round = At(number - 1).round;
    const bool same = version != 0 ? round.version == static_cast<int64_t>(version)
                                   : round.step == static_cast<int64_t>(step);
    if (same) return number - 1;
  }
  return begun_;
}

uint64_t RoundTimes::RoundOf(uint64_t version, uint64_t step) {
  if (begun_ > 0) {
    Round& last = At(begun_ - 1).round;
    // Versions and steps are numbers of their own: what comes second joins what came first. A
    // server may begin to collect before it publishes, and a worker that has nothing to push may
    // have done so before it pulls.
    const bool joins =
        version != 0
            ? last.version == 0 && (EndOf(last) == 0 || last.step == static_cast<int64_t>(version))
            : last.step == 0;
    if (joins) {
      (version != 0 ? last.version : last.step) = static_cast<int64_t>(version + step);
      return begun_ - 1;
    }
    const uint64_t known = Find(version, step);
    if (known < begun_) return known;
  }
  if (begun_ >= kOpen) Add(At(begun_ - kOpen).round, &ended_, &totals_);
  Entry& entry = At(begun_);
  entry = {};
  entry.round.version = static_cast<int64_t>(version);
  entry.round.step = static_cast<int64_t>(step);
  return begun_++;
}

void RoundTimes::Add(const Round& round, int64_t* ended, RoundTotals* totals) {
  const int64_t computed = std::max(round.compute_end, round.push_begin);
  totals->rounds += 1;
  totals->micro_steps += round.micro_steps;
  totals->pull_ns += Between(round.pull_begin, round.pull_end, round.pull_wait);
  totals->compute_ns += Between(round.pull_end, round.compute_end);
  totals->push_ns += Between(computed, round.push_end, round.push_wait);
  totals->publish_ns += Between(round.publish_begin, round.publish_end);
  totals->collect_ns += Between(round.collect_begin, round.collect_end, round.collect_wait);
  totals->update_ns += Between(round.collect_end, round.update_end);
  totals->wait_ns += round.pull_wait + round.push_wait + round.collect_wait;
  totals->idle_ns += Between(*ended, BeginOf(round));
  *ended = EndOf(round);
}

RoundTotals RoundTimes::totals() const {
  std::lock_guard<std::mutex> lock(mutex_);
  RoundTotals totals = totals_;
  int64_t ended = ended_;
  for (uint64_t number = begun_ - std::min<uint64_t>(begun_, kOpen); number < begun_; ++number) {
    Add(kept_[number % kKept].round, &ended, &totals);
  }
  return totals;
}

Round RoundTimes::Of(uint64_t number) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (number == 0) return {};
  for (const uint64_t found : {Find(number, 0), Find(0, number)}) {
    if (found < begun_) return At(found).round;
  }
  return {};
}

std::vector<Round> RoundTimes::Last(size_t count) const {
  std::lock_guard<std::mutex> lock(mutex_);
  count = std::min({count, kKept, static_cast<size_t>(begun_)});
  std::vector<Round> rounds;
  rounds.reserve(count);
  for (uint64_t i = begun_ - count; i < begun_; ++i) rounds.push_back(kept_[i % kKept].round);
  return rounds;
}

}  // namespace rdmabatch
