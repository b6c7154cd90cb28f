// An executor's answers as values that a program can wait for, or continue from.
//
//   pando::Future<pando::OperationResult> answer =
//       pando::SubmitFuture(*executor, *tree, {.key = "key"});
//   ...
//   pando::OperationResult result = std::move(answer).Get();  // waits
//
//   pando::Future<absl::StatusOr<int64_t>> number =
//       pando::SubmitFuture(*executor, *tree, {.key = "n"})
//           .Then([](pando::OperationResult result) -> absl::StatusOr<int64_t> {
//             if (!result.status.ok()) return result.status;
//             return pando::ParseInt64Value(result.value).value_or(0);
//           });
//
// Nothing here throws. The answer (T) itself carries the error: absl::Status, absl::StatusOr,
// OperationResult.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pando/executor.h"

namespace pando {

template <typename T>
class Future;

namespace future_internal {

// Shared by a promise and its future.
template <typename T>
struct State {
  std::mutex mutex;
  std::condition_variable is_ready;
  std::optional<T> value;
  std::function<void(T)> next;  // the continuation; called once
};

// An answer that carries only this error.
template <typename T>
T Failed(absl::Status status) {
  if constexpr (std::is_same_v<T, OperationResult>) {
    OperationResult result;
    result.status = std::move(status);
    return result;
  } else {
    static_assert(std::is_constructible_v<T, absl::Status>,
                  "an answer is an absl::Status, an absl::StatusOr or an OperationResult");
    return T(std::move(status));
  }
}

// `function(value)`. Turns an exception into an error, so that none gets into a worker's thread.
template <typename U, typename Function, typename T>
U Contained(Function& function, T value) {
#ifdef __cpp_exceptions
  try {
    return function(std::move(value));
  } catch (const std::exception& error) {
    return Failed<U>(absl::InternalError(std::string("a continuation threw: ") + error.what()));
  } catch (...) {
    return Failed<U>(absl::InternalError("a continuation threw, but not a std::exception"));
  }
#else
  return function(std::move(value));
#endif
}

template <typename U>
struct IsFuture : std::false_type {};
template <typename U>
struct IsFuture<Future<U>> : std::true_type {
  using Answer = U;
};

}  // namespace future_internal

// An answer that may not be there yet. Move-only; do not use it after a move. Not thread-safe: one
// thread at a time. Dropping it does not cancel the operation.
template <typename T>
class [[nodiscard]] Future {
 public:
  Future(Future&&) noexcept = default;
  Future& operator=(Future&&) noexcept = default;

  bool ready() const {
    std::lock_guard lock(state_->mutex);
    return state_->value.has_value();
  }
  // Waits. False: the time passed first; milliseconds::max() does not.
  bool WaitFor(std::chrono::milliseconds time) const {
    // Beyond what a clock's nanoseconds hold the time would be over before it begins.
    constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 100);
    time = std::clamp(time, std::chrono::milliseconds(0), kLongest);
    std::unique_lock lock(state_->mutex);
    return state_->is_ready.wait_for(lock, time, [this] { return state_->value.has_value(); });
  }
  // Waits for the answer and returns it. Not on a thread of the executor, which would wait for
  // itself.
  T Get() && {
    std::unique_lock lock(state_->mutex);
    state_->is_ready.wait(lock, [this] { return state_->value.has_value(); });
    return *std::move(state_->value);
  }

  // A future of what `function(T)` makes of the answer: a value, or another Future, whose answer
  // follows without blocking a thread. The function runs on the executor's thread when the answer
  // arrives (on a coroutine's stack of 128 KiB: no deep recursion, no large arrays), or here if it
  // has arrived already: it must not block. An exception that it throws becomes Internal.
  template <typename Function>
  auto Then(Function function) && {
    using Made = std::invoke_result_t<Function&, T>;
    if constexpr (future_internal::IsFuture<Made>::value) {
      return std::move(*this).template ThenFuture<typename future_internal::IsFuture<Made>::Answer>(
          std::move(function));
    } else {
      return std::move(*this).template ThenAnswer<Made>(std::move(function));
    }
  }

  // The bare form of Then(): `next` throws nothing.
  void OnReady(std::function<void(T)> next) && {
    std::optional<T> value;
    {
      std::lock_guard lock(state_->mutex);
      if (!state_->value.has_value()) {
        state_->next = std::move(next);
        return;
      }
      value = std::move(state_->value);
    }
    next(*std::move(value));
  }

 private:
  template <typename>
  friend class Promise;
  template <typename>
  friend class Future;

  explicit Future(std::shared_ptr<future_internal::State<T>> state) : state_(std::move(state)) {}

  template <typename U, typename Function>
  Future<U> ThenAnswer(Function function) &&;
  template <typename U, typename Function>
  Future<U> ThenFuture(Function function) &&;

  std::shared_ptr<future_internal::State<T>> state_;
};

// The side that gives the answer. The future may belong to any thread. A promise that is destroyed
// without an answer gives Cancelled.
template <typename T>
class Promise {
 public:
  Promise() : state_(std::make_shared<future_internal::State<T>>()) {}
  ~Promise() {
    if (!is_set_)
      Set(future_internal::Failed<T>(absl::CancelledError("the promise went without an answer")));
  }
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;

  // Once.
  Future<T> future() { return Future<T>(state_); }
  // Once.
  void Set(T value) {
    is_set_ = true;
    std::function<void(T)> next;
    {
      std::lock_guard lock(state_->mutex);
      if (state_->next == nullptr) {
        state_->value = std::move(value);
        state_->is_ready.notify_all();
        return;
      }
      next = std::move(state_->next);
    }
    next(std::move(value));
  }

 private:
  const std::shared_ptr<future_internal::State<T>> state_;
  bool is_set_ = false;
};

template <typename T>
template <typename U, typename Function>
Future<U> Future<T>::ThenAnswer(Function function) && {
  const auto promise = std::make_shared<Promise<U>>();
  Future<U> made = promise->future();
  const auto shared = std::make_shared<Function>(std::move(function));
  std::move(*this).OnReady([promise, shared](T value) {
    promise->Set(future_internal::Contained<U>(*shared, std::move(value)));
  });
  return made;
}

template <typename T>
template <typename U, typename Function>
Future<U> Future<T>::ThenFuture(Function function) && {
  const auto promise = std::make_shared<Promise<U>>();
  Future<U> made = promise->future();
  const auto shared = std::make_shared<Function>(std::move(function));
  std::move(*this).OnReady([promise, shared](T value) {
    const auto begin = [&shared](T answer) -> absl::StatusOr<Future<U>> {
      return (*shared)(std::move(answer));
    };
    auto begun = future_internal::Contained<absl::StatusOr<Future<U>>>(begin, std::move(value));
    if (!begun.ok()) return promise->Set(future_internal::Failed<U>(begun.status()));
    (*std::move(begun)).OnReady([promise](U answer) { promise->Set(std::move(answer)); });
  });
  return made;
}

// Executor::Submit() with a future for the answer. If Submit() refuses the operation, the answer
// has its status at once.
inline Future<OperationResult> SubmitFuture(Executor& executor, const Tree& tree,
                                            Operation operation) {
  const auto promise = std::make_shared<Promise<OperationResult>>();
  Future<OperationResult> answer = promise->future();
  absl::Status submitted =
      executor.Submit(tree, std::move(operation),
                      [promise](OperationResult result) { promise->Set(std::move(result)); });
  if (!submitted.ok()) {
    promise->Set(future_internal::Failed<OperationResult>(std::move(submitted)));
  }
  return answer;
}

// All answers, in the order of their futures, once the last one has arrived.
template <typename T>
Future<absl::StatusOr<std::vector<T>>> WhenAll(std::vector<Future<T>> futures) {
  struct Gathered {
    std::mutex mutex;
    std::vector<std::optional<T>> answers;
    size_t missing = 0;
    Promise<absl::StatusOr<std::vector<T>>> promise;

    void GiveAll() {
      std::vector<T> all;
      all.reserve(answers.size());
      for (std::optional<T>& answer : answers) all.push_back(*std::move(answer));
      promise.Set(std::move(all));
    }
  };
  const auto gathered = std::make_shared<Gathered>();
  gathered->answers.resize(futures.size());
  gathered->missing = futures.size();
  Future<absl::StatusOr<std::vector<T>>> all = gathered->promise.future();
  if (futures.empty()) gathered->GiveAll();
  for (size_t i = 0; i < futures.size(); ++i) {
    std::move(futures[i]).OnReady([gathered, i](T answer) {
      {
        std::lock_guard lock(gathered->mutex);
        gathered->answers[i] = std::move(answer);
        if (--gathered->missing > 0) return;
      }
      gathered->GiveAll();
    });
  }
  return all;
}

}  // namespace pando
