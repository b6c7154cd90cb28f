// How a member that has too much to do spreads it over the others (rule O13): which range goes, and
// to whom. Pure.
//
// Invariants:
//   1. A member at or below the mean gives nothing; a giver keeps, and a taker has, at most kFits -
//      1 of what was given beyond the mean, as far as loads are known. So nothing goes back and
//      forth while loads stay as they are.
//   2. Nothing goes before the same was to be done kRoundsDue times in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pando {

struct SpreadRange {
  double operations_per_s = 0;
  bool may_go = true;  // it has been here for a while
  bool may_split = true;
};

struct SpreadStep {
  enum class Kind : uint8_t { kNothing, kGive, kSplit };
  Kind kind = Kind::kNothing;
  size_t range = 0;  // of the own ones
  size_t to = 0;     // of the others
  double share = 0;  // kSplit: of the range's operations, that one part should have
};

class SpreadPlan {
 public:
  // Of the mean. What members are held to is a quarter: a plan that aims at its edge misses it.
  static constexpr double kTooMuch = 1.2, kTooLittle = 0.8;
  static constexpr double kFits = 1.15;   // of what should go
  static constexpr double kWorth = 0.04;  // of the mean: less is not worth a move
  static constexpr int kRoundsDue = 3;
  // A mean that is less is no load.
  static constexpr double kOperationsMin = 100;

  // Once a round. Whether Next() is to be followed in this one.
  bool IsDue(double own, const std::vector<double>& others);
  // `own`: of the member, also in other trees. `dice` in [0, 1): who gets it among those that have
  // too little, so that several givers do not choose the same one.
  static SpreadStep Next(double own, const std::vector<SpreadRange>& ranges,
                         const std::vector<double>& others, double dice);

 private:
  int rounds_ = 0;
};

}  // namespace pando
