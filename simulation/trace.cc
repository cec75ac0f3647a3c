#include "simulation/trace.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace sluice::simulation {
namespace {

bool FromJson(const std::string& line, TraceRequest& request) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return false;
  const auto number = [&](const char* name) {
    const auto it = json.find(name);
    return it != json.end() && it->is_number() ? it->get<double>() : -1;
  };
  request.at_s = number("timestamp") / 1000;
  request.prompt_tokens = int(number("input_length"));
  request.answer_tokens = int(number("output_length"));
  const auto ids = json.find("hash_ids");
  if (ids == json.end() || !ids->is_array()) return false;
  for (const nlohmann::json& id : *ids) {
    if (!id.is_number_unsigned()) return false;
    request.blocks.push_back(id.get<uint64_t>());
  }
  return true;
}

// "2023-11-16 18:17:03.9799600,4808,10"
bool FromCsv(const std::string& line, TraceRequest& request) {
  const std::vector<std::string> parts = absl::StrSplit(line, ',');
  absl::Time at;
  std::string error;
  if (parts.size() != 3 || !absl::ParseTime("%Y-%m-%d %H:%M:%E*S", parts[0], &at, &error)) return false;
  request.at_s = absl::ToDoubleSeconds(at - absl::UnixEpoch());
  return absl::SimpleAtoi(parts[1], &request.prompt_tokens) && absl::SimpleAtoi(parts[2], &request.answer_tokens);
}

}  // namespace

absl::StatusOr<std::vector<TraceRequest>> ReadTrace(std::istream& in) {
  std::vector<TraceRequest> requests;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line.starts_with("TIMESTAMP")) continue;
    TraceRequest request;
    const bool good = line.front() == '{' ? FromJson(line, request) : FromCsv(line, request);
    if (!good || request.at_s < 0 || request.prompt_tokens < 1 || request.answer_tokens < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is no request of a trace: ", line.substr(0, 80)));
    }
    request.answer_tokens = std::max(1, request.answer_tokens);
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError("there are no requests");
  std::stable_sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  const double first = requests.front().at_s;
  for (TraceRequest& request : requests) request.at_s -= first;
  return requests;
}

absl::StatusOr<std::vector<TraceRequest>> ReadTraceFile(const std::string& path) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  absl::StatusOr<std::vector<TraceRequest>> requests = ReadTrace(in);
  if (requests.ok()) return requests;
  return absl::Status(requests.status().code(), absl::StrCat(path, ": ", std::string(requests.status().message())));
}

}  // namespace sluice::simulation
