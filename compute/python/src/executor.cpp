// Executors: operations are submitted here, and their answers wait here until a thread of Python's
// takes them. Workers of Pando's run no Python: their coroutines have small stacks, and Python's
// lock would hold them up.
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support.h"

namespace pando_python {
namespace {

struct Answer {
  uint64_t token;
  pando_code code;
  std::string value, message;
  std::vector<std::pair<std::string, std::string>> rows;
};

// Thread-safe. Who submits calls Expect() before, workers Put() or who was refused Forget(), the
// thread that answers Take(). The end comes behind all that is expected: whoever closes the
// executor's client may still be waiting for its workers.
class Answers {
 public:
  void Expect() {
    const std::lock_guard lock(mutex_);
    ++expected_;
  }
  void Forget() {
    {
      const std::lock_guard lock(mutex_);
      --expected_;
    }
    arrived_.notify_all();
  }
  void Put(Answer answer) {
    {
      const std::lock_guard lock(mutex_);
      --expected_;
      waiting_.push_back(std::move(answer));
    }
    arrived_.notify_one();
  }
  // All that have arrived, to an empty `to`; waits for the first. None: there will be no more.
  void Take(std::deque<Answer>* to) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !waiting_.empty() || (is_over_ && expected_ == 0); });
    to->swap(waiting_);
  }
  void End() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    arrived_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Answer> waiting_;
  uint64_t expected_ = 0;
  bool is_over_ = false;
};

// What a callback needs.
struct Pending {
  std::shared_ptr<Answers> answers;
  uint64_t token;
};

std::string StringOf(pando_bytes bytes) {
  return {static_cast<const char*>(bytes.data), bytes.size};
}

void Answered(void* context, const pando_answer* answer) {
  const std::unique_ptr<Pending> pending(static_cast<Pending*>(context));
  const pando_result& result = answer->result;
  Answer copy{pending->token,
              static_cast<pando_code>(result.code),
              StringOf(result.value),
              StringOf(result.message),
              {}};
  copy.rows.reserve(answer->rows_count);
  for (uint64_t i = 0; i < answer->rows_count; ++i) {
    copy.rows.emplace_back(StringOf(answer->rows[i].key), StringOf(answer->rows[i].value));
  }
  pending->answers->Put(std::move(copy));
}

class Executor {
 public:
  Executor(const Client& client, int64_t workers, uint64_t queue_max) : handle_(nullptr) {
    pando_executor_options options = PANDO_EXECUTOR_OPTIONS_INIT;
    options.workers = workers;
    options.queue_max = queue_max;
    Check(Released([&] { return pando_open_executor(client.get(), &options, &handle_); }));
  }
  ~Executor() { Close(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Nobody submits any more: the answers end behind the last. Waits for nothing.
  void End() {
    if (getpid() == process_) answers_->End();
  }

  // The answers end behind the last. Returns when all has been answered, unless somebody else
  // closes it, who waits for that.
  void Close() {
    if (getpid() != process_) return;  // a child of fork() has neither workers nor answers
    (void)Released([this] {
      const pando_code code = pando_close_executor(handle_);
      answers_->End();
      return code;
    });
  }

  void Submit(uint64_t token, const Tree& tree, int64_t kind, const py::object& key,
              const py::object& value, const py::object& expected, const py::object& function,
              const py::object& limit, const py::object& to, bool reverse,
              const py::object& timeout) {
    const Bytes key_bytes(key), value_bytes(value), expected_bytes(expected);
    const Bytes to_bytes(to.is_none() ? py::object(py::bytes()) : to);
    pando_operation operation = PANDO_OPERATION_INIT;
    operation.kind = kind;
    operation.key = key_bytes.view();
    operation.value = value_bytes.view();
    operation.expected = expected_bytes.view();
    operation.function = FunctionOf(function);
    operation.limit = UINT64_MAX;
    if (!limit.is_none()) {
      operation.limit = PyLong_AsUnsignedLongLong(limit.ptr());
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    }
    operation.to = to_bytes.view();
    operation.has_to = to.is_none() ? 0 : 1;
    operation.reverse = reverse ? 1 : 0;
    operation.timeout_ms = TimeoutMs(timeout);
    auto pending = std::make_unique<Pending>(Pending{answers_, token});
    answers_->Expect();
    const pando_code code = Released(
        [&] { return pando_submit(handle_, tree.get(), &operation, Answered, pending.get()); });
    if (code != PANDO_OK) answers_->Forget();
    Check(code);
    (void)pending.release();  // the callback's
  }

  // [(token, error or None, value, rows)] of what has been answered; waits. Empty: it is over.
  py::list Take() {
    std::deque<Answer> taken;
    (void)Released([&] {
      answers_->Take(&taken);
      return PANDO_OK;
    });
    py::list all;
    for (const Answer& answer : taken) {
      py::object error = py::none();
      if (answer.code != PANDO_OK) {
        error =
            MakeError(answer.code, answer.message,
                      answer.code == PANDO_CONDITION_FAILED ? py::object(py::bytes(answer.value))
                                                            : py::none());
      }
      py::list rows(answer.rows.size());
      for (size_t i = 0; i < answer.rows.size(); ++i) {
        rows[i] = py::make_tuple(py::bytes(answer.rows[i].first), py::bytes(answer.rows[i].second));
      }
      all.append(py::make_tuple(answer.token, error, py::bytes(answer.value), rows));
    }
    return all;
  }

 private:
  const pid_t process_ = getpid();
  pando_executor* handle_;
  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
};

}  // namespace

void AddExecutor(py::module_& module) {
  py::class_<Executor>(module, "ExecutorCore")
      .def(py::init<const Client&, int64_t, uint64_t>(), py::keep_alive<1, 2>())
      .def("end", &Executor::End)
      .def("close", &Executor::Close)
      .def("submit", &Executor::Submit)
      .def("take", &Executor::Take);
}

}  // namespace pando_python
