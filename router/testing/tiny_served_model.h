// The tiny random model of engine/files/testing as the router knows it, for tests.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/files/model_file.h"
#include "engine/files/testing/tiny_model.h"
#include "engine/text/tokenizer.h"
#include "glog/logging.h"
#include "router/validate.h"

namespace sluice::router {

class TinyServedModel {
 public:
  explicit TinyServedModel(int context = 256) {
    engine::TinyModelSpec spec;
    spec.layers = 1;
    spec.context = context;
    const std::string path = absl::StrCat("/tmp/sluice_router_test_", getpid(), ".gguf");
    CHECK(engine::WriteTinyModel(path, spec).ok());
    auto opened = engine::OpenModel(path);
    std::remove(path.c_str());  // it stays mapped
    CHECK(opened.ok()) << std::string(opened.status().message());
    file_ = *std::move(opened);
    auto created = engine::Tokenizer::Create(file_->tokenizer());
    CHECK(created.ok()) << std::string(created.status().message());
    tokenizer_ = *std::move(created);
    served_ = Describe(*file_, *tokenizer_, "models/tiny.gguf");
  }

  const ServedModel& served() const { return served_; }
  const engine::Tokenizer& tokenizer() const { return *tokenizer_; }
  std::vector<int32_t> Encode(const std::string& text) const {
    return tokenizer_->Encode(text, engine::SpecialText::kPlain, false);
  }

 private:
  std::unique_ptr<engine::ModelFile> file_;
  std::unique_ptr<engine::Tokenizer> tokenizer_;
  ServedModel served_;
};

}  // namespace sluice::router
