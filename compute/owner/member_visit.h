// Keeps a tree open for a job of the service that is not at the turnstile all the time.
#pragma once

#include <cstdint>

#include "compute/owner/member.h"

namespace pando {

class Member::Visit {
 public:
  Visit(Member* member, uint32_t tree_id) : member_(*member), tree_(member->BeginVisit(tree_id)) {}
  ~Visit() {
    if (tree_ != nullptr) member_.EndVisit(tree_);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  OwnedTree* tree() const { return tree_; }  // nullptr: it is closed

 private:
  Member& member_;
  OwnedTree* const tree_;
};

}  // namespace pando
