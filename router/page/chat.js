// A small chat. A model without a chat template continues plain text instead.
import {NeedsKey, stream} from "./api.js";
import {byId, element} from "./dom.js";

let said = [];  // {role, content}
let running = null;  // AbortController
let plain = false;

function add(kind, text) {
  const entry = element("div", {class: `said ${kind}`}, text);
  byId("chat-log").append(entry);
  entry.scrollIntoView({block: "nearest"});
  return entry;
}

function goPlain() {
  plain = true;
  byId("chat-note").hidden = false;
  byId("chat-note").textContent = "This model has no chat template: it continues your text.";
}

async function answer(entry, signal) {
  const limit = {max_tokens: Number(byId("chat-tokens").value) || 200};
  const take = (text) => {
    entry.textContent += text;
    byId("chat-log").scrollTop = byId("chat-log").scrollHeight;
  };
  if (!plain) {
    try {
      await stream("/v1/chat/completions", {...limit, messages: said}, signal, (event) => take(event.choices?.[0]?.delta?.content ?? ""));
      return;
    } catch (error) {
      if (error.param !== "messages") throw error;  // what we send is right, so it is the template that is missing
      goPlain();
    }
  }
  const prompt = said[said.length - 1].content;
  await stream("/v1/completions", {...limit, prompt}, signal, (event) => take(event.choices?.[0]?.text ?? ""));
}

function busy(now) {
  running = now;
  byId("chat-send").hidden = now !== null;
  byId("chat-stop").hidden = now === null;
}

export function startChat(needsKey) {
  byId("chat-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = byId("chat-text").value.trim();
    if (text === "" || running) return;
    byId("chat-text").value = "";
    said.push({role: "user", content: text});
    add("user", text);
    const entry = add("assistant", "");
    busy(new AbortController());
    try {
      await answer(entry, running.signal);
    } catch (error) {
      if (error instanceof NeedsKey) needsKey();
      else if (error.name !== "AbortError") add("error", error.message);
    }
    if (entry.textContent === "") entry.remove();
    else said.push({role: "assistant", content: entry.textContent});
    if (said[said.length - 1].role === "user") said.pop();  // roles take turns
    busy(null);
  });
  byId("chat-text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    byId("chat-form").requestSubmit();
  });
  byId("chat-stop").addEventListener("click", () => running?.abort());
  byId("chat-clear").addEventListener("click", () => {
    running?.abort();
    said = [];
    byId("chat-log").replaceChildren();
  });
}
