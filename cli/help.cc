#include "cli/help.h"

namespace sluice::cli {

const char kFooter[] = R"(
Examples:
  sluice generate "What is the capital of France?"
  sluice chat
  sluice status
  sluice top
  sluice drain 127.0.0.1:40123
  sluice bench --rate 4 --requests 200 --ttft-slo-ms 500 --tpot-slo-ms 50
  sluice generate --json "Hello" | sluice trace >trace.json

Exit codes:
  0    done
  1    the router is unreachable, or it reported an error (UNAVAILABLE, DEADLINE_EXCEEDED, ...)
  2    wrong flags, or the router refused an argument and named it
  130  interrupted by Ctrl-C; the request was cancelled (143: by SIGTERM)

Where the router has API keys, SLUICE_API_KEY is sent with every call.
`sluice COMMAND --help` explains a command.)";

const char kGenerateFooter[] = R"(
Examples:
  sluice generate "What is the capital of France?"
  sluice generate --temperature 0.8 --top-p 0.95 --seed 7 --max-tokens 200 "Tell me about rain."
  sluice generate --raw --stop $'\n' --stats "Q: What is 2 + 2? A:"        (TTFT, TPOT and the timeline go to stderr)
  sluice generate --token-ids 504,3575,282,4649,314 --json            (one JSON object at the end)
  cat notes.txt | sluice generate --router gpu-box:50051 -            (the prompt from standard input)

The prompt is a user's message, put into the model's chat template; nothing in it becomes a special token. With --raw, or
where the model has no template, the model continues the text as it is, which may name special tokens such as <|im_start|>.
Exit codes: 0 done, 1 unreachable or an error of the server, 2 wrong flags or a refused argument, 130 Ctrl-C.)";

const char kStatusFooter[] = R"(
Examples:
  sluice status
  sluice status --router localhost:50061 --json | python3 -m json.tool

BLOCKS FREE counts free KV blocks and cached ones that may be evicted; it is back at its start when all is idle.
Exit codes: 0 done, 1 the router is unreachable or reported an error, 2 wrong flags.)";

const char kDrainFooter[] = R"(
Examples:
  sluice drain 127.0.0.1:40123                (no new requests; returns when the last one has ended)
  sluice drain --hand-over 127.0.0.1:40123    (what it decodes goes on at other workers, at once)

`sluice status` shows the addresses. A drained worker stays so; stop it, or restart it to use it again.
Exit codes: 0 it has no request any more, 1 it still has some after --timeout or the router is unreachable, 2 wrong flags.)";

const char kTraceFooter[] = R"(
Examples:
  sluice generate --json "Once upon a time" | sluice trace >trace.json
  for i in 1 2 3; do sluice generate --json "Hello $i"; done | sluice trace >trace.json

Open trace.json in chrome://tracing or https://ui.perfetto.dev: a row for the router and one for each worker.
Exit codes: 0 done, 2 the input is not what `sluice generate --json` prints.)";

const char kChatFooter[] = R"(
Examples:
  sluice chat
  sluice chat --system "You are a poet." --temperature 0.8 --max-tokens 200
  printf 'My name is Ada.\nWhat is my name?\n' | sluice chat          (one question a line, no prompt shown)

In a conversation: /reset forgets what was said, /system TEXT sets the system message, /save FILE writes the
conversation as JSON, /quit or Ctrl-D ends, /help lists these. Ctrl-C stops an answer, and not the session.
A line that ends in \ goes on in the next one; // at its beginning says /. The model's chat template is applied.
Exit codes: 0 done, 1 unreachable or an error of the server, 2 wrong flags or a refused argument, 130 Ctrl-C while
input is not a terminal. Without a terminal the first error ends it; at one it is shown and the session goes on.)";

const char kTopFooter[] = R"(
Examples:
  sluice top                                (q or Ctrl-C ends)
  sluice top --once
  sluice top --json --interval 5 >>cluster.jsonl

TOKENS/S are tokens that the engines computed between two views: of prompts, and of answers without drafts that failed.
TTFT and TPOT are of requests that this router ended within --window. A router that goes away is asked until it is back.
Exit codes: 0 ended, 1 with --once: the router is unreachable or reported an error, 2 wrong flags, 130 Ctrl-C.)";

const char kModelsFooter[] = R"(
Examples:
  sluice models
  sluice models --json

NUMERICS are those of workers that get work; workers of different ones are never paired.
Exit codes: 0 done, 1 the router is unreachable or reported an error, 2 wrong flags.)";

}  // namespace sluice::cli
