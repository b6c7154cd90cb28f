// Exceptions at the library's border: what a callback of the program throws goes no further, since
// beyond it lie coroutines, which no exception leaves, and operations that are half done.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace pando {

// What it says of itself.
inline std::string DescribeThrown(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "it is not a std::exception";
  }
}

// Calls `callback()`. Set: it has thrown, and what it threw says this. Nothing suspends in here but
// the callback itself: who handles an exception may not (Session::Spawn()).
template <typename Callback>
std::optional<std::string> CallContained(Callback&& callback) {
  try {
    std::forward<Callback>(callback)();
    return std::nullopt;
  } catch (...) {
    return DescribeThrown(std::current_exception());
  }
}

}  // namespace pando
