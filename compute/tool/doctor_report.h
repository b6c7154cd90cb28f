// What `pando doctor` has found, line by line.
//
// [ok] is as it should be, [note] works but could be better or is for later, [fix] has to be
// changed.
#pragma once

#include <string>

namespace pando::tool {

class DoctorReport {
 public:
  void Ok(const std::string& text) { Add("[ok]   ", text, ""); }
  // `how`: a command, or what to do; "": nothing.
  void Note(const std::string& text, const std::string& how = "") { Add("[note] ", text, how); }
  void Fix(const std::string& text, const std::string& how) {
    Add("[fix]  ", text, how);
    ++fixes_;
  }
  // A [fix] if it is needed for what was asked for, else a [note].
  void Lack(bool needed, const std::string& text, const std::string& how) {
    needed ? Fix(text, how) : Note(text, how);
  }

  const std::string& text() const { return text_; }
  int fixes() const { return fixes_; }

 private:
  void Add(const char* mark, const std::string& text, const std::string& how) {
    text_ += mark + text + "\n";
    if (!how.empty()) text_ += "       -> " + how + "\n";
  }

  std::string text_;
  int fixes_ = 0;
};

}  // namespace pando::tool
