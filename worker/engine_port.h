// What the worker's core needs of an engine, so that the core runs on a real one, on a model of one in the simulation,
// and on a scripted one in tests. The meaning of every call is engine/engine.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace sluice::worker {

class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual absl::Status Add(engine::EngineRequest request) = 0;
  virtual bool Cancel(uint64_t id) = 0;
  virtual bool Park(uint64_t id) = 0;
  virtual absl::Status Activate(uint64_t id, std::span<const engine::FirstToken> firsts) = 0;
  virtual int CachedTokensOf(uint64_t id) const = 0;
  virtual std::vector<int32_t> BlocksOf(uint64_t id) const = 0;
  virtual bool has_work() const = 0;
  // Execute alone may be called in another thread than the rest.
  virtual std::unique_ptr<engine::StepWork> Begin() = 0;
  virtual absl::Status Execute(engine::StepWork& step) = 0;
  virtual std::vector<engine::TokenOutput> Commit(std::unique_ptr<engine::StepWork> step) = 0;
  virtual const std::vector<engine::SequenceProgress>& progress() const = 0;
  virtual engine::EngineStats stats() const = 0;
  virtual const engine::PrefixCache* prefix_cache() const = 0;  // null: it has none
};

// The real one. `engine` must outlive the port.
class LocalEngine final : public EnginePort {
 public:
  explicit LocalEngine(engine::Engine& engine) : engine_(engine) {}
  absl::Status Add(engine::EngineRequest request) override { return engine_.Add(std::move(request)); }
  bool Cancel(uint64_t id) override { return engine_.Cancel(id); }
  bool Park(uint64_t id) override { return engine_.Park(id); }
  absl::Status Activate(uint64_t id, std::span<const engine::FirstToken> firsts) override {
    return engine_.Activate(id, firsts);
  }
  int CachedTokensOf(uint64_t id) const override { return engine_.CachedTokensOf(id); }
  std::vector<int32_t> BlocksOf(uint64_t id) const override { return engine_.BlocksOf(id); }
  bool has_work() const override { return engine_.has_work(); }
  std::unique_ptr<engine::StepWork> Begin() override { return engine_.Begin(); }
  absl::Status Execute(engine::StepWork& step) override { return engine_.Execute(step); }
  std::vector<engine::TokenOutput> Commit(std::unique_ptr<engine::StepWork> step) override {
    return engine_.Commit(std::move(step));
  }
  const std::vector<engine::SequenceProgress>& progress() const override { return engine_.progress(); }
  engine::EngineStats stats() const override { return engine_.stats(); }
  const engine::PrefixCache* prefix_cache() const override { return &engine_.prefix_cache(); }

 private:
  engine::Engine& engine_;
};

}  // namespace sluice::worker
