// Asks the router every two seconds and shows what it says. A router that restarts is found again by itself.
import {counters, hasKey, json, NeedsKey, useKey} from "./api.js";
import {Chart} from "./charts.js";
import {startChat} from "./chat.js";
import {byId, count, element, ms, quantile} from "./dom.js";
import {showRequests} from "./requests.js";
import {stateOf, Workers} from "./workers.js";

const PERIOD = 2000;
const COUNTERS = ["sluice_generation_tokens_total", "sluice_prompt_tokens_total"];
const REMEMBERED = 200;  // requests, by the router

const workers = new Workers();
const charts = {
  ttft: new Chart("Time to first token", ["median", "95 %"], ms),
  tpot: new Chart("Time per output token", ["median", "95 %"], ms),
  tokens: new Chart("Tokens per second", ["generated", "prompt"], count),
  requests: new Chart("Requests", ["running", "waiting"], count),
};
let router = null;   // its incarnation
let before = null;   // counters of the last look
let ended = new Set();  // requests that have been counted
let first = true;

function begin(incarnation) {
  router = incarnation;
  before = null;
  ended = new Set();
  first = true;
  workers.forget();
}

function speeds(values, at) {
  const rates = before === null ? [null, null] : COUNTERS.map((name) => Math.max(0, values[name] - before.values[name]) / (at - before.at));
  before = {values, at};
  return rates;
}

// TTFT and TPOT of those that ended since the last look.
function newlyEnded(requests) {
  const done = requests.filter((r) => r.ended_ms > 0 && r.state === "done");
  const fresh = first ? [] : done.filter((r) => !ended.has(r.request_id));
  ended = new Set(done.map((r) => r.request_id));
  first = false;
  const times = (name) => fresh.map((r) => r.timing[name]).filter((t) => t > 0);
  return {ttft: times("ttft_ms"), tpot: times("tpot_ms")};
}

function tiles(state, speed, requests) {
  const active = state.workers.filter((w) => stateOf(w) === "active").length;
  const present = state.workers.filter((w) => stateOf(w) !== "gone").length;
  const done = requests.filter((r) => r.state === "done");
  const facts = [
    [`${active} / ${present}`, "workers active"], [count(state.queued), "requests waiting"], [count(state.running), "requests running"],
    [speed === null ? "–" : count(speed), "tokens per second"],
    [ms(quantile(done.map((r) => r.timing.ttft_ms), 0.5)), "TTFT, median"],
    [ms(quantile(done.map((r) => r.timing.tpot_ms).filter((t) => t > 0), 0.5)), "TPOT, median"],
  ];
  byId("tiles").replaceChildren(...facts.map(([value, name]) => element("div", {class: "tile"}, element("b", {}, value), element("span", {}, name))));
}

async function look() {
  const [state, list, values] = await Promise.all([
    json("/cluster/state"), json(`/cluster/requests?timeline=0&limit=${REMEMBERED}`), counters(COUNTERS)]);
  const at = Date.now() / 1000;
  if (state.router_incarnation !== router) begin(state.router_incarnation);
  const fresh = newlyEnded(list.requests);
  const speed = speeds(values, at);
  byId("about").textContent = `${state.model}, context ${state.context_length}, router ${state.router_version}`;
  tiles(state, speed[0], list.requests);
  workers.show(state.workers, at);
  showRequests(list.requests);
  charts.ttft.add(at, [quantile(fresh.ttft, 0.5), quantile(fresh.ttft, 0.95)]);
  charts.tpot.add(at, [quantile(fresh.tpot, 0.5), quantile(fresh.tpot, 0.95)]);
  charts.tokens.add(at, speed);
  charts.requests.add(at, [state.running, state.queued]);
}

function contact(text, lost) {
  byId("contact").textContent = text;
  byId("contact").classList.toggle("lost", lost);
}

function needsKey() {
  byId("key-form").hidden = false;
  byId("key-error").textContent = hasKey() ? "That key was refused." : "";
  useKey("");
  contact("waiting for a key", true);
}

async function loop() {
  if (!document.hidden && byId("key-form").hidden) {
    try {
      await look();
      contact("live", false);
    } catch (error) {
      if (error instanceof NeedsKey) needsKey();
      else contact("the router does not answer; trying again", true);
    }
  }
  setTimeout(loop, PERIOD);
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value);
  byId("key").value = "";
  byId("key-form").hidden = true;
});
byId("charts").append(...Object.values(charts).map((chart) => chart.figure));
startChat(needsKey);
loop();
