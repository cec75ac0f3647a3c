// The requests that run and the last ones that ended; one's timeline when it is picked.
import {json} from "./api.js";
import {byId, count, element, ms} from "./dom.js";

const SHOWN = 20;
const HEADS = ["request", "state", "tenant", "prompt", "cached", "tokens", "queue", "TTFT", "TPOT", "age", "workers"];
const NUMBERS = new Set([3, 4, 5, 6, 7, 8, 9]);
const PHASES = [["queue", "queue"], ["prefill", "prefill"], ["handover", "KV to the decode worker"], ["decode", "decode"]];

let picked = null;

const cell = (tag, text, i) => element(tag, {class: NUMBERS.has(i) ? "number" : i === 0 ? "name" : ""}, text);

function row(request) {
  const timing = request.timing;
  const workers = [request.prefill_worker, request.decode_worker].filter((name) => name).join(" → ");
  const texts = [request.request_id, request.state, request.tenant, count(request.prompt_tokens), count(request.cached_tokens),
                 count(request.completion_tokens), ms(timing.queue_ms), ms(timing.ttft_ms), ms(timing.tpot_ms),
                 ms(request.age_ms), workers];
  const made = element("tr", {class: "pick", tabindex: "0", "data-request": request.request_id, title: request.error || request.request_id},
                       ...texts.map((text, i) => cell("td", text, i)));
  if (request.state === "failed") made.children[1].classList.add("failed");
  if (request.request_id === picked) made.classList.add("picked");
  const pick = () => showTimeline(request.request_id);
  made.addEventListener("click", pick);
  made.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(); });
  return made;
}

export function showRequests(requests) {
  const rows = requests.slice(0, SHOWN).map(row);
  if (rows.length === 0) rows.push(element("tr", {}, element("td", {class: "empty", colspan: HEADS.length}, "None yet.")));
  byId("requests").replaceChildren(element("thead", {}, element("tr", {}, ...HEADS.map((head, i) => cell("th", head, i)))),
                                   element("tbody", {}, ...rows));
}

// [kind, from, to] in milliseconds, as far as the timeline tells.
function phasesOf(timeline, end) {
  const at = (name) => timeline.find((entry) => entry.name === name)?.at_ms;
  const marks = [["queue", 0], ["prefill", at("prefilling") ?? at("reserved")], ["handover", at("first_token")],
                 ["decode", at("decoding") ?? at("committed")]].filter(([, from]) => from !== undefined);
  // A worker that computes the prompt itself hands nothing over.
  if (at("committed") === undefined) {
    const first = at("first_token");
    const kept = marks.filter(([kind]) => kind === "queue" || kind === "prefill");
    if (first !== undefined) kept.push(["decode", first]);
    return kept.map(([kind, from], i) => [kind, from, kept[i + 1]?.[1] ?? end]);
  }
  return marks.map(([kind, from], i) => [kind, from, marks[i + 1]?.[1] ?? end]);
}

async function showTimeline(id) {
  picked = id;
  for (const other of document.querySelectorAll("#requests tr.pick")) other.classList.toggle("picked", other.dataset.request === id);
  const request = (await json(`/cluster/requests?id=${encodeURIComponent(id)}`)).requests[0];
  const place = byId("timeline");
  place.hidden = false;
  const close = element("button", {type: "button"}, "Close");
  close.addEventListener("click", () => { picked = null; place.hidden = true; });
  const title = element("h3", {}, element("span", {}, id), close);
  if (!request) return place.replaceChildren(title, element("p", {class: "empty"}, "The router does not remember it any more."));
  const timeline = request.timing.timeline ?? [];
  const end = Math.max(request.age_ms, 0.001);
  const bar = element("div", {class: "phases", role: "img", "aria-label": "phases"});
  const phases = phasesOf(timeline, end);
  for (const [kind, from, to] of phases) {
    const part = element("i", {class: kind});
    part.style.left = `${100 * from / end}%`;
    part.style.width = `${100 * Math.max(0, to - from) / end}%`;
    bar.append(part);
  }
  const legend = element("div", {class: "legend"});
  for (const [kind, text] of PHASES) {
    const phase = phases.find((p) => p[0] === kind);
    if (phase) legend.append(element("span", {}, element("i", {class: kind}), `${text} ${ms(phase[2] - phase[1])}`));
  }
  const rows = timeline.map((entry) => element("tr", {}, ...[`${entry.at_ms.toFixed(1)} ms`, entry.name, entry.worker,
      Number(entry.amount) > 0 ? String(entry.amount) : ""].map((text, i) => element("td", i % 3 === 0 ? {class: "number"} : {}, text))));
  place.replaceChildren(title, element("div", {class: "facts"}, `${request.state}${request.error ? `: ${request.error}` : ""}`), bar, legend,
                        element("div", {class: "wide"}, element("table", {}, element("tbody", {}, ...rows))));
  place.scrollIntoView({block: "nearest"});
}
