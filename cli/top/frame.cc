#include "cli/top/frame.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/bench/summary.h"
#include "cli/status.h"
#include "cli/table.h"
#include "proto/names.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

struct Pool {
  int workers = 0, active = 0, running = 0, waiting = 0;
  int64_t blocks = 0, used = 0;
  double tokens_per_s = 0;
  bool any_rate = false;
};

std::map<std::string, Pool> PoolsOf(const Sample& now, const Sample* before) {
  std::map<std::string, Pool> pools;
  for (const v1::WorkerStatus& worker : now.state.workers()) {
    if (worker.state() == v1::WORKER_STATE_GONE) continue;
    Pool& pool = pools[RoleName(worker.role())];
    pool.workers += 1;
    pool.active += worker.state() == v1::WORKER_STATE_ACTIVE;
    pool.running += worker.running();
    pool.waiting += worker.waiting();
    pool.blocks += worker.blocks_total();
    pool.used += worker.blocks_total() - worker.blocks_free();
    if (const std::optional<WorkerRate> rate = RateOf(worker, now, before)) {
      pool.tokens_per_s += rate->tokens_per_s;
      pool.any_rate = true;
    }
  }
  return pools;
}

struct Recent {
  bench::Spread ttft_ms, tpot_ms;
  int failed = 0;
};

std::optional<Recent> RecentOf(const Sample& now, double window_s) {
  if (!now.requests) return std::nullopt;
  std::vector<double> ttft, tpot;
  Recent recent;
  for (const v1::RequestSummary& request : now.requests->requests()) {
    if (request.ended_ms() <= 0 || request.ended_ms() > window_s * 1000) continue;
    recent.failed += request.state() == "failed";
    if (request.state() != "done") continue;
    ttft.push_back(request.timing().ttft_ms());
    if (request.completion_tokens() > 1) tpot.push_back(request.timing().tpot_ms());
  }
  recent.ttft_ms = bench::SpreadOf(std::move(ttft));
  recent.tpot_ms = bench::SpreadOf(std::move(tpot));
  return recent;
}

std::string TimesLine(const Sample& now, double window_s) {
  const std::optional<Recent> recent = RecentOf(now, window_s);
  if (!recent) return "TTFT and TPOT: this router does not list its requests\n";
  const auto spread = [](const bench::Spread& s) {
    return s.n == 0 ? std::string("-") : absl::StrFormat("p50 %.1f  p90 %.1f  p99 %.1f ms", s.p50, s.p90, s.p99);
  };
  return absl::StrFormat("of the last %.0f s: %d done, %d failed   TTFT %s   TPOT %s\n", window_s, recent->ttft_ms.n,
                         recent->failed, spread(recent->ttft_ms), spread(recent->tpot_ms));
}

std::string PoolTable(const Sample& now, const Sample* before) {
  std::vector<Row> rows = {{"POOL", "WORKERS", "ACTIVE", "BLOCKS USED", "RUNNING", "WAITING", "TOKENS/S"}};
  for (const auto& [role, pool] : PoolsOf(now, before)) {
    rows.push_back({role, absl::StrCat(pool.workers), absl::StrCat(pool.active),
                    absl::StrFormat("%d/%d (%.0f%%)", pool.used, pool.blocks,
                                    pool.blocks > 0 ? 100.0 * double(pool.used) / double(pool.blocks) : 0.0),
                    absl::StrCat(pool.running), absl::StrCat(pool.waiting),
                    pool.any_rate ? absl::StrFormat("%.1f", pool.tokens_per_s) : "-"});
  }
  return RenderTable(rows);
}

std::string WorkerTable(const Sample& now, const Sample* before) {
  std::vector<Row> rows = {
      {"ROLE", "WORKER", "STATE", "BLOCKS USED", "RUNNING", "WAITING", "ROWS/STEP", "STEPS/S", "TOKENS/S", "STEP MS"}};
  for (const v1::WorkerStatus& worker : now.state.workers()) {
    const std::optional<WorkerRate> rate = RateOf(worker, now, before);
    const auto number = [&](double WorkerRate::*field) {
      return rate ? absl::StrFormat("%.1f", (*rate).*field) : std::string("-");
    };
    rows.push_back({RoleName(worker.role()), absl::StrCat(worker.host(), ":", worker.port()),
                    WorkerStateName(worker.state()),
                    absl::StrCat(worker.blocks_total() - worker.blocks_free(), "/", worker.blocks_total()),
                    absl::StrCat(worker.running()), absl::StrCat(worker.waiting()), number(&WorkerRate::rows_per_step),
                    number(&WorkerRate::steps_per_s), number(&WorkerRate::tokens_per_s),
                    worker.step_ms() > 0 ? absl::StrFormat("%.1f", worker.step_ms()) : "-"});
  }
  return RenderTable(rows);
}

json SpreadJson(const bench::Spread& s) {
  return {{"n", s.n}, {"p50", s.p50}, {"p90", s.p90}, {"p99", s.p99}};
}

}  // namespace

std::optional<WorkerRate> RateOf(const v1::WorkerStatus& now, const Sample& now_at, const Sample* before) {
  if (before == nullptr || now_at.at_s <= before->at_s) return std::nullopt;
  for (const v1::WorkerStatus& then : before->state.workers()) {
    if (then.incarnation() != now.incarnation() || then.port() != now.port()) continue;
    const v1::EngineCounters &a = then.engine(), &b = now.engine();
    if (b.steps() < a.steps() || b.rows() < a.rows()) return std::nullopt;
    const double seconds = now_at.at_s - before->at_s;
    const double steps = double(b.steps() - a.steps()), rows = double(b.rows() - a.rows());
    const double rejected =
        double(b.drafted_tokens() - b.accepted_tokens()) - double(a.drafted_tokens() - a.accepted_tokens());
    return WorkerRate{std::max(0.0, rows - rejected) / seconds, steps / seconds, steps > 0 ? rows / steps : 0};
  }
  return std::nullopt;
}

std::string TopFrame(const Sample& now, const Sample* before, const std::string& router, double window_s) {
  const v1::ClusterState& state = now.state;
  std::string out = absl::StrFormat("router %s  model %s  context %d  queued %d  running %d\n", router,
                                    state.model().empty() ? "-" : state.model(), state.context_length(), state.queued(),
                                    state.running());
  absl::StrAppend(&out, TimesLine(now, window_s), "\n");
  if (state.workers().empty()) return out + "no workers\n";
  return absl::StrCat(out, PoolTable(now, before), "\n", WorkerTable(now, before));
}

json TopJson(const Sample& now, const Sample* before, double window_s) {
  json out = StateJson(now.state);
  for (int i = 0; i < now.state.workers_size(); ++i) {
    const std::optional<WorkerRate> rate = RateOf(now.state.workers(i), now, before);
    json& worker = out["workers"][size_t(i)];
    worker["tokens_per_s"] = rate ? json(rate->tokens_per_s) : json(nullptr);
    worker["steps_per_s"] = rate ? json(rate->steps_per_s) : json(nullptr);
    worker["rows_per_step"] = rate ? json(rate->rows_per_step) : json(nullptr);
  }
  json pools = json::object();
  for (const auto& [role, pool] : PoolsOf(now, before)) {
    pools[role] = {{"workers", pool.workers},
                   {"active", pool.active},
                   {"blocks_total", pool.blocks},
                   {"blocks_used", pool.used},
                   {"running", pool.running},
                   {"waiting", pool.waiting},
                   {"tokens_per_s", pool.any_rate ? json(pool.tokens_per_s) : json(nullptr)}};
  }
  out["pools"] = std::move(pools);
  out["recent"] = nullptr;
  if (const std::optional<Recent> recent = RecentOf(now, window_s)) {
    out["recent"] = {{"window_s", window_s},
                     {"failed", recent->failed},
                     {"ttft_ms", SpreadJson(recent->ttft_ms)},
                     {"tpot_ms", SpreadJson(recent->tpot_ms)}};
  }
  return out;
}

std::string Screen(const std::string& frame, int rows, int columns) {
  std::string out = "\x1b[?2026h\x1b[H";  // drawn at once, where a terminal can
  int drawn = 0;
  for (absl::string_view line : absl::StrSplit(frame, '\n')) {
    if (drawn == rows) break;
    absl::StrAppend(&out, drawn > 0 ? "\r\n" : "", line.substr(0, size_t(std::max(0, columns))), "\x1b[K");
    ++drawn;
  }
  return out + "\x1b[J\x1b[?2026l";
}

}  // namespace sluice::cli
