// The pools and their workers, what changed of them, and the KV between them.
import {byId, bytes, clock, count, element, ms} from "./dom.js";

const ROLES = {ROLE_PREFILL: "prefill", ROLE_DECODE: "decode", ROLE_BOTH: "both"};
const word = (value, prefix) => value.replace(prefix, "").toLowerCase();
const nameOf = (worker) => `${worker.host}:${worker.port}`;
const CHANGES = 5;

export const stateOf = (worker) => word(worker.state, "WORKER_STATE_");

// What came since the last look, of counters that only grow; null at the first one.
class Rates {
  constructor() { this.last = new Map(); }
  since(id, values, at) {
    const before = this.last.get(id);
    this.last.set(id, {values, at});
    if (!before || before.at === at) return null;
    return {seconds: at - before.at, values: values.map((v, i) => v - before.values[i])};
  }
}

export class Workers {
  constructor() { this.forget(); }

  forget() {
    this.steps = new Rates();
    this.moved = new Rates();
    this.rows = new Map();   // by worker, of its last steps
    this.speeds = new Map();  // by pair
    this.states = new Map();
    this.changes = [];
  }

  show(workers, at) {
    this.note(workers, at);
    const pools = Object.entries(ROLES).map(([role, name]) => {
      const own = workers.filter((w) => w.role === role).sort((a, b) => nameOf(a).localeCompare(nameOf(b), undefined, {numeric: true}));
      if (own.length === 0) return null;
      const active = own.filter((w) => stateOf(w) === "active").length;
      return element("div", {class: "pool"}, element("h3", {}, `${name}: ${active} of ${own.length} active`),
                     element("div", {}, ...own.map((w) => this.card(w, at))));
    }).filter((pool) => pool !== null);
    byId("workers").replaceChildren(...(pools.length > 0 ? pools : [element("p", {class: "empty"}, "No worker has announced itself.")]));
    byId("changes").replaceChildren(...this.changes.map((text) => element("li", {}, text)));
    this.flows(workers, at);
  }

  note(workers, at) {
    const now = new Map(workers.map((w) => [w.incarnation, {name: `${ROLES[w.role]} ${nameOf(w)}`, state: stateOf(w)}]));
    if (this.states.size > 0 || this.changes.length > 0) {
      for (const [id, {name, state}] of now) {
        const before = this.states.get(id)?.state;
        if (before !== state) this.change(at, `${name} ${before ? `${before} → ${state}` : `joined, ${state}`}`);
      }
      for (const [id, {name}] of this.states) {
        if (!now.has(id)) this.change(at, `${name} is forgotten`);
      }
    }
    this.states = now;
  }

  change(at, text) {
    this.changes = [`${clock(at * 1000)}  ${text}`, ...this.changes].slice(0, CHANGES);
  }

  card(worker, at) {
    const total = Number(worker.blocks_total), used = total - Number(worker.blocks_free);
    const share = total > 0 ? used / total : 0;
    const engine = worker.engine ?? {};
    const steps = this.steps.since(worker.incarnation, [Number(engine.rows ?? 0), Number(engine.steps ?? 0)], at);
    if (steps?.values[1] > 0) this.rows.set(worker.incarnation, steps.values[0] / steps.values[1]);
    const rows = this.rows.get(worker.incarnation);
    const fill = element("i", share > 0.95 ? {class: "full"} : {});
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    const drafted = Number(engine.drafted_tokens ?? 0);
    const facts = [
      `${worker.running} running, ${worker.waiting} waiting`,
      `step ${ms(worker.step_ms)}${rows === undefined ? "" : `, ${count(rows)} rows`}`,
      Number(engine.preemptions ?? 0) > 0 ? `${engine.preemptions} preemptions` : "",
      drafted > 0 ? `${Math.round(100 * Number(engine.accepted_tokens) / drafted)} % of drafts held` : "",
      worker.prompt_tokens_per_s > 0 ? `prompts ${count(worker.prompt_tokens_per_s)} tokens/s` : "",
    ].filter((fact) => fact !== "");
    const state = stateOf(worker);
    return element("div", {class: `worker ${state}`, "data-worker": nameOf(worker)},
                   element("div", {class: "name"}, element("span", {}, nameOf(worker)), element("span", {class: `state ${state}`}, state)),
                   element("div", {class: "bar", role: "img", "aria-label": `${used} of ${total} blocks in use`}, fill),
                   element("div", {class: "facts"}, `${count(used)} of ${count(total)} blocks in use`),
                   ...facts.map((fact) => element("div", {class: "facts"}, fact)));
  }

  flows(workers, at) {
    const rows = [];
    for (const worker of workers.filter((w) => w.role === "ROLE_PREFILL" && stateOf(w) !== "gone")) {
      for (const flow of worker.kv_flows ?? []) {
        const pair = `${worker.incarnation} ${flow.peer_incarnation}`;
        const moved = this.moved.since(pair, [Number(flow.bytes)], at);
        if (moved) this.speeds.set(pair, moved.values[0] / moved.seconds);
        const transfers = Number(flow.transfers);
        rows.push([nameOf(worker), flow.peer || "gone", flow.channel || "down", bytes(Number(flow.bytes)),
                   `${bytes(this.speeds.get(pair) ?? 0)}/s`, count(transfers), flow.failed_transfers,
                   ms(transfers > 0 ? 1000 * flow.exposed_seconds / transfers : 0)]);
      }
    }
    byId("flows-section").hidden = rows.length === 0;
    const heads = ["prefill", "to", "channel", "moved", "now", "transfers", "failed", "waited for"];
    const cell = (tag) => (text, i) => element(tag, i > 2 ? {class: "number"} : {}, String(text));
    byId("flows").replaceChildren(element("thead", {}, element("tr", {}, ...heads.map(cell("th")))),
                                  element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell("td"))))));
  }
}
