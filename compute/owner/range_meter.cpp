#include "compute/owner/range_meter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"

namespace pando {
namespace {

// How much of the rate is what was counted since the last tick.
constexpr double kNewest = 0.5;

}  // namespace

void RangeMeter::Add(std::string_view key) {
  if (samples_ == nullptr || key.size() > samples_->keys[0].key.size()) return;
  Sampled& sampled = samples_->keys[samples_->next];
  sampled.bytes = static_cast<uint8_t>(key.size());
  std::memcpy(sampled.key.data(), key.data(), key.size());
  samples_->next = (samples_->next + 1) % kSamples;
  samples_->count = std::min(samples_->count + 1, kSamples);
}

void RangeMeter::Sample(std::string_view key) {
  until_sample_ = 1 + SplitMix64(&dice_) % (2 * sample_every_);
  Add(key);
}

void RangeMeter::Tick(int64_t now_ns) {
  if (samples_ == nullptr && operations_ > 0) samples_ = std::make_unique<Samples>();
  // Two ticks fill the samples: they are of what is used now.
  sample_every_ = std::max<uint64_t>(1, operations_ / (kSamples / 2));
  if (samples_ != nullptr) until_sample_ = std::min(until_sample_, sample_every_);
  if (last_tick_ns_ != 0 && now_ns > last_tick_ns_) {
    const double seconds = static_cast<double>(now_ns - last_tick_ns_) / kSecondNs;
    rate_ += (static_cast<double>(operations_) / seconds - rate_) * kNewest;
  }
  last_tick_ns_ = now_ns;
  operations_ = 0;
}

std::optional<RangeMeter::Border> RangeMeter::ChooseBorder(std::string_view low,
                                                           double share) const {
  if (samples_ == nullptr || samples_->count < kSamplesMin) return std::nullopt;
  std::vector<std::string_view> keys;
  for (size_t i = 0; i < samples_->count; ++i) keys.push_back(samples_->keys[i].view());
  std::sort(keys.begin(), keys.end());
  std::optional<Border> best;
  double best_miss = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    if (keys[i] == keys[i - 1] || keys[i] <= low) continue;
    const double below = static_cast<double>(i) / static_cast<double>(keys.size());
    const double miss = std::min(std::abs(below - share), std::abs(1 - below - share));
    if (best.has_value() && miss >= best_miss) continue;
    best = {std::string(keys[i]), below};
    best_miss = miss;
  }
  return best;
}

void RangeMeter::DivideAt(const std::string& border, RangeMeter* lower, RangeMeter* upper) const {
  for (RangeMeter* const part : {lower, upper}) {
    part->last_tick_ns_ = last_tick_ns_;
    part->sample_every_ = sample_every_;
  }
  if (samples_ == nullptr || samples_->count == 0) {
    lower->rate_ = upper->rate_ = rate_ / 2;
    return;
  }
  size_t below = 0;
  for (RangeMeter* const part : {lower, upper}) {
    part->samples_ = std::make_unique<Samples>();
    part->until_sample_ = sample_every_;
  }
  for (size_t i = 0; i < samples_->count; ++i) {
    const std::string_view key = samples_->keys[i].view();
    const bool is_below = key < border;
    below += is_below ? 1 : 0;
    (is_below ? lower : upper)->Add(key);
  }
  const double share = static_cast<double>(below) / static_cast<double>(samples_->count);
  lower->rate_ = rate_ * share;
  upper->rate_ = rate_ * (1 - share);
}

}  // namespace pando
