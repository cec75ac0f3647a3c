// What one rendering has besides its variables: its budget, its heap, the objects that change, the time.
#pragma once

#include <ctime>
#include <deque>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/objects.h"
#include "engine/text/jinja/value.h"

namespace sluice::engine::jinja {

class Environment {
 public:
  Environment(const Limits& limits, const std::tm& now) : now_(now), budget_(limits), heap_(&budget_) {}

  Budget& budget() { return budget_; }
  Heap& heap() { return heap_; }
  const std::tm& now() const { return now_; }

  Value NewObject(Object object) {
    budget_.Take(sizeof(Object));
    objects_.push_back(std::move(object));
    return Value(&objects_.back());
  }
  Scope* NewScope(Scope* parent) {
    budget_.Take(sizeof(Scope));
    scopes_.emplace_back(parent);
    return &scopes_.back();
  }

 private:
  std::tm now_;
  Budget budget_;  // outlives all that is charged to it
  Heap heap_;
  std::deque<Object> objects_;
  std::deque<Scope> scopes_;
};

}  // namespace sluice::engine::jinja
