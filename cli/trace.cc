#include "cli/trace.h"

#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "cli/exit_codes.h"
#include "cli/output.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

// A span goes from an event's entry to the next one of those that end it, at the worker that the beginning names.
struct Span {
  const char* name;
  const char* begins;
  std::vector<std::string> ends;
};

const std::vector<Span>& Spans() {
  static const std::vector<Span>* const spans = new std::vector<Span>{
      {"queued", "queued", {"reserved", "prefilling", "moved", "done"}},
      {"queued again", "moved", {"reserved", "prefilling", "moved", "done"}},
      {"prefill", "prefilling", {"first_token", "moved", "done"}},
      {"reserved", "reserved", {"committed", "decoding", "moved", "done"}},
      {"transfer", "first_token", {"committed", "moved", "done"}},
      {"decode", "committed", {"moved", "done"}},
  };
  return *spans;
}

class Trace {
 public:
  void Add(const json& timeline, const std::string& request, int thread) {
    for (size_t i = 0; i < timeline.size(); ++i) {
      const std::string name = timeline[i].value("name", "");
      bool spans = false;
      for (const Span& span : Spans()) {
        if (name != span.begins) continue;
        const json* end = End(timeline, i, span);
        // Nothing is transferred where one worker does both.
        if (end == nullptr || (std::string(span.name) == "transfer" && end->value("name", "") != "committed")) continue;
        AddSpan(span.name, timeline[i], *end, request, thread);
        spans = true;
      }
      if (!spans) AddInstant(name, timeline[i], thread);
    }
  }

  json Take() && {
    for (const auto& [worker, pid] : pids_) {
      events_.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", worker}}}});
    }
    return {{"traceEvents", std::move(events_)}, {"displayTimeUnit", "ms"}};
  }

 private:
  static const json* End(const json& timeline, size_t from, const Span& span) {
    for (size_t i = from + 1; i < timeline.size(); ++i) {
      const std::string name = timeline[i].value("name", "");
      for (const std::string& end : span.ends) {
        if (name == end) return &timeline[i];
      }
    }
    return nullptr;
  }

  int Pid(const json& entry, bool router) {
    const std::string worker = router ? "" : entry.value("worker", "");
    return pids_.emplace(worker.empty() ? "router" : worker, int(pids_.size()) + 1).first->second;
  }

  void AddSpan(const std::string& name, const json& begin, const json& end, const std::string& request, int thread) {
    const double at = begin.value("at_ms", 0.0);
    const bool router = name.starts_with("queued");
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"pid", Pid(name == "transfer" ? end : begin, router)},
                       {"tid", thread},
                       {"ts", 1000 * at},
                       {"dur", 1000 * (end.value("at_ms", 0.0) - at)},
                       {"args", {{"request", request}}}});
  }

  void AddInstant(const std::string& name, const json& entry, int thread) {
    json event = {{"ph", "i"},     {"name", name}, {"pid", Pid(entry, false)},
                  {"tid", thread}, {"s", "t"},     {"ts", 1000 * entry.value("at_ms", 0.0)}};
    if (entry.value("amount", int64_t{0}) != 0) event["args"] = {{"amount", entry.value("amount", int64_t{0})}};
    events_.push_back(std::move(event));
  }

  json events_ = json::array();
  std::map<std::string, int> pids_;
};

absl::StatusOr<std::vector<json>> Read(std::istream& in) {
  std::vector<json> answers;
  for (in >> std::ws; in.peek() != std::istream::traits_type::eof(); in >> std::ws) {
    json answer;
    try {
      in >> answer;
    } catch (const json::exception&) {
      return absl::InvalidArgumentError(
          absl::StrCat("object ", answers.size() + 1, " is not JSON; give what `sluice generate --json` prints"));
    }
    answers.push_back(std::move(answer));
  }
  if (answers.empty()) return absl::InvalidArgumentError("nothing to read; give what `sluice generate --json` prints");
  return answers;
}

int Complain(const absl::Status& status, int code) {
  std::cerr << "sluice: " << status.message() << "\n";
  return code;
}

}  // namespace

absl::StatusOr<json> ChromeTrace(const std::vector<json>& answers) {
  Trace trace;
  for (size_t i = 0; i < answers.size(); ++i) {
    const json& answer = answers[i];
    const bool has = answer.is_object() && answer.contains("timing") && answer["timing"].is_object() &&
                     answer["timing"].contains("timeline") && answer["timing"]["timeline"].is_array();
    if (!has) {
      return absl::InvalidArgumentError(
          absl::StrCat("object ", i + 1, " has no timing.timeline; give what `sluice generate --json` prints"));
    }
    for (const json& entry : answer["timing"]["timeline"]) {
      if (!entry.is_object()) return absl::InvalidArgumentError(absl::StrCat("object ", i + 1, ": timing.timeline"));
    }
    trace.Add(answer["timing"]["timeline"], answer.value("request_id", ""), int(i) + 1);
  }
  return std::move(trace).Take();
}

int RunTrace(const TraceOptions& options) {
  std::ifstream file;
  if (options.file != "-") {
    file.open(options.file);
    if (!file) return Complain(absl::NotFoundError(absl::StrCat(options.file, ": cannot be read")), kExitUsage);
  }
  absl::StatusOr<std::vector<json>> answers = Read(options.file == "-" ? std::cin : file);
  if (!answers.ok()) return Complain(answers.status(), kExitUsage);
  absl::StatusOr<json> trace = ChromeTrace(*answers);
  if (!trace.ok()) return Complain(trace.status(), kExitUsage);
  const absl::Status shown = Print(trace->dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  return shown.ok() ? kExitOk : Complain(shown, kExitServer);
}

}  // namespace sluice::cli
